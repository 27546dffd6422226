"""The result table on disk: one Parquet part per finished piece of work, a manifest, and pictures for the gallery.

A part is written under another name, synced and renamed, so it is either whole or absent, and its final name carries
the digest of its bytes. Reading checks that, and that no attempted pair occurs twice. Everything a report needs is in
the run directory, or at the run's address in a store.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from heatproof.errors import Damaged, Foreign, UserError
from heatproof.maps.chance import packed
from heatproof.results import STATUS, Scores
from heatproof.runs import columns, digests
from heatproof.runs.atomic import write_atomically
from heatproof.runs.differences import joined
from heatproof.runs.shape import check_shape
from heatproof.runs.storage import Place, files, note, tried, within
from heatproof.statistics.cubes import SUFFIXES

FORMAT = 4
"""The form of run directories that this version writes and reads."""
SCORES = pa.schema(
    [
        (name, pa.string())
        for name in ("dataset", "model", "explainer", "role", "evaluation", "sample", "measure")
    ]
    + [
        ("condition", pa.string()),
        ("level", pa.float64()),
        ("imputer", pa.string()),
        ("order", pa.string()),
    ]
    + [("share", pa.float64()), ("repeat", pa.int32())]
    + [(name, pa.float64()) for name in ("value", "low", "high")]
    + [("status", pa.string()), ("reason", pa.string())]
)
_OF_A_COLUMN = ("explainer", "measure", "condition", "level", "imputer", "order", "share", "repeat")
PARTS = SCORES.append(pa.field("references", pa.binary()))
"""What parts hold: the scores, and with the first row of a column of chance what each reference adds to it."""
SAMPLES = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "sample")]
    + [("label", pa.int64()), ("predicted", pa.int64()), ("predicted_name", pa.string())]
    + [("readout", pa.float64()), ("probability", pa.float64()), ("error", pa.string())]
    + [("transient", pa.bool_()), ("digest", pa.string()), ("group", pa.string())]
)
"""`transient`: the error may have passed since; `digest`: of the sample's bytes as they were read."""
KEY = [
    "dataset",
    "model",
    "explainer",
    "evaluation",
    "sample",
    "measure",
    "condition",
    "level",
    "repeat",
]
INPUTS = ("inputs", "")
"""Evaluation and explainer of pictures of the data, which runs of earlier versions kept."""
LARGEST, LARGEST_GROWTH = 2**28, 200
"""How many bytes a part may take to read, and how many more for each of its own; a part of a bomb takes more."""
PLACE = [
    "dataset",
    "model",
    "evaluation",
    "explainer",
    "role",
    "measure",
    "condition",
    "level",
    "order",
]


def slug(name: str) -> str:
    """A file name that is readable, safe on every system, and different for different names.

    >>> slug("IG (steps=20)/x") == slug("IG (steps=20)-x")
    False
    """
    plain = re.sub(r"[^A-Za-z0-9_.=-]+", "-", name).strip("-.")[:60] or "unnamed"
    plain = re.sub(
        r"^(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)", r"\1_", plain, flags=re.IGNORECASE
    )  # names of devices
    # Some systems do not tell A from a, and a name may look like the slug of another.
    alone = plain == name.lower() and not re.search(r"-[0-9a-f]{8}$", plain)
    return plain if alone else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def part_path(
    root: Place, dataset: str, model: str, evaluation: str, explainer: str, shard: int
) -> Place:
    """Where the scores of one (dataset, model, evaluation, explainer, shard) are."""
    return root / "parts" / _inside(shard, dataset, model, evaluation, explainer)


def samples_path(root: Place, dataset: str, model: str, shard: int) -> Place:
    """Where the clean predictions of one shard are."""
    return root / "samples" / _inside(shard, dataset, model)


def exhibits_path(
    root: Place, dataset: str, model: str, evaluation: str, explainer: str, shard: int
) -> Place:
    """Where the gallery's pictures of one piece of work are."""
    return root / "gallery" / _inside(shard, dataset, model, evaluation, explainer)


def maps_path(root: Place, dataset: str, model: str, explainer: str, shard: int) -> Place:
    """Where the kept maps of one explainer and shard are."""
    return root / "maps" / _inside(shard, dataset, model, explainer)


def _inside(shard: int, *names: str) -> str:
    return f"{_folder(*names)}/{shard:05d}.parquet"


def _folder(*names: str) -> str:
    return "/".join(map(slug, names))


