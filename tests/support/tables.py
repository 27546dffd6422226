"""Tables of scores that may differ by how a processor rounds, and by nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heatproof.runs.tables import KEY

ROUNDED, MOST_ROUNDED = 5e-3, 0.03
SWAPPED = 2 / 51
"""What Jaccard loses when one of fifty elements changes sides."""


def tolerance_of(measures: pd.Series) -> np.ndarray:
    """How far rounding may move a score: 1e-5, and one swapped element where a score counts the top elements."""
    jaccard, fass = measures.str.contains("jaccard"), measures.str.contains("fass")
    return np.where(jaccard, SWAPPED, np.where(fass, SWAPPED / 3, 1e-5))


def assert_same_table(a: pd.DataFrame, b: pd.DataFrame) -> None:
    """Assert equal keys and states, and scores that differ by rounding at most.

    A batch of another size is rounded differently, by as much as the processor likes. Where an activation is within
    rounding of a kink, or activations tie in a max-pool as in the flat blocks of a JPEG, that decides which of them a
    gradient goes to. It concerns one unit of thousands and every measure of its map: three rows in a hundred may
    differ, by up to 5e-3.
    """
    a, b = (frame.sort_values(KEY, ignore_index=True) for frame in (a, b))
    pd.testing.assert_frame_equal(a[[*KEY, "status", "reason"]], b[[*KEY, "status", "reason"]])
    tolerance = tolerance_of(a.measure)
    for column in ("value", "chance"):
        difference = (a[column] - b[column]).abs().fillna(0)
        over = difference > tolerance
        assert over.mean() <= MOST_ROUNDED, a[over]
        worst = (difference - tolerance).idxmax()
        assert (difference <= np.maximum(tolerance, ROUNDED)).all(), a.loc[worst]


def assert_one_to_rounding(rows: pd.DataFrame) -> None:
    """Assert scores of 1 for a map and its copy.

    The two are computed in different batches, and some processors round those differently.
    """
    scored = rows[rows.status == "ok"]
    assert len(scored)
    lost = (1 - scored.value).abs()
    assert (lost <= tolerance_of(scored.measure)).all(), scored.loc[lost.idxmax()]
