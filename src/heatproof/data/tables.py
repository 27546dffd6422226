"""Tables of pictures or texts: Parquet, Arrow, and what Hugging Face's `datasets` writes; one file or many.

A table is read by chunks (Parquet's row groups, Arrow's record batches), each checked before its values are touched.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from heatproof.data.choices import NO_LABEL, ranked
from heatproof.data.dataset import Data, How, numbered
from heatproof.data.files import encoded
from heatproof.errors import UserError, unknown

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather")
_PICTURES = ("image", "img", "picture", "photo")
TEXTS = ("text", "sentence")
_LABELS = ("label", "labels")


class Chunks(NamedTuple):
    """Where the rows of several files are: chunk c is `places[c]`, a file and a number in it, and begins at row `starts[c]`."""

    places: tuple[tuple[Path, int], ...]
    starts: tuple[int, ...]


def open_table(name: str, files: Sequence[Path], how: How, label: str | None = None) -> Data:
    """Open the pictures in a table of Parquet or Arrow files, by ids in a column `id`, else by their original paths.

    They are encoded pictures in a column such as `image`: bytes, or structs with `bytes` and `path`, as Hugging Face's
    `datasets` writes them. Without ids or unique paths samples are numbered.
    """
    what = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    schema = _schema(files)
    features = _features(schema, files[0])
    column = _picture_column(schema, features, what)
    chunks = _chunks(files)
    count = chunks.starts[-1]
    ids = None
    if "id" in schema.names:
        ids = _values(files, "id")
    elif _has_paths(schema.field(column).type):
        paths = _values(files, f"{column}.path")
        if None not in paths and len(set(paths)) == count:
            ids = paths
    labels, class_names = _labels(files, schema, features, label, what)
    return encoded(
        name,
        numbered(count) if ids is None else tuple(map(str, ids)),
        partial(_rows, chunks, column),
        how,
        labels,
        class_names,
    )


class Lines(NamedTuple):
    """Texts with what their source says of them: label, id and the names of the classes, None where it says nothing."""

    texts: list[str]
    labels: list[Any] | None = None
    ids: list[str] | None = None
    class_names: tuple[str, ...] | None = None


def read_table_texts(files: Sequence[Path], label: str | None = None) -> Lines:
    """Return the texts of a table with a column `text` or `sentence`."""
    what, schema = str(files[0]), _schema(files)
    column = next((name for name in TEXTS if name in schema.names), None)
    if column is None:
        raise UserError(
            f"{what!r} has columns {', '.join(schema.names)}; text or sentence was expected"
        )
    texts = _values(files, column)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"{what!r}: row {row} of {column} is not text")
    labels, class_names = _labels(files, schema, _features(schema, files[0]), label, what)
    ids = [str(value) for value in _values(files, "id")] if "id" in schema.names else None
    return Lines(texts, labels, ids, class_names)


def group_column(files: Sequence[Path], column: str) -> list[str]:
    """Return the values of a column, as the groups that samples belong to."""
    schema = _schema(files)
    if column not in schema.names:
        raise unknown(f"column of {str(files[0])!r}", column, schema.names)
    return list(map(str, _values(files, column)))


def _is_struct(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind)) and kind.get_field_index("bytes") >= 0


def _holds_pictures(kind: Any) -> bool:
    import pyarrow as pa

    return _is_struct(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _picture_column(schema: Any, features: Mapping[str, Any], what: str) -> str:
    """Return the column of pictures: one of the usual names, one declared as Image, or the only one of bytes."""
    candidates = [name for name in _PICTURES if name in schema.names]
    candidates += _columns_of_type("Image", schema, features)
    if candidates:
        column, type_ = candidates[0], schema.field(candidates[0]).type
        if not _holds_pictures(type_):
            raise UserError(
                f"{what!r}: `{column}` is {type_}; binary or a struct with `bytes` was expected"
            )
        return column
    of_bytes = [field.name for field in schema if _holds_pictures(field.type)]
    if len(of_bytes) == 1:
        return str(of_bytes[0])
    texts = [name for name in TEXTS if name in schema.names]
    hint = f"; for the texts in `{texts[0]}` give a vocabulary" if texts else ""
    raise UserError(
        f"{what!r} has columns {', '.join(schema.names)}; a column `image` of encoded pictures was expected{hint}"
    )


def _labels(
    files: Sequence[Path], schema: Any, features: Mapping[str, Any], label: str | None, what: str
) -> tuple[list[Any] | None, tuple[str, ...] | None]:
    """Return the labels of all rows of a table and the names of the classes, None where there are none.

    `label` names the column; by default it is one called label or labels, or declared as ClassLabel by `features`, what
    Hugging Face wrote about the columns. Words become numbers in their sorted order.
    """
    if label == NO_LABEL:
        return None, None
    column = label or _label_column(schema, features, what)
    if column is None:
        return None, None
    if column not in schema.names:
        raise unknown(f"column of {what!r}", column, schema.names)
    values = _values(files, column)
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, str) for value in present):
        return ranked(values)
    for value in present:
        if isinstance(value, list | dict):
            raise UserError(
                f"{what!r}: `{column}` holds several labels per row, such as {str(value)[:60]}; one target must be "
                f"chosen: name a column of single labels with label=…, or leave labels out with label={NO_LABEL!r}"
            )
    feature = features.get(column)
    class_names = feature.get("names") if isinstance(feature, Mapping) else None
    if not isinstance(class_names, list):
        return values, None
    return values, tuple(map(str, class_names))


def _type(feature: Any) -> Any:
    return feature.get("_type") if isinstance(feature, Mapping) else None


def _features(schema: Any, file: Path) -> Mapping[str, Any]:
    """Return what Hugging Face's `datasets` wrote about the columns, such as their type and class names, by column.

    It is JSON in the schema's metadata, or in a file `dataset_info.json` beside the table; empty if there is neither.
    """
    texts = [(schema.metadata or {}).get(b"huggingface", b"{}")]
    info_file = file.with_name("dataset_info.json")
    if info_file.is_file():
        texts.append(info_file.read_bytes())
    for text in texts:
        try:
            content = json.loads(text)
        except ValueError:
            continue
        if not isinstance(content, Mapping):
            continue
        # In the schema the features are one level deeper, under "info".
        info = content.get("info", content)
        features = info.get("features") if isinstance(info, Mapping) else None
        if isinstance(features, Mapping):
            return features
    return {}


def _schema(files: Sequence[Path]) -> Any:
    """Return the schema that all files of a table share; an error names the first file with other columns."""
    first, *others = files
    schema = _opened(first).schema
    for file in others:
        other_schema = _opened(file).schema
        if not other_schema.equals(schema, check_metadata=False):
            raise UserError(
                f"{str(file)!r} has other columns than {str(first)!r}: {', '.join(other_schema.names)}"
            )
    return schema


class Opened(NamedTuple):
    """One file of a table: its schema, the rows in each chunk, and for Arrow the chunks, mapped from disk."""

    schema: Any
    sizes: tuple[int, ...]
    batches: tuple[Any, ...] = ()


def _opened(path: Path) -> Opened:
    """Return one file of a table, opened; it is kept open until the file changes on disk."""
    import pyarrow as pa

    try:
        stat = path.stat()
        return _open_once(path, stat.st_mtime_ns, stat.st_size)
    except (OSError, pa.ArrowException) as error:
        kind = "Parquet" if path.suffix.lower() in PARQUET else "Arrow"
        raise UserError(f"cannot read {str(path)!r} as {kind}: {error}") from error


@lru_cache(maxsize=256)
def _open_once(path: Path, changed: int, size: int) -> Opened:
    """Return one file of a table, opened: its schema and the sizes of its chunks.

    Arrow files are mapped into memory, not read, so that only the rows in use are ever loaded. `changed` and `size` are
    keys of the cache: a file that changed on disk is opened again.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() in PARQUET:
        with pq.ParquetFile(path) as file:
            sizes = tuple(file.metadata.row_group(g).num_rows for g in range(file.num_row_groups))
            return Opened(file.schema_arrow, sizes)
    source = pa.memory_map(str(path))
    if source.read(6) == b"ARROW1":
        file = pa.ipc.open_file(source)
        batches = tuple(file.get_batch(i) for i in range(file.num_record_batches))
        return Opened(file.schema, tuple(batch.num_rows for batch in batches), batches)
    source.seek(0)
    stream = pa.ipc.open_stream(source)
    batches = tuple(stream)
    return Opened(stream.schema, tuple(batch.num_rows for batch in batches), batches)


