"""Which differences of paired scores are not due to chance: sign-flip tests of all pairs at once, with intervals.

If it does not matter which of two methods a score came from, the difference d_i of a sample is as likely as −d_i. So the
signs of the samples are flipped, in every way or 10,000 times at random, and p is the share of flips (the one that was
seen among them) whose statistic |Σ ε_i d_i| / √Σ d_i² is as large. This is exact for every n: n samples cannot give a p
below 2^(1 − n). For two methods and scores that are 0 or 1 it is McNemar's exact test.

All pairs are flipped together, and a pair has to beat the largest statistic of each flip (single-step max-T), which
corrects for the number of pairs. The interval of a pair holds every δ that the same critical value does not reject, so
all intervals hold at once, and an interval excludes 0 just where the corrected p is at most 1 − level.

References: Fisher (1935), The Design of Experiments, §21; Westfall and Young (1993), Resampling-Based Multiple Testing;
Phipson and Smyth (2010), Permutation p-values should never be zero, Stat. Appl. Genet. Mol. Biol. 9, 39; Winkler et al.
(2014), Permutation inference for the general linear model, NeuroImage 92, 381.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from heatproof.statistics.arrays import Array
from heatproof.statistics.intervals import FEWEST

FLIPS = 10_000
"""All flips are tried where there are no more than this (up to 14 samples), else so many at random."""
AT_ONCE = 500
"""How many flips are drawn at once."""
STATISTICS_AT_ONCE = 2**17
"""How many statistics, of pairs and flips, are held in memory at once: 1 MB, which a processor's cache holds."""
ROUNDING = 1e-9
"""Statistics that differ by less are ties."""


@dataclass(frozen=True)
class PairedTests:
    """Tests of K mean differences against 0: corrected p, simultaneous intervals, and what is significant, (K,) each.

    The intervals of pairs with fewer than `FEWEST` samples are NaN, and none of these pairs is significant.
    """

    p: Array
    low: Array
    high: Array
    significant: NDArray[np.bool_]


def simultaneous_tests(
    totals: Array,
    shares: Array | None = None,
    level: float = 0.95,
    seed: int = 0,
    pairs: NDArray[np.int64] | None = None,
) -> PairedTests:
    """Return tests of the mean differences of K pairs of methods against 0, all at once.

    `totals` (K, N) are the differences of N samples, weighted, and `shares` (K, N) their weights, so that the mean
    difference of a pair is Σ totals / Σ shares. Without weights `totals` are the differences themselves. A sample that
    lacks one of the two scores has the weight 0.

    With `pairs` (K, 2), `totals` and `shares` (E, N) are those of E methods on the same samples, and the pairs of them
    are tested. The result is the same; it is found sooner, because E methods are flipped in place of K pairs.

    >>> better_each_time = np.array([[0.1, 0.2, 0.1, 0.3, 0.2]])
    >>> simultaneous_tests(better_each_time).p.tolist()
    [0.0625]
    """
    shares = np.ones_like(totals) if shares is None else shares
    differences = totals
    if pairs is not None:
        first, second = pairs.T
        differences, shares = totals[first] - totals[second], shares[first]
        if len(totals) >= len(pairs):  # nothing is gained from flipping methods
            totals, pairs = differences, None
    norm = _norm_of_rows(differences)
    statistic = np.abs(differences.sum(1)) / norm
    largest = np.sort(_largest_statistics(totals, norm, seed, pairs))
    n_flips = len(largest)

    flips_as_large = n_flips - np.searchsorted(largest, statistic - ROUNDING, side="left")
    p = flips_as_large / n_flips

    # A statistic is significant if p ≤ 1 − level, so if at most `allowed_flips` flips are as large: if it exceeds the
    # largest flip that comes after these. ROUNDING makes ties count as equal, as it does in p.
    allowed_flips = int(np.floor((1 - level) * n_flips + ROUNDING))
    critical = largest[n_flips - 1 - allowed_flips] + ROUNDING
    low, high = _not_rejected(differences, shares, critical)
    enough = (shares > 0).sum(1) >= FEWEST
    significant = (statistic > critical) & enough
    return PairedTests(
        p, np.where(enough, low, np.nan), np.where(enough, high, np.nan), significant
    )


