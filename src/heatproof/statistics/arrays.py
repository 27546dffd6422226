"""Arrays of scores in which a missing score is NaN."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mean_of_finite(values: Array) -> Array:
    """Return the mean over the last axis of the finite entries; NaN where there are none."""
    finite = np.isfinite(values)
    n = finite.sum(-1)
    total = np.where(finite, values, 0.0).sum(-1)
    return np.asarray(np.divide(total, n, out=np.full(np.shape(total), np.nan), where=n > 0))


def calibrate(score: Array, chance: Array) -> Array:
    """Return (score − chance) / (1 − chance); NaN where chance leaves no room."""
    room = 1 - chance
    return np.asarray(
        np.divide(
            score - chance, room, out=np.full(np.shape(score), np.nan), where=np.abs(room) > 1e-9
        )
    )
