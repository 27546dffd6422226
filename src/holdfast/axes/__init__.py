"""The axes of the bench, by the name that a study file uses."""

from holdfast.axes.certificate.evaluation import Certificate
from holdfast.axes.certificate.smoothing import Smoothing
from holdfast.axes.faithfulness.evaluation import Faithfulness
from holdfast.axes.stability.evaluation import Stability
from holdfast.axes.symmetry.evaluation import Symmetry

EVALUATIONS = {
    "stability": Stability,
    "certificate": Certificate,
    "smoothing": Smoothing,
    "symmetry": Symmetry,
    "faithfulness": Faithfulness,
}

__all__ = ["EVALUATIONS", "Certificate", "Faithfulness", "Smoothing", "Stability", "Symmetry"]
