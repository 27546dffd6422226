"""Paired tests of all pairs of explainers, and how often the components of a score disagree about a pair."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.results.arrays import ScoreArrays
from heatproof.results.score_estimates import sample_scores, score_estimates
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.estimates import sample_totals
from heatproof.statistics.sign_flips import simultaneous_tests

SCORES_AT_ONCE = 2**22
"""How many scores of pairs are held in memory at once."""
TEST_COLUMNS = ["dataset", "model", "evaluation", "measure", "a", "b", "n", "score_a", "score_b"]
TEST_COLUMNS += ["difference", "low", "high", "p", "significant"]
Pair = tuple[int, int]
"""The indices of two explainers."""


def paired_tests(
    arrays: ScoreArrays, measure: str, calibrate: bool = True, level: float = 0.95
) -> pd.DataFrame:
    """Compare every two methods, and every method with every control, on the samples that both have a score of.

    The tests are sign flips of the samples, corrected for all pairs of this test at once (see
    `heatproof.statistics.sign_flips`). `n` is the number of common samples, `score_a` and `score_b` are the overall scores
    on them, and `difference` is a − b with its simultaneous interval, `low` to `high`. `p` is corrected. `significant`
    says that p ≤ 1 − level and n is at least `FEWEST`; exactly then the interval excludes 0. Differences are in the unit
    of the measure, whether more or less of it is better.
    """
    if measure not in arrays.values:
        return pd.DataFrame(columns=TEST_COLUMNS)
    arrays = arrays.for_measure(measure)
    pairs = tested_pairs(arrays, measure)
    if not pairs:
        return pd.DataFrame(columns=TEST_COLUMNS)
    sides, of_pairs = _sides_of_pairs(arrays, measure, calibrate, pairs)
    first, second = of_pairs.T
    n = (sides.shares[first] > 0).sum(1)
    frame = pd.DataFrame(
        {
            **arrays.key,
            "measure": measure,
            "a": [arrays.explainers[a] for a, _ in pairs],
            "b": [arrays.explainers[b] for _, b in pairs],
            "n": n.astype(np.int64),
            "score_a": sides.scores[first],
            "score_b": sides.scores[second],
            "difference": sides.scores[first] - sides.scores[second],
        }
    )
    frame["significant"] = False
    frame[["low", "high", "p"]] = np.nan

    is_compared = n > 0
    if is_compared.any():
        compared = of_pairs[is_compared]
        tests = simultaneous_tests(sides.totals, sides.shares, level, pairs=compared)
        frame.loc[is_compared, "low"] = tests.low
        frame.loc[is_compared, "high"] = tests.high
        frame.loc[is_compared, "p"] = tests.p
        frame.loc[is_compared, "significant"] = tests.significant
    frame.loc[~is_compared, "difference"] = np.nan
    return frame[TEST_COLUMNS]


def tested_pairs(arrays: ScoreArrays, measure: str) -> list[Pair]:
    """Return the pairs of explainers that are compared: all that have the measure but pairs of two controls."""
    has_measure = np.flatnonzero(arrays.has_rows[measure].any(1)).tolist()
    is_control = [name in arrays.controls for name in arrays.explainers]
    pairs = []
    for a, b in itertools.combinations(has_measure, 2):
        if not (is_control[a] and is_control[b]):
            pairs.append((a, b))
    return pairs


@dataclass(frozen=True)
class _Sides:
    """The sides of all pairs: R scores, each of one explainer on the samples that it shares with others.

    An explainer has the same side in all pairs with explainers that have scores on the same samples. Usually that is every
    pair, because whether a sample is retained depends on the model, and E sides serve all pairs.

    totals     what each of M samples and draws adds to the score (R, M), and `shares` their weights; see `sample_totals`
    scores     the overall scores (R,)
    is_scored  under which conditions there is a score (R, C)
    """

    totals: Array
    shares: Array
    scores: Array
    is_scored: NDArray[np.bool_]


def _sides_of_pairs(
    arrays: ScoreArrays, measure: str, calibrate: bool, pairs: Sequence[Pair]
) -> tuple[_Sides, NDArray[np.int64]]:
    """Return the sides of all pairs, on the samples that both have under each condition, and the two of each pair (P, 2)."""
    has_value = np.isfinite(arrays.values[measure])
    samples_of = _numbers_of_equal(has_value)
    selections: list[tuple[int, NDArray[np.bool_]]] = []
    number_of: dict[tuple[int, int], int] = {}
    of_pairs = np.empty((len(pairs), 2), dtype=np.int64)
    for i, (a, b) in enumerate(pairs):
        for position, (explainer, partner) in enumerate([(a, b), (b, a)]):
            key = (explainer, samples_of[partner])
            if key not in number_of:
                number_of[key] = len(selections)
                selections.append((explainer, has_value[explainer] & has_value[partner]))
            of_pairs[i, position] = number_of[key]
    sides = _sides(arrays, measure, calibrate, selections)

    # Without a chance level there is no calibrated score. If only one of two explainers lacks it under a condition, this
    # condition is left out for both.
    first, second = of_pairs.T
    is_uneven = (sides.is_scored[first] != sides.is_scored[second]).any(1)
    if is_uneven.any():
        for i in np.flatnonzero(is_uneven).tolist():
            usable = sides.is_scored[first[i]] & sides.is_scored[second[i]]
            for position in (0, 1):
                number = int(of_pairs[i, position])
                explainer_of_side, selection = selections[number]
                selections.append((explainer_of_side, selection & usable[:, None]))
                of_pairs[i, position] = len(selections) - 1
        sides = _sides(arrays, measure, calibrate, selections)
    return sides, of_pairs


def _numbers_of_equal(masks: NDArray[np.bool_]) -> list[int]:
    """Return a number for each mask (E, ...), the same for equal ones."""
    numbers: dict[bytes, int] = {}
    return [numbers.setdefault(mask.tobytes(), len(numbers)) for mask in masks]


def _sides(
    arrays: ScoreArrays,
    measure: str,
    calibrate: bool,
    selections: Sequence[tuple[int, NDArray[np.bool_]]],
) -> _Sides:
    """Return the scores of R explainers, each on a selection (C, N) of its samples."""
    names = [name for name, _ in arrays.conditions]
    scores_of_a_side = max(len(arrays.samples) * len(arrays.conditions), 1)
    sides_at_once = max(1, SCORES_AT_ONCE // scores_of_a_side)
    totals, shares, scores, is_scored = [], [], [], []
    for start in range(0, len(selections), sides_at_once):
        some = selections[start : start + sides_at_once]
        explainers = np.array([explainer for explainer, _ in some], dtype=np.int64)
        use = np.stack([selection for _, selection in some])
        estimates = score_estimates(arrays, measure, calibrate, use, explainers)
        some_totals, some_shares = sample_totals(estimates, names)
        totals.append(some_totals)
        shares.append(some_shares)
        scores.append(estimates.nested(names).value)
        is_scored.append(np.isfinite(estimates.value))
    return _Sides(*(np.concatenate(blocks) for blocks in (totals, shares, scores, is_scored)))


def disagreement(arrays: ScoreArrays, components: Sequence[str]) -> pd.DataFrame:
    """Return how often the components of a score order two explainers differently; empty without these components.

    One row: of all pairs of explainers under all conditions that have a mean in every component, `compared`, those whose
    differences do not all have the same sign, `count`, and `share` = count / compared. The column `a_b` has the share for
    the components a and b alone.
    """
    pairs = list(itertools.combinations(range(len(components)), 2))
    columns = ["dataset", "model", "evaluation", "compared", "count", "share"]
    columns += [f"{components[i]}_{components[j]}" for i, j in pairs]
    if not set(components) <= set(arrays.values):
        return pd.DataFrame(columns=columns)

    arrays = arrays.for_measure(components[0])
    first, second = np.triu_indices(len(arrays.explainers), 1)
    signs_of_components = []
    for component in components:
        means = mean_of_finite(sample_scores(arrays, component))  # (E, C)
        signs_of_components.append(np.sign(means[first] - means[second]).ravel())
    signs = np.stack(signs_of_components)
    signs = signs[:, np.isfinite(signs).all(0)]
    compared = signs.shape[1]
    count = int((signs != signs[0]).any(0).sum())
    row: dict[str, Any] = {
        **arrays.key,
        "compared": compared,
        "count": count,
        "share": count / compared if compared else math.nan,
    }
    for i, j in pairs:
        share = float((signs[i] != signs[j]).mean()) if compared else math.nan
        row[f"{components[i]}_{components[j]}"] = share
    return pd.DataFrame([row], columns=columns)
