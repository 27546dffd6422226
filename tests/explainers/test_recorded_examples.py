"""Explanations by examples and concepts, and the adapters' ways, as they were found and looked at."""

from __future__ import annotations

import functools
import random
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heatproof import Batch, Model
from heatproof import explainers as ex
from heatproof.errors import UserError
from heatproof.explainers import attention_parts, cam_layer
from heatproof.explainers.adapters import foreign, isolation, maps, named, shapley
from heatproof.explainers.adapters.attributions import Captum, PytorchGradCam, Quantus, Zennit
from heatproof.explainers.adapters.quantus_metrics import QuantusMetric, _flat, unnormalised
from heatproof.explainers.concepts import classifiers
from heatproof.explainers.concepts.concepts import Concept, concepts, row_digests
from heatproof.explainers.concepts.explain import layer_gradient
from heatproof.explainers.examples import (
    curvature,
    influence,
    loss_gradients,
    simplex,
    training_set,
)
from heatproof.explainers.examples.training_set import Examples, open_examples
from support.fixed import normal
from support.recorded import recorded


def network() -> Model:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    for i, weight in enumerate(net.parameters()):
        weight.data.copy_(normal(*weight.shape, seed=i))
    return Model(net, rows=4)


def train(n: int = 7) -> Batch:
    return Batch(tuple(f"t{i}" for i in range(n)), normal(n, 3, seed=40), label=torch.arange(n) % 3)


SAMPLES, TARGET = Batch(("a", "b"), normal(2, 3, seed=41)), torch.tensor([2, 0])

BY_EXAMPLES: dict[str, Any] = {
    "influence": ex.Influence(train()),
    "influence cg": ex.Influence(train(), solver="cg", damping=0.05),
    "influence layers": ex.Influence(train(), layers=("2", "4"), damping=0.1),
    "influence all": ex.Influence(train(), layers="all", damping=0.1),
    "influence hessian": ex.Influence(train(), curvature="hessian", damping=0.1),
    "influence hessian cg": ex.Influence(train(), curvature="hessian", damping=0.1, solver="cg"),
    "influence first": ex.Influence(train(), layers="0", damping=0.1, solver="closed"),
    "tracin": ex.TracIn(train()),
    "tracin all": ex.TracIn(train(), layers="all", learning_rates=0.5),
    "simplex": ex.SimplEx(train()),
    "simplex layer": ex.SimplEx(train(), layer="1", ridge=0.01),
    "similarity": ex.RepresentationSimilarity(train()),
    "similarity dot": ex.RepresentationSimilarity(train(), layer="0", metric="dot"),
}


def test_values_of_training_examples() -> None:
    found = {
        name: explainer(network(), SAMPLES, TARGET, 0) for name, explainer in BY_EXAMPLES.items()
    }
    recorded("explainers/examples", found, rtol=1e-3, atol=1e-4)
    model = network()
    state = {name: 1.5 * value for name, value in model.module.state_dict().items()}
    visits = ex.TracIn(
        train(), checkpoints=(model.module.state_dict(), state), learning_rates=(0.5, 0.1)
    )
    alone = [
        ex.TracIn(train(), checkpoints=(each,))(model, SAMPLES, TARGET, 0)
        for each in (model.module.state_dict(), state)
    ]
    assert torch.allclose(
        visits(model, SAMPLES, TARGET, 0), 0.5 * alone[0] + 0.1 * alone[1], rtol=1e-4
    )


@pytest.mark.parametrize("kind", ["gauss_newton", "hessian"])
@pytest.mark.parametrize("layer", ["0", "2", "4"])
def test_curvature_as_a_matrix_and_by_products(kind: Any, layer: str) -> None:
    model, data = network(), Examples(train())
    matrix = curvature.dense_curvature(model, data, [layer], kind)
    products = curvature.curvature_products(
        model, data, [layer], torch.eye(len(matrix)).double(), kind
    )
    assert torch.allclose(matrix, products, atol=1e-5) and torch.allclose(
        matrix, matrix.T, atol=1e-6
    )
    assert curvature.dense_curvature(model, data, ["0", "2"], kind) is None
    recorded(f"explainers/curvature_{kind}_{layer}", [matrix.diagonal(), matrix[0]])


