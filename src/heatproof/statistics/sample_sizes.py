"""How many samples a score needs for an interval of ± a given half-width, from those of a pilot.

This is Stein's two-stage procedure: a pilot estimates the spread of the scores, the number of samples follows from it,
and nothing is looked at in between, so nothing has to be corrected. The plain estimate of the spread would be too small
about half of the time, and far too small where scores are skewed, so three things are more cautious here:

* A mean takes an upper limit for its variance. (n − 1) s² / σ² is about χ² with ν degrees of freedom, where ν is n − 1
  for normal scores and 2n/(κ − 1) for scores with the kurtosis κ, which is less for heavy tails.
* A rate takes the value nearest to 1/2 in the interval of Clopper and Pearson, where rates scatter most.
* A kind of sample that is rare may be missing in the pilot. If it makes up the share q, and its scores lie at the far
  end of the scale at the distance d, it shifts the mean by q · d. The number of samples is such that they miss a kind
  that would shift the mean by more than the half-width with a probability of at most 5 %.

All of this is about the choice of the samples. References and random networks are taken as they are, since more
samples do not make their choice matter less.

References: Stein (1945), A two-sample test for a linear hypothesis whose power is independent of the variance, Ann. Math.
Statist. 16, 243; Kupper and Hafner (1989), How appropriate are popular sample size formulas?, Am. Stat. 43, 101; Shoemaker
(2003), Fixing the F test for equal variances, Am. Stat. 57, 105 (the degrees of freedom).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import stats

from heatproof.statistics.arrays import Array
from heatproof.statistics.bounds_of_means import fewest_samples
from heatproof.statistics.estimates import NO_REFERENCES, Estimate, of_means
from heatproof.statistics.intervals import FEWEST

FEWEST_PLANNED = 59
"""The fewest samples (or groups) of a pilot: so many hold a kind that makes up 5 % of the data with a probability of 95 %."""
PILOT = 64
"""The samples of a pilot."""
ASSURANCE = 0.8
"""The probability with which the interval should come out as narrow as requested."""
UNSEEN = 0.05
"""The probability with which a kind of sample that matters may be missed."""
NORMAL_KURTOSIS = 3.0


def of_samples_alone(scores: Estimate) -> Estimate:
    """Return scores whose error is due to the choice of samples alone: references and networks are taken as given."""
    without = np.zeros((*scores.value.shape, 0))
    return replace(
        scores, reference_parts=without, reference_index=NO_REFERENCES, network_parts=without
    )


def half_width(scores: Estimate, level: float = 0.95) -> Array:
    """Return half the width of the interval of each score (…), by the choice of samples alone.

    NaN where there are too few samples for an interval.
    """
    low, high = of_samples_alone(scores).interval(level)
    return np.asarray((high - low) / 2)


def samples_for_half_width(
    pilot: Estimate, width: float, is_rate: bool = False, level: float = 0.95
) -> int | None:
    """Return how many samples with a score make the interval of one score at most ± `width` wide.

    `is_rate` says that every value is 0 or 1; where samples are in groups, the groups are then counted as if they were
    single trials, which errs on the safe side. None where the pilot has fewer than `FEWEST` scores.

    >>> from heatproof.statistics.estimates import of_means
    >>> scores, no_failure = np.tile([0.4, 0.6], 32), np.ones(64)
    >>> samples_for_half_width(of_means(scores), 0.02), samples_for_half_width(of_means(scores), 0.05)
    (118, 64)
    >>> samples_for_half_width(of_means(no_failure, rate=True), 0.02, is_rate=True)
    288
    """
    pilot = of_samples_alone(pilot)
    parts = pilot.sample_parts[np.isfinite(pilot.sample_parts)]
    n = len(parts)
    if n < FEWEST:
        return None
    planned = _rate_as_it_may_be(pilot, level) if is_rate else pilot
    inflation = math.sqrt(_upper_limit_of_variance(parts, float(pilot.df)))

    def distance(m: int) -> float:
        repeated = replace(
            planned,
            sample_parts=np.resize(parts, m) * (inflation * n / m),
            df=np.asarray(pilot.df + m - n),
        )
        return float(half_width(repeated, level))

    needed = fewest_samples(distance, n, width)
    return needed if is_rate else max(needed, _to_see_rare_kinds(pilot, width))


def usual_samples_for_half_width(width: float, spread: float, pilot: int = PILOT) -> int:
    """Return how many samples scores between 0 and 1 take that are normal about 1/2 with a standard deviation.

    This is what a pilot of such scores plans, for saying before any pilot what a study may take.

    >>> usual_samples_for_half_width(0.02, 0.1), usual_samples_for_half_width(0.02, 0.25)
    (107, 671)
    """
    quantiles = stats.norm.ppf((np.arange(pilot) + 0.5) / pilot)
    scores = 0.5 + spread * quantiles / quantiles.std(ddof=1)
    needed = samples_for_half_width(of_means(np.clip(scores, 0, 1), (0.0, 1.0)), width)
    assert needed is not None  # a pilot has enough samples
    return needed


def _upper_limit_of_variance(parts: Array, df: float) -> float:
    """Return a factor by which the true variance of scores exceeds that of a pilot at most, with probability `ASSURANCE`.

    `parts` (n,) are proportional to the deviations of n scores from their mean. (n − 1) s² / σ² is about χ² with `df`
    degrees of freedom, or with 2n / (kurtosis − 1) if the scores have heavier tails than normal ones (Shoemaker 2003).
    """
    n = len(parts)
    deviations = parts - parts.mean()
    squares = float((deviations**2).sum())
    if squares <= 0:
        return 1.0
    kurtosis = n * float((deviations**4).sum()) / squares**2
    # Lighter tails than normal ones are no reason to trust a pilot more.
    freedom = min(df, 2 * n / (max(kurtosis, NORMAL_KURTOSIS) - 1))
    return freedom / float(stats.chi2.ppf(1 - ASSURANCE, freedom))


def _rate_as_it_may_be(pilot: Estimate, level: float) -> Estimate:
    """Return the pilot with the least favourable rate that it allows: that of its interval which is nearest to 1/2.

    Rates vary most between samples at 1/2, so this takes the most samples. The interval is Clopper and Pearson's.
    """
    exact = replace(pilot, is_rate=np.asarray(True))
    level = 2 * ASSURANCE - 1  # each end is wrong with probability 1 − ASSURANCE
    low, high = exact.interval(level)
    rate = np.clip(0.5, low, high)
    return replace(exact, value=rate, below=rate, above=1 - rate)


def _to_see_rare_kinds(pilot: Estimate, width: float) -> int:
    """Return how many samples include a rare kind of sample that would shift the mean score by `width`.

    It is included with probability 1 − `UNSEEN`. The shift is largest for scores at the far end of the scale, at the distance
    d from the mean: then a kind with the share q of the data shifts the mean by q · d, so q = width / d, and n samples
    miss it with probability (1 − q)^n.
    """
    distances = [float(end) for end in (pilot.below, pilot.above) if np.isfinite(end)]
    distance = max(distances, default=0.0)
    if distance <= width:
        return 1
    smallest_share = width / distance
    return math.ceil(math.log(UNSEEN) / math.log(1 - smallest_share))
