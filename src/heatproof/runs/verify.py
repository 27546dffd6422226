"""Check the files of a run, and remove what is corrupt or duplicate before the run is resumed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from heatproof.data import Data
from heatproof.errors import Damaged, Foreign, UserError, counted
from heatproof.runs import digests, storage, tables
from heatproof.runs.differences import listed
from heatproof.runs.directory import FOLDERS, Job, PartKey, RunDirectory, study_key_in
from heatproof.runs.manifest import read_session
from heatproof.runs.plan import Plan
from heatproof.runs.storage import Place, StorePath

State = Literal["intact", "corrupt", "foreign", "duplicate", "missing"]
SUFFIXES = dict.fromkeys(FOLDERS.values(), ".parquet") | {"sessions": ".json"}
"""What a run directory holds beside its manifest: the folders, and how the files in each end."""


@dataclass(frozen=True)
class Verdict:
    """The state of one file of a run, or of one that should be there, and what is wrong with it."""

    state: State
    name: str
    reason: str = ""


def verify(where: str | Place) -> list[Verdict]:
    """Check every byte of a run, in a directory, a zip or a store: one verdict per file, and per missing part.

    >>> verify("no-such-run")
    Traceback (most recent call last):
    heatproof.errors.UserError: no-such-run is not a run directory: it has no manifest.json
    """
    root = storage.place(where)
    if isinstance(root, Path) and root.is_file() and root.suffix.lower() == ".zip":
        from heatproof.runs.export import unpacked

        root = unpacked(root)
    run_directory = RunDirectory(root)
    verdicts = list(_verdicts(run_directory))
    for verdict in verdicts:
        if verdict.state == "corrupt" and verdict.name.endswith(".json"):
            return verdicts  # what should be there is not known
    for key in run_directory.missing():
        verdicts.append(Verdict("missing", str(key), "rerun the command to compute it"))
    return verdicts


def missing(where: str | Place) -> list[str]:
    """Return the parts that a run's manifest promises and that are not there, in words; none if it is complete."""
    run_directory = RunDirectory(where)
    gaps = [str(key) for key in run_directory.missing()]
    for dataset in run_directory.manifest.undecided_samples():
        gaps.append(f"the number of samples of {dataset}, which is decided when these are there")
    return gaps


def missing_in_words(gaps: Sequence[str]) -> str:
    """Return how many parts are missing, and which one is the first.

    >>> missing_in_words(["shard 0 of photos on net: stability of lime"])
    '1 part is missing: shard 0 of photos on net: stability of lime'
    >>> missing_in_words(["a", "b"])
    '2 parts are missing, the first is a'
    """
    if len(gaps) == 1:
        return f"1 part is missing: {gaps[0]}"
    return f"{counted(len(gaps), 'part')} are missing, the first is {gaps[0]}"


def refuse_damage(root: Place) -> None:
    """Raise for the first file of a run that is corrupt, duplicate or from another study."""
    for verdict in _verdicts(RunDirectory(root)):
        if verdict.state != "intact":
            raise UserError(verdict.reason)


def _verdicts(run_directory: RunDirectory) -> Iterator[Verdict]:
    """Check every file that is there."""
    root = run_directory.root
    # Listed before the manifest is read: whoever adds to a study says so before there are parts of it.
    files = {folder: storage.files(root / folder, "") for folder in SUFFIXES}
    knows_study = True
    try:
        run_directory.reread()
        yield Verdict("intact", "manifest.json")
    except Damaged as error:
        knows_study = False
        if "manifest.json" in str(error):
            yield Verdict("corrupt", "manifest.json", str(error))
        # Else a session is damaged, which is reported below.
    for folder, suffix in SUFFIXES.items():
        first_of = {}
        if suffix == ".parquet":
            first_of = {second: first for first, second in digests.doubled(files[folder])}
        checked = _check_files(run_directory, files[folder], suffix, knows_study)
        for path, verdict in zip(files[folder], checked, strict=True):
            if verdict.state == "intact" and path in first_of:
                reason = f"{path} and {first_of[path]} are of the same shard"
                yield Verdict("duplicate", verdict.name, reason)
            else:
                yield verdict