def _largest_statistics(
    totals: Array, norm: Array, seed: int, pairs: NDArray[np.int64] | None
) -> Array:
    """Return the largest test statistic of all K pairs of methods under each sign flip, (flips,): max-T.

    A flip changes the signs of some samples' differences, and the statistic of a pair is |Σ differences| / norm. `totals`
    (K, N) are the differences of N samples, or with `pairs` (K, 2) the scores (E, N) of E methods, of which the pairs are
    to be subtracted. `norm` (K,) are the Euclidean norms of the differences.
    """
    flips_at_once = max(1, STATISTICS_AT_ONCE // max(len(norm), 1))
    largest = []
    for signs in sign_flips(totals.shape[1], seed):
        sums = totals @ signs.T  # (K, b), or (E, b) with pairs
        for start in range(0, len(signs), flips_at_once):
            some_sums = sums[:, start : start + flips_at_once]
            if pairs is not None:
                some_sums = some_sums[pairs[:, 0]] - some_sums[pairs[:, 1]]
            statistics = np.abs(some_sums)
            statistics /= norm[:, None]
            largest.append(statistics.max(0))
    return np.concatenate(largest)


def sign_flips(n: int, seed: int = 0) -> Iterator[Array]:
    """Yield rows of signs (b, n), a block at a time; the first row of all is what was seen, without a flip.

    A flip and its opposite have the same statistic, so the first sample is never flipped.

    >>> np.concatenate(list(sign_flips(3))).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]
    """
    number_of_flips = 2 ** (n - 1)
    if number_of_flips <= FLIPS:
        for start in range(0, number_of_flips, AT_ONCE):
            numbers = np.arange(start, min(start + AT_ONCE, number_of_flips))[:, None]
            bits = (numbers >> np.arange(n - 1, -1, -1)) & 1
            yield np.where(bits, -1.0, 1.0)
        return
    signs = _random_signs(n, seed)
    for start in range(0, FLIPS, AT_ONCE):
        yield signs[start : start + AT_ONCE].astype(np.float64)


@lru_cache(maxsize=1)
def _random_signs(n: int, seed: int) -> NDArray[np.int8]:
    """Return random sign flips of n samples: `FLIPS` rows of +1 and −1, the first without a flip, (FLIPS, n).

    They are cached for the next test, because a report makes dozens of tests of the same samples, and drawing signs takes
    longer than using them. As bytes they take 10 kB per sample.
    """
    generator = np.random.default_rng(seed)
    signs = np.empty((FLIPS, n), np.int8)
    for start in range(0, FLIPS, AT_ONCE):
        signs[start : start + AT_ONCE] = np.where(generator.integers(0, 2, (AT_ONCE, n)), -1, 1)
    signs[0] = 1
    return signs


def _norm_of_rows(rows: Array) -> Array:
    """Return the Euclidean norm of each row, (K,); infinite where all entries are 0, so that statistics become 0."""
    norm = np.sqrt((rows**2).sum(1))
    return np.where(norm > ROUNDING, norm, np.inf)


def _not_rejected(totals: Array, shares: Array, critical: float) -> tuple[Array, Array]:
    """Return the confidence interval of a mean difference that belongs to a sign-flip test: (low, high), (K,) each.

    It has all δ that the test does not reject: |Σ (totals − δ shares)| ≤ critical · ‖totals − δ shares‖. `totals` (K, N) are
    the weighted differences of N samples for K pairs of methods and `shares` (K, N) the weights. Squared, the condition is
    a quadratic inequality in δ.

    With few samples, or weights that differ much, the set may be unbounded: all numbers, or, if 0 is rejected, all but an
    interval around 0. Then the half-line on the side of the mean is returned.
    """
    # Squared, the condition is leading · δ² − 2 centre · δ + constant ≤ 0.
    total, share = totals.sum(1), shares.sum(1)
    squares = (totals**2).sum(1)
    product = (totals * shares).sum(1)
    square_shares = (shares**2).sum(1)
    leading = share**2 - critical**2 * square_shares
    centre = total * share - critical**2 * product
    constant = total**2 - critical**2 * squares
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(centre**2 - leading * constant, 0.0))
        low, high = (centre - root) / leading, (centre + root) / leading
        first_above_zero, first_below_zero = constant / (centre + root), constant / (centre - root)
    is_bounded = leading > ROUNDING * share**2
    is_zero_rejected = constant > 0
    low_if_unbounded = np.where(is_zero_rejected & (total > 0), first_above_zero, -np.inf)
    high_if_unbounded = np.where(is_zero_rejected & (total < 0), first_below_zero, np.inf)
    low = np.where(is_bounded, low, low_if_unbounded)
    high = np.where(is_bounded, high, high_if_unbounded)
    return low, high
