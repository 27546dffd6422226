"""Bets on the mean of calibrated scores over conditions: against a numerical optimum, and how often they miss."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from heatproof.statistics.bounds_of_means import bet_on_calibrated, bet_on_calibrated_mean

UNIT = (0.0, 1.0)


def scores_and_chances(seed: int, conditions: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    score = generator.beta(8, 2 + np.arange(conditions)[:, None], (conditions, n))
    return score, generator.beta(3, 7, (conditions, n))


def capital_against(score: np.ndarray, chance: np.ndarray, m: float, miss: float) -> float:
    """What a gambler ends with who bets, sample after sample, that the calibrated score is above m.

    The bet falls as the squared distances of the samples, each from the score of those before it, add up.
    """
    capital, squares, gained, room = 1.0, 0.25, 0.0, 1.0
    for i, (s, c) in enumerate(zip(score, chance, strict=True), start=1):
        bet = min(math.sqrt(2 * math.log(1 / miss) / (len(score) * squares / i)), 0.9)
        capital *= 1 + bet * (s - c - m * (1 - c))
        squares += (s - c - gained / room * (1 - c)) ** 2
        gained += s - c
        room += 1 - c
    return capital


@pytest.mark.parametrize("n", [20, 60])
def test_the_bound_is_the_smallest_mean_that_the_average_capital_allows(n: int) -> None:
    score, chance = scores_and_chances(n, 3, n)
    found = bet_on_calibrated_mean(score, chance, UNIT, ["a", "b", "c"], 0.95, lower=True)

    def average_capital(candidates: np.ndarray) -> float:
        capitals = [
            capital_against(*row, m, 0.05)
            for *row, m in zip(score, chance, candidates, strict=True)
        ]
        return float(np.mean(capitals))

    start = np.full(3, found.bound)
    best = optimize.minimize(
        lambda candidates: candidates.mean(),
        start,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda c: math.log(20) - math.log(average_capital(c))},
        options={"maxiter": 300, "ftol": 1e-10},
    )
    assert best.success
    assert found.bound <= best.fun + 1e-6  # safe for any price of capital
    assert found.bound == pytest.approx(best.fun, abs=0.01)


def test_levels_of_a_condition_are_averaged_first() -> None:
    score, chance = scores_and_chances(0, 3, 50)
    found = bet_on_calibrated_mean(score, chance, UNIT, ["a", "a", "b"], 0.95, lower=True)
    each = (score - chance).mean(1) / (1 - chance).mean(1)
    assert found.mean == pytest.approx(np.array([0.25, 0.25, 0.5]) @ each)


@pytest.mark.parametrize("lower", [True, False])
def test_one_condition_is_the_bet_on_its_calibrated_score(lower: bool) -> None:
    score, chance = scores_and_chances(1, 1, 40)
    found = bet_on_calibrated_mean(score, chance, UNIT, ["a"], 0.9, lower)
    assert found == bet_on_calibrated(score[0], chance[0], UNIT, 0.9, lower)


def test_no_condition_pays_for_the_others() -> None:
    score, chance = scores_and_chances(2, 1, 40)
    single = bet_on_calibrated(score[0], chance[0], UNIT, 0.95, lower=True)
    many = np.repeat(score, 10, axis=0), np.repeat(chance, 10, axis=0)
    names = [str(i) for i in range(10)]
    found = bet_on_calibrated_mean(*many, UNIT, names, 0.95, lower=True)
    assert found.mean == pytest.approx(single.mean)
    assert found.bound == pytest.approx(single.bound, abs=0.03)


@pytest.mark.parametrize("lower", [True, False])
def test_missing_scores_are_left_out(lower: bool) -> None:
    score, chance = scores_and_chances(3, 2, 40)
    score[0, :7], chance[1, 20:] = np.nan, np.nan
    found = bet_on_calibrated_mean(score, chance, UNIT, ["a", "b"], 0.95, lower)
    assert found.n == 20 and np.isfinite(found.bound)
    assert (found.bound < found.mean) if lower else (found.bound > found.mean)
    nothing = np.full((2, 40), np.nan)
    assert np.isnan(bet_on_calibrated_mean(nothing, chance, UNIT, ["a", "b"], 0.95, lower).bound)


def test_a_chance_that_leaves_no_room_leaves_no_bound() -> None:
    score, chance = scores_and_chances(4, 2, 40)
    chance[1] = 1.0
    for lower in (True, False):
        assert np.isnan(bet_on_calibrated_mean(score, chance, UNIT, ["a", "b"], 0.95, lower).bound)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [10, 60])
def test_bounds_miss_no_more_often_than_they_say(n: int, lower: bool) -> None:
    """Two-point scores with rare failures that hit both conditions of a sample, and chances that go with them."""
    generator = np.random.default_rng(n)
    studies, miss, failures = 500, 0.1, 0.2
    fails = generator.random((studies, n)) < failures
    score = np.where(fails, 0.0, np.array([[0.9], [0.8]])[:, None])
    chance = np.where(fails, 0.1, np.array([[0.3], [0.5]])[:, None])
    mean_score = np.array([0.9, 0.8]) * (1 - failures)
    mean_chance = np.array([0.3, 0.5]) * (1 - failures) + 0.1 * failures
    truth = ((mean_score - mean_chance) / (1 - mean_chance)).mean()

    misses = 0
    for i in range(studies):
        names = ["a", "b"]
        found = bet_on_calibrated_mean(score[:, i], chance[:, i], UNIT, names, 1 - miss, lower)
        misses += found.bound > truth if lower else found.bound < truth
    assert misses <= stats.binom.ppf(0.999, studies, miss)
