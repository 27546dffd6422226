"""Depthwise convolutions without a stride: the forward pass, and the gradient by the input, which is one as well.

For large filters cuDNN takes two to five times as long on the gradient by the input, which is all that an explainer
asks for (`benchmarks/bench_depthwise.py`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.grad import conv2d_weight

from heatproof.kernels import AVAILABLE

_OUTPUTS = 7
"""Neighbours in a row that share what one program reads; the width of most feature maps is a multiple of it."""
_STRIPS, _CHANNELS, _WARPS = 16, 32, 4

if AVAILABLE:
    import triton
    import triton.language as tl

    # Numbers have one name each, because Triton has no lists, and before 3.3 no tuples.

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _tap(total, value, w0, w1, w2, w3, w4, w5, w6, PLACE: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
        """Return the sum plus a value times the weight at a place of the filter's row, if that place exists."""
        if PLACE >= 0 and PLACE < WIDTH:
            if PLACE == 0:
                total += value * w0
            elif PLACE == 1:
                total += value * w1
            elif PLACE == 2:
                total += value * w2
            elif PLACE == 3:
                total += value * w3
            elif PLACE == 4:
                total += value * w4
            elif PLACE == 5:
                total += value * w5
            else:
                total += value * w6
        return total

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _weight(row, PLACE: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr, inside):  # type: ignore[no-untyped-def]
        return tl.load(row + (PLACE if PLACE < WIDTH else 0) * STEP, mask=inside, other=0.0).to(
            tl.float32
        )[None, :]

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _depthwise_kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations in a way of its own
        x, taps, bias, out, strips,
        CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
        OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
        ABOVE: tl.constexpr, LEFT: tl.constexpr, FLIPPED: tl.constexpr, BIASED: tl.constexpr,
        OUTPUTS: tl.constexpr, STRIPS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """Strips of 7 neighbours in a row of the output: each value that they share is read once for all of them."""
        strip = tl.program_id(0) * STRIPS + tl.arange(0, STRIPS)
        channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        exists, known = strip < strips, channel < CHANNELS
        across = (OUT_WIDTH + OUTPUTS - 1) // OUTPUTS
        start = (strip % across) * OUTPUTS
        y = (strip // across) % OUT_HEIGHT
        image = (strip // (across * OUT_HEIGHT)).to(tl.int64)
        if BIASED:
            first = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)[None, :]
        else:
            first = tl.zeros([1, BLOCK], tl.float32)
        total0 = tl.zeros([STRIPS, BLOCK], tl.float32) + first
        total1, total2, total3, total4, total5, total6 = (
            total0,
            total0,
            total0,
            total0,
            total0,
            total0,
        )
        for dy in range(TALL):
            row = y + dy - ABOVE
            seen = exists & (row >= 0) & (row < HEIGHT)
            here = (
                x
                + ((image * HEIGHT + row) * WIDTH + start - LEFT)[:, None] * CHANNELS
                + channel[None, :]
            )
            step = -CHANNELS if FLIPPED else CHANNELS
            line = (
                taps
                + ((TALL * WIDE - 1 - dy * WIDE) if FLIPPED else dy * WIDE) * CHANNELS
                + channel
            )
            w0 = _weight(line, 0, WIDE, step, known)
            w1 = _weight(line, 1, WIDE, step, known)
            w2 = _weight(line, 2, WIDE, step, known)
            w3 = _weight(line, 3, WIDE, step, known)
            w4 = _weight(line, 4, WIDE, step, known)
            w5 = _weight(line, 5, WIDE, step, known)
            w6 = _weight(line, 6, WIDE, step, known)
            for j in tl.static_range(OUTPUTS - 1 + WIDE):
                column = start + j - LEFT
                there = seen & (column >= 0) & (column < WIDTH)
                value = tl.load(
                    here + j * CHANNELS, mask=there[:, None] & known[None, :], other=0.0
                ).to(tl.float32)
                total0 = _tap(total0, value, w0, w1, w2, w3, w4, w5, w6, j, WIDE)
                total1 = _tap(total1, value, w0, w1, w2, w3, w4, w5, w6, j - 1, WIDE)
                total2 = _tap(total2, value, w0, w1, w2, w3, w4, w5, w6, j - 2, WIDE)
                total3 = _tap(total3, value, w0, w1, w2, w3, w4, w5, w6, j - 3, WIDE)
                total4 = _tap(total4, value, w0, w1, w2, w3, w4, w5, w6, j - 4, WIDE)
                total5 = _tap(total5, value, w0, w1, w2, w3, w4, w5, w6, j - 5, WIDE)
                total6 = _tap(total6, value, w0, w1, w2, w3, w4, w5, w6, j - 6, WIDE)
        place = (
            out
            + ((image * OUT_HEIGHT + y) * OUT_WIDTH + start)[:, None] * CHANNELS
            + channel[None, :]
        )
        fits = exists[:, None] & known[None, :]
        tl.store(place, total0, mask=fits)
        tl.store(place + CHANNELS, total1, mask=fits & (start + 1 < OUT_WIDTH)[:, None])
        tl.store(place + 2 * CHANNELS, total2, mask=fits & (start + 2 < OUT_WIDTH)[:, None])
        tl.store(place + 3 * CHANNELS, total3, mask=fits & (start + 3 < OUT_WIDTH)[:, None])
        tl.store(place + 4 * CHANNELS, total4, mask=fits & (start + 4 < OUT_WIDTH)[:, None])
        tl.store(place + 5 * CHANNELS, total5, mask=fits & (start + 5 < OUT_WIDTH)[:, None])
        tl.store(place + 6 * CHANNELS, total6, mask=fits & (start + 6 < OUT_WIDTH)[:, None])


def _convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int], flipped: bool
) -> Tensor:
    """Launch the kernel; see `depthwise`."""
    out = _empty_output(x, weight, padding)
    if not out.numel():
        return out
    x = x.contiguous(memory_format=torch.channels_last)
    taps = weight.flatten(1).t().contiguous()
    count, channels, height, width = x.shape
    filter_height, filter_width = weight.shape[2:]
    out_height, out_width = out.shape[2:]
    strips = count * out_height * math.ceil(out_width / _OUTPUTS)
    grid = (math.ceil(strips / _STRIPS), math.ceil(channels / _CHANNELS))
    _depthwise_kernel[grid](
        x,
        taps,
        taps if bias is None else bias,  # not read without a bias
        out,
        strips,
        channels,
        height,
        width,
        out_height,
        out_width,
        filter_height,
        filter_width,
        *padding,
        flipped,
        bias is not None,
        _OUTPUTS,
        _STRIPS,
        _CHANNELS,
        num_warps=_WARPS,
        enable_fp_fusion=True,
    )
    return out


