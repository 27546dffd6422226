"""One run from several directories, each of which holds some of its shards, as the tasks of an array leave them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from heatproof.errors import UserError
from heatproof.runs import atomic, directory
from heatproof.runs.differences import differences, joined
from heatproof.runs.digests import contents, read_json
from heatproof.runs.run import Run
from heatproof.runs.storage import Place, files, part_of, place, within
from heatproof.runs.verify import PARTS, refuse_damage

_EVERYWHERE = ("format", "heatproof", "shard_size")


def merge(
    out: str | Place, directories: Sequence[str | Place], mixed_versions: bool = False
) -> Run:
    """Join runs of the same study in `out`, which may be new or one of them.

    Refused are runs of different studies, of different versions of heatproof, torch and the like (the latter unless
    `mixed_versions`), and files that two runs have and that differ. Nothing is written before everything is checked.
    What is still missing afterwards is said by `verify.missing`.

    >>> merge("joined", [])
    Traceback (most recent call last):
    heatproof.errors.UserError: no run to merge is given
    """
    root = place(out)
    sources = [place(directory) for directory in directories]
    if not sources:
        raise UserError("no run to merge is given")
    if (root / "manifest.json").exists():
        sources = [root, *(source for source in sources if source.resolve() != root.resolve())]
    elif root.exists() and (
        not root.is_dir() or any(not atomic.is_leftover(path) for path in root.iterdir())
    ):
        raise UserError(f"{root} is not empty and holds no heatproof run; choose another directory")
    study = _agreed_study(sources, mixed_versions)
    origin: dict[str, tuple[str, Place]] = {}
    for source in sources:
        refuse_damage(source)
        for name, path in _files(source, PARTS, ".parquet"):
            _, first = origin.setdefault(
                f"{name.rpartition('/')[0]}/{part_of(path.name)}", (name, path)
            )
            if not _same(first, path):
                raise UserError(
                    f"{first} and {path} hold different results for the same shard; delete the one that is wrong"
                )
        for name, path in _files(source, ("sessions",), ".json"):
            origin.setdefault(name, (name, path))
    stored = [read_json(source / "manifest.json") for source in sources]
    copied = {name: path for name, path in origin.values() if path != root / name}
    # Without the manifest a directory is no run, so it comes first; what is cut off can be merged again.
    directory.write_manifest(
        root, {**stored[0], "study": study, "created": min(m["created"] for m in stored)}
    )
    for name, content in zip(copied, contents(list(copied.values())), strict=True):
        atomic.write_atomically(root / name, content)
    return Run(root)


def _agreed_study(sources: Sequence[Place], mixed_versions: bool) -> dict[str, Any]:
    """The study that all the runs are part of; the first run that contradicts those before it is an error."""
    known = directory.read_manifest(sources[0])
    for source in sources[1:]:
        manifest = directory.read_manifest(source)
        before, after = (
            {key: m[key] for key in _EVERYWHERE if key in m} for m in (known, manifest)
        )
        found = differences(before, after) + differences(known["study"], manifest["study"])
        if not mixed_versions:
            found += differences(
                known.get("versions", {}), manifest.get("versions", {}), "versions"
            )
        if found:
            lines = (
                "\n  ".join(found)
                .replace("the run has", "the first has")
                .replace("this study", "the second")
            )
            raise UserError(f"{sources[0]} and {source} are not of the same study:\n  {lines}")
        known["study"] = joined(known["study"], manifest["study"])
    study: dict[str, Any] = known["study"]
    return study


def _files(source: Place, folders: Sequence[str], suffix: str) -> list[tuple[str, Place]]:
    """Name within the run, with slashes, and place of each finished file."""
    found = [path for folder in folders for path in files(source / folder, suffix)]
    return [(within(path, source), path) for path in found]


def _same(one: Place, other: Place) -> bool:
    if one.name == other.name:
        return True
    # The same rows may be stored in other bytes; frames, unlike tables, take two missing numbers for equal.
    frames = [
        pq.ParquetFile(io.BytesIO(content)).read().to_pandas() for content in contents([one, other])
    ]
    return bool(frames[0].equals(frames[1]))
