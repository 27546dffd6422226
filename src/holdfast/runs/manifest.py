"""What a run directory says about itself: the study as plain data, versions, and every session that worked on it.

`manifest.json` is written once, by whoever comes first. Every process that works in the directory has a file of its own
in `sessions/`, with what it did and what it added to the study, so several may start at once and none is lost.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from holdfast.data import Data
from holdfast.errors import UserError
from holdfast.models import Model
from holdfast.runs import atomic, storage, table
from holdfast.runs.shard import REFERENCES
from holdfast.runs.storage import Place
from holdfast.types import Explainer, name_of, parameters

SECTIONS = ("models", "datasets", "explainers", "evaluations")


def describe(
    models: Mapping[str, Model],
    data: Mapping[str, Data],
    explainers: Mapping[str, Explainer],
    evaluations: Mapping[str, Mapping[str, Any]],
    seed: int,
    references: int | None = None,
) -> dict[str, Any]:
    """The study as plain data: what the manifest stores and what must agree when a run is resumed."""
    return {
        "seed": seed,
        **({} if references is None else {"references": references}),
        "models": {
            name: {
                "fingerprint": model.fingerprint,
                "mean": model.mean,
                "std": model.std,
                "precision": model.precision,
                "untrained_head": model.untrained_head(),
            }
            for name, model in models.items()
        },
        "datasets": {n: {"fingerprint": d.fingerprint, "samples": len(d.ids)} for n, d in data.items()},
        "explainers": {k: {"name": name_of(v), **parameters(v)} for k, v in explainers.items()},
        "evaluations": {k: dict(v) for k, v in evaluations.items()},
    }


def references_of(study: Mapping[str, Any]) -> int:
    """From how many samples a study takes chance; one that does not say it took the usual number.

    >>> references_of({}), references_of({"references": 64})
    (8, 64)
    """
    return int(study.get("references", REFERENCES))


def begin(root: Place, study: Mapping[str, Any], shard_size: int, command: str) -> dict[str, Any]:
    """The manifest to go on with in a directory, new or found there; one that holds another study is refused.

    Its `session` names this process's file in `sessions/`, and `adds` holds what the study has beyond the run.
    """
    storage.forget_listings()
    with storage.reaching(root):
        _write_first(root, study, shard_size, command)
    manifest = agreeing(root, study)
    manifest["session"] = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S%f}-{atomic.this_host()}-{os.getpid()}"
    manifest["adds"] = {section: _beyond(manifest["study"][section], study[section]) for section in SECTIONS}
    if any(manifest["adds"].values()):
        record(root, manifest, {"started": now(), "command": command, "versions": versions()})
        try:
            agreeing(root, study)  # again, for another process may have added something else under the same name
        except UserError:
            _session_path(root, manifest).unlink()
            raise
    if isinstance(root, Path):  # a store keeps nothing of a put that was cut off
        for path in root.glob("**/.*.tmp"):
            if atomic.is_abandoned(path):
                path.unlink(missing_ok=True)
    return manifest


def _write_first(root: Place, study: Mapping[str, Any], shard_size: int, command: str) -> None:
    """The manifest of a new run; one that is there stays."""
    strangers = [path for path in root.iterdir() if not atomic.is_leftover(path)] if root.is_dir() else []
    # Looked for after the rest, because whoever else starts here now writes it before anything else.
    if (root / "manifest.json").exists():
        return
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file; a run needs a directory")
    if strangers:
        raise UserError(f"{root} is not empty and holds no holdfast run; choose another directory")
    first: dict[str, Any] = {"format": 1, "holdfast": metadata.version("holdfast"), "created": now()}
    first |= {"shard_size": shard_size, "study": dict(study), "versions": versions(), "command": command}
    atomic.create_atomically(root / "manifest.json", table.as_json(first))


def agreeing(root: Place, study: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a run whose study does not contradict this one."""
    manifest = table.read_manifest(root)
    found = table.differences({"holdfast": manifest["holdfast"]}, {"holdfast": metadata.version("holdfast")})
    found += table.differences({**manifest["study"], "references": references_of(manifest["study"])}, study)
    for session in table.read_sessions(root):
        found += table.differences(session.get("adds", {}), study)
    if found:
        lines = "\n  ".join(dict.fromkeys(found))
        raise UserError(f"{root} holds another study; choose another directory or restore it:\n  {lines}")
    return manifest


def _beyond(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is named in one mapping and not in the other, at any depth."""
    found = {}
    for name, value in given.items():
        if name not in known:
            found[name] = value
        elif isinstance(value, Mapping) and isinstance(known[name], Mapping) and (more := _beyond(known[name], value)):
            found[name] = more
    return found


def record(root: Place, manifest: Mapping[str, Any], session: Mapping[str, Any]) -> None:
    """Write this process's session; a second call with the same manifest replaces the first."""
    content = {**session, "adds": {section: added for section, added in manifest["adds"].items() if added}}
    atomic.write_atomically(_session_path(root, manifest), table.as_json(content))


def _session_path(root: Place, manifest: Mapping[str, Any]) -> Place:
    return root / "sessions" / f"{manifest['session']}.json"


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    names = ("holdfast", "torch", "numpy", "scipy", "pillow", "pandas", "pyarrow")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


def this_command() -> str:
    """The command line that started this process, as one would type it."""
    return shlex.join(["holdfast", *sys.argv[1:]])


def now() -> str:
    """The time in UTC, as ISO 8601 writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
