"""The axes of the bench. `AXES` is the one list of them: everything else asks it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from heatproof import statistics
from heatproof.axes.agreement.evaluation import Agreement
from heatproof.axes.certificate.evaluation import Certificate
from heatproof.axes.certificate.smoothing import Smoothing
from heatproof.axes.contract import Axis, AxisResult, Finding, marks_of, own_axis
from heatproof.axes.dependence.evaluation import Dependence
from heatproof.axes.faithfulness.evaluation import Faithfulness
from heatproof.axes.localisation.evaluation import Localisation
from heatproof.axes.stability.evaluation import Stability
from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.errors import speak_plainly
from heatproof.evaluation import GalleryItem, Measure
from heatproof.statistics.cubes import Cube

if TYPE_CHECKING:
    # The runs are built on the axes; they only lend them the type of a manifest.
    from heatproof.runs.manifest import Manifest

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
__all__ += ["arrange", "axis_of", "axis_results", "every_axis_result", "marked", "shown_results"]


def arrange(
    table: pd.DataFrame | Sequence[Cube],
    manifest: Manifest | None = None,
    samples: pd.DataFrame | None = None,
    references: pd.DataFrame | None = None,
) -> list[Cube]:
    """`statistics.arrange` with what the axes know of their measures.

    The manifest names the samples that serve as references, `references` what each of them adds to chance, and
    `samples` the group of each sample; all of these belong in the errors.

    >>> arrange([])
    []
    """
    named = table["evaluation"].unique() if isinstance(table, pd.DataFrame) else ()
    known = {str(name): axis_of(str(name), manifest).measures for name in named}
    cubes = []
    for cube in statistics.arrange(table, known, references):
        axis = axis_of(cube.evaluation, manifest, cube.values)
        declared = {m.name: m for m in axis.measures if m.name in cube.values}
        settings = _settings_of(cube.evaluation, manifest, cube.dataset, cube.model)
        spans = axis.spans(settings, cube.values)
        groups = statistics.groups_of(cube, samples)
        cubes.append(replace(cube, declared=declared, spans=spans, groups=groups))
    return cubes


def _settings_of(
    evaluation: str, manifest: Manifest | None, dataset: str = "", model: str = ""
) -> dict[str, Any]:
    """Return what the manifest stores of an evaluation for a data set and model; empty where it stores nothing."""
    if manifest is None:
        return {}
    return manifest.study.evaluation(evaluation, dataset, model).as_mapping()


def axis_of(evaluation: str, manifest: Manifest | None, measured: Iterable[str] = ()) -> Axis:
    """Return the axis of an evaluation, by its name in a study; a user's own evaluation has one with what it measured.

    >>> axis_of("stability", None).title, axis_of("mine", None, ["depth"]).measures[0].name
    ('Stability', 'depth')
    """
    settings = _settings_of(evaluation, manifest)
    known = BY_NAME.get(str(settings.get("name") or evaluation))
    return known or own_axis(evaluation, settings, list(measured))


def marked(
    cubes: Iterable[Cube], manifest: Manifest | None
) -> dict[tuple[str, str], dict[str, str]]:
    """(dataset, model) -> explainer -> the word with which every axis marks it, such as *blind*.

    >>> marked([], None)
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
    gallery: Sequence[GalleryItem],
    manifest: Manifest,
    references: pd.DataFrame | None = None,
) -> list[AxisResult]:
    """Return the result of every evaluation of every dataset and model, in the order in which they are shown."""
    return shown_results(every_axis_result(table, samples, gallery, manifest, references))


def shown_results(results: Sequence[AxisResult]) -> list[AxisResult]:
    """Leave out the results that another one shows `within` its own, where both were computed."""
    measured = {(*_place(result), result.axis.name) for result in results}
    return [result for result in results if (*_place(result), result.axis.within) not in measured]


def every_axis_result(
    table: pd.DataFrame,
    samples: pd.DataFrame,
    gallery: Sequence[GalleryItem],
    manifest: Manifest,
    references: pd.DataFrame | None = None,
) -> list[AxisResult]:
    """Return all results: datasets and models as they come, their axes in the order of `AXES`."""
    cubes = arrange(table, manifest, samples, references)
    marks = marked(cubes, manifest)
    results = []
    for cube in cubes:
        is_here = (table["dataset"] == cube.dataset) & (table["model"] == cube.model)
        of_place = (samples["dataset"] == cube.dataset) & (samples["model"] == cube.model)
        own_key = (cube.dataset, cube.model, cube.evaluation)
        result = AxisResult(
            axis=axis_of(cube.evaluation, manifest, cube.values),
            cube=cube,
            rows=table[is_here & (table["evaluation"] == cube.evaluation)],
            samples=samples[of_place],
            gallery=[e for e in gallery if (e.dataset, e.model, e.evaluation) == own_key],
            settings=_settings_of(cube.evaluation, manifest, cube.dataset, cube.model),
            manifest=manifest,
            related=table[is_here],
            marks=marks[cube.dataset, cube.model],
        )
        results.append(result)

    places = list(dict.fromkeys(_place(result) for result in results))
    order = {axis.name: i for i, axis in enumerate(AXES)}

    def reading_order(result: AxisResult) -> tuple[int, int]:
        return places.index(_place(result)), order.get(result.axis.name, len(order))

    return sorted(results, key=reading_order)


def _place(result: AxisResult) -> tuple[str, str]:
    """The dataset and model of a result."""
    return result.cube.dataset, result.cube.model
