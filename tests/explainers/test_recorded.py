"""Maps of every explainer on small networks, as they were found and looked at; the other files say what is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import Batch, Model
from heatproof import explainers as ex
from heatproof.explainers import coalitions, controls, gradient, masking, precision, sampling
from heatproof.features import Elements, Patches, Pixels, Superpixels, Tokens, Windows
from heatproof.types import Moved
from support.fixed import normal
from support.recorded import recorded


def filled(net: nn.Module, seed: int = 0) -> nn.Module:
    """Weights and buffers that every release of torch has alike."""
    generator = np.random.default_rng(seed)
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            numbers = generator.normal(size=tuple(value.shape))
            numbers = 0.1 * numbers if value.ndim == 1 else 2 * numbers * value[0].numel() ** -0.5
            numbers += value.ndim == 1 and name.endswith(("running_var", "weight"))
            value.copy_(torch.as_tensor(numbers, dtype=value.dtype))
    return net.eval()


def images(n: int = 2) -> Batch:
    return Batch(("a", "b", "c")[:n], torch.sigmoid(normal(n, 2, 6, 6, seed=1)))


def picture_model(rows: int = 64) -> Model:
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 5, 2),
        nn.Softplus(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3),
    )  # fmt: skip
    return Model(filled(net), mean=(0.4, 0.5), std=(0.3, 0.2), rows=rows)


TARGET = torch.tensor([2, 0, 1])
POOL = Batch(("p", "q", "r"), torch.sigmoid(normal(3, 2, 6, 6, seed=2)))

PICTURES: dict[str, Any] = {
    "saliency": ex.Saliency(),
    "signed": ex.Saliency(absolute=False),
    "input x gradient": ex.InputXGradient(),
    "ig": ex.IntegratedGradients(),
    **{
        f"ig {rule}": ex.IntegratedGradients(steps=5, baseline=0.3, method=rule)
        for rule in gradient.Quadrature.__args__
    },
    "ig random": ex.IntegratedGradients(steps=4, baseline="random"),
    "ig pool": ex.IntegratedGradients(steps=4, baseline=POOL),
    "ig precise": ex.IntegratedGradients(error=0.01),
    "gradient shap": ex.GradientShap(),
    "gradient shap noisy": ex.GradientShap(samples=6, sigma=0.2, baseline="random"),
    "gradient shap pool": ex.GradientShap(samples=4, baseline=POOL),
    "expected gradients": ex.ExpectedGradients(samples=7, baseline=POOL),
    "expected gradients random": ex.ExpectedGradients(samples=5, baseline="random"),
    "expected gradients number": ex.ExpectedGradients(baseline=0.1),
    "deep lift": ex.DeepLift(),
    "deep lift other": ex.DeepLift(baseline=0.4),
    "guided": ex.GuidedBackprop(),
    **{
        f"lrp {name}": ex.Lrp(name)
        for name in ("epsilon", "epsilon_plus_flat", "epsilon_alpha2_beta1", "gamma")
    },
    "lrp": ex.Lrp(),
    "lrp box": ex.Lrp("epsilon_gamma_box", epsilon=0.01, gamma=0.5),
    "lrp alpha flat": ex.Lrp("epsilon_alpha2_beta1_flat"),
    **{kind.name: kind() for kind in (ex.GradCAM, ex.GradCAMPlusPlus, ex.LayerCAM, ex.HiResCAM)},
    **{
        f"{kind.name} signed": kind("2", False)
        for kind in (ex.GradCAM, ex.GradCAMPlusPlus, ex.LayerCAM, ex.HiResCAM)
    },
    "lime": ex.Lime(samples=40, features=Patches(2)),
    "lime other": ex.Lime(
        samples=31, features=Patches(3), fill="mean", alpha=0.1, kernel_width=0.5, readout="logit"
    ),
    "kernel shap": ex.KernelShap(samples=24, features=Patches(2)),
    "kernel shap all": ex.KernelShap(
        samples=30, features=Patches(3), fill=0.2, readout="probability"
    ),
    "occlusion": ex.Occlusion(window=3, stride=2),
    "occlusion circular": ex.Occlusion(
        window=3, stride=2, fill=0.5, readout="probability", circular=True
    ),
    "rise": ex.Rise(samples=20, grid=3),
    "rise other": ex.Rise(samples=15, grid=4, keep=0.3, readout="logit"),
    "ablation": ex.FeatureAblation(),
    "ablation patches": ex.FeatureAblation(features=Patches(2), fill="blur", readout="probability"),
    "permutation": ex.FeaturePermutation(),
    "permutation more": ex.FeaturePermutation(features=Patches(2), draws=3, readout="probability"),
    "permutation pool": ex.FeaturePermutation(features=Patches(3), draws=2, pool=POOL),
    "mfaba": ex.Mfaba(),
    "mfaba smooth": ex.Mfaba(steps=6, step=0.01, variant="smooth", reach=0.025),
    "smoothgrad": ex.SmoothGrad(),
    "smoothgrad of": ex.SmoothGrad(of=ex.InputXGradient(), samples=3, sigma=0.1, relative=False),
    "smoothgrad squared": ex.SmoothGradSquared(samples=4),
    "vargrad": ex.VarGrad(samples=4),
    "random": ex.RandomMap(),
    "sobel": ex.SobelEdges(),
}


@pytest.mark.parametrize("name", PICTURES)
def test_maps_of_pictures(name: str) -> None:
    explainer, batch, target = PICTURES[name], images(), TARGET[:2]
    maps = explainer(picture_model(), batch, target, 3)
    assert maps.shape == batch.x.shape
    found: dict[str, Any] = {"explainer": str(explainer), "stochastic": explainer.stochastic}
    recorded(
        f"explainers/pictures/{name.replace(' ', '_')}",
        found | {"first": maps[0, 0], "last": maps[1, 1, ::2]},
    )
    few = explainer(
        picture_model(rows=5), batch, target, 3
    )  # passes that divide neither samples nor draws
    assert torch.allclose(few, maps, rtol=1e-3, atol=1e-5 * float(maps.abs().max()))
    alone = explainer(picture_model(), batch[1:], target[1:], 3)
    assert torch.allclose(alone, maps[1:], rtol=1e-3, atol=1e-5 * float(maps.abs().max()))


def test_defaults_of_every_explainer() -> None:
    wanted = {"train": images(), "concepts": None, "path": {"a": np.zeros(2)}}
    found = {}
    for kind in ex.KINDS:
        given = {key: value for key, value in wanted.items() if key in kind.__dataclass_fields__}
        if "concepts" in given:
            sides = {"positive": normal(10, 3), "negative": normal(10, 3, seed=1)}
            given = {"concepts": {"c": sides}, "layer": "0"}
        made = kind(**given)
        assert made.name == kind.name
        parameters = {k: str(getattr(made, k)) for k in kind.__dataclass_fields__ if k not in given}
        found[kind.name] = {
            **parameters,
            "stochastic": made.stochastic,
            "control": made.control,
            "kind": made.kind,
        }
    recorded("explainers/defaults", found)


class OneDimensional(nn.Module):
    """Transposed, grouped and strided convolutions, products, attention weights and every kind of activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(2, 4, 3, padding=1, bias=False), nn.BatchNorm1d(4)
        self.up, self.up_norm = nn.ConvTranspose1d(4, 6, 2, stride=2), nn.BatchNorm1d(6)
        self.alone, self.gate, self.head = (
            nn.BatchNorm1d(6),
            nn.Conv1d(6, 6, 1, groups=2),
            nn.Linear(6, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm(self.first(x)), 0.2)
        x = F.relu6(self.up_norm(self.up(x)))
        x = torch.tanh(self.alone(x)) + 0.5 * x
        x = x * torch.sigmoid(self.gate(x)) - 0.1
        x = F.hardtanh(F.max_pool1d(x, 3, stride=2), 0.0, 4.0)
        return self.head(torch.clamp(x, min=0).mean(2))


def series_model() -> tuple[Model, Batch]:
    return Model(filled(OneDimensional()), rows=16), Batch(("a", "b"), normal(2, 2, 10, seed=4))


@pytest.mark.parametrize(
    "explainer",
    [
        ex.DeepLift(), ex.GuidedBackprop(), ex.Lrp(), ex.Lrp("gamma"), ex.Lrp("epsilon_plus_flat"), ex.GradCAM(),
        ex.LayerCAM("norm"), ex.Rise(samples=12, grid=4), ex.Occlusion(window=4, stride=3), ex.Mfaba(steps=4),
        ex.Lime(samples=20, features=Windows(3)),
        ex.FeaturePermutation(features=Windows(4), draws=2), ex.KernelShap(samples=16, features=Windows(2)),
        ex.IntegratedGradients(steps=6),
    ],
    ids=lambda explainer: explainer.name,
)  # fmt: skip
def test_maps_of_series(explainer: Any) -> None:
    model, batch = series_model()
    maps = explainer(model, batch, TARGET[:2], 1)
    recorded(
        f"explainers/series/{explainer.name}_{getattr(explainer, 'composite', '')}",
        {str(explainer): maps},
    )


def test_maps_of_volumes() -> None:
    net = nn.Sequential(
        nn.Conv3d(1, 3, 2), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(12, 3)
    )
    model, batch = Model(filled(net)), Batch(("a", "b"), normal(2, 1, 3, 5, 5, seed=5))
    kinds = (
        ex.GradCAM("1"),
        ex.Rise(samples=8, grid=2),
        ex.Occlusion(2, 2),
        ex.Lime(samples=12, features=Patches(2)),
    )
    kinds += (
        ex.DeepLift(),
        ex.Lrp("epsilon_alpha2_beta1"),
        ex.FeaturePermutation(features=Patches(3)),
    )
    recorded(
        "explainers/volumes",
        {str(kind): kind(model, batch, TARGET[:2], 1)[1, 0, 1:] for kind in kinds},
    )


def test_maps_of_tables() -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.ELU(), nn.Linear(6, 4), nn.Softmax(-1), nn.Linear(4, 3))
    model, batch = Model(filled(net), rows=7), Batch(("a", "b", "c"), normal(3, 5, seed=6))
    kinds: list[Any] = [
        ex.DeepLift(),
        ex.Lime(samples=16, features=Pixels()),
        ex.KernelShap(samples=30, features=Pixels()),
    ]
    kinds += [
        ex.KernelShap(samples=12, features=Pixels()),
        ex.FeatureAblation(fill=0.5),
        ex.FeaturePermutation(draws=3),
    ]
    kinds += [
        ex.FeaturePermutation(pool=normal(4, 5), draws=9),
        ex.Occlusion(2, 1),
        ex.Mfaba(),
        ex.WeightNoise(),
    ]
    kinds += [
        ex.IntegratedGradients(steps=3),
        ex.GradientShap(),
        ex.SmoothGrad(samples=3),
        ex.Lrp("epsilon"),
        ex.DeepLift(),
    ]
    recorded("explainers/tables", {str(kind): kind(model, batch, TARGET, 1) for kind in kinds})
    sums = ex.KernelShap(samples=30, features=Pixels())(model, batch, TARGET, 1).sum(1)
    ends = [model.logits(x).gather(1, TARGET[:, None])[:, 0] for x in (batch.x, 0 * batch.x)]
    assert torch.allclose(sums, ends[0] - ends[1], atol=1e-5)


