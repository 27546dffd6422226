"""Trained ImageNet classifiers for the atlas: MobileNetV2 and SqueezeNet, from files beside the photographs.

`$HOLDFAST_DATA/imagenet` (else ../shared/data/imagenet beside the checkout) has `mnv2.py` and `sqz.py`, which are run.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from holdfast import Model


def folder() -> Path:
    """Where photographs, weights and the code that reads them are."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("HOLDFAST_DATA", beside)) / "imagenet"


def _beside(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, folder() / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mobilenet_v2() -> Model:
    """MobileNetV2 1.0 with 1001 outputs; class i of ImageNet is output i + 1."""
    net = _beside("mnv2").load(folder() / "mnv2_imagenet_fp16.pt")
    return Model(net, mean=0.5, std=0.5, name="mobilenet_v2")


class BlueFirst(nn.Module):
    """A network that was trained on blue, green and red, given red, green and blue."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.cat([x[:, 2:3], x[:, 1:2], x[:, 0:1]], 1))


def squeezenet() -> Model:
    """SqueezeNet 1.0 on bytes less the mean colour of its training pictures."""
    net = BlueFirst(_beside("sqz").load(folder() / "compressed_SqueezeNet.net"))
    mean = tuple(value / 255 for value in (123.0, 117.0, 104.0))
    return Model(net, mean=mean, std=1 / 255, name="squeezenet")
