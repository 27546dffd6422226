"""Methods that read the attention of transformers: rollout, and Chefer's relevance.

Attention is met where it is computed, by a torch function mode around the forward pass: as a softmax, in
`F.scaled_dot_product_attention` or in `nn.MultiheadAttention`. So the networks of torchvision, timm and transformers
need no code of their own, fused or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.overrides import TorchFunctionMode

from heatproof.errors import UserError
from heatproof.explainers.attention_parts import attend, attend_heads
from heatproof.explainers.cam import enlarged
from heatproof.explainers.cam_layer import find_layer, refuse_averages
from heatproof.explainers.gradient import normalised, rows_of, slices
from heatproof.explainers.undefined import NEEDS_TOKENS
from heatproof.models import Model
from heatproof.types import STRICT, Batch, Explainer

_SOFTMAX = {torch.softmax, F.softmax, Tensor.softmax}


class Attentions(TorchFunctionMode):
    """Keeps the attention (B, heads, L, L) of every layer of a forward pass, each where the output depends on it."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.kept: list[Tensor] = []
        whole = partial(attend, torch.matmul, self._softmax, torch.mul)
        refusal = f"the attention of {model} adds to its keys, which attention_rollout and chefer do not know"
        heads = partial(attend_heads, F.linear, whole, refusal)
        self._own: dict[Any, Any] = {
            F.scaled_dot_product_attention: whole,
            F.multi_head_attention_forward: heads,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self._own.get(func, func)(*args, **(kwargs or {}))
        if func in _SOFTMAX and result.ndim == 4 and result.shape[-2] == result.shape[-1] > 1:
            self.kept.append(result)
        return result

    def _softmax(self, scores: Tensor) -> Tensor:
        self.kept.append(scores.softmax(-1))
        return self.kept[-1]


@dataclass(frozen=True, config=STRICT)
class _OfAttention(Explainer):
    """What rollout and Chefer's relevance share: whose attention is read, and where the tokens lie."""

    name: ClassVar[str]
    requires = ("layers",)
    undefined_on = NEEDS_TOKENS
    hooks_into_network = True
    cost = "1 pass and its gradient"

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a smoothed model and for samples that are neither images (C, H, W) nor texts (L,)."""
        refuse_averages(self.name, model)
        if len(shape) != 3 and model.embedding is None:
            raise UserError(
                f"{self.name} reads tokens of images or of texts, got samples of shape {tuple(shape)}"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, C, H, W), or one value per token (B, L), for the classes `target` (B,)."""
        self.check(model, batch.x.shape[1:])
        inputs = normalised(model, batch)
        parts = [
            self._rows(model, inputs[rows], rows_of(batch.aux, rows, inputs.device), target[rows])
            for rows in slices(len(inputs), model.rows)
        ]
        tokens = torch.cat(parts)
        if inputs.ndim == 4:
            site = find_layer(
                model, inputs.shape[1:], None, rows_of(batch.aux, slice(0, 1), inputs.device)
            )
            if site.layout == "tokens":
                return enlarged(site.spatial(tokens[..., None]), inputs)
        elif tokens.shape == batch.x.shape:
            return tokens
        raise UserError(
            f"the {tokens.shape[1]} tokens of {model.name} do not lie on samples of {batch.x.shape[1:]}"
        )

    def _rows(
        self, model: Model, inputs: Tensor, aux: Mapping[str, Tensor], target: Tensor
    ) -> Tensor:
        """What each token (B, L) gives to those that the output is read from."""
        watched, count = Attentions(model.name), len(inputs)
        inputs, aux = model.filled_up(inputs, aux)
        with torch.enable_grad():
            leaf = inputs.detach().requires_grad_()
            with watched:
                logits = model.logits(leaf.clone(), aux)[:count]
            chosen = logits.gather(1, target.to(logits.device)[:, None]).sum()
        kept, watched.kept = watched.kept, []  # not to wait for the collector
        if not kept or {(len(a), a.shape[-1]) for a in kept} != {(len(inputs), kept[0].shape[-1])}:
            why = (
                "has no attention"
                if not kept
                else "attends in windows or to tokens that grow fewer"
            )
            raise UserError(
                f"{self.name} needs attention among all tokens in every layer, and {model.name} {why}"
            )
        wanted = kept[-1:] if self.name == AttentionRollout.name else kept
        found = torch.autograd.grad(chosen, wanted, allow_unused=True, materialize_grads=True)
        gradients = [gradient.to(inputs.dtype) / model.gradient_scale for gradient in found]
        # Behind the last attention tokens do not mix, so those whose attention there matters are the ones read.
        read = (gradients[-1].abs().amax((1, 3)) > 0).to(inputs.dtype)
        one = torch.eye(read.shape[1], dtype=inputs.dtype, device=inputs.device)
        joint = one.expand(len(inputs), -1, -1)
        for layer, attention in enumerate(kept):
            weights = attention.detach().to(inputs.dtype)
            if self.name == AttentionRollout.name:
                joint = (weights.mean(1) + one) / 2 @ joint
            else:
                joint = joint + (gradients[layer] * weights).relu().mean(1) @ joint
        joint = joint if self.name == AttentionRollout.name else joint - one
        rows: Tensor = (read[:, None] @ joint)[:, 0]
        return (rows / read.sum(1, keepdim=True).clamp(min=1))[:count]


@dataclass(frozen=True, config=STRICT)
class AttentionRollout(_OfAttention):
    """Attention rollout (Abnar and Zuidema): row of Π_l (½·mean over heads of A_l + ½·I) of the token that is read.

    Where the output is read from several tokens, as after a mean, it is the mean of their rows; they are found by the
    gradient. Tokens of an image are laid on their grid, without the class token, and enlarged bilinearly to
    (B, C, H, W); texts have one value per token (B, L). The class plays no part otherwise.

    >>> AttentionRollout().stochastic
    False
    """

    name: ClassVar[str] = "attention_rollout"


@dataclass(frozen=True, config=STRICT)
class Chefer(_OfAttention):
    """Chefer's relevance: row of R − I of the token read, where R = I, then R ← R + mean_h (∂f_t/∂A_l ⊙ A_l)⁺·R.

    The rule for self-attention of Chefer, Gur and Wolf (ICCV 2021), layer after layer from the first; unlike rollout it
    knows the class. Tokens and maps as in `AttentionRollout`.

    >>> Chefer().stochastic
    False
    """

    name: ClassVar[str] = "chefer"
