"""A run held against requirements: every explainer's bound, or the reason why there is none to trust."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof import rand
from heatproof.axes import Axis, arrange, axis_of
from heatproof.errors import UserError
from heatproof.evaluation import OK, REDRAW, UNDEFINED, Span
from heatproof.runs.run import Run
from heatproof.runs.tables import read_places, read_scores
from heatproof.runs.verify import missing
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.bounds_of_means import (
    Bound,
    bet_on_calibrated,
    bet_on_mean,
    bound_mean,
    is_complete,
    samples_needed,
    samples_needed_to_bet,
)
from heatproof.statistics.cubes import SUFFIXES, Array, Cube
from heatproof.statistics.estimates import Estimate, calibrated, column, estimates, of_means
from heatproof.testing.choose import choose, each, no_readout
from heatproof.testing.requirement import SHARES, Requirement, parse_all

UNIT = (0.0, 1.0)
ALL = -1
"""Bet on the samples that were seen, once each."""
FORMS: dict[str, tuple[set[str], ...]] = {
    "mean": ({""},),
    "calibrated": ({"", "_chance"}, {"_aligned", "_aligned_chance"}),
    "unaligned_calibrated": ({"", "_chance"},),
    "aligned": ({"_aligned"},),
    "chance": ({"_chance"},),
}
"""What each readout is made of; any one of the sets will do."""


@dataclass(frozen=True)
class Limits:
    """What a number must rest on before it is believed, under every condition that it is a mean of.

    `samples` with a score, the share `retention` of attempted pairs that has one, and at most the share `undefined`
    of maps that cannot be compared. A `strict` bound holds for any scores within the ends of their scale, which the
    usual one does not where a failure is rare and nothing hints at it; it needs more samples.
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
        raise UserError(
            f"{run.path} is not finished: {len(gaps)} parts are missing, the first is {gaps[0]}"
        )
    places = read_places(run.path)
    measured = {
        str(name): own["measure"].unique() for name, own in places.groupby("evaluation", sort=False)
    }
    axes = {name: axis_of(name, run.manifest, measures) for name, measures in measured.items()}
    evaluations = run.manifest["study"]["evaluations"].items()
    kinds = {name: str(facts["name"]) for name, facts in evaluations if "name" in facts}
    chosen = [(wish, choose(places, wish, axes, kinds)) for wish in wishes]
    wanted = {measure for wish, here in chosen for measure in _needed(wish, here, axes)}
    rows = read_scores(run.path, compact=True, measures=wanted)
    samples = run.samples()
    bounds = limits or Limits()
    return [
        o
        for wish, here in chosen
        for o in _judged(rows, here, wish, axes, bounds, run.manifest, samples)
    ]


def _needed(wish: Requirement, chosen: pd.DataFrame, axes: Mapping[str, Axis]) -> set[str]:
    """The measures whose rows a requirement is about; for shares those that decide about a pair."""
    measured = set(chosen["measure"])
    headlines = {
        name
        for evaluation in chosen["evaluation"].unique()
        for name in axes[evaluation].of_role("headline")
    }
    return (headlines & measured or measured) if wish.measure in SHARES else {wish.measure}


def _judged(
    rows: pd.DataFrame,
    chosen: pd.DataFrame,
    wish: Requirement,
    axes: Mapping[str, Axis],
    limits: Limits,
    manifest: Mapping[str, Any],
    samples: pd.DataFrame,
) -> Iterator[Outcome]:
    shares = wish.measure in SHARES
    judged = False
    measures = [
        measure + suffix for measure in _needed(wish, chosen, axes) for suffix in ("", *SUFFIXES)
    ]
    for (dataset, model, evaluation), here in chosen.groupby(
        ["dataset", "model", "evaluation"], sort=False
    ):
        axis = axes[str(evaluation)]
        asked_for = (
            (rows["dataset"] == dataset)
            & (rows["model"] == model)
            & (rows["evaluation"] == evaluation)
        )
        asked_for &= rows["measure"].isin(measures) & rows["explainer"].isin(here["explainer"])
        (cube,) = arrange(rows[asked_for], manifest, samples)
        wanted = set(zip(here["explainer"], here["condition"], here["level"], strict=True))
        for e, explainer in enumerate(cube.explainers):
            measure = wish.measure
            if shares:  # by the measure whose status is that of the pairs, as `arrange` chooses it
                measure = next(
                    iter(axis.headlines(cube.select(explainers=[explainer]))), cube.measures[-1]
                )
            if wish.readout == "noise_floor":
                groups = (
                    [[-1]] if measure in cube.floor and (explainer, REDRAW, 0.0) in wanted else []
                )
            else:
                asked = [
                    k for k, place in enumerate(cube.conditions) if (explainer, *place) in wanted
                ]
                usable = [k for k in asked if _has(cube, measure, wish.readout, e, k)]
                groups = [[k] for k in usable] if each(wish) else [usable] if usable else []
            for group in groups:
                judged = True
                condition = axis.condition(*cube.conditions[group[0]]) if each(wish) else ""
                seen, need = _verdict(cube, e, group, measure, wish, axis, limits)
                place = (str(dataset), str(model), str(evaluation), explainer, condition)
                yield Outcome(wish, *place, not need, seen, need)
    if not judged:
        raise no_readout(wish)


