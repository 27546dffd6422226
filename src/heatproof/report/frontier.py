"""The frontier of two axes: one point per method, and those that no other method beats on both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes import AxisResult, Finding
from heatproof.axes.contract import finding_template
from heatproof.drawing.charts import Chart
from heatproof.drawing.pieces import file_part
from heatproof.drawing.plots import mark
from heatproof.drawing.prose import (
    difference,
    each,
    listing,
    number,
    plural,
    records,
    with_interval,
)
from heatproof.drawing.scatter import points as plot_points
from heatproof.drawing.sheet import Plot
from heatproof.evaluation import Condition
from heatproof.statistics.cubes import Array

LABELLED = 16
"""With more points the names are only told when one is pointed at."""
MOST_PLOTS = 4
DOMINATED = finding_template(
    "dominated-method",
    title="{winner} is better in both tests",
    seen="{winner} is significantly better than {gaps}.",
    means="{who} significantly worse in both tests, so there is nothing to trade off.",
    do="Use {winner} instead, unless cost or another kind of map matters more.",
)


def weighed(here: Sequence[AxisResult]) -> list[tuple[AxisResult, AxisResult]]:
    """The pairs of axes of one dataset and model that are weighed against each other."""
    return [
        (first, second)
        for second in here
        for first in here
        if first.axis.name == second.axis.against
    ]


def frontier_charts(here: Sequence[AxisResult]) -> list[Chart]:
    """The charts of the pairs that are weighed, and folded under the last of them those of any other two axes."""
    told = {frozenset((a.label, b.label)): (a, b) for a, b in weighed(here)}
    every = {frozenset((a.label, b.label)): (a, b) for i, b in enumerate(here) for a in here[:i]}
    drawn = {
        key: chart
        for key, pair in {**told, **every}.items()
        if (chart := frontier_chart(*told.get(key, pair)))
    }
    shown = [key for key in drawn if key in told] or list(drawn)[:1]
    folded = {chart.title: chart.plots[:1] for key, chart in drawn.items() if key not in shown}
    return [replace(drawn[key], folded=folded if key == shown[-1] else {}) for key in shown]


def comparable(first: AxisResult, second: AxisResult) -> bool:
    """Whether two axes differ, and both have a measure to rank by of which one can say which direction is good."""
    ranked = all(result.headlines and result.headlines[0].sign for result in (first, second))
    return ranked and first.axis.name != second.axis.name


def on_frontier(x: Array, y: Array) -> Array:
    """Which points no other point beats: at least as good on both axes and better on one, (N,) boolean.

    >>> on_frontier(np.array([0.1, 0.5, 0.4]), np.array([0.9, 0.5, 0.4])).tolist()
    [True, True, False]
    """
    better = (
        (x[None] >= x[:, None])
        & (y[None] >= y[:, None])
        & ((x[None] > x[:, None]) | (y[None] > y[:, None]))
    )
    return np.asarray(~better.any(1))


def frontier_chart(first: AxisResult, second: AxisResult) -> Chart | None:
    """The overall score on one axis against that on another, a plot for each condition of the second.

    None where the two are not comparable, and with fewer than two methods.
    """
    if not comparable(first, second):
        return None
    plots: list[Plot] = []
    said = alt = ""
    for condition in _conditions(second):
        points = frontier_points(first, second, condition)
        if (~points["control"]).sum() < 2:
            continue
        name = second.axis.condition(*condition)
        if not plots:
            said, alt = _in_words(points, name, first), _alt(points, first, second)
        plots.append(frontier_plot(points, first, second, name))
        if len(plots) == MOST_PLOTS:
            break
    if not plots:
        return None
    caption = (
        f"To the right: {_about(first)}. Up: {_about(second)}. Bars are 95 % intervals. The dashed "
    )
    caption += (
        "line is the frontier: no other method is at least as good on both axes and better on one. "
    )
    caption += f"{said} Bars that overlap leave open who is on it. One axis alone may reward ignoring the model: an "
    caption += "edge detector such as Sobel is stable and explains nothing, so controls (grey) take no part in the "
    caption += "frontier."
    key = f"frontier-{file_part(first.label)}-{file_part(second.label)}"  # unique on any page
    title = f"{first.axis.title} against {_name(second)}"
    return Chart(
        key, title, caption, alt, plots if len(plots) > 1 else [replace(plots[0], title="")]
    )


def _name(result: AxisResult) -> str:
    return result.axis.title.lower()


def _about(result: AxisResult) -> str:
    """An axis and its measure as they are written in the caption and beside the chart."""
    measure = result.headlines[0]
    chance = ", 0 is chance" if result.zero_is_chance(measure) else ""
    return f"{_name(result)}, {measure.title} ({measure.better} is better{chance})"


def _conditions(result: AxisResult) -> list[Condition]:
    """The conditions under which an axis has numbers."""
    measure = result.headlines[0].name
    cube = result.cube.conditions_of(measure)
    values = cube.values[measure]
    return [
        condition for i, condition in enumerate(cube.conditions) if np.isfinite(values[:, i]).any()
    ]


def frontier_points(first: AxisResult, second: AxisResult, condition: Condition) -> pd.DataFrame:
    """explainer, control, x, x_low, x_high, y, y_low, y_high, frontier of those that have both; controls never lead.

    x is the overall score on the first axis, y that on the second under one condition.
    """
    across, up = first.headlines[0], second.headlines[0]
    x = first.ranking[first.ranking["measure"] == across.name][
        ["explainer", "control", "score", "low", "high"]
    ]
    part = second.cube.select(conditions=[condition])
    y = statistics.ranking([part], up.name, better=up.better)[["explainer", "score", "low", "high"]]
    points = x.set_axis(["explainer", "control", "x", "x_low", "x_high"], axis=1).merge(
        y.set_axis(["explainer", "y", "y_low", "y_high"], axis=1), on="explainer"
    )
    points = points[points["x"].notna() & points["y"].notna()].reset_index(drop=True)
    points["control"] = points["control"].astype(bool)
    leads = np.zeros(len(points), dtype=bool)
    methods = points[~points["control"]]
    goods = (
        m.sign * methods[axis].to_numpy(dtype=np.float64) for axis, m in (("x", across), ("y", up))
    )
    leads[methods.index] = on_frontier(*goods)
    return points.assign(frontier=leads)


def frontier_findings(first: AxisResult, second: AxisResult) -> Iterator[Finding]:
    """Methods that one other method significantly beats on both axes."""
    if not comparable(first, second):
        return
    tests = [_turned_tests(result) for result in (first, second)]
    verdicts = [result.verdict(result.headlines[0]) for result in (first, second)]
    there = set(second.cube.explainers) - first.cube.controls - second.cube.controls
    methods = [e for e in second.ranking["explainer"] if e in there and e in first.cube.explainers]
    beaten: dict[str, list[str]] = {}
    for name in dict.fromkeys(methods):
        by = [m for m in methods if all(verdict.beats(m, name) for verdict in verdicts)]
        if by:
            beaten.setdefault(by[0], []).append(name)
    for winner, names in beaten.items():
        gaps = []
        for name in names:
            rows = [difference(own, winner, name) or {} for own in tests]
            ahead = [with_interval(row["difference"], row["low"], row["high"]) for row in rows]
            gaps.append((name, f"({_name(first)} by {ahead[0]}, {_name(second)} by {ahead[1]})"))
        words = {
            "winner": winner,
            "gaps": each(gaps, 3),
            "who": plural(names, "This method is", "These methods are"),
        }
        yield DOMINATED.filled(words, names, axis=second.axis.name)


def _turned_tests(result: AxisResult) -> pd.DataFrame:
    """The paired tests of an axis, turned so that more is better."""
    measure = result.headlines[0]
    tests = result.tests[result.tests["measure"] == measure.name]
    if measure.sign > 0:
        return tests
    return tests.assign(difference=-tests["difference"], low=-tests["high"], high=-tests["low"])


def frontier_plot(points: pd.DataFrame, first: AxisResult, second: AxisResult, title: str) -> Plot:
    """The points with bars both ways, their names, and the frontier as steps; better is up and to the right."""
    across, up = (
        _span(points, axis, result.headlines[0].sign)
        for axis, result in (("x", first), ("y", second))
    )
    leads = points[points["frontier"]].sort_values("x", ascending=first.headlines[0].sign > 0)
    steps = [(across[0], leads["y"].iloc[0])]
    for r in records(leads):
        steps += [(steps[-1][0], r.y), (r.x, r.y)]
    steps.append((steps[-1][0], up[0]))
    marks = [
        replace(
            mark(first.looks[r.explainer], r.y, r.y_low, r.y_high),
            x=r.x,
            x_low=r.x_low,
            x_high=r.x_high,
        )
        for r in records(points)
    ]
    x, y = (
        f"{_name(result)}, {result.headlines[0].better} is better" for result in (first, second)
    )
    named = len(points) <= LABELLED
    return plot_points(
        title, marks, across, up, x, y, steps=steps, named=named, width=340, height=260
    )


def _span(points: pd.DataFrame, axis: str, sign: int) -> tuple[float, float]:
    """The range of an axis with room for labels, from worse to better."""
    columns = points[[axis, f"{axis}_low", f"{axis}_high"]].to_numpy(dtype=np.float64)
    low, high = float(np.nanmin(columns)), float(np.nanmax(columns))
    low, high = min(low, 0.0), max(high, 0.0)
    room = (high - low) * 0.12 or 0.1
    return (low - room, high + room) if sign > 0 else (high + room, low - room)


def _in_words(points: pd.DataFrame, condition: str, first: AxisResult) -> str:
    leads = points.loc[points["frontier"]].sort_values("x", ascending=False)["explainer"]
    return f"With {condition} it holds {listing(first.looks[e].name for e in leads)}."


def _alt(points: pd.DataFrame, first: AxisResult, second: AxisResult) -> str:
    said = [
        f"{first.looks[r.explainer].name} ({number(r.x)}, {number(r.y)})" for r in records(points)
    ]
    return f"Scatter of {_name(first)} and {_name(second)}: {listing(said)}."
