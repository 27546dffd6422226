"""Explainers and metrics of other libraries, and maps that were computed elsewhere.

>>> from heatproof.explainers import adapters
>>> adapters.captum("IntegratedGradients", {"n_steps": 20}).stochastic
False
"""

from heatproof.explainers.adapters.attributions import Captum, PytorchGradCam, Quantus, Zennit
from heatproof.explainers.adapters.isolation import library_seed
from heatproof.explainers.adapters.maps import Precomputed
from heatproof.explainers.adapters.quantus_metrics import QuantusMetric
from heatproof.explainers.adapters.shapley import Shap

captum = Captum
grad_cam = PytorchGradCam
precomputed = Precomputed
quantus = Quantus
shap = Shap
zennit = Zennit

__all__ = [
    "Captum",
    "Precomputed",
    "PytorchGradCam",
    "Quantus",
    "QuantusMetric",
    "Shap",
    "Zennit",
    "captum",
    "grad_cam",
    "library_seed",
    "precomputed",
    "quantus",
    "shap",
    "zennit",
]
