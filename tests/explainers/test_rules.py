"""DeepLIFT, guided backpropagation and LRP through every function that they know, and what explainers refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import Batch, Model
from heatproof import explainers as ex
from heatproof.errors import UserError
from heatproof.explainers import cam_layer, gradient
from heatproof.features import Patches
from heatproof.models.smoothed import Smoothed
from support.fixed import normal


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
    "difference": lambda x: x.relu() - 2 * x,
    "one minus": lambda x: 1 - x.tanh(),
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
}  # fmt: skip  # fmt: skip

BATCH, TARGET = Batch(("a", "b"), normal(2, 2, 6, seed=9)), torch.tensor([2, 0])

# DeepLIFT's rescale rule has no way to share out a product of two activations.
PRODUCTS = {"times itself", "gate", "bmm", "einsum two", "attention"}
NO_DEEP_LIFT = {"clamp by tensor", "layer norm", "group norm"}
# A constant that is added takes a share of the relevance, and the rule of AttnLRP for a softmax loses some.
NOT_CONSERVED = {"softmax", "plus", "minus", "one minus", "addmm", "attention", "transposed"}
NOT_CONSERVED |= {"batch norm", "batch norm plain", "batch norm at once"}
NO_LRP = {"log softmax"}
# Where the function is a ReLU, a maximum or linear, relevance without ε is input × gradient.
LIKE_GRADIENT = {
    "relu",
    "relu in place",
    "relu_",
    "relu by name",
    "clamp",
    "clamp below",
    "threshold",
    "leaky",
}
LIKE_GRADIENT |= {
    "prelu",
    "max pool",
    "max pool overlapping",
    "adaptive max pool",
    "average pool",
    "mean",
    "sum",
}
LIKE_GRADIENT |= {
    "half",
    "times a number",
    "matmul",
    "matmul left",
    "einsum",
    "convolution",
    "moved about",
    "addmm",
}
LIKE_GRADIENT |= {"batch norm", "batch norm at once", "transposed", "softmax", "difference"}


def model_of(name: str, bias: bool = True) -> Model:
    function = FUNCTIONS[name]
    net = Around(function, function(torch.zeros(1, 4, 6)).numel())
    if not bias:
        net.first.bias.data.zero_()
        net.last.bias.data.zero_()
    return Model(net)


def target_scores(model: Model, x: Tensor) -> Tensor:
    return model.logits(x).gather(1, TARGET[:, None])[:, 0]


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - PRODUCTS - NO_DEEP_LIFT))
def test_deep_lift_sums_to_the_difference_of_the_scores(name: str) -> None:
    model = model_of(name)
    maps = ex.DeepLift(baseline=0.3)(model, BATCH, TARGET, 0)
    difference = target_scores(model, BATCH.x) - target_scores(model, torch.full_like(BATCH.x, 0.3))
    torch.testing.assert_close(maps.sum((1, 2)), difference, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - NOT_CONSERVED - NO_LRP))
def test_lrp_conserves_the_score_of_a_network_without_biases(name: str) -> None:
    model = model_of(name, bias=False)
    maps = ex.Lrp("epsilon", epsilon=1e-7)(model, BATCH, TARGET, 0)
    torch.testing.assert_close(
        maps.sum((1, 2)), target_scores(model, BATCH.x), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("name", sorted(LIKE_GRADIENT))
def test_lrp_without_epsilon_is_input_times_gradient(name: str) -> None:
    model = model_of(name, bias=False)
    maps = ex.Lrp("epsilon", epsilon=1e-7)(model, BATCH, TARGET, 0)
    wanted = ex.InputXGradient()(model, BATCH, TARGET, 0)
    assert float((maps - wanted).abs().max()) < 1e-3 * float(wanted.abs().max())


@pytest.mark.parametrize("name", sorted(NO_DEEP_LIFT))
def test_deep_lift_refuses_what_it_cannot_follow(name: str) -> None:
    with pytest.raises(UserError, match="Around"):
        ex.DeepLift()(model_of(name), BATCH, TARGET, 0)


def test_lrp_of_a_difference_by_hand() -> None:
    """f = 3·x₀ − 2·x₁ as a difference of two layers: each part has its own summand as relevance."""

    class Difference(nn.Module):
        def __init__(self, subtract: Callable[[Tensor, Tensor], Tensor]) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.one.weight.data = torch.tensor([[3.0, 0.0], [0.0, 0.0]])
            self.two.weight.data = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
            self.subtract = subtract

        def forward(self, x: Tensor) -> Tensor:
            return self.subtract(self.one(x), self.two(x))

    ways: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda a, b: a - b,
        lambda a, b: a.sub(b),
        lambda a, b: torch.rsub(b, a),
        lambda a, b: torch.sub(a, b / 4, alpha=4),
        lambda a, b: torch.add(a, b / 4, alpha=-4),
    ]
    batch = Batch(("a",), torch.tensor([[5.0, 4.0]]))
    for subtract in ways:
        maps = ex.Lrp("epsilon", epsilon=1e-9)(Model(Difference(subtract)), batch, TARGET[1:], 0)
        torch.testing.assert_close(maps, torch.tensor([[15.0, -8.0]]))


@pytest.mark.parametrize("composite", ["epsilon_plus", "gamma", "epsilon"])
def test_lrp_conserves_the_score_in_three_dimensions(composite: Any) -> None:
    layers = [nn.Conv3d(1, 2, 2, bias=False), nn.ReLU(), nn.ConvTranspose3d(2, 2, 1, bias=False)]
    net = nn.Sequential(*layers, nn.AvgPool3d((1, 2, 2)), nn.Flatten())
    for i, weight in enumerate(net.parameters()):
        # Positive weights, so that the rule of positive shares finds a share in every unit.
        weight.data.copy_(normal(*weight.shape, seed=i).abs())
    batch = Batch(("a", "b"), normal(2, 1, 2, 3, 3).sigmoid())
    model, target = Model(net), torch.tensor([0, 1])
    maps = ex.Lrp(composite, epsilon=1e-7)(model, batch, target, 0)
    score = model.logits(batch.x).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(maps.flatten(1).sum(1), score, rtol=1e-3, atol=1e-5)


def test_functions_without_a_rule_are_named() -> None:
    def fails(function: Callable[[Tensor], Tensor], explainer: Any, words: str) -> None:
        with pytest.raises(UserError, match=words):
            explainer(Model(Around(function, 24)), BATCH, TARGET, 0)

    fails(torch.sin, ex.Lrp(), r"torch\.sin")
    fails(torch.sin, ex.GuidedBackprop(), "ReLU")
    fails(torch.sin, ex.DeepLift(), "no non-linear")
    calls = itertools.count()
    fails(
        lambda x: x.relu() if next(calls) % 2 else x.tanh(),
        ex.DeepLift(),
        "baseline",
    )
    assert (
        ex.DeepLift()(Model(Around(lambda x: 2 * x, 24)), BATCH, TARGET, 0).isfinite().all()
    )  # linear as a whole

    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1).relu()

    with pytest.raises(UserError, match="linear layer"):
        ex.Lrp()(Model(Nothing()), BATCH, TARGET, 0)


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
        with pytest.raises(UserError, match="passes"):
            explainer.check(averaged, shape)
    for wrong in (True, 0, 1, 1.0, -0.1, "a"):
        with pytest.raises(ValueError, match="0 and 1"):
            ex.GradientShap(error=wrong)
    assert ex.GradientShap(error=0.5).error == 0.5
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
    with pytest.raises(UserError, match="sizes"):
        ex.IntegratedGradients(baseline=normal(2, 4, 3))(Model(net), masked, TARGET[:1], 0)


@pytest.mark.parametrize("softmax", [nn.Softmax(1), nn.LogSoftmax(1)], ids=["softmax", "log"])
def test_deep_lift_through_a_softmax_hardly_sees_a_part_that_all_logits_share(
    softmax: nn.Module,
) -> None:
    """A softmax does not see what all logits share, so the multipliers sum to 0, up to one rounding of each."""
    model = Model(softmax, task={"classification": {"outputs": "logits"}})
    generator = torch.Generator().manual_seed(0)
    shared = 2.0**17
    # Multiples of 2⁻⁵, so that the sum with the shared part is exact.
    baselines = torch.randint(-64, 64, (40, 5), generator=generator) / 32
    target = torch.arange(40) % 5
    for row, baseline in enumerate(baselines):
        batch = Batch(("a",), baseline[None] + shared)
        maps = ex.DeepLift(baseline=baseline[None])(model, batch, target[row : row + 1], 0)
        multipliers = (maps / shared).double()  # a power of two, so this is exact
        rounding = np.spacing(multipliers.abs().numpy().astype(np.float32)) / 2
        assert abs(float(multipliers.sum())) <= float(rounding.sum()) * (1 + 1e-6)
