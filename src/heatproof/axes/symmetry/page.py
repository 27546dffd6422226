"""The symmetry section of the page: scores by method, against the model's own invariance, repair and sensitivity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.contract import AxisResult, Page
from heatproof.axes.symmetry.evaluation import CONVERGENCE
from heatproof.axes.symmetry.frames import INVARIANT, SCORES, Symmetries, repaired, symmetries
from heatproof.axes.symmetry.panels import failures, flow_chart, layer_table, tiles
from heatproof.axes.symmetry.words import lead
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import Look
from heatproof.drawing.plots import Curve, Mark, by_method, dots, mark, of_marks, span
from heatproof.drawing.prose import number, records, with_interval
from heatproof.drawing.scatter import points
from heatproof.drawing.sheet import Plot
from heatproof.statistics.cubes import Array
from heatproof.statistics.ranks import spearman

MOST_DOTS = 400
ALL_DOTS = 4000
MEANINGS = {
    "equivariance": "1 means that the map moves exactly as the input does",
    "invariance": "1 means that the importances of examples or concepts do not change",
}


def parts(judged: AxisResult) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    measured = symmetries(judged)
    drawn: list[Chart | Panel | None] = []
    if measured is not None:
        drawn += [box_chart(measured), flow_chart(measured), relaxed_chart(measured)]
        drawn += [repair_chart(measured), convergence_chart(measured), sensitivity_chart(measured)]
    drawn += [layer_table(judged), failures(judged)]
    return [part for part in drawn if part is not None]


def across(judged: Sequence[AxisResult]) -> list[Chart]:
    """How symmetry of explanations goes with that of the model, for every evaluation of several models on one dataset.

    >>> across([])
    []
    """
    models: dict[tuple[str, str], list[AxisResult]] = {}
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
        own = measured.scores[
            (measured.scores["explainer"] == r.explainer) & measured.scores["value"].notna()
        ]
        said = [
            f"{r.n} of {r.attempted} samples",
            *(f"{k} {number(v)}" for k, v in _beside(r).items()),
        ]
        made = mark(measured.judged.looks[r.explainer], r.mean, r.mean_low, r.mean_high, r.chance)
        cloud = own["value"].iloc[thinned(len(own), dot_limit(len(rows)))].tolist()
        shown[r.explainer] = replace(made, said=", ".join(said), cloud=cloud)
    ends = of_marks(shown.values(), 0.0, 1.0)
    for (kind, measure), part in rows.groupby(["kind", "measure"], sort=False):
        # a chance that methods share is a line; where it differs it stands beside each number
        levels = part["chance"].round(3).dropna().unique()
        guides = [("chance", float(levels[0]))] if len(levels) == 1 else []
        title = (
            f"{str(kind).capitalize()} explanations"
            if rows["kind"].nunique() > 1
            else str(measure).capitalize()
        )
        plots.append(
            dots(
                title,
                [shown[e] for e in part["explainer"]],
                ends,
                str(measure),
                guides=guides,
                width=340,
            )
        )
    best = measured.means.iloc[0]
    name = measured.judged.looks[best["explainer"]].name
    alt = (
        f"Scores of {len(rows)} explainers over samples; first {name} with {number(best['mean'])}."
    )
    return Chart("boxes", "Scores by method", _box_caption(measured, rows), alt, plots)


def _beside(row: Any) -> dict[str, float]:
    """What stands beside a mean, where it was measured."""
    return {
        name: value
        for name, value in (("chance", row.chance), ("floor", row.floor))
        if math.isfinite(value)
    }


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
    return _by_elements(
        measured, repaired(measured), "repair", "Symmetrised explanations", "averaged over", caption
    )


def convergence_chart(measured: Symmetries) -> Chart | None:
    """The score over the first n elements that were tried, which settles as n grows."""
    caption = "The mean over the first n of the elements that were drawn: where a curve is level, more would not help. "
    rows = repaired(measured, CONVERGENCE)
    return _by_elements(
        measured, rows, "convergence", "Convergence of the scores", "tried", caption
    )


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


def relaxed_chart(measured: Symmetries) -> Chart | None:
    """The score against the model's own invariance; None where the model is invariant on every sample."""
    scores = measured.scores[
        measured.scores["value"].notna() & measured.scores["model_invariance"].notna()
    ]
    if scores.empty or scores["model_invariance"].min() >= INVARIANT:
        return None
    rows, m = measured.means[measured.means["explainer"].isin(scores["explainer"])], measured.model
    notes = {r.explainer: with_interval(r.mean, r.mean_low, r.mean_high) for r in records(rows)}
    plots = _clouds(measured, scores, "model_invariance", "model invariance", notes, diagonal=True)
    caption = f"A dot is a sample; the model’s invariance is {with_interval(m.value, m.low, m.high)} on average, beside each "
    caption += "title the mean of the method. "
    caption += "On the dotted line an explanation is as alike as the predictions are. The relation need not be linear, "
    caption += "nor alike for two methods: a model that is nearly invariant can have explanations that are far from it."
    alt = f"Scores of {len(rows)} explainers against the model invariance, {number(m.value, 3)} on average."
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
    ends, across = (
        span(scores["value"], 0.0, 1.0),
        (low * 0.9, high * 1.1) if log else span([low, high]),
    )
    plots = []
    for e in order:
        cloud, look = scores[scores["explainer"] == e], measured.judged.looks[e]
        marks = [
            Mark(str(r.sample), r.value, colour=look.colour, x=getattr(r, x), method=look.name)
            for r in records(cloud.iloc[thinned(len(cloud), dot_limit(len(order)))])
        ]
        heading = score_title(cloud["measure"])
        plots.append(
            points(
                look.name,
                marks,
                across,
                ends,
                title,
                heading,
                notes[e],
                diagonal=diagonal,
                small=True,
                log=log,
            )
        )
    return plots


