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
    """Open the series in a text file, one per row, as samples (1, T).

    `shape` makes them (T,), for rows of a table, or (C, T), for C channels. Without a header the label is the first cell
    of a row, or the last with `label="last"`. With a header it is the column `label`, `class`, `target` or `y`, or the one
    that `label` names; a column `id` has ids, and `groups` names the column of groups. Labels are numbered in sorted
    order; of a pair of files `NAME_TRAIN` and `NAME_TEST` those of both, so that a class has one number. A row with a gap,
    or with another number of steps than most, is recorded as unreadable.
    """
    rows = _rows(path, label, groups)
    parsed = [_numbers(row.steps) for row in rows]
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
    items: list[Any] = []
    for values in parsed:
        items.append(values if isinstance(values, Exception) else _series(values, steps))
    labels, class_names = _numbered(rows, path, label)
    ids = [row.id for row in rows if row.id is not None]
    data = open_items(
        Path(path.name.removesuffix(".gz")).stem,
        items,
        partial(_one_series, shape=shape),
        prepared="series" if shape == (1, steps) else f"series {shape}",
        shape=shape,
        ids=ids if len(ids) == len(rows) else None,
        labels=labels,
        class_names=class_names,
    )
    return data if groups is None else data.grouped([row.group for row in rows])


def _one_series(series: tuple[Tensor], shape: tuple[int, ...]) -> Sample:
    return Sample(series[0].reshape(shape))


def _series(values: Sequence[float], steps: int) -> tuple[Tensor] | ValueError:
    """Return the values as a tensor (1, T), or why they are no series like the others."""
    if len(values) != steps:
        return ValueError(f"{len(values)} steps where most have {steps}")
    x = torch.tensor([values], dtype=torch.float32)
    if not bool(torch.isfinite(x).all()):
        return ValueError("steps that are not finite (NaN or infinite)")
    return (x,)


def _rows(path: Path, label: str | None, groups: str | None = None) -> list[Row]:
    """Return the rows of a file, separated by tabs, commas or semicolons, by its header if it has one.

    The first line is a header if most of its cells are words, or if one is called label, id or the like.
    """
    text = as_text(unpacked(path), str(path))
    first_line = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max("\t,;", key=first_line.count)
    cells = cells_of(text, str(path), delimiter)
    header = [cell.strip() for cell in cells[0]] if cells else []
    words = [cell for cell in header if not _is_number(cell)]
    has_usual_name = any(cell.lower() in (*_LABELS, *_IDS) for cell in words)
    if 2 * len(words) > len(header) or has_usual_name:
        return _rows_below_header(cells[1:], header, label, path, groups)
    if groups is not None:
        raise UserError(f"{str(path)!r} has no header, so groups={groups!r} names no column")
    if label not in (None, "first", "last", NO_LABEL):
        raise UserError(
            f"{str(path)!r} has no header, so label={label!r} names no column; give first, last or none"
        )
    return _rows_without_header(cells, label)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell.strip()  # a gap in a row of numbers
    return True


def _value(label: str | None) -> float | str | None:
    """Return a label as the number or the word that it is; None for a gap."""
    text = "" if label is None else label.strip()
    try:
        number = float(text)
    except ValueError:
        return text or None
    return number if math.isfinite(number) else None


def _numbered(
    rows: Sequence[Row], path: Path, label: str | None
) -> tuple[list[Any] | None, tuple[str, ...] | None]:
    """Return labels as numbers and the names of the classes, in the sorted order of both splits' labels."""
    if label == NO_LABEL:
        return None, None
    values = [_value(row.label) for row in rows]
    if all(value is None for value in values):
        return None, None
    other_values = [
        _value(row.label) for other in _other_split(path) for row in _rows(other, label)
    ]
    distinct = {*values, *other_values} - {None}
    if any(isinstance(value, str) for value in distinct):  # words and numbers have no common order
        distinct = {_as_text(value) for value in distinct}
        values = [_as_text(value) for value in values]
    return ranked(values, distinct)


def _other_split(path: Path) -> list[Path]:
    """Return the file of test series beside that of training series, and the other way round, if it is there."""
    for split, other in (("_TRAIN.", "_TEST."), ("_TEST.", "_TRAIN.")):
        if split in path.name:
            name = path.name.replace(split, other).removesuffix(".gz")
            candidates = [path.with_name(name), path.with_name(f"{name}.gz")]
            return [file for file in candidates if file.is_file()][:1]
    return []


def _numbers(cells: Sequence[str]) -> list[float] | ValueError:
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        return ValueError(f"not a row of numbers: {error}")


def _rows_without_header(cells: Sequence[Sequence[str]], label: str | None) -> list[Row]:
    """Return the rows of a file without a header, with the label in their first cell, or in the last.

    A file whose rows are a word and one number holds texts, not series: it has no rows.
    """
    if label == NO_LABEL:
        return [Row(None, None, row) for row in cells]
    if label == "last":
        rows = [Row(None, row[-1], row[:-1]) for row in cells]
    else:
        rows = [Row(None, row[0], row[1:]) for row in cells]
    labels_are_numbers = any(_is_number(row.label or "") for row in rows)
    if not labels_are_numbers:
        has_series = any(len(row.steps) >= 2 for row in rows)
        return rows if has_series else []  # words and one number are texts, not series of one step
    checked = []
    for row in rows:
        label_cell = row.label or ""
        # A word among numbers is damage: as its only step, it makes the row an error.
        is_damaged = not _is_number(label_cell)
        checked.append(row._replace(steps=[label_cell]) if is_damaged else row)
    return checked


def _rows_below_header(
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    label: str | None,
    path: Path,
    groups: str | None,
) -> list[Row]:
    """Return the rows below a header, with the cells of its columns of labels, ids and groups apart from the steps.

    `label` and `groups` name columns; without them the label is in a column of a usual name, and there are no groups.
    """
    lower = [cell.lower() for cell in header]
    group_column = None
    if groups is not None:
        if groups not in header:
            raise unknown(f"column of {str(path)!r}", groups, header)
        group_column = header.index(groups)
    if label in (None, NO_LABEL):
        label_column = next((lower.index(name) for name in _LABELS if name in lower), None)
    elif label in header:
        label_column = header.index(label)
    elif label in ("first", "last"):
        label_column = 0 if label == "first" else len(header) - 1
    else:
        raise unknown(f"column of {str(path)!r}", label, header)
    id_column = next((lower.index(name) for name in _IDS if name in lower), None)
    not_steps = {label_column, id_column, group_column}
    parsed = []
    for row in rows:
        steps = [cell for i, cell in enumerate(row) if i not in not_steps]
        parsed.append(
            Row(
                id=_cell(row, id_column),
                label=_cell(row, label_column),
                steps=steps,
                group=_cell(row, group_column) or "",
            )
        )
    return parsed


def _cell(row: Sequence[str], column: int | None) -> str | None:
    """Return a cell of a row; None where there is no such column, or the row is too short."""
    return None if column is None or column >= len(row) else row[column]


def _as_text(value: float | str | None) -> str | None:
    return f"{value:g}" if isinstance(value, float) else value
