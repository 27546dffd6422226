"""What the page says of each dataset and model: stability first, then the other axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from holdfast.axes.stability import words
from holdfast.axes.stability.gallery import Gallery, gallery
from holdfast.axes.stability.page import charts
from holdfast.axes.stability.perturbations import title
from holdfast.axes.stability.severity import severity_charts
from holdfast.axes.stability.tables import Row, disagreement, floor_rows, number_rows, pair_rows, ranking_rows
from holdfast.drawing.charts import Chart
from holdfast.report.axes import AxisSection, axis_sections, base_model, related_rows
from holdfast.report.findings import Advice, place_advice
from holdfast.statistics.cubes import Cube
from holdfast.types import Shown

UNTESTED = "Stability was not tested."
INPUTS = "inputs"  # under which the engine keeps the first images as the model sees them
MOST_TESTS = 150


@dataclass(frozen=True)
class Material:
    """What a report is made from; see `holdfast.report.build_report`."""

    cubes: list[Cube]
    table: pd.DataFrame
    samples: pd.DataFrame
    exhibits: list[Shown]
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """Everything the page shows about one dataset and model."""

    key: str
    dataset: str
    model: str
    samples: int
    unreadable: int
    verdict: list[str]
    cautions: list[words.Caution]
    advice: list[Advice] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    ranking: list[Row] = field(default_factory=list)
    tests: list[Row] = field(default_factory=list)
    tests_left_out: int = 0
    disagreement: str = ""
    floor: list[Row] = field(default_factory=list)
    gallery: Gallery = field(default_factory=lambda: Gallery({}, {}, {}, [], {}, 0))
    numbers: list[tuple[str, list[Row]]] = field(default_factory=list)
    axes: list[AxisSection] = field(default_factory=list)


def sections_of(found: Iterable[words.Findings], given: Material) -> list[Section]:
    """Every dataset and model that was asked for, those with stability scores first."""
    held = list(found)
    sections = [_stability_section(f"s{i}", f, given) for i, f in enumerate(held)]
    others = [cube for cube in given.cubes if "fass" not in cube.values]
    sections += _other_sections(sections, others, given)
    return [_with_axes(section, others, given, held) for section in sections]


def _stability_section(key: str, found: words.Findings, given: Material) -> Section:
    place = (found.dataset, found.model)
    pictures = [
        item
        for item in given.exhibits
        if (item.dataset, item.model) == place and item.evaluation in ("", INPUTS, found.cube.evaluation)
    ]
    samples, table = given.samples, given.table
    own = samples[(samples["dataset"] == found.dataset) & (samples["model"] == found.model)]
    shown = table["sample"].isin({item.sample for item in pictures})
    shown &= (table["dataset"] == found.dataset) & (table["model"] == found.model)
    shown &= table["evaluation"] == found.cube.evaluation
    tests = pair_rows(found)
    groups = {key: rows for key, rows in found.summary.groupby(["condition", "level"], sort=False)}
    return Section(
        key=key,
        dataset=found.dataset,
        model=found.model,
        samples=len(found.cube.samples),
        unreadable=len(words.unreadable(samples, *place)),
        verdict=words.verdict(found),
        cautions=words.cautions(found, samples, given.manifest, related_rows(table, *place)),
        charts=charts(found) + severity_charts(found),
        ranking=ranking_rows(found),
        tests=tests[:MOST_TESTS],
        tests_left_out=max(0, len(tests) - MOST_TESTS),
        disagreement=disagreement(found),
        floor=floor_rows(found),
        gallery=gallery(pictures, table[shown], own, found.cube),
        numbers=[(title(*c), number_rows(groups[c])) for c in found.cube.conditions if c in groups],
    )


def _other_sections(sections: list[Section], others: list[Cube], given: Material) -> list[Section]:
    """Datasets and models that were asked for but gave no stability score at all."""
    seen = {(s.dataset, s.model) for s in sections}
    silent: list[Section] = []
    samples = given.samples
    asked = [*zip(samples["dataset"], samples["model"], strict=True), *((c.dataset, base_model(c)) for c in others)]
    for dataset, model in dict.fromkeys(asked):
        if (dataset, model) in seen:
            continue
        unread = words.unreadable(samples, dataset, model)
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        judged = any((cube.dataset, base_model(cube)) == (dataset, model) for cube in others)
        related = related_rows(given.table, dataset, model)
        silent.append(
            Section(
                key=f"s{len(sections) + len(silent)}",
                dataset=str(dataset),
                model=str(model),
                samples=len(own) - len(unread),
                unreadable=len(unread),
                verdict=[UNTESTED if judged else "Nothing can be concluded: no pair was attempted."],
                cautions=words.other_cautions(dataset, model, samples, given.manifest, related),
            )
        )
    return silent


def _with_axes(section: Section, cubes: list[Cube], given: Material, held: list[words.Findings]) -> Section:
    """The section with its other axes, whose first sentences join the verdict at the top, and with what to do."""
    place = (section.dataset, section.model)
    axes = axis_sections(section.key, place, cubes, given.table, given.samples, given.exhibits, given.manifest)
    said = [f"{axis.title}: {axis.lead[0]}" for axis in axes if axis.lead]
    verdict = [*said, *section.verdict] if said and section.verdict == [UNTESTED] else [*section.verdict, *said]
    own = [found for found in held if (found.dataset, found.model) == place]
    todo = place_advice(*place, own, [axis.axis for axis in axes], given.manifest)
    return replace(section, axes=axes, verdict=verdict, advice=todo)
