"""Bounds of the gate: bets against an implementation step by step, and how often they miss on hard distributions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import heatproof
from heatproof.data import open_data
from heatproof.statistics.betting import reaches_goal
from heatproof.statistics.bounds_of_means import (
    Bound,
    bet_on_calibrated,
    bet_on_mean,
    bound_mean,
    samples_needed,
    samples_needed_to_bet,
)
from heatproof.statistics.estimates import of_means
from heatproof.statistics.intervals import EXACT, STUDENT
from heatproof.testing.check import check
from support.small import model, pictures

UNIT = (0.0, 1.0)


def gets_rich(gains: np.ndarray, most_lost: float, miss: float) -> bool:
    """Whether the capital of a gambler ever grows 1/miss-fold, one sample after the other.

    Each bet is the one that would reach the goal with the samples that are left, if their mean square were the one so far.
    """
    n = len(gains)
    wealth, squares = 1.0, 0.25
    for i, gain in enumerate(gains):
        if wealth >= 1 / miss:
            return True
        missing = math.log(1 / miss) - math.log(wealth)
        bet = math.sqrt(2 * missing / ((n - i) * squares / (i + 1)))
        wealth *= 1 + min(bet, 0.9 / max(most_lost, 1e-12)) * gain
        squares += gain**2
    return wealth >= 1 / miss


def first_not_beaten(is_beaten: Callable[[float], bool], start: float, end: float) -> float:
    """The first candidate from the start that is not beaten, on a fine grid."""
    for m in np.linspace(start, end, 20_001):
        if not is_beaten(float(m)):
            return float(m)
    return end


@pytest.mark.parametrize("n", [10, 25, 50])
@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_a_bet_on_a_mean_is_the_mean_at_which_the_gambler_gets_rich(
    n: int, confidence: float
) -> None:
    scores = np.random.default_rng(n).beta(8, 2, n)
    found = bet_on_mean(scores[None], UNIT, ["jpeg"], confidence, lower=True)
    wanted = first_not_beaten(
        lambda m: gets_rich(scores - m, m, 1 - confidence), 0.0, float(scores.mean())
    )
    assert found.bound == pytest.approx(wanted, abs=2e-4)
    assert (found.mean, found.n, found.method) == (pytest.approx(scores.mean()), n, "betting")

    mirrored = bet_on_mean(1 - scores[None], UNIT, ["jpeg"], confidence, lower=False)
    assert mirrored.bound == pytest.approx(1 - found.bound, abs=1e-5)
    wider = bet_on_mean(2 * scores[None] - 1, (-1.0, 1.0), ["jpeg"], confidence, lower=True)
    assert wider.bound == pytest.approx(2 * found.bound - 1, abs=1e-5)


@pytest.mark.parametrize("n", [5, 14, 50])
def test_samples_that_all_agree_are_bounded_nearly_as_well_as_by_any_method(n: int) -> None:
    """n ones are as probable as 0.05 if the rate is 0.05^(1/n); no bound above that holds for rates."""
    found = bet_on_mean(np.ones((1, n)), UNIT, ["jpeg"], 0.95, lower=True)
    best = 0.05 ** (1 / n)
    assert 0.9 * best <= found.bound <= best


def test_complete_scores_of_several_conditions_are_one_bet_on_the_overall_scores() -> None:
    scores = np.random.default_rng(0).random((3, 40))
    found = bet_on_mean(scores, UNIT, ["rotation", "rotation", "jpeg"], 0.95, lower=True)
    overall = np.array([0.25, 0.25, 0.5]) @ scores
    assert found.bound == pytest.approx(
        bet_on_mean(overall[None], UNIT, ["all"], 0.95, lower=True).bound
    )


def test_incomplete_scores_share_the_allowed_misses_among_their_conditions() -> None:
    scores = np.random.default_rng(0).random((2, 40))
    scores[0, :5] = np.nan
    found = bet_on_mean(scores, UNIT, ["rotation", "jpeg"], 0.9, lower=True)
    each = [
        bet_on_mean(row[np.isfinite(row)][None], UNIT, ["one"], 0.95, lower=True).bound
        for row in scores
    ]
    assert found.bound == pytest.approx(np.mean(each)) and found.n == 35


def test_without_a_score_there_is_no_bound() -> None:
    nothing = np.full((1, 5), np.nan)
    found = bet_on_mean(nothing, UNIT, ["jpeg"], 0.95, lower=True)
    assert np.isnan(found.bound) and found.method == "none"
    found = bet_on_calibrated(nothing[0], nothing[0], UNIT, 0.95, lower=True)
    assert np.isnan(found.bound) and found.method == "none"


@pytest.mark.parametrize("n", [8, 30, 120])
@pytest.mark.parametrize("failures", [0.01, 0.05, 0.2, 0.5])
def test_a_bet_holds_on_two_point_distributions(failures: float, n: int) -> None:
    """Rare failures at 0, the rest as close below the mean of 0.9 as possible: Hall's bound misses up to 66 %."""
    generator = np.random.default_rng(int(1000 * failures) + n)
    studies, miss = 2_000, 0.05
    high = 0.9 / (1 - failures) if failures < 0.1 else 0.9 + 0.1 * (1 - failures)
    mean = (1 - failures) * high
    scores = np.where(generator.random((studies, n)) < failures, 0.0, high)
    most = stats.binom.ppf(0.999, studies, miss)
    goal = math.log(1 / miss)
    assert (
        int(reaches_goal(scores - mean, mean, goal).sum()) <= most
    )  # a lower bound above the mean
    assert int(reaches_goal(mean - scores, 1 - mean, goal).sum()) <= most


