"""holdfast: does the explanation hold?

Public names are loaded when they are first used, so that `import holdfast` and `holdfast --help` are instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast import (
        boolean,
        bounds,
        explainers,
        features,
        groups,
        information,
        masks,
        nets,
        perturbations,
        removal,
        similarity,
        statistics,
        symmetry,
    )
    from holdfast.certificates import (
        certify,
    )
    from holdfast.comparison import (
        Comparison,
        compare,
        leaderboard,
    )
    from holdfast.concepts import (
        Concept,
    )
    from holdfast.data import (
        Data,
        open_data,
    )
    from holdfast.errors import (
        UserError,
    )
    from holdfast.evaluations import (
        Certificate,
        Faithfulness,
        Smoothing,
        Stability,
        Symmetry,
    )
    from holdfast.examples import (
        Examples,
        open_examples,
    )
    from holdfast.explainers import (
        Car,
        Cav,
        DeepLift,
        FeatureAblation,
        FeaturePermutation,
        GradCAM,
        GradientShap,
        GuidedBackprop,
        Influence,
        InputXGradient,
        IntegratedGradients,
        KernelShap,
        Lime,
        Mfaba,
        Occlusion,
        RandomMap,
        RepresentationSimilarity,
        Rise,
        Saliency,
        SimplEx,
        SmoothGrad,
        SmoothGradSquared,
        SobelEdges,
        Symmetrised,
        TracIn,
        VarGrad,
    )
    from holdfast.explainers.symmetrised import (
        symmetrise,
        symmetrise_curve,
    )
    from holdfast.models import (
        Model,
    )
    from holdfast.retraining import (
        retrain,
    )
    from holdfast.run import (
        Run,
        evaluate,
        read,
    )
    from holdfast.smoothed import (
        Smoothed,
        accuracy_curve,
    )
    from holdfast.tabular import (
        from_sklearn,
    )
    from holdfast.types import (
        Batch,
    )
    from holdfast.zoo import (
        load_model,
    )

_HOME = {
    "Batch": "types",
    "Car": "explainers",
    "Cav": "explainers",
    "Certificate": "evaluations",
    "Comparison": "comparison",
    "Concept": "concepts",
    "Data": "data",
    "DeepLift": "explainers",
    "Examples": "examples",
    "Faithfulness": "evaluations",
    "FeatureAblation": "explainers",
    "FeaturePermutation": "explainers",
    "GradCAM": "explainers",
    "GradientShap": "explainers",
    "GuidedBackprop": "explainers",
    "Influence": "explainers",
    "InputXGradient": "explainers",
    "IntegratedGradients": "explainers",
    "KernelShap": "explainers",
    "Lime": "explainers",
    "Mfaba": "explainers",
    "Model": "models",
    "Occlusion": "explainers",
    "RandomMap": "explainers",
    "RepresentationSimilarity": "explainers",
    "Rise": "explainers",
    "Run": "run",
    "Saliency": "explainers",
    "SimplEx": "explainers",
    "SmoothGrad": "explainers",
    "SmoothGradSquared": "explainers",
    "Smoothed": "smoothed",
    "Smoothing": "evaluations",
    "SobelEdges": "explainers",
    "Stability": "evaluations",
    "Symmetrised": "explainers",
    "Symmetry": "evaluations",
    "TracIn": "explainers",
    "UserError": "errors",
    "VarGrad": "explainers",
    "accuracy_curve": "smoothed",
    "certify": "certificates",
    "compare": "comparison",
    "evaluate": "run",
    "from_sklearn": "tabular",
    "leaderboard": "comparison",
    "load_model": "zoo",
    "open_data": "data",
    "open_examples": "examples",
    "read": "run",
    "retrain": "retraining",
    "symmetrise": "explainers.symmetrised",
    "symmetrise_curve": "explainers.symmetrised",
}
_ROOMS = (
    "adapters",
    "boolean",
    "bounds",
    "explainers",
    "features",
    "groups",
    "information",
    "masks",
    "nets",
    "perturbations",
    "removal",
    "similarity",
    "statistics",
    "symmetry",
)

__all__ = [
    "Batch",
    "Car",
    "Cav",
    "Certificate",
    "Comparison",
    "Concept",
    "Data",
    "DeepLift",
    "Examples",
    "Faithfulness",
    "FeatureAblation",
    "FeaturePermutation",
    "GradCAM",
    "GradientShap",
    "GuidedBackprop",
    "Influence",
    "InputXGradient",
    "IntegratedGradients",
    "KernelShap",
    "Lime",
    "Mfaba",
    "Model",
    "Occlusion",
    "RandomMap",
    "RepresentationSimilarity",
    "Rise",
    "Run",
    "Saliency",
    "SimplEx",
    "SmoothGrad",
    "SmoothGradSquared",
    "Smoothed",
    "Smoothing",
    "SobelEdges",
    "Stability",
    "Symmetrised",
    "Symmetry",
    "TracIn",
    "UserError",
    "VarGrad",
    "accuracy_curve",
    "boolean",
    "bounds",
    "certify",
    "compare",
    "evaluate",
    "explainers",
    "features",
    "from_sklearn",
    "groups",
    "information",
    "leaderboard",
    "load_model",
    "masks",
    "nets",
    "open_data",
    "open_examples",
    "perturbations",
    "read",
    "removal",
    "retrain",
    "similarity",
    "statistics",
    "symmetrise",
    "symmetrise_curve",
    "symmetry",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"holdfast.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"holdfast.{_HOME[name]}"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
