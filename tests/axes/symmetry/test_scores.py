"""Equivariance and invariance: the guarantees of the theory, brute force, bounds, layers and sensitivity."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from captum.metrics import sensitivity_max
from nets import GNN, BagOfWords, CircularCNN1d, CircularCNN2d, DeepSet, StandardCNN
from torch import Tensor, nn

from heatproof import Batch, Model, UserError, rand
from heatproof.axes.symmetry.criterion import compare
from heatproof.axes.symmetry.groups import Cyclic, Dihedral, NodePermutation, Permutation, Torus
from heatproof.axes.symmetry.orbit import orbit_of
from heatproof.axes.symmetry.scores import (
    equivariance,
    invariance,
    layer_symmetry,
    max_sensitivity,
    model_invariance,
)
from heatproof.explainers import (
    DeepLift,
    GradientShap,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    RandomMap,
    Saliency,
)
from heatproof.maps.similarity import cosine
from heatproof.models.randomised import seeded
from heatproof.statistics.bounds import mean_interval


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def series(n: int = 3) -> tuple[Model, Batch, Any]:
    net = seeded(lambda: CircularCNN1d(channels=2, classes=3, width=6, depth=2), 0)
    return Model(net), named(draw(n, 2, 12)), Cyclic()


def pictures(n: int = 2) -> tuple[Model, Batch, Any]:
    net = seeded(lambda: CircularCNN2d(channels=3, classes=3, width=6, depth=2), 0)
    return Model(net, mean=0.5, std=0.5), named(draw(n, 3, 5, 6)), Torus()


def sets(n: int = 3) -> tuple[Model, Batch, Any]:
    net = seeded(lambda: DeepSet(features=3, classes=4, width=8), 0)
    mask = torch.arange(7) < torch.tensor([7, 5, 3, 7])[:n, None]
    return Model(net), named(draw(n, 7, 3) * mask[..., None], mask=mask), Permutation()


def graphs(n: int = 3) -> tuple[Model, Batch, Any]:
    net = seeded(lambda: GNN(features=4, classes=2, width=8, depth=2), 0)
    mask = torch.arange(6) < torch.tensor([6, 5, 3, 6])[:n, None]
    edges = (draw(n, 6, 6, seed=1) < 0.4) & mask[:, :, None] & mask[:, None, :]
    edges = (edges | edges.transpose(1, 2)).float()
    return (
        Model(net),
        named(draw(n, 6, 4) * mask[..., None], adjacency=edges, mask=mask),
        NodePermutation(),
    )


def texts(n: int = 3) -> tuple[Model, Batch, Any]:
    net = seeded(lambda: BagOfWords(size=20, classes=2, width=8), 0)
    mask = (torch.arange(6) < torch.tensor([6, 4, 2, 6])[:n, None]).long()
    ids = torch.randint(1, 20, (n, 6), generator=torch.Generator().manual_seed(0)) * mask
    return Model(net, embedding="embedding"), named(ids, attention_mask=mask), Permutation()


def named(x: Tensor, **aux: Tensor) -> Batch:
    return Batch(tuple(f"s{i}" for i in range(len(x))), x, aux)


def top(model: Model, batch: Batch) -> Tensor:
    with torch.no_grad():
        return model.logits(model.inputs(batch), batch.aux).argmax(1)


MODALITIES = {
    "series": series,
    "pictures": pictures,
    "sets": sets,
    "graphs": graphs,
    "texts": texts,
}
GUARANTEED = [
    Saliency(),
    Saliency(absolute=False),
    InputXGradient(),
    IntegratedGradients(steps=5),
    GradientShap(samples=2),
]


class ByExample:
    """Importance of four fixed examples: by the gradient of the loss in the head, or by a layer's representation."""

    kind, stochastic = "example", False

    def __init__(self, examples: Batch, layer: str, loss: bool = False) -> None:
        self.examples, self.layer, self.loss = examples, layer, loss

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        own, theirs = (
            self.features(model, batch, target),
            self.features(model, self.examples, target[:1].expand(4)),
        )
        return own @ theirs.T

    def features(self, model: Model, batch: Batch, target: Tensor) -> Tensor:
        kept: list[Tensor] = []
        handle = model.layer(self.layer).register_forward_hook(
            lambda *given: kept.append(given[2].flatten(1))
        )
        with torch.no_grad():
            logits = model.logits(model.inputs(batch), batch.aux)
        handle.remove()
        if not self.loss:
            return kept[0]
        slope = logits.softmax(1) - nn.functional.one_hot(target, logits.shape[1])
        return (slope[:, :, None] * kept[0][:, None]).flatten(1)


