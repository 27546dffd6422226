"""Scores with what each sample adds to their error: the basis of intervals, tests, ranks and bounds.

Every printed score is a smooth function of means over samples. By the delta method its error is about Σψ_i, with one part
ψ_i per sample. For a mean m of n scores s_i, ψ_i = (s_i − m)/n. For a calibrated score with mean chance c,

    ψ_i = [(s_i − m)/(1 − c) − (1 − m)(c_i − c)/(1 − c)²]/n − 1{i is a reference} (1 − m)(b_i − b̄)/((1 − c)² R),

where b_r is the mean chance score of reference r over samples, and R the number of references. A sample that is also a
reference has both parts. Parts are additive: those of a mean over conditions, or of a difference of two scores, are means
and differences of parts. Samples of one group (such as the beats of one patient) are added up first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatproof.evaluation import Span
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.intervals import EXACT, STUDENT, Errors, intervals, lower_bounds

NO_REFERENCES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Estimate:
    """Scores of any shape (…) with the parts of their errors.

    value              the scores (…)
    sample_parts       (…, N): what each sample, or group of samples, adds to the error; NaN if it has no score
    weights            (…, N): the weight of each sample in the mean, 1/n, and more for a larger group
    reference_parts    (…, R): what each reference adds to the error
    reference_index    (R,): the index of the sample that a reference is; −1 if it is none of the samples
    network_parts      (…, K): what each of K random networks adds; NaN for a single network, which says nothing about
                       how much networks differ
    df                 (…): degrees of freedom of the variance between samples
    below, above       (…): the distance to the lower and upper end of the scale; NaN if it has no end
    is_rate            (…): whether the measure is declared to be 0 or 1 for every sample
    """

    value: Array
    sample_parts: Array
    weights: Array
    reference_parts: Array
    reference_index: NDArray[np.int64]
    network_parts: Array
    df: Array
    below: Array
    above: Array
    is_rate: NDArray[np.bool_]

    def __getitem__(self, index: Any) -> Estimate:
        """Return some of the scores, by an index into their shape."""
        return replace(self, **{name: getattr(self, name)[index] for name in _PER_SCORE})

    @property
    def n(self) -> NDArray[np.int64]:
        """How many samples, or groups of samples, have a score."""
        return np.asarray(np.isfinite(self.sample_parts).sum(-1))

    @property
    def share_of_references(self) -> Array:
        """The share of the variance that is due to the choice of the references."""
        of_samples, of_references, of_networks = self._variances()
        total = of_samples + of_references + of_networks
        return np.divide(of_references, total, out=np.zeros_like(total), where=of_references > 0)

    def _variances(self) -> tuple[Array, Array, Array]:
        """Return the variance due to samples, to references and to networks."""
        return (
            _sum_of_squares(self.sample_parts),
            _sum_of_squares(self.reference_parts),
            _sum_of_squares(self.network_parts),
        )

    def errors(self) -> Errors:
        """Return what confidence intervals need to know of the scores, one row per score.

        The variance of a score has up to three sources: the samples, the reference maps of its chance level, and random
        networks. The degrees of freedom of their sum are Satterthwaite's (1946, Biometrics Bull. 2, 110), and at most those
        between samples.
        """
        of_samples, of_references, of_networks = self._variances()
        df_of_references = max(self.reference_parts.shape[-1] - 1, 1)
        df_of_networks = max(self.network_parts.shape[-1] - 1, 1)
        # Satterthwaite: (Σ variance)² / Σ (variance² / df) over the three sources.
        total_variance = of_samples + of_references + of_networks
        with np.errstate(invalid="ignore", divide="ignore"):
            squares_over_df = (
                of_samples**2 / self.df
                + of_references**2 / df_of_references
                + of_networks**2 / df_of_networks
            )
            df = total_variance**2 / squares_over_df
        has_other_sources = of_references + of_networks > 0
        df = np.where(has_other_sources, np.minimum(df, self.df), self.df)

        # Few networks say little of skewness: two halves of opposite sign have the same variance and no third moment.
        half = self.network_parts / np.sqrt(2)
        parts = np.concatenate([self._parts_of_samples_and_references(), half, -half], -1)
        is_one_network = np.isnan(self.network_parts).any(-1)
        n = np.where(is_one_network, 0, self.n)  # no interval
        return Errors(
            value=self.value.ravel(),
            n=n.ravel(),
            parts=parts.reshape(-1, parts.shape[-1]),
            df=df.ravel(),
            below=self.below.ravel(),
            above=self.above.ravel(),
            rate=self.is_rate.ravel(),
        )

    def _parts_of_samples_and_references(self) -> Array:
        """Return what each sample and each reference adds to the error of a score, (…, M).

        A reference that is also one of the samples is added to that sample, because both errors come from the same draw.
        The other references follow the samples. Scores that use no references have NaN there.
        """
        if not np.any(self.reference_parts):
            return self.sample_parts
        is_sample = self.reference_index >= 0
        uses_references = (self.reference_parts**2).sum(-1) > 0
        parts = self.sample_parts.copy()
        for r in np.flatnonzero(is_sample):
            i = self.reference_index[r]
            with_reference = np.nan_to_num(parts[..., i]) + self.reference_parts[..., r]
            parts[..., i] = np.where(uses_references, with_reference, parts[..., i])
        of_others = self.reference_parts[..., ~is_sample]
        of_others = np.where(uses_references[..., None], of_others, np.nan)
        return np.concatenate([parts, of_others], -1)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return two-sided intervals (low, high) in the shape of the scores; NaN where there are too few samples."""
        low, high = intervals(self.errors(), level)
        return low.reshape(self.value.shape), high.reshape(self.value.shape)

    def bound(self, confidence: float, lower: bool) -> tuple[Array, Array]:
        """Return one-sided bounds, and the name of the method of each."""
        errors = self.errors()
        if lower:
            bounds = lower_bounds(errors, 1 - confidence)
        else:
            bounds = -lower_bounds(errors.mirrored(), 1 - confidence)
        return bounds.reshape(self.value.shape), np.where(self.is_rate, EXACT, STUDENT)

    def nested(self, names: Sequence[str]) -> Estimate:
        """Return the overall score: the mean over conditions of the mean over each condition's levels, with its error.

        The last axis (C) of the scores is averaged over. `names` (C,) has the condition of each entry; entries with the same
        name are its levels. What each sample adds to the error is averaged in the same way.
        """
        is_scored = np.isfinite(self.value)
        weights = nested_weights(is_scored, names)

        def mean(values: Array) -> Array:
            return np.asarray((weights * np.where(is_scored, values, 0.0)).sum(-1))

        def mean_of_parts(parts: Array) -> Array:
            scored_parts = np.where(is_scored[..., None], parts, 0.0)
            return np.asarray(np.einsum("...c,...cm->...m", weights, scored_parts))

        has_score = np.isfinite(self.sample_parts) & is_scored[..., None]
        sample_parts = mean_of_parts(np.where(has_score, self.sample_parts, 0.0))
        n = has_score.any(-2).sum(-1)

        # Satterthwaite's formula for the sum of the conditions' variances.
        variance = _sum_of_squares(self.sample_parts) * weights**2
        with np.errstate(invalid="ignore", divide="ignore"):
            squares_over_df = np.where(is_scored, variance**2 / self.df, 0.0)
            df = variance.sum(-1) ** 2 / squares_over_df.sum(-1)
        df = np.minimum(np.where(np.isfinite(df), df, np.inf), np.maximum(n - 1, 0))

        return replace(
            self,
            value=np.where(is_scored.any(-1), mean(self.value), np.nan),
            sample_parts=np.where(has_score.any(-2), sample_parts, np.nan),
            weights=np.einsum("...c,...cn->...n", weights, self.weights),
            reference_parts=mean_of_parts(self.reference_parts),
            network_parts=mean_of_parts(self.network_parts),
            df=df,
            below=mean(self.below),
            above=mean(self.above),
            is_rate=np.asarray((self.is_rate | ~is_scored).all(-1) & is_scored.any(-1)),
        )

    def minus(self, other: Estimate) -> Estimate:
        """Return the difference of two scores of the same samples and references."""
        has_score = np.isfinite(self.sample_parts) | np.isfinite(other.sample_parts)
        difference = np.nan_to_num(self.sample_parts) - np.nan_to_num(other.sample_parts)
        return replace(
            self,
            value=self.value - other.value,
            sample_parts=np.where(has_score, difference, np.nan),
            reference_parts=self.reference_parts - other.reference_parts,
            network_parts=self.network_parts - other.network_parts,
            df=np.minimum(self.df, other.df),
            below=self.below + other.above,
            above=self.above + other.below,
            is_rate=np.zeros_like(self.is_rate),
        )


