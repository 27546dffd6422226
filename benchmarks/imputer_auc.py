"""How well the filled images of every imputer can be told from real ones, by the features of trained networks.

    python benchmarks/imputer_auc.py --data ../shared/data --out auc.json [--set cifar10 photographs] [--limit 500]

Random masks remove 10, 50 and 90 % of the pixels of CIFAR-10 test images (ResNet-20) and of ImageNet photographs
(MobileNetV2, 224 pixels). A ridge classifier on the network's penultimate activations is asked which images are real,
see `heatproof.axes.faithfulness.realism`. Printed are areas under its ROC curve with 95 % intervals; ½ is a guess.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

import heatproof
from heatproof import Faithfulness, Model
from heatproof.axes.faithfulness.summaries import detectability
from heatproof.types import Batch

FRACTIONS = (0.1, 0.5, 0.9)
SIGMAS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)


class Block(nn.Module):
    """Two convolutions; the shortcut drops every other pixel and pads channels with zeros."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.stride, self.more = stride, (out - into) // 2

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        kept = x[..., :: self.stride, :: self.stride]
        return F.relu(inner + F.pad(kept, (0, 0, 0, 0, self.more, self.more)))


class ResNet20(nn.Module):
    """He et al. 2016 for CIFAR-10."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def cifar10(data: Path, limit: int) -> tuple[Model, Batch, list[float]]:
    net = ResNet20()
    state = torch.load(
        data / "cifar10" / "resnet20-12fca82f.th", map_location="cpu", weights_only=False
    )["state_dict"]
    net.load_state_dict({k.removeprefix("module."): v for k, v in state.items()})
    model = Model(net, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), name="resnet20")
    found = np.load(data / "cifar10" / "test.npz")
    blob, offsets = found["jpeg"].tobytes(), found["offsets"].tolist()
    chosen = (
        np.linspace(0, len(offsets) - 2, limit).astype(int).tolist()
    )  # the file goes class by class
    images = [
        np.asarray(Image.open(io.BytesIO(blob[offsets[i] : offsets[i + 1]])).convert("RGB"))
        for i in chosen
    ]
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    label = torch.from_numpy(found["labels"][chosen]).long()
    return model, Batch(tuple(f"test-{i}" for i in chosen), x, label=label), [0.491, 0.482, 0.447]


def photographs(data: Path, limit: int) -> tuple[Model, Batch, list[float]]:
    spec = importlib.util.spec_from_file_location("mnv2", data / "imagenet" / "mnv2.py")
    assert spec is not None and spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    model = Model(
        source.load(data / "imagenet" / "mnv2_imagenet_fp16.pt"),
        mean=0.5,
        std=0.5,
        name="mobilenetv2",
    )
    every = sorted((data / "imagenet" / "val500").glob("*.jpg"))
    paths = [every[i] for i in np.linspace(0, len(every) - 1, min(limit, len(every))).astype(int)]
    images = []
    for path in paths:
        image = Image.open(path).convert("RGB")
        left, top = ((side - 224) // 2 for side in image.size)
        images.append(np.asarray(image.crop((left, top, left + 224, top + 224))))
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    label = torch.tensor([int(path.name.split("_")[0]) for path in paths])
    return model, Batch(tuple(path.stem for path in paths), x, label=label), [0.485, 0.456, 0.406]


def imputers(mean: list[float]) -> list[Any]:
    fixed: list[Any] = [
        "zero",
        {"value": {"value": 0.5}},
        {"dataset_mean": {"mean": mean}},
        "image_mean",
    ]
    return [
        *fixed,
        "reference_mean",
        "blur",
        "noise",
        *({"noisy_linear": {"sigma": s}} for s in SIGMAS),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--set", nargs="+", choices=["cifar10", "photographs"], default=["cifar10", "photographs"]
    )
    parser.add_argument("--limit", type=int, default=100)
    args = parser.parse_args()
    results = {}
    for name in args.set:
        begun = time.perf_counter()
        model, batch, mean = {"cifar10": cifar10, "photographs": photographs}[name](
            args.data, args.limit
        )
        axis = Faithfulness(
            imputers=imputers(mean), fractions=FRACTIONS, orders=("random",), metrics=()
        )
        run = heatproof.evaluate(
            model, batch, ["random"], axis, shard_size=len(batch.ids), show_progress=False
        )
        found = detectability(run.table())
        found["text"] = [
            f"{a:.2f} [{low:.2f}, {high:.2f}]"
            for a, low, high in found[["area", "low", "high"]].to_numpy()
        ]
        wide = found.pivot_table("text", "imputer", "level", aggfunc="first", sort=False)
        print(
            f"\n{name}, {len(batch.ids)} images, {model.name}, {time.perf_counter() - begun:.0f} s\n{wide.to_string()}"
        )
        mean_area = found.groupby("imputer", sort=False)["area"].mean()
        print(
            "mean over fractions:",
            ", ".join(f"{k} {v:.3f}" for k, v in mean_area.items()),
            flush=True,
        )
        results[name] = found.drop(columns="text").to_dict("records")
        args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
