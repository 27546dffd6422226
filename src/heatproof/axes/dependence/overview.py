"""What one evaluation of dependence says of every explainer: scores, verdicts, and what describes its maps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heatproof.axes.dependence.evaluation import CLASS_DEPENDENCE, DEPENDENCE, WEIGHTS
from heatproof.axes.dependence.verdicts import verdicts
from heatproof.evaluation import CLEAN, Condition
from heatproof.results.arrays import ScoreArrays
from heatproof.results.axis_result import AxisResult
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.estimates import interval


def overview(result: AxisResult) -> pd.DataFrame:
    """Return one row per explainer: score, verdict, what they rest on, and what describes its maps.

    `least` and `most` are the lowest and the highest mean over samples of one random network; `class_score` with
    `class_low`, `class_high` and `class_verdict` are those for other classes. `floor` is the mean change between two
    draws of the same map, and `above_floor` with its interval the score less that, sample by sample.
    """
    if "overview" not in result.cache:
        result.cache["overview"] = _overview(result)
    table: pd.DataFrame = result.cache["overview"]
    return table


def _overview(result: AxisResult) -> pd.DataFrame:
    """Return the table of `overview`."""
    arrays = result.arrays
    table = verdicts(arrays).set_index("explainer")
    other_class = verdicts(arrays, CLASS_DEPENDENCE).set_index("explainer")
    other_class = other_class[["score", "low", "high", "verdict"]].add_prefix("class_")
    table = table.join(other_class)

    network_means = means_by_network(result).groupby(level="explainer", observed=True)
    table["least"] = network_means.min().reindex(table.index)
    table["most"] = network_means.max().reindex(table.index)

    rows = [arrays.explainers.index(name) for name in table.index]
    scores = values_of(arrays, DEPENDENCE, WEIGHTS)[rows]
    noise_floor = arrays.noise_floor(DEPENDENCE)
    floor = np.full(scores.shape, np.nan) if noise_floor is None else noise_floor[rows]
    table["floor"] = mean_of_finite(floor)
    table["above_floor"] = mean_of_finite(scores - floor)
    table["above_floor_low"], table["above_floor_high"] = interval(scores - floor)

    similarity_chance = _under(arrays, arrays.chance.get("similarity"), WEIGHTS)
    table["similarity_chance"] = mean_of_finite(similarity_chance)[rows]
    for measure in ("similarity", "entropy_rise"):
        table[measure] = mean_of_finite(values_of(arrays, measure, WEIGHTS))[rows]
    for measure in ("gini", "entropy", "completeness_gap", "passes"):
        table[measure] = mean_of_finite(values_of(arrays, measure, CLEAN))[rows]
    return table.reset_index()


def means_by_network(result: AxisResult) -> pd.Series:
    """Return the mean dependence over samples of every explainer and random network (`repeat`)."""
    rows = result.rows
    is_score = (rows["measure"] == DEPENDENCE) & (rows["status"] == "ok")
    by_network = rows[is_score].groupby(["explainer", "repeat"], observed=True)
    means: pd.Series = by_network["value"].mean()
    return means


def values_of(arrays: ScoreArrays, measure: str, condition: Condition) -> Array:
    """Return (explainers, samples) of a measure under a condition, NaN where it was not measured."""
    return _under(arrays, arrays.values.get(measure), condition)


def _under(arrays: ScoreArrays, values: Array | None, condition: Condition) -> Array:
    """Return one condition of values (explainers, conditions, samples), NaN where there is none."""
    if values is None or condition not in arrays.conditions:
        return np.full((len(arrays.explainers), len(arrays.samples)), np.nan)
    return values[:, arrays.conditions.index(condition)]


def number_of_networks(result: AxisResult) -> int:
    """Return under how many random networks maps were compared."""
    return int(result.rows.loc[result.rows["measure"] == DEPENDENCE, "repeat"].nunique())
