"""Explainers in order, with the uncertainty of their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

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
    better: Literal["higher", "lower", "neither"] = "higher",
    tests: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Explainers in order of their overall score, with the uncertainty of score and rank.

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
        names = [name for name, _ in cube.conditions]
        best = estimates(cube, measure, form).nested(names)
        raw = best if form == "raw" else estimates(cube, measure, "raw").nested(names)
        frame = pd.DataFrame({**cube.key, "measure": measure, "explainer": cube.explainers})
        frame["control"] = [e in cube.controls for e in cube.explainers]
        for name, found in (("", best), ("raw_", raw)):
            ends = found.interval(level)
            frame[name.rstrip("_") or "score"], frame[name + "low"], frame[name + "high"] = (
                found.value,
                *ends,
            )
        methods = max(int((~frame["control"] & np.isfinite(best.value)).sum()), 1)
        confidence = 1 - (1 - level) / methods
        frame["lower_bound"] = best.bound(confidence, lower=True)[0]
        frame["upper_bound"] = best.bound(confidence, lower=False)[0]
        # A single method's bound at 1 − level would be above chance where its two-sided interval still contains it.
        two_sided = 1 - (1 - level) / max(methods, 2)
        frame["above_chance"] = decide_above_chance(cube, measure, better, two_sided)
        sign = -1.0 if better == "lower" else 1.0
        ranked = (
            np.isfinite(best.value) & ~frame["control"].to_numpy(dtype=bool) & (better != "neither")
        )
        score = np.where(ranked, -sign * best.value, np.nan)
        frame["rank"] = stats.rankdata(
            np.round(score / ALIKE) * ALIKE, method="min", nan_policy="omit"
        )
        ahead = np.zeros((len(frame), len(frame)), dtype=bool)
        if ranked.sum() > 1:
            known = paired_tests([cube], measure, form, level) if tests is None else tests
            known = known[known["significant"].to_numpy(dtype=bool)]
            place = {name: i for i, name in enumerate(cube.explainers)}
            a, b = (known[side].map(place).to_numpy(dtype=np.int64) for side in ("a", "b"))
            won = sign * known["difference"].to_numpy(dtype=np.float64) > 0
            ahead[np.where(won, a, b), np.where(won, b, a)] = True
        low, high = rank_ranges(ahead[np.ix_(ranked, ranked)])
        own = frame.loc[
            ranked, "rank"
        ]  # by all samples of a method: tests know those that two have in common
        frame.loc[ranked, "rank_low"], frame.loc[ranked, "rank_high"] = (
            np.minimum(low, own),
            np.maximum(high, own),
        )
        frame["by_references"] = best.share_of_references
        frame["samples"] = np.isfinite(cube.values[measure]).any(1).sum(-1)
        frame["conditions"] = np.isfinite(cube.values[measure]).any(-1).sum(-1)
        frame["conditions_total"] = len(cube.conditions)
        # An explainer of another kind may have another measure.
        frame = frame.iloc[np.flatnonzero(cube.asked[measure].any(axis=1))]
        blocks.append(frame.sort_values("score", ascending=better == "lower", kind="stable"))
    columns = [
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
    columns += ["raw", "raw_low", "raw_high", "lower_bound", "upper_bound", "above_chance"]
    columns += ["rank", "rank_low", "rank_high", "by_references"]
    columns += ["samples", "conditions", "conditions_total"]
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=columns)


def rank_ranges(ahead: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The ranks (…, m) that are open to each of m methods, where `ahead` (…, m, m) says that i was shown to beat j.

    From 1 + the number shown to be better, to m − the number shown to be worse. Where the tests are wrong about any
    pair with probability 1 − level at most, all ranges hold the true ranks at once with probability `level`.

    >>> first_beats_last = np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    >>> [ends.tolist() for ends in rank_ranges(first_beats_last)]
    [[1.0, 1.0, 2.0], [2.0, 3.0, 3.0]]
    """
    return 1.0 + ahead.sum(-2), ahead.shape[-1] - 1.0 * ahead.sum(-1)


def spearman(a: Array, b: Array) -> Array:
    """Spearman's correlation over the last axis, tied values sharing their mean rank; NaN where one is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0])).item()
    0.5
    """
    ranks = [stats.rankdata(v, axis=-1) for v in (a, b)]
    x, y = (r - r.mean(-1, keepdims=True) for r in ranks)
    product, size = (x * y).sum(-1), np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    found = np.divide(product, size, out=np.full(np.shape(product), np.nan), where=size > 0)
    missing = np.isnan(a).any(-1) | np.isnan(b).any(-1)
    return np.asarray(np.where(missing, np.nan, found))
