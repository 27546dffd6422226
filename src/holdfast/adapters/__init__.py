"""Other people's explainers as explainers here, and measures in both directions between holdfast and Quantus.

>>> from holdfast import adapters
>>> adapters.captum("IntegratedGradients", {"n_steps": 20}).stochastic
False
"""

from holdfast.adapters.attributions import Captum, PytorchGradCam, Quantus, Zennit
from holdfast.adapters.isolation import library_seed
from holdfast.adapters.maps import Precomputed
from holdfast.adapters.quantus_metrics import QuantusMetric, QuantusStyle
from holdfast.adapters.shapley import Shap

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
