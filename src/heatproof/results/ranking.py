"""Explainers in the order of their overall scores, with the uncertainty of scores and ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heatproof.evaluation import Better
from heatproof.results.above_chance import decide_above_chance
from heatproof.results.arrays import ScoreArrays
from heatproof.results.comparisons import paired_tests
from heatproof.results.score_estimates import score_estimates
from heatproof.statistics.intervals import ALIKE
from heatproof.statistics.ranks import rank_ranges

RANKING_COLUMNS = ["dataset", "model", "evaluation", "measure", "explainer", "control"]
RANKING_COLUMNS += ["score", "low", "high", "raw", "raw_low", "raw_high"]
RANKING_COLUMNS += ["lower_bound", "upper_bound", "above_chance", "rank", "rank_low", "rank_high"]
RANKING_COLUMNS += ["by_references", "samples", "conditions", "conditions_total"]


def ranking(
    arrays: ScoreArrays,
    measure: str,
    better: Better = "higher",
    calibrate: bool = True,
    tests: pd.DataFrame | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return the explainers in the order of their overall score, with the uncertainty of score and rank.

    The overall score is the mean over conditions of the mean over a condition's levels of the mean over samples, so
    a sweep counts as one condition. Means are calibrated where the measure has a chance level, unless `calibrate` is
    False; `raw` never is. Rank 1 is best, and equal scores share a rank; `rank_low` to `rank_high` are the ranks that the
    `paired_tests` leave open (see `rank_ranges`). A control has a score and no rank; if `better` is "neither", nothing has
    a rank. `lower_bound` and `upper_bound` are one-sided and hold for all methods at once (Bonferroni). So does
    `above_chance`: True, False, or None where the samples are too few to tell or the measure has no chance level.
    `conditions` counts the conditions with a score, `conditions_total` all of them. `by_references` is the share of the
    variance that is due to the references. `tests` are the paired tests of this measure, if they are known.
    """
    if measure not in arrays.values:
        return pd.DataFrame(columns=RANKING_COLUMNS)
    arrays = arrays.for_measure(measure)
    scores = _overall_scores(arrays, measure, calibrate, level, better)
    is_ranked = _is_ranked(scores, better)
    beats = np.zeros((len(scores), len(scores)), dtype=bool)
    if is_ranked.sum() > 1:
        if tests is None:
            tests = paired_tests(arrays, measure, calibrate, level)
        beats = _who_beats_whom(tests, arrays.explainers, better)
    ranked = _with_ranks(scores, is_ranked, beats, better)

    # An explainer of another kind may have another measure.
    with_measure = np.flatnonzero(arrays.has_rows[measure].any(axis=1))
    lowest_first = better == "lower"
    ranked = ranked.iloc[with_measure][RANKING_COLUMNS]
    return ranked.sort_values("score", ascending=lowest_first, kind="stable", ignore_index=True)


def _overall_scores(
    arrays: ScoreArrays, measure: str, calibrate: bool, level: float, better: Better
) -> pd.DataFrame:
    """Return the overall score of each explainer with its intervals and bounds, in the order of the arrays."""
    names = [name for name, _ in arrays.conditions]
    scores = score_estimates(arrays, measure, calibrate).nested(names)
    raw = score_estimates(arrays, measure, calibrate=False).nested(names)
    is_control = np.array([name in arrays.controls for name in arrays.explainers], dtype=bool)

    # Bounds hold for all methods at once, by Bonferroni's correction.
    methods = max(int((~is_control & np.isfinite(scores.value)).sum()), 1)
    confidence = 1 - (1 - level) / methods
    # A single method's bound at 1 − level would be above chance where its two-sided interval still contains it.
    two_sided = 1 - (1 - level) / max(methods, 2)

    low, high = scores.interval(level)
    raw_low, raw_high = raw.interval(level)
    is_scored = np.isfinite(arrays.values[measure])
    return pd.DataFrame(
        {
            **arrays.key,
            "measure": measure,
            "explainer": arrays.explainers,
            "control": is_control,
            "score": scores.value,
            "low": low,
            "high": high,
            "raw": raw.value,
            "raw_low": raw_low,
            "raw_high": raw_high,
            "lower_bound": scores.bound(confidence, lower=True)[0],
            "upper_bound": scores.bound(confidence, lower=False)[0],
            "above_chance": decide_above_chance(arrays, measure, better, two_sided),
            "by_references": scores.share_of_references,
            "samples": is_scored.any(1).sum(-1),
            "conditions": is_scored.any(-1).sum(-1),
            "conditions_total": len(arrays.conditions),
        }
    )


def _is_ranked(scores: pd.DataFrame, better: Better) -> NDArray[np.bool_]:
    """Return which explainers have a rank: methods with a score, where one direction is better."""
    has_rank = scores["score"].notna() & ~scores["control"] & (better != "neither")
    return has_rank.to_numpy(dtype=bool)


def _who_beats_whom(
    tests: pd.DataFrame, explainers: Sequence[str], better: Better
) -> NDArray[np.bool_]:
    """Return (E, E): whether explainer i is significantly better than explainer j."""
    beats = np.zeros((len(explainers), len(explainers)), dtype=bool)
    significant = tests[tests["significant"].to_numpy(dtype=bool)]
    index = {name: i for i, name in enumerate(explainers)}
    a = significant["a"].map(index).to_numpy(dtype=np.int64)
    b = significant["b"].map(index).to_numpy(dtype=np.int64)
    sign = -1.0 if better == "lower" else 1.0
    a_wins = sign * significant["difference"].to_numpy(dtype=np.float64) > 0
    beats[np.where(a_wins, a, b), np.where(a_wins, b, a)] = True
    return beats


def _with_ranks(
    scores: pd.DataFrame,
    is_ranked: NDArray[np.bool_],
    beats: NDArray[np.bool_],
    better: Better,
) -> pd.DataFrame:
    """Add each method's rank by its score, and the range of ranks that the tests leave open; NaN without a rank."""
    sign = -1.0 if better == "lower" else 1.0
    losses = np.where(is_ranked, -sign * scores["score"].to_numpy(dtype=np.float64), np.nan)
    rounded = np.round(losses / ALIKE) * ALIKE  # equal but for rounding errors: one rank
    rank = np.asarray(stats.rankdata(rounded, method="min", nan_policy="omit"), dtype=np.float64)

    lowest, highest = np.full(len(scores), np.nan), np.full(len(scores), np.nan)
    open_low, open_high = rank_ranges(beats[np.ix_(is_ranked, is_ranked)])
    # The rank is by all samples of a method, the tests by those that two methods have in common.
    lowest[is_ranked] = np.minimum(open_low, rank[is_ranked])
    highest[is_ranked] = np.maximum(open_high, rank[is_ranked])
    return scores.assign(rank=rank, rank_low=lowest, rank_high=highest)
