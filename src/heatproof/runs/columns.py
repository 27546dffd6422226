"""Columns of Arrow tables: text as dictionaries, in order, and rows in the order of several of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray


def of_part(part: pq.ParquetFile, schema: pa.Schema) -> pa.Table:
    """Return the rows of a part in a schema; columns that it lacks are null, others are left out."""
    stored_names = [name for name in schema.names if name in part.schema_arrow.names]
    rows = part.read(columns=stored_names, use_threads=False)
    for i, field in enumerate(schema):
        if field.name not in rows.column_names:
            rows = rows.add_column(i, field, pa.nulls(len(rows), field.type))
    rows = rows.select(schema.names)
    return rows if rows.schema.equals(schema) else rows.cast(schema)


def coded(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every column of text as a dictionary."""
    code = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(f.name, code if f.type == pa.string() else f.type) for f in schema])


def sorted_dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a column with one dictionary whose texts are in order, so that sorting by index sorts by text."""
    combined = column.unify_dictionaries().combine_chunks()
    order = pc.sort_indices(combined.dictionary)  # by code points, as Python sorts
    rank_of_index = np.empty(len(order), dtype=np.int32)
    rank_of_index[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    indices = pc.take(pa.array(rank_of_index), combined.indices)
    return pa.DictionaryArray.from_arrays(indices, combined.dictionary.take(order))


def sorted_by_key(
    rows: pa.Table, names: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the order of the rows by some columns, and which rows, in that order, repeat the key of the one before.

    The ranks of a row in all columns are the digits of one number, by which the rows are sorted.
    """
    key = np.zeros(len(rows), dtype=np.int64)
    size = 1
    for name in names:
        rank = _rank(rows[name])
        ranks = int(rank.max(initial=0)) + 1
        if size * ranks >= 2**62:
            # Too many combinations for 64 bits: number only those that occur.
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            size = int(key.max(initial=0)) + 1
        key = key * ranks + rank
        size *= ranks
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.zeros(min(len(key), 1), dtype=bool)
    return order, np.concatenate([first, key[1:] == key[:-1]])


def _rank(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return numbers in the order of the values; nulls come last."""
    if pa.types.is_dictionary(column.type):
        combined = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        indices = pc.fill_null(combined.indices, len(combined.dictionary))
        return np.asarray(indices.to_numpy(), dtype=np.int64)
    # By hashing, since millions of rows have few different values.
    codes, values = pd.factorize(column.to_numpy(), sort=True)
    return np.where(codes < 0, len(values), codes)
