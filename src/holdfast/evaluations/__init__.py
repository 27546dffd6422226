"""The axes of the bench, by the name that a study file uses."""

from holdfast.evaluations.certificate import Certificate
from holdfast.evaluations.faithfulness import Faithfulness
from holdfast.evaluations.smoothing import Smoothing
from holdfast.evaluations.stability import Stability
from holdfast.evaluations.symmetry import Symmetry

EVALUATIONS = {
    "stability": Stability,
    "certificate": Certificate,
    "smoothing": Smoothing,
    "symmetry": Symmetry,
    "faithfulness": Faithfulness,
}

__all__ = ["EVALUATIONS", "Certificate", "Faithfulness", "Smoothing", "Stability", "Symmetry"]
