"""Small pictures and a small network for reproductions on a CPU: squares cut from ten of the bundled photographs.

The class of a square is the photograph that it was cut from. Squares for training come from the left half of a
photograph and squares for testing from the right half, so no test pixel was seen in training. The trained weights are
in `weights/pictures.pt`; `python -m heatproof.reproduce.pictures` trains them again.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from heatproof.data.bundled import PHOTOGRAPHS, photograph_credits
from heatproof.models import Model

WEIGHTS = Path(__file__).parent / "weights"
CLASSES = 10
SIDE = 32
"""Pixels of a square, as in CIFAR-10."""
SCALED = 192
"""The shorter side in pixels to which a photograph is scaled before squares are cut."""
WIDTHS = (16, 32, 64)


def photographs() -> list[Tensor]:
    """Return the first ten photographs with a label, (3, H, W) in [0, 1], the shorter side 192 pixels."""
    from PIL import Image

    files = [entry["file"] for entry in photograph_credits() if entry["label"] >= 0]
    pictures = []
    for file in files[:CLASSES]:
        picture = Image.open(PHOTOGRAPHS / file).convert("RGB")
        scale = SCALED / min(picture.size)
        width, height = (round(scale * side) for side in picture.size)
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))
        pictures.append(torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255)
    return pictures


def squares(per_class: int, test: bool, seed: int) -> tuple[Tensor, Tensor]:
    """Return squares (N, 3, 32, 32) and their classes (N,), classes in turn: of the right halves for a test."""
    generator = torch.Generator().manual_seed(seed)
    halves = []
    for picture in photographs():
        middle = picture.shape[2] // 2
        halves.append(picture[:, :, middle:] if test else picture[:, :, :middle])
    cut, labels = [], []
    for _ in range(per_class):
        for label, half in enumerate(halves):
            top = int(torch.randint(half.shape[1] - SIDE + 1, (1,), generator=generator))
            left = int(torch.randint(half.shape[2] - SIDE + 1, (1,), generator=generator))
            cut.append(half[:, top : top + SIDE, left : left + SIDE])
            labels.append(label)
    return torch.stack(cut), torch.tensor(labels)


def test_squares() -> tuple[Tensor, Tensor]:
    """Return the 400 squares that reproductions test on, for a study file."""
    return squares(40, test=True, seed=1)


def train_squares() -> tuple[Tensor, Tensor]:
    """Return the 1,000 squares that retraining trains on."""
    return squares(100, test=False, seed=0)


class Mean(nn.Module):
    """The mean over positions, (B, C, H, W) -> (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the means (B, C)."""
        return x.mean((2, 3))


def small_cnn(circular: bool = False) -> nn.Sequential:
    """Return an untrained network of three convolutions, 24 thousand weights.

    With `circular` padding, and without strides, its scores do not change when a picture is shifted cyclically.
    """
    padding = "circular" if circular else "zeros"
    layers: list[tuple[str, nn.Module]] = []
    channels = 3
    for i, width in enumerate(WIDTHS):
        stride = 1 if circular or i == 0 else 2
        convolution = nn.Conv2d(
            channels, width, 3, stride=stride, padding=1, padding_mode=padding, bias=False
        )
        layers += [(f"conv{i}", convolution), (f"norm{i}", nn.BatchNorm2d(width))]
        layers.append((f"relu{i}", nn.ReLU()))
        channels = width
    features = nn.Sequential(OrderedDict(layers))
    head = nn.Linear(channels, CLASSES)
    return nn.Sequential(OrderedDict(features=features, pool=Mean(), head=head))


def train(
    network: nn.Sequential, data: TensorDataset, epochs: int, seed: int, dropped: float = 0.0
) -> nn.Sequential:
    """Train a network in place by Adam with a falling rate, and return it in eval mode.

    `dropped` is the largest share of 4 × 4 patches that are blackened at random in training.
    """
    x, y = data.tensors
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=1e-3)
    batches = max(1, len(x) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.01, total_steps=epochs * batches)
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for rows in order[: 64 * batches].chunk(batches):
            pictures = x[rows]
            if dropped:
                pictures = pictures * _patches_left(len(rows), dropped, generator)
            optimiser.zero_grad()
            loss = F.cross_entropy(network(pictures), y[rows])
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
    return network.eval()


def _patches_left(n: int, dropped: float, generator: torch.Generator) -> Tensor:
    """Return masks (n, 1, 32, 32) that are 0 on a random share, up to `dropped`, of the 4 × 4 patches."""
    shares = dropped * torch.rand(n, 1, 1, 1, generator=generator)
    grid = torch.rand(n, 1, SIDE // 4, SIDE // 4, generator=generator)
    return (grid >= shares).float().repeat_interleave(4, 2).repeat_interleave(4, 3)


def retrained(dataset: TensorDataset, seed: int) -> nn.Module:
    """Train a new network on squares from which pixels were removed: the trainer of `heatproof.retrain`."""
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
    """Train both networks, print their accuracy on the test squares, and store them."""
    data = TensorDataset(*squares(400, test=False, seed=0))
    x, y = test_squares()
    for file, circular in (("pictures.pt", False), ("circular.pt", True)):
        torch.manual_seed(0)
        network = train(small_cnn(circular), data, epochs=12, seed=0, dropped=0.0 if circular else 0.9)
        with torch.no_grad():
            correct = float((network(x).argmax(1) == y).float().mean())
        print(f"{file}: test accuracy {correct:.1%} of {len(y)}")
        save_weights(network, file)


if __name__ == "__main__":
    main()
