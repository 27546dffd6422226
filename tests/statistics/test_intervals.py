"""Intervals of means and rates against scipy, Hall's transformation solved numerically, and what they may depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from heatproof.statistics.estimates import Estimate, interval, of_means
from heatproof.statistics.intervals import EXACT, FEWEST, STUDENT, unseen_share

UNIT = (0.0, 1.0)


def halls_lower_bound(scores: np.ndarray, miss: float) -> float:
    """The bound by solving Hall's transformation, t + g t²/3 + g² t³/27 + g/6 = quantile, for t."""
    n = len(scores)
    g = stats.skew(scores, bias=False) / np.sqrt(n)
    quantile = stats.t.ppf(1 - miss, n - 1)

    def above_quantile(t: float) -> float:
        return t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6 - quantile

    return float(scores.mean() - optimize.brentq(above_quantile, -200, 200) * stats.sem(scores))


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("n", [8, 15, 200])
def test_without_skewness_the_interval_is_students(n: int, level: float) -> None:
    scores = 0.5 + 0.3 * np.linspace(-1, 1, n) ** 3
    wanted = stats.ttest_1samp(scores, 0).confidence_interval(level)
    assert of_means(scores).interval(level) == pytest.approx((wanted.low, wanted.high), rel=1e-6)


@pytest.mark.parametrize("n", [8, 14, 30, 300])
@pytest.mark.parametrize("skewed", ["beta", "lognormal", "one failure", "mirrored"])
def test_with_skewness_the_bounds_solve_halls_transformation(skewed: str, n: int) -> None:
    generator = np.random.default_rng(n)
    scores = {
        "beta": generator.beta(0.5, 2, n),
        "lognormal": generator.lognormal(0, 0.75, n),
        "one failure": np.append(generator.uniform(0.94, 0.96, n - 1), 0.1),
        "mirrored": -generator.beta(0.5, 2, n),
    }[skewed]
    low, high = of_means(scores).interval(0.9)
    assert float(low) == pytest.approx(halls_lower_bound(scores, 0.05), rel=1e-8)
    assert float(high) == pytest.approx(-halls_lower_bound(-scores, 0.05), rel=1e-8)
    lower, method = of_means(scores).bound(0.99, lower=True)
    assert float(lower) == pytest.approx(halls_lower_bound(scores, 0.01), rel=1e-8)
    assert method == STUDENT


@pytest.mark.parametrize(
    ("k", "n"), [(0, 1), (1, 1), (0, 8), (7, 14), (13, 14), (14, 14), (3, 200)]
)
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_rates_have_clopper_and_pearsons_interval(k: int, n: int, level: float) -> None:
    found = of_means(np.repeat([1.0, 0.0], [k, n - k]), rate=True)
    wanted = stats.binomtest(k, n).proportion_ci(level, method="exact")
    assert found.interval(level) == pytest.approx((wanted.low, wanted.high), abs=1e-12)
    bound, method = found.bound(level, lower=True)
    one_sided = stats.binomtest(k, n, alternative="greater").proportion_ci(level, method="exact")
    assert float(bound) == pytest.approx(one_sided.low, abs=1e-12) and method == EXACT


def test_the_mean_rate_of_two_conditions_is_bounded_like_one_rate_of_n_samples() -> None:
    scores = np.array([[1.0] * 9 + [0.0], [1.0] * 7 + [0.0] * 3])
    overall = of_means(scores, rate=True).nested(["noise", "jpeg"])
    wanted = stats.binomtest(8, 10).proportion_ci(method="exact")
    assert overall.interval() == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_scores_that_happen_to_be_0_or_1_are_no_rate_unless_declared() -> None:
    scores = np.repeat([1.0, 0.0], [10, 10])
    wanted = stats.ttest_1samp(scores, 0).confidence_interval()
    assert of_means(scores, UNIT).interval() == pytest.approx((wanted.low, wanted.high), rel=1e-6)


def test_rates_of_groups_are_means_like_any_other() -> None:
    found = of_means(np.tile([1.0, 1.0, 0.0, 1.0], 8), UNIT, np.repeat(np.arange(16), 2), rate=True)
    assert not found.is_rate and found.bound(0.95, lower=True)[1] == STUDENT


