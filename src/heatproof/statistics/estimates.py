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
from heatproof.statistics.cubes import Array, Cube
from heatproof.statistics.forms import Form, best_columns
from heatproof.statistics.intervals import EXACT, STUDENT, Errors, intervals, lower_bounds

NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Estimate:
    """Scores of any shape (…) with their errors.

    `parts` (…, N) is what each sample, or group of samples, adds to the error, NaN where it has no say, and `counts`
    (…, N) its share in the mean: 1/n, more for a larger group. `drawn` (…, R) is what each reference adds, of which
    `places` (R,) says which sample it is, −1 for none. `df` are the degrees of
    freedom of the first, `below` and `above` how far the ends of the scale are, `rate` whether the measure is declared
    to be 0 or 1 for every sample.
    """

    value: Array
    parts: Array
    counts: Array
    drawn: Array
    places: NDArray[np.int64]
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
        by_sample, by_reference = self._variances()
        return np.divide(
            by_reference,
            by_sample + by_reference,
            out=np.zeros_like(by_sample),
            where=by_reference > 0,
        )

    def _variances(self) -> tuple[Array, Array]:
        squares = (
            np.einsum("...i,...i->...", a, a) for a in (np.nan_to_num(self.parts), self.drawn)
        )
        first, second = squares
        return np.asarray(first), np.asarray(second)

    def errors(self) -> Errors:
        """Samples with their parts as references added, as rows for `intervals`; Satterthwaite's degrees of freedom."""
        first, second = self._variances()
        with np.errstate(invalid="ignore", divide="ignore"):
            df = (first + second) ** 2 / (
                first**2 / self.df + second**2 / max(self.drawn.shape[-1] - 1, 1)
            )
        df = np.where(second > 0, np.minimum(df, self.df), self.df)
        parts = self._with_references()
        rows = parts.reshape(-1, parts.shape[-1])
        ends = self.below.ravel(), self.above.ravel()
        return Errors(
            self.value.ravel(), self.n.ravel(), rows, df.ravel(), *ends, self.rate.ravel()
        )

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
        below=score.below / left,
        above=score.above / left,
        rate=np.zeros_like(score.rate),
    )


def column(
    cube: Cube, name: str, keep: NDArray[np.bool_] | None = None, e: Any = slice(None)
) -> Estimate:
    """The means (E, C) of one column of the table over all samples, or those to `keep`, of some explainers.

    Those of chance know what each reference adds: (b_r − b̄)/R with b_r the mean of reference r over the samples.
    """
    values = cube.values[name][e]
    if keep is not None:
        values = np.where(keep, values, np.nan)
    found = of_means(values, cube.span(name), cube.groups, name in cube.rates)
    if name not in cube.by_reference:
        return found
    deviations = cube.by_reference[name][e]
    number = {sample: i for i, sample in enumerate(cube.samples)}
    own = np.array([number.get(sample, -1) for sample in cube.references], dtype=np.int64)
    finite = np.isfinite(cube.values[name][e])
    itself = finite[..., own] & (own >= 0) if len(own) else np.zeros(deviations.shape, dtype=bool)
    seen = np.maximum(finite.sum(-1)[..., None] - itself, 1)
    r = deviations.shape[-1]
    means = deviations / seen
    drawn = (means - means.mean(-1, keepdims=True)) / np.sqrt(r * max(r - 1, 1))
    places = own if len(own) else np.full(r, -1)
    if cube.groups is not None:
        places = np.where(places >= 0, cube.groups[places], -1)
    return replace(found, drawn=drawn, places=places)


def estimates(
    cube: Cube,
    measure: str,
    form: Form = "best",
    keep: NDArray[np.bool_] | None = None,
    e: Any = slice(None),
) -> Estimate:
    """The scores (E, C) of a measure in the form asked for, with their errors; `keep` (C, N) are samples to use."""
    scores = column(cube, measure, keep, e)
    for here, name, chance in best_columns(cube, measure, form):
        if chance is None or not here.any():
            continue
        found = calibrated(column(cube, name, keep, e), column(cube, chance, keep, e))
        scores = _where(here, found, scores)
    return scores


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
    """The scores with the same references, which add nothing to those that have none."""
    known = next((each for each in scores if each.drawn.shape[-1]), scores[0])
    r = known.drawn.shape[-1]
    return [
        each
        if each.drawn.shape[-1] == r
        else replace(each, drawn=np.zeros((*each.value.shape, r)), places=known.places)
        for each in scores
    ]


_ARRAYS = [name for name in Estimate.__dataclass_fields__ if name != "places"]
