"""The ROAD paper's figures and tables: removal curves with and without retraining, and whether rankings agree."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from heatproof.axes.contract import AxisResult
from heatproof.axes.faithfulness import AXIS, RETRAINING, frames
from heatproof.axes.faithfulness.consistency import COLUMNS, FEWEST, consistency
from heatproof.axes.faithfulness.curve_charts import ORDERS, curve_chart
from heatproof.axes.faithfulness.frames import HEADLINES
from heatproof.axes.faithfulness.retraining.page import retraining_chart
from heatproof.axes.material import Material, drawings
from heatproof.drawing.latex import MISSING, Cell, Entry, Tabular, escape, unbeaten
from heatproof.drawing.pieces import Item, Piece, Skipped, Table, about, subjects
from heatproof.drawing.prose import records

NO_REMOVAL = "no removal rows: add `faithfulness` to the study"
NO_RETRAINING = "no retrained networks: run `heatproof.retrain` into this directory"


def _swept(material: Material) -> list[AxisResult]:
    return [judged for judged in material.of(AXIS.name) if frames.imputers(judged.cube)]


def _places(material: Material) -> list[AxisResult]:
    """One of what was judged of each dataset and model that features were removed for, with or without retraining."""
    first: dict[tuple[str, str], AxisResult] = {}
    for judged in (*material.of(AXIS.name), *material.of(RETRAINING.name)):
        first.setdefault((judged.cube.dataset, judged.cube.model), judged)
    return list(first.values())


def removal_curves(material: Material, width: float) -> Iterator[Piece]:
    """Readouts against the share removed, most and least relevant first, a figure for every imputer."""
    charts = [
        (judged, curve_chart(judged, imputer, frames.explainer_order(judged.cube)))
        for judged in _swept(material)
        for imputer in frames.imputers(judged.cube)
    ]
    yield from drawings(charts, NO_REMOVAL, "no number")


def retrained_curves(material: Material, width: float) -> Iterator[Piece]:
    """Accuracy of networks retrained on what is left, both orders."""
    charts = [
        (judged, chart)
        for judged in _places(material)
        if (chart := retraining_chart(judged)) is not None
    ]
    yield from drawings(charts, NO_RETRAINING if _swept(material) else NO_REMOVAL, "")


def _agreements(material: Material, kind: str) -> pd.DataFrame:
    """Mean rank correlations of one kind, a row for each pair of strategies; by accuracy as in the paper."""
    compared = [consistency(judged.related) for judged in _places(material)]
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
        judged for judged in material.of(AXIS.name) if frames.best_headline(judged.cube) is not None
    ]
    if not scored:
        yield Skipped("", NO_REMOVAL)
    for judged, subject in zip(scored, subjects([judged.cube for judged in scored]), strict=True):
        heads, columns = ["Method"], []
        for measure in HEADLINES:
            lines = frames.lines(judged.cube, measure)
            for line in lines:
                standings = frames.standings(judged.cube, measure, line)
                tests = frames.comparisons(judged.cube, measure, line)
                means = standings.set_index("explainer")["mean"]
                best = unbeaten(means, tests, judged.cube.controls, measure.sign)
                columns.append(
                    {
                        r.explainer: Cell(r.mean, r.low, r.high, r.explainer in best)
                        for r in records(standings)
                    }
                )
                arrow = r"$\uparrow$" if measure.sign > 0 else r"$\downarrow$"
                told = f" ({escape(line.name)})" if len(lines) > 1 else ""
                heads.append(f"{escape(frames.short(measure))}{told} {arrow}")
        caption = f"Faithfulness by method: {about(judged.cube)}. Arrows point to better. Bold: the best method and all "
        caption += "that the corrected paired test does not separate from it, column by column; "
        caption += "controls are never bold. Brackets: 95 % intervals over samples."
        order = frames.explainer_order(judged.cube)
        rows: list[list[Entry]] = [
            [escape(e), *(column.get(e, MISSING) for column in columns)] for e in order
        ]
        yield Table(subject, caption, Tabular(heads, rows))


ITEMS = (
    Item("removal-retrained", "ROAD, Figure 7", "figure", retrained_curves),
    Item("removal-curves", "ROAD, Figure 8", "figure", removal_curves),
    Item("removal-orders", "ROAD, Table 2", "table", order_table),
    Item("removal-retraining", "ROAD, Table 3", "table", retraining_table),
    Item("removal-scores", "ROAD score and others", "table", score_table),
)
