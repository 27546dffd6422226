"""What of a run is whole, damaged, foreign, doubled or missing; and what is done about it before a run goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from heatproof.errors import Damaged, Foreign, UserError
from heatproof.runs import digests, directory, storage, tables
from heatproof.runs.differences import listed
from heatproof.runs.plan import Job, Plan
from heatproof.runs.storage import Place, StorePath

State = Literal["whole", "damaged", "foreign", "doubled", "missing"]
PARTS = ("parts", "samples", "gallery", "maps")
FOLDERS = dict.fromkeys(PARTS, ".parquet") | {"sessions": ".json"}
"""What a run directory holds beside its manifest, and how the files in it end."""


@dataclass(frozen=True)
class Verdict:
    """What is the matter with one file of a run, or with one that is not there."""

    state: State
    name: str
    why: str = ""


def verify(where: str | Place) -> list[Verdict]:
    """Look at every byte of a run, in a directory, a zip or a store; one verdict per file, and per missing part.

    >>> verify("no-such-run")
    Traceback (most recent call last):
    heatproof.errors.UserError: no-such-run is not a run directory: it has no manifest.json
    """
    root = storage.place(where)
    if isinstance(root, Path) and root.is_file() and root.suffix.lower() == ".zip":
        from heatproof.runs.export import unpacked

        root = unpacked(root)
    found = list(_verdicts(root))
    if any(
        v.state == "damaged" and v.name.endswith(".json") and not v.name.startswith("batch")
        for v in found
    ):
        return found  # what the study is cannot be told
    return [
        *found,
        *(
            Verdict("missing", gap, "it is computed by running the study again")
            for gap in missing(root)
        ),
    ]


def _verdicts(root: Place) -> Iterator[Verdict]:
    listed = {folder: storage.files(root / folder, "") for folder in FOLDERS}
    manifest: dict[
        str, Any
    ] = {}  # read after that, for whoever adds to a study says so before there are parts
    try:
        manifest = directory.read_manifest(root)
        yield Verdict("whole", "manifest.json")
    except Damaged as error:  # or that of a session, which comes again below
        if "manifest.json" in str(error):
            yield Verdict("damaged", "manifest.json", str(error))
    keys = directory.study_keys(manifest) if manifest else {}
    for folder, suffix in FOLDERS.items():
        found = listed[folder]
        twice = (
            {other: one for one, other in digests.doubled(found)} if suffix == ".parquet" else {}
        )
        for path, verdict in zip(found, _each(root, found, keys, suffix), strict=True):
            again = path in twice and verdict.state == "whole"
            yield (
                Verdict("doubled", verdict.name, f"{twice[path]} is of the same shard")
                if again
                else verdict
            )


def _each(root: Place, paths: list[Any], keys: Mapping[str, str], suffix: str) -> Iterator[Verdict]:
    with ThreadPoolExecutor(storage.AT_ONCE if isinstance(root, StorePath) else 1) as pool:
        yield from pool.map(partial(_verdict, root, keys=keys, suffix=suffix), paths)


def _verdict(root: Place, path: Place, keys: Mapping[str, str], suffix: str) -> Verdict:
    name = storage.within(path, root)
    if not path.name.endswith(suffix):
        return Verdict("foreign", name, f"{path} is no file of a run")
    try:
        content = digests.read(path)
        if suffix == ".parquet":
            with directory.open_part(root, path, content, keys) as part:
                if not (part.metadata.metadata or {}).get(b"study") and keys:
                    raise Foreign(f"{path} does not say of which study it is")
    except Foreign as error:
        return Verdict("foreign", name, str(error))
    except (Damaged, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return Verdict("damaged", name, str(error))
    return Verdict("whole", name)


def missing(root: str | Place) -> list[str]:
    """The parts that a run's manifest promises and its directory does not have, in words; empty when it is complete."""
    path = storage.place(root)
    storage.forget_listings()
    manifest = directory.read_manifest(path)
    study = manifest["study"]
    found = []
    judged = [  # what the engine does not run has its own parts
        (evaluation, name)
        for evaluation, facts in study["evaluations"].items()
        for name in (study["explainers"] if "left_out" in facts else ())
        if name not in facts["left_out"]
    ]
    kept = dict.fromkeys(e for _, e in judged) if study["evaluations"] else study["explainers"]
    kept = kept if "maps" in study else {}
    for dataset, facts in study["datasets"].items():
        if (shards := -(-facts.get("samples", 0) // manifest["shard_size"])) > 10**6:
            raise UserError(f"{path} promises {shards:,} shards of {dataset}, which no run has")
        for model, number in product(study["models"], range(shards)):
            where = f"shard {number} of {dataset} on {model}"
            gaps = [
                f"{where}: {evaluation} of {explainer}"
                for evaluation, explainer in judged
                if not storage.present(
                    directory.part_path(path, dataset, model, evaluation, explainer, number)
                )
            ]
            lost = (
                e
                for e in kept
                if not storage.present(directory.maps_path(path, dataset, model, e, number))
            )
            gaps += [f"{where}: maps of {explainer}" for explainer in lost]
            if (
                (judged or kept)
                and not gaps
                and not storage.present(directory.samples_path(path, dataset, model, number))
            ):
                gaps = [f"{where}: its samples"]
            found += gaps
    return found


def refuse_damage(root: Place) -> None:
    """Raise for the first file of a run that is damaged, foreign or doubled."""
    for verdict in _verdicts(root):
        if verdict.state != "whole":
            raise UserError(verdict.why)


def mend(root: Place, wanted: Iterable[Place]) -> None:
    """Look at what is there of these parts; remove what is damaged or doubled, and say so, so that it is computed anew.

    A part of another study is an error: whoever put it there may have no other copy.
    """
    storage.forget_listings()
    keys, wanted = directory.study_keys(directory.read_manifest(root)), list(wanted)
    found = [path for part in wanted for path in storage.held(part)]
    for path, verdict in zip(found, _each(root, found, keys, ".parquet"), strict=True):
        if verdict.state == "foreign":
            raise UserError(verdict.why)
        if verdict.state != "whole":
            _remove(path, verdict.why)
    keep_one(wanted)


def keep_one(wanted: Iterable[Place]) -> None:
    """Of several parts of one shard, as processes leave them that did it at the same time, the first by name stays."""
    storage.forget_listings()
    for first, *others in filter(None, map(storage.held, wanted)):
        for other in others:
            _remove(other, f"{other} is of the same shard as {first}")
    storage.forget_listings()


def changed_samples(plan: Plan, root: Place) -> str:
    """Which samples of a study are not what they were when the run in a directory read them, one line a data set."""
    known = directory.read_manifest(root)["study"]["datasets"]
    others = {
        n: d
        for n, d in plan.data.items()
        if known.get(n, {}).get("fingerprint", d.fingerprint) != d.fingerprint
    }
    rows, lines = tables.read_samples(root) if others else None, []
    for name, data in others.items():
        assert rows is not None
        own = rows[(rows["dataset"] == name) & (rows["digest"] != "")]
        before, changed = dict(zip(own["sample"], own["digest"], strict=True)), []
        for start in range(0, len(data), storage.AT_ONCE):
            now = data.load(range(start, min(start + storage.AT_ONCE, len(data)))).digests
            changed += [
                sample for sample, digest in now.items() if before.get(sample, digest) != digest
            ]
        lines += [f"\n  {name} has changed: {listed(changed)}"] if changed else []
    return "".join(lines)


def forget_failures(plan: Plan, root: Place, jobs: Iterable[Job]) -> None:
    """Remove everything of the shards with samples that could not be read for a reason that may have passed."""
    for job in jobs:
        rows = tables.read_rows(root, storage.held(directory.samples_path(root, *job)))
        if failed := [row["sample"] for row in rows if row["transient"]]:
            logging.getLogger("heatproof").warning(
                "%d samples are read again, the first is %r", len(failed), failed[0]
            )
            storage.drop_parts(plan.paths(root, job))


def _remove(path: Place, why: str) -> None:
    logging.getLogger("heatproof").warning(
        "%s; it is removed, and computed anew if need be", why.partition(";")[0]
    )
    storage.tried(path, partial(path.unlink, missing_ok=True), "removed")
