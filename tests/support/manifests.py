"""Manifests of runs of which a test needs a few facts."""

from __future__ import annotations

from typing import Any

from heatproof.runs.manifest import Manifest

BARE = {"seed": 0, "models": {}, "datasets": {}, "explainers": {}, "evaluations": {}}


def manifest_of(study: dict[str, Any] | None = None, **facts: Any) -> Manifest:
    """A manifest with this of a study and these other facts, and nothing else."""
    bare = {"heatproof": "1", "shard_size": 32, "study": {**BARE, **(study or {})}}
    return Manifest.model_validate({**bare, **facts})
