"""Errors of means over samples and random networks, through a table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from heatproof.evaluation import Measure
from heatproof.results.arrays import ScoreArrays, rows_to_arrays
from heatproof.results.score_estimates import score_estimates
from heatproof.statistics.estimates import Estimate, of_means
from heatproof.statistics.intervals import FEWEST
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


def estimates_of(values: np.ndarray) -> Estimate:
    """The means of studies of scores (studies, N samples, K networks), with their errors."""
    studies, n, _ = values.shape
    arrays = ScoreArrays(
        "d",
        "m",
        "dependence",
        [f"e{i}" for i in range(studies)],
        [("weights", 0.0)],
        [f"s{i}" for i in range(n)],
        {"change": values.mean(-1)[:, None]},
        np.zeros((studies, 1, n), dtype=np.int8),
        pd.DataFrame(),
        {"change": np.ones((studies, 1), dtype=bool)},
        repeats={"change": values[:, None]},
        declared={"change": CHANGE},
    )
    return score_estimates(arrays, "change")[:, 0]


def interval(table: pd.DataFrame) -> tuple[float, float]:
    (arrays,) = rows_to_arrays(table, {"dependence": [CHANGE]})
    row = st.ranking([arrays], "change").iloc[0]
    return row["low"], row["high"]


def mean_squares(values: np.ndarray) -> tuple[float, float, float]:
    """The mean squares of samples, networks and the rest of a complete layout, as in any textbook."""
    n, k = values.shape
    rows, columns, centre = values.mean(1), values.mean(0), values.mean()
    rest = values - rows[:, None] - columns + centre
    of_samples = k * ((rows - centre) ** 2).sum() / (n - 1)
    of_networks = n * ((columns - centre) ** 2).sum() / (k - 1)
    return of_samples, of_networks, (rest**2).sum() / ((n - 1) * (k - 1))


@pytest.mark.parametrize(("n", "k"), [(8, 2), (12, 5), (30, 3)])
def test_a_complete_layout_is_the_analysis_of_variance(n: int, k: int) -> None:
    """Both mean squares, with Satterthwaite's degrees of freedom; the noise that is in both errs on the safe side."""
    of_sample = np.linspace(-0.3, 0.3, n)  # without skewness the interval is Student's
    of_network = np.random.default_rng(n).normal(0, 0.2, k)
    noise = 0.05 * np.add.outer(np.cos(of_sample), np.arange(k)) ** 2
    noise = noise - noise.mean(1, keepdims=True)
    values = 0.5 + np.add.outer(of_sample, of_network) + noise
    of_samples, of_networks, _ = (square / (n * k) for square in mean_squares(values))
    df = (of_samples + of_networks) ** 2 / (of_samples**2 / (n - 1) + of_networks**2 / (k - 1))
    half = stats.t.ppf(0.975, min(df, n - 1)) * np.sqrt(of_samples + of_networks)
    expected = values.mean() - half, values.mean() + half
    np.testing.assert_allclose(interval(rows(values)), expected, atol=1e-5)


def test_networks_that_are_all_alike_leave_the_interval_of_the_samples() -> None:
    values = np.random.default_rng(0).beta(5, 2, 25)
    expected = of_means(values).interval()
    found = interval(rows(np.repeat(values[:, None], 4, axis=1)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_intervals_cover_the_mean_over_other_samples_and_other_networks() -> None:
    """An interval over samples alone covers it in less than half of the studies, and less with more samples."""
    generator = np.random.default_rng(2)
    studies, n, k = 400, 60, 5
    values = 0.7 + 0.08 * generator.standard_normal((studies, n, 1))
    values = values + 0.1 * generator.standard_normal((studies, 1, k))
    values = values + 0.06 * generator.standard_normal((studies, n, k))
    low, high = estimates_of(values).interval()
    assert ((low <= 0.7) & (high >= 0.7)).mean() > 0.92
    low, high = of_means(values.mean(-1)).interval()
    assert ((low <= 0.7) & (high >= 0.7)).mean() < 0.6


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 7, 8, 20])
def test_whether_there_is_an_interval_depends_on_the_counts_alone(n: int, k: int) -> None:
    generator = np.random.default_rng(n)
    for values in (np.full((n, k), 0.5), generator.random((n, k)), np.zeros((n, k))):
        low, _ = interval(rows(values))
        assert np.isfinite(low) == (n >= FEWEST and k >= 2)


def test_the_order_of_samples_and_networks_does_not_matter() -> None:
    values = scores()
    values[np.random.default_rng(3).random(values.shape) < 0.2] = np.nan
    generator = np.random.default_rng(4)
    moved = values[generator.permutation(20)][:, generator.permutation(5)]
    np.testing.assert_allclose(interval(rows(moved)), interval(rows(values)), rtol=1e-9)


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
