"""From the rows of a run to an `AxisResult` for every test of every data set and model."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from heatproof.axes import BY_NAME, axis_of, settings_of
from heatproof.evaluation import GalleryItem
from heatproof.results.arrays import ScoreArrays, groups_of, rows_to_arrays
from heatproof.results.axis_result import AxisResult
from heatproof.runs.manifest import Manifest


def in_study_order(rows: pd.DataFrame, manifest: Manifest) -> pd.DataFrame:
    """Return a compact table with its conditions in the order in which the study names them, which is how people read them."""
    number: dict[str, int] = {}
    for evaluation in manifest.study.evaluations:
        for condition, _ in manifest.study.conditions_of(evaluation):
            number.setdefault(condition, len(number))
    numbers = [number.get(name, len(number)) for name in rows["condition"].cat.categories]
    by_code = np.array(numbers, dtype=np.int64)
    return rows.iloc[by_code[rows["condition"].cat.codes].argsort(kind="stable")]


def arrays_of_run(
    table: pd.DataFrame,
    manifest: Manifest | None = None,
    samples: pd.DataFrame | None = None,
    references: pd.DataFrame | None = None,
) -> list[ScoreArrays]:
    """Return the scores of every data set, model and evaluation, with what their axes declare about the measures.

    `samples` has the group of each sample, and `references` what each reference sample adds to chance. Both belong to the
    error of a score.
    """
    if table.empty:
        return []
    evaluations = [str(name) for name in table["evaluation"].unique()]
    measures = {name: axis_of(name, manifest).measures for name in evaluations}
    every_arrays = []
    for arrays in rows_to_arrays(table, measures, references):
        axis = axis_of(arrays.evaluation, manifest, arrays.values)
        settings = settings_of(arrays.evaluation, manifest, arrays.dataset, arrays.model)
        every_arrays.append(
            replace(
                arrays,
                declared={m.name: m for m in axis.measures if m.name in arrays.values},
                spans=axis.spans(settings, arrays.values),
                groups=groups_of(arrays, samples),
            )
        )
    return every_arrays


def marked_explainers(
    every_arrays: Iterable[ScoreArrays], manifest: Manifest | None
) -> dict[tuple[str, str], dict[str, str]]:
    """Return (dataset, model) -> explainer -> the word that every axis puts beside its name, such as *blind*."""
    marks: dict[tuple[str, str], dict[str, str]] = {}
    for arrays in every_arrays:
        axis = axis_of(arrays.evaluation, manifest, arrays.values)
        of_place = marks.setdefault((arrays.dataset, arrays.model), {})
        if axis.marks:
            of_place.update(importlib.import_module(axis.marks).marks(arrays))
    return marks


def axis_results(
    table: pd.DataFrame,
    samples: pd.DataFrame,
    gallery: Sequence[GalleryItem],
    manifest: Manifest,
    references: pd.DataFrame | None = None,
) -> list[AxisResult]:
    """Return the results that have a section of their own, in reading order."""
    return shown_results(every_axis_result(table, samples, gallery, manifest, references))


def shown_results(results: Sequence[AxisResult]) -> list[AxisResult]:
    """Leave out results that are shown in the section of another axis which was run as well."""
    was_run = {(result.dataset, result.model, result.axis.name) for result in results}
    return [
        result
        for result in results
        if (result.dataset, result.model, result.axis.shown_on) not in was_run
    ]


def every_axis_result(
    table: pd.DataFrame,
    samples: pd.DataFrame,
    gallery: Sequence[GalleryItem],
    manifest: Manifest,
    references: pd.DataFrame | None = None,
) -> list[AxisResult]:
    """Return all results: data sets and models in the order of the table, their axes in the order of `BY_NAME`."""
    every_arrays = arrays_of_run(table, manifest, samples, references)
    marks = marked_explainers(every_arrays, manifest)
    results = []
    for arrays in every_arrays:
        dataset, model, evaluation = arrays.dataset, arrays.model, arrays.evaluation
        is_of_pair = (table["dataset"] == dataset) & (table["model"] == model)
        is_sample_of_pair = (samples["dataset"] == dataset) & (samples["model"] == model)
        images = []
        for item in gallery:
            if (item.dataset, item.model, item.evaluation) == (dataset, model, evaluation):
                images.append(item)
        result = AxisResult(
            axis=axis_of(evaluation, manifest, arrays.values),
            arrays=arrays,
            rows=table[is_of_pair & (table["evaluation"] == evaluation)],
            samples=samples[is_sample_of_pair],
            gallery=images,
            settings=settings_of(evaluation, manifest, dataset, model),
            manifest=manifest,
            sibling_rows=table[is_of_pair],
            marks=marks[dataset, model],
        )
        results.append(result)

    pairs = list(dict.fromkeys((result.dataset, result.model) for result in results))
    position = {axis: i for i, axis in enumerate(BY_NAME)}

    def reading_order(result: AxisResult) -> tuple[int, int]:
        pair = pairs.index((result.dataset, result.model))
        return pair, position.get(result.axis.name, len(position))

    return sorted(results, key=reading_order)