_PER_SCORE = [name for name in Estimate.__dataclass_fields__ if name != "reference_index"]
"""The fields of an estimate that begin with the shape of the scores."""


def _sum_of_squares(parts: Array) -> Array:
    """Return Σ parts² over the last axis; a missing part adds nothing."""
    finite = np.nan_to_num(parts)
    return np.asarray(np.einsum("...i,...i->...", finite, finite))


# ---- means and calibrated scores --------------------------------------------------------------------------------------


def of_means(
    values: Array,
    span: Span | None = None,
    groups: NDArray[np.int64] | None = None,
    rate: bool = False,
) -> Estimate:
    """Return the means over the last axis of the finite values (…, N), with their errors.

    `span` has the ends of the scale and `groups` (N,) the number of each sample's group. `rate` declares that every value
    is 0 or 1. Samples in groups are no independent trials, so a rate of groups has Student's interval like any mean.

    >>> low, high = of_means(np.array([0.2, 0.4, 0.6, 0.5, 0.3, 0.4, 0.5, 0.3])).interval()
    >>> round(float(low), 2), round(float(high), 2)
    (0.29, 0.51)
    """
    is_finite = np.isfinite(values)
    n = np.maximum(is_finite.sum(-1), 1)[..., None]
    mean = mean_of_finite(values)
    parts = np.where(is_finite, values - mean[..., None], np.nan) / n
    weights = is_finite / n
    if groups is not None:
        parts = _sums_of_groups(parts, groups)
        weights = np.nan_to_num(_sums_of_groups(weights, groups))

    # n / (n − 1) makes Σ parts² the unbiased variance of the mean.
    units = np.isfinite(parts).sum(-1)
    parts = parts * np.sqrt(units / np.maximum(units - 1, 1))[..., None]

    lowest, highest = (0.0, 1.0) if rate else span or (None, None)
    return Estimate(
        value=mean,
        sample_parts=parts,
        weights=weights,
        reference_parts=np.zeros((*mean.shape, 0)),
        reference_index=NO_REFERENCES,
        network_parts=np.zeros((*mean.shape, 0)),
        df=np.maximum(units - 1.0, 0.0),
        below=mean - (np.nan if lowest is None else lowest),
        above=(np.nan if highest is None else highest) - mean,
        is_rate=np.full(mean.shape, rate and groups is None),
    )


