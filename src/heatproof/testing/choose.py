"""Which rows of a table a requirement is about, and an error that names the nearest ones where it is about none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

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
    """The places of the requirement's measure that it is about: every explainer but controls, unless it names some.

    `axes` has the axis of each evaluation, and `kinds` the name by which a study file asks for it. Nothing to be about
    is an error.
    """
    chosen = _measured(_on_axis(places, requirement, kinds), requirement, axes)
    patterns = dict(requirement.where)
    for key in [key for key in patterns if key not in FIELDS]:
        named = sorted(set(chosen["condition"]))
        if key not in named:
            raise UserError(f"{unknown('key', key, [*FIELDS, *named])}, in {requirement}")
        if "condition" in patterns:
            raise UserError(
                f"{key}={patterns[key]} names a condition and its level, so leave out condition=, in {requirement}"
            )
        patterns |= {"condition": key, "level": patterns.pop(key)}
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


def each(requirement: Requirement) -> bool:
    """Whether every condition, or level, is judged by itself."""
    return EACH in (requirement.chosen("condition"), requirement.chosen("level"))


def no_readout(requirement: Requirement) -> UserError:
    """The error for a readout that the table does not have."""
    what = f"{requirement.axis}.{requirement.measure} has no {requirement.readout.replace('_', ' ')} value in this run"
    return UserError(f"{what}; leave out the readout for the mean, in {requirement}")


def _on_axis(
    places: pd.DataFrame, requirement: Requirement, kinds: Mapping[str, str]
) -> pd.DataFrame:
    present = list(dict.fromkeys(places["evaluation"]))
    if not present:
        raise UserError("the run has no scores to check")
    meant = [e for e in present if e == requirement.axis] or [
        e for e in present if kinds.get(e) == requirement.axis
    ]
    if not meant:
        raise UserError(
            f"{unknown('axis', requirement.axis, {*present, *kinds.values()})}, in {requirement}"
        )
    return places[places["evaluation"].isin(meant)]


def _measured(
    places: pd.DataFrame, requirement: Requirement, axes: Mapping[str, Axis]
) -> pd.DataFrame:
    """The places of the measure that is asked for; shares are of every measure that is no diagnostic."""
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
    try:
        wanted = [float(part) for part in level.split("|")]
    except ValueError as error:
        raise UserError(f"a level is a number, got {level!r} in {requirement}") from error
    near = [
        any(math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-12) for y in wanted)
        for x in chosen["level"]
    ]
    if not any(near):
        levels = ", ".join(f"{x:g}" for x in sorted(set(chosen["level"])))
        raise UserError(f"there is no level {level}; there are {levels}, in {requirement}")
    return chosen[near]


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
