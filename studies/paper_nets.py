"""The networks of Tables 5 to 10 of the paper on explanation invariance, layer by layer and with the paper's widths.

| class | table | input | invariant to | equivariant layer | invariant layer |
|---|---|---|---|---|---|
| AllCNN1d | 5 | (B, 1, T) beats | cyclic shifts | features | hidden |
| FlatCNN1d | 6 | (B, 1, 187) beats | nothing | features | none |
| MutagenicityGNN | 7 | (B, N, 14) atoms, adjacency, mask | permutations of atoms | layers | hidden |
| MaxDeepSet | 8 | (B, N, 3) points | permutations of points | elements | hidden |
| AllCNN2d | 9 | (B, 1, H, W) pictures | cyclic shifts | features | hidden |
| FlatCNN2d | 10 | (B, 1, 48, 48) padded pictures | nothing | features | none |

Where a table cannot be as it is printed, the network has what the text of the paper says:

- Table 10 has 294,912 inputs of the first linear layer, which is 128 · 48 · 48, the size before three poolings; it is
  128 · 6 · 6 = 4,608. It has two outputs, and FashionMNIST has ten classes.
- Tables 6 and 10 call a linear layer on flattened maps "Inv"; it is not invariant. Their first layer has no activation.
- Table 8 ends in a tanh, so that scores lie in [−1, 1] and the cross-entropy cannot fall below
  log(1 + (classes − 1) e⁻²); `bounded=False` leaves it off.
- Table 7 ends in a log softmax, which is left to the loss.
"""

from __future__ import annotations

from typing import cast

import torch
from nets import Mean
from torch import Tensor, nn


def _circular_block(kind: type[nn.Conv1d] | type[nn.Conv2d], into: int, out: int) -> nn.Module:
    """The convolution of Tables 5, 6, 9 and 10."""
    return kind(into, out, kernel_size=3, stride=1, padding=1, padding_mode="circular")