def _has(cube: Cube, measure: str, readout: str, e: int, k: int) -> bool:
    """Whether the table has rows of what a readout is made of."""
    asked = {
        form
        for form in ("", *SUFFIXES)
        if measure + form in cube.asked and cube.asked[measure + form][e, k]
    }
    return any(form <= asked for form in FORMS[readout])


def _scores(
    cube: Cube, e: int, group: list[int], measure: str, wish: Requirement
) -> tuple[Estimate, Array | None, NDArray[np.int8]]:
    """The scores (C,) with their errors, those of single samples (C, N) where they are plain, and all statuses."""
    if wish.readout == "noise_floor":
        values = cube.floor[measure][e][None]
        status = np.where(np.isfinite(values), OK, UNDEFINED).astype(np.int8)
        return of_means(values, cube.span(measure), cube.groups), values, status
    status = cube.status[e][group]
    if wish.measure in SHARES:
        code = SHARES.index(wish.measure)
        values = np.where(status < 0, np.nan, (status == code).astype(np.float64))
        return of_means(values, UNIT, cube.groups, rate=True), values, status
    if wish.readout in ("mean", "aligned", "chance"):
        name = measure if wish.readout == "mean" else f"{measure}_{wish.readout}"
        return column(cube, name, e=e)[group], cube.values[name][e][group], status
    if wish.readout == "calibrated":
        return estimates(cube, measure, e=e)[group], None, status
    return (
        calibrated(column(cube, measure, e=e), column(cube, f"{measure}_chance", e=e))[group],
        None,
        status,
    )


def _verdict(
    cube: Cube,
    e: int,
    group: list[int],
    measure: str,
    wish: Requirement,
    axis: Axis,
    limits: Limits,
) -> tuple[Bound, str]:
    """The bound and what would be needed to pass, empty where nothing is."""
    scores, values, status = _scores(cube, e, group, measure, wish)
    names = [cube.conditions[k][0] for k in group] if group[0] >= 0 else [REDRAW]
    span = UNIT if wish.measure in SHARES else cube.span(measure)
    if limits.strict:
        bet: Callable[[int], Bound] | None = _strict_bet(cube, values, span, names, wish)
    else:
        bet = _usual_bet(cube, e, group, measure, wish, scores, values, names)
    seen = bet(ALL) if bet else bound_mean(scores, names, wish.confidence, wish.at_least)
    places = [axis.condition(*cube.conditions[k]) for k in group] if group[0] >= 0 else [REDRAW]
    for row, place in enumerate(places):
        count = int(scores[row].n)
        attempted = int((status[row] >= 0).sum())
        under = "" if len(places) == 1 else f" under {place}"
        if wish.measure not in SHARES:
            lost = int((status[row] == UNDEFINED).sum())
            if attempted and lost > limits.undefined * attempted:
                why = _commonest_reason(cube, e, group[row])
                return seen, f"defined maps: {lost} of {attempted} are undefined{under}{why}"
            if count < limits.retention * attempted:
                kept = f"only {count} of {attempted} pairs kept their prediction{under}"
                return seen, f"retention of {limits.retention:g}: {kept}"
        if count < limits.samples:
            return seen, f"{limits.samples} samples with a score, has {count}{under}"
    if wish.holds(seen.bound):
        return seen, ""
    if bet is None:
        overall = scores.nested(names)
        more = samples_needed(overall, wish.threshold, wish.confidence, wish.at_least)
    else:
        more = samples_needed_to_bet(bet, seen, wish.threshold, wish.at_least)
    return seen, _what_would_pass(seen, more, wish)


