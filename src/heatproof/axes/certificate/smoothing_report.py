"""Smoothing in the report: MuS against SCA, bound against bound, accuracy against λ, and the rates for every λ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.certificate.report import (
    NOT_MONOTONE,
    UNIT,
    calibrated_chart,
    count,
    radius_label,
    rate_chart,
)
from heatproof.axes.certificate.shares import accuracy, delta, guaranteed_shares, least_rate
from heatproof.report.components import Component, CurveChart
from heatproof.results.arrays import ScoreArrays
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.text import records, some, with_interval

AXIS = "smoothing"


def lead(result: AxisResult) -> list[str]:
    """Return the sentences that open the section on smoothed models: their accuracy, and the largest mean hard radius.

    A hard radius is how many features can be added to an explanation without any change of the prediction.
    """
    sentences = []
    rows = records(accuracy(result.arrays))
    if len(rows) > 1:
        first, last = rows[0], rows[-1]
        sentences.append(
            f"Accuracy is {_percent(first)} with λ = {first.keep:g} and {_percent(last)} with λ = {last.keep:g}, "
            f"on {count(int(last.n), 'labelled')}."
        )
    cells = result.cells("hard_radius", calibrate=False)
    cells = cells[cells["score"].notna()]
    methods = cells[~cells["control"].astype(bool)]
    cells = methods if len(methods) else cells
    if len(cells):
        if methods.empty:
            sentences.append("Only controls were tested.")
        largest = records(cells.sort_values("score", ascending=False, kind="stable"))[0]
        share = result.arrays.settings_of(largest.condition).share
        sentences.append(
            f"Mean hard radii reach {with_interval(largest.score, largest.low, largest.high)} features "
            f"({result.name_of(largest.explainer)} with λ = {share:g})."
        )
    return sentences or ["Nothing can be concluded: no sample has a certificate."]


def _percent(row: Any) -> str:
    """Return a share with its interval in percent; `row` has share, low and high."""
    return f"{with_interval(100 * row.share, 100 * row.low, 100 * row.high)} %"


# ---- components ------------------------------------------------------------------------------------------------------


def components(result: AxisResult) -> Iterator[Component]:
    """Yield the charts that the rows have data for, in reading order."""
    panels = _panel_of_keep(result.arrays)
    yield from _guarantees(result)
    yield from _accuracy(result)
    for chart in rate_chart(result, panels):
        yield replace(
            chart,
            title="Rates of the smoothed models",
            figure="certificate-smoothing",
            paper="soft stability, Figures 7 and 12",
        )
    yield from calibrated_chart(result, panels)


def _panel_of_keep(arrays: ScoreArrays) -> dict[str, str]:
    """Return the panel of each condition, λ in words, the largest λ first."""
    keeps = {condition: arrays.settings_of(condition).share for condition, _ in arrays.conditions}
    conditions = sorted(keeps, key=lambda condition: keeps[condition], reverse=True)
    return {condition: f"λ = {keeps[condition]:g}" for condition in conditions}


def _guarantees(result: AxisResult) -> Iterator[CurveChart]:
    """Yield two charts of the share of samples whose prediction is guaranteed to stay, against the number of added features.

    The first compares the rules (soft and hard) for each explainer, the second the explainers for each rule.
    """
    least, confidence = least_rate(result), 1 - delta(result)
    shares = guaranteed_shares(result.arrays, least)
    if shares.empty:
        return
    points = shares.assign(
        x=shares["level"],
        score=shares["share"],
        curve=shares["rule"],
        panel=[f"λ = {keep:g}" for keep in shares["keep"]],
        note=[f"{row.yes} of {count(row.n)}" for row in records(shares)],
    )
    # SCA is the solid curve, as it is in every chart of this axis.
    points = points.sort_values("rule", key=lambda rule: rule != "SCA", kind="stable")
    sca = f"SCA guarantees τ ≥ {least:g} with confidence {confidence:g} for each sample and radius"
    caption = (
        "Share of samples with a guarantee within radius r, by the smoothed model; λ = 1 is the model itself. A hard radius "
        "guarantees that no superset with up to r more features changes the prediction (τ = 1, without error), and so does "
        f"MuS, by the rule of the paper. {sca}, which is less. "
    )
    if "hard_radius_bernoulli" in result.arrays.values:
        caption += (
            f"MuS* guarantees τ = 1 with confidence {confidence:g} for the mean over all masks. "
        )
    yield CurveChart(
        key="guarantees",
        figure="certificate-guarantees",
        title="MuS against SCA",
        caption=f"{caption}Bars are exact 95 % intervals over samples. {NOT_MONOTONE}{_passes(result.arrays)}",
        points=result.best_first(points),
        x_label=radius_label(result),
        y_label="share guaranteed",
        limits=UNIT,
        paper="soft stability, Figures 5 and 9",
    )
    by_rule = points.sort_values(["rule", "keep"], kind="stable")
    yield CurveChart(
        key="rules",
        figure="certificate-rules",
        title="Guarantees by rule",
        caption=f"How each rule tells explainers apart. {sca}, the other rules a rate of 1. Bars are exact 95 % intervals "
        "over samples.",
        points=by_rule.assign(curve="", panel=by_rule["rule"] + ", " + by_rule["panel"]),
        plot_per_line=False,
        x_label=radius_label(result),
        y_label="share guaranteed",
        limits=UNIT,
        paper="soft stability, Figure 10",
    )


def _passes(arrays: ScoreArrays) -> str:
    """Return a sentence on how many model passes a sample and explainer took on average; empty if not measured."""
    passes = arrays.values.get("passes", np.zeros((0, 0, 0)))
    spent = np.nansum(passes, 1)[np.isfinite(passes).any(1)]
    if not len(spent):
        return ""
    return (
        f" The sweep took {spent.mean():,.0f} passes per sample and explainer on average, without the chance level, which "
        "all explainers share."
    )


def _accuracy(result: AxisResult) -> Iterator[CurveChart]:
    """Yield the share of labelled samples that the smoothed model predicts correctly, against λ."""
    rows = accuracy(result.arrays)
    if rows.empty:
        return
    points = pd.DataFrame(
        {
            "model": result.model,
            "x": rows["keep"],
            "score": rows["share"],
            "low": rows["low"],
            "high": rows["high"],
            "note": [f"{row.yes} of {row.n} correct" for row in records(rows)],
        }
    )
    n = int(rows["n"].max())
    yield CurveChart(
        key="accuracy",
        figure="certificate-accuracy",
        title="Accuracy against smoothing",
        caption=f"Share of {count(n, 'labelled')} that the smoothed model predicts correctly, with exact 95 % intervals; "
        "λ = 1 is the model itself. A radius certified for a model that no longer predicts well is worth little.",
        points=points,
        line="model",
        plot_per_line=False,
        x_label="λ, the share of features kept",
        y_label="accuracy",
        limits=UNIT,
        percent=True,
        paper="soft stability, Figure 8",
    )


# ---- findings --------------------------------------------------------------------------------------------------------

COSTLY = finding_template(
    "smoothing-cost",
    axis=AXIS,
    title="Smoothing costs accuracy",
    seen="Accuracy is {smoothed}, and {plain} without smoothing.",
    means="A guarantee about a model that predicts worse is worth less.",
    do="{larger} Or train the model on masked inputs.",
)
STAY_AT = "Use λ = {keep:g} or more."
LARGER = "Use a larger λ."
FURTHER = finding_template(
    "soft-beyond-hard",
    axis=AXIS,
    title="Soft guarantees reach larger radii than hard ones",
    seen="{best.explainer}, λ = {best.keep:g}, r = {best.level:g}: τ ≥ {least:g} is guaranteed (SCA, δ = {delta:g}) for "
    "{best.yes} of {best.n} samples, and τ = 1 (hard radius) for {best.yes_hard}.",
    means="A hard radius means that no superset changes the prediction, without any error, so it is small. SCA says that "
    "most supersets do not, with probability 1 − δ.",
    do="Use hard radii where one exception is too many; beyond them use SCA and report its τ and δ.",
)


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield what one sweep over λ shows, in no particular order."""
    yield from _costly(result)
    yield from _further(result)


