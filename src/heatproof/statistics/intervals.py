"""The one rule behind every interval, test and one-sided bound of a mean, for few samples, skew and rare failures.

A number is given by what each sample adds to its error (see `estimates`): with parts ψ_i, its standard error is
√Σψ². The bound on a side is Student's, corrected for skewness by Hall's cubic, where the spread that was seen is
large enough for what was not seen to be small beside it. Elsewhere (scores that are nearly alike, that have a long tail
on this side, or that are 0 or 1) one more sample is thought of, which nobody saw, between the mean and the end of the
scale, and the bound is the quantile of the mean with Dirichlet weights (1, …, 1) on the samples and that one. For
shares that is Clopper and Pearson's bound; with the unseen sample at the very end it is Gaffke's. On a scale without
ends the unseen one lies beyond the lowest seen, the farther the fewer there are, and the wider of both is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from heatproof.statistics.cubes import Array

SPREAD = 0.25
"""Where n standard errors are less than this share of the way to the end of the scale, an unseen sample is added."""
LONG_TAIL = 0.25
"""The same where the skewness of the samples, divided by √n, points to this side by more."""
UNSEEN, UNSEEN_PAIRED = 0.75, 0.5
"""How far from the mean towards the end of the scale the unseen sample lies, and that of a difference of two scores, of
which one would have to fail and the other not; that of shares is at the end itself."""
BEYOND, BEYOND_PAIRED = 1.0, 0.5
"""Where the scale has no end the unseen sample is so many times 10/n − 0.5 ranges beyond the lowest seen, …"""
EITHER_WAY, EITHER_WAY_PAIRED = 0.15, 0.2
"""… and is thought of unless the skewness over √n is above 2.5/n, about its standard error, less this."""
TESTED_WITH_UNSEEN = 100
"""Up to so many samples a test always counts the unseen one: far out in the tails skewness is hard to see."""
WIDEST = 0.5
"""An interval wider than this share of the scale says next to nothing and is not given."""
ALIKE = 1e-9
"""Scores that differ by less are equal, whatever rounding left of them: no test tells them apart."""
STUDENT, ADDED, EXACT = "Student's t", "one unseen sample", "Clopper-Pearson"
ENTRIES = 2**22
"""How many numbers are worked on at once."""


@dataclass(frozen=True)
class Errors:
    """What a bound needs to know of K numbers.

    `value` (K,); `parts` (K, M), what each sample adds to its error, NaN where it has no say; `df` (K,) degrees of
    freedom; `below` and `above` (K,), how far the ends of the scale are, NaN where it has none; `exact` (K,) whether
    every score lies at one end or the other; `drawn` (K,) whether references are among the samples. `paired` says that
    they are differences of two scores.
    """

    value: Array
    parts: Array
    df: Array
    below: Array
    above: Array
    exact: NDArray[np.bool_]
    drawn: NDArray[np.bool_]
    paired: bool = False

    def __getitem__(self, rows: NDArray[np.int64]) -> Errors:
        ends = self.df[rows], self.below[rows], self.above[rows]
        return Errors(
            self.value[rows],
            self.parts[rows],
            *ends,
            self.exact[rows],
            self.drawn[rows],
            self.paired,
        )

    def mirrored(self) -> Errors:
        """The same numbers with the other sign."""
        return replace(
            self, value=-self.value, parts=-self.parts, below=self.above, above=self.below
        )


def lower_bounds(seen: Errors, miss: float) -> tuple[Array, Array]:
    """One-sided lower bounds (K,) that are missed with probability `miss`, and which of the rules gave each, (K,).

    >>> parts = np.array([[-0.09] + [0.01] * 9]) * np.sqrt(10 / 9)
    >>> ends = np.array([0.9]), np.array([0.1])
    >>> shares = Errors(np.array([0.9]), parts, np.array([9.0]), *ends, np.array([True]), np.array([False]))
    >>> bound, rule = lower_bounds(shares, 0.025)
    >>> round(float(bound[0]), 3), str(rule[0])  # 9 of 10: scipy.stats.binomtest says 0.555
    (0.554, 'Clopper-Pearson')
    """
    error, skew, n = _moments(seen.parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        quantile = stats.t.ppf(1 - miss, seen.df)
        bend = np.where(np.abs(skew) < 1e-6, 1e-6, skew) / 3
        bound = seen.value - error * (np.cbrt(1 + 3 * bend * (quantile - bend / 2)) - 1) / bend
    added = _needs_one_more(seen, error, skew, n)
    rows = np.flatnonzero(added)
    for start in range(0, len(rows), step := max(1, ENTRIES // max(seen.parts.shape[1], 1))):
        some = rows[start : start + step]
        found = seen.value[some] + _quantiles(*_with_unseen(seen[some], n[some]), miss)
        plain = (
            seen.value[some] - error[some] * quantile[some]
        )  # of a long tail Hall's cubic makes too much
        least = np.fmin(np.where(skew[some] < -LONG_TAIL, plain, bound[some]), found)
        bound[some] = np.where(np.isnan(seen.below[some]) & ~seen.drawn[some], least, found)
    rule = np.where(added, np.where(seen.exact, EXACT, ADDED), STUDENT)
    bound = np.fmax(
        bound, seen.value - seen.below
    )  # not beyond the end of the scale, where it has one
    return np.where((n > 1) | (seen.exact & (n > 0)), bound, np.nan), rule


def intervals(seen: Errors, level: float, widest: float = WIDEST) -> tuple[Array, Array]:
    """Two-sided intervals (low, high), (K,) each; NaN where one would be wider than `widest` of the scale."""
    miss = (1 - level) / 2
    low, high = lower_bounds(seen, miss)[0], -lower_bounds(seen.mirrored(), miss)[0]
    with np.errstate(invalid="ignore"):
        wide = high - low > widest * (seen.below + seen.above) + 1e-9
    return np.where(wide, np.nan, low), np.where(wide, np.nan, high)


def p_values(seen: Errors) -> Array:
    """Two-sided p-values (K,) that the numbers are 0: 1 − p is the level at which the interval just reaches 0."""
    one_sided = [_p_of_positive(side) for side in (seen, seen.mirrored())]
    p = np.minimum(1.0, 2 * np.minimum(*one_sided))
    return np.where(np.isfinite(p) & (np.abs(seen.value) < ALIKE), 1.0, p)


def _p_of_positive(seen: Errors) -> Array:
    """How probable so large a number would be if it were not above 0."""
    error, skew, n = _moments(seen.parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = seen.value / error
        bent = t + skew / 3 * t**2 + skew**2 / 27 * t**3 + skew / 6
        plain = np.where(
            n <= TESTED_WITH_UNSEEN, t, np.inf
        )  # few samples say little of the skewness that helps
        p = np.asarray(stats.t.sf(np.minimum(bent, plain), seen.df))
    p = np.where((error == 0) & (seen.value <= 0), 1.0, p)
    added = _needs_one_more(seen, error, skew, n) & (seen.value > 0)
    doubted = (
        (n <= TESTED_WITH_UNSEEN) & (p < 0.1) & (seen.below > 0)
    )  # where the answer may depend on it
    rows = np.flatnonzero(added | doubted)
    for start in range(0, len(rows), step := max(1, ENTRIES // max(seen.parts.shape[1], 1))):
        some = rows[start : start + step]
        values, there, unseen = _with_unseen(seen[some], n[some])
        whole = np.concatenate([values, unseen[:, None]], 1) + seen.value[some, None]
        with_unseen = _below_zero(
            np.where(np.pad(there, ((0, 0), (0, 1)), constant_values=True), whole, 0.0)
        )
        alone = added[some] & np.isfinite(
            seen.below[some]
        )  # without an end of the scale nothing unseen is far away
        p[some] = np.where(alone, with_unseen, np.maximum(p[some], with_unseen))
    return np.where(n < 2, np.nan, p)


def _moments(parts: Array) -> tuple[Array, Array, Array]:
    """Standard error, skewness over √n, and how many samples have a say, (K,) each."""
    there = np.isfinite(parts)
    known = np.where(there, parts, 0.0)
    variance = np.einsum("ij,ij->i", known, known)
    cubes = np.einsum("ij,ij,ij->i", known, known, known)
    skew = np.divide(cubes, variance**1.5, out=np.zeros_like(cubes), where=variance > 1e-30)
    return np.sqrt(variance), skew, there.sum(1).astype(np.float64)


def _needs_one_more(seen: Errors, error: Array, skew: Array, n: Array) -> NDArray[np.bool_]:
    """Where what was not seen below may be more than what was seen suggests."""
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = (n * error < SPREAD * seen.below) & np.isfinite(seen.above)
        endless = (
            np.isnan(seen.below)
            & ~seen.drawn
            & (skew < 2.5 / n - (EITHER_WAY_PAIRED if seen.paired else EITHER_WAY))
        )
        return np.asarray(
            (seen.exact | alike | endless | (skew < -LONG_TAIL)) & (n > 0) & ~(seen.below <= 0)
        )


def _with_unseen(seen: Errors, n: Array) -> tuple[Array, NDArray[np.bool_], Array]:
    """Samples as deviations from the value, which of them there are, and the unseen one below."""
    there = np.isfinite(seen.parts)
    values = (
        np.where(there, seen.parts, 0.0) * np.sqrt(n * np.maximum(n - 1, 1))[:, None]
    )  # parts have n / (n − 1)
    farthest = np.where(seen.exact, 1.0, UNSEEN_PAIRED if seen.paired else UNSEEN) * np.nan_to_num(
        seen.below
    )
    lowest, beyond = (
        values.min(1),
        np.where(seen.drawn, 0.0, BEYOND_PAIRED if seen.paired else BEYOND),
    )
    endless = lowest - beyond * np.maximum(10 / np.maximum(n, 1) - 0.5, 0.0) * (
        values.max(1) - lowest
    )
    return values, there, np.where(np.isnan(seen.below), endless, np.minimum(-farthest, lowest))


def _quantiles(values: Array, there: NDArray[np.bool_], unseen: Array, q: float) -> Array:
    """The q-quantile of the means of the rows with Dirichlet weights (1, …, 1), the unseen one among them."""
    n = there.sum(1)
    low, high = unseen.copy(), np.maximum(values.max(1), 0.0)
    found = unseen * (1 - q ** (1 / np.maximum(n, 1)))  # exact where all that were seen are alike
    rows = np.flatnonzero(high - values.min(1) > 1e-9 * np.abs(unseen))
    if not len(rows):
        return np.asarray(found)
    low, high = low[rows], high[rows]
    whole = np.concatenate([values[rows], unseen[rows, None]], 1)
    mask = np.pad(there[rows], ((0, 0), (0, 1)), constant_values=True)
    centre = np.where(mask, whole, 0.0).sum(1) / mask.sum(1)
    spread = np.where(mask, (whole - centre[:, None]) ** 2, 0.0).sum(1) / (
        mask.sum(1) * (mask.sum(1) + 1.0)
    )
    goal, pace = special.ndtri(q), np.sqrt(spread)  # of a normal score, which is nearly straight
    middle = np.clip(centre + goal * pace, low + 1e-3 * (high - low), high - 1e-3 * (high - low))
    before, was = middle, np.full(len(rows), np.nan)
    for _ in range(24):
        score = special.ndtri(
            np.clip(_below_zero(np.where(mask, whole - middle[:, None], 0.0)), 1e-18, 1 - 1e-16)
        )
        low, high = np.where(score < goal, middle, low), np.where(score < goal, high, middle)
        found[rows] = middle
        left = (np.abs(score - goal) >= 1e-5) & (high - low >= 1e-7 * (high - unseen[rows]))
        if not left.any():
            break
        with np.errstate(invalid="ignore", divide="ignore"):
            secant = (middle - before) / (score - was)
        pace = np.where(np.isfinite(secant) & (secant > 0), secant, pace)
        rows, low, high, whole, mask, pace, before, was = (
            each[left] for each in (rows, low, high, whole, mask, pace, middle, score)
        )
        step = before + (goal - was) * pace
        middle = np.where((step > low) & (step < high), step, (low + high) / 2)
    return np.asarray(found)


def _below_zero(a: Array) -> Array:
    """The probability that Σ a_i E_i ≤ 0 with standard exponential E_i, for rows (K, M), by Lugannani and Rice.

    With K(s) = −Σ log(1 − s a_i) and K′(s) = 0: Φ(w) + φ(w)(1/w − 1/u), w = ± √(−2K(s)), u = s √K″(s). The mean with
    Dirichlet weights is below m just where this sum of the differences to m is below 0.

    >>> _below_zero(np.array([[1.0, -1.0], [3.0, -1.0]])).round(2).tolist()  # exactly 1/2 and 1/4
    [0.5, 0.25]
    """
    least, most = a.min(1), a.max(1)
    one_sided = (least >= 0) | (most <= 0)
    low, high = 1 / np.minimum(least, -1e-300), 1 / np.maximum(most, 1e-300)
    s, rows = np.zeros(len(a)), np.flatnonzero(~one_sided)
    for _ in range(50):  # by Newton's steps, of the rows that are not there yet
        if not len(rows):
            break
        here, known = a[rows], s[rows]
        ratio = here / (1 - known[:, None] * here)
        slope, curve = ratio.sum(1), np.einsum("ij,ij->i", ratio, ratio)
        low[rows], high[rows] = (
            np.where(slope < 0, known, low[rows]),
            np.where(slope < 0, high[rows], known),
        )
        step = known - slope / curve
        inside = (step > low[rows]) & (step < high[rows])
        s[rows] = np.where(inside, step, (low[rows] + high[rows]) / 2)
        rows = rows[np.abs(s[rows] - known) > 1e-8 * np.minimum(high[rows], -low[rows])]
    ratio = a / (1 - s[:, None] * a)
    curve = np.einsum("ij,ij->i", ratio, ratio)
    w = np.sign(s) * np.sqrt(np.maximum(2 * np.log1p(-s[:, None] * a).sum(1), 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        p = special.ndtr(w) + np.exp(-(w**2) / 2) / np.sqrt(2 * np.pi) * (
            1 / w - 1 / (s * np.sqrt(curve))
        )
        near = 0.5 + (ratio**3).sum(1) / (3 * curve**1.5) / np.sqrt(2 * np.pi)
    p = np.where(np.abs(w) < 1e-3, near, p)
    return np.clip(np.where(one_sided, np.where(least >= 0, 0.0, 1.0), p), 0.0, 1.0)
