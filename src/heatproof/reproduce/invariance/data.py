"""Generated heartbeats and solids, and small networks whose symmetries are known.

A beat has 48 steps: P wave, QRS complex and T wave. It is normal, or of one of four abnormal kinds, which are the
concepts as well, like those of MIT-BIH in the paper. A solid is 24 points on the surface of a sphere, a cube or a torus.
`python -m heatproof.reproduce.invariance.data` trains the networks again.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heatproof.models import Model
from heatproof.reproduce.pictures import digits, save_weights, with_weights
from heatproof.types import Batch

# ---- heartbeats ------------------------------------------------------------------------------------------------------

STEPS = 48
KINDS = ("normal", "ventricular", "supraventricular", "fusion", "unknown")


def _wave(at: Tensor, width: Tensor, height: Tensor) -> Tensor:
    """Return Gaussian bumps (N, 48) on a circle of 48 steps; the arguments are (N, 1)."""
    distance = (torch.arange(STEPS) - at + STEPS / 2) % STEPS - STEPS / 2
    return height * torch.exp(-0.5 * (distance / width) ** 2)


def beats(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return beats (N, 1, 48) and their kinds (N,); every other one is normal."""
    generator = torch.Generator().manual_seed(seed)

    def around(mean: Tensor | float, spread: float) -> Tensor:
        return mean + spread * torch.randn(n, 1, generator=generator)

    kind = torch.arange(n) // 2 % 4 + 1
    kind[::2] = 0
    is_kind = [(kind == i).float()[:, None] for i in range(len(KINDS))]
    centre = around(24.0, 1.0)
    # Ventricular: a wide QRS and no P wave. Supraventricular: early, with P turned over. Fusion: two peaks.
    p_height = around(0.25, 0.05) * (1 - is_kind[1] - 2 * is_kind[2])
    qrs_width = around(1.2, 0.1) + 2.0 * is_kind[1] + 0.8 * is_kind[3]
    t_height = around(0.4, 0.08) * (1 - 1.6 * is_kind[4])
    beat = _wave(centre - 9 + 4 * is_kind[2], around(2.2, 0.2), p_height)
    beat = beat + _wave(centre, qrs_width, around(1.0, 0.1))
    beat = beat - _wave(centre + 3, around(1.2, 0.1), around(0.25, 0.05))
    beat = beat + _wave(centre + 4, around(1.2, 0.1), around(0.6, 0.1) * is_kind[3])
    beat = beat + _wave(centre + 12, around(3.2, 0.3), t_height)
    return (beat + 0.03 * torch.randn(n, STEPS, generator=generator))[:, None], kind


def held_out_beats() -> tuple[Tensor, Tensor]:
    """Return 200 beats with their labels, normal or abnormal, for a study file."""
    x, kind = beats(200, seed=1)
    return x, (kind > 0).long()


def train_beats() -> tuple[Tensor, Tensor]:
    """Return 60 training beats with their labels, for explanations by examples."""
    x, kind = beats(60, seed=0)
    return x, (kind > 0).long()


def concept_beats(kind: int, positive: bool) -> Tensor:
    """Return 25 training beats of a kind, or 25 of the others."""
    x, kinds = beats(400, seed=2)
    chosen: Tensor = x[(kinds == kind) == positive][:25]
    return chosen


ventricular, not_ventricular = partial(concept_beats, 1, True), partial(concept_beats, 1, False)
supraventricular = partial(concept_beats, 2, True)
not_supraventricular = partial(concept_beats, 2, False)
fusion, not_fusion = partial(concept_beats, 3, True), partial(concept_beats, 3, False)
unknown, not_unknown = partial(concept_beats, 4, True), partial(concept_beats, 4, False)


def circular_cnn() -> nn.Sequential:
    """Return an untrained network with circular padding and a mean over time: invariant to cyclic shifts."""
    layers: list[tuple[str, nn.Module]] = []
    for i, channels in enumerate((1, 16, 16)):
        pad = 2 * 2**i
        convolution = nn.Conv1d(
            channels, 16, 5, padding=pad, dilation=2**i, padding_mode="circular"
        )
        layers += [(f"conv{i}", convolution), (f"relu{i}", nn.ReLU())]
    features = nn.Sequential(OrderedDict(layers))
    hidden = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    pool = nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten())
    return nn.Sequential(
        OrderedDict(features=features, pool=pool, hidden=hidden, head=nn.Linear(16, 2))
    )


