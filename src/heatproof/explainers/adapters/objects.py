"""Objects of other libraries, as users have them, as explainers and evaluations: maps, methods and metrics."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from heatproof.data.frames import is_frame
from heatproof.errors import UserError

_SUFFIXES = (".npy", ".npz")


def is_maps(thing: Any) -> bool:
    """Whether something is maps that were computed elsewhere: see `Precomputed`.

    >>> is_maps(np.ones((2, 3))), is_maps({"cat": np.ones(3)}), is_maps(Path("maps.npz")), is_maps("saliency")
    (True, True, True, False)
    """
    if isinstance(thing, Path):
        return thing.suffix in _SUFFIXES or thing.is_dir()
    if isinstance(thing, Mapping):
        return bool(thing) and all(isinstance(value, _ARRAYS) for value in thing.values())
    is_explanation = type(thing).__name__ == "Explanation" and _library(thing) == "shap"
    return isinstance(thing, _ARRAYS) or is_explanation or is_frame(thing)


def explainer_of(thing: Any) -> Any:
    """Return the explainer that an object of another library stands for; None for anything else.

    Maps are `Precomputed`, and a function of a batch is a `MapFunction`. Methods of Captum and
    pytorch-grad-cam, explainers of SHAP and composites of zennit are wrapped in their adapters.
    """
    if is_maps(thing):
        from heatproof.explainers.adapters.maps import Precomputed

        return Precomputed(thing)
    if _takes_a_batch(thing):
        from heatproof.explainers.adapters.maps import MapFunction

        return MapFunction(thing)
    library = _library(thing)
    if isinstance(thing, type) or library not in ("captum", "pytorch_grad_cam", "shap", "zennit"):
        return None
    from heatproof.explainers.adapters import attributions, shapley

    if library == "captum" and hasattr(thing, "attribute"):
        return attributions.Captum(thing)
    if library == "pytorch_grad_cam" and hasattr(thing, "target_layers"):
        return _grad_cam(thing)
    if library == "shap" and callable(thing):
        return shapley.ShapObject(thing)
    if library == "zennit" and hasattr(thing, "register"):
        return attributions.Zennit(thing)
    return None


def _takes_a_batch(thing: Any) -> bool:
    """Whether something is a function that can be called with a batch, and not with (model, batch, target, seed)."""
    if not (inspect.isfunction(thing) or inspect.ismethod(thing)):
        return False
    signature = inspect.signature(thing)
    return _fits(signature, 1) and not _fits(signature, 4)


def _fits(signature: inspect.Signature, count: int) -> bool:
    """Whether a function can be called with so many arguments by position."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def evaluation_of(thing: Any) -> Any:
    """Return the evaluation that a metric of Quantus stands for; None for anything else."""
    if isinstance(thing, type) or _library(thing) != "quantus" or not callable(thing):
        return None
    from heatproof.explainers.adapters.quantus_metrics import QuantusMetric

    return QuantusMetric(thing)


_ARRAYS = (np.ndarray, Tensor)


def _library(thing: Any) -> str:
    """Return the name of the library that defines an object's class, or a base class of it."""
    libraries = [kind.__module__.partition(".")[0] for kind in type(thing).__mro__]
    known = ("captum", "pytorch_grad_cam", "shap", "zennit", "quantus")
    return next((name for name in libraries if name in known), "")


def _grad_cam(cam: Any) -> Any:
    """Return the adapter for an object of pytorch-grad-cam, whose layers are known by their paths in its network."""
    from heatproof.explainers.adapters.attributions import PytorchGradCam

    paths = {id(module): path for path, module in cam.model.named_modules()}
    layers = []
    for layer in cam.target_layers:
        if id(layer) not in paths:
            raise UserError(
                f"{type(cam).__name__} reads a layer that is not in its network: {type(layer).__name__}"
            )
        layers.append(paths[id(layer)])
    options = {}
    if cam.reshape_transform is not None:
        options["reshape_transform"] = cam.reshape_transform
    layer = layers[0] if len(layers) == 1 else tuple(layers)
    return PytorchGradCam(type(cam), layer, options or None)
