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


def weighed(results: Sequence[AxisResult]) -> list[tuple[AxisResult, AxisResult]]:
    """Return the pairs of results of one dataset and model that are weighed against each other."""
    pairs = []
    for second in results:
        for first in results:
            if first.axis.name == second.axis.frontier_partner:
                pairs.append((first, second))
    return pairs


def frontier_components(results: Sequence[AxisResult]) -> tuple[list[Scatter], list[Scatter]]:
    """Return the scatter plots of the pairs of axes that are weighed, and those of any other two axes.

    Where no axis names another one to be weighed against, the first two that can be compared are.
    """
    named_pairs = {frozenset((a.label, b.label)): (a, b) for a, b in weighed(results)}
    # Named pairs come first, and keep their order of the two axes.
    pairs = dict(named_pairs)
    for i, second in enumerate(results):
        for first in results[:i]:
            pairs.setdefault(frozenset((first.label, second.label)), (first, second))

    scatters: dict[frozenset[str], Scatter] = {}
    for key, pair in pairs.items():
        scatter = frontier(*pair)
        if scatter is not None:
            scatters[key] = scatter
    main_keys = [key for key in scatters if key in named_pairs] or list(scatters)[:1]
    main = [scatters[key] for key in main_keys]
    rest = [scatter for key, scatter in scatters.items() if key not in main_keys]
    return main, rest


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
        "One axis alone may reward ignoring the model: an edge filter is stable and explains nothing, so "
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
    """Return an axis and its measure as they are written in the caption."""
    measure = result.headlines[0]
    chance = ", 0 is chance" if result.zero_is_chance(measure) else ""
    return f"{_name(result)}, {measure.title} ({measure.better} is better{chance})"


def _conditions(result: AxisResult) -> list[Condition]:
    """Return the conditions under which an axis has scores."""
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
    of_condition = second.arrays.select(conditions=[condition])
    y = ranking(of_condition, up.name, better=up.better)[["explainer", "score", "low", "high"]]
    points = x.set_axis(["explainer", "is_control", "x", "x_low", "x_high"], axis=1).merge(
        y.set_axis(["explainer", "y", "y_low", "y_high"], axis=1), on="explainer"
    )
    points = points[points["x"].notna() & points["y"].notna()].reset_index(drop=True)
    points["is_control"] = points["is_control"].astype(bool)
    methods = points[~points["is_control"]]
    # With the sign of its measure, more is better on both axes.
    gain_x = across.sign * methods["x"].to_numpy(dtype=np.float64)
    gain_y = up.sign * methods["y"].to_numpy(dtype=np.float64)
    is_on_frontier = np.zeros(len(points), dtype=bool)
    is_on_frontier[methods.index] = on_frontier(gain_x, gain_y)
    return points.assign(on_frontier=is_on_frontier)


def frontier_findings(first: AxisResult, second: AxisResult) -> Iterator[Finding]:
    """Yield a finding for each method that significantly beats others on both axes.

    A method that several others beat is reported once, with the first of them by the ranking of the second axis.
    """
    if not comparable(first, second):
        return
    losers_by_winner: dict[str, list[str]] = {}
    methods = _methods_of_both(first, second)
    verdicts = [result.verdict(result.headlines[0]) for result in (first, second)]
    for method in methods:
        for rival in methods:
            if all(verdict.beats(rival, method) for verdict in verdicts):
                losers_by_winner.setdefault(rival, []).append(method)
                break

    names = second.unmarked_names
    for winner, losers in losers_by_winner.items():
        gaps = []
        for loser in losers:
            gap_first = f"{_name(first)} by {_lead(first, winner, loser)}"
            gap_second = f"{_name(second)} by {_lead(second, winner, loser)}"
            gaps.append((names[loser], f"({gap_first}, {gap_second})"))
        words = {
            "winner": names[winner],
            "gaps": each(gaps, 3),
            "who": plural(losers, "This method is", "These methods are"),
        }
        yield DOMINATED.filled(words, losers, axis=second.axis.name)


def _methods_of_both(first: AxisResult, second: AxisResult) -> list[str]:
    """Return the methods, without controls, that both axes have, best first by the ranking of the second."""
    controls = first.controls | second.controls
    in_both = set(first.explainers) & set(second.explainers) - controls
    ranked = dict.fromkeys(second.ranking["explainer"])
    return [explainer for explainer in ranked if explainer in in_both]


def _lead(result: AxisResult, winner: str, loser: str) -> str:
    """Return by how much one method beats another, with its interval; positive even where lower scores are better."""
    measure = result.headlines[0]
    tests = result.tests[result.tests["measure"] == measure.name]
    test = difference(tests, winner, loser)
    assert test is not None  # a method only beats one that it was tested against
    if measure.sign < 0:
        return with_interval(-test["difference"], -test["high"], -test["low"])
    return with_interval(test["difference"], test["low"], test["high"])


def _in_words(points: pd.DataFrame, condition: str, first: AxisResult) -> str:
    """Say which methods are on the frontier under one condition."""
    on_it = points[points["on_frontier"]].sort_values("x", ascending=False)
    names = [first.name_of(explainer) for explainer in on_it["explainer"]]
    return f"With {condition} it holds {listing(names)}."
