"""The LRP rules, which pass relevance back through one linear layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True)
class Affine:
    """One call of a linear layer: its input x, weight and bias, and the function `apply(x, weight, bias)`.

    `parameter` is the network's own weight tensor, which tells which layer it is.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    apply: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    convolves: bool
    parameter: Tensor | None = None

    def back(self, weight: Tensor, share: Tensor) -> Tensor:
        """Return Σ_k w_jk · share_k for every input j, (B, …): the transposed layer with `weight`, applied to `share`.

        `share` has one number for each output k. Rules use weights of their own, such as the positive ones.
        """
        # The layer is linear in x, so its vector-Jacobian product is the same at every point.
        with torch.enable_grad():
            point = torch.zeros_like(self.x).requires_grad_()
            (pulled,) = torch.autograd.grad(self.apply(point, weight, None), point, share)
        return pulled


Rule: TypeAlias = Callable[[Affine, Tensor, float], Tensor]
"""(layer, relevance of its outputs, ε) → relevance of its inputs."""


def stabilised(z: Tensor, epsilon: float) -> Tensor:
    """Return z + ε·sign(z) with sign(0) = 1, which is never 0.

    >>> stabilised(torch.tensor([0.0, -1.0]), 0.5).tolist()
    [0.5, -1.5]
    """
    return z + torch.where(z >= 0, epsilon, -epsilon)


def epsilon_rule(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
    """Return the relevance of a layer's inputs by LRP's ε rule (Bach et al. 2015).

    R_j = Σ_k x_j w_jk / (z_k + ε·sign z_k) · R_k: an output k divides its relevance among the inputs j in proportion to
    what they add to it, and ε keeps outputs near 0 from dividing by 0.
    """
    z = layer.apply(layer.x, layer.weight, layer.bias)
    return layer.x * layer.back(layer.weight, relevance / stabilised(z, epsilon))


def _signed_bias(bias: Tensor | None, positive: bool) -> Tensor | None:
    """Return the positive or the negative part of a bias."""
    if bias is None:
        return None
    return bias.clamp_min(0) if positive else bias.clamp_max(0)


def _signed_rule(layer: Affine, relevance: Tensor, epsilon: float, positive: bool) -> Tensor:
    """Return the relevance of a layer's inputs when only products x_j w_jk of one sign count.

    An output divides its `relevance` among the inputs in proportion to their `positive` products, or to their negative
    ones. A product is positive where both factors are positive or both negative.
    """
    positive_x, negative_x = layer.x.clamp_min(0), layer.x.clamp_max(0)
    positive_weight, negative_weight = layer.weight.clamp_min(0), layer.weight.clamp_max(0)
    if positive:
        factors = ((positive_x, positive_weight), (negative_x, negative_weight))
    else:
        factors = ((positive_x, negative_weight), (negative_x, positive_weight))
    bias = _signed_bias(layer.bias, positive)
    z = layer.apply(*factors[0], bias) + layer.apply(*factors[1], None)
    share = relevance / stabilised(z, epsilon)
    total = torch.zeros_like(layer.x)
    for x, weight in factors:
        total = total + x * layer.back(weight, share)
    return total


def z_plus(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
    """Return the relevance of a layer's inputs by the z⁺ rule, by which only positive products count.

    R_j = Σ_k (x_j w_jk)⁺ / Σ_i (x_i w_ik)⁺ · R_k (Montavon et al. 2017); a positive bias counts in the sum.
    """
    return _signed_rule(layer, relevance, epsilon, positive=True)


def alpha_beta(alpha: float, beta: float) -> Rule:
    """Return LRP's αβ rule (Bach et al. 2015), where α − β = 1.

    Relevance by the positive products x_j w_jk counts α times, and relevance by the negative ones −β times.
    """

    def rule(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
        """Return the relevance of the layer's inputs (B, …), given that of its outputs."""
        from_positive = _signed_rule(layer, relevance, epsilon, positive=True)
        from_negative = _signed_rule(layer, relevance, epsilon, positive=False)
        return alpha * from_positive - beta * from_negative

    return rule


def gamma_rule(gamma: float) -> Rule:
    """Return LRP's γ rule (Montavon et al. 2019, here for outputs of both signs).

    An output z_k divides its relevance in proportion to the products x_j w_jk, where those with the sign of z_k count
    1 + γ times.
    """

    def rule(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
        """Return the relevance of the layer's inputs (B, …), given that of its outputs."""
        z = layer.apply(layer.x, layer.weight, layer.bias)
        positive_x, negative_x = layer.x.clamp_min(0), layer.x.clamp_max(0)
        more_positive = layer.weight + gamma * layer.weight.clamp_min(0)
        more_negative = layer.weight + gamma * layer.weight.clamp_max(0)
        # Positive outputs favour positive products, negative outputs negative ones. Each case has the outputs it is for,
        # the weights for positive x and for negative x, and the function that selects the part of the bias.
        cases = (
            (z > 0, more_positive, more_negative, torch.clamp_min),
            (z < 0, more_negative, more_positive, torch.clamp_max),
        )
        total = torch.zeros_like(layer.x)
        for has_sign, positive_x_weight, negative_x_weight, clamp in cases:
            bias = None if layer.bias is None else layer.bias + gamma * clamp(layer.bias, 0)
            z_sign = layer.apply(positive_x, positive_x_weight, bias)
            z_sign = z_sign + layer.apply(negative_x, negative_x_weight, None)
            share = torch.where(has_sign, relevance / stabilised(z_sign, epsilon), 0)
            total = total + positive_x * layer.back(positive_x_weight, share)
            total = total + negative_x * layer.back(negative_x_weight, share)
        return total

    return rule


def flat(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
    """Return the relevance of a layer's inputs by the flat rule: every output divides its own equally among its inputs."""
    ones = torch.ones_like(layer.weight)
    z = layer.apply(torch.ones_like(layer.x), ones, None)
    return layer.back(ones, relevance / stabilised(z, epsilon))


def box(low: Tensor, high: Tensor) -> Rule:
    """Return LRP's box rule (z^B, Montavon et al. 2017) for a first layer with inputs between `low` and `high`.

    An output divides its relevance in proportion to x_j w_jk − l_j w⁺_jk − h_j w⁻_jk, with l = `low` and h = `high`.
    """

    def rule(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
        """Return the relevance of the layer's inputs (B, …), given that of its outputs."""
        positive_weight, negative_weight = layer.weight.clamp_min(0), layer.weight.clamp_max(0)
        z = layer.apply(layer.x, layer.weight, layer.bias)
        z = z - layer.apply(low, positive_weight, _signed_bias(layer.bias, True))
        z = z - layer.apply(high, negative_weight, _signed_bias(layer.bias, False))
        share = relevance / stabilised(z, epsilon)
        from_x = layer.x * layer.back(layer.weight, share)
        from_low = low * layer.back(positive_weight, share)
        from_high = high * layer.back(negative_weight, share)
        return from_x - from_low - from_high

    return rule
