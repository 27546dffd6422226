"""Stability against faithfulness: one point per method, with the frontier of those that no other beats on both."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from holdfast import statistics
from holdfast.axes.faithfulness.frames import BY_MEASURE, METRICS, Line, Metric, explainer_order, lines, standings
from holdfast.drawing.charts import Chart, blank_figure, curve_styles, error_bars, label, rounded
from holdfast.drawing.prose import listing, number, records, with_interval
from holdfast.statistics.cubes import Array, Cube

WIDTH, HEIGHT = 560, 360
"""Pixels of the plot for which labels are placed; on a wider page there is more room."""
LABELLED = 16
"""With more points the names go into a legend."""
MOST_VIEWS = 4
GUIDE = "rgba(128,128,128,.8)"


def on_frontier(x: Array, y: Array) -> Array:
    """Which points no other point beats: at least as good on both axes and better on one, (N,) boolean.

    >>> on_frontier(np.array([0.1, 0.5, 0.4]), np.array([0.9, 0.5, 0.4])).tolist()
    [True, True, False]
    """
    better = (x[None] >= x[:, None]) & (y[None] >= y[:, None]) & ((x[None] > x[:, None]) | (y[None] > y[:, None]))
    return np.asarray(~better.any(1))


def frontier_chart(stability: Cube, faithfulness: Cube) -> Chart | None:
    """Overall calibrated stability against ROAD (or the first metric there is); None with fewer than two methods."""
    metric = next((m for m in METRICS if lines(faithfulness, m)), BY_MEASURE["road"])
    views, said, alt = [], "", ""
    for line in lines(faithfulness, metric)[:MOST_VIEWS]:
        points = frontier_points(stability, faithfulness, metric, line)
        if (~points["control"]).sum() < 2:
            continue
        views.append((line.name, frontier_figure(points, metric, explainer_order(faithfulness))))
        if not said:
            said, alt = _in_words(points, line), _alt(points, metric)
    if not views:
        return None
    title = f"{metric.title} ({metric.better})"
    caption = "To the right: maps that hold still under perturbation (calibrated score, 0 is chance). Up: maps whose "
    caption += f"order matters to the model, {title}. Bars are 95 % bootstrap intervals. The dashed line is the "
    caption += (
        f"frontier: no other method is at least as good on both axes and better on one. {said} Bars that overlap "
    )
    caption += "leave open who is on it. Stability alone rewards ignoring the model: an edge detector such as Sobel "
    caption += "is stable and explains nothing, so controls (hollow) take no part in the frontier."
    views = views if len(views) > 1 else [("", views[0][1])]
    return Chart("frontier", "Stability against faithfulness", caption, alt, views, 520, 10)


def frontier_points(stability: Cube, faithfulness: Cube, metric: Metric, line: Line) -> pd.DataFrame:
    """explainer, control, x, x_low, x_high, y, y_low, y_high, frontier of those that have both; controls never lead."""
    held = statistics.ranking([stability])[["explainer", "control", "score", "low", "high"]]
    held.columns = pd.Index(["explainer", "control", "x", "x_low", "x_high"])
    true = standings(faithfulness, metric, line)[["explainer", "mean", "low", "high"]]
    true.columns = pd.Index(["explainer", "y", "y_low", "y_high"])
    points = held.merge(true, on="explainer")
    points = points[points["x"].notna() & points["y"].notna()].reset_index(drop=True)
    methods = ~points["control"].to_numpy(dtype=bool)
    leads = np.zeros(len(points), dtype=bool)
    leads[methods] = on_frontier(
        points["x"].to_numpy(dtype=np.float64)[methods], metric.sign * points["y"].to_numpy(dtype=np.float64)[methods]
    )
    return points.assign(frontier=leads)


def frontier_figure(points: pd.DataFrame, metric: Metric, order: list[str]) -> go.Figure:
    """The points with bars both ways, their names, and the frontier as steps; colours go by `order`."""
    figure = blank_figure("stability, calibrated", f"{metric.title}, {metric.better}")
    spans = {axis: _span(points, axis) for axis in ("x", "y")}
    _add_frontier(figure, points, spans, metric)
    styles = curve_styles(order)
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
            f"stability {with_interval(r.x, r.x_low, r.x_high)}<br>"
            f"{metric.title} {with_interval(r.y, r.y_low, r.y_high)}",
            hoverinfo="text",
        )
    flip = metric.sign < 0
    figure.update_xaxes(range=spans["x"], zeroline=True)
    figure.update_yaxes(range=spans["y"][::-1] if flip else spans["y"], zeroline=metric.chance == "zero")
    return figure


def _bar(value: float, low: float, high: float, colour: str) -> dict[str, Any]:
    one, lower, upper = (pd.Series([edge]) for edge in (value, low, high))
    return error_bars(one, lower, upper, colour, thickness=1.5)


def _add_frontier(figure: go.Figure, points: pd.DataFrame, spans: dict[str, list[float]], metric: Metric) -> None:
    leads = points[points["frontier"]].sort_values("x")
    if leads.empty:
        return
    floor = spans["y"][0] if metric.sign > 0 else spans["y"][1]
    x = [spans["x"][0], *leads["x"], leads["x"].iloc[-1]]
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


_PLACES = (
    "top right",
    "top left",
    "bottom right",
    "bottom left",
    "top center",
    "bottom center",
    "middle right",
    "middle left",
)


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


def _in_words(points: pd.DataFrame, line: Line) -> str:
    leads = points.loc[points["frontier"]].sort_values("x", ascending=False)["explainer"]
    return f"With {line.name} it holds {listing(leads)}."


def _alt(points: pd.DataFrame, metric: Metric) -> str:
    said = [f"{r.explainer} ({number(r.x)}, {number(r.y)})" for r in records(points)]
    return f"Scatter of stability and {metric.title}: {listing(said)}."
