"""The ROAD paper's figures and tables: removal curves with and without retraining, and whether rankings agree."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from heatproof.axes.contract import AxisResult
from heatproof.axes.faithfulness import AXIS, RETRAINING, frames
from heatproof.axes.faithfulness.consistency import COLUMNS, FEWEST, consistency
from heatproof.axes.faithfulness.curve_charts import ORDERS, curve_chart
from heatproof.axes.faithfulness.frames import HEADLINES, Reading
from heatproof.axes.faithfulness.retraining.page import retraining_chart
from heatproof.axes.material import Material, drawings
from heatproof.drawing.latex import MISSING, Cell, Entry, Tabular, escape, unbeaten
from heatproof.drawing.pieces import Item, Piece, Skipped, Table, about, subjects
from heatproof.drawing.prose import records
from heatproof.evaluation import Measure
from heatproof.statistics.cubes import Cube

NO_REMOVAL = "no removal rows: add `faithfulness` to the study"
NO_RETRAINING = "no retrained networks: run `heatproof.retrain` into this directory"


def _swept(material: Material) -> list[AxisResult]:
    return [result for result in material.of(AXIS.name) if frames.imputers(result.cube)]


def _places(material: Material) -> list[AxisResult]:
    """One of what was result of each dataset and model that features were removed for, with or without retraining."""
    first: dict[tuple[str, str], AxisResult] = {}
    for result in (*material.of(AXIS.name), *material.of(RETRAINING.name)):
        first.setdefault((result.cube.dataset, result.cube.model), result)
    return list(first.values())


def removal_curves(material: Material, width: float) -> Iterator[Piece]:
    """Readouts against the share removed, most and least relevant first, a figure for every imputer."""
    charts = [
        (result, curve_chart(result, imputer, frames.explainer_order(result.cube)))
        for result in _swept(material)
        for imputer in frames.imputers(result.cube)
    ]
    yield from drawings(charts, NO_REMOVAL, "no number")


def retrained_curves(material: Material, width: float) -> Iterator[Piece]:
    """Accuracy of networks retrained on what is left, both orders."""
    charts = [
        (result, chart)
        for result in _places(material)
        if (chart := retraining_chart(result)) is not None
    ]
    yield from drawings(charts, NO_RETRAINING if _swept(material) else NO_REMOVAL, "")


def _agreements(material: Material, kind: str) -> pd.DataFrame:
    """Mean rank correlations of one kind, a row for each pair of strategies; by accuracy as in the paper."""
    compared = [consistency(result.related) for result in _places(material)]
    pairs = pd.concat(
        [pairs for pairs in compared if len(pairs)] or [pd.DataFrame(columns=COLUMNS)]
    )
    return pairs[pairs["level"].isna() & (pairs["kind"] == kind)]


def order_table(material: Material, width: float) -> Iterator[Piece]:
    """MoRF against LeRF for every imputer, with and without retraining."""
    pairs = _agreements(material, "order")
    again = pairs["evaluation"] == RETRAINING.name
    why = "no curves in both orders: add `faithfulness` with orders: [morf, lerf] to the study"
    yield from _agreement_table(
        "between MoRF and LeRF", {"Retrain": pairs[again], "No-Retrain": pairs[~again]}, why
    )


def retraining_table(material: Material, width: float) -> Iterator[Piece]:
    """With against without retraining for every imputer, in both orders."""
    pairs = _agreements(material, "retraining")
    sections = {title: pairs[pairs["a_order"] == order] for order, title in ORDERS.items()}
    why = NO_RETRAINING if _swept(material) else NO_REMOVAL
    yield from _agreement_table("with and without retraining", sections, why)


def _agreement_table(
    compared: str, sections: dict[str, pd.DataFrame], nothing: str
) -> Iterator[Piece]:
    sections = {name: rows for name, rows in sections.items() if len(rows)}
    if not sections:
        yield Skipped("", nothing)
        return
    every = pd.concat(sections.values())
    if every["spearman"].isna().all():
        yield Skipped(
            "", f"fewer than {FEWEST} methods besides controls: rankings cannot be compared"
        )
        return
    places = list(dict.fromkeys(zip(every["dataset"], every["model"], strict=True)))
    spans: list[tuple[str, int]] = [("", 1)]
    heads, keys = ["Model"], []
    for name, rows in sections.items():
        own = frames.primary_first(dict.fromkeys(rows["a_imputer"]))[
            ::-1
        ]  # the paper's own last, as in its tables
        spans.append((name, len(own)))
        heads += [escape(imputer) for imputer in own]
        keys += [(name, imputer) for imputer in own]
    body: list[list[Entry]] = []
    for dataset, model in places:
        line: list[Entry] = [
            escape(f"{model}, {dataset}" if len({d for d, _ in places}) > 1 else str(model))
        ]
        for name, imputer in keys:
            rows = sections[name]
            here = rows[
                (rows["dataset"] == dataset)
                & (rows["model"] == model)
                & (rows["a_imputer"] == imputer)
            ]
            line.append(
                Cell(*here.iloc[0][["spearman", "low", "high"]].astype(float))
                if len(here)
                else MISSING
            )
        body.append(line)
    caption = f"Spearman's rank correlation of the methods' rankings {compared} by accuracy, mean over the fractions "
    caption += (
        f"removed ({int(every['explainers'].max())} methods; controls are left out). Brackets: "
    )
    caption += "95 % intervals over samples. Nothing is bold: imputers are not compared by a test."
    yield Table("", caption, Tabular(heads, body, spans=spans))


def score_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by metrics: ROAD first, then what else the run has; bold within each metric."""
    scored = [
        result for result in material.of(AXIS.name) if frames.best_headline(result.cube) is not None
    ]
    if not scored:
        yield Skipped("", NO_REMOVAL)
    for result, subject in zip(scored, subjects([result.cube for result in scored]), strict=True):
        cube = result.cube
        heads, columns = ["Method"], []
        for measure in HEADLINES:
            readings = frames.readings(cube, measure)
            arrow = r"$\uparrow$" if measure.sign > 0 else r"$\downarrow$"
            for reading in readings:
                where = f" ({escape(reading.name)})" if len(readings) > 1 else ""
                heads.append(f"{escape(frames.short(measure))}{where} {arrow}")
                columns.append(_score_column(cube, measure, reading))
        caption = f"Faithfulness by method: {about(cube)}. Arrows point to better. Bold: the best method and all "
        caption += "that the corrected paired test does not separate from it, column by column; "
        caption += "controls are never bold. Brackets: 95 % intervals over samples."
        rows: list[list[Entry]] = [
            [escape(e), *(column.get(e, MISSING) for column in columns)]
            for e in frames.explainer_order(cube)
        ]
        yield Table(subject, caption, Tabular(heads, rows))


def _score_column(cube: Cube, measure: Measure, reading: Reading) -> dict[str, Cell]:
    """explainer -> its score, bold where no other method is shown to be better."""
    standings = frames.standings(cube, measure, reading)
    tests = frames.comparisons(cube, measure, reading)
    means = standings.set_index("explainer")["mean"]
    best = unbeaten(means, tests, cube.controls, measure.sign)
    return {
        r.explainer: Cell(r.mean, r.low, r.high, r.explainer in best) for r in records(standings)
    }


ITEMS = (
    Item("removal-retrained", "ROAD, Figure 7", "figure", retrained_curves),
    Item("removal-curves", "ROAD, Figure 8", "figure", removal_curves),
    Item("removal-orders", "ROAD, Table 2", "table", order_table),
    Item("removal-retraining", "ROAD, Table 3", "table", retraining_table),
    Item("removal-scores", "ROAD score and others", "table", score_table),
)
