"""The axes of the bench. `AXES` is the one list of them: everything else asks it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from heatproof import statistics
from heatproof.axes.agreement.evaluation import Agreement
from heatproof.axes.certificate.evaluation import Certificate
from heatproof.axes.certificate.smoothing import Smoothing
from heatproof.axes.contract import Adopted, Axis, AxisResult, Finding, marks_of, own_axis
from heatproof.axes.dependence.evaluation import Dependence
from heatproof.axes.faithfulness.evaluation import Faithfulness
from heatproof.axes.localisation.evaluation import Localisation
from heatproof.axes.stability.evaluation import Stability
from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.errors import speak_plainly
from heatproof.evaluation import IDENTITY, Measure, Shown
from heatproof.statistics.cubes import Cube

ROOMS = (
    "stability",
    "certificate",
    "symmetry",
    "faithfulness",
    "dependence",
    "localisation",
    "agreement",
)
"""The folders of the axes, in the order in which they are shown; each has its records in `AXES`."""
AXES: tuple[Axis, ...] = tuple(
    axis for room in ROOMS for axis in importlib.import_module(f"{__name__}.{room}").AXES
)
BY_NAME = {axis.name: axis for axis in AXES}
EVALUATIONS = {axis.name: axis.evaluation for axis in AXES if axis.evaluation is not None}
for kind in EVALUATIONS.values():
    speak_plainly(kind)
"""The evaluations by the name that a study file uses."""
USUAL = AXES[0].name
"""The evaluation of a study that names none."""

__all__ = [
    "AXES",
    "BY_NAME",
    "EVALUATIONS",
    "USUAL",
    "Adopted",
    "Agreement",
    "Axis",
    "Certificate",
    "Dependence",
]
__all__ += [
    "AxisResult",
    "Faithfulness",
    "Finding",
    "Localisation",
    "Measure",
    "Smoothing",
    "Stability",
    "Symmetry",
]
__all__ += ["arrange", "axis_of", "axis_results", "marked"]


def arrange(
    table: pd.DataFrame | Sequence[Cube],
    manifest: Mapping[str, Any] | None = None,
    samples: pd.DataFrame | None = None,
) -> list[Cube]:
    """`statistics.arrange` with what the axes know: which measure decides about a pair, spans, rates, what is aside.

    The manifest names the samples that serve as references, `samples` the group of each; both belong in the errors.

    >>> arrange([])
    []
    """
    headlines = [measure for axis in AXES for measure in axis.of_role("headline")]
    every = [measure for axis in AXES for measure in axis.measures]
    aside = {IDENTITY, *(name for axis in AXES for name in axis.aside)}
    study = (manifest or {}).get("study") or {}
    datasets, asked = (study.get(section) or {} for section in ("datasets", "evaluations"))
    cubes = []
    for cube in statistics.arrange(table, headlines, aside):
        references = tuple((datasets.get(cube.dataset) or {}).get("references") or ())
        axis = axis_of(cube.evaluation, manifest or {}, cube.values)
        spans = {
            measure.name: measure.span
            for measure in (*every, *axis.measures)
            if measure.span is not None
        }
        rates = frozenset(measure.name for measure in (*every, *axis.measures) if measure.rate)
        spans |= axis.spans(asked.get(cube.evaluation) or {}, cube.values)
        cubes.append(
            replace(
                cube,
                spans=spans,
                rates=rates,
                references=references,
                groups=statistics.groups_of(cube, samples),
            )
        )
    return cubes


def axis_of(evaluation: str, manifest: Mapping[str, Any], measured: Iterable[str] = ()) -> Axis:
    """The axis of an evaluation, by its name in a study; somebody's own has a plain one with what was measured.

    >>> axis_of("stability", {}).title, axis_of("mine", {}, ["depth"]).measures[0].name
    ('Stability', 'depth')
    """
    settings = ((manifest.get("study") or {}).get("evaluations") or {}).get(evaluation) or {}
    known = BY_NAME.get(str(settings.get("name") or evaluation))
    return known or own_axis(evaluation, settings, list(measured))


def marked(
    cubes: Iterable[Cube], manifest: Mapping[str, Any]
) -> dict[tuple[str, str], dict[str, str]]:
    """(dataset, model) -> explainer -> the word with which every axis marks it, such as *blind*.

    >>> marked([], {})
    {}
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for cube in cubes:
        words = marks_of(axis_of(cube.evaluation, manifest, cube.values), cube)
        found.setdefault((cube.dataset, cube.model), {}).update(words)
    return found


def axis_results(
    table: pd.DataFrame,
    samples: pd.DataFrame,
    exhibits: Sequence[Shown],
    manifest: Mapping[str, Any],
) -> list[AxisResult]:
    """Every evaluation of every dataset and model: datasets and models as they come, their axes in the order of `AXES`.

    An axis that another one shows `within` its own is left out where both were run.
    """
    order = {axis.name: i for i, axis in enumerate(AXES)}
    evaluations = (manifest.get("study") or {}).get("evaluations") or {}
    by_place: dict[tuple[str, str], list[AxisResult]] = {}
    cubes = arrange(table, manifest, samples)
    words = marked(cubes, manifest)
    for cube in cubes:
        place = (cube.dataset, cube.model)
        here = (table["dataset"] == cube.dataset) & (table["model"] == cube.model)
        own = (samples["dataset"] == cube.dataset) & (samples["model"] == cube.model)
        judged = AxisResult(
            axis=axis_of(cube.evaluation, manifest, cube.values),
            cube=cube,
            rows=table[here & (table["evaluation"] == cube.evaluation)],
            samples=samples[own],
            exhibits=[
                s
                for s in exhibits
                if (s.dataset, s.model, s.evaluation) == (*place, cube.evaluation)
            ],
            settings=evaluations.get(cube.evaluation) or {},
            manifest=manifest,
            related=table[here],
            marks=words[place],
        )
        by_place.setdefault(place, []).append(judged)
    found = []
    for judged_here in by_place.values():
        there = {judged.axis.name for judged in judged_here}
        shown = [judged for judged in judged_here if judged.axis.within not in there]
        found += sorted(shown, key=lambda judged: order.get(judged.axis.name, len(order)))
    return found