def test_what_is_too_large_for_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = network(), Examples(train())
    size = sum(p.numel() for p in loss_gradients.weights_of(model, ["4"]).values())
    for largest, made in ((size, True), (size - 1, False)):
        monkeypatch.setattr(curvature, "LARGEST_DENSE", largest)
        assert (curvature.dense_curvature(model, data, ["4"], "hessian") is not None) == made
    wanted = ex.Influence(train(), damping=0.1)(model, SAMPLES, TARGET, 0)
    monkeypatch.setattr(influence, "_BLOCK", 2 * size)
    assert torch.allclose(
        ex.Influence(train(), damping=0.1, solver="cg")(model, SAMPLES, TARGET, 0),
        wanted,
        rtol=1e-3,
        atol=1e-4,
    )
    for largest, fits in ((7 * size, True), (7 * size - 1, False)):
        monkeypatch.setattr(influence, "LARGEST_SOLUTION", largest)
        if fits:
            ex.Influence(train(), layers="4").check(model, (3,))
        else:
            with pytest.raises(UserError, match="take at most 6 examples"):
                ex.Influence(train(), layers="4").check(model, (3,))


def test_conjugate_gradients_stop_where_they_say() -> None:
    matrix = torch.diag(torch.tensor([1.0, 2.0, 5.0]).double()) + 0.1
    right = normal(2, 3).double()
    exact = torch.linalg.solve(matrix, right.T).T
    assert torch.allclose(
        curvature.conjugate_gradients(lambda v: v @ matrix, right, 1e-9, 3), exact
    )
    with pytest.raises(UserError, match="after at most 2 iterations"):
        curvature.conjugate_gradients(lambda v: v @ matrix, right, 1e-9, 2)
    with pytest.raises(UserError, match="not positive definite"):
        curvature.conjugate_gradients(lambda v: -v @ matrix, right, 1e-9, 3)
    with pytest.raises(UserError, match="not positive definite"):
        curvature.solve_dense(-matrix, right, 0.1)
    assert torch.allclose(
        curvature.solve_dense(matrix, right, 0.5),
        torch.linalg.solve(matrix + 0.5 * torch.eye(3), right.T).T,
    )


def test_gradients_of_samples_by_both_ways() -> None:
    model, data = network(), Examples(train())
    for layers in (["4"], ["0", "2"], ["all"]):
        rows = loss_gradients.sample_gradients(model, data, SAMPLES, TARGET, layers)
        chosen = loss_gradients.weights_of(model, layers)
        single = loss_gradients._one_by_one(model, data, SAMPLES, TARGET, chosen, {})
        assert torch.allclose(rows, single, atol=1e-5)
    assert loss_gradients.head(model, data) == "4"
    assert list(loss_gradients.weights_of(model, ["0", "all"])) == [
        name for name, _ in model.module.named_parameters()
    ]
    with pytest.raises(UserError, match="class 3 is beyond the 3 outputs"):
        loss_gradients.losses(torch.zeros(1, 3), torch.tensor([3]), model, data)
    loss_gradients.losses(torch.zeros(1, 3), torch.tensor([2]), model, data)


def test_mixtures_of_examples() -> None:
    points, targets = normal(6, 4, seed=3).double(), normal(3, 4, seed=4).double()
    weights, gaps = simplex.simplex_weights(points, targets)
    assert float(gaps.max()) < 1e-9 and torch.allclose(weights.sum(1), torch.ones(3).double())
    even, _ = simplex.simplex_weights(points, targets, 1.0)
    recorded("explainers/mixtures", [weights, even, gaps > -1e-12])
    with pytest.raises(UserError, match="duality gap"):
        ex.SimplEx(train(), tolerance=1e-300)(network(), SAMPLES, TARGET, 0)


