"""Sections of the page: every dataset and model with its axes, what they found, and its first inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from markupsafe import Markup

from holdfast.axes import Judged
from holdfast.axes.contract import Finding, page_of
from holdfast.drawing.charts import Chart, Panel
from holdfast.drawing.pages import page
from holdfast.drawing.pictures import Album, label_words, photo, prediction
from holdfast.drawing.prose import listing, number, records, with_interval
from holdfast.drawing.tables import Row
from holdfast.report.findings import findings_here, unreadable
from holdfast.report.frontier import frontier_charts
from holdfast.types import Shown

PACKAGE = "holdfast.report"
INPUTS = "inputs"  # under which the engine keeps the first images as the model sees them
NOTHING = "Nothing can be concluded: no pair was attempted."
UNABLE = "On models whose right map is known, {} does not prefer it to these: {} (see `holdfast validate`)."


@dataclass(frozen=True)
class AxisSection:
    """One evaluation on the page: its sentences, its charts and panels, and its numbers under them."""

    key: str
    judged: Judged
    lead: list[str]
    parts: list[Chart | Panel]

    @property
    def title(self) -> str:
        """The heading."""
        return self.judged.title

    @property
    def left_out(self) -> list[str]:
        """Why some explainers were not judged."""
        return [str(why) for why in (self.judged.settings.get("left_out") or {}).values()]

    @property
    def numbers(self) -> list[Row]:
        """The rows of all numbers."""
        return number_rows(self.judged)


@dataclass(frozen=True)
class Section:
    """Everything the page shows about one dataset and model."""

    key: str
    dataset: str
    model: str
    samples: int
    unreadable: int
    verdict: list[str]
    findings: list[Finding]
    axes: list[AxisSection]
    inputs: Panel | None

    @property
    def panels(self) -> list[Panel]:
        """Those parts that bring pictures of their own."""
        drawn = [part for axis in self.axes for part in axis.parts if isinstance(part, Panel)]
        return [*drawn, *([self.inputs] if self.inputs else [])]


def sections_of(
    every: Iterable[Judged], samples: pd.DataFrame, exhibits: Sequence[Shown], manifest: Mapping[str, Any]
) -> list[Section]:
    """Every dataset and model that was asked for, those with scores first."""
    by_place: dict[tuple[str, str], list[Judged]] = {}
    for judged in every:
        by_place.setdefault((judged.cube.dataset, judged.cube.model), []).append(judged)
    asked = dict.fromkeys([*by_place, *zip(samples["dataset"], samples["model"], strict=True)])
    sections = []
    for number_, (dataset, model) in enumerate(asked):
        key, here = f"s{number_}", by_place.get((dataset, model), [])
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        unread = unreadable(own)
        shown = [s for s in exhibits if (s.dataset, s.model, s.evaluation) == (dataset, model, INPUTS)]
        drawn = _drawn(key, here)
        sections.append(
            Section(
                key=key,
                dataset=str(dataset),
                model=str(model),
                samples=max((len(judged.cube.samples) for judged in here), default=len(own) - len(unread)),
                unreadable=len(unread),
                verdict=verdict(drawn) or [NOTHING],
                findings=findings_here(str(dataset), str(model), here, own, manifest),
                axes=drawn,
                inputs=_inputs(shown, own),
            )
        )
    return sections


def leads(judged: Judged) -> list[str]:
    """What an axis says of its results; of somebody's own evaluation, the best score."""
    drawn = page_of(judged.axis)
    if drawn is not None:
        return drawn.lead(judged)
    return [
        f"{row.measure.replace('_', ' ')} of {row.explainer}: {with_interval(row.score, row.low, row.high)}."
        for row in records(judged.ranking.head(1))
    ]


def verdict(axes: Sequence[AxisSection]) -> list[str]:
    """The first sentence of every axis, with its name where it is not the first."""
    return [axis.lead[0] if i == 0 else f"{axis.title}: {axis.lead[0]}" for i, axis in enumerate(axes) if axis.lead]


def _drawn(key: str, here: Sequence[Judged]) -> list[AxisSection]:
    sections = []
    for number_, judged in enumerate(here):
        drawn = page_of(judged.axis)
        parts = drawn.parts(judged) if drawn is not None else []
        unable = judged.axis.unable
        tried = [UNABLE.format(m.title, listing(unable[m.name])) for m in judged.headlines if m.name in unable]
        sections.append(AxisSection(f"{key}-a{number_}", judged, [*leads(judged), *tried], parts))
    if sections:
        last = sections[-1]
        sections[-1] = replace(last, parts=[*last.parts, *frontier_charts(here)])
    return sections


def across(sections: Iterable[Section]) -> list[Chart]:
    """What only several models show: the charts of every axis over all of its results."""
    by_axis: dict[str, list[Judged]] = {}
    for section in sections:
        for axis in section.axes:
            by_axis.setdefault(axis.judged.axis.name, []).append(axis.judged)
    drawn = []
    for judged in by_axis.values():
        made = page_of(judged[0].axis)
        drawn += made.across(judged) if made is not None else []
    return [replace(chart, key=f"across-{i}") for i, chart in enumerate(drawn)]


def _inputs(shown: Sequence[Shown], samples: pd.DataFrame) -> Panel | None:
    """The first images as the model sees them, so that a reader notices data that was loaded wrongly."""
    if not shown:
        return None
    known, album = samples.drop_duplicates("sample").set_index("sample"), Album()
    entries = [
        (item.sample, album.add(photo(item.image)), prediction(known, item.sample), label_words(known, item.sample))
        for item in shown
    ]
    html = Markup(page(PACKAGE, "inputs.html").render(entries=entries))
    return Panel("inputs", "The first images as the model sees them", "", html, album.pictures)


NUMBER_COLUMNS = ["Explainer", "Measure", "Condition", "Raw", "Chance", "Calibrated", "Aligned", "Aligned + calibrated"]
NUMBER_COLUMNS += ["Noise floor", "Retained", "Flipped", "Undefined"]


def number_rows(judged: Judged) -> list[Row]:
    """The cells under `NUMBER_COLUMNS` of every row of the summary."""
    rows = []
    for r in records(judged.summary):
        moved = with_interval(r.aligned_calibrated, r.aligned_calibrated_low, r.aligned_calibrated_high)
        calibrated = with_interval(r.calibrated, r.calibrated_low, r.calibrated_high)
        measure = judged.axis.measure(r.measure)
        name = measure.title if measure is not None and measure.name == r.measure else r.measure.replace("_", " ")
        cells = [str(r.explainer), name, judged.axis.condition(r.condition, r.level)]
        cells += [with_interval(r.mean, r.low, r.high), number(r.chance)]
        cells += [calibrated if r.calibrated == r.calibrated else "–", number(r.aligned)]
        cells += [moved if r.aligned_calibrated == r.aligned_calibrated else "–", number(r.noise_floor)]
        share = with_interval(100 * r.retention, 100 * r.retention_low, 100 * r.retention_high)
        cells += [f"{r.retained}/{r.attempted}, {share} %", str(r.flipped), str(r.undefined)]
        rows.append(Row(cells, bool(r.control)))
    return rows
