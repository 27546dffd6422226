"""What can be named in a study file, with a line about each."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Any

from holdfast import perturbations
from holdfast.evaluations.stability import MEASURES
from holdfast.explainers import EXPLAINERS
from holdfast.types import label_of

MEASURE_TEXT = {
    "ssim": "structural similarity of the maps, each scaled to [0, 1]; 11 × 11 windows",
    "spearman": "rank correlation ρ of all values, as (ρ + 1) / 2",
    "jaccard": "overlap of the places with the k largest values",
    "fass": "weighted mean of the three",
}
CERTIFICATE_TEXT = {
    "rate": "certificate: share of the supersets within a radius on which the prediction stays, with bounds",
    "certified": "certificate: the guaranteed lower bound of the rate",
    "passes": "certificate: model passes that it cost",
}
SUFFIX_TEXT = {
    "_chance": "the same against maps of other samples",
    "_aligned": "for geometric perturbations: against the map moved with the image, on the pixels both have",
    "_aligned_chance": "the aligned score against maps of other samples",
}


def catalogue(what: str) -> list[tuple[str, str]]:
    """(name, description) pairs of the explainers, perturbations, measures or presets.

    >>> dict(catalogue("presets"))["fass-mild"]
    'rotation 5°, ...'
    """
    if what == "explainers":
        return [(name, _summary(kind)) for name, kind in EXPLAINERS.items()]
    if what == "perturbations":
        return [(name, f"{kind.family}; {_summary(kind)}") for name, kind in perturbations.PERTURBATIONS.items()]
    if what == "presets":
        return [
            (name, ", ".join(perturbations.describe(p) for p in chosen))
            for name, chosen in perturbations.PRESETS.items()
        ]
    suffixes = [(f"*{suffix}", text) for suffix, text in SUFFIX_TEXT.items()]
    return [(name, MEASURE_TEXT[name]) for name in MEASURES] + suffixes + list(CERTIFICATE_TEXT.items())


def _summary(kind: Any) -> str:
    """The first line of the docstring, then the parameters with their defaults."""
    first = (inspect.getdoc(kind) or "").split("\n", 1)[0].rstrip(".")
    shown = []
    for f in fields(kind):
        if f.default is MISSING and f.default_factory is MISSING:
            shown.append(f.name)  # one that must be given
            continue
        value = f.default if f.default_factory is MISSING else f.default_factory()
        shown.append(f"{f.name}={label_of(value) if hasattr(value, '__dataclass_fields__') else value}")
    return f"{first} ({', '.join(shown)})" if shown else first