def test_what_is_kept_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model, made = Examples(train()), network(), []

    def make(size: int) -> Tensor:
        made.append(size)
        return torch.zeros(size)

    monkeypatch.setattr(training_set, "KEPT_BYTES", 40)
    for key, size in (
        ("a", 4),
        ("b", 6),
        ("a", 4),
        ("c", 1),
        ("b", 6),
        ("a", 4),
        ("d", 11),
        ("d", 11),
    ):
        data.remember(model, key, lambda size=size: make(size))
    assert made == [
        4,
        6,
        1,
        6,
        4,
        11,
        11,
    ]  # the one used longest ago goes; what does not fit is never kept
    model.module[0].weight.data[0, 0] += 1
    data.remember(model, "a", lambda: make(3))
    data.remember(network(), "a", lambda: make(2))
    assert made[-2:] == [3, 2]
    assert training_set._bytes((torch.zeros(3), [torch.zeros(2).double()], "x")) == 28


def test_examples_of_a_pool() -> None:
    chosen = open_examples((normal(12, 3), torch.arange(12)), limit=5)
    recorded("explainers/chosen", [chosen.batch.ids, chosen.batch.label, len(chosen)])
    with pytest.raises(UserError, match="at least 1"):
        open_examples(normal(3, 3), limit=0)
    assert len(open_examples(normal(3, 3), limit=1)) == 1 and len(open_examples(normal(3, 3))) == 3
    labelled = Examples(train())
    assert labelled.labels("x").dtype == torch.int64 and str(labelled) == "train"
    with pytest.raises(UserError, match="1 of the 7"):
        Examples(replace(train(), label=torch.arange(7) - 1)).labels("x")
    padded = Examples(Batch(("a",), normal(1, 4, 3), {"mask": torch.ones(1, 4)}))
    padded.check_shape((5, 3))
    for shape in ((5, 4), (5,), (5, 3, 1)):
        with pytest.raises(UserError, match="prepare both"):
            padded.check_shape(shape)
    with pytest.raises(UserError, match="prepare both"):
        labelled.check_shape((4,))
    names = {
        "": train(),
        "label": replace(train(), label=torch.arange(7) % 2),
        "ids": replace(train(), ids=tuple("abcdefg")),
    }
    assert len({Examples(each).fingerprint for each in names.values()}) == 3
    assert Examples(train()) == Examples(train(), "other") and Examples(train()) != Examples(
        names["ids"]
    )


def concept_model() -> tuple[Model, Any]:
    x = normal(60, 3, seed=8)
    sides = {
        "large": {"positive": x[x.norm(dim=1) > 1.6], "negative": x[x.norm(dim=1) <= 1.6]},
        "right": {"positive": x[x[:, 0] > 0.1][:12], "negative": x[x[:, 0] < -0.1][:25]},
    }
    return network(), concepts(sides)


def test_values_of_concepts() -> None:
    model, given = concept_model()
    found: dict[str, Any] = {}
    for output in ("sensitivity", "decision", "presence"):
        found[f"cav {output}"] = ex.Cav(given, layer="1", output=output)(model, SAMPLES, TARGET, 0)
        found[f"car {output}"] = ex.Car(given, layer="1", output=output)(model, SAMPLES, TARGET, 0)
        linear = ex.Car(
            given,
            layer="0",
            output=output,
            kernel="linear",
            components=2,
            penalty=0.5,
            held_out=0.4,
        )
        found[f"linear {output}"] = linear(model, SAMPLES, TARGET, 0)
        found[f"narrow {output}"] = ex.Car(
            given, layer="1", output=output, gamma=0.3, components=None
        )(model, SAMPLES, TARGET, 0)
    found["tested"] = [
        list(each) for each in ex.Cav(given, layer="1", penalty=0.1).tested(model).values()
    ]
    found["accuracy"] = list(ex.Car(given, layer="1").accuracy(model).values())
    assert [ex.Car(given, layer="1", output=o).categorical for o in ("presence", "decision")] == [
        True,
        False,
    ]
    recorded("explainers/concepts", found)
    h, slope = layer_gradient(model, SAMPLES, TARGET, "1")
    recorded("explainers/layer_gradient", [h, slope])


