"""Layer-wise relevance propagation: the score is handed back layer by layer, each unit passing on what it received.

What flows backwards is relevance in place of a gradient. Functions are met where they are called, by a torch function
mode around the forward pass, so functional calls and modules that are used many times follow the rules, and nothing is
left on the model. A batch normalisation that directly follows a convolution or linear layer is folded into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof.errors import UserError
from heatproof.explainers.cam_layer import refuse_averages
from heatproof.explainers.gradient import input_gradient, normalised
from heatproof.explainers.lrp_pass import Relevance
from heatproof.explainers.lrp_rules import (
    Affine,
    Rule,
    alpha_beta,
    box,
    epsilon_rule,
    flat,
    gamma_rule,
    z_plus,
)
from heatproof.explainers.undefined import NEEDS_VECTORS
from heatproof.models import Model
from heatproof.types import STRICT, Batch, Explainer

Composite = Literal[
    "epsilon",
    "epsilon_plus",
    "epsilon_plus_flat",
    "epsilon_alpha2_beta1",
    "epsilon_alpha2_beta1_flat",
    "epsilon_gamma_box",
    "gamma",
]


@dataclass(frozen=True, config=STRICT)
class Lrp(Explainer):
    """Relevance R of every input, from R = f_t at the output and one rule per layer; (B, …) in the shape of the input.

    A linear layer z_k = Σ_j x_j w_jk + b_k passes back R_j = Σ_k z_jk / z_k · R_k, where the shares z_jk are x_j w_jk
    (ε), their positive part (z⁺), their positive part twice less the negative one (α2β1), x_j w_jk with the part of
    z_k's own sign weighed 1 + γ (γ), all equal (flat), or x_j w_jk − l_j w⁺_jk − h_j w⁻_jk for pixels between l and h
    (box). `composite` says which, in the words of zennit: the first word holds for linear layers, the second for
    convolutions, and flat or box for the first layer; "epsilon" and "gamma" hold everywhere. Activations pass relevance
    on as it is, sums share it by size, layer normalisation counts as a fixed linear map, products of activations
    and attention share by AttnLRP's rules (softmax by its Taylor expansion, products half each). What a bias adds is
    relevance lost, so maps sum to f_t only in networks without.

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8, bias=False), torch.nn.ReLU(), torch.nn.Linear(8, 2, bias=False))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([1])
    >>> total = Lrp("epsilon", epsilon=1e-9)(Model(net), batch, target, seed=0).sum()
    >>> torch.allclose(total, Model(net).logits(batch.x)[0, 1], atol=1e-5)
    True
    """

    name: ClassVar[str] = "lrp"
    requires = ("gradients", "layers")
    undefined_on = NEEDS_VECTORS
    hooks_into_network = True
    cost = "1 pass and its gradient"

    composite: Composite = "epsilon_plus"
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-6
    gamma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.25

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a smoothed model, whose many passes have no layers in common."""
        refuse_averages(self.name, model)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        self.check(model, batch.x.shape[1:])
        inputs = normalised(model, batch)
        watched = Relevance(self._rules(model, batch), self.epsilon, model.name)
        shares, score = input_gradient(model, inputs, batch.aux, target, watched)
        if not watched.layers:
            raise UserError(
                f"lrp met no linear layer in {model.name}; a scripted model hides them: pass the original module"
            )
        return shares * score.reshape(-1, *[1] * (inputs.ndim - 1))

    def _rules(self, model: Model, batch: Batch) -> Callable[[Affine, bool], Rule]:
        """The rule of a layer, and of the first one."""

        def bounds(x: Tensor) -> tuple[Tensor, Tensor]:
            ends = (
                model.inputs(batch[:1].with_x(torch.full_like(batch.x[:1], value)))
                for value in (0.0, 1.0)
            )
            low, high = (end.to(x).expand_as(x) for end in ends)
            return low, high

        word = self.composite.removeprefix("epsilon_").removesuffix("_flat").removesuffix("_box")
        by_word: dict[str, Rule] = {
            "epsilon": epsilon_rule,
            "plus": z_plus,
            "alpha2_beta1": alpha_beta(2.0, 1.0),
            "gamma": gamma_rule(self.gamma),
        }

        def rule(layer: Affine, is_first: bool) -> Rule:
            if is_first and self.composite.endswith("_flat"):
                return flat
            if is_first and self.composite.endswith("_box"):
                return box(bounds)
            everywhere = self.composite in ("epsilon", "gamma")
            return by_word[word] if layer.convolves or everywhere else epsilon_rule

        return rule
