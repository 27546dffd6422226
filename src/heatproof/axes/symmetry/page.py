"""The symmetry section of the page: scores by method, against the model's own invariance, repair and sensitivity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.symmetry.frames import (
    INVARIANT,
    SCORES,
    Symmetries,
    convergence_curves,
    symmetries,
    symmetrised_curves,
)
from heatproof.axes.symmetry.panels import failures, flow_chart, layer_table
from heatproof.axes.symmetry.words import lead
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import Look
from heatproof.drawing.plots import Curve, Mark, by_method, dots, mark, of_marks, span
from heatproof.drawing.prose import number, records, with_interval
from heatproof.drawing.scatter import points
from heatproof.drawing.sheet import Plot
from heatproof.results.axis_result import AxisResult
from heatproof.results.reports import Page
from heatproof.statistics.arrays import Array
from heatproof.statistics.ranks import spearman

MOST_DOTS = 400
ALL_DOTS = 4000
MEANINGS = {
    "equivariance": "1 means that the map moves exactly as the input does",
    "invariance": "1 means that the importances of examples or concepts do not change",
}


def parts(result: AxisResult) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    measured = symmetries(result)
    drawn: list[Chart | Panel | None] = []
    if measured is not None:
        drawn += [
            box_chart(measured),
            flow_chart(measured),
            relaxed_chart(measured),
            repair_chart(measured),
            convergence_chart(measured),
            sensitivity_chart(measured),
        ]
    drawn += [layer_table(result), failures(result)]
    return [part for part in drawn if part is not None]


def across(results: Sequence[AxisResult]) -> list[Chart]:
    """How symmetry of explanations goes with that of the model, for every evaluation of several models on one dataset.

    >>> across([])
    []
    """
    by_evaluation: dict[tuple[str, str], list[AxisResult]] = {}
    for result in results:
        key = (result.dataset, result.label)
        by_evaluation.setdefault(key, []).append(result)
    charts = [models_chart(dataset, models) for (dataset, _), models in by_evaluation.items()]
    return [chart for chart in charts if chart is not None]


def box_chart(measured: Symmetries) -> Chart | None:
    """The mean of every method over faint dots for samples, a plot for each kind, the best at the top."""
    rows = measured.means[measured.means["mean"].notna()]
    if rows.empty:
        return None
    marks = {row.explainer: _method_mark(measured, row, len(rows)) for row in records(rows)}
    limits = of_marks(marks.values(), 0.0, 1.0)
    plots = []
    for (kind, measure), methods in rows.groupby(["kind", "measure"], sort=False):
        has_one_kind = rows["kind"].nunique() == 1
        title = str(measure) if has_one_kind else f"{kind} explanations"
        # A chance level that methods share is a line; where it differs it stands beside each number.
        levels = methods["chance"].round(3).dropna().unique()
        guides = [("chance", float(levels[0]))] if len(levels) == 1 else []
        shown = [marks[explainer] for explainer in methods["explainer"]]
        plots.append(
            dots(title.capitalize(), shown, limits, str(measure), guides=guides, width=340)
        )
    best = rows.iloc[0]
    name = measured.result.looks[best["explainer"]].name
    alt = (
        f"Scores of {len(rows)} explainers over samples; first {name} with {number(best['mean'])}."
    )
    return Chart("boxes", "Scores by method", _box_caption(measured, rows), alt, plots)


def _method_mark(measured: Symmetries, row: Any, explainers: int) -> Mark:
    """The mean of a row of `Symmetries.means`, with the scores of its samples as a cloud."""
    is_own = measured.scores["explainer"] == row.explainer
    values = measured.scores.loc[is_own, "value"].dropna()
    notes = [f"{row.n} of {row.attempted} samples"]
    if math.isfinite(row.chance):
        notes.append(f"chance {number(row.chance)}")
    if math.isfinite(row.noise_floor):
        notes.append(f"noise floor {number(row.noise_floor)}")
    look = measured.result.looks[row.explainer]
    return replace(
        mark(look, row.mean, row.mean_low, row.mean_high, row.chance),
        said=", ".join(notes),
        cloud=values.iloc[thinned(len(values), dot_limit(explainers))].tolist(),
    )


def _box_caption(measured: Symmetries, rows: pd.DataFrame) -> str:
    caption = f"Group: {measured.title}. {'; '.join(MEANINGS[m] for m in SCORES if m in set(rows['measure']))}. "
    caption += "Faint dots are samples, the large one is their mean, the band its 95 % interval. "
    if rows["chance"].notna().any():
        caption += "Hollow: the interval reaches chance, the score against the explanations of other samples"
        lifted = measured.whole and measured.elements > 1
        caption += ", with the identity counted, which always scores 1. " if lifted else ". "
    if rows["noise_floor"].notna().any():
        caption += (
            "The noise floor is what a random method scores against itself on the same input. "
        )
    if rows["control"].any():
        caption += "Grey methods are controls. "
    if measured.whole:
        return f"{caption}All {measured.elements} elements of the group were tried, so there is no Monte-Carlo error."
    error = number(float(rows["error"].dropna().median()))
    caption += f"{measured.elements} elements were drawn for each sample: a dot is known to ±{error} (median bound), "
    return caption + "and the intervals of the means include that error."


def repair_chart(measured: Symmetries) -> Chart | None:
    """The score of a method averaged over n elements, from the plain one at n = 1."""
    caption = "The explanation averaged over n elements, at the cost of n explanations; n = 1 is the method as it is. "
    nearly = "nearly " if measured.interpolates else ""
    caption += f"Over the whole group the score is {nearly}1 by construction, which says nothing about faithfulness and "
    caption += "is only worth having where the model is invariant. "
    if measured.invariant is False:
        caption += "This model is not: averaging hides what it does differently on moved inputs. "
    curves = symmetrised_curves(measured)
    title = "Symmetrised explanations"
    return _by_elements(measured, curves, "repair", title, "averaged over", caption)


def convergence_chart(measured: Symmetries) -> Chart | None:
    """The score over the first n elements that were tried, which settles as n grows."""
    caption = "The mean over the first n of the elements that were drawn: where a curve is level, more would not help. "
    curves = convergence_curves(measured)
    title = "Convergence of the scores"
    return _by_elements(measured, curves, "convergence", title, "tried", caption)


def _by_elements(
    measured: Symmetries, scores: pd.DataFrame, key: str, title: str, what: str, caption: str
) -> Chart | None:
    """A curve per method of the score against the number of elements, best method first; None without scores."""
    if scores.empty:
        return None
    lines: list[tuple[Look, list[Curve]]] = []
    for explainer in measured.means["explainer"]:
        own = scores[scores["explainer"] == explainer].sort_values("level")
        if own.empty:
            continue
        look = measured.result.looks[explainer]
        marks = [
            Mark(look.name, point.mean, point.low, point.high, look.colour, x=point.level)
            for point in records(own)
        ]
        lines.append((look, [Curve("", marks, look.colour)]))
    limits = _limits(lines)
    x_title = f"n, elements {what}"
    plots = by_method(lines, limits, x_title, score_title(scores["measure"]), log=True)
    numbers = scores["level"].nunique()
    alt = f"Curves of the score over {numbers} numbers of elements for {len(lines)} methods."
    caption += "Bars are 95 % intervals over samples."
    return Chart(key, title, caption, alt, plots)


def _limits(lines: Sequence[tuple[Look, list[Curve]]]) -> tuple[float, float]:
    """The ends of the scale that all marks of some curves share."""
    marks = [mark for _, curves in lines for curve in curves for mark in curve.marks]
    return of_marks(marks, 0.0, 1.0)


def relaxed_chart(measured: Symmetries) -> Chart | None:
    """The score against the model's own invariance; None where the model is invariant on every sample."""
    scores = measured.scores.dropna(subset=["value", "model_invariance"])
    if scores.empty or scores["model_invariance"].min() >= INVARIANT:
        return None
    methods = measured.means[measured.means["explainer"].isin(scores["explainer"])]
    notes = {
        row.explainer: with_interval(row.mean, row.mean_low, row.mean_high)
        for row in records(methods)
    }
    plots = _clouds(measured, scores, "model_invariance", "model invariance", notes, diagonal=True)
    model = measured.model
    mean = with_interval(model.value, model.low, model.high)
    caption = f"A dot is a sample; the model’s invariance is {mean} on average, beside each "
    caption += "title the mean of the method. "
    caption += "On the dotted line an explanation is as alike as the predictions are. The relation need not be linear, "
    caption += "nor alike for two methods: a model that is nearly invariant can have explanations that are far from it."
    alt = f"Scores of {len(methods)} explainers against the model invariance, {number(model.value, 3)} on average."
    return Chart("relaxed", "Against the model’s own invariance", caption, alt, plots)


