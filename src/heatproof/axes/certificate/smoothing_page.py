"""Smoothing on the page: MuS against SCA bound against bound, accuracy against λ, and the rates for every λ."""

from __future__ import annotations

import numpy as np

from heatproof.axes.certificate.page import (
    ADDED_AT_MOST,
    NOT_MONOTONE,
    by_condition,
    calibrated_chart,
    rate_plots,
)
from heatproof.axes.certificate.shares import accuracy, delta, guaranteed_shares, least_rate
from heatproof.axes.certificate.words import samples, smoothing_lead
from heatproof.axes.contract import AxisResult, Page
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.plots import DASHES, Curve, Mark, curves
from heatproof.drawing.prose import records
from heatproof.statistics.cubes import Cube


def parts(result: AxisResult) -> list[Chart | Panel]:
    """The charts that the rows have data for."""
    drawn = [
        guarantee_chart(result),
        accuracy_chart(result.cube),
        rates_chart(result),
        calibrated_chart(result, keep_notes(result.cube)),
    ]
    return [chart for chart in drawn if chart is not None]


def guarantee_chart(result: AxisResult) -> Chart | None:
    """The share of samples with a guarantee against the radius, SCA solid and MuS dashed, a plot per method and λ."""
    cube, least, confidence = result.cube, least_rate(result), 1 - delta(result)
    shares = guaranteed_shares(cube, least)
    if shares.empty:
        return None
    keeps, plots = sorted(shares["keep"].unique()), []
    at = sorted(set(shares["level"]))
    for (explainer, keep), rows in shares.groupby(["explainer", "keep"], sort=False):
        look, lines = result.looks[str(explainer)], []
        for (rule, of_rule), dash in zip(rows.groupby("rule", sort=False), DASHES, strict=False):
            marks = [
                Mark(
                    f"{look.name}, {rule}, λ = {keep:g}",
                    r.share,
                    r.low,
                    r.high,
                    look.colour,
                    x=r.level,
                    method=look.name,
                    said=f"{r.yes} of {samples(r.n)}",
                )
                for r in records(of_rule)
            ]
            lines.append(Curve(str(rule), marks, look.colour, dash))
        plots.append(
            curves(
                look.name,
                lines,
                (0.0, 1.04),
                ADDED_AT_MOST,
                "share guaranteed",
                at,
                f"λ = {keep:g}",
            )
        )
    caption = "Bound against bound: for how many samples something is guaranteed within radius r. A hard radius guarantees "
    caption += "that no superset with up to r more features changes the prediction, τ = 1, without error; MuS does so by "
    caption += "the rule of the paper. "
    caption += f"SCA (solid) guarantees τ ≥ {least:g} with confidence {confidence:g} for each sample and radius, which "
    caption += "is less. All are about the same smoothed model; λ = 1 is the model itself. "
    if "hard_radius_bernoulli" in cube.values:
        caption += "MuS* guarantees τ = 1 with confidence "
        caption += f"{confidence:g} for the mean over all masks. "
    caption += f"Bars are exact 95 % intervals over samples. {NOT_MONOTONE}{_cost(cube)}"
    alt = f"Curves of guaranteed shares for {len(keeps)} values of λ."
    return Chart("guarantees", "MuS against SCA", caption, alt, plots)


def rule_chart(result: AxisResult) -> Chart | None:
    """The share of samples with a guarantee against the radius, a plot per rule and λ and a curve per method."""
    shares, plots = guaranteed_shares(result.cube, least_rate(result)), []
    at = sorted(set(shares["level"]))
    for (rule, keep), rows in shares.groupby(["rule", "keep"]):
        lines = []
        for explainer, of_explainer in rows.groupby("explainer", sort=False):
            look = result.looks[str(explainer)]
            marks = [
                Mark(look.name, r.share, r.low, r.high, look.colour, x=r.level)
                for r in records(of_explainer)
            ]
            lines.append(Curve(look.name, marks, look.colour))
        plots.append(
            curves(
                str(rule),
                lines,
                (0.0, 1.04),
                ADDED_AT_MOST,
                "share guaranteed",
                at,
                f"λ = {keep:g}",
            )
        )
    caption = f"How each rule separates explainers. SCA shows a rate of at least {least_rate(result):g} but for a probability "
    caption += (
        f"of {delta(result):g}, the others a rate of 1. Bars are exact 95 % intervals over samples."
    )
    return (
        Chart("rules", "Guarantees by rule", caption, "Curves of guaranteed shares.", plots)
        if plots
        else None
    )


def _cost(cube: Cube) -> str:
    """The mean passes per sample and explainer, summed over λ and radii."""
    passes = cube.values.get("passes", np.zeros((0, 0, 0)))
    spent = np.nansum(passes, 1)[np.isfinite(passes).any(1)]
    return (
        f" The sweep took {spent.mean():,.0f} passes per sample and explainer on average; the chance level, which "
        "all explainers share, is not counted."
        if len(spent)
        else ""
    )


def accuracy_chart(cube: Cube) -> Chart | None:
    """The share of labelled samples that the smoothed model gets right, against λ."""
    rows = accuracy(cube)
    if rows.empty:
        return None
    marks = [
        Mark("accuracy", r.share, r.low, r.high, x=r.keep, said=f"{r.yes} of {r.n} right")
        for r in records(rows)
    ]
    across = "λ, the share of features kept"
    plot = curves("Accuracy", [Curve("", marks)], (0.0, 1.04), across, percent=True, width=340)
    n = int(rows["n"].max())
    caption = f"How many of {samples(n, 'labelled')} the smoothed model gets right. A radius certified for a model "
    caption += "that no longer predicts well is worth little. "
    caption += "Bars are exact 95 % intervals; λ = 1 is the model itself."
    alt = f"Accuracy for {len(rows)} values of λ."
    return Chart("accuracy", "Accuracy against smoothing", caption, alt, [plot])


def rates_chart(result: AxisResult) -> Chart | None:
    """Rates and guaranteed bounds against the radius, a plot for every λ and method."""
    cube = result.cube
    if "rate" not in cube.values:
        return None
    notes = keep_notes(cube)
    plots = by_condition(result, rate_plots, notes)
    if not plots:
        return None
    caption = "How often the smoothed prediction stays when up to r features are added, mean over samples with 95 % "
    caption += "intervals; dashed, the mean of the lower bounds guaranteed for each sample, but for a probability of "
    caption += f"δ = {delta(result):g}. "
    if "rate" in cube.chance:
        caption += "Dotted: the same for as many random features (chance). "
    alt = f"Curves of the rate for {len(cube.explainers)} explainers and {len(notes)} values of λ."
    return Chart("rates", "Rates of the smoothed models", caption + NOT_MONOTONE, alt, plots)


def keep_notes(cube: Cube) -> dict[str, str]:
    """The condition of every λ, the largest first, and λ in words."""
    keeps = {condition: cube.made_of(condition).share for condition, _ in cube.conditions}
    conditions = sorted(keeps, key=lambda condition: keeps[condition], reverse=True)
    return {condition: f"λ = {keeps[condition]:g}" for condition in conditions}


PAGE = Page(lead=smoothing_lead, parts=parts)
