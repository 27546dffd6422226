"""A requested error in place of a count of draws or steps."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from torch import nn

import heatproof
from heatproof import (
    Batch,
    ExpectedGradients,
    IntegratedGradients,
    KernelShap,
    Lime,
    Model,
    Rise,
    SmoothGrad,
    UserError,
)
from heatproof.explainers.requested_error import LADDER, counts_and_errors
from heatproof.features import Patches


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def network() -> nn.Module:
    """A curved network so small that thousands of passes are quick."""
    net = nn.Sequential(nn.Conv2d(3, 4, 5, stride=3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 4))
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.copy_(drawn(*parameter.shape, seed=number) * 0.3)
    return net


NET = Model(network(), rows=512)
BATCH = Batch(tuple("abcde"), drawn(5, 3, 16, 16).sigmoid())
TARGET = NET.logits(NET.inputs(BATCH)).argmax(1)
ASKED = [
    Lime(error=0.2, features=Patches(4)),
    KernelShap(error=0.1, features=Patches(4)),
    Rise(error=0.1, grid=4),
    ExpectedGradients(error=0.3, baseline=BATCH),
    SmoothGrad(error=0.4),
    IntegratedGradients(error=0.01),
]


def test_a_map_of_nothing_that_is_promised_nothing_is_right_at_once():
    flat = Model(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    nn.init.zeros_(flat.module[1].weight)
    for explainer in (IntegratedGradients(error=0.01), SmoothGrad(error=0.4)):
        found = counts_and_errors(explainer, flat, BATCH, TARGET, 0)
        assert set(found[:, 0].tolist()) <= set(LADDER[:2]) and not found[:, 1].any()


@pytest.mark.parametrize("explainer", ASKED, ids=lambda e: e.name)
def test_the_error_reached_is_the_one_asked_for_and_a_batch_does_not_matter(explainer):
    found = counts_and_errors(explainer, NET, BATCH, TARGET, 0)
    alone = torch.cat(
        [counts_and_errors(explainer, NET, BATCH[[i]], TARGET[[i]], 0) for i in range(5)]
    )
    assert set(found[:, 0].tolist()) <= set(map(float, LADDER))
    assert torch.equal(found[:, 0], alone[:, 0])
    capped = found[:, 0] == LADDER[-1]
    assert bool((found[~capped, 1] <= explainer.error).all()) and not bool(capped.all())
    together = explainer(NET, BATCH, TARGET, 0)
    assert torch.allclose(
        together[[3]], explainer(NET, BATCH[[3]], TARGET[[3]], 0), rtol=1e-3, atol=1e-5
    )


def test_the_error_that_is_said_is_the_error_that_is_there():
    """Against exact Shapley values of 2¹⁰ coalitions, on a linear model with a product: mean over many seeds."""
    net = heatproof.Model(Products())
    batch = Batch(
        tuple(map(str, range(20))),
        torch.rand(20, 10, generator=torch.Generator().manual_seed(0)) + 0.5,
    )
    target = torch.zeros(20, dtype=torch.int64)
    exact = KernelShap(samples=2000, features=heatproof.features.Pixels())(net, batch, target, 0)
    asked = KernelShap(error=0.05, features=heatproof.features.Pixels())
    found = counts_and_errors(asked, net, batch, target, 0)
    assert float(found[:, 0].max()) < 1022  # they are not all enumerated
    off = (asked(net, batch, target, 0) - exact).norm(dim=1) / exact.norm(dim=1)
    assert float(off.square().mean().sqrt()) < 2 * 0.05
    assert float(found[:, 1].max()) <= 0.05


class Products(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = (
            x.sum(1)
            + 3 * x[:, 0] * x[:, 1] * x[:, 2]
            + 2 * x[:, 3] * x[:, 4]
            - x[:, 5] * x[:, 6] * x[:, 7]
        )
        return torch.stack([score, -score], 1)


def test_a_cap_is_said(monkeypatch):
    monkeypatch.setattr("heatproof.explainers.requested_error.LADDER", (16, 32))
    found = counts_and_errors(SmoothGrad(error=0.0001, samples=3), NET, BATCH[[0]], TARGET[[0]], 0)
    assert found[0, 0] == 32 and found[0, 1] > 0.0001


def test_the_map_is_the_one_of_the_count_that_is_found():
    explainer = KernelShap(error=0.1, features=Patches(4))
    counts = counts_and_errors(explainer, NET, BATCH, TARGET, 0)[:, 0].int().tolist()
    maps = explainer(NET, BATCH, TARGET, 0)
    for row, count in enumerate(counts):
        plain = KernelShap(samples=count, features=Patches(4))
        own = plain(NET, BATCH[[row]], TARGET[[row]], 0)
        assert torch.allclose(maps[[row]], own, rtol=1e-3, atol=1e-5)


def test_the_table_says_the_error_reached_and_does_not_depend_on_batch_and_shard():
    explainers = {
        "lime": Lime(error=0.2, features=Patches(4)),
        "ig": IntegratedGradients(error=0.02),
    }
    judges = [
        heatproof.Stability(perturbations=["identity", "brightness"], k=20),
        heatproof.Dependence(draws=1, classes=1, k=20),
    ]
    tables = [
        heatproof.evaluate(
            NET, BATCH, explainers, judges, batch_size=size, shard_size=shard
        ).table()
        for size, shard in ((64, 50), (2, 3))
    ]
    keys = ["evaluation", "explainer", "sample", "measure", "condition", "level", "repeat"]
    first, second = (table.sort_values(keys, ignore_index=True) for table in tables)
    assert (first[keys] == second[keys]).all().all()
    assert ((first.value - second.value).abs().fillna(0) < 0.04).all()
    reached = first[first.measure == "error_reached"]
    assert len(reached) == 10 and (reached.value[reached.explainer == "ig"] <= 0.02).all()
    capped = first[first.measure == "capped"].set_index(["explainer", "sample"]).value
    over = (
        reached.set_index(["explainer", "sample"]).value
        > pd.Series({"lime": 0.2, "ig": 0.02}).reindex(reached.explainer).to_numpy()
    )
    assert (capped == over.astype(float)).all()
    same = first[(first.condition == "identity") & (first.measure == "fass")]
    assert (same[same.status == "ok"].value == 1.0).all()


@pytest.mark.parametrize("wrong", [0, 1.5, -0.1, True, "small", float("nan")])
def test_what_is_no_error_is_refused(wrong):
    with pytest.raises(ValueError, match=r"error.*0 and 1"):
        Lime(error=wrong)


def test_a_drawn_baseline_promises_nothing():
    with pytest.raises(ValueError, match="completeness gap"):
        IntegratedGradients(error=0.1, baseline="random")


def test_too_many_features_for_any_rung_are_refused():
    with pytest.raises(UserError, match="4096"):
        KernelShap(error=0.1, features=Patches(1))(
            Model(torch.nn.Flatten()),
            Batch(("a",), torch.rand(1, 3, 128, 128)),
            torch.tensor([0]),
            0,
        )
