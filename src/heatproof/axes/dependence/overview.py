"""What one evaluation of dependence says of every explainer: scores, verdicts, and what describes its maps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heatproof.axes.contract import AxisResult
from heatproof.axes.dependence.evaluation import CLASS_DEPENDENCE, DEPENDENCE, WEIGHTS
from heatproof.axes.dependence.verdicts import verdicts
from heatproof.evaluation import CLEAN, Condition
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array, Cube
from heatproof.statistics.estimates import interval


def overview(result: AxisResult) -> pd.DataFrame:
    """Return one row per explainer: score, verdict, what they rest on, and what describes its maps.

    `least` and `most` are the lowest and the highest mean over samples of one random network; `class_score` with
    `class_low`, `class_high` and `class_verdict` are those for other classes. `floor` is the mean change between two
    draws of the same map, and `above_floor` with its interval the score less that, sample by sample.
    """
    if "overview" not in result.computed:
        result.computed["overview"] = _overview(result)
    table: pd.DataFrame = result.computed["overview"]
    return table


def _overview(result: AxisResult) -> pd.DataFrame:
    cube = result.cube
    table = verdicts(cube).set_index("explainer")
    other_class = verdicts(cube, CLASS_DEPENDENCE).set_index("explainer")
    other_class = other_class[["score", "low", "high", "verdict"]].add_prefix("class_")
    table = table.join(other_class)

    network_means = means_by_network(result).groupby(level="explainer", observed=True)
    table["least"] = network_means.min().reindex(table.index)
    table["most"] = network_means.max().reindex(table.index)

    rows = [cube.explainers.index(name) for name in table.index]
    scores = values_of(cube, DEPENDENCE, WEIGHTS)[rows]
    noise_floor = cube.noise_floor(DEPENDENCE)
    floor = np.full(scores.shape, np.nan) if noise_floor is None else noise_floor[rows]
    table["floor"] = mean_of_finite(floor)
    table["above_floor"] = mean_of_finite(scores - floor)
    table["above_floor_low"], table["above_floor_high"] = interval(scores - floor)

    similarity_chance = _under(cube, cube.chance.get("similarity"), WEIGHTS)
    table["similarity_chance"] = mean_of_finite(similarity_chance)[rows]
    for measure in ("similarity", "entropy_rise"):
        table[measure] = mean_of_finite(values_of(cube, measure, WEIGHTS))[rows]
    for measure in ("gini", "entropy", "completeness_gap", "passes"):
        table[measure] = mean_of_finite(values_of(cube, measure, CLEAN))[rows]
    return table.reset_index()


def means_by_network(result: AxisResult) -> pd.Series:
    """Return the mean dependence over samples of every explainer and random network (`repeat`)."""
    rows = result.rows
    is_score = (rows["measure"] == DEPENDENCE) & (rows["status"] == "ok")
    by_network = rows[is_score].groupby(["explainer", "repeat"], observed=True)
    means: pd.Series = by_network["value"].mean()
    return means


def values_of(cube: Cube, measure: str, condition: Condition) -> Array:
    """Return (explainers, samples) of a measure under a condition, NaN where it was not measured."""
    return _under(cube, cube.values.get(measure), condition)


def _under(cube: Cube, values: Array | None, condition: Condition) -> Array:
    """Return one condition of values (explainers, conditions, samples), NaN where there is none."""
    if values is None or condition not in cube.conditions:
        return np.full((len(cube.explainers), len(cube.samples)), np.nan)
    return values[:, cube.conditions.index(condition)]


def number_of_networks(result: AxisResult) -> int:
    """Return under how many random networks maps were compared."""
    return int(result.rows.loc[result.rows["measure"] == DEPENDENCE, "repeat"].nunique())
