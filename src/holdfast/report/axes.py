"""The axes other than stability: what each one draws, its number table, and its place on the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from holdfast.axes.certificate import page as certified
from holdfast.axes.certificate import smoothing_page as smoothed
from holdfast.axes.certificate.words import certificate_lead, smoothing_lead
from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness import page as faithful
from holdfast.axes.symmetry import page as symmetric
from holdfast.axes.symmetry import words as symmetric_words
from holdfast.drawing.charts import Chart, Panel
from holdfast.statistics.cubes import Cube
from holdfast.types import Shown

TITLES = {"certificate": "Certificates", "smoothing": "Smoothing", "symmetry": "Symmetry"}
TITLES |= {"faithfulness": "Faithfulness", "retraining": "Retraining"}
DRAWN: dict[str, Callable[[Judged], list[Chart | Panel]]] = {
    "certificate": certified.parts,
    "smoothing": smoothed.parts,
    "symmetry": symmetric.parts,
    "faithfulness": faithful.parts,
    "retraining": faithful.parts,
}
LEADS: dict[str, Callable[[Judged], list[str]]] = {
    "certificate": certificate_lead,
    "smoothing": smoothing_lead,
    "symmetry": symmetric_words.lead,
    "faithfulness": faithful.lead,
    "retraining": faithful.lead,
}


@dataclass(frozen=True)
class AxisSection:
    """One evaluation on the page: its figures first, its numbers under them."""

    key: str
    title: str
    cube: Cube
    lead: list[str]
    parts: list[Chart | Panel]
    left_out: list[str]
    axis: Judged

    @property
    def charts(self) -> list[Chart]:
        """Those parts that Plotly draws."""
        return [part for part in self.parts if isinstance(part, Chart)]


def axis_sections(
    key: str,
    place: tuple[str, str],
    cubes: Iterable[Cube],
    table: pd.DataFrame,
    samples: pd.DataFrame,
    shown: Iterable[Shown],
    manifest: Mapping[str, Any],
    draw: bool = True,
) -> list[AxisSection]:
    """The axes of one (dataset, model); element ids begin with `key`. Without `draw` there are words only."""
    pictures = list(shown)
    study = manifest.get("study") or {}
    evaluations = study.get("evaluations") or {}
    related = related_rows(table, *place)
    here_cubes = [cube for cube in cubes if (cube.dataset, cube.model) == place]
    kinds = {str((evaluations.get(cube.evaluation) or {}).get("name") or cube.evaluation) for cube in here_cubes}
    if "faithfulness" not in kinds:  # which would show the retrained networks itself
        here_cubes += faithful.retrained_cubes(related, place[1])
    sections = []
    for number, cube in enumerate(here_cubes):
        settings = evaluations.get(cube.evaluation) or {}
        kind = str(settings.get("name") or cube.evaluation)
        here = (table["dataset"] == cube.dataset) & (table["model"] == cube.model)
        own = (samples["dataset"] == cube.dataset) & (samples["model"] == cube.model)
        axis = Judged(
            cube=cube,
            rows=table[here & (table["evaluation"] == cube.evaluation)],
            samples=samples[own],
            exhibits=[s for s in pictures if (s.dataset, s.model, s.evaluation) == (*place, cube.evaluation)],
            settings=settings,
            manifest=manifest,
            related=related,
        )
        title = TITLES.get(kind, cube.evaluation)
        if kind != cube.evaluation:
            title = f"{title}: {cube.evaluation}"
        lead = LEADS[kind](axis) if kind in LEADS else []
        parts = DRAWN[kind](axis) if draw and kind in DRAWN else []
        left_out = [str(why) for why in (settings.get("left_out") or {}).values()]
        sections.append(AxisSection(f"{key}-a{number}", title, cube, lead, parts, left_out, axis))
    return sections


def across_models(sections: Iterable[AxisSection]) -> list[Chart]:
    """What only several models of one dataset show: how symmetry of explanations goes with that of the model."""
    by_place: dict[tuple[str, str], list[Judged]] = {}
    for section in sections:
        if str(section.axis.settings.get("name") or section.cube.evaluation) == "symmetry":
            by_place.setdefault((section.cube.dataset, section.cube.evaluation), []).append(section.axis)
    drawn = []
    for number, ((dataset, _), axes) in enumerate(by_place.items()):
        chart = symmetric.across_models(axes)
        if chart is not None:
            drawn.append(replace(chart, key=f"across-{number}", title=f"{chart.title}: {dataset}"))
    return drawn


def related_rows(table: pd.DataFrame, dataset: str, model: str) -> pd.DataFrame:
    """All rows of a dataset and model, and of networks that `holdfast.retrain` trained in its place."""
    again = re.compile(re.escape(model) + r", retrained \d+")
    models = [name for name in table["model"].unique() if name == model or again.fullmatch(str(name))]
    return table[(table["dataset"] == dataset) & table["model"].isin(models)]


def base_model(cube: Cube) -> str:
    """The model that a cube is about: of a network that was trained in its place, the one it stands for."""
    return re.sub(r", retrained \d+$", "", cube.model)