def sensitivity_chart(measured: Symmetries) -> Chart | None:
    """The score against max-sensitivity, sample by sample, with Spearman's correlation for each method."""
    scores = measured.scores[
        measured.scores["value"].notna() & measured.scores["max_sensitivity"].notna()
    ]
    if scores.empty:
        return None
    notes = {
        str(e): f"ρ {correlation(own['max_sensitivity'].to_numpy(), own['value'].to_numpy())}"
        for e, own in scores.groupby("explainer", sort=False)
    }
    plots = _clouds(measured, scores, "max_sensitivity", "max-sensitivity", notes)
    radius = measured.judged.settings.get("sensitivity")
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


def models_chart(dataset: str, judged: Sequence[AxisResult]) -> Chart | None:
    """Means of several models of one dataset, a plot per method: the score against the invariance of the model."""
    measured = [
        m for one in judged if (m := symmetries(one)) is not None and math.isfinite(m.model.value)
    ]
    known = sorted(measured, key=lambda m: m.model.value)
    if len(known) < 2:
        return None
    every = pd.concat(m.means.assign(place=i) for i, m in enumerate(known))
    every = every[every["mean"].notna()]
    order = list(dict.fromkeys(every["explainer"]))
    named = {e: look for m in known for e, look in m.judged.looks.items()}
    lines = []
    for e in order:
        marks = []
        for r in records(every[every["explainer"] == e]):
            m, look = known[r.place], named[e]
            own = {
                "x": m.model.value,
                "x_low": m.model.low,
                "x_high": m.model.high,
                "said": m.judged.cube.model,
            }
            marks.append(Mark(look.name, r.mean, r.mean_low, r.mean_high, look.colour, **own))
        lines.append((named[e], [Curve("", marks, named[e].colour)]))
    ends = of_marks([m for _, (own,) in lines for m in own.marks], 0.0, 1.0)
    plots = by_method(lines, ends, "model invariance", score_title(every["measure"]), diagonal=True)
    models = ", ".join(f"{m.judged.cube.model} ({number(m.model.value, 3)})" for m in known)
    caption = f"Models from the least to the most invariant: {models}. Means over samples with 95 % intervals; on the "
    caption += "dotted line an explanation is as alike as the predictions are. What lies between two models was not "
    caption += "measured, and need not be on the lines."
    alt = f"Scores of {len(order)} methods for {len(known)} models against their invariance."
    return Chart("models", f"Relaxed invariance: {dataset}", caption, alt, plots)


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


PAGE = Page(lead, parts, across, tiles)
