"""Means over samples and networks: the analysis of variance by hand, brute-force simulation, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from heatproof.statistics.estimates import of_means
from heatproof.statistics.intervals import FEWEST
from heatproof.statistics.two_way import no_two_way_interval, two_way_mean, variance_components


def drawn(
    generator: np.random.Generator, studies: int, n: int, k: int, spread: tuple[float, float, float]
) -> np.ndarray:
    """Studies of n samples and k networks around 0.7; `spread` of samples, networks and the rest."""
    samples = spread[0] * generator.standard_normal((studies, n, 1))
    networks = spread[1] * generator.standard_normal((studies, 1, k))
    return 0.7 + samples + networks + spread[2] * generator.standard_normal((studies, n, k))


def mean_squares(scores: np.ndarray) -> tuple[float, float, float]:
    """The mean squares of samples, networks and the rest of a complete layout, as in any textbook."""
    n, k = scores.shape
    rows, columns, centre = scores.mean(1), scores.mean(0), scores.mean()
    rest = scores - rows[:, None] - columns + centre
    of_samples = k * ((rows - centre) ** 2).sum() / (n - 1)
    of_networks = n * ((columns - centre) ** 2).sum() / (k - 1)
    return of_samples, of_networks, (rest**2).sum() / ((n - 1) * (k - 1))


@pytest.mark.parametrize(("n", "k"), [(8, 2), (12, 5), (30, 3)])
def test_a_complete_layout_is_the_analysis_of_variance(n: int, k: int) -> None:
    scores = drawn(np.random.default_rng(n), 1, n, k, (0.2, 0.2, 0.05))[0]
    of_samples, of_networks, rest = mean_squares(scores)
    components = [(of_samples - rest) / k, (of_networks - rest) / n, rest]
    np.testing.assert_allclose(variance_components(scores), components, rtol=1e-9)

    found = two_way_mean(scores)
    assert float(found.mean) == pytest.approx(scores.mean())
    variance = (of_samples + of_networks - rest) / (n * k)
    assert float(found.variance) == pytest.approx(variance, rel=1e-9)
    df = (n * k * variance) ** 2 / (
        of_samples**2 / (n - 1) + of_networks**2 / (k - 1) + rest**2 / ((n - 1) * (k - 1))
    )
    assert float(found.df) == pytest.approx(df, rel=1e-9)


def test_samples_without_skewness_have_students_interval() -> None:
    of_samples, of_networks = np.linspace(-0.3, 0.3, 9), np.array([-0.2, 0.1, 0.1])
    found = two_way_mean(0.5 + np.add.outer(of_samples, of_networks), level=0.9)
    half = stats.t.ppf(0.95, found.df) * np.sqrt(found.variance)
    np.testing.assert_allclose([found.low, found.high], [0.5 - half, 0.5 + half], rtol=1e-6)
    one_sided = two_way_mean(0.5 + np.add.outer(of_samples, of_networks), level=0.95)
    np.testing.assert_allclose(one_sided.lower_bound, found.low)
    np.testing.assert_allclose(one_sided.upper_bound, found.high)


def test_networks_that_are_all_alike_leave_the_interval_of_the_samples() -> None:
    scores = np.random.default_rng(0).beta(5, 2, 25)
    found = two_way_mean(np.repeat(scores[:, None], 4, axis=1))
    np.testing.assert_allclose([found.low, found.high], of_means(scores).interval(), rtol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_estimates_of_the_variances_are_right_on_average(missing: float) -> None:
    """Brute force: the mean estimate is the truth, and so is the variance that the mean really has over studies."""
    generator = np.random.default_rng(1)
    truth = np.array([0.3, 0.2, 0.4]) ** 2
    scores = drawn(generator, 4000, 15, 6, (0.3, 0.2, 0.4))
    scores[:, generator.random((15, 6)) < missing] = np.nan
    found = two_way_mean(scores)

    components = variance_components(scores)
    error = components.std(0) / np.sqrt(len(scores))
    assert (
        np.abs(components.mean(0) - truth) < 4 * error + 0.002
    ).all()  # cut at 0, so a little above
    of_means_over_studies = found.mean.var()
    assert of_means_over_studies == pytest.approx(found.variance.mean(), rel=0.1)
    covers = (found.low <= 0.7) & (found.high >= 0.7)
    assert 0.93 < covers.mean() < 0.975
    assert 0.93 < (found.lower_bound <= 0.7).mean() < 0.97
    assert 0.93 < (found.upper_bound >= 0.7).mean() < 0.97


def test_an_interval_that_leaves_the_networks_out_is_wrong_and_stays_wrong_with_more_samples() -> (
    None
):
    scores = drawn(np.random.default_rng(2), 1000, 100, 5, (0.08, 0.1, 0.06))
    low, high = of_means(scores.mean(2)).interval()
    assert ((low <= 0.7) & (high >= 0.7)).mean() < 0.5
    found = two_way_mean(scores)
    assert ((found.low <= 0.7) & (found.high >= 0.7)).mean() > 0.92


def test_order_and_empty_rows_do_not_matter() -> None:
    generator = np.random.default_rng(3)
    scores = drawn(generator, 1, 12, 4, (0.1, 0.1, 0.1))[0]
    scores[generator.random(scores.shape) < 0.2] = np.nan
    found = two_way_mean(scores)
    moved = scores[generator.permutation(12)][:, generator.permutation(4)]
    wider = np.full((15, 6), np.nan)
    wider[1:13, 2:6] = moved
    again = two_way_mean(wider)
    for name in ("mean", "variance", "df", "low", "high", "samples", "networks"):
        assert getattr(again, name) == pytest.approx(getattr(found, name), rel=1e-9)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 7, 8, 20])
def test_whether_there_is_an_interval_depends_on_the_counts_alone(n: int, k: int) -> None:
    generator = np.random.default_rng(n)
    for scores in (np.full((n, k), 0.5), generator.random((n, k)), np.zeros((n, k))):
        found = two_way_mean(scores)
        is_enough = n >= FEWEST and k >= 2
        assert np.isfinite(found.low) == np.isfinite(found.upper_bound) == is_enough
        assert float(found.mean) == pytest.approx(scores.mean())
        reason = no_two_way_interval(int(found.samples), int(found.networks))
        assert (reason == "") == is_enough


def test_bounds_stay_on_the_scale() -> None:
    scores = np.random.default_rng(5).choice([0.0, 1.0], (10, 3), p=[0.1, 0.9])
    found = two_way_mean(scores, span=(0.0, 1.0))
    assert found.low >= 0 and found.high <= 1 and found.upper_bound <= 1
