"""Finding from the removal scores: leaks, rankings that disagree, random orders, controls, and dominated methods."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from holdfast.axes.contract import Finding, Judged
from holdfast.axes.faithfulness import frames as scores
from holdfast.axes.faithfulness.checks import leakage_rows
from holdfast.axes.faithfulness.consistency import consistency
from holdfast.axes.faithfulness.frames import RETRAINING, Line, Metric
from holdfast.axes.faithfulness.nouns import IMAGE, SERIES, nouns
from holdfast.axes.stability.words import Findings
from holdfast.drawing.prose import above, difference, each, listing, number, plural, records, some, with_interval
from holdfast.report.cautions import one_colour
from holdfast.statistics import is_control

AGREE = 0.5
"""Rankings are said to disagree when the whole interval of their correlation is below this."""
AXIS = "faithfulness"


def faithfulness_advice(axis: Judged, held: Findings | None) -> Iterator[Finding]:
    """The findings of one evaluation, in no particular order; `held` has the stability of the same place."""
    yield from _leaks(axis)
    yield from _rankings(axis)
    best = scores.best_metric(axis.cube)
    if best is None:
        return
    metric, line = best
    rows = scores.standings(axis.cube, metric, line)
    tests = scores.comparisons(axis.cube, metric, line)
    yield from _against_random(axis, metric, line)
    yield from _controls(rows, tests, metric)
    if held is not None:
        yield from _dominated(rows, tests, metric, held)


def _leaks(axis: Judged) -> Iterator[Finding]:
    measured = leakage_rows(axis)
    used = scores.imputers(axis.cube)
    if len(measured):
        leaking = measured[measured["leaks"].astype(bool)].sort_values("mask_bits", ascending=False, kind="stable")
        if leaking.empty:
            return
        names = scores.primary_first(dict.fromkeys(leaking["imputer"]))
        safe = [i for i in used if i not in names]
        worst = records(leaking.drop_duplicates("imputer"))
        said = listing(
            f"{r.imputer}: the mask of {r.explainer} holds at least {number(r.mask_bits)} bits about the class, and "
            f"{100 * r.pixels:.0f} % of the removed and kept pixels are told apart"
            for r in worst
        )
        yield Finding(
            AXIS,
            "act",
            f"{listing(names)} {plural(names, 'leaks', 'leak')} the class",
            f"{said}.",
            "The outline of what was removed gives the class away, and the filled-in pictures show the outline. A map "
            "can score well by the shape of what it removes.",
            f"Rank the methods by {listing(safe)}."
            if safe
            else "Use another filling, such as imputers: [{noisy_linear: {sigma: 0.05}}], and measure the leak again "
            "(holdfast.retrain with leakage=True).",
            tuple(dict.fromkeys(leaking["explainer"])),
        )
        return
    filled = [i for i in used if one_colour(i)]
    if filled and nouns(axis) is IMAGE:
        other = [i for i in used if i not in filled]
        verb = plural(filled, "fills", "fill")
        yield Finding(
            AXIS,
            "mind",
            f"{listing(filled)} may leak the class",
            f"{listing(filled)} {verb} what is removed with one colour; whether that leaks was not measured.",
            "One colour keeps the outline of the removed part visible, and the outline can give the class away. It "
            "also makes pictures that the model has never seen the like of.",
            (f"Rank by {listing(other)}" if other else "Add noisy_linear to the imputers and rank by that")
            + "; holdfast.retrain with leakage=True measures the leak.",
        )


def _rankings(axis: Judged) -> Iterator[Finding]:
    """Strategies whose rankings of methods are shown to have little in common."""
    rows = axis.rows[axis.rows["evaluation"] != RETRAINING]
    pairs = consistency(rows, str(axis.settings.get("readout") or "probability"))
    pairs = pairs[pairs["level"].isna() & (pairs["high"] < AGREE)]
    words = nouns(axis)
    if words in (IMAGE, SERIES):
        either, rank = "or rank by noisy_linear, which makes the two agree more in the ROAD paper", "noisy_linear"
    else:
        either, rank = "and give both", words.imputer
    for kind, means, do in (
        (
            "order",
            f"Removing the most relevant {words.parts} first and removing the least relevant first put the methods in "
            "different orders. Which method is the most faithful then depends on the question that is asked.",
            f"Do not publish one ranking. Say which order you care about, {either}; more samples narrow the interval.",
        ),
        (
            "imputer",
            f"The ranking of the methods depends on what takes the place of removed {words.parts}.",
            f"Rank by {rank}, the filling that is the hardest to see, and give the other ranking beside it.",
        ),
    ):
        own = pairs[pairs["kind"] == kind]
        if own.empty:
            continue
        said = some(
            [f"{r.a} and {r.b} {with_interval(r.spearman, r.low, r.high)}" for r in records(own)],
            3,
        )
        title = "MoRF and LeRF rank the methods differently" if kind == "order" else "The filling decides the ranking"
        seen = (
            f"Spearman’s correlation of the rankings of {own['explainers'].max()} methods: {said}; 1 is the same order."
        )
        yield Finding(AXIS, "mind", title, seen, means, do)


def _against_random(axis: Judged, metric: Metric, line: Line) -> Iterator[Finding]:
    gaps = scores.over_random(axis.cube, metric, line)
    if gaps is None:
        return
    known = gaps[gaps["low"].notna() & ~gaps["explainer"].map(is_control).astype(bool)]
    worse, level = known[known["high"] < 0], known[(known["low"] <= 0) & (known["high"] >= 0)]
    parts = nouns(axis).parts
    chance = "0" if metric.chance == "zero" else "the score of that order"
    for rows, severity, title in (
        (worse, "act", f"Worse than removing {parts} at random"),
        (level, "mind", f"Not shown to beat a random order of {parts}"),
    ):
        if rows.empty:
            continue
        names = tuple(rows["explainer"])
        said = each((r.explainer, with_interval(r.mean, r.low, r.high)) for r in records(rows))
        yield Finding(
            AXIS,
            "act" if severity == "act" else "mind",
            title,
            f"{metric.title} with {line.name} less {chance}, turned so that more is better: {said}.",
            f"What these maps call important matters less to the model than {parts} picked at random. Often the sign "
            "is the reason: strongly negative values are removed last."
            if severity == "act"
            else "The data do not show that the order of these maps means anything to the model.",
            "Try absolute: true in the faithfulness evaluation; if that does not turn it, do not use the maps."
            if severity == "act"
            else "Test more samples before you rely on them, or use a method whose interval is above 0.",
            names,
        )


def _controls(rows: pd.DataFrame, tests: pd.DataFrame, metric: Metric) -> Iterator[Finding]:
    methods = rows.loc[~rows["control"], "explainer"].tolist()
    for control in records(rows[rows["control"] & ~rows["explainer"].str.startswith("random")]):
        beaten = tuple(m for m in methods if above(tests, control.explainer, m))
        if not beaten:
            continue
        gaps = {name: difference(tests, control.explainer, name) or {} for name in beaten}
        said = each((n, f"by {with_interval(g['difference'], g['low'], g['high'])}") for n, g in gaps.items())
        yield Finding(
            AXIS,
            "act",
            f"{control.explainer} is more faithful",
            f"The control {control.explainer}, which never sees the model, has a {metric.title} of "
            f"{with_interval(control.mean, control.low, control.high)} and is ahead of {said}.",
            "Removing edges hurts this model more than removing what these methods point at. They add nothing to what "
            "the picture alone shows.",
            "Do not use these methods for this model. Check their layer and target, and the model’s preprocessing.",
            beaten,
        )


def _dominated(rows: pd.DataFrame, tests: pd.DataFrame, metric: Metric, held: Findings) -> Iterator[Finding]:
    """Methods that one other method beats on both axes beyond doubt."""
    methods = [m for m in rows.loc[~rows["control"], "explainer"] if m in set(held.ranking["explainer"])]
    beaten: dict[str, list[str]] = {}
    for name in methods:
        by = [m for m in methods if above(tests, m, name) and above(held.tests, m, name)]
        if by:
            beaten.setdefault(by[0], []).append(name)
    for winner, names in beaten.items():
        parts = []
        for name in names:
            true, still = difference(tests, winner, name) or {}, difference(held.tests, winner, name) or {}
            ahead = with_interval(still["difference"], still["low"], still["high"])
            gap = with_interval(true["difference"], true["low"], true["high"])
            parts.append((name, f"(stability by {ahead}, {metric.title} by {gap})"))
        yield Finding(
            AXIS,
            "mind",
            f"{winner} is better on both axes",
            f"{winner} is ahead of {each(parts, 3)}.",
            f"{plural(names, 'This method is', 'These methods are')} less stable and less faithful at once, so there "
            "is nothing to trade.",
            f"Use {winner} in {plural(names, 'its', 'their')} place, unless cost or another kind of map matters more.",
            tuple(names),
        )
