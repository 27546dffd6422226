"""What page, words and findings of dependence read from its results: one row per explainer, computed once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from holdfast.axes.contract import Judged
from holdfast.axes.dependence.evaluation import CLEAN, WEIGHTS
from holdfast.axes.dependence.verdicts import judged_explainers
from holdfast.statistics.bootstrap import mean_of_finite
from holdfast.statistics.cubes import Array, Cube
from holdfast.statistics.estimates import interval

DESCRIBED = ("gini", "entropy", "completeness_gap", "passes")


def overview(judged: Judged) -> pd.DataFrame:
    """explainer, control, score, low, high, verdict, and beside them what they rest on and what describes the map.

    `least` and `most` are the lowest and the highest mean over samples of one random network; `class_score` with
    `class_low`, `class_high` and `class_verdict` are those for other classes, `floor` is the mean change between two
    draws of the same map, `apart` with `apart_low` and `apart_high` the score less that, sample by sample.
    """
    if "overview" not in judged.computed:
        judged.computed["overview"] = _overview(judged)
    made: pd.DataFrame = judged.computed["overview"]
    return made


def _overview(judged: Judged) -> pd.DataFrame:
    cube = judged.cube
    table = judged_explainers(cube).set_index("explainer")
    other = judged_explainers(cube, "class_dependence").set_index("explainer")
    for name in ("score", "low", "high", "verdict"):
        table[f"class_{name}"] = other[name].reindex(table.index)
    rows = judged.rows[(judged.rows["measure"] == "dependence") & (judged.rows["condition"] == WEIGHTS)]
    draws = rows[rows["status"] == "ok"].groupby(["explainer", "repeat"], observed=True)["value"].mean()
    by_draw = draws.groupby(level=0, observed=True)
    table["least"], table["most"] = by_draw.min().reindex(table.index), by_draw.max().reindex(table.index)
    places = [cube.explainers.index(name) for name in table.index]
    floor = cube.floor.get("dependence", np.full((len(cube.explainers), len(cube.samples)), np.nan))[places]
    apart = values_of(cube, "dependence", WEIGHTS)[places] - floor
    table["floor"], table["apart"] = mean_of_finite(floor), mean_of_finite(apart)
    table["apart_low"], table["apart_high"] = interval(apart)
    for name in ("similarity", "similarity_chance", "entropy_rise"):
        table[name] = mean_of_finite(values_of(cube, name, WEIGHTS))[places]
    for name in DESCRIBED:
        table[name] = mean_of_finite(values_of(cube, name, CLEAN))[places]
    return table.reset_index()


def values_of(cube: Cube, measure: str, condition: str) -> Array:
    """(explainers, samples) of a measure under a condition, NaN where it was not measured."""
    nothing = np.full((len(cube.explainers), len(cube.samples)), np.nan)
    there = (condition, 0.0) in cube.conditions and measure in cube.values
    return cube.values[measure][:, cube.conditions.index((condition, 0.0))] if there else nothing
