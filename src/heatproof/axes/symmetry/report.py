"""Symmetry in the report: scores, the guidelines, the model's own invariance, symmetrised methods and layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from heatproof.axes.symmetry.findings import findings
from heatproof.axes.symmetry.guidelines import remedies
from heatproof.axes.symmetry.scores import TOLERANCE
from heatproof.axes.symmetry.summaries import (
    CLOSE_TO_ONE,
    INVARIANT,
    LARGEST_CHANGE,
    SymmetrySummary,
    correlation,
    curve_points,
    layer_verdicts,
    summarise,
    symmetrised_points,
)
from heatproof.axes.tiles import worst_pair_tiles
from heatproof.report.components import (
    Component,
    CurveChart,
    Estimate,
    Gallery,
    Matrix,
    Scatter,
    ScoreChart,
    Table,
    spans_decades,
)
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import paired_tests
from heatproof.results.verdict import best_methods
from heatproof.text import file_part, listing, number, records, with_interval

__all__ = ["across", "components", "findings", "lead"]

PAPER = "explanation invariance"
UNIT = (0.0, 1.0)
MEANINGS = {
    "equivariance": "1: the map moves exactly as the input does.",
    "invariance": "1: the importance of examples or concepts does not change.",
}


# ---- lead ------------------------------------------------------------------------------------------------------------


def lead(result: AxisResult) -> list[str]:
    """Return which method respects the symmetry best, and whether the model has it; limits are findings."""
    summary = summarise(result)
    if summary is None:
        return ["Nothing can be concluded: no explanation was compared under the group."]
    return [*result.decided(), _model_sentence(summary)]


def _model_sentence(summary: SymmetrySummary) -> str:
    """Say whether the model is invariant to the group, by its intervals."""
    group = summary.group_title
    if not summary.is_model_measured:
        return f"The model's own invariance to the group ({group}) was not measured: low scores may be its fault."
    values = _model_values(summary)
    if summary.is_model_invariant:
        return f"The model is invariant to the group ({group}): {values}."
    if summary.is_model_invariant is None:
        return (
            f"It is undecided whether the model is invariant to the group ({group}): {values}. Low scores may be its "
            "fault."
        )
    return f"The model is not invariant to the group ({group}), so its explanations need not be either: {values}."


def _model_values(summary: SymmetrySummary) -> str:
    """Return in words how well the model itself keeps the symmetry: its invariance, agreement and change, with intervals."""
    model, agreement = summary.model_invariance, summary.model_agreement
    change = summary.model_change
    has_probabilities = model is not agreement
    name = "model invariance" if has_probabilities else "model agreement"
    values = [f"{name} {_with_interval(model)}"]
    if math.isfinite(agreement.score):
        predicted = "top class" if has_probabilities else "prediction"
        values.append(f"{predicted} unchanged for {100 * agreement.score:.3g} % of moved inputs")
    if math.isfinite(change.score):
        percent = f"{100 * change.score:.2g} %"
        values.append(
            f"explained output changed by {percent} of the difference between unrelated samples"
        )
    return ", ".join(values)


def _with_interval(estimate: Estimate) -> str:
    return with_interval(estimate.score, estimate.low, estimate.high)


# ---- one model and data set ------------------------------------------------------------------------------------------


def components(result: AxisResult) -> Iterator[Component]:
    """Yield the charts, tables and pictures of one model and data set, in reading order."""
    summary = summarise(result)
    if summary is not None and summary.explainers["score"].notna().any():
        yield _score_chart(summary)
        yield from _guideline_table(summary)
        yield from _against_model_invariance(summary)
        yield from _symmetrised_chart(summary)
        yield from _convergence_chart(summary)
        yield from _against_sensitivity(summary)
        yield _score_table(summary)
    yield from _layer_table(result)
    yield from _worst_cases(result)


def _score_chart(summary: SymmetrySummary) -> ScoreChart:
    """Return a chart of the mean score of each explainer, with the scores of single samples as faint dots behind it.

    There is a panel for each kind of explanation, because kinds are scored by different measures.
    """
    scores = _scored(summary).assign(note=_notes(summary))
    # A score without a chance level cannot be at chance, so its dot is filled.
    scores["above_chance"] = scores["above_chance"].where(scores["chance"].notna(), True)
    panels = dict(zip(scores["explainer"], scores["panel"], strict=True))
    return ScoreChart(
        key="boxes",
        title="Scores by method",
        caption=_score_caption(summary, scores),
        scores=scores,
        samples=summary.samples.assign(panel=summary.samples["explainer"].map(panels)),
        limits=UNIT,
        paper=f"{PAPER}, Figure 3",
    )


def _scored(summary: SymmetrySummary) -> pd.DataFrame:
    """Return the explainers with a score; `panel` is the heading of their kind."""
    scores = summary.explainers[summary.explainers["score"].notna()]
    if scores["kind"].nunique() == 1:
        return scores.assign(panel=scores["measure"].str.capitalize())
    kinds = scores["kind"].str.capitalize()
    return scores.assign(panel=kinds + " explanations: " + scores["measure"])


def _notes(summary: SymmetrySummary) -> list[str]:
    """Return how many samples each scored explainer has, and its noise floor."""
    notes = []
    for row in records(_scored(summary)):
        note = f"{row.scored} of {row.attempted} samples"
        if math.isfinite(row.noise_floor):
            note += f", noise floor {number(row.noise_floor)}"
        notes.append(note)
    return notes


def _score_caption(summary: SymmetrySummary, scores: pd.DataFrame) -> str:
    """Return what the chart of scores shows: the group, what 1 means, what a hollow dot is, and how many elements."""
    sentences = [f"Group: {summary.group_title}."]
    measured = set(scores["measure"])
    sentences += [meaning for measure, meaning in MEANINGS.items() if measure in measured]
    sentences.append("Faint dots: samples; large dots: their mean with its 95 % interval.")
    if scores["chance"].notna().any():
        lifted = ""
        if summary.is_exhaustive and summary.elements > 1:
            lifted = ", with the identity counted, which always scores 1"
        sentences.append(
            f"Hollow: not significantly above chance, the explanations of other samples{lifted}."
        )
    sentences.append(_elements_tried(summary))
    return " ".join(sentences)


def _elements_tried(summary: SymmetrySummary) -> str:
    """Return a sentence on how many group elements were tried, and how uncertain the score of one sample is therefore."""
    if summary.is_exhaustive:
        return f"All {summary.elements} elements of the group were tried."
    error = float(summary.explainers["monte_carlo_error"].dropna().median())
    delta = float(summary.result.settings.get("delta", 0.05))
    elements = "1 element was" if summary.elements == 1 else f"{summary.elements} elements were"
    return (
        f"{elements} drawn for each sample, which leaves its score uncertain by ±{number(error)} (median of the "
        f"{100 * (1 - delta):g} % bounds); intervals of means include this."
    )


def _guideline_table(summary: SymmetrySummary) -> Iterator[Table]:
    """Yield a table of what to do about each method's symmetry score, after the guidelines of the paper."""
    by_method = remedies(summary)
    if not by_method:
        return
    methods = summary.methods
    remedy_of_row = [by_method[name] for name in methods["explainer"]]
    yield Table(
        key="guidelines",
        title="What follows from the scores",
        caption="After the guidelines of Crabbé and van der Schaar (2023). A model is invariant if the 95 % intervals of its "
        f"invariance and agreement lie above {INVARIANT:g} and its explained output changes by at most "
        f"{100 * LARGEST_CHANGE:g} %. A score is close to 1 from {CLOSE_TO_ONE:g}. Symmetrised: the score of the "
        "explanation averaged over so many elements.",
        rows=methods.assign(
            model=_model_heading(summary),
            is_close=[remedy.is_close for remedy in remedy_of_row],
            advice=[remedy.advice for remedy in remedy_of_row],
            symmetrised=[remedy.symmetrised for remedy in remedy_of_row],
        ),
        columns={
            "explainer": "Method",
            "kind": "Explains by",
            "score": "Score",
            "is_close": "Close to 1?",
            "advice": "What to do",
            "symmetrised": "Symmetrised",
        },
        group="model",
        paper=f"{PAPER}, Figure 6",
    )


