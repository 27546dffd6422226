"""Scores with what each sample adds to their error: the form from which intervals, tests, ranks and bounds come.

Every score that is printed is a smooth function of means over samples, so its error is about Σψ_i with one part per
sample. For a mean m of n scores s_i, ψ_i = (s_i − m)/n; for a calibrated score with mean chance c,

    ψ_i = [(s_i − m)/(1 − c) − (1 − m)(c_i − c)/(1 − c)²]/n − 1{i is a reference} (1 − m)(b_i − b̄)/((1 − c)² R),

where b_r is the mean chance score of reference r over samples: a sample that is also a reference has both parts. Means
over conditions and differences of scores add up their parts. Samples of a group (beats of one patient) are
summed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatproof.evaluation import Span
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.calibration import Form, calibrated_conditions
from heatproof.statistics.cubes import Array, Cube
from heatproof.statistics.intervals import EXACT, STUDENT, Errors, intervals, lower_bounds
from heatproof.statistics.two_way import two_way_mean

NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Estimate:
    """Scores of any shape (…) with their errors.

    `parts` (…, N) is what each sample, or group of samples, adds to the error, NaN where it has no say, and `counts`
    (…, N) its share in the mean: 1/n, more for a larger group. `drawn` (…, R) is what each reference adds, of which
    `places` (R,) says which sample it is, −1 for none. `networks` (…, K) is what each of K random networks adds, where
    the score is a mean over several; NaN where one network says nothing of their spread. `df` are the degrees of freedom
    of the samples' part, `below` and `above` how far the ends of the scale are, `rate` whether the measure is declared
    to be 0 or 1 for every sample.
    """

    value: Array
    parts: Array
    counts: Array
    drawn: Array
    places: NDArray[np.int64]
    networks: Array
    df: Array
    below: Array
    above: Array
    rate: NDArray[np.bool_]

    def __getitem__(self, index: Any) -> Estimate:
        """Some of the scores, by an index into their shape."""
        return replace(self, **{name: getattr(self, name)[index] for name in _ARRAYS})

    @property
    def n(self) -> NDArray[np.int64]:
        """How many samples, or groups of them, have a say."""
        return np.asarray(np.isfinite(self.parts).sum(-1))

    @property
    def share_of_references(self) -> Array:
        """Which share of the variance is due to the choice of the references."""
        by_sample, by_reference, by_network = self._variances()
        total = by_sample + by_reference + by_network
        return np.divide(by_reference, total, out=np.zeros_like(by_sample), where=by_reference > 0)

    def _variances(self) -> tuple[Array, Array, Array]:
        """The parts of the variance that are due to samples, references and networks."""

        def sum_of_squares(parts: Array) -> Array:
            known = np.nan_to_num(parts)
            return np.asarray(np.einsum("...i,...i->...", known, known))

        return (
            sum_of_squares(self.parts),
            sum_of_squares(self.drawn),
            sum_of_squares(self.networks),
        )

    def errors(self) -> Errors:
        """Samples, references and networks as rows for `intervals`, with Satterthwaite's degrees of freedom."""
        by_sample, by_reference, by_network = self._variances()
        others = by_reference + by_network
        with np.errstate(invalid="ignore", divide="ignore"):
            df = (by_sample + others) ** 2 / (
                by_sample**2 / self.df
                + by_reference**2 / max(self.drawn.shape[-1] - 1, 1)
                + by_network**2 / max(self.networks.shape[-1] - 1, 1)
            )
        df = np.where(others > 0, np.minimum(df, self.df), self.df)
        parts = np.concatenate([self._with_references(), self.networks], -1)
        rows = parts.reshape(-1, parts.shape[-1])
        ends = self.below.ravel(), self.above.ravel()
        says_nothing = np.isnan(self.networks).any(-1)
        n = np.where(says_nothing, 0, self.n)
        return Errors(self.value.ravel(), n.ravel(), rows, df.ravel(), *ends, self.rate.ravel())

    def _with_references(self) -> Array:
        """The parts (…, M) with those of the references: added to the samples that they are, else behind them."""
        if not (self.drawn.shape[-1] and np.any(self.drawn)):
            return self.parts
        among_samples = self.places >= 0
        matters = (self.drawn**2).sum(-1, keepdims=True) > 0
        parts = self.parts.copy()
        for place, added in zip(
            self.places[among_samples],
            np.moveaxis(self.drawn[..., among_samples], -1, 0),
            strict=True,
        ):
            has_a_say = matters[..., 0]
            parts[..., place] = np.where(
                has_a_say, np.nan_to_num(parts[..., place]) + added, parts[..., place]
            )
        elsewhere = np.where(matters, self.drawn[..., ~among_samples], np.nan)
        return np.concatenate([parts, elsewhere], -1)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Two-sided intervals (low, high) in the shape of the scores; NaN where there are too few samples."""
        low, high = intervals(self.errors(), level)
        return low.reshape(self.value.shape), high.reshape(self.value.shape)

    def bound(self, confidence: float, lower: bool) -> tuple[Array, Array]:
        """One-sided bounds, and the method by which each was found."""
        errors = self.errors()
        bounds = lower_bounds(errors if lower else errors.mirrored(), 1 - confidence)
        shape = self.value.shape
        return (bounds if lower else -bounds).reshape(shape), np.where(self.rate, EXACT, STUDENT)

    def nested(self, names: Sequence[str]) -> Estimate:
        """The mean over conditions of the mean over each condition's levels, along the last axis of the scores."""
        scored = np.isfinite(self.value)
        weights = nested_weights(scored, names)
        spread = (
            np.einsum("...i,...i->...", np.nan_to_num(self.parts), np.nan_to_num(self.parts))
            * weights**2
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            df = spread.sum(-1) ** 2 / np.where(scored, spread**2 / self.df, 0.0).sum(-1)
            total = np.where(scored, weights * np.nan_to_num(self.value), 0.0).sum(-1)
        has = np.isfinite(self.parts) & scored[..., None]
        n = has.any(-2).sum(-1)
        parts = np.einsum(
            "...c,...cn->...n", weights, np.where(has, np.nan_to_num(self.parts), 0.0)
        )
        return replace(
            self,
            value=np.where(scored.any(-1), total, np.nan),
            parts=np.where(has.any(-2), parts, np.nan),
            counts=np.einsum("...c,...cn->...n", weights, self.counts),
            drawn=np.einsum(
                "...c,...cr->...r", weights, np.where(scored[..., None], self.drawn, 0.0)
            ),
            networks=np.einsum(
                "...c,...ck->...k", weights, np.where(scored[..., None], self.networks, 0.0)
            ),
            df=np.minimum(np.where(np.isfinite(df), df, np.inf), np.maximum(n - 1, 0)),
            below=(weights * np.where(scored, self.below, 0.0)).sum(-1),
            above=(weights * np.where(scored, self.above, 0.0)).sum(-1),
            rate=np.asarray((self.rate | ~scored).all(-1) & scored.any(-1)),
        )

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two scores of the same samples and references."""
        has = np.isfinite(self.parts) | np.isfinite(other.parts)
        return replace(
            self,
            value=self.value - other.value,
            parts=np.where(has, np.nan_to_num(self.parts) - np.nan_to_num(other.parts), np.nan),
            drawn=self.drawn - other.drawn,
            networks=self.networks - other.networks,
            df=np.minimum(self.df, other.df),
            below=self.below + other.above,
            above=self.above + other.below,
            rate=np.zeros_like(self.rate),
        )


def sample_totals(scores: Estimate, names: Sequence[str]) -> tuple[Array, Array]:
    """What each sample adds to the nested means over conditions (…, C), times N, and to a mean of ones: (…, M) each.

    Σ totals / Σ shares is the mean. If the scores are differences of two methods, swapping the methods on a sample (or
    a group) changes the sign of its total and nothing else, whichever scores are missing and however large the groups
    are; this is what sign flips need. It holds to first order for differences of calibrated scores. Without missing
    scores and groups all shares are 1. The choice of the references adds to the totals, and nothing to their sum.
    """
    names = list(names)
    weights = nested_weights(np.isfinite(scores.value), names)
    has = np.isfinite(scores.parts) & (weights > 0)[..., None]
    count = has.sum(-1)
    # `parts` are the deviations from the mean times √(n / (n − 1)), divided by n.
    unscaled = np.sqrt(np.maximum(count - 1, 0) / np.maximum(count, 1))[..., None]
    effects = np.nan_to_num(scores.value)[..., None] * scores.counts + scores.parts * unscaled
    number = has.any(-2).sum(-1)
    weights_times_number = weights * number[..., None]
    totals = np.einsum("...c,...cn->...n", weights_times_number, np.where(has, effects, 0.0))
    shares = np.einsum("...c,...cn->...n", weights_times_number, np.where(has, scores.counts, 0.0))

    totals, shares = _with_totals_of_networks(scores, weights, number, totals, shares)
    references = scores.drawn.shape[-1]
    if references < 2:
        return totals, shares
    size = number[..., None] * np.sqrt((references - 1) / references)
    of_references = np.einsum("...c,...cr->...r", weights, np.nan_to_num(scores.drawn)) * size
    among_samples = scores.places >= 0
    for place, added in zip(
        scores.places[among_samples],
        np.moveaxis(of_references[..., among_samples], -1, 0),
        strict=True,
    ):
        totals[..., place] += added
    elsewhere = of_references[..., ~among_samples]
    return (
        np.concatenate([totals, elsewhere], -1),
        np.concatenate([shares, np.zeros_like(elsewhere)], -1),
    )


def _with_totals_of_networks(
    scores: Estimate, weights: Array, number: NDArray[np.int64], totals: Array, shares: Array
) -> tuple[Array, Array]:
    """Totals and shares with those of the random networks behind them, which are no samples and have no share."""
    networks = scores.networks.shape[-1]
    if networks < 2:
        return totals, shares
    size = number[..., None] * np.sqrt((networks - 1) / networks)
    of_networks = np.einsum("...c,...ck->...k", weights, np.nan_to_num(scores.networks)) * size
    return (
        np.concatenate([totals, of_networks], -1),
        np.concatenate([shares, np.zeros_like(of_networks)], -1),
    )


def nested_weights(scored: NDArray[np.bool_], names: Sequence[str]) -> Array:
    """What each condition counts in the mean over conditions of the mean over levels: (…, C), 0 where it has no score.

    >>> nested_weights(np.array([True, True, True, False]), ["rotation", "rotation", "jpeg", "noise"]).tolist()
    [0.25, 0.25, 0.5, 0.0]
    """
    groups_of_levels = list(dict.fromkeys(names))
    member = np.zeros((len(groups_of_levels), len(names)))
    for row, group in enumerate(groups_of_levels):
        member[row] = [name == group for name in names]
    levels = scored @ member.T
    groups = (levels > 0).sum(-1, keepdims=True)
    per_level = np.divide(1.0, levels * groups, out=np.zeros_like(levels), where=levels > 0)
    return np.asarray((per_level @ member) * scored)


def of_means(
    values: Array,
    span: Span | None = None,
    groups: NDArray[np.int64] | None = None,
    rate: bool = False,
) -> Estimate:
    """The means over the last axis of the finite values (…, N), with their errors.

    `rate` declares that every value is 0 or 1; samples in groups are not independent trials, so theirs has Student's
    interval like any mean.

    >>> low, high = of_means(np.array([0.2, 0.4, 0.6, 0.5, 0.3, 0.4, 0.5, 0.3])).interval()
    >>> round(float(low), 2), round(float(high), 2)
    (0.29, 0.51)
    """
    finite = np.isfinite(values)
    n = finite.sum(-1)
    mean = mean_of_finite(values)
    parts = np.where(finite, values - mean[..., None], np.nan) / np.maximum(n, 1)[..., None]
    counts = finite / np.maximum(n, 1)[..., None]
    if groups is not None:
        parts = _summed(parts, groups)
        counts = np.nan_to_num(_summed(counts, groups))
    units = np.isfinite(parts).sum(-1)
    parts = parts * np.sqrt(units / np.maximum(units - 1, 1))[..., None]
    ends = (0.0, 1.0) if rate else span or (None, None)
    lowest, highest = (np.nan if end is None else end for end in ends)
    rates = np.full(mean.shape, rate and groups is None)
    df = np.maximum(units - 1.0, 0.0)
    return Estimate(
        value=mean,
        parts=parts,
        counts=counts,
        drawn=np.zeros((*mean.shape, 0)),
        places=NOBODY,
        networks=np.zeros((*mean.shape, 0)),
        df=df,
        below=mean - lowest,
        above=highest - mean,
        rate=rates,
    )


def interval(
    values: Array,
    level: float = 0.95,
    span: Span | None = None,
    groups: NDArray[np.int64] | None = None,
) -> tuple[Array, Array]:
    """The intervals (K,) of the means of (K, N); NaN from too few samples.

    >>> low, high = interval(np.array([[1.0, 2.0, 3.0, 4.0] * 2, [1.0, 2.0] + [np.nan] * 6]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([1.5, nan], [3.5, nan])
    """
    return of_means(values, span, groups).interval(level)


def _summed(parts: Array, groups: NDArray[np.int64]) -> Array:
    """Parts of samples (…, N) summed by their group: (…, G), NaN for a group without a say."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    moved = parts[..., order]
    there = np.add.reduceat(np.isfinite(moved), starts, axis=-1) > 0
    return np.where(there, np.add.reduceat(np.nan_to_num(moved), starts, axis=-1), np.nan)


def calibrated(score: Estimate, chance: Estimate) -> Estimate:
    """(score − chance) / (1 − chance) with its error; NaN where chance leaves no room."""
    left = np.where(np.abs(1 - chance.value) > 1e-9, 1 - chance.value, np.nan)
    by_score, by_chance = 1 / left, -(1 - score.value) / left**2
    has = np.isfinite(score.parts)
    parts = by_score[..., None] * score.parts + by_chance[..., None] * np.nan_to_num(chance.parts)
    return replace(
        score,
        value=(score.value - chance.value) / left,
        parts=np.where(has & np.isfinite(left)[..., None], parts, np.nan),
        drawn=np.nan_to_num(by_chance)[..., None] * chance.drawn,
        places=chance.places,
        networks=np.where(np.isfinite(left), by_score, 0.0)[..., None] * score.networks,
        below=score.below / left,
        above=score.above / left,
        rate=np.zeros_like(score.rate),
    )


def column(
    cube: Cube, measure: str, keep: NDArray[np.bool_] | None = None, e: Any = slice(None)
) -> Estimate:
    """Return the mean values (E, C) of a measure over all samples, or those to `keep`, of some explainers."""
    values = _kept(cube.values[measure][e], keep)
    estimate = of_means(values, cube.span(measure), cube.groups, cube.is_rate(measure))
    estimate = _with_networks(cube, measure, estimate, keep, e)
    has_chance_inside = measure not in cube.chance
    return _with_references(cube, measure, estimate, e) if has_chance_inside else estimate


def chance_column(
    cube: Cube, measure: str, keep: NDArray[np.bool_] | None = None, e: Any = slice(None)
) -> Estimate:
    """Return the mean chance levels (E, C) of a measure, with what each reference adds to their error."""
    values = _kept(cube.chance[measure][e], keep)
    return _with_references(cube, measure, of_means(values, cube.span(measure), cube.groups), e)


def _with_references(cube: Cube, measure: str, estimate: Estimate, e: Any) -> Estimate:
    """Add what each reference adds to the error: (b_r − b̄)/R, with b_r its mean over the samples compared with it."""
    if measure not in cube.by_reference:
        return estimate
    means = cube.by_reference[measure][e]
    r = means.shape[-1]
    drawn = (means - means.mean(-1, keepdims=True)) / np.sqrt(r * max(r - 1, 1))
    number_of = {sample: i for i, sample in enumerate(cube.samples)}
    places = np.array([number_of.get(sample, -1) for sample in cube.references], dtype=np.int64)
    if cube.groups is not None:
        places = np.where(places >= 0, cube.groups[places], -1)
    return replace(estimate, drawn=drawn, places=places)


def _with_networks(
    cube: Cube, measure: str, estimate: Estimate, keep: NDArray[np.bool_] | None, e: Any
) -> Estimate:
    """Add what each of K networks adds to the error of a mean over samples and networks.

    The deviations of the networks' own means are scaled so that their squares add up to the part of the variance that
    is due to the networks (see `two_way`): the rest of their spread is the samples', which the samples have already.
    """
    declared = cube.declared.get(measure)
    if measure not in cube.repeats:
        if declared is None or not declared.networks:
            return estimate
        unknown = np.full((*estimate.value.shape, 1), np.nan)
        return replace(estimate, networks=unknown)
    values = cube.repeats[measure][e]
    if keep is not None:
        values = np.where(keep[..., None], values, np.nan)
    of_network = mean_of_finite(np.moveaxis(values, -1, -2))
    deviations = np.nan_to_num(of_network - mean_of_finite(of_network)[..., None])
    length = np.sqrt((deviations**2).sum(-1, keepdims=True))
    wanted = np.sqrt(np.nan_to_num(two_way_mean(values).of_networks))[..., None]
    parts = np.divide(deviations * wanted, length, out=np.zeros_like(deviations), where=length > 0)
    return replace(estimate, networks=parts)


def _kept(values: Array, keep: NDArray[np.bool_] | None) -> Array:
    return values if keep is None else np.where(keep, values, np.nan)


def estimates(
    cube: Cube,
    measure: str,
    form: Form = "best",
    keep: NDArray[np.bool_] | None = None,
    e: Any = slice(None),
) -> Estimate:
    """Return the scores (E, C) of a measure in the form asked for, with their errors; `keep` (C, N) are samples to use."""
    raw = column(cube, measure, keep, e)
    here = calibrated_conditions(cube, measure, form)
    if not here.any():
        return raw
    return _where(here, calibrated(raw, chance_column(cube, measure, keep, e)), raw)


def _where(here: NDArray[np.bool_], first: Estimate, second: Estimate) -> Estimate:
    """The first under some conditions, the second under the others."""
    first, second = _alike([first, second])
    chosen: dict[str, Any] = {"places": first.places}
    for name in _ARRAYS:
        one, other = getattr(first, name), getattr(second, name)
        chosen[name] = np.where(here.reshape(-1, *[1] * (one.ndim - first.value.ndim)), one, other)
    return Estimate(**chosen)


def stacked(scores: Sequence[Estimate]) -> Estimate:
    """Scores of one shape (…) behind one another: (K, …)."""
    alike = _alike(scores)
    columns: dict[str, Any] = {
        name: np.stack([getattr(each, name) for each in alike]) for name in _ARRAYS
    }
    return replace(alike[0], **columns)


def _alike(scores: Sequence[Estimate]) -> list[Estimate]:
    """The scores with the same references and networks, which add nothing to those that have none."""
    with_references = next((each for each in scores if each.drawn.shape[-1]), scores[0])
    references = with_references.drawn.shape[-1]
    networks = max(each.networks.shape[-1] for each in scores)
    return [_padded(each, references, networks, with_references.places) for each in scores]


def _padded(
    scores: Estimate, references: int, networks: int, places: NDArray[np.int64]
) -> Estimate:
    """The scores with so many references and networks, of which those that it lacks add nothing."""
    if scores.drawn.shape[-1] != references:
        nothing = np.zeros((*scores.value.shape, references))
        scores = replace(scores, drawn=nothing, places=places)
    missing = networks - scores.networks.shape[-1]
    behind = [(0, 0)] * scores.value.ndim + [(0, missing)]
    return replace(scores, networks=np.pad(scores.networks, behind)) if missing else scores


_ARRAYS = [name for name in Estimate.__dataclass_fields__ if name != "places"]
