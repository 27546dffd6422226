"""Figures of the invariance paper: scores by method and group, symmetrised methods, and less invariant models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from heatproof.axes.material import Material, drawings
from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.axes.symmetry.frames import Symmetries, raw_tests, symmetries
from heatproof.axes.symmetry.page import (
    across,
    box_chart,
    convergence_chart,
    repair_chart,
    sensitivity_chart,
)
from heatproof.drawing.charts import Chart
from heatproof.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from heatproof.drawing.pieces import Drawing, Item, Piece, Skipped, Table, about, subjects
from heatproof.drawing.prose import number, records

PAPER = "explanation invariance"
NO_SYMMETRY = "no symmetry rows: add `symmetry` to the study"
NO_SCORE = "no explanation has a symmetry score"
NO_REPAIR = "no symmetrised explanations: set `repair` of `symmetry`, such as repair: [2, 4]"
NO_CURVE = "no curve: set `convergence` of `symmetry`: [1, 4, 16]"
NO_BALL = "no sensitivity: set `sensitivity` of `symmetry`: 0.02"


def _measured(material: Material) -> list[Symmetries]:
    """The frames of every evaluation of symmetry that scored explanations."""
    frames = [symmetries(result) for result in material.of(Symmetry.name)]
    return [measured for measured in frames if measured is not None]


def charts(
    chart: Callable[[Symmetries], Chart | None], why: str, material: Material, width: float
) -> Iterator[Piece]:
    """A chart of every evaluation that has the rows for it; `why` says what the others lack."""
    drawn = [(measured.result, chart(measured)) for measured in _measured(material)]
    yield from drawings(drawn, NO_SYMMETRY, why)


def score_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by kind with mean score, chance and floor; bold by the paired tests within each measure and kind."""
    every = _measured(material)
    if not every:
        yield Skipped("", NO_SYMMETRY)
    for measured, subject in zip(every, subjects([m.result.arrays for m in every]), strict=True):
        if measured.means["mean"].isna().all():
            yield Skipped(subject, NO_SCORE)
            continue
        model = number(measured.model.value, 3)
        caption = f"Symmetry of explanations: {about(measured.result.arrays)}, group {measured.title}; model invariance "
        caption += f"{model}. Chance: against the explanations of other samples; noise floor: the same input with other "
        caption += "random draws. Bold: the best method and all that the corrected paired test does not separate from "
        caption += "it; controls are never bold. Brackets: 95 % intervals over samples."
        rows, rules = _table_rows(measured)
        columns = ["Method", "Score", "Chance", "Noise floor", "Scored"]
        yield Table(subject, caption, Tabular(columns, rows, rules))


def _table_rows(measured: Symmetries) -> tuple[list[list[Entry]], dict[int, str]]:
    """The rows of the table, and the headings of kinds by the row that they stand above."""
    rows: list[list[Entry]] = []
    headings: dict[int, str] = {}
    for (kind, measure), methods in measured.means.groupby(["kind", "measure"], sort=False):
        headings[len(rows)] = escape(f"{kind} explanations: {measure}")
        tests = raw_tests(measured, methods)
        best = unbeaten(methods.set_index("explainer")["mean"], tests, measured.controls)
        for row in records(methods):
            is_best = row.explainer in best
            rows.append(
                [
                    escape(row.explainer),
                    Cell(row.mean, row.mean_low, row.mean_high, is_best),
                    Cell(row.chance),
                    Cell(row.noise_floor),
                    f"{row.n}/{row.attempted}",
                ]
            )
    return rows, headings


def relaxed(material: Material, width: float) -> Iterator[Piece]:
    """Means of several models against their own invariance, a curve per method."""
    results = material.of(Symmetry.name)
    if not results:
        yield Skipped("", NO_SYMMETRY)
        return
    drawn = across(results)
    for chart in drawn:
        dataset = chart.title.partition(": ")[2]
        yield Drawing(dataset if len(drawn) > 1 else "", chart.caption, chart.every)
    if not drawn:
        yield Skipped("", "only one model: name models of different invariance under `models`")


ITEMS = (
    Item("symmetry-boxes", f"{PAPER}, Figure 3", "figure", partial(charts, box_chart, NO_SCORE)),
    Item(
        "symmetry-symmetrised",
        f"{PAPER}, Figure 4",
        "figure",
        partial(charts, repair_chart, NO_REPAIR),
    ),
    Item("symmetry-relaxed", f"{PAPER}, Figure 5", "figure", relaxed),
    Item(
        "symmetry-convergence",
        f"{PAPER}, Figure 7",
        "figure",
        partial(charts, convergence_chart, NO_CURVE),
    ),
    Item(
        "symmetry-sensitivity",
        f"{PAPER}, Figure 8",
        "figure",
        partial(charts, sensitivity_chart, NO_BALL),
    ),
    Item("symmetry-scores", f"{PAPER}, Tables 14 and 15", "table", score_table),
)
