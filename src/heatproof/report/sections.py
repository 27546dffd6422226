"""Sections of the page: every data set and model with its proof sheet, its findings and its axes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
import yaml
from markupsafe import Markup

from heatproof.kinds import KINDS, DataKind
from heatproof.report.components import Component
from heatproof.report.draw import Looks, plots_of
from heatproof.report.example_maps import ExampleMaps, example_maps
from heatproof.report.findings import findings_here, unreadable
from heatproof.report.frontier import frontier_components
from heatproof.report.images import Album
from heatproof.report.overview import Overview
from heatproof.report.page_parts import Chart, Panel, part_of
from heatproof.report.plots import Mark, of_marks, spot
from heatproof.report.proof_sheet import BUDGET, Column, ProofSheet
from heatproof.report.table_rows import Row
from heatproof.report.verdict_screen import (
    ScreenColumn,
    ScreenRow,
    verdict_columns,
    verdict_latex,
    verdict_note,
    verdict_rows,
)
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding
from heatproof.results.names import Look
from heatproof.results.reports import components_across, components_of, report_of
from heatproof.runs.manifest import Manifest
from heatproof.text import file_part, listing, number, records, with_interval

PACKAGE = "heatproof.report"
BLIND_SPOTS = (
    "On models whose true map is known, {measure} does not notice these corruptions of it: {corruptions} "
    "(see `heatproof validate`)."
)


@dataclass(frozen=True)
class AxisSection:
    """One evaluation on the page: its sentences, its charts and panels, and its numbers under them."""

    key: str
    result: AxisResult
    lead: list[str]
    parts: list[Chart | Panel]

    @property
    def open(self) -> list[Chart | Panel]:
        """What is seen at once: the first chart and the first strip of pictures."""
        charts = [part for part in self.parts if isinstance(part, Chart)]
        strips = [part for part in self.parts if isinstance(part, Panel) and part.strip]
        return [*charts[:1], *strips[:1]]

    @property
    def closed(self) -> list[Chart | Panel]:
        """The parts that are collapsed by default."""
        shown = {id(part) for part in self.open}
        return [part for part in self.parts if id(part) not in shown]


@dataclass(frozen=True)
class Section:
    """Everything the page shows about one dataset and model."""

    key: str
    dataset: str
    model: str
    samples: int
    proof: ProofSheet
    pictured: list[dict[str, Any]]
    findings: list[Finding]
    axes: list[AxisSection]
    overview: Overview
    anchor_prefix: str = ""

    @cached_property
    def example(self) -> ExampleMaps | None:
        """The few maps beside the verdict; None where the run kept none."""
        return example_maps(self.overview, self.proof) if self.pictured else None

    @cached_property
    def verdict_columns(self) -> list[ScreenColumn]:
        """The tests of the verdict, each with the anchor of its section."""
        anchors = {axis.result: self.anchor_prefix + axis.key for axis in self.axes}
        return verdict_columns(self.overview, anchors)

    @cached_property
    def verdict_rows(self) -> list[ScreenRow]:
        """The explainers of the verdict."""
        return verdict_rows(self.overview)

    @property
    def verdict_note(self) -> str:
        """How to read the verdict."""
        return verdict_note(self.overview)

    @property
    def verdict_latex(self) -> str:
        """The verdict as a table for a paper."""
        return verdict_latex(self.overview)

    @property
    def scorecard_rows(self) -> list[str]:
        """The explainers of the scorecard in the order of the verdict."""
        scored = set(self.proof.order)
        return [explainer for explainer in self.overview.rows if explainer in scored]

    @property
    def words(self) -> DataKind:
        """The vocabulary for this kind of data: sample, feature and the like."""
        return self.proof.here[0].words if self.proof.here else KINDS["image"]

    @property
    def about(self) -> str:
        """What the sheet shows, for somebody who has never seen one."""
        if not self.proof.here:
            return "Nothing can be concluded: no pair was attempted."
        result = self.proof.pictured_result if self.pictured else None
        question = (result or self.proof.here[0]).axis.question
        scale = " On each map, 0 is chance and 1 is the same map." if result else ""
        return question[:1].upper() + question[1:] + scale

    @property
    def changes(self) -> list[str]:
        """The columns of the sheet in words."""
        tiles = self.proof.tiles if self.pictured else None
        return [words for _, words in tiles.columns] if tiles else []

    def anchor(self, column: Column) -> str:
        """Where an axis is on the page."""
        return next(axis.key for axis in self.axes if axis.result is column.result)

    def spot(self, column: Column, explainer: str) -> Markup:
        """The dot of a method on an axis."""
        left = 1300 - 190 - (self.proof.wide + 8) * len(self.changes)
        wide = max(88.0, min(150.0, left / len(self.proof.columns) - 12))
        tall = self.proof.size + 8.0 if self.changes else 40.0
        return spot(column.marks[explainer], column.ends, tall, wide).svg(column.result.title)

    def score(self, m: Mark) -> Markup:
        """A score with its interval, for a table."""
        if not (math.isfinite(m.low) and math.isfinite(m.high)):
            return Markup("<b>{}</b>").format(number(m.value))
        joined = " to " if m.low < 0 else "–"
        return Markup("<b>{}</b> {}{}{}").format(
            number(m.value), number(m.low), joined, number(m.high)
        )


def change_yaml(change: Mapping[str, Any]) -> str:
    """Return the change of a finding as it stands in a study file.

    >>> print(change_yaml({"explainers": [{"lime": {"samples": 128}}], "limit": 100}))
    explainers:
    - lime: {samples: 128}
    limit: 100
    """
    if not change:
        return ""
    text: str = yaml.safe_dump(
        dict(change), sort_keys=False, default_flow_style=None, allow_unicode=True
    )
    return text.rstrip()


def sections_of(
    results: Iterable[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    album: Album,
    missing: Sequence[str] = (),
) -> list[Section]:
    """Return a section for every data set and model of the study, those with scores first; pictures go into the album."""
    results_of: dict[tuple[str, str], list[AxisResult]] = {}
    for result in results:
        results_of.setdefault((result.dataset, result.model), []).append(result)
    in_samples = zip(samples["dataset"], samples["model"], strict=True)
    subjects = dict.fromkeys([*results_of, *in_samples])
    budget = BUDGET // max(len(subjects), 1)
    sections = []
    for number_of_section, (dataset, model) in enumerate(subjects):
        of_subject = results_of.get((dataset, model), [])
        is_here = (samples["dataset"] == dataset) & (samples["model"] == model)
        own_samples = samples[is_here]
        read = len(own_samples) - len(unreadable(own_samples))
        proof = ProofSheet(of_subject, own_samples)
        findings = findings_here(
            str(dataset), str(model), of_subject, own_samples, manifest, missing
        )
        section = Section(
            key=f"s{number_of_section}",
            dataset=str(dataset),
            model=str(model),
            samples=max((len(result.sample_ids) for result in of_subject), default=read),
            proof=proof,
            pictured=proof.pictured(album, budget),
            findings=findings,
            axes=_axis_sections(of_subject),
            overview=Overview(str(dataset), str(model), of_subject, own_samples, findings),
            anchor_prefix="" if number_of_section == 0 else f"s{number_of_section}-",
        )
        sections.append(section)
    return sections


def leads(result: AxisResult) -> list[str]:
    """Return what an axis says of its results; of a user's own evaluation, what its tests decide."""
    report = report_of(result.axis)
    return result.decided() if report is None else report.lead(result)


