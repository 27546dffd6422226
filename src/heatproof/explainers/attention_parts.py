"""Fused attention as separate products and a softmax, each of which the caller may replace."""

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
    """Return scaled dot-product attention softmax(QKᵀ·scale + mask)·V, (…, L, E), taken apart into its steps.

    The value is that of `F.scaled_dot_product_attention`, whose arguments are those from `query` on. The functions
    `product`, `softmax` and `scaled` compute the steps, so that an explainer can record them or give them rules.

    >>> q, k, v = torch.rand(3, 1, 2, 5, 4).unbind()
    >>> mixed = attend(torch.matmul, lambda scores: scores.softmax(-1), torch.mul, q, k, v, is_causal=True)
    >>> torch.allclose(mixed, F.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-6)
    True
    """
    if enable_gqa:  # grouped queries: several heads of queries share one of keys and values
        repeats = query.shape[-3] // key.shape[-3]
        key = key.repeat_interleave(repeats, -3)
        value = value.repeat_interleave(repeats, -3)
    if scale is None:
        scale = query.shape[-1] ** -0.5
    scores = product(scaled(query, scale), key.transpose(-2, -1))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        # A mask is boolean (true: attend) or added to the scores. Scores of −∞ are filled in and not added: a rule for
        # sums, such as LRP's, would turn them into NaN.
        if attn_mask.dtype == torch.bool:
            hidden = ~attn_mask
        else:
            hidden = torch.isneginf(attn_mask)
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
    """Return the output (L, B, E) of `nn.MultiheadAttention`, taken apart into linear layers and attention.

    The value is that of `F.multi_head_attention_forward`, called with `args` and `options`; attention weights are not
    returned. The functions `linear` and `attention` compute the steps, so that an explainer can give them rules.
    Attention that adds to its keys, or whose keys and values have widths of their own, raises `UserError(refusal)`.
    """
    signature = inspect.signature(F.multi_head_attention_forward)
    call: dict[str, Any] = dict.fromkeys(signature.parameters)
    call.update(signature.bind(*args, **options).arguments)
    query, heads = call["query"], call["num_heads"]
    adds_to_keys = call["bias_k"] is not None or call["add_zero_attn"]
    if call["use_separate_proj_weight"] or adds_to_keys or query.ndim != 3:
        raise UserError(refusal)

    # The weights of query, key and value lie in one matrix.
    weights = call["in_proj_weight"].chunk(3)
    biases = (None,) * 3 if call["in_proj_bias"] is None else call["in_proj_bias"].chunk(3)
    projected = []
    for x, weight, bias in zip((query, call["key"], call["value"]), weights, biases, strict=True):
        per_head = linear(x, weight, bias).unflatten(2, (heads, -1))  # type: ignore[no-untyped-call]
        projected.append(per_head.permute(1, 2, 0, 3))  # (B, heads, L, E / heads)

    mask = call["attn_mask"]
    if mask is not None and mask.ndim == 3:
        mask = mask.unflatten(0, (-1, heads))
    padding = call["key_padding_mask"]
    if padding is not None:
        padding = padding[:, None, None]
        if padding.dtype == torch.bool:
            zeros = torch.zeros(padding.shape, device=query.device, dtype=query.dtype)
            padding = zeros.masked_fill(padding, -torch.inf)
        mask = padding if mask is None else padding + mask
    mixed = attention(projected[0], projected[1], projected[2], mask)
    mixed = mixed.permute(2, 0, 1, 3).flatten(2)
    return linear(mixed, call["out_proj_weight"], call["out_proj_bias"]), None