@pytest.mark.parametrize("n", [12, 40])
def test_a_bet_on_a_calibrated_score_is_where_the_gambler_gets_rich(n: int) -> None:
    generator = np.random.default_rng(n)
    score, chance = generator.beta(9, 2, n), generator.beta(3, 7, n)
    found = bet_on_calibrated(score, chance, UNIT, 0.95, lower=True)

    def is_beaten(m: float) -> bool:
        # s − c − m (1 − c) is at least −1 for m from 0 to 1, where s = 0 and c = 1.
        most_lost = max(1.0, m)
        return gets_rich(score - chance - m * (1 - chance), most_lost, 0.05)

    wanted = first_not_beaten(is_beaten, -1.0, found.mean)
    assert found.bound == pytest.approx(wanted, abs=4e-4)
    assert found.mean == pytest.approx((score - chance).mean() / (1 - chance).mean())


def test_upper_bets_on_calibrated_scores_lie_above_the_score_and_shrink() -> None:
    generator = np.random.default_rng(0)
    above = []
    for n in (20, 80, 320):
        found = bet_on_calibrated(
            generator.beta(9, 2, n), generator.beta(3, 7, n), UNIT, 0.95, lower=False
        )
        above.append(found.bound - found.mean)
    assert above[0] > above[1] > above[2] > 0


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [10, 60])
def test_bets_on_calibrated_scores_miss_no_more_often_than_they_say(n: int, lower: bool) -> None:
    """Two-point scores with rare failures, and chances that go with them: 2,000 studies."""
    generator = np.random.default_rng(n)
    studies, miss = 1_000, 0.1
    failures = 0.05 if lower else 0.95
    truth = ((1 - failures) * 0.9 - 0.5 * failures * 0.8 - (1 - failures) * 0.3) / (
        1 - (0.5 * failures * 0.8 + (1 - failures) * 0.3)
    )
    missed = 0
    for _ in range(studies):
        fails = generator.random(n) < failures
        score = np.where(fails, 0.0, 0.9)
        chance = np.where(fails, 0.8 * generator.integers(0, 2, n), 0.3)
        bound = bet_on_calibrated(score, chance, UNIT, 1 - miss, lower).bound
        missed += bool(bound > truth if lower else bound < truth)
    assert missed <= stats.binom.ppf(0.999, studies, miss)


def test_the_approximate_bound_names_its_method() -> None:
    scores = np.random.default_rng(0).random((1, 20))
    found = bound_mean(of_means(scores, UNIT), ["jpeg"], 0.95, lower=True)
    assert found.method == STUDENT and found.bound < found.mean
    few = bound_mean(of_means(scores[:, :7], UNIT), ["jpeg"], 0.95, lower=True)
    assert np.isnan(few.bound) and (few.n, few.method) == (7, "none")


def test_a_near_goal_needs_as_many_samples_as_the_normal_law_says() -> None:
    scores = np.random.default_rng(1).random(40)
    gap = 0.002
    n = samples_needed(of_means(scores, UNIT), scores.mean() - gap, 0.95, True)
    assert n == pytest.approx((1.645 * scores.std(ddof=1) / gap) ** 2, rel=0.1)


def test_no_number_of_samples_moves_the_mean_over_a_threshold() -> None:
    scores = of_means(np.random.default_rng(1).random(40), UNIT)
    assert samples_needed(scores, float(scores.value) + 0.01, 0.95, True) is None
    assert samples_needed(scores, float(scores.value) - 0.01, 0.95, False) is None


@pytest.mark.parametrize("lower", [True, False])
def test_as_many_samples_as_a_bet_is_said_to_need_are_enough(lower: bool) -> None:
    scores = np.random.default_rng(2).beta(5, 5, 20)

    def bet(number: int) -> Bound:
        return bet_on_mean(np.resize(scores, number)[None], UNIT, ["jpeg"], 0.95, lower)

    threshold = float(scores.mean()) + (-0.05 if lower else 0.05)
    needed = samples_needed_to_bet(bet, bet(20), threshold, lower)
    assert needed is not None and needed > 20
    passes = [
        bet(m).bound >= threshold if lower else bet(m).bound <= threshold for m in (20, needed)
    ]
    assert passes == [False, True]
    assert samples_needed_to_bet(bet, bet(20), threshold, not lower) is None


def test_too_few_samples_for_a_bound_need_at_least_eight() -> None:
    scores = of_means(np.full(4, 0.9) + 1e-3 * np.arange(4), UNIT)
    assert samples_needed(scores, 0.1, 0.95, True) == 8


def bounds_of_a_run(groups: bool) -> dict[str, Bound]:
    """The bounds of requirements on a small run by the measure that they are about."""
    data = open_data(pictures(12)[0], groups=[str(i // 2) for i in range(12)] if groups else None)
    asked = {"stability": {"perturbations": "brightness", "k": 50}}
    run = heatproof.evaluate(model(), data, "saliency", asked, show_progress=False)
    names = ["stability.fass", "stability.fass.calibrated", "stability.retention"]
    found = check(run, [f"{name} >= 0" for name in names])
    return {name: outcome.seen for name, outcome in zip(names, found, strict=True)}


def test_the_gate_bets_where_a_guarantee_exists_and_names_the_method() -> None:
    found = bounds_of_a_run(groups=False)
    assert found["stability.fass"].method == "betting"
    assert found["stability.fass.calibrated"].method == "betting, for these references"
    assert found["stability.retention"].method == EXACT


def test_samples_in_groups_are_not_bet_on() -> None:
    found = bounds_of_a_run(groups=True)
    assert {bound.method for bound in found.values()} <= {STUDENT, "none"}