@pytest.mark.parametrize("modality", MODALITIES)
def test_the_reference_models_are_invariant(modality):
    model, batch, group = MODALITIES[modality]()
    found = model_invariance(model, batch, group, n=30)
    assert found.cosine.exact == (modality in ("series", "pictures"))
    assert (found.cosine.value - 1).abs().max() < 1e-5
    assert found.agreement.value.tolist() == [1.0] * len(batch)


@pytest.mark.parametrize(
    "explainer", GUARANTEED, ids=lambda e: f"{e.name}-{getattr(e, 'absolute', '')}"
)
@pytest.mark.parametrize("modality", MODALITIES)
def test_gradient_methods_are_equivariant_on_invariant_models(modality, explainer):
    model, batch, group = MODALITIES[modality]()
    found = equivariance(model, batch, top(model, batch), explainer, group, n=30)
    assert found.each.shape == (
        len(batch),
        30 if modality == "pictures" else 12 if modality == "series" else 30,
    )
    if modality == "texts" and explainer.name == "saliency":  # all words of a bag have one gradient
        assert set(found.reason) <= {
            "no element of the group moves the explanation",
            "the explanation is constant",
        }
        assert found.value.isnan().all()
        return
    assert (found.value - 1).abs().max() < 1e-5
    assert found.reason == ("",) * len(batch)


@pytest.mark.parametrize("explainer", [DeepLift(), GuidedBackprop()], ids=lambda e: e.name)
@pytest.mark.parametrize("modality", ["series", "pictures"])
def test_rule_based_methods_are_equivariant_too(modality, explainer):
    model, batch, group = MODALITIES[modality]()
    found = equivariance(model, batch, top(model, batch), explainer, group, n=30)
    assert (found.each - 1).abs().max() < 1e-5


@pytest.mark.parametrize("modality", MODALITIES)
def test_loss_and_invariant_layers_give_invariant_explanations_and_equivariant_layers_do_not(
    modality,
):
    model, batch, group = MODALITIES[modality](4)
    batch, examples = batch[:3], batch
    target = top(model, batch)
    early = {"sets": "elements", "graphs": "layers.0", "texts": "embedding"}.get(
        modality, "features"
    )

    def score(*given: Any, **options: Any) -> Tensor:
        return invariance(
            model, batch, target, ByExample(examples, *given, **options), group, n=12
        ).value

    assert (score("hidden", loss=True) - 1).abs().max() < 1e-5
    assert (score("pool") - 1).abs().max() < 1e-5
    assert (score(early) < 0.99999).all(), (
        "a representation that moves gives an importance that moves"
    )


def test_a_model_that_is_not_invariant_is_seen_and_its_explanations_do_not_move_along():
    model = Model(seeded(lambda: StandardCNN(size=(8, 8), channels=1, classes=3, width=4), 0))
    batch = named(draw(3, 1, 8, 8))
    found = model_invariance(model, batch, Torus(), n=64)
    assert found.cosine.exact and (found.cosine.value < 0.999999).all()
    maps = equivariance(model, batch, top(model, batch), Saliency(), Torus(), n=64)
    assert (maps.value < 0.95).all()
    assert maps.each[:, 0].tolist() == pytest.approx([1.0] * 3), "the identity changes nothing"


def test_a_random_map_has_no_equivariance():
    model, batch, group = series()
    found = equivariance(model, batch, top(model, batch), RandomMap(), group, n=12)
    assert found.value.abs().max() < 0.5
    assert found.each[:, 0].tolist() == pytest.approx([1.0] * len(batch))


def test_fresh_draws_spoil_gradient_shap_and_common_draws_do_not():
    model, batch, group = pictures(6)
    model.module.features[0].weight.mul_(6)  # a strongly bent function, so that the draws matter
    model.module.hidden[0].weight.mul_(4)
    found = equivariance(model, batch, top(model, batch), GradientShap(samples=1), group, n=30)
    assert (found.value - 1).abs().max() < 1e-5
    assert found.noise_floor is not None
    assert float(found.noise_floor.mean()) < 0.9
    assert (
        equivariance(model, batch, top(model, batch), Saliency(), group, n=30).noise_floor is None
    )


