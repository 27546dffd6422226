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
    """Where the rows of several files are: chunk c, a number of a file, is at `places[c]` and begins at `starts[c]`."""

    places: tuple[tuple[Path, int], ...]
    starts: tuple[int, ...]


def open_table(name: str, files: Sequence[Path], how: How, label: str | None = None) -> Data:
    """Pictures in a column `image` of encoded bytes, or of structs with `bytes`, as `datasets` writes them."""
    what = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    schema = _schema(files)
    features = _features(schema, files[0])
    column = _picture_column(schema, features, what)
    struct = _is_struct(schema.field(column).type)
    chunks = _chunks(files)
    n = chunks.starts[-1]
    ids = _values(files, "id") if "id" in schema.names else None
    if ids is None and struct and schema.field(column).type.get_field_index("path") >= 0:
        paths = _values(files, f"{column}.path")
        ids = paths if None not in paths and len(set(paths)) == n else None
    labels, names = _labels(files, schema, features, label, what)
    return encoded(
        name,
        numbered(n) if ids is None else tuple(map(str, ids)),
        partial(_rows, chunks, column),
        how,
        labels,
        names,
    )


class Lines(NamedTuple):
    """Texts with what their source says of them: label, id and the names of the classes, None where it says nothing."""

    texts: list[str]
    labels: list[Any] | None = None
    ids: list[str] | None = None
    class_names: tuple[str, ...] | None = None


def read_table_texts(files: Sequence[Path], label: str | None = None) -> Lines:
    """The texts of a table with a column `text` or `sentence`."""
    what, schema = str(files[0]), _schema(files)
    column = next((name for name in TEXTS if name in schema.names), None)
    if column is None:
        raise UserError(
            f"{what!r} has columns {', '.join(schema.names)}; text or sentence was expected"
        )
    texts = _values(files, column)
    wrong = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise UserError(f"{what!r}: row {wrong} of {column} is not text")
    labels, names = _labels(files, schema, _features(schema, files[0]), label, what)
    ids = [str(value) for value in _values(files, "id")] if "id" in schema.names else None
    return Lines(texts, labels, ids, names)


def group_column(files: Sequence[Path], column: str) -> list[str]:
    """What a column says of every row, as the groups that samples belong to."""
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
    known = [name for name in _PICTURES if name in schema.names]
    known += [
        name for name, kind in features.items() if _type(kind) == "Image" and name in schema.names
    ]
    if not known:
        fitting = [field.name for field in schema if _holds_pictures(field.type)]
        if len(fitting) != 1:
            texts = [name for name in TEXTS if name in schema.names]
            hint = f"; for the texts in `{texts[0]}` give a vocabulary" if texts else ""
            raise UserError(
                f"{what!r} has columns {', '.join(schema.names)}; a column `image` of encoded pictures was expected"
                f"{hint}"
            )
        return str(fitting[0])
    kind = schema.field(known[0]).type
    if not _holds_pictures(kind):
        raise UserError(
            f"{what!r}: `{known[0]}` is {kind}; binary or a struct with `bytes` was expected"
        )
    return str(known[0])


def _labels(
    files: Sequence[Path], schema: Any, features: Mapping[str, Any], label: str | None, what: str
) -> tuple[list[Any] | None, tuple[str, ...] | None]:
    """The labels of all rows and the names of the classes; words are numbered in their sorted order."""
    if label == NO_LABEL:
        return None, None
    if label is not None and label not in schema.names:
        raise unknown(f"column of {what!r}", label, schema.names)
    column = label or next((name for name in _LABELS if name in schema.names), None)
    if column is None:
        classes = [
            name
            for name, kind in features.items()
            if _type(kind) == "ClassLabel" and name in schema.names
        ]
        if len(classes) > 1:
            raise UserError(
                f"{what!r} has the labels {', '.join(classes)}; choose one, such as label={classes[0]!r}"
            )
        column = classes[0] if classes else None
    if column is None:
        return None, None
    values = _values(files, column)
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, str) for value in known):
        return ranked(values)
    several = next((value for value in known if isinstance(value, list | dict)), None)
    if several is not None:
        raise UserError(
            f"{what!r}: `{column}` holds several labels per row, such as {str(several)[:60]}; one target must be "
            f"chosen: name a column of single labels with label=…, or leave labels out with label={NO_LABEL!r}"
        )
    kind = features.get(column)
    names_found = kind.get("names") if isinstance(kind, Mapping) else None
    return values, tuple(map(str, names_found)) if isinstance(names_found, list) else None