def _chunks(files: Sequence[Path]) -> Chunks:
    """Return where the rows of the files are."""
    places, sizes = [], []
    for file in files:
        for number, size in enumerate(_opened(file).sizes):
            places.append((file, number))
            sizes.append(size)
    return Chunks(tuple(places), tuple(accumulate(sizes, initial=0)))


def _chunk(path: Path, number: int, column: str) -> Any:
    """Return one column of one chunk of a file, checked for damage; "image.path" names a field of a column of structs."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    opened = _opened(path)
    name, field = column, ""
    if column not in opened.schema.names:
        name, _, field = column.partition(".")
    if path.suffix.lower() in PARQUET:
        with pq.ParquetFile(path) as file:
            values = file.read_row_group(number, columns=[column]).column(0)
    else:
        values = pa.chunked_array([opened.batches[number].column(name)])
    if field:
        values = pc.struct_field(values, field)
    values.validate(full=True)  # offsets of a damaged file would lead out of its memory
    return values


def _values(files: Sequence[Path], column: str) -> list[Any]:
    """Return a column of all rows."""
    import pyarrow as pa

    values: list[Any] = []
    try:
        for path, number in _chunks(files).places:
            values += _chunk(path, number, column).to_pylist()
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise UserError(f"cannot read the column {column} of {str(files[0])!r}: {error}") from error
    return values


def _rows(chunks: Chunks, column: str, positions: Sequence[int]) -> list[Path | bytes | Exception]:
    """Return the encoded pictures in the rows at `positions`, or for each why it cannot be read.

    Rows are stored in chunks (row groups of Parquet, batches of Arrow). Each chunk that holds one of the rows is read
    once.
    """
    import pyarrow as pa

    by_chunk: dict[int, list[int]] = {}
    for position in positions:
        chunk = bisect_right(chunks.starts, position) - 1
        by_chunk.setdefault(chunk, []).append(position)
    pictures: dict[int, bytes | Exception] = {}
    for chunk, in_chunk in by_chunk.items():
        path, number = chunks.places[chunk]
        try:
            values = _chunk(path, number, column)
        except (OSError, pa.ArrowException) as error:
            problem = OSError(f"row group {number} cannot be read: {error}")
            pictures |= dict.fromkeys(in_chunk, problem)
            continue
        for position in in_chunk:
            value = values[position - chunks.starts[chunk]].as_py()
            if isinstance(value, dict):
                value = value["bytes"]
            pictures[position] = (
                ValueError("the row has no image bytes") if value is None else value
            )
    return [pictures[position] for position in positions]


def _has_paths(type_: Any) -> bool:
    """Whether a column of pictures has their original paths beside the bytes."""
    return _is_struct(type_) and type_.get_field_index("path") >= 0


def _columns_of_type(type_: str, schema: Any, features: Mapping[str, Any]) -> list[str]:
    """Return the columns that Hugging Face's writer declares to be of a type, such as Image or ClassLabel."""
    return [
        name
        for name, feature in features.items()
        if _type(feature) == type_ and name in schema.names
    ]


def _label_column(schema: Any, features: Mapping[str, Any], what: str) -> str | None:
    """Return the column called label or labels, or the only one that is declared as ClassLabel; None where none is."""
    for name in _LABELS:
        if name in schema.names:
            return name
    classes = _columns_of_type("ClassLabel", schema, features)
    if len(classes) > 1:
        raise UserError(
            f"{what!r} has the labels {', '.join(classes)}; choose one, such as label={classes[0]!r}"
        )
    return classes[0] if classes else None
