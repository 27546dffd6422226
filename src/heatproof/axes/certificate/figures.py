"""Figures and tables of certificates for papers: the stability rate by method and radius."""

from __future__ import annotations

from collections.abc import Iterator

from heatproof import statistics
from heatproof.axes.certificate.page import rate_chart
from heatproof.axes.certificate.shares import delta, one_fraction
from heatproof.axes.material import Material, charted
from heatproof.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from heatproof.drawing.pieces import Item, Piece, Skipped, Table, about, subjects

NO_CERTIFICATE = "no certificate rows: add `certificate` to the study"
NO_RATES = "the certificates hold no rates: set `mode: estimate`"

rate_curves = charted("certificate", rate_chart, NO_CERTIFICATE, NO_RATES)


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
                cells[(cells["measure"] == measure) & (cells["level"] == condition[1])].set_index(
                    "explainer"
                )
                for measure in ("rate", "certified")
            )
            tests = statistics.paired_tests(
                [cube.select(conditions=[condition])], "rate", form="raw"
            )
            best = unbeaten(rate["mean"], tests, cube.controls)
            columns.append(
                {
                    str(e): Cell(r["mean"], r["low"], r["high"], str(e) in best)
                    for e, r in rate.iterrows()
                }
            )
            columns.append({str(e): Cell(float(v)) for e, v in bound["mean"].items()})
        missing = Cell(float("nan"))
        rows: list[list[Entry]] = [
            [escape(e), *(c.get(e, missing) for c in columns)] for e in cube.explainers
        ]
        heads = ["Method", *(text for _, x in radii for text in (f"$r={x:g}$", "guar."))]
        caption = f"Stability rate within radius r: {about(cube)}. Mean over samples with 95 % intervals; "
        caption += f"guar.: the mean lower bound at confidence {1 - delta(judged):g} for each sample. Bold: the "
        caption += "highest rate and all that the corrected paired test does not separate from it "
        caption += "at that radius; controls are never bold."
        yield Table(subject, caption, Tabular(heads, rows))


ITEMS = (
    Item("certificate-rates", "soft stability, Figures 6 and 11", "figure", rate_curves),
    Item("certificate-scores", "soft stability, Figure 6 as a table", "table", rate_table),
)