def _model_heading(summary: SymmetrySummary) -> str:
    if not summary.is_model_measured:
        return "Is the model invariant? Not measured."
    answer = {True: "Yes", False: "No", None: "Undecided"}[summary.is_model_invariant]
    return f"Is the model invariant? {answer} ({_with_interval(summary.model_invariance)})."


def _against_model_invariance(summary: SymmetrySummary) -> Iterator[Scatter]:
    """Yield the scores against the model's own invariance, unless it is invariant on every sample."""
    points = _sample_points(summary, "model_invariance")
    if points.empty or points["x"].min() >= INVARIANT:
        return
    estimates = {
        row.explainer: Estimate(row.score, row.low, row.high) for row in records(summary.explainers)
    }
    yield Scatter(
        key="model-invariance",
        title="Against the model's own invariance",
        caption=f"A dot is a sample; the mean invariance of the model is {_with_interval(summary.model_invariance)}. On the "
        "dotted line an explanation changes as much as the prediction. The relation need not be linear: a model that is "
        "almost invariant can have explanations that are far from it.",
        points=points,
        x_label="model invariance",
        y_label=summary.score_title,
        is_sample=True,
        panel_estimates=estimates,
        estimate_name="mean",
        limits=UNIT,
        diagonal=True,
        paper=f"{PAPER}, Figure 5 by sample",
    )


