"""What the report shows of certificates: shares of samples with exact intervals, guaranteed means, and gaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from heatproof.evaluation import Condition
from heatproof.results.arrays import ScoreArrays
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import paired_tests
from heatproof.statistics.bounds import mean_rate_low
from heatproof.statistics.conformal import next_sample_low
from heatproof.statistics.intervals import rate_interval
from heatproof.text import difference

Floats = npt.NDArray[np.float64]

RULES = {"hard": "hard_radius", "MuS": "hard_radius_lipschitz", "MuS*": "hard_radius_bernoulli"}
"""The rules that promise τ = 1, and the measures that hold their radii."""


def one_fraction(result: AxisResult) -> AxisResult:
    """Return the result of the first fraction, where there are several."""
    first = result.conditions[0][0] if result.conditions else ""
    of_first = [condition for condition in result.conditions if condition[0] == first]
    if len(of_first) == len(result.conditions):
        return result
    return replace(result, arrays=result.arrays.select(conditions=of_first))


def delta(result: AxisResult) -> float:
    """Return the probability with which a bound may fail."""
    return float(result.settings.get("delta", 0.1))


def certified_mean(result: AxisResult, explainer: str, condition: Condition) -> tuple[float, int]:
    """Return the guaranteed lower bound of the mean rate over the samples (NaN without any), and their number.

    It fails with probability δ; for all methods and radii at once where the study asks for `simultaneous`.
    """
    arrays = result.arrays
    if not {"early", "early_draws"} <= set(arrays.values):
        return float("nan"), 0
    at = arrays.explainers.index(explainer), arrays.conditions.index(condition)
    shares = torch.as_tensor(arrays.values["early"][at])
    draws = torch.as_tensor(arrays.values["early_draws"][at])
    has_rate = torch.isfinite(shares)
    if not bool(has_rate.any()):
        return float("nan"), 0
    statements = 1
    if result.settings.get("simultaneous"):
        radii = [level for _, level in arrays.conditions if level > 0]
        statements = len(arrays.explainers) * len(radii)
    low = mean_rate_low(shares[has_rate], draws[has_rate], delta(result) / statements)
    return low, int(has_rate.sum())


def next_sample(result: AxisResult, explainer: str, condition: Condition) -> tuple[float, int]:
    """Return what the rate of a further sample is at least (NaN if too few samples were tested), and their number.

    It fails with probability 2δ: δ for the rank of the further sample among those tested (split conformal), and δ for
    its certificate.
    """
    arrays = result.arrays
    if "certified" not in arrays.values:
        return float("nan"), 0
    at = arrays.explainers.index(explainer), arrays.conditions.index(condition)
    bounds = torch.as_tensor(arrays.values["certified"][at])
    bounds = bounds[torch.isfinite(bounds)]
    return next_sample_low(bounds, delta(result), lowest=float("nan")), len(bounds)


def gaps_to(
    result: AxisResult, control: str
) -> tuple[str, float, dict[str, tuple[float, float, float]]]:
    """Return headline, largest radius, and by how much each method is ahead of a control there, on the same samples.

    That is the mean difference and its simultaneous interval (difference, low, high); a method is significantly ahead
    if the interval lies above 0.
    """
    measure = next(iter(result.axis.headlines(result.arrays)))
    largest = max(result.conditions, key=lambda condition: condition[1])
    arrays = result.arrays.select(conditions=[largest])
    tests = paired_tests(arrays, measure, calibrate=False)
    gaps = {}
    for name in arrays.explainers:
        test = difference(tests, name, control)
        if name not in arrays.controls and test is not None:
            gaps[name] = (test["difference"], test["low"], test["high"])
    return measure, largest[1], gaps


def least_rate(result: AxisResult) -> float:
    """Return the rate that a certified sample has at least: the threshold of a decision, else 1 − ε."""
    if result.settings.get("mode") == "decide":
        return float(result.settings.get("threshold", 0.9))
    return 1 - float(result.settings.get("epsilon", 0.1))


def guaranteed_shares(arrays: ScoreArrays, least: float) -> pd.DataFrame:
    """Return how many samples have a guarantee, per explainer, λ, rule and radius, with an exact interval.

    SCA counts samples whose guaranteed lower bound is at least `least`, the other rules those whose radius is at least
    r: "hard" by the best rule without error, "MuS" by the paper's, "MuS*" for the mean over all Bernoulli masks.
    Columns: explainer, keep, rule, level, n, yes, share, low, high; no rows where one of the two was not measured.
    """
    columns = ["explainer", "keep", "rule", "level", "n", "yes", "share", "low", "high"]
    if not {"certified", "hard_radius"} <= set(arrays.values):
        return pd.DataFrame(columns=columns)
    position = {condition: c for c, condition in enumerate(arrays.conditions)}
    keeps = {condition: arrays.settings_of(condition).share for condition, _ in arrays.conditions}
    radii = []
    for condition, level in arrays.conditions:
        if level > 0 and (condition, 0.0) in position:
            radii.append((condition, level))
    radii.sort(key=lambda radius: (keeps[radius[0]], radius[1]))

    rows = []
    for e, explainer in enumerate(arrays.explainers):
        for condition, level in radii:
            bound = arrays.values["certified"][e, position[condition, level]]
            is_guaranteed = {"SCA": _reaches(bound, least)}
            for rule, measure in RULES.items():
                if measure in arrays.values:
                    radius = arrays.values[measure][e, position[condition, 0.0]]
                    is_guaranteed[rule] = _reaches(radius, level)
            for rule, answers in is_guaranteed.items():
                n, yes = int(np.isfinite(answers).sum()), int(np.nansum(answers))
                if n:
                    interval = rate_interval(yes, n)
                    row = (explainer, keeps[condition], rule, level, n, yes, yes / n, *interval)
                    rows.append(row)
    return pd.DataFrame.from_records(rows, columns=columns)


def _reaches(values: Floats, least: float) -> Floats:
    """Return 1 where a value is at least `least` and 0 where it is not, NaN where there is none."""
    return np.where(np.isfinite(values), values >= least, np.nan)


def answer_shares(arrays: ScoreArrays, explainer: str, measure: str) -> pd.DataFrame:
    """Return per radius how many samples of those with an explanation have a positive answer, and how many are open.

    Columns: level, n, yes, open, share, low, high.
    """
    e = arrays.explainers.index(explainer)
    rows = []
    for c, (_, level) in enumerate(arrays.conditions):
        has_bound = np.isfinite(arrays.values["certified"][e, c])
        answers = arrays.values[measure][e, c][has_bound]
        n, yes, still_open = len(answers), int((answers == 1).sum()), int(np.isnan(answers).sum())
        if n:
            rows.append((level, n, yes, still_open, yes / n, *rate_interval(yes, n)))
    columns = ["level", "n", "yes", "open", "share", "low", "high"]
    return pd.DataFrame.from_records(rows, columns=columns)


def accuracy(arrays: ScoreArrays) -> pd.DataFrame:
    """Return per λ how many of the labelled samples are predicted correctly, with an exact interval.

    Columns: keep, n, yes, share, low, high. All explainers have the same rows of `correct`.
    """
    columns = ["keep", "n", "yes", "share", "low", "high"]
    if "correct" not in arrays.values:
        return pd.DataFrame(columns=columns)
    rows = []
    for c, (condition, level) in enumerate(arrays.conditions):
        if level != 0:
            continue
        correct = arrays.values["correct"][:, c]
        is_labelled = np.isfinite(correct).any(0)
        n = int(is_labelled.sum())
        yes = int((correct[:, is_labelled] == 1).any(0).sum())
        if n:
            keep = arrays.settings_of(condition).share
            rows.append((keep, n, yes, yes / n, *rate_interval(yes, n)))
    frame = pd.DataFrame.from_records(rows, columns=columns)
    return frame.sort_values("keep", ignore_index=True)
