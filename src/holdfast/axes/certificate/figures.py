"""The soft-stability paper's figures: what SCA and MuS guarantee, rates by method, and what smoothing does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from holdfast import statistics
from holdfast.axes.certificate.smoothing_page import LAMBDA, accuracy, guaranteed_shares
from holdfast.axes.contract import Judged
from holdfast.drawing import style
from holdfast.drawing.curves import curve, curve_panels, shifts, ticks_at
from holdfast.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from holdfast.drawing.pieces import Drawing, Material, Piece, Skipped, Table, about, only, pages, subjects

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_CERTIFICATE = "no certificate rows: add `certificate` to the study"
NO_RATES = "the certificates hold no rates: set `mode: estimate`"
NO_SMOOTHING = "no smoothing rows: add `smoothing` to the study"
RADIUS = "radius r"
MOST_PANELS = 12
RULES = {"SCA": "-", "MuS": "--", "MuS*": ":"}


def _plain(material: Material) -> list[Judged]:
    """The certificates of models that were not smoothed."""
    return [a for a in material.of_kind("certified") if not any(c.startswith(LAMBDA) for c, _ in a.cube.conditions)]


def _smoothed(material: Material, *measures: str) -> list[Judged]:
    return [a for a in material.of_kind(*measures) if any(c.startswith(LAMBDA) for c, _ in a.cube.conditions)]


def rate_curves(material: Material, width: float) -> Iterator[Piece]:
    """Stability rate against radius, a curve per method over the band down to its mean guaranteed bound."""
    axes_ = _plain(material)
    if not axes_:
        yield Skipped("", NO_CERTIFICATE)
    for axis, subject in zip(axes_, subjects([a.cube for a in axes_]), strict=True):
        if "rate" not in axis.cube.values:
            yield Skipped(subject, NO_RATES)
            continue
        caption = f"Stability rate by method: {about(axis.cube)}. Lines: the share of supersets with at most r more "
        caption += "features that keep the prediction, mean over samples with 95 % bootstrap intervals. Bands reach "
        caption += "down to the mean of the lower bounds guaranteed for each sample"
        caption += f" (confidence {1 - float(axis.settings.get('delta', 0.1)):g}). "
        caption += "The rate is not monotone in r."
        looks = material.looks_of(axis.cube.explainers)
        yield from pages(subject, caption, rate_figures(statistics.summary([axis.cube]), looks, width))


def rate_figures(cells: pd.DataFrame, looks: style.Looks, width: float) -> list[Figure]:
    """Rates and guaranteed bounds; `cells` are rows of `statistics.summary` of one condition."""
    levels = cells.loc[cells["measure"] == "rate", "level"].tolist()
    moved = shifts(list(looks), levels)

    def draw(axes: Axes, column: int, explainer: str, look: dict[str, Any]) -> None:
        own = cells[cells["explainer"] == explainer]
        rate, bound = (own[own["measure"] == m].set_index("level")["mean"] for m in ("rate", "certified"))
        curve(axes, own[own["measure"] == "rate"], look, explainer, shift=moved[explainer])
        both = pd.DataFrame({"rate": rate, "bound": bound}).dropna().sort_index()
        if len(both) and not look["faint"]:
            x = both.index.to_numpy(float) + moved[explainer]
            axes.fill_between(x, both["bound"], both["rate"], color=look["color"], alpha=0.1, linewidth=0)
            axes.plot(x, both["bound"], color=look["color"], linewidth=0.7, linestyle=(0, (3, 2)))

    def finish(axes: Axes, column: int, first: bool) -> None:
        ticks_at(axes, levels)
        axes.set(xlabel=RADIUS, ylabel="stability rate", ylim=(-0.03, 1.05))

    return curve_panels(looks, [""], width, draw, finish, each=min(2.4, 0.62 * width))


def rate_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by radii: mean rate with interval, bold within each radius, and the mean guaranteed lower bound."""
    axes_ = _plain(material)
    if not axes_:
        yield Skipped("", NO_CERTIFICATE)
    for axis, subject in zip(axes_, subjects([a.cube for a in axes_]), strict=True):
        cube = axis.cube
        if "rate" not in cube.values:
            yield Skipped(subject, NO_RATES)
            continue
        cells = statistics.summary([cube])
        columns: list[dict[str, Cell]] = []
        for condition in cube.conditions:
            rate, bound = (
                cells[(cells["measure"] == m) & (cells["level"] == condition[1])].set_index("explainer")
                for m in ("rate", "certified")
            )
            best = unbeaten(rate["mean"], statistics.paired_tests([only(cube, [condition])], "rate", form="raw"))
            columns.append({str(e): Cell(r["mean"], r["low"], r["high"], str(e) in best) for e, r in rate.iterrows()})
            columns.append({str(e): Cell(float(v)) for e, v in bound["mean"].items()})
        missing = Cell(float("nan"))
        rows: list[list[Entry]] = [[escape(e), *(c.get(e, missing) for c in columns)] for e in cube.explainers]
        heads = ["Method", *(text for _, x in cube.conditions for text in (f"$r={x:g}$", "guar."))]
        caption = f"Stability rate within radius r: {about(cube)}. Mean over samples with 95 % bootstrap intervals; "
        caption += f"guar.: the mean lower bound at confidence {1 - float(axis.settings.get('delta', 0.1)):g} for each "
        caption += "sample. Bold: the highest rate and all that Wilcoxon's paired test with Holm's correction does not "
        caption += "separate from it at that radius; controls are never bold."
        yield Table(subject, caption, Tabular(heads, rows))


