"""The manifest of a run: the study as plain data, versions, and every session that worked on it.

`manifest.json` is written once, by whoever comes first. Every process that works in the directory has a file of its own
in `sessions/`, with what it did and what it added to the study, so several may start at once and none is lost.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from heatproof.data import Data
from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.guards import missing_normalisation, untrained_head
from heatproof.models.modality import WORDS, modality
from heatproof.runs import atomic, digests, directory, storage
from heatproof.runs.differences import differences
from heatproof.runs.storage import Place
from heatproof.types import Batch, Explainer, name_of, parameters, role_of

SECTIONS = ("models", "datasets", "tasks", "explainers", "evaluations", "maps")


class AnotherStudy(UserError):
    """A run directory holds another study than the one that is to be run there."""


def describe(
    models: Mapping[str, Model],
    data: Mapping[str, Data],
    explainers: Mapping[str, Explainer],
    evaluations: Mapping[str, Mapping[str, Any]],
    seed: int,
    references: Mapping[str, Batch] | None = None,
) -> dict[str, Any]:
    """The study as plain data: what the manifest stores and what must agree when a run is resumed.

    `references` are the samples of each data set from which chance is taken, or any of its samples where none is.
    """
    samples = {name: batch[:1] for name, batch in (references or {}).items()}
    ids = {name: {"references": list(batch.ids)} for name, batch in (references or {}).items()}
    return {
        "seed": seed,
        "models": {
            name: {
                "fingerprint": model.fingerprint,
                "mean": model.mean,
                "std": model.std,
                "precision": model.precision,
                "untrained_head": untrained_head(model.module),
                "unnormalised": missing_normalisation(model.module)
                if model.mean is None is model.std
                else None,
            }
            for name, model in models.items()
        },
        "datasets": {
            n: {"fingerprint": d.fingerprint, "samples": len(d.ids), **ids.get(n, {})}
            for n, d in data.items()
        },
        "tasks": {
            d: {m: task(model, sample) for m, model in models.items()}
            for d, sample in samples.items()
        },
        "explainers": {
            k: {"name": name_of(v), "role": role_of(v), **parameters(v)}
            for k, v in explainers.items()
        },
        "evaluations": {k: dict(v) for k, v in evaluations.items()},
    }


def task(model: Model, sample: Batch) -> dict[str, str]:
    """What a model does on such data and what is explained of it: kind of data, task, readout, when a prediction is
    unchanged, unit of features.

    >>> import torch
    >>> task(Model(torch.nn.Flatten()), Batch(("a",), torch.zeros(1, 3, 8, 8)))["unit"]
    'pixel'
    """
    kind, asked = modality(model, sample), model.task
    words = {"task": asked.name, "readout": asked.readout, "unchanged": asked.unchanged}
    return {"modality": kind, **words, "unit": WORDS[kind].part}


def references_of(study: Mapping[str, Any]) -> int:
    """From how many samples a study takes the chance level of its first data set; 0 where from none.

    >>> references_of({"datasets": {"photos": {"references": ["a", "b"]}}})
    2
    """
    facts = next(iter((study.get("datasets") or {}).values()), None) or {}
    return len(facts.get("references") or ())


def begin(root: Place, study: Mapping[str, Any], shard_size: int, command: str) -> dict[str, Any]:
    """The manifest of the run in a directory, which may be new; one that holds another study is refused.

    Its `session` names this process's file in `sessions/`, and `adds` holds what the study has beyond the run.
    """
    storage.forget_listings()
    _write_first(root, study, shard_size, command)
    manifest = agreeing(root, study)
    manifest["session"] = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{atomic.this_host()}-{os.getpid()}"
    manifest["adds"] = {
        section: _beyond(manifest["study"].get(section, {}), study.get(section, {}))
        for section in SECTIONS
    }
    if any(manifest["adds"].values()):
        record(root, manifest, {"started": now(), "command": command, "versions": versions()})
        try:
            agreeing(
                root, study
            )  # again, for another process may have added something else under the same name
        except UserError:
            _session_path(root, manifest).unlink()
            raise
    atomic.sweep(root)
    return manifest


def _write_first(root: Place, study: Mapping[str, Any], shard_size: int, command: str) -> None:
    """The manifest of a new run; one that is there stays."""
    strangers = (
        [path for path in root.iterdir() if not atomic.is_leftover(path)] if root.is_dir() else []
    )
    # Looked for after the rest, because whoever else starts here now writes it before anything else.
    if (root / "manifest.json").exists():
        return
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file; a run needs a directory")
    if strangers:
        raise UserError(f"{root} is not empty and holds no heatproof run; choose another directory")
    first: dict[str, Any] = {
        "format": directory.FORMAT,
        "heatproof": metadata.version("heatproof"),
        "created": now(),
    }
    first |= {
        "shard_size": shard_size,
        "study": dict(study),
        "versions": versions(),
        "command": command,
    }
    atomic.create_atomically(root / "manifest.json", digests.sealed(first))


def agreeing(root: Place, study: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a run whose study does not contradict this one."""
    manifest = directory.read_manifest(root)
    contradictions = differences(
        {"heatproof": manifest["heatproof"]}, {"heatproof": metadata.version("heatproof")}
    )
    contradictions += differences(manifest["study"], study)
    for session in directory.read_sessions(root):
        contradictions += differences(session.get("adds", {}), study)
    if contradictions:
        lines = "\n  ".join(dict.fromkeys(contradictions))
        raise AnotherStudy(
            f"{root} holds another study; choose another directory or restore it:\n  {lines}"
        )
    return manifest


def _beyond(known: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    """What a study names that is not known, at any depth."""
    more = {}
    for name, value in study.items():
        if name not in known:
            more[name] = value
        elif (
            isinstance(value, Mapping)
            and isinstance(known[name], Mapping)
            and (new := _beyond(known[name], value))
        ):
            more[name] = new
    return more


def record(root: Place, manifest: Mapping[str, Any], session: Mapping[str, Any]) -> None:
    """Write this process's session; a second call with the same manifest replaces the first."""
    content = {
        **session,
        "adds": {section: added for section, added in manifest["adds"].items() if added},
    }
    atomic.write_atomically(_session_path(root, manifest), digests.sealed(content))


def _session_path(root: Place, manifest: Mapping[str, Any]) -> Place:
    return root / "sessions" / f"{manifest['session']}.json"


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    names = ("heatproof", "torch", "numpy", "scipy", "pillow", "pandas", "pyarrow")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


def this_command() -> str:
    """The command line that started this process, as one would type it."""
    return shlex.join(["heatproof", *sys.argv[1:]])


def now() -> str:
    """The time in UTC, as ISO 8601 writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
