"""Continuous groups: rotations of images and of points, changes of size; beside what interpolation costs by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes.symmetry.groups import build, plan_elements, scale, so2, so3
from heatproof.axes.symmetry.scores import equivariance, model_invariance
from heatproof.explainers import InputXGradient, Saliency, SmoothGrad
from heatproof.maps.warping import resample, rotation_offsets


def named(x: Tensor) -> Batch:
    return Batch(tuple(f"s{i}" for i in range(len(x))), x)


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


class Distances(nn.Module):
    """Sees points by their distances to the origin and to each other: SO(3) changes nothing."""

    def forward(self, x: Tensor) -> Tensor:
        apart = (x[:, :, None] - x[:, None]).square().sum(-1)
        radius = x.square().sum(-1)
        return torch.stack([(-apart).exp().sum((1, 2)), (radius * radius.exp()).sum(1)], 1)


class Disc(nn.Module):
    """Sees an image through a smooth round window: nearly SO(2)-invariant."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[-1]
        at = torch.arange(n, dtype=x.dtype) - (n - 1) / 2
        radius = (at[:, None] ** 2 + at**2).sqrt()
        rings = torch.stack([torch.exp(-((radius - r) ** 2) / 8) for r in (0.0, 4.0)])
        seen = (x[:, :1] * rings).sum((2, 3))
        return torch.tanh(seen / 20)


def smooth(n: int, side: int) -> Batch:
    at = torch.linspace(-1, 1, side)
    centres = values(n, 2, seed=3) - 0.5
    blobs = [
        torch.exp(-((at[:, None] - y) ** 2 + (at - x) ** 2) / 0.1) for y, x in centres.tolist()
    ]
    return named(torch.stack(blobs)[:, None])


def test_elements_are_drawn_by_sample_and_never_listed():
    points, images = named(values(3, 5, 3)), named(values(3, 1, 8, 8))
    for group, batch in ((so3(), points), (so2(), images), (scale(2.0), images)):
        assert group.order(batch) == math.inf
        drawn = group.sample(batch, 6, seed=1)
        assert torch.equal(group.sample(batch[[2, 0]], 6, seed=1), drawn[:, [2, 0]])
        assert torch.equal(group.sample(batch, 4, seed=1), drawn[:4])
        plan = plan_elements(group, batch, 10_000, seed=0)
        assert not plan.exhaustive.any() and plan.counts.tolist() == [10_000] * 3
        with pytest.raises(UserError, match="infinitely"):
            group.elements(batch)
        for g, h in zip(drawn[:, 0], drawn[:, 1], strict=True):
            assert torch.allclose(
                group.compose(g, group.inverse(g)), group.identity(batch), atol=1e-12
            )
            both, after = (
                group.act(group.compose(g, h), batch).x,
                group.act(g, group.act(h, batch)).x,
            )
            if group.exact:
                assert torch.allclose(both, after, atol=1e-5)
    assert build({"so3": {"maps": "scalar"}}) == so3("scalar")


def test_draws_are_uniform():
    one = named(values(1, 5, 3))
    matrices = so3().sample(one, 4000, seed=0)[:, 0]
    assert torch.allclose(matrices @ matrices.mT, torch.eye(3).double(), atol=1e-6)
    assert torch.allclose(torch.linalg.det(matrices), torch.ones(4000).double(), atol=1e-6)
    # Haar: each entry is uniform on (−1, 1), and the trace has density (1 − cos θ)/π in its angle
    assert (
        min(
            stats.kstest(column, "uniform", (-1, 2)).pvalue
            for column in matrices.flatten(1).T.numpy()
        )
        > 1e-4
    )
    angle = ((matrices.diagonal(dim1=1, dim2=2).sum(1) - 1) / 2).clamp(-1, 1).acos().numpy()
    assert stats.kstest(angle, lambda t: (t - np.sin(t)) / np.pi).pvalue > 1e-4
    picture = named(values(1, 1, 8, 8))
    assert (
        stats.kstest(so2().sample(picture, 2000, 0)[:, 0].numpy(), "uniform", (0, 360)).pvalue
        > 1e-4
    )
    sizes = scale(2.0).sample(picture, 2000, 0)[:, 0].exp().log2().numpy()
    assert stats.kstest(sizes, "uniform", (-1, 2)).pvalue > 1e-4


