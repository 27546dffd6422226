"""One run from several directories, each of which holds some of its shards, as the tasks of an array leave them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from heatproof.errors import UserError
from heatproof.runs import atomic
from heatproof.runs.differences import differences, joined
from heatproof.runs.digests import contents
from heatproof.runs.directory import FOLDERS
from heatproof.runs.manifest import (
    Manifest,
    Study,
    contradictions_between,
    read_first_manifest,
    read_manifest,
    write_manifest,
)
from heatproof.runs.run import Run
from heatproof.runs.storage import Place, files, part_of, place, within
from heatproof.runs.verify import refuse_damage


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
    else:
        _check_empty(root)
    study = _agreed_study(sources, mixed_versions)
    files_to_copy: dict[str, Place] = {}
    for source in sources:
        refuse_damage(source)
        for name, path in _new_files(source, files_to_copy):
            files_to_copy[name] = path

    first_manifests = [read_first_manifest(source) for source in sources]
    created = min(manifest.created for manifest in first_manifests)
    # Without the manifest a directory is no run, so it comes first; a merge that was cut off can be done again.
    write_manifest(root, first_manifests[0].model_copy(update={"study": study, "created": created}))
    to_write = {name: path for name, path in files_to_copy.items() if path != root / name}
    for name, content in zip(to_write, contents(list(to_write.values())), strict=True):
        atomic.write_atomically(root / name, content)
    return Run(root)


def _check_empty(root: Place) -> None:
    """Raise unless a directory is new, or has nothing but what killed writers left."""
    if not root.exists():
        return
    if not root.is_dir() or any(not atomic.is_leftover(path) for path in root.iterdir()):
        raise UserError(f"{root} is not empty and holds no heatproof run; choose another directory")


def _agreed_study(sources: Sequence[Place], mixed_versions: bool) -> Study:
    """Return the study that all runs are part of; raise for the first run that contradicts those before it."""
    first = read_manifest(sources[0])
    study = first.study.as_mapping()
    for source in sources[1:]:
        manifest = read_manifest(source)
        contradictions = differences(_form(first), _form(manifest))
        contradictions += contradictions_between(Study.model_validate(study), manifest.study)
        if not mixed_versions:
            contradictions += differences(first.versions, manifest.versions, "versions")
        if contradictions:
            lines = "\n  ".join(contradictions)
            lines = lines.replace("the run has", "the first has")
            lines = lines.replace("this study", "the second")
            raise UserError(f"{sources[0]} and {source} are not of the same study:\n  {lines}")
        study = joined(study, manifest.study.as_mapping())
    return Study.model_validate(study)


def _form(manifest: Manifest) -> dict[str, Any]:
    """Return what runs must share beside the study, whatever versions of other packages they used."""
    return {"heatproof": manifest.heatproof, "shard_size": manifest.shard_size}


def _new_files(source: Place, known: Mapping[str, Place]) -> list[tuple[str, Place]]:
    """Return the files of a run that are not known yet; raise for one that is known with other results."""
    path_of_part = {_without_digest(name): path for name, path in known.items()}
    new = []
    for name, path in _files(source, FOLDERS.values(), ".parquet"):
        other = path_of_part.get(_without_digest(name))
        if other is None:
            new.append((name, path))
        elif not _same(other, path):
            raise UserError(
                f"{other} and {path} hold different results for the same shard; delete the one that is wrong"
            )
    for name, path in _files(source, ["sessions"], ".json"):
        if name not in known:
            new.append((name, path))
    return new


def _without_digest(name: str) -> str:
    """Return the name of a file within a run, without the digest of its content."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/{part_of(file)}"


def _files(source: Place, folders: Iterable[str], suffix: str) -> list[tuple[str, Place]]:
    """Return the name within the run, with slashes, and the path of each finished file."""
    paths = [path for folder in folders for path in files(source / folder, suffix)]
    return [(within(path, source), path) for path in paths]


def _same(first: Place, second: Place) -> bool:
    """Return whether two parts hold the same rows."""
    if first.name == second.name:
        return True
    # The same rows may be stored in other bytes; frames, unlike tables, take two missing numbers for equal.
    frames = []
    for content in contents([first, second]):
        frames.append(pq.ParquetFile(io.BytesIO(content)).read().to_pandas())
    return bool(frames[0].equals(frames[1]))
