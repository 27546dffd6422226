"""Figures of smoothing for papers: what SCA and MuS guarantee, rates and accuracy of the smoothed models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from holdfast import statistics
from holdfast.axes.certificate.figures import RADIUS, panel_figures
from holdfast.axes.certificate.shares import accuracy, delta, guaranteed_shares, least_rate
from holdfast.axes.material import Material
from holdfast.drawing import style
from holdfast.drawing.curves import curve, shifts, ticks_at
from holdfast.drawing.pieces import Drawing, Item, Piece, Skipped, about, pages, subjects

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_SMOOTHING = "no smoothing rows: add `smoothing` to the study"
NOT_CERTIFIED = "no sample has an explanation to certify"
MOST_PANELS = 12
LINES = {"SCA": "-", "hard": "-.", "MuS": "--", "MuS*": ":"}


def guarantee_curves(material: Material, width: float) -> Iterator[Piece]:
    """The share of samples with a guarantee against the radius: SCA solid, MuS dashed, a colour per λ."""
    sweeps = material.of("smoothing")
    if not sweeps:
        yield Skipped("", NO_SMOOTHING)
    for judged, subject in zip(sweeps, subjects([j.cube for j in sweeps]), strict=True):
        least = least_rate(judged)
        shares = guaranteed_shares(judged.cube, least)
        if shares.empty:
            yield Skipped(subject, NOT_CERTIFIED)
            continue
        caption = f"What SCA and MuS guarantee: {about(judged.cube)}. Solid: the share of samples for which SCA shows "
        caption += (
            f"a stability rate of at least {least:g} with confidence {1 - delta(judged):g}. Dash-dotted: for which "
        )
        caption += (
            "a hard radius shows that no superset within the radius changes the prediction; dashed (MuS): by the "
        )
        caption += "rule of the paper. "
        if "MuS*" in set(shares["rule"]):
            caption += "Dotted (MuS*): for the mean over all Bernoulli masks. "
        caption += "Bars are 95 % Wilson intervals over samples."
        for part, names in style.parts(list(dict.fromkeys(shares["explainer"])), MOST_PANELS):
            figure = guarantee_figure(shares[shares["explainer"].isin(names)], width)
            yield Drawing(", ".join(filter(None, (subject, part))), caption, figure)


def rule_curves(material: Material, width: float) -> Iterator[Piece]:
    """The share of samples with a guarantee against the radius, a panel per rule and λ and a curve per method."""
    sweeps = material.of("smoothing")
    if not sweeps:
        yield Skipped("", NO_SMOOTHING)
    for judged, subject in zip(sweeps, subjects([j.cube for j in sweeps]), strict=True):
        shares = guaranteed_shares(judged.cube, least_rate(judged)).rename(columns={"share": "mean"})
        if shares.empty:
            yield Skipped(subject, NOT_CERTIFIED)
            continue
        ordered = shares.sort_values(["rule", "keep"], kind="stable")
        panels = [f"{r.rule}, λ = {r.keep:g}" for r in ordered.itertuples()]
        caption = f"Methods told apart by each rule: {about(judged.cube)}. SCA shows a stability rate of at least "
        caption += f"{least_rate(judged):g} but for a probability of {delta(judged):g}, the others a rate of 1. "
        caption += "Bars are 95 % Wilson intervals over samples."
        looks = material.looks_of(judged.cube.explainers)
        figures = panel_figures(ordered.assign(panel=panels), looks, width, "share certified")
        yield from pages(subject, caption, figures)


def guarantee_figure(shares: pd.DataFrame, width: float) -> Figure:
    """A panel per explainer; `shares` are rows of `guaranteed_shares`."""
    keeps = sorted(shares["keep"].unique())
    names = list(dict.fromkeys(shares["explainer"]))
    moved = shifts([f"{k:g}" for k in keeps], shares["level"].tolist())
    figure, panels = _grid_of(names, width, [f"MuS, λ = {k:g}" for k in keeps] * 2)
    for axes, explainer in zip(panels, names, strict=True):
        for (keep, rule), rows in shares[shares["explainer"] == explainer].groupby(["keep", "rule"], sort=False):
            look = style.numbered_style(keeps.index(keep)) | {"linestyle": LINES[str(rule)]}
            look["markerfacecolor"] = look["color"] if rule == "SCA" else "white"
            curve(axes, rows.rename(columns={"share": "mean"}), look, f"{rule}, λ = {keep:g}", True, moved[f"{keep:g}"])
        ticks_at(axes, shares["level"].tolist(), 0.1)
        axes.set_title(_title(explainer, width, panels), loc="left")
    _label(figure, panels, RADIUS, "share of samples certified", width)
    return figure


def smoothing_curves(material: Material, width: float) -> Iterator[Piece]:
    """Stability rate against the radius for every λ, a panel per method."""
    sweeps = material.of("smoothing")
    if not sweeps:
        yield Skipped("", NO_SMOOTHING)
    for judged, subject in zip(sweeps, subjects([j.cube for j in sweeps]), strict=True):
        cube = judged.cube
        if "rate" not in cube.values:
            yield Skipped(subject, "the smoothing rows hold no rates: set `mode: estimate`")
            continue
        caption = f"Stability rate of the smoothed models: {about(cube)}. Smoothing keeps each feature with "
        caption += "probability λ; λ = 1 is the model itself. Means over samples with 95 % bootstrap intervals."
        cells = statistics.summary([cube])
        cells = cells[(cells["measure"] == "rate") & (cells["level"] > 0)]
        cells = cells.assign(keep=[cube.made_of(condition).share for condition in cells["condition"]])
        for part, names in style.parts(cube.explainers, MOST_PANELS):
            yield Drawing(", ".join(filter(None, (subject, part))), caption, smoothing_figure(cells, names, width))


def smoothing_figure(cells: pd.DataFrame, explainers: list[str], width: float) -> Figure:
    """A panel per explainer, a curve per λ; `cells` are rows of `statistics.summary` of the rate, with λ as `keep`."""
    keeps = sorted(cells["keep"].unique())
    names = [f"λ = {keep:g}" for keep in keeps]
    moved = shifts(names, cells["level"].tolist())
    figure, panels = _grid_of(explainers, width, names)
    for axes, explainer in zip(panels, explainers, strict=True):
        for i, (keep, name) in enumerate(zip(keeps, names, strict=True)):
            rows = cells[(cells["explainer"] == explainer) & (cells["keep"] == keep)]
            curve(axes, rows, style.numbered_style(i) | {"linestyle": "-"}, name, True, moved[name])
        ticks_at(axes, cells["level"].tolist(), 0.1)
        axes.set_title(_title(explainer, width, panels), loc="left")
    _label(figure, panels, RADIUS, "stability rate", width)
    return figure


def accuracy_curves(material: Material, width: float) -> Iterator[Piece]:
    """Accuracy of the smoothed models against λ, a curve per model and dataset."""
    sweeps = material.of("smoothing")
    known = [(judged.cube, rows) for judged in sweeps if len(rows := accuracy(judged.cube))]
    if not known:
        yield Skipped("", "the smoothed samples have no labels" if sweeps else NO_SMOOTHING)
        return
    names = subjects([cube for cube, _ in known])
    labels = [name or about(cube) for name, (cube, _) in zip(names, known, strict=True)]
    figure = style.blank(width, min(2.2, 0.62 * width) + style.legend_height(labels, width))
    axes = figure.subplots()
    for i, (label, (_, rows)) in enumerate(zip(labels, known, strict=True)):
        look = style.numbered_style(i) | {"linestyle": "-"}
        curve(axes, rows.rename(columns={"keep": "level", "share": "mean"}), look, label)
    ticks_at(axes, [keep for _, rows in known for keep in rows["keep"]], 0.07)
    axes.set(xlabel="λ, the share of features that smoothing keeps", ylabel="accuracy", ylim=(0, 1.05))
    style.legend_below(figure, [axes], width)
    caption = "Accuracy of the smoothed models against λ; λ = 1 is the model itself. Bars are 95 % Wilson intervals."
    yield Drawing("", caption, figure)


def _grid_of(names: list[str], width: float, legend: list[str]) -> tuple[Figure, list[Axes]]:
    """A panel per name on common axes, as many beside each other as fit."""
    across = max(1, min(len(names), int(width / 1.6), 4))
    down = -(-len(names) // across)
    figure = style.blank(width, 1.75 * down + 0.1 + style.legend_height(legend, width))
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for spare in panels.ravel()[len(names) :]:
        spare.set_visible(False)
    return figure, list(panels.ravel()[: len(names)])


def _label(figure: Figure, panels: list[Axes], x: str, y: str, width: float) -> None:
    for axes in panels:
        axes.set_ylim(-0.03, 1.05)
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(x)
    figure.supylabel(y, fontsize=7)
    style.legend_below(figure, panels[:1], width)


def _title(explainer: str, width: float, panels: list[Axes]) -> str:
    across = max(1, min(len(panels), int(width / 1.6), 4))
    return style.wrapped(explainer, int(width / across / 0.068))


ITEMS = (
    Item("certificate-guarantees", "soft stability, Figures 5 and 9", "figure", guarantee_curves),
    Item("certificate-rules", "soft stability, Figure 10", "figure", rule_curves),
    Item("certificate-smoothing", "soft stability, Figures 7 and 12", "figure", smoothing_curves),
    Item("certificate-accuracy", "soft stability, Figure 8", "figure", accuracy_curves),
)
