"""The FASS paper's figures: components by method, and tables of cells by method or architecture and perturbation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from holdfast.axes.material import Material, drawings
from holdfast.axes.stability.frames import Frames, frames
from holdfast.axes.stability.page import cell_plot, components_chart
from holdfast.axes.stability.tables import unchanged
from holdfast.drawing.charts import Chart
from holdfast.drawing.pieces import Piece, subjects

NO_STABILITY = "no stability rows: add `stability` to the study"
NO_SCORE = "no pair of maps was retained, so there is no score"


def frames_of(material: Material) -> list[tuple[Frames, str]]:
    """The statistics of every dataset and model, each with the words that tell it from the others."""
    every = [one for judged in material.of("stability") if (one := frames(judged)) is not None]
    return list(zip(every, subjects([one.cube for one in every]), strict=True))


def retained(every: Sequence[Frames]) -> pd.DataFrame:
    """The share of unchanged predictions per dataset, model, condition and level, in the order of the conditions."""
    blocks = []
    for one in every:
        held = unchanged(one.cells()).assign(dataset=one.cube.dataset, model=one.cube.model)
        position = {condition: i for i, condition in enumerate(one.cube.conditions)}
        order = [position[c] for c in zip(held["condition"], held["level"], strict=True)]
        blocks.append(held.iloc[np.argsort(order)])
    # two evaluations of one model may share a condition, whose predictions are then the same
    return pd.concat(blocks, ignore_index=True).drop_duplicates(["dataset", "model", "condition", "level"])


def method_maps(material: Material, width: float) -> Iterator[Piece]:
    """Methods by perturbations, the best method at the top, in the best available form of each score."""

    def chart(one: Frames) -> Chart | None:
        if one.cells()["best"].isna().all():
            return None
        kind = "Calibrated FASS" if one.calibrated else "FASS"
        caption = "0 is chance, 1 an unchanged map; grey cells have no score." if one.calibrated else ""
        return Chart("map", f"{kind} of every method under every perturbation", caption, "", [cell_plot(one)])

    every = [(one.judged, chart(one)) for one, _ in frames_of(material)]
    yield from drawings(every, NO_STABILITY, NO_SCORE)


def component_plots(material: Material, width: float) -> Iterator[Piece]:
    """SSIM, Spearman and Jaccard of every method side by side, with intervals."""
    every = [(one.judged, components_chart(one)) for one, _ in frames_of(material)]
    yield from drawings(every, NO_STABILITY, "no component has a score")
