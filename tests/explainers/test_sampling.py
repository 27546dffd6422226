"""LIME, KernelSHAP, occlusion and RISE against references, brute force and their laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.coalitions import shapley_coalitions
from heatproof.explainers.masking import Occlusion, Rise, smooth_masks
from heatproof.explainers.sampling import (
    KernelShap,
    Lime,
    lime_masks,
    shapley_regression,
    weighted_ridge,
)
from heatproof.features import Patches, Pixels, Slic, Superpixels, Windows, keep, spread
from heatproof.features.fill import kept_only
from heatproof.models import Model
from heatproof.types import Batch, label_of


class Curved(nn.Module):
    """A small smooth network on inputs of any shape, with interactions between all positions."""

    def __init__(self, inputs: int, classes: int = 3, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(inputs, 8, generator=generator) / inputs**0.5)
        self.second = nn.Parameter(torch.randn(8, classes, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x.flatten(1) @ self.first) @ self.second


def images(count: int = 4, size: int = 12, channels: int = 3) -> Batch:
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(count, channels, 3, 3, generator=generator)
    for i in range(count):
        coarse[i, :, : i % 3] = coarse[i, :, :1, :1]  # so that the numbers of superpixels differ
    return Batch(
        ids=tuple(f"s{i}" for i in range(count)), x=nn.functional.interpolate(coarse, (size, size))
    )


def image_model(batch: Batch, rows: int = 32) -> Model:
    channels = batch.x.shape[1]
    return Model(
        Curved(batch.x[0].numel()), mean=(0.4,) * channels, std=(0.3,) * channels, rows=rows
    )


def score(model: Model, inputs: Tensor, target: int, readout: str) -> Tensor:
    logits = model.logits(inputs).double()
    return (logits.softmax(1) if readout == "probability" else logits)[:, target]


SMALL = Superpixels(kernel_size=1.0, max_dist=4.0)
EXPLAINERS: list[Any] = [
    Lime(samples=40, features=SMALL),
    Lime(samples=30, features=Patches(size=5), fill="mean"),
    KernelShap(samples=60, features=Patches(size=4)),
    KernelShap(samples=80, features=SMALL, fill=0.5, readout="probability"),
    Occlusion(window=5, stride=3),
    Rise(samples=50, grid=4),
]


@pytest.mark.parametrize("explainer", EXPLAINERS, ids=label_of)
def test_a_map_depends_neither_on_its_neighbours_nor_on_the_rows_per_pass(explainer: Any) -> None:
    batch = images()
    target = torch.tensor([0, 1, 2, 1])
    together = explainer(image_model(batch), batch, target, seed=3)
    assert together.shape == batch.x.shape and torch.isfinite(together).all()
    scale = together.abs().amax((1, 2, 3), keepdim=True)
    assert (scale > 0).all()
    for rows in (1, 3, 64):
        model = image_model(batch, rows)
        singles = torch.cat(
            [explainer(model, batch[i : i + 1], target[i : i + 1], seed=3) for i in range(4)]
        )
        order = [2, 0, 3, 1]
        shuffled = explainer(model, batch[order], target[order], seed=3)
        assert ((singles - together).abs() / scale).max() < 1e-5
        assert ((shuffled - together[order]).abs() / scale[order]).max() < 1e-5


@pytest.mark.parametrize("explainer", EXPLAINERS, ids=label_of)
def test_only_stochastic_explainers_depend_on_the_seed(explainer: Any) -> None:
    batch = images(2)
    one, again, other = (
        explainer(image_model(batch), batch, torch.tensor([0, 1]), seed) for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert torch.equal(one, other) != explainer.stochastic


@pytest.mark.parametrize("explainer", EXPLAINERS, ids=label_of)
def test_no_pass_is_larger_than_the_model_allows(
    explainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, model, sizes = images(3), image_model(images(3), rows=7), []
    plain = model.logits
    monkeypatch.setattr(
        model, "logits", lambda inputs, aux=None: sizes.append(len(inputs)) or plain(inputs, aux)
    )
    explainer(model, batch, torch.tensor([0, 1, 2]), seed=0)
    assert max(sizes) == 7


@pytest.mark.parametrize("readout", ["probability", "logit"])
def test_lime_is_the_weighted_ridge_of_scikit_learn(readout: Any) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    metrics = pytest.importorskip("sklearn.metrics")
    batch = images(3)
    model = image_model(batch)
    segments = SMALL.segments(batch)
    counts = segments.flatten(1).amax(1) + 1
    assert len(set(counts.tolist())) > 1
    maps = Lime(samples=50, features=SMALL, alpha=0.3, readout=readout)(
        model, batch, torch.tensor([2, 0, 1]), 5
    )
    key = rand.keys(5, batch.ids, "lime")
    for i, n in enumerate(counts.tolist()):
        kept = lime_masks(key[i : i + 1], counts[i : i + 1], n, 50)[0]
        inputs = model.inputs(batch)[i]
        y = score(
            model, keep(inputs, torch.zeros_like(inputs), kept, segments[i]), [2, 0, 1][i], readout
        )
        distance = metrics.pairwise_distances(
            kept.double().numpy(), torch.ones(1, n).numpy(), metric="cosine"
        )[:, 0]
        weight = torch.from_numpy(distance).square().div(-(0.25**2)).exp().sqrt()
        ridge = linear_model.Ridge(alpha=0.3).fit(
            kept.double().numpy(), y.numpy(), sample_weight=weight.numpy()
        )
        expected = spread(torch.from_numpy(ridge.coef_)[None], segments[i : i + 1])
        torch.testing.assert_close(
            maps[i, 0].double(), expected[0], rtol=1e-5, atol=1e-6 * float(expected.abs().max())
        )


def test_weighted_ridge_to_double_precision_with_an_absent_feature() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(2, 30, 6, generator=generator) < 0.5).double()
    x[1, :, 4:] = 0
    y, weight = (
        torch.randn(2, 30, generator=generator).double(),
        torch.rand(2, 30, generator=generator).double(),
    )
    ours = weighted_ridge(x, y, weight, 0.7)
    for i, n in enumerate((6, 4)):
        theirs = linear_model.Ridge(alpha=0.7).fit(
            x[i, :, :n].numpy(), y[i].numpy(), sample_weight=weight[i].numpy()
        )
        torch.testing.assert_close(
            ours[i, :n], torch.from_numpy(theirs.coef_), rtol=1e-8, atol=1e-10
        )
    assert ours[1, 4:].tolist() == [0, 0]


def test_lime_recovers_a_linear_model_as_the_penalty_vanishes() -> None:
    batch = images(2, 8)
    linear = nn.Linear(192, 2)
    model = Model(nn.Sequential(nn.Flatten(), linear))
    maps = Lime(samples=100, features=Patches(size=2), alpha=1e-9, readout="logit")(
        model, batch, torch.tensor([1, 0]), seed=0
    )
    effect = linear.weight.detach()[[1, 0]].reshape(2, 3, 8, 8) * batch.x
    expected = nn.functional.avg_pool2d(effect, 2).sum(1, keepdim=True) * 4
    torch.testing.assert_close(maps[:, :1, ::2, ::2], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(maps[:, :, ::2, ::2], maps[:, :, 1::2, 1::2])


@pytest.mark.parametrize("explainer", EXPLAINERS[:4], ids=label_of)
def test_a_model_that_ignores_its_input_has_a_map_of_exact_zeros(explainer: Any) -> None:
    class Deaf(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([[0.1, 0.2, 0.7]]).expand(len(x), 3)

    assert not explainer(Model(Deaf()), images(), torch.tensor([0, 1, 2, 1]), seed=0).any()


def test_lime_masks_keep_all_once_and_half_on_average_and_agree_across_numbers_of_features() -> (
    None
):
    key = rand.keys(0, ["a", "b"], "lime")
    kept = lime_masks(key, torch.tensor([30, 20]), 30, 400)
    assert kept[:, 0].sum(1).tolist() == [30, 20] and not kept[1, :, 20:].any()
    assert abs(float(kept[0, 1:].float().mean()) - 0.5) < 0.02
    assert not torch.equal(kept[0, :, :20], kept[1, :, :20])
    assert torch.equal(lime_masks(key, torch.tensor([12, 12]), 12, 9), kept[:, :9, :12])


def shapley_by_enumeration(value: Callable[[Tensor], Tensor], n: int) -> Tensor:
    subsets = torch.tensor(list(itertools.product([False, True], repeat=n)))
    worth = {tuple(s): float(v) for s, v in zip(subsets.tolist(), value(subsets), strict=True)}
    result = torch.zeros(n, dtype=torch.float64)
    for subset, without in worth.items():
        for i in (i for i in range(n) if not subset[i]):
            joined = (*subset[:i], True, *subset[i + 1 :])
            share = (
                math.factorial(sum(subset))
                * math.factorial(n - sum(subset) - 1)
                / math.factorial(n)
            )
            result[i] += share * (worth[joined] - without)
    return result


@pytest.mark.parametrize("readout", ["probability", "logit"])
def test_kernel_shap_is_exact_where_all_coalitions_fit(readout: Any) -> None:
    batch = images(3)
    model = image_model(batch)
    features, target = Patches(size=6), [0, 2, 1]
    grid, segments = (
        KernelShap(samples=14, features=features, readout=readout),
        features.segments(batch),
    )
    maps = grid(model, batch, torch.tensor(target), seed=0)
    for i in range(3):
        inputs = model.inputs(batch)[i]
        expected = shapley_by_enumeration(
            lambda kept, i=i, inputs=inputs: score(
                model, keep(inputs, torch.zeros_like(inputs), kept, segments[i]), target[i], readout
            ),
            4,
        )
        torch.testing.assert_close(
            maps[i, 0, ::6, ::6].flatten().double(), expected, rtol=1e-4, atol=1e-6
        )


def test_kernel_shap_is_exact_on_some_samples_and_sampled_on_others_of_one_batch() -> None:
    batch = images(4)
    counts = SMALL.segments(batch).flatten(1).amax(1) + 1
    fits = 2**counts - 2 <= 80
    assert fits.any() and not fits.all()
    model = image_model(batch)
    one, other = (
        KernelShap(samples=80, features=SMALL)(model, batch, torch.zeros(4).long(), s)
        for s in (0, 1)
    )
    same = (one - other).abs().amax((1, 2, 3)) == 0
    assert same.tolist() == fits.tolist()


@pytest.mark.parametrize("samples", [40, 41, 500])
def test_kernel_shap_values_add_up_to_the_change_of_the_output(samples: int) -> None:
    batch = images(3)
    model = image_model(batch)
    target = torch.tensor([1, 0, 2])
    maps = KernelShap(samples=samples, features=Patches(size=3), fill=0.2)(
        model, batch, target, seed=1
    )
    x = model.inputs(batch)
    change = model.logits(x) - model.logits(
        model.inputs(batch.with_x(torch.full_like(batch.x, 0.2)))
    )
    torch.testing.assert_close(
        maps[:, 0].sum((1, 2)) / 9, change.gather(1, target[:, None])[:, 0], rtol=1e-4, atol=1e-5
    )


def test_sampled_kernel_shap_comes_close_to_the_exact_values() -> None:
    batch = Batch(ids=("a",), x=torch.rand(1, 10, generator=torch.Generator().manual_seed(2)))
    model = Model(Curved(10), rows=512)
    exact, few, many = (
        KernelShap(samples=s, features=Pixels())(model, batch, torch.tensor([1]), seed=0)
        for s in (1022, 60, 900)
    )
    assert (many - exact).norm() < 0.5 * (few - exact).norm()
    assert (many - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("samples", [200, 1200])
def test_coalitions_come_in_complements_with_the_mass_of_the_shapley_kernel(samples: int) -> None:
    counts = torch.tensor([12, 7] * 40)
    kept, weight = shapley_coalitions(
        rand.keys(0, [str(i) for i in range(80)], "x"), counts, 12, samples
    )
    assert (weight[::2] > 0).all() and ((weight[1::2] > 0).sum(1) == 2**7).all()
    pairs = kept[0, 2:].reshape(-1, 2, 12)
    assert torch.equal(pairs[:, 0], ~pairs[:, 1]) and not kept[1, :, 7:].any()
    size = torch.arange(1, 12).double()
    mass = 11 / (size * (12 - size))
    on_average = (weight[::2, 2:, None] * (kept[::2, 2:].sum(2)[..., None] == size)).sum(1).mean(0)
    assert (
        on_average / mass - 1
    ).abs().max() < 0.1  # weights make up for sizes that were drawn too often
    by_feature = (weight[0, 2:, None] * kept[0, 2:]).sum(0)
    assert (by_feature / by_feature.mean() - 1).abs().max() < 1e-9


def test_few_coalitions_are_never_drawn_twice_and_many_give_every_feature_its_turn() -> None:
    kept, _ = shapley_coalitions(rand.keys(0, ["a"], "x"), torch.tensor([10]), 10, 400)
    assert len(kept[0].unique(dim=0)) == 402
    kept, _ = shapley_coalitions(rand.keys(0, ["a"], "x"), torch.tensor([60]), 60, 600)
    turns = torch.stack([kept[0, kept[0].sum(1) == size].sum(0) for size in (1, 2, 3)])
    assert (turns[0] == 1).all() and int((turns.amax(1) - turns.amin(1)).max()) <= 1


def test_paired_blocks_need_far_fewer_passes_than_independent_draws() -> None:
    torch.manual_seed(0)
    n, samples = 11, 150
    code = torch.arange(2**n)
    member = ((code[:, None] >> torch.arange(n)) & 1).double()
    game = (member @ torch.randn(n, 40).double()).tanh() @ torch.randn(
        40
    ).double()  # interactions of every order
    every, weight = shapley_coalitions(rand.keys(0, ["a"], "x"), torch.tensor([n]), n, 2**n - 2)
    bits = 2 ** torch.arange(n)

    def values(kept: Tensor, weight: Tensor) -> Tensor:
        return shapley_regression(
            kept, game[(kept * bits).sum(2)], weight, torch.tensor([n]).expand(len(kept))
        )

    exact = values(every, weight)
    ours, w = shapley_coalitions(
        rand.keys(0, [str(i) for i in range(60)], "x"), torch.full((60,), n), n, samples
    )
    size = torch.arange(1, n).double()
    drawn = (
        torch.multinomial(1 / (size * (n - size)), 60 * samples, replacement=True).reshape(
            60, samples
        )
        + 1
    )
    alone = torch.rand(60, samples, n).argsort(2).argsort(2) < drawn[..., None]
    plain = torch.cat([ours[:, :2], alone], 1)
    error = [
        (values(k, v) - exact).square().sum(1).mean()
        for k, v in ((ours, w), (plain, torch.ones_like(w)))
    ]
    assert error[0] < error[1] / 4


@pytest.mark.parametrize(("window", "stride"), [(4, 4), (5, 2), (3, 3)])
@pytest.mark.parametrize("shape", [(2, 3, 10, 13), (2, 4, 11), (3, 9)])
def test_occlusion_agrees_with_captum(shape: tuple[int, ...], window: int, stride: int) -> None:
    attr = pytest.importorskip("captum.attr")
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    batch = Batch(ids=tuple("abc"[: len(x)]), x=x)
    model = Model(Curved(x[0].numel()))
    target = torch.arange(len(x))
    spatial = len(shape) - 2 if len(shape) > 2 else 1
    lead = shape[1:2] if len(shape) > 2 else ()
    theirs = attr.Occlusion(model.logits).attribute(
        x, (*lead, *[window] * spatial), (*lead, *[stride] * spatial), target=target, baselines=0.3
    )
    ours = Occlusion(window=window, stride=stride, fill=0.3)(model, batch, target, seed=0)
    assert ((ours - theirs).abs().max() / theirs.abs().max()) < 1e-5


@pytest.mark.parametrize("shape", [(2, 2, 9), (2, 2, 6, 8)])
@pytest.mark.parametrize("window", [1, 3])
def test_circular_occlusion_moves_with_shifts_and_cut_windows_do_not(
    shape: tuple[int, ...], window: int
) -> None:
    dims = len(shape) - 2
    convolution, pool = (
        (nn.Conv1d, nn.AdaptiveAvgPool1d) if dims == 1 else (nn.Conv2d, nn.AdaptiveAvgPool2d)
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second = (convolution(a, 5, 3, padding=1, padding_mode="circular") for a in (2, 5))
        net = nn.Sequential(
            first, nn.ReLU(), second, nn.ReLU(), pool(1), nn.Flatten(), nn.Linear(5, 3)
        )
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    model, target, axes = Model(net), torch.tensor([0, 2]), tuple(range(2, 2 + dims))
    wraps, cut = (
        Occlusion(window=window, stride=1, circular=circular) for circular in (True, False)
    )

    def worst(explainer: Any) -> float:
        clean = explainer(model, Batch(("a", "b"), x), target, seed=0)
        shifted = [
            explainer(model, Batch(("a", "b"), x.roll([s] * dims, axes)), target, seed=0)
            for s in (1, 2, 5)
        ]
        moved = [clean.roll([s] * dims, axes) for s in (1, 2, 5)]
        error = max(float((a - b).abs().max()) for a, b in zip(shifted, moved, strict=True))
        return error / float(clean.abs().max())

    assert worst(wraps) < 1e-5
    assert worst(cut) > 0.01 or window == 1
    if window == 1:
        batch = Batch(("a", "b"), x)
        torch.testing.assert_close(wraps(model, batch, target, 0), cut(model, batch, target, 0))


def test_circular_windows_by_hand() -> None:
    batch = Batch(("a",), torch.rand(1, 1, 5, generator=torch.Generator().manual_seed(0)))
    model = Model(Curved(5))
    maps = Occlusion(window=3, stride=2, circular=True, fill=0.2)(
        model, batch, torch.tensor([1]), seed=0
    )
    drop = {}
    for start in (0, 2, 4):
        covered = batch.x.clone()
        covered[..., [(start + i) % 5 for i in range(3)]] = 0.2
        drop[start] = float((model.logits(batch.x) - model.logits(covered))[0, 1])
    expected = [(drop[0] + drop[4]) / 2] * 2 + [
        (drop[0] + drop[2]) / 2,
        drop[2],
        (drop[2] + drop[4]) / 2,
    ]
    torch.testing.assert_close(maps[0, 0], torch.tensor(expected), rtol=1e-4, atol=1e-6)


class Sentence(nn.Module):
    """Reads embedded tokens in their order, without padding."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Embedding(20, 6)
        self.embedding.weight.data = torch.randn(20, 6, generator=generator)
        self.read = Curved(6 * 6)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return self.read(self.embedding(x) * attention_mask[..., None])  # type: ignore[no-any-return]


