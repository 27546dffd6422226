"""A few maps that show what the verdict means: one typical sample, the original and two changes, three explainers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heatproof.evaluation import CLEAN
from heatproof.report.overview import Column, Overview
from heatproof.report.proof_sheet import ProofSheet

SHOWN_CHANGES = 2
"""Changes beside the original; of wide tiles, such as texts, there is room for one."""


@dataclass(frozen=True)
class ExampleRow:
    """An explainer beside its maps: its index in the proof sheet, and its score over all samples in words."""

    index: int
    explainer: str
    note: str


@dataclass(frozen=True)
class ExampleMaps:
    """Rows and columns of the proof sheet that stand beside the verdict, as indices into the proof sheet."""

    title: str
    text: str
    columns: list[tuple[int, str]]
    rows: list[ExampleRow]
    is_wide: bool
    ramps: list[Ramp]


@dataclass(frozen=True)
class Ramp:
    """A scale of colours: the CSS class that draws it, and the words at its ends."""

    style: str
    low: str
    high: str


def example_maps(overview: Overview, proof: ProofSheet) -> ExampleMaps | None:
    """Return the maps beside the verdict; None where the run kept no maps of changed inputs."""
    tiles, result = proof.tiles, proof.pictured_result
    if tiles is None or result is None or not tiles.samples:
        return None
    test = next((column for column in overview.columns if column.result is result), None)
    if test is None or not test.scores:
        return None
    sample = tiles.samples[0]  # the typical one
    explainers = [name for name in _shown_explainers(overview, test) if name in proof.rows]

    # Changes under which every explainer has a score on this sample are preferred: there the prediction stayed.
    changes, scored_changes = [], []
    for number, (condition, title) in enumerate(tiles.columns):
        if condition == CLEAN:
            continue
        changes.append((number, title))
        cells = [tiles.scores.get((name, condition, sample)) for name in explainers]
        if all(cell is not None and math.isfinite(cell[0]) for cell in cells):
            scored_changes.append((number, title))
    candidates = scored_changes or changes
    is_wide = proof.wide > proof.size
    chosen = candidates[-1:] if is_wide else _first_and_last(candidates)

    kind = overview.kind
    has_classes = bool(overview.samples["probability"].notna().any())
    text = f"1 = the same map, 0 = as similar as maps of unrelated {kind.samples}."
    prediction = proof.said_of(sample).rpartition(", ")[0]
    if prediction:
        verb = "says" if has_classes else "predicts"
        each_time = " each time" if scored_changes else ""
        sample_in_words = f"(one {kind.sample} of {overview.sample_count})"
        text = f"The model {verb} {prediction}{each_time} {sample_in_words}. {text}"
    return ExampleMaps(
        title="Same prediction. Same explanation?" if scored_changes else "Same explanation?",
        text=text,
        columns=[(0, tiles.columns[0][1]), *chosen],
        rows=[ExampleRow(proof.rows.index(name), name, _note(test, name)) for name in explainers],
        is_wide=is_wide,
        ramps=_ramps([name in proof.signed for name in explainers], has_classes),
    )


def _ramps(signed: Sequence[bool], has_classes: bool) -> list[Ramp]:
    """Return the scales of colours that occur among maps with and without a sign."""
    ramps = []
    if not all(signed):
        ramps.append(Ramp("one-way", "weak", "strong"))
    if any(signed):
        ends = ("against", "for the class") if has_classes else ("lowers", "raises the output")
        ramps.append(Ramp("two-way", *ends))
    return ramps


def _shown_explainers(overview: Overview, test: Column) -> list[str]:
    """Return the leading method, the method that scores lowest on the pictured test, and the highest-scoring control."""
    methods = [name for name in overview.methods if name in test.scores]
    controls = [name for name in overview.rows if name in overview.controls and name in test.scores]

    def score(name: str) -> float:
        return float(test.measure.sign * test.scores[name].score)

    shown = methods[:1]
    if len(methods) > 1:
        shown.append(min(methods[1:], key=score))
    if controls:
        shown.append(max(controls, key=score))
    return shown


def _first_and_last(changes: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return two changes that differ as much as possible, for studies list similar ones beside each other."""
    if len(changes) <= SHOWN_CHANGES:
        return list(changes)
    return [changes[0], changes[-1]]


def _note(test: Column, explainer: str) -> str:
    score = f"all: {test.cell(explainer).text}"
    return f"control; {score}" if explainer in test.result.controls else score
