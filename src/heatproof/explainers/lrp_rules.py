"""How relevance goes back through one linear layer: the rules by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True)
class Affine:
    """One use of a linear layer: what it was given, its weight and bias, and the function of these three."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    apply: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    convolves: bool

    def back(self, weight: Tensor, share: Tensor) -> Tensor:
        """The transposed layer with another weight, applied to (B, …) shares of its outputs."""
        with torch.enable_grad():
            point = torch.zeros_like(self.x).requires_grad_()
            (pulled,) = torch.autograd.grad(self.apply(point, weight, None), point, share)
        return pulled


Rule: TypeAlias = Callable[[Affine, Tensor, float], Tensor]
"""(layer, relevance of its outputs, ε) to the relevance of its inputs."""


def stabilised(z: Tensor, epsilon: float) -> Tensor:
    """z + ε·sign(z) with sign(0) = 1, never 0.

    >>> stabilised(torch.tensor([0.0, -1.0]), 0.5).tolist()
    [0.5, -1.5]
    """
    return z + torch.where(z >= 0, epsilon, -epsilon)


def epsilon_rule(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
    """R_j = Σ_k x_j w_jk / (z_k + ε·sign z_k) · R_k."""
    z = layer.apply(layer.x, layer.weight, layer.bias)
    return layer.x * layer.back(layer.weight, relevance / stabilised(z, epsilon))


def _part(bias: Tensor | None, positive: bool) -> Tensor | None:
    return None if bias is None else bias.clamp_min(0) if positive else bias.clamp_max(0)


def _signed_parts(layer: Affine, relevance: Tensor, epsilon: float, positive: bool) -> Tensor:
    """Relevance by the positive shares alone, or by the negative ones."""
    up, down = layer.x.clamp_min(0), layer.x.clamp_max(0)
    gain, loss = layer.weight.clamp_min(0), layer.weight.clamp_max(0)
    pairs = ((up, gain), (down, loss)) if positive else ((up, loss), (down, gain))
    z = layer.apply(*pairs[0], _part(layer.bias, positive)) + layer.apply(*pairs[1], None)
    share = relevance / stabilised(z, epsilon)
    return sum((x * layer.back(weight, share) for x, weight in pairs), torch.zeros_like(layer.x))


def z_plus(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
    """R_j = Σ_k (x_j w_jk)⁺ / Σ_j (x_j w_jk)⁺ · R_k, the bias counted where it is positive."""
    return _signed_parts(layer, relevance, epsilon, positive=True)


def alpha_beta(alpha: float, beta: float) -> Rule:
    """α times the rule of positive shares, less β times that of negative ones, α − β = 1."""

    def rule(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
        gain, loss = (
            _signed_parts(layer, relevance, epsilon, positive) for positive in (True, False)
        )
        return alpha * gain - beta * loss

    return rule


def gamma_rule(gamma: float) -> Rule:
    """Shares x_j w_jk, those of the sign of z_k times 1 + γ."""

    def rule(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
        z = layer.apply(layer.x, layer.weight, layer.bias)
        up, down = layer.x.clamp_min(0), layer.x.clamp_max(0)
        more_gain = layer.weight + gamma * layer.weight.clamp_min(0)
        more_loss = layer.weight + gamma * layer.weight.clamp_max(0)
        total = torch.zeros_like(layer.x)
        for here, first, second, bound in (
            (z > 0, more_gain, more_loss, torch.clamp_min),
            (z < 0, more_loss, more_gain, torch.clamp_max),
        ):
            bias = None if layer.bias is None else layer.bias + gamma * bound(layer.bias, 0)
            whole = layer.apply(up, first, bias) + layer.apply(down, second, None)
            share = torch.where(here, relevance / stabilised(whole, epsilon), 0)
            total = total + up * layer.back(first, share) + down * layer.back(second, share)
        return total

    return rule


def flat(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
    """Every input of a unit receives the same share."""
    ones = torch.ones_like(layer.weight)
    z = layer.apply(torch.ones_like(layer.x), ones, None)
    return layer.back(ones, relevance / stabilised(z, epsilon))


def box(bounds: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Rule:
    """Shares x_j w_jk − l_j w⁺_jk − h_j w⁻_jk, for inputs between `bounds` l and h."""

    def rule(layer: Affine, relevance: Tensor, epsilon: float) -> Tensor:
        low, high = bounds(layer.x)
        gain, loss = layer.weight.clamp_min(0), layer.weight.clamp_max(0)
        z = layer.apply(layer.x, layer.weight, layer.bias)
        z = (
            z
            - layer.apply(low, gain, _part(layer.bias, True))
            - layer.apply(high, loss, _part(layer.bias, False))
        )
        share = relevance / stabilised(z, epsilon)
        direct = layer.x * layer.back(layer.weight, share)
        return direct - low * layer.back(gain, share) - high * layer.back(loss, share)

    return rule