def _clouds(
    measured: Symmetries,
    scores: pd.DataFrame,
    x: str,
    title: str,
    notes: Mapping[str, str],
    diagonal: bool = False,
) -> list[Plot]:
    """A plot of samples for each method on common scales; the scale of x is logarithmic where it spans much."""
    order = [e for e in measured.means["explainer"] if e in set(scores["explainer"])]
    low, high = float(scores[x].min()), float(scores[x].max())
    log = not diagonal and low > 0 and high > 20 * low
    x_limits = (low * 0.9, high * 1.1) if log else span([low, high])
    y_limits = span(scores["value"], 0.0, 1.0)
    plots = []
    for explainer in order:
        cloud = scores[scores["explainer"] == explainer]
        thin = cloud.iloc[thinned(len(cloud), dot_limit(len(order)))]
        look = measured.result.looks[explainer]
        marks = [
            Mark(str(r.sample), r.value, colour=look.colour, x=getattr(r, x), method=look.name)
            for r in records(thin)
        ]
        plots.append(
            points(
                look.name,
                marks,
                x_limits,
                y_limits,
                title,
                score_title(cloud["measure"]),
                notes[explainer],
                diagonal=diagonal,
                small=True,
                log=log,
            )
        )
    return plots


def sensitivity_chart(measured: Symmetries) -> Chart | None:
    """The score against max-sensitivity, sample by sample, with Spearman's correlation for each method."""
    scores = measured.scores.dropna(subset=["value", "max_sensitivity"])
    if scores.empty:
        return None
    notes = {}
    for explainer, own in scores.groupby("explainer", sort=False):
        rho = correlation(own["max_sensitivity"].to_numpy(), own["value"].to_numpy())
        notes[str(explainer)] = f"ρ {rho}"
    plots = _clouds(measured, scores, "max_sensitivity", "max-sensitivity", notes)
    radius = measured.result.settings.get("sensitivity")
    caption = "How much an explanation changes within a small ball around the input"
    caption += f" (radius {radius:g})" if isinstance(radius, int | float) else ""
    caption += ", as a share of its size, against the score; a dot is a sample. ρ is Spearman’s correlation with its "
    caption += "95 % bootstrap interval. Near 0, the two axes tell of different faults."
    alt = f"Scatter of the score against max-sensitivity for {len(plots)} methods."
    return Chart("sensitivity", "Against sensitivity", caption, alt, plots)


