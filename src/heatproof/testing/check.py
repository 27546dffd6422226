"""Check a finished run against requirements: the confidence bound of every explainer, and what it needs to pass.

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
    """Return whether each explainer of a finished run meets each requirement, an `Outcome` for each pair of them.

    An explainer passes if the one-sided confidence bound of its score does; it fails if there are too few samples or
    scores to say so (see `Limits`). A requirement that names no condition is about the mean over all conditions, after
    averaging over the levels of each. One that matches nothing in the run is an error.
    """
    parsed = parse_all(requirements)
    gaps = missing(run.path)
    if gaps:
        raise UserError(f"{run.path} is not finished: {missing_in_words(gaps)}")

    places = read_places(run.path)
    axes = {}
    for name, of_evaluation in places.groupby("evaluation", sort=False):
        axes[str(name)] = axis_of(str(name), run.manifest, of_evaluation["measure"].unique())
    evaluations = run.manifest.study.evaluations.items()
    kinds = {name: entry.name for name, entry in evaluations if entry.name}

    # First only which scores there are, so that wrong names are errors before any score is read.
    chosen = [(requirement, choose(places, requirement, axes, kinds)) for requirement in parsed]
    needed: set[str] = set()
    for requirement, rows in chosen:
        needed |= _measures_needed(requirement, rows, axes)
    table = read_scores(run.path, compact=True, measures=needed)
    evidence = (run.manifest, run.samples(), run.references())

    outcomes = []
    for requirement, rows in chosen:
        cases = list(_cases(requirement, rows, axes, table, evidence))
        if not cases:
            raise no_readout(requirement)
        outcomes += [_outcome(case, limits or Limits()) for case in cases]
    return outcomes


def _measures_needed(
    requirement: Requirement, chosen: pd.DataFrame, axes: Mapping[str, Axis]
) -> set[str]:
    """Return the measures whose scores must be read to check a requirement.

    A requirement on a share of pairs, such as retention, has no scores of its own: the status of the pairs is read from
    the headline measures of its evaluations, or from all measures where none of these was measured.
    """
    if requirement.measure not in SHARES:
        return {requirement.measure}
    measured = set(chosen["measure"])
    headlines: set[str] = set()
    for evaluation in chosen["evaluation"].unique():
        headlines |= set(axes[evaluation].of_role("headline"))
    measured_headlines = headlines & measured
    return measured_headlines or measured


def _cases(
    requirement: Requirement,
    chosen: pd.DataFrame,
    axes: Mapping[str, Axis],
    table: pd.DataFrame,
    evidence: tuple[Manifest, pd.DataFrame, pd.DataFrame],
) -> Iterator[Case]:
    """Yield what a requirement is checked for one by one: each explainer on each model and data set.

    An explainer is checked once, by its mean over conditions, or with `condition=each` once per condition. `chosen` has
    a row for each dataset, model, evaluation, explainer, condition and level that the requirement is about, and `table`
    the scores of the run. Conditions without the number in question, such as a chance level, are left out.
    """
    measures = _measures_needed(requirement, chosen, axes)
    keys = ["dataset", "model", "evaluation"]
    for (dataset, model, evaluation), rows in chosen.groupby(keys, sort=False):
        axis = axes[str(evaluation)]
        is_needed = table["measure"].isin(measures) & table["explainer"].isin(rows["explainer"])
        is_needed &= (table["dataset"] == dataset) & (table["model"] == model)
        is_needed &= table["evaluation"] == evaluation
        # Rows of one data set, model and evaluation make exactly one set of arrays.
        (arrays,) = arrays_of_run(table[is_needed], *evidence)

        chosen_conditions = set(
            zip(rows["explainer"], rows["condition"], rows["level"], strict=True)
        )
        for explainer in arrays.explainers:
            scores = arrays.select(explainers=[explainer])
            measure = requirement.measure
            if measure in SHARES:
                measure = _measure_with_status(scores, axis)
            usable: list[Condition] = []
            for condition in scores.conditions:
                is_chosen = (explainer, *condition) in chosen_conditions
                if is_chosen and _has_readout(scores, condition, measure, requirement):
                    usable.append(condition)
            if not usable:
                continue
            if each(requirement):
                for condition in usable:
                    one_condition = scores.select(conditions=[condition])
                    yield Case(requirement, axis, one_condition, measure)
            else:
                yield Case(requirement, axis, scores.select(conditions=usable), measure)


def _measure_with_status(arrays: ScoreArrays, axis: Axis) -> str:
    """Return the measure from which the status of pairs (scored, flipped, undefined, …) is read: the first headline."""
    return next(iter(axis.headlines(arrays)), arrays.measures[-1])


def _has_readout(
    arrays: ScoreArrays, condition: Condition, measure: str, requirement: Requirement
) -> bool:
    """Return whether an explainer has the number that a requirement is about, under one condition.

    The number is the mean, the chance level or the calibrated mean, by the requirement's readout. `arrays` are the scores
    of that explainer alone.
    """
    c = arrays.conditions.index(condition)
    if measure not in arrays.has_rows or not arrays.has_rows[measure][0, c]:
        return False
    if requirement.readout == "chance":
        return measure in arrays.chance
    if requirement.readout == "calibrated":
        return arrays.is_calibrated(measure)
    return True


def _outcome(case: Case, limits: Limits) -> Outcome:
    """Return whether one explainer meets one requirement, with its bound and what it would need to pass."""
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
    """Return the confidence bound of an explainer's score, and what it would need to pass; "" if it passes.

    The bound is by betting (Waudby-Smith & Ramdas 2024) where scores are bounded, else that of the report.
    """
    requirement = case.requirement
    scores = case.scores
    bet = _strict_bet(case) if limits.strict else _usual_bet(case, scores)
    if bet is None:
        seen = bound_mean(
            scores, case.condition_names, requirement.confidence, requirement.at_least
        )
    else:
        seen = bet(ALL)

    too_little = _too_little_evidence(case, scores, limits)
    if too_little:
        return seen, too_little
    if requirement.holds(seen.bound):
        return seen, ""
    if bet is None:
        overall = scores.nested(case.condition_names)
        samples = samples_needed(
            overall, requirement.threshold, requirement.confidence, requirement.at_least
        )
    else:
        samples = samples_needed_to_bet(bet, seen, requirement.threshold, requirement.at_least)
    return seen, _what_would_pass(seen, samples, requirement)


def _too_little_evidence(case: Case, scores: Estimate, limits: Limits) -> str:
    """Return which limit on the evidence a case does not meet under one of its conditions; "" if it meets all.

    The limits are on undefined maps, on open decisions, on pairs without a score, and on the number of samples.
    """
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


def _what_would_pass(seen: Bound, samples: int | None, requirement: Requirement) -> str:
    """Return what would make a failed requirement pass: more samples, or a better mean where none are enough.

    `samples` is how many are needed with the mean as it is, None where no number is enough.
    """
    if samples is not None:
        return f"about {max(samples, seen.n + 1)} samples, if the mean stays"
    gap = abs(seen.mean - requirement.threshold)
    if not gap:
        return "more than the mean"
    direction = "higher" if requirement.at_least else "lower"
    return f"a mean at least {gap:.2g} {direction}"


def _usual_bet(case: Case, scores: Estimate) -> Bet | None:
    """Return a function that bounds the mean of an explainer by betting, given a number of samples; None if it has none.

    Bounded scores and calibrated scores are bounded by betting. Others have the bound of the report: unbounded scores,
    grouped samples, incomplete scores, and rates, for which the bound of Clopper and Pearson is exact already.
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

    # Calibrated scores: the score and the chance level of each sample, (2, conditions, samples).
    score_and_chance = np.stack(
        [case.arrays.values[case.measure][0], case.arrays.chance[case.measure][0]]
    )
    score_and_chance = score_and_chance[:, :, order]
    # Samples that have both under some condition.
    has_both = np.isfinite(score_and_chance).all(0).any(0)
    score_and_chance = score_and_chance[:, :, has_both]
    requirement = case.requirement

    def bet(number: int) -> Bound:
        """Return the bound from so many samples; `ALL` takes those of the run once."""
        score, chance = _repeated(score_and_chance, number)
        span = (float(lowest), float(highest))
        seen = bet_on_calibrated_mean(
            score,
            chance,
            span,
            case.condition_names,
            requirement.confidence,
            requirement.at_least,
        )
        # No calibrated score is above that of a perfect map.
        is_loose = not requirement.at_least and highest == 1 and seen.bound > 1
        return replace(seen, bound=1.0) if is_loose else seen

    return bet


