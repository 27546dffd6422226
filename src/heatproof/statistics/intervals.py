"""Intervals and one-sided bounds of means and rates, by standard methods.

A mean has Student's interval with Hall's correction for skewness. A rate (a measure that is 0 or 1 by definition) has
Clopper and Pearson's. Whether there is an interval depends on the number of samples alone, never on the scores.

These describe the samples that were seen: a kind of sample that was never drawn can be in no such interval, which
`unseen_share` puts into a number.

References: Student (1908), Biometrika 6, 1; Hall (1992), On the removal of skewness by transformation, J. R. Statist.
Soc. B 54, 221; Clopper and Pearson (1934), Biometrika 26, 404; Hanley and Lippman-Hand (1983), If nothing goes wrong,
is everything all right?, JAMA 249, 1743.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from heatproof.statistics.arrays import Array

FEWEST = 8
"""From fewer samples (or groups of them) a mean has no interval, and no method is called better than another."""
ERROR = 0.05
"""The probability that a test or a bound is allowed to be wrong, over all methods of an axis together."""
ALIKE = 1e-9
"""Scores that differ by less are equal, whatever rounding left of them."""
STUDENT, EXACT = "Student's t with Hall's correction", "Clopper-Pearson"


@dataclass(frozen=True)
class Errors:
    """What a bound needs to know of K numbers.

    `value` (K,); `n` (K,), of how many samples or groups; `parts` (K, M), what each sample or reference adds to the
    error, NaN where it has no say, with Σ parts² the variance of the value; `df` (K,), the degrees of freedom of that
    variance; `below` and `above` (K,), how far the ends of the scale are, NaN where it has none; `rate` (K,), whether
    it is the mean of a measure that is 0 or 1.
    """

    value: Array
    n: NDArray[np.int64]
    parts: Array
    df: Array
    below: Array
    above: Array
    rate: NDArray[np.bool_]

    def mirrored(self) -> Errors:
        """Return the same numbers with the other sign."""
        return replace(
            self, value=-self.value, parts=-self.parts, below=self.above, above=self.below
        )


def lower_bounds(seen: Errors, miss: float) -> Array:
    """Return one-sided lower confidence bounds of K means or rates, (K,), each wrong with probability `miss`.

    Means have Student's bound with a correction for skewness, rates (of 0 and 1) Clopper and Pearson's. No bound is below
    the end of the scale. NaN where there are too few samples.

    >>> parts = np.array([[-0.09] + [0.01] * 9])
    >>> ends = np.array([0.9]), np.array([0.1])
    >>> nine_of_ten = Errors(np.array([0.9]), np.array([10]), parts, np.array([9.0]), *ends, np.array([True]))
    >>> lower_bounds(nine_of_ten, 0.025).round(3).tolist()  # scipy.stats.binomtest(9, 10) has the same
    [0.555]
    """
    lowest = seen.value - seen.below
    bound = np.fmax(_skewed_student_bound(seen, miss), lowest)  # `lowest` is NaN without an end
    bound = np.where(seen.n >= FEWEST, bound, np.nan)
    return np.where(seen.rate & (seen.n > 0), _rate_bound(seen, miss), bound)


def intervals(seen: Errors, level: float) -> tuple[Array, Array]:
    """Return two-sided intervals (low, high), (K,) each."""
    miss = (1 - level) / 2
    return lower_bounds(seen, miss), -lower_bounds(seen.mirrored(), miss)


def _skewed_student_bound(seen: Errors, miss: float) -> Array:
    """Return lower confidence bounds of K means, (K,): Student's with Hall's correction for skewness (Hall 1992).

    The bound is value − error · q, with q the quantile of Student's t, corrected for the skewness of the mean. `seen.parts`
    (K, M) is what each sample adds to the error, so the variance is Σ parts² and the third moment Σ parts³.
    """
    count = seen.n
    parts = np.where(np.isfinite(seen.parts), seen.parts, 0.0)
    variance = np.einsum("ij,ij->i", parts, parts)
    third_moment = np.einsum("ij,ij,ij->i", parts, parts, parts)
    # Its correction for bias with n samples: n² / ((n − 1)(n − 2)), of which (n / (n − 1))^1.5 is in `parts` already.
    correction = np.sqrt(count * np.maximum(count - 1, 1.0)) / np.maximum(count - 2.0, 1.0)
    error = np.sqrt(variance)
    skew = np.divide(
        third_moment * correction,
        error**3,
        out=np.zeros_like(third_moment),
        where=error > 1e-15,
    )
    quantile = stats.t.ppf(1 - miss, np.maximum(seen.df, 1.0))
    return np.asarray(seen.value - error * skewed_quantile(quantile, skew))


def skewed_quantile(quantile: Array, skewness: Array) -> Array:
    """Return the quantile of Student's t of a mean with this skewness (that of single scores / √n), by Hall's correction.

    Hall's transformation of t with skewness g is t + g t²/3 + g² t³/27 + g/6. It is monotone and is inverted here in
    closed form; without skewness the quantile stays as it is.

    >>> skewed_quantile(np.array([2.0, 2.0, 2.0]), np.array([-0.2, 0.0, 0.2])).round(2).tolist()
    [2.4, 2.0, 1.75]
    """
    g = np.where(np.abs(skewness) < 1e-6, 1e-6, skewness)  # 0 / 0 without skewness
    return np.asarray(3 / g * (np.cbrt(1 + g * (quantile - g / 6)) - 1))


def _rate_bound(seen: Errors, miss: float) -> Array:
    """Return Clopper and Pearson's lower confidence bounds of K rates, (K,).

    Upper bounds are computed as lower bounds of the negative rates, which lie between −1 and 0: a negative rate plus 1 is
    the rate of failures. For a mean over several conditions the number of successes is n times that mean. Such a mean
    varies less than a binomial share, so the bound is conservative.
    """
    lowest = seen.value - seen.below
    is_mirrored = lowest < -0.5
    successes = np.where(is_mirrored, 1 + seen.value, seen.value) * seen.n
    with np.errstate(invalid="ignore"):
        bound = stats.beta.ppf(miss, successes, seen.n - successes + 1)
    bound = np.where(successes > ALIKE, bound, 0.0)
    return np.where(np.isfinite(seen.value), bound - is_mirrored, np.nan)


def unseen_share(n: int, level: float = 0.95) -> float:
    """Return the largest share of a kind of sample that n draws may well have missed altogether: the "rule of three", 3/n.

    >>> [round(unseen_share(n), 2) for n in (8, 14, 30, 100)]
    [0.31, 0.19, 0.1, 0.03]
    """
    return float(1 - (1 - level) ** (1 / n))


@lru_cache(maxsize=4096)
def rate_interval(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a rate, which covers it with at least this level; NaN without trials.

    >>> [round(end, 3) for end in rate_interval(8, 10)]
    [0.444, 0.975]
    """
    if n < 1:
        return math.nan, math.nan
    miss = (1 - level) / 2
    low, high = 0.0, 1.0
    if successes > 0:
        low = float(stats.beta.ppf(miss, successes, n - successes + 1))
    if successes < n:
        high = float(stats.beta.ppf(1 - miss, successes + 1, n - successes))
    return low, high