def _sample_points(summary: SymmetrySummary, x: str) -> pd.DataFrame:
    """Return the points of a scatter plot: the symmetry score of each sample (y) against another of its measures (x).

    There is a panel per explainer, the best one first.
    """
    samples = summary.samples.dropna(subset=["value", x])
    by_explainer = [
        samples[samples["explainer"] == explainer] for explainer in summary.explainers["explainer"]
    ]
    in_order = pd.concat(by_explainer, ignore_index=True)
    return pd.DataFrame(
        {
            "explainer": in_order["explainer"],
            "panel": in_order["explainer"],
            "x": in_order[x],
            "y": in_order["value"],
            "note": in_order["sample"],
        }
    )


def _symmetrised_chart(summary: SymmetrySummary) -> Iterator[CurveChart]:
    """Yield the score of a method averaged over n elements, from the plain one at n = 1."""
    points = symmetrised_points(summary)
    if points.empty:
        return
    nearly = "nearly " if summary.interpolates else ""
    caption = (
        "The explanation averaged over n elements, at n times the cost; n = 1 is the plain method. Over the whole group the "
        f"score is {nearly}1 by construction, which says nothing about faithfulness. "
    )
    if summary.is_model_invariant is False:
        caption += "This model is not invariant: averaging hides what it does on moved inputs."
    else:
        caption += "Only useful if the model is invariant."
    yield _by_elements(
        summary,
        points,
        key="symmetrised",
        title="Symmetrised explanations",
        caption=caption,
        figure="Figure 4",
    )


def _convergence_chart(summary: SymmetrySummary) -> Iterator[CurveChart]:
    """Yield the score over the first n elements that were tried, which settles as n grows."""
    points = curve_points(summary, "convergence")
    if points.empty:
        return
    yield _by_elements(
        summary,
        points,
        key="convergence",
        title="Convergence of the scores",
        caption="The score over the first n elements that were drawn. Where a curve is level, more elements would not help.",
        figure="Figure 7",
    )


def _by_elements(
    summary: SymmetrySummary, points: pd.DataFrame, key: str, title: str, caption: str, figure: str
) -> CurveChart:
    """Return a chart of scores against the number of elements, a curve per method."""
    return CurveChart(
        key=key,
        title=title,
        caption=f"{caption} Bars are 95 % intervals over samples.",
        points=points,
        x_label="n, elements of the group",
        y_label=summary.score_title,
        limits=UNIT,
        log_x=True,
        paper=f"{PAPER}, {figure}",
    )


