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
UNDEFINED_AT_FULL_CHANCE = "undefined, as random features always keep it"
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
    """Yield a finding for methods with a stability rate below one half, and one for those with a lower bound below it.

    `cells` are rows of the summary of a certificate, one per method, measure and radius (`level`). A method counts as
    below one half if its whole confidence interval is, at any radius; the smallest such radius is reported.
    """
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
    """Return a sentence that recommends the method with the largest stability rate at the largest radius.

    Empty if no rate is significantly above one half there. `cells` are rows of the summary of a certificate.
    """
    at_largest = cells["level"] == cells["level"].max()
    above_half = cells[(cells["measure"] == "rate") & at_largest & (cells["low"] > HALF)]
    if above_half.empty:
        return ""
    best = records(above_half.sort_values("mean", ascending=False, kind="stable"))[0]
    rate = with_interval(best.mean, best.low, best.high)
    return BETTER.format(method=best.explainer, rate=rate, radius=best.level)


def _rates_at_radii(rows: pd.DataFrame) -> str:
    """Return a list in words of each method with its mean rate, interval and radius, from rows of a summary."""
    scores = []
    for row in records(rows):
        mean = with_interval(row.mean, row.low, row.high)
        scores.append((row.explainer, f"{mean} at r = {row.level:g}"))
    return each(scores)


def _at_chance(result: AxisResult, rates: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding for the methods whose features keep the prediction no more often than random features do.

    `rates` are rows of the summary with the stability rate of each method and radius: how often the prediction stays when
    that many features are added to the explanation. `chance` is the same rate for random feature sets, and `calibrated`
    is (rate − chance) / (1 − chance). Only the largest radius counts.
    """
    largest_radius = rates["level"].max()
    at_largest = rates[(rates["level"] == largest_radius) & rates["chance"].notna()]
    not_above_chance = like_random(at_largest)
    if not_above_chance.empty:
        return
    scores = []
    for row in records(result.unmarked(not_above_chance)):  # with the names that readers see
        if math.isfinite(row.calibrated):
            score = with_interval(row.calibrated, row.calibrated_low, row.calibrated_high)
        else:
            score = UNDEFINED_AT_FULL_CHANCE
        scores.append((row.explainer, score))
    words = {
        "radius": float(largest_radius),
        "rates": each(scores),
        "chance": float(not_above_chance["chance"].mean()),
    }
    yield AT_CHANCE.filled(words, not_above_chance["explainer"])


def like_random(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a summary whose stability rate is not significantly above that of random features.

    That is where the interval of the calibrated rate reaches 0, or where random features always keep the prediction
    (`chance` is 1), so that no calibrated rate exists.
    """
    reaches_chance = cells["calibrated_low"] <= 0
    is_chance_perfect = cells["calibrated"].isna() & (cells["chance"] == 1)
    return cells[reaches_chance | is_chance_perfect]


def _like_control(result: AxisResult) -> Iterator[Finding]:
    """Yield a finding for methods that do not significantly beat the control explainer that picks random features.

    It is for runs without a measured chance level. Nothing is found if the run has no such control.
    """
    arrays = result.arrays
    control = None
    for name in arrays.explainers:
        if name in arrays.controls and result.registered_name(name) == RANDOM:
            control = name
            break
    if control is None or not result.axis.headlines(arrays):
        return
    # A gap is a method's mean score minus that of the control on the same samples, with its interval.
    measure, radius, gaps = gaps_to(result, control)
    not_ahead = {}
    for explainer, (gap, low, high) in gaps.items():
        if low <= 0:
            not_ahead[explainer] = with_interval(gap, low, high)
    if not not_ahead:
        return
    names = result.unmarked_names
    words = {
        "radius": radius,
        "what": MEASURE_IN_WORDS[measure],
        "control": names[control],
        "gaps": each((names[explainer], gap) for explainer, gap in not_ahead.items()),
    }
    yield LIKE_RANDOM.filled(words, not_ahead)
