"""Errors of means over samples and random networks, through a table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heatproof.evaluation import Measure
from heatproof.results.arrays import rows_to_arrays
from heatproof.statistics.two_way import two_way_mean
from support import row_statistics as st
from support import synthetic

CHANGE = Measure("change", "Change", "", "higher", "headline", networks=True)


def rows(values: np.ndarray, explainer: str = "a") -> pd.DataFrame:
    """The rows of scores (N samples, K networks)."""
    return pd.concat(
        [
            synthetic.rows_of(
                [(explainer, "change", "weights", 0.0, column)], "dependence", repeat=k
            )
            for k, column in enumerate(values.T)
        ]
    )


def scores(n: int = 20, k: int = 5, spread: float = 0.1, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    samples, networks = generator.normal(0, 0.1, (n, 1)), generator.normal(0, spread, (1, k))
    return 0.5 + samples + networks + generator.normal(0, 0.03, (n, k))


def interval(table: pd.DataFrame) -> tuple[float, float]:
    (arrays,) = rows_to_arrays(table, {"dependence": [CHANGE]})
    row = st.ranking([arrays], "change").iloc[0]
    return row["low"], row["high"]


def test_the_interval_through_a_table_is_that_of_samples_and_networks() -> None:
    values = scores()
    expected = two_way_mean(values)
    low, high = interval(rows(values))
    # The table adds its parts up in another way, so skewness and degrees of freedom agree to first order.
    assert low == pytest.approx(float(expected.low), abs=0.25 * float(expected.high - expected.low))
    assert high == pytest.approx(
        float(expected.high), abs=0.25 * float(expected.high - expected.low)
    )


def test_networks_that_differ_widen_the_interval() -> None:
    alike, different = (np.ptp(interval(rows(scores(spread=spread)))) for spread in (0.0, 0.2))
    assert different > 1.5 * alike


def test_one_network_gives_no_interval_and_the_reason_is_not_the_samples() -> None:
    table = rows(scores(k=1))
    low, high = interval(table)
    assert np.isnan(low) and np.isnan(high)
    (arrays,) = rows_to_arrays(table, {"dependence": [CHANGE]})
    assert "network" in st.summary([arrays])["no_interval"].item()


def test_missing_networks_of_some_samples_are_allowed() -> None:
    values = scores(n=30)
    values[:10, 1:] = np.nan
    low, high = interval(rows(values))
    assert low < np.nanmean(np.nanmean(values, 1)) < high


def test_methods_are_compared_on_the_same_networks() -> None:
    """What all methods share of a network cancels in their difference."""
    shared = scores(spread=0.3, seed=1)
    other = shared - 0.05 + np.random.default_rng(2).normal(0, 0.01, shared.shape)
    table = pd.concat([rows(shared), rows(other, "b")])
    (arrays,) = rows_to_arrays(table, {"dependence": [CHANGE]})
    test = st.paired_tests([arrays], "change").iloc[0]
    assert test["significant"] and test["difference"] == pytest.approx(0.05, abs=0.01)
