"""The verdict on certificates in sentences, never saying more than the bounds do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes.certificate.shares import accuracy, certified_mean, delta, one_fraction
from heatproof.axes.contract import AxisResult
from heatproof.drawing.prose import at_least, records, with_interval
from heatproof.evaluation import Condition
from heatproof.statistics.calibration import with_best

NOTHING = "Nothing can be concluded: no sample has a certificate."
KEPT = {
    "rate": "the prediction stays on {} of the supersets",
    "stable": "the decision is positive for a share of {} of the samples",
    "unflipped": "no draw changes the prediction for a share of {} of the samples",
}
ANCHORED = {
    "explanation": "Certified is the prediction on the explanation alone",
    "full": "Certified is the prediction on the whole input",
}
CALIBRATED_SCALE = "0 = as many random features, 1 = never changes"


def certificate_lead(result: AxisResult) -> list[str]:
    """Who is best, how often predictions survive at the largest radius, what is guaranteed, and what chance is."""
    result = one_fraction(result)
    summary = with_best(statistics.summary([result.cube]))
    is_headline = summary["measure"].isin(result.axis.headlines(result.cube))
    cells = summary[is_headline & summary["mean"].notna()]
    if cells.empty:
        return [NOTHING]
    radius = float(cells["level"].max())
    scores = cells[cells["level"] == radius].sort_values("best", ascending=False, kind="stable")
    methods, controls = scores[~scores["control"]], scores[scores["control"]]
    best = records(methods if len(methods) else controls)[0]
    sentences = [*result.decided(), _rate(best, result.name_of(best.explainer))]
    if best.measure == "rate":
        sentences += _guaranteed(result, best.explainer, (best.condition, radius))
    return sentences + _anchored(result, best.explainer) + _chance(methods)


def _rate(best: Any, name: str) -> str:
    """How often the prediction survives at the largest radius; `best` is a row of `with_best`, `name` its explainer."""
    kept = KEPT[best.measure].format(with_interval(best.mean, best.low, best.high))
    added = "one feature is" if best.level == 1 else f"up to {best.level:g} features are"
    if best.open:
        kept += f" that were decided ({best.open} of {best.attempted} stayed open)"
    sentence = f"When {added} added to the explanations of {name}, {kept}."
    if np.isfinite(best.calibrated):
        score = with_interval(best.calibrated, best.calibrated_low, best.calibrated_high)
        sentence += f" Calibrated rate: {score} ({CALIBRATED_SCALE})."
    return sentence


def _guaranteed(result: AxisResult, explainer: str, condition: Condition) -> list[str]:
    """What is guaranteed of the mean over the samples, and with which probability that may fail."""
    low, n = certified_mean(result, explainer, condition)
    if not n:
        return []
    scope = " for all methods and radii at once" if result.settings.get("simultaneous") else ""
    error = delta(result)
    tested = "this sample" if n == 1 else f"these {n} samples"
    return [
        f"The mean rate over {tested} is guaranteed to be at least {at_least(low)}{scope} "
        f"({100 * (1 - error):g} % confidence, δ = {error:g})."
    ]


def _anchored(result: AxisResult, explainer: str) -> list[str]:
    """Which prediction is certified, and how often it is that on the whole input."""
    anchor = ANCHORED[str(result.settings.get("anchor", "explanation"))]
    sufficient = result.cube.values.get("sufficient")
    if sufficient is None:
        return [f"{anchor}."]
    of_explainer = sufficient[result.cube.explainers.index(explainer)].ravel()
    n, yes = int(np.isfinite(of_explainer).sum()), int(np.nansum(of_explainer))
    return [
        f"{anchor}; the explanation alone is predicted like the whole input for {yes} of {samples(n)}."
    ]


def _chance(methods: pd.DataFrame) -> list[str]:
    """The chance level at the largest radius; `methods` are rows of `with_best`."""
    measured = methods[methods["chance"].notna()]
    if measured.empty:
        return []
    chance = float(measured["chance"].mean())
    return [f"As many random features keep it on {chance:.2f} of the supersets (chance)."]


def like_random(cells: pd.DataFrame) -> pd.DataFrame:
    """The rows of a summary whose calibrated rate is not above 0: its interval holds 0, or chance leaves no room."""
    reaches_chance = cells["calibrated_low"] <= 0
    no_room = cells["chance"].notna() & cells["calibrated"].isna() & (cells["chance"] == 1)
    return cells[reaches_chance | no_room]


def smoothing_lead(result: AxisResult) -> list[str]:
    """What smoothing costs in accuracy and buys in hard radii."""
    sentences = []
    rows = records(accuracy(result.cube))
    if len(rows) > 1:
        first, last = rows[0], rows[-1]
        sentences.append(
            f"Accuracy is {percent(first)} with λ = {first.keep:g} and {percent(last)} with λ = {last.keep:g}, "
            f"on {samples(int(last.n), 'labelled')}."
        )
    cells = statistics.summary([result.cube])
    cells = cells[(cells["measure"] == "hard_radius") & cells["mean"].notna()]
    methods = cells[~cells["control"].astype(bool)]
    cells = methods if len(methods) else cells
    if len(cells):
        best = records(cells.sort_values("mean", ascending=False, kind="stable"))[0]
        sentences.append(
            f"The largest mean hard radius is {with_interval(best.mean, best.low, best.high)} features, "
            f"of {result.name_of(best.explainer)} with λ = {result.cube.made_of(best.condition).share:g}."
        )
    return sentences or [NOTHING]


def samples(n: int, kind: str = "") -> str:
    """A number of samples in words.

    >>> samples(1), samples(14, "labelled")
    ('1 sample', '14 labelled samples')
    """
    noun = "sample" if n == 1 else "samples"
    return " ".join(filter(None, (str(n), kind, noun)))


def percent(row: Any) -> str:
    """A share with its interval in percent; `row` is one of `shares`."""
    return f"{with_interval(100 * row.share, 100 * row.low, 100 * row.high)} %"
