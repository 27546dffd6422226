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
    """Return whether a bet shows that the mean score is above the mean chance.

    `score` and `chance` (C, N) are those of the samples under conditions with these `names`, NaN where missing; `span` has
    the ends of their scale. The claim is wrong with probability 1 − confidence at most, for the references that were
    drawn. To make it of M methods at once, ask for a confidence of 1 − 0.05/M.

    If every sample has every condition, one bet is made on the mean over conditions of each sample's score − chance.
    Otherwise each of C conditions has a bound of its calibrated score that is missed with probability
    (1 − confidence)/C, and their mean must be above 0. A gambler may bet more the less a sample can fall below its
    chance; it is taken here that no sample's chance is more than a ninth above the largest that was seen.

    >>> high, low = np.full((2, 20), 0.8), np.full((2, 20), 0.4)
    >>> bet_above_chance(high, low, (0.0, 1.0), ["noise", "jpeg"], [str(i) for i in range(20)])
    True
    """
    has_both = np.isfinite(score) & np.isfinite(chance)
    is_scored = np.asarray(has_both.any(-1))
    if not is_scored.any():
        return False
    order = order_of_bets(samples)
    score, chance = (
        ((np.where(has_both, side, np.nan) - span[0]) / (span[1] - span[0]))[is_scored][:, order]
        for side in (score, chance)
    )
    names = [name for name, has_score in zip(names, is_scored, strict=True) if has_score]
    weights = nested_weights(np.ones(len(names), dtype=bool), names)

    if is_complete(score):
        has_score = np.isfinite(score).any(0)
        mean_chance = weights @ chance[:, has_score]
        gains = weights @ score[:, has_score] - mean_chance
        return bool(reaches_goal(gains, mean_chance.max(), -math.log(1 - confidence)))

    confidence_of_condition = 1 - (1 - confidence) / len(names)
    largest_chance = float(np.nanmax(chance))
    bounds = []
    for s, c in zip(score, chance, strict=True):
        use = np.isfinite(s)
        bound = betting_bound(
            s[use], c[use], confidence_of_condition, True, largest_chance=largest_chance
        )
        bounds.append(bound)
    return bool(weights @ np.array(bounds) > 0)


def order_of_bets(samples: Sequence[str]) -> NDArray[np.int64]:
    """Return an order of the samples that depends on their names alone, for a bet depends on the order of its samples.

    >>> names = np.array(["cat", "dog", "fox"])
    >>> names[order_of_bets(names)].tolist() == names[::-1][order_of_bets(names[::-1])].tolist()
    True
    """
    return np.asarray(rand.keys(0, list(samples), "order of bets").argsort().numpy())


def smallest_excess(n: int, chance: float, confidence: float = 0.95) -> float:
    """Return the least excess of score over chance, on a scale from 0 to 1, that n samples can show by betting.

    All n samples would have to have it, with the same chance; it takes more where they differ. It is
    chance · (exp(g/n) − 1) / 0.9 with g = −log(1 − confidence), for no bet risks more than nine tenths of the capital. If
    score and chance add up to more than 1, so few samples can show nothing.

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
    """Return the probability of so many hits or more if sample i is hit by luck with probability `chances[i]`.

    Exact, by the distribution of the number of hits (Poisson's binomial), one sample after another. `hits` (N,) are 0
    or 1; the share of a peak that is split between several places counts as no hit, which errs on the safe side.
    Samples without a hit or a chance (NaN) are left out; NaN if none is left.

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
    """Return the probabilities of 0, 1, … N hits in N independent trials with these chances.

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
