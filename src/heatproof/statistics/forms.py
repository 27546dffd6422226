"""Forms of a score: aligned and calibrated where the table has both, else calibrated, else raw.

`FORMS` is the one place that says which form of a score is the best; everything that shows or compares scores asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.statistics.bootstrap import calibrate, mean_of_finite
from heatproof.statistics.cubes import Array, Cube

Form = Literal["best", "raw"]
FORMS = (
    ("_aligned", "_aligned_chance", "aligned, calibrated"),
    ("", "_chance", "calibrated"),
    ("", "", "raw"),
)
"""Suffix of the score, suffix of its chance level, and name of each form, the best first."""


def forms_of(
    measure: str, form: Form, exists: Callable[[str], bool]
) -> Iterator[tuple[str, str | None, str]]:
    """(score, chance or None, name of the form) of a measure in every form whose columns exist, the best first.

    >>> list(forms_of("depth", "best", lambda column: "aligned" not in column))
    [('depth', 'depth_chance', 'calibrated'), ('depth', None, 'raw')]
    """
    for score, chance, name in FORMS if form == "best" else FORMS[-1:]:
        if all(exists(measure + suffix) for suffix in {score, chance}):
            yield measure + score, measure + chance if chance else None, name


def pair_scores(columns: Mapping[str, Any], measure: str) -> NDArray[np.float64]:
    """One score per pair from its measures, arrays of one shape: the best form of one that has a number.

    >>> pair_scores({"fass": [0.8, 0.8], "fass_chance": [0.6, float("nan")]}, "fass").round(3).tolist()
    [0.5, 0.8]
    """
    scores = np.full(np.shape(columns[measure]), np.nan)
    for score, chance, _ in forms_of(measure, "best", columns.__contains__):
        value = np.asarray(columns[score], dtype=np.float64)
        if chance is not None:
            value = calibrate(value, np.asarray(columns[chance], dtype=np.float64))
        scores = np.where(np.isfinite(scores), scores, value)
    return scores


def best_columns(
    cube: Cube, measure: str, form: Form
) -> list[tuple[NDArray[np.bool_], str, str | None]]:
    """Which conditions use which (score, chance) measures: a partition of the conditions."""
    left = np.ones(len(cube.conditions), dtype=bool)
    chosen: list[tuple[NDArray[np.bool_], str, str | None]] = []
    for score, chance, _ in forms_of(measure, form, cube.values.__contains__):
        here = left.copy()
        if chance is not None:
            here &= (np.isfinite(cube.values[score]) & np.isfinite(cube.values[chance])).any((0, 2))
        chosen.append((here, score, chance))
        left &= ~here
    return chosen


def sample_scores(cube: Cube, measure: str, form: Form) -> Array:
    """Scores (E, C, N) in the form asked for, calibrated by each explainer's mean chance under each condition."""
    scores = np.full(cube.status.shape, np.nan)
    for here, score, chance in best_columns(cube, measure, form):
        scores[:, here] = cube.values[score][:, here]
        if chance is not None:
            by = np.broadcast_to(
                mean_of_finite(cube.values[chance][:, here])[..., None], scores[:, here].shape
            )
            scores[:, here] = calibrate(scores[:, here], by)
    return scores


def with_best(summary: pd.DataFrame) -> pd.DataFrame:
    """The rows of `statistics.summary` with the best form of each score as `best`, `best_low` and `best_high`."""
    rows = summary.copy()
    for edge in ("", "_low", "_high"):
        best = rows[edge[1:] or "mean"]
        for form in ("calibrated", "aligned_calibrated"):
            best = rows[form + edge].where(rows[form].notna(), best)
        rows[f"best{edge}"] = best
    return rows