def score_rows(
    dataset: str,
    model: str,
    evaluation: str,
    role: str,
    ids: Iterable[str],
    scores: Iterable[Scores],
) -> pa.Table:
    """The rows of one part, in the order in which the scores came; `role` is that of its explainer."""
    names = pa.array(list(ids), pa.string())
    n = len(names)
    tables = []
    for s in scores:
        same = {"dataset": dataset, "model": model, "role": role, "evaluation": evaluation}
        same |= {name: getattr(s, name) for name in _OF_A_COLUMN}
        content = {
            **{
                name: pa.repeat(pa.scalar(value, PARTS.field(name).type), n)
                for name, value in same.items()
            },
            "sample": names,
            "value": s.value.double().tolist(),
            "low": pa.nulls(n, pa.float64()) if s.low is None else s.low.double().tolist(),
            "high": pa.nulls(n, pa.float64()) if s.high is None else s.high.double().tolist(),
            "status": [STATUS[code] for code in s.status.tolist()],
            "reason": list(s.reason),
            "references": [
                None if s.by_reference is None else packed(s.by_reference),
                *[None] * (n - 1),
            ][:n],
        }
        tables.append(pa.Table.from_pydict(content, schema=PARTS))
    return pa.concat_tables(tables) if tables else PARTS.empty_table()


def write_part(path: Place, table: pa.Table, study: str = "") -> None:
    """Write a Parquet file that is either whole or absent, whatever happens; its name gets the digest of its bytes.

    `study` is the `study_key` of its rows.
    """
    sink = io.BytesIO()
    # A part is small and read whole: statistics and a second schema would be a third of it.
    with pq.ParquetWriter(
        sink, table.schema, compression="zstd", write_statistics=False, store_schema=False
    ) as file:
        file.write_table(table)
        file.add_key_value_metadata({"study": study})
    content = sink.getvalue()
    target = digests.named(path, content)
    write_atomically(target, content)
    note(target)


def read_scores(
    root: Place,
    compact: bool = False,
    measures: Collection[str] | None = None,
    samples: Collection[str] | None = None,
) -> pd.DataFrame:
    """The rows of a run, of these measures and samples only, sorted by `KEY`; a key that occurs twice is an error.

    Each part is filtered before the next is read, and a measure comes with its chance and aligned forms. With `compact`
    the columns of text are categories, sorted, which hold each text once: a million rows take 57 MB; one column more
    has what the references add to chance, for statistics.
    """
    rows = _read(
        root,
        digests.parts(root / "parts"),
        PARTS if compact else SCORES,
        _filter(measures, samples),
    )
    order, twice = columns.sorted_by_key(rows, KEY)
    rows = rows.take(pa.array(order))
    frame: pd.DataFrame = (rows if compact else rows.cast(SCORES)).to_pandas()
    if twice.any():
        row = frame[twice].iloc[0]
        raise UserError(
            f"{root} holds {int(twice.sum())} duplicate rows, the first is {dict(row[KEY])}"
        )
    return frame


def read_scores_by_explainer(
    root: Place, measures: Collection[str] | None = None, samples: Collection[str] | None = None
) -> Iterator[pd.DataFrame]:
    """The rows of one dataset, model, evaluation and explainer at a time, as they were written, so large runs fit."""
    for _, paths in groupby(digests.parts(root / "parts"), key=lambda path: path.parent):
        yield _read(root, list(paths), SCORES, _filter(measures, samples)).cast(SCORES).to_pandas()


def read_places(root: Place) -> pd.DataFrame:
    """What a run has scores of: every combination of the columns `PLACE` that occurs, sorted."""

    def once(part: pa.Table) -> pa.Table:
        return part.unify_dictionaries().group_by(PLACE).aggregate([]).select(PLACE)

    schema = pa.schema([SCORES.field(name) for name in PLACE])
    rows = _read(root, digests.parts(root / "parts"), schema, once)
    frame: pd.DataFrame = once(rows).cast(schema).to_pandas()
    return frame.sort_values(PLACE, ignore_index=True)


def _filter(
    measures: Collection[str] | None, samples: Collection[str] | None
) -> Callable[[pa.Table], pa.Table]:
    """What keeps the rows of some measures, in all of their forms, and samples."""
    forms = (
        None
        if measures is None
        else {measure + suffix for measure in measures for suffix in ("", *SUFFIXES)}
    )

    def kept(part: pa.Table) -> pa.Table:
        for column, wanted in (("measure", forms), ("sample", samples)):
            if wanted is not None:
                part = part.filter(
                    pc.is_in(part[column], value_set=pa.array(sorted(wanted), pa.string()))
                )
        return part

    return kept


def read_samples(root: Place) -> pd.DataFrame:
    """One row per sample: label, prediction, probability, or why it could not be read."""
    rows = _read(root, digests.parts(root / "samples"), SAMPLES).cast(SAMPLES)
    frame: pd.DataFrame = rows.to_pandas().sort_values(
        ["dataset", "model", "sample"], ignore_index=True
    )
    return frame.astype({"label": "Int64", "predicted": "Int64"})


def read_rows(root: Place, paths: Sequence[Place]) -> list[dict[str, Any]]:
    """The rows of some parts of the samples, as they are."""
    return [row for part in read_parts(root, paths, SAMPLES) for row in part.to_pylist()]


