"""The symmetry section of the page: scores by method, against the model's own invariance, repair and sensitivity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from holdfast.axes.contract import Judged, Page
from holdfast.axes.symmetry.evaluation import CONVERGENCE
from holdfast.axes.symmetry.frames import SCORES, Symmetries, repaired, symmetries
from holdfast.axes.symmetry.panels import failures, flow_chart, layer_table
from holdfast.axes.symmetry.relations import (
    dot_limit,
    models_chart,
    relaxed_chart,
    score_title,
    sensitivity_chart,
    thinned,
)
from holdfast.axes.symmetry.words import lead
from holdfast.drawing.charts import Chart, Panel
from holdfast.drawing.methods import Look
from holdfast.drawing.plots import Curve, Mark, by_method, dots, mark, of_marks
from holdfast.drawing.prose import number, records

MEANINGS = {
    "equivariance": "1 means that the map moves exactly as the input does",
    "invariance": "1 means that the importances of examples or concepts do not change",
}


def parts(judged: Judged) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    measured = symmetries(judged)
    drawn: list[Chart | Panel | None] = []
    if measured is not None:
        drawn += [box_chart(measured), flow_chart(measured), relaxed_chart(measured)]
        drawn += [repair_chart(measured), convergence_chart(measured), sensitivity_chart(measured)]
    drawn += [layer_table(judged), failures(judged, measured)]
    return [part for part in drawn if part is not None]


def across(judged: Sequence[Judged]) -> list[Chart]:
    """How symmetry of explanations goes with that of the model, for every evaluation of several models on one dataset.

    >>> across([])
    []
    """
    models: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        models.setdefault((one.cube.dataset, one.cube.evaluation), []).append(one)
    charts = (models_chart(dataset, every) for (dataset, _), every in models.items())
    return [chart for chart in charts if chart is not None]


def box_chart(measured: Symmetries) -> Chart | None:
    """The mean of every method over faint dots for samples, a plot for each kind, the best at the top."""
    rows = measured.means[measured.means["mean"].notna()]
    if rows.empty:
        return None
    shown, plots = {}, []
    for r in records(rows):
        own = measured.scores[(measured.scores["explainer"] == r.explainer) & measured.scores["value"].notna()]
        said = [f"{r.n} of {r.attempted} samples", *(f"{k} {number(v)}" for k, v in _beside(r).items())]
        made = mark(measured.judged.looks[r.explainer], r.mean, r.mean_low, r.mean_high, r.chance)
        cloud = own["value"].iloc[thinned(len(own), dot_limit(len(rows)))].tolist()
        shown[r.explainer] = replace(made, said=", ".join(said), cloud=cloud)
    ends = of_marks(shown.values(), 0.0, 1.0)
    for (kind, measure), part in rows.groupby(["kind", "measure"], sort=False):
        # a chance that methods share is a line; where it differs it stands beside each number
        levels = part["chance"].round(3).dropna().unique()
        guides = [("chance", float(levels[0]))] if len(levels) == 1 else []
        title = f"{str(kind).capitalize()} explanations" if rows["kind"].nunique() > 1 else str(measure).capitalize()
        plots.append(dots(title, [shown[e] for e in part["explainer"]], ends, str(measure), guides=guides, width=340))
    best = measured.means.iloc[0]
    name = measured.judged.looks[best["explainer"]].name
    alt = f"Scores of {len(rows)} explainers over samples; first {name} with {number(best['mean'])}."
    return Chart("boxes", "Scores by method", _box_caption(measured, rows), alt, plots)


def _beside(row: Any) -> dict[str, float]:
    """What stands beside a mean, where it was measured."""
    return {name: value for name, value in (("chance", row.chance), ("floor", row.floor)) if math.isfinite(value)}


def _box_caption(measured: Symmetries, rows: pd.DataFrame) -> str:
    caption = f"Group: {measured.title}. {'; '.join(MEANINGS[m] for m in SCORES if m in set(rows['measure']))}. "
    caption += "Faint dots are samples, the large one is their mean, the band its 95 % interval. "
    if rows["chance"].notna().any():
        caption += "Hollow: the interval reaches chance, the score against the explanations of other samples"
        lifted = measured.whole and measured.elements > 1
        caption += ", with the identity counted, which always scores 1. " if lifted else ". "
    if rows["floor"].notna().any():
        caption += "Floor is what a random method scores against itself on the same input. "
    if rows["control"].any():
        caption += "Grey methods are controls. "
    if measured.whole:
        return f"{caption}All {measured.elements} elements of the group were tried, so there is no Monte-Carlo error."
    error = number(float(rows["error"].median()))
    caption += f"{measured.elements} elements were drawn for each sample: a dot is known to ±{error} (median bound), "
    return caption + "and the intervals of the means include that error."


def repair_chart(measured: Symmetries) -> Chart | None:
    """The score of a method averaged over n elements, from the plain one at n = 1."""
    caption = "The explanation averaged over n elements, at the cost of n explanations; n = 1 is the method as it is. "
    nearly = "nearly " if measured.interpolates else ""
    caption += (
        f"Over the whole group the score is {nearly}1 by construction, which says nothing about faithfulness and "
    )
    caption += "is only worth having where the model is invariant. "
    if measured.invariant is False:
        caption += "This model is not: averaging hides what it does differently on moved inputs. "
    return _by_elements(measured, repaired(measured), "repair", "Symmetrised explanations", "averaged over", caption)


def convergence_chart(measured: Symmetries) -> Chart | None:
    """The score over the first n elements that were tried, which settles as n grows."""
    caption = "The mean over the first n of the elements that were drawn: where a curve is level, more would not help. "
    rows = repaired(measured, CONVERGENCE)
    return _by_elements(measured, rows, "convergence", "Convergence of the scores", "tried", caption)


def _by_elements(
    measured: Symmetries, rows: pd.DataFrame, name: str, title: str, what: str, caption: str
) -> Chart | None:
    if rows.empty:
        return None
    order = [e for e in measured.means["explainer"] if e in set(rows["explainer"])]
    lines: list[tuple[Look, list[Curve]]] = []
    for look, own in ((measured.judged.looks[e], rows[rows["explainer"] == e]) for e in order):
        marks = [
            Mark(look.name, r.mean, r.low, r.high, look.colour, x=r.level)
            for r in records(own[own["mean"].notna()].sort_values("level"))
        ]
        lines.append((look, [Curve("", marks, look.colour)]))
    ends = of_marks([m for _, own in lines for line in own for m in line.marks], 0.0, 1.0)
    alt = f"Curves of the score over {rows['level'].nunique()} numbers of elements for {len(order)} methods."
    caption += "Bars are 95 % intervals over samples."
    plots = by_method(lines, ends, f"n, elements {what}", score_title(rows["measure"]), log=True)
    return Chart(name, title, caption, alt, plots)


PAGE = Page(lead, parts, across)