def test_occlusion_covers_the_vectors_of_tokens() -> None:
    ids = torch.randint(
        20, (2, 6), generator=torch.Generator().manual_seed(1)
    )  # as many as a vector has values
    aux = {"attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])}
    batch, target = Batch(("a", "b"), ids, aux), torch.tensor([0, 1])
    model = Model(Sentence(), embedding="embedding")
    maps = Occlusion(window=1, stride=1)(model, batch, target, seed=0)
    assert maps.shape == (2, 6)
    vectors = model.inputs(batch).clone()
    vectors[:, 2] = 0
    drop = (model.logits(ids, aux) - model.logits(vectors, aux)).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(maps[:, 2], drop, rtol=1e-4, atol=1e-6)
    assert (maps[1, 4:] == 0).all()
    with pytest.raises(UserError, match="embedding"):
        Occlusion(window=1, stride=1)(Model(Sentence()), batch, target, seed=0)


@pytest.mark.parametrize(
    "explainer", [Occlusion(window=2, stride=1), Rise(samples=4, grid=2)], ids=label_of
)
def test_what_covers_neighbours_refuses_sets_and_graphs(explainer: Any) -> None:
    x = torch.rand(2, 5, 3, generator=torch.Generator().manual_seed(0))
    for aux in ({"mask": torch.ones(2, 5).bool()}, {"adjacency": torch.ones(2, 5, 5)}):
        with pytest.raises(UserError, match="feature_ablation"):
            explainer(Model(Curved(15)), Batch(("a", "b"), x, aux), torch.tensor([0, 1]), seed=0)


def test_rise_is_the_weighted_mean_of_its_masks() -> None:
    batch = images(2, 13)
    model = image_model(batch)
    ours = Rise(samples=30, grid=5, keep=0.4)(model, batch, torch.tensor([2, 1]), seed=4)
    x = model.inputs(batch)
    for i, target in enumerate((2, 1)):
        total = torch.zeros(13, 13, dtype=torch.float64)
        for j in range(30):
            cells, shifts = (
                rand.fold(rand.keys(4, batch.ids[i : i + 1], f"rise {what}"), j // 2)
                for what in ("cells", "shift")
            )
            drawn = rand.uniform(cells, (5, 5))
            grid = ((1 - drawn if j % 2 else drawn) < 0.4).float()
            large = nn.functional.interpolate(
                grid[None], (18, 18), mode="bilinear", align_corners=False
            )[0, 0]
            top, left = (rand.uniform(shifts, (2,))[0] * 3).long().tolist()
            mask = large[top : top + 13, left : left + 13]
            total += score(model, x[i : i + 1] * mask, target, "probability") * mask
        torch.testing.assert_close(ours[i, 1].double(), total / (30 * 0.4), rtol=1e-5, atol=1e-6)


def test_rise_masks_are_kept_with_the_probability_asked_and_reach_a_series() -> None:
    key = rand.keys(0, [str(i) for i in range(500)], "x")
    masks = smooth_masks(key, rand.fold(key, 0), 7, 0.3, 20, 31)
    assert masks.shape == (500, 20, 31) and masks.min() >= 0 and masks.max() <= 1
    assert abs(float(masks.mean()) - 0.3) < 0.01
    series = Batch(ids=("a",), x=torch.rand(1, 2, 40, generator=torch.Generator().manual_seed(0)))
    maps = Rise(samples=20)(Model(Curved(80)), series, torch.tensor([0]), seed=0)
    assert maps.shape == (1, 2, 40) and len(maps[0, 0].unique()) > 20


def test_absent_features_take_the_mean_colour_zero_or_a_number() -> None:
    batch = images(1, 4)
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x.flatten(1)[:, :2]

    model = Model(Spy(), mean=0.5, std=0.25)
    features, inputs = Patches(size=2), model.inputs(batch)
    patches = nn.functional.avg_pool2d(inputs, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
    for fill, expected in (
        ("mean", patches),
        ("zero", torch.zeros_like(inputs)),
        (0.75, torch.ones_like(inputs)),
    ):
        seen.clear()
        KernelShap(samples=14, features=features, fill=fill)(
            model, batch, torch.tensor([0]), seed=0
        )
        whole, empty = torch.cat(seen)[:2]
        assert torch.equal(whole, inputs[0])
        torch.testing.assert_close(empty, expected[0])


def test_series_and_columns_with_auxiliary_tensors() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, valid: Tensor) -> Tensor:
            total = (x * valid[:, None]).sum((1, 2))
            return torch.stack([total, -total], 1)

    x = torch.rand(3, 2, 12, generator=torch.Generator().manual_seed(0))
    valid = (torch.arange(12) < torch.tensor([[12], [8], [4]])).float()
    batch = Batch(ids=("a", "b", "c"), x=x, aux={"valid": valid})
    expected = nn.functional.avg_pool1d((x * valid[:, None]).sum(1, keepdim=True), 4) * 4
    maps = KernelShap(samples=6, features=Windows(size=4))(
        Model(Masked(), rows=4), batch, torch.tensor([0, 0, 0]), 0
    )
    torch.testing.assert_close(maps[:, :1, ::4], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("explainer", "shape", "message"),
    [
        (Lime(), (1, 3, 100), r"superpixels.*images"),
        (Lime(features=Pixels()), (1, 3, 224, 224), "50176 features"),
        (KernelShap(samples=100), (1, 3, 224, 224), "392"),
        (Occlusion(window=40), (1, 3, 32, 48), "32"),
        (Occlusion(window=4, stride=5), (1, 3, 32, 48), "4"),
        (Rise(), (1, 10), "images"),
        (Rise(grid=40), (1, 3, 32, 32), "32"),
    ],
)
def test_what_cannot_work_is_refused_before_any_pass(
    explainer: Any, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        explainer.check(None, shape[1:])


def test_parameters_are_validated_and_features_given_by_name() -> None:
    assert Lime(features="slic") == Lime(features=Slic())
    assert (
        label_of(KernelShap(features={"patches": {"size": 8}}))
        == "kernel_shap(features=patches(size=8))"
    )
    assert label_of(Lime(features="superpixels", fill=0.5)) == "lime(fill=0.5)"
    wrong: list[Callable[[], Any]] = [
        lambda: Lime(samples=1),
        lambda: Lime(alpha=0),
        lambda: Lime(fill="blurr"),
        lambda: Rise(keep=1.0),
        lambda: Occlusion(window=0),
    ]
    for build in wrong:
        with pytest.raises(UserError):
            build()
    with pytest.raises(ValueError, match="'superpixels'"):
        Lime(features="superpixel")


def test_all_rows_at_once_as_a_gpu_makes_them_are_those_made_sample_by_sample() -> None:
    g = torch.Generator().manual_seed(3)
    inputs, fill = torch.rand(2, 3, 8, 8, generator=g), torch.rand(2, 3, 8, 8, generator=g)
    segments = torch.randint(5, (2, 8, 8), generator=g)
    kept = torch.rand(6, 5, generator=g) < 0.5
    owner = torch.tensor([0, 0, 0, 0, 1, 1])
    at_once, _ = kept_only(None, inputs[owner], fill[owner], {}, kept, segments[owner])
    one_by_one = [keep(inputs[i], fill[i], kept[owner == i], segments[i]) for i in (0, 1)]
    assert torch.equal(at_once, torch.cat(one_by_one))


def test_with_hardly_more_coalitions_than_features_the_values_are_drawn_to_their_mean() -> None:
    n, draws = 60, torch.Generator().manual_seed(3)
    inner, outer = (
        torch.randn(n, 20, generator=draws).double() / 4,
        torch.randn(20, generator=draws).double(),
    )

    def fitted(samples: int, seed: int) -> Tensor:
        kept, weight = shapley_coalitions(
            rand.keys(seed, ["a"], "x"), torch.tensor([n]), n, samples
        )
        return shapley_regression(
            kept, torch.tanh(kept.double() @ inner) @ outer, weight, torch.tensor([n])
        )[0]

    def error(samples: int) -> float:
        each = [
            float((fitted(samples, seed) - truth).square().sum() / truth.square().sum())
            for seed in range(8)
        ]
        return sum(each) / len(each)

    truth = fitted(40_000, 99)
    assert error(2 * n + 2) < 0.6, (
        "less than an equal share for all, where least squares are off by ten times the map"
    )
    assert error(1000) < 0.1


def test_a_linear_game_is_found_with_the_fewest_coalitions() -> None:
    n = 60
    values = torch.linspace(-1, 2, n).double()
    kept, weight = shapley_coalitions(rand.keys(0, ["a"], "x"), torch.tensor([n]), n, 2 * n + 20)
    found = shapley_regression(kept, kept.double() @ values, weight, torch.tensor([n]))[0]
    torch.testing.assert_close(found, values, atol=1e-5, rtol=0)


@pytest.mark.parametrize("n", [40, 196, 1000])
def test_many_features_get_no_more_coalitions_than_asked_for(n: int) -> None:
    samples = 40 if n < 1000 else 4  # each has a row for every coalition
    keys = rand.keys(0, [str(i) for i in range(samples)], "coalitions")
    kept, weight = shapley_coalitions(keys, torch.full((samples,), n), n, 2 * n + 8)
    drawn = (weight[:, 2:] > 0).sum(1)
    assert drawn.min() >= 2 * n + 6 and drawn.max() <= 2 * n + 8
    assert bool((kept[:, 2:].sum(2)[weight[:, 2:] > 0] > 0).all())
