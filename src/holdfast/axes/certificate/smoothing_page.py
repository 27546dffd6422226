"""Smoothing on the page: MuS against SCA bound against bound, accuracy against λ, and the rates for every λ."""

from __future__ import annotations

import numpy as np

from holdfast import statistics
from holdfast.axes.certificate.page import ADDED_AT_MOST, NOT_MONOTONE, rate_figure
from holdfast.axes.certificate.shares import accuracy, delta, guaranteed_shares, least_rate
from holdfast.axes.certificate.words import smoothing_lead
from holdfast.axes.contract import Judged, Page
from holdfast.drawing.charts import PALETTE, SYMBOLS, Chart, Panel, blank_figure, error_bars, rounded
from holdfast.drawing.prose import records
from holdfast.statistics.cubes import Cube


def parts(judged: Judged) -> list[Chart | Panel]:
    """The charts that the rows have data for."""
    drawn = [guarantee_chart(judged), accuracy_chart(judged.cube), rates_chart(judged.cube)]
    return [chart for chart in drawn if chart is not None]


def guarantee_chart(judged: Judged) -> Chart | None:
    """The share of samples with a guarantee against the radius, MuS dashed and SCA solid, a colour per λ."""
    cube, least, confidence = judged.cube, least_rate(judged), 1 - delta(judged)
    shares = guaranteed_shares(cube, least)
    if shares.empty:
        return None
    keeps, views = sorted(shares["keep"].unique()), []
    for explainer, curves in shares.groupby("explainer", sort=False):
        figure = blank_figure(ADDED_AT_MOST, "share of samples with the guarantee")
        for (keep, rule), rows in curves.groupby(["keep", "rule"], sort=False):
            number = keeps.index(keep)
            colour = PALETTE[number % len(PALETTE)]
            dash = {"SCA": "solid", "MuS": "dash", "hard": "dot"}.get(str(rule), "dashdot")
            symbol = SYMBOLS[number % len(SYMBOLS)] + ("" if rule == "SCA" else "-open")
            figure.add_scatter(
                x=rounded(rows["level"]),
                y=rounded(rows["share"]),
                error_y=error_bars(rows["share"], rows["low"], rows["high"], colour, thickness=1),
                name=f"{rule}, λ = {keep:g}",
                mode="lines+markers",
                line={"color": colour, "width": 2, "dash": dash},
                marker={"color": colour, "symbol": symbol, "size": 8},
                hovertext=[f"{rule}, λ = {keep:g}, r = {r.level:g}: {r.yes} of {r.n} samples" for r in records(rows)],
                hoverinfo="text",
            )
        figure.update_layout(xaxis={"tickvals": sorted(set(curves["level"]))}, yaxis={"range": [-0.02, 1.05]})
        views.append((str(explainer), figure))
    caption = (
        "Bound against bound: for how many samples something is guaranteed within radius r. A hard radius (dotted) "
    )
    caption += "guarantees that no superset with up to r more features changes the prediction, τ = 1, without error; "
    caption += "MuS (dashed) does so by the rule of the paper. "
    caption += f"SCA (solid) guarantees τ ≥ {least:g} with confidence {confidence:g} for each sample and radius, which "
    caption += "is less. Both are about the same smoothed model; λ = 1 is the model itself. "
    if "hard_radius_bernoulli" in cube.values:
        caption += "MuS* (dash-dotted) guarantees τ = 1 with confidence "
        caption += f"{confidence:g} for the mean over all masks. "
    caption += f"Bars are 95 % Wilson intervals over samples. {NOT_MONOTONE}{_cost(cube)}"
    alt = f"Curves of guaranteed shares for {len(keeps)} values of λ."
    return Chart("guarantees", "MuS against SCA", caption, alt, views, 440)


def _cost(cube: Cube) -> str:
    """The mean passes per sample and explainer, summed over λ and radii."""
    passes = cube.values.get("passes", np.zeros((0, 0, 0)))
    spent = np.nansum(passes, 1)[np.isfinite(passes).any(1)]
    return f" The sweep took {spent.mean():,.0f} passes per sample and method on average." if len(spent) else ""


def accuracy_chart(cube: Cube) -> Chart | None:
    """The share of labelled samples that the smoothed model gets right, against λ."""
    rows = accuracy(cube)
    if rows.empty:
        return None
    figure = blank_figure("λ, the share of features that smoothing keeps", "accuracy")
    figure.add_scatter(
        x=rounded(rows["keep"]),
        y=rounded(rows["share"]),
        error_y=error_bars(rows["share"], rows["low"], rows["high"], PALETTE[0], thickness=1.5),
        mode="lines+markers",
        line={"color": PALETTE[0], "width": 2},
        marker={"color": PALETTE[0], "size": 8},
        hovertext=[f"λ = {r.keep:g}: {r.yes} of {r.n} right" for r in records(rows)],
        hoverinfo="text",
        showlegend=False,
    )
    figure.update_layout(xaxis={"tickvals": list(rows["keep"])}, yaxis={"range": [0, 1.05], "tickformat": ".0%"})
    n = int(rows["n"].max())
    caption = f"How many of the {n} labelled samples the smoothed model gets right. A radius certified for a model "
    caption += "that no longer predicts well is worth little. "
    caption += "Bars are 95 % Wilson intervals; λ = 1 is the model itself."
    alt = f"Accuracy for {len(rows)} values of λ."
    return Chart("accuracy", "Accuracy against smoothing", caption, alt, [("", figure)], 340)


def rates_chart(cube: Cube) -> Chart | None:
    """Rates and guaranteed bounds against the radius, a view for every λ."""
    if "rate" not in cube.values:
        return None
    cells = statistics.summary([cube])
    keeps = {cube.made_of(condition).share: condition for condition, _ in cube.conditions}
    views = [
        (f"λ = {keep:g}", rate_figure(cells[(cells["condition"] == keeps[keep]) & (cells["level"] > 0)], cube))
        for keep in sorted(keeps, reverse=True)
    ]
    caption = "How often the smoothed prediction stays when up to r features are added, mean over samples with 95 % "
    caption += "bootstrap intervals; the band reaches down to the mean of the lower bounds guaranteed for each sample. "
    alt = f"Curves of the rate for {len(cube.explainers)} methods, one view for each of {len(views)} values of λ."
    return Chart("rates", "Rates of the smoothed models", caption + NOT_MONOTONE, alt, views, 400)


PAGE = Page(lead=smoothing_lead, parts=parts)
