"""Scores on the scale on which 0 is chance and 1 is perfect: (value − chance) / (1 − chance)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.statistics.bootstrap import calibrate, mean_of_finite
from heatproof.statistics.cubes import Array, Cube

Form = Literal["best", "raw"]
"""The best form of a score is calibrated where the measure has a chance level; the raw form is its value."""


def calibrated_conditions(cube: Cube, measure: str, form: Form = "best") -> NDArray[np.bool_]:
    """Return under which conditions (C,) a measure is calibrated: those where some pair has a value and a chance."""
    if form == "raw" or not cube.is_calibrated(measure):
        return np.zeros(len(cube.conditions), dtype=bool)
    has_both = np.isfinite(cube.values[measure]) & np.isfinite(cube.chance[measure])
    return np.asarray(has_both.any((0, 2)))


def pair_scores(cube: Cube, measure: str) -> Array:
    """Return one score per pair (E, C, N), calibrated by its own chance level where it has one."""
    values = cube.values[measure]
    if not cube.is_calibrated(measure):
        return values
    calibrated = calibrate(values, cube.chance[measure])
    return np.where(np.isfinite(calibrated), calibrated, values)


def sample_scores(cube: Cube, measure: str, form: Form = "best") -> Array:
    """Return scores (E, C, N), calibrated by each explainer's mean chance level under each condition."""
    scores = cube.values[measure].copy()
    here = calibrated_conditions(cube, measure, form)
    if here.any():
        mean_chance = mean_of_finite(cube.chance[measure][:, here])[..., None]
        chance = np.broadcast_to(mean_chance, scores[:, here].shape)
        scores[:, here] = calibrate(scores[:, here], chance)
    return scores


def with_best(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `statistics.summary` with `best`, `best_low` and `best_high`: calibrated where possible."""
    rows = summary.copy()
    for edge in ("", "_low", "_high"):
        raw = rows[edge[1:] or "mean"]
        calibrated = rows[f"calibrated{edge}"]
        rows[f"best{edge}"] = calibrated.where(rows["calibrated"].notna(), raw)
    return rows