def test_concepts_are_split_by_content() -> None:
    _, given = concept_model()
    large = next(iter(given))
    (fit, _), (test, other) = large.split(0.25)
    n = len(large.positive)
    assert (
        len(test) == round(0.25 * n)
        and len(fit) == n - len(test)
        and len(other) == round(0.25 * len(large.negative))
    )
    recorded("explainers/split", [fit.ids, test.ids])
    doubled = Concept("c", torch.cat([normal(10, 3)] * 2), normal(12, 3, seed=1))
    (fit, _), (test, _) = doubled.split(0.5)
    assert (len(fit), len(test)) == (5, 5)
    with pytest.raises(UserError, match="9 different positive"):
        Concept("c", torch.cat([normal(10, 3)[:9]] * 2), normal(12, 3, seed=1)).split(0.5)
    with pytest.raises(UserError, match="negative ones too"):
        Concept("c", normal(10, 3), normal(10, 3)).split(0.5)
    with pytest.raises(UserError, match="9 negative"):
        Concept("c", normal(10, 3), normal(9, 3))
    texts = [
        row_digests(Batch(("a",), normal(1, 3), aux))[0]
        for aux in ({}, {"m": torch.ones(1, 2)}, {"m": torch.zeros(1, 2)})
    ]
    assert len(set(texts)) == 3 and given.names == ("large", "right") and len(given) == 2


def test_classifiers_at_their_optimum() -> None:
    x = normal(14, 4, seed=5).double()
    x = x - x.mean(0)
    present = torch.arange(14) % 3 == 0
    found: dict[str, Any] = {}
    for penalty in (0.1, 1.0, 30.0):
        weight, bias = classifiers.logistic_regression(x, present, penalty)
        y = torch.where(present, 1.0, -1.0).double()
        slope = weight - penalty * (y * torch.sigmoid(-y * (x @ weight + bias))) @ x
        assert float(slope.abs().max()) < 1e-6
        share, offset = classifiers.support_vectors(x @ x.T, present, penalty)
        assert abs(float(share.sum())) < 1e-9 and float(share.abs().max()) <= penalty
        margin = y * (x @ (share @ x) + offset)
        free = (share.abs() > 1e-9) & (share.abs() < penalty - 1e-9)
        assert not free.any() or torch.allclose(
            margin[free], torch.ones(int(free.sum())).double(), atol=1e-4
        )
        found[str(penalty)] = [weight, bias, share, offset]
    recorded("explainers/classifiers", found, rtol=1e-3, atol=1e-5)
    coordinates, axes = classifiers.principal_axes(x, 2)
    assert coordinates.shape == (14, 2) and torch.allclose(
        axes.T @ axes, torch.eye(2).double(), atol=1e-9
    )
    assert classifiers.principal_axes(x[:, [0, 0]])[1].shape == (2, 1)


