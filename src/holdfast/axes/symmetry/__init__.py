"""Symmetry: does the explanation respect the symmetries of the model?"""

from holdfast.axes.contract import Axis, Measure
from holdfast.axes.symmetry.evaluation import SYMMETRISED, Symmetry
from holdfast.axes.symmetry.scores import equivariance, invariance, layer_symmetry, max_sensitivity, model_invariance
from holdfast.axes.symmetry.symmetrised import Symmetrised

__all__ = ["AXES", "equivariance", "invariance", "layer_symmetry", "max_sensitivity", "model_invariance"]

AXIS = Axis(
    name="symmetry",
    title="Symmetry",
    question="does the explanation respect the symmetries of the model?",
    verb="respects the symmetry better than",
    evaluation=Symmetry,
    measures=(
        Measure(
            "equivariance",
            "equivariance",
            "how a feature map moves with its input, 1 is exactly",
            "higher",
            "headline",
            chance="column",
        ),
        Measure(
            "invariance",
            "invariance",
            "how little examples or concepts change, 1 is not at all",
            "higher",
            "headline",
            chance="column",
        ),
        Measure("max_sensitivity", "max sensitivity", "largest relative change in a small ball", "lower", "component"),
        Measure("model_invariance", "model invariance", "cosine of probabilities on moved inputs", "neither", "model"),
        Measure(
            "model_agreement",
            "model agreement",
            "share of moved inputs with the same top class",
            "neither",
            "model",
            (0.0, 1.0),
        ),
        Measure(
            "layer_invariance_error", "layer invariance error", "how far a layer is from invariant", "lower", "model"
        ),
        Measure(
            "layer_equivariance_error",
            "layer equivariance error",
            "how far a layer is from equivariant",
            "lower",
            "model",
        ),
    ),
    page="holdfast.axes.symmetry.page",
    findings="holdfast.axes.symmetry.findings",
    figures="holdfast.axes.symmetry.figures",
    explainers=(Symmetrised,),
    aside=frozenset({SYMMETRISED}),
)
AXES = (AXIS,)