def _what_would_pass(seen: Bound, more: int | None, wish: Requirement) -> str:
    if more is not None:
        return f"about {max(more, seen.n + 1)} samples, if the mean stays"
    gap = abs(seen.mean - wish.threshold)
    if not gap:
        return "more than the mean"
    return f"a mean {gap:.2g} {'higher' if wish.at_least else 'lower'} at the least"


def _usual_bet(
    cube: Cube,
    e: int,
    group: list[int],
    measure: str,
    wish: Requirement,
    scores: Estimate,
    values: Array | None,
    names: list[str],
) -> Callable[[int], Bound] | None:
    """The bet on so many samples, those of the run again and again; None where the bound is that of the report.

    Means of bounded scores, and calibrated scores under one condition, are bet on. Rates have Clopper and Pearson's
    bound, which is exact already.
    """
    lowest, highest = cube.span(measure) or (None, None)
    is_bounded = lowest is not None and highest is not None
    if cube.groups is not None or not is_bounded or bool(scores.rate.all()):
        return None
    ends = (float(lowest or 0.0), float(highest or 0.0))
    order = _order_of_bets(cube)
    if values is not None and is_complete(values):
        return _bet_on_mean(values[:, order], ends, names, wish)
    columns = _calibrated_columns(cube, measure, wish.readout)
    if len(group) == 1 and columns is not None:
        pairs = np.stack([cube.values[name][e, group[0]][order] for name in columns])
        pairs = pairs[:, np.isfinite(pairs).all(0)]

        def bet(number: int) -> Bound:
            score, chance = _again_and_again(pairs, number)
            return bet_on_calibrated(score, chance, ends, wish.confidence, wish.at_least)

        return bet
    return None


def _bet_on_mean(
    values: Array, ends: tuple[float, float], names: list[str], wish: Requirement
) -> Callable[[int], Bound]:
    scored = values[:, np.isfinite(values).any(0)]

    def bet(number: int) -> Bound:
        rows = _again_and_again(scored, number)
        return bet_on_mean(rows, ends, names, wish.confidence, wish.at_least)

    return bet


def _again_and_again(rows: Array, number: int) -> Array:
    """So many columns, those of (K, N) repeated in turn; all as they are for `ALL`."""
    if number == ALL or not rows.shape[1]:
        return rows
    return rows[:, np.arange(number) % rows.shape[1]]


def _calibrated_columns(cube: Cube, measure: str, readout: str) -> tuple[str, str] | None:
    """The names of score and chance behind a calibrated readout; None for the other readouts."""
    aligned = (f"{measure}_aligned", f"{measure}_aligned_chance")
    unaligned = (measure, f"{measure}_chance")
    if readout == "unaligned_calibrated":
        return unaligned
    if readout != "calibrated":
        return None
    return aligned if set(aligned) <= set(cube.values) else unaligned


def _strict_bet(
    cube: Cube, values: Array | None, span: Span | None, names: list[str], wish: Requirement
) -> Callable[[int], Bound]:
    """The bet on so many samples, of groups by their means where samples have groups; what has none is an error."""
    if values is None or span is None or span[0] is None or span[1] is None:
        bounded = span is not None and None not in span
        why = (
            "a calibrated score is no mean of bounded scores"
            if bounded
            else f"{wish.measure} has no ends of its scale"
        )
        raise UserError(
            f"there is no strict bound, as {why}, in {wish}; leave out strict for the usual one"
        )
    if cube.groups is not None:
        values = np.stack(
            [mean_of_finite(values[:, cube.groups == g]) for g in np.unique(cube.groups)], 1
        )
    else:
        values = values[:, _order_of_bets(cube)]
    return _bet_on_mean(values, (span[0], span[1]), names, wish)


def _order_of_bets(cube: Cube) -> NDArray[np.int64]:
    """An order of the samples that depends on their names alone, as a bet depends on the order."""
    return np.asarray(rand.keys(0, cube.samples, "order of bets").argsort().numpy())


def _commonest_reason(cube: Cube, e: int, k: int) -> str:
    if k < 0 or cube.reasons.empty:
        return ""
    condition, level = cube.conditions[k]
    reasons = cube.reasons
    here = (reasons["explainer"] == cube.explainers[e]) & (reasons["condition"] == condition)
    own = reasons[here & (reasons["level"] == level)]
    return f" ({own.sort_values('count').iloc[-1]['reason']})" if len(own) else ""
