"""The mean of scores where both the samples and the networks were drawn at random, with its error.

Dependence compares a map with the maps of K networks with random weights. Every network serves all samples, so a score
is y_ij = μ + a_i + b_j + e_ij: sample i, network j, and the rest. An interval that looks at samples alone leaves out
b_j, which more samples do not average out. The variance of the mean has all three parts,

    Var(mean) = σ_a² Σ_i w_i.² + σ_b² Σ_j w_.j² + σ_e² Σ_ij w_ij²,

where w_ij is what a score counts: 1/(N n_i) for a sample with n_i of the K scores. In a complete layout this is
σ_a²/N + σ_b²/K + σ_e²/(NK).

References: Henderson (1953), Estimation of variance and covariance components, Biometrics 9, 226; Searle, Casella and
McCulloch (1992), Variance Components, ch. 4 and 5; Satterthwaite (1946), Biometrics Bull. 2, 110.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from heatproof.statistics.arrays import Array
from heatproof.statistics.intervals import FEWEST, skewed_quantile

FEWEST_NETWORKS = 2
"""From fewer networks nothing is known of how much they differ, and there is no interval."""


@dataclass(frozen=True)
class TwoWayMean:
    """Means (…) over samples and networks with their errors; NaN where there is no interval.

    `of_samples`, `of_networks` and `of_rest` are the three parts of `variance`. `low` and `high` are the two-sided
    interval; `lower_bound` and `upper_bound` are one-sided. `samples` and `networks` count those with a score.
    """

    mean: Array
    variance: Array
    of_samples: Array
    of_networks: Array
    of_rest: Array
    df: Array
    low: Array
    high: Array
    lower_bound: Array
    upper_bound: Array
    samples: NDArray[np.int64]
    networks: NDArray[np.int64]


def two_way_mean(
    values: Array,
    level: float = 0.95,
    span: tuple[float | None, float | None] | None = None,
) -> TwoWayMean:
    """Estimate the means of scores (…, N samples, K networks), NaN where a score is missing.

    The mean is over samples of the mean over a sample's networks. The interval is Student's with Satterthwaite's
    degrees of freedom and Hall's correction for the skewness of the samples, cut at the ends of the scale `span`.

    >>> scores = np.add.outer(np.linspace(0.4, 0.6, 9), [-0.1, 0.0, 0.1])
    >>> found = two_way_mean(scores)
    >>> found.mean.round(2).item(), found.low.round(2).item(), found.high.round(2).item()
    (0.5, 0.29, 0.71)
    """
    present = np.isfinite(values)
    per_sample = present.sum(-1)
    samples = (per_sample > 0).sum(-1)
    networks = (present.sum(-2) > 0).sum(-1)

    weights = present / (np.maximum(per_sample, 1) * np.maximum(samples, 1)[..., None])[..., None]
    mean = np.where(samples > 0, (weights * np.where(present, values, 0.0)).sum((-2, -1)), np.nan)

    components = variance_components(values)
    of_samples = components[..., 0] * (weights.sum(-1) ** 2).sum(-1)
    of_networks = components[..., 1] * (weights.sum(-2) ** 2).sum(-1)
    of_rest = components[..., 2] * (weights**2).sum((-2, -1))
    variance = of_samples + of_networks + of_rest
    df = _satterthwaite(of_samples, of_networks, of_rest, present)

    skewness = _skewness_of_mean(values, mean, variance)
    error = np.sqrt(variance)
    enough = (samples >= FEWEST) & (networks >= FEWEST_NETWORKS)
    lowest, highest = span or (None, None)

    def lower(miss: float) -> Array:
        bound = mean - error * skewed_quantile(stats.t.ppf(1 - miss, df), skewness)
        if lowest is not None:
            bound = np.maximum(bound, lowest)
        return np.asarray(np.where(enough, bound, np.nan))

    def upper(miss: float) -> Array:
        bound = mean + error * skewed_quantile(stats.t.ppf(1 - miss, df), -skewness)
        if highest is not None:
            bound = np.minimum(bound, highest)
        return np.asarray(np.where(enough, bound, np.nan))

    miss = 1 - level
    return TwoWayMean(
        mean=mean,
        variance=variance,
        of_samples=of_samples,
        of_networks=of_networks,
        of_rest=of_rest,
        df=df,
        low=lower(miss / 2),
        high=upper(miss / 2),
        lower_bound=lower(miss),
        upper_bound=upper(miss),
        samples=np.asarray(samples),
        networks=np.asarray(networks),
    )


def no_two_way_interval(samples: int, networks: int) -> str:
    """Why there is no interval, empty where there is one.

    >>> no_two_way_interval(30, 1)
    '1 random network does not show how much networks differ; an interval needs 2'
    """
    if networks < FEWEST_NETWORKS:
        count = f"{networks} random network{'s do' if networks != 1 else ' does'} not show"
        return f"{count} how much networks differ; an interval needs {FEWEST_NETWORKS}"
    if samples < FEWEST:
        count = "1 sample is" if samples == 1 else f"{samples} samples are"
        return f"{count} too few for an interval; {FEWEST} are needed"
    return ""


def variance_components(values: Array) -> Array:
    """The variances (…, 3) of samples, networks and the rest in scores (…, N, K); none is below 0.

    Henderson's method I: the sums of squares between samples, between networks and of the rest are set equal to their
    expectations, which are linear in the three variances. For a complete layout this is the analysis of variance. NaN
    where the layout does not determine all three.
    """
    present = np.isfinite(values)
    total = present.sum((-2, -1))
    grand_mean = np.where(present, values, 0.0).sum((-2, -1)) / np.maximum(total, 1)
    centred = np.where(present, values - grand_mean[..., None, None], 0.0)

    per_sample, per_network = present.sum(-1), present.sum(-2)
    between_samples = (centred.sum(-1) ** 2 / np.maximum(per_sample, 1)).sum(-1)
    between_networks = (centred.sum(-2) ** 2 / np.maximum(per_network, 1)).sum(-1)
    rest = (centred**2).sum((-2, -1)) - between_samples - between_networks
    sums = np.stack([between_samples, between_networks, rest], -1)

    # With `samples` rows and `networks` columns that have scores, E[sums] = expected @ (σ_a², σ_b², σ_e²).
    samples, networks = (per_sample > 0).sum(-1), (per_network > 0).sum(-1)
    size_of_sample = (per_sample**2).sum(-1) / np.maximum(total, 1)
    size_of_network = (per_network**2).sum(-1) / np.maximum(total, 1)
    rows = [
        [total - size_of_sample, samples - size_of_network, samples - 1],
        [networks - size_of_sample, total - size_of_network, networks - 1],
        [size_of_sample - networks, size_of_network - samples, total - samples - networks + 1],
    ]
    expected = np.stack([np.stack([1.0 * entry for entry in row], -1) for row in rows], -2)

    known = np.linalg.matrix_rank(expected) == 3
    solvable = np.where(known[..., None, None], expected, np.eye(3))
    components = np.linalg.solve(solvable, sums[..., None])[..., 0]
    return np.asarray(np.where(known[..., None], np.maximum(components, 0.0), np.nan))


def _satterthwaite(
    of_samples: Array, of_networks: Array, of_rest: Array, present: NDArray[np.bool_]
) -> Array:
    """Degrees of freedom of the variance of the mean; samples − 1 where nothing varies.

    In terms of mean squares the variance is MS_samples + MS_networks − MS_rest, each divided by NK. Satterthwaite's
    formula is (Σ c_k MS_k)² / Σ (c_k MS_k)²/df_k.
    """
    samples = (present.any(-1)).sum(-1)
    networks = (present.any(-2)).sum(-1)
    left = present.sum((-2, -1)) - samples - networks + 1
    squares = (of_samples + of_rest) ** 2 / np.maximum(samples - 1, 1)
    squares = squares + (of_networks + of_rest) ** 2 / np.maximum(networks - 1, 1)
    squares = squares + of_rest**2 / np.maximum(left, 1)
    variance = of_samples + of_networks + of_rest
    varies = squares > 0
    df = np.where(varies, variance**2 / np.where(varies, squares, 1.0), samples - 1.0)
    return np.asarray(np.maximum(df, 1.0))


def _skewness_of_mean(values: Array, mean: Array, variance: Array) -> Array:
    """The skewness that the samples give their mean: Σ third powers of their parts, without bias, over variance^1.5."""
    present = np.isfinite(values)
    per_sample = present.sum(-1)
    n = (per_sample > 0).sum(-1)
    sample_means = np.where(present, values, 0.0).sum(-1) / np.maximum(per_sample, 1)
    parts = np.where(per_sample > 0, sample_means - mean[..., None], 0.0)
    parts = parts / np.maximum(n, 1)[..., None]
    third = (parts**3).sum(-1) * n**2 / np.maximum((n - 1) * (n - 2), 1)
    error = np.sqrt(variance)
    varies = error > 1e-15
    return np.asarray(np.where(varies, third / np.where(varies, error, 1.0) ** 3, 0.0))
