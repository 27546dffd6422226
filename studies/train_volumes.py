"""A small network on volumes of four solids, in noise and beside a rod that says nothing of the class.

A solid has its own size, place, turn and brightness; where it is is known, so that localisation can judge the maps.
Nothing is read; --data is not used. The learning rate (of 0.001, 0.003 and 0.01) and the epoch are those that do best
on volumes for validation; those for the test are looked at once, at the end.
"""

from __future__ import annotations

import numpy as np
import torch
from common import arguments, restored, train_network
from torch import Tensor, nn

from heatproof import Model
from heatproof.types import Batch

CLASSES = ("ball", "cube", "plate", "shell")
SIDE = 16


class VoxelNet(nn.Module):
    """Three convolutions of volumes, the mean over space, and a linear layer."""

    def __init__(self, classes: int, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv3d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)),
            *(nn.Conv3d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)),
            *(nn.Conv3d(2 * width, 4 * width, 3, padding=1), nn.ReLU()),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of volumes (B, 1, D, H, W)."""
        return self.head(self.body(x).mean((2, 3, 4)))


def model() -> Model:
    """The trained network, for a study file."""
    return restored("volumes", "voxelnet", VoxelNet)


def solids(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Volumes (n, 1, 16, 16, 16) in [0, 1], their classes in turn, and where the solid is, (n, 16, 16, 16)."""
    draw = torch.Generator().manual_seed(seed)
    grid = torch.stack(torch.meshgrid(*[torch.arange(float(SIDE))] * 3, indexing="ij"), -1)
    x, regions = 0.2 * torch.rand(n, 1, SIDE, SIDE, SIDE, generator=draw), []
    labels = torch.arange(n) % len(CLASSES)
    for i, label in enumerate(labels.tolist()):
        radius = 3 + 1.5 * float(torch.rand(1, generator=draw))
        centre = 5 + 6 * torch.rand(3, generator=draw)
        turn = torch.linalg.qr(torch.randn(3, 3, generator=draw)).Q
        place = (grid - centre) @ turn / radius
        far, flat = place.norm(dim=-1), place.abs().amax(-1)
        inside = (
            far < 1,
            flat < 0.8,
            (flat < 1) & (place[..., 0].abs() < 0.25),
            (far < 1.1) & (far > 0.7),
        )[label]
        bright = 0.4 + 0.3 * float(torch.rand(1, generator=draw))
        x[i, 0][inside] += bright
        rod = torch.randint(0, SIDE, (2,), generator=draw).tolist()
        x[i, 0, rod[0], rod[1]] += bright * ~inside[rod[0], rod[1]]
        regions.append(inside)
    return x.clamp(0, 1), labels, torch.stack(regions)


def main() -> None:
    args = arguments("volumes", __doc__ or "")
    args.out.mkdir(parents=True, exist_ok=True)
    sets = {}
    for number, (part, n) in enumerate((("train", 1200), ("validation", 400), ("test", 400))):
        x, labels, regions = solids(n, 3 * args.seed + number)
        sets[part] = Batch(tuple(f"{i:04d}" for i in range(n)), x, {}, labels)
        np.savez(
            args.out / f"{part}.npz",
            x=x.numpy(),
            y=labels.numpy(),
            classes=CLASSES,
            solid=regions.numpy(),
        )
    both, rate = (sets["train"], sets["test"], CLASSES), {"epochs": 24, "lr": 0.01, "anneal": True}
    options, chosen = {"classes": len(CLASSES)}, sets["validation"]
    train_network(
        args.out / "voxelnet", VoxelNet, options, *both, **rate, seed=args.seed, validation=chosen
    )


if __name__ == "__main__":
    main()
