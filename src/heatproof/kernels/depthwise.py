"""Depthwise convolutions without a stride on a GPU: the forward pass, and the gradient by the input, which is one as well.

In a depthwise convolution every channel has a filter of its own. For large filters cuDNN takes two to five times as long
on the gradient by the input, which is all that an explainer asks for (`benchmarks/bench_depthwise.py`).

The kernel computes 7 neighbours in a row of the output together. Neighbours use almost the same inputs, so each input is
read once and added, times the weight that belongs to it, to the sum of each of the seven. The limit of 7 weights in a row
of the filter, and the code that is written out seven times, come from Triton, which has no lists.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.grad import conv2d_weight

from heatproof.kernels import AVAILABLE

_OUTPUTS = 7
"""Neighbours in a row of the output that are computed together; the width of most feature maps is a multiple of it."""
_STRIPS, _CHANNELS, _WARPS = 16, 32, 4

if AVAILABLE:
    import triton
    import triton.language as tl

    # Sums and weights have one name each, because Triton has no lists, and before 3.3 no tuples.

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _add_weighted(  # type: ignore[no-untyped-def]
        total, value, w0, w1, w2, w3, w4, w5, w6, COLUMN: tl.constexpr, WIDTH: tl.constexpr
    ):
        """Return total + value · w[COLUMN], for a row of the filter with WIDTH weights; total if COLUMN is outside."""
        if COLUMN >= 0 and COLUMN < WIDTH:
            if COLUMN == 0:
                total += value * w0
            elif COLUMN == 1:
                total += value * w1
            elif COLUMN == 2:
                total += value * w2
            elif COLUMN == 3:
                total += value * w3
            elif COLUMN == 4:
                total += value * w4
            elif COLUMN == 5:
                total += value * w5
            else:
                total += value * w6
        return total

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _weight(row, COLUMN: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr, inside):  # type: ignore[no-untyped-def]
        """Return the weights of a block of channels at one column of the filter; some weight if COLUMN is outside."""
        return tl.load(row + (COLUMN if COLUMN < WIDTH else 0) * STEP, mask=inside, other=0.0).to(
            tl.float32
        )[None, :]

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _depthwise_kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations in a way of its own
        x, taps, bias, out, strips,
        CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
        OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
        FILTER_HEIGHT: tl.constexpr, FILTER_WIDTH: tl.constexpr,
        PADDING_ABOVE: tl.constexpr, PADDING_LEFT: tl.constexpr,
        FLIPPED: tl.constexpr, BIASED: tl.constexpr,
        OUTPUTS: tl.constexpr, STRIPS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """Convolve images with a filter for each channel; one program computes STRIPS strips for BLOCK channels.

        A strip is OUTPUTS = 7 neighbouring outputs in a row, computed together because they use almost the same inputs.
        x and out are in channels-last order, taps (FILTER_HEIGHT · FILTER_WIDTH, CHANNELS). With FLIPPED the filters are
        read from their last weight to their first, which rotates them by 180°, as the gradient by the input needs.
        """
        strip = tl.program_id(0) * STRIPS + tl.arange(0, STRIPS)
        channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        is_strip, is_channel = strip < strips, channel < CHANNELS
        strips_per_row = (OUT_WIDTH + OUTPUTS - 1) // OUTPUTS
        start = (strip % strips_per_row) * OUTPUTS
        y = (strip // strips_per_row) % OUT_HEIGHT
        image = (strip // (strips_per_row * OUT_HEIGHT)).to(tl.int64)
        if BIASED:
            initial = tl.load(bias + channel, mask=is_channel, other=0.0).to(tl.float32)[None, :]
        else:
            initial = tl.zeros([1, BLOCK], tl.float32)
        total0 = tl.zeros([STRIPS, BLOCK], tl.float32) + initial
        total1, total2, total3, total4, total5, total6 = (
            total0,
            total0,
            total0,
            total0,
            total0,
            total0,
        )
        for dy in range(FILTER_HEIGHT):
            row = y + dy - PADDING_ABOVE
            is_row = is_strip & (row >= 0) & (row < HEIGHT)
            first_input = (
                x
                + ((image * HEIGHT + row) * WIDTH + start - PADDING_LEFT)[:, None] * CHANNELS
                + channel[None, :]
            )
            step = -CHANNELS if FLIPPED else CHANNELS
            filter_row = (
                taps
                + (
                    (FILTER_HEIGHT * FILTER_WIDTH - 1 - dy * FILTER_WIDTH)
                    if FLIPPED
                    else dy * FILTER_WIDTH
                )
                * CHANNELS
                + channel
            )
            w0 = _weight(filter_row, 0, FILTER_WIDTH, step, is_channel)
            w1 = _weight(filter_row, 1, FILTER_WIDTH, step, is_channel)
            w2 = _weight(filter_row, 2, FILTER_WIDTH, step, is_channel)
            w3 = _weight(filter_row, 3, FILTER_WIDTH, step, is_channel)
            w4 = _weight(filter_row, 4, FILTER_WIDTH, step, is_channel)
            w5 = _weight(filter_row, 5, FILTER_WIDTH, step, is_channel)
            w6 = _weight(filter_row, 6, FILTER_WIDTH, step, is_channel)
            # Input j of the strip meets weight j of the filter's row for output 0, weight j − 1 for output 1, and so on.
            for j in tl.static_range(OUTPUTS - 1 + FILTER_WIDTH):
                column = start + j - PADDING_LEFT
                is_input = is_row & (column >= 0) & (column < WIDTH)
                value = tl.load(
                    first_input + j * CHANNELS,
                    mask=is_input[:, None] & is_channel[None, :],
                    other=0.0,
                ).to(tl.float32)
                total0 = _add_weighted(total0, value, w0, w1, w2, w3, w4, w5, w6, j, FILTER_WIDTH)
                total1 = _add_weighted(
                    total1, value, w0, w1, w2, w3, w4, w5, w6, j - 1, FILTER_WIDTH
                )
                total2 = _add_weighted(
                    total2, value, w0, w1, w2, w3, w4, w5, w6, j - 2, FILTER_WIDTH
                )
                total3 = _add_weighted(
                    total3, value, w0, w1, w2, w3, w4, w5, w6, j - 3, FILTER_WIDTH
                )
                total4 = _add_weighted(
                    total4, value, w0, w1, w2, w3, w4, w5, w6, j - 4, FILTER_WIDTH
                )
                total5 = _add_weighted(
                    total5, value, w0, w1, w2, w3, w4, w5, w6, j - 5, FILTER_WIDTH
                )
                total6 = _add_weighted(
                    total6, value, w0, w1, w2, w3, w4, w5, w6, j - 6, FILTER_WIDTH
                )
        first_output = (
            out
            + ((image * OUT_HEIGHT + y) * OUT_WIDTH + start)[:, None] * CHANNELS
            + channel[None, :]
        )
        fits = is_strip[:, None] & is_channel[None, :]
        tl.store(first_output, total0, mask=fits)
        tl.store(first_output + CHANNELS, total1, mask=fits & (start + 1 < OUT_WIDTH)[:, None])
        tl.store(first_output + 2 * CHANNELS, total2, mask=fits & (start + 2 < OUT_WIDTH)[:, None])
        tl.store(first_output + 3 * CHANNELS, total3, mask=fits & (start + 3 < OUT_WIDTH)[:, None])
        tl.store(first_output + 4 * CHANNELS, total4, mask=fits & (start + 4 < OUT_WIDTH)[:, None])
        tl.store(first_output + 5 * CHANNELS, total5, mask=fits & (start + 5 < OUT_WIDTH)[:, None])
        tl.store(first_output + 6 * CHANNELS, total6, mask=fits & (start + 6 < OUT_WIDTH)[:, None])


def _convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int], flipped: bool
) -> Tensor:
    """Return x (B, C, H, W) convolved with a filter for each channel, by launching the GPU kernel.

    `weight` is (C, 1, h, w) and `bias` (C,) or None. With `flipped`, filters are rotated by 180°.
    """
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
    """Keep in `ctx` what the gradients need: the weight, and x only if the weight's gradient is asked for."""
    x, weight, _, ctx.padding, ctx.flipped = inputs
    needs_weight_gradient = ctx.needs_input_grad[1]
    ctx.save_for_backward(x if needs_weight_gradient else None, weight)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of a depthwise convolution by its input, weight and bias; None for those not needed.

    The gradient by the input is a depthwise convolution of the output's gradient with the filters rotated by 180°.
    """
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