def _drawn(components: Iterable[Component], looks: Looks) -> list[Chart | Panel]:
    """Return the charts and panels that a page shows of components, without the empty ones."""
    charts_and_panels = [part_of(component, looks) for component in components]
    return [shown for shown in charts_and_panels if shown is not None]


def _frontiers(results: Sequence[AxisResult]) -> list[Chart | Panel]:
    """Return the charts of axes that are weighed, with those of any other two axes folded under the last."""
    looks = _looks_of(results)
    weighed, not_weighed = frontier_components(results)
    charts = _drawn(weighed, looks)
    if charts and isinstance(charts[-1], Chart):
        folded = {scatter.title: plots_of(scatter, looks)[:1] for scatter in not_weighed}
        charts[-1] = replace(charts[-1], folded=folded)
    return charts


def _looks_of(results: Sequence[AxisResult]) -> dict[str, Look]:
    """Return the name and colour of every explainer that any of the results has."""
    looks: dict[str, Look] = {}
    for result in results:
        looks |= result.looks
    return looks


def _axis_sections(results: Sequence[AxisResult]) -> list[AxisSection]:
    """Return the sections of all axes of one data set and model; the last one has the frontiers as well."""
    sections: list[AxisSection] = []
    for result in results:
        keys = [section.key for section in sections]
        sentences = [*leads(result), *_blind_spots(result)]
        parts = _drawn(components_of(result), result.looks)
        sections.append(AxisSection(_unused_key(result.label, keys), result, sentences, parts))
    if sections:
        last = sections[-1]
        sections[-1] = replace(last, parts=[*last.parts, *_frontiers(results)])
    return sections


def _unused_key(label: str, keys: Collection[str]) -> str:
    """Return the anchor of an axis; labels that only differ in odd characters get a number."""
    base = file_part(label) or "axis"
    key, number_of_key = base, 1
    while key in keys:
        number_of_key += 1
        key = f"{base}-{number_of_key}"
    return key


