"""A small real classifier and small pictures, for tests that need a model with opinions.

Its trained weights are a file, because training rounds differently from processor to processor, and a test must not
depend on that. `python tests/support/small.py` trains them anew.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from heatproof import Model, rand

SIZE = 32
CLASSES = ("disc", "bar", "cross", "ring")
WEIGHTS = Path(__file__).with_name("small.safetensors")


def pictures(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy drawings (n, 3, 32, 32) in [0, 1] of four shapes at random places, and their classes."""
    g = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    images, labels = [], []
    for _ in range(n):
        label = int(torch.randint(4, (1,), generator=g))
        y, x = (torch.rand(2, generator=g) * 12 + 10).tolist()
        dy, dx = (rows - y).abs(), (columns - x).abs()
        distance = (dy**2 + dx**2).sqrt()
        shape = (
            distance < 6,
            (dy < 2.5) & (dx < 9),
            ((dy < 2) & (dx < 7)) | ((dx < 2) & (dy < 7)),
            (distance < 8) & (distance > 5),
        )[label]
        colour = 0.5 + 0.5 * torch.rand(3, 1, 1, generator=g)
        ground = 0.35 * torch.rand(3, 1, 1, generator=g)
        image = torch.where(shape, colour, ground) + 0.05 * torch.randn(3, SIZE, SIZE, generator=g)
        images.append(image.clamp(0, 1))
        labels.append(label)
    return torch.stack(images), torch.tensor(labels)


def untrained() -> nn.Module:
    """A convolutional net with batch norm, in-place ReLU and max-pooling."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 24, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(24, 4),
        )


@lru_cache(maxsize=1)
def network() -> nn.Module:
    """The net as it was trained to tell the shapes apart."""
    net = untrained()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


def drawn(seed: int) -> Model:
    """The same net with weights drawn by `heatproof.rand`: for laws, which hold for any weights."""
    net = copy.deepcopy(network())
    for name, weights in net.named_parameters():
        if name.endswith("weight") and weights.ndim > 1:
            scale = (2 / weights[0].numel()) ** 0.5
            draws = rand.normal(rand.keys(seed, (name,), "weights"), weights.shape)[0]
            weights.data = scale * draws.to(weights.dtype)
    return Model(net, mean=(0.5,) * 3, std=(0.5,) * 3, classes=CLASSES, name="drawn", rows=32)


def train(net: nn.Module) -> None:
    x, y = pictures(256, seed=1)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(40):
        part = slice(64 * (step % 4), 64 * (step % 4 + 1))
        optimiser.zero_grad()
        F.cross_entropy(net((x[part] - 0.5) / 0.5), y[part]).backward()
        optimiser.step()


def model(rows: int = 32) -> Model:
    """The trained net with its preprocessing."""
    return Model(
        network(), mean=(0.5,) * 3, std=(0.5,) * 3, classes=CLASSES, name="shapes", rows=rows
    )


def dataset(n: int = 24) -> tuple[Tensor, Tensor]:
    """Pictures with labels, as a study file's `python:` source gives them."""
    return pictures(n)


if __name__ == "__main__":
    fresh = untrained()
    train(fresh)
    save_file(fresh.state_dict(), WEIGHTS)
