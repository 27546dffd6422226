"""Columns of Arrow tables: text as dictionaries, in order, and rows in the order of several of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray


def of_part(part: pq.ParquetFile, wanted: pa.Schema) -> pa.Table:
    """The rows of a part in a schema; what it lacks is empty, what it has besides is left out."""
    rows = part.read(
        columns=[name for name in wanted.names if name in part.schema_arrow.names],
        use_threads=False,
    )
    for i, field in enumerate(wanted):  # a part that somebody else wrote may lack a column
        if field.name not in rows.column_names:
            rows = rows.add_column(i, field, pa.nulls(len(rows), field.type))
    rows = rows.select(wanted.names)
    return rows if rows.schema.equals(wanted) else rows.cast(wanted)


def coded(schema: pa.Schema) -> pa.Schema:
    """The same with every column of text as a dictionary."""
    code = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(f.name, code if f.type == pa.string() else f.type) for f in schema])


def sorted_dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """One dictionary for all chunks, with its texts in order, so that sorting by text is sorting by index."""
    whole = column.unify_dictionaries().combine_chunks()
    order = pc.sort_indices(whole.dictionary)  # by code points, as Python sorts
    place_of = np.empty(len(order), dtype=np.int32)
    place_of[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    indices = pc.take(pa.array(place_of), whole.indices)
    return pa.DictionaryArray.from_arrays(indices, whole.dictionary.take(order))


def sorted_by_key(
    rows: pa.Table, names: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The order of the rows by some columns, and which of them, in that order, have the key of the one before."""
    numbers = [_rank(rows[name]) for name in names]
    key = np.zeros(len(rows), dtype=np.int64)
    size = 1
    for number in numbers:
        span = int(number.max(initial=0)) + 1
        if (
            size * span >= 2**62
        ):  # too many combinations for one number each: count those that there are
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            size = int(key.max(initial=0)) + 1
        key, size = key * span + number, size * span
    order = np.argsort(key, kind="stable")
    key = key[order]
    return order, np.concatenate([np.zeros(min(len(key), 1), dtype=bool), key[1:] == key[:-1]])


def _rank(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Numbers in the order of the values; what is missing comes last."""
    if pa.types.is_dictionary(column.type):
        whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        return np.asarray(
            pc.fill_null(whole.indices, len(whole.dictionary)).to_numpy(), dtype=np.int64
        )
    codes, kinds = pd.factorize(
        column.to_numpy(), sort=True
    )  # by hashing: there are few, and millions of rows
    return np.where(codes < 0, len(kinds), codes)