def interval(
    values: Array,
    level: float = 0.95,
    span: Span | None = None,
    groups: NDArray[np.int64] | None = None,
) -> tuple[Array, Array]:
    """Return the intervals (low, high), (K,) each, of the means of values (K, N); NaN where there are too few samples.

    >>> low, high = interval(np.array([[1.0, 2.0, 3.0, 4.0] * 2, [1.0, 2.0] + [np.nan] * 6]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([1.5, nan], [3.5, nan])
    """
    return of_means(values, span, groups).interval(level)


def _sums_of_groups(parts: Array, groups: NDArray[np.int64]) -> Array:
    """Return the sum of the entries (…, N) of each group of samples, (…, G), NaN for a group without a finite entry.

    `groups` (N,) are the numbers of the samples' groups, such as patients with several samples each.
    """
    # Sort the samples by group; each group is then a run that begins where the number changes.
    by_group = np.argsort(groups, kind="stable")
    first_of_group = np.flatnonzero(np.diff(groups[by_group], prepend=-1))
    sorted_parts = parts[..., by_group]
    number_finite = np.add.reduceat(np.isfinite(sorted_parts), first_of_group, axis=-1)
    sums = np.add.reduceat(np.nan_to_num(sorted_parts), first_of_group, axis=-1)
    return np.where(number_finite > 0, sums, np.nan)


