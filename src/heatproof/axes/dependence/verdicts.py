"""Verdicts on dependence, from bounds of the score that hold for all methods at once: blind, not shown to depend, or depends."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from heatproof.axes.dependence.evaluation import DEPENDENCE
from heatproof.results.arrays import ScoreArrays
from heatproof.results.ranking import ranking

Verdict = Literal["blind", "not shown to depend", "depends"]
BLIND: Verdict = "blind"
UNDECIDED: Verdict = "not shown to depend"
DEPENDS: Verdict = "depends"
NEGLIGIBLE = 0.1
"""A map that changes by less than this share of what unrelated samples differ by is not worth telling from one that
does not change. Scores cannot be negative, so no interval but that of exact zeros reaches 0."""


def verdict(low: float, high: float) -> Verdict:
    """Return what two one-sided bounds of dependence allow to say; bounds that are missing allow nothing.

    >>> verdict(0.0, 0.05), verdict(0.05, 0.4), verdict(0.2, 0.4), verdict(float("nan"), float("nan"))
    ('blind', 'not shown to depend', 'depends', 'not shown to depend')
    """
    if high < NEGLIGIBLE:
        return BLIND
    if low > NEGLIGIBLE:
        return DEPENDS
    return UNDECIDED


def verdicts(arrays: ScoreArrays, measure: str = DEPENDENCE) -> pd.DataFrame:
    """Return explainer, control, score, low, high, samples and verdict of what was measured, highest score first."""
    ranked = ranking(arrays, measure, better="neither")
    scored = ranked[ranked["score"].notna()]
    bounds = zip(scored["lower_bound"], scored["upper_bound"], strict=True)
    columns = scored[["explainer", "control", "score", "low", "high", "samples"]]
    return columns.assign(verdict=[verdict(low, high) for low, high in bounds])


def marks(arrays: ScoreArrays) -> dict[str, str]:
    """Return the mark of the explainers whose maps do not change with the model, for the rankings of every axis."""
    table = verdicts(arrays)
    blind = table.loc[table["verdict"] == BLIND, "explainer"]
    return {str(explainer): BLIND for explainer in blind}


def passed(arrays: ScoreArrays) -> dict[str, bool | None]:
    """Return whether the maps of each explainer depend on the model; None where the bounds leave it open."""
    table = verdicts(arrays)
    answers = {DEPENDS: True, BLIND: False, UNDECIDED: None}
    return {
        str(explainer): answers[said]
        for explainer, said in zip(table["explainer"], table["verdict"], strict=True)
    }
