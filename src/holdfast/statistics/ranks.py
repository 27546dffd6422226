"""Explainers in order, with the uncertainty of their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from holdfast.statistics.bootstrap import (
    Counts,
    bootstrap_counts,
    calibrate,
    mean_of_finite,
    nested_mean,
    percentiles,
    resampled_means,
)
from holdfast.statistics.cubes import Array, Cube, arrange
from holdfast.statistics.forms import Form, best_columns


def ranking(
    table: pd.DataFrame | Sequence[Cube],
    measure: str,
    form: Form = "best",
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    better: Literal["higher", "lower", "neither"] = "higher",
) -> pd.DataFrame:
    """Explainers in order of their overall score, with the uncertainty of score and rank.

    The overall score is the mean over conditions of the mean over a condition's levels of the mean over samples, so
    a sweep counts as one condition. With `form="best"` each mean is aligned and calibrated where the table has both,
    else calibrated, else raw; `raw` is always the raw one. Rank 1 is best; `rank_low` and `rank_high` hold the
    central `level` of the bootstrap ranks and `p_best` is the share of draws with rank 1. Controls are ranked too
    and marked. `conditions` counts the conditions with a score, `conditions_total` all of them. Where `better` is
    "neither", there are scores and no ranks.

    >>> ranking([], "depth").empty
    True
    """
    blocks = []
    for cube in (whole.counted() for whole in arrange(table)):
        if measure not in cube.values:
            continue
        counts = bootstrap_counts(len(cube.samples), resamples, seed)
        score, draws = _overall(cube, measure, form, counts)
        raw, raw_draws = (score, draws) if form == "raw" else _overall(cube, measure, "raw", counts)
        sign = -1.0 if better == "lower" else 1.0
        ranks = (-np.where(np.isnan(draws), -np.inf, sign * draws)).argsort(1, kind="stable").argsort(1) + 1
        edges = ((1 - level) / 2, (1 + level) / 2)
        frame = pd.DataFrame({**cube.key, "measure": measure, "explainer": cube.explainers})
        frame["control"] = [e in cube.controls for e in cube.explainers]
        sampled = np.isfinite(cube.values[measure]).any(1).sum(-1)
        for name, mean, spread in (("", score, draws), ("raw_", raw, raw_draws)):
            low, high = (np.where(sampled < 2, np.nan, edge) for edge in percentiles(spread, level))
            frame[name.rstrip("_") or "score"], frame[name + "low"], frame[name + "high"] = mean, low, high
        frame["rank"] = (sign * frame["score"]).rank(ascending=False, method="min")
        scored = np.isfinite(score) & (better != "neither")
        frame["rank"] = frame["rank"].where(scored)
        frame["rank_low"] = np.where(scored, np.quantile(ranks, edges[0], axis=0, method="lower"), np.nan)
        frame["rank_high"] = np.where(scored, np.quantile(ranks, edges[1], axis=0, method="higher"), np.nan)
        frame["p_best"] = np.where(scored, (ranks == 1).mean(0), np.nan)
        frame["samples"] = sampled
        frame["conditions"] = np.isfinite(cube.values[measure]).any(-1).sum(-1)
        frame["conditions_total"] = len(cube.conditions)
        # An explainer of another kind may have another measure.
        frame = frame.iloc[np.flatnonzero(cube.asked[measure].any(axis=1))]
        blocks.append(frame.sort_values("rank", kind="stable"))
    names = ["dataset", "model", "evaluation", "measure", "explainer", "control", "score", "low", "high"]
    names += ["raw", "raw_low", "raw_high", "rank", "rank_low", "rank_high", "p_best"]
    names += ["samples", "conditions", "conditions_total"]
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=names)


def _overall(cube: Cube, measure: str, form: Form, counts: Counts) -> tuple[Array, Array]:
    """Overall scores (E,) and their draws (resamples, E)."""
    e, c = len(cube.explainers), len(cube.conditions)
    means = np.full((e, c), np.nan)
    draws = np.full((len(counts), e, c), np.nan)
    for here, score, chance in best_columns(cube, measure, form):
        if not here.any():
            continue
        shape = (len(counts), e, int(here.sum()))
        values = cube.values[score][:, here]
        mean, drawn = (
            mean_of_finite(values),
            resampled_means(values.reshape(-1, values.shape[-1]), counts).reshape(shape),
        )
        if chance is not None:
            by = cube.values[chance][:, here]
            by_drawn = resampled_means(by.reshape(-1, by.shape[-1]), counts).reshape(shape)
            mean, drawn = calibrate(mean, mean_of_finite(by)), calibrate(drawn, by_drawn)
        means[:, here], draws[:, :, here] = mean, drawn
    names = [name for name, _ in cube.conditions]
    return nested_mean(means, names), nested_mean(draws, names)
