"""When may a run be used again? A fingerprint of everything that its numbers depend on, as far as it can be seen."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heatproof.runs import manifest
from heatproof.runs.plan import Plan, describe


def fingerprint(plan: Plan) -> str:
    """Return a sha256 that identifies the result of a plan, by which finished runs are found in pytest's cache.

    It covers the study with its weights and data, the versions of packages, and the files that define networks and
    explainers. Code that these call in other files is not covered, nor are numbers that a network has outside of its
    weights and its printed form: clear the cache after changing those (`pytest --cache-clear`).

    >>> import torch
    >>> from heatproof.runs.plan import make_plan
    >>> net, images = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2)), torch.rand(2, 3, 8, 8)
    >>> plans = [make_plan(net, images, "saliency", {"s": {"stability": {"perturbations": "jpeg", "k": k}}})
    ...          for k in (50, 50, 60)]
    >>> [fingerprint(plan) == fingerprint(plans[0]) for plan in plans]
    [True, True, False]
    """
    description = [describe(plan).as_mapping(), manifest.versions()]
    digest = hashlib.sha256(json.dumps(description, sort_keys=True, default=str).encode())
    for model in plan.models.values():
        digest.update(repr(model.module).encode())
    for source in sorted(set(_sources(plan))):
        digest.update(source.encode())
    return digest.hexdigest()


def _sources(plan: Plan) -> Iterator[str]:
    """Yield the source of the files that define a plan's layers, explainers and evaluations, except torch's and ours."""
    layers = (type(layer) for model in plan.models.values() for layer in model.module.modules())
    items: tuple[Any, ...] = (*plan.explainers.values(), *plan.evaluations.values())
    for kind in {*layers, *(type(inspect.unwrap(item)) for item in items)}:
        if kind.__module__.split(".")[0] in ("torch", "heatproof"):
            continue  # their versions are in the fingerprint
        try:
            yield Path(inspect.getfile(kind)).read_text(encoding="utf-8", errors="replace")
        except (TypeError, OSError):  # typed in at a prompt: there is no file
            yield kind.__qualname__
