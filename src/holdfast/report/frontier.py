"""The frontier of two axes: one point per method, and those that no other method beats on both."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from holdfast import statistics
from holdfast.axes import Finding, Judged
from holdfast.drawing.charts import Chart, blank_figure, curve_styles, error_bars, label, rounded
from holdfast.drawing.pieces import file_part
from holdfast.drawing.prose import above, difference, each, listing, number, plural, records, with_interval
from holdfast.statistics.cubes import Array
from holdfast.types import Condition

WIDTH, HEIGHT = 560, 360
"""Pixels of the plot for which labels are placed; on a wider page there is more room."""
LABELLED = 16
"""With more points the names go into a legend."""
MOST_VIEWS = 4
GUIDE = "rgba(128,128,128,.8)"
DOMINATED = Finding(
    "",
    "mind",
    "A method is better on both axes",
    "",
    "{who} behind on both axes at once, so there is nothing to trade.",
    "Use {winner} in {whose} place, unless cost or another kind of map matters more.",
)


def weighed(here: Sequence[Judged]) -> list[tuple[Judged, Judged]]:
    """The pairs of axes of one dataset and model that are weighed against each other."""
    return [(first, second) for second in here for first in here if first.axis.name == second.axis.against]


def comparable(first: Judged, second: Judged) -> bool:
    """Whether two axes differ, and both have a measure to rank by of which one can say which direction is good."""
    ranked = all(judged.headlines and judged.headlines[0].sign for judged in (first, second))
    return ranked and first.axis.name != second.axis.name


def on_frontier(x: Array, y: Array) -> Array:
    """Which points no other point beats: at least as good on both axes and better on one, (N,) boolean.

    >>> on_frontier(np.array([0.1, 0.5, 0.4]), np.array([0.9, 0.5, 0.4])).tolist()
    [True, True, False]
    """
    better = (x[None] >= x[:, None]) & (y[None] >= y[:, None]) & ((x[None] > x[:, None]) | (y[None] > y[:, None]))
    return np.asarray(~better.any(1))


def frontier_chart(first: Judged, second: Judged) -> Chart | None:
    """The overall score on one axis against that on another, a view for each condition of the second.

    None where the two are not comparable, and with fewer than two methods.
    """
    if not comparable(first, second):
        return None
    views: list[tuple[str, go.Figure]] = []
    said = alt = ""
    for condition in _conditions(second):
        points = frontier_points(first, second, condition)
        if (~points["control"]).sum() < 2:
            continue
        name = second.axis.condition(*condition)
        if not views:
            order, said, alt = _order(points, second), _in_words(points, name), _alt(points, first, second)
        views.append((name, frontier_figure(points, first, second, order)))
        if len(views) == MOST_VIEWS:
            break
    if not views:
        return None
    caption = f"To the right: {_about(first)}. Up: {_about(second)}. Bars are 95 % bootstrap intervals. The dashed "
    caption += "line is the frontier: no other method is at least as good on both axes and better on one. "
    caption += f"{said} Bars that overlap leave open who is on it. One axis alone may reward ignoring the model: an "
    caption += "edge detector such as Sobel is stable and explains nothing, so controls (hollow) take no part in the "
    caption += "frontier."
    key = f"frontier-{file_part(first.label)}-{file_part(second.label)}"  # unique on any page
    title = f"{first.axis.title} against {_name(second)}"
    return Chart(key, title, caption, alt, views if len(views) > 1 else [("", views[0][1])], 520, 10)


def _name(judged: Judged) -> str:
    return judged.axis.title.lower()


def _starts_at_zero(judged: Judged) -> bool:
    """Whether 0 is chance: where scores are calibrated, or the measure is made so."""
    measure = judged.headlines[0]
    return measure.chance == "zero" or f"{measure.name}_chance" in judged.cube.values


def _about(judged: Judged) -> str:
    """An axis and its measure as they are written in the caption and beside the chart."""
    measure = judged.headlines[0]
    chance = ", 0 is chance" if _starts_at_zero(judged) else ""
    return f"{_name(judged)}, {measure.title} ({measure.better} is better{chance})"


def _conditions(judged: Judged) -> list[Condition]:
    """The conditions under which an axis has numbers."""
    cube = judged.cube.counted()
    values = cube.values[judged.headlines[0].name]
    return [condition for i, condition in enumerate(cube.conditions) if np.isfinite(values[:, i]).any()]


def frontier_points(first: Judged, second: Judged, condition: Condition) -> pd.DataFrame:
    """explainer, control, x, x_low, x_high, y, y_low, y_high, frontier of those that have both; controls never lead.

    x is the overall score on the first axis, y that on the second under one condition.
    """
    across, up = first.headlines[0], second.headlines[0]
    x = first.ranking[first.ranking["measure"] == across.name][["explainer", "control", "score", "low", "high"]]
    part = second.cube.select(conditions=[condition])
    y = statistics.ranking([part], up.name, better=up.better)[["explainer", "score", "low", "high"]]
    points = x.set_axis(["explainer", "control", "x", "x_low", "x_high"], axis=1).merge(
        y.set_axis(["explainer", "y", "y_low", "y_high"], axis=1), on="explainer"
    )
    points = points[points["x"].notna() & points["y"].notna()].reset_index(drop=True)
    points["control"] = points["control"].astype(bool)
    leads = np.zeros(len(points), dtype=bool)
    methods = points[~points["control"]]
    goods = (m.sign * methods[axis].to_numpy(dtype=np.float64) for axis, m in (("x", across), ("y", up)))
    leads[methods.index] = on_frontier(*goods)
    return points.assign(frontier=leads)


def frontier_findings(first: Judged, second: Judged) -> Iterator[Finding]:
    """Methods that one other method beats on both axes beyond doubt."""
    if not comparable(first, second):
        return
    tests = [_turned_tests(judged) for judged in (first, second)]
    there = set(second.cube.explainers) - first.cube.controls - second.cube.controls
    methods = [e for e in second.ranking["explainer"] if e in there and e in first.cube.explainers]
    beaten: dict[str, list[str]] = {}
    for name in dict.fromkeys(methods):
        by = [m for m in methods if all(above(own, m, name) for own in tests)]
        if by:
            beaten.setdefault(by[0], []).append(name)
    for winner, names in beaten.items():
        gaps = []
        for name in names:
            rows = [difference(own, winner, name) or {} for own in tests]
            ahead = [with_interval(row["difference"], row["low"], row["high"]) for row in rows]
            gaps.append((name, f"({_name(first)} by {ahead[0]}, {_name(second)} by {ahead[1]})"))
        yield replace(
            DOMINATED,
            axis=second.axis.name,
            title=f"{winner} is better on both axes",
            seen=f"{winner} is ahead of {each(gaps, 3)}.",
            means=DOMINATED.means.format(who=plural(names, "This method is", "These methods are")),
            do=DOMINATED.do.format(winner=winner, whose=plural(names, "its", "their")),
            explainers=tuple(names),
        )


def _turned_tests(judged: Judged) -> pd.DataFrame:
    """The paired tests of an axis, turned so that more is better."""
    measure = judged.headlines[0]
    tests = judged.tests[judged.tests["measure"] == measure.name]
    if measure.sign > 0:
        return tests
    return tests.assign(difference=-tests["difference"], low=-tests["high"], high=-tests["low"])


def _order(points: pd.DataFrame, second: Judged) -> list[str]:
    """Explainers as the first view ranks them on the second axis, the others after them."""
    ranked = points.sort_values("y", ascending=second.headlines[0].sign < 0, kind="stable")["explainer"].tolist()
    return [*ranked, *(e for e in second.cube.explainers if e not in ranked)]


def frontier_figure(points: pd.DataFrame, first: Judged, second: Judged, order: list[str]) -> go.Figure:
    """The points with bars both ways, their names, and the frontier as steps; colours go by `order`."""
    figure = blank_figure(_about(first), _about(second))
    spans = {axis: _span(points, axis) for axis in ("x", "y")}
    signs = {axis: judged.headlines[0].sign for axis, judged in (("x", first), ("y", second))}
    _add_frontier(figure, points, spans, signs)
    styles = curve_styles(order, first.cube.controls | second.cube.controls)
    labelled = len(points) <= LABELLED
    where = _label_places(points, spans) if labelled else ["top center"] * len(points)
    for r, position in zip(records(points), where, strict=True):
        colour, symbol = styles[r.explainer]
        figure.add_scatter(
            x=rounded([r.x]),
            y=rounded([r.y]),
            error_x=_bar(r.x, r.x_low, r.x_high, colour),
            error_y=_bar(r.y, r.y_low, r.y_high, colour),
            mode="markers+text" if labelled else "markers",
            text=[label(r.explainer, 16)],
            textposition=position,
            name=label(r.explainer, 60),
            showlegend=not labelled,
            cliponaxis=False,
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
            hovertext=f"{html.escape(r.explainer)}{' (control)' if r.control else ''}<br>"
            f"{_name(first)} {with_interval(r.x, r.x_low, r.x_high)}<br>"
            f"{_name(second)} {with_interval(r.y, r.y_low, r.y_high)}",
            hoverinfo="text",
        )
    figure.update_xaxes(range=spans["x"][:: signs["x"]], zeroline=_starts_at_zero(first))
    figure.update_yaxes(range=spans["y"][:: signs["y"]], zeroline=_starts_at_zero(second))
    return figure


def _bar(value: float, low: float, high: float, colour: str) -> dict[str, Any]:
    one, lower, upper = (pd.Series([edge]) for edge in (value, low, high))
    return error_bars(one, lower, upper, colour, thickness=1.5)


def _add_frontier(
    figure: go.Figure, points: pd.DataFrame, spans: dict[str, list[float]], signs: dict[str, int]
) -> None:
    leads = points[points["frontier"]].sort_values("x", ascending=signs["x"] > 0)
    if leads.empty:
        return
    left, floor = (spans[axis][:: signs[axis]][0] for axis in ("x", "y"))
    x = [left, *leads["x"], leads["x"].iloc[-1]]
    y = [leads["y"].iloc[0], *leads["y"], floor]
    figure.add_scatter(
        x=rounded(x),
        y=rounded(y),
        mode="lines",
        name="frontier",
        line={"color": GUIDE, "width": 2, "dash": "dash", "shape": "vh"},
        hoverinfo="skip",
        showlegend=False,
    )


def _span(points: pd.DataFrame, axis: str) -> list[float]:
    """The range of an axis with room for labels."""
    columns = points[[axis, f"{axis}_low", f"{axis}_high"]].to_numpy(dtype=np.float64)
    low, high = float(np.nanmin(columns)), float(np.nanmax(columns))
    low, high = min(low, 0.0), max(high, 0.0)
    room = (high - low) * 0.12 or 0.1
    return [low - room, high + room]


def _label_places(points: pd.DataFrame, spans: dict[str, list[float]]) -> list[str]:
    """Where each name goes so that it covers as little as possible of points, bars and other names."""

    def at(value: float, axis: str, size: int) -> float:
        low, high = spans[axis]
        return (value - low) / (high - low) * size

    spots = [(at(r.x, "x", WIDTH), at(r.y, "y", HEIGHT)) for r in records(points)]
    taken = [(x - 8, y - 8, x + 8, y + 8) for x, y in spots]
    for r, (x, y) in zip(records(points), spots, strict=True):
        left, right = (at(v, "x", WIDTH) if math.isfinite(v) else x for v in (r.x_low, r.x_high))
        down, up = (at(v, "y", HEIGHT) if math.isfinite(v) else y for v in (r.y_low, r.y_high))
        taken += [(left, y - 2, right, y + 2), (x - 2, down, x + 2, up)]
    found = []
    for r, (x, y) in zip(records(points), spots, strict=True):
        rows = label(r.explainer, 16).split("<br>")
        size = (max(map(len, map(html.unescape, rows))) * 7.2, len(rows) * 16)
        box, place = min(
            ((_box(place, x, y, size), place) for place in _PLACES),
            key=lambda item: sum(_overlap(item[0], other) for other in taken) + _outside(item[0]),
        )
        taken.append(box)
        found.append(place)
    return found


_PLACES: tuple[str, ...] = ("top right", "top left", "bottom right", "bottom left", "top center", "bottom center")
_PLACES += ("middle right", "middle left")


def _box(place: str, x: float, y: float, size: tuple[float, float]) -> tuple[float, float, float, float]:
    vertical, horizontal = place.split()
    gap = 9 if "middle" in place or "center" in place else 5
    left = {"right": x + gap, "left": x - gap - size[0], "center": x - size[0] / 2}[horizontal]
    low = {"top": y + gap, "bottom": y - gap - size[1], "middle": y - size[1] / 2}[vertical]
    return left, low, left + size[0], low + size[1]


def _overlap(a: Sequence[float], b: Sequence[float]) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(wide, 0) * max(high, 0)


def _outside(box: Sequence[float]) -> float:
    beyond = max(-box[0], 0) + max(box[2] - WIDTH, 0) + max(-box[1], 0) + max(box[3] - HEIGHT, 0)
    return 60 * beyond


def _in_words(points: pd.DataFrame, condition: str) -> str:
    leads = points.loc[points["frontier"]].sort_values("x", ascending=False)["explainer"]
    return f"With {condition} it holds {listing(leads)}."


def _alt(points: pd.DataFrame, first: Judged, second: Judged) -> str:
    said = [f"{r.explainer} ({number(r.x)}, {number(r.y)})" for r in records(points)]
    return f"Scatter of {_name(first)} and {_name(second)}: {listing(said)}."
