"""Symmetry: does the explanation respect the symmetries of the model?"""

from holdfast.axes.contract import Axis
from holdfast.axes.symmetry.evaluation import BACK, CONVERGENCE, MEASURES, SYMMETRISED, Symmetry
from holdfast.axes.symmetry.scores import equivariance, invariance, layer_symmetry, max_sensitivity, model_invariance
from holdfast.axes.symmetry.symmetrised import Symmetrised

__all__ = ["AXES", "equivariance", "invariance", "layer_symmetry", "max_sensitivity", "model_invariance"]

AXIS = Axis(
    name="symmetry",
    title="Symmetry",
    question="does the explanation respect the symmetries of the model?",
    verb="respects the symmetry better than",
    evaluation=Symmetry,
    measures=MEASURES,
    page="holdfast.axes.symmetry.page",
    findings="holdfast.axes.symmetry.findings",
    figures="holdfast.axes.symmetry.figures",
    explainers=(Symmetrised,),
    aside=frozenset({SYMMETRISED, CONVERGENCE, BACK}),
    trial={
        "invariant image": {"group": {"dihedral": {"n": 4}}, "sensitivity": 0.02},
        "invariant set": {"group": "permutation", "elements": 4},
    },
    unable={"equivariance": ("blurred", "wrong class", "sign turned", "Sobel")},
)
AXES = (AXIS,)