def _against_sensitivity(summary: SymmetrySummary) -> Iterator[Scatter]:
    """Yield a scatter plot of symmetry scores against max-sensitivity, a dot per sample, with Spearman's correlations."""
    points = _sample_points(summary, "max_sensitivity")
    if points.empty:
        return
    correlations = {}
    for explainer, of_explainer in points.groupby("explainer", sort=False):
        rho = correlation(of_explainer["x"].to_numpy(), of_explainer["y"].to_numpy())
        if rho is not None:
            correlations[str(explainer)] = rho
    radius = summary.result.settings.get("sensitivity")
    ball = f" of radius {radius:g}" if isinstance(radius, int | float) else ""
    yield Scatter(
        key="sensitivity",
        title="Against sensitivity",
        caption=f"The largest relative change of an explanation in a ball{ball} around the input, against the score; a dot is "
        "a sample. ρ is Spearman's correlation with its 95 % bootstrap interval; near 0, the two find different faults.",
        points=points,
        x_label="max-sensitivity",
        y_label=summary.score_title,
        is_sample=True,
        panel_estimates=correlations,
        estimate_name="ρ",
        limits=UNIT,
        log_x=spans_decades(points["x"], factor=20),
        paper=f"{PAPER}, Figure 8",
    )


def _score_table(summary: SymmetrySummary) -> Matrix:
    """Return score, chance and noise floor of every explainer, grouped by kind."""
    rows = _scored(summary)
    rows = rows.assign(row=rows["explainer"], row_group=rows["panel"])
    calibrated = rows.assign(
        column="Calibrated",
        score=rows["calibrated"],
        low=rows["calibrated_low"],
        high=rows["calibrated_high"],
        best=_is_best(summary, rows),
    )
    chance = rows.assign(column="Chance", score=rows["chance"], low=np.nan, high=np.nan)
    noise = rows.assign(column="Noise floor", score=rows["noise_floor"], low=np.nan, high=np.nan)
    model = number(summary.model_invariance.score, 3)
    return Matrix(
        key="scores",
        title="Score, chance and noise",
        caption=f"Group: {summary.group_title}; model invariance {model}. Calibrated: 0 is chance, the explanations of other "
        "samples. Noise floor: two random draws on the same input. Bold: the best method of its kind and all that the "
        "corrected paired test does not tell from it; controls are never bold. Brackets: 95 % intervals over samples."
        f"{_unscored(summary)}",
        scores=pd.concat([rows.assign(column="Score"), calibrated, chance, noise]),
        shaded=False,
        paper=f"{PAPER}, Tables 14 and 15",
    )


def _is_best(summary: SymmetrySummary, rows: pd.DataFrame) -> pd.Series:
    """Return whether each explainer is among the best of its kind: not significantly below the best one, and no control.

    `rows` has a row per explainer, with its calibrated score; kinds (`panel`) are scored by different measures.
    """
    is_best = pd.Series(False, index=rows.index)
    for _, of_kind in rows.groupby("panel", sort=False):
        measure = str(of_kind["measure"].iloc[0])
        arrays = summary.result.arrays.select(explainers=set(of_kind["explainer"]))
        scores = of_kind.assign(control=of_kind["is_control"], score=of_kind["calibrated"])
        best = best_methods(scores, paired_tests(arrays, measure))
        is_best |= rows["explainer"].isin(best)
    return is_best


def _unscored(summary: SymmetrySummary) -> str:
    """Name the explainers that do not have a score on every sample."""
    incomplete = summary.explainers[summary.explainers["scored"] < summary.explainers["attempted"]]
    if incomplete.empty:
        return ""
    counts = [
        f"{row.explainer} {row.scored} of {row.attempted}"
        for row in records(summary.result.named(incomplete))
    ]
    return f" Samples with a score: {listing(counts)}; all others have one for every sample."