def _empty_output(x: Tensor, weight: Tensor, padding: list[int]) -> Tensor:
    """Return an uninitialised tensor in the shape of the output."""
    sizes = []
    for side, pad, taps in zip(x.shape[2:], padding, weight.shape[2:], strict=True):
        sizes.append(side + 2 * pad - taps + 1)
    shape = (*x.shape[:2], *sizes)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


# The schema is written out, because torch before 2.5 does not read annotations that are text.
_SCHEMA = "(Tensor x, Tensor weight, Tensor? bias, SymInt[] padding, bool flipped=False) -> Tensor"


@torch.library.custom_op("heatproof::depthwise", mutates_args=(), schema=_SCHEMA)
def depthwise(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int], flipped: bool = False
) -> Tensor:
    """Return images convolved with a filter (C, 1, h, w) for each channel, (B, C, H', W').

    With `flipped`, filters are rotated by 180°: these, with another padding, take a gradient back to the input.
    """
    return _convolved(x, weight, bias, padding, flipped)


@depthwise.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int], flipped: bool = False
) -> Tensor:
    return _empty_output(x, weight, padding)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, ctx.padding, ctx.flipped = inputs
    needs_weight_gradient = ctx.needs_input_grad[1]
    ctx.save_for_backward(x if needs_weight_gradient else None, weight)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients by input, weight and bias, as far as they are needed."""
    x, weight = ctx.saved_tensors
    by_input = by_weight = by_bias = None
    if ctx.needs_input_grad[0]:
        padding = []
        for taps, pad in zip(weight.shape[2:], ctx.padding, strict=True):
            padding.append(taps - 1 - pad)
        by_input = depthwise(gradient, weight, None, padding, not ctx.flipped)
    if ctx.needs_input_grad[1]:
        by_weight = conv2d_weight(  # type: ignore[no-untyped-call]
            x, weight.shape, gradient, padding=ctx.padding, groups=len(weight)
        )
        if ctx.flipped:
            by_weight = by_weight.flip(2, 3)
    if ctx.needs_input_grad[2]:
        by_bias = gradient.sum((0, 2, 3))
    return by_input, by_weight, by_bias, None, None


depthwise.register_autograd(_backward, setup_context=_save_for_backward)