def _blind_spots(result: AxisResult) -> list[str]:
    """Name the corruptions of a map that the headlines do not notice."""
    blind_spots = result.axis.blind_spots
    return [
        BLIND_SPOTS.format(measure=headline.title, corruptions=listing(blind_spots[headline.name]))
        for headline in result.headlines
        if headline.name in blind_spots
    ]


# ---- several models and data sets ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelMatrix:
    """Methods by pairs of model and data set, on the axis that leads in each.

    `rows` have the name and look of a method, and for each section its score as a drawing, or nothing.
    """

    sections: list[Section]
    rows: list[tuple[str, Look, list[Markup]]]
    sentence: str
    about: str


def matrix_of(sections: Sequence[Section]) -> ModelMatrix | None:
    """Return the matrix of methods and models; None where there is one model and data set only."""
    by_dataset = sorted(sections, key=lambda section: section.dataset)
    columns: dict[str, Column] = {}
    for section in by_dataset:
        if section.proof.lead is not None:
            columns[section.key] = section.proof.lead
    scored = [section for section in by_dataset if section.key in columns]
    if len(sections) < 2 or not scored:
        return None

    best: dict[str, str] = {}
    looks: dict[str, Look] = {}
    for section in scored:
        for explainer in section.proof.order:
            look = section.proof.looks[explainer]
            looks[look.name] = look
        verdict = columns[section.key].decided
        if verdict is not None and verdict.best is not None:
            best[section.key] = section.proof.looks[verdict.best].name

    # Marks by section and by the name of the method.
    marks: dict[str, dict[str, Mark]] = {}
    all_marks: list[Mark] = []
    for section in scored:
        of_section = columns[section.key].marks.values()
        marks[section.key] = {m.name: m for m in of_section}
        all_marks += of_section
    limits = of_marks(all_marks, 0.0)
    # The columns share the width of the page.
    width = max(72.0, min(112.0, 1130 / len(scored) - 17))
    rows = []
    # Controls come last.
    for name, look in sorted(looks.items(), key=lambda entry: entry[1].control):
        cells = []
        for section in scored:
            score_mark = marks[section.key].get(name)
            if score_mark is None:
                cells.append(Markup(""))
                continue
            is_best = best.get(section.key) == name
            drawing = spot(score_mark, limits, 34, width, is_best)
            cells.append(drawing.svg(f"{name}, {section.model}"))
        rows.append((name, look, cells))

    first = columns[scored[0].key]
    return ModelMatrix(
        sections=scored,
        rows=rows,
        sentence=_matrix_sentence(best, len(scored)),
        about=f"{first.result.title}: {first.note}.",
    )


def _matrix_sentence(best: Mapping[str, str], pairs: int) -> str:
    """Say which method is most often the best; `best` has the best one of each section that has one."""
    of_pairs = f"of {pairs} pairs of model and data"
    if not best:
        return f"No method is best on any {of_pairs}."
    ((name, wins),) = Counter(best.values()).most_common(1)
    return f"{name} is significantly better than all others on {wins} {of_pairs}."


def across(sections: Iterable[Section]) -> list[Chart | Panel]:
    """Return what only several models show: the components of every axis over all of its results."""
    by_axis: dict[str, list[AxisResult]] = {}
    for section in sections:
        for axis in section.axes:
            by_axis.setdefault(axis.result.axis.name, []).append(axis.result)
    shown: list[Chart | Panel] = []
    for results in by_axis.values():
        if len(results) > 1:
            shown += _drawn(components_across(results), _looks_of(results))
    # Axes may use the same keys, and keys are anchors on the page.
    return [replace(chart, key=f"across-{i}") for i, chart in enumerate(shown)]


NUMBER_COLUMNS = ["Explainer", "Measure", "Condition", "Value", "Chance", "Calibrated"]
NUMBER_COLUMNS += ["Noise floor", "Retained", "Flipped", "Undefined"]


def number_rows(result: AxisResult) -> list[Row]:
    """Return the cells under `NUMBER_COLUMNS` of every row of the summary."""
    rows = []
    for row in records(result.summary):
        measure = result.axis.measure(row.measure)
        calibrated = with_interval(row.calibrated, row.calibrated_low, row.calibrated_high)
        is_pair = row.attempted > 0  # diagnostics belong to no pair
        percent = with_interval(
            100 * row.retention, 100 * row.retention_low, 100 * row.retention_high
        )
        retained = f"{row.retained}/{row.attempted}, {percent} %"
        cells = [
            result.looks[row.explainer].name,
            row.measure.replace("_", " ") if measure is None else measure.title,
            result.axis.condition(row.condition, row.level),
            with_interval(row.mean, row.low, row.high),
            number(row.chance),
            "–" if math.isnan(row.calibrated) else calibrated,
            number(row.noise_floor),
            retained if is_pair else "–",
            str(row.flipped) if is_pair else "–",
            str(row.undefined) if is_pair else "–",
        ]
        rows.append(Row(cells, bool(row.control)))
    return rows
