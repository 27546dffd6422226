"""First layers in a form that a GPU differentiates quickly.

A network begins with a convolution of few channels and a stride: patches of a transformer, the 7 × 7 of a ResNet. The
gradient by its input is all that an explainer asks for, and libraries that train networks never do: they have no fast
way for it. The same sums, with blocks of pixels moved into channels first, are a convolution without stride, whose
gradient is one too.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

FEW_CHANNELS = 4


def blocks_in_channels(module: nn.Module) -> None:
    """Let the strided convolutions of few channels in a network, which stays as it is, compute in blocks.

    >>> import torch
    >>> net, x = nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3)), torch.rand(1, 3, 16, 16)
    >>> before = net(x)
    >>> blocks_in_channels(net)
    >>> torch.allclose(net(x), before, atol=1e-5)
    True
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d) and _is_stem(layer):
            layer.forward = partial(strided_convolution, layer)  # type: ignore[method-assign]


def _is_stem(layer: nn.Conv2d) -> bool:
    kind = type(layer)
    own = kind.forward is not nn.Conv2d.forward or kind._conv_forward is not nn.Conv2d._conv_forward
    if own or "forward" in vars(layer):  # some standardise their weights or pad in a way of their own
        return False
    plain = layer.groups == 1 and layer.padding_mode == "zeros" and layer.dilation == (1, 1)
    numbers = not isinstance(layer.padding, str)
    squares = layer.stride[0] == layer.stride[1] > 1
    return plain and numbers and squares and layer.in_channels <= FEW_CHANNELS


def strided_convolution(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """What the layer computes from images (B, C, H, W), without a stride.

    Blocks of stride × stride pixels become channels, and the kernel, filled up with zeros to whole blocks, becomes one
    of blocks.
    """
    assert not isinstance(layer.padding, str)
    stride = layer.stride[0]
    around, filling = [], []  # at the left, the right, above and below, as `pad` takes them
    for size, kernel, padding in zip(x.shape[:1:-1], layer.kernel_size[::-1], layer.padding[::-1], strict=True):
        blocks = -(-kernel // stride)
        steps = (size + 2 * padding - kernel) // stride + 1
        around += [padding, stride * (steps + blocks - 1) - size - padding]
        filling += [0, stride * blocks - kernel]
    pixels, weight = F.pad(x, around), F.pad(layer.weight, filling)
    return F.conv2d(F.pixel_unshuffle(pixels, stride), F.pixel_unshuffle(weight, stride), layer.bias)
