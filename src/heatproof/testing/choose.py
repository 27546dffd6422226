"""Which rows of a table a requirement is about, and an error that names the nearest ones where it is about none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from heatproof.axes import Axis
from heatproof.errors import UserError, unknown
from heatproof.results.arrays import CONTROL
from heatproof.testing.requirement import EACH, SHARES, Requirement
from heatproof.types import matches

FIELDS = ("dataset", "model", "condition", "level", "explainer")


def choose(
    places: pd.DataFrame,
    requirement: Requirement,
    axes: Mapping[str, Axis],
    kinds: Mapping[str, str],
) -> pd.DataFrame:
    """Return the places that a requirement is about: of every explainer but controls, unless it names some.

    `axes` has the axis of each evaluation, and `kinds` the name by which a study file asks for it. A requirement about
    nothing in the run is an error.
    """
    chosen = _measured(_on_axis(places, requirement, kinds), requirement, axes)
    patterns = _patterns(requirement, sorted(set(chosen["condition"])))
    for key in ("dataset", "model", "condition", "explainer"):
        pattern = patterns.get(key)
        if pattern is not None and pattern != EACH:
            chosen = _filtered(chosen, key, pattern, requirement)
        elif key == "explainer":
            chosen = chosen[chosen["role"] != CONTROL]
            if chosen.empty:
                raise UserError(
                    f"only controls were judged for {requirement}; name one with {{explainer=…}}"
                )
    if patterns.get("level", EACH) != EACH:
        chosen = _at_level(chosen, patterns["level"], requirement)
    _refuse_opposites(chosen, requirement, axes)
    return chosen


def _patterns(requirement: Requirement, conditions: Sequence[str]) -> dict[str, str]:
    """Return the patterns by the columns of `FIELDS`; `jpeg=40` is short for a condition and its level."""
    patterns: dict[str, str] = {}
    for key, pattern in requirement.where:
        if key in FIELDS:
            patterns[key] = pattern
    for key, pattern in requirement.where:
        if key in FIELDS:
            continue
        if key not in conditions:
            raise UserError(f"{unknown('key', key, [*FIELDS, *conditions])}, in {requirement}")
        if "condition" in patterns:
            raise UserError(
                f"{key}={pattern} names a condition and its level, so leave out condition=, in {requirement}"
            )
        patterns |= {"condition": key, "level": pattern}
    return patterns


def each(requirement: Requirement) -> bool:
    """Return whether every condition, or level, is judged by itself."""
    return EACH in (requirement.chosen("condition"), requirement.chosen("level"))


def no_readout(requirement: Requirement) -> UserError:
    """Return the error for a readout that the table does not have."""
    what = f"{requirement.axis}.{requirement.measure} has no {requirement.readout.replace('_', ' ')} value in this run"
    return UserError(f"{what}; leave out the readout for the mean, in {requirement}")


def _on_axis(
    places: pd.DataFrame, requirement: Requirement, kinds: Mapping[str, str]
) -> pd.DataFrame:
    """Return the places of the evaluation that a requirement names by its label, else by its axis."""
    evaluations = list(dict.fromkeys(places["evaluation"]))
    if not evaluations:
        raise UserError("the run has no scores to check")
    if requirement.axis in evaluations:
        return places[places["evaluation"] == requirement.axis]
    of_axis = [name for name in evaluations if kinds.get(name) == requirement.axis]
    if not of_axis:
        error = unknown("axis", requirement.axis, {*evaluations, *kinds.values()})
        raise UserError(f"{error}, in {requirement}")
    return places[places["evaluation"].isin(of_axis)]


def _measured(
    places: pd.DataFrame, requirement: Requirement, axes: Mapping[str, Axis]
) -> pd.DataFrame:
    """Return the places of the measure; shares are of every measure that is no diagnostic."""
    if requirement.measure in SHARES:
        diagnostics = {
            (evaluation, name)
            for evaluation in places["evaluation"].unique()
            for name in axes[evaluation].of_role("diagnostic")
        }
        named = zip(places["evaluation"], places["measure"], strict=True)
        return places[[pair not in diagnostics for pair in named]]
    chosen = places[places["measure"] == requirement.measure]
    if chosen.empty:
        known = {*places["measure"], *SHARES}
        error = unknown(f"measure of {requirement.axis}", requirement.measure, known)
        raise UserError(f"{error}, in {requirement}")
    return chosen


def _filtered(
    chosen: pd.DataFrame, key: str, pattern: str, requirement: Requirement
) -> pd.DataFrame:
    named = list(dict.fromkeys(chosen[key]))
    meant = [name for name in named if matches(pattern, name)]
    if key == "explainer":  # a glob is after methods; a control is judged when it is named
        literal = "|".join(filter(None, re.split(r"[*?|]", pattern)))
        controls = set(chosen.loc[chosen["role"] == CONTROL, key])
        meant = [name for name in meant if name not in controls or matches(literal, name)]
    if not meant:
        raise UserError(f"{unknown(key, pattern, named)}, in {requirement}")
    return chosen[chosen[key].isin(meant)]


def _at_level(chosen: pd.DataFrame, level: str, requirement: Requirement) -> pd.DataFrame:
    """Return the places at a level, or at one of several by |."""
    try:
        levels = [float(text) for text in level.split("|")]
    except ValueError as error:
        raise UserError(f"a level is a number, got {level!r} in {requirement}") from error
    is_at_level = np.zeros(len(chosen), dtype=bool)
    for number in levels:
        is_at_level |= np.isclose(chosen["level"], number, rtol=1e-9, atol=1e-12)
    if not is_at_level.any():
        measured = ", ".join(f"{number:g}" for number in sorted(set(chosen["level"])))
        raise UserError(f"there is no level {level}; there are {measured}, in {requirement}")
    return chosen[is_at_level]


def _refuse_opposites(
    chosen: pd.DataFrame, requirement: Requirement, axes: Mapping[str, Axis]
) -> None:
    """Removing the most important first should hurt and the least important first should not; their mean is nothing."""
    measure = axes[str(chosen["evaluation"].iloc[0])].measure(requirement.measure)
    curve = measure is not None and measure.role == "curve"
    if curve and not each(requirement) and chosen["order"].replace("", None).nunique() > 1:
        named = _listing(f"'{name}'" for name in chosen["condition"])
        raise UserError(
            f"{requirement} would average opposite orders of removal; name one condition of {named}"
        )


def _listing(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))
