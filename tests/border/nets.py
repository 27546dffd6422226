"""Small models and data of every kind, as a user's own file would make them; study files name them by `python:`.

Weights are drawn at fixed seeds and never trained: every fact that is tested with them holds for any weights.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import heatproof

SAMPLES = 8
NAMES = tuple(f"case-{i}" for i in range(SAMPLES))


def seeded(build: Callable[[], Any], seed: int = 0) -> Any:
    """Build a network with the same weights every time, and leave the caller's random state alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def numbers(*shape: int, seed: int = 1) -> Tensor:
    """Standard normal numbers, the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pixels(*shape: int, seed: int = 1) -> Tensor:
    """Numbers in [0, 1], the same every time."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


# One network and one batch for each kind of data.


def image_model() -> heatproof.Model:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(96, 4),
        )

    return heatproof.Model(seeded(build), mean=(0.5,) * 3, std=(0.5,) * 3)


def image_data() -> heatproof.Batch:
    region = torch.zeros(SAMPLES, 16, 16, dtype=torch.bool)
    region[:, 4:10, 3:12] = True
    return heatproof.Batch(NAMES, pixels(SAMPLES, 3, 16, 16), {"_region": region})


def volume_model() -> heatproof.Model:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv3d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(2),
            nn.Flatten(),
            nn.Linear(32, 3),
        )

    return heatproof.Model(seeded(build))


def volume_data() -> heatproof.Batch:
    return heatproof.Batch(NAMES, pixels(SAMPLES, 1, 6, 6, 6))


def series_model() -> heatproof.Model:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv1d(2, 6, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
            nn.Linear(24, 3),
        )

    return heatproof.Model(seeded(build))


def series_data() -> heatproof.Batch:
    return heatproof.Batch(NAMES, numbers(SAMPLES, 2, 40))


def table_model() -> heatproof.Model:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))

    return heatproof.Model(seeded(build))


def table_data() -> heatproof.Batch:
    return heatproof.Batch(NAMES, numbers(SAMPLES, 6))


class PointNet(nn.Module):
    """The sum over points of what each says; the order of the points does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Linear(3, 12)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        summed = (torch.tanh(self.each(x)) * mask[..., None]).sum(1)
        return self.head(torch.tanh(summed))


class GraphNet(PointNet):
    """Adds to every node the sum of its neighbours, and then all nodes."""

    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x + adjacency @ x, mask)


def set_model() -> heatproof.Model:
    return heatproof.Model(seeded(PointNet))


def set_data() -> heatproof.Batch:
    sizes = torch.tensor([6, 5, 4, 6, 5, 4, 6, 5])
    mask = torch.arange(6) < sizes[:, None]
    return heatproof.Batch(NAMES, numbers(SAMPLES, 6, 3) * mask[..., None], {"mask": mask})


def graph_model() -> heatproof.Model:
    return heatproof.Model(seeded(GraphNet))


def graph_data() -> heatproof.Batch:
    points = set_data()
    mask = points.aux["mask"]
    drawn = (pixels(SAMPLES, 6, 6, seed=4) < 0.4).float()
    edges = torch.maximum(drawn, drawn.mT) * mask[:, None] * mask[..., None]
    return heatproof.Batch(NAMES, points.x, {"adjacency": edges, "mask": mask})


class WordNet(nn.Module):
    """The sum over attended tokens of what each says."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        vectors = torch.tanh(self.embedding(x)) * attention_mask[..., None]
        return self.head(vectors.sum(1))


def text_model() -> heatproof.Model:
    return heatproof.Model(seeded(WordNet), embedding="embedding")


def text_data() -> heatproof.Batch:
    lengths = torch.tensor([7, 5, 6, 4, 7, 5, 6, 4])
    attention = (torch.arange(7) < lengths[:, None]).long()
    tokens = torch.randint(3, 30, (SAMPLES, 7), generator=torch.Generator().manual_seed(5))
    return heatproof.Batch(NAMES, tokens * attention, {"attention_mask": attention})


# Networks of which the truth is known without looking at their weights.


def linear(*shape: int, classes: int = 3, seed: int = 0) -> nn.Module:
    """A linear network without an offset on samples of this shape."""
    inputs = int(torch.tensor(shape).prod())

    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes, bias=False))

    return seeded(build, seed)


class Rule(nn.Module):
    """Class 1 where the weighted sum of the columns is above a half, else class 0."""

    def __init__(self, *weights: float) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights))

    def forward(self, x: Tensor) -> Tensor:
        score = x @ self.weights - 0.5
        return torch.stack([torch.zeros_like(score), score], 1)


class Brightness(nn.Module):
    """Class 1 where the mean of a picture is above the level, else class 0."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor(level))

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1).mean(1) - self.level
        return torch.stack([torch.zeros_like(score), score], 1)


class Constant(nn.Module):
    """The same logits whatever the input is."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.5, 2.0, -1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits + 0 * x.flatten(1).sum(1, keepdim=True)


class Invariant(nn.Module):
    """Channels are mixed place by place and then averaged over all places: no place is special."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.each = nn.Linear(channels, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        places = x.flatten(2).transpose(1, 2)
        return self.head(torch.tanh(self.each(places)).mean(1))


# Explainers of a user's own.


def constant_map(model: Any, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    return torch.ones_like(model.inputs(batch))


def the_input(model: Any, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    return batch.x.clone()


def falling(model: Any, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    """Every position is less important than the one before it."""
    inputs = model.inputs(batch)
    count = inputs[0].numel()
    steps = torch.arange(count, 0, -1, dtype=torch.float32)
    return steps.reshape(inputs.shape[1:]).expand(inputs.shape) / count


for _explainer in (constant_map, the_input, falling):
    _explainer.stochastic = False  # type: ignore[attr-defined]


def price_net() -> nn.Module:
    """One number, the weighted sum of six columns; all columns up by one raise it by 3.5."""
    net = nn.Linear(6, 1, bias=False)
    net.weight.data = torch.arange(1.0, 7.0)[None] / 6
    return net


def columns_net(outputs: int) -> nn.Module:
    """Linear in six columns, without an offset."""
    return seeded(lambda: nn.Linear(6, outputs, bias=False))


def pixel_net() -> nn.Module:
    """Three classes for every pixel, each from that pixel alone, without an offset."""
    return seeded(lambda: nn.Conv2d(3, 3, 1, bias=False))


def interrupted(model: Any, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    """The input itself, and a signal once the first part is written, where a file `interrupt` names one."""
    if Path("interrupt").exists() and any(Path("run", "parts").rglob("*.parquet")):
        chosen = signal.Signals[Path("interrupt").read_text()]
        Path("interrupt").unlink()
        signal.raise_signal(chosen)
    return batch.x.clone()


interrupted.stochastic = False  # type: ignore[attr-defined]
