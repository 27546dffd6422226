"""Explainers in order, with the uncertainty of their ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heatproof.evaluation import Better
from heatproof.statistics.above_chance import decide_above_chance
from heatproof.statistics.calibration import Form
from heatproof.statistics.cubes import Array, Cube, arrange
from heatproof.statistics.estimates import estimates
from heatproof.statistics.intervals import ALIKE
from heatproof.statistics.pairs import paired_tests


def ranking(
    table: pd.DataFrame | Sequence[Cube],
    measure: str,
    form: Form = "best",
    level: float = 0.95,
    better: Better = "higher",
    tests: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return the explainers in order of their overall score, with the uncertainty of score and rank.

    The overall score is the mean over conditions of the mean over a condition's levels of the mean over samples, so
    a sweep counts as one condition. With `form="best"` each mean is calibrated where the measure has a chance level,
    else raw; `raw` is always the raw one. Rank 1 is best, and equal scores share a rank; from
    `rank_low` to `rank_high` are the ranks that `paired_tests` leave open, see `rank_ranges`. A control has a score and
    no rank. `lower_bound` and `upper_bound` are one-sided, and hold for all methods at once (Bonferroni). So does
    `above_chance`: True, False, or None where the samples are too few to tell or the measure has no chance level.
    `conditions` counts the conditions with a score, `conditions_total` all of them; `by_references` is the share of the
    variance that is due to the samples chance is taken from. Where `better` is "neither", there are scores and no
    ranks. `tests` are those of one cube, where they are known already.

    >>> ranking([], "depth").empty
    True
    """
    blocks = []
    for whole in arrange(table):
        if measure not in whole.values:
            continue
        cube = whole.conditions_of(measure)
        scores = _overall_scores(cube, measure, form, level, better)
        is_ranked = _is_ranked(scores, better)
        beats = np.zeros((len(scores), len(scores)), dtype=bool)
        if is_ranked.sum() > 1:
            known = paired_tests([cube], measure, form, level) if tests is None else tests
            beats = _who_beats_whom(known, cube.explainers, better)
        ranked = _with_ranks(scores, is_ranked, beats, better)

        # An explainer of another kind may have another measure.
        was_measured = cube.asked[measure].any(axis=1)
        by_score = ranked.iloc[np.flatnonzero(was_measured)].sort_values(
            "score", ascending=better == "lower", kind="stable"
        )
        blocks.append(by_score[_COLUMNS])
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=_COLUMNS)


_COLUMNS = [
    "dataset",
    "model",
    "evaluation",
    "measure",
    "explainer",
    "control",
    "score",
    "low",
    "high",
]
_COLUMNS += ["raw", "raw_low", "raw_high", "lower_bound", "upper_bound", "above_chance"]
_COLUMNS += ["rank", "rank_low", "rank_high", "by_references"]
_COLUMNS += ["samples", "conditions", "conditions_total"]


def _overall_scores(
    cube: Cube, measure: str, form: Form, level: float, better: Better
) -> pd.DataFrame:
    """Return the overall score of each explainer of a cube with its intervals and bounds, in the cube's order."""
    names = [name for name, _ in cube.conditions]
    best = estimates(cube, measure, form).nested(names)
    raw = best if form == "raw" else estimates(cube, measure, "raw").nested(names)
    is_control = np.array([name in cube.controls for name in cube.explainers], dtype=bool)

    # Bounds hold for all methods at once, by Bonferroni's correction.
    methods = max(int((~is_control & np.isfinite(best.value)).sum()), 1)
    confidence = 1 - (1 - level) / methods
    # A single method's bound at 1 − level would be above chance where its two-sided interval still contains it.
    two_sided = 1 - (1 - level) / max(methods, 2)

    low, high = best.interval(level)
    raw_low, raw_high = raw.interval(level)
    is_scored = np.isfinite(cube.values[measure])
    return pd.DataFrame(
        {
            **cube.key,
            "measure": measure,
            "explainer": cube.explainers,
            "control": is_control,
            "score": best.value,
            "low": low,
            "high": high,
            "raw": raw.value,
            "raw_low": raw_low,
            "raw_high": raw_high,
            "lower_bound": best.bound(confidence, lower=True)[0],
            "upper_bound": best.bound(confidence, lower=False)[0],
            "above_chance": decide_above_chance(cube, measure, better, two_sided),
            "by_references": best.share_of_references,
            "samples": is_scored.any(1).sum(-1),
            "conditions": is_scored.any(-1).sum(-1),
            "conditions_total": len(cube.conditions),
        }
    )


def _is_ranked(scores: pd.DataFrame, better: Better) -> NDArray[np.bool_]:
    """Return which explainers have a rank: methods with a score, where one direction is better."""
    has_rank = scores["score"].notna() & ~scores["control"] & (better != "neither")
    return has_rank.to_numpy(dtype=bool)


def _who_beats_whom(
    tests: pd.DataFrame, explainers: Sequence[str], better: Better
) -> NDArray[np.bool_]:
    """Return (E, E) whether explainer i is significantly better than j."""
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
    rounded = (
        np.round(losses / ALIKE) * ALIKE
    )  # equal scores share a rank whatever rounding left of them
    rank = np.asarray(stats.rankdata(rounded, method="min", nan_policy="omit"), dtype=np.float64)

    lowest, highest = np.full(len(scores), np.nan), np.full(len(scores), np.nan)
    open_low, open_high = rank_ranges(beats[np.ix_(is_ranked, is_ranked)])
    # The rank is by all samples of a method, the tests by those that two methods have in common.
    lowest[is_ranked] = np.minimum(open_low, rank[is_ranked])
    highest[is_ranked] = np.maximum(open_high, rank[is_ranked])
    return scores.assign(rank=rank, rank_low=lowest, rank_high=highest)


def rank_ranges(beats: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return the ranks (…, m) that are open to each of m methods, where `beats` (…, m, m) says whether i beats j.

    From 1 + the number shown to be better, to m − the number shown to be worse. Where the tests are wrong about any
    pair with probability 1 − level at most, all ranges hold the true ranks at once with probability `level`.

    >>> first_beats_last = np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    >>> [ends.tolist() for ends in rank_ranges(first_beats_last)]
    [[1.0, 1.0, 2.0], [2.0, 3.0, 3.0]]
    """
    return 1.0 + beats.sum(-2), beats.shape[-1] - 1.0 * beats.sum(-1)


def spearman(a: Array, b: Array) -> Array:
    """Return Spearman's correlation over the last axis, tied values sharing their mean rank; NaN where one is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0])).item()
    0.5
    """
    ranks_a, ranks_b = stats.rankdata(a, axis=-1), stats.rankdata(b, axis=-1)
    x = ranks_a - ranks_a.mean(-1, keepdims=True)
    y = ranks_b - ranks_b.mean(-1, keepdims=True)
    product = (x * y).sum(-1)
    size = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    correlation = np.divide(product, size, out=np.full(np.shape(product), np.nan), where=size > 0)
    is_missing = np.isnan(a).any(-1) | np.isnan(b).any(-1)
    return np.asarray(np.where(is_missing, np.nan, correlation))
