"""Explainers of other libraries by name: a fixed list of their classes with checked parameters, which runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from heatproof.errors import resolve
from heatproof.explainers.adapters.attributions import Attributor, Captum, PytorchGradCam, Zennit
from heatproof.explainers.adapters.foreign import library
from heatproof.explainers.adapters.shapley import Shap
from heatproof.explainers.baselines import REFERENCES, Baseline
from heatproof.explainers.gradient import Quadrature
from heatproof.types import STRICT

Count = Annotated[int, Field(ge=1)]
Size = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Background = Literal["references"] | Annotated[float, Field(allow_inf_nan=False)]

_START, _DRAWN = {"baseline": (Baseline, 0.0)}, {"baseline": (Baseline, REFERENCES)}
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
)
_EPSILON = (
    "epsilon_plus",
    "epsilon_plus_flat",
    "epsilon_alpha2_beta1",
    "epsilon_alpha2_beta1_flat",
)
_COMPOSITES = (*_EPSILON, "guided_backprop", "deconvnet", "excitation_backprop")
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "captum": {
        **{name: {} for name in ("InputXGradient", "GuidedBackprop", "Deconvolution", "LRP")},
        **{name: {"layer": (str,)} for name in ("LayerGradCam", "GuidedGradCam")},
        "Saliency": {"abs": (bool, True)},
        "IntegratedGradients": {
            "n_steps": (Count, 50),
            "method": (Quadrature, "gausslegendre"),
            **_START,
        },
        "DeepLift": _START,
        "DeepLiftShap": _DRAWN,
        "GradientShap": {"n_samples": (Count, 5), "stdevs": (Size, 0.0), **_DRAWN},
    },
    "zennit": dict.fromkeys(_COMPOSITES, _COMPOSITE),
    "pytorch_grad_cam": dict.fromkeys((*_CAMS, "EigenGradCAM", "RandomCAM"), _CAM),
    "shap": {
        "gradient": {"nsamples": (Count, 200), "background": (Background, REFERENCES)},
        "deep": {"background": (Background, REFERENCES)},
        "partition": {"max_evals": (Count, 500), "background": (Background, 0.0)},
        "tree": {},
    },
}
"""library -> method -> parameter -> (type, default); a type alone is of one that must be given."""
OWN = ("layer", "baseline", "background", "attributor", "merge_batch_norm")
"""Parameters of the adapters; the others are arguments of the library's own call, where they differ from its own."""
EXTRAS = {"pytorch_grad_cam": "grad-cam"}
"""The extra of heatproof that installs a library, where its name is another."""


def _kind(of: str, name: str, given: Mapping[str, Any]) -> Any:
    """A frozen parameter object with these fields, which says what it needs."""
    says = {"__doc__": f'needs pip install "heatproof[{EXTRAS.get(of, of)}]"'}
    body = {"__annotations__": {key: kind for key, (kind, *_) in given.items()}, **says}
    defaults = {key: default[0] for key, (_, *default) in given.items() if default}
    return dataclass(type(name, (), body | defaults), frozen=True, config=STRICT)


LIBRARIES = {
    of: {name: _kind(of, name, given) for name, given in METHODS[of].items()} for of in METHODS
}


def by_library(of: str, spec: Any) -> Any:
    """The explainer of the library `of` that is named by its method, or by {method: parameters}.

    >>> by_library("captum", {"IntegratedGradients": {"n_steps": 20}}).arguments
    {'n_steps': 20}
    >>> by_library("captum", {"IntegratedGradients": {"steps": 20}})
    Traceback (most recent call last):
    heatproof.errors.BadParameter: IntegratedGradients has no parameter 'steps'; did you mean 'n_steps'? ...
    """
    chosen = resolve(f"method of {of}", LIBRARIES[of], spec, lambda _: False)
    name, given = type(chosen).__name__, {f.name: getattr(chosen, f.name) for f in fields(chosen)}
    library(of, EXTRAS.get(of, of))
    changed = {
        f.name: given[f.name]
        for f in fields(chosen)
        if f.name not in OWN and given[f.name] != f.default
    } or None
    if of == "captum":
        return Captum(name, changed, given.get("layer"), baseline=given.get("baseline"))
    if of == "pytorch_grad_cam":
        return PytorchGradCam(name, given["layer"], arguments=changed)
    if of == "shap":
        return Shap(name, given.get("background", 0.0), changed)  # type: ignore[arg-type]
    merge = library("zennit.canonizers", "zennit").SequentialMergeBatchNorm
    made = library("zennit.composites", "zennit").COMPOSITES[name]
    return Zennit(
        made(canonizers=[merge()] if given["merge_batch_norm"] else []), given["attributor"]
    )
