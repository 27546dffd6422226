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

T = TypeVar("T")

NO_LABEL = "none"
"""`label="none"` leaves the labels out."""

_ALIASES = ({"val", "valid", "validation", "dev"}, {"test", "t10k"})
SPLITS = {"train", "training", "eval", *_ALIASES[0], *_ALIASES[1]}
_COUNTED = re.compile(r"[-_.]?\d+(-of-\d+)?$")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_FILES = 100_000


class Choice(NamedTuple):
    """What to take of data that holds several splits, labels or columns of groups; None where that is left open."""

    split: str | None = None
    label: str | None = None
    groups: str | None = None


def only_choices(what: str, choice: Choice, *allowed: str) -> None:
    """Refuse a choice that data of this form does not offer.

    >>> only_choices("film.npz", Choice(split="test"), "label")
    Traceback (most recent call last):
    heatproof.errors.UserError: split='test' does not fit 'film.npz': it has no parts to choose from
    """
    for key, value in zip(("split", "label"), choice, strict=False):
        if value is not None and key not in allowed and not (key == "label" and value == NO_LABEL):
            reason = (
                "it has no parts to choose from"
                if key == "split"
                else "its labels are not a matter of choice"
            )
            raise UserError(f"{key}={value!r} does not fit {what!r}: {reason}")


def one_split(what: str, split: str | None, found: Mapping[str, T]) -> T:
    """The part that `split` names, or the only one; `val`, `validation` and `imagenet-val` are the same split.

    >>> one_split("cifar", "test", {"train": 1, "test": 2}), one_split("data", None, {"data": 3})
    (2, 3)
    """
    if split is None:
        if len(found) == 1:
            return next(iter(found.values()))
        example = next(
            (name for name in found if _same(name, "test") or _same(name, "val")),
            next(iter(found), "test"),
        )
        raise UserError(
            f"{what!r} holds the splits {', '.join(sorted(found))}; choose one, such as split={example!r}"
        )
    if split in found:
        return found[split]
    fitting = [name for name in found if _same(name, split)]
    if len(fitting) != 1:
        raise unknown(f"split of {what!r}", split, found)
    return found[fitting[0]]


def _same(name: str, split: str) -> bool:
    names = next((group for group in _ALIASES if split in group), {split})
    return name in names or re.split(r"[-_.]", name)[-1] in names


def grouped(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Files that differ in their number only, by the name that they share.

    >>> files = map(Path, ("train-00001-of-00002.parquet", "train-00000-of-00002.parquet", "test-0.parquet"))
    >>> {name: len(group) for name, group in grouped(files).items()}
    {'test': 1, 'train': 2}
    """
    groups: dict[str, list[Path]] = {}
    for path in sorted(paths):
        groups.setdefault(_COUNTED.sub("", path.stem) or "data", []).append(path)
    return groups


def expanded(pattern: str) -> list[str]:
    """Every name that a pattern with `{000..012}` or `{a,b}` stands for.

    >>> expanded("shard-{08..10}.tar")
    ['shard-08.tar', 'shard-09.tar', 'shard-10.tar']
    """
    pieces = _BRACES.split(pattern)
    choices = [
        [piece] if i % 2 == 0 else _alternatives(piece, pattern) for i, piece in enumerate(pieces)
    ]
    count = 1
    for options in choices:
        count *= len(options)
        if count > _MOST_FILES:
            raise UserError(f"{pattern!r} stands for more than {_MOST_FILES} files")
    return ["".join(parts) for parts in product(*choices)]


def _alternatives(inside: str, pattern: str) -> list[str]:
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
    return [str(i).zfill(len(numbers[1])) for i in range(first, last + 1)]


def whole_label(value: Any, what: str) -> int:
    """A label as an int; None, a missing one, is −1."""
    if value is None:
        return -1
    single = isinstance(value, Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1
    number = value.item() if single else value
    if isinstance(number, list | tuple | Tensor | np.ndarray):
        raise UserError(
            f"{what} must be one whole number, got several: {str(value)[:60]}; choose the target"
        )
    if not isinstance(number, int | float) or not math.isfinite(number) or number != int(number):
        raise UserError(
            f"{what} must be one whole number, got {type(value).__name__} {str(value)[:60]}"
        )
    return int(number)


def whole_labels(values: Iterable[Any] | None, what: str) -> tuple[int, ...] | None:
    """Labels as ints; None where there are none.

    >>> whole_labels([3, np.int64(1), None, 2.0], "shapes")
    (3, 1, -1, 2)
    """
    return (
        None
        if values is None
        else tuple(whole_label(v, f"label {i} of {what}") for i, v in enumerate(values))
    )


def ranked(
    labels: Sequence[Any], among: Iterable[Any] = ()
) -> tuple[list[int | None], tuple[str, ...]]:
    """Labels of any kind as 0 … K − 1 in their sorted order and that of others, and what each number stands for.

    >>> ranked([-1, 1, None, 1])
    ([0, 1, None, 1], ('-1', '1'))
    """
    distinct = sorted({*labels, *among} - {None})
    number: dict[Any, int | None] = {None: None, **{value: i for i, value in enumerate(distinct)}}
    return [number[value] for value in labels], tuple(
        f"{v:g}" if isinstance(v, float) else str(v) for v in distinct
    )
