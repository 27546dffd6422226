"""Explainers on small networks: shared draws, few masks at a time, counts for a precision, promised sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heatproof import Batch, Model
from heatproof import explainers as ex
from heatproof.explainers import controls, sampling
from heatproof.explainers.requested_error import counts_and_errors
from heatproof.features import Patches, Pixels, Superpixels
from heatproof.types import Moved
from support.fixed import normal, with_weights

TARGET = torch.tensor([2, 0, 1])


def images(n: int = 2) -> Batch:
    return Batch(("a", "b", "c")[:n], torch.sigmoid(normal(n, 2, 6, 6, seed=1)))


def picture_model() -> Model:
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 2), nn.Softplus()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3))
    return Model(with_weights(net), mean=(0.4, 0.5), std=(0.3, 0.2), rows=64)


def test_moved_samples_share_the_draws_of_those_they_come_from() -> None:
    """A model that shifts do not change: the maps of a shifted picture are the shifted maps."""

    class Everywhere(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen = (x + x.roll(1, -1) * 0.5).tanh().sum((1, 2, 3))
            return torch.stack([seen, -seen], 1)

    def shift(by: Tensor, some: Batch) -> Batch:
        return some.with_x(
            torch.stack([x.roll(int(k), -1) for x, k in zip(some.x, by, strict=True)])
        )

    by = torch.tensor([2, 3])
    still, model, target = images(), Model(Everywhere(), rows=7), torch.tensor([0, 1])
    moved = replace(shift(by, still), moved=Moved(shift, by))
    for explainer in (
        ex.Rise(samples=9, grid=3), ex.Lime(samples=80, features=Pixels()), ex.FeaturePermutation(draws=3),
        ex.SmoothGrad(samples=3), ex.GradientShap(samples=3, sigma=0.3),
        ex.IntegratedGradients(steps=3, baseline="random"),
    ):  # fmt: skip
        maps = explainer(model, still, target, 0)
        wanted = torch.stack([m.roll(int(k), -1) for m, k in zip(maps, by, strict=True)])
        assert torch.allclose(
            explainer(model, moved, target, 0), wanted, atol=1e-4 * float(maps.abs().max())
        ), explainer


def test_samples_of_few_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = picture_model(), images()
    explainer = ex.Lime(samples=20, features=Superpixels(kernel_size=1.0, max_dist=4.0))
    grey = replace(batch, x=batch.x[:, :1].expand(-1, 3, -1, -1))
    wide = Model(with_weights(nn.Sequential(nn.Flatten(), nn.Linear(108, 3))))
    wanted = explainer(wide, grey, TARGET[:2], 0)
    monkeypatch.setattr(sampling, "_MAX_MASK_VALUES", 1)
    torch.testing.assert_close(explainer(wide, grey, TARGET[:2], 0), wanted, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(sampling, "_MAX_FEATURES", 8)
    ex.KernelShap(samples=20, features=Patches(3)).check(model, (2, 6, 6))
    with pytest.raises(ValueError, match="8"):
        ex.KernelShap(samples=20, features=Patches(2)).check(model, (2, 6, 6))


def test_how_many_samples_kernel_shap_needs() -> None:
    model = picture_model()
    for n, size, least in ((9, 2, 18), (4, 3, 8)):
        explainer = ex.KernelShap(samples=least, features=Patches(size))
        explainer.check(model, (2, 6, 6))
        with pytest.raises(ValueError, match=str(n)):
            replace(explainer, samples=least - 1).check(model, (2, 6, 6))
        replace(explainer, samples=2, error=0.1).check(model, (2, 6, 6))


def test_a_map_with_an_error_is_the_map_with_the_count_that_it_needs() -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    model, batch = Model(with_weights(net)), Batch(("a", "b", "c"), 2 * normal(3, 5, seed=6))
    kinds: list[Any] = [
        ex.GradientShap(error=0.2),
        ex.SmoothGrad(error=0.1),
        ex.Lime(error=0.1, features=Pixels()),
    ]
    kinds += [
        ex.IntegratedGradients(baseline=2.0, error=1e-3),
        ex.KernelShap(features=Pixels(), error=0.1),
    ]
    for kind in kinds:
        counts = counts_and_errors(kind, model, batch, TARGET, 0)[:, 0]
        parameter = "steps" if hasattr(kind, "steps") else "samples"
        maps = kind(model, batch, TARGET, 0)
        for i, count in enumerate(counts.tolist()):
            fixed = replace(kind, error=None, **{parameter: int(count)})
            assert torch.allclose(
                fixed(model, batch[i : i + 1], TARGET[i : i + 1], 0),
                maps[i : i + 1],
                rtol=1e-3,
                atol=1e-4,
            )


def test_integrated_gradients_sum_to_what_is_promised() -> None:
    model, batch = picture_model(), images()
    explainer = ex.IntegratedGradients(baseline=0.3)
    promised = explainer.promised(model, batch, TARGET[:2])
    x = model.inputs(batch)
    scores = [
        model.logits(each).gather(1, TARGET[:2, None])[:, 0]
        for each in (x, torch.full_like(x, 0.3))
    ]
    torch.testing.assert_close(promised, scores[0] - scores[1], rtol=1e-4, atol=1e-5)
    maps = explainer(model, batch, TARGET[:2], 0)
    torch.testing.assert_close(maps.sum((1, 2, 3)), promised, rtol=0, atol=1e-2)
    assert ex.GradientShap(baseline="random").promised(model, batch, TARGET[:2]).isnan().all()


def test_the_words_of_a_content_differ_with_it_and_are_zero_of_nothing() -> None:
    batch = images()
    words = controls.content_words(torch.cat([batch.x, batch.x * 1.004, 0 * batch.x[:1]]))
    assert len({tuple(row) for row in words.tolist()}) == 5
    assert words[-1].tolist() == [0, 0]


def test_edges_of_whole_numbers_are_floating_point() -> None:
    colours = Batch(("a",), (255 * torch.sigmoid(normal(1, 3, 4, 4))).long())
    maps = ex.SobelEdges()(picture_model(), colours, TARGET[:1], 0)
    assert maps.is_floating_point() and float(maps.min()) >= 0
    exact = ex.SobelEdges()(picture_model(), colours.with_x(colours.x.float()), TARGET[:1], 0)
    torch.testing.assert_close(maps, exact)


def test_weight_noise_follows_the_weights_and_the_input_only() -> None:
    model, batch = picture_model(), images()
    maps = ex.WeightNoise()(model, batch, TARGET[:2], 0)
    again = ex.WeightNoise()(picture_model(), batch, 0 * TARGET[:2], 0)
    assert torch.equal(again, maps)
    other = Model(with_weights(picture_model().module, seed=1))
    assert not bool((ex.WeightNoise()(other, batch, TARGET[:2], 0) == maps).any())
    changed = batch.with_x(1.5 * batch.x)
    assert not bool((ex.WeightNoise()(model, changed, TARGET[:2], 0) == maps).any())
    wide = Batch(("a",), normal(1, 100, 100))
    drawn = ex.WeightNoise()(Model(nn.Linear(100, 2)), wide, TARGET[:1], 0)
    assert abs(float(drawn.mean())) < 0.05 and abs(float(drawn.std()) - 1) < 0.05
