"""Random draws that belong to places of the input move with the group: no floor is called asymmetry."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nets import GNN, BagOfWords, CircularCNN1d, DeepSet
from torch import Tensor, nn

from heatproof import Batch, Model, UserError
from heatproof.axes.symmetry.groups import build
from heatproof.axes.symmetry.orbit import orbit_of
from heatproof.axes.symmetry.scores import equivariance
from heatproof.explainers import (
    FeaturePermutation,
    GradientShap,
    IntegratedGradients,
    KernelShap,
    Lime,
    Rise,
    SmoothGrad,
    VarGrad,
)
from heatproof.features import Elements, Patches, Pixels, Tokens, Windows
from heatproof.features.fill import origins
from heatproof.models.randomised import seeded


def named(x: Tensor, **aux: Tensor) -> Batch:
    return Batch(tuple(f"s{i}" for i in range(len(x))), x, aux)


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


class Symmetric(nn.Module):
    """Invariant to all of D4: a convolution with a kernel that is, and a pooling."""

    def __init__(self) -> None:
        super().__init__()
        corner, side, centre = 0.3, -0.7, 1.1
        rows = [[corner, side, corner], [side, centre, side], [corner, side, corner]]
        self.kernel = nn.Parameter(torch.tensor([[rows]]))
        self.weight = nn.Parameter(torch.tensor([[1.0], [-2.0]]))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(nn.functional.conv2d(x, self.kernel, padding=1))
        return (h * h).mean((2, 3)) @ self.weight.T + h.mean((2, 3))


def graphs() -> tuple[Model, Batch]:
    mask = torch.arange(6) < torch.tensor([6, 4])[:, None]
    edges = (values(2, 6, 6, seed=1) < 0.5) & mask[:, :, None] & mask[:, None]
    net = seeded(lambda: GNN(features=4, classes=2, width=8, depth=2), 0)
    edges = (edges | edges.transpose(1, 2)).float()
    return Model(net), named(values(2, 6, 4) * mask[..., None], adjacency=edges, mask=mask)


def sets() -> tuple[Model, Batch]:
    mask = torch.arange(7) < torch.tensor([7, 4])[:, None]
    net = seeded(lambda: DeepSet(features=3, classes=4, width=8), 0)
    return Model(net), named(values(2, 7, 3) * mask[..., None], mask=mask)


def texts() -> tuple[Model, Batch]:
    mask = (torch.arange(6) < torch.tensor([6, 4])[:, None]).long()
    ids = torch.randint(2, 20, (2, 6), generator=torch.Generator().manual_seed(0)) * mask
    net = seeded(lambda: BagOfWords(size=20, classes=2, width=6), 0)  # vectors as long as the text
    return Model(net, embedding="embedding"), named(ids, attention_mask=mask)


def series() -> tuple[Model, Batch]:
    net = seeded(lambda: CircularCNN1d(channels=2, classes=3, width=6, depth=2), 0)
    return Model(net), named(values(2, 2, 12))


def pictures() -> tuple[Model, Batch]:
    return Model(Symmetric()), named(values(2, 1, 6, 6))


NOISE = [
    SmoothGrad(samples=3),
    VarGrad(samples=3),
    GradientShap(sigma=0.3),
    GradientShap(baseline="random"),
]
NOISE += [IntegratedGradients(steps=5, baseline="random")]


def drawn(features: Any) -> list[Any]:
    return [KernelShap(samples=80, features=features), Lime(samples=24, features=features)]


CASES = {
    "graphs": (
        graphs,
        "node_permutation",
        [*NOISE, *drawn(Elements()), FeaturePermutation(features=Elements())],
    ),
    "sets": (
        sets,
        "permutation",
        [*drawn(Elements()), FeaturePermutation(features=Elements(), draws=2)],
    ),
    "texts": (
        texts,
        "permutation",
        [
            *drawn(Tokens(mask_token=1)),
            FeaturePermutation(features=Tokens(mask_token=1)),
            *NOISE[2:],
        ],
    ),
    "series": (
        series,
        "cyclic",
        [*NOISE, *drawn(Pixels()), FeaturePermutation(), Rise(samples=12, grid=3)],
    ),
    "pictures": (
        pictures,
        "dihedral",
        [
            *NOISE,
            *drawn(Pixels()),
            *drawn(Patches(size=2)),
            FeaturePermutation(),
            Rise(samples=12, grid=3),
        ],
    ),
}


@pytest.mark.parametrize(
    ("case", "explainer"),
    [pytest.param(c, e, id=f"{c}-{e}") for c, (_, _, every) in CASES.items() for e in every],
)
def test_on_an_invariant_model_every_stochastic_method_scores_one(case, explainer):
    """What differs from 1 without the draws moving along is the method's own noise, told by its floor."""
    make, group, _ = CASES[case]
    model, batch = make()
    target = model.logits(model.inputs(batch), batch.aux).argmax(1)
    found = equivariance(model, batch, target, explainer, build(group), n=8)
    assert found.noise_floor is not None
    torch.testing.assert_close(found.value, torch.ones_like(found.value), rtol=0, atol=1e-4)


