"""Layer-wise relevance propagation (LRP): the score flows back layer by layer, each unit passing on what it received.

Relevance flows backwards in place of a gradient. A torch function mode around the forward pass intercepts the calls of
functions, so functional calls and modules that are used many times follow the rules, and nothing is left on the model.
A batch normalisation that directly follows a convolution or linear layer is folded into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.explainers.cam_layer import refuse_averages
from heatproof.explainers.gradient import (
    input_gradient,
    normalised,
    per_row,
    rows_of,
    slices,
)
from heatproof.explainers.lrp_pass import Relevance, first_layer_input
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
from heatproof.types import Batch, Explainer, parameter_class

RuleName = Literal["epsilon", "plus", "alpha2_beta1", "gamma", "flat", "box"]
Composite = Literal[
    "epsilon",
    "epsilon_plus",
    "epsilon_plus_flat",
    "epsilon_alpha2_beta1",
    "epsilon_alpha2_beta1_flat",
    "epsilon_gamma_box",
    "gamma",
]


@parameter_class
class Lrp(Explainer):
    """Relevance R of every input, from R = f_t at the output and one rule per layer; (B, …) in the shape of the input.

    A linear layer z_k = Σ_j x_j w_jk + b_k passes back R_j = Σ_k z_jk / z_k · R_k. The rules differ in the shares z_jk:

    - ε: x_j w_jk
    - z⁺: its positive part
    - α2β1: twice the positive part less the negative part
    - γ: x_j w_jk, with the part that has the sign of z_k times 1 + γ
    - flat: all equal
    - box: x_j w_jk − l_j w⁺_jk − h_j w⁻_jk, for inputs between l and h: black and white of images, else the limits of the
      sample, followed through whatever the network does to its input before its first linear layer

    `composite` chooses the rules by layer or by zennit's names. `Lrp({"0": "gamma", "3": "plus"})` names layers by their
    dotted paths, and all others have the ε rule. Of zennit's names, the first word is the rule of linear layers, the
    second of convolutions, and flat or box of the first layer; "epsilon" and "gamma" alone hold for all layers.

    Activations pass relevance on unchanged, sums divide it in proportion to the summands, layer normalisation counts as
    a fixed linear map, and products of activations and attention follow AttnLRP (Achtibat et al., ICML 2024: softmax by
    its Taylor expansion, half for each factor of a product). A bias absorbs relevance, so maps sum to f_t only without
    biases.

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

    composite: Composite | dict[str, RuleName] = "epsilon_plus"
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-6
    gamma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.25

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a smoothed model, whose many passes have no layers in common, and for a layer that is not there."""
        refuse_averages(self.name, model)
        if isinstance(self.composite, dict):
            for path in self.composite:
                layer = model.layer(path)
                if not isinstance(getattr(layer, "weight", None), Tensor):
                    raise UserError(
                        f"lrp has rules for linear layers and convolutions, and {path!r} of {model.name} is a "
                        f"{type(layer).__name__} without a weight"
                    )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the relevance (B, …) of every input value for the logits of the classes `target` (B,); `seed` is unused."""
        self.check(model, batch.x.shape[1:])
        inputs = normalised(model, batch)
        low, high = _input_range(model, batch, inputs)
        maps = []
        for rows in slices(len(inputs), model.rows):
            aux = rows_of(batch.aux, rows, inputs.device)
            bounds = None
            if self._has_box:
                bounds = self._first_layer_bounds(model, low[rows], high[rows], aux)
            maps.append(self._pass_maps(model, inputs[rows], aux, target[rows], bounds))
        return torch.cat(maps)

    @property
    def _has_box(self) -> bool:
        if isinstance(self.composite, dict):
            return "box" in self.composite.values()
        return self.composite.endswith("_box")

    def _pass_maps(
        self,
        model: Model,
        inputs: Tensor,
        aux: Mapping[str, Tensor],
        target: Tensor,
        bounds: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Return the relevance (B, …) of a few inputs, from one pass with LRP's backward rules.

        `bounds` are the least and largest values of the first linear layer's input, for the box rule; else None.
        """
        relevance_pass = Relevance(self._rules(model, bounds), self.epsilon, model.name)
        # The backward pass gives the relevance of the inputs for a relevance of 1 at the output.
        shares, score = input_gradient(model, inputs, aux, target, relevance_pass)
        if not relevance_pass.layers:
            raise UserError(
                f"lrp met no linear layer in {model.name}; a scripted model hides them: pass the original module"
            )
        return shares * per_row(score, inputs)

    def _first_layer_bounds(
        self, model: Model, low: Tensor, high: Tensor, aux: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the least and largest input of the first linear layer, for model inputs between low and high (B, …).

        A network may reshape, pad, reorder or rescale its input before that layer. So both limits go through these
        steps; a step that falls, such as a change of sign, swaps them.
        """
        ends = []
        for limit in (low, high):
            end = first_layer_input(model, limit, aux, self.epsilon)
            if end is None:
                return low, high  # without a linear layer; the pass itself says so
            ends.append(end)
        return ends[0].minimum(ends[1]), ends[0].maximum(ends[1])

    def _rules(
        self, model: Model, bounds: tuple[Tensor, Tensor] | None
    ) -> Callable[[Affine, bool], Rule]:
        """Return the function (layer, is_first) → rule that chooses the LRP rule of each linear layer.

        It follows `self.composite`: rules by the path of a layer, or a name such as "epsilon_plus_box". That means the ε
        rule for linear layers, z⁺ for convolutions, and box for the first layer, whose input lies between `bounds`.
        """
        by_name: dict[str, Rule] = {
            "epsilon": epsilon_rule,
            "plus": z_plus,
            "alpha2_beta1": alpha_beta(2.0, 1.0),
            "gamma": gamma_rule(self.gamma),
            "flat": flat,
        }
        if bounds is not None:
            by_name["box"] = box(*bounds)
        composite = self.composite
        if isinstance(composite, dict):
            # A layer is known by its weight: functions are intercepted, and not modules.
            name_of_weight = {
                id(model.layer(path).weight): name for path, name in composite.items()
            }

            def rule_by_layer(layer: Affine, is_first: bool) -> Rule:
                """Return the rule that the user named for a layer, by default ε."""
                name = name_of_weight.get(id(layer.parameter), "epsilon")
                if name == "box" and not is_first:
                    raise UserError("lrp's rule box is for the first layer, whose input has bounds")
                return by_name[name]

            return rule_by_layer

        of_convolutions = composite.removeprefix("epsilon_")
        of_convolutions = of_convolutions.removesuffix("_flat").removesuffix("_box")
        for_all_layers = composite in ("epsilon", "gamma")
        first = composite.rpartition("_")[2]

        def rule_of(layer: Affine, is_first: bool) -> Rule:
            """Return the rule of a layer by its kind: the first one, a convolution, or another linear layer."""
            if is_first and first in ("flat", "box"):
                return by_name[first]
            if layer.convolves or for_all_layers:
                return by_name[of_convolutions]
            return epsilon_rule

        return rule_of


@parameter_class
class AttnLrp(Lrp):
    """AttnLRP: relevance propagation of transformers with the ε rule for all linear layers; (B, …) like the input.

    The method of Achtibat et al. (ICML 2024): attention and products of activations as in `Lrp`, layer normalisation
    as a fixed linear map.

    >>> AttnLrp().composite
    'epsilon'
    """

    name: ClassVar[str] = "attn_lrp"

    composite: Composite | dict[str, RuleName] = "epsilon"


def _input_range(model: Model, batch: Batch, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value that inputs may have, (B, …) each, for LRP's box rule.

    For images these are black and white after normalisation; for other data the least and largest value of the sample.
    """
    if inputs.ndim == 4:
        low = model.inputs(batch.with_x(torch.full_like(batch.x, 0.0))).detach()
        high = model.inputs(batch.with_x(torch.full_like(batch.x, 1.0))).detach()
        return low, high
    values = inputs.flatten(1)
    low, high = per_row(values.amin(1), inputs), per_row(values.amax(1), inputs)
    return low.expand_as(inputs), high.expand_as(inputs)
