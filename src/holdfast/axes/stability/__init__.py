"""Stability (FASS): does the map survive a perturbation that leaves the prediction unchanged?"""

from holdfast.axes.contract import Axis, Measure
from holdfast.axes.stability.evaluation import Stability
from holdfast.axes.stability.perturbations import title

UNIT = (0.0, 1.0)

AXIS = Axis(
    name="stability",
    title="Stability",
    question="does the map survive a perturbation that leaves the prediction unchanged?",
    verb="holds better than",
    evaluation=Stability,
    measures=(
        Measure(
            "fass",
            "FASS",
            "weighted mean of ssim, spearman and jaccard; of tables, which have no ssim, of the other two",
            "higher",
            "headline",
            UNIT,
            "column",
        ),
        Measure(
            "ssim",
            "SSIM",
            "structural similarity of the maps, each scaled to [0, 1]; 11 × 11 windows, of series 11 steps",
            "higher",
            "component",
            UNIT,
            "column",
        ),
        Measure(
            "spearman",
            "Spearman",
            "rank correlation ρ of all values, as (ρ + 1) / 2",
            "higher",
            "component",
            UNIT,
            "column",
        ),
        Measure(
            "jaccard",
            "Jaccard",
            "overlap of the places with the k largest values",
            "higher",
            "component",
            UNIT,
            "column",
        ),
    ),
    separable="perturbations",
    page="holdfast.axes.stability.page",
    findings="holdfast.axes.stability.findings",
    figures="holdfast.axes.stability.figures",
    condition=title,
)
AXES = (AXIS,)
