"""A small model and a batch of every kind of data, with the features that suit it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from heatproof.features import Elements, Patches, Pixels, Superpixels, Tokens, Windows
from heatproof.models import Model
from heatproof.types import Batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def seeded(build: Any, seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


class Curved(nn.Module):
    """Smooth, with interactions between all positions."""

    def __init__(self, inputs: int, classes: int = 3) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(inputs, 8, generator=generator()) / inputs**0.5)
        self.second = nn.Parameter(torch.randn(8, classes, generator=generator(1)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x.flatten(1) @ self.first) @ self.second


class DeepSet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(3, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        pooled = (torch.tanh(self.each(x)) * mask[..., None]).sum(1)
        return self.head(torch.tanh(pooled))


class Gnn(DeepSet):
    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x + adjacency @ x, mask)


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(30, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        vectors = torch.tanh(self.embedding(x)) * attention_mask[..., None]
        return self.head(vectors.sum(1))


def batch_of(*shape: int) -> Batch:
    return Batch(
        tuple(f"s{i}" for i in range(shape[0])), torch.randn(shape, generator=generator(2))
    )


def sets(n: int = 3) -> Batch:
    x = torch.randn(n, 6, 3, generator=generator(3))
    mask = torch.arange(6) < torch.tensor([6, 4, 2])[:n, None]
    return Batch(("a", "b", "c")[:n], x * mask[..., None], {"mask": mask})


def graphs() -> Batch:
    batch = sets()
    edges = (torch.rand(3, 6, 6, generator=generator(4)) < 0.4).float()
    edges = (
        torch.maximum(edges, edges.mT) * batch.aux["mask"][:, None] * batch.aux["mask"][..., None]
    )
    return Batch(batch.ids, batch.x, {"adjacency": edges, **batch.aux})


def texts() -> Batch:
    attention = (torch.arange(7) < torch.tensor([7, 5, 3])[:, None]).long()
    return Batch(
        ("a", "b", "c"),
        torch.randint(3, 30, (3, 7), generator=generator(5)) * attention,
        {"attention_mask": attention},
    )


CASES: dict[str, tuple[Any, Batch, Any, dict[str, Any]]] = {
    "image": (
        lambda: Curved(2 * 5 * 6),
        batch_of(3, 2, 5, 6),
        Pixels(),
        {"mean": (0.1, 0.2), "std": (0.5, 0.7)},
    ),
    "patches": (lambda: Curved(2 * 5 * 6), batch_of(3, 2, 5, 6), Patches(size=2), {}),
    "superpixels": (
        lambda: Curved(3 * 8 * 8),
        Batch(("a", "b", "c"), torch.rand(3, 3, 8, 8, generator=generator())),
        Superpixels(kernel_size=1.0, max_dist=4.0),
        {},
    ),
    "series": (lambda: Curved(2 * 9), batch_of(3, 2, 9), Pixels(), {}),
    "windows": (lambda: Curved(2 * 9), batch_of(3, 2, 9), Windows(size=4), {}),
    "table": (lambda: Curved(7), batch_of(3, 7), Pixels(), {}),
    "set": (DeepSet, sets(), Elements(), {}),
    "graph": (Gnn, graphs(), Elements(), {}),
    "tokens": (BagOfWords, texts(), Tokens(mask_token=1), {}),
    "unattended": (BagOfWords, texts(), Tokens(), {}),
    "vectors": (BagOfWords, texts(), Pixels(), {"embedding": "embedding"}),
}
TARGET = torch.tensor([0, 1, 2])


def case(name: str, rows: int = 32) -> tuple[Model, Batch, Any]:
    build, batch, features, options = CASES[name]
    return Model(seeded(build), rows=rows, **options), batch, features
