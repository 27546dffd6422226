"""Shares of samples with an exact intervals: with a guarantee, with a positive answer, and predicted right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from heatproof import statistics
from heatproof.axes.contract import AxisResult
from heatproof.drawing.prose import difference
from heatproof.evaluation import Condition
from heatproof.statistics.bounds import mean_rate_low
from heatproof.statistics.cubes import Cube

RULES = {"hard": "hard_radius", "MuS": "hard_radius_lipschitz", "MuS*": "hard_radius_bernoulli"}
"""The rules that promise τ = 1, and the measures that hold their radii."""


def one_fraction(result: AxisResult) -> AxisResult:
    """Return the result of the first fraction, where there are several."""
    first = result.cube.conditions[0][0] if result.cube.conditions else ""
    own = [condition for condition in result.cube.conditions if condition[0] == first]
    if len(own) == len(result.cube.conditions):
        return result
    return replace(result, cube=result.cube.select(conditions=own))


def delta(result: AxisResult) -> float:
    """The probability with which a bound may fail."""
    return float(result.settings.get("delta", 0.1))


def certified_mean(result: AxisResult, explainer: str, condition: Condition) -> tuple[float, int]:
    """The guaranteed lower bound of the mean rate over the samples, NaN without any, and how many they are.

    It fails with probability δ; for all methods and conditions at once where the study asks for `simultaneous`.
    """
    cube = result.cube
    if not {"early", "early_draws"} <= set(cube.values):
        return float("nan"), 0
    at = cube.explainers.index(explainer), cube.conditions.index(condition)
    shares, draws = (
        torch.as_tensor(cube.values[measure][at]) for measure in ("early", "early_draws")
    )
    known = torch.isfinite(shares)
    if not bool(known.any()):
        return float("nan"), 0
    radii = [c for c in cube.conditions if c[1] > 0]
    statements = len(cube.explainers) * len(radii) if result.settings.get("simultaneous") else 1
    return mean_rate_low(shares[known], draws[known], delta(result) / statements), int(known.sum())


def gaps_to(
    result: AxisResult, control: str
) -> tuple[str, float, dict[str, tuple[float, float, float]]]:
    """Headline, largest radius, and by how much each method is ahead of a control there, on the same samples.

    Mean difference and its simultaneous interval; a method is significantly ahead where the interval lies above 0.
    """
    measure = next(iter(result.axis.headlines(result.cube)))
    last = max(result.cube.conditions, key=lambda condition: condition[1])
    cube = result.cube.select(conditions=[last])
    tests = statistics.paired_tests([cube], measure, form="raw")
    found = {}
    for name in cube.explainers:
        test = difference(tests, name, control)
        if name not in cube.controls and test is not None:
            found[name] = (test["difference"], test["low"], test["high"])
    return measure, last[1], found


def least_rate(result: AxisResult) -> float:
    """The rate that is promised of a sample that counts as certified: the threshold of a decision, else 1 − ε."""
    if result.settings.get("mode") == "decide":
        return float(result.settings.get("threshold", 0.9))
    return 1 - float(result.settings.get("epsilon", 0.1))


def guaranteed_shares(cube: Cube, least: float) -> pd.DataFrame:
    """How many samples have a guarantee, per explainer, λ, rule and radius, with an exact interval.

    SCA counts samples whose guaranteed lower bound is at least `least`, the other rules those whose radius is at least
    r: "hard" by the best rule without error, "MuS" by the paper's, "MuS*" for the mean over all Bernoulli masks.
    Columns: explainer, keep, rule, level, n, yes, share, low, high; no rows where one of the two was not measured.
    """
    rows = []
    column = {condition: c for c, condition in enumerate(cube.conditions)}
    keeps = {condition: cube.made_of(condition).share for condition, _ in cube.conditions}
    radii = [
        (condition, level)
        for condition, level in column
        if level > 0 and (condition, 0.0) in column
    ]
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
                    rows.append(
                        (
                            explainer,
                            keeps[condition],
                            rule,
                            level,
                            n,
                            yes,
                            yes / n,
                            *statistics.exact_share(yes, n),
                        )
                    )
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
            rows.append((level, n, yes, unknown, yes / n, *statistics.exact_share(yes, n)))
    return pd.DataFrame.from_records(
        rows, columns=["level", "n", "yes", "open", "share", "low", "high"]
    )


def accuracy(cube: Cube) -> pd.DataFrame:
    """Per λ: labelled samples n, how many are right, the share and its exact interval; the same for all explainers."""
    rows = []
    for c, (condition, level) in enumerate(cube.conditions):
        if level == 0 and "correct" in cube.values:
            right = cube.values["correct"][:, c]
            known = np.isfinite(right).any(0)
            n, yes = int(known.sum()), int((right[:, known] == 1).any(0).sum())
            if n:
                rows.append(
                    (
                        cube.made_of(condition).share,
                        n,
                        yes,
                        yes / n,
                        *statistics.exact_share(yes, n),
                    )
                )
    frame = pd.DataFrame.from_records(rows, columns=["keep", "n", "yes", "share", "low", "high"])
    return frame.sort_values("keep", ignore_index=True)
