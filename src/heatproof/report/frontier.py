"""The frontier of two axes: one point per method, and those that no other method beats on both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from heatproof.evaluation import Condition
from heatproof.report.components import Scatter
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.results.ranking import ranking
from heatproof.statistics.arrays import Array
from heatproof.text import difference, each, file_part, listing, plural, with_interval

MOST_PANELS = 4
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
        if first.axis.name == second.axis.frontier_partner
    ]


def frontier_components(here: Sequence[AxisResult]) -> tuple[list[Scatter], list[Scatter]]:
    """Return the scatter plots of the pairs of axes that are weighed, and those of any other two axes.

    Where no axis names another one to be weighed against, the first two that can be compared are.
    """
    named = {frozenset((a.label, b.label)): (a, b) for a, b in weighed(here)}
    every = {frozenset((a.label, b.label)): (a, b) for i, b in enumerate(here) for a in here[:i]}
    drawn: dict[frozenset[str], Scatter] = {}
    for key, pair in {**named, **every}.items():
        scatter = frontier(*named.get(key, pair))
        if scatter is not None:
            drawn[key] = scatter
    shown = [key for key in drawn if key in named] or list(drawn)[:1]
    others = [scatter for key, scatter in drawn.items() if key not in shown]
    return [drawn[key] for key in shown], others


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


def frontier(first: AxisResult, second: AxisResult) -> Scatter | None:
    """Return the overall score on one axis against that on another, a panel for each condition of the second.

    None where the two are not comparable, and with fewer than two methods.
    """
    if not comparable(first, second):
        return None
    by_condition: dict[str, pd.DataFrame] = {}
    for condition in _conditions(second):
        points = frontier_points(first, second, condition)
        if (~points["is_control"]).sum() >= 2:
            by_condition[second.axis.condition(*condition)] = points
        if len(by_condition) == MOST_PANELS:
            break
    if not by_condition:
        return None
    name_of_first, points_of_first = next(iter(by_condition.items()))
    caption = (
        f"To the right: {_about(first)}. Up: {_about(second)}. Bars are 95 % intervals. The dashed "
        "line is the frontier: no other method is at least as good on both axes and better on one. "
        f"{_in_words(points_of_first, name_of_first, first)} Bars that overlap leave open who is on it. "
        "One axis alone may reward ignoring the model: an edge detector such as Sobel is stable and explains nothing, so "
        "controls (grey) take no part in the frontier."
    )
    has_one_panel = len(by_condition) == 1
    panels = [
        points.assign(panel="" if has_one_panel else name) for name, points in by_condition.items()
    ]
    across, up = first.headlines[0], second.headlines[0]
    return Scatter(
        key=f"frontier-{file_part(first.label)}-{file_part(second.label)}",  # unique on any page
        title=f"{first.axis.title} against {_name(second)}",
        caption=caption,
        points=pd.concat(panels, ignore_index=True),
        x_label=f"{_name(first)}, {across.better} is better",
        y_label=f"{_name(second)}, {up.better} is better",
        reverse_x=across.sign < 0,
        reverse_y=up.sign < 0,
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
    arrays = result.arrays.for_measure(measure)
    values = arrays.values[measure]
    return [
        condition
        for i, condition in enumerate(arrays.conditions)
        if np.isfinite(values[:, i]).any()
    ]


def frontier_points(first: AxisResult, second: AxisResult, condition: Condition) -> pd.DataFrame:
    """Return the points of a `Scatter` for the explainers that have both scores; controls are never on the frontier.

    x is the overall score on the first axis, y that on the second under one condition.
    """
    across, up = first.headlines[0], second.headlines[0]
    x = first.ranking[first.ranking["measure"] == across.name][
        ["explainer", "control", "score", "low", "high"]
    ]
    part = second.arrays.select(conditions=[condition])
    y = ranking(part, up.name, better=up.better)[["explainer", "score", "low", "high"]]
    points = x.set_axis(["explainer", "is_control", "x", "x_low", "x_high"], axis=1).merge(
        y.set_axis(["explainer", "y", "y_low", "y_high"], axis=1), on="explainer"
    )
    points = points[points["x"].notna() & points["y"].notna()].reset_index(drop=True)
    points["is_control"] = points["is_control"].astype(bool)
    leads = np.zeros(len(points), dtype=bool)
    methods = points[~points["is_control"]]
    goods = (
        m.sign * methods[axis].to_numpy(dtype=np.float64) for axis, m in (("x", across), ("y", up))
    )
    leads[methods.index] = on_frontier(*goods)
    return points.assign(on_frontier=leads)


def frontier_findings(first: AxisResult, second: AxisResult) -> Iterator[Finding]:
    """Methods that one other method significantly beats on both axes."""
    if not comparable(first, second):
        return
    tests = [_turned_tests(result) for result in (first, second)]
    verdicts = [result.verdict(result.headlines[0]) for result in (first, second)]
    there = set(second.explainers) - first.controls - second.controls
    methods = [e for e in second.ranking["explainer"] if e in there and e in first.explainers]
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


def _in_words(points: pd.DataFrame, condition: str, first: AxisResult) -> str:
    leads = points.loc[points["on_frontier"]].sort_values("x", ascending=False)["explainer"]
    return f"With {condition} it holds {listing(first.looks[e].name for e in leads)}."
