"""Convolutions in a form that a GPU differentiates quickly.

The gradient by its input is all that an explainer asks of a layer, and libraries that train networks seldom do: where a
layer is unusual they have no fast way for it. That of the first, which cuts a picture into patches, is never needed
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
"""The most input channels of a layer that is computed in blocks."""
LARGE_FILTERS = (6, 7)
"""Sides of a channel's filter for which the kernel is faster than cuDNN; it takes smaller ones, but gains nothing."""


def quickly_differentiated(module: nn.Module) -> None:
    """Replace the `forward` of convolutions in a network by a faster one with the same result, where there is one.

    >>> import torch
    >>> net, x = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4)), torch.rand(1, 3, 16, 16)
    >>> before = net(x)
    >>> quickly_differentiated(net)
    >>> torch.allclose(net(x), before, atol=1e-5)
    True
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d) and _is_plain(layer):
            if _is_patch_embedding(layer):
                layer.forward = partial(in_blocks, layer)  # type: ignore[method-assign]
            elif _is_by_channel(layer):
                layer.forward = partial(by_channel, layer)  # type: ignore[method-assign]


def _is_plain(layer: nn.Conv2d) -> bool:
    """Whether a layer computes what torch's `Conv2d` does, with zero padding that is given in numbers."""
    kind = type(layer)
    overrides_forward = kind.forward is not nn.Conv2d.forward or "forward" in vars(layer)
    overrides_convolution = kind._conv_forward is not nn.Conv2d._conv_forward
    if overrides_forward or overrides_convolution:
        return False  # some standardise their weights, or pad in their own way
    return (
        layer.padding_mode == "zeros"
        and layer.dilation == (1, 1)
        and not isinstance(layer.padding, str)
    )


def _is_patch_embedding(layer: nn.Conv2d) -> bool:
    """Whether a layer cuts pictures into square patches that do not overlap.

    Where patches overlap, as in the first layers of ResNets, blocks cost 3 to 4 % of the forward passes and bring at most
    5 % of the differentiated ones (see docs/peers.md).
    """
    side = layer.stride[0]
    return (
        layer.groups == 1
        and side > 1
        and layer.kernel_size == layer.stride == (side, side)
        and layer.in_channels <= FEW_CHANNELS
    )


def _is_by_channel(layer: nn.Conv2d) -> bool:
    """Whether a layer has a filter of its own for each channel, of a size at which our kernel is faster."""
    is_depthwise = 1 < layer.groups == layer.in_channels == layer.out_channels
    if not is_depthwise or layer.stride != (1, 1):
        return False
    for padding, size in zip(_padding(layer), layer.kernel_size, strict=True):
        if padding >= size or size not in LARGE_FILTERS:
            return False
    return True


def _padding(layer: nn.Conv2d) -> tuple[int, ...]:
    assert not isinstance(layer.padding, str)  # a plain layer's is in numbers
    return layer.padding


def in_blocks(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Return the output of a patch embedding for images (B, C, H, W), computed as a 1 × 1 convolution, which is faster.

    A patch embedding is a convolution whose stride equals the side of its filters, so patches do not overlap. The pixels
    of a patch become channels of one position.
    """
    side = layer.stride[0]
    padding_of_x: list[int] = []  # left, right, above, below: the order of `pad`, last axis first
    for size, padding in zip(x.shape[:1:-1], _padding(layer)[::-1], strict=True):
        patches = (size + 2 * padding) // side
        # Pixels beyond the last patch are cut off: `pad` takes negative numbers.
        padding_of_x += [padding, side * patches - size - padding]
    x_blocks = _blocks(F.pad(x, padding_of_x), side)
    return F.conv2d(x_blocks, _blocks(layer.weight, side), layer.bias)


def _blocks(x: Tensor, side: int) -> Tensor:
    """Return images (B, C, H, W) with the pixels of each patch as channels, (B, channels, H / side, W / side).

    There are C·side² channels, padded with zeros to a multiple of 8, in channels-last layout: only with these does a GPU
    use its matrix units. Later layers take over the layout.
    """
    count, channels, height, width = x.shape
    split = x.permute(0, 2, 3, 1).reshape(
        count, height // side, side, width // side, side, channels
    )
    blocks = split.transpose(2, 3).flatten(3)
    return F.pad(blocks, (0, -blocks.shape[3] % 8)).permute(0, 3, 1, 2)


def by_channel(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Return the output of a depthwise convolution, which has a filter for each channel; on a GPU by our own kernel."""
    padding = _padding(layer)
    # Torch-function modes, by which some explainers watch a network, know torch's own convolution.
    is_watched = torch._C._len_torch_function_stack()
    if not fused(x) or x.ndim != 4 or is_watched:
        return F.conv2d(x, layer.weight, layer.bias, padding=padding, groups=layer.groups)
    from heatproof.kernels.depthwise import depthwise

    output: Tensor = depthwise(x, layer.weight, layer.bias, list(padding))
    return output
