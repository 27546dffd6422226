"""Explainers of other libraries by name, for study files: a fixed list of methods with checked parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field

from heatproof.errors import resolve
from heatproof.explainers.adapters.attributions import Attributor, Captum, PytorchGradCam, Zennit
from heatproof.explainers.adapters.foreign import library
from heatproof.explainers.adapters.shapley import Shap
from heatproof.explainers.baselines import REFERENCES, Baseline
from heatproof.explainers.gradient import Quadrature
from heatproof.types import parameter_class

Count = Annotated[int, Field(ge=1)]
Size = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Background = Literal["references"] | Annotated[float, Field(allow_inf_nan=False)]

_ZERO_BASELINE = {"baseline": (Baseline, 0.0)}
_REFERENCE_BASELINE = {"baseline": (Baseline, REFERENCES)}
_COMPOSITE = {"attributor": (Attributor, "gradient"), "merge_batch_norm": (bool, True)}
_CAM = {"layer": (str | None, None), "eigen_smooth": (bool, False), "aug_smooth": (bool, False)}
_CAMS = (
    "GradCAM",
    "GradCAMPlusPlus",
    "HiResCAM",
    "LayerCAM",
    "XGradCAM",
    "ScoreCAM",
    "AblationCAM",
    "EigenCAM",
    "EigenGradCAM",
    "RandomCAM",
)
_COMPOSITES = (
    "epsilon_plus",
    "epsilon_plus_flat",
    "epsilon_alpha2_beta1",
    "epsilon_alpha2_beta1_flat",
    "guided_backprop",
    "deconvnet",
    "excitation_backprop",
)
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "captum": {
        "InputXGradient": {},
        "GuidedBackprop": {},
        "Deconvolution": {},
        "LRP": {},
        "LayerGradCam": {"layer": (str,)},
        "GuidedGradCam": {"layer": (str,)},
        "Saliency": {"abs": (bool, True)},
        "IntegratedGradients": {
            "n_steps": (Count, 50),
            "method": (Quadrature, "gausslegendre"),
            **_ZERO_BASELINE,
        },
        "DeepLift": _ZERO_BASELINE,
        "DeepLiftShap": _REFERENCE_BASELINE,
        "GradientShap": {"n_samples": (Count, 5), "stdevs": (Size, 0.0), **_REFERENCE_BASELINE},
    },
    "zennit": dict.fromkeys(_COMPOSITES, _COMPOSITE),
    "pytorch_grad_cam": dict.fromkeys(_CAMS, _CAM),
    "shap": {
        "gradient": {"nsamples": (Count, 200), "background": (Background, REFERENCES)},
        "deep": {"background": (Background, REFERENCES)},
        "partition": {"max_evals": (Count, 500), "background": (Background, 0.0)},
        "tree": {},
    },
}
"""library → method → parameter → (type, default), or (type,) for a required parameter."""
ADAPTER_PARAMETERS = ("layer", "baseline", "background", "attributor", "merge_batch_norm")
"""Parameters of the adapters; all others are arguments of the library's call."""
EXTRAS = {"pytorch_grad_cam": "grad-cam"}
"""The extra of heatproof that installs a library, if it has another name."""


def _parameter_class(library_name: str, method: str, parameters: Mapping[str, Any]) -> Any:
    """Return a frozen dataclass called like the method, whose fields are the parameters with their types."""
    extra = EXTRAS.get(library_name, library_name)
    annotations = {}
    body: dict[str, Any] = {"__doc__": f'needs pip install "heatproof[{extra}]"'}
    for name, (kind, *default) in parameters.items():
        annotations[name] = kind
        if default:
            body[name] = default[0]
    body["__annotations__"] = annotations
    return parameter_class(type(method, (), body))


LIBRARIES = {
    library_name: {
        method: _parameter_class(library_name, method, parameters)
        for method, parameters in methods.items()
    }
    for library_name, methods in METHODS.items()
}
"""library → method → dataclass of its parameters."""


def by_library(library_name: str, spec: Any) -> Any:
    """Return the explainer of a library that `spec` names: a method, or {method: parameters}.

    >>> by_library("captum", {"IntegratedGradients": {"n_steps": 20}}).arguments
    {'n_steps': 20}
    >>> by_library("captum", {"IntegratedGradients": {"steps": 20}})
    Traceback (most recent call last):
    heatproof.errors.BadParameter: IntegratedGradients has no parameter 'steps'; did you mean 'n_steps'? ...
    """
    chosen = resolve(f"method of {library_name}", LIBRARIES[library_name], spec, lambda _: False)
    method = type(chosen).__name__
    library(library_name, EXTRAS.get(library_name, library_name))
    parameters = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
    # Arguments at their defaults, which are the library's own, are left out of its call.
    arguments = {}
    for field in fields(chosen):
        value = parameters[field.name]
        if field.name not in ADAPTER_PARAMETERS and value != field.default:
            arguments[field.name] = value

    if library_name == "captum":
        layer, baseline = parameters.get("layer"), parameters.get("baseline")
        return Captum(method, arguments or None, layer, baseline=baseline)
    if library_name == "pytorch_grad_cam":
        return PytorchGradCam(method, parameters["layer"], arguments=arguments or None)
    if library_name == "shap":
        background = parameters.get("background", 0.0)
        return Shap(method, background, arguments or None)  # type: ignore[arg-type]
    merge_batch_norm = library("zennit.canonizers", "zennit").SequentialMergeBatchNorm
    composite = library("zennit.composites", "zennit").COMPOSITES[method]
    canonizers = [merge_batch_norm()] if parameters["merge_batch_norm"] else []
    return Zennit(composite(canonizers=canonizers), parameters["attributor"])
