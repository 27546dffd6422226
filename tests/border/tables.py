"""What every table of a run must be, and how two are compared."""

from __future__ import annotations

import numpy as np
import pandas as pd

import heatproof

PAIR = ["dataset", "model", "evaluation", "explainer", "condition", "level", "measure", "sample"]
"""What an attempted pair and its measure are known by."""

SHARES = {"spearman", "jaccard", "rate", "certified", "early", "sufficient", "stable", "unflipped"}
SHARES |= {"correct", "model_agreement", "deletion_auc", "insertion_auc", "probability", "accuracy"}
SHARES |= {"road_morf_accuracy"}
SHARES |= {"detectability", "gini", "entropy", "completeness_gap", "sign_agreement", "energy"}
SHARES |= {"relevance_mass", "relevance_rank", "pointing", "region_auc"}
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(SHARES, (0.0, 1.0)),
    **dict.fromkeys(("faithfulness_correlation", "sensitivity_n", "ssim"), (-1.0, 1.0)),
    **dict.fromkeys(("equivariance", "model_invariance"), (-1.0, 1.0)),
    **dict.fromkeys(("fass", "similarity"), (-1 / 3, 1.0)),
    "road": (-0.5, 0.5),
    "irof": (-np.inf, 1.0),
    "aopc": (-1.0, 1.0),
}
for nonnegative in ("dependence", "class_dependence", "infidelity", "infidelity_scaled"):
    RANGES[nonnegative] = (0.0, np.inf)
for nonnegative in ("passes", "model_change", "early_draws", "hard_radius"):
    RANGES[nonnegative] = (0.0, np.inf)


def range_of(measure: str) -> tuple[float, float]:
    """Return the range of a measure; its unaligned form has the same."""
    for ending in ("_unaligned", "_lipschitz", "_bernoulli"):
        measure = measure.replace(ending, "")
    return RANGES.get(measure, (-np.inf, np.inf))


def ordered(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in the order of its pairs."""
    keys = [column for column in PAIR if column in table]
    return table.sort_values(keys, kind="stable").reset_index(drop=True)


def assert_same(a: pd.DataFrame, b: pd.DataFrame, but: tuple[str, ...] = ()) -> None:
    """Require the same rows with the same words and, to 1e-6, the same numbers."""
    left = ordered(a.drop(columns=list(but)))
    right = ordered(b.drop(columns=list(but)))
    pd.testing.assert_frame_equal(left, right, rtol=1e-6, atol=1e-6)


def rows(run: heatproof.Run, **wanted: object) -> pd.DataFrame:
    """Return the rows of a run's table with these values of its columns; there must be some."""
    table = run.table()
    for column, value in wanted.items():
        table = table[table[column] == value]
    assert len(table) > 0, f"no rows with {wanted}"
    return table


def values(run: heatproof.Run, **wanted: object) -> np.ndarray:
    """Return the values of these rows in the order of the samples; each must have a score."""
    table = rows(run, **wanted).sort_values(["condition", "level", "sample"])
    assert set(table["status"]) == {"ok"}, table[["status", "reason"]].value_counts()
    return table["value"].to_numpy()
