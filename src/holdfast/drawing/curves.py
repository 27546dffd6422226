"""Curves with intervals, in panels that hold no more of them than can be told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from holdfast.drawing import style
from holdfast.drawing.charts import CONTROL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT = "#C9C9C9"
Draw = Callable[["Axes", int, str, dict[str, Any]], None]
"""Draws the curve of one explainer into the panel of one column."""


def curve_panels(
    looks: style.Looks,
    columns: Sequence[str],
    width: float,
    draw: Draw,
    finish: Callable[[Axes, int, bool], None],
    extra: Sequence[str] = (),
    each: float = 1.75,
) -> list[Figure]:
    """Panels side by side, one per column, or under each other where the figure is narrow.

    Many explainers go to several rows, each with its own legend and the curves of the others faint behind it, and the
    rows to as many figures as pages are needed.
    `draw(axes, column, explainer, style)` draws a curve, `finish(axes, column, first)` labels a panel, where `first`
    says that it is at the left edge; `extra` are names that `finish` adds to the legend.
    """
    explainers = list(looks)
    groups = style.chunks(explainers)
    across = len(columns) if width / max(len(columns), 1) >= 2.1 else 1
    down = -(-len(columns) // across)
    heights = [down * each + style.legend_height([*group, *extra], width) for group in groups]
    per_page = max(1, int(style.TALLEST / max(heights, default=1.0)))
    figures, parts = [], []
    for start in range(0, len(groups), per_page):
        here = heights[start : start + per_page]
        figures.append(style.blank(width, sum(here) + 0.1 * len(here)))
        parts += list(figures[-1].subfigures(len(here), 1, squeeze=False, height_ratios=here)[:, 0])
    for part, group in zip(parts, groups, strict=True):
        panels = part.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel()
        for column, axes in enumerate(panels[: len(columns)]):
            for other in (e for e in explainers if e not in group):
                faint = {"color": FAINT, "linewidth": 0.5, "marker": "", "linestyle": "-", "faint": True}
                draw(axes, column, other, faint)
            for explainer in group:
                draw(axes, column, explainer, {**looks[explainer], "faint": False})
            finish(axes, column, column % across == 0)
            if columns[column]:
                axes.set_title(columns[column], loc="left")
        style.legend_below(part, panels[: len(columns)], width)
    return figures


def curve(
    axes: Axes, rows: pd.DataFrame, look: dict[str, Any], name: str, bars: bool = True, shift: float = 0.0
) -> None:
    """A mean curve; `rows` has level, mean, low, high. Intervals are bars, or else a band; faint curves have none.

    `shift` moves markers and bars sideways, so that those of several curves at one level do not cover each other.
    """
    rows = rows[rows["mean"].notna()].sort_values("level")
    given = {k: v for k, v in look.items() if k != "faint"}
    if rows.empty:
        return
    x, y = rows["level"].to_numpy(float) + shift, rows["mean"].to_numpy(float)
    if look.get("faint"):
        axes.plot(x, y, **given, zorder=1)
        return
    axes.plot(x, y, **given, label=name, zorder=3)
    low, high = rows["low"].to_numpy(float), rows["high"].to_numpy(float)
    if bars:
        ends = np.nan_to_num(np.clip(np.stack([y - low, high - y]), 0, None))
        axes.errorbar(x, y, ends, fmt="none", ecolor=look["color"], elinewidth=0.8, zorder=2)
    else:
        axes.fill_between(
            x, low, high, color=look["color"], alpha=0.06 if look["color"] == CONTROL else 0.13, linewidth=0, zorder=2
        )


def shifts(names: Sequence[str], levels: Sequence[float]) -> dict[str, float]:
    """How far the curve of each name moves sideways: a fraction of the span of the levels, less than their distance.

    >>> shifts(["a", "b", "c"], [0.0, 10.0])
    {'a': -0.08, 'b': 0.0, 'c': 0.08}
    """
    ordered = sorted(set(levels))
    gaps = [b - a for a, b in pairwise(ordered)]
    step = (
        min([0.008 * (ordered[-1] - ordered[0]), *(0.5 * gap / min(len(names), style.MOST_CURVES) for gap in gaps)])
        if gaps
        else 0.0
    )
    places = {name: i % style.MOST_CURVES for i, name in enumerate(names)}
    middle = (min(len(names), style.MOST_CURVES) - 1) / 2
    return {name: round(step * (place - middle), 9) for name, place in places.items()}


def ticks_at(axes: Axes, levels: Sequence[float], least: float = 0.06) -> None:
    """Ticks at levels that were run, leaving out those too close to the one before."""
    ordered = sorted(set(levels))
    if not ordered:
        return
    span = (ordered[-1] - min(ordered[0], 0)) or 1.0
    kept: list[float] = []
    for level in ordered:
        if not kept or (level - kept[-1]) / span >= least:
            kept.append(level)
    axes.set_xticks(kept, [f"{level:g}" for level in kept])
