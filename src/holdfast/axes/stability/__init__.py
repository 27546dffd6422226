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
            "fass", "FASS", "weighted mean of the others; tables have no ssim", "higher", "headline", UNIT, "column"
        ),
        Measure(
            "ssim", "SSIM", "structural similarity of maps scaled to [0, 1]", "higher", "component", UNIT, "column"
        ),
        Measure("spearman", "Spearman", "rank correlation ρ, as (ρ + 1) / 2", "higher", "component", UNIT, "column"),
        Measure("jaccard", "Jaccard", "overlap of the k largest values", "higher", "component", UNIT, "column"),
    ),
    separable="perturbations",
    page="holdfast.axes.stability.page",
    findings="holdfast.axes.stability.findings",
    figures="holdfast.axes.stability.figures",
    condition=title,
)
AXES = (AXIS,)