def _strict_bet(case: Case) -> Bet:
    """Return a function that bounds the mean by betting, which holds for any scores within the ends of their scale.

    Grouped samples are replaced by the means of their groups, which are independent. A measure without ends and a
    calibrated score have no such bound, which is an error.
    """
    values, span, requirement = case.sample_values, case.span, case.requirement
    is_bounded = span is not None and None not in span
    if values is None or not is_bounded:
        why = f"{requirement.measure} has no ends of its scale"
        if is_bounded:
            why = "a calibrated score is no mean of bounded scores"
        raise UserError(
            f"there is no strict bound, as {why}, in {requirement}; leave out strict for the usual one"
        )
    groups = case.arrays.groups
    if groups is None:
        return _bet_on_mean(case, values[:, order_of_bets(case.arrays.samples)])
    means = [mean_of_finite(values[:, groups == group]) for group in np.unique(groups)]
    return _bet_on_mean(case, np.stack(means, 1))


def _bet_on_mean(case: Case, values: Array) -> Bet:
    """Return a function that bounds the mean of bounded values (conditions, samples), given a number of samples.

    More samples than there are (to say how many a requirement needs) are the same ones again.
    """
    assert case.span is not None
    lowest, highest = case.span
    assert lowest is not None
    assert highest is not None
    requirement = case.requirement
    has_value = np.isfinite(values).any(0)
    scored = values[:, has_value]

    def bet(number: int) -> Bound:
        """Return the bound from so many samples; `ALL` takes those of the run once."""
        return bet_on_mean(
            _repeated(scored, number),
            (lowest, highest),
            case.condition_names,
            requirement.confidence,
            requirement.at_least,
        )

    return bet


def _repeated(values: Array, number: int) -> Array:
    """Return values of `number` samples (…, number), those of (…, N) repeated in turn; unchanged for `ALL`."""
    samples = values.shape[-1]
    if number == ALL or not samples:
        return values
    return values[..., np.arange(number) % samples]


def _commonest_reason(arrays: ScoreArrays, condition: Condition) -> str:
    """Return in parentheses why most undefined maps under a condition are undefined; "" where no reason is recorded.

    `arrays` are the scores of one explainer alone.
    """
    reasons = arrays.undefined_reasons
    if reasons.empty:
        return ""
    name, level = condition
    is_of_case = reasons["explainer"] == arrays.explainers[0]
    is_of_case &= (reasons["condition"] == name) & (reasons["level"] == level)
    reasons = reasons[is_of_case]
    if reasons.empty:
        return ""
    commonest = reasons.sort_values("count").iloc[-1]
    return f" ({commonest['reason']})"