def guarantee_curves(material: Material, width: float) -> Iterator[Piece]:
    """The share of samples with a guarantee against the radius: SCA solid, MuS dashed, a colour per λ."""
    axes_ = _smoothed(material, "hard_radius", "certified")
    if not axes_:
        yield Skipped("", NO_SMOOTHING)
    for axis, subject in zip(axes_, subjects([a.cube for a in axes_]), strict=True):
        settings = axis.settings
        delta, epsilon = (float(settings.get(name, 0.1)) for name in ("delta", "epsilon"))
        least = float(settings.get("threshold", 0.9)) if settings.get("mode") == "decide" else 1 - epsilon
        shares = guaranteed_shares(axis.cube, least)
        if shares.empty:
            yield Skipped(subject, "no sample has an explanation to certify")
            continue
        caption = f"What SCA and MuS guarantee: {about(axis.cube)}. Solid: the share of samples for which SCA shows a "
        caption += f"stability rate of at least {least:g} with confidence {1 - delta:g}. Dashed: for which MuS shows "
        caption += "that no superset within the radius changes the prediction. "
        if "MuS*" in set(shares["rule"]):
            caption += "Dotted (MuS*): the tighter rule for Bernoulli masks. "
        caption += "Bars are 95 % Wilson intervals over samples."
        for part, names in style.parts(list(dict.fromkeys(shares["explainer"])), MOST_PANELS):
            figure = guarantee_figure(shares[shares["explainer"].isin(names)], width)
            yield Drawing(", ".join(filter(None, (subject, part))), caption, figure)


def guarantee_figure(shares: pd.DataFrame, width: float) -> Figure:
    """A panel per explainer; `shares` are rows of `guaranteed_shares`."""
    keeps = sorted(shares["keep"].unique())
    names = list(dict.fromkeys(shares["explainer"]))
    moved = shifts([f"{k:g}" for k in keeps], shares["level"].tolist())
    figure, panels = _grid_of(names, width, [f"MuS, λ = {k:g}" for k in keeps] * 2)
    for axes, explainer in zip(panels, names, strict=True):
        for (keep, rule), rows in shares[shares["explainer"] == explainer].groupby(["keep", "rule"], sort=False):
            look = style.numbered_style(keeps.index(keep)) | {"linestyle": RULES.get(str(rule), ":")}
            look["markerfacecolor"] = look["color"] if rule == "SCA" else "white"
            curve(axes, rows.rename(columns={"share": "mean"}), look, f"{rule}, λ = {keep:g}", True, moved[f"{keep:g}"])
        ticks_at(axes, shares["level"].tolist(), 0.1)
        axes.set_title(_title(explainer, width, panels), loc="left")
    _label(figure, panels, RADIUS, "share of samples certified", width)
    return figure


def smoothing_curves(material: Material, width: float) -> Iterator[Piece]:
    """Stability rate against the radius for every λ, a panel per method."""
    axes_ = _smoothed(material, "certified")
    if not axes_:
        yield Skipped("", NO_SMOOTHING)
    for axis, subject in zip(axes_, subjects([a.cube for a in axes_]), strict=True):
        if "rate" not in axis.cube.values:
            yield Skipped(subject, "the smoothing rows hold no rates: set `mode: estimate`")
            continue
        caption = f"Stability rate of the smoothed models: {about(axis.cube)}. Smoothing keeps each feature with "
        caption += "probability λ; λ = 1 is the model itself. Means over samples with 95 % bootstrap intervals."
        cells = statistics.summary([axis.cube])
        cells = cells[(cells["measure"] == "rate") & (cells["level"] > 0)]
        for part, names in style.parts(axis.cube.explainers, MOST_PANELS):
            yield Drawing(", ".join(filter(None, (subject, part))), caption, smoothing_figure(cells, names, width))


def smoothing_figure(cells: pd.DataFrame, explainers: list[str], width: float) -> Figure:
    """A panel per explainer, a curve per λ; `cells` are rows of `statistics.summary` of the rate."""
    keeps = {str(c): float(str(c).removeprefix(LAMBDA)) for c in dict.fromkeys(cells["condition"])}
    order = sorted(keeps, key=lambda c: keeps[c])
    moved = shifts(order, cells["level"].tolist())
    figure, panels = _grid_of(explainers, width, [f"λ = {keeps[c]:g}" for c in order])
    for axes, explainer in zip(panels, explainers, strict=True):
        for i, condition in enumerate(order):
            rows = cells[(cells["explainer"] == explainer) & (cells["condition"] == condition)]
            curve(
                axes,
                rows,
                style.numbered_style(i) | {"linestyle": "-"},
                f"λ = {keeps[condition]:g}",
                True,
                moved[condition],
            )
        ticks_at(axes, cells["level"].tolist(), 0.1)
        axes.set_title(_title(explainer, width, panels), loc="left")
    _label(figure, panels, RADIUS, "stability rate", width)
    return figure


def accuracy_curves(material: Material, width: float) -> Iterator[Piece]:
    """Accuracy of the smoothed models against λ, a curve per model and dataset."""
    axes_ = _smoothed(material)
    known = [(axis, rows) for axis in axes_ if len(rows := accuracy(axis.cube))]
    if not known:
        yield Skipped("", "the smoothed samples have no labels" if axes_ else NO_SMOOTHING)
        return
    names = subjects([axis.cube for axis, _ in known])
    labels = [name or about(axis.cube) for name, (axis, _) in zip(names, known, strict=True)]
    figure = style.blank(width, min(2.2, 0.62 * width) + style.legend_height(labels, width))
    axes = figure.subplots()
    for i, (label, (_, rows)) in enumerate(zip(labels, known, strict=True)):
        look = style.numbered_style(i) | {"linestyle": "-"}
        curve(axes, rows.rename(columns={"keep": "level", "share": "mean"}), look, label)
    ticks_at(axes, [k for _, rows in known for k in rows["keep"]], 0.07)
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