def read_manifest(root: Place) -> dict[str, Any]:
    """The manifest of a run directory."""
    path = root / "manifest.json"
    try:
        content = tried(path, path.read_bytes)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{root} is not a run directory: it has no manifest.json") from error
    try:
        manifest = json.loads(content)
    except ValueError as error:
        raise Damaged(f"{path} is not the manifest of a heatproof run: {error}") from error
    if (
        not isinstance(manifest, dict)
        or not {"heatproof", "study", "shard_size"} <= manifest.keys()
    ):
        raise UserError(f"{path} is not the manifest of a heatproof run")
    if manifest.get("format") != FORMAT:
        written = f"format {manifest.get('format', 1)} by heatproof {manifest['heatproof']}"
        raise UserError(
            f"{root} was written in {written}, and this version reads format {FORMAT}; run the study again"
        )
    digests.check(
        path, content
    )  # after the rest, which has more to say of what is no manifest of this version
    del manifest["sha256"]
    sessions = read_sessions(root)  # of every process, with what it added to the study
    for session in sessions:
        manifest["study"] = joined(manifest["study"], session.pop("adds", {}))
        manifest |= {
            key: session[key]
            for key in ("command", "versions", "study_file", "prepared")
            if key in session
        }
    if sessions:
        manifest["sessions"] = [*manifest.get("sessions", []), *sessions]
    check_shape(path, manifest)
    return manifest


def read_sessions(root: Place) -> list[dict[str, Any]]:
    """What the processes that worked in a run directory wrote, in the order in which they started."""
    return [digests.read_json(path) for path in files(root / "sessions", ".json")]


def write_manifest(root: Place, manifest: Mapping[str, Any]) -> None:
    """Write the manifest atomically."""
    write_atomically(root / "manifest.json", digests.sealed(manifest))


def study_keys(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the footers of parts must say, by their folder within `parts`, `gallery` or `samples`."""
    study = manifest["study"]
    keys: dict[str, str] = {}
    for clean in product(study["datasets"], study["models"]):
        judged = [(), *product(study["evaluations"], study["explainers"]), INPUTS]
        keys |= {
            _folder(*clean, *rest): digests.study_key(manifest, *clean, *rest) for rest in judged
        }
        keys |= {
            _folder(*clean, name): digests.study_key(manifest, *clean, "", name)
            for name in study["explainers"]
        }
    return keys


def key_of(keys: Mapping[str, str], root: Place, path: Place) -> str:
    """What the footer of the part at `path` must say."""
    return keys.get(within(path.parent, root).partition("/")[2], "")


def _read(
    root: Place,
    paths: Sequence[Place],
    schema: pa.Schema,
    change: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table:
    """The rows of all parts, each changed before the next is read, with every column of text as one dictionary."""
    texts = [field.name for field in schema if field.type == pa.string()]
    wanted = columns.coded(schema)
    parts = read_parts(root, paths, wanted, texts)
    tables = list(parts if change is None else map(change, parts))
    if not tables:
        return wanted.empty_table()
    rows = pa.concat_tables(tables)
    merged = [
        columns.sorted_dictionary(rows[name]) if name in texts else rows[name].combine_chunks()
        for name in schema.names
    ]
    return pa.Table.from_arrays(merged, names=schema.names)


def read_parts(
    root: Place, paths: Sequence[Place], wanted: pa.Schema, texts: Collection[str] = ()
) -> Iterator[pa.Table]:
    """The rows of parts of a run, each checked for damage, for being of its study, and for what reading it takes."""
    keys = study_keys(read_manifest(root)) if (root / "manifest.json").is_file() else {}
    for path, content in zip(paths, digests.contents(paths), strict=True):
        try:
            with open_part(root, path, content, keys, texts) as part:
                yield columns.of_part(part, wanted)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise Damaged(f"{path} is damaged; {digests.ADVICE}: {error}") from error


def open_part(
    root: Place, path: Place, content: bytes, keys: Mapping[str, str], texts: Collection[str] = ()
) -> pq.ParquetFile:
    """One part, of which `keys` says to which study it must belong; with no keys, of any."""
    known = pq.read_metadata(pa.BufferReader(content))
    size = sum(known.row_group(i).total_byte_size for i in range(known.num_row_groups))
    if size + 8 * known.num_rows * known.num_columns > LARGEST + LARGEST_GROWTH * len(content):
        raise Damaged(
            f"{path} has {len(content)} bytes and would take {size:,} to read; it is no part of a run"
        )
    study = (known.metadata or {}).get(b"study", b"").decode()
    if keys and study and study != key_of(keys, root, path):
        raise Foreign(f"{path} is of another study than the manifest of {root}; remove it")
    coded = [name for name in texts if name in known.schema.names]
    return pq.ParquetFile(pa.BufferReader(content), metadata=known, read_dictionary=coded)
