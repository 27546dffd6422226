"""The ROAD paper's figures and tables: removal curves with and without retraining, and whether rankings agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from holdfast import statistics
from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness import frames as scores
from holdfast.axes.faithfulness.consistency import FEWEST, consistency
from holdfast.axes.faithfulness.curve_charts import random_curve, untouched
from holdfast.axes.faithfulness.frames import METRICS, RANDOM
from holdfast.axes.faithfulness.nouns import IMAGE, Nouns, nouns
from holdfast.drawing import style
from holdfast.drawing.charts import CONTROL
from holdfast.drawing.curves import curve, curve_panels, ticks_at
from holdfast.drawing.latex import MISSING, Cell, Entry, Tabular, escape, unbeaten
from holdfast.drawing.pieces import RETRAINING, Material, Piece, Skipped, Table, about, pages, subjects
from holdfast.report.axes import base_model, related_rows
from holdfast.statistics.cubes import Cube

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_REMOVAL = "no removal rows: add `faithfulness` to the study"
NO_RETRAINING = "no retrained networks: run `holdfast.retrain` into this directory"
ORDERS = {"morf": "MoRF", "lerf": "LeRF"}
BOUNDED = ("accuracy", "probability")


def _swept(material: Material) -> list[Judged]:
    return [axis for axis in material.axes if scores.imputers(axis.cube)]


def removal_curves(material: Material, width: float) -> Iterator[Piece]:
    """Readouts against the share removed, most and least relevant first, a figure for every imputer and readout."""
    axes_ = _swept(material)
    if not axes_:
        yield Skipped("", NO_REMOVAL)
    for axis, subject in zip(axes_, subjects([a.cube for a in axes_]), strict=True):
        found = scores.imputers(axis.cube)
        readouts = dict.fromkeys(["accuracy", str(axis.settings.get("readout") or "probability")])
        for readout in (r for r in readouts if r in axis.cube.values):
            for imputer in found:
                control = random_curve(axis.cube, imputer, readout)
                start = untouched(axis, readout)
                cells = _cells(axis.cube, readout, imputer)
                if cells["mean"].isna().all():
                    yield Skipped(subject, f"{imputer}, {readout}: no number")
                    continue
                words = nouns(axis)
                figures = removal_figures(cells, imputer, material.looks, readout, width, control, start, words)
                told = [subject, imputer if len(found) > 1 else "", readout]
                caption = f"Removal without retraining, filled in by {imputer}: {about(axis.cube)}. "
                caption += _caption(readout, words, len(control) > 0)
                yield from pages(", ".join(filter(None, told)), caption, figures)


def _caption(readout: str, words: Nouns, control: bool) -> str:
    text = f"{readout.capitalize()} as {words.parts} go, the most (MoRF) or the least (LeRF) relevant first. In MoRF "
    text += "lower is better, in LeRF higher. Bands are 95 % bootstrap intervals over samples."
    return text + (f" Dashed: {words.parts} go in a random order." if control else "")


def _cells(cube: Cube, readout: str, imputer: str) -> pd.DataFrame:
    wanted = [c for c in cube.conditions if c[0] in [f"{imputer} {order}" for order in ORDERS]]
    return statistics.summary([scores.cut(cube, [readout], wanted)])


def removal_figures(
    cells: pd.DataFrame,
    imputer: str,
    looks: style.Looks,
    readout: str,
    width: float,
    control: pd.DataFrame,
    start: float | None = None,
    words: Nouns = IMAGE,
) -> list[Figure]:
    """MoRF beside LeRF; `cells` are rows of `statistics.summary`, `control` those of `random_curve`."""
    whole = f"whole {words.sample}"
    shown = [order for order in ORDERS if (cells["condition"] == f"{imputer} {order}").any()]
    scored = set(cells.loc[cells["mean"].notna(), "explainer"])
    drawn = {e: look for e, look in looks.items() if e in scored}

    def draw(axes: Axes, column: int, explainer: str, look: dict[str, Any]) -> None:
        here = (cells["explainer"] == explainer) & (cells["condition"] == f"{imputer} {shown[column]}")
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
    if not material.retrained:
        yield Skipped("", NO_RETRAINING if _swept(material) else NO_REMOVAL)
    for cube, subject in zip(material.retrained, subjects(material.retrained), strict=True):
        found = scores.imputers(cube)
        for imputer in found:
            cells = _cells(cube, "accuracy", imputer)
            control = random_curve(cube, imputer, "accuracy")
            figures = removal_figures(cells, imputer, material.looks, "accuracy", width, control)
            told = [subject, imputer if len(found) > 1 else ""]
            caption = f"Removal with retraining, filled in by {imputer}: {about(cube)}. "
            caption += _caption("accuracy", IMAGE, len(control) > 0)
            yield from pages(", ".join(filter(None, told)), caption, figures)


def _agreements(material: Material, kind: str) -> pd.DataFrame:
    """Mean rank correlations of one kind, a row for each pair of strategies; by accuracy as in the paper."""
    rows = material.table[material.table["measure"] == "accuracy"]
    places = dict.fromkeys((cube.dataset, base_model(cube)) for cube in material.cubes)
    # one model at a time: `consistency` pools all retrained networks that it is given
    found = [consistency(related_rows(rows, *place)).assign(model=place[1]) for place in places]
    pairs = pd.concat([one for one in found if len(one)] or found[:1] or [consistency(rows)])
    return pairs[pairs["level"].isna() & (pairs["kind"] == kind)]


def order_table(material: Material, width: float) -> Iterator[Piece]:
    """MoRF against LeRF for every imputer, with and without retraining."""
    pairs = _agreements(material, "order")
    if pairs.empty:
        yield Skipped("", "no curves in both orders: add `faithfulness` with orders: [morf, lerf] to the study")
        return
    pairs = pairs.assign(imputer=pairs["a"].str.rsplit(" ", n=1).str[0], again=pairs["evaluation"] == RETRAINING)
    sections = {"Retrain": pairs[pairs["again"]], "No-Retrain": pairs[~pairs["again"]]}
    caption = "Spearman's rank correlation of the methods' rankings between MoRF and LeRF by accuracy, mean over the "
    caption += "fractions removed"
    yield from _agreement_table(caption, {name: rows for name, rows in sections.items() if len(rows)})


def retraining_table(material: Material, width: float) -> Iterator[Piece]:
    """With against without retraining for every imputer, in both orders."""
    pairs = _agreements(material, "retraining")
    if pairs.empty:
        yield Skipped("", NO_RETRAINING if _swept(material) else NO_REMOVAL)
        return
    strategy = pairs["a"].str.split(": ", n=1).str[1].str.rsplit(" ", n=1)
    pairs = pairs.assign(imputer=strategy.str[0], order=strategy.str[1])
    sections = {title: pairs[pairs["order"] == order] for order, title in ORDERS.items()}
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
        own = scores.primary_first(dict.fromkeys(rows["imputer"]))[::-1]  # the paper's own last, as in its tables
        spans.append((name, len(own)))
        heads += [escape(imputer) for imputer in own]
        keys += [(name, imputer) for imputer in own]
    body: list[list[Entry]] = []
    for dataset, model in places:
        line: list[Entry] = [escape(f"{model}, {dataset}" if len({d for d, _ in places}) > 1 else str(model))]
        for name, imputer in keys:
            rows = sections[name]
            here = rows[(rows["dataset"] == dataset) & (rows["model"] == model) & (rows["imputer"] == imputer)]
            line.append(Cell(*here.iloc[0][["spearman", "low", "high"]].astype(float)) if len(here) else MISSING)
        body.append(line)
    caption += f" ({int(every['explainers'].max())} methods; controls are left out). Brackets: "
    caption += "95 % bootstrap intervals over samples. Nothing is bold: imputers are not compared by a test."
    yield Table("", caption, Tabular(heads, body, spans=spans))


def score_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by metrics: ROAD first, then what else the run has; bold within each metric."""
    axes_ = [axis for axis in material.axes if any(scores.lines(axis.cube, m) for m in METRICS)]
    if not axes_:
        yield Skipped("", NO_REMOVAL)
    for axis, subject in zip(axes_, subjects([a.cube for a in axes_]), strict=True):
        heads, columns = ["Method"], []
        for metric in METRICS:
            found = scores.lines(axis.cube, metric)
            for line in found:
                standings = scores.standings(axis.cube, metric, line).set_index("explainer")
                best = unbeaten(standings["mean"], scores.comparisons(axis.cube, metric, line), metric.sign)
                columns.append({str(e): _cell(r, str(e) in best) for e, r in standings.iterrows()})
                arrow = r"$\uparrow$" if metric.sign > 0 else r"$\downarrow$"
                told = f" ({escape(line.name)})" if len(found) > 1 else ""
                heads.append(f"{escape(metric.title)}{told} {arrow}")
        caption = f"Faithfulness by method: {about(axis.cube)}. Arrows point to better. Bold: the best method and all "
        caption += "that Wilcoxon's paired test with Holm's correction does not separate from it, column by column; "
        caption += "controls are never bold. Brackets: 95 % bootstrap intervals over samples."
        yield Table(subject, caption, Tabular(heads, _rows(scores.explainer_order(axis.cube), columns)))


def _cell(row: pd.Series, bold: bool) -> Cell:
    return Cell(float(row["mean"]), float(row["low"]), float(row["high"]), bold)


def _rows(explainers: Sequence[str], columns: Sequence[dict[str, Cell]]) -> list[list[Entry]]:
    return [[escape(e), *(column.get(e, MISSING) for column in columns)] for e in explainers]
