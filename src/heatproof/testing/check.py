"""A run held against requirements: every explainer's bound, or the reason why there is none to trust.

requirement ─► choose rows ─► one Case per explainer (and condition) ─► bound ─► Outcome
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.axes import Axis, axis_of
from heatproof.errors import UserError
from heatproof.evaluation import FLIPPED, OK, OPEN, UNDEFINED, Condition, Span
from heatproof.results.arrays import ScoreArrays
from heatproof.results.score_estimates import chance_estimates, raw_estimates, score_estimates
from heatproof.runs.manifest import Manifest
from heatproof.runs.results import arrays_of_run
from heatproof.runs.run import Run
from heatproof.runs.tables import read_places, read_scores
from heatproof.runs.verify import missing, missing_in_words
from heatproof.statistics.above_chance import order_of_bets
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.bounds_of_means import (
    Bound,
    bet_on_calibrated_mean,
    bet_on_mean,
    bound_mean,
    is_complete,
    samples_needed,
    samples_needed_to_bet,
)
from heatproof.statistics.estimates import Estimate, of_means
from heatproof.testing.choose import choose, each, no_readout
from heatproof.testing.requirement import SHARES, Requirement, parse_all

UNIT = (0.0, 1.0)
ALL = -1
"""Bet on the samples that were seen, once each."""
Bet = Callable[[int], Bound]
"""A bet on so many samples, those of the run again and again."""


@dataclass(frozen=True)
class Limits:
    """What a number must rest on before it is believed, under every condition that it is a mean of.

    `samples` with a score, the share `retention` of attempted pairs that has one, and at most the share `undefined` of
    maps that cannot be compared, and of decisions that stayed open. A `strict` bound holds for any scores within the
    ends of their scale, which the usual one does not where a failure is rare and nothing hints at it; it needs more
    samples.
    """

    samples: int = 8
    retention: float = 0.1
    undefined: float = 0.1
    strict: bool = False

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise UserError(f"a bound needs at least 2 samples, got {self.samples}")
        for what, share in (("retention", self.retention), ("undefined", self.undefined)):
            if not 0 <= share <= 1:
                raise UserError(f"the limit of {what} is a share from 0 to 1, got {share}")


@dataclass(frozen=True)
class Outcome:
    """One requirement held against one explainer, with `condition=each` one condition; `need` is empty on a pass."""

    requirement: Requirement
    dataset: str
    model: str
    evaluation: str
    explainer: str
    condition: str
    passed: bool
    seen: Bound
    need: str


@dataclass(frozen=True)
class Case:
    """One requirement held against one explainer; `arrays` has this explainer and the conditions asked for alone."""

    requirement: Requirement
    axis: Axis
    arrays: ScoreArrays
    measure: str

    @property
    def is_share(self) -> bool:
        """Whether the requirement is about a share of the attempted pairs, such as retention."""
        return self.requirement.measure in SHARES

    @property
    def condition_names(self) -> list[str]:
        """The name of each condition, by which levels are averaged before conditions."""
        return [name for name, _ in self.arrays.conditions]

    @property
    def status(self) -> NDArray[np.int8]:
        """The status of every pair (C, N); that of a diagnostic follows from its own values."""
        declared = self.arrays.declared.get(self.measure)
        if declared is None or declared.role != "diagnostic":
            return np.asarray(self.arrays.status[0])
        has_value = np.isfinite(self.arrays.values[self.measure][0])
        return np.asarray(np.where(has_value, OK, UNDEFINED), dtype=np.int8)

    @property
    def span(self) -> Span | None:
        """The ends of the scale."""
        return UNIT if self.is_share else self.arrays.span(self.measure)

    @property
    def sample_values(self) -> Array | None:
        """The values of single samples (C, N) whose mean is judged; None for calibrated scores, which are no mean."""
        if self.is_share:
            is_of_kind = self.status == SHARES.index(self.requirement.measure)
            return np.asarray(np.where(self.status < 0, np.nan, is_of_kind))
        if self.requirement.readout == "chance":
            return np.asarray(self.arrays.chance[self.measure][0])
        if self.requirement.readout == "calibrated":
            return None
        return np.asarray(self.arrays.values[self.measure][0])

    @property
    def scores(self) -> Estimate:
        """The mean under each condition (C,) with its error."""
        if self.is_share:
            values = self.sample_values
            assert values is not None
            return of_means(values, UNIT, self.arrays.groups, rate=True)
        if self.requirement.readout == "chance":
            return chance_estimates(self.arrays, self.measure, explainers=0)
        if self.requirement.readout == "calibrated":
            return score_estimates(self.arrays, self.measure, explainers=0)
        return raw_estimates(self.arrays, self.measure, explainers=0)


def check(
    run: Run, requirements: Iterable[str | Requirement], limits: Limits | None = None
) -> list[Outcome]:
    """Hold a finished run against requirements, in order; one that is about nothing in the run is an error.

    A requirement passes where its one-sided confidence bound does. Where too little is known to say so (`Limits`), it
    fails. Without conditions it is about the mean over all of them, each condition's levels averaged first.
    """
    wishes = parse_all(requirements)
    gaps = missing(run.path)
    if gaps:
        raise UserError(f"{run.path} is not finished: {missing_in_words(gaps)}")

    places = read_places(run.path)
    axes = {}
    for name, of_evaluation in places.groupby("evaluation", sort=False):
        axes[str(name)] = axis_of(str(name), run.manifest, of_evaluation["measure"].unique())
    evaluations = run.manifest.study.evaluations.items()
    kinds = {name: entry.name for name, entry in evaluations if entry.name}

    chosen = [(wish, choose(places, wish, axes, kinds)) for wish in wishes]
    needed = {name for wish, rows in chosen for name in _measures_needed(wish, rows, axes)}
    table = read_scores(run.path, compact=True, measures=needed)
    evidence = (run.manifest, run.samples(), run.references())

    outcomes = []
    for wish, rows in chosen:
        cases = list(_cases(wish, rows, axes, table, evidence))
        if not cases:
            raise no_readout(wish)
        outcomes += [_outcome(case, limits or Limits()) for case in cases]
    return outcomes


def _measures_needed(wish: Requirement, chosen: pd.DataFrame, axes: Mapping[str, Axis]) -> set[str]:
    """The measures whose rows a requirement is about; for shares those that decide about a pair."""
    if wish.measure not in SHARES:
        return {wish.measure}
    measured = set(chosen["measure"])
    headlines: set[str] = set()
    for evaluation in chosen["evaluation"].unique():
        headlines |= set(axes[evaluation].of_role("headline"))
    return headlines & measured or measured


def _cases(
    wish: Requirement,
    chosen: pd.DataFrame,
    axes: Mapping[str, Axis],
    table: pd.DataFrame,
    evidence: tuple[Manifest, pd.DataFrame, pd.DataFrame],
) -> Iterator[Case]:
    """Every explainer that a requirement is about, with `condition=each` every condition of it."""
    measures = _measures_needed(wish, chosen, axes)
    for (dataset, model, evaluation), here in chosen.groupby(
        ["dataset", "model", "evaluation"], sort=False
    ):
        axis = axes[str(evaluation)]
        is_wanted = table["measure"].isin(measures) & table["explainer"].isin(here["explainer"])
        is_wanted &= (table["dataset"] == dataset) & (table["model"] == model)
        is_wanted &= table["evaluation"] == evaluation
        (arrays,) = arrays_of_run(table[is_wanted], *evidence)

        asked = set(zip(here["explainer"], here["condition"], here["level"], strict=True))
        for explainer in arrays.explainers:
            own = arrays.select(explainers=[explainer])
            measure = _deciding_measure(own, axis) if wish.measure in SHARES else wish.measure
            usable = [
                condition
                for condition in own.conditions
                if (explainer, *condition) in asked and _has_readout(own, condition, measure, wish)
            ]
            if not usable:
                continue
            groups: list[list[Condition]] = [[c] for c in usable] if each(wish) else [usable]
            for conditions in groups:
                yield Case(wish, axis, own.select(conditions=conditions), measure)


def _deciding_measure(arrays: ScoreArrays, axis: Axis) -> str:
    """The measure whose status is that of the pairs of the one explainer of a arrays."""
    return next(iter(axis.headlines(arrays)), arrays.measures[-1])


def _has_readout(
    arrays: ScoreArrays, condition: Condition, measure: str, wish: Requirement
) -> bool:
    """Whether the table has rows of what a readout is made of, for the one explainer of a arrays."""
    c = arrays.conditions.index(condition)
    if measure not in arrays.has_rows or not arrays.has_rows[measure][0, c]:
        return False
    if wish.readout == "chance":
        return measure in arrays.chance
    return wish.readout != "calibrated" or arrays.is_calibrated(measure)


def _outcome(case: Case, limits: Limits) -> Outcome:
    """The verdict on one case."""
    seen, need = _bound_and_need(case, limits)
    arrays = case.arrays
    condition = case.axis.condition(*arrays.conditions[0]) if each(case.requirement) else ""
    return Outcome(
        requirement=case.requirement,
        **arrays.key,
        explainer=arrays.explainers[0],
        condition=condition,
        passed=not need,
        seen=seen,
        need=need,
    )


def _bound_and_need(case: Case, limits: Limits) -> tuple[Bound, str]:
    """The bound, and what would be needed to pass; empty where nothing is."""
    wish = case.requirement
    scores = case.scores
    bet = _strict_bet(case) if limits.strict else _usual_bet(case, scores)
    if bet is None:
        seen = bound_mean(scores, case.condition_names, wish.confidence, wish.at_least)
    else:
        seen = bet(ALL)

    doubt = _doubt(case, scores, limits)
    if doubt:
        return seen, doubt
    if wish.holds(seen.bound):
        return seen, ""
    if bet is None:
        overall = scores.nested(case.condition_names)
        more = samples_needed(overall, wish.threshold, wish.confidence, wish.at_least)
    else:
        more = samples_needed_to_bet(bet, seen, wish.threshold, wish.at_least)
    return seen, _what_would_pass(seen, more, wish)


def _doubt(case: Case, scores: Estimate, limits: Limits) -> str:
    """Why too little is known under some condition; empty where enough is."""
    status = case.status
    for c, condition in enumerate(case.arrays.conditions):
        with_score = int(scores[c].n)
        attempted = int((status[c] >= 0).sum())
        undefined = int((status[c] == UNDEFINED).sum())
        still_open = int((status[c] == OPEN).sum())
        is_one_of_several = len(case.arrays.conditions) > 1
        under = f" under {case.axis.condition(*condition)}" if is_one_of_several else ""
        if not case.is_share:
            if attempted and undefined > limits.undefined * attempted:
                why = _commonest_reason(case.arrays, condition)
                return f"defined maps: {undefined} of {attempted} are undefined{under}{why}"
            if still_open > limits.undefined * attempted:
                return f"decisions: {still_open} of {attempted} stayed open{under}"
            if with_score < limits.retention * attempted:
                flipped = int((status[c] == FLIPPED).sum())
                few = f"only {with_score} of {attempted} pairs have a score{under}"
                return (
                    f"retention of {limits.retention:g}: {few}; the prediction changed on {flipped}"
                )
        if with_score < limits.samples:
            return f"{limits.samples} samples with a score, has {with_score}{under}"
    return ""


def _what_would_pass(seen: Bound, more: int | None, wish: Requirement) -> str:
    if more is not None:
        return f"about {max(more, seen.n + 1)} samples, if the mean stays"
    gap = abs(seen.mean - wish.threshold)
    if not gap:
        return "more than the mean"
    return f"a mean at least {gap:.2g} {'higher' if wish.at_least else 'lower'}"


def _usual_bet(case: Case, scores: Estimate) -> Bet | None:
    """The bet on a case; None where the bound is that of the report.

    Means of bounded scores, and calibrated scores, are bet on. Rates have Clopper and Pearson's bound, which is exact
    already.
    """
    lowest, highest = case.span or (None, None)
    if lowest is None or highest is None:
        return None
    if case.arrays.groups is not None or bool(scores.is_rate.all()):
        return None

    values = case.sample_values
    order = order_of_bets(case.arrays.samples)
    if values is not None:
        return _bet_on_mean(case, values[:, order]) if is_complete(values) else None

    pairs = np.stack([side[case.measure][0] for side in (case.arrays.values, case.arrays.chance)])
    pairs = pairs[:, :, order]
    pairs = pairs[:, :, np.isfinite(pairs).all(0).any(0)]
    wish = case.requirement

    def bet(number: int) -> Bound:
        score, chance = _again_and_again(pairs, number)
        span = (float(lowest), float(highest))
        seen = bet_on_calibrated_mean(
            score, chance, span, case.condition_names, wish.confidence, wish.at_least
        )
        # No calibrated score is above that of a perfect map.
        is_loose = not wish.at_least and highest == 1 and seen.bound > 1
        return replace(seen, bound=1.0) if is_loose else seen

    return bet


def _strict_bet(case: Case) -> Bet:
    """The bet on a case, of groups by their means where samples have groups; what has none is an error."""
    values, span, wish = case.sample_values, case.span, case.requirement
    is_bounded = span is not None and None not in span
    if values is None or not is_bounded:
        why = f"{wish.measure} has no ends of its scale"
        if is_bounded:
            why = "a calibrated score is no mean of bounded scores"
        raise UserError(
            f"there is no strict bound, as {why}, in {wish}; leave out strict for the usual one"
        )
    groups = case.arrays.groups
    if groups is None:
        return _bet_on_mean(case, values[:, order_of_bets(case.arrays.samples)])
    means = [mean_of_finite(values[:, groups == group]) for group in np.unique(groups)]
    return _bet_on_mean(case, np.stack(means, 1))


def _bet_on_mean(case: Case, values: Array) -> Bet:
    """The bet on the mean of bounded values (C, N)."""
    assert case.span is not None
    lowest, highest = case.span
    assert lowest is not None
    assert highest is not None
    wish = case.requirement
    scored = values[:, np.isfinite(values).any(0)]

    def bet(number: int) -> Bound:
        rows = _again_and_again(scored, number)
        span = (lowest, highest)
        return bet_on_mean(rows, span, case.condition_names, wish.confidence, wish.at_least)

    return bet


def _again_and_again(rows: Array, number: int) -> Array:
    """So many samples, those of (…, N) repeated in turn; all as they are for `ALL`."""
    samples = rows.shape[-1]
    if number == ALL or not samples:
        return rows
    return rows[..., np.arange(number) % samples]


def _commonest_reason(arrays: ScoreArrays, condition: Condition) -> str:
    """Why most maps of the one explainer of a arrays are undefined under a condition, in parentheses."""
    reasons = arrays.undefined_reasons
    if reasons.empty:
        return ""
    name, level = condition
    is_own = (reasons["explainer"] == arrays.explainers[0]) & (reasons["condition"] == name)
    own = reasons[is_own & (reasons["level"] == level)]
    if own.empty:
        return ""
    return f" ({own.sort_values('count').iloc[-1]['reason']})"
