"""The axes of the bench, by the name that a study file uses."""

from holdfast.evaluations.certificate import Certificate
from holdfast.evaluations.stability import Stability

EVALUATIONS = {"stability": Stability, "certificate": Certificate}

__all__ = ["EVALUATIONS", "Certificate", "Stability"]