class _AllCNN(nn.Module):
    """Three circular convolutions, the mean over positions and three linear layers."""

    kind: type[nn.Conv1d] | type[nn.Conv2d]

    def __init__(self, classes: int, channels: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(_circular_block(self.kind, channels, 16), nn.ReLU()),
            *(_circular_block(self.kind, 16, 64), nn.ReLU()),
            *(_circular_block(self.kind, 64, 128), nn.ReLU()),
        )
        self.pool = Mean()
        self.hidden = nn.Sequential(nn.Linear(128, 32), nn.LeakyReLU())
        self.head = nn.Sequential(nn.Linear(32, 32), nn.LeakyReLU(), nn.Linear(32, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes)."""
        return cast(Tensor, self.head(self.hidden(self.pool(self.features(x)))))


class AllCNN1d(_AllCNN):
    """Table 5, for heartbeats; exactly invariant to cyclic shifts.

    >>> net, x = AllCNN1d(), torch.rand(2, 1, 187)
    >>> torch.allclose(net(x), net(x.roll(40, -1)), atol=1e-5)
    True
    """

    kind = nn.Conv1d

    def __init__(self, classes: int = 2, channels: int = 1) -> None:
        super().__init__(classes, channels)


class AllCNN2d(_AllCNN):
    """Table 9, for padded pictures of FashionMNIST; exactly invariant to cyclic shifts of rows and columns."""

    kind = nn.Conv2d

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        super().__init__(classes, channels)


class _FlatCNN(nn.Module):
    """Three circular convolutions, each with a pooling that halves the map, and three linear layers on all of the last."""

    kind: type[nn.Conv1d] | type[nn.Conv2d]
    pooling: type[nn.MaxPool1d] | type[nn.MaxPool2d]

    def __init__(self, flat: int, classes: int, channels: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(_circular_block(self.kind, channels, 16), self.pooling(2)),
            *(_circular_block(self.kind, 16, 64), nn.ReLU(), self.pooling(2)),
            *(_circular_block(self.kind, 64, 128), nn.ReLU()),
        )
        self.pool = nn.Sequential(self.pooling(2), nn.Flatten())
        self.hidden = nn.Sequential(nn.Linear(flat, 32), nn.LeakyReLU())
        self.head = nn.Sequential(nn.Linear(32, 32), nn.LeakyReLU(), nn.Linear(32, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes)."""
        return cast(Tensor, self.head(self.hidden(self.pool(self.features(x)))))


class FlatCNN1d(_FlatCNN):
    """Table 6, the Standard-CNN and (trained on shifted beats) the Augmented-CNN of beats of 187 steps."""

    kind, pooling = nn.Conv1d, nn.MaxPool1d

    def __init__(self, classes: int = 2, steps: int = 187) -> None:
        super().__init__(128 * (steps // 8), classes)


class FlatCNN2d(_FlatCNN):
    """Table 10, the Standard-CNN and Augmented-CNN of pictures of 48 × 48: 28, and 10 black pixels on every side."""

    kind, pooling = nn.Conv2d, nn.MaxPool2d

    def __init__(self, classes: int = 10, side: int = 48) -> None:
        super().__init__(128 * (side // 8) ** 2, classes)


class GraphConv(nn.Module):
    """The operator of Morris et al. (2019): W₁ x_i + W₂ Σ_j a_ij x_j, with a bias in the second, as PyG has it."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.root, self.neighbours = nn.Linear(into, out, bias=False), nn.Linear(into, out)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Nodes (B, N, out) from nodes (B, N, into) and adjacency (B, N, N)."""
        return cast(Tensor, self.root(x) + self.neighbours(adjacency @ x))


class MutagenicityGNN(nn.Module):
    """Table 7: five graph convolutions, the sum over atoms, and two linear layers with dropout between."""

    def __init__(self, classes: int = 2, features: int = 14) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GraphConv(features if i == 0 else 32, 32) for i in range(5))
        self.hidden = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(32, classes))

    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor | None = None) -> Tensor:
        """Class scores (B, classes) of molecules; mask (B, N) is True at atoms."""
        for layer in self.layers:
            x = layer(x, adjacency).relu()
        if mask is not None:
            x = x * mask[..., None]
        return cast(Tensor, self.head(self.hidden(x.sum(1))))


class SubtractMaximum(nn.Module):
    """x_sf − max_s′ x_s′f over the elements of a set (B, N, F)."""

    def forward(self, x: Tensor) -> Tensor:
        """Elements (B, N, F)."""
        return x - x.amax(1, keepdim=True)


class MaxDeepSet(nn.Module):
    """Table 8, for 1,000 points of an object of ModelNet40; exactly invariant to their order.

    >>> net, x = MaxDeepSet().eval(), torch.rand(2, 50, 3)
    >>> torch.allclose(net(x), net(x.flip(1)), atol=1e-5)
    True
    """

    def __init__(
        self, classes: int = 40, features: int = 3, width: int = 256, bounded: bool = True
    ) -> None:
        super().__init__()
        self.elements = nn.Sequential(
            *(SubtractMaximum(), nn.Linear(features, width), nn.Tanh()),
            *(SubtractMaximum(), nn.Linear(width, width), nn.Tanh()),
            *(SubtractMaximum(), nn.Linear(width, width), nn.Tanh()),
        )
        self.hidden = nn.Sequential(nn.Dropout(0.5), nn.Linear(width, width), nn.Tanh())
        last = nn.Tanh() if bounded else nn.Identity()
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(width, classes), last)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes) of sets (B, N, features) of one size."""
        return cast(Tensor, self.head(self.hidden(self.elements(x).amax(1))))


NETWORKS = {
    "Table 5": AllCNN1d,
    "Table 6": FlatCNN1d,
    "Table 7": MutagenicityGNN,
    "Table 8": MaxDeepSet,
    "Table 9": AllCNN2d,
    "Table 10": FlatCNN2d,
}


def main() -> None:
    for table, kind in NETWORKS.items():
        net: nn.Module = kind()
        weights = sum(parameter.numel() for parameter in net.parameters())
        layers = [
            f"{name} {tuple(value.shape)}"
            for name, value in net.named_parameters()
            if "weight" in name
        ]
        print(f"{table}: {kind.__name__}, {weights:,} weights: {', '.join(layers)}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
