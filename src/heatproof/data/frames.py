"""A pandas DataFrame as rows of numbers: numbers as they are, a column of 0 and 1 for each value of a category."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from heatproof.data.arrays import open_items
from heatproof.data.choices import NO_LABEL, Choice, ranked
from heatproof.data.dataset import Data, Sample
from heatproof.errors import UserError, unknown
from heatproof.features.segments import COLUMNS


def is_frame(source: Any) -> bool:
    """Whether something is a DataFrame of pandas, which is not imported for it."""
    return type(source).__name__ == "DataFrame" and hasattr(source, "iloc")


def open_frame(frame: Any, choice: Choice) -> Data:
    """Rows (F,) of a DataFrame without the columns that are chosen as label and groups; ids are its index.

    Columns of numbers stay one, those of words or categories become one for each category, in sorted order and named
    `colour=red`; `aux["_columns"]` says which column of the frame each belongs to, so that they are one feature. A row
    with a gap is recorded as an error. A label that is no whole number is what a regression predicts, and no class.
    """
    frame, label = frame.rename(columns=str), None if choice.label == NO_LABEL else choice.label
    apart = [asked for asked in (label, choice.groups) if asked is not None]
    lost = [asked for asked in apart if asked not in frame.columns]
    if lost or not frame.columns.is_unique:
        raise unknown(
            "column of the DataFrame", lost[0] if lost else "twice the same", frame.columns
        )
    parts, titles, owner = list[Any](), list[str](), list[int]()
    for number, (name, column) in enumerate(frame.drop(columns=apart).items()):
        if column.dtype.kind in "Mm":
            raise UserError(f"column {name!r} holds times; make them numbers, or leave it out")
        if column.dtype.kind in "biuf":
            made, own = column.to_numpy(np.float32, na_value=np.nan)[:, None], [name]
        else:
            known = column.astype("category").cat
            made = np.where(
                column.isna(),
                np.nan,
                np.eye(len(known.categories), dtype=np.float32)[known.codes].T,
            ).T
            own = [f"{name}={value}" for value in known.categories]
        parts, titles, owner = [*parts, made], titles + own, owner + [number] * len(own)
    rows = torch.from_numpy(np.concatenate([np.empty((len(frame), 0)), *parts], 1)).float()
    gaps = [[titles[i] for i in row.isfinite().logical_not().nonzero()] for row in rows]
    items = [
        ValueError(f"no value in {gap[0]}") if gap else (row,)
        for row, gap in zip(rows, gaps, strict=True)
    ]
    labels, classes = (None, None) if label is None else _classes(frame[label])
    aux = {COLUMNS: torch.tensor(owner)} if len(parts) < len(titles) else {}
    ids = None if frame.index.dtype.kind == "i" else list(map(str, frame.index))
    data = open_items("table", items, lambda row: Sample(row[0], None, aux), prepared=f"columns {titles}", ids=ids,
                      shape=(len(titles),), labels=labels, class_names=classes)  # fmt: skip
    data = data if choice.groups is None else data.grouped(list(map(str, frame[choice.groups])))
    return replace(data, columns=tuple(titles))


def _classes(column: Any) -> tuple[list[Any] | None, tuple[str, ...] | None]:
    values = [
        None if gap else value for value, gap in zip(column.tolist(), column.isna(), strict=True)
    ]
    if all(value is None or isinstance(value, int | float) for value in values):
        return (
            values if all(value is None or value == int(value) for value in values) else None
        ), None
    return ranked(values)