def calibrated(score: Estimate, chance: Estimate) -> Estimate:
    """Return the calibrated score (score − chance) / (1 − chance) with its error; NaN where chance is 1.

    The error is by the delta method: what a sample adds to it is what it adds to the errors of score and chance, times the
    derivatives of the calibrated score.
    """
    room = np.where(np.abs(1 - chance.value) > 1e-9, 1 - chance.value, np.nan)
    slope_of_score = 1 / room  # the derivative by the score
    slope_of_chance = -(1 - score.value) / room**2  # the derivative by the chance level
    parts = slope_of_score[..., None] * score.sample_parts
    parts = parts + slope_of_chance[..., None] * np.nan_to_num(chance.sample_parts)
    has_score = np.isfinite(score.sample_parts) & np.isfinite(room)[..., None]
    slope_of_network = np.where(np.isfinite(room), slope_of_score, 0.0)
    return replace(
        score,
        value=(score.value - chance.value) / room,
        sample_parts=np.where(has_score, parts, np.nan),
        reference_parts=np.nan_to_num(slope_of_chance)[..., None] * chance.reference_parts,
        reference_index=chance.reference_index,
        network_parts=slope_of_network[..., None] * score.network_parts,
        below=score.below / room,
        above=score.above / room,
        is_rate=np.zeros_like(score.is_rate),
    )


def nested_weights(is_scored: NDArray[np.bool_], names: Sequence[str]) -> Array:
    """Return the weight of each entry (…, C) in the overall score: the mean over conditions of the mean over their levels.

    `names` (C,) has the condition of each entry; entries with the same name are its levels. An entry without a score has
    the weight 0, and so has a condition without any.

    >>> nested_weights(np.array([True, True, True, False]), ["rotation", "rotation", "jpeg", "noise"]).tolist()
    [0.25, 0.25, 0.5, 0.0]
    """
    conditions = list(dict.fromkeys(names))
    # (conditions, C): 1 where an entry is a level of the condition.
    is_level_of = (np.array(conditions)[:, None] == np.array(names)).astype(np.float64)
    scored_levels = is_scored @ is_level_of.T  # how many levels of each condition have a score
    scored_conditions = (scored_levels > 0).sum(-1, keepdims=True)
    # A level weighs 1 / (levels of its condition · conditions).
    weight_by_condition = np.divide(
        1.0,
        scored_levels * scored_conditions,
        out=np.zeros_like(scored_levels),
        where=scored_levels > 0,
    )
    weight_of_entry = weight_by_condition @ is_level_of
    return np.asarray(weight_of_entry * is_scored)


# ---- totals for sign flips --------------------------------------------------------------------------------------------


