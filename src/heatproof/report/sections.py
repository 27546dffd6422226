"""Sections of the page: every dataset and model with its sheet, what was found, its axes, and its first inputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import yaml
from markupsafe import Markup

from heatproof.kinds import KINDS, DataKind
from heatproof.report.components import Component
from heatproof.report.draw import Looks, plots_of
from heatproof.report.findings import findings_here, unreadable
from heatproof.report.frontier import frontier_components
from heatproof.report.images import Album
from heatproof.report.page_parts import Chart, Panel, part_of
from heatproof.report.plots import Mark, of_marks, spot
from heatproof.report.proof_sheet import BUDGET, Column, ProofSheet
from heatproof.report.table_rows import Row
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding
from heatproof.results.reports import components_across, components_of, report_of
from heatproof.runs.manifest import Manifest
from heatproof.text import file_part, listing, number, records, with_interval

PACKAGE = "heatproof.report"
UNABLE = "On models whose right map is known, {} does not prefer it to these: {} (see `heatproof validate`)."


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
        first = next((part for part in self.parts if isinstance(part, Chart)), None)
        strip = next((part for part in self.parts if isinstance(part, Panel) and part.strip), None)
        return [part for part in (first, strip) if part is not None]

    @property
    def closed(self) -> list[Chart | Panel]:
        """What is opened by whoever wants it."""
        return [part for part in self.parts if not any(part is other for other in self.open)]


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

    @property
    def words(self) -> DataKind:
        """How the data are spoken of."""
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
    every: Iterable[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    album: Album,
    missing: Sequence[str] = (),
) -> list[Section]:
    """Every dataset and model that was asked for, those with scores first; pictures go into the album."""
    by_place: dict[tuple[str, str], list[AxisResult]] = {}
    for result in every:
        by_place.setdefault((result.dataset, result.model), []).append(result)
    asked = dict.fromkeys([*by_place, *zip(samples["dataset"], samples["model"], strict=True)])
    sections = []
    for number_, (dataset, model) in enumerate(asked):
        key, here = f"s{number_}", by_place.get((dataset, model), [])
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        proof = ProofSheet(here, own)
        sections.append(
            Section(
                key=key,
                dataset=str(dataset),
                model=str(model),
                samples=max(
                    (len(result.sample_ids) for result in here),
                    default=len(own) - len(unreadable(own)),
                ),
                proof=proof,
                pictured=proof.pictured(album, BUDGET // max(len(asked), 1)),
                findings=findings_here(str(dataset), str(model), here, own, manifest, missing),
                axes=_drawn(here),
            )
        )
    return sections


def leads(result: AxisResult) -> list[str]:
    """Return what an axis says of its results; of a user's own evaluation, what its tests decide."""
    report = report_of(result.axis)
    return result.decided() if report is None else report.lead(result)


def _parts(components: Iterable[Component], looks: Looks) -> list[Chart | Panel]:
    """Return the parts of a page for components, without the empty ones."""
    parts = [part_of(component, looks) for component in components]
    return [part for part in parts if part is not None]


def _frontiers(here: Sequence[AxisResult]) -> list[Chart | Panel]:
    """Return the charts of axes that are weighed, with those of any other two axes folded under the last."""
    looks = {name: look for result in here for name, look in result.looks.items()}
    weighed, others = frontier_components(here)
    parts = _parts(weighed, looks)
    if parts and isinstance(parts[-1], Chart):
        folded = {other.title: plots_of(other, looks)[:1] for other in others}
        parts[-1] = replace(parts[-1], folded=folded)
    return parts


def _drawn(here: Sequence[AxisResult]) -> list[AxisSection]:
    sections: list[AxisSection] = []
    for result in here:
        parts = _parts(components_of(result), result.looks)
        key, again = file_part(result.label) or "axis", 1
        while any(key == other.key for other in sections):
            again += 1
            key = f"{key}-{again}"
        unable = result.axis.blind_spots
        tried = [
            UNABLE.format(m.title, listing(unable[m.name]))
            for m in result.headlines
            if m.name in unable
        ]
        sections.append(AxisSection(key, result, [*leads(result), *tried], parts))
    if sections:
        last = sections[-1]
        sections[-1] = replace(last, parts=[*last.parts, *_frontiers(here)])
    return sections


