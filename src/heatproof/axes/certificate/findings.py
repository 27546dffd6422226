"""Findings from certificates: where the guarantee ends, and whether random features do as well."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from heatproof.axes.certificate.shares import delta, gaps_to, one_fraction
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.text import each, records, with_interval

FRAGILE = finding_template(
    "insufficient-features",
    axis="certificate",
    title="A few more features change the prediction",
    seen="With up to r more features, the prediction stays the same for this share of supersets: {rates}.",
    means="The features that the method calls important do not determine the prediction: with most ways of adding a few "
    "others, the model predicts something else.",
    do="{better}Keep more features (now {fraction:g}). A smoothed model may be more stable; the evaluation smoothing "
    "shows what it costs in accuracy.",
)
BETTER = "Use {method}, which keeps {rate} at r = {radius:g}. "
LOOSE = finding_template(
    "loose-bound",
    axis="certificate",
    title="Less than one half is guaranteed",
    seen="The mean lower bound is {bounds}; the measured rate is not significantly below one half.",
    means="Each bound holds with probability 1 − δ (δ = {delta:g}). It lies below the measured rate by up to "
    "ε = {epsilon:g}, so the sampling budget limits it as much as the explanation does.",
    do="{narrower}Or certify smaller radii: each radius has a bound of its own.",
)
NARROWER = "Halve ε: up to four times the passes, and a higher bound. "
LIKE_RANDOM = finding_template(
    "not-above-random",
    axis="certificate",
    title="Not significantly better than random features",
    seen="At r = {radius:g}, {what} minus that of {control}, on the same samples: {gaps}.",
    means="As far as these samples can tell, random features keep the prediction as well. The certificate then says "
    "something about the model and the number of features, not about the explanation.",
    do="Test more samples, or a smaller fraction: it matters more then which features are kept.",
)
AT_CHANCE = replace(
    LIKE_RANDOM,
    seen="At r = {radius:g}, the calibrated rate (0: random features, 1: the prediction never changes) is {rates}. "
    "Random features keep the prediction on {chance:.2f} of the supersets.",
)
NO_ROOM = "undefined, as random features always keep it"
MEASURE_IN_WORDS = {
    "rate": "the rate",
    "stable": "the share of positive decisions",
    "unflipped": "the share without a flip",
}

HALF = 0.5
LARGER_FRACTION = 0.5
"""The share of features to keep where fewer do not hold the prediction."""
RANDOM = "random"
"""The registered name of the control that picks features at random."""


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield what one evaluation of certificates shows, in no particular order."""
    result = one_fraction(result)
    cells = result.summary
    methods = cells[~cells["control"].astype(bool)]
    yield from _below_half(result, methods)
    if result.arrays.is_calibrated("rate"):
        yield from _at_chance(result, methods[methods["measure"] == "rate"])
    else:
        yield from _like_control(result)


def _below_half(result: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield methods of which less than half is guaranteed: those whose rate is low, and those whose bound alone is."""
    low = cells[cells["high"] < HALF].sort_values("level", kind="stable")
    fragile = low[low["measure"] == "rate"].drop_duplicates("explainer")
    bounds = low[low["measure"] == "certified"].drop_duplicates("explainer")
    loose = bounds[~bounds["explainer"].isin(fragile["explainer"])]
    if len(fragile):
        chosen = result.settings.get("fraction", 0.25)
        fraction = float(chosen[0] if isinstance(chosen, list | tuple) else chosen)
        words = {
            "rates": _rates_at_radii(result.unmarked(fragile)),
            "better": _better(result.unmarked(cells)),
            "fraction": fraction,
        }
        more_features = _settings_change({"fraction": LARGER_FRACTION})
        change = more_features if fraction < LARGER_FRACTION else {}
        yield FRAGILE.filled(words, fragile["explainer"], change=change)
    if len(loose):
        epsilon = float(result.settings.get("epsilon", 0.1))
        is_estimate = result.settings.get("mode", "estimate") == "estimate"
        words = {
            "bounds": _rates_at_radii(result.unmarked(loose)),
            "narrower": NARROWER if is_estimate else "",
            "epsilon": epsilon,
            "delta": delta(result),
        }
        change = _settings_change({"epsilon": epsilon / 2}) if is_estimate else {}
        yield LOOSE.filled(words, loose["explainer"], change=change)


def _settings_change(settings: dict[str, float]) -> dict[str, Any]:
    """Return what to write into a study file for other settings of the certificate."""
    return {"evaluations": [{"certificate": settings}]}


def _better(cells: pd.DataFrame) -> str:
    """Return advice to use a method whose rate is significantly above one half at the largest radius, if there is one."""
    at_largest = cells["level"] == cells["level"].max()
    above_half = cells[(cells["measure"] == "rate") & at_largest & (cells["low"] > HALF)]
    if above_half.empty:
        return ""
    best = records(above_half.sort_values("mean", ascending=False, kind="stable"))[0]
    rate = with_interval(best.mean, best.low, best.high)
    return BETTER.format(method=best.explainer, rate=rate, radius=best.level)


def _rates_at_radii(rows: pd.DataFrame) -> str:
    """Return each method with its mean rate and the radius that it is for."""
    scores = []
    for row in records(rows):
        mean = with_interval(row.mean, row.low, row.high)
        scores.append((row.explainer, f"{mean} at r = {row.level:g}"))
    return each(scores)


def _at_chance(result: AxisResult, rates: pd.DataFrame) -> Iterator[Finding]:
    """Yield methods whose calibrated rate is not above 0 at the largest radius; `rates` are rows of the summary."""
    at_largest = rates[(rates["level"] == rates["level"].max()) & rates["chance"].notna()]
    not_above = like_random(at_largest)
    if not_above.empty:
        return
    scores = []
    for row in records(result.unmarked(not_above)):
        score = NO_ROOM
        if math.isfinite(row.calibrated):
            score = with_interval(row.calibrated, row.calibrated_low, row.calibrated_high)
        scores.append((row.explainer, score))
    words = {
        "radius": float(not_above["level"].iloc[0]),
        "rates": each(scores),
        "chance": float(not_above["chance"].mean()),
    }
    yield AT_CHANCE.filled(words, not_above["explainer"])


def like_random(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a summary whose calibrated rate is not above 0: its interval holds 0, or chance leaves no room."""
    reaches_chance = cells["calibrated_low"] <= 0
    no_room = cells["chance"].notna() & cells["calibrated"].isna() & (cells["chance"] == 1)
    return cells[reaches_chance | no_room]


def _like_control(result: AxisResult) -> Iterator[Finding]:
    """Yield methods that do not significantly beat the control that picks features at random."""
    arrays = result.arrays
    control = None
    for name in arrays.explainers:
        if name in arrays.controls and result.registered_name(name) == RANDOM:
            control = name
            break
    if control is None or not result.axis.headlines(arrays):
        return
    measure, radius, gaps = gaps_to(result, control)
    not_ahead = {name: with_interval(*gap) for name, gap in gaps.items() if gap[1] <= 0}
    if not_ahead:
        names = result.unmarked_names
        words = {
            "radius": radius,
            "what": MEASURE_IN_WORDS[measure],
            "control": names[control],
            "gaps": each((names[e], gap) for e, gap in not_ahead.items()),
        }
        yield LIKE_RANDOM.filled(words, not_ahead)
