"""The verdict on faithfulness in sentences, never saying more than the scores do."""

from __future__ import annotations

import pandas as pd

from heatproof.axes.contract import AxisResult
from heatproof.axes.faithfulness import frames
from heatproof.axes.faithfulness.checks import leakage_rows
from heatproof.axes.faithfulness.frames import Reading
from heatproof.drawing.methods import removal_words
from heatproof.drawing.prose import LISTED, listing, records, with_interval
from heatproof.evaluation import Measure
from heatproof.statistics import FEW_SAMPLES

LIMIT = "This says whether the order of a map matters to this model with this filling, not that the map is right, "
LIMIT += "complete, or true of another model; a method that wins here may still rest on what the imputer gives away."


def lead(result: AxisResult) -> list[str]:
    """Which method is the most faithful, what is as good as a random order, and limits."""
    best = frames.best_headline(result.cube)
    if best is None and "accuracy" in result.cube.values and "road" not in result.cube.values:
        return [
            "Only removal curves were computed; the metric road would rank the methods.",
            *leak(result),
        ]
    if best is None:
        return ["Nothing can be concluded: no map led to a score.", *_undefined(result, None)]
    measure, reading = best
    rows = frames.standings(result.cube, measure, reading)
    return [
        *result.decided(),
        _scale(result, measure, reading),
        *_imputers(result, measure, rows),
        *leak(result),
        *_undefined(result, measure),
        *_few(result),
        LIMIT,
    ]


def _scale(result: AxisResult, measure: Measure, reading: Reading) -> str:
    """What the scores are, and where chance is."""
    readout = frames.spoken(result)
    units = f" (of the {readout})" if ", in its own units" in readout else ""
    direction = "" if measure.name == "road" else f" ({frames.better(measure)})"
    chance = "; 0 is a random order" if result.zero_is_chance(measure) else ""
    return f"Scores are {frames.short(measure)} {reading.words}{units}{direction}{chance}."


def _imputers(result: AxisResult, measure: Measure, rows: pd.DataFrame) -> list[str]:
    """Imputers under which another method comes first than on average."""
    methods = rows.loc[~rows["control"], "explainer"]
    readings = frames.readings(result.cube, measure)
    if methods.empty or len(readings) == 1:
        return []
    others = []
    for reading in readings:
        alone = frames.standings(result.cube, measure, reading)
        alone = alone[~alone["control"]]
        if alone.empty or alone.iloc[0]["explainer"] == methods.iloc[0]:
            continue
        first = alone.iloc[0]
        score = with_interval(*first[["mean", "low", "high"]])
        others.append(f"{result.name_of(first['explainer'])} {reading.words} ({score})")
    return [f"Taken one by one, another method comes first: {listing(others)}."] if others else []


def leak(result: AxisResult) -> list[str]:
    """Which imputers were shown to leak."""
    measured = leakage_rows(result)
    if measured.empty or not measured["leaks"].any():
        return []
    names = frames.primary_first(
        dict.fromkeys(measured.loc[measured["leaks"].astype(bool), "imputer"])
    )
    imputers = listing(removal_words(name) for name in names)
    return [
        f"{imputers} leak{'s' if len(names) == 1 else ''} the class through the shape of what is removed."
    ]


def _undefined(result: AxisResult, measure: Measure | None) -> list[str]:
    rows = result.rows[~result.rows["measure"].isin(result.axis.of_role("model", "diagnostic"))]
    rows = rows if measure is None else rows[rows["measure"] == measure.name]
    lost = rows[rows["status"] == "undefined"].drop_duplicates(["explainer", "sample"])
    if lost.empty:
        return []
    reasons = lost["reason"].fillna("").astype(str).replace("", "no reason given")
    sizes = (
        result.named(lost)
        .assign(reason=reasons)
        .groupby(["explainer", "reason"], sort=False, observed=True)
        .size()
    )
    items = [
        f"{r.explainer}: {r.times} × {r.reason}"
        for r in records(sizes.rename("times").reset_index())
    ]
    more = f"; and {len(items) - LISTED} more" if len(items) > LISTED else ""
    return [f"{len(lost)} maps have no score ({'; '.join(items[:LISTED])}{more})."]


def _few(result: AxisResult) -> list[str]:
    n = len(result.cube.samples)
    plural = "s were" if n != 1 else " was"
    return [f"Only {n} sample{plural} tested: intervals are rough."] if n < FEW_SAMPLES else []
