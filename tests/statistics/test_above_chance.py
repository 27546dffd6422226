"""Claims of "above chance": bets on skewed scores, the exact hit test by brute force, and what so few samples can show."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from heatproof.evaluation import Better, Measure
from heatproof.results.above_chance import decide_above_chance
from heatproof.results.arrays import rows_to_arrays
from heatproof.statistics.above_chance import (
    bet_above_chance,
    order_of_bets,
    poisson_binomial_p,
    smallest_excess,
)
from heatproof.statistics.betting import betting_bound
from heatproof.statistics.estimates import of_means
from heatproof.statistics.few import smallest_p, unseen_share
from heatproof.statistics.sign_flips import simultaneous_tests
from support import synthetic

UNIT = (0.0, 1.0)
FASS = Measure("fass", "FASS", "", "higher", "headline", chance="calibrate", span=UNIT)


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
    bets = [bet_above_chance(row[None], chance, UNIT, ["jpeg"], names) for row in scores]
    usual, _ = of_means(scores).bound(0.95, lower=True)
    assert sum(bets) <= stats.binom.ppf(0.999, studies, 0.05)
    assert sum(bets) < (usual > 0.865).sum()


def test_the_order_of_rows_does_not_matter_but_that_of_bets_is_fixed_by_name() -> None:
    generator = np.random.default_rng(1)
    names, conditions = names_of(12), ["a", "a", "b"]
    shown = []
    for _ in range(60):
        score, chance = generator.beta(9, 11, (3, 12)), generator.beta(6, 14, (3, 12))
        if len(shown) % 2:
            score[0, 3] = np.nan
        order = generator.permutation(12)
        names_in_order = [names[i] for i in order]
        here = bet_above_chance(score, chance, UNIT, conditions, names, 0.8)
        moved = score[:, order], chance[:, order]
        assert bet_above_chance(*moved, UNIT, conditions, names_in_order, 0.8) == here
        shown.append(here)
    assert 5 < sum(shown) < 55


def test_a_bet_agrees_with_the_bound_of_the_calibrated_score() -> None:
    generator = np.random.default_rng(2)
    names = names_of(14)
    order = order_of_bets(names)
    for excess in (0.05, 0.1, 0.2, 0.3, 0.5):
        score = 0.3 + excess + 0.1 * generator.random((1, 14))
        chance = 0.3 + 0.1 * generator.random((1, 14))
        bound = betting_bound(
            score[0, order], chance[0, order], 0.95, True, largest_chance=chance.max()
        )
        assert bet_above_chance(score, chance, UNIT, ["jpeg"], names) == (bound > 0)


def test_conditions_without_a_score_are_left_out() -> None:
    score, chance = np.full((2, 20), 0.8), np.full((2, 20), 0.3)
    chance[1] = np.nan
    assert bet_above_chance(score, chance, UNIT, ["a", "b"], names_of(20))
    assert not bet_above_chance(score[1:], chance[1:], UNIT, ["b"], names_of(20))


def test_missing_scores_cost_power_but_not_the_claim_where_the_scores_are_high() -> None:
    generator = np.random.default_rng(5)
    score, chance = 0.5 + 0.3 * generator.random((3, 30)), 0.2 + 0.1 * generator.random((3, 30))
    score[generator.random(score.shape) < 0.2] = np.nan
    assert bet_above_chance(score, chance, UNIT, ["a", "b", "c"], names_of(30))
    at_chance = np.where(np.isnan(score), np.nan, chance)
    assert not bet_above_chance(at_chance, chance, UNIT, ["a", "b", "c"], names_of(30))


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_few_samples_make_no_false_claims_whichever_way_is_better(better: Better) -> None:
    """Ten samples of a measure whose mean is at chance; one in twenty is far on the wrong side."""
    generator = np.random.default_rng(0)
    claims, studies = 0, 200
    chance = np.full(10, 0.4)
    for _ in range(studies):
        excess = np.where(generator.random(10) < 0.05, -0.38, 0.02)
        score = chance + (excess if better == "higher" else -excess)
        rows = synthetic.rows_of([("m", "fass", "jpeg", 1.0, score, chance)], "stability")
        (arrays,) = rows_to_arrays(rows, {"stability": [FASS]})
        claims += decide_above_chance(arrays, "fass", better, 0.95) == [True]
    assert claims <= stats.binom.ppf(0.999, studies, 0.05)
    clear = chance + (0.35 if better == "higher" else -0.35)
    rows = synthetic.rows_of([("m", "fass", "jpeg", 1.0, clear, chance)], "stability")
    (arrays,) = rows_to_arrays(rows, {"stability": [FASS]})
    assert decide_above_chance(arrays, "fass", better, 0.95) == [True]


@pytest.mark.parametrize(("groups", "decision"), [(5, None), (10, None), (20, True)])
def test_few_groups_are_not_decided_by_the_bound_however_many_samples_they_hold(
    groups: int, decision: bool | None
) -> None:
    score = 0.5 + 0.01 * np.random.default_rng(0).normal(size=60)
    rows = synthetic.rows_of([("m", "fass", "jpeg", 1.0, score, np.full(60, 0.3))], "stability")
    (arrays,) = rows_to_arrays(rows, {"stability": [FASS]})
    arrays = replace(arrays, groups=np.arange(60) % groups)
    assert decide_above_chance(arrays, "fass", "higher", 0.95) == [decision]


@pytest.mark.parametrize("n", [8, 20, 100])
def test_no_smaller_excess_over_chance_can_be_shown(n: int) -> None:
    least = smallest_excess(n, 0.3)
    for excess, is_shown in ((0.95 * least, False), (2 * least, True)):
        score, chance = np.full((1, n), 0.3 + excess), np.full((1, n), 0.3)
        assert bet_above_chance(score, chance, UNIT, ["jpeg"], names_of(n)) == is_shown


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_the_smallest_p_is_that_of_samples_that_all_agree(n: int) -> None:
    differences = np.random.default_rng(n).random((1, n)) + 0.1
    assert simultaneous_tests(differences).p[0] == pytest.approx(smallest_p(n))


def test_a_kind_of_sample_that_was_not_seen_may_be_as_frequent_as_the_exact_bound_says() -> None:
    for n in (1, 14, 200):
        wanted = stats.binomtest(0, n, alternative="less").proportion_ci(0.95, method="exact").high
        assert unseen_share(n) == pytest.approx(wanted)
