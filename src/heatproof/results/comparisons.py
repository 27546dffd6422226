"""Paired tests of all pairs of explainers, and how often the components of a score disagree about a pair."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.results.arrays import ScoreArrays
from heatproof.results.score_estimates import sample_scores, score_estimates
from heatproof.statistics.arrays import mean_of_finite
from heatproof.statistics.estimates import Estimate, sample_totals
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
    names = [name for name, _ in arrays.conditions]

    rows, all_totals, all_shares = [], [], []
    scores_of_a_pair = max(len(arrays.samples) * len(arrays.conditions), 1)
    pairs_at_once = max(1, SCORES_AT_ONCE // scores_of_a_pair)
    for start in range(0, len(pairs), pairs_at_once):
        some_pairs = pairs[start : start + pairs_at_once]
        first, second = _scores_on_common_samples(arrays, measure, calibrate, some_pairs)
        totals, shares = sample_totals(first.minus(second), names)
        all_totals.append(totals)
        all_shares.append(shares)
        scores_a, scores_b = first.nested(names).value, second.nested(names).value
        for i, (a, b) in enumerate(some_pairs):
            row = {
                **arrays.key,
                "measure": measure,
                "a": arrays.explainers[a],
                "b": arrays.explainers[b],
                "n": int((shares[i] > 0).sum()),
                "score_a": scores_a[i],
                "score_b": scores_b[i],
                "difference": scores_a[i] - scores_b[i],
            }
            rows.append(row)
    frame = pd.DataFrame(rows, columns=TEST_COLUMNS).astype({"n": np.int64})
    frame["significant"] = False
    frame[["low", "high", "p"]] = np.nan

    is_compared = frame["n"].to_numpy() > 0
    if is_compared.any():
        totals = np.concatenate(all_totals)[is_compared]
        shares = np.concatenate(all_shares)[is_compared]
        tests = simultaneous_tests(totals, shares, level)
        frame.loc[is_compared, "low"] = tests.low
        frame.loc[is_compared, "high"] = tests.high
        frame.loc[is_compared, "p"] = tests.p
        frame.loc[is_compared, "significant"] = tests.significant
    frame.loc[~is_compared, "difference"] = np.nan
    return frame


def tested_pairs(arrays: ScoreArrays, measure: str) -> list[Pair]:
    """Return the pairs of explainers that are compared: all that have the measure but pairs of two controls."""
    has_measure = np.flatnonzero(arrays.has_rows[measure].any(1)).tolist()
    is_control = [name in arrays.controls for name in arrays.explainers]
    pairs = []
    for a, b in itertools.combinations(has_measure, 2):
        if not (is_control[a] and is_control[b]):
            pairs.append((a, b))
    return pairs


def _scores_on_common_samples(
    arrays: ScoreArrays, measure: str, calibrate: bool, pairs: Sequence[Pair]
) -> tuple[Estimate, Estimate]:
    """Return the scores (P, C) of both sides of P pairs, on the samples that both have under each condition."""
    a = np.array([first for first, _ in pairs], dtype=np.int64)
    b = np.array([second for _, second in pairs], dtype=np.int64)
    is_scored = np.isfinite(arrays.values[measure])
    common = is_scored[a] & is_scored[b]
    scores_of_a = score_estimates(arrays, measure, calibrate, common, a)
    scores_of_b = score_estimates(arrays, measure, calibrate, common, b)
    return scores_of_a, scores_of_b


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