def test_images_turn_as_the_perturbation_turns_them_and_right_angles_are_exact():
    x = values(2, 2, 7, 7)
    for degrees in (0.0, 30.0, 90.0, 211.0):
        expected, inside = resample(x, rotation_offsets(degrees, 7, 7))
        assert torch.allclose(so2().move(torch.tensor(degrees), x), expected, atol=1e-6)
        assert torch.equal(so2().view(torch.tensor(degrees), x), torch.where(inside, x, 0))
    assert torch.allclose(so2().move(torch.tensor(90.0), x), x.rot90(1, (2, 3)), atol=1e-6)
    larger = scale(2.0).move(torch.tensor(math.log(2)), x)
    assert torch.allclose(larger[..., 3, 3], x[..., 3, 3]) and torch.allclose(
        larger[..., 1, 5], x[..., 2, 4], atol=1e-6
    )
    for group in (so2(), scale()):
        with pytest.raises(UserError, match=r"images.*3, 8"):
            group.check((3, 8))


def test_vector_maps_turn_with_the_points_and_scalar_maps_stay():
    """∇f(Rx) = R∇f(x), Σ x·∇f is the same number; |∇| by coordinates is neither, and scores below 1."""
    model, batch = Model(Distances()), named(values(3, 6, 3) - 0.5)
    target = torch.tensor([0, 1, 0])
    alike = model_invariance(model, batch, so3(), n=8)
    assert alike.change.value.max() < 1e-5

    def score(explainer, group) -> Tensor:
        return equivariance(model, batch, target, explainer, group, n=8).value

    signed = Saliency(absolute=False)
    assert (score(signed, so3()) - 1).abs().max() < 1e-5
    assert (score(InputXGradient(), so3("scalar")) - 1).abs().max() < 1e-5
    assert score(InputXGradient(), so3()).max() < 0.99
    assert score(Saliency(), so3()).max() < 0.99
    assert (score(SmoothGrad(samples=4, relative=False), so3()) - 1).abs().max() < 1e-5, (
        "noise turns too"
    )
    with pytest.raises(UserError, match=r"columns.*0, 1, 1"):
        so3(columns=(0, 1, 1)).check((6, 3))


def test_an_interpolating_score_stands_beside_the_floor_of_going_there_and_back():
    model, batch = Model(Disc()), smooth(6, 17)
    target = model.logits(batch.x).argmax(1)
    found = equivariance(model, batch, target, InputXGradient(), so2(), n=12)
    assert (found.there_and_back < 1 - 1e-4).all() and (found.there_and_back > 0.9).all()
    assert found.value.mean() > 0.9 and not found.exact and (found.low < found.value).all()
    group, g = so2(), found.elements[0]
    clean = InputXGradient()(model, batch, target, 0)
    there = group.move(group.inverse(g), group.move(g, clean))
    a, b = (group.view(group.inverse(g), m).flatten(1).double() for m in (there, clean))
    first = (a * b).sum(1) / a.norm(dim=1) / b.norm(dim=1)
    one = equivariance(model, batch, target, InputXGradient(), so2(), n=1)
    assert one.there_and_back == pytest.approx(first, abs=1e-6)
    run = heatproof.evaluate(
        model, batch, {"ixg": InputXGradient()}, heatproof.Symmetry(group="so2", elements=4)
    )
    rows = run.table()
    assert len(rows[rows.measure == "there_and_back"]) == 6
    assert "approximate" in run.report().read_text()
