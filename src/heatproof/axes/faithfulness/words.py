"""The verdict on faithfulness in sentences, never saying more than the scores do."""

from __future__ import annotations

import pandas as pd

from heatproof.axes.contract import AxisResult
from heatproof.axes.faithfulness import frames
from heatproof.axes.faithfulness.checks import leakage_rows
from heatproof.axes.faithfulness.frames import Line
from heatproof.drawing.prose import LISTED, above, ahead_of, listing, records, with_interval
from heatproof.evaluation import Measure
from heatproof.statistics import FEW_SAMPLES

LIMIT = "This says whether the order of a map matters to this model with this filling, not that the map is right, "
LIMIT += "complete, or true of another model; a method that wins here may still rest on what the imputer gives away."


def lead(judged: AxisResult) -> list[str]:
    """Which method is the most faithful, what cannot be separated, what a random order does as well, and limits."""
    best = frames.best_headline(judged.cube)
    if best is None and "accuracy" in judged.cube.values and "road" not in judged.cube.values:
        return [
            "Only removal curves were computed; the metric road would rank the methods.",
            *leak(judged),
        ]
    if best is None:
        return ["Nothing can be concluded: no map led to a score.", *_undefined(judged, None)]
    measure, line = best
    rows = frames.standings(judged.cube, measure, line)
    tests = frames.comparisons(judged.cube, measure, line)
    read = frames.spoken(judged)
    said = _verdict(
        measure, line, rows, tests, f" (of the {read})" if ", in its own units" in read else ""
    )
    said += (
        _against_random(judged, measure, line)
        + _controls(judged, rows, tests)
        + _imputers(judged, measure, rows)
    )
    return [*said, *leak(judged), *_undefined(judged, measure), *_few(judged), LIMIT]


def _verdict(
    measure: Measure, line: Line, rows: pd.DataFrame, tests: pd.DataFrame, units: str
) -> list[str]:
    methods = rows[~rows["control"]]
    name = f"{frames.short(measure)} with {line.name}{units}"
    if methods.empty:
        return [
            f"Nothing can be concluded: only controls were scored ({listing(rows['explainer'])})."
        ]
    text = {r.explainer: with_interval(r.mean, r.low, r.high) for r in records(methods)}
    best, *others = methods["explainer"]
    kind = "" if measure.name == "road" else f" ({frames.better(measure)})"
    if not others:
        return [
            f"{best} has a {name} of {text[best]}{kind}; no other method was run to compare it with."
        ]
    tied = [e for e in others if not above(tests, best, e)]
    if tied:
        top = [best, *tied]
        who = listing(top) if len(top) <= LISTED else f"{len(top)} methods"
        more = f" and {len(top) - LISTED} more" if len(top) > LISTED else ""
        listed = listing(f"{e} {text[e]}" for e in top[:LISTED])
        return [f"{who} cannot be separated as the most faithful. {name}{kind}: {listed}{more}."]
    return [
        f"{best} is the most faithful by {name}{kind}: {text[best]}.",
        ahead_of(tests, best, others[0]),
    ]


def _against_random(judged: AxisResult, measure: Measure, line: Line) -> list[str]:
    gaps = frames.over_random(judged.cube, measure, line)
    if gaps is None:
        return []
    known = gaps[gaps["low"].notna() & ~gaps["control"]]
    level = known[~known["above"]]
    if known.empty:
        return []
    if level.empty:
        return (
            ["All methods are significantly better than a random order."] if len(known) > 1 else []
        )
    items = [
        f"{r.explainer} ({with_interval(r.mean, r.low, r.high)} above it)" for r in records(level)
    ]
    more = f" and {len(items) - LISTED} more" if len(items) > LISTED else ""
    who = "No method is shown" if len(level) == len(known) > 1 else "Not shown"
    return [f"{who} to do better than a random order: {listing(items[:LISTED])}{more}."]


def _controls(judged: AxisResult, rows: pd.DataFrame, tests: pd.DataFrame) -> list[str]:
    said = []
    methods = rows.loc[~rows["control"], "explainer"].tolist()
    for r in records(frames.seeing_controls(judged, rows)):
        below = [m for m in methods if not above(tests, m, r.explainer)]
        if below:
            none = len(below) == len(methods)
            who = (
                "no method is"
                if none
                else f"{listing(below)} {'is' if len(below) == 1 else 'are'} not"
            )
            scored = with_interval(r.mean, r.low, r.high)
            text = f"The control {r.explainer}, which explains nothing, scores {scored}: "
            said.append(f"{text}{who} shown to do better.")
    return said


def _imputers(judged: AxisResult, measure: Measure, rows: pd.DataFrame) -> list[str]:
    """Imputers under which another method comes first."""
    methods = rows.loc[~rows["control"], "explainer"]
    if methods.empty:
        return []
    other = []
    for line in frames.lines(judged.cube, measure)[1:]:
        own = frames.standings(judged.cube, measure, line)
        own = own[~own["control"]]
        if len(own) and own.iloc[0]["explainer"] != methods.iloc[0]:
            first = own.iloc[0]
            other.append(
                f"{first['explainer']} with {line.name} ({with_interval(*first[['mean', 'low', 'high']])})"
            )
    return [f"With another imputer another method comes first: {listing(other)}."] if other else []


def leak(judged: AxisResult) -> list[str]:
    """Which imputers were shown to leak."""
    measured = leakage_rows(judged)
    if measured.empty or not measured["leaks"].any():
        return []
    names = frames.primary_first(
        dict.fromkeys(measured.loc[measured["leaks"].astype(bool), "imputer"])
    )
    return [
        f"{listing(names)} leak{'s' if len(names) == 1 else ''} the class through the shape of what is removed."
    ]


def _undefined(judged: AxisResult, measure: Measure | None) -> list[str]:
    rows = judged.rows[~judged.rows["measure"].isin(judged.axis.of_role("model"))]
    rows = rows if measure is None else rows[rows["measure"] == measure.name]
    lost = rows[rows["status"] == "undefined"].drop_duplicates(["explainer", "sample"])
    if lost.empty:
        return []
    reasons = lost["reason"].fillna("").astype(str).replace("", "no reason given")
    sizes = (
        lost.assign(reason=reasons)
        .groupby(["explainer", "reason"], sort=False, observed=True)
        .size()
    )
    items = [
        f"{r.explainer}: {r.times} × {r.reason}"
        for r in records(sizes.rename("times").reset_index())
    ]
    more = f"; and {len(items) - LISTED} more" if len(items) > LISTED else ""
    return [f"{len(lost)} maps have no score ({'; '.join(items[:LISTED])}{more})."]


def _few(judged: AxisResult) -> list[str]:
    n = len(judged.cube.samples)
    plural = "s were" if n != 1 else " was"
    return [f"Only {n} sample{plural} tested: intervals are rough."] if n < FEW_SAMPLES else []
