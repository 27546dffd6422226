"""Shares of samples with an exact intervals: with a guarantee, with a positive answer, and predicted right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from heatproof.evaluation import Condition
from heatproof.results.arrays import ScoreArrays
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import paired_tests
from heatproof.statistics.bounds import mean_rate_low
from heatproof.statistics.intervals import rate_interval
from heatproof.text import difference

RULES = {"hard": "hard_radius", "MuS": "hard_radius_lipschitz", "MuS*": "hard_radius_bernoulli"}
"""The rules that promise τ = 1, and the measures that hold their radii."""


def one_fraction(result: AxisResult) -> AxisResult:
    """Return the result of the first fraction, where there are several."""
    first = result.conditions[0][0] if result.conditions else ""
    own = [condition for condition in result.conditions if condition[0] == first]
    if len(own) == len(result.conditions):
        return result
    return replace(result, arrays=result.arrays.select(conditions=own))


def delta(result: AxisResult) -> float:
    """The probability with which a bound may fail."""
    return float(result.settings.get("delta", 0.1))


def certified_mean(result: AxisResult, explainer: str, condition: Condition) -> tuple[float, int]:
    """The guaranteed lower bound of the mean rate over the samples, NaN without any, and how many they are.

    It fails with probability δ; for all methods and conditions at once where the study asks for `simultaneous`.
    """
    arrays = result.arrays
    if not {"early", "early_draws"} <= set(arrays.values):
        return float("nan"), 0
    at = arrays.explainers.index(explainer), arrays.conditions.index(condition)
    shares, draws = (
        torch.as_tensor(arrays.values[measure][at]) for measure in ("early", "early_draws")
    )
    known = torch.isfinite(shares)
    if not bool(known.any()):
        return float("nan"), 0
    radii = [c for c in arrays.conditions if c[1] > 0]
    statements = len(arrays.explainers) * len(radii) if result.settings.get("simultaneous") else 1
    return mean_rate_low(shares[known], draws[known], delta(result) / statements), int(known.sum())


def gaps_to(
    result: AxisResult, control: str
) -> tuple[str, float, dict[str, tuple[float, float, float]]]:
    """Headline, largest radius, and by how much each method is ahead of a control there, on the same samples.

    Mean difference and its simultaneous interval; a method is significantly ahead where the interval lies above 0.
    """
    measure = next(iter(result.axis.headlines(result.arrays)))
    last = max(result.conditions, key=lambda condition: condition[1])
    arrays = result.arrays.select(conditions=[last])
    tests = paired_tests(arrays, measure, calibrate=False)
    found = {}
    for name in arrays.explainers:
        test = difference(tests, name, control)
        if name not in arrays.controls and test is not None:
            found[name] = (test["difference"], test["low"], test["high"])
    return measure, last[1], found


def least_rate(result: AxisResult) -> float:
    """The rate that is promised of a sample that counts as certified: the threshold of a decision, else 1 − ε."""
    if result.settings.get("mode") == "decide":
        return float(result.settings.get("threshold", 0.9))
    return 1 - float(result.settings.get("epsilon", 0.1))


def guaranteed_shares(arrays: ScoreArrays, least: float) -> pd.DataFrame:
    """How many samples have a guarantee, per explainer, λ, rule and radius, with an exact interval.

    SCA counts samples whose guaranteed lower bound is at least `least`, the other rules those whose radius is at least
    r: "hard" by the best rule without error, "MuS" by the paper's, "MuS*" for the mean over all Bernoulli masks.
    Columns: explainer, keep, rule, level, n, yes, share, low, high; no rows where one of the two was not measured.
    """
    rows = []
    column = {condition: c for c, condition in enumerate(arrays.conditions)}
    keeps = {condition: arrays.settings_of(condition).share for condition, _ in arrays.conditions}
    radii = [
        (condition, level)
        for condition, level in column
        if level > 0 and (condition, 0.0) in column
    ]
    radii.sort(key=lambda radius: (keeps[radius[0]], radius[1]))
    compared = {"certified", "hard_radius"} <= set(arrays.values)
    for e, explainer in enumerate(arrays.explainers if compared else ()):
        for condition, level in radii:
            bound = arrays.values["certified"][e, column[condition, level]]
            answers = {"SCA": np.where(np.isfinite(bound), bound >= least, np.nan)}
            for rule, measure in RULES.items():
                if measure in arrays.values:
                    radius = arrays.values[measure][e, column[condition, 0.0]]
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
                            *rate_interval(yes, n),
                        )
                    )
    columns = ["explainer", "keep", "rule", "level", "n", "yes", "share", "low", "high"]
    return pd.DataFrame.from_records(rows, columns=columns)


def answer_shares(arrays: ScoreArrays, explainer: str, measure: str) -> pd.DataFrame:
    """Per radius: how many samples of those with an explanation say yes, and how many stayed open."""
    e, rows = arrays.explainers.index(explainer), []
    for c, (_, level) in enumerate(arrays.conditions):
        asked = np.isfinite(arrays.values["certified"][e, c])
        answers = arrays.values[measure][e, c][asked]
        n, yes, unknown = len(answers), int((answers == 1).sum()), int(np.isnan(answers).sum())
        if n:
            rows.append((level, n, yes, unknown, yes / n, *rate_interval(yes, n)))
    return pd.DataFrame.from_records(
        rows, columns=["level", "n", "yes", "open", "share", "low", "high"]
    )


def accuracy(arrays: ScoreArrays) -> pd.DataFrame:
    """Per λ: labelled samples n, how many are right, the share and its exact interval; the same for all explainers."""
    rows = []
    for c, (condition, level) in enumerate(arrays.conditions):
        if level == 0 and "correct" in arrays.values:
            right = arrays.values["correct"][:, c]
            known = np.isfinite(right).any(0)
            n, yes = int(known.sum()), int((right[:, known] == 1).any(0).sum())
            if n:
                rows.append(
                    (
                        arrays.settings_of(condition).share,
                        n,
                        yes,
                        yes / n,
                        *rate_interval(yes, n),
                    )
                )
    frame = pd.DataFrame.from_records(rows, columns=["keep", "n", "yes", "share", "low", "high"])
    return frame.sort_values("keep", ignore_index=True)
