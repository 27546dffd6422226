"""A deep set on points of the surfaces of five solids: exactly invariant to the order of the points.

A solid has its own size, proportions, place, turn about the upright axis and number of points (32 to 64), and every
point a little noise. Nothing is read; --data is not used.
"""

from __future__ import annotations

import math

import torch
from common import arguments, restored, save_concept, save_sets, train_network, whole
from nets import DeepSet
from torch import Tensor

from heatproof import Model
from heatproof.data import open_data
from heatproof.types import Batch

CLASSES = ("sphere", "cube", "cylinder", "cone", "torus")
FEWEST, MOST = 32, 64


def model() -> Model:
    """The trained network, for a study file."""
    return restored("points", "deepset", DeepSet)


def surface(solid: str, n: int, generator: torch.Generator) -> Tensor:
    """n points (n, 3), uniform by area, on the surface of a solid that fits into about [−1, 1]³."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    if solid == "sphere":
        points = torch.randn(n, 3, generator=generator)
        return points / points.norm(dim=1, keepdim=True)
    if solid == "cube":
        points = 2 * uniform(n, 3) - 1
        face = torch.randint(3, (n,), generator=generator)
        points[torch.arange(n), face] = torch.sign(uniform(n) - 0.5)
        return points * 0.8
    if solid == "torus":
        tube, around = _tube_angles(n, generator), 2 * math.pi * uniform(n)
        radius = 0.7 + 0.3 * tube.cos()
        return torch.stack([radius * around.cos(), radius * around.sin(), 0.3 * tube.sin()], 1)
    around = 2 * math.pi * uniform(n)
    side = 2 * math.pi * 2 if solid == "cylinder" else math.pi * math.sqrt(5)
    discs = 2 * math.pi if solid == "cylinder" else math.pi
    on_side = uniform(n) < side / (side + discs)
    height = 2 * uniform(n) if solid == "cylinder" else 2 * (1 - uniform(n).sqrt())
    radius = torch.where(
        on_side, torch.ones(n) if solid == "cylinder" else 1 - height / 2, uniform(n).sqrt()
    )
    disc = (2 * (uniform(n) < 0.5).float()) if solid == "cylinder" else torch.zeros(n)
    points = torch.stack(
        [radius * around.cos(), radius * around.sin(), torch.where(on_side, height, disc) - 1], 1
    )
    return points * 0.9


def _tube_angles(n: int, generator: torch.Generator) -> Tensor:
    """Angles around the tube of the torus, by rejection, because its outer side has more area."""
    kept = torch.empty(0)
    while len(kept) < n:
        angle, height = torch.rand(2, 4 * n, generator=generator)
        angle = 2 * math.pi * angle
        kept = torch.cat([kept, angle[height < (0.7 + 0.3 * angle.cos())]])
    return kept[:n]


def solids(n: int, seed: int) -> list[tuple[Tensor, int]]:
    """n sets of points with their classes, in turn."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for i in range(n):
        label = i % len(CLASSES)
        count = int(torch.randint(FEWEST, MOST + 1, (1,), generator=generator))
        points = surface(CLASSES[label], count, generator)
        points = points * (0.8 + 0.4 * torch.rand(3, generator=generator))
        angle = 2 * math.pi * float(torch.rand(1, generator=generator))
        turn = torch.tensor(
            [
                [math.cos(angle), -math.sin(angle), 0],
                [math.sin(angle), math.cos(angle), 0],
                [0, 0, 1],
            ]
        )
        points = points @ turn.T + 0.1 * torch.randn(3, generator=generator)
        found.append((points + 0.03 * torch.randn(count, 3, generator=generator), label))
    return found


def concepts(train: Batch) -> dict[str, Tensor]:
    """Which solids have a flat face, which a hole, and which are taller than the median for their width."""
    assert train.label is not None
    real = train.aux["mask"][..., None]
    extent = train.x.masked_fill(~real, -torch.inf).amax(1) - train.x.masked_fill(
        ~real, torch.inf
    ).amin(1)
    height = extent[:, 2] / extent[:, :2].amax(1)
    flat = torch.tensor([CLASSES.index(solid) for solid in ("cube", "cylinder", "cone")])
    return {
        "flat_face": torch.isin(train.label, flat),
        "hole": train.label == CLASSES.index("torus"),
        "tall": height > height.median(),
    }


def main() -> None:
    args = arguments("points", __doc__ or "")
    sets: dict[str, Batch] = {}
    for part, n in (("train", 3000), ("test", 500)):
        sets[part] = whole(open_data(solids(n, 2 * args.seed + (part == "test")), length=MOST))
    save_sets(args.out, sets["train"], sets["test"], CLASSES)
    for name, present in concepts(sets["train"]).items():
        save_concept(args.out, name, sets["train"], present, CLASSES)
    options = {"features": 3, "classes": len(CLASSES)}
    both = (sets["train"], sets["test"], CLASSES)
    train_network(args.out / "deepset", DeepSet, options, *both, epochs=60, lr=5e-3, seed=args.seed)


if __name__ == "__main__":
    main()