def _costly(result: AxisResult) -> Iterator[Finding]:
    """Yield a finding if smoothing with some λ has a significantly lower accuracy than the model itself (λ = 1)."""
    rows = accuracy(result.arrays)
    plain, smoothed = rows[rows["keep"] == 1], rows[rows["keep"] < 1]
    if plain.empty:
        return
    is_worse = smoothed["high"] < float(plain["low"].iloc[0])
    worse, not_worse = smoothed[is_worse], smoothed[~is_worse]
    if worse.empty:
        return
    shares = [f"{_percent(row)} with λ = {row.keep:g}" for row in records(worse)]
    advice = LARGER
    if len(not_worse):
        advice = STAY_AT.format(keep=float(not_worse["keep"].min()))
    words = {
        "smoothed": some(shares, 3),
        "plain": _percent(records(plain)[0]),
        "larger": advice,
    }
    yield COSTLY.filled(words)


def _further(result: AxisResult) -> Iterator[Finding]:
    """Yield a finding where soft guarantees (SCA) hold for significantly more samples than hard ones.

    A hard guarantee is that no added features change the prediction, a soft one that most do not. The largest radius at
    which they differ is reported.
    """
    least = least_rate(result)
    shares = guaranteed_shares(result.arrays, least)
    shares = shares[(shares["keep"] < 1) & ~shares["explainer"].isin(result.controls)]
    soft, hard = shares[shares["rule"] == "SCA"], shares[shares["rule"] == "hard"]
    both = soft.merge(hard, on=["explainer", "keep", "level"], suffixes=("", "_hard"))
    further = both[both["low"] > both["high_hard"]]
    if len(further):
        largest_first = further.sort_values(["level", "share"], ascending=False, kind="stable")
        best = records(result.unmarked(largest_first))[0]
        fill = {"best": best, "least": least, "delta": delta(result)}
        yield FURTHER.filled(fill, dict.fromkeys(further["explainer"]))
