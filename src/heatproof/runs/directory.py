"""A run directory: where its parts are, and how they are written and read whole.

A part is written under another name, synced and renamed, so it is either whole or absent, and its final name carries
the digest of its bytes. Reading checks that. Everything a report needs is in the run directory, or at the run's
address in a store.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from heatproof.errors import Damaged, Foreign, UserError
from heatproof.runs import columns, digests
from heatproof.runs.atomic import write_atomically
from heatproof.runs.differences import joined
from heatproof.runs.shape import check_shape
from heatproof.runs.storage import Place, files, note, tried, within

FORMAT = 4
"""The form of run directories that this version writes and reads."""
INPUTS = ("inputs", "")
"""Evaluation and explainer of pictures of the data, which runs of earlier versions kept."""
LARGEST, LARGEST_GROWTH = 2**28, 200
"""How many bytes a part may take to read, and how many more for each of its own; a part of a bomb takes more."""


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