def _layer_table(result: AxisResult) -> Iterator[Table]:
    """Yield every tested layer with its verdict and its largest errors."""
    layers = layer_verdicts(result)
    if layers.empty:
        return
    undefined = int(layers["undefined"].sum())
    without_error = ""
    if undefined:
        outputs = "output was" if undefined == 1 else "outputs were"
        without_error = f" {undefined} {outputs} zero or not finite and took no part."
    yield Table(
        key="layers",
        title="Which layers keep the symmetry",
        caption="Largest relative errors over samples and elements, of the layer’s output h: ‖h(g·x) − h(x)‖ / ‖h(x)‖ "
        f"(invariant) and ‖h(g·x) − g·h(x)‖ / ‖h(x)‖ (equivariant); a verdict needs at most {TOLERANCE:g}. The second is "
        "missing where the group cannot move the output, as after pooling. Examples and concepts computed on an invariant "
        f"layer are invariant.{without_error}",
        rows=layers.assign(
            invariance_error=layers["invariance_error"].map(error_text),
            equivariance_error=layers["equivariance_error"].map(error_text),
        ),
        columns={
            "layer": "Layer",
            "verdict": "Verdict",
            "invariance_error": "Invariance error",
            "equivariance_error": "Equivariance error",
        },
    )


def error_text(value: float) -> str:
    """Return a relative error as a small number.

    >>> error_text(0.0), error_text(3.2e-7), error_text(0.257), error_text(float("nan"))
    ('0', '3e−07', '0.26', '–')
    """
    if value == 0:
        return "0"
    if 0 < value < 1e-3:
        return f"{value:.0e}".replace("-", "−")
    return number(value)


def _worst_cases(result: AxisResult) -> Iterator[Gallery]:
    """Yield the stored pairs with the lowest scores, as pictures."""
    tiles = worst_pair_tiles(result)
    if tiles:
        yield Gallery(
            key="worst",
            title="Worst cases",
            caption="For each method the stored sample with the lowest score (calibrated, in the corner), and the element that "
            "is worst for it. If the method respects the group, the second map is the first, moved as the input was. Not "
            "typical cases.",
            tiles=tiles,
            paper=f"{PAPER}, Figures 2, 9 and 10",
        )


# ---- several models --------------------------------------------------------------------------------------------------


def across(results: Sequence[AxisResult]) -> Iterator[Component]:
    """Yield charts that compare models: symmetry scores of explanations against the invariance of the model.

    There is a chart for every data set and evaluation with several models.
    """
    by_evaluation: dict[tuple[str, str], list[SymmetrySummary]] = {}
    for result in results:
        summary = summarise(result)
        if summary is not None and summary.is_model_measured:
            by_evaluation.setdefault((result.dataset, result.label), []).append(summary)
    datasets = {dataset for dataset, _ in by_evaluation}
    for (dataset, _), summaries in by_evaluation.items():
        if len(summaries) > 1:
            key = "relaxed" if len(datasets) == 1 else f"relaxed-{file_part(dataset)}"
            yield _models_chart(key, dataset, summaries)


def _models_chart(key: str, dataset: str, summaries: Sequence[SymmetrySummary]) -> CurveChart:
    """Return a chart of the mean symmetry scores of explanations against the invariance of the model, a plot per method.

    `summaries` has one per model, all on the same data set.
    """
    in_order = sorted(summaries, key=lambda summary: summary.model_invariance.score)
    names = []
    frames = []
    for summary in in_order:
        model = summary.model_invariance
        names.append(f"{summary.result.model} ({number(model.score, 3)})")
        points = _scored(summary)[["explainer", "score", "low", "high"]]
        frames.append(
            points.assign(
                x=model.score, x_low=model.low, x_high=model.high, note=summary.result.model
            )
        )
    return CurveChart(
        key=key,
        title=f"Relaxed invariance: {dataset}",
        caption=f"Models from the least to the most invariant: {listing(names)}. Means over samples with 95 % intervals; on "
        "the dotted line an explanation changes as much as the prediction. Nothing was measured between two models.",
        points=pd.concat(frames, ignore_index=True),
        x_label="model invariance",
        y_label=in_order[0].score_title,
        limits=UNIT,
        diagonal=True,
        paper=f"{PAPER}, Figure 5",
    )