class Words(nn.Module):
    """Two layers of attention over tokens, one of `nn.MultiheadAttention`, one fused."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(12, 4), nn.MultiheadAttention(4, 2, batch_first=True)
        self.query, self.key, self.norm, self.head = (
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.LayerNorm(4),
            nn.Linear(4, 3),
        )

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed(x)
        hidden = attention_mask == 0
        x = x + self.mix(x, x, x, key_padding_mask=hidden, need_weights=False)[0]
        q, k, v = (t.unflatten(2, (2, 2)).transpose(1, 2) for t in (self.query(x), self.key(x), x))
        mixed = F.scaled_dot_product_attention(q, k, v, ~hidden[:, None, None])
        x = self.norm(x + mixed.transpose(1, 2).flatten(2))
        return self.head(F.gelu(x[:, 0]))


def texts() -> tuple[Model, Batch]:
    ids = torch.tensor([[1, 5, 7, 3, 9, 2], [1, 4, 8, 2, 0, 0]])
    batch = Batch(("a", "b"), ids, {"attention_mask": (ids > 0).long()})
    return Model(filled(Words()), embedding="embed", rows=9), batch


def test_maps_of_texts() -> None:
    model, batch = texts()
    hidden = Tokens(special=(1, 2), mask_token=11)
    kinds: list[Any] = [
        ex.AttentionRollout(),
        ex.Chefer(),
        ex.Occlusion(2, 1),
        ex.FeatureAblation(features=hidden),
    ]
    kinds += [
        ex.Lime(samples=12, features=hidden),
        ex.KernelShap(samples=20, features=Tokens(special=(1, 2))),
    ]
    kinds += [ex.FeaturePermutation(draws=2), ex.FeatureAblation()]
    found = {str(kind): kind(model, batch, TARGET[:2], 1) for kind in kinds}
    inner = [ex.Saliency(), ex.Lrp(), ex.DeepLift(), ex.IntegratedGradients(steps=4)]
    found |= {str(kind): kind(model, batch, TARGET[:2], 1)[1, :3] for kind in inner}
    recorded("explainers/texts", found)


def test_maps_of_sets() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.head(torch.tanh((torch.tanh(self.each(x)) * mask[..., None]).sum(1)))

    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    model, batch = (
        Model(filled(Sum()), rows=3),
        Batch(("a", "b"), normal(2, 4, 3) * mask[..., None], {"mask": mask}),
    )
    kinds: list[Any] = [
        ex.FeatureAblation(features=Elements()),
        ex.FeaturePermutation(features=Elements(), draws=5),
    ]
    kinds += [
        ex.Lime(samples=10, features=Elements()),
        ex.KernelShap(samples=14, features=Elements()),
        ex.Saliency(),
    ]
    recorded("explainers/sets", {str(kind): kind(model, batch, TARGET[:2], 1) for kind in kinds})
    with pytest.raises(ValueError, match="no order"):
        ex.Occlusion(1, 1)(model, batch, TARGET[:2], 0)


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


def test_coalitions_and_masks() -> None:
    keys = gradient.rand.keys(3, ["a", "b"], "x")
    found: dict[str, Any] = {}
    for n, samples, counts in ((4, 14, (4, 3)), (5, 9, (5, 5)), (9, 20, (9, 7)), (12, 24, (12, 1))):
        kept, weight = coalitions.shapley_coalitions(keys, torch.tensor(counts), n, samples)
        found[f"{n} {samples} {counts}"] = [kept[:, :8].int().flatten(1), weight]
        each, expected = coalitions._pairs_per_size(keys, n, samples // 2)
        found[f"pairs {n} {samples}"] = [each, expected[0]]
    found["lime"] = sampling.lime_masks(keys, torch.tensor([3, 2]), 3, 6).int()
    for sides in ((5, 6), (1, 7), (2, 3, 4)):
        mirrored = torch.tensor([False, True])
        found[f"rise {sides}"] = masking.smooth_masks(
            keys, keys + 1, 3, 0.4, *sides, mirrored=mirrored
        )[:, -1]
        assert masking.smooth_masks(keys, keys, 3, 0.4, *sides).shape == (2, *sides)
    for circular in (False, True):
        found[f"windows {circular}"] = masking._windows(
            7, 3, 2, circular, torch.device("cpu")
        ).int()
    recorded("explainers/masks", found)


def test_regressions_of_sampled_scores() -> None:
    keys = gradient.rand.keys(3, ["a", "b"], "x")
    found = {}
    for n, samples, counts in ((4, 14, (4, 3)), (9, 20, (9, 7)), (9, 120, (9, 9))):
        number = torch.tensor(counts)
        kept, weight = coalitions.shapley_coalitions(keys, number, n, samples)
        scores = (
            torch.tanh(kept.double() @ normal(n, seed=n).double())
            + 0.1 * kept[..., 0] * kept[..., 1]
        )
        values = sampling.shapley_regression(kept, scores, weight, number)
        assert torch.allclose(values.sum(1), scores[:, 0] - scores[:, 1])
        found[f"{n} {samples}"] = values
        found[f"ridge {n} {samples}"] = sampling.weighted_ridge(
            kept.double(), scores, weight + 0.1, 0.3
        )
    recorded("explainers/regressions", found)


def test_samples_of_few_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = picture_model(), images()
    explainer = ex.Lime(samples=20, features=Superpixels(kernel_size=1.0, max_dist=4.0))
    grey = replace(batch, x=batch.x[:, :1].expand(-1, 3, -1, -1))
    wide = Model(filled(nn.Sequential(nn.Flatten(), nn.Linear(108, 3))))
    wanted = explainer(wide, grey, TARGET[:2], 0)
    monkeypatch.setattr(sampling, "_MASKS_AT_ONCE", 1)
    assert torch.allclose(explainer(wide, grey, TARGET[:2], 0), wanted)
    monkeypatch.setattr(sampling, "_MOST_FEATURES", 8)
    ex.KernelShap(samples=20, features=Patches(3)).check(model, (2, 6, 6))
    with pytest.raises(ValueError, match="at most 8"):
        ex.KernelShap(samples=20, features=Patches(2)).check(model, (2, 6, 6))


def test_how_many_samples_kernel_shap_needs() -> None:
    model = picture_model()
    for n, size, least in ((9, 2, 18), (4, 3, 8)):
        explainer = ex.KernelShap(samples=least, features=Patches(size))
        explainer.check(model, (2, 6, 6))
        with pytest.raises(ValueError, match=f"cannot tell {n}"):
            replace(explainer, samples=least - 1).check(model, (2, 6, 6))
        replace(explainer, samples=2, error=0.1).check(model, (2, 6, 6))


def test_precision_climbs_a_ladder() -> None:
    assert precision.LADDER == (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    model, batch = Model(filled(net)), Batch(("a", "b", "c"), 2 * normal(3, 5, seed=6))
    found = {}
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
        rungs = precision.settled(kind, model, batch, TARGET, 0)
        found[str(kind)] = rungs
        maps = kind(model, batch, TARGET, 0)
        for i, (count, _) in enumerate(rungs.tolist()):
            fixed = precision._with_count(kind, int(count))
            assert torch.allclose(
                fixed(model, batch[i : i + 1], TARGET[i : i + 1], 0), maps[i : i + 1], atol=1e-5
            )
        agreed = replace(kind, error=precision.Agreed(0.5, {"b": (32.0, 0.1)}))
        mixed = agreed(model, batch, TARGET, 0)
        assert torch.allclose(
            mixed[1:2],
            precision._with_count(kind, 32)(model, batch[1:2], TARGET[1:2], 0),
            atol=1e-5,
        )
    recorded("explainers/precision", found)


def test_promises_and_controls() -> None:
    model, batch = picture_model(), images()
    promised = ex.IntegratedGradients(baseline=0.3).promised(model, batch, TARGET[:2])
    assert torch.allclose(
        ex.IntegratedGradients(baseline=0.3)(model, batch, TARGET[:2], 0).sum((1, 2, 3)),
        promised,
        atol=1e-2,
    )
    assert ex.GradientShap(baseline="random").promised(model, batch, TARGET[:2]).isnan().all()
    words = controls.content_words(torch.cat([batch.x, batch.x * 1.004, 0 * batch.x[:1]]))
    recorded("explainers/content", words)
    assert words[-1].tolist() == [0, 0] and torch.equal(
        words[:2], controls.content_words(batch.x + 1e-9)
    )
    colours = Batch(("a",), torch.sigmoid(normal(1, 3, 4, 4)))
    recorded("explainers/sobel", ex.SobelEdges()(model, colours, TARGET[:1], 0)[0, 0])
    whole = replace(colours, x=(255 * colours.x).long())
    assert ex.SobelEdges()(model, whole, TARGET[:1], 0).is_floating_point()
