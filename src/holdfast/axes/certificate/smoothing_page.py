"""Smoothing on the page: MuS against SCA bound against bound, accuracy against λ, and the rates for every λ."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from holdfast import statistics
from holdfast.axes.certificate.page import ADDED_AT_MOST, NOT_MONOTONE, mean_passes, rate_figure
from holdfast.axes.contract import Judged
from holdfast.drawing.charts import PALETTE, SYMBOLS, Chart, Panel, blank_figure, error_bars, rounded
from holdfast.drawing.prose import records
from holdfast.statistics.cubes import Cube

LAMBDA = "λ="


def parts(axis: Judged) -> list[Chart | Panel]:
    """The charts that the rows have data for."""
    drawn = [guarantee_chart(axis), accuracy_chart(axis.cube), rates_chart(axis.cube)]
    return [chart for chart in drawn if chart is not None]


def guarantee_chart(axis: Judged) -> Chart | None:
    """The share of samples with a guarantee against the radius, MuS dashed and SCA solid, a colour per λ."""
    cube = axis.cube
    if not {"hard_radius", "certified"} <= set(cube.values):
        return None
    settings = axis.settings
    delta, epsilon = (float(settings.get(name, 0.1)) for name in ("delta", "epsilon"))
    least = float(settings.get("threshold", 0.9)) if settings.get("mode") == "decide" else 1 - epsilon
    shares = guaranteed_shares(cube, least)
    if shares.empty:
        return None
    views = []
    for explainer, own in shares.groupby("explainer", sort=False):
        figure = blank_figure(ADDED_AT_MOST, "share of samples with the guarantee")
        for (keep, rule), rows in own.groupby(["keep", "rule"], sort=False):
            number = sorted(shares["keep"].unique()).index(keep)
            colour = PALETTE[number % len(PALETTE)]
            dash = {"SCA": "solid", "MuS": "dash"}.get(str(rule), "dot")
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
        figure.update_layout(xaxis={"tickvals": sorted(set(own["level"]))}, yaxis={"range": [-0.02, 1.05]})
        views.append((str(explainer), figure))
    caption = "Bound against bound: for how many samples something is guaranteed within radius r. MuS (dashed) "
    caption += "guarantees that no superset with up to r more features changes the prediction, τ = 1, without error. "
    caption += (
        f"SCA (solid) guarantees τ ≥ {least:g} with confidence {1 - delta:g} for each sample and radius, which is "
    )
    caption += "less. Both are about the same smoothed model; λ = 1 is the model itself. "
    if "hard_radius_bernoulli" in cube.values:
        caption += (
            f"MuS* (dotted), the tighter rule for Bernoulli masks, guarantees τ = 1 with confidence {1 - delta:g} "
        )
        caption += "for the mean over all masks. "
    spent = mean_passes(axis.rows)
    cost = f" The sweep took {spent:,.0f} passes per sample and method on average." if math.isfinite(spent) else ""
    caption += f"Bars are 95 % Wilson intervals over samples. {NOT_MONOTONE}{cost}"
    alt = f"Curves of guaranteed shares for {shares['keep'].nunique()} values of λ."
    return Chart("guarantees", "MuS against SCA", caption, alt, views, 440)


def guaranteed_shares(cube: Cube, least: float) -> pd.DataFrame:
    """How many samples have a guarantee, per explainer, λ, rule and radius, with Wilson's interval.

    SCA counts samples whose guaranteed lower bound is at least `least`, MuS those whose hard radius is at least r.
    Columns: explainer, keep, rule, level, n, yes, share, low, high.
    """
    place = {c: i for i, c in enumerate(cube.conditions)}
    rules = {"MuS": "hard_radius", "MuS*": "hard_radius_bernoulli"}
    found = []
    for e, explainer in enumerate(cube.explainers):
        for (condition, level), c in sorted(place.items(), key=lambda item: (_keep(item[0][0]), item[0][1])):
            if level == 0 or (condition, 0.0) not in place:
                continue
            bound = cube.values["certified"][e, c]
            answers = {"SCA": np.where(np.isfinite(bound), bound >= least, np.nan)}
            for rule, measure in rules.items():
                if measure in cube.values:
                    radius = cube.values[measure][e, place[condition, 0.0]]
                    answers[rule] = np.where(np.isfinite(radius), radius >= level, np.nan)
            for rule, answer in answers.items():
                n, yes = int(np.isfinite(answer).sum()), int(np.nansum(answer))
                if n:
                    row = (explainer, _keep(condition), rule, level, n, yes, yes / n, *statistics.wilson(yes, n))
                    found.append(row)
    columns = ["explainer", "keep", "rule", "level", "n", "yes", "share", "low", "high"]
    return pd.DataFrame.from_records(found, columns=columns)


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
    caption = (
        f"How many of the {n} labelled samples the smoothed model gets right. A radius certified for a model that "
    )
    caption += "no longer predicts well is worth little. Bars are 95 % Wilson intervals; λ = 1 is the model itself."
    alt = f"Accuracy for {len(rows)} values of λ."
    return Chart("accuracy", "Accuracy against smoothing", caption, alt, [("", figure)], 340)


def accuracy(cube: Cube) -> pd.DataFrame:
    """Per λ: labelled samples n, how many are right, the share and Wilson's interval; the same for all explainers."""
    found = []
    for c, (condition, level) in enumerate(cube.conditions):
        if level == 0 and "correct" in cube.values:
            right = cube.values["correct"][:, c]
            known = np.isfinite(right).any(0)
            n, yes = int(known.sum()), int((right[:, known] == 1).any(0).sum())
            if n:
                found.append((_keep(condition), n, yes, yes / n, *statistics.wilson(yes, n)))
    frame = pd.DataFrame.from_records(found, columns=["keep", "n", "yes", "share", "low", "high"])
    return frame.sort_values("keep", ignore_index=True)


def rates_chart(cube: Cube) -> Chart | None:
    """Rates and guaranteed bounds against the radius, a view for every λ."""
    if "rate" not in cube.values:
        return None
    cells = statistics.summary([cube])
    conditions = sorted({c for c, _ in cube.conditions}, key=_keep, reverse=True)
    views = [
        (f"λ = {_keep(c):g}", rate_figure(cells[(cells["condition"] == c) & (cells["level"] > 0)], cube.explainers))
        for c in conditions
    ]
    caption = "How often the smoothed prediction stays when up to r features are added, mean over samples with 95 % "
    caption += "bootstrap intervals; the band reaches down to the mean of the lower bounds guaranteed for each sample. "
    alt = f"Curves of the rate for {len(cube.explainers)} methods, one view for each of {len(views)} values of λ."
    return Chart("rates", "Rates of the smoothed models", caption + NOT_MONOTONE, alt, views, 400)


def _keep(condition: str) -> float:
    return float(condition.removeprefix(LAMBDA))
