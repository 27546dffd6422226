"""Paired tests against enumeration and McNemar's exact test, and their intervals, which never contradict them."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from heatproof.statistics import sign_flips
from heatproof.statistics.estimates import of_means, sample_totals
from heatproof.statistics.sign_flips import PairedTests, simultaneous_tests
from support import row_statistics as st
from support import synthetic


def statistic_of(differences: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """|Σ ε d| / √Σ d² of each row, 0 where all differences are 0."""
    length = np.sqrt((differences**2).sum(1))
    return np.abs(differences @ signs) / np.where(length > 0, length, 1)


def enumerated(differences: np.ndarray) -> np.ndarray:
    """The corrected p of each row of differences, over all 2^n ways to flip the samples."""
    seen = statistic_of(differences, np.ones(differences.shape[1]))
    as_large = np.zeros(len(differences))
    flips = list(itertools.product([1.0, -1.0], repeat=differences.shape[1]))
    for signs in flips:
        largest = statistic_of(differences, np.array(signs)).max()
        as_large += largest >= seen - 1e-9
    return as_large / len(flips)


def all_pairs(scores: np.ndarray) -> PairedTests:
    """The tests of all pairs of methods, from scores (methods, conditions, samples)."""
    first, second = np.triu_indices(len(scores), 1)
    common = np.isfinite(scores[first]) & np.isfinite(scores[second])
    apart = of_means(np.where(common, scores[first], np.nan)).minus(
        of_means(np.where(common, scores[second], np.nan))
    )
    names = [f"c{i}" for i in range(scores.shape[1])]
    return simultaneous_tests(*sample_totals(apart, names))


@pytest.mark.parametrize("n", [6, 40])
def test_pairs_of_methods_are_tested_like_their_differences(n: int) -> None:
    scores = np.random.default_rng(n).normal([[0.0], [0.0], [0.4], [1.0], [0.5]], 1.0, (5, n))
    pairs = np.array(list(itertools.combinations(range(5), 2)))
    by_method = simultaneous_tests(scores, pairs=pairs)
    by_difference = simultaneous_tests(scores[pairs[:, 0]] - scores[pairs[:, 1]])
    assert by_method.p.tolist() == by_difference.p.tolist()
    assert by_method.significant.tolist() == by_difference.significant.tolist()
    np.testing.assert_allclose(by_method.low, by_difference.low, atol=1e-12)
    np.testing.assert_allclose(by_method.high, by_difference.high, atol=1e-12)


def table_of(scores: np.ndarray) -> pd.DataFrame:
    """Scores (methods, samples) as the rows of a run."""
    return synthetic.rows_of(
        [(f"m{i}", "depth", "jpeg", 1.0, row) for i, row in enumerate(scores)], "stability"
    )


@pytest.mark.parametrize("n", range(2, 10))
def test_p_is_the_share_of_all_flips_that_are_as_large(n: int) -> None:
    generator = np.random.default_rng(n)
    smooth = generator.normal(0.3, 1.0, (3, n))
    tied = generator.integers(-2, 4, (4, n)).astype(float)
    binary = generator.integers(-1, 2, (5, n)).astype(float)
    for differences in (smooth, tied, binary, smooth[:1]):
        found = simultaneous_tests(differences).p
        np.testing.assert_allclose(found, enumerated(differences), atol=1e-12)


def test_every_flip_is_tried_once_up_to_a_change_of_all_signs() -> None:
    for n in (1, 2, 5, 9):
        rows = np.concatenate(list(sign_flips.sign_flips(n)))
        assert len({tuple(row) for row in rows}) == len(rows) == 2 ** (n - 1)
        assert set(np.unique(rows)) <= {-1.0, 1.0}
        assert (rows[0] == 1).all() and (rows[:, 0] == 1).all()


def test_random_flips_include_what_was_seen_and_are_the_same_each_time() -> None:
    first, again = (np.concatenate(list(sign_flips.sign_flips(40))) for _ in range(2))
    assert first.shape == (sign_flips.FLIPS, 40) and (first[0] == 1).all()
    np.testing.assert_array_equal(first, again)
    assert abs(first[1:].mean()) < 0.01


def test_random_flips_come_close_to_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(0).normal(0.15, 0.3, (6, 14))
    exact = simultaneous_tests(differences).p
    monkeypatch.setattr(sign_flips, "FLIPS", 8_000)  # fewer than the 2^13 of 14 samples
    drawn = simultaneous_tests(differences).p
    assert np.abs(drawn - exact).max() < 0.02


@pytest.mark.parametrize(
    ("only_first", "only_second", "both_alike"), [(11, 0, 3), (8, 0, 0), (6, 2, 4), (3, 3, 8)]
)
def test_two_methods_with_binary_scores_have_mcnemars_exact_p(
    only_first: int, only_second: int, both_alike: int
) -> None:
    first = np.repeat([1.0, 0.0, 1.0], [only_first, only_second, both_alike])
    second = np.repeat([0.0, 1.0, 1.0], [only_first, only_second, both_alike])
    row = st.paired_tests(table_of(np.stack([first, second])), "depth").iloc[0]
    wanted = stats.binomtest(only_first, only_first + only_second).pvalue
    assert row["p"] == pytest.approx(wanted, abs=1e-12)


def random_study(generator: np.random.Generator) -> np.ndarray:
    """Scores (methods, conditions, samples): smooth, tied or binary, up to 30 % of them missing."""
    methods, conditions = generator.integers(2, 7), generator.integers(1, 4)
    n = generator.integers(2, 41)
    shape = (methods, conditions, n)
    scores = generator.normal(0, 0.15, shape) + generator.normal(0, 0.1, (methods, 1, n))
    scores += generator.choice([0.0, 0.1, 0.4]) * np.arange(methods)[:, None, None]
    kind = generator.integers(3)
    if kind == 1:
        scores = np.round(5 * scores) / 5
    elif kind == 2:
        scores = (scores > 0.1).astype(float)
    return np.where(generator.random(shape) < generator.uniform(0, 0.3), np.nan, scores)


def test_no_interval_contradicts_its_test_in_1000_random_studies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sign_flips, "FLIPS", 1_000)  # the law holds for any number of flips
    generator = np.random.default_rng(11)
    contradictions = tested = significant = 0
    for _ in range(1_000):
        found = all_pairs(random_study(generator))
        has_interval = np.isfinite(found.low) | np.isinf(found.low)
        excludes_zero = (found.low > 0) | (found.high < 0)
        assert (found.significant <= has_interval).all()
        contradictions += int(((found.p <= 0.05) != excludes_zero)[has_interval].sum())
        contradictions += int((found.significant != excludes_zero).sum())
        tested += int(has_interval.sum())
        significant += int(found.significant.sum())
    assert contradictions == 0
    assert tested > 5_000 and 0.1 < significant / tested < 0.9


def test_shares_that_differ_much_leave_the_side_of_the_mean() -> None:
    """Three samples have nearly all scores, so the interval has no far end; it excludes 0 all the same."""
    totals = np.array([[0.5] * 8 + [0.001] * 3])
    shares = np.array([[0.05] * 8 + [3.2] * 3])
    for sign in (1.0, -1.0):
        found = simultaneous_tests(sign * totals, shares)
        near, far = (found.low, found.high) if sign > 0 else (-found.high, -found.low)
        assert found.significant.all() and (near > 0).all() and (far == np.inf).all()


def test_all_intervals_have_one_critical_value() -> None:
    differences = np.random.default_rng(3).normal(0.1, 0.3, (6, 20))
    found = simultaneous_tests(differences)
    at_ends = [
        statistic_of(differences - end[:, None], np.ones(20)) for end in (found.low, found.high)
    ]
    np.testing.assert_allclose(at_ends, at_ends[0][0], rtol=1e-6)


@pytest.mark.parametrize("n", range(2, 8))
def test_below_eight_samples_nothing_is_significant_and_there_is_no_interval(n: int) -> None:
    scores = np.repeat([[0.9], [0.1], [0.5]], n, axis=1)
    scores = scores + np.random.default_rng(n).normal(0, 0.01, scores.shape)
    found = st.paired_tests(table_of(scores), "depth")
    assert not found["significant"].any()
    assert found[["low", "high"]].isna().all(axis=None)
    assert found["p"].min() == pytest.approx(2.0 ** (1 - n))


def test_from_eight_samples_on_a_clear_difference_is_significant() -> None:
    scores = np.random.default_rng(0).normal([[0.9], [0.1]], 0.01, (2, 8))
    row = st.paired_tests(table_of(scores), "depth").iloc[0]
    assert row["significant"] and 0 < row["low"] < row["difference"] < row["high"]


@pytest.mark.parametrize("n", [2, 3, 9, 20])
def test_equal_methods_have_p_1(n: int) -> None:
    scores = np.repeat(np.random.default_rng(n).random((1, n)), 4, axis=0)
    found = st.paired_tests(table_of(scores), "depth")
    assert (found["p"] == 1).all() and (found["difference"] == 0).all()
    assert not found["significant"].any()


def test_two_samples_never_show_a_difference() -> None:
    """Six equal methods with binary scores; p = 0 from two samples was printed for many of them."""
    generator = np.random.default_rng(0)
    for _ in range(100):
        found = all_pairs(generator.integers(0, 2, (6, 1, 2)).astype(float))
        assert found.p.min() >= 0.5 and not found.significant.any()


def test_winning_on_fourteen_of_fourteen_samples_is_significant() -> None:
    """Also where all scores are nearly constant, far from the ends of their scale."""
    random = np.random.default_rng(1).uniform(0.198, 0.202, 14)
    better = random + np.random.default_rng(2).uniform(0.001, 0.003, 14)
    row = st.paired_tests(table_of(np.stack([better, random])), "depth").iloc[0]
    assert row["p"] == pytest.approx(2.0**-13)
    assert row["significant"] and 0.001 < row["low"] < row["high"] < 0.003


def test_the_order_of_samples_and_methods_changes_nothing_where_all_flips_are_tried() -> None:
    generator = np.random.default_rng(7)
    scores = generator.normal(0, 0.2, (4, 3, 12)) + 0.1 * np.arange(4)[:, None, None]
    scores[generator.random(scores.shape) < 0.2] = np.nan
    found = all_pairs(scores)

    moved = all_pairs(scores[:, :, generator.permutation(12)])
    for name in ("p", "low", "high"):
        np.testing.assert_allclose(getattr(moved, name), getattr(found, name), atol=1e-12)

    pairs = list(itertools.combinations(range(4), 2))
    place = [pairs.index((3 - b, 3 - a)) for a, b in pairs]
    turned = all_pairs(scores[::-1])  # each pair is at another place, with the other sign
    np.testing.assert_allclose(turned.p[place], found.p, atol=1e-12)
    np.testing.assert_allclose(-turned.high[place], found.low, atol=1e-12)


def test_a_change_of_scale_changes_no_p() -> None:
    differences = np.random.default_rng(8).normal(0.1, 0.2, (5, 12))
    found, scaled = simultaneous_tests(differences), simultaneous_tests(1000 * differences)
    np.testing.assert_array_equal(found.p, scaled.p)
    np.testing.assert_allclose(1000 * found.low, scaled.low)


@pytest.mark.parametrize("n", [8, 14, 30])
@pytest.mark.parametrize("kind", ["binary", "uniform", "groups of unequal size"])
def test_six_equal_methods_are_called_different_in_no_more_than_5_percent(
    kind: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_flips, "FLIPS", 1_000)
    generator = np.random.default_rng(n)
    first, second = np.triu_indices(6, 1)
    studies, errors = 200, 0
    groups = np.repeat(np.arange(n), [1] * (n - 2) + [20, 20]) if "groups" in kind else None
    for _ in range(studies):
        if groups is not None:
            scores = generator.normal(0, 0.1, (6, n))[:, groups] + generator.normal(
                0, 0.05, (6, len(groups))
            )
        elif kind == "binary":
            scores = generator.integers(0, 2, (6, n)).astype(float)
        else:
            scores = generator.random((6, n))
        apart = of_means((scores[first] - scores[second])[:, None], groups=groups)
        errors += bool(simultaneous_tests(*sample_totals(apart, ["c"])).significant.any())
    assert errors <= stats.binom.ppf(0.9999, studies, 0.05)
