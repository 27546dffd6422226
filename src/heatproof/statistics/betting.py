"""Bounds by betting: they hold for every distribution of scores between two known ends.

A gambler bets, one sample after another, that the mean lies above a candidate m. If m is the mean, no bet can be
expected to win, so his capital grows to 1/δ times its start with probability δ at most (Ville's inequality). The lower
bound is the smallest candidate against which it does not. For an upper bound he bets the other way.

One formula covers raw and calibrated scores. On a scale from 0 to 1 a sample with score s and chance c gains

    x = s − c − m (1 − c),

whose mean is 0 if m is the calibrated score (mean s − mean c) / (1 − mean c). With c = 0, m is the mean of s.

The bets are those of Voráček and Orabona: each is the one that would reach the goal with the samples that are left, if
these were like the samples before. In our simulations (`docs/coverage.md`) they find far more than bets that are fixed
before the first sample, and with few samples nearly as much as any method can that holds for every distribution.

References: Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting, J. R. Statist. Soc.
B 86, 1; Voráček and Orabona (2025), STaR-Bets: sequential target-recalculating bets for tighter confidence intervals,
NeurIPS; Vovk and Wang (2021), E-values: calibration, combination and applications, Ann. Stat. 49, 1736.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heatproof.statistics.arrays import Array

MOST_BET = 0.9
"""The largest share of the capital that a bet can lose; so a loss that is a ninth larger than expected is no ruin."""
RUIN = 1e-12
"""The share of the capital that is left after the worst loss."""
RECALCULATED = 50
"""How often the bet is calculated anew; before every sample if there are no more than this."""
VARIANCE_BEFORE = 0.25
"""The variance of gains that is assumed before the first sample: the largest on a scale from 0 to 1."""
CANDIDATES, REFINEMENTS = 32, 4
"""A bound is looked for on a grid of so many candidates, refined so many times: to about 10⁻⁶."""
FARTHEST = 1e6
"""How far below 0 a calibrated score is looked for."""
LARGEST_EXPONENT = 700.0
"""Of a number that a float can hold."""


# ---- one condition ----------------------------------------------------------------------------------------------------


def reaches_goal(gains: Array, most_lost: float | Array, goal: float) -> NDArray[np.bool_]:
    """Return whether a gambler who bets on the `gains` (…, n) of n samples ever reaches the log-capital `goal`, (…).

    It is a test that the mean gain is above 0 (Waudby-Smith and Ramdas 2024): if it is not, the capital reaches exp(goal)
    with probability exp(−goal) at most (Ville's inequality). No gain is below −`most_lost` (…).

    A bet λ multiplies the capital by 1 + λ · gain. The bets are those of Voráček and Orabona (2025, STaR-Bets): to gain a
    log-capital g from n samples of mean square v, about √(2 g / (n v)) is best, where g is what is still missing, n the
    samples that are left, and v the mean square so far. No bet depends on its own sample or on a later one.
    """
    n = gains.shape[-1]
    samples_at_once = math.ceil(n / RECALCULATED)
    largest_bet = MOST_BET / np.maximum(most_lost, 1e-9)
    log_capital = np.zeros(gains.shape[:-1])
    largest_log_capital = np.zeros(gains.shape[:-1])
    squares = np.full(gains.shape[:-1], VARIANCE_BEFORE)

    for start in range(0, n, samples_at_once):
        missing = np.maximum(goal - log_capital, 0.0)
        mean_square = squares / (start + 1)
        samples_left = n - start
        best_bet = np.sqrt(2 * missing / (samples_left * mean_square))
        bet = np.minimum(best_bet, largest_bet)
        next_gains = gains[..., start : start + samples_at_once]
        # A score below the declared scale could lose more than everything: it loses nearly all then.
        growth = np.log1p(np.maximum(bet[..., None] * next_gains, -1 + RUIN))
        path = log_capital[..., None] + np.cumsum(growth, -1)
        largest_log_capital = np.maximum(largest_log_capital, path.max(-1))
        log_capital = path[..., -1]
        squares = squares + (next_gains**2).sum(-1)
    return np.asarray(largest_log_capital >= goal - 1e-9)


def betting_bound(
    score: Array,
    chance: Array,
    confidence: float,
    lower: bool,
    perfect: float = 1.0,
    largest_chance: float = 1.0,
) -> float:
    """Return a one-sided confidence bound of a mean calibrated score that holds for every distribution of scores.

    The calibrated score is (mean score − mean chance) / (perfect − mean chance), from the `score` and the `chance` level
    (n,) of n samples, both between 0 and 1. The bound is `lower` or upper and fails with probability 1 − confidence.

    It is found by testing candidates m for the calibrated score by betting (`reaches_goal`): the bound is the last m,
    from far away towards the mean, that a gambler beats. It is infinite if no candidate is beaten, or if chance is at
    `perfect`. Bets can be larger if no sample of the population has a chance above `largest_chance`.
    """
    room = perfect - chance
    sign = 1.0 if lower else -1.0
    unbounded = -sign * math.inf
    if room.mean() <= 1e-9:
        return unbounded
    mean = float((score - chance).mean() / room.mean())
    goal = -math.log(1 - confidence)
    extremes = [(0.0, 0.0), (0.0, largest_chance), (1.0, 0.0), (1.0, largest_chance)]

    # A grid of candidates from far away to the mean, refined between the last that is beaten and the next.
    far, near = mean - sign * (1 + abs(mean)), mean
    for _ in range(REFINEMENTS):
        candidates = np.linspace(far, near, CANDIDATES)
        gains = sign * (score - chance - candidates[:, None] * room)
        # A gain is linear in score and chance, so the largest loss is at the ends of their scales.
        losses = [-sign * (s - c - candidates * (perfect - c)) for s, c in extremes]
        is_beaten = reaches_goal(gains, np.max(losses, 0), goal)
        if is_beaten.all():
            return near
        first_not_beaten = int(np.argmin(is_beaten))
        if first_not_beaten == 0:
            return unbounded
        far = float(candidates[first_not_beaten - 1])
        near = float(candidates[first_not_beaten])
    return far


# ---- several conditions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bets:
    """The bets on one condition, which do not depend on the candidate m.

    The capital at the end is K(m) = Π (1 + bet · (gain − m · room)), with gain = score − chance and room = 1 − chance. It
    is convex in m and falls.
    """

    bets: Array
    gains: Array
    room: Array

    def log_capital(self, m: float) -> float:
        return float(np.log1p(self.bets * (self.gains - m * self.room)).sum())

    def log_slope(self, m: float) -> float:
        """Return log(−K′(m)), which falls as well."""
        growth = 1 + self.bets * (self.gains - m * self.room)
        return float(np.log(growth).sum() + np.log((self.bets * self.room / growth).sum()))


def bound_by_average_capital(
    scores: Sequence[Array], chances: Sequence[Array], weights: Array, confidence: float
) -> float:
    """Return a lower confidence bound of Σ w_c m_c, the weighted mean of the calibrated scores m_c of several conditions.

    `scores` and `chances` have an array per condition, of its samples' scores and chance levels from 0 to 1; the weights
    w_c sum to 1. For each condition a gambler bets against a candidate for m_c and ends with the capital K_c(m_c). For the
    true m_c, Σ w_c K_c(m_c) has an expectation of at most 1, so it stays below 1 / (1 − confidence) with this confidence
    (Vovk and Wang 2021). The bound is the smallest Σ w_c m_c of all candidates for which it does. Unlike a bound per
    condition, each with a share of the allowed error, this does not become wider with more conditions.

    For every price ν > 0, Σ w_c min_m (m + ν K_c(m)) − ν / (1 − confidence) is at most that smallest mean (weak duality;
    Boyd and Vandenberghe 2004, Convex Optimization, ch. 5), with equality for the right price. The price taken is the
    average of those at which each gambler alone reaches the goal. It is right where conditions are alike.
    """
    goal = -math.log(1 - confidence)
    gamblers = [_fixed_bets(s, c, goal) for s, c in zip(scores, chances, strict=True)]
    slopes = []
    for gambler in gamblers:
        m_at_goal = _where_it_falls_to(goal, gambler.log_capital)
        slopes.append(gambler.log_slope(m_at_goal))
    log_price = -float(weights @ np.array(slopes))

    bound = -math.exp(min(log_price + goal, LARGEST_EXPONENT))
    for weight, gambler in zip(weights, gamblers, strict=True):
        m = _where_it_falls_to(-log_price, gambler.log_slope)  # where m + ν K(m) is smallest
        cost = math.exp(min(log_price + gambler.log_capital(m), LARGEST_EXPONENT))
        bound += float(weight) * min(m + cost, 1.0)
    return bound


def _fixed_bets(score: Array, chance: Array, goal: float) -> _Bets:
    """Return the bets of a gambler on the samples of one condition, each of which depends on the samples before it alone.

    `score` and `chance` (n,) are between 0 and 1. A bet is √(2 goal / (n v)) with the variance v of the gains so far. The
    variance depends on the candidate for the calibrated score; the calibrated score so far, from 0 on, stands for it.
    """
    gains, room = score - chance, 1 - chance
    n = len(gains)
    score_so_far = np.cumsum(gains) / (1 + np.cumsum(room))
    score_before = np.concatenate([[0.0], score_so_far[:-1]])
    squares = np.cumsum((gains - score_before * room) ** 2)
    variance = (VARIANCE_BEFORE + squares) / np.arange(2, n + 2)
    variance_before = np.concatenate([[VARIANCE_BEFORE], variance[:-1]])
    # Against a candidate of at most 1, a sample with a score of 0 loses 1 at most.
    bets = np.minimum(np.sqrt(2 * goal / (n * variance_before)), MOST_BET)
    return _Bets(bets, gains, room)


def _where_it_falls_to(goal: float, curve: Callable[[float], float], highest: float = 1.0) -> float:
    """Return the largest m, at most `highest`, at which a falling curve is not below the goal, by bisection.

    The search starts one below `highest` and goes down in growing steps, to −`FARTHEST` at most.
    """
    if curve(highest) >= goal:
        return highest
    at_or_above, below = highest - 1.0, highest
    while curve(at_or_above) < goal and at_or_above > -FARTHEST:
        at_or_above, below = 2 * at_or_above - 1, at_or_above
    for _ in range(60):
        middle = (at_or_above + below) / 2
        if curve(middle) >= goal:
            at_or_above = middle
        else:
            below = middle
    return at_or_above
