"""holdfast: does the explanation hold?

Public names are loaded when they are first used, so that `import holdfast` and `holdfast --help` are instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast import boolean, bounds, explainers, features, masks, perturbations, similarity, statistics
    from holdfast.certificates import certify
    from holdfast.data import Data, open_data
    from holdfast.errors import UserError
    from holdfast.evaluations import Certificate, Stability
    from holdfast.explainers import (
        DeepLift,
        GradCAM,
        GradientShap,
        GuidedBackprop,
        InputXGradient,
        IntegratedGradients,
        KernelShap,
        Lime,
        Mfaba,
        Occlusion,
        RandomMap,
        Rise,
        Saliency,
        SmoothGrad,
        SmoothGradSquared,
        SobelEdges,
        VarGrad,
    )
    from holdfast.models import Model
    from holdfast.run import Run, evaluate, read
    from holdfast.smoothed import Smoothed, accuracy_curve
    from holdfast.types import Batch
    from holdfast.zoo import load_model

_HOME = {
    "Batch": "types",
    "Certificate": "evaluations",
    "Data": "data",
    "DeepLift": "explainers",
    "GradCAM": "explainers",
    "GradientShap": "explainers",
    "GuidedBackprop": "explainers",
    "InputXGradient": "explainers",
    "IntegratedGradients": "explainers",
    "KernelShap": "explainers",
    "Lime": "explainers",
    "Mfaba": "explainers",
    "Model": "models",
    "Occlusion": "explainers",
    "RandomMap": "explainers",
    "Rise": "explainers",
    "Run": "run",
    "Saliency": "explainers",
    "SmoothGrad": "explainers",
    "SmoothGradSquared": "explainers",
    "Smoothed": "smoothed",
    "SobelEdges": "explainers",
    "Stability": "evaluations",
    "UserError": "errors",
    "VarGrad": "explainers",
    "accuracy_curve": "smoothed",
    "certify": "certificates",
    "evaluate": "run",
    "load_model": "zoo",
    "open_data": "data",
    "read": "run",
}
_ROOMS = ("boolean", "bounds", "explainers", "features", "masks", "perturbations", "similarity", "statistics")

__all__ = [
    "Batch",
    "Certificate",
    "Data",
    "DeepLift",
    "GradCAM",
    "GradientShap",
    "GuidedBackprop",
    "InputXGradient",
    "IntegratedGradients",
    "KernelShap",
    "Lime",
    "Mfaba",
    "Model",
    "Occlusion",
    "RandomMap",
    "Rise",
    "Run",
    "Saliency",
    "SmoothGrad",
    "SmoothGradSquared",
    "Smoothed",
    "SobelEdges",
    "Stability",
    "UserError",
    "VarGrad",
    "accuracy_curve",
    "boolean",
    "bounds",
    "certify",
    "evaluate",
    "explainers",
    "features",
    "load_model",
    "masks",
    "open_data",
    "perturbations",
    "read",
    "similarity",
    "statistics",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"holdfast.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"holdfast.{_HOME[name]}"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
