"""Ranks: which are open to methods by the tests, and how two rankings correlate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from heatproof.statistics.arrays import Array


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
