"""Explainers in order, with the uncertainty of their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from holdfast.statistics.cubes import Array, Cube, arrange
from holdfast.statistics.estimates import Estimate, estimates
from holdfast.statistics.forms import Form

ALIKE = 1e-9
"""Scores that differ by less are equal: they share their ranks."""


def ranking(
    table: pd.DataFrame | Sequence[Cube],
    measure: str,
    form: Form = "best",
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
    better: Literal["higher", "lower", "neither"] = "higher",
) -> pd.DataFrame:
    """Explainers in order of their overall score, with the uncertainty of score and rank.

    The overall score is the mean over conditions of the mean over a condition's levels of the mean over samples, so
    a sweep counts as one condition. With `form="best"` each mean is aligned and calibrated where the table has both,
    else calibrated, else raw; `raw` is always the raw one. Rank 1 is best, and equal scores share a rank; `rank_low`
    and `rank_high` hold the central `level` of the ranks in `draws` of all scores from the distribution of their
    errors, `p_best` is the share of draws with rank 1. A control has a score and no rank. `conditions` counts the
    conditions with a score, `conditions_total` all of them; `by_references` is the share of the variance that is due to
    the samples chance is taken from. Where `better` is "neither", there are scores and no ranks.

    >>> ranking([], "depth").empty
    True
    """
    blocks = []
    for cube in (whole.counted() for whole in arrange(table)):
        if measure not in cube.values:
            continue
        names = [name for name, _ in cube.conditions]
        best = estimates(cube, measure, form).nested(names)
        raw = best if form == "raw" else estimates(cube, measure, "raw").nested(names)
        frame = pd.DataFrame({**cube.key, "measure": measure, "explainer": cube.explainers})
        frame["control"] = [e in cube.controls for e in cube.explainers]
        for name, found in (("", best), ("raw_", raw)):
            ends = found.interval(level)
            frame[name.rstrip("_") or "score"], frame[name + "low"], frame[name + "high"] = found.value, *ends
        sign = -1.0 if better == "lower" else 1.0
        ranked = np.isfinite(best.value) & ~frame["control"].to_numpy(dtype=bool) & (better != "neither")
        score = np.where(ranked, sign * best.value, np.nan)
        frame["rank"] = _ranks(score[None])[0]
        ranks = _ranks(np.where(ranked, sign * drawn(best, draws, seed), np.nan))
        edges = ((1 - level) / 2, (1 + level) / 2)
        for name, edge, method in (("rank_low", edges[0], "lower"), ("rank_high", edges[1], "higher")):
            frame[name] = np.where(ranked, np.quantile(ranks, edge, axis=0, method=method), np.nan)  # type: ignore[call-overload]
        frame["p_best"] = np.where(ranked, (ranks == 1).mean(0), np.nan)
        frame["by_references"] = best.share_of_references
        frame["samples"] = np.isfinite(cube.values[measure]).any(1).sum(-1)
        frame["conditions"] = np.isfinite(cube.values[measure]).any(-1).sum(-1)
        frame["conditions_total"] = len(cube.conditions)
        # An explainer of another kind may have another measure.
        frame = frame.iloc[np.flatnonzero(cube.asked[measure].any(axis=1))]
        blocks.append(frame.sort_values("score", ascending=better == "lower", kind="stable"))
    columns = ["dataset", "model", "evaluation", "measure", "explainer", "control", "score", "low", "high"]
    columns += ["raw", "raw_low", "raw_high", "rank", "rank_low", "rank_high", "p_best", "by_references"]
    columns += ["samples", "conditions", "conditions_total"]
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=columns)


def drawn(scores: Estimate, draws: int, seed: int) -> Array:
    """Draws (draws, E) of all scores at once: each sample's parts times a normal number, with Student's tails."""
    generator = np.random.default_rng(seed)
    errors = scores.errors()
    parts = np.nan_to_num(errors.parts)
    moved = np.zeros((draws, len(parts)))
    for start in range(0, parts.shape[1], 1024):  # a few samples at a time bounds the memory
        some = parts[:, start : start + 1024]
        moved += generator.standard_normal((draws, some.shape[1])) @ some.T
    df = float(np.min(errors.df, where=np.isfinite(errors.df) & (errors.df > 0), initial=1e9))
    tails = np.sqrt(df / generator.chisquare(df, (draws, 1)))
    return np.asarray(errors.value + moved * tails)


def _ranks(scores: Array) -> Array:
    """Ranks (draws, E), 1 for the highest score, shared where scores are alike; NaN where there is no score."""
    return np.asarray(stats.rankdata(-np.round(scores / ALIKE) * ALIKE, method="min", axis=1, nan_policy="omit"))


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
