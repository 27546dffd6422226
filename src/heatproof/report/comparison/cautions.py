"""What a comparison does not show: few or lost samples, other predictions, controls that differ."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pandas as pd

from heatproof.report.comparison.differences import OVERALL
from heatproof.report.comparison.runs import ComparedRun, unreadable
from heatproof.report.comparison.words import condition_title, counted, gap_text, place_of
from heatproof.results.findings import Finding, finding_template
from heatproof.results.summary import FEW_SAMPLES
from heatproof.text import records

if TYPE_CHECKING:
    from heatproof.report.comparison.compare import Comparison

HIGH_LOSS = 0.5
"""A condition under which a smaller share of the samples was joined is listed."""
FEW = finding_template(
    "few-samples",
    "Few samples",
    f"Intervals from fewer than {FEW_SAMPLES} samples are wide, and small differences are missed.",
    "",
)
LOST = finding_template(
    "lost-samples",
    "Many samples dropped out",
    "Only samples that both runs retain are compared. Where less than half remain, the difference is about samples that "
    "are easy for both models.",
    "",
)
OTHER_PREDICTIONS = finding_template(
    "other-predictions",
    "Different predictions",
    "A map explains what its own model predicts. Where predictions differ, the maps answer different questions.",
    "",
)
CONTROLS_DIFFER = finding_template(
    "controls-differ",
    "Controls differ",
    "Controls ignore the model, and yet they differ: something besides the model differs too.",
    "",
)


def cautions(comparison: Comparison) -> list[Finding]:
    """Return the findings about a comparison, each with the rows that it is about."""
    differences = comparison.differences
    overall = differences[differences["family"] == OVERALL]
    has_few = ((overall["joined"] > 0) & (overall["joined"] < FEW_SAMPLES)).any()
    findings = [FEW] if has_few else []
    listed = [
        (LOST, _lost_samples(comparison)),
        (OTHER_PREDICTIONS, _other_predictions(comparison)),
        (CONTROLS_DIFFER, _controls_that_differ(comparison)),
    ]
    for template, items in listed:
        if items:
            findings.append(template.filled({}, items=tuple(items)))
    return findings


def _lost_samples(comparison: Comparison) -> list[str]:
    """Return a line for each comparison under a condition that many samples could not be joined for."""
    differences = comparison.differences
    is_condition = differences["family"] == "conditions"
    is_lost = differences["joined"] < HIGH_LOSS * differences["samples"]
    items = []
    for row in records(differences[is_condition & is_lost & ~differences["identical"]]):
        name = f"{comparison.named(row)}{place_of(row, differences)}"
        condition = condition_title(row, comparison.matched)
        fates = f"{row.flipped} flipped, {row.undefined} undefined, {row.absent} absent"
        counts = f"{row.joined} of {row.samples} joined, {fates}"
        items.append(f"{name}, {condition}, {row.b} − {row.a}: {counts}")
    return items


def _controls_that_differ(comparison: Comparison) -> list[str]:
    """List the controls whose scores compare maps with maps, where the model has no part, and yet differ."""
    differences = comparison.differences
    compares_maps = _measures_that_compare_maps(comparison.runs)
    moved = differences[(differences["family"] == "controls") & differences["significant"]]
    items = []
    for row in records(moved):
        if (row.kind, row.measure) in compares_maps:
            name = f"{comparison.named(row)}{place_of(row, differences)}"
            condition = condition_title(row, comparison.matched)
            items.append(f"{name}, {condition}, {row.b} − {row.a}: {gap_text(row)}")
    return items


def _measures_that_compare_maps(runs: tuple[ComparedRun, ...]) -> set[tuple[str, str]]:
    """Return the (axis, measure) whose chance level comes from the maps of reference samples."""
    measures = set()
    for run in runs:
        for result in run.results:
            measures |= {(result.axis.name, name) for name in result.arrays.by_reference}
    return measures


def _other_predictions(comparison: Comparison) -> list[str]:
    """List how many samples each two runs predict differently, for every data set and model."""
    items = []
    for datasets in comparison.matched.datasets:
        for models in comparison.matched.models:
            predictions = {}
            for run, dataset, model in zip(comparison.runs, datasets, models, strict=True):
                predictions[run.label] = _predictions(run, dataset, model)
            for a, b in combinations(predictions, 2):
                common = predictions[a].index.intersection(predictions[b].index)
                differ = int((predictions[a][common] != predictions[b][common]).sum())
                if differ:
                    samples = counted(len(common), "sample")
                    items.append(
                        f"{a} and {b} on {datasets[0]}: {differ} of {samples} predicted differently"
                    )
    return items


def _predictions(run: ComparedRun, dataset: str, model: str) -> pd.Series:
    """Return the prediction of each sample that could be read, in words where it has any."""
    samples = run.samples_of(dataset, model)
    readable = samples[~unreadable(samples)]
    names = readable["predicted_name"].fillna("").astype(str)
    return names.where(names != "", readable["predicted"].astype(str))