def test_grids_of_tokens() -> None:
    found = {}
    for tokens, shape, sizes, prefix in (
        (197, (3, 224, 224), (), None), (196, (3, 224, 224), (), None), (50, (3, 32, 64), (), None),
        (33, (3, 32, 64), (), None), (18, (3, 32, 32), ((4, 4), (8, 8)), None), (17, (3, 32, 32), (), 1),
        (17, (3, 32, 32), (), 0), (16, (3, 32, 32), (), 1), (2, (3, 8, 8), (), None), (1, (3, 8, 8), (), None),
        (34, (3, 33, 64), ((4, 8),), None), (33, (3, 32, 32), ((4, 4),), None),
        (25, (3, 32, 32), ((3, 3), (4, 4)), None), (20, (3, 224, 224), ((7, 7),), 4), (53, (3, 224, 224), ((7, 7),), 4),
    ):  # fmt: skip
        found[f"{tokens} {shape} {sizes} {prefix}"] = cam_layer.token_grid(
            tokens, shape, sizes, prefix
        )
    recorded("explainers/token_grids", found)
    found_misfits = [
        cam_layer._misfit(g, (3, 32, 48)) for g in ((4, 6), (4, 7), (4, 9), (1, 8), (0, 4))
    ]
    recorded("explainers/misfits", [*found_misfits, cam_layer._misfit((4, 5), (3, 32, 32))])


