"""One-sided confidence bounds of a mean over samples, by the statistics that the report uses, or with a guarantee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from heatproof.statistics.bounds import mean_interval
from heatproof.statistics.cubes import Array
from heatproof.statistics.estimates import Estimate, nested_weights

TRIED = 2**14
"""Up to so many samples the bound itself is asked how many would do; beyond, it comes nearer as 1 / √n."""
MOST_SAMPLES = 10**7
BETTING = "betting"


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
    >>> bound_mean(of_means(np.ones((1, 14)), (0.0, 1.0)), ["jpeg"], 0.95, True)
    Bound(mean=1.0, bound=0.80..., n=14, method='Clopper-Pearson')
    """
    overall = scores.nested(names)
    bound, method = overall.bound(confidence, lower)
    n = int(np.isfinite(scores.parts).sum(-1).min())
    return Bound(
        float(overall.value), float(bound), n, str(method) if np.isfinite(bound) else "none"
    )


def guaranteed(
    values: Array, span: tuple[float, float], names: Sequence[str], confidence: float, lower: bool
) -> Bound:
    """The bound of the overall score of (C, N) scores within `span`, whatever their distribution: by betting.

    Each of C conditions has a bound (see `bounds.mean_interval`) that is missed with probability (1 − confidence)/C, so
    their mean is missed with 1 − confidence at most.

    >>> guaranteed(np.ones((1, 14)), (0.0, 1.0), ["jpeg"], 0.95, True)
    Bound(mean=1.0, bound=0.75..., n=14, method='betting')
    """
    finite = np.isfinite(values)
    n = int(finite.sum(-1).min())
    if n < 1:
        return Bound(math.nan, math.nan, n, "none")
    delta = min(2 * (1 - confidence) / len(values), 0.999)
    rows = [torch.as_tensor(row[kept])[None] for row, kept in zip(values, finite, strict=True)]
    ends = [mean_interval(row, *span, delta)[0 if lower else 1].item() for row in rows]
    weights = nested_weights(np.ones(len(values), dtype=bool), names)
    means = [row.mean().item() for row in rows]
    return Bound(float(weights @ np.array(means)), float(weights @ np.array(ends)), n, BETTING)


def samples_needed(
    overall: Estimate, threshold: float, confidence: float, lower: bool
) -> int | None:
    """About how many samples like these put the bound at the threshold; None where none do.

    >>> from heatproof.statistics.estimates import of_means
    >>> samples_needed(of_means(np.ones(14), (0.0, 1.0)), 0.9, 0.95, True)
    29
    """
    seen = overall.parts[np.isfinite(overall.parts)]
    n, mean = len(seen), float(overall.value)
    if n < 2 or not (mean > threshold if lower else mean < threshold):
        return None

    def distance(m: int) -> float:
        """From the mean to the bound of m samples."""
        parts = np.resize(seen, m) * (n / m)
        found = replace(overall, parts=parts, df=np.asarray(overall.df + m - n))
        return abs(mean - float(found.bound(confidence, lower)[0]))

    room = abs(mean - threshold)
    few, enough = n, n
    while enough < TRIED and distance(enough) > room:
        few, enough = enough, 2 * enough
    if enough >= TRIED:
        return min(MOST_SAMPLES, math.ceil(enough * (distance(enough) / room) ** 2 - 1e-9))
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (middle, enough) if distance(middle) > room else (few, middle)
    return enough
