"""MFABA follows an attack within the input's own range, sample by sample."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from heatproof import Model, UserError
from heatproof.explainers.mfaba import Mfaba
from heatproof.types import Batch
from support.small import model, pictures


def photographs(n: int) -> Batch:
    return Batch(tuple(f"p{i}" for i in range(n)), pictures(n)[0])


@pytest.mark.parametrize("variant", ["sharp", "smooth"])
def test_maps_sum_to_the_lost_probability(variant) -> None:
    seen: list[Tensor] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model().module

        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return self.net(x)

    watched = Model(Watched(), mean=(0.5,) * 3, std=(0.5,) * 3)
    batch = photographs(1)
    start = watched.logits(watched.inputs(batch)).softmax(1)
    target = start.argmax(1)
    seen.clear()
    maps = Mfaba(steps=60, step=0.0005, variant=variant)(watched, batch, target, 0)
    end = model().logits(seen[-1]).softmax(1)
    lost = float(start[0, target] - end[0, target])
    assert lost > 0.02
    assert float(maps.sum()) == pytest.approx(lost, rel=0.15, abs=0.01)
    assert all(float(x.min()) >= -1 - 1e-6 and float(x.max()) <= 1 + 1e-6 for x in seen), (
        "pixels stay in [0, 1]"
    )
    assert (seen[1] - seen[0]).abs().max() < 0.1, (
        "the first step is a step, not a jump into another range"
    )


@pytest.mark.parametrize("variant", ["sharp", "smooth"])
def test_maps_are_finite_and_depend_on_no_neighbour(variant) -> None:
    batch = photographs(5)
    target = model().logits(model().inputs(batch)).argmax(1)
    explainer = Mfaba(steps=8, variant=variant)
    whole = explainer(model(rows=64), batch, target, 0)
    assert (
        whole.shape == batch.x.shape
        and torch.isfinite(whole).all()
        and whole.flatten(1).std(1).min() > 0
    )
    pick = [3, 1]
    torch.testing.assert_close(
        explainer(model(rows=1), batch[pick], target[pick], 0), whole[pick], atol=1e-6, rtol=1e-3
    )


def test_the_path_ends_where_another_class_begins() -> None:
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    far = Model(net)
    batch = Batch(("near", "far"), torch.tensor([[0.5, 0.45], [1.0, -9.0]]))
    far.passes = 0
    maps = Mfaba(steps=30)(far, batch, torch.tensor([0, 0]), 0)
    assert far.passes < 2 * 30, "the sample that crossed is done"
    assert torch.isfinite(maps).all() and maps[0].sum() > 0


def test_a_model_without_a_gradient_or_classes_is_refused() -> None:
    class Detached(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.detach().flatten(1)[:, :2]

    with pytest.raises(UserError, match=r"Detached.*gradient"):
        Mfaba(steps=3)(Model(Detached()), photographs(2), torch.tensor([0, 0]), 0)
    size = photographs(1).x[0].numel()
    number = Model(
        nn.Sequential(nn.Flatten(), nn.Linear(size, 1)), task={"regression": {"tolerance": 1.0}}
    )
    with pytest.raises(UserError, match=r"mfaba.*regression"):
        Mfaba(steps=3)(number, photographs(2), torch.tensor([0, 0]), 0)


def test_a_flat_model_gives_a_zero_map() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 0 * x.flatten(1)[:, :2]

    maps = Mfaba(steps=3)(Model(Flat()), photographs(2), torch.tensor([0, 0]), 0)
    assert (maps == 0).all()


@pytest.mark.parametrize("variant", ["sharp", "smooth"])
def test_maps_are_the_formula_along_the_path(variant) -> None:
    """One sample of a linear softmax, with ∂p/∂x = p_t·(w_t − Σ_k p_k·w_k) and every step by hand."""
    weight = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 1.5, 0.0]], dtype=torch.float64)
    net = nn.Linear(3, 2, bias=False).double()
    net.weight.data = weight
    start = torch.tensor([0.9, -0.2, 0.4], dtype=torch.float64)
    here, wanted = start.clone(), torch.zeros(3, dtype=torch.float64)
    for _ in range(4):
        p = (weight @ here).softmax(0)
        gradient = p[0] * (weight[0] - p @ weight)
        if variant == "sharp":
            ahead = here - 100 * 0.0005 * gradient / gradient.norm()
        else:
            ahead = start + (here - 0.0005 * gradient.sign() - start).clamp(-0.001, 0.001)
        ahead = ahead.clamp(start.min(), start.max())
        wanted -= (ahead - here) * gradient
        here = ahead
    explainer = Mfaba(steps=4, step=0.0005, variant=variant, reach=0.001)
    maps = explainer(Model(net), Batch(("a",), start[None]), torch.tensor([0]), 0)
    torch.testing.assert_close(maps[0].double(), wanted, rtol=1e-4, atol=1e-7)
