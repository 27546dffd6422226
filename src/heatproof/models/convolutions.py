"""Convolutions in a form that a GPU differentiates quickly.

The gradient by its input is all that an explainer asks of a layer, and libraries that train networks seldom do: where a
layer is unusual they have no fast way for it. That of the first, which has few channels and a stride, is never needed
in training; here blocks of pixels are moved into channels first, and the same sums are a convolution without stride,
whose gradient is one too. That of each channel by itself is a kernel of our own.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heatproof.kernels import fused

FEW_CHANNELS = 4
LARGE_FILTERS = (6, 7)
"""Sides of a channel's filter for which the kernel is faster than cuDNN; it takes smaller ones, but gains nothing."""


def quickly_differentiated(module: nn.Module) -> None:
    """Let the convolutions in a network that have a faster form compute in it; their weights stay as they are.

    >>> import torch
    >>> net, x = nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3)), torch.rand(1, 3, 16, 16)
    >>> before = net(x)
    >>> quickly_differentiated(net)
    >>> torch.allclose(net(x), before, atol=1e-5)
    True
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d) and _is_plain(layer):
            if _is_stem(layer):
                layer.forward = partial(in_blocks, layer)  # type: ignore[method-assign]
            elif _is_by_channel(layer):
                layer.forward = partial(by_channel, layer)  # type: ignore[method-assign]


def _is_plain(layer: nn.Conv2d) -> bool:
    kind = type(layer)
    own = kind.forward is not nn.Conv2d.forward or kind._conv_forward is not nn.Conv2d._conv_forward
    if own or "forward" in vars(
        layer
    ):  # some standardise their weights or pad in a way of their own
        return False
    return (
        layer.padding_mode == "zeros"
        and layer.dilation == (1, 1)
        and not isinstance(layer.padding, str)
    )


def _is_stem(layer: nn.Conv2d) -> bool:
    return (
        layer.groups == 1
        and layer.stride[0] == layer.stride[1] > 1
        and layer.in_channels <= FEW_CHANNELS
    )


def _is_by_channel(layer: nn.Conv2d) -> bool:
    alone = 1 < layer.groups == layer.in_channels == layer.out_channels
    sizes = zip(_padding(layer), layer.kernel_size, strict=True)
    return alone and layer.stride == (1, 1) and all(p < k and k in LARGE_FILTERS for p, k in sizes)


def _padding(layer: nn.Conv2d) -> tuple[int, ...]:
    assert not isinstance(layer.padding, str)  # a plain layer's is in numbers
    return layer.padding


def in_blocks(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """What a strided layer computes from images (B, C, H, W), without a stride.

    Blocks of stride × stride pixels become channels, and the kernel, filled up with zeros to whole blocks, becomes one
    of blocks.
    """
    stride = layer.stride[0]
    around, filling = [], []  # at the left, the right, above and below, as `pad` takes them
    for size, kernel, padding in zip(
        x.shape[:1:-1], layer.kernel_size[::-1], _padding(layer)[::-1], strict=True
    ):
        blocks = -(-kernel // stride)
        steps = (size + 2 * padding - kernel) // stride + 1
        around += [padding, stride * (steps + blocks - 1) - size - padding]
        filling += [0, stride * blocks - kernel]
    pixels, weight = F.pad(x, around), F.pad(layer.weight, filling)
    return F.conv2d(_blocks(pixels, stride), _blocks(weight, stride), layer.bias)


def _blocks(x: Tensor, side: int) -> Tensor:
    """(B, C, H, W) as (B, C·side² and zeros to a multiple of 8, H / side, W / side), channels last.

    Other numbers of channels, and another layout, leave the units that multiply matrices idle; and what comes behind
    the first layer has its layout.
    """
    count, channels, height, width = x.shape
    split = x.permute(0, 2, 3, 1).reshape(
        count, height // side, side, width // side, side, channels
    )
    blocks = split.transpose(2, 3).flatten(3)
    return F.pad(blocks, (0, -blocks.shape[3] % 8)).permute(0, 3, 1, 2)


def by_channel(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """What a layer of a filter for each channel computes, on a GPU by a kernel."""
    padding = _padding(layer)
    if (
        not fused(x) or x.ndim != 4 or torch._C._len_torch_function_stack()
    ):  # who meets functions knows torch's own
        return F.conv2d(x, layer.weight, layer.bias, padding=padding, groups=layer.groups)
    from heatproof.kernels.depthwise import depthwise

    found: Tensor = depthwise(x, layer.weight, layer.bias, list(padding))
    return found
