"""Relevance propagation: conservation, its limit in the gradient, zennit's composites, and shapes of real networks."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.explainers import InputXGradient, Lrp, lrp_rules
from heatproof.explainers.lrp import Composite
from heatproof.models import Model
from heatproof.types import Batch
from support.vit_shapes import TimmViT, TorchvisionViT, TransformersViT

COMPOSITES = get_args(Composite)


class Residual(nn.Module):
    """Convolutions with batch normalisation, a depthwise one, a shortcut, a gate, pooling and a linear head."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=bias), nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=bias)
        self.gate = nn.Conv2d(8, 8, 1, bias=bias)
        self.head = nn.Linear(8, 4, bias=bias)
        self.activation: Any = F.hardswish
        generator = torch.Generator().manual_seed(3)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.6
        self.norm.running_var.uniform_(0.5, 2.0, generator=generator)
        self.norm.running_mean.normal_(generator=generator)
        if not bias:
            self.norm.running_mean.zero_()
            self.norm.bias.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        y = self.activation(self.deep(x))
        y = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        y += x
        return self.head(torch.flatten(F.adaptive_avg_pool2d(F.max_pool2d(y, 2), 1), 1))


def images(n: int = 3, side: int = 16) -> Batch:
    return Batch(
        tuple("abcdef"[:n]),
        torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0)) - 0.3,
    )


@pytest.mark.parametrize("composite", ["epsilon", "epsilon_plus", "epsilon_plus_flat", "gamma"])
def test_relevance_is_conserved_in_a_network_without_biases(composite: str) -> None:
    batch, target = images(), torch.tensor([0, 3, 2])
    net = Residual(bias=False).double()
    net.activation = (
        F.relu if "plus" in composite else F.hardswish
    )  # z⁺ needs a positive share in every active unit
    model, batch = Model(net), batch.with_x(batch.x.double())
    maps = Lrp(composite, epsilon=1e-9)(model, batch, target, seed=0)
    score = model.logits(batch.x).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(maps.flatten(1).sum(1), score, rtol=1e-4, atol=1e-6)


def test_with_a_vanishing_epsilon_it_is_input_times_gradient_in_a_network_of_rectifiers() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(6 * 49, 4),
    ).double()
    batch, target = images(), torch.tensor([1, 0, 2])
    batch = batch.with_x(batch.x.double())
    ours = Lrp("epsilon", epsilon=1e-12)(Model(net), batch, target, seed=0)
    torch.testing.assert_close(
        ours, InputXGradient()(Model(net), batch, target, seed=0), rtol=1e-5, atol=1e-9
    )