def correlation(x: Array, y: Array, resamples: int = 500) -> str:
    """Spearman's correlation with a bootstrap interval over samples, in words.

    >>> correlation(np.arange(3.0), np.array([3.0, 2.0, 1.0])), correlation(np.arange(5.0), np.ones(5))
    ('−1.00, 3 samples', 'not defined')
    """
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return "not defined"
    value = float(spearman(x, y))
    if len(x) < 8:
        return f"{number(value)}, {len(x)} samples"
    drawn = np.random.default_rng(0).integers(0, len(x), (resamples, len(x)))
    draws = spearman(x[drawn], y[drawn])
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return with_interval(value, low, high)


def models_chart(dataset: str, results: Sequence[AxisResult]) -> Chart | None:
    """Means of several models of one dataset, a plot per method: the score against the invariance of the model."""
    all_measured = [measured for measured in map(symmetries, results) if measured is not None]
    models = [measured for measured in all_measured if measured.is_measured]
    models = sorted(models, key=lambda measured: measured.model.value)
    if len(models) < 2:
        return None
    means = pd.concat(measured.means.assign(place=i) for i, measured in enumerate(models))
    means = means[means["mean"].notna()]
    looks = {name: look for measured in models for name, look in measured.result.looks.items()}
    lines: list[tuple[Look, list[Curve]]] = []
    for explainer, rows in means.groupby("explainer", sort=False):
        look = looks[str(explainer)]
        marks = [_model_mark(look, models[row.place], row) for row in records(rows)]
        lines.append((look, [Curve("", marks, look.colour)]))
    limits = _limits(lines)
    plots = by_method(
        lines, limits, "model invariance", score_title(means["measure"]), diagonal=True
    )
    names = ", ".join(
        f"{measured.result.model} ({number(measured.model.value, 3)})" for measured in models
    )
    caption = f"Models from the least to the most invariant: {names}. Means over samples with 95 % intervals; on the "
    caption += "dotted line an explanation is as alike as the predictions are. What lies between two models was not "
    caption += "measured, and need not be on the lines."
    alt = f"Scores of {len(lines)} methods for {len(models)} models against their invariance."
    return Chart("models", f"Relaxed invariance: {dataset}", caption, alt, plots)


def _model_mark(look: Look, measured: Symmetries, row: Any) -> Mark:
    """The mean score of a method against the invariance of one model."""
    return Mark(
        look.name,
        row.mean,
        row.mean_low,
        row.mean_high,
        look.colour,
        x=measured.model.value,
        x_low=measured.model.low,
        x_high=measured.model.high,
        said=measured.result.model,
    )


def thinned(n: int, most: int) -> list[int]:
    """At most `most` of n rows, evenly spread, the same every time.

    >>> thinned(3, 5), thinned(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    return list(range(n)) if n <= most else [int(i) for i in np.linspace(0, n - 1, most).round()]


def dot_limit(explainers: int) -> int:
    """How many samples of each of several explainers are drawn at most."""
    return min(MOST_DOTS, max(20, ALL_DOTS // max(explainers, 1)))


def score_title(measures: Iterable[str]) -> str:
    """The title of an axis of scores.

    >>> score_title(["invariance", "equivariance", "invariance"])
    'equivariance or invariance'
    """
    there = set(measures)
    return " or ".join(m for m in SCORES if m in there) or "score"


PAGE = Page(lead, parts, across)
