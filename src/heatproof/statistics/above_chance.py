"""Whether scores are above chance: bets that keep their level for skewed scores, and the exact test of hits.

Sign flips and Student's bound, even with a correction for skewness, take a few samples that all are a little above
chance for proof. They are wrong where rare samples are far below chance. A bet on scores between two known ends holds
for every distribution. Its price is power (`smallest_excess`), so it decides only where samples are few.

References: those of `betting`; for hits with unequal chances Wang (1993), On the number of successes in independent
trials, Stat. Sinica 3, 295.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heatproof import rand
from heatproof.statistics.arrays import Array
from heatproof.statistics.betting import MOST_BET, betting_bound, reaches_goal
from heatproof.statistics.bounds_of_means import is_complete
from heatproof.statistics.estimates import nested_weights

FEW_SAMPLES_ABOVE_CHANCE = 14
"""From so many samples the one-sided bound of the interval decides: it makes at most 15 % false claims for skewed scores
and 5 % otherwise (rare failures aside, see `docs/coverage.md`). With fewer it makes up to 17 %, and only a bet decides."""


def bet_above_chance(
    score: Array,
    chance: Array,
    span: tuple[float, float],
    names: Sequence[str],
    samples: Sequence[str],
    confidence: float = 0.95,
) -> bool:
    """Return whether the mean score is significantly above the mean chance level, by a test that assumes no distribution.

    `score` and `chance` (C, N) belong to N `samples` under C conditions with these `names`, NaN where missing; `span` has
    the lowest and the highest possible score. A true result is wrong with probability at most 1 − confidence, given the
    reference maps behind the chance levels. For M methods at once, pass a confidence of 1 − 0.05/M (Bonferroni).

    It is a test by betting (Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by betting): a
    gambler bets on score − chance, sample by sample, and a capital of 1/(1 − confidence) is proof. If every sample has
    every condition, there is one bet on the weighted mean over conditions. Otherwise each condition gets a lower bound
    of its calibrated score at (1 − confidence)/C, and the weighted mean of the bounds must be above 0.

    How much a gambler may stake depends on how far a score can fall below its chance level. That is estimated by the
    largest chance level of the data: the test assumes that none in the population is more than a ninth above it.

    >>> high, low = np.full((2, 20), 0.8), np.full((2, 20), 0.4)
    >>> bet_above_chance(high, low, (0.0, 1.0), ["noise", "jpeg"], [str(i) for i in range(20)])
    True
    """
    has_both = np.isfinite(score) & np.isfinite(chance)
    is_scored = np.asarray(has_both.any(-1))
    if not is_scored.any():
        return False
    # Rescale both to [0, 1], drop conditions without a score, and bet in an order that depends on the names alone.
    lowest, highest = span
    order = order_of_bets(samples)
    score = (np.where(has_both, score, np.nan) - lowest) / (highest - lowest)
    chance = (np.where(has_both, chance, np.nan) - lowest) / (highest - lowest)
    score, chance = score[is_scored][:, order], chance[is_scored][:, order]
    names = [name for name, has_score in zip(names, is_scored, strict=True) if has_score]
    weights = nested_weights(np.ones(len(names), dtype=bool), names)

    if is_complete(score):
        has_score = np.isfinite(score).any(0)
        mean_chance = weights @ chance[:, has_score]
        gains = weights @ score[:, has_score] - mean_chance
        log_capital = -math.log(1 - confidence)
        return bool(reaches_goal(gains, mean_chance.max(), log_capital))

    confidence_of_condition = 1 - (1 - confidence) / len(names)
    largest_chance = float(np.nanmax(chance))
    bounds = []
    for scores_of_condition, chance_of_condition in zip(score, chance, strict=True):
        is_finite = np.isfinite(scores_of_condition)
        bound = betting_bound(
            scores_of_condition[is_finite],
            chance_of_condition[is_finite],
            confidence_of_condition,
            True,
            largest_chance=largest_chance,
        )
        bounds.append(bound)
    mean_bound = weights @ np.array(bounds)
    return bool(mean_bound > 0)


def order_of_bets(samples: Sequence[str]) -> NDArray[np.int64]:
    """Return a random order of the samples that depends on their names alone, as indices.

    The result of a test by betting depends on the order of its samples, and must not depend on how a file lists them.

    >>> names = np.array(["cat", "dog", "fox"])
    >>> names[order_of_bets(names)].tolist() == names[::-1][order_of_bets(names[::-1])].tolist()
    True
    """
    return np.asarray(rand.keys(0, list(samples), "order of bets").argsort().numpy())


def smallest_excess(n: int, chance: float, confidence: float = 0.95) -> float:
    """Return the least excess of score over chance that a test by betting on n samples can show to be significant.

    Scores lie between 0 and 1. All n samples would need this excess at the same chance level; where samples differ, it
    takes more. It is chance · (exp(g/n) − 1) / 0.9 with g = −log(1 − confidence), because a bet stakes at most nine tenths
    of the capital. Where chance and excess add up to more than 1, n samples can show nothing.

    Every method that holds for all distributions needs at least nine tenths of this. Suppose that a share q of the
    samples scores 0 and all others lie an excess e above the chance c, with q c = (1 − q) e. Then the mean is at chance,
    and n samples show no 0 with probability (1 − q)^n = (c / (c + e))^n, which must be at most 1 − confidence.

    >>> [round(smallest_excess(n, 0.4), 2) for n in (8, 14, 30, 100)]
    [0.2, 0.11, 0.05, 0.01]
    >>> round(smallest_excess(14, 0.4, 1 - 0.05 / 6), 2)  # six methods
    0.18
    """
    return chance * math.expm1(-math.log(1 - confidence) / n) / MOST_BET


def poisson_binomial_p(hits: Array, chances: Array) -> float:
    """Return the p-value of a number of hits: the probability of so many or more by luck alone.

    Sample i is hit by luck with probability `chances[i]`, independently of the others. The number of hits then has the
    Poisson binomial distribution (Wang 1993), which is computed exactly. `hits` (N,) are 0 or 1; a fraction, from a map
    whose peak is tied between several positions, counts as no hit, which is conservative. Samples where `hits` or
    `chances` is NaN are left out; the result is NaN if none is left.

    >>> poisson_binomial_p(np.array([1.0, 1.0, 0.0]), np.array([0.5, 0.5, 0.5]))
    0.5
    """
    has_both = np.isfinite(hits) & np.isfinite(chances)
    if not has_both.any():
        return math.nan
    number_of_hits = int((hits[has_both] >= 1 - 1e-9).sum())
    probabilities = numbers_of_hits(np.clip(chances[has_both], 0.0, 1.0))
    return min(float(probabilities[number_of_hits:].sum()), 1.0)


def numbers_of_hits(chances: Array) -> Array:
    """Return the probabilities of 0, 1, … N hits in N independent trials with these chances of a hit.

    This is the Poisson binomial distribution, built up by adding one trial at a time.

    >>> numbers_of_hits(np.array([0.5, 0.2])).tolist()
    [0.4, 0.5, 0.1]
    """
    probabilities = np.ones(1)  # among the trials so far
    for chance in chances:
        with_next = np.zeros(len(probabilities) + 1)
        with_next[:-1] = probabilities * (1 - chance)
        with_next[1:] += probabilities * chance
        probabilities = with_next
    return probabilities
