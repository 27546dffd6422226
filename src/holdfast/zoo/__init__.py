"""Models and data by name: `torchvision:resnet50`, `timm:…`, `hf:…`, `file:…`, `onnx:…`, `python:…`, or a path.

A name that begins with a hub (torchvision, timm, hf) may fetch that hub's weights; nothing else touches the network.
"""

from holdfast.zoo.code import load_object
from holdfast.zoo.named import BUNDLED_MODELS, LOADERS, Loader, check_model_name, load_model, short_name
from holdfast.zoo.onnx import OnnxNetwork
from holdfast.zoo.parts import Channels, Parts
from holdfast.zoo.sources import BUNDLED_DATA, check_data_name
from holdfast.zoo.text import hub_name, tokeniser

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
