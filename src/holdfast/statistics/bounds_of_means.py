"""One-sided confidence bounds of a mean over samples, by the statistics that the report uses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from holdfast.statistics.bootstrap import bootstrap_counts, calibrate, mean_of_finite, nested_mean, resampled_means
from holdfast.statistics.bounds import clopper_pearson_high, clopper_pearson_low
from holdfast.statistics.cubes import Array
from holdfast.statistics.means import wilson

RESAMPLES = 2000
"""As in the report; more where the bound lies so far out that fewer than `TAIL` draws would be beyond it."""
TAIL = 20
DRAW_ENTRIES = 50_000_000
"""How large the matrix of draws may become on account of `TAIL`."""
MOST_SAMPLES = 10**7
EXACT, BOOTSTRAP = "Clopper-Pearson", "BCa bootstrap"


@dataclass(frozen=True)
class Bound:
    """A mean with its one-sided bound from n samples, and how the bound was found."""

    mean: float
    bound: float
    n: int
    method: str


def bound_mean(
    scores: Array, chance: Array | None, names: list[str], confidence: float, lower: bool, rate: bool
) -> Bound:
    """The bound of the mean of `scores` (C, N) over samples and conditions, calibrated by `chance` where it is given.

    With `rate`, the scores lie between 0 and 1; if every one is 0 or 1 the bound is Clopper and Pearson's for one
    condition, and Wilson's for several, with samples as trials: the conditions of one sample are not independent. Other
    scores are resampled, whole samples at a time, and the bound is that of the BCa bootstrap: with t Student's quantile
    at n − 1 degrees of freedom times √(n / (n − 1)) in place of the normal one, which is too bold for few samples, it
    is the quantile Φ(z + (z ∓ t) / (1 − a (z ∓ t))) of the draws, where z = Φ⁻¹(share of draws below the mean) and a
    is a sixth of the skewness of the jackknife. n is that of the condition with the fewest scores.

    >>> seen = np.array([[1.0] * 14])
    >>> bound_mean(seen, None, ["jpeg"], 0.95, True, True)
    Bound(mean=1.0, bound=0.80..., n=14, method='Clopper-Pearson')
    """
    finite = np.isfinite(scores) if chance is None else np.isfinite(scores) & np.isfinite(chance)
    n = int(finite.sum(-1).min())
    means = mean_of_finite(scores)
    if chance is not None:
        means = calibrate(means, mean_of_finite(chance))
    mean = float(nested_mean(means, names))
    if n == 0 or not math.isfinite(mean):
        return Bound(mean, math.nan, n, "none")
    if rate and chance is None and bool(np.isin(scores[finite], (0.0, 1.0)).all()):
        exact = len(scores) == 1
        return Bound(mean, bound_share(mean, n, confidence, lower, exact), n, EXACT if exact else "Wilson")
    if n < 2:
        return Bound(mean, math.nan, n, "none")
    t = float(stats.t.ppf(confidence, n - 1)) * math.sqrt(n / (n - 1))
    wanted = min(math.ceil(TAIL / float(special.ndtr(-t))), DRAW_ENTRIES // scores.shape[1])
    counts = bootstrap_counts(scores.shape[1], max(RESAMPLES, wanted), 0)
    draws = resampled_means(scores, counts)
    if chance is not None:
        draws = calibrate(draws, resampled_means(chance, counts))
    overall = nested_mean(draws, names)
    overall = overall[np.isfinite(overall)]
    left_out = without_each(scores)
    if chance is not None:
        left_out = calibrate(left_out, without_each(chance))
    left_out = nested_mean(left_out[:, finite.any(0)].T, names)
    quantile = bca_quantile(overall, mean, left_out, -t if lower else t)
    return Bound(mean, float(np.quantile(overall, quantile)), n, BOOTSTRAP)


def bca_quantile(draws: Array, mean: float, left_out: Array, shift: float) -> float:
    """Which quantile of the bootstrap draws stands `shift` standard errors from the mean, for its bias and skewness.

    `left_out` has the mean without each sample. Without bias and skewness it is Φ(shift).

    >>> round(bca_quantile(np.array([0.4, 0.6]), 0.5, np.array([0.45, 0.5, 0.55]), -1.645), 3)
    0.05
    """
    below = float((draws < mean).mean() + (draws == mean).mean() / 2)
    edge = 1 / (len(draws) + 1)
    bias = float(special.ndtri(min(max(below, edge), 1 - edge)))
    apart = left_out.mean() - left_out
    spread = float((apart**2).sum())
    skew = float((apart**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    moved = bias + shift
    return float(special.ndtr(bias + moved / max(1 - skew * moved, 0.1)))


def without_each(values: Array) -> Array:
    """For every sample, the mean of the finite values (C, N) of the others: (C, N), the jackknife.

    >>> without_each(np.array([[1.0, 2.0, 6.0, np.nan]])).tolist()
    [[4.0, 3.5, 1.5, 3.0]]
    """
    finite = np.isfinite(values)
    n, mean = finite.sum(-1, keepdims=True), mean_of_finite(values)[:, None]
    return np.where(finite, mean + (mean - np.where(finite, values, 0.0)) / np.maximum(n - 1, 1), mean)


def bound_share(share: float, n: int, confidence: float, lower: bool, exact: bool) -> float:
    """The one-sided bound of a share seen in n trials: Clopper and Pearson's where `exact`, else Wilson's.

    >>> round(bound_share(0.0, 14, 0.95, False, True), 3), round(bound_share(0.8, 10, 0.975, True, False), 2)
    (0.193, 0.49)
    """
    hits = min(max(share, 0.0), 1.0) * n
    if exact:
        return float((clopper_pearson_low if lower else clopper_pearson_high)(hits, n, 1 - confidence))
    return wilson(hits, n, 2 * confidence - 1)[0 if lower else 1]


def samples_needed(seen: Bound, threshold: float, confidence: float, lower: bool) -> int | None:
    """About how many samples put the bound at the threshold if the mean stays; None where none do.

    A bootstrap bound comes nearer to the mean as 1 / √n; for rates the bound itself is asked.

    >>> samples_needed(Bound(0.7, 0.5, 16, "BCa bootstrap"), 0.6, 0.95, True)
    64
    >>> samples_needed(Bound(1.0, 0.8, 14, "Clopper-Pearson"), 0.9, 0.95, True)
    29
    """
    room = seen.mean - threshold if lower else threshold - seen.mean
    if not room > 0 or math.isnan(seen.bound):
        return None
    if seen.method == BOOTSTRAP:
        return min(MOST_SAMPLES, math.ceil(seen.n * ((seen.mean - seen.bound) / room) ** 2 - 1e-9))

    def falls_short(n: int) -> bool:
        return (bound_share(seen.mean, n, confidence, lower, seen.method == EXACT) < threshold) == lower

    few, enough = seen.n, seen.n
    while enough < MOST_SAMPLES and falls_short(enough):
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (middle, enough) if falls_short(middle) else (few, middle)
    return min(enough, MOST_SAMPLES)
