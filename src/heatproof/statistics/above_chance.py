"""Whether scores are above chance: one-sided bounds that keep their level for skewed scores, and the exact hit test.

Sign flips and Student's bound, even with a correction for skewness, take a few samples that all are a little above
chance for proof. They are wrong where rare samples are far below chance. A bet on scores between two known ends holds
for every distribution. Its price is power (`smallest_excess`), so it decides only where samples are few.

References: Waudby-Smith and Ramdas (2024), J. R. Statist. Soc. B 86, 1; Hall (1992), J. R. Statist. Soc. B 54, 221; for
hits with unequal chances Wang (1993), On the number of successes in independent trials, Stat. Sinica 3, 295.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heatproof import rand
from heatproof.evaluation import Span
from heatproof.statistics.arrays import Array
from heatproof.statistics.bounds_of_means import (
    MOST_BET,
    Bound,
    bet_on_calibrated,
    bet_on_calibrated_mean,
    bound_mean,
    is_complete,
)
from heatproof.statistics.estimates import calibrated, nested_weights, of_means

HIGHEST = 0.25
"""Where samples lack conditions, a lower bound is looked for up to here, for only whether it is above 0 matters."""


FEW_SAMPLES_ABOVE_CHANCE = 14
"""From so many samples the one-sided bound of the interval decides: it makes at most 10 % false claims for skewed scores
and 5 % otherwise (rare failures aside, see `docs/coverage.md`). With fewer it makes up to 17 %, and only a bet decides."""


def above_chance(
    score: Array,
    chance: Array,
    span: Span | None,
    names: Sequence[str],
    samples: Sequence[str],
    confidence: float = 0.95,
) -> Bound:
    """Return the lower bound of a calibrated score; it is above chance if the bound is above 0.

    `score` and `chance` (C, N) are those of the samples under conditions with these `names`, NaN where missing; they
    are taken as they are, so the bound holds for the references that were drawn. To claim something of M methods at
    once, ask for a confidence of 1 − 0.05/M.

    With both ends of the scale the bound is a bet. If every sample has every condition, it is on the overall score of
    each sample against its overall chance: (s − c) / (1 − c) of the means over all conditions, which is above 0 exactly
    if the mean score is above the mean chance. Otherwise it is `bet_on_calibrated_mean`, up to `HIGHEST`. A gambler may
    bet more the less a sample can fall below its chance; it is taken here that no sample's chance is more than a third
    above the largest that was seen. Without both ends the bound is the one-sided bound of reports, Hall's.

    >>> high, low = np.full((2, 40), 0.8), np.full((2, 40), 0.4)
    >>> above_chance(high, low, (0.0, 1.0), ["noise", "jpeg"], [str(i) for i in range(40)]).bound > 0
    True
    """
    lowest, highest = span or (None, None)
    both = np.isfinite(score) & np.isfinite(chance)
    scored = both.any(-1)
    score, chance = (np.where(both, side, np.nan)[scored] for side in (score, chance))
    names = [names[condition] for condition in np.flatnonzero(scored).tolist()]
    if not names:
        return Bound(math.nan, math.nan, 0, "none")
    if lowest is None or highest is None:
        together = calibrated(of_means(score), of_means(chance))
        return bound_mean(together, names, confidence, lower=True)

    ends = (float(lowest), float(highest))
    order = order_of_bets(samples)
    score, chance = score[:, order], chance[:, order]
    weights = nested_weights(np.ones(len(score), dtype=bool), names)
    if is_complete(score):
        score, chance = weights @ score, weights @ chance
        most = float(np.nanmax(chance))
        return bet_on_calibrated(score, chance, ends, confidence, True, most)
    most = float(np.nanmax(chance))
    return bet_on_calibrated_mean(score, chance, ends, names, confidence, True, most, HIGHEST)


def order_of_bets(samples: Sequence[str]) -> NDArray[np.int64]:
    """An order of the samples that depends on their names alone, for a bet depends on the order of its samples.

    >>> names = np.array(["cat", "dog", "fox"])
    >>> names[order_of_bets(names)].tolist() == names[::-1][order_of_bets(names[::-1])].tolist()
    True
    """
    return np.asarray(rand.keys(0, list(samples), "order of bets").argsort().numpy())


def smallest_excess(n: int, chance: float, confidence: float = 0.95) -> float:
    """The least excess of score over chance, on a scale from 0 to 1, that n samples can show by betting.

    All n samples would have to have it, with the same chance; it takes more where they differ. It is
    chance · (exp(g/n) − 1) / 0.75 with g = −log(1 − confidence), for no bet risks more than three quarters of the
    capital. If score and chance add up to more than 1, so few samples can show nothing.

    >>> [round(smallest_excess(n, 0.4), 2) for n in (8, 14, 30, 100)]
    [0.24, 0.13, 0.06, 0.02]
    >>> round(smallest_excess(14, 0.4, 1 - 0.05 / 6), 2)  # six methods
    0.22
    """
    return chance * math.expm1(-math.log(1 - confidence) / n) / MOST_BET


def poisson_binomial_p(hits: Array, chances: Array) -> float:
    """The probability of so many hits or more if sample i is hit by luck with probability `chances[i]`.

    Exact, by the distribution of the number of hits (Poisson's binomial), one sample after another. `hits` (N,) are 0
    or 1; the share of a peak that is split between several places counts as no hit, which errs on the safe side.
    Samples without a hit or a chance (NaN) are left out; NaN if none is left.

    >>> poisson_binomial_p(np.array([1.0, 1.0, 0.0]), np.array([0.5, 0.5, 0.5]))
    0.5
    """
    known = np.isfinite(hits) & np.isfinite(chances)
    if not known.any():
        return math.nan
    number_of_hits = int((hits[known] >= 1 - 1e-9).sum())
    probabilities = numbers_of_hits(np.clip(chances[known], 0.0, 1.0))
    return min(float(probabilities[number_of_hits:].sum()), 1.0)


def numbers_of_hits(chances: Array) -> Array:
    """The probabilities of 0, 1, … N hits in N independent trials with these chances.

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
