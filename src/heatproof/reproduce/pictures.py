"""Small pictures and a small network for reproductions on a CPU: digits drawn on squares of the bundled photographs.

The class of a picture is its digit, so what decides it are few pixels, while the background has the statistics of
photographs. Backgrounds for training come from the left half of the photographs and those for testing from the right
half. The trained weights are in `weights/`; `python -m heatproof.reproduce.pictures` trains them again.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from heatproof.data.bundled import PHOTOGRAPHS, photograph_credits
from heatproof.models import Model

WEIGHTS = Path(__file__).parent / "weights"
CLASSES = 10
SIDE = 32
"""Pixels of a side, as in CIFAR-10."""
SCALED = 192
"""The shorter side in pixels to which a photograph is scaled before backgrounds are cut."""
WIDTHS, CIRCULAR_WIDTHS = (16, 32, 64), (8, 16, 32)
"""The channels of the convolutions; without strides each costs more, so there are fewer."""


def photographs() -> list[Tensor]:
    """Return the first ten photographs, (3, H, W) in [0, 1], the shorter side 192 pixels."""
    pictures = []
    for entry in photograph_credits()[:10]:
        picture = Image.open(PHOTOGRAPHS / entry["file"]).convert("RGB")
        scale = SCALED / min(picture.size)
        width, height = (round(scale * side) for side in picture.size)
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))
        pictures.append(torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255)
    return pictures


def digits(per_class: int, test: bool, seed: int) -> tuple[Tensor, Tensor]:
    """Return random pictures of digits on squares of photographs, (N, 3, 32, 32), and their digits (N,).

    There are `per_class` pictures of each digit, 0 to 9 in turn. Backgrounds are from the right halves of the photographs
    for a `test` set and from the left halves for training, so that they share none.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(most: int) -> int:
        """Return a random number from 0 to most − 1."""
        return int(torch.randint(most, (1,), generator=generator))

    halves = []
    for picture in photographs():
        middle = picture.shape[2] // 2
        halves.append(picture[:, :, middle:] if test else picture[:, :, :middle])
    drawn, labels = [], []
    for i in range(per_class * CLASSES):
        label, half = i % CLASSES, halves[draw(len(halves))]
        top, left = draw(half.shape[1] - SIDE + 1), draw(half.shape[2] - SIDE + 1)
        background = half[:, top : top + SIDE, left : left + SIDE]
        stroke = _stroke(label, size=18 + draw(9), x=draw(14), y=draw(8) - 3)
        # The digit is light on a dark background and dark on a light one.
        shade = 0.75 if float(background.mean()) < 0.5 else -0.75
        drawn.append((background + shade * stroke).clamp(0, 1))
        labels.append(label)
    return torch.stack(drawn), torch.tensor(labels)


def _stroke(digit: int, size: int, x: int, y: int) -> Tensor:
    """Return a digit (1, 32, 32) in [0, 1], of a font size and with its corner at (x, y)."""
    canvas = Image.new("L", (SIDE, SIDE))
    font = ImageFont.load_default(size)
    ImageDraw.Draw(canvas).text((x, y), str(digit), fill=255, font=font)
    return torch.from_numpy(np.asarray(canvas).copy()).float()[None] / 255


def held_out_digits() -> tuple[Tensor, Tensor]:
    """Return the 400 pictures that reproductions test on, for a study file."""
    return digits(40, test=True, seed=1)


class Mean(nn.Module):
    """The mean over positions, (B, C, H, W) -> (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the means (B, C)."""
        return x.mean((2, 3))


def small_cnn(circular: bool = False) -> nn.Sequential:
    """Return an untrained network of three convolutions, 24 thousand weights, or 6 thousand.

    With `circular` padding, and without strides, its scores do not change when a picture is shifted cyclically.
    """
    padding: Literal["circular", "zeros"] = "circular" if circular else "zeros"
    layers: list[tuple[str, nn.Module]] = []
    channels = 3
    for i, width in enumerate(CIRCULAR_WIDTHS if circular else WIDTHS):
        stride = 1 if circular or i == 0 else 2
        dilation = 2**i if circular else 1
        convolution = nn.Conv2d(
            channels, width, 3, stride, dilation, dilation, padding_mode=padding, bias=False
        )
        layers += [(f"conv{i}", convolution), (f"norm{i}", nn.BatchNorm2d(width))]
        layers.append((f"relu{i}", nn.ReLU()))
        channels = width
    features = nn.Sequential(OrderedDict(layers))
    head = nn.Linear(channels, CLASSES)
    return nn.Sequential(OrderedDict(features=features, pool=Mean(), head=head))


def train(network: nn.Sequential, data: TensorDataset, epochs: int, seed: int) -> nn.Sequential:
    """Train a network in place by Adam with one cycle of rates, and return it in eval mode."""
    x, y = data.tensors
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
    batches = max(1, len(x) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.01, total_steps=epochs * batches)
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for rows in order[: 64 * batches].chunk(batches):
            optimiser.zero_grad()
            torch.autograd.backward(F.cross_entropy(network(x[rows]), y[rows]))
            optimiser.step()
            schedule.step()
    return network.eval()


def retrained(dataset: TensorDataset, seed: int) -> nn.Module:
    """Train a new network on pictures from which pixels were removed: the trainer of `heatproof.retrain`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return train(small_cnn(), dataset, epochs=6, seed=seed)


def with_weights(network: nn.Module, file: str) -> nn.Module:
    """Return a network with the weights of a file in `weights/`, which are stored in 16 bits."""
    stored = torch.load(WEIGHTS / file, map_location="cpu", weights_only=True)
    network.load_state_dict({name: tensor.float() for name, tensor in stored.items()})
    return network.eval()


def save_weights(network: nn.Module, file: str) -> None:
    """Store the weights of a network in 16 bits."""
    state = {name: tensor.half() for name, tensor in network.state_dict().items()}
    torch.save(state, WEIGHTS / file)


def model() -> Model:
    """Return the trained network, for a study file."""
    return Model(with_weights(small_cnn(), "pictures.pt"), name="small CNN")


def circular_model() -> Model:
    """Return the trained network whose scores do not change under cyclic shifts, for a study file."""
    return Model(with_weights(small_cnn(circular=True), "circular.pt"), name="circular CNN")


def main() -> None:
    """Train both networks, print their accuracy on the test pictures, and store them."""
    data = TensorDataset(*digits(400, test=False, seed=0))
    x, y = held_out_digits()
    for file, circular in (("pictures.pt", False), ("circular.pt", True)):
        torch.manual_seed(0)
        network = train(small_cnn(circular), data, epochs=10, seed=0)
        with torch.no_grad():
            correct = float((network(x).argmax(1) == y).float().mean())
        print(f"{file}: test accuracy {correct:.1%} of {len(y)}", flush=True)
        save_weights(network, file)


if __name__ == "__main__":
    main()