def _check_files(
    run_directory: RunDirectory, paths: list[Any], suffix: str, knows_study: bool = True
) -> Iterator[Verdict]:
    """Check some files, several at a time where they come from a store."""
    threads = storage.AT_ONCE if isinstance(run_directory.root, StorePath) else 1
    check = partial(_check_file, run_directory, suffix=suffix, knows_study=knows_study)
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(check, paths)


def _check_file(
    run_directory: RunDirectory, path: Place, suffix: str, knows_study: bool
) -> Verdict:
    """Return whether a file is intact, corrupt, or foreign: no file of a run, or of another study."""
    name = storage.within(path, run_directory.root)
    if not path.name.endswith(suffix):
        return Verdict("foreign", name, f"{path} is not a file of a run")
    try:
        if suffix == ".json":
            read_session(path)
        else:
            content = digests.read(path)
            with run_directory.open(path, content, of_any_study=not knows_study) as part:
                if knows_study and not study_key_in(part.metadata):
                    raise Foreign(f"{path} does not say which study it belongs to")
    except Foreign as error:
        return Verdict("foreign", name, str(error))
    except (Damaged, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return Verdict("corrupt", name, str(error))
    return Verdict("intact", name)


# ---- before a run is resumed ---------------------------------------------------------------------------------------


def remove_damaged_parts(run_directory: RunDirectory, keys: Iterable[PartKey]) -> None:
    """Remove the files of these parts that are corrupt or duplicate, with a warning, so that they are computed anew.

    A part of another study is an error: whoever put it there may have no other copy.
    """
    storage.forget_listings()
    run_directory.reread()
    keys = list(keys)
    paths = run_directory.existing_files(keys)
    for path, verdict in zip(paths, _check_files(run_directory, paths, ".parquet"), strict=True):
        if verdict.state == "foreign":
            raise UserError(verdict.reason)
        if verdict.state == "corrupt":
            _remove(path, verdict.reason)
    deduplicate_parts(run_directory, keys)


def deduplicate_parts(run_directory: RunDirectory, keys: Iterable[PartKey]) -> None:
    """Of several files of one part, as processes leave them that did a shard at the same time, keep the first by name."""
    storage.forget_listings()
    for key in keys:
        files = run_directory.existing_files([key])
        for duplicate in files[1:]:
            _remove(duplicate, f"{duplicate} and {files[0]} are of the same shard")
    storage.forget_listings()


def drop_failed_shards(plan: Plan, run_directory: RunDirectory, jobs: Iterable[Job]) -> None:
    """Remove everything of the shards with samples that failed to load for a reason that may have passed."""
    for job in jobs:
        files = run_directory.existing_files([PartKey.samples(job)])
        rows = tables.read_rows(run_directory.root, files)
        failed = [row["sample"] for row in rows if row["transient"]]
        if failed:
            logging.getLogger("heatproof").warning(
                "retrying %s, the first is %r",
                counted(len(failed), "sample that failed to load", "samples that failed to load"),
                failed[0],
            )
            run_directory.remove(plan.possible_parts(job))


def _remove(path: Place, reason: str) -> None:
    problem = reason.partition(";")[0]
    logging.getLogger("heatproof").warning("%s; removed, and computed anew if needed", problem)
    storage.tried(path, partial(path.unlink, missing_ok=True), "removed")


# ---- data that changed ---------------------------------------------------------------------------------------------


def changed_samples(plan: Plan, root: Place) -> str:
    """Return which samples of a study are not what they were when the run read them, one line per data set."""
    recorded = RunDirectory(root).manifest.study.datasets
    lines = []
    for name, data in plan.data.items():
        if name not in recorded or recorded[name].fingerprint in ("", data.fingerprint):
            continue
        rows = tables.read_samples(root)
        rows = rows[(rows["dataset"] == name) & (rows["digest"] != "")]
        changed = _changed_ids(data, dict(zip(rows["sample"], rows["digest"], strict=True)))
        if changed:
            lines.append(f"\n  {name} has changed: {listed(changed)}")
    return "".join(lines)


def _changed_ids(data: Data, recorded_digests: dict[str, str]) -> list[str]:
    """Return the samples whose bytes have another digest than the one recorded."""
    changed = []
    for start in range(0, len(data), storage.AT_ONCE):
        stop = min(start + storage.AT_ONCE, len(data))
        for sample, digest in data.load(range(start, stop)).digests.items():
            if recorded_digests.get(sample, digest) != digest:
                changed.append(sample)
    return changed