def _type(feature: Any) -> Any:
    return feature.get("_type") if isinstance(feature, Mapping) else None


def _features(schema: Any, file: Path) -> Mapping[str, Any]:
    """What Hugging Face's writer says of the columns: beside the schema, or in `dataset_info.json` beside the file."""
    beside = file.with_name("dataset_info.json")
    stored = (schema.metadata or {}).get(b"huggingface", b"{}")
    for text in (stored, beside.read_bytes() if beside.is_file() else b"{}"):
        try:
            found = json.loads(text)
        except ValueError:
            continue
        info = found.get("info", found) if isinstance(found, Mapping) else None
        features = info.get("features") if isinstance(info, Mapping) else None
        if isinstance(features, Mapping):
            return features
    return {}


def _schema(files: Sequence[Path]) -> Any:
    """The schema that all files share."""
    first = None
    for file in files:
        schema = _opened(file).schema
        if first is not None and not schema.equals(first, check_metadata=False):
            raise UserError(
                f"{str(file)!r} has other columns than {str(files[0])!r}: {', '.join(schema.names)}"
            )
        first = schema if first is None else first
    return first


class Opened(NamedTuple):
    """One file of a table: its schema, the rows in each chunk, and for Arrow the chunks, mapped from disk."""

    schema: Any
    sizes: tuple[int, ...]
    batches: tuple[Any, ...] = ()


def _opened(path: Path) -> Opened:
    import pyarrow as pa

    try:
        stat = path.stat()
        return _open_once(path, stat.st_mtime_ns, stat.st_size)
    except (OSError, pa.ArrowException) as error:
        kind = "Parquet" if path.suffix.lower() in PARQUET else "Arrow"
        raise UserError(f"cannot read {str(path)!r} as {kind}: {error}") from error


@lru_cache(maxsize=256)
def _open_once(path: Path, changed: int, size: int) -> Opened:
    """Arrow files are mapped, not read: only the pages of rows that are asked for are ever loaded."""
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
    sizes = [
        ((file, number), size) for file in files for number, size in enumerate(_opened(file).sizes)
    ]
    return Chunks(
        tuple(place for place, _ in sizes),
        tuple(accumulate((size for _, size in sizes), initial=0)),
    )


def _chunk(path: Path, number: int, column: str) -> Any:
    """One column of one chunk, checked; `image.path` is a field of structs."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    name, _, inner = (
        column.partition(".") if column not in _opened(path).schema.names else (column, "", "")
    )
    if path.suffix.lower() in PARQUET:
        with pq.ParquetFile(path) as file:
            found = file.read_row_group(number, columns=[column]).column(0)
    else:
        found = pa.chunked_array([_opened(path).batches[number].column(name)])
    found = pc.struct_field(found, inner) if inner else found
    found.validate(full=True)
    return found


def _values(files: Sequence[Path], column: str) -> list[Any]:
    import pyarrow as pa

    try:
        return [
            value for place in _chunks(files).places for value in _chunk(*place, column).to_pylist()
        ]
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise UserError(f"cannot read the column {column} of {str(files[0])!r}: {error}") from error


def _rows(chunks: Chunks, column: str, positions: Sequence[int]) -> list[Path | bytes | Exception]:
    """The encoded pictures at `positions`; each chunk that holds one is read once."""
    import pyarrow as pa

    found: dict[int, bytes | Exception] = {}
    for chunk in sorted({bisect_right(chunks.starts, i) - 1 for i in positions}):
        first = chunks.starts[chunk]
        wanted = [i for i in positions if first <= i < chunks.starts[chunk + 1]]
        try:
            values = _chunk(*chunks.places[chunk], column)
        except (OSError, pa.ArrowException) as error:
            found |= dict.fromkeys(
                wanted, OSError(f"row group {chunks.places[chunk][1]} cannot be read: {error}")
            )
            continue
        for i in wanted:
            value = values[i - first].as_py()
            value = value["bytes"] if isinstance(value, dict) else value
            found[i] = ValueError("the row has no image bytes") if value is None else value
    return [found[i] for i in positions]
