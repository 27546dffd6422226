"""DeepLIFT, guided backpropagation and LRP through every function that they know, and what explainers refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import Batch, Model
from heatproof import explainers as ex
from heatproof.errors import UserError
from heatproof.explainers import cam_layer, gradient, precision, rules
from heatproof.explainers.concepts.concepts import Concept, Concepts, concepts
from heatproof.explainers.examples import influence
from heatproof.explainers.examples.training_set import Examples
from heatproof.features import Patches, Pixels
from heatproof.models.smoothed import Smoothed
from support.fixed import normal
from support.recorded import recorded


class Around(nn.Module):
    """A function between two linear layers, on (B, 2, 6) as a convolution leaves it."""

    def __init__(self, function: Callable[[Tensor], Tensor], out: int) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Conv1d(2, 4, 1), nn.Linear(out, 3), function
        for i, weight in enumerate(self.parameters()):
            weight.data.copy_(normal(*weight.shape, seed=i) * (2 if weight.ndim > 1 else 0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)).flatten(1))


PRELU, NORM, GROUPS = normal(1) * 0.1, normal(6, seed=5), normal(4, seed=6)
MATRIX, OTHER = normal(6, 6, seed=7), normal(4, 6, seed=8)
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x, inplace=True),
    "relu_": lambda x: x.clone().relu_(),
    "relu by name": lambda x: F.relu(input=x),
    "relu6": lambda x: F.relu6(3 * x),
    "hardtanh": lambda x: F.hardtanh(x, 0.0, 2.0),
    "hardtanh named": lambda x: F.hardtanh(x, min_val=0.0, max_val=1.5),
    "hardtanh signed": F.hardtanh,
    "clamp": lambda x: torch.clamp(x, min=0),
    "clamp both": lambda x: x.clamp(0, 1.2),
    "clamp below": lambda x: x.clamp_min(0.0),
    "clamp above": lambda x: x.clamp_max(0.5),
    "clip": lambda x: torch.clip(x, -0.5, 0.5),
    "clamp by tensor": lambda x: torch.clamp(x, min=torch.zeros(())),
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "threshold named": lambda x: F.threshold(x, threshold=0, value=0),
    "threshold other": lambda x: F.threshold(x, 0.3, -0.2),
    "leaky": lambda x: F.leaky_relu(x, 0.3),
    "prelu": lambda x: F.prelu(x, PRELU),
    "elu": F.elu,
    "selu": F.selu,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "expit": torch.special.expit,
    "tanh": lambda x: x.tanh(),
    "softmax": lambda x: x.softmax(1),
    "log softmax": lambda x: F.log_softmax(x, -1),
    "max pool": lambda x: F.max_pool1d(x, 2),
    "max pool overlapping": lambda x: F.max_pool1d(x, 3, stride=1, padding=1),
    "max pool plane": lambda x: F.max_pool2d(x[:, :, None].expand(-1, -1, 2, -1), (1, 2)),
    "adaptive max pool": lambda x: F.adaptive_max_pool1d(x, 3),
    "average pool": lambda x: F.avg_pool1d(x, 2),
    "adaptive average pool": lambda x: F.adaptive_avg_pool1d(x, 3),
    "mean": lambda x: x.mean(1),
    "sum": lambda x: x.sum(2),
    "layer norm": lambda x: F.layer_norm(x, (6,), NORM, NORM),
    "group norm": lambda x: F.group_norm(x, 2, GROUPS),
    "half": lambda x: x / 2,
    "plus": lambda x: x + 0.5 * x.tanh() + 1,
    "alpha": lambda x: torch.add(x.tanh(), x.relu(), alpha=0.5),
    "minus": lambda x: x.relu() - x.tanh() - 0.2,
    "times itself": lambda x: x * x.sigmoid(),
    "gate": lambda x: x * x.mean(2, keepdim=True).sigmoid(),
    "times a number": lambda x: 0.5 * x * OTHER,
    "matmul": lambda x: x @ MATRIX,
    "matmul left": lambda x: OTHER @ x.transpose(1, 2),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2).tanh()),
    "einsum": lambda x: torch.einsum("bct,ts->bcs", x, MATRIX),
    "einsum two": lambda x: torch.einsum("bct,bdt->bcd", x, x.tanh()),
    "addmm": lambda x: torch.addmm(NORM, x.flatten(1)[:, :6], MATRIX),
    "batch norm": lambda x: F.batch_norm(x.relu(), GROUPS, GROUPS.abs() + 0.5, GROUPS + 1, GROUPS),
    "batch norm plain": lambda x: F.batch_norm(x.relu(), GROUPS, GROUPS.abs() + 0.5),
    "batch norm at once": lambda x: F.batch_norm(x, GROUPS, GROUPS.abs() + 0.5, eps=0.1),
    "convolution": lambda x: F.conv1d(x.relu(), OTHER[:, :4, None].expand(4, 4, 2), padding=1),
    "transposed": lambda x: F.batch_norm(F.conv_transpose1d(x.relu(), OTHER[:, :3, None]), NORM[:3], NORM[3:].abs()),
    "attention": lambda x: F.scaled_dot_product_attention(x, x.tanh(), x.relu()),
    "moved about": lambda x: torch.cat([x.transpose(1, 2)[:, :3], x.flip(2).transpose(1, 2)[:, 3:]], 1).relu(),
}  # fmt: skip
KINDS = {
    "deep lift": ex.DeepLift(),
    "guided": ex.GuidedBackprop(),
    "lrp": ex.Lrp("epsilon", epsilon=0.1),
}
BATCH, TARGET = Batch(("a", "b"), normal(2, 2, 6, seed=9)), torch.tensor([2, 0])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rules_of_every_function(name: str) -> None:
    function = FUNCTIONS[name]
    model = Model(Around(function, function(torch.zeros(1, 4, 6)).numel()))
    found: dict[str, Any] = {}
    for kind, explainer in KINDS.items():
        try:
            found[kind] = explainer(model, BATCH, TARGET, 0)
        except UserError:
            found[kind] = "refused"
    recorded(f"explainers/rules/{name.replace(' ', '_')}", found, atol=1e-5)


@pytest.mark.parametrize(
    "composite", ["epsilon_plus", "gamma", "epsilon_alpha2_beta1", "epsilon_gamma_box"]
)
def test_lrp_in_three_dimensions(composite: Any) -> None:
    net = nn.Sequential(
        nn.Conv3d(1, 2, 2),
        nn.ReLU(),
        nn.ConvTranspose3d(2, 2, 1),
        nn.AvgPool3d((1, 2, 2)),
        nn.Flatten(),
    )
    for i, weight in enumerate(net.parameters()):
        weight.data.copy_(normal(*weight.shape, seed=i))
    batch = Batch(("a", "b"), normal(2, 1, 2, 3, 3).sigmoid())
    recorded(
        f"explainers/lrp_{composite}",
        ex.Lrp(composite)(Model(net, mean=0.2, std=0.5), batch, torch.tensor([0, 1]), 0),
    )


def test_functions_without_a_rule_are_named() -> None:
    def fails(function: Callable[[Tensor], Tensor], explainer: Any, words: str) -> None:
        with pytest.raises(UserError, match=words):
            explainer(Model(Around(function, 24)), BATCH, TARGET, 0)

    fails(torch.sin, ex.Lrp(), "no rule for torch.sin")
    fails(torch.sin, ex.GuidedBackprop(), "ReLUs only")
    fails(torch.sin, ex.DeepLift(), "met no non-linear function")
    calls = itertools.count()
    fails(
        lambda x: x.relu() if next(calls) % 2 else x.tanh(),
        ex.DeepLift(),
        "other functions for the baseline",
    )
    assert (
        ex.DeepLift()(Model(Around(lambda x: 2 * x, 24)), BATCH, TARGET, 0).isfinite().all()
    )  # linear as a whole

    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1).relu()

    with pytest.raises(UserError, match="met no linear layer"):
        ex.Lrp()(Model(Nothing()), BATCH, TARGET, 0)
    assert len(rules.ELEMENTWISE) == 23


def test_deep_lift_sums_to_the_difference_at_tiny_and_large_steps() -> None:
    for name, scale in itertools.product(
        ("gelu", "sigmoid", "relu", "elu", "max pool"), (1e-6, 1e-2, 1.0)
    ):
        function = FUNCTIONS[name]
        model = Model(Around(function, function(torch.zeros(1, 4, 6)).numel()).double())
        x = 0.3 + scale * BATCH.x.double()
        maps = ex.DeepLift(baseline=0.3)(model, replace(BATCH, x=x), TARGET, 0)
        ends = [
            model.logits(each).gather(1, TARGET[:, None])[:, 0]
            for each in (x, torch.full_like(x, 0.3))
        ]
        assert torch.allclose(maps.sum((1, 2)), ends[0] - ends[1], rtol=1e-2, atol=1e-12), (
            name,
            scale,
        )


def test_edges_of_what_explainers_accept() -> None:
    model = Model(nn.Sequential(nn.Conv2d(2, 2, 1), nn.Flatten(), nn.Linear(60, 3)))
    shape = (2, 5, 6)
    fits = (
        ex.Occlusion(5, 5),
        ex.Rise(grid=6),
        ex.Lime(features=Patches(5)),
        ex.SobelEdges(),
        ex.GradCAM("0"),
        ex.Lrp(),
    )
    for explainer in fits:
        explainer.check(model, shape)
    flat: tuple[int, ...] = (5,)
    for explainer, given in (
        (ex.Occlusion(6, 1), shape), (ex.Occlusion(2, 3), shape), (ex.Rise(grid=7), shape), (ex.Rise(grid=2), flat),
        (ex.Rise(grid=2), (1, 2, 3, 4, 5)), (ex.Lime(features=Patches(6)), shape), (ex.SobelEdges(), flat),
        (ex.GradCAM(), flat), (ex.GradCAM("nope"), shape), (ex.GradCAM(), (2, 9)), (ex.Chefer(), flat),
        (ex.FeatureAblation(features=Patches(6)), shape), (ex.FeaturePermutation(pool=normal(3, 4)), flat),
        (ex.SmoothGrad(of=ex.Occlusion(6, 1)), shape),
    ):  # fmt: skip
        with pytest.raises(UserError):
            explainer.check(model, given)
    averaged, held = Smoothed(model, 0.5, features=Patches(3)), Batch(("a",), normal(1, *shape))
    for explainer in (
        ex.Lrp(),
        ex.GradCAM(),
        ex.Chefer(),
        ex.AttentionRollout(),
        ex.Influence(held),
        ex.SimplEx(held),
    ):
        with pytest.raises(UserError, match="averages many passes"):
            explainer.check(averaged, shape)
    for wrong in (True, 0, 1, 1.0, -0.1, "a"):
        with pytest.raises(ValueError, match="between 0 and 1"):
            ex.GradientShap(error=wrong)
    assert (
        ex.GradientShap(error=precision.Agreed(0.1)).error.asked == 0.1
        and ex.GradientShap(error=0.5).error == 0.5
    )
    for build in (
        lambda: ex.FeatureAblation(fill="mean"), lambda: ex.IntegratedGradients(baseline="random", error=0.1),
        lambda: ex.SmoothGrad(of=ex.Saliency), lambda: ex.SmoothGrad(of=3),
        lambda: ex.SmoothGrad(of=ex.TracIn(normal(2, 3))),
        lambda: gradient.quadrature("riemann_left", 1),
    ):  # fmt: skip
        with pytest.raises((UserError, ValueError)):
            build()
    assert gradient.quadrature("riemann_left", 2)[0].tolist() == [0.0, 0.5]
    with pytest.raises(UserError, match="nope"):
        cam_layer.find_layer(model, shape, "nope")
    with pytest.raises(UserError, match="floating-point"):
        gradient.normalised(Model(nn.Embedding(5, 3)), Batch(("a",), torch.tensor([[1, 2]])))
    masked, net = (
        Batch(("a",), normal(1, 4, 3), {"mask": torch.ones(1, 4)}),
        nn.Sequential(nn.Flatten(), nn.Linear(12, 3)),
    )
    with pytest.raises(UserError, match="different sizes"):
        ex.IntegratedGradients(baseline=normal(2, 4, 3))(Model(net), masked, TARGET[:1], 0)


def test_edges_of_examples_and_concepts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), classes=("x", "y"))
    data = Batch(("a", "b"), normal(2, 3), label=torch.tensor([0, 1]))
    for explainer in (
        ex.Influence(data),
        ex.TracIn(data),
        ex.SimplEx(data),
        ex.RepresentationSimilarity(data, "1"),
    ):
        explainer.check(model, (3,))
        with pytest.raises(UserError, match="prepare both"):
            explainer.check(model, (4,))
    beyond = replace(data, label=torch.tensor([0, 2]))
    state = model.module.state_dict()
    for explainer in (
        ex.Influence(beyond), ex.Influence(data, layers="1"), ex.Influence(data, layers="nope"),
        ex.SimplEx(data, "nope"),
        ex.Influence(data, layers=("0", "2"), solver="closed"), ex.Influence(data, layers="all", solver="closed"),
        ex.Influence(replace(data, label=None)), ex.TracIn(data, checkpoints=({"0.weight": normal(9)},)),
    ):  # fmt: skip
        with pytest.raises(UserError):
            explainer.check(model, (3,))
    for rates in ((), 0.5, (0.1, 0.2)):
        ex.TracIn(data, checkpoints=(state, state), learning_rates=rates).check(model, (3,))
    with pytest.raises(ValueError, match="3 values for 2 checkpoints"):
        ex.TracIn(data, checkpoints=(state, state), learning_rates=(0.1, 0.2, 0.3))
    for kept, remembered in ((2 * 10 * 4, True), (2 * 10 * 4 - 1, False)):
        monkeypatch.setattr(influence, "KEPT_BYTES", kept)
        held = Examples(data)
        ex.TracIn(held)(model, data, data.label, 0)
        assert any(key[0][0] == "gradients" for key in held._kept) == remembered
    shaped = [
        Examples(Batch(("a",), x)).fingerprint
        for x in (normal(1, 6), normal(1, 3, 2), normal(1, 6).view(torch.int32))
    ]
    assert len(set(shaped)) == 3
    one = Concept("c", normal(10, 3), normal(10, 3, seed=1))
    assert (
        concepts(one)
        == concepts([one])
        == concepts((one,))
        == Concepts(one)
        != Concepts(one, Concept("d", *_sides()))
    )
    for wrong in ([], [one, 3], 5, {"c": {"positive": normal(10, 3)}}, {"c": 3}, [one, one]):
        with pytest.raises(UserError):
            concepts(wrong)
    cav = ex.Cav(one, layer="1")
    cav.check(model, (3,))
    for layer, shape in (("nope", (3,)), ("1", (3, 1)), ("1", (3, 4, 4))):
        with pytest.raises(UserError):
            replace(cav, layer=layer).check(model, shape)
    lime = ex.Lime(features=Pixels(), samples=5)
    assert lime(model, data, torch.tensor([0, 1]), 0).shape == (2, 3)


def _sides() -> tuple[Tensor, Tensor]:
    return normal(10, 3), normal(10, 3, seed=1)