def test_the_noise_of_a_moved_sample_is_the_moved_noise():
    """g·x + carried(z) = g·(x + z), for any z and every row of an orbit."""
    for make, group, _ in CASES.values():
        _, batch = make()
        if not batch.x.is_floating_point():
            continue
        noise = values(*batch.x.shape, seed=5)
        around = orbit_of(build(group), batch, 6)
        beside = orbit_of(build(group), batch.with_x(batch.x + noise), 6)
        for piece, other in zip(around.pieces(), beside.pieces(), strict=True):
            torch.testing.assert_close(
                piece.batch.x + piece.batch.carried(noise[piece.sample]), other.batch.x
            )


def test_features_come_from_where_they_were_or_stay_their_own():
    """Brute force: the place a feature's first place came from; windows that no longer match keep their draws."""
    _, batch = series()
    around = orbit_of(build("cyclic"), batch, 12)
    for piece in around.pieces():
        segments = Windows(size=4).segments(piece.batch)
        for row, g in enumerate(piece.g.tolist()):
            expected = [(4 * w - g) % 12 // 4 for w in range(3)]
            assert origins(piece.batch, segments, 3)[row].tolist() == expected
    sign = {"acting": lambda g, b: g * b.x, "moving": lambda g, m: g * m, "members": [1, -1]}
    turned = next(orbit_of(build({"own": sign}), batch, 2).pieces()).batch
    assert origins(turned, Pixels().segments(turned), 12).tolist() == [list(range(12))] * 2
    torch.testing.assert_close(
        turned.carried(torch.ones_like(turned.x)), -torch.ones_like(turned.x)
    )


def test_a_baseline_of_samples_stays_where_it_is_and_costs_the_symmetry():
    """Guideline 1: a baseline that the group moves makes maps that do not move along; one value does."""
    model, batch = series()
    target = model.logits(batch.x).argmax(1)
    pool = named(values(5, 2, 12, seed=9))
    for explainer in (GradientShap(baseline=pool), IntegratedGradients(steps=5, baseline=pool)):
        assert explainer.stochastic
        found = equivariance(model, batch, target, explainer, build("cyclic"), n=12)
        assert (found.value < 0.99).all()
        assert explainer.promised(model, batch, target).isnan().all(), (
            "no single map has a known sum"
        )
    assert not IntegratedGradients().stochastic and isinstance(
        IntegratedGradients(baseline=0).baseline, float
    )
    # IG is complete for a baseline of any kind: the map sums to the difference of the outputs
    maps = IntegratedGradients(steps=60, baseline=pool)(model, batch, target, seed=3)
    before = maps.flatten(1).sum(1)
    ends = model.logits(pool.x).detach()
    possible = model.logits(batch.x).detach().gather(1, target[:, None]) - ends[:, target].T
    assert ((possible - before[:, None]).abs().amin(1) < 1e-3).all()


def test_a_pool_for_padded_samples_is_refused():
    model, batch = sets()
    with pytest.raises(UserError, match="pool"):
        GradientShap(baseline=batch)(model, batch, torch.zeros(2).long(), seed=0)
