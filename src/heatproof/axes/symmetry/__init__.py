"""Symmetry: does the explanation respect the symmetries of the model?"""

from heatproof.axes.symmetry.evaluation import MEASURES, Symmetry
from heatproof.axes.symmetry.scores import (
    equivariance,
    invariance,
    layer_symmetry,
    max_sensitivity,
    model_invariance,
)
from heatproof.axis import Axis

__all__ = [
    "equivariance",
    "invariance",
    "layer_symmetry",
    "max_sensitivity",
    "model_invariance",
]

AXIS = Axis(
    name="symmetry",
    title="Symmetry",
    question="does the explanation respect the symmetries of the model?",
    heading="Follows the symmetry?",
    verb="respects the symmetry better than",
    best="respects the symmetry best",
    describe_change=lambda *_: "moved, at its worst",
    evaluation=Symmetry,
    measures=MEASURES,
    report="heatproof.axes.symmetry.report",
    trial={
        "invariant image": {"group": {"dihedral": {"n": 4}}, "sensitivity": 0.02},
        "invariant set": {"group": "permutation", "elements": 4},
    },
    blind_spots={"equivariance": ("blurred", "wrong class", "sign flipped", "edge filter")},
)