def flattened_cnn() -> nn.Sequential:
    """Return an untrained network that flattens its last map: invariant to nothing by construction."""
    features = nn.Sequential(
        nn.Conv1d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(8, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
    )
    hidden = nn.Sequential(nn.Linear(16 * STEPS // 4, 16), nn.ReLU())
    return nn.Sequential(OrderedDict(features=features, hidden=hidden, head=nn.Linear(16, 2)))


def all_cnn() -> Model:
    """Return the invariant network of the paper's All-CNN kind, trained."""
    return Model(with_weights(circular_cnn(), "beats_all.pt"), name="All-CNN")


def augmented_cnn() -> Model:
    """Return the network with a flattened map that was trained on shifted beats."""
    return Model(with_weights(flattened_cnn(), "beats_augmented.pt"), name="Augmented-CNN")


def standard_cnn() -> Model:
    """Return the network with a flattened map that was trained on beats as they are."""
    return Model(with_weights(flattened_cnn(), "beats_standard.pt"), name="Standard-CNN")


# ---- solids ----------------------------------------------------------------------------------------------------------

POINTS = 24
SOLIDS = ("sphere", "cube", "torus")


def solids(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return point clouds (N, 24, 3) on the surfaces of solids, in random poses, and their classes (N,)."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.arange(n) % len(SOLIDS)
    clouds = []
    for kind in kinds.tolist():
        points = torch.randn(POINTS, 3, generator=generator)
        if SOLIDS[kind] == "sphere":
            points = points / points.norm(dim=1, keepdim=True)
        elif SOLIDS[kind] == "cube":
            points = points / points.abs().amax(1, keepdim=True)
        else:
            angles = 2 * math.pi * torch.rand(2, POINTS, generator=generator)
            radius = 0.8 + 0.25 * angles[0].cos()
            ring = (radius * angles[1].cos(), radius * angles[1].sin(), 0.25 * angles[0].sin())
            points = torch.stack(ring, 1)
        turn = torch.linalg.qr(torch.randn(3, 3, generator=generator)).Q
        clouds.append(points @ turn + 0.02 * torch.randn(POINTS, 3, generator=generator))
    return torch.stack(clouds), kinds


def held_out_solids() -> list[tuple[Tensor, int]]:
    """Return 120 point clouds with their classes, for a study file."""
    x, kinds = solids(120, seed=1)
    return list(zip(x, kinds.tolist(), strict=True))


def train_solids() -> list[tuple[Tensor, int]]:
    """Return 60 training clouds, for explanations by examples."""
    x, kinds = solids(60, seed=0)
    return list(zip(x, kinds.tolist(), strict=True))


def concept_solids(kind: int, positive: bool) -> Batch:
    """Return 25 clouds of a solid, or 25 of the others."""
    x, kinds = solids(150, seed=2)
    chosen = x[(kinds == kind) == positive][:25]
    ids = tuple(f"{SOLIDS[kind]} {positive} {i}" for i in range(len(chosen)))
    return Batch(ids, chosen, {"mask": torch.ones(chosen.shape[:2], dtype=torch.bool)})


flat, not_flat = partial(concept_solids, 1, True), partial(concept_solids, 1, False)
hole, no_hole = partial(concept_solids, 2, True), partial(concept_solids, 2, False)


class DeepSet(nn.Module):
    """One network on every point, the mean over points, another network: invariant to the order of the points."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.hidden = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, len(SOLIDS))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return class scores (B, 3) of points (B, N, 3); `mask` (B, N) is True at real points."""
        inner = self.elements(x)
        real = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x.dtype)
        pooled = (inner * real).sum(1) / real.sum(1)
        scores: Tensor = self.head(self.hidden(pooled))
        return scores


def deep_set() -> Model:
    """Return the trained network on points."""
    return Model(with_weights(DeepSet(), "solids.pt"), name="Deep Set")


# ---- digits --------------------------------------------------------------------------------------------


def train_pictures() -> tuple[Tensor, Tensor]:
    """Return 60 training pictures with their classes, for explanations by examples."""
    return digits(6, test=False, seed=0)


# ---- training ----------------------------------------------------------------------------------------------------------


def shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return beats rolled by a random number of steps each."""
    by = torch.randint(STEPS, (len(x), 1), generator=generator)
    return x.gather(2, ((torch.arange(STEPS) - by) % STEPS)[:, None])


def trained(
    network: nn.Module, x: Tensor, y: Tensor, epochs: int, shifts: bool = False
) -> nn.Module:
    """Train a network in place by Adam, and return it in eval mode; with `shifts` on shifted beats."""
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3, weight_decay=1e-5)
    network.train()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x), generator=generator), 64):
            batch = shifted(x[rows], generator) if shifts else x[rows]
            optimiser.zero_grad()
            torch.autograd.backward(F.cross_entropy(network(batch), y[rows]))
            optimiser.step()
    return network.eval()


def main() -> None:
    """Train the networks, print their accuracy on test samples, and store them."""
    x, kind = beats(2000, seed=3)
    test_x, test_kind = beats(500, seed=1)
    of_beats = (x, (kind > 0).long(), test_x, (test_kind > 0).long())
    of_solids = (*solids(3000, seed=3), *solids(500, seed=1))
    jobs = {
        "beats_all.pt": (circular_cnn, of_beats, 20, False),
        "beats_standard.pt": (flattened_cnn, of_beats, 20, False),
        "beats_augmented.pt": (flattened_cnn, of_beats, 60, True),
        "solids.pt": (DeepSet, of_solids, 40, False),
    }
    for file, (build, (train_x, train_y, held_x, held_y), epochs, shifts) in jobs.items():
        torch.manual_seed(0)
        network = trained(build(), train_x, train_y, epochs, shifts)
        held = shifted(held_x, torch.Generator().manual_seed(5)) if shifts else held_x
        with torch.no_grad():
            correct = float((network(held).argmax(1) == held_y).float().mean())
        print(f"{file}: test accuracy {correct:.1%} of {len(held_y)}")
        save_weights(network, file)


if __name__ == "__main__":
    main()
