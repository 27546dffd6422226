"""Claims of "above chance": bets on skewed scores, the exact hit test by brute force, and what so few samples can show."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from heatproof.statistics.above_chance import (
    above_chance,
    order_of_bets,
    poisson_binomial_p,
    smallest_excess,
)
from heatproof.statistics.bounds_of_means import BETTING_FOR_REFERENCES, bet_on_calibrated
from heatproof.statistics.estimates import calibrated, of_means
from heatproof.statistics.few import smallest_p, unseen_share
from heatproof.statistics.intervals import STUDENT
from heatproof.statistics.sign_flips import simultaneous_tests

UNIT = (0.0, 1.0)


def names_of(n: int) -> list[str]:
    return [f"image {i}" for i in range(n)]


def brute_force_p(hits: int, chances: list[float]) -> float:
    """The probability of each pattern of hits, summed over those with enough of them."""
    total = 0.0
    for pattern in itertools.product([0, 1], repeat=len(chances)):
        probability = 1.0
        for hit, chance in zip(pattern, chances, strict=True):
            probability *= chance if hit else 1 - chance
        if sum(pattern) >= hits:
            total += probability
    return total


@pytest.mark.parametrize("n", [1, 4, 12])
def test_hits_with_unequal_chances_are_tested_exactly(n: int) -> None:
    chances = np.random.default_rng(n).beta(1, 4, n)
    for number in range(n + 1):
        hits = np.repeat([1.0, 0.0], [number, n - number])
        wanted = brute_force_p(number, chances.tolist())
        assert poisson_binomial_p(hits, chances) == pytest.approx(wanted, rel=1e-12)


def test_hits_with_equal_chances_are_binomial_far_into_the_tail() -> None:
    hits = np.repeat([1.0, 0.0], [120, 880])
    wanted = stats.binomtest(120, 1000, 0.02, alternative="greater").pvalue
    assert wanted < 1e-50
    assert poisson_binomial_p(hits, np.full(1000, 0.02)) == pytest.approx(wanted, rel=1e-9)


def test_split_peaks_count_as_misses_and_missing_samples_not_at_all() -> None:
    chances = np.array([0.2, 0.3, 0.4])
    assert poisson_binomial_p(np.array([1.0, 0.5, 0.0]), chances) == pytest.approx(
        poisson_binomial_p(np.array([1.0, 0.0, 0.0]), chances)
    )
    longer = np.append(chances, [0.9, np.nan])
    assert poisson_binomial_p(np.array([1.0, 0.0, 0.0, np.nan, 1.0]), longer) == pytest.approx(
        poisson_binomial_p(np.array([1.0, 0.0, 0.0]), chances)
    )
    assert np.isnan(poisson_binomial_p(np.full(3, np.nan), chances))


def test_luck_is_significant_no_more_often_than_allowed() -> None:
    generator = np.random.default_rng(0)
    studies = 2000
    found = 0
    for _ in range(studies):
        chances = generator.beta(1, 6, 30)
        hits = (generator.random(30) < chances).astype(float)
        found += poisson_binomial_p(hits, chances) <= 0.05
    assert found <= stats.binom.ppf(0.999, studies, 0.05)


def far_below_at_times(generator: np.random.Generator, studies: int, n: int) -> np.ndarray:
    """Scores with a mean of 0.855: one sample in ten fails badly, the others are a little above the mean."""
    fails = generator.random((studies, n)) < 0.1
    return np.where(
        fails, 0.2 * generator.random((studies, n)), 0.9 + 0.1 * generator.random((studies, n))
    )


@pytest.mark.parametrize("n", [14, 30])
def test_rare_failures_do_not_lead_to_false_claims_as_they_do_with_halls_bound(n: int) -> None:
    generator = np.random.default_rng(n)
    studies = 400
    scores = far_below_at_times(generator, studies, n)
    chance = np.full((1, n), 0.865)
    names = names_of(n)
    bets = [above_chance(row[None], chance, UNIT, ["jpeg"], names).bound > 0 for row in scores]
    usual, _ = of_means(scores).bound(0.95, lower=True)
    assert sum(bets) <= stats.binom.ppf(0.999, studies, 0.05)
    assert sum(bets) < (usual > 0.865).sum()


def test_the_order_of_rows_does_not_matter_but_that_of_bets_is_fixed_by_name() -> None:
    generator = np.random.default_rng(1)
    score, chance, names = (
        generator.beta(6, 2, (3, 40)),
        generator.beta(2, 6, (3, 40)),
        names_of(40),
    )
    found = above_chance(score, chance, UNIT, ["a", "a", "b"], names)
    order = generator.permutation(40)
    moved = above_chance(
        score[:, order], chance[:, order], UNIT, ["a", "a", "b"], [names[i] for i in order]
    )
    assert moved.bound == pytest.approx(found.bound, abs=1e-12)
    score[0, 3] = np.nan
    found = above_chance(score, chance, UNIT, ["a", "a", "b"], names)
    moved = above_chance(
        score[:, order], chance[:, order], UNIT, ["a", "a", "b"], [names[i] for i in order]
    )
    assert moved.bound == pytest.approx(found.bound, abs=1e-12)


def test_one_condition_is_the_bet_on_a_calibrated_score() -> None:
    generator = np.random.default_rng(2)
    score, chance, names = (
        generator.beta(6, 2, (1, 40)),
        generator.beta(2, 6, (1, 40)),
        names_of(40),
    )
    order = order_of_bets(names)
    most = chance.max()
    wanted = bet_on_calibrated(score[0, order], chance[0, order], UNIT, 0.9, True, most)
    found = above_chance(score, chance, UNIT, ["jpeg"], names, 0.9)
    assert found == wanted and found.method == BETTING_FOR_REFERENCES


def test_conditions_without_a_score_are_left_out() -> None:
    generator = np.random.default_rng(4)
    score, chance = generator.beta(6, 2, (2, 40)), generator.beta(2, 6, (2, 40))
    wanted = above_chance(score[:1], chance[:1], UNIT, ["a"], names_of(40))
    chance[1] = np.nan
    assert above_chance(score, chance, UNIT, ["a", "b"], names_of(40)) == wanted
    assert np.isnan(above_chance(score[1:], chance[1:], UNIT, ["b"], names_of(40)).bound)


def test_missing_scores_cost_power_but_not_the_claim_where_the_scores_are_high() -> None:
    generator = np.random.default_rng(5)
    score, chance = 0.5 + 0.3 * generator.random((3, 30)), 0.2 + 0.1 * generator.random((3, 30))
    whole = above_chance(score, chance, UNIT, ["a", "b", "c"], names_of(30)).bound
    score[generator.random(score.shape) < 0.2] = np.nan
    assert 0 < above_chance(score, chance, UNIT, ["a", "b", "c"], names_of(30)).bound < whole


@pytest.mark.parametrize("span", [None, (None, 1.0), (0.0, None)])
def test_without_both_ends_of_the_scale_the_bound_is_that_of_reports(
    span: tuple[float | None, float | None] | None,
) -> None:
    generator = np.random.default_rng(3)
    score, chance = generator.normal(0.5, 0.1, (2, 20)), generator.normal(0.3, 0.1, (2, 20))
    found = above_chance(score, chance, span, ["a", "b"], names_of(20), 0.9)
    report = calibrated(of_means(score), of_means(chance)).nested(["a", "b"])
    assert found.bound == pytest.approx(float(report.bound(0.9, lower=True)[0]))
    assert found.method == STUDENT


@pytest.mark.parametrize("n", [8, 20, 100])
def test_no_smaller_excess_over_chance_can_be_shown(n: int) -> None:
    least = smallest_excess(n, 0.3)
    for excess, is_shown in ((0.95 * least, False), (2 * least, True)):
        score, chance = np.full((1, n), 0.3 + excess), np.full((1, n), 0.3)
        bound = above_chance(score, chance, UNIT, ["jpeg"], names_of(n)).bound
        assert (bound > 0) == is_shown


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_the_smallest_p_is_that_of_samples_that_all_agree(n: int) -> None:
    differences = np.random.default_rng(n).random((1, n)) + 0.1
    assert simultaneous_tests(differences).p[0] == pytest.approx(smallest_p(n))


def test_a_kind_of_sample_that_was_not_seen_may_be_as_frequent_as_the_exact_bound_says() -> None:
    for n in (1, 14, 200):
        wanted = stats.binomtest(0, n, alternative="less").proportion_ci(0.95, method="exact").high
        assert unseen_share(n) == pytest.approx(wanted)
