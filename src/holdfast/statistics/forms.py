"""Which of its forms a score is taken in: aligned and calibrated where the table has both, calibrated, or raw."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.statistics.bootstrap import calibrate, mean_of_finite
from holdfast.statistics.cubes import Array, Cube

Form = Literal["best", "raw"]

CONTROLS = ("random", "sobel")
IDENTITY = "identity"


def is_control(explainer: str) -> bool:
    """Whether an explainer is one of the controls, which do not look at the model.

    >>> is_control("sobel"), is_control("random(seed=1)"), is_control("randomised_smoothing")
    (True, True, False)
    """
    return explainer.split("(", maxsplit=1)[0] in CONTROLS


def best_columns(cube: Cube, measure: str, form: Form) -> list[tuple[NDArray[np.bool_], str, str | None]]:
    """Which conditions use which (score, chance) measures: a partition of the conditions."""
    left = np.ones(len(cube.conditions), dtype=bool)
    chosen: list[tuple[NDArray[np.bool_], str, str | None]] = []
    if form == "best":
        for score, chance in ((f"{measure}_aligned", f"{measure}_aligned_chance"), (measure, f"{measure}_chance")):
            if score in cube.values and chance in cube.values:
                here = left & (np.isfinite(cube.values[score]) & np.isfinite(cube.values[chance])).any((0, 2))
                chosen.append((here, score, chance))
                left &= ~here
    return [*chosen, (left, measure, None)]


def sample_scores(cube: Cube, measure: str, form: Form) -> Array:
    """Scores (E, C, N) in the form asked for, calibrated by each explainer's mean chance under each condition."""
    scores = np.full(cube.status.shape, np.nan)
    for here, score, chance in best_columns(cube, measure, form):
        scores[:, here] = cube.values[score][:, here]
        if chance is not None:
            by = np.broadcast_to(mean_of_finite(cube.values[chance][:, here])[..., None], scores[:, here].shape)
            scores[:, here] = calibrate(scores[:, here], by)
    return scores
