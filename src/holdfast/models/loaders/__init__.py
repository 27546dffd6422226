"""Models and data by name: `torchvision:resnet50`, `timm:…`, `hf:…`, `file:…`, `onnx:…`, `python:…`, or a path.

A name that begins with a hub (torchvision, timm, hf) may fetch that hub's weights; nothing else touches the network.
"""

from holdfast.data.code import load_object
from holdfast.data.hub import hub_name, tokeniser
from holdfast.data.sources import BUNDLED_DATA, check_data_name
from holdfast.models.loaders.named import BUNDLED_MODELS, LOADERS, Loader, check_model_name, load_model, short_name
from holdfast.models.loaders.onnx import OnnxNetwork
from holdfast.models.loaders.parts import Channels, Parts

__all__ = [
    "BUNDLED_DATA",
    "BUNDLED_MODELS",
    "LOADERS",
    "Channels",
    "Loader",
    "OnnxNetwork",
    "Parts",
    "check_data_name",
    "check_model_name",
    "hub_name",
    "load_model",
    "load_object",
    "short_name",
    "tokeniser",
]