def matrix_of(sections: Sequence[Section]) -> dict[str, Any] | None:
    """Methods by pairs of model and data on the axis that leads; None where there is one pair."""
    led = [s for s in sorted(sections, key=lambda s: s.dataset) if s.proof.lead is not None]
    if len(sections) < 2 or not led:
        return None
    columns = {s.key: lead for s in led if (lead := s.proof.lead) is not None}
    first = columns[led[0].key]
    ends = of_marks([m for c in columns.values() for m in c.marks.values()], 0.0)
    looks = {look.name: look for s in led for look in (s.proof.looks[e] for e in s.proof.order)}
    marks = {s.key: {m.name: m for m in columns[s.key].marks.values()} for s in led}
    best = {
        s.key: s.proof.looks[verdict.best].name
        for s in led
        if (verdict := columns[s.key].decided) is not None and verdict.best is not None
    }
    rows = []
    for name, look in sorted(looks.items(), key=lambda item: item[1].control):
        found = [(s, marks[s.key].get(name)) for s in led]
        drawn = [
            spot(
                m, ends, 34, max(72.0, min(112.0, 1130 / len(led) - 17)), best.get(s.key) == name
            ).svg(f"{name}, {s.model}")
            if m
            else ""
            for s, m in found
        ]
        rows.append((name, look, drawn))
    wins = Counter(best.values()).most_common(1)
    said = "No method is best on any"
    if wins:
        said = f"{wins[0][0]} is significantly better than all others on {wins[0][1]}"
    told = {
        "sentence": f"{said} of {len(led)} pairs of model and data.",
        "about": f"{first.result.title}: {first.note}.",
    }
    return {"sections": led, "rows": rows, **told}


def across(sections: Iterable[Section]) -> list[Chart | Panel]:
    """What only several models show: the parts of every axis over all of its results."""
    by_axis: dict[str, list[AxisResult]] = {}
    for section in sections:
        for axis in section.axes:
            by_axis.setdefault(axis.result.axis.name, []).append(axis.result)
    drawn: list[Chart | Panel] = []
    for results in by_axis.values():
        if len(results) < 2:
            continue
        looks = {name: look for result in results for name, look in result.looks.items()}
        drawn += _parts(components_across(results), looks)
    return [replace(part, key=f"across-{i}") for i, part in enumerate(drawn)]


NUMBER_COLUMNS = ["Explainer", "Measure", "Condition", "Value", "Chance", "Calibrated"]
NUMBER_COLUMNS += ["Noise floor", "Retained", "Flipped", "Undefined"]


def number_rows(result: AxisResult) -> list[Row]:
    """Return the cells under `NUMBER_COLUMNS` of every row of the summary."""
    rows = []
    for r in records(result.summary):
        measure = result.axis.measure(r.measure)
        calibrated = with_interval(r.calibrated, r.calibrated_low, r.calibrated_high)
        share = with_interval(100 * r.retention, 100 * r.retention_low, 100 * r.retention_high)
        is_pair = r.attempted > 0  # diagnostics belong to no pair
        cells = [
            result.looks[r.explainer].name,
            r.measure.replace("_", " ") if measure is None else measure.title,
            result.axis.condition(r.condition, r.level),
            with_interval(r.mean, r.low, r.high),
            number(r.chance),
            calibrated if r.calibrated == r.calibrated else "–",
            number(r.noise_floor),
            f"{r.retained}/{r.attempted}, {share} %" if is_pair else "–",
            str(r.flipped) if is_pair else "–",
            str(r.undefined) if is_pair else "–",
        ]
        rows.append(Row(cells, bool(r.control)))
    return rows
