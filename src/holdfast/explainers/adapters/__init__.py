"""Other people's explainers as explainers here, and measures in both directions between holdfast and Quantus.

>>> from holdfast.explainers import adapters
>>> adapters.captum("IntegratedGradients", {"n_steps": 20}).stochastic
False
"""

from holdfast.explainers.adapters.attributions import Captum, PytorchGradCam, Quantus, Zennit
from holdfast.explainers.adapters.isolation import library_seed
from holdfast.explainers.adapters.maps import Precomputed
from holdfast.explainers.adapters.shapley import Shap
from holdfast.runs.quantus import QuantusMetric, QuantusStyle

captum = Captum
grad_cam = PytorchGradCam
precomputed = Precomputed
quantus = Quantus
quantus_metric = QuantusStyle
shap = Shap
zennit = Zennit

__all__ = [
    "Captum",
    "Precomputed",
    "PytorchGradCam",
    "Quantus",
    "QuantusMetric",
    "QuantusStyle",
    "Shap",
    "Zennit",
    "captum",
    "grad_cam",
    "library_seed",
    "precomputed",
    "quantus",
    "quantus_metric",
    "shap",
    "zennit",
]
