"""Figures and tables of certificates for papers: the stability rate by method and radius."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from holdfast import statistics
from holdfast.axes.certificate.shares import delta, one_fraction
from holdfast.axes.material import Material
from holdfast.drawing import style
from holdfast.drawing.curves import curve, curve_panels, shifts, ticks_at
from holdfast.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from holdfast.drawing.pieces import Item, Piece, Skipped, Table, about, pages, subjects

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_CERTIFICATE = "no certificate rows: add `certificate` to the study"
NO_RATES = "the certificates hold no rates: set `mode: estimate`"
RADIUS = "radius r"


def rate_curves(material: Material, width: float) -> Iterator[Piece]:
    """Stability rate against radius, a curve per method over the band down to its mean guaranteed bound."""
    certificates = material.of("certificate")
    if not certificates:
        yield Skipped("", NO_CERTIFICATE)
    for judged, subject in zip(certificates, subjects([j.cube for j in certificates]), strict=True):
        cube = one_fraction(judged).cube
        if "rate" not in cube.values:
            yield Skipped(subject, NO_RATES)
            continue
        caption = f"Stability rate by method: {about(cube)}. Lines: the share of supersets with at most r more "
        caption += "features that keep the prediction, mean over samples with 95 % bootstrap intervals. Bands reach "
        caption += "down to the mean of the lower bounds guaranteed for each sample"
        caption += f" (confidence {1 - delta(judged):g}). The rate is not monotone in r."
        figures = rate_figures(statistics.summary([cube]), material.looks_of(cube.explainers), width)
        yield from pages(subject, caption, figures)


def rate_figures(cells: pd.DataFrame, looks: style.Looks, width: float) -> list[Figure]:
    """Rates and guaranteed bounds; `cells` are rows of `statistics.summary` of one condition."""
    levels = cells.loc[cells["measure"] == "rate", "level"].tolist()
    moved = shifts(list(looks), levels)

    def draw(axes: Axes, column: int, explainer: str, look: dict[str, Any]) -> None:
        rate, bound = (
            cells[(cells["explainer"] == explainer) & (cells["measure"] == measure)]
            for measure in ("rate", "certified")
        )
        curve(axes, rate, look, explainer, shift=moved[explainer])
        means = {"rate": rate.set_index("level")["mean"], "bound": bound.set_index("level")["mean"]}
        both = pd.DataFrame(means).dropna().sort_index()
        if len(both) and not look["faint"]:
            x = both.index.to_numpy(float) + moved[explainer]
            axes.fill_between(x, both["bound"], both["rate"], color=look["color"], alpha=0.1, linewidth=0)
            axes.plot(x, both["bound"], color=look["color"], linewidth=0.7, linestyle=(0, (3, 2)))

    def finish(axes: Axes, column: int, first: bool) -> None:
        ticks_at(axes, levels)
        axes.set(xlabel=RADIUS, ylabel="stability rate", ylim=(-0.03, 1.05))

    return curve_panels(looks, [""], width, draw, finish, each=min(2.4, 0.62 * width))


def fraction_curves(material: Material, width: float) -> Iterator[Piece]:
    """Stability rate against radius, a panel per fraction of features in the explanation and a curve per method."""
    sweeps = [j for j in material.of("certificate") if "rate" in j.cube.values and len(dict(j.cube.conditions)) > 1]
    if not sweeps:
        yield Skipped("", "no sweep over fractions: set `fraction: [0.1, 0.25, 0.5]` in a certificate")
    for judged, subject in zip(sweeps, subjects([j.cube for j in sweeps]), strict=True):
        cells = statistics.summary([judged.cube])
        rate = cells[(cells["measure"] == "rate") & cells["mean"].notna()]
        rate = rate.assign(panel=rate["condition"].astype(str).str.replace("=", " = "))
        caption = (
            f"Stability rate by method and fraction of the features: {about(judged.cube)}. Means over samples with "
        )
        caption += "95 % bootstrap intervals; the rate is not monotone in r."
        looks = material.looks_of(judged.cube.explainers)
        yield from pages(subject, caption, panel_figures(rate, looks, width, "stability rate"))


def panel_figures(rows: pd.DataFrame, looks: style.Looks, width: float, quantity: str) -> list[Figure]:
    """A quantity against the radius, a panel per `panel` and a curve per explainer; mean, low and high by level."""
    panels, levels = list(dict.fromkeys(rows["panel"])), rows["level"].tolist()
    moved = shifts(list(looks), levels)

    def draw(axes: Axes, column: int, explainer: str, look: dict[str, Any]) -> None:
        own = rows[(rows["panel"] == panels[column]) & (rows["explainer"] == explainer)]
        curve(axes, own, look, explainer, shift=moved[explainer])

    def finish(axes: Axes, column: int, first: bool) -> None:
        ticks_at(axes, levels)
        axes.set(xlabel=RADIUS, ylabel=quantity if first else "", ylim=(-0.03, 1.05))

    return curve_panels(looks, panels, width, draw, finish)


def rate_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by radii: mean rate with interval, bold within each radius, and the mean guaranteed lower bound."""
    certificates = material.of("certificate")
    if not certificates:
        yield Skipped("", NO_CERTIFICATE)
    for judged, subject in zip(certificates, subjects([j.cube for j in certificates]), strict=True):
        cube = one_fraction(judged).cube
        if "rate" not in cube.values:
            yield Skipped(subject, NO_RATES)
            continue
        cells = statistics.summary([cube])
        columns: list[dict[str, Cell]] = []
        radii = [condition for condition in cube.conditions if condition[1] > 0]
        for condition in radii:
            rate, bound = (
                cells[(cells["measure"] == measure) & (cells["level"] == condition[1])].set_index("explainer")
                for measure in ("rate", "certified")
            )
            tests = statistics.paired_tests([cube.select(conditions=[condition])], "rate", form="raw")
            best = unbeaten(rate["mean"], tests, cube.controls)
            columns.append({str(e): Cell(r["mean"], r["low"], r["high"], str(e) in best) for e, r in rate.iterrows()})
            columns.append({str(e): Cell(float(v)) for e, v in bound["mean"].items()})
        missing = Cell(float("nan"))
        rows: list[list[Entry]] = [[escape(e), *(c.get(e, missing) for c in columns)] for e in cube.explainers]
        heads = ["Method", *(text for _, x in radii for text in (f"$r={x:g}$", "guar."))]
        caption = f"Stability rate within radius r: {about(cube)}. Mean over samples with 95 % bootstrap intervals; "
        caption += f"guar.: the mean lower bound at confidence {1 - delta(judged):g} for each sample. Bold: the "
        caption += "highest rate and all that Wilcoxon's paired test with Holm's correction does not separate from it "
        caption += "at that radius; controls are never bold."
        yield Table(subject, caption, Tabular(heads, rows))


ITEMS = (
    Item("certificate-rates", "soft stability, Figure 6", "figure", rate_curves),
    Item("certificate-fractions", "soft stability, Figure 11", "figure", fraction_curves),
    Item("certificate-scores", "soft stability, Figure 6 as a table", "table", rate_table),
)