class Block(nn.Module):
    """One head of attention and a gated layer, as a network is written, or with every rule as a changed derivative."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.by_hand = by_hand
        generator = torch.Generator().manual_seed(2)
        self.norm = nn.LayerNorm(6)
        self.maps = nn.ParameterList([torch.randn(6, 6, generator=generator) for _ in range(4)])
        self.head = nn.Parameter(torch.randn(3, 6, generator=generator))

    def keep(self, x: Tensor, y: Tensor) -> Tensor:
        return (
            x * (y / x).detach() if self.by_hand else y
        )  # then input × gradient is what y received

    def half(self, x: Tensor) -> Tensor:
        return (x + x.detach()) / 2 if self.by_hand else x

    def forward(self, x: Tensor) -> Tensor:
        y = self.keep(x, self.norm(x))
        query, key, value = (F.linear(y, weight) for weight in list(self.maps)[:3])
        if self.by_hand:
            scores = self.half(query * 6**-0.5) @ self.half(key.transpose(1, 2))
            mixed = self.half(scores.softmax(-1)) @ self.half(value)
        else:
            mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + mixed
        inner = F.linear(x, self.maps[3])
        return F.linear((x + self.keep(inner, F.gelu(inner))).mean(1), self.head)


def test_attention_follows_the_rules_of_attn_lrp() -> None:
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(4)).double()
    batch, target = Batch(("a", "b"), x), torch.tensor([2, 0])
    ours = Lrp("epsilon", epsilon=1e-12)(
        Model(Block(by_hand=False).double()), batch, target, seed=0
    )
    by_hand = InputXGradient()(Model(Block(by_hand=True).double()), batch, target, seed=0)
    torch.testing.assert_close(ours, by_hand, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("network", [TorchvisionViT, TimmViT, TransformersViT])
@pytest.mark.parametrize("composite", ["epsilon", "gamma"])
def test_transformers_as_they_are_built_have_maps(network: Any, composite: str) -> None:
    torch.manual_seed(1)
    batch, target = images(), torch.tensor([1, 0, 2])
    maps = Lrp(composite)(Model(network()), batch, target, seed=0)
    assert (
        maps.shape == batch.x.shape
        and torch.isfinite(maps).all()
        and (maps.flatten(1).std(1) > 0).all()
    )


def test_one_map_does_not_depend_on_its_neighbours_and_nothing_is_left_on_the_model() -> None:
    batch, target = images(), torch.tensor([0, 3, 2])
    model = Model(Residual(bias=True), rows=2)
    before = model.logits(batch.x)
    maps = Lrp()(model, batch, target, seed=0)
    assert torch.equal(model.logits(batch.x), before)
    torch.testing.assert_close(
        Lrp()(model, batch[1:2], target[1:2], seed=5), maps[1:2], rtol=1e-4, atol=1e-6
    )


def test_a_function_without_a_rule_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cos(self.layer(x))

    with pytest.raises(UserError, match=r"torch\.cos"):
        Lrp()(Model(Odd()), Batch(("a",), torch.rand(1, 3)), torch.tensor([1]), seed=0)


@pytest.mark.parametrize("composite", [c for c in COMPOSITES if c.startswith("epsilon_")])
def test_composites_agree_with_zennit(composite: str) -> None:
    pytest.importorskip("torchvision", reason="zennit imports torchvision")
    composites = pytest.importorskip("zennit.composites")
    canonizers = pytest.importorskip("zennit.canonizers")
    attribution = pytest.importorskip("zennit.attribution")
    torch.manual_seed(0)
    net = nn.Sequential(
        *(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.ReLU(),
        ),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5)),
    )
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    net[1].running_mean.normal_()
    batch, target = images(), torch.tensor([1, 0, 2])
    model = Model(net, mean=0.4, std=0.3)
    inputs = model.inputs(batch)
    name = "".join(word.capitalize() for word in composite.split("_"))
    edges = {"low": torch.full_like(inputs, -0.4 / 0.3), "high": torch.full_like(inputs, 0.6 / 0.3)}
    kind = getattr(composites, name)
    made = kind(
        canonizers=[canonizers.SequentialMergeBatchNorm()], **(edges if "box" in composite else {})
    )
    start = torch.eye(5)[target] * model.logits(inputs)
    with attribution.Gradient(model=model.module, composite=made) as attributor:
        _, theirs = attributor(inputs.clone(), start)
    ours = Lrp(composite)(model, batch, target, seed=0)
    assert (ours - theirs).abs().max() < 1e-3 * theirs.abs().max()


def share_by_share(rule: str, x: list[float], w: list[float], b: float) -> list[float]:
    """What each input x_j of one unit Σ_j x_j·w_j + b receives of its relevance, as the papers write it."""
    products = [a * c for a, c in zip(x, w, strict=True)]
    z = sum(products) + b
    up = [max(p, 0.0) for p in products]
    down = [min(p, 0.0) for p in products]
    gain, loss = sum(up) + max(b, 0.0), sum(down) + min(b, 0.0)
    if rule == "epsilon":
        return [p / z for p in products]
    if rule == "z_plus":
        return [p / gain for p in up]
    if rule == "alpha2_beta1":
        return [2 * p / gain - q / loss for p, q in zip(up, down, strict=True)]
    if rule == "gamma":
        favoured, edge = (up, max(b, 0.0)) if z > 0 else (down, min(b, 0.0))
        shares = [p + 0.25 * q for p, q in zip(products, favoured, strict=True)]
        return [s / (sum(shares) + b + 0.25 * edge) for s in shares]
    if rule == "flat":
        return [1 / len(x)] * len(x)
    shares = [a * c - (-1 if c > 0 else 2) * c for a, c in zip(x, w, strict=True)]  # box of −1 to 2
    return [s / sum(shares) for s in shares]


RULES: dict[str, Any] = {
    "epsilon": lrp_rules.epsilon_rule,
    "z_plus": lrp_rules.z_plus,
    "alpha2_beta1": lrp_rules.alpha_beta(2, 1),
    "gamma": lrp_rules.gamma_rule(0.25),
    "flat": lrp_rules.flat,
    "box": lrp_rules.box(torch.full((3, 5), -1.0).double(), torch.full((3, 5), 2.0).double()),
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_shares_the_relevance_of_a_unit_by_its_formula(rule: str) -> None:
    generator = torch.Generator().manual_seed(7)
    x, weight, bias, relevance = (
        torch.randn(size, generator=generator, dtype=torch.float64)
        for size in ((3, 5), (4, 5), (4,), (3, 4))
    )
    layer = lrp_rules.Affine(x, weight, bias, F.linear, convolves=False)
    found = RULES[rule](layer, relevance, 1e-12)
    wanted = torch.zeros_like(x)
    for sample in range(3):
        for unit in range(4):
            given = x[sample].tolist(), weight[unit].tolist(), float(bias[unit])
            shares = torch.tensor(share_by_share(rule, *given), dtype=torch.float64)
            wanted[sample] += shares * relevance[sample, unit]
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)


BOXED = Lrp("epsilon_gamma_box")
RGB = {"mean": (0.2, 0.5, 0.7), "std": (0.3, 0.2, 0.1)}


class Before(nn.Module):
    """A network that does something to its input before its first layer."""

    def __init__(self, first: Any, net: nn.Module) -> None:
        super().__init__()
        self.first, self.net = first, net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.first(x))


def convolutional(padding: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=padding),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def boxed(net: nn.Module, x: Tensor, **options: Any) -> Tensor:
    batch = Batch(tuple("abcd"[: len(x)]), x)
    return BOXED(Model(net, **options), batch, torch.tensor([0, 1, 2])[: len(x)], 0)


def test_the_box_of_the_first_layer_follows_what_comes_before_it() -> None:
    x = images(3, 8).x.clamp(0, 1)
    padded = Before(lambda x: F.pad(x, (1, 1, 1, 1)), convolutional(padding=0))
    assert torch.allclose(boxed(padded, x, **RGB), boxed(convolutional(1), x, **RGB), atol=1e-6)

    # BGR first, with the first layer's filters in that order: the same function of the pixels.
    net, swapped = convolutional(1), convolutional(1)
    swapped[0].weight.data = net[0].weight.data.flip(1)
    swapped = Before(lambda x: x.flip(1), swapped)
    assert torch.allclose(boxed(swapped, x, **RGB), boxed(net, x, **RGB), atol=1e-6)

    # A change of sign swaps black and white.
    negated = convolutional(1)
    negated[0].weight.data = -net[0].weight.data
    negated = Before(torch.neg, negated)
    assert torch.allclose(boxed(negated, x, **RGB), boxed(net, x, **RGB), atol=1e-6)

    # Flattened pixels: the rule by its formula, for a network of one layer.
    flat, weight = nn.Sequential(nn.Flatten(), nn.Linear(192, 3, bias=False)), torch.randn(3, 192)
    flat[1].weight.data = weight
    limits = [((v - torch.tensor(RGB["mean"])) / torch.tensor(RGB["std"])) for v in (0.0, 1.0)]
    low, high = (limit.repeat_interleave(64) for limit in limits)
    row = (x[:1].flatten(2) - torch.tensor(RGB["mean"])[:, None]) / torch.tensor(RGB["std"])[
        :, None
    ]
    row = row.flatten()
    w = weight[0]
    shares = row * w - low * w.clamp_min(0) - high * w.clamp_max(0)
    expected = shares / shares.sum() * (row @ w)
    assert torch.allclose(boxed(flat, x[:1], **RGB).flatten(), expected, rtol=1e-3, atol=1e-5)


def test_the_box_of_a_row_of_a_table_is_its_own_range_whatever_the_batch() -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    x = torch.randn(3, 6) * 10
    together = boxed(net, x)
    alone = torch.cat(
        [BOXED(Model(net), Batch(("a",), x[[row]]), torch.tensor([row]), 0) for row in range(3)]
    )
    assert torch.allclose(together, alone, atol=1e-5)
