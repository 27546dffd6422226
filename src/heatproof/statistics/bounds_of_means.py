"""One-sided confidence bounds of a mean over samples, by the statistics that the report uses, or with a guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from heatproof.statistics.bounds import mean_interval
from heatproof.statistics.cubes import Array
from heatproof.statistics.estimates import Estimate, nested_weights

TRIED = 2**14
"""Up to so many samples the bound itself is asked how many would do; beyond, it comes nearer as 1 / √n."""
MOST_SAMPLES = 10**7
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
    n = int(np.isfinite(scores.parts).sum(-1).min())
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
    score: Array, chance: Array, span: tuple[float, float], confidence: float, lower: bool
) -> Bound:
    """The bound of the calibrated score (s − c) / (1 − c) of scores and chances (N,), for these references.

    A gambler bets against a candidate m on x = s − c − m (1 − c), whose mean is 0 if m is the calibrated score: the
    capital Π (1 + λ_i x_i) reaches 1 / (1 − confidence) with probability 1 − confidence at most (Ville). The bound is
    the m farthest from the observed score against which it does. The bets λ_i are predictable: they depend on the
    samples before (Waudby-Smith and Ramdas 2024, J. R. Statist. Soc. B 86, 1).

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
    corners = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]

    def beats(m: float) -> bool:
        x = sign * (s - c - m * room)
        seen = np.arange(1, n + 1)
        variance = (0.25 + np.cumsum(x**2)) / (seen + 1)
        before = np.concatenate([[0.25], variance[:-1]])
        # x is linear in s and c, so the most that can be lost is at the ends of their scale.
        most_lost = max(-sign * (s_end - c_end - m * (one - c_end)) for s_end, c_end in corners)
        bets = np.minimum(np.sqrt(2 * goal / (n * before)), 0.75 / max(most_lost, 1e-9))
        return bool(np.cumsum(np.log1p(bets * x)).max() >= goal)

    beaten, not_beaten = mean - sign * (1 + abs(mean)), mean
    if not beats(beaten):
        return Bound(mean, -sign * math.inf, n, BETTING_FOR_REFERENCES)
    for _ in range(50):
        middle = (beaten + not_beaten) / 2
        beaten, not_beaten = (middle, not_beaten) if beats(middle) else (beaten, middle)
    return Bound(mean, beaten, n, BETTING_FOR_REFERENCES)


def samples_needed(
    overall: Estimate, threshold: float, confidence: float, lower: bool
) -> int | None:
    """About how many samples like these put the bound at the threshold; None where none do.

    >>> from heatproof.statistics.estimates import of_means
    >>> samples_needed(of_means(np.ones(14), (0.0, 1.0), rate=True), 0.9, 0.95, True)
    29
    """
    seen = overall.parts[np.isfinite(overall.parts)]
    n, mean = len(seen), float(overall.value)
    if n < 2 or not (mean > threshold if lower else mean < threshold):
        return None

    # The references stay as they are, whichever samples they were.
    elsewhere = np.full_like(overall.places, -1)

    def distance(m: int) -> float:
        parts = np.resize(seen, m) * (n / m)
        df = np.asarray(overall.df + m - n)
        found = replace(overall, parts=parts, df=df, places=elsewhere)
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
