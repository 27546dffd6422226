"""What a study file may name, with descriptions: the tables of `heatproof ls`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from heatproof.axes import BY_NAME, EVALUATIONS
from heatproof.axes.stability import perturbations
from heatproof.axes.symmetry.groups import GROUPS
from heatproof.evaluation import Measure
from heatproof.explainers.adapters.named import LIBRARIES
from heatproof.features import GROUPINGS
from heatproof.removal import CONTEXTUAL, IMPUTERS
from heatproof.runs.study.registry import EXPLAINERS
from heatproof.text import listing
from heatproof.types import label_of

CLASSES: Mapping[str, Mapping[str, Any]] = {
    "evaluations": EVALUATIONS,
    "groups": GROUPS,
    "features": GROUPINGS,
    "imputers": IMPUTERS | CONTEXTUAL,
}


def catalogue(kind: str) -> list[tuple[str, str]]:
    """Return (name, description) of the explainers, evaluations, perturbations, presets, measures and so on.

    >>> dict(catalogue("presets"))["fass-mild"]
    'rotation 5°, ...'
    """
    if kind == "explainers":
        return list(_explainers())
    if kind == "perturbations":
        return list(_perturbations())
    if kind == "presets":
        return list(_presets())
    if kind == "measures":
        return list(_measures())
    return [(name, summary(cls)) for name, cls in CLASSES[kind].items()]


def _explainers() -> Iterator[tuple[str, str]]:
    """Yield our explainers with their terms, then those of other libraries."""
    for name, explainer in EXPLAINERS.items():
        yield name, f"{summary(explainer)}; {explainer.terms()}"
    for library, methods in LIBRARIES.items():
        for method, parameters in methods.items():
            yield f"{library}: {method}", summary(parameters)


def _perturbations() -> Iterator[tuple[str, str]]:
    """Yield perturbations with their family, and the kind of data for those that are not for images."""
    kind_of_data: dict[str, str] = {}
    kind_of_data |= dict.fromkeys(perturbations.FOR_SERIES, "series, ")
    kind_of_data |= dict.fromkeys(perturbations.FOR_TABLES, "table, ")
    kind_of_data |= dict.fromkeys(perturbations.FOR_TEXTS, "text, ")
    for name, perturbation in perturbations.KNOWN.items():
        yield name, f"{kind_of_data.get(name, '')}{perturbation.family}; {summary(perturbation)}"


def _presets() -> Iterator[tuple[str, str]]:
    """Yield presets with their perturbations."""
    for name, preset in perturbations.KNOWN_PRESETS.items():
        yield name, ", ".join(perturbations.describe(perturbation) for perturbation in preset)


def _measures() -> Iterator[tuple[str, str]]:
    """Yield every measure with the axes that have it, its role and its direction.

    Axes that declare a measure alike share a line; two measures of the same name, such as the `rate` of certificates and
    that of smoothing, have a line each.
    """
    axes_of_measures: dict[Measure, list[str]] = {}
    for axis in BY_NAME.values():
        for measure in axis.measures:
            axes_of_measures.setdefault(measure, []).append(axis.name)
    in_order = list(dict.fromkeys(measure.name for measure in axes_of_measures))
    for name in in_order:
        for measure, axes in axes_of_measures.items():
            if measure.name == name:
                better = "" if measure.better == "neither" else f"; {measure.better} is better"
                yield name, f"{listing(axes)}, {measure.role}: {measure.text}{better}"


def summary(cls: Any) -> str:
    """Return the first line of a class's docstring, then its parameters with their defaults.

    >>> from heatproof.explainers import Rise
    >>> summary(Rise)
    "RISE: the mean of random smooth masks, ... (samples=1000, grid=7, ...)"
    """
    first_line = (inspect.getdoc(cls) or "").split("\n", 1)[0].rstrip(".")
    parameters = ", ".join(_parameter(field) for field in fields(cls))
    return f"{first_line} ({parameters})" if parameters else first_line


def _parameter(field: Field[Any]) -> str:
    """Return a parameter with its default, as in "steps=50"; one that must be given has none."""
    if field.default is not MISSING:
        return f"{field.name}={_as_in_a_study(field.default)}"
    if field.default_factory is not MISSING:
        return f"{field.name}={_as_in_a_study(field.default_factory())}"
    return field.name


def _as_in_a_study(value: Any) -> str:
    """Return a default as a study file would have it."""
    if isinstance(value, tuple):
        return f"[{', '.join(_as_in_a_study(item) for item in value)}]"
    return label_of(value) if is_dataclass(value) else str(value)
