"""Figures and tables of certificates for papers: the stability rate by method and radius."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from heatproof import statistics
from heatproof.axes.certificate.page import rate_chart
from heatproof.axes.certificate.shares import delta, one_fraction
from heatproof.axes.material import Material, charted
from heatproof.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from heatproof.drawing.pieces import Item, Piece, Skipped, Table, about, subjects
from heatproof.evaluation import Condition
from heatproof.statistics.cubes import Cube

NO_CERTIFICATE = "no certificate rows: add `certificate` to the study"
CHANCE = "\0chance"
"""The row of random features, under a name that no explainer has."""
NO_RATES = "the certificates hold no rates: set `mode: estimate`"

rate_curves = charted("certificate", rate_chart, NO_CERTIFICATE, NO_RATES)


def rate_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by radii: mean rate with interval, bold within each radius, and the mean guaranteed lower bound.

    The last row has the rates of as many random features, where they were measured.
    """
    certificates = material.of("certificate")
    if not certificates:
        yield Skipped("", NO_CERTIFICATE)
    cubes = [result.cube for result in certificates]
    for result, subject in zip(certificates, subjects(cubes), strict=True):
        cube = one_fraction(result).cube
        if "rate" not in cube.values:
            yield Skipped(subject, NO_RATES)
            continue
        summary = statistics.summary([cube])
        radii = [condition for condition in cube.conditions if condition[1] > 0]
        columns: list[dict[str, Cell]] = []
        for condition in radii:
            columns += _columns_at(cube, summary[summary["level"] == condition[1]], condition)
        names = {e: escape(e) for e in cube.explainers}
        if any(CHANCE in column for column in columns):
            names[CHANCE] = "Random features"
        missing = Cell(float("nan"))
        rows: list[list[Entry]] = [
            [name, *(column.get(e, missing) for column in columns)] for e, name in names.items()
        ]
        heads = ["Method", *(text for _, x in radii for text in (f"$r={x:g}$", "guar."))]
        caption = f"Stability rate within radius r: {about(cube)}. Mean over samples with 95 % intervals; "
        caption += f"guar.: the mean lower bound at confidence {1 - delta(result):g} for each sample. Bold: the "
        caption += "highest rate and all that the corrected paired test does not separate from it "
        caption += "at that radius; controls are never bold."
        if CHANCE in names:
            caption += " Random features: the mean rate of random sets of the same size (chance)."
        yield Table(subject, caption, Tabular(heads, rows))


def _columns_at(
    cube: Cube, summary: pd.DataFrame, condition: Condition
) -> tuple[dict[str, Cell], dict[str, Cell]]:
    """Rates and guaranteed bounds by explainer at one radius; `summary` has the rows of this radius."""
    by_measure = {
        measure: summary[summary["measure"] == measure].set_index("explainer")
        for measure in ("rate", "certified")
    }
    rate = by_measure["rate"]
    tests = statistics.paired_tests([cube.select(conditions=[condition])], "rate", form="raw")
    best = unbeaten(rate["mean"], tests, cube.controls)
    rates = {
        str(e): Cell(r["mean"], r["low"], r["high"], str(e) in best) for e, r in rate.iterrows()
    }
    chance = rate["chance"].dropna()
    if len(chance):
        rates[CHANCE] = Cell(float(chance.mean()))
    bounds = {str(e): Cell(float(v)) for e, v in by_measure["certified"]["mean"].items()}
    return rates, bounds


ITEMS = (
    Item("certificate-rates", "soft stability, Figures 6 and 11", "figure", rate_curves),
    Item("certificate-scores", "soft stability, Figure 6 as a table", "table", rate_table),
)
