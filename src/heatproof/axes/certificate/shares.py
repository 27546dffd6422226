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
    """Return the certified lower bound of the mean stability rate over the samples, and the number of samples.

    The rate is how often the prediction stays when features are added to an explanation. The bound fails with probability
    δ, for all methods and radii at once if the study says `simultaneous` (Bonferroni). It is NaN without samples.
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
    """Return a lower bound of the stability rate of a further, untested sample, and the number of tested samples.

    It fails with probability 2δ: δ for the rank of the further sample among those tested (split conformal prediction),
    and δ for its certificate. NaN if too few samples were tested.
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
    """Return the headline measure, the largest radius, and by how much each method is ahead of a control there.

    The last is, by method, the mean difference on the same samples with its simultaneous interval: (difference, low,
    high). A method is significantly ahead if the interval lies above 0.
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
    """Return the share of samples whose prediction is guaranteed to stay when up to r features are added, as a table.

    There is a row per explainer, λ (`keep`), rule and radius r (`level`). The soft rule "SCA" counts samples whose certified
    lower bound of the stability rate is at least `least`. The hard rules count samples whose hard radius is at least r:
    "hard" by the best rule, "MuS" by that of the paper, "MuS*" for the mean over all Bernoulli masks.

    Columns: explainer, keep, rule, level, n, yes, share, and low and high of its exact interval. The table is empty if
    certified bounds or hard radii were not measured.
    """
    columns = ["explainer", "keep", "rule", "level", "n", "yes", "share", "low", "high"]
    if not {"certified", "hard_radius"} <= set(arrays.values):
        return pd.DataFrame(columns=columns)
    position = {condition: c for c, condition in enumerate(arrays.conditions)}
    keeps = {condition: arrays.settings_of(condition).share for condition, _ in arrays.conditions}
    # Certified bounds are stored by radius, hard radii at level 0.
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
    """Return how many samples of an explainer have a positive yes/no `measure`, and how many are undecided, per radius.

    Columns: level (the radius), n (samples with an explanation), yes, open, share, and low and high of its exact interval.
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
    """Return the accuracy of the smoothed models on the labelled samples, a row per λ, with an exact interval.

    Columns: keep (λ), n, yes, share, low, high. Every explainer has the same predictions, so one with a score is enough.
    """
    columns = ["keep", "n", "yes", "share", "low", "high"]
    if "correct" not in arrays.values:
        return pd.DataFrame(columns=columns)
    rows = []
    for c, (condition, level) in enumerate(arrays.conditions):
        if level != 0:
            continue
        correct = arrays.values["correct"][:, c]  # (explainers, samples)
        is_labelled = np.isfinite(correct).any(0)
        n = int(is_labelled.sum())
        yes = int((correct[:, is_labelled] == 1).any(0).sum())
        if n:
            keep = arrays.settings_of(condition).share
            rows.append((keep, n, yes, yes / n, *rate_interval(yes, n)))
    frame = pd.DataFrame.from_records(rows, columns=columns)
    return frame.sort_values("keep", ignore_index=True)
