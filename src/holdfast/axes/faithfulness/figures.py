"""The ROAD paper's figures and tables: removal curves with and without retraining, and whether rankings agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from holdfast import statistics
from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness import AXIS, RETRAINING, frames
from holdfast.axes.faithfulness.consistency import COLUMNS, FEWEST, consistency
from holdfast.axes.faithfulness.curve_charts import random_curve, untouched
from holdfast.axes.faithfulness.frames import HEADLINES, RANDOM
from holdfast.axes.faithfulness.kinds import KINDS, Kind
from holdfast.axes.faithfulness.retraining.page import retrained_cube
from holdfast.axes.material import Material
from holdfast.drawing import style
from holdfast.drawing.charts import CONTROL
from holdfast.drawing.curves import curve, curve_panels, ticks_at
from holdfast.drawing.latex import MISSING, Cell, Entry, Tabular, escape, unbeaten
from holdfast.drawing.pieces import Item, Piece, Skipped, Table, about, pages, subjects
from holdfast.statistics.cubes import Cube

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_REMOVAL = "no removal rows: add `faithfulness` to the study"
NO_RETRAINING = "no retrained networks: run `holdfast.retrain` into this directory"
ORDERS = {"morf": "MoRF", "lerf": "LeRF"}
BOUNDED = ("accuracy", "probability")


def _swept(material: Material) -> list[Judged]:
    return [judged for judged in material.of(AXIS.name) if frames.imputers(judged.cube)]


def _places(material: Material) -> list[Judged]:
    """One of what was judged of each dataset and model that features were removed for, with or without retraining."""
    first: dict[tuple[str, str], Judged] = {}
    for judged in (*material.of(AXIS.name), *material.of(RETRAINING.name)):
        first.setdefault((judged.cube.dataset, judged.cube.model), judged)
    return list(first.values())


def removal_curves(material: Material, width: float) -> Iterator[Piece]:
    """Readouts against the share removed, most and least relevant first, a figure for every imputer and readout."""
    swept = _swept(material)
    if not swept:
        yield Skipped("", NO_REMOVAL)
    for judged, subject in zip(swept, subjects([judged.cube for judged in swept]), strict=True):
        imputers, words = frames.imputers(judged.cube), frames.words(judged)
        readouts = dict.fromkeys(["accuracy", frames.readout(judged)])
        for readout in (r for r in readouts if r in judged.cube.values):
            start = untouched(judged, readout)
            for imputer in imputers:
                control = random_curve(judged.cube, imputer, readout)
                cells = _cells(judged.cube, readout, imputer)
                if cells["mean"].isna().all():
                    yield Skipped(subject, f"{imputer}, {readout}: no number")
                    continue
                figures = removal_figures(cells, material.looks, readout, width, control, start, words)
                told = [subject, imputer if len(imputers) > 1 else "", readout]
                caption = f"Removal without retraining, filled in by {imputer}: {about(judged.cube)}. "
                caption += _caption(readout, words, len(control) > 0)
                yield from pages(", ".join(filter(None, told)), caption, figures)


def _caption(readout: str, words: Kind, control: bool) -> str:
    text = f"{readout.capitalize()} as {words.parts} go, the most (MoRF) or the least (LeRF) relevant first. In MoRF "
    text += "lower is better, in LeRF higher. Bands are 95 % bootstrap intervals over samples."
    return text + (f" Dashed: {words.parts} go in a random order." if control else "")


def _cells(cube: Cube, readout: str, imputer: str) -> pd.DataFrame:
    wanted = [c for c in frames.swept(cube, imputer) if cube.made_of(c[0]).order in ORDERS]
    return frames.with_makeup(statistics.summary([cube.select(measures=[readout], conditions=wanted)]), cube)


def removal_figures(
    cells: pd.DataFrame,
    looks: style.Looks,
    readout: str,
    width: float,
    control: pd.DataFrame,
    start: float | None = None,
    words: Kind = KINDS["image"],
) -> list[Figure]:
    """MoRF beside LeRF; `cells` are rows of `statistics.summary` with orders, `control` those of `random_curve`."""
    whole = f"whole {words.sample}"
    shown = [order for order in ORDERS if (cells["order"] == order).any()]
    scored = set(cells.loc[cells["mean"].notna(), "explainer"])
    drawn = {e: look for e, look in looks.items() if e in scored}

    def draw(axes: Axes, column: int, explainer: str, look: dict[str, Any]) -> None:
        here = (cells["explainer"] == explainer) & (cells["order"] == shown[column])
        curve(axes, cells[here], look, explainer, bars=False)

    def finish(axes: Axes, column: int, first: bool) -> None:
        if len(control):
            dashed = {"color": CONTROL, "linestyle": (0, (4, 2)), "linewidth": 0.9, "marker": ""}
            curve(axes, control, dashed, RANDOM, bars=False)
        if start is not None:
            axes.plot([0], [start], marker="_", markersize=6, color="#333333", linestyle="", label=whole)
        ticks_at(axes, [0.0, *cells["level"]], 0.09)
        axes.set_xlabel(f"share of {words.parts} removed")
        axes.set_ylabel(readout if first else "")
        if readout in BOUNDED:
            axes.set_ylim(-0.03, 1.05)

    extra = [*([RANDOM] if len(control) else []), *([whole] if start is not None else [])]
    return curve_panels(drawn, [ORDERS[order] for order in shown], width, draw, finish, extra)


def retrained_curves(material: Material, width: float) -> Iterator[Piece]:
    """Accuracy of networks retrained on what is left, both orders, a figure for every imputer."""
    retrained = [cube for judged in _places(material) if (cube := retrained_cube(judged)) is not None]
    if not retrained:
        yield Skipped("", NO_RETRAINING if _swept(material) else NO_REMOVAL)
    for cube, subject in zip(retrained, subjects(retrained), strict=True):
        imputers = frames.imputers(cube)
        for imputer in imputers:
            control = random_curve(cube, imputer, "accuracy")
            cells = _cells(cube, "accuracy", imputer)
            figures = removal_figures(cells, material.looks, "accuracy", width, control)
            told = [subject, imputer if len(imputers) > 1 else ""]
            caption = f"Removal with retraining, filled in by {imputer}: {about(cube)}. "
            caption += _caption("accuracy", KINDS["image"], len(control) > 0)
            yield from pages(", ".join(filter(None, told)), caption, figures)


def _agreements(material: Material, kind: str) -> pd.DataFrame:
    """Mean rank correlations of one kind, a row for each pair of strategies; by accuracy as in the paper."""
    compared = [consistency(judged.related) for judged in _places(material)]
    pairs = pd.concat([pairs for pairs in compared if len(pairs)] or [pd.DataFrame(columns=COLUMNS)])
    return pairs[pairs["level"].isna() & (pairs["kind"] == kind)]


def order_table(material: Material, width: float) -> Iterator[Piece]:
    """MoRF against LeRF for every imputer, with and without retraining."""
    pairs = _agreements(material, "order")
    if pairs.empty:
        yield Skipped("", "no curves in both orders: add `faithfulness` with orders: [morf, lerf] to the study")
        return
    again = pairs["evaluation"] == RETRAINING.name
    sections = {"Retrain": pairs[again], "No-Retrain": pairs[~again]}
    caption = "Spearman's rank correlation of the methods' rankings between MoRF and LeRF by accuracy, mean over the "
    caption += "fractions removed"
    yield from _agreement_table(caption, {name: rows for name, rows in sections.items() if len(rows)})


def retraining_table(material: Material, width: float) -> Iterator[Piece]:
    """With against without retraining for every imputer, in both orders."""
    pairs = _agreements(material, "retraining")
    if pairs.empty:
        yield Skipped("", NO_RETRAINING if _swept(material) else NO_REMOVAL)
        return
    sections = {title: pairs[pairs["a_order"] == order] for order, title in ORDERS.items()}
    caption = "Spearman's rank correlation of the methods' rankings with and without retraining by accuracy, mean over "
    caption += "the fractions removed"
    yield from _agreement_table(caption, {name: rows for name, rows in sections.items() if len(rows)})


def _agreement_table(caption: str, sections: dict[str, pd.DataFrame]) -> Iterator[Piece]:
    every = pd.concat(sections.values())
    if every["spearman"].isna().all():
        yield Skipped("", f"fewer than {FEWEST} methods besides controls: rankings cannot be compared")
        return
    places = list(dict.fromkeys(zip(every["dataset"], every["model"], strict=True)))
    spans: list[tuple[str, int]] = [("", 1)]
    heads, keys = ["Model"], []
    for name, rows in sections.items():
        own = frames.primary_first(dict.fromkeys(rows["a_imputer"]))[::-1]  # the paper's own last, as in its tables
        spans.append((name, len(own)))
        heads += [escape(imputer) for imputer in own]
        keys += [(name, imputer) for imputer in own]
    body: list[list[Entry]] = []
    for dataset, model in places:
        line: list[Entry] = [escape(f"{model}, {dataset}" if len({d for d, _ in places}) > 1 else str(model))]
        for name, imputer in keys:
            rows = sections[name]
            here = rows[(rows["dataset"] == dataset) & (rows["model"] == model) & (rows["a_imputer"] == imputer)]
            line.append(Cell(*here.iloc[0][["spearman", "low", "high"]].astype(float)) if len(here) else MISSING)
        body.append(line)
    caption += f" ({int(every['explainers'].max())} methods; controls are left out). Brackets: "
    caption += "95 % bootstrap intervals over samples. Nothing is bold: imputers are not compared by a test."
    yield Table("", caption, Tabular(heads, body, spans=spans))


def score_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by metrics: ROAD first, then what else the run has; bold within each metric."""
    scored = [judged for judged in material.of(AXIS.name) if frames.best_headline(judged.cube) is not None]
    if not scored:
        yield Skipped("", NO_REMOVAL)
    for judged, subject in zip(scored, subjects([judged.cube for judged in scored]), strict=True):
        heads, columns = ["Method"], []
        for measure in HEADLINES:
            lines = frames.lines(judged.cube, measure)
            for line in lines:
                standings = frames.standings(judged.cube, measure, line).set_index("explainer")
                tests = frames.comparisons(judged.cube, measure, line)
                best = unbeaten(standings["mean"], tests, judged.cube.controls, measure.sign)
                columns.append({str(e): _cell(r, str(e) in best) for e, r in standings.iterrows()})
                arrow = r"$\uparrow$" if measure.sign > 0 else r"$\downarrow$"
                told = f" ({escape(line.name)})" if len(lines) > 1 else ""
                heads.append(f"{escape(frames.short(measure))}{told} {arrow}")
        caption = (
            f"Faithfulness by method: {about(judged.cube)}. Arrows point to better. Bold: the best method and all "
        )
        caption += "that Wilcoxon's paired test with Holm's correction does not separate from it, column by column; "
        caption += "controls are never bold. Brackets: 95 % bootstrap intervals over samples."
        yield Table(subject, caption, Tabular(heads, _rows(frames.explainer_order(judged.cube), columns)))


def _cell(row: pd.Series, bold: bool) -> Cell:
    return Cell(float(row["mean"]), float(row["low"]), float(row["high"]), bold)


def _rows(explainers: Sequence[str], columns: Sequence[dict[str, Cell]]) -> list[list[Entry]]:
    return [[escape(e), *(column.get(e, MISSING) for column in columns)] for e in explainers]


ITEMS = (
    Item("removal-retrained", "ROAD, Figure 7", "figure", retrained_curves),
    Item("removal-curves", "ROAD, Figure 8", "figure", removal_curves),
    Item("removal-orders", "ROAD, Table 2", "table", order_table),
    Item("removal-retraining", "ROAD, Table 3", "table", retraining_table),
    Item("removal-scores", "ROAD score and others", "table", score_table),
)
