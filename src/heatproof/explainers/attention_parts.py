"""Fused attention taken apart into products and a softmax, each of which the caller may do in its own way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heatproof.errors import UserError


def attend(
    product: Callable[[Tensor, Tensor], Tensor],
    softmax: Callable[[Tensor], Tensor],
    scaled: Callable[[Tensor, float], Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What `F.scaled_dot_product_attention` gives: softmax(QKᵀ·scale + mask)·V; (…, L, E).

    >>> q, k, v = torch.rand(3, 1, 2, 5, 4).unbind()
    >>> mixed = attend(torch.matmul, lambda scores: scores.softmax(-1), torch.mul, q, k, v, is_causal=True)
    >>> torch.allclose(mixed, F.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-6)
    True
    """
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(repeats, -3) for t in (key, value))
    by = query.shape[-1] ** -0.5 if scale is None else scale
    scores = product(scaled(query, by), key.transpose(-2, -1))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        hidden = ~attn_mask if attn_mask.dtype == torch.bool else torch.isneginf(attn_mask)
        if attn_mask.dtype != torch.bool:
            scores = scores + attn_mask.masked_fill(hidden, 0)
        scores = scores.masked_fill(hidden, -torch.inf)
    return product(softmax(scores), value)


def attend_heads(
    linear: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    attention: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor],
    refusal: str,
    *args: Any,
    **options: Any,
) -> tuple[Tensor, None]:
    """What `nn.MultiheadAttention` asks `F.multi_head_attention_forward` for, from (L, B, E) each.

    Attention that adds to its keys, or has more than one width, is refused in the words of `refusal`.
    """
    parameters = inspect.signature(F.multi_head_attention_forward)
    of = {**dict.fromkeys(parameters.parameters), **parameters.bind(*args, **options).arguments}
    query, heads = of["query"], of["num_heads"]
    if (
        of["use_separate_proj_weight"]
        or of["bias_k"] is not None
        or of["add_zero_attn"]
        or query.ndim != 3
    ):
        raise UserError(refusal)
    weights = of["in_proj_weight"].chunk(3)
    biases = (None,) * 3 if of["in_proj_bias"] is None else of["in_proj_bias"].chunk(3)
    split = [
        linear(x, w, b).unflatten(2, (heads, -1)).permute(1, 2, 0, 3)  # type: ignore[no-untyped-call]
        for x, w, b in zip((query, of["key"], of["value"]), weights, biases, strict=True)
    ]
    mask = of["attn_mask"]
    if mask is not None and mask.ndim == 3:
        mask = mask.unflatten(0, (-1, heads))
    if of["key_padding_mask"] is not None:
        padded = of["key_padding_mask"][:, None, None]
        hidden = torch.zeros(padded.shape, device=query.device, dtype=query.dtype)
        hidden = hidden.masked_fill(padded, -torch.inf) if padded.dtype == torch.bool else padded
        mask = hidden if mask is None else hidden + mask
    mixed = attention(split[0], split[1], split[2], mask).permute(2, 0, 1, 3).flatten(2)
    return linear(mixed, of["out_proj_weight"], of["out_proj_bias"]), None