@pytest.mark.parametrize("rate", [False, True])
def test_the_interval_of_mirrored_scores_is_the_mirror_image(rate: bool) -> None:
    generator = np.random.default_rng(0)
    scores = generator.random((50, 12)) ** 2
    if rate:
        scores = np.round(scores)
    low, high = of_means(scores, UNIT, rate=rate).interval()
    other_low, other_high = of_means(1 - scores, UNIT, rate=rate).interval()
    np.testing.assert_allclose(other_low, 1 - high, atol=1e-12)
    np.testing.assert_allclose(other_high, 1 - low, atol=1e-12)


def kinds_of_scores(n: int) -> np.ndarray:
    """Rows of n scores: constant, nearly so, binary, with one failure, spread over the whole scale."""
    generator = np.random.default_rng(n)
    return np.stack(
        [
            np.full(n, 0.7),
            0.7 + 1e-4 * generator.random(n),
            (generator.random(n) < 0.5).astype(float),
            np.append(np.full(n - 1, 0.95), 0.0),
            generator.random(n),
            np.ones(n),
            np.zeros(n),
        ]
    )


@pytest.mark.parametrize("span", [UNIT, (-1.0, 1.0), (None, 1.0), None])
@pytest.mark.parametrize("n", [1, 2, 5, 7, 8, 9, 30])
def test_whether_there_is_an_interval_depends_on_n_alone(
    n: int, span: tuple[float | None, float | None] | None
) -> None:
    ends = np.stack(of_means(kinds_of_scores(n), span).interval())
    assert (np.isfinite(ends) == (n >= FEWEST)).all()


def test_missing_scores_do_not_count() -> None:
    rows = np.full((2, 20), np.nan)
    rows[0, :7], rows[1, :8] = np.linspace(0, 1, 7), np.linspace(0, 1, 8)
    low, high = interval(rows, span=UNIT)
    assert np.isnan([low[0], high[0]]).all() and np.isfinite([low[1], high[1]]).all()


@pytest.mark.parametrize("n", [7, 8])
def test_references_do_not_count_as_samples(n: int) -> None:
    generator = np.random.default_rng(0)
    places = np.array([0, 1, -1, -1, -1])
    scores: Estimate = replace(
        of_means(generator.random(n), UNIT),
        reference_parts=generator.normal(0, 0.02, 5),
        reference_index=places,
    )
    low, high = scores.interval()
    assert scores.n == n and np.isfinite([low, high]).all() == (n >= FEWEST)


def test_groups_count_instead_of_samples() -> None:
    values = np.random.default_rng(0).random(40)
    for groups, has_interval in ((np.arange(40) // 6, False), (np.arange(40) // 5, True)):
        low, high = of_means(values, UNIT, groups).interval()
        assert np.isfinite([low, high]).all() == has_interval


def test_identical_scores_have_an_interval_without_width() -> None:
    low, high = of_means(np.full(14, 0.7), UNIT).interval()
    assert (float(low), float(high)) == pytest.approx((0.7, 0.7))


def test_nearly_constant_scores_have_a_narrow_interval() -> None:
    scores = np.random.default_rng(0).uniform(0.198, 0.202, 14)
    low, high = of_means(scores, UNIT).interval()
    assert 0.198 < low < scores.mean() < high < 0.202


def test_intervals_are_cut_at_the_ends_of_the_scale() -> None:
    scores = np.append(np.ones(9), 0.0)
    low, high = of_means(scores).interval()
    assert low < 0 or high > 1
    cut_low, cut_high = of_means(scores, UNIT).interval()
    assert (float(cut_low), float(cut_high)) == pytest.approx(
        (max(float(low), 0.0), min(float(high), 1.0))
    )


def test_a_higher_level_widens_every_interval() -> None:
    found = of_means(kinds_of_scores(12)[1:5])
    widths = [np.ptp(np.stack(found.interval(level)), axis=0) for level in (0.8, 0.9, 0.95, 0.99)]
    assert (np.diff(widths, axis=0) > 0).all()


@pytest.mark.parametrize("n", [8, 14, 100])
def test_a_kind_of_sample_of_the_unseen_share_is_missed_by_1_in_20_studies(n: int) -> None:
    share = unseen_share(n)
    assert stats.binom.pmf(0, n, share) == pytest.approx(0.05)
    assert share < 3.01 / n
