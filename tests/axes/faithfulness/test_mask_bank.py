"""Random masks shared by all explainers, against brute force, Captum, SciPy and models whose answer is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from captum.metrics import infidelity as captum_infidelity
from scipy import stats

from heatproof import UserError, rand
from heatproof.axes.faithfulness.mask_bank import (
    correlation,
    fill_bank,
    infidelity,
    random_masks,
    scores,
)
from heatproof.features import Patches, Pixels, count
from heatproof.types import Batch


def black(x, keep, ids, seed):
    return x * keep[:, None]


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def linear(seed=1):
    weight = random(3 * 8 * 8, 4, seed=seed) - 0.5
    return weight, lambda batch: batch.x.flatten(1) @ weight


def filled(predict, maps, batch, features=Pixels(), **options):  # noqa: B008 (a frozen object)
    clean = predict(batch)
    segments = features.segments(batch)
    return fill_bank(
        predict, batch, clean.argmax(1), clean, segments, maps, black, **options
    ), clean


def test_masks_have_their_size_and_every_set_is_as_likely_as_any_other():
    keys = rand.fold(rand.keys(0, ["a"], "masks").expand(6000), torch.arange(6000))
    masks = random_masks(keys, torch.full((6000,), 4), torch.full((6000,), 2), 6)
    assert (masks.sum(1) == 2).all()
    assert not masks[:, 4:].any(), "features that the sample lacks are not removed"
    sets = [tuple(row.nonzero().flatten().tolist()) for row in masks]
    observed = [sets.count(pair) for pair in itertools.combinations(range(4), 2)]
    assert stats.chisquare(observed).pvalue > 1e-3


@pytest.mark.parametrize("features", [Pixels(), Patches(3)], ids=["pixels", "patches"])
def test_the_product_of_input_and_gradient_is_exact_for_a_linear_model(features):
    weight, predict = linear()
    batch = Batch(("a", "b", "c"), random(3, 3, 8, 8))
    target = predict(batch).argmax(1)
    product = (weight.T[target].reshape(batch.x.shape) * batch.x).sum(1)
    other = random(3, 8, 8, seed=5)
    bank, _ = filled(predict, torch.stack([product, other, 3 * product]), batch, features, masks=24)
    exact, unrelated, thrice = (scores(bank, e) for e in range(3))
    for (name, _), value in exact.items():
        wanted = 0.0 if name.startswith("infidelity") else 1.0
        assert value.tolist() == pytest.approx([wanted] * 3, abs=1e-5), name
    assert (unrelated["infidelity", 0.0] > 1e-2).all()
    assert (unrelated["faithfulness_correlation", 0.0] < 0.9).all()
    assert thrice["infidelity_scaled", 0.0].tolist() == pytest.approx([0.0] * 3, abs=1e-5)
    assert (thrice["infidelity", 0.0] > 1e-2).all()
    assert {level for name, level in exact if name == "sensitivity_n"} == {0.1, 0.5}


def test_drops_and_masses_are_those_of_the_masks_themselves():
    _, predict = linear()

    def bent(batch):
        return predict(batch).sin()

    batch, features = Batch(("a", "b"), random(2, 3, 8, 8)), Patches(3)
    maps = random(2, 2, 8, 8, seed=3)
    bank, clean = filled(bent, maps, batch, features, masks=10, subsets=(0.2, 0.6), seed=4)
    segments, target = features.segments(batch), clean.argmax(1)
    assert count(segments).tolist() == [9, 9]
    keys = rand.keys(4, batch.ids, "masks")
    for b, m in itertools.product(range(2), range(10)):
        size = torch.tensor([(2, 5)[m % 2]])
        gone = random_masks(rand.fold(keys[b : b + 1], m), torch.tensor([9]), size, 9)[0][
            segments[b]
        ]
        after = bent(batch[b : b + 1].with_x(batch.x[b : b + 1] * ~gone))[0, target[b]]
        assert bank.drop[b, m].item() == pytest.approx(float(clean[b, target[b]] - after), abs=1e-5)
        for e in range(2):
            assert bank.mass[e, b, m].item() == pytest.approx(
                float(maps[e, b][gone].sum()), abs=1e-5
            )


def test_the_bank_does_not_depend_on_neighbours_chunks_or_the_number_of_maps(monkeypatch):
    _, predict = linear()
    batch = Batch(("a", "b", "c"), random(3, 3, 8, 8))
    maps = random(2, 3, 8, 8, seed=3)
    whole, _ = filled(predict, maps, batch, masks=12)
    monkeypatch.setattr(
        "heatproof.axes.faithfulness.sweeps.VALUES", {"cpu": 5 * batch.x[0].numel()}
    )
    chunked, _ = filled(predict, maps, batch, masks=12)
    alone, _ = filled(predict, maps[1:, 2:], batch[2:], masks=12)
    assert torch.allclose(whole.drop, chunked.drop, atol=1e-5) and torch.equal(
        whole.mass, chunked.mass
    )
    assert torch.allclose(alone.drop, whole.drop[2:], atol=1e-5)
    assert torch.allclose(alone.mass[0], whole.mass[1, 2:])


def test_infidelity_agrees_with_captum():
    _, predict = linear()
    batch = Batch(("a", "b"), random(2, 3, 8, 8) + 0.1)
    maps = random(1, 2, 8, 8, seed=3) - 0.3

    def forward(x):
        return predict(Batch(tuple(map(str, range(len(x)))), x)).sin()

    masks = 12
    clean = forward(batch.x)
    target = clean.argmax(1)
    bank = fill_bank(
        lambda b: forward(b.x),
        batch,
        target,
        clean,
        Pixels().segments(batch),
        maps,
        black,
        masks,
        (0.1, 0.5),
    )
    keys = rand.keys(0, batch.ids, "masks")
    gone = torch.stack(
        [
            random_masks(
                rand.fold(keys[b : b + 1], m),
                torch.tensor([64]),
                torch.tensor([(6, 32)[m % 2]]),
                64,
            )[0]
            for b in range(2)
            for m in range(masks)
        ]
    ).reshape(-1, 1, 8, 8)

    def perturb(inputs):
        """Captum wants I, with f(x − I); contributions are weighed by I / x."""
        return gone.float().expand_as(inputs), inputs * ~gone

    attributions = maps[0][:, None].expand(2, 3, 8, 8) / 3
    for normalise, scaled in ((False, False), (True, True)):
        reference = captum_infidelity(
            forward,
            perturb,
            batch.x,
            attributions,
            target=target,
            n_perturb_samples=masks,
            normalize=normalise,
        )
        found = infidelity(bank.mass[0], bank.drop, scaled)
        assert torch.allclose(found.float(), reference, atol=1e-4), scaled


def test_correlation_agrees_with_scipy_and_is_centred_within_sizes():
    mass, drop = random(4, 20).double(), random(4, 20, seed=1).double()
    wanted = [
        stats.pearsonr(a, b).statistic for a, b in zip(mass.numpy(), drop.numpy(), strict=True)
    ]
    assert np.allclose(correlation(mass, drop), wanted)
    size = torch.tensor([1, 5]).repeat(10).expand(4, 20)
    larger = correlation(mass + 100 * size, drop + 100 * size, size)
    parts = []
    for s in (1, 5):
        here = size[0] == s
        parts.append([v[:, here] - v[:, here].mean(1, keepdim=True) for v in (mass, drop)])
    centred = [torch.cat(pair, 1).numpy() for pair in zip(*parts, strict=True)]
    wanted = [stats.pearsonr(a, b).statistic for a, b in zip(*centred, strict=True)]
    assert np.allclose(larger, wanted)
    assert (correlation(mass + 100 * size, drop + 100 * size) > 0.99).all(), (
        "without centring, size alone correlates"
    )


def test_the_correlation_is_pearsons_and_not_spearmans_as_that_of_mufidelity():
    """docs/faithfulness.md: a drop that only rises with the mass is perfect for MuFidelity alone."""
    mass = random(1, 64).double()
    drop = mass**5
    assert stats.spearmanr(mass[0], drop[0]).statistic == pytest.approx(1)
    assert correlation(mass, drop).item() == pytest.approx(stats.pearsonr(mass[0], drop[0])[0])
    assert correlation(mass, drop).item() < 0.95


def test_what_does_not_vary_has_no_correlation():
    vary, same = random(1, 10).double(), torch.full((1, 10), 3.0, dtype=torch.float64)
    rounding = same + 1e-9 * vary
    for a, b in ((same, vary), (vary, same), (rounding, vary), (vary, rounding)):
        assert torch.isnan(correlation(a, b)).all()
    assert torch.isnan(correlation(vary, 1e-7 * vary, scale=torch.tensor([10.0]))).all()
    assert not torch.isnan(correlation(vary, 1e-7 * vary)).any()


def test_two_features_are_enough_and_too_few_masks_are_refused():
    batch = Batch(("a",), random(1, 1, 1, 2))
    bank, _ = filled(
        lambda b: b.x.flatten(1), batch.x[:, 0][None], batch, masks=4, subsets=(0.1, 0.9)
    )
    assert (bank.size == 1).all()
    with pytest.raises(UserError, match=r"4 masks.*3"):
        filled(lambda b: b.x.flatten(1), batch.x[:, 0][None], batch, masks=3)


def test_positive_noise_has_no_merit_where_features_differ_in_size():
    """Large superpixels hold more of every map and of every prediction, which alone makes a correlation."""
    n, sizes = 120, torch.tensor([1, 2, 3, 5, 8, 13, 16, 16])
    labels = torch.arange(8).repeat_interleave(sizes).reshape(1, 8, 8).expand(n, 8, 8)
    batch = Batch(tuple(f"s{i}" for i in range(n)), random(n, 1, 8, 8) + 0.5)
    maps = random(1, n, 8, 8, seed=7)

    def total(b):
        return b.x.flatten(1).sum(1, keepdim=True)

    bank = fill_bank(
        total, batch, torch.zeros(n, dtype=torch.int64), total(batch), labels, maps, black, masks=24
    )
    found = scores(bank, 0)
    for key in (("faithfulness_correlation", 0.0), ("sensitivity_n", 0.5)):
        here = bank.level > key[1] - 0.01
        plain = correlation(bank.mass[0][:, here], bank.drop[:, here], bank.size[:, here])
        assert plain.mean() > 0.8, "as area alone makes it"
        low, high = stats.t.interval(0.99, n - 1, found[key].mean(), stats.sem(found[key]))
        assert low < 0 < high
