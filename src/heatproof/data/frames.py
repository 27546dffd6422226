"""A pandas DataFrame as rows of numbers, and back: a category is a column of 0 and 1 for each of its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from heatproof.data.arrays import open_items
from heatproof.data.choices import NO_LABEL, Choice, ranked
from heatproof.data.dataset import Data, Sample
from heatproof.errors import UserError, nearest, unknown
from heatproof.features.segments import COLUMNS

Array = NDArray[Any]


def is_frame(source: Any) -> bool:
    """Whether something is a DataFrame of pandas, which is not imported for it."""
    return type(source).__name__ == "DataFrame" and hasattr(source, "iloc")


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A column of numbers, which stays one column.

    Samples are float32. `exact` has those values of the frame that float32 rounds, so that a model reads the same
    numbers as in the frame: without it a tree may send a rounded value down the other branch.
    """

    name: str
    dtype: Any
    exact: Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, name: str, column: Any) -> NumberColumn:
        """Return a column of a frame by its type, with those of its values that float32 would round."""
        values = np.unique(column.to_numpy(np.float64, na_value=np.nan))
        values = values[np.isfinite(values)]
        is_rounded = values.astype(np.float32) != values
        return cls(name, column.dtype, values[is_rounded])

    @property
    def titles(self) -> tuple[str, ...]:
        """The names of the columns of numbers."""
        return (self.name,)

    def encoded(self, column: Any) -> Array:
        """Return a column of a frame as numbers (n, 1), NaN in gaps."""
        return np.asarray(column.to_numpy(np.float32, na_value=np.nan)[:, None])

    def decoded(self, numbers: Array) -> Any:
        """Return float32 numbers (n, 1) as a column of the frame, in its own type and with the frame's exact values.

        A column of whole numbers that holds fractions now, because a sample was changed, stays a column of floats.
        """
        import pandas as pd

        rounded = numbers[:, 0]
        values = rounded.astype(np.float64)
        if len(self.exact):
            # A number that equals an exact value rounded to float32 becomes that exact value again.
            exact_rounded = self.exact.astype(np.float32)
            position = np.searchsorted(exact_rounded, rounded).clip(max=len(exact_rounded) - 1)
            was_rounded = exact_rounded[position] == rounded
            values = np.where(was_rounded, self.exact[position], values)
        column = pd.Series(values, name=self.name)
        if self.dtype.kind == "b":
            return (column >= 0.5).astype(self.dtype)
        if self.dtype.kind in "iu" and not np.array_equal(values, np.round(values)):
            return column  # a changed count, such as 2.3 visits
        return column.astype(self.dtype)

    def merged(self, other: NumberColumn) -> NumberColumn:
        """Return the column with the exact values of another frame as well."""
        return replace(self, exact=np.union1d(self.exact, other.exact))

    def layout(self) -> tuple[Any, ...]:
        """Return what two frames must share so that their rows of numbers mean the same."""
        return (self.name, "number")


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """A column of words or categories, of which each value becomes a column of 0 and 1.

    `usual` is the most frequent category: it takes the place of one that was removed, where all columns are 0.
    """

    name: str
    dtype: Any
    categories: Any
    usual: int = 0

    @classmethod
    def of(cls, name: str, column: Any) -> CategoryColumn:
        """Return a column of a frame by its type, with its categories and the most frequent one."""
        accessor = column.astype("category").cat
        codes = accessor.codes.to_numpy()
        counts = np.bincount(codes[codes >= 0], minlength=max(1, len(accessor.categories)))
        return cls(name, column.dtype, accessor.categories, int(counts.argmax()))

    @property
    def titles(self) -> tuple[str, ...]:
        """The names of the columns of numbers, such as `colour=red`."""
        return tuple(f"{self.name}={value}" for value in self.categories)

    def encoded(self, column: Any) -> Array:
        """Return a column of a frame one-hot encoded, (n, categories), NaN in gaps."""
        codes = self.categories.get_indexer(column.astype(object))  # −1 in gaps
        one_hot = np.eye(len(self.categories), dtype=np.float32)[codes]
        one_hot[codes < 0] = np.nan
        return np.asarray(one_hot)

    def decoded(self, numbers: Array) -> Any:
        """Return one-hot numbers (n, categories) as a column: the category with the largest number, in ties the usual one."""
        import pandas as pd

        # Too small to matter but in ties.
        preference = np.zeros(len(self.categories))
        preference[self.usual] = 1e-6
        codes = (numbers + preference).argmax(1)
        values = pd.Categorical.from_codes(codes, categories=self.categories)
        if isinstance(self.dtype, pd.CategoricalDtype):
            return pd.Series(values.astype(self.dtype), name=self.name)
        return pd.Series(np.asarray(values), name=self.name).astype(self.dtype)

    def merged(self, other: CategoryColumn) -> CategoryColumn:
        """Return the column itself."""
        return self

    def layout(self) -> tuple[Any, ...]:
        """Return what two frames must share so that their rows of numbers mean the same."""
        return (self.name, *map(str, self.categories))


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """The columns of a DataFrame, with the way to rows of numbers and back.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [31, 54], "job": ["cook", "pilot"]})
    >>> columns = FrameColumns.of(frame)
    >>> columns.encoded(frame).tolist()
    [[31.0, 1.0, 0.0], [54.0, 0.0, 1.0]]
    >>> columns.decoded(columns.encoded(frame)).equals(frame)
    True
    """

    columns: tuple[Any, ...]

    @classmethod
    def of(cls, frame: Any) -> FrameColumns:
        """Return the columns of a frame; columns of times are refused."""
        columns: list[NumberColumn | CategoryColumn] = []
        for name, column in frame.items():
            if column.dtype.kind in "Mm":
                raise UserError(f"column {name!r} holds times; make them numbers, or leave it out")
            is_number = column.dtype.kind in "biuf" and not hasattr(column, "cat")
            kind = NumberColumn if is_number else CategoryColumn
            columns.append(kind.of(str(name), column))
        return cls(tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the frame's columns."""
        return tuple(column.name for column in self.columns)

    @property
    def titles(self) -> tuple[str, ...]:
        """The names of the columns of numbers."""
        return tuple(title for column in self.columns for title in column.titles)

    @property
    def owners(self) -> list[int]:
        """The column of the frame to which each column of numbers belongs."""
        return [number for number, column in enumerate(self.columns) for _ in column.titles]

    @property
    def has_categories(self) -> bool:
        """Whether a column is one of categories."""
        return any(isinstance(column, CategoryColumn) for column in self.columns)

    def encoded(self, frame: Any) -> Array:
        """Return the rows of a frame as numbers (n, F) float32, NaN in gaps."""
        numbers = [np.empty((len(frame), 0), np.float32)]
        numbers += [column.encoded(frame[column.name]) for column in self.columns]
        return np.concatenate(numbers, 1, dtype=np.float32)

    def decoded(self, numbers: Array) -> Any:
        """Return rows of numbers (n, F) as a frame."""
        import pandas as pd

        series, start = [], 0
        for column in self.columns:
            end = start + len(column.titles)
            series.append(column.decoded(numbers[:, start:end]))
            start = end
        return pd.concat(series, axis=1)

    def layout(self) -> tuple[Any, ...]:
        """Return what two frames must share so that their rows of numbers mean the same."""
        return tuple(column.layout() for column in self.columns)

    def merged(self, other: FrameColumns) -> FrameColumns:
        """Return columns that decode the rows of this frame and of another one with the same layout."""
        pairs = zip(self.columns, other.columns, strict=True)
        return FrameColumns(tuple(column.merged(same) for column, same in pairs))


def with_values_of(data: Data, source: Any, others: Sequence[Any]) -> Data:
    """Return the data of a DataFrame, able to encode the rows of other frames too, such as those of a background.

    `source` is what `data` were opened from: if it is a frame, or a pair of frame and labels, it is opened again so that
    categories that only the `others` have get columns too. If it is not a frame, the categories stay as they are, and the
    exact values of the others' numbers are added, which float32 rounds.
    """
    if data.frame is None or not others:
        return data
    frame = source[0] if isinstance(source, tuple) else source
    if not is_frame(frame):
        frame = None
    names = data.frame.names
    same_columns = [columns_of(other, names)[list(names)] for other in others]
    if frame is None or not data.frame.has_categories:
        columns = data.frame
        for other in same_columns:
            columns = columns.merged(FrameColumns.of(other))
        return replace(data, frame=columns)
    widened = open_frame(frame, Choice(), same_columns)
    titles = ", ".join(widened.columns or ())
    return replace(
        widened,
        name=data.name,
        labels=data.labels,
        class_names=data.class_names,
        prepared={**data.prepared, "columns": titles},
    )


def columns_of(frame: Any, names: Sequence[str]) -> Any:
    """Return a frame of a background with its columns named by text; raise if it lacks one of `names`."""
    frame = frame.rename(columns=str)
    for name in names:
        if name not in frame.columns:
            close = nearest(name, frame.columns, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UserError(f"the background lacks the column {name!r} of the data{hint}")
    return frame


def open_frame(frame: Any, choice: Choice, others: Sequence[Any] = ()) -> Data:
    """Open the rows of a DataFrame as samples (F,) of numbers; ids are its index.

    `choice` names the columns of labels and groups, which are not inputs. A column of numbers stays one column; one of
    words or categories is one-hot encoded, with columns named like `colour=red`, and `aux["_columns"]` has for each column
    of numbers the number of its column in the frame, so that explanations treat a category as one feature. A row with a
    missing value is recorded as unreadable. Labels that are not whole numbers are what a regression predicts, and are
    left out. Categories that only `others` have, frames with the same columns, get columns too.
    """
    import pandas as pd

    frame = frame.rename(columns=str)
    label = None if choice.label == NO_LABEL else choice.label
    not_inputs = [name for name in (label, choice.groups) if name is not None]
    for name in not_inputs:
        if name not in frame.columns:
            raise unknown("column of the DataFrame", name, frame.columns)
    if not frame.columns.is_unique:
        raise unknown("column of the DataFrame", "twice the same", frame.columns)
    inputs = frame.drop(columns=not_inputs)
    columns = FrameColumns.of(pd.concat([inputs, *others]) if others else inputs)
    titles = columns.titles
    rows = torch.from_numpy(columns.encoded(inputs))
    items = [_row_or_gap(row, titles) for row in rows]
    labels, class_names = None, None
    if label is not None:
        labels, class_names = _classes(frame[label])
    aux = {COLUMNS: torch.tensor(columns.owners)} if columns.has_categories else {}
    data = open_items(
        "table",
        items,
        partial(_sample, aux=aux),
        prepared=f"columns {list(titles)}",
        ids=ids_of_index(frame.index),
        shape=(len(titles),),
        labels=labels,
        class_names=class_names,
    )
    if choice.groups is not None:
        data = data.grouped(list(map(str, frame[choice.groups])))
    return replace(data, columns=titles, frame=columns)


def _sample(row: tuple[torch.Tensor], aux: Mapping[str, torch.Tensor]) -> Sample:
    return Sample(row[0], None, aux)


def _row_or_gap(row: torch.Tensor, titles: Sequence[str]) -> tuple[torch.Tensor] | ValueError:
    """Return a row, or the first column in which it has no value."""
    gaps = row.isfinite().logical_not().nonzero()
    return ValueError(f"no value in {titles[int(gaps[0])]}") if len(gaps) else (row,)


def ids_of_index(index: Any) -> list[str] | None:
    """Return the entries of a DataFrame's index as ids; None for the default index 0, 1, … and for repeated numbers."""
    if index.dtype.kind == "i":
        is_default = index.equals(type(index)(range(len(index))))
        if is_default or not index.is_unique:
            return None
    return list(map(str, index))


def _classes(column: Any) -> tuple[list[Any] | None, tuple[str, ...] | None]:
    """Return the labels in a column, None for missing ones, and the names of the classes.

    Words and categories become numbers, and name the classes. Whole numbers are labels without names. Other numbers are
    not classes, so there are neither labels nor names.
    """
    values = []
    for value, is_missing in zip(column.tolist(), column.isna(), strict=True):
        values.append(None if is_missing else value)
    if not all(value is None or isinstance(value, int | float) for value in values):
        return ranked(values)
    are_whole = all(value is None or value == int(value) for value in values)
    return (values if are_whole else None), None
