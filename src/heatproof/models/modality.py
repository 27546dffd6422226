"""Which kind of data a batch holds, and which explainers are defined on it: the invariance paper's table, extended.

>>> why_undefined("grad_cam", "graph")
'it reads a map of a convolutional network, or of image tokens on a grid, and there is none'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from heatproof.models import Model
from heatproof.types import KIND_BY_DIMENSIONS, Batch, name_of

Modality = Literal["image", "volume", "series", "table", "set", "graph", "text", "token ids"]
MODALITIES: tuple[str, ...] = get_args(Modality)


@dataclass(frozen=True)
class Words:
    """How a kind of data is spoken of: one sample and many, one of its features and many."""

    sample: str
    samples: str
    part: str
    parts: str


_TEXT = Words("text", "texts", "token", "tokens")
WORDS: dict[str, Words] = {
    "image": Words("picture", "pictures", "pixel", "pixels"),
    "volume": Words("volume", "volumes", "voxel", "voxels"),
    "series": Words("series", "series", "time step", "time steps"),
    "table": Words("row", "rows", "column", "columns"),
    "set": Words("set", "sets", "element", "elements"),
    "graph": Words("graph", "graphs", "node", "nodes"),
    "text": _TEXT,
    "token ids": _TEXT,
}


def words_of(task: Mapping[str, Any]) -> Words:
    """The words for the data of a task as the manifest has it; those for images where it does not say.

    >>> words_of({"modality": "series"}).parts, words_of({}).parts
    ('time steps', 'pixels')
    """
    return WORDS[task.get("modality", "image")]


_NO_GRID = (
    "it reads a map of a convolutional network, or of image tokens on a grid, and there is none"
)
_NO_ORDER = "it covers neighbouring positions, and elements have no order; use feature_ablation with features: elements"
_NO_TOKENS = "it reads how tokens of images or of texts attend to each other"
_NO_VECTORS = "token ids have no gradient; name the layer that turns them into vectors: embedding"
_NO_NOISE = "it adds noise to the data, and token ids cannot carry it"
_NO_EDGES = "only pictures have edges"
_NO_ROW = "its smooth masks need positions in a row, and columns of a table have no order"
_NO_FIELD = "its smooth masks are made for images, volumes and series; use lime or kernel_shap with features: tokens"

_BY_STEPS = ("integrated_gradients", "gradient_shap", "expected_gradients", "mfaba")
_BY_GRADIENT = (*_BY_STEPS, "saliency", "input_x_gradient", "deep_lift", "guided_backprop", "lrp")
_BY_NOISE = ("smoothgrad", "smoothgrad_squared", "vargrad")
_GRADIENT: dict[str, str] = {"token ids": _NO_VECTORS}
_NOISY: dict[str, str] = {"text": _NO_NOISE, "token ids": _NO_NOISE}
_CAMS = ("grad_cam", "grad_cam_plus_plus", "layer_cam", "hires_cam")
_OF_LAYERS = ("cav", "car", "simplex", "representation_similarity")
_ATTENTION = ("attention_rollout", "chefer")
_NO_TEXT = ("series", "table", "set", "graph")
_IMAGES_ONLY = ("volume", *_NO_TEXT, "text", "token ids")
UNDEFINED_ON: dict[str, dict[str, str]] = {
    **dict.fromkeys(_BY_GRADIENT, _GRADIENT),
    **dict.fromkeys(_BY_NOISE, _NOISY),
    **dict.fromkeys(_CAMS, dict.fromkeys(_IMAGES_ONLY[2:], _NO_GRID)),
    **{
        name: {**dict.fromkeys(("volume", *_NO_TEXT), _NO_TOKENS), "token ids": _NO_VECTORS}
        for name in _ATTENTION
    },
    "occlusion": {"set": _NO_ORDER, "graph": _NO_ORDER, "token ids": _NO_VECTORS},
    "rise": {
        "table": _NO_ROW,
        "set": _NO_ORDER,
        "graph": _NO_ORDER,
        "text": _NO_FIELD,
        "token ids": _NO_FIELD,
    },
    "sobel": dict.fromkeys(_IMAGES_ONLY, _NO_EDGES),
}
"""explainer -> modality -> why the method is not defined there; what is not listed is defined."""

_NO_GRADIENT = "it reads gradients, and this model gives none; use lime, kernel_shap, occlusion or feature_ablation"
_NO_LAYERS = "it reads layers of the network, and this model shows none"
NEEDS_A_NETWORK: dict[str, str] = {
    **dict.fromkeys(
        (*_BY_GRADIENT, *_BY_NOISE, "influence", "tracin", "captum", "zennit"), _NO_GRADIENT
    ),
    **dict.fromkeys((*_CAMS, *_ATTENTION, *_OF_LAYERS, "pytorch_grad_cam"), _NO_LAYERS),
}
"""explainer -> why it is not defined on a model that only predicts, as ONNX graphs and scikit-learn classifiers do."""
NO_CLASSES = "reads class probabilities, and {} has none"
NEEDS_CLASSES = ("mfaba", "influence", "tracin")
"""Explainers that differentiate a probability or a cross-entropy of classes."""
_WATCH = (*_CAMS, *_ATTENTION, "deep_lift", "guided_backprop", "lrp")
READ_LAYERS = (*_WATCH, *_OF_LAYERS)
_SCRIPTED = "it watches the layers of a network, and a scripted one hides them; give the network before torch.jit"
_SMOOTHS_ANY = (*_BY_NOISE, "symmetrised")
"""Explainers that average another one, `of`, and need what it needs."""


def modality(model: Model, batch: Batch) -> Modality:
    """The kind of data, from its type, its auxiliary tensors and its shape.

    >>> import torch
    >>> modality(Model(torch.nn.Flatten()), Batch(("a",), torch.zeros(1, 3, 8, 8)))
    'image'
    """
    if not batch.x.is_floating_point():
        return "token ids" if model.embedding is None else "text"
    if "adjacency" in batch.aux:
        return "graph"
    if "mask" in batch.aux:
        return "set"
    return KIND_BY_DIMENSIONS.get(batch.x.ndim - 1, "image")


def why_undefined(explainer: str, kind: str) -> str:
    """Why an explainer, by its registered name, is not defined on a kind of data; empty where it is.

    >>> why_undefined("lime", "text")
    ''
    """
    return UNDEFINED_ON.get(explainer, {}).get(kind, "")


def is_differentiable(model: Model) -> bool:
    """Whether a model is a torch network with gradients and layers; one that is not says `differentiable = False`.

    >>> import torch
    >>> is_differentiable(Model(torch.nn.Linear(1, 2)))
    True
    """
    return bool(getattr(model.module, "differentiable", True))


def watches(explainer: Any) -> bool:
    """Whether an explainer, or one that it averages, looks for layers or functions that only a pass may find missing.

    >>> from heatproof.explainers import GuidedBackprop, Saliency
    >>> watches(GuidedBackprop()), watches(Saliency())
    (True, False)
    """
    inner = getattr(explainer, "of", None)
    return name_of(explainer) in _WATCH or (inner is not None and watches(inner))


def why_not_explainable(explainer: Any, model: Model) -> str:
    """Why an explainer cannot work on this model, whatever the data; empty where it can.

    >>> import torch
    >>> from heatproof.explainers import Lime, Saliency
    >>> net = torch.nn.Linear(1, 2)
    >>> why_not_explainable(Saliency(), Model(net))
    ''
    >>> net.differentiable = False
    >>> why_not_explainable(Saliency(), Model(net))
    'it reads gradients, and this model gives none; use lime, kernel_shap, ...'
    >>> why_not_explainable(Lime(), Model(net))
    ''
    """
    name, inner = name_of(explainer), getattr(explainer, "of", None)
    if name in NEEDS_CLASSES and not model.task.exclusive:
        return f"it {NO_CLASSES.format(model.task.name)}"
    if isinstance(model.module, torch.jit.ScriptModule) and name in READ_LAYERS:
        return _SCRIPTED
    if is_differentiable(model):
        return ""
    if name in _SMOOTHS_ANY and inner is not None:
        return why_not_explainable(inner, model)
    return NEEDS_A_NETWORK.get(name, "")


COSTS: dict[str, tuple[str, ...]] = {
    "no pass": ("random", "sobel", "weight_noise", "precomputed"),
    "1 pass and its gradient": (
        "saliency",
        "input_x_gradient",
        "guided_backprop",
        "lrp",
        *_CAMS,
        *_ATTENTION,
    ),
    "2 passes and a gradient": ("deep_lift",),
    "`steps` passes and their gradients": ("integrated_gradients", "mfaba"),
    "`samples` passes and their gradients": ("expected_gradients", "gradient_shap"),
    "`samples` maps of the inner one": ("smoothgrad", "smoothgrad_squared", "vargrad"),
    "`samples` passes": ("lime", "kernel_shap", "rise"),
    "1 pass per window": ("occlusion",),
    "1 pass per feature": ("feature_ablation",),
    "`draws` passes per feature": ("feature_permutation",),
}
"""What one map costs, and the explainers that cost it; those of examples and concepts depend on their examples."""


def terms_of(explainer: str) -> str:
    """What a map costs, and on which data and models an explainer is defined, in words.

    >>> terms_of("grad_cam")
    '1 pass and its gradient; image, volume, series; networks whose layers show'
    """
    cost = next((cost for cost, names in COSTS.items() if explainer in names), "")
    kinds = [kind for kind in MODALITIES if not why_undefined(explainer, kind)]
    need = {_NO_GRADIENT: "networks with gradients", _NO_LAYERS: "networks whose layers show"}
    data = "any data" if len(kinds) == len(MODALITIES) else ", ".join(kinds)
    return "; ".join(
        filter(None, [cost, data, need.get(NEEDS_A_NETWORK.get(explainer, ""), "any model")])
    )
