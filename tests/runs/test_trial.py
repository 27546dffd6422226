"""What a study will cost, reckoned in seconds: the passes that it counts, and those that it makes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof.runs import cost as trying
from heatproof.runs.plan import make_plan
from support import small

EXPLAINERS = [
    "saliency",
    "grad_cam",
    "integrated_gradients",
    {"lime": {"samples": 80}},
    "guided_backprop",
    "sobel",
]
AXES = [
    {
        "stability": {
            "perturbations": [
                {"gaussian_noise": {"sigma": 0.01}},
                {"brightness": {"factor": 1.02}},
            ],
            "k": 20,
        }
    },
    {"symmetry": {"group": "dihedral", "elements": 4}},
    {"certificate": {"radii": [1, 2], "features": {"patches": {"size": 8}}}},
]


class Counted(nn.Module):
    """A network that counts the inputs it is given."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.seen = net, [0]

    def forward(self, x: Tensor) -> Tensor:
        self.seen[0] += len(x)
        out: Tensor = self.net(x)
        return out


def test_passes_are_counted_and_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Counted(small.model().module)
    model = heatproof.Model(net)
    seen: list[int] = model.module.seen
    plan = make_plan(model, small.pictures(3)[0], EXPLAINERS, AXES, batch_size=8, references=2)
    monkeypatch.setattr(trying, "_pace", lambda model, batch, gradient: 1000.0)
    each, seconds = trying.trial(plan)
    assert seen[0] < 0.05 * each, "a linear function stands in for the network"
    assert 1000 * each < seconds < 1000 * each + 600, "each pass takes what it takes in the network"
    before = model.passes
    x = small.pictures(2)[0]
    torch.testing.assert_close(
        model.logits(model.inputs(heatproof.Batch(("a", "b"), x))), net(x)
    )  # as it was
    heatproof.evaluate(
        model, small.pictures(3)[0], EXPLAINERS, AXES, tmp_path, batch_size=8, references=2
    )
    assert 0.7 * 3 * each < model.passes - before < 1.3 * 3 * each


def test_the_time_of_passes_is_that_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves by one second for every input: a differentiated pass is timed by itself."""
    now = [0.0]

    class Slow(Counted):
        def forward(self, x: Tensor) -> Tensor:
            now[0] += len(x) * (3.0 if torch.is_grad_enabled() else 1.0)
            return super().forward(x)

    monkeypatch.setattr(trying.time, "perf_counter", lambda: now[0])
    model = heatproof.Model(Slow(small.model().module))
    batch = heatproof.Batch(("a", "b"), small.pictures(2)[0])
    assert trying._pace(model, batch, False) == pytest.approx(1.0)
    assert trying._pace(model, batch, True) == pytest.approx(3.0)
