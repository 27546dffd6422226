"""The axes other than stability: what each one draws, its number table, and its place on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from holdfast.cubes import Cube
from holdfast.report import certified, smoothed
from holdfast.report.charts import Chart
from holdfast.report.parts import Axis, Panel
from holdfast.table import Shown

TITLES = {"certificate": "Certificates", "smoothing": "Smoothing", "symmetry": "Symmetry"}
DRAWN: dict[str, Callable[[Axis], list[Chart | Panel]]] = {
    "certificate": certified.parts,
    "smoothing": smoothed.parts,
}


@dataclass(frozen=True)
class AxisSection:
    """One evaluation on the page: its figures first, its numbers under them."""

    key: str
    title: str
    cube: Cube
    parts: list[Chart | Panel]
    left_out: list[str]

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
) -> list[AxisSection]:
    """The axes of one (dataset, model); element ids begin with `key`."""
    pictures = list(shown)
    study = manifest.get("study") or {}
    sections = []
    for number, cube in enumerate(cube for cube in cubes if (cube.dataset, cube.model) == place):
        settings = (study.get("evaluations") or {}).get(cube.evaluation) or {}
        kind = str(settings.get("name") or cube.evaluation)
        here = (table["dataset"] == cube.dataset) & (table["model"] == cube.model)
        own = (samples["dataset"] == cube.dataset) & (samples["model"] == cube.model)
        axis = Axis(
            cube=cube,
            rows=table[here & (table["evaluation"] == cube.evaluation)],
            samples=samples[own],
            exhibits=[s for s in pictures if (s.dataset, s.model, s.evaluation) == (*place, cube.evaluation)],
            settings=settings,
            manifest=manifest,
        )
        title = TITLES.get(kind, cube.evaluation)
        if kind != cube.evaluation:
            title = f"{title}: {cube.evaluation}"
        parts = DRAWN[kind](axis) if kind in DRAWN else []
        left_out = [str(why) for why in (settings.get("left_out") or {}).values()]
        sections.append(AxisSection(f"{key}-a{number}", title, cube, parts, left_out))
    return sections
