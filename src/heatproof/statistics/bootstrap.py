"""The bootstrap as matrix products: draws are count matrices (resamples × samples)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatproof.statistics.arrays import Array, mean_of_finite

Counts: TypeAlias = NDArray[Any]
AT_ONCE = 2**24
"""How many counts are multiplied at once; as float32 they take four bytes each."""


@lru_cache(maxsize=1)
def bootstrap_counts(n: int, resamples: int, seed: int) -> Counts:
    """Return how often each of n samples is drawn in each of the bootstrap draws, (resamples, n), as bytes.

    Of n draws among n samples none is drawn 256 times; that would be reported as an overflow.
    """
    generator = np.random.default_rng(seed)
    counts = np.empty((resamples, n), dtype=np.uint8)
    for row in counts:  # one draw at a time: n indices instead of resamples × n
        drawn = np.bincount(generator.integers(0, n, n), minlength=n)
        if drawn.max(initial=0) > 255:
            raise OverflowError("a bootstrap draw took one sample more than 255 times")
        row[:] = drawn
    counts.flags.writeable = False  # it is shared between the callers
    return counts


def resampled_means(values: Array, counts: Counts) -> Array:
    """Return the means of the finite entries of (K, N) in every draw, (resamples, K); a few draws at a time if N is large."""
    finite = np.isfinite(values)
    centre = mean_of_finite(values)  # products of deviations keep float32 exact enough
    spread = np.where(finite, values - centre[:, None], 0.0).astype(np.float32)
    is_scored = finite.astype(np.float32)
    deviations = np.full((len(counts), len(values)), np.nan)
    step = max(1, AT_ONCE // max(1, values.shape[-1]))
    for start in range(0, len(counts), step):
        drawn = counts[start : start + step].astype(np.float32)
        n = drawn @ is_scored.T
        deviations[start : start + step] = np.divide(
            drawn @ spread.T, n, out=np.full(n.shape, np.nan), where=n > 0
        )
    return deviations + centre


def percentiles(draws: Array, level: float) -> tuple[Array, Array]:
    """Return the ends of the central `level` of the draws (resamples, K), per column."""
    edges = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(draws, edges, axis=0)
    for k in np.flatnonzero(np.isnan(low)):  # a draw may miss the few retained samples altogether
        column = draws[np.isfinite(draws[:, k]), k]
        if len(column):
            low[k], high[k] = np.quantile(column, edges)
    return low, high