PERMUTED = ("sets", "graphs", "texts")


def real_elements(batch: Batch) -> list[int]:
    mask = batch.aux.get("mask", batch.aux.get("attention_mask", torch.ones(batch.x.shape[:2])))
    return [int(n) for n in mask.sum(1)]


def by_hand(
    model: Model, batch: Batch, target: Tensor, explainer: Any, group: Any, elements: Any
) -> list[float]:
    """One sample and one element at a time."""
    means = []
    for i in range(len(batch)):
        one, scores = batch[i : i + 1], []
        for g in elements[i]:
            clean = explainer(model, one, target[i : i + 1], 0)
            moved = explainer(model, group.act(g, one), target[i : i + 1], 0)
            if clean.ndim > one.x.ndim:
                clean, moved = clean.sum(-1), moved.sum(-1)
            a, b = moved.double().flatten(), group.move(g, clean).double().flatten()
            scores.append(float(a @ b / a.norm() / b.norm()))
        means.append(sum(scores) / len(scores))
    return means


def uneven(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    """Gradients weighted by where they stand, which no group moves along."""
    maps = Saliency()(model, batch, target, seed)
    return maps * torch.linspace(0, 2, maps[0].numel()).reshape(maps.shape[1:])


@pytest.mark.parametrize("modality", MODALITIES)
def test_scores_equal_a_loop_over_samples_and_elements(modality):
    model, batch, group = MODALITIES[modality]()
    explainer = uneven
    target = top(model, batch)
    found = equivariance(model, batch, target, explainer, group, n=5)
    drawn = [
        group.elements(batch[i : i + 1])
        if math.factorial(m) <= 5 and modality in PERMUTED
        else group.sample(batch, 5, 0)[:, i]
        for i, m in enumerate(real_elements(batch))
    ]
    assert not found.exact
    assert found.value.tolist() == pytest.approx(
        by_hand(model, batch, target, explainer, group, drawn), abs=1e-5
    )
    assert (found.value < 0.9999).all()


def test_scores_do_not_depend_on_the_batch():
    model, batch, group = sets(4)
    target, explainer = top(model, batch), GradientShap(samples=2, sigma=0.3)
    whole = equivariance(model, batch, target, explainer, group, n=6)
    model.rows = 5
    assert torch.allclose(
        equivariance(model, batch, target, explainer, group, n=6).each, whole.each, atol=1e-6
    )
    order = [2, 0, 3]
    part = equivariance(model, batch[order], target[order], explainer, group, n=6)
    assert torch.allclose(part.each, whole.each[order], atol=1e-6)
    assert torch.allclose(part.low, whole.low[order], atol=1e-6)


def test_maps_without_a_direction_have_no_score():
    model, batch, group = series()

    def broken(model: Model, part: Batch, target: Tensor, seed: int) -> Tensor:
        maps = part.x.clone()
        for i, name in enumerate(part.ids):
            if name == "s0":
                maps[i] = 0
            if name == "s1" and not torch.equal(part.x[i], batch.x[1]):
                maps[i] = torch.nan
        return maps

    found = equivariance(model, batch, top(model, batch), broken, group, n=12)
    assert found.value.isnan().tolist() == [True, True, False]
    assert "zero" in found.reason[0]
    assert "moved" in found.reason[1] and "not finite" in found.reason[1]
    assert found.reason[2] == "" and float(found.value[2]) == pytest.approx(1)
    sampled = equivariance(model, batch, top(model, batch), broken, group, n=5)
    assert sampled.low.isnan().tolist() == sampled.high.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("name", ["cosine", "agreement", "spearman", "ssim", "jaccard"])
def test_every_similarity_is_one_on_equals_and_less_on_others(name):
    a, b = draw(2, 1, 12, 12), draw(2, 1, 12, 12, seed=1)
    assert compare(name, a, a).tolist() == pytest.approx([1, 1])
    assert (compare(name, a, b) < 0.9).all()
    assert compare(name, a * torch.nan, b).isnan().all()
    model, batch, group = pictures()
    found = equivariance(model, batch, top(model, batch), Saliency(), group, n=30, similarity=name)
    # Windows of the SSIM do not wrap around, and rounding breaks equality: both are theirs, not the explainer's.
    assert (found.value > {"agreement": 0.0, "ssim": 0.7}.get(name, 0.9999)).all()


def test_agreement_counts_categories():
    kinds = torch.tensor([[1, 0, 2, 1]])
    assert compare("agreement", kinds, torch.tensor([[1, 1, 2, 0]])).tolist() == [0.5]
    assert compare("agreement", kinds * 0, kinds * 0).tolist() == [1.0]


def test_bounds_hold_and_are_shorter_than_hoeffdings_where_draws_are_alike():
    generator = torch.Generator().manual_seed(0)
    n, delta = 40, 0.1
    hoeffding = 2 * (torch.tensor(2 / delta).log() / (2 * n)).sqrt()
    for mean, spread in ((0.0, 1.0), (0.5, 0.5), (0.9, 0.1), (0.97, 0.03)):
        values = mean + spread * (
            2 * torch.rand(2000, n, generator=generator, dtype=torch.float64) - 1
        )
        low, high = mean_interval(values, -1.0, 1.0, delta)
        assert ((low > mean) | (high < mean)).double().mean() <= delta
        assert (low <= values.mean(1)).all() and (values.mean(1) <= high).all()
        if spread <= 0.1:
            assert float((high - low).mean()) / 2 < 0.5 * float(hoeffding)
    coin = (
        torch.rand(2000, n, generator=generator) < 0.9
    ).double()  # the hardest variable with its mean
    low, high = mean_interval(coin, 0.0, 1.0, delta)
    assert ((low > 0.9) | (high < 0.9)).double().mean() <= delta


def test_a_sampled_score_brackets_the_exact_one():
    model = Model(seeded(lambda: StandardCNN(size=(8, 8), channels=1, classes=3, width=4), 0))
    batch = named(draw(4, 1, 8, 8))
    given = (model, batch, top(model, batch), Saliency(), Torus())
    exact, sampled = equivariance(*given, n=64), equivariance(*given, n=40)
    assert (
        exact.exact and torch.equal(exact.low, exact.value) and torch.equal(exact.high, exact.value)
    )
    assert not sampled.exact
    assert ((sampled.low <= exact.value) & (exact.value <= sampled.high)).all()
    assert (sampled.value - exact.value).abs().max() < 0.2


LAYERS = {
    "series": ("features", "hidden"),
    "pictures": ("features", "pool"),
    "sets": ("elements", "hidden"),
    "graphs": ("layers.1", "pool"),
    "texts": ("embedding", "head"),
}


@pytest.mark.parametrize("modality", MODALITIES)
def test_layers_are_told_apart(modality):
    model, batch, group = MODALITIES[modality]()
    moving, fixed = LAYERS[modality]
    found = layer_symmetry(model, batch, moving, group, n=12)
    assert found.verdict == "equivariant"
    assert found.equivariance_error is not None and found.equivariance_error.max() < 1e-5
    assert found.invariance_error.max() > 0.01
    assert (
        len(found.elements)
        != len(batch)
        == len(found.invariance_error)
        == len(found.equivariance_error)
    )
    found = layer_symmetry(model, batch, fixed, group, n=12)
    assert found.verdict == "invariant" and found.equivariance_error is None
    assert found.invariance_error.max() < 1e-5


def test_a_layer_that_shrinks_pads_or_flattens_is_neither():
    net = seeded(lambda: StandardCNN(size=(8, 8), channels=1, classes=3, width=4), 0)
    model, batch = Model(net), named(draw(2, 1, 8, 8))
    for layer in ("features.0", "features.2", "flatten", "head"):
        found = layer_symmetry(model, batch, layer, Torus(), n=8)
        assert found.verdict == "neither", layer
        assert (found.equivariance_error is not None) == (layer == "features.0"), layer
    with pytest.raises(UserError, match="'feature'"):
        layer_symmetry(model, batch, "feature", Torus())


def test_max_sensitivity_agrees_with_captum_on_the_same_draws():
    model, batch, _ = pictures(3)
    target, radius, n = top(model, batch), 0.05, 4
    ours = max_sensitivity(model, batch, target, InputXGradient(), radius, n, seed=3)

    def explain(given: Tensor | tuple[Tensor]) -> Tensor | tuple[Tensor]:
        x = given[0] if isinstance(given, tuple) else given
        each = len(x) // len(batch)
        maps = InputXGradient()(
            model, Batch(tuple("x" * len(x)), x), target.repeat_interleave(each), 0
        )
        return (maps,) if isinstance(given, tuple) else maps

    def perturb(x: Tensor) -> Tensor:
        key = rand.keys(3, batch.ids, "max sensitivity")
        noise = torch.stack(
            [rand.uniform(rand.fold(key, i), batch.x.shape[1:]) for i in range(n)], 1
        )
        return x + radius * (2 * noise.flatten(0, 1) - 1)

    theirs = sensitivity_max(
        explain, batch.x, perturb_func=perturb, perturb_radius=radius, n_perturb_samples=n
    )
    assert torch.allclose(ours.float(), theirs, rtol=1e-4)
    norms = InputXGradient()(model, batch, target, 0).flatten(1).norm(dim=1)
    absolute = max_sensitivity(
        model, batch, target, InputXGradient(), radius, n, seed=3, relative=False
    )
    assert torch.allclose(absolute.float(), theirs * norms, rtol=1e-4)


def test_padding_is_not_perturbed_and_a_larger_ball_changes_more():
    model, batch, _ = sets(4)
    seen = []

    def spy(model: Model, part: Batch, target: Tensor, seed: int) -> Tensor:
        seen.append(part)
        return InputXGradient()(model, part, target, seed)

    small, large = (
        max_sensitivity(model, batch, top(model, batch), spy, radius, n=6) for radius in (0.01, 0.3)
    )
    assert (small < large).all() and (small > 0).all()
    for part in seen:
        assert not part.x[~part.aux["mask"]].any()


def test_what_cannot_work_is_an_error():
    model, batch, group = series()
    target = top(model, batch)
    with pytest.raises(UserError, match=r"'cosin'.*'cosine'"):
        equivariance(model, batch, target, Saliency(), group, similarity="cosin")
    with pytest.raises(UserError, match=r"elements.* 0"):
        equivariance(model, batch, target, Saliency(), group, n=0)
    with pytest.raises(UserError, match=r"radius.*0\.0"):
        max_sensitivity(model, batch, target, Saliency(), radius=0.0)
    with pytest.raises(UserError, match=r"delta.*1\.0"):
        equivariance(model, batch, target, Saliency(), group, n=3, delta=1.0)
    words, ids, _ = texts()
    with pytest.raises(UserError, match="token ids"):
        max_sensitivity(words, ids, top(words, ids), Saliency())


def test_an_interpolating_group_is_measured_all_the_same():
    model, batch = Model(nn.Sequential(nn.Flatten(), nn.Linear(48, 2))), named(draw(2, 3, 4, 4))
    found = equivariance(model, batch, top(model, batch), InputXGradient(), Dihedral(8), n=16)
    assert found.exact and (found.value < 1).all()


def test_the_orbit_of_one_sample_is_cut_into_pieces_that_fit(monkeypatch):
    model, batch, group = series()
    whole = equivariance(
        model, batch, top(model, batch), GradientShap(samples=2, sigma=0.3), group, n=12
    )
    monkeypatch.setattr("heatproof.axes.symmetry.orbit.VALUES_AT_ONCE", 5 * 24)
    assert max(len(piece.batch) for piece in orbit_of(group, batch, 12).pieces()) == 5
    again = equivariance(
        model, batch, top(model, batch), GradientShap(samples=2, sigma=0.3), group, n=12
    )
    assert torch.allclose(again.each, whole.each, atol=1e-6)
    assert cosine(again.each, whole.each).min() > 0.999999


def test_a_group_of_one_element_says_nothing():
    model, batch = Model(nn.Sequential(nn.Flatten(), nn.Linear(2, 3))), named(draw(3, 2, 1))
    found = equivariance(model, batch, top(model, batch), Saliency(), Cyclic())
    assert found.value.isnan().all() and found.low.isnan().all()
    assert all("single element" in reason for reason in found.reason)
    alike = model_invariance(model, batch, Cyclic())
    assert all(part.value.isnan().all() for part in alike)
    assert layer_symmetry(model, batch, "1", Cyclic()).invariance_error.isnan().all()
    # Permutations of one channel of a series move nothing either.
    assert (
        equivariance(model, named(draw(3, 1, 2)), top(model, batch), Saliency(), Permutation())
        .value.isnan()
        .all()
    )
