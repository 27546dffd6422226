"""Parts of a data set: one of its splits, one of its labels as a whole number, and the files that belong together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from heatproof.errors import UserError, unknown

Value = TypeVar("Value")

NO_LABEL = "none"
"""`label="none"` leaves the labels out."""

_SAME_SPLIT = ({"val", "valid", "validation", "dev"}, {"test", "t10k"})
SPLITS = {"train", "training", "eval", *_SAME_SPLIT[0], *_SAME_SPLIT[1]}
_COUNTED = re.compile(r"[-_.]?\d+(-of-\d+)?$")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_FILES = 100_000


class Choice(NamedTuple):
    """What to take of data that holds several splits, labels or columns of groups; None where that is left open."""

    split: str | None = None
    label: str | None = None
    groups: str | None = None


def only_choices(what: str, choice: Choice, *allowed: str) -> None:
    """Raise `UserError` for a choice of split or label that data of this form do not offer.

    >>> only_choices("film.npz", Choice(split="test"), "label")
    Traceback (most recent call last):
    heatproof.errors.UserError: split='test' does not fit 'film.npz': it has no parts to choose from
    """
    if choice.split is not None and "split" not in allowed:
        raise UserError(
            f"split={choice.split!r} does not fit {what!r}: it has no parts to choose from"
        )
    if choice.label not in (None, NO_LABEL) and "label" not in allowed:
        raise UserError(
            f"label={choice.label!r} does not fit {what!r}: label= is not supported for this format"
        )


def one_split(what: str, split: str | None, by_name: Mapping[str, Value]) -> Value:
    """Return what `by_name` has under a split, or its only value if no split is named; `what` names the data in errors.

    Other spellings of a split are understood: `val`, `validation` and `imagenet-val` are the same.

    >>> one_split("cifar", "test", {"train": 1, "test": 2}), one_split("data", None, {"data": 3})
    (2, 3)
    """
    if split is None:
        if len(by_name) == 1:
            return next(iter(by_name.values()))
        held_out = [name for name in by_name if _same(name, "test") or _same(name, "val")]
        examples = [*held_out, *by_name, "test"]
        raise UserError(
            f"{what!r} holds the splits {', '.join(sorted(by_name))}; choose one, such as split={examples[0]!r}"
        )
    if split in by_name:
        return by_name[split]
    matches = [name for name in by_name if _same(name, split)]
    if len(matches) != 1:
        raise unknown(f"split of {what!r}", split, by_name)
    return by_name[matches[0]]


def _same(name: str, split: str) -> bool:
    """Whether a name such as `imagenet-val` is that of a split, by its last word."""
    aliases = {split}
    for group in _SAME_SPLIT:
        if split in group:
            aliases = group
    last_word = re.split(r"[-_.]", name)[-1]
    return name in aliases or last_word in aliases


def grouped(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Return files grouped by the name that they share, such as the shards of a split, which differ in a number only.

    >>> files = map(Path, ("train-00001-of-00002.parquet", "train-00000-of-00002.parquet", "test-0.parquet"))
    >>> {name: len(group) for name, group in grouped(files).items()}
    {'test': 1, 'train': 2}
    """
    groups: dict[str, list[Path]] = {}
    for path in sorted(paths):
        groups.setdefault(_COUNTED.sub("", path.stem) or "data", []).append(path)
    return groups


def expanded(pattern: str) -> list[str]:
    """Return every name that a pattern with `{000..012}` or `{a,b}` stands for.

    >>> expanded("shard-{08..10}.tar")
    ['shard-08.tar', 'shard-09.tar', 'shard-10.tar']
    """
    # `split` with a group gives plain text and the inside of braces in turn.
    choices = []
    count = 1
    for i, piece in enumerate(_BRACES.split(pattern)):
        is_plain = i % 2 == 0
        choices.append([piece] if is_plain else _alternatives(piece, pattern))
        count *= len(choices[-1])
        if count > _MOST_FILES:
            raise UserError(f"{pattern!r} stands for more than {_MOST_FILES} files")
    return ["".join(pieces) for pieces in product(*choices)]


def _alternatives(inside: str, pattern: str) -> list[str]:
    """Return what the inside of braces stands for: numbers from one to another, or a list."""
    numbers = re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", inside)
    if numbers is None:
        if "," not in inside:
            raise UserError(f"{pattern!r} has {{{inside}}}; {{000..012}} or {{a,b}} was expected")
        return inside.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    if not 0 <= last - first < _MOST_FILES:
        raise UserError(
            f"{pattern!r} counts from {first} to {last}; a rising range of files was expected"
        )
    digits = len(numbers[1])
    return [str(i).zfill(digits) for i in range(first, last + 1)]


def whole_label(value: Any, what: str) -> int:
    """Return a label as an int; None, a missing one, is −1."""
    if value is None:
        return -1
    is_array = isinstance(value, Tensor | np.ndarray | np.generic)
    if is_array and math.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, list | tuple | Tensor | np.ndarray):
        raise UserError(
            f"{what} must be one whole number, got several: {str(value)[:60]}; choose the target"
        )
    if not isinstance(value, int | float) or not math.isfinite(value) or value != int(value):
        raise UserError(f"{what} must be one whole number, got {repr(value)[:60]}")
    return int(value)


def whole_labels(values: Iterable[Any] | None, what: str) -> tuple[int, ...] | None:
    """Return labels as ints; None where there are none.

    >>> whole_labels([3, np.int64(1), None, 2.0], "shapes")
    (3, 1, -1, 2)
    """
    if values is None:
        return None
    return tuple(whole_label(value, f"label {i} of {what}") for i, value in enumerate(values))


def ranked(
    labels: Sequence[Any], among: Iterable[Any] = ()
) -> tuple[list[int | None], tuple[str, ...]]:
    """Return labels as numbers 0 … K − 1, in sorted order, and the name of each number; None stays None.

    Labels in `among` get numbers too, so that data sets with different classes can be numbered alike.

    >>> ranked([-1, 1, None, 1])
    ([0, 1, None, 1], ('-1', '1'))
    """
    distinct = sorted({*labels, *among} - {None})
    numbers: dict[Any, int | None] = {value: i for i, value in enumerate(distinct)}
    names = tuple(f"{v:g}" if isinstance(v, float) else str(v) for v in distinct)
    return [numbers.get(label) for label in labels], names
