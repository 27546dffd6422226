"""Shares of samples with Wilson's intervals: with a guarantee, with a positive answer, and predicted right."""

from __future__ import annotations

import numpy as np
import pandas as pd

from holdfast import statistics
from holdfast.axes.contract import Judged
from holdfast.statistics.cubes import Cube

RULES = {"MuS": "hard_radius", "MuS*": "hard_radius_bernoulli"}
"""The rules that promise τ = 1, and the measures that hold their radii."""


def delta(judged: Judged) -> float:
    """The probability with which a bound may fail."""
    return float(judged.settings.get("delta", 0.1))


def least_rate(judged: Judged) -> float:
    """The rate that is promised of a sample that counts as certified: the threshold of a decision, else 1 − ε."""
    if judged.settings.get("mode") == "decide":
        return float(judged.settings.get("threshold", 0.9))
    return 1 - float(judged.settings.get("epsilon", 0.1))


def guaranteed_shares(cube: Cube, least: float) -> pd.DataFrame:
    """How many samples have a guarantee, per explainer, λ, rule and radius, with Wilson's interval.

    SCA counts samples whose guaranteed lower bound is at least `least`, MuS those whose hard radius is at least r.
    Columns: explainer, keep, rule, level, n, yes, share, low, high; no rows where one of the two was not measured.
    """
    rows = []
    column = {condition: c for c, condition in enumerate(cube.conditions)}
    keeps = {condition: cube.made_of(condition).share for condition, _ in cube.conditions}
    radii = [(condition, level) for condition, level in column if level > 0 and (condition, 0.0) in column]
    radii.sort(key=lambda radius: (keeps[radius[0]], radius[1]))
    compared = {"certified", "hard_radius"} <= set(cube.values)
    for e, explainer in enumerate(cube.explainers if compared else ()):
        for condition, level in radii:
            bound = cube.values["certified"][e, column[condition, level]]
            answers = {"SCA": np.where(np.isfinite(bound), bound >= least, np.nan)}
            for rule, measure in RULES.items():
                if measure in cube.values:
                    radius = cube.values[measure][e, column[condition, 0.0]]
                    answers[rule] = np.where(np.isfinite(radius), radius >= level, np.nan)
            for rule, answer in answers.items():
                n, yes = int(np.isfinite(answer).sum()), int(np.nansum(answer))
                if n:
                    rows.append((explainer, keeps[condition], rule, level, n, yes, yes / n, *statistics.wilson(yes, n)))
    columns = ["explainer", "keep", "rule", "level", "n", "yes", "share", "low", "high"]
    return pd.DataFrame.from_records(rows, columns=columns)


def answer_shares(cube: Cube, explainer: str, measure: str) -> pd.DataFrame:
    """Per radius: how many samples of those with an explanation say yes, and how many stayed open."""
    e, rows = cube.explainers.index(explainer), []
    for c, (_, level) in enumerate(cube.conditions):
        asked = np.isfinite(cube.values["certified"][e, c])
        answers = cube.values[measure][e, c][asked]
        n, yes, unknown = len(answers), int((answers == 1).sum()), int(np.isnan(answers).sum())
        if n:
            rows.append((level, n, yes, unknown, yes / n, *statistics.wilson(yes, n)))
    return pd.DataFrame.from_records(rows, columns=["level", "n", "yes", "open", "share", "low", "high"])


def accuracy(cube: Cube) -> pd.DataFrame:
    """Per λ: labelled samples n, how many are right, the share and Wilson's interval; the same for all explainers."""
    rows = []
    for c, (condition, level) in enumerate(cube.conditions):
        if level == 0 and "correct" in cube.values:
            right = cube.values["correct"][:, c]
            known = np.isfinite(right).any(0)
            n, yes = int(known.sum()), int((right[:, known] == 1).any(0).sum())
            if n:
                rows.append((cube.made_of(condition).share, n, yes, yes / n, *statistics.wilson(yes, n)))
    frame = pd.DataFrame.from_records(rows, columns=["keep", "n", "yes", "share", "low", "high"])
    return frame.sort_values("keep", ignore_index=True)
