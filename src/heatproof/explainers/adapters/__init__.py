"""Explainers and metrics of other libraries, and maps that were computed elsewhere.

An adapter is imported when it is first used.

>>> from heatproof.explainers import adapters
>>> adapters.captum("IntegratedGradients", {"n_steps": 20}).stochastic
False
"""

from typing import TYPE_CHECKING, Any

from heatproof.lazy import LazyRegistry

if TYPE_CHECKING:
    from heatproof.explainers.adapters.attributions import Captum, PytorchGradCam, Quantus, Zennit
    from heatproof.explainers.adapters.isolation import library_seed
    from heatproof.explainers.adapters.maps import MapFunction, Precomputed
    from heatproof.explainers.adapters.quantus_metrics import QuantusMetric
    from heatproof.explainers.adapters.shapley import Shap

    captum = Captum
    function = MapFunction
    grad_cam = PytorchGradCam
    precomputed = Precomputed
    quantus = Quantus
    shap = Shap
    zennit = Zennit

__all__ = [
    "ADAPTERS",
    "LIBRARY_NAMES",
    "Captum",
    "MapFunction",
    "Precomputed",
    "PytorchGradCam",
    "Quantus",
    "QuantusMetric",
    "Shap",
    "Zennit",
    "captum",
    "function",
    "grad_cam",
    "library_seed",
    "precomputed",
    "quantus",
    "shap",
    "zennit",
]

ADAPTERS = LazyRegistry(
    {
        "captum": "heatproof.explainers.adapters.attributions:Captum",
        "function": "heatproof.explainers.adapters.maps:MapFunction",
        "grad_cam": "heatproof.explainers.adapters.attributions:PytorchGradCam",
        "library_seed": "heatproof.explainers.adapters.isolation:library_seed",
        "precomputed": "heatproof.explainers.adapters.maps:Precomputed",
        "quantus": "heatproof.explainers.adapters.attributions:Quantus",
        "quantus_metric": "heatproof.explainers.adapters.quantus_metrics:QuantusMetric",
        "shap": "heatproof.explainers.adapters.shapley:Shap",
        "zennit": "heatproof.explainers.adapters.attributions:Zennit",
    }
)
LIBRARY_NAMES = ("captum", "zennit", "pytorch_grad_cam", "shap")
"""The libraries whose methods a study file may name; `named.METHODS` has the methods."""


def __getattr__(name: str) -> Any:
    """Import an adapter, by its name or by that of its class."""
    if name in ADAPTERS:
        return ADAPTERS[name]
    return ADAPTERS.by_class_name(__name__, name)
