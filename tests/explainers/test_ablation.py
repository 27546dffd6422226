"""Feature ablation and permutation against Captum, brute force and the symmetries that theory gives them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from heatproof.errors import UserError
from heatproof.explainers.ablation import FeatureAblation, FeaturePermutation
from heatproof.features import Elements, Patches, Tokens
from heatproof.models import Model
from heatproof.types import Batch, label_of, parameters
from support.modalities import CASES, TARGET, BagOfWords, batch_of, case, generator, seeded, texts


def circular_cnn(dims: int) -> nn.Module:
    convolution, pool = (
        (nn.Conv1d, nn.AdaptiveAvgPool1d) if dims == 1 else (nn.Conv2d, nn.AdaptiveAvgPool2d)
    )
    return nn.Sequential(
        convolution(2, 5, 3, padding=1, padding_mode="circular"),
        nn.ReLU(),
        convolution(5, 5, 3, padding=1, padding_mode="circular"),
        nn.ReLU(),
        pool(1),
        nn.Flatten(),
        nn.Linear(5, 3),
    )


SHAPES = {name: tuple(batch.x.shape) for name, (_, batch, _, _) in CASES.items()}


def explainer(kind: type[Any], features: Any, **options: Any) -> Any:
    return kind(
        features=features, **({"draws": 2} if kind is FeaturePermutation else {}), **options
    )


@pytest.mark.parametrize("kind", [FeatureAblation, FeaturePermutation])
@pytest.mark.parametrize("name", CASES)
def test_a_map_depends_neither_on_its_neighbours_nor_on_the_rows_per_pass(
    name: str, kind: type[Any]
) -> None:
    model, batch, features = case(name)
    method = explainer(kind, features)
    together = method(model, batch, TARGET, seed=3)
    assert (
        together.shape == SHAPES[name]
        and together.dtype == torch.float32
        and torch.isfinite(together).all()
    )
    assert (together.flatten(1).abs().amax(1) > 1e-4).all()
    for rows in (1, 5, 64):
        small, _, _ = case(name, rows)
        singles = torch.cat(
            [method(small, batch[i : i + 1], TARGET[i : i + 1], seed=3) for i in range(3)]
        )
        shuffled = method(small, batch[[2, 0, 1]], TARGET[[2, 0, 1]], seed=3)
        torch.testing.assert_close(singles, together, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(shuffled, together[[2, 0, 1]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["image", "patches", "superpixels", "series", "windows", "table"])
def test_ablation_agrees_with_captum(name: str) -> None:
    attr = pytest.importorskip("captum.attr")
    model, batch, features = case(name)
    inputs = model.inputs(batch)
    labels = features.segments(batch)
    labels = labels if labels.ndim == inputs.ndim else labels[:, None].expand_as(inputs)
    ours = FeatureAblation(features=features)(model, batch, TARGET, seed=0)
    for i in range(3):  # Captum wants one mask for all
        theirs = attr.FeatureAblation(model.logits).attribute(
            inputs[i : i + 1], feature_mask=labels[i : i + 1], target=int(TARGET[i])
        )
        torch.testing.assert_close(ours[i : i + 1], theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fill", ["mean", "blur", 0.25])
@pytest.mark.parametrize("readout", ["logit", "probability"])
def test_ablation_by_hand(fill: Any, readout: Any) -> None:
    model, batch, features = case("image")
    features = Patches(size=3)
    ours = FeatureAblation(features=features, fill=fill, readout=readout)(
        model, batch, TARGET, seed=0
    )
    inputs, labels = model.inputs(batch), features.segments(batch)
    if fill == "blur":
        from heatproof.features.fill import blurred

        replaced = blurred(inputs)
    else:
        replaced = torch.empty_like(inputs)
        for i in range(int(labels.max()) + 1):
            inside = labels[0] == i
            own = inputs[:, :, inside].mean(2, keepdim=True) if fill == "mean" else None
            replaced[:, :, inside] = (
                ((0.25 - torch.tensor([0.1, 0.2])) / torch.tensor([0.5, 0.7]))[:, None]
                if own is None
                else own
            )
    for i in range(int(labels.max()) + 1):
        inside = labels[0] == i
        without = torch.where(inside, replaced, inputs)
        both = torch.stack([model.logits(v).double() for v in (inputs, without)])
        both = both.softmax(2) if readout == "probability" else both
        expected = (both[0] - both[1]).gather(1, TARGET[:, None])[:, 0]
        at = tuple(torch.nonzero(inside)[0].tolist())
        torch.testing.assert_close(
            ours[:, 1, at[0], at[1]].double(), expected, rtol=1e-4, atol=1e-5
        )


def test_what_is_hidden_of_tokens_sets_and_graphs() -> None:
    model, batch, _ = case("set")
    maps = FeatureAblation(features=Elements())(model, batch, TARGET, seed=0)
    without = batch.x.clone()
    without[:, 1] = 0
    difference = (model.logits(batch.x, batch.aux) - model.logits(without, batch.aux)).gather(
        1, TARGET[:, None]
    )
    torch.testing.assert_close(maps[:, 1, 2], difference[:, 0], rtol=1e-4, atol=1e-5)
    assert (maps[~batch.aux["mask"]] == 0).all() and (maps[batch.aux["mask"]] != 0).all()

    model, batch, _ = case("unattended")
    maps = FeatureAblation(features=Tokens())(model, batch, TARGET, seed=0)
    attended = batch.aux["attention_mask"].clone()
    attended[:, 2] = 0
    difference = model.logits(batch.x, batch.aux) - model.logits(
        batch.x, {"attention_mask": attended}
    )
    torch.testing.assert_close(
        maps[:, 2], difference.gather(1, TARGET[:, None])[:, 0], rtol=1e-4, atol=1e-5
    )
    assert (maps[batch.aux["attention_mask"] == 0] == 0).all()


def test_padding_costs_no_pass() -> None:
    model, batch, _ = case("set")
    before = model.passes
    FeatureAblation(features=Elements())(model, batch, TARGET, seed=0)
    assert model.passes - before == 3 + 6 + 4 + 2
    FeaturePermutation(features=Elements(), draws=3)(model, batch, TARGET, seed=0)
    assert model.passes - before == 15 + 3 + 6 * 3 + 4 * 3 + 2 * 1


def test_no_pass_is_larger_than_the_model_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, features = case("series", rows=7)
    sizes: list[int] = []
    plain = model.logits
    monkeypatch.setattr(
        model, "logits", lambda inputs, aux=None: sizes.append(len(inputs)) or plain(inputs, aux)
    )
    FeatureAblation(features=features)(model, batch, TARGET, seed=0)
    assert max(sizes) == 7


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("method", [FeatureAblation(), FeaturePermutation(draws=2)], ids=label_of)
def test_maps_move_with_the_input_under_cyclic_shifts(method: Any, dims: int) -> None:
    model = Model(seeded(lambda: circular_cnn(dims)))
    batch = batch_of(2, 2, *(7, 5)[:dims])
    clean = method(model, batch, TARGET[:2], seed=0)
    for shift in (1, 3):
        axes = tuple(range(2, 2 + dims))
        moved = method(model, batch.with_x(batch.x.roll([shift] * dims, axes)), TARGET[:2], seed=0)
        torch.testing.assert_close(moved, clean.roll([shift] * dims, axes), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["set", "graph", "tokens", "unattended", "vectors"])
@pytest.mark.parametrize("kind", [FeatureAblation, FeaturePermutation])
def test_maps_move_with_the_elements(name: str, kind: type[Any]) -> None:
    model, batch, features = case(name)
    length = batch.x.shape[1]
    every = FeaturePermutation(features=features, draws=length - 1)
    method = every if kind is FeaturePermutation else FeatureAblation(features=features)
    clean = method(model, batch, TARGET, seed=0)
    order = torch.randperm(length, generator=generator(7))
    aux = {key: value[:, order] for key, value in batch.aux.items()}
    if "adjacency" in aux:
        aux["adjacency"] = aux["adjacency"][:, :, order]
    moved = method(model, Batch(batch.ids, batch.x[:, order], aux), TARGET, seed=0)
    torch.testing.assert_close(moved, clean[:, order], rtol=1e-4, atol=1e-5)
    assert clean.abs().max() > 0.01


def test_one_draw_of_a_permutation_does_not_move_with_the_elements_of_a_set() -> None:
    model, batch, _ = case("set")
    method = FeaturePermutation(features=Elements(), draws=1)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    clean = method(model, batch[:1], TARGET[:1], seed=0)
    moved = method(
        model,
        Batch(("a",), batch.x[:1, order], {"mask": batch.aux["mask"][:1, order]}),
        TARGET[:1],
        seed=0,
    )
    assert (moved - clean[:, order]).abs().max() > 0.01


def test_all_draws_of_a_permutation_are_the_mean_over_all_other_places() -> None:
    model, batch, _ = case("series")
    ours = FeaturePermutation(draws=100)(model, batch, TARGET, seed=5)
    whole = model.logits(batch.x).gather(1, TARGET[:, None])[:, 0]
    for p in range(9):
        total = torch.zeros(3)
        for q in set(range(9)) - {p}:
            x = batch.x.clone()
            x[:, :, p] = x[:, :, q]
            total += whole - model.logits(x).gather(1, TARGET[:, None])[:, 0]
        torch.testing.assert_close(ours[:, 0, p], total / 8, rtol=1e-3, atol=1e-5)


def test_draws_are_shared_between_versions_of_a_sample_and_differ_between_seeds() -> None:
    model, batch, _ = case("image")
    method = FeaturePermutation()
    one, again, other = (method(model, batch, TARGET, seed) for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.allclose(one, other)
    near = method(model, batch.with_x(batch.x + 1e-4), TARGET, 0)
    assert (near - one).abs().max() < 0.01 < (other - one).abs().max()


def test_draws_of_padded_samples_do_not_depend_on_the_padding() -> None:
    model, batch, _ = case("set")
    method = FeaturePermutation(features=Elements(), draws=2)
    short = Batch(batch.ids[1:], batch.x[1:, :4], {"mask": batch.aux["mask"][1:, :4]})
    torch.testing.assert_close(
        method(model, short, TARGET[1:], 0),
        method(model, batch[1:], TARGET[1:], 0)[:, :4],
        rtol=1e-4,
        atol=1e-5,
    )


def test_values_from_a_pool_by_hand() -> None:
    model, batch, _ = case("table")
    pool = batch_of(5, 7).x + 2
    ours = FeaturePermutation(pool=pool, draws=9)(model, batch, TARGET, seed=0)
    whole = model.logits(batch.x).gather(1, TARGET[:, None])[:, 0]
    for column in range(7):
        total = torch.zeros(3)
        for other in pool:
            x = batch.x.clone()
            x[:, column] = other[column]
            total += whole - model.logits(x).gather(1, TARGET[:, None])[:, 0]
        torch.testing.assert_close(ours[:, column], total / 5, rtol=1e-3, atol=1e-5)
    few = FeaturePermutation(pool=pool, draws=2)
    assert not torch.allclose(few(model, batch, TARGET, 0), few(model, batch, TARGET, 1))
    assert "Examples(5" in str(parameters(few)["pool"])


def test_clear_errors() -> None:
    model, _, _ = case("image")
    with pytest.raises(UserError, match=r"patches .* images"):
        FeatureAblation(features=Patches(size=2)).check(model, (3, 9))
    with pytest.raises(UserError, match=r"elements .* sets and graphs"):
        FeatureAblation(features=Elements()).check(model, (3, 9, 9))
    with pytest.raises(UserError, match="pixels"):
        FeatureAblation(fill="mean")
    with pytest.raises(UserError, match="draws"):
        FeaturePermutation(draws=0)
    with pytest.raises(UserError, match=r"\(7,\)"):
        FeaturePermutation(pool=batch_of(5, 7).x).check(model, (3, 9, 9))
    text = Model(seeded(BagOfWords))
    with pytest.raises(UserError, match="Tokens"):
        FeatureAblation()(text, texts(), TARGET, seed=0)
    model, padded, _ = case("set")
    for method in (FeatureAblation(), FeaturePermutation()):
        with pytest.raises(UserError, match="elements"):
            method(model, padded, TARGET, seed=0)
    pooled = FeaturePermutation(features=Elements(), pool=torch.zeros(4, 6, 3))
    with pytest.raises(UserError, match="sizes"):
        pooled(model, padded, TARGET, seed=0)


def test_parameters_are_plain_and_labels_short() -> None:
    assert label_of(FeatureAblation()) == "feature_ablation"
    assert label_of(FeaturePermutation(features={"windows": {"size": 4}})) == (
        "feature_permutation(features=windows(size=4))"
    )
    assert parameters(FeaturePermutation())["pool"] is None


def test_token_ids_are_exchanged_as_ids_without_an_embedding() -> None:
    model, batch, _ = case("tokens")
    with_vectors = Model(seeded(BagOfWords), embedding="embedding")
    method = FeaturePermutation(features=Tokens(mask_token=1), draws=2)
    torch.testing.assert_close(
        method(model, batch, TARGET, 0), method(with_vectors, batch, TARGET, 0)
    )
    assert math.isclose(float(method(model, batch, TARGET, 0)[2, 3:].abs().sum()), 0.0)
