"""The bootstrap as matrix products: draws are count matrices (resamples × samples)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from holdfast.cubes import Array


def mean_of_finite(values: Array) -> Array:
    """Mean over the last axis of the finite entries; NaN where there are none."""
    finite = np.isfinite(values)
    n = finite.sum(-1)
    total = np.where(finite, values, 0.0).sum(-1)
    return np.asarray(np.divide(total, n, out=np.full(np.shape(total), np.nan), where=n > 0))


def calibrate(score: Array, chance: Array) -> Array:
    """(score − chance) / (1 − chance); NaN where chance leaves no room."""
    room = 1 - chance
    return np.asarray(np.divide(score - chance, room, out=np.full(np.shape(score), np.nan), where=np.abs(room) > 1e-9))


@lru_cache(maxsize=1)
def bootstrap_counts(n: int, resamples: int, seed: int) -> NDArray[np.float32]:
    """How often each of n samples is drawn in each of the bootstrap draws, (resamples, n)."""
    generator = np.random.default_rng(seed)
    counts = np.empty((resamples, n), dtype=np.float32)
    for row in counts:  # one draw at a time: n indices instead of resamples × n
        row[:] = np.bincount(generator.integers(0, n, n), minlength=n)
    counts.flags.writeable = False  # it is shared between the callers
    return counts


def resampled_means(values: Array, counts: NDArray[np.float32]) -> Array:
    """Means of the finite entries of (K, N) in every draw, (resamples, K)."""
    finite = np.isfinite(values)
    centre = mean_of_finite(values)  # products of deviations keep float32 exact enough
    spread = np.where(finite, values - centre[:, None], 0.0).astype(np.float32)
    n = counts @ finite.T.astype(np.float32)
    drawn = np.divide(counts @ spread.T, n, out=np.full(n.shape, np.nan), where=n > 0)
    return np.asarray(drawn + centre)


def percentiles(draws: Array, level: float) -> tuple[Array, Array]:
    """The central `level` of the draws (resamples, K), per column."""
    edges = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(draws, edges, axis=0)
    for k in np.flatnonzero(np.isnan(low)):  # a draw may miss the few retained samples altogether
        column = draws[np.isfinite(draws[:, k]), k]
        if len(column):
            low[k], high[k] = np.quantile(column, edges)
    return low, high
