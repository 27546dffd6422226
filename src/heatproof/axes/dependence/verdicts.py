"""Verdicts on dependence, from bounds of the score that hold for all methods at once: blind, not shown to depend, or depends."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from heatproof import statistics
from heatproof.statistics.cubes import Cube

Verdict = Literal["blind", "not shown to depend", "depends"]
BLIND: Verdict = "blind"
NEGLIGIBLE = 0.1
"""A map that changes by less than this share of what unrelated samples differ by is not worth telling from one that
does not change. Scores cannot be negative, so no interval but that of exact zeros reaches 0."""


def verdict(low: float, high: float) -> Verdict:
    """What two one-sided bounds of dependence allow to say; bounds that are missing allow nothing.

    >>> verdict(0.0, 0.05), verdict(0.05, 0.4), verdict(0.2, 0.4), verdict(float("nan"), float("nan"))
    ('blind', 'not shown to depend', 'depends', 'not shown to depend')
    """
    if high < NEGLIGIBLE:
        return BLIND
    return "depends" if low > NEGLIGIBLE else "not shown to depend"


def judged_explainers(cube: Cube, measure: str = "dependence") -> pd.DataFrame:
    """explainer, control, score, low, high and verdict, in the order of the study, of what was measured."""
    found = statistics.ranking([cube], measure, better="neither")
    found = found[found["score"].notna()]
    words = [
        verdict(low, high)
        for low, high in zip(found["lower_bound"], found["upper_bound"], strict=True)
    ]
    return found[["explainer", "control", "score", "low", "high", "samples"]].assign(verdict=words)


def marks(cube: Cube) -> dict[str, str]:
    """The explainers whose maps do not change with the model, for the rankings of every axis."""
    found = judged_explainers(cube)
    return dict.fromkeys(map(str, found.loc[found["verdict"] == BLIND, "explainer"]), BLIND)