def sample_totals(scores: Estimate, names: Sequence[str]) -> tuple[Array, Array]:
    """Return totals and shares (…, M) of the samples, so that the overall score is Σ totals / Σ shares.

    They are what sign-flip tests of differences of two methods need: swapping the methods on a sample (or a group of
    samples) changes the sign of its total and nothing else, whichever scores are missing and however large the groups
    are. For differences of calibrated scores that holds to first order. The overall score is the mean over conditions of
    the mean over their levels; `names` (C,) has the condition of each entry of the last axis of `scores`.

    Without missing scores and groups all shares are 1. References and networks follow the samples: their totals sum to 0,
    and their shares are 0. A reference that is also a sample is added to that sample.
    """
    weights = nested_weights(np.isfinite(scores.value), names)
    has_score = np.isfinite(scores.sample_parts) & (weights > 0)[..., None]
    per_condition = has_score.sum(-1)
    # `sample_parts` are deviations from the mean times √(n / (n − 1)), divided by n.
    unscaled = np.sqrt(np.maximum(per_condition - 1, 0) / np.maximum(per_condition, 1))[..., None]
    effects = np.nan_to_num(scores.value)[..., None] * scores.weights
    effects = effects + scores.sample_parts * unscaled
    n = has_score.any(-2).sum(-1)
    weights_times_n = weights * n[..., None]
    totals = np.einsum("...c,...cn->...n", weights_times_n, np.where(has_score, effects, 0.0))
    shares = np.einsum(
        "...c,...cn->...n", weights_times_n, np.where(has_score, scores.weights, 0.0)
    )

    of_networks = _totals_of_draws(scores.network_parts, weights, n)
    of_references = _totals_of_draws(scores.reference_parts, weights, n)
    is_sample = scores.reference_index >= 0
    if of_references.shape[-1]:
        for r in np.flatnonzero(is_sample):
            totals[..., scores.reference_index[r]] += of_references[..., r]
        of_references = of_references[..., ~is_sample]

    no_shares = np.zeros((*n.shape, of_networks.shape[-1] + of_references.shape[-1]))
    totals = np.concatenate([totals, of_networks, of_references], -1)
    return totals, np.concatenate([shares, no_shares], -1)


def _totals_of_draws(parts: Array, weights: Array, n: NDArray[np.int64]) -> Array:
    """Return what each of K references or networks adds to N times the overall score, (…, K); (…, 0) for fewer than two.

    `parts` (…, C, K) is what each adds to the errors of C conditions, `weights` (…, C) are those of the conditions in the
    overall score, and `n` (…) is N, the number of samples.
    """
    draws = parts.shape[-1]
    if draws < 2:
        return np.zeros((*n.shape, 0))
    unscaled = n[..., None] * np.sqrt((draws - 1) / draws)
    return np.asarray(np.einsum("...c,...ck->...k", weights, np.nan_to_num(parts)) * unscaled)


# ---- several estimates ------------------------------------------------------------------------------------------------


def stacked(scores: Sequence[Estimate]) -> Estimate:
    """Return K estimates of one shape (…) as a single estimate of shape (K, …)."""
    alike = _with_same_draws(scores)
    fields: dict[str, Any] = {}
    for name in _PER_SCORE:
        fields[name] = np.stack([getattr(estimate, name) for estimate in alike])
    return replace(alike[0], **fields)


def chosen(use_first: NDArray[np.bool_], first: Estimate, second: Estimate) -> Estimate:
    """Return an estimate whose conditions come from one of two estimates: the first where `use_first` (C,) is true.

    Conditions are the last axis of the scores.
    """
    first, second = _with_same_draws([first, second])
    fields: dict[str, Any] = {}
    for name in _PER_SCORE:
        of_first, of_second = getattr(first, name), getattr(second, name)
        # Some fields have further axes behind the conditions, such as one entry per sample.
        trailing_axes = of_first.ndim - first.value.ndim
        is_first = use_first.reshape(-1, *[1] * trailing_axes)
        fields[name] = np.where(is_first, of_first, of_second)
    return replace(first, **fields)


def _with_same_draws(scores: Sequence[Estimate]) -> list[Estimate]:
    """Return estimates padded to equal numbers of references and of networks, so that their arrays can be stacked.

    References and networks that an estimate lacks add nothing to its error.
    """
    with_references = next((s for s in scores if s.reference_parts.shape[-1]), scores[0])
    references = with_references.reference_parts.shape[-1]
    networks = max(s.network_parts.shape[-1] for s in scores)
    alike = []
    for estimate in scores:
        padded = estimate
        if estimate.reference_parts.shape[-1] != references:
            no_parts = np.zeros((*estimate.value.shape, references))
            index = with_references.reference_index
            padded = replace(padded, reference_parts=no_parts, reference_index=index)
        missing = networks - estimate.network_parts.shape[-1]
        if missing:
            padding = [(0, 0)] * estimate.value.ndim + [(0, missing)]
            padded = replace(padded, network_parts=np.pad(estimate.network_parts, padding))
        alike.append(padded)
    return alike
