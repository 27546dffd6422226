"""One-sided confidence bounds of a mean over samples, by the statistics that the report uses, or with a guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from heatproof.statistics.arrays import Array
from heatproof.statistics.bounds import mean_interval
from heatproof.statistics.estimates import Estimate, nested_weights

TRIED = 2**14
"""Up to so many samples the bound itself is asked how many would do; beyond, it comes nearer as 1 / √n."""
MOST_SAMPLES = 10**7
FARTHEST = 1e6
"""How far below 0 a calibrated score is looked for."""
MOST_BET = 0.75
"""The largest share of the capital that a bet can lose."""
LARGEST_EXPONENT = 700.0
"""Of a number that a float can hold."""
BETTING, BETTING_FOR_REFERENCES = "betting", "betting, for these references"


@dataclass(frozen=True)
class Bound:
    """A mean with its one-sided bound from n samples, and how the bound was found."""

    mean: float
    bound: float
    n: int
    method: str


def bound_mean(scores: Estimate, names: Sequence[str], confidence: float, lower: bool) -> Bound:
    """The bound of the overall score of conditions (C,) with these names; n is that of the one with the fewest scores.

    >>> from heatproof.statistics.estimates import of_means
    >>> bound_mean(of_means(np.ones((1, 14)), (0.0, 1.0), rate=True), ["jpeg"], 0.95, True)
    Bound(mean=1.0, bound=0.80..., n=14, method='Clopper-Pearson')
    """
    overall = scores.nested(names)
    bound, method = overall.bound(confidence, lower)
    n = int(np.isfinite(scores.sample_parts).sum(-1).min())
    return Bound(
        float(overall.value), float(bound), n, str(method) if np.isfinite(bound) else "none"
    )


def bet_on_mean(
    values: Array, span: tuple[float, float], names: Sequence[str], confidence: float, lower: bool
) -> Bound:
    """The bound of the overall score of (C, N) scores within `span` that holds for every distribution.

    Where every sample has a score under every condition, one bet is made on the overall score of each sample.
    Otherwise each of the C conditions has a bound (see `bounds.mean_interval`) that is missed with probability
    (1 − confidence)/C, so that their mean is missed with 1 − confidence at most.

    >>> bet_on_mean(np.ones((1, 14)), (0.0, 1.0), ["jpeg"], 0.95, True)
    Bound(mean=1.0, bound=0.75..., n=14, method='betting')
    """
    finite = np.isfinite(values)
    n = int(finite.sum(-1).min())
    if n < 1:
        return Bound(math.nan, math.nan, n, "none")
    weights = nested_weights(np.ones(len(values), dtype=bool), names)
    if is_complete(values):
        values, finite = (weights @ values[:, finite.any(0)])[None], np.ones((1, n), dtype=bool)
        weights = np.ones(1)
    delta = min(2 * (1 - confidence) / len(values), 0.999)
    rows = [torch.as_tensor(row[kept])[None] for row, kept in zip(values, finite, strict=True)]
    ends = [mean_interval(row, *span, delta)[0 if lower else 1].item() for row in rows]
    means = [row.mean().item() for row in rows]
    return Bound(float(weights @ np.array(means)), float(weights @ np.array(ends)), n, BETTING)


def is_complete(values: Array) -> bool:
    """Whether every sample that has a score (C, N) has one under every condition."""
    finite = np.isfinite(values)
    return bool((finite.all(0) | ~finite.any(0)).all())


def bet_on_calibrated(
    score: Array,
    chance: Array,
    span: tuple[float, float],
    confidence: float,
    lower: bool,
    largest_chance: float | None = None,
) -> Bound:
    """The bound of the calibrated score (s − c) / (1 − c) of scores and chances (N,), for these references.

    A gambler bets against a candidate m on x = s − c − m (1 − c), whose mean is 0 if m is the calibrated score: the
    capital Π (1 + λ_i x_i) reaches 1 / (1 − confidence) with probability 1 − confidence at most (Ville). The bound is
    the m farthest from the observed score against which it does. The bets λ_i are predictable: they depend on the
    samples before (Waudby-Smith and Ramdas 2024, J. R. Statist. Soc. B 86, 1). He can bet more if no sample has a chance
    above `largest_chance`, which is the end of the scale otherwise; a third more is safe still.

    >>> high, none = np.full(30, 0.9), np.full(30, 0.2)
    >>> bet_on_calibrated(high, none, (0.0, 1.0), 0.95, True)
    Bound(mean=0.87..., bound=0.69..., n=30, method='betting, for these references')
    """
    both = np.isfinite(score) & np.isfinite(chance)
    s, c = ((side[both] - span[0]) / (span[1] - span[0]) for side in (score, chance))
    one = (1 - span[0]) / (span[1] - span[0])  # a calibrated score of 1 is a raw score of 1
    n = int(both.sum())
    room = one - c
    if n < 1 or room.mean() <= 1e-9:
        return Bound(math.nan, math.nan, n, "none")
    mean = float((s - c).mean() / room.mean())
    goal = -math.log(1 - confidence)
    sign = 1.0 if lower else -1.0
    most_chance = 1.0
    if largest_chance is not None:
        most_chance = (largest_chance - span[0]) / (span[1] - span[0])
    corners = [(0.0, 0.0), (0.0, most_chance), (1.0, 0.0), (1.0, most_chance)]

    def beats(m: float) -> bool:
        gains = sign * (s - c - m * room)
        # x is linear in s and c, so the most that can be lost is at the ends of their scale.
        most_lost = max(-sign * (s_end - c_end - m * (one - c_end)) for s_end, c_end in corners)
        return bool(capital_reaches(gains, most_lost, goal))

    beaten, not_beaten = mean - sign * (1 + abs(mean)), mean
    if not beats(beaten):
        return Bound(mean, -sign * math.inf, n, BETTING_FOR_REFERENCES)
    for _ in range(50):
        middle = (beaten + not_beaten) / 2
        beaten, not_beaten = (middle, not_beaten) if beats(middle) else (beaten, middle)
    return Bound(mean, beaten, n, BETTING_FOR_REFERENCES)


def capital_reaches(gains: Array, most_lost: float | Array, goal: float) -> NDArray[np.bool_]:
    """Whether a gambler's log-capital reaches the goal at any time, for gains (…, n) of mean 0 if he bets in vain.

    He bets more the less the gains before varied, and never risks more than `MOST_BET` of what he has, where a gain is
    at least −`most_lost`.
    """
    n = gains.shape[-1]
    variance = (0.25 + np.cumsum(gains**2, -1)) / np.arange(2, n + 2)
    first = np.full((*gains.shape[:-1], 1), 0.25)
    before = np.concatenate([first, variance[..., :-1]], -1)
    bets = np.minimum(np.sqrt(2 * goal / (n * before)), MOST_BET / np.maximum(most_lost, 1e-9))
    return np.asarray(np.cumsum(np.log1p(bets * gains), -1).max(-1) >= goal)


def bet_on_calibrated_mean(
    score: Array,
    chance: Array,
    span: tuple[float, float],
    names: Sequence[str],
    confidence: float,
    lower: bool,
    largest_chance: float | None = None,
    highest: float = 1.0,
) -> Bound:
    """The bound of the mean over conditions of their calibrated scores, from scores and chances (C, N).

    Conditions of one name are levels, which are averaged first. Scores may be missing anywhere. Like
    `bet_on_calibrated`, whose bound this is for a single condition, it holds for these references.

    A lower bound is found by one gambler per condition, who bets against a candidate m_c and ends with the capital
    K_c(m_c). With the weights w_c of the conditions in the score, Σ w_c K_c(m_c) has an expectation of at most 1 if all
    candidates are true, so it is below 1 / (1 − confidence) with probability `confidence` (Vovk and Wang 2021, Ann.
    Stat. 49, 1736). The bound is the smallest Σ w_c m_c among the candidates for which it is. No condition pays for the
    others. An upper bound is the mean of one bound per condition, each missed with probability (1 − confidence)/C.

    A lower bound that is wanted only as far as `highest` may bet more if no sample has a chance above `largest_chance`,
    see `bet_on_calibrated`.

    >>> high, low = np.full((2, 30), 0.9), np.full((2, 30), 0.2)
    >>> bet_on_calibrated_mean(high, low, (0.0, 1.0), ["noise", "jpeg"], 0.95, True)
    Bound(mean=0.87..., bound=0.69..., n=30, method='betting, for these references')
    """
    both = np.isfinite(score) & np.isfinite(chance)
    n = int(both.sum(-1).min())
    if n < 1:
        return Bound(math.nan, math.nan, n, "none")
    if len(score) == 1:
        return bet_on_calibrated(score[0], chance[0], span, confidence, lower, largest_chance)

    weights = nested_weights(np.ones(len(score), dtype=bool), names)
    if not lower or span[1] != 1.0:  # the bets of `_gambler` take 1 to be the largest score
        level = 1 - (1 - confidence) / len(score)
        bounds = [
            bet_on_calibrated(s, c, span, level, lower, largest_chance)
            for s, c in zip(score, chance, strict=True)
        ]
        mean = float(weights @ np.array([single.mean for single in bounds]))
        bound = float(weights @ np.array([single.bound for single in bounds]))
        return Bound(mean, bound, n, BETTING_FOR_REFERENCES)

    goal = -math.log(1 - confidence)
    most_chance = 1.0
    if largest_chance is not None:
        most_chance = (largest_chance - span[0]) / (span[1] - span[0])
    most_lost = most_chance + highest * (
        1 - most_chance
    )  # by a score of 0, at the highest candidate
    gamblers = []
    for s, c, here in zip(score, chance, both, strict=True):
        unit_score, unit_chance = ((side[here] - span[0]) / (span[1] - span[0]) for side in (s, c))
        gamblers.append(_gambler(unit_score, unit_chance, goal, most_lost))
    if any(gambler.room.mean() <= 1e-9 for gambler in gamblers):
        return Bound(math.nan, math.nan, n, "none")  # chance leaves no room
    calibrated = np.array([g.gains.sum() / g.room.sum() for g in gamblers])
    bound = _smallest_mean(gamblers, weights, goal, highest)
    return Bound(float(weights @ calibrated), bound, n, BETTING_FOR_REFERENCES)


@dataclass(frozen=True)
class _Gambler:
    """Bets of one condition against each candidate m of its calibrated score.

    The capital is K(m) = Π (1 + bets · (gains − m · room)) with `gains` = score − chance. It is convex in m and falls.
    """

    bets: Array
    gains: Array
    room: Array

    def log_capital(self, m: float) -> float:
        return float(np.log1p(self.bets * (self.gains - m * self.room)).sum())

    def log_slope(self, m: float) -> float:
        """log(−K′(m)), which falls as well."""
        worth = 1 + self.bets * (self.gains - m * self.room)
        return float(np.log(worth).sum() + np.log((self.bets * self.room / worth).sum()))


def _gambler(score: Array, chance: Array, goal: float, most_lost: float) -> _Gambler:
    """Predictable bets on scores from 0 to 1, which use the samples before.

    Unlike those of `bet_on_calibrated` they do not depend on the candidate, so that the capital is convex in it.
    """
    gains, room = score - chance, 1 - chance
    n = len(gains)
    # The score so far, which starts at 0, stands for the candidate.
    so_far = np.cumsum(gains) / (1 + np.cumsum(room))
    before = np.concatenate([[0.0], so_far[:-1]])
    squares = np.cumsum((gains - before * room) ** 2)
    variance = (0.25 + squares) / np.arange(2, n + 2)
    variance_before = np.concatenate([[0.25], variance[:-1]])
    bets = np.minimum(np.sqrt(2 * goal / (n * variance_before)), MOST_BET / max(most_lost, 1e-9))
    return _Gambler(bets, gains, room)


def _smallest_mean(
    gamblers: Sequence[_Gambler], weights: Array, goal: float, highest: float
) -> float:
    """A lower bound of the smallest Σ w_c m_c with Σ w_c K_c(m_c) ≤ exp(goal); no bet is made above `highest`.

    For every price ν > 0 of capital, Σ w_c min_m (m + ν K_c(m)) − ν exp(goal) is such a bound (weak duality; Boyd and
    Vandenberghe 2004, Convex Optimization, ch. 5). It is exact for the right price. The price taken is the one at which
    every gambler alone reaches the goal, averaged; it is right where conditions are alike, and close to it elsewhere.
    """
    slopes = []
    for gambler in gamblers:
        reached = _falls_to(goal, gambler.log_capital, highest)
        slopes.append(gambler.log_slope(reached))
    log_price = -float(weights @ np.array(slopes))

    bound = -math.exp(min(log_price + goal, LARGEST_EXPONENT))
    for weight, gambler in zip(weights, gamblers, strict=True):
        m = _falls_to(-log_price, gambler.log_slope, highest)  # where m + ν K(m) is smallest
        cost = math.exp(min(log_price + gambler.log_capital(m), LARGEST_EXPONENT))
        bound += float(weight) * min(m + cost, highest)
    return bound


def _falls_to(goal: float, curve: Callable[[float], float], highest: float) -> float:
    """The m from which on a falling curve is below the goal, `highest` at most."""
    if curve(highest) >= goal:
        return highest
    above, below = highest - 1.0, highest
    while curve(above) < goal and above > -FARTHEST:
        above, below = 2 * above - 1, above
    for _ in range(60):
        middle = (above + below) / 2
        above, below = (middle, below) if curve(middle) >= goal else (above, middle)
    return above


def samples_needed(
    overall: Estimate, threshold: float, confidence: float, lower: bool
) -> int | None:
    """About how many samples like these put the bound at the threshold; None where none do.

    >>> from heatproof.statistics.estimates import of_means
    >>> samples_needed(of_means(np.ones(14), (0.0, 1.0), rate=True), 0.9, 0.95, True)
    29
    """
    seen = overall.sample_parts[np.isfinite(overall.sample_parts)]
    n, mean = len(seen), float(overall.value)
    if n < 2 or not (mean > threshold if lower else mean < threshold):
        return None

    # The references stay as they are, whichever samples they were.
    elsewhere = np.full_like(overall.reference_index, -1)

    def distance(m: int) -> float:
        parts = np.resize(seen, m) * (n / m)
        df = np.asarray(overall.df + m - n)
        found = replace(overall, sample_parts=parts, df=df, reference_index=elsewhere)
        return abs(mean - float(found.bound(confidence, lower)[0]))

    return _fewest_samples(distance, n, abs(mean - threshold))


def samples_needed_to_bet(
    bet: Callable[[int], Bound], seen: Bound, threshold: float, lower: bool
) -> int | None:
    """The same for a bet: `bet` tells the bound of so many samples, those that were seen again and again.

    >>> ones = np.ones((1, 14))
    >>> bet = lambda m: bet_on_mean(ones[:, np.arange(m) % 14], (0.0, 1.0), ["jpeg"], 0.95, True)
    >>> samples_needed_to_bet(bet, bet(14), 0.9, True)
    38
    """
    if seen.n < 1 or not (seen.mean > threshold if lower else seen.mean < threshold):
        return None
    room = abs(seen.mean - threshold)
    return _fewest_samples(lambda m: abs(seen.mean - bet(m).bound), seen.n, room)


def _fewest_samples(distance: Callable[[int], float], n: int, room: float) -> int:
    """How many samples, n or more, bring a bound as near to the mean as `room`; `distance` is NaN without a bound."""
    few, enough = n, n
    while enough < TRIED and not distance(enough) <= room:
        few, enough = enough, 2 * enough
    if enough >= TRIED:
        return min(MOST_SAMPLES, math.ceil(enough * (distance(enough) / room) ** 2 - 1e-9))
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if distance(middle) <= room else (middle, enough)
    return enough