class Tuples(nn.Module):
    """Layers that give tuples, named tuples and channels last, and a block of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = (
            nn.Conv2d(3, 4, 2, stride=2),
            nn.LayerNorm(4),
            nn.Linear(4, 3),
        )
        self.pair = Pair()

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return self.head(self.pair(x=x).first.mean((1, 2)))


Both = namedtuple("Both", ("words", "first", "number"))


class Pair(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return Both("text", torch.tanh(x), torch.tensor([1]))


def test_layers_that_give_more_than_a_map() -> None:
    model = Model(Tuples())
    for i, weight in enumerate(model.module.parameters()):
        weight.data.copy_(normal(*weight.shape, seed=i))
    batch = Batch(("a",), normal(1, 3, 8, 6))
    found = {
        str(layer): cam_layer.find_layer(model, (3, 8, 6), layer)
        for layer in (None, "conv", "norm", "pair")
    }
    for layer in (None, "conv", "norm", "pair"):
        found[f"map {layer}"] = ex.GradCAM(layer, relu=False)(model, batch, TARGET[:1], 0)[
            0, 0, ::3
        ]
    recorded("explainers/sites", found)
    with pytest.raises(UserError, match="no feature map"):
        cam_layer.find_layer(model, (3, 8, 6), "head")


def test_attention_taken_apart() -> None:
    q, k, v = (normal(2, 4, 5, 3, seed=i) for i in range(3))
    product, softmax, scaled = torch.matmul, lambda s: s.softmax(-1), torch.mul
    mask = torch.zeros(5, 5).masked_fill(
        torch.ones(5, 5).triu(2).bool(), -torch.inf
    ) + 0.3 * torch.eye(5)
    for options in (
        {},
        {"is_causal": True},
        {"attn_mask": mask},
        {"attn_mask": mask > -1},
        {"scale": 0.2},
    ):
        wanted = nn.functional.scaled_dot_product_attention(q, k, v, **options)
        assert torch.allclose(
            attention_parts.attend(product, softmax, scaled, q, k, v, **options), wanted, atol=1e-5
        )
    few = attention_parts.attend(product, softmax, scaled, q, k[:, :2], v[:, :2], enable_gqa=True)
    repeated = (t[:, :2].repeat_interleave(2, 1) for t in (k, v))
    assert torch.allclose(few, nn.functional.scaled_dot_product_attention(q, *repeated), atol=1e-5)
    layer = nn.MultiheadAttention(6, 2)
    for i, weight in enumerate(layer.parameters()):
        weight.data.copy_(normal(*weight.shape, seed=i))
    x = normal(4, 3, 6)
    padded = torch.tensor([[0, 0, 0, 1], [0] * 4, [0, 1, 0, 1]]).bool()
    whole = functools.partial(attention_parts.attend, product, softmax, scaled)
    heads = functools.partial(attention_parts.attend_heads, nn.functional.linear, whole, "no")
    given: tuple[Any, ...] = (
        6,
        2,
        layer.in_proj_weight,
        layer.in_proj_bias,
        None,
        None,
        False,
        0.0,
    )
    given += (layer.out_proj.weight, layer.out_proj.bias)
    each, reference = normal(6, 4, 4, seed=9), nn.functional.multi_head_attention_forward
    hidden = torch.zeros(3, 4).masked_fill(padded, -torch.inf)
    for mask, gone in (
        (None, None),
        (None, hidden),
        (each, None),
        (each, hidden),
        (each[0], hidden),
    ):
        options = {"attn_mask": mask, "key_padding_mask": gone}
        wanted = reference(x, x, x, *given, training=False, need_weights=False, **options)[0]
        assert torch.allclose(heads(x, x, x, *given, **options)[0], wanted, atol=1e-5)
        if gone is not None:
            options["key_padding_mask"] = padded
            assert torch.allclose(heads(x, x, x, *given, **options)[0], wanted, atol=1e-5)
    for wrong in ({"use_separate_proj_weight": True}, {"bias_k": x}, {"add_zero_attn": True}):
        positional = [
            *given[:4],
            wrong.get("bias_k"),
            None,
            wrong.get("add_zero_attn", False),
            *given[7:],
        ]
        rest = {key: value for key, value in wrong.items() if key == "use_separate_proj_weight"}
        with pytest.raises(UserError, match="no"):
            heads(x, x, x, *positional, **rest)


def test_maps_of_another_library() -> None:
    model, batch = network(), replace(SAMPLES, ids=("x", "y"))
    found: dict[str, Any] = {}
    for name, given in (
        ("Saliency", {}),
        ("IntegratedGradients", {"n_steps": 7}),
        ("InputXGradient", {}),
    ):
        explainer = named.by_library("captum", {name: given})
        found[name] = [
            explainer(model, batch, TARGET, 0),
            explainer.stochastic,
            explainer.arguments,
        ]
    pool = Captum("GradientShap", {"n_samples": 3}, baseline=normal(4, 3))
    assert pool.stochastic and torch.equal(
        pool(model, batch, TARGET, 1), pool(model, batch, TARGET, 1)
    )
    with pytest.raises(UserError, match="prepare both"):
        Captum("DeepLiftShap", baseline=normal(4, 2))(model, batch, TARGET, 0)
    with pytest.raises(UserError, match="numbers or samples"):
        Captum("Saliency", baseline="references").check(model, (3,))
    recorded("explainers/captum", found)
    drawing = (
        Captum("Lime"),
        Captum("Saliency", draws=True),
        Captum(len),
        PytorchGradCam("RandomCAM"),
        Quantus(len),
    )
    drawing += (Zennit("epsilon_plus", "smoothgrad"), Zennit("epsilon_plus", draws=True))
    fixed = (
        Captum("Saliency"),
        PytorchGradCam("GradCAM"),
        Zennit("epsilon_plus"),
        Quantus(len, draws=False),
    )
    assert all(each.stochastic for each in drawing) and not any(each.stochastic for each in fixed)


def test_parameters_of_named_methods() -> None:
    def made(kind: Any) -> str:
        return str(kind(**({"layer": "x"} if "layer" in kind.__dataclass_fields__ else {})))

    found = {
        of: {name: made(kind) for name, kind in kinds.items()}
        for of, kinds in named.LIBRARIES.items()
    }
    recorded("explainers/named", found)
    for wrong in (5, Captum("Saliency"), {"Saliency": {"abs": True}, "LRP": {}}):
        with pytest.raises(UserError):
            named.by_library("captum", wrong)


def test_maps_in_any_shape() -> None:
    inputs = torch.zeros(2, 3, 4, 4)
    found: dict[str, Any] = {}
    for shape in (
        (2, 3, 4, 4),
        (2, 4, 4),
        (2, 1, 4, 4),
        (2, 5, 4, 4),
        (2, 3, 2, 2),
        (2, 1, 2, 2),
        (2, 2, 2),
    ):
        made = isolation.as_maps([normal(*shape)], inputs, "x")
        assert made.shape == inputs.shape
        found[str(shape)] = made[1, [0, 2], 1]
    found["series"] = isolation.as_maps(normal(2, 4, 3).numpy(), torch.zeros(2, 2, 6), "x")[0, 0]
    recorded("explainers/as_maps", found)
    for wrong in (normal(3, 4, 4), normal(2, 3), [normal(2, 3, 4, 4), 1], normal(2, 3, 4, 4, 1)):
        with pytest.raises(UserError):
            isolation.as_maps(wrong, inputs, "x")
    assert (
        isolation.library_seed(3, "cat")
        == isolation.library_seed(3, "cat")
        != isolation.library_seed(3, "dog")
    )
    recorded(
        "explainers/seeds", [isolation.library_seed(seed, name) for seed in (0, 1) for name in "ab"]
    )


def test_whoever_draws_is_noticed_and_put_back() -> None:
    for draw in (random.random, np.random.random, lambda: torch.rand(1)):
        before = (
            random.getstate(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            torch.get_rng_state().tolist(),
        )
        with isolation.seeded(5, torch.device("cpu")) as drew:
            assert not drew()
            first = float(draw())
            assert drew()
        with isolation.seeded(5, torch.device("cpu")):
            assert float(draw()) == first
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        assert before == after


def test_objects_are_known_by_their_content(tmp_path: Path) -> None:
    def maker(steps: int, scale: float = 1.0) -> Any:
        return lambda x: x * steps * scale

    def things(n: int) -> list[Any]:
        held = {"a": [1, (n,)], "b": {3}}
        kinds = [
            maker(n),
            held,
            normal(3, seed=n),
            Path(f"x{n}"),
            functools.partial(maker, n),
            (print, len)[n - 2],
        ]
        return [*kinds, {1, n}, np.arange(n), str, [None, n], n * 1.5]

    prints, again, other = ([foreign.fingerprint(each) for each in things(n)] for n in (2, 2, 3))
    assert prints == again and len(set(prints)) == len(prints)
    assert set(prints) & set(other) == {foreign.fingerprint(str)}
    assert (
        foreign.fingerprint(nn.Linear(2, 2))
        == foreign.fingerprint(nn.Linear(3, 3))
        != foreign.fingerprint(nn.ReLU())
    )
    ring: list[Any] = [1]
    ring.append(ring)
    assert foreign.fingerprint(ring) != foreign.fingerprint([1, [1]])
    assert [foreign.short_name(each) for each in (functools.partial(len), "x", 3.0)] == [
        "len",
        "x",
        "float",
    ]
    assert foreign.call_arguments(None) is None and foreign.unwrapped(None) == {}
    one, two = maps.MapSource({"a": [1.0]}), maps.MapSource({"a": [1.0], "b": [2.0]})
    assert (
        (str(one), str(two)) == ("1 map", "2 maps")
        and one != two
        and one == maps.MapSource({"a": [1.0]})
    )
    np.savez(
        tmp_path / "m.npz",
        ids=np.array(["a", "b"]),
        maps=np.ones((2, 1, 2, 2)),
        targets=np.array([0, 1]),
    )
    found = ex.Precomputed(tmp_path / "m.npz")
    found.check(network(), (3, 2, 2))
    found.check_ids(["a"], "data")
    with pytest.raises(UserError, match="for 1 samples"):
        found.check_ids(["a", "c"], "data")
    for shape in ((3,), (3, 2, 3)):
        with pytest.raises(UserError, match="has shape"):
            found.check(network(), shape)


def test_shap_without_its_library() -> None:
    score = shapley.ClassScore(nn.Linear(3, 4), 2)
    assert torch.equal(score(SAMPLES.x), score.network(SAMPLES.x)[:, 2:3])
    explainer = shapley.Shap("gradient", background=normal(5, 3))
    assert torch.equal(explainer._samples((3,)), normal(5, 3)) and explainer.stochastic
    assert shapley.Shap("deep", background=0.5)._samples((2, 2)).tolist() == [[[0.5, 0.5]] * 2]
    assert [
        shapley.Shap(name).stochastic for name in ("gradient", "deep", "partition", "tree")
    ] == [
        True,
        False,
        True,
        False,
    ]
    assert shapley.Shap("partition", background="blur(4,4)").background == "blur(4,4)"
    assert shapley._number_text_or_samples(3) == 3 and isinstance(
        shapley._number_text_or_samples([1]), foreign.Foreign
    )
    for wrong in (normal(5, 4), normal(0, 3), [object()]):
        with pytest.raises(UserError, match="background"):
            shapley.Shap("gradient", background=wrong)._samples((3,))


def test_what_shap_is_asked_for() -> None:
    """A stand-in where SHAP is not installed: values of single positions, by taking each of them away."""

    def occluded(predict: Any, masker: Any) -> Any:
        def explain(rows: Any, **options: Any) -> Any:
            values = np.zeros((*rows.shape, 1))
            for place in np.ndindex(*rows.shape[1:]):
                without = rows.copy()
                without[(0, *place)] = (
                    masker[place] if masker.ndim == rows.ndim - 1 else masker[(0, *place)]
                )
                values[(0, *place)] = predict(rows) - predict(without)
            return SimpleNamespace(values=values)

        return explain

    maskers = SimpleNamespace(Image=np.broadcast_to, Partition=lambda rows: rows)
    trees = SimpleNamespace(shap_values=lambda rows: normal(1, 3, 2).numpy())
    shap = SimpleNamespace(
        PartitionExplainer=occluded, maskers=maskers, TreeExplainer=lambda estimator: trees
    )
    picture, weights = normal(1, 2, 3, 4), normal(2, 3, 4, seed=1)
    background = normal(2, 2, 3, 4, seed=2)

    def score(x: Tensor) -> Tensor:
        return (x * weights).flatten(1).sum(1, keepdim=True)

    found = shapley._partition(shap, score, background, picture, {})
    assert np.allclose(found, (picture - background[:1]) * weights, atol=1e-5)
    rows = shapley._partition(
        shap, lambda x: x @ weights[0, 0][:, None], background[:, 0, 0], picture[:, 0, 0], {}
    )
    assert np.allclose(rows, (picture[:, 0, 0] - background[:1, 0, 0]) * weights[0, 0], atol=1e-5)
    estimator = SimpleNamespace(classes_=[0, 1])
    assert np.array_equal(
        shapley._tree(shap, SimpleNamespace(estimator=estimator), SAMPLES.x[:1], 1),
        normal(1, 3, 2)[..., 1],
    )
    trees.shap_values = lambda rows: normal(1, 3).numpy()
    for target, classes, sign in ((0, [0, 1], -1), (1, [0, 1], 1), (0, [], 1), (0, [0, 1, 2], 1)):
        estimator.classes_ = classes
        values = shapley._tree(shap, SimpleNamespace(estimator=estimator), SAMPLES.x[:1], target)
        assert np.array_equal(values, sign * normal(1, 3).numpy())


def test_numbers_that_a_metric_gives() -> None:
    assert _flat({"a": [1, (2.5, np.array([[3]]))], "b": 4}) == [1.0, 2.5, 3.0, 4.0]
    metric = QuantusMetric(len, reduce="mean")
    assert (
        metric._number([1.0, 4.0], "x") == 2.5
        and np.isnan(metric._number([], "x"))
        and metric.reexplains
    )
    with pytest.raises(UserError, match="gave 2 numbers"):
        QuantusMetric(len)._number([1.0, 4.0], "x")
    model = Model(nn.Flatten(), mean=(0.5, 0.2), std=(0.25, 0.5))
    batch = Batch(("a",), normal(1, 2, 3, 3))
    assert torch.allclose(unnormalised(model, model.inputs(batch)), batch.x, atol=1e-6)
    assert torch.equal(unnormalised(network(), SAMPLES.x), SAMPLES.x)
