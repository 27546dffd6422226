"""Wide ResNets that are equivariant to the rotations by 90° and reflections of a picture, exactly.

`WideResNet(depth=28, widen=10)` and `(depth=16, widen=8)` are those of Table 11 of the paper on explanation invariance
(CIFAR-100 and STL-10), whose groups D8-D4-D1 are `groups=("D4", "D4", "D1")` here: rotations by 45° interpolate, and the
paper tests D4 alone. With the last stage on D1 the network is only nearly invariant to D4, as the paper's is; with D4
throughout it is exactly invariant, up to rounding, on pictures whose sides are divisible by 4.

The paper takes them from escnn. That package needs a Fortran compiler where py3nj has no wheel, and is not needed: on pixels
D4 is exact, so the filters of one orientation are those of another, turned.

    python studies/wide_resnet.py              # equivariance error of every stage, on random pictures
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import groups
from heatproof.models.randomised import seeded

D4 = groups.dihedral(4)
SUBGROUPS = {"D4": (0, 1, 2, 3, 4, 5, 6, 7), "C4": (0, 1, 2, 3), "D1": (0, 4), "1": (0,)}
"""Groups by name, as elements of D4: element r + 4 m mirrors left and right if m = 1, then turns by r quarters."""
STAGES = (16, 32, 64)
"""Channels of the three stages of a ResNet that is not widened."""


def product(g: int, h: int) -> int:
    """The element gh of D4."""
    return int(D4.compose(torch.tensor(g), torch.tensor(h)))


def inverse(g: int) -> int:
    """The inverse of an element of D4."""
    return int(D4.inverse(torch.tensor(g)))


def move_features(element: int, maps: Tensor, group: str) -> Tensor:
    """Move feature maps (B, C·|G|, H, W) as an element h of G moves the picture: f(g) becomes h·f(h⁻¹g) (regular)."""
    elements = SUBGROUPS[group]
    source = [elements.index(product(inverse(element), g)) for g in elements]
    by_orientation = maps.unflatten(1, (-1, len(elements)))[:, :, source]
    return D4.move(torch.tensor(element), by_orientation.flatten(1, 2))


class GroupConv(nn.Module):
    """A convolution over shifts and a subgroup G of D4 (Cohen and Welling 2016), (B, into·|G|, H, W) to (B, out·|G|, H, W).

    The filter of the output orientation g is W_g(h) = g·w(g⁻¹h): the filter of the first orientation, moved by g, its
    own orientations h in their new places. `lifts`: the input is a picture (B, into, H, W), without orientations.
    """

    def __init__(self, into: int, out: int, size: int, group: str, lifts: bool = False) -> None:
        super().__init__()
        self.elements = SUBGROUPS[group]
        self.lifts = lifts
        orientations = 1 if lifts else len(self.elements)
        self.weight = nn.Parameter(torch.empty(out, into, orientations, size, size))
        fan_out = out * len(self.elements) * size * size
        nn.init.normal_(self.weight, std=math.sqrt(2 / fan_out))

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps of every orientation."""
        filters = torch.stack([self._moved_filter(g) for g in self.elements], 1)
        return F.conv2d(x, filters.flatten(0, 1), padding=self.weight.shape[-1] // 2)

    def _moved_filter(self, g: int) -> Tensor:
        """The filters (out, into·orientations, size, size) of the output orientation g."""
        weight = self.weight
        if not self.lifts:
            source = [self.elements.index(product(inverse(g), h)) for h in self.elements]
            weight = weight[:, :, source]
        return D4.move(torch.tensor(g), weight.flatten(1, 2))


class GroupNorm(nn.Module):
    """Batch norm with one mean and one variance for all orientations of a channel."""

    def __init__(self, channels: int, group: str) -> None:
        super().__init__()
        self.orientations = len(SUBGROUPS[group])
        self.norm = nn.BatchNorm3d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised feature maps (B, C·|G|, H, W)."""
        by_orientation = x.unflatten(1, (-1, self.orientations))
        return self.norm(by_orientation).flatten(1, 2)


class Restriction(nn.Module):
    """Feature maps of a group G as those of a subgroup S, (B, C·|G|, H, W) in another order.

    The orientations S·g of a coset are those of one channel of S, so that C channels become C·|G|/|S|.
    """

    def __init__(self, group: str, subgroup: str) -> None:
        super().__init__()
        elements, smaller = SUBGROUPS[group], SUBGROUPS[subgroup]
        order: list[int] = []
        for g in elements:
            coset = [elements.index(product(s, g)) for s in smaller]
            if coset[0] not in order:
                order += coset
        self.order, self.orientations = order, len(elements)

    def forward(self, x: Tensor) -> Tensor:
        """The same maps."""
        return x.unflatten(1, (-1, self.orientations))[:, :, self.order].flatten(1, 2)


class WideBlock(nn.Module):
    """Norm, ReLU and convolution, twice, and a shortcut (Zagoruyko and Komodakis 2016).

    Maps are halved by the mean of 2 × 2, which turns with them; a convolution with a stride does not.
    """

    def __init__(self, into: int, out: int, group: str, halve: bool) -> None:
        super().__init__()
        self.norm1, self.relu1 = GroupNorm(into, group), nn.ReLU()
        self.halve = nn.AvgPool2d(2) if halve else nn.Identity()
        self.conv1 = GroupConv(into, out, 3, group)
        self.norm2, self.relu2 = GroupNorm(out, group), nn.ReLU()
        self.conv2 = GroupConv(out, out, 3, group)
        self.shortcut = nn.Identity() if into == out else GroupConv(into, out, 1, group)

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps (B, out·|G|, H, W)."""
        x = self.halve(self.relu1(self.norm1(x)))
        inner = self.conv2(self.relu2(self.norm2(self.conv1(x))))
        out: Tensor = inner + self.shortcut(x)
        return out


class Pool(nn.Module):
    """The mean over positions and orientations, (B, C·|G|, H, W) to (B, C): invariant to G."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self.orientations = len(SUBGROUPS[group])

    def forward(self, x: Tensor) -> Tensor:
        """The means."""
        return x.mean((2, 3)).unflatten(1, (-1, self.orientations)).mean(2)


class WideResNet(nn.Module):
    """A Wide ResNet of `depth` 6 n + 4 layers, `widen` times as wide, each of its three stages on a subgroup of D4.

    | layer | what it is |
    |---|---|
    | stem | equivariant; the paper's "Equiv" layer |
    | stages | equivariant; its last output is the paper's "Inv" layer, which is before the pooling and not invariant |
    | pool | invariant to the smallest group |

    A channel has |G| orientations, so a stage has 1/|G| of the usual number of channels, and takes as long.

    >>> net = WideResNet(classes=10, depth=10, widen=1).eval().double()
    >>> x = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    >>> torch.allclose(net(x), net(D4.move(torch.tensor(5), x)), atol=1e-9)
    True
    """

    def __init__(
        self,
        classes: int = 10,
        depth: int = 16,
        widen: int = 8,
        groups: Sequence[str] = ("D4", "D4", "D4"),
        channels: int = 3,
    ) -> None:
        super().__init__()
        if (depth - 4) % 6:
            raise ValueError(f"depth must be 6 n + 4, such as 10, 16 or 28, got {depth}")
        widths = [
            max(1, widen * width // len(SUBGROUPS[group]))
            for width, group in zip(STAGES, groups, strict=True)
        ]
        first = max(1, STAGES[0] // len(SUBGROUPS[groups[0]]))
        self.stem = GroupConv(channels, first, 3, groups[0], lifts=True)
        stages: list[nn.Module] = []
        into, group_before = first, groups[0]
        for number, (width, group) in enumerate(zip(widths, groups, strict=True)):
            if group != group_before:
                stages.append(Restriction(group_before, group))
                into = into * len(SUBGROUPS[group_before]) // len(SUBGROUPS[group])
            for i in range((depth - 4) // 6):
                stages.append(WideBlock(into, width, group, halve=number > 0 and i == 0))
                into = width
            group_before = group
        self.stages = nn.Sequential(*stages)
        self.norm, self.relu = GroupNorm(into, group_before), nn.ReLU()
        self.pool = Pool(group_before)
        self.head = nn.Linear(into, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes) of pictures (B, channels, H, W)."""
        features = self.relu(self.norm(self.stages(self.stem(x))))
        scores: Tensor = self.head(self.pool(features))
        return scores


def largest_error(net: WideResNet, x: Tensor) -> dict[str, float]:
    """The largest change of the scores under each of the eight moves of D4, relative to how far apart two samples are."""
    with torch.no_grad():
        clean = net(x)
        unit = float((clean[0] - clean[1]).abs().max())
        return {
            f"turn {90 * (g % 4)}°{', mirrored' if g >= 4 else ''}": float(
                (net(D4.move(torch.tensor(g), x)) - clean).abs().max()
            )
            / unit
            for g in range(8)
        }


def main() -> None:
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for names in (("D4", "D4", "D4"), ("D4", "D4", "D1"), ("1", "1", "1")):
        build = partial(WideResNet, depth=10, widen=1, groups=names)
        net = seeded(build, 0).double().eval()
        errors = largest_error(net, x)
        print("-".join(names), {move: f"{error:.1e}" for move, error in errors.items()})


if __name__ == "__main__":
    main()
