"""Attention rollout and Chefer's relevance, which read the attention of transformers.

A torch function mode around the forward pass intercepts attention as it is computed: as a softmax, in
`F.scaled_dot_product_attention` or in `nn.MultiheadAttention`. So the networks of torchvision, timm and transformers
need no special code, whether their attention is fused or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from heatproof.errors import UserError
from heatproof.explainers.attention_parts import attend, attend_heads
from heatproof.explainers.cam import enlarged
from heatproof.explainers.cam_layer import find_layer, refuse_averages
from heatproof.explainers.gradient import normalised, rows_of, slices
from heatproof.explainers.undefined import NEEDS_TOKENS
from heatproof.models import Model
from heatproof.types import Batch, Explainer, parameter_class

_SOFTMAX_FUNCTIONS = {torch.softmax, F.softmax, Tensor.softmax}


class Attentions(TorchFunctionMode):
    """Collects the attention (B, heads, L, L) of every layer of a forward pass in `layers`, differentiable."""

    def __init__(self, model: str) -> None:
        """Begin without layers, and prepare what replaces fused attention; `model` is the model's name for errors."""
        super().__init__()
        self.layers: list[Tensor] = []
        # Fused attention is computed from its parts, so that its softmax can be collected.
        attention = partial(attend, torch.matmul, self._collected_softmax, torch.mul)
        refusal = f"the attention of {model} adds to its keys, which attention_rollout and chefer do not know"
        multi_head = partial(attend_heads, F.linear, attention, refusal)
        self._replacements: dict[Any, Any] = {
            F.scaled_dot_product_attention: attention,
            F.multi_head_attention_forward: multi_head,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute a function of the network, and collect what it gives if it is the softmax of an attention."""
        function = self._replacements.get(func, func)
        result = function(*args, **(kwargs or {}))
        if func in _SOFTMAX_FUNCTIONS and _is_self_attention(result):
            self.layers.append(result)
        return result

    def _collected_softmax(self, scores: Tensor) -> Tensor:
        self.layers.append(scores.softmax(-1))
        return self.layers[-1]


def _is_self_attention(weights: Tensor) -> bool:
    """Return whether the weights are square, (B, heads, L, L), for more than one token."""
    return weights.ndim == 4 and weights.shape[-2] == weights.shape[-1] > 1


@parameter_class
class _FromAttention(Explainer):
    """Base class of rollout and Chefer's relevance, which differ in how layers are joined (`_joint`)."""

    name: ClassVar[str]
    requires = ("layers",)
    undefined_on = NEEDS_TOKENS
    hooks_into_network = True
    cost = "1 pass and its gradient"
    layers_differentiated: ClassVar[slice]
    """The layers by whose attention the target's logit is differentiated."""

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a smoothed model and for samples that are neither images (C, H, W) nor texts (L,)."""
        refuse_averages(self.name, model)
        if len(shape) != 3 and model.embedding is None:
            raise UserError(
                f"{self.name} reads tokens of images or of texts, got samples of shape {tuple(shape)}"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the relevance of the tokens for the classes `target` (B,); `seed` is unused.

        For images, tokens are laid on their grid and enlarged to maps (B, C, H, W); texts have one value per token, (B, L).
        """
        self.check(model, batch.x.shape[1:])
        inputs = normalised(model, batch)
        relevance = []
        for rows in slices(len(inputs), model.rows):
            aux = rows_of(batch.aux, rows, inputs.device)
            relevance.append(self._token_relevance(model, inputs[rows], aux, target[rows]))
        tokens = torch.cat(relevance)  # (B, L)
        if inputs.ndim == 4:
            # Tokens of an image lie on a grid, as the layer that Grad-CAM would read tells.
            first_aux = rows_of(batch.aux, slice(0, 1), inputs.device)
            site = find_layer(model, inputs.shape[1:], None, first_aux)
            if site.layout == "tokens":
                return enlarged(site.spatial(tokens[..., None]), inputs)
        elif tokens.shape == batch.x.shape:
            return tokens
        raise UserError(
            f"the {tokens.shape[1]} tokens of {model.name} do not lie on samples of {batch.x.shape[1:]}"
        )

    def _token_relevance(
        self, model: Model, inputs: Tensor, aux: Mapping[str, Tensor], target: Tensor
    ) -> Tensor:
        """Return the relevance (B, L) of each token for the output, from the attention of all layers in one pass.

        The layers' attention and its gradients are joined to one matrix (L, L) by `self._joint`. The relevance is the mean
        of its rows for the tokens that the output is read from.
        """
        count = len(inputs)
        inputs, aux = model.filled_up(inputs, aux)
        attentions = Attentions(model.name)
        with torch.enable_grad():
            leaf = inputs.detach().requires_grad_()
            with attentions:
                logits = model.logits(leaf.clone(), aux)[:count]
            chosen = logits.gather(1, target.to(logits.device)[:, None]).sum()
        layers = attentions.layers
        attentions.layers = []  # frees the graph now, not when the garbage collector runs
        self._check_layers(model, layers, len(inputs))

        differentiated = layers[self.layers_differentiated]
        scaled_gradients = torch.autograd.grad(
            chosen, differentiated, allow_unused=True, materialize_grads=True
        )
        gradients = []
        for gradient in scaled_gradients:
            gradients.append(gradient.to(inputs.dtype) / model.gradient_scale)
        # After the last attention, tokens do not mix. So the output is read from the tokens whose attention in the last
        # layer has a gradient, such as the class token.
        is_read = (gradients[-1].abs().amax((1, 3)) > 0).to(inputs.dtype)
        weights = [attention.detach().to(inputs.dtype) for attention in layers]
        joint = self._joint(weights, gradients)
        relevance: Tensor = (is_read[:, None] @ joint)[:, 0]
        return (relevance / is_read.sum(1, keepdim=True).clamp(min=1))[:count]

    def _check_layers(self, model: Model, layers: Sequence[Tensor], rows: int) -> None:
        """Raise `UserError` unless the model has attention, and all `layers` (B, heads, L, L) are among the same tokens.

        `rows` is the number of inputs in the pass.
        """
        if not layers:
            reason = "has no attention"
        elif any(len(layer) != rows or layer.shape[-1] != layers[0].shape[-1] for layer in layers):
            reason = "attends in windows or to tokens that grow fewer"
        else:
            return
        raise UserError(
            f"{self.name} needs attention among all tokens in every layer, and {model.name} {reason}"
        )

    def _joint(self, weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
        """Return the influence (B, L, L) of every token on every token through all layers.

        `weights` are the attention of all layers, `gradients` those of the layers that are differentiated.
        """
        raise NotImplementedError


def _identity(attention: Tensor) -> Tensor:
    return torch.eye(attention.shape[-1], dtype=attention.dtype, device=attention.device)


@parameter_class
class AttentionRollout(_FromAttention):
    """Attention rollout: row of Π_l (½·mean over heads of A_l + ½·I) of the token that the output is read from.

    The method of Abnar and Zuidema (ACL 2020). If the output is read from several tokens, as after a mean, it is the
    mean of their rows; they are found by the gradient. Tokens of an image are laid on their grid, without the class
    token, and enlarged bilinearly to (B, C, H, W); texts have one value per token (B, L). The target class matters only
    for finding the tokens that are read.

    >>> AttentionRollout().stochastic
    False
    """

    name: ClassVar[str] = "attention_rollout"
    layers_differentiated: ClassVar[slice] = slice(-1, None)

    def _joint(self, weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
        """Return the product over layers of the mean attention of the heads, halved with the residual connection."""
        identity = _identity(weights[0])
        joint = identity.expand(len(weights[0]), -1, -1)
        for attention in weights:
            joint = (attention.mean(1) + identity) / 2 @ joint
        return joint


@parameter_class
class Chefer(_FromAttention):
    """Chefer's relevance: row of R − I of the token read, where R = I, then R ← R + mean_h (∂f_t/∂A_l ⊙ A_l)⁺·R.

    The rule for self-attention of Chefer, Gur and Wolf (ICCV 2021), layer after layer from the first. Unlike rollout,
    it depends on the class. Tokens and maps as in `AttentionRollout`.

    >>> Chefer().stochastic
    False
    """

    name: ClassVar[str] = "chefer"
    layers_differentiated: ClassVar[slice] = slice(None)

    def _joint(self, weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
        """Return R − I after all layers, each of which adds its attention where that raises the target's logit."""
        identity = _identity(weights[0])
        joint = identity.expand(len(weights[0]), -1, -1)
        for attention, gradient in zip(weights, gradients, strict=True):
            joint = joint + (gradient * attention).relu().mean(1) @ joint
        return joint - identity
