"""One-sided confidence bounds of a mean over samples: approximate, as in the report, or by betting, for any scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heatproof.statistics.arrays import Array
from heatproof.statistics.betting import betting_bound, bound_by_average_capital
from heatproof.statistics.estimates import Estimate, nested_weights

TRIED = 2**14
"""How many samples suffice is found by trying up to this number; beyond, a bound comes nearer as 1 / √n."""
MOST_SAMPLES = 10**7
BETTING, BETTING_FOR_REFERENCES, NONE = "betting", "betting, for these references", "none"


@dataclass(frozen=True)
class Bound:
    """A mean with its one-sided bound from n samples, and the name of the method."""

    mean: float
    bound: float
    n: int
    method: str


def no_bound(n: int) -> Bound:
    """Return what stands for a bound where none can be given."""
    return Bound(math.nan, math.nan, n, NONE)


def bound_mean(scores: Estimate, names: Sequence[str], confidence: float, lower: bool) -> Bound:
    """Return a one-sided confidence bound of the overall score, the mean over conditions, as the report computes it.

    `scores` (C,) are those of conditions with these `names`; entries with the same name are levels, which are averaged
    first. The bound is approximate (Student's, or Clopper–Pearson's for rates). Its `n` is the number of samples under
    the condition with the fewest.

    >>> from heatproof.statistics.estimates import of_means
    >>> bound_mean(of_means(np.ones((1, 14)), (0.0, 1.0), rate=True), ["jpeg"], 0.95, True)
    Bound(mean=1.0, bound=0.80..., n=14, method='Clopper-Pearson')
    """
    overall = scores.nested(names)
    bound, method = overall.bound(confidence, lower)
    n = int(np.isfinite(scores.sample_parts).sum(-1).min())
    name = str(method) if np.isfinite(bound) else NONE
    return Bound(float(overall.value), float(bound), n, name)


def bet_on_mean(
    values: Array, span: tuple[float, float], names: Sequence[str], confidence: float, lower: bool
) -> Bound:
    """Return a one-sided confidence bound of the overall score, the mean over conditions, for any distribution of scores.

    `values` (C, N) are the scores of N samples under conditions with these `names`, within `span`; NaN is missing. The bound
    is by betting (`betting_bound`). If every sample has a score under every condition, it is one bet on the overall scores
    of the samples. Otherwise each of the C conditions gets a bound that fails with probability (1 − confidence)/C, and
    the result is their mean.

    >>> bet_on_mean(np.ones((1, 14)), (0.0, 1.0), ["jpeg"], 0.95, True)
    Bound(mean=1.0, bound=0.79..., n=14, method='betting')
    """
    is_scored = np.isfinite(values)
    n = int(is_scored.sum(-1).min())
    if n < 1:
        return no_bound(n)
    weights = nested_weights(np.ones(len(values), dtype=bool), names)
    rows = [row[has_score] for row, has_score in zip(values, is_scored, strict=True)]
    if is_complete(values):
        rows, weights = [weights @ np.stack(rows)], np.ones(1)

    confidence_of_row = 1 - (1 - confidence) / len(rows)
    means, bounds = [], []
    for row in rows:
        unit = _to_unit_scale(row, span)
        no_chance = np.zeros_like(unit)
        bound = betting_bound(unit, no_chance, confidence_of_row, lower, largest_chance=0.0)
        bound = min(max(bound, 0.0), 1.0)
        means.append(row.mean())
        bounds.append(span[0] + (span[1] - span[0]) * bound)
    return Bound(float(weights @ np.array(means)), float(weights @ np.array(bounds)), n, BETTING)


def is_complete(values: Array) -> bool:
    """Return whether every sample that has a score (C, N) has one under every condition."""
    is_scored = np.isfinite(values)
    return bool((is_scored.all(0) | ~is_scored.any(0)).all())


def bet_on_calibrated(
    score: Array, chance: Array, span: tuple[float, float], confidence: float, lower: bool
) -> Bound:
    """Return a one-sided confidence bound of a calibrated score that holds for any distribution of scores.

    The calibrated score is (s − c) / (1 − c) for the means s of `score` and c of `chance` (N,), both within `span`. The
    bound is by betting (`betting_bound`), and it takes the reference maps behind the chance levels as given.

    >>> high, low = np.full(30, 0.9), np.full(30, 0.2)
    >>> bet_on_calibrated(high, low, (0.0, 1.0), 0.95, True)
    Bound(mean=0.87..., bound=0.72..., n=30, method='betting, for these references')
    """
    has_both = np.isfinite(score) & np.isfinite(chance)
    n = int(has_both.sum())
    unit_score = _to_unit_scale(score[has_both], span)
    unit_chance = _to_unit_scale(chance[has_both], span)
    perfect = (1 - span[0]) / (span[1] - span[0])  # a calibrated score of 1 is a raw score of 1
    if n < 1 or perfect - unit_chance.mean() <= 1e-9:
        return no_bound(n)
    mean = float((unit_score - unit_chance).mean() / (perfect - unit_chance).mean())
    bound = betting_bound(unit_score, unit_chance, confidence, lower, perfect)
    return Bound(mean, bound, n, BETTING_FOR_REFERENCES)


def bet_on_calibrated_mean(
    score: Array,
    chance: Array,
    span: tuple[float, float],
    names: Sequence[str],
    confidence: float,
    lower: bool,
) -> Bound:
    """Return a one-sided confidence bound of the mean calibrated score over conditions, for any distribution of scores.

    `score` and `chance` (C, N) are those of N samples under conditions with these `names`, within `span`; NaN is missing.
    Entries with the same name are levels, which are averaged first. For a single condition it is `bet_on_calibrated`, and
    like it, it takes the reference maps behind the chance levels as given. A lower bound is by `bound_by_average_capital`.
    An upper bound is the mean of one bound per condition, each of which fails with probability (1 − confidence)/C.

    >>> high, low = np.full((2, 30), 0.9), np.full((2, 30), 0.2)
    >>> bet_on_calibrated_mean(high, low, (0.0, 1.0), ["noise", "jpeg"], 0.95, True)
    Bound(mean=0.87..., bound=0.72..., n=30, method='betting, for these references')
    """
    if len(score) == 1:
        return bet_on_calibrated(score[0], chance[0], span, confidence, lower)

    scores, chances = [], []
    for s, c in zip(score, chance, strict=True):
        has_both = np.isfinite(s) & np.isfinite(c)
        scores.append(_to_unit_scale(s[has_both], span))
        chances.append(_to_unit_scale(c[has_both], span))
    n = min(len(s) for s in scores)
    perfect = (1 - span[0]) / (span[1] - span[0])
    if n < 1 or any(perfect - c.mean() <= 1e-9 for c in chances):
        return no_bound(n)

    weights = nested_weights(np.ones(len(score), dtype=bool), names)
    pairs = list(zip(scores, chances, strict=True))
    means = [(s - c).mean() / (perfect - c).mean() for s, c in pairs]
    if lower and perfect == 1:  # `bound_by_average_capital` takes 1 to be the largest score
        bound = bound_by_average_capital(scores, chances, weights, confidence)
    else:
        confidence_of_row = 1 - (1 - confidence) / len(scores)
        bounds = [betting_bound(s, c, confidence_of_row, lower, perfect) for s, c in pairs]
        bound = float(weights @ np.array(bounds))
    return Bound(float(weights @ np.array(means)), bound, n, BETTING_FOR_REFERENCES)


def _to_unit_scale(values: Array, span: tuple[float, float]) -> Array:
    """Return values within `span` on a scale from 0 to 1."""
    return np.asarray((values - span[0]) / (span[1] - span[0]))


# ---- how many samples would do ----------------------------------------------------------------------------------------


def samples_needed(
    overall: Estimate, threshold: float, confidence: float, lower: bool
) -> int | None:
    """Return about how many samples like these would be enough for the confidence bound of a mean to pass a threshold.

    The bound is the one-sided one of the report. It is computed for the same samples repeated. None if the mean itself does
    not pass the threshold, so that no number would do, or if there are fewer than two samples.

    >>> from heatproof.statistics.estimates import of_means
    >>> samples_needed(of_means(np.ones(14), (0.0, 1.0), rate=True), 0.9, 0.95, True)
    29
    """
    parts = overall.sample_parts[np.isfinite(overall.sample_parts)]
    n, mean = len(parts), float(overall.value)
    if n < 2 or not (mean > threshold if lower else mean < threshold):
        return None

    # The references stay as they are, whichever samples they were.
    not_among_samples = np.full_like(overall.reference_index, -1)

    def distance(m: int) -> float:
        repeated = replace(
            overall,
            sample_parts=np.resize(parts, m) * (n / m),
            df=np.asarray(overall.df + m - n),
            reference_index=not_among_samples,
        )
        return abs(mean - float(repeated.bound(confidence, lower)[0]))

    return fewest_samples(distance, n, abs(mean - threshold))


def samples_needed_to_bet(
    bet: Callable[[int], Bound], seen: Bound, threshold: float, lower: bool
) -> int | None:
    """Return about how many samples like these would be enough for a bound by betting to pass a threshold.

    `bet(m)` returns the bound of m samples, the observed ones repeated, and `seen` is that of the observed ones. None if
    their mean does not pass the threshold, so that no number would do.

    >>> ones = np.ones((1, 14))
    >>> bet = lambda m: bet_on_mean(ones[:, np.arange(m) % 14], (0.0, 1.0), ["jpeg"], 0.95, True)
    >>> samples_needed_to_bet(bet, bet(14), 0.9, True)
    32
    """
    if seen.n < 1 or not (seen.mean > threshold if lower else seen.mean < threshold):
        return None
    return fewest_samples(
        lambda m: abs(seen.mean - bet(m).bound), seen.n, abs(seen.mean - threshold)
    )


def fewest_samples(distance: Callable[[int], float], n: int, largest: float) -> int:
    """Return the smallest number of samples, n or more, for which a bound is at most `largest` away from the mean.

    `distance(m)` is the distance for m samples, NaN without a bound. Numbers are doubled and then bisected; beyond `TRIED`
    the distance is taken to fall as 1 / √m.
    """
    too_few, enough = n, n
    while enough < TRIED and not distance(enough) <= largest:
        too_few, enough = enough, 2 * enough
    if enough >= TRIED:
        return min(MOST_SAMPLES, math.ceil(enough * (distance(enough) / largest) ** 2 - 1e-9))
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if distance(middle) <= largest:
            enough = middle
        else:
            too_few = middle
    return enough
