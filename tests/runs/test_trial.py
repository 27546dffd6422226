"""What a study will cost, estimated within seconds: the passes that it counts, and those that it makes."""

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
    estimate = trying.estimate_cost(plan)
    passes, seconds = estimate.passes, estimate.total_seconds
    assert seen[0] < 0.05 * passes, "a linear function stands in for the network"
    assert 1000 * passes < seconds < 1000 * passes + 600, (
        "each pass takes what it takes in the network"
    )
    assert set(estimate.seconds) == set(plan.total_work(plan.jobs())), "every step has its share"
    before = model.passes
    x = small.pictures(2)[0]
    torch.testing.assert_close(
        model.logits(model.inputs(heatproof.Batch(("a", "b"), x))), net(x)
    )  # as it was
    heatproof.evaluate(
        model, small.pictures(3)[0], EXPLAINERS, AXES, tmp_path, batch_size=8, references=2
    )
    assert 0.7 * passes < model.passes - before < 1.3 * passes


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


@pytest.mark.parametrize("samples", [1, 2, 3, 30])
def test_passes_are_those_of_the_run_for_few_and_for_many_samples(samples: int) -> None:
    """References are explained once, whatever the number of samples, and take part as samples too."""
    model = small.model()
    tests = {
        "stability": {"stability": {"perturbations": {"gaussian_noise": {"sigma": 1e-6}}, "k": 20}}
    }
    plan = make_plan(model, small.pictures(samples)[0], ["input_x_gradient", "random"], tests)
    estimate = trying.estimate_cost(plan)
    before = model.passes
    heatproof.runs.evaluate.execute(plan, None, "test", False)
    assert estimate.passes == pytest.approx(model.passes - before, rel=0.1, abs=2)


def test_a_table_whose_perturbations_need_several_rows_is_estimated() -> None:
    rows = torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    plan = make_plan(nn.Linear(4, 2), rows, ["saliency", "random"], "stability")
    estimate = trying.estimate_cost(plan)
    assert estimate.passes > 20
