"""Series, one per row: `.tsv` in the layout of the UCR archive, and `.csv` with or without a header."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heatproof.data.arrays import open_items
from heatproof.data.choices import NO_LABEL, ranked
from heatproof.data.dataset import Data, Sample
from heatproof.data.text import as_text, cells_of, unpacked
from heatproof.errors import UserError, unknown

_LABELS = ("label", "labels", "class", "target", "y")
_IDS = ("id", "ids")


class Row(NamedTuple):
    """The cells of one row: its id, its label as it is written, its steps, and the group it belongs to."""

    id: str | None
    label: str | None
    steps: Sequence[str]
    group: str = ""


def open_series(
    path: Path,
    shape: tuple[int, ...] | None = None,
    label: str | None = None,
    groups: str | None = None,
) -> Data:
    """Series of a file, each as (1, T), or as `shape` says: (T,) for the row of a table, (C, T) for C channels.

    Without a header the label comes first, or `label="last"`. With one it is the column `label`, `class`, `target` or
    `y`, or the one that `label` names; a column `id` gives ids, and the one named `groups` is no step. Labels are
    numbered in the sorted order of those in `NAME_TRAIN` and `NAME_TEST` together, so that both files agree when one
    lacks a class. A row with a gap, or with another number of steps than most, is recorded as an error.
    """
    rows = _rows(path, label, groups)
    parsed = [_steps(row.steps) for row in rows]
    lengths = Counter(len(values) for values in parsed if not isinstance(values, Exception))
    steps = lengths.most_common(1)[0][0] if lengths else 0
    if steps < 1:
        raise UserError(
            f"{str(path)!r} has no row of numbers with the label first (the UCR archive's layout), nor a header with "
            "label; to read it as text give a vocabulary"
        )
    shape = (1, steps) if shape is None else shape
    if math.prod(shape) != steps or len(shape) not in (1, 2):
        raise UserError(
            f"shape={list(shape)} does not fit rows of {steps} numbers; give [{steps}] or [1, {steps}]"
        )
    labels, names = _numbered(rows, path, label)
    ids = [row.id for row in rows if row.id is not None]
    data = open_items(
        Path(path.name.removesuffix(".gz")).stem,
        [values if isinstance(values, Exception) else _series(values, steps) for values in parsed],
        partial(_one_series, shape=shape),
        prepared="series" if shape == (1, steps) else f"series {shape}",
        shape=shape,
        ids=ids if len(ids) == len(rows) else None,
        labels=labels,
        class_names=names,
    )
    return data if groups is None else data.grouped([row.group for row in rows])


def _one_series(series: tuple[Tensor], shape: tuple[int, ...]) -> Sample:
    return Sample(series[0].reshape(shape))


def _series(values: Sequence[float], steps: int) -> tuple[Tensor] | ValueError:
    if len(values) != steps:
        return ValueError(f"{len(values)} steps where most have {steps}")
    x = torch.tensor([values], dtype=torch.float32)
    return (
        (x,)
        if bool(torch.isfinite(x).all())
        else ValueError("steps that are not finite (NaN or infinite)")
    )


def _steps(cells: Sequence[str]) -> list[float] | ValueError:
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        return ValueError(f"not a row of numbers: {error}")


def _rows(path: Path, label: str | None, groups: str | None = None) -> list[Row]:
    """The rows of a file; a header is a first line of names, or with one cell called label or id."""
    text = as_text(unpacked(path), str(path))
    first = next((line for line in text.splitlines() if line.strip()), "")
    between = max("\t,;", key=first.count)
    cells = cells_of(text, str(path), between)
    header = [cell.strip() for cell in cells[0]] if cells else []
    words = [cell for cell in header if not _is_number(cell)]
    if 2 * len(words) > len(header) or any(cell.lower() in (*_LABELS, *_IDS) for cell in words):
        return _named(cells[1:], header, label, path, groups)
    if groups is not None:
        raise UserError(f"{str(path)!r} has no header, so groups={groups!r} names no column")
    if label not in (None, "first", "last", NO_LABEL):
        raise UserError(
            f"{str(path)!r} has no header, so label={label!r} names no column; give first, last or none"
        )
    if label == NO_LABEL:
        return [Row(None, None, row) for row in cells]
    rows = [
        Row(None, row[-1], row[:-1]) if label == "last" else Row(None, row[0], row[1:])
        for row in cells
    ]
    numbers = any(_is_number(row.label or "") for row in rows)
    if not numbers and all(len(row.steps) < 2 for row in rows):
        return []  # words and one number: texts, more likely than series of one step
    said = [row.label or "" for row in rows]
    return [
        r._replace(steps=[s]) if numbers and not _is_number(s) else r
        for r, s in zip(rows, said, strict=True)
    ]


def _named(
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    label: str | None,
    path: Path,
    groups: str | None,
) -> list[Row]:
    if groups is not None and groups not in header:
        raise unknown(f"column of {str(path)!r}", groups, header)
    together = None if groups is None else header.index(groups)
    lower = [cell.lower() for cell in header]
    if label in (None, NO_LABEL):
        place = next((lower.index(name) for name in _LABELS if name in lower), None)
    elif label in ("first", "last") and label not in header:
        place = 0 if label == "first" else len(header) - 1
    elif label in header:
        place = header.index(label)
    else:
        raise unknown(f"column of {str(path)!r}", label, header)
    identity = next((lower.index(name) for name in _IDS if name in lower), None)
    apart = {place, identity, together}
    return [
        Row(
            None if identity is None or identity >= len(row) else row[identity],
            None if place is None or place >= len(row) else row[place],
            [cell for i, cell in enumerate(row) if i not in apart],
            "" if together is None or together >= len(row) else row[together],
        )
        for row in rows
    ]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell.strip()  # a gap in a row of numbers
    return True


def _value(label: str) -> float | str | None:
    """A label as the number or the word that it is; None for a gap."""
    text = label.strip()
    try:
        number = float(text)
    except ValueError:
        return text or None
    return number if math.isfinite(number) else None


def _numbered(
    rows: Sequence[Row], path: Path, label: str | None
) -> tuple[list[Any] | None, tuple[str, ...] | None]:
    if label == NO_LABEL:
        return None, None
    mine = [None if row.label is None else _value(row.label) for row in rows]
    if all(value is None for value in mine):
        return None, None
    others = [row.label for other in _other_split(path) for row in _rows(other, label)]
    every = {
        value
        for value in (*mine, *(_value(text) for text in others if text is not None))
        if value is not None
    }
    if any(isinstance(value, str) for value in every):
        every = {f"{value:g}" if isinstance(value, float) else value for value in every}
        mine = [f"{value:g}" if isinstance(value, float) else value for value in mine]
    return ranked(mine, every)


def _other_split(path: Path) -> list[Path]:
    for mine, other in (("_TRAIN.", "_TEST."), ("_TEST.", "_TRAIN.")):
        if mine in path.name:
            plain = path.with_name(path.name.replace(mine, other).removesuffix(".gz"))
            return [
                found for found in (plain, plain.with_name(f"{plain.name}.gz")) if found.is_file()
            ][:1]
    return []
