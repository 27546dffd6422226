"""Models by name: `torchvision:resnet50`, `timm:…`, `hf:…`, `file:…`, `onnx:…` or `python:…`.

A name that begins with a hub (torchvision, timm, hf) may fetch that hub's weights; nothing else touches the network.
"""

from heatproof.models.loaders.named import (
    BUNDLED_MODELS,
    LOADERS,
    Loader,
    check_model_name,
    load_model,
    short_name,
)
from heatproof.models.loaders.onnx import OnnxNetwork

__all__ = [
    "BUNDLED_MODELS",
    "LOADERS",
    "Loader",
    "OnnxNetwork",
    "check_model_name",
    "load_model",
    "short_name",
]
