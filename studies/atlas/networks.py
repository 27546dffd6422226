"""Small networks for pictures of 32 and 28 pixels: ResNet, DenseNet, ConvNeXt, ViT and a ResNet on the group p4.

All are under two million weights, and all but the attention see a last map of a quarter of the picture's
side (8 × 8 or 7 × 7), so that methods which read it are compared at one resolution. Every activation is a module of its
own. `NETWORKS` has every network of the atlas by its key, in order of importance; a study file names one as

    model: {source: "file:weights/cifar10-resnet-s0.safetensors", architecture: "python:networks.py:cifar10_resnet"}
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 10
TURNS = 4


class Mean(nn.Module):
    """The mean over positions: (B, C, H, W) to (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def network(stem: nn.Module, blocks: Sequence[nn.Module], *head: nn.Module) -> nn.Sequential:
    """Stem, blocks and head under these names."""
    parts = OrderedDict(stem=stem, blocks=nn.Sequential(*blocks), head=nn.Sequential(*head))
    return nn.Sequential(parts)


# ResNet, plain or on p4: the two differ in their convolution and their norm alone.

Convolution = Callable[[int, int, int], nn.Module]


def convolution(into: int, out: int, size: int) -> nn.Module:
    """A convolution that keeps the size of a map."""
    return nn.Conv2d(into, out, size, padding=size // 2, bias=False)


class Residual(nn.Module):
    """Two convolutions and a shortcut (He et al. 2016). A map is halved by the mean of 2 × 2, which turns with it."""

    def __init__(
        self,
        into: int,
        out: int,
        halve: bool,
        conv: Convolution = convolution,
        norm: type[nn.Module] = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        self.halve = nn.AvgPool2d(2) if halve else nn.Identity()
        self.conv1, self.norm1, self.relu1 = conv(into, out, 3), norm(out), nn.ReLU()
        self.conv2, self.norm2, self.relu2 = conv(out, out, 3), norm(out), nn.ReLU()
        same = into == out
        self.shortcut = nn.Identity() if same else nn.Sequential(conv(into, out, 1), norm(out))

    def forward(self, x: Tensor) -> Tensor:
        x = self.halve(x)
        inner = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
        return self.relu2(inner + self.shortcut(x))


def resnet(channels: int = 3, widths: Sequence[int] = (32, 64, 128), depth: int = 3) -> nn.Module:
    """A ResNet-20 of twice the usual width: 1.1 million weights."""
    stem = nn.Sequential(convolution(channels, widths[0], 3), nn.BatchNorm2d(widths[0]), nn.ReLU())
    return network(stem, _stages(widths, depth), Mean(), nn.Linear(widths[-1], CLASSES))


def _stages(
    widths: Sequence[int],
    depth: int,
    conv: Convolution = convolution,
    norm: type[nn.Module] = nn.BatchNorm2d,
) -> list[nn.Module]:
    before = (widths[0], *widths)
    return [
        Residual(
            before[stage] if i == 0 else width,
            width,
            halve=i == 0 and stage > 0,
            conv=conv,
            norm=norm,
        )
        for stage, width in enumerate(widths)
        for i in range(depth)
    ]


class P4Conv(nn.Module):
    """Convolution over the group of shifts and quarter turns (Cohen and Welling 2016).

    Maps are (B, 4·C, H, W), four orientations a channel; `lifts`: the input is a picture and has none. Filter r of a
    channel is the first turned r times, its own orientations moved on r times.
    """

    def __init__(self, into: int, out: int, size: int, lifts: bool = False) -> None:
        super().__init__()
        self.orientations = 1 if lifts else TURNS
        self.weight = nn.Parameter(torch.empty(out, into * self.orientations, size, size))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        filters = self.weight.unflatten(1, (-1, self.orientations))
        turned = [torch.rot90(filters, r, (3, 4)).roll(r, 2).flatten(1, 2) for r in range(TURNS)]
        return F.conv2d(x, torch.stack(turned, 1).flatten(0, 1), padding=self.weight.shape[-1] // 2)


class P4Norm(nn.BatchNorm2d):
    """Batch norm with one mean and one variance for the four orientations of a channel."""

    def forward(self, x: Tensor) -> Tensor:
        assert (
            self.running_mean is not None
            and self.running_var is not None
            and self.num_batches_tracked is not None
        )
        if not self.training:  # by a function that explainers know
            each = [
                t.repeat_interleave(TURNS)
                for t in (self.running_mean, self.running_var, self.weight, self.bias)
            ]
            return F.batch_norm(x, *each, training=False, eps=self.eps)
        # By hand, since a reshape for the library's own would copy every map.
        spread, means = torch.var_mean(x.float(), (0, 2, 3), correction=0)
        between, mean = torch.var_mean(means.unflatten(0, (-1, TURNS)), 1, correction=0)
        var = spread.unflatten(0, (-1, TURNS)).mean(1) + between
        with torch.no_grad():
            count = TURNS * x.shape[0] * x.shape[2] * x.shape[3]
            self.num_batches_tracked += 1
            share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(var * count / (count - 1), share)
        scale = self.weight * (var + self.eps).rsqrt()
        wide = [
            t.to(x.dtype).repeat_interleave(TURNS)[:, None, None]
            for t in (self.bias - mean * scale, scale)
        ]
        return torch.addcmul(wide[0], x, wide[1])


class Orientations(nn.Module):
    """The mean over positions and orientations: (B, 4·C, H, W) to (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)).unflatten(1, (-1, TURNS)).mean(2)


def p4resnet(channels: int = 3, widths: Sequence[int] = (8, 16, 32), depth: int = 3) -> nn.Module:
    """The same ResNet on p4, as wide with all orientations: its scores do not change under quarter turns."""
    stem = nn.Sequential(P4Conv(channels, widths[0], 3, lifts=True), P4Norm(widths[0]), nn.ReLU())
    return network(
        stem, _stages(widths, depth, P4Conv, P4Norm), Orientations(), nn.Linear(widths[-1], CLASSES)
    )


# DenseNet


class Dense(nn.Module):
    """A bottleneck and a convolution whose maps are put beside what came in (Huang et al. 2017)."""

    def __init__(self, into: int, growth: int) -> None:
        super().__init__()
        inner = 4 * growth
        self.inner = nn.Sequential(nn.BatchNorm2d(into), nn.ReLU(), convolution(into, inner, 1))
        self.outer = nn.Sequential(nn.BatchNorm2d(inner), nn.ReLU(), convolution(inner, growth, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.outer(self.inner(x))], 1)


def densenet(channels: int = 3, growth: int = 24, depth: int = 6, stages: int = 3) -> nn.Module:
    """A DenseNet-BC of 40 layers: 0.7 million weights."""
    width = 2 * growth
    blocks: list[nn.Module] = []
    for stage in range(stages):
        if stage:
            half = width // 2
            blocks.append(
                nn.Sequential(
                    nn.BatchNorm2d(width), nn.ReLU(), convolution(width, half, 1), nn.AvgPool2d(2)
                )
            )
            width = half
        blocks += [Dense(width + i * growth, growth) for i in range(depth)]
        width += depth * growth
    blocks += [nn.BatchNorm2d(width), nn.ReLU()]
    return network(convolution(channels, 2 * growth, 3), blocks, Mean(), nn.Linear(width, CLASSES))


# ConvNeXt


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    """Depthwise 7 × 7, norm, and a widening pair of 1 × 1 with GELU, scaled and added (Liu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = ChannelNorm(width)
        self.widen, self.gelu, self.narrow = (
            nn.Conv2d(width, 4 * width, 1),
            nn.GELU(),
            nn.Conv2d(4 * width, width, 1),
        )
        self.scale = nn.Parameter(torch.full((1, width, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.narrow(self.gelu(self.widen(self.norm(self.depthwise(x)))))


def convnext(
    channels: int = 3, widths: Sequence[int] = (64, 160), depths: Sequence[int] = (3, 5)
) -> nn.Module:
    """A ConvNeXt of two stages with patches of 2: 1.2 million weights."""
    first, second = widths
    stem = nn.Sequential(nn.Conv2d(channels, first, 2, 2), ChannelNorm(first))
    blocks = [NextBlock(first) for _ in range(depths[0])]
    blocks.append(nn.Sequential(ChannelNorm(first), nn.Conv2d(first, second, 2, 2)))
    blocks += [NextBlock(second) for _ in range(depths[1])]
    return network(stem, blocks, Mean(), nn.LayerNorm(second), nn.Linear(second, CLASSES))


# ViT


class Attention(nn.Module):
    """Self-attention of all tokens (B, L, E)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.into, self.out = (
            heads,
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            self.into(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    """Attention and a two-layer network, each behind a norm and added."""

    def __init__(self, width: int, heads: int, ratio: int = 2) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """A transformer on the tokens of a convolutional stem, read from the mean of its tokens.

    Two convolutions in place of patches are what lets so small a transformer learn from so few pictures (Hassani et
    al. 2021, "Escaping the big data paradigm").
    """

    num_prefix_tokens = 0

    def __init__(self, channels: int, side: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        half = width // 2
        self.stem = nn.Sequential(
            *(nn.Conv2d(channels, half, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(half, width, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.position = nn.Parameter(0.02 * torch.randn(1, (side // 4) ** 2, width))
        self.blocks = nn.Sequential(*(Encoder(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(1))


def vit(channels: int = 3, width: int = 160, depth: int = 6, heads: int = 5) -> nn.Module:
    """Six layers of width 160: 1.4 million weights."""
    return ViT(channels, SIDES[channels], width, depth, heads)


# The networks of the atlas

SIDES = {3: 32, 1: 28}
ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {
    "resnet": resnet,
    "densenet": densenet,
    "convnext": convnext,
    "vit": vit,
    "p4resnet": p4resnet,
}
cifar10_resnet, fashion_resnet = partial(resnet, 3), partial(resnet, 1)
cifar10_densenet, fashion_densenet = partial(densenet, 3), partial(densenet, 1)
cifar10_convnext, fashion_convnext = partial(convnext, 3), partial(convnext, 1)
cifar10_vit, fashion_vit = partial(vit, 3), partial(vit, 1)
cifar10_p4resnet, fashion_p4resnet = partial(p4resnet, 3), partial(p4resnet, 1)
"""What a study file names as an architecture: a function without parameters."""


@dataclass(frozen=True)
class Network:
    """One network of the atlas: data, architecture, seed and what is special in its training or its form."""

    data: str
    architecture: str
    seed: int
    variant: str = "plain"

    @property
    def key(self) -> str:
        """The name in every table: cifar10-resnet-s0, cifar10-resnet-rotated-s1."""
        between = "-rotated" if self.variant == "augmented" else ""
        return f"{self.data}-{self.architecture}{between}-s{self.seed}"

    @property
    def family(self) -> str:
        """Transformer or convolutional."""
        return "transformer" if self.architecture == "vit" else "convolutional"

    @property
    def source(self) -> str:
        """The architecture as a study file has it, relative to this folder."""
        return f"python:networks.py:{self.data}_{self.architecture}"

    def build(self) -> nn.Module:
        """The network with weights drawn from the seed; the caller's random state stays as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return ARCHITECTURES[self.architecture](1 if self.data == "fashion" else 3)


def _planned() -> dict[str, Network]:
    """Most important first: a seed of each on CIFAR-10, then of each on FashionMNIST, then further seeds."""
    kinds = [("resnet", "plain"), ("vit", "plain"), ("convnext", "plain"), ("densenet", "plain")]
    kinds += [("p4resnet", "equivariant"), ("resnet", "augmented")]
    every = [
        Network(data, name, 0, variant)
        for data in ("cifar10", "fashion")
        for name, variant in kinds
    ]
    every += [Network("cifar10", name, 1, variant) for name, variant in kinds]
    every += [Network("cifar10", "resnet", seed) for seed in (2, 3, 4)]
    every += [Network("fashion", name, 1, variant) for name, variant in kinds]
    return {net.key: net for net in every}


NETWORKS: dict[str, Network] = _planned()
