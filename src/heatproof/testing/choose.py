"""Find the scores of a run that a requirement is about; if there are none, the error names the nearest ones.

A table of all scores has a row per dataset, model, evaluation, explainer, role, measure, condition, order and level.
"""

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
    """Return the rows of `places` that a requirement is about; if there are none, raise an error.

    `places` lists which scores a run has: a row per dataset, model, evaluation, explainer, measure, condition and level.
    A requirement such as "stability.fass{condition=blur} >= 0.4" names the evaluation and the measure, and may choose
    among the rest by patterns. Controls are left out unless they are named as explainers. `axes` has the axis of each
    evaluation, and `kinds` the name of the axis under which each evaluation stands in the study file.
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
    """Return the pattern of each column that a requirement restricts: dataset, model, condition, level or explainer.

    Besides these names, a key may be a condition of the run: {jpeg=40} means {condition=jpeg, level=40}.
    """
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
    """Return the rows of the evaluation that a requirement names: by the evaluation's own label, else by its axis."""
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
    """Return the rows of the requirement's measure.

    Shares of pairs, such as retention, are not measures with rows of their own: they are counted over the rows of all
    measures but diagnostics.
    """
    if requirement.measure in SHARES:
        is_diagnostic = np.zeros(len(places), dtype=bool)
        for evaluation in places["evaluation"].unique():
            diagnostics = axes[evaluation].of_role("diagnostic")
            is_diagnostic |= (places["evaluation"] == evaluation) & places["measure"].isin(
                diagnostics
            )
        return places[~is_diagnostic]
    chosen = places[places["measure"] == requirement.measure]
    if chosen.empty:
        known = {*places["measure"], *SHARES}
        error = unknown(f"measure of {requirement.axis}", requirement.measure, known)
        raise UserError(f"{error}, in {requirement}")
    return chosen


def _filtered(
    chosen: pd.DataFrame, key: str, pattern: str, requirement: Requirement
) -> pd.DataFrame:
    """Return the rows whose column `key` matches a pattern such as "grad*" or "lime|shap"; an error if there are none.

    Controls among the explainers are matched by their full name only, so that "*" means all methods.
    """
    names = list(dict.fromkeys(chosen[key]))
    matching = [name for name in names if matches(pattern, name)]
    if key == "explainer":
        controls = set(chosen.loc[chosen["role"] == CONTROL, key])
        # The pattern without wildcards matches a control only where it was written out.
        literal = "|".join(filter(None, re.split(r"[*?|]", pattern)))
        matching = [name for name in matching if name not in controls or matches(literal, name)]
    if not matching:
        raise UserError(f"{unknown(key, pattern, names)}, in {requirement}")
    return chosen[chosen[key].isin(matching)]


def _at_level(chosen: pd.DataFrame, level: str, requirement: Requirement) -> pd.DataFrame:
    """Return the rows at a level such as "40", or at one of several, "40|60"; an error if there are none."""
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
    """Raise an error if a requirement would average removal curves of opposite orders.

    Removing the most important features first should hurt the prediction and removing the least important first should
    not, so the mean of both says nothing.
    """
    evaluation = str(chosen["evaluation"].iloc[0])
    measure = axes[evaluation].measure(requirement.measure)
    is_curve = measure is not None and measure.role == "curve"
    orders = chosen["order"].replace("", None).nunique()
    if is_curve and orders > 1 and not each(requirement):
        conditions = _listing(f"'{name}'" for name in chosen["condition"])
        raise UserError(
            f"{requirement} would average opposite orders of removal; name one condition of {conditions}"
        )


def _listing(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))
