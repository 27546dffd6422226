"""The axes of the bench, by the name that a study file uses."""

from holdfast.evaluations.stability import Stability

EVALUATIONS = {"stability": Stability}

__all__ = ["EVALUATIONS", "Stability"]
