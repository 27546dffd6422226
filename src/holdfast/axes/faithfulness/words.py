"""The verdict on faithfulness in sentences, never saying more than the scores do."""

from __future__ import annotations

import pandas as pd

from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness import frames as scores
from holdfast.axes.faithfulness.checks import leakage_rows
from holdfast.axes.faithfulness.frames import LEAKAGE, RETRAINING, Line, Metric
from holdfast.drawing.prose import LISTED, above, difference, listing, p_value, records, with_interval
from holdfast.statistics import FEW_SAMPLES, is_control

LIMIT = "This says whether the order of a map matters to this model with this filling, not that the map is right, "
LIMIT += "complete, or true of another model; a method that wins here may still rest on what the imputer gives away."


def lead(axis: Judged) -> list[str]:
    """Which method is the most faithful, what cannot be separated, what a random order does as well, and limits."""
    kind = str(axis.settings.get("name") or axis.cube.evaluation)
    if kind in (RETRAINING, LEAKAGE):
        return ["Networks were retrained, but nothing was removed from the inputs of the model itself.", *_leak(axis)]
    best = scores.best_metric(axis.cube)
    if best is None and "accuracy" in axis.cube.values and "road" not in axis.cube.values:
        return ["Only removal curves were computed; the metric road would rank the methods.", *_leak(axis)]
    if best is None:
        return ["Nothing can be concluded: no map led to a score.", *_undefined(axis, None)]
    metric, line = best
    rows = scores.standings(axis.cube, metric, line)
    tests = scores.comparisons(axis.cube, metric, line)
    said = _verdict(axis, metric, line, rows, tests)
    said += _against_random(axis, metric, line) + _controls(rows, tests) + _imputers(axis, metric, rows)
    return [*said, *_leak(axis), *_undefined(axis, metric), *_few(axis), LIMIT]


def _verdict(axis: Judged, metric: Metric, line: Line, rows: pd.DataFrame, tests: pd.DataFrame) -> list[str]:
    methods = rows[~rows["control"]]
    name = f"{metric.title} with {line.name}"
    if methods.empty:
        return [f"Nothing can be concluded: only controls were scored ({listing(rows['explainer'])})."]
    text = {r.explainer: with_interval(r.mean, r.low, r.high) for r in records(methods)}
    best, *others = methods["explainer"]
    kind = "" if metric.measure == "road" else f" ({metric.better})"
    if not others:
        return [f"{best} has a {name} of {text[best]}{kind}; no other method was run to compare it with."]
    tied = [e for e in others if not above(tests, best, e)]
    if tied:
        top = [best, *tied]
        who = listing(top) if len(top) <= LISTED else f"{len(top)} methods"
        more = f" and {len(top) - LISTED} more" if len(top) > LISTED else ""
        listed = listing(f"{e} {text[e]}" for e in top[:LISTED])
        return [f"{who} cannot be separated as the most faithful. {name}{kind}: {listed}{more}."]
    row = difference(tests, best, others[0]) or {}
    gap = with_interval(row["difference"], row["low"], row["high"])
    first = f"{best} is the most faithful by {name}{kind}: {text[best]}."
    return [first, f"It is ahead of {others[0]} ({text[others[0]]}) by {gap}, {p_value(row['p_holm'])}."]


def _against_random(axis: Judged, metric: Metric, line: Line) -> list[str]:
    gaps = scores.over_random(axis.cube, metric, line)
    if gaps is None:
        return []
    known = gaps[gaps["low"].notna() & ~gaps["explainer"].map(is_control).astype(bool)]
    level = known[known["low"] <= 0]
    if known.empty:
        return []
    if level.empty:
        return ["The intervals of all methods lie above a random order."] if len(known) > 1 else []
    items = [f"{r.explainer} ({with_interval(r.mean, r.low, r.high)} above it)" for r in records(level)]
    more = f" and {len(items) - LISTED} more" if len(items) > LISTED else ""
    who = "No method is shown" if len(level) == len(known) > 1 else "Not shown"
    return [f"{who} to do better than a random order: {listing(items[:LISTED])}{more}."]


def _controls(rows: pd.DataFrame, tests: pd.DataFrame) -> list[str]:
    said = []
    methods = rows.loc[~rows["control"], "explainer"].tolist()
    for r in records(rows[rows["control"] & ~rows["explainer"].str.startswith("random")]):  # that is a random order
        below = [m for m in methods if not above(tests, m, r.explainer)]
        if below:
            none = len(below) == len(methods)
            who = "no method is" if none else f"{listing(below)} {'is' if len(below) == 1 else 'are'} not"
            scored = with_interval(r.mean, r.low, r.high)
            text = f"The control {r.explainer}, which never sees the model, scores {scored}: "
            said.append(f"{text}{who} shown to do better.")
    return said


def _imputers(axis: Judged, metric: Metric, rows: pd.DataFrame) -> list[str]:
    """Imputers under which another method comes first."""
    methods = rows.loc[~rows["control"], "explainer"]
    if methods.empty:
        return []
    other = []
    for line in scores.lines(axis.cube, metric)[1:]:
        own = scores.standings(axis.cube, metric, line)
        own = own[~own["control"]]
        if len(own) and own.iloc[0]["explainer"] != methods.iloc[0]:
            first = own.iloc[0]
            other.append(f"{first['explainer']} with {line.name} ({with_interval(*first[['mean', 'low', 'high']])})")
    return [f"With another imputer another method comes first: {listing(other)}."] if other else []


def _leak(axis: Judged) -> list[str]:
    found = leakage_rows(axis)
    if found.empty or not found["leaks"].any():
        return []
    names = scores.primary_first(dict.fromkeys(found.loc[found["leaks"].astype(bool), "imputer"]))
    return [f"{listing(names)} leak{'s' if len(names) == 1 else ''} the class through the shape of what is removed."]


def _undefined(axis: Judged, metric: Metric | None) -> list[str]:
    rows = axis.rows if metric is None else axis.rows[axis.rows["measure"] == metric.measure]
    lost = rows[rows["status"] == "undefined"].drop_duplicates(["explainer", "sample"])
    if lost.empty:
        return []
    reasons = lost["reason"].fillna("").astype(str).replace("", "no reason given")
    sizes = lost.assign(reason=reasons).groupby(["explainer", "reason"], sort=False, observed=True).size()
    items = [f"{r.explainer}: {r.times} × {r.reason}" for r in records(sizes.rename("times").reset_index())]
    more = f"; and {len(items) - LISTED} more" if len(items) > LISTED else ""
    return [f"{len(lost)} maps have no score ({'; '.join(items[:LISTED])}{more})."]


def _few(axis: Judged) -> list[str]:
    n = len(axis.cube.samples)
    plural = "s were" if n != 1 else " was"
    return [f"Only {n} sample{plural} tested: intervals are rough."] if n < FEW_SAMPLES else []
