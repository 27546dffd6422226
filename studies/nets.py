"""Small networks whose symmetries are known, and one way to train them.

| network | input | invariant to | an equivariant layer | an invariant layer |
|---|---|---|---|---|
| CircularCNN1d | (B, C, T) | cyclic shifts of the T steps | features | pool, hidden |
| CircularCNN2d | (B, C, H, W) | cyclic shifts of rows and columns | features | pool, hidden |
| DeepSet | (B, N, F), mask | permutations of the elements | elements | pool, hidden |
| GNN | (B, N, F), adjacency, mask | permutations of the nodes | layers.0, layers.1, … | pool, hidden |
| BagOfWords | (B, L) ids, attention_mask | permutations of the tokens | embedding | pool, hidden |
| StandardCNN | (B, C, H, W) | nothing | none | none |

Invariance is exact: no stride, circular padding, and one mean over all positions. `hidden` is a linear layer with ReLU
and `head` the last linear layer.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heatproof.errors import UserError
from heatproof.types import Batch

Augment = Callable[[Batch, torch.Generator], Batch]


class Mean(nn.Module):
    """The mean over all positions, (B, D, …) -> (B, D).

    >>> Mean()(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Means (B, D) over the positions of (B, D, …)."""
        return x.flatten(2).mean(2)


class MaskedMean(nn.Module):
    """The mean over real elements, (B, N, D) -> (B, D); without a mask all elements are real.

    >>> MaskedMean()(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[2.]])
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Means (B, D) of elements (B, N, D); mask (B, N) is True at real elements."""
        if mask is None:
            return x.mean(1)
        weight = mask.to(x.dtype)[..., None]
        return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


class CircularCNN1d(nn.Module):
    """Convolutions with circular padding and growing dilation, then the mean over time: invariant to cyclic shifts.

    >>> net, x = CircularCNN1d(classes=5), torch.rand(2, 1, 40)
    >>> torch.allclose(net(x), net(x.roll(7, -1)), atol=1e-5)
    True
    """

    def __init__(
        self, channels: int = 1, classes: int = 2, width: int = 24, kernel: int = 5, depth: int = 3
    ) -> None:
        super().__init__()
        layers = [
            _circular(nn.Conv1d, width if i else channels, width, kernel, 2**i)
            for i in range(depth)
        ]
        self.features = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
        self.pool = Mean()
        self.hidden = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes) of series (B, channels, T)."""
        scores: Tensor = self.head(self.hidden(self.pool(self.features(x))))
        return scores


class CircularCNN2d(nn.Module):
    """Convolutions with circular padding and growing dilation, then the mean over pixels: invariant to (Z/nZ)².

    >>> net, x = CircularCNN2d(classes=5).eval(), torch.rand(2, 1, 12, 12)
    >>> torch.allclose(net(x), net(x.roll((3, 5), (-2, -1))), atol=1e-5)
    True
    """

    def __init__(
        self, channels: int = 1, classes: int = 2, width: int = 16, kernel: int = 3, depth: int = 3
    ) -> None:
        super().__init__()
        layers = [
            _circular(nn.Conv2d, width if i else channels, width, kernel, 2**i)
            for i in range(depth)
        ]
        parts = (part for layer in layers for part in (layer, nn.BatchNorm2d(width), nn.ReLU()))
        self.features = nn.Sequential(*parts)
        self.pool = Mean()
        self.hidden = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU())
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes) of pictures (B, channels, H, W)."""
        scores: Tensor = self.head(self.hidden(self.pool(self.features(x))))
        return scores


class StandardCNN(nn.Module):
    """Zero padding, max-pooling and a flattened last map: a usual network, invariant to nothing by construction.

    >>> StandardCNN(size=(28, 28), classes=10)(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, size: tuple[int, int], channels: int = 1, classes: int = 2, width: int = 16
    ) -> None:
        super().__init__()
        first, second = (
            nn.Conv2d(channels, width, 3, padding=1),
            nn.Conv2d(width, 2 * width, 3, padding=1),
        )
        self.features = nn.Sequential(
            first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2)
        )
        self.flatten = nn.Flatten()
        self.hidden = nn.Sequential(
            nn.Linear(2 * width * (size[0] // 4) * (size[1] // 4), 4 * width), nn.ReLU()
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes) of pictures (B, channels, *size)."""
        scores: Tensor = self.head(self.hidden(self.flatten(self.features(x))))
        return scores


class DeepSet(nn.Module):
    """One network on every element, the mean over real elements, another network: invariant to permutations.

    >>> net, x = DeepSet(features=3, classes=5), torch.rand(2, 6, 3)
    >>> torch.allclose(net(x), net(x.flip(1)), atol=1e-5)
    True
    """

    def __init__(self, features: int, classes: int = 2, width: int = 64) -> None:
        super().__init__()
        self.elements = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.pool = MaskedMean()
        self.hidden = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Class scores (B, classes) of sets (B, N, features); mask (B, N) is True at real elements."""
        scores: Tensor = self.head(self.hidden(self.pool(self.elements(x), mask)))
        return scores


class Isomorphism(nn.Module):
    """One step of a graph isomorphism network: h ← MLP((1 + ε) h + A h), with ε learnt.

    >>> Isomorphism(3, 8)(torch.rand(2, 5, 3), torch.zeros(2, 5, 5)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(()))
        self.network = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Nodes (B, N, width) from nodes (B, N, features) and adjacency (B, N, N)."""
        out: Tensor = self.network((1 + self.own) * x + adjacency @ x)
        return out


class GNN(nn.Module):
    """Graph isomorphism layers on a dense adjacency matrix and the mean over real nodes: invariant to their order.

    >>> net, x = GNN(features=3, classes=2), torch.rand(1, 4, 3)
    >>> a, order = torch.rand(1, 4, 4).round(), torch.tensor([2, 0, 3, 1])
    >>> torch.allclose(net(x, a), net(x[:, order], a[:, order][:, :, order]), atol=1e-5)
    True
    """

    def __init__(self, features: int, classes: int = 2, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Isomorphism(features if i == 0 else width, width) for i in range(depth)
        )
        self.pool = MaskedMean()
        self.hidden = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor | None = None) -> Tensor:
        """Class scores (B, classes) of graphs: nodes (B, N, features), adjacency (B, N, N), mask (B, N)."""
        for layer in self.layers:
            x = layer(x, adjacency)
        scores: Tensor = self.head(self.hidden(self.pool(x, mask)))
        return scores


class BagOfWords(nn.Module):
    """The mean of the word vectors of real tokens, and a small network: invariant to the order of the words.

    `size` is the number of token ids; id 0 is padding. `Model(net, embedding="embedding")` explains by word vectors.

    >>> net, x = BagOfWords(size=50), torch.tensor([[4, 7, 9]])
    >>> torch.allclose(net(x), net(x.flip(1)), atol=1e-5)
    True
    """

    def __init__(self, size: int, classes: int = 2, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, width, padding_idx=0)
        with torch.no_grad():
            self.embedding.weight.mul_(
                0.1
            )  # torch's unit deviation drowns what is learnt of rare words
        self.pool = MaskedMean()
        self.hidden = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Class scores (B, classes) of token ids (B, L); attention_mask (B, L) is 1 at real tokens."""
        scores: Tensor = self.head(self.hidden(self.pool(self.embedding(x), attention_mask)))
        return scores


def _circular(
    kind: type[nn.Conv1d] | type[nn.Conv2d], inner: int, outer: int, kernel: int, dilation: int
) -> nn.Module:
    if kernel % 2 == 0:
        raise UserError(f"kernel must be odd so that maps keep their size, got {kernel}")
    pad = dilation * (kernel // 2)
    return kind(inner, outer, kernel, padding=pad, dilation=dilation, padding_mode="circular")


def rates(lr: float, epochs: int, anneal: bool = False) -> list[float]:
    """The learning rate of every epoch t = 0, 1, …: lr, or annealed lr · (1 + cos(π t / epochs)) / 2.

    >>> rates(0.1, 2), [round(rate, 3) for rate in rates(0.1, 3, anneal=True)]
    ([0.1, 0.1], [0.1, 0.075, 0.025])
    """
    return [lr * (1 + math.cos(math.pi * t / epochs)) / 2 if anneal else lr for t in range(epochs)]


def fit(
    net: nn.Module,
    train: Batch,
    *,
    epochs: int,
    lr: float = 1e-3,
    seed: int = 0,
    augment: Augment | None = None,
    batch_size: int = 64,
    weight_decay: float = 0.0,
    anneal: bool = False,
) -> list[OrderedDict[str, Tensor]]:
    """Train a classifier in place by Adam on the cross-entropy, and return its weights after every epoch.

    The order of samples, and what `augment(batch, generator)` draws, follow from the seed; the global generator is
    left alone. The network ends in eval mode. Weights decay as in AdamW; `anneal` lowers the rate as `rates` says.

    >>> x = torch.linspace(-1, 1, 64)[:, None, None].expand(64, 3, 1)
    >>> train = Batch(tuple(map(str, range(64))), x, label=(x[:, 0, 0] > 0).long())
    >>> net = DeepSet(1)
    >>> checkpoints = fit(net, train, epochs=20, lr=1e-2)
    >>> len(checkpoints), accuracy(net, train) > 0.9
    (20, True)
    """
    if train.label is None:
        raise UserError("fit needs labels, and the batch has none")
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}")
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=weight_decay)
    device = next(net.parameters()).device
    checkpoints = []
    net.train()
    with torch.random.fork_rng(devices=[]):  # dropout draws from the global generator
        torch.default_generator.manual_seed(seed)
        for rate in rates(lr, epochs, anneal):
            optimiser.param_groups[0]["lr"] = rate
            order = torch.randperm(len(train), generator=generator)
            for start in range(0, len(train), batch_size):
                part = train[order[start : start + batch_size]]
                part = (part if augment is None else augment(part, generator)).to(device)
                optimiser.zero_grad()
                torch.autograd.backward(F.cross_entropy(net(part.x, **part.aux), part.label))  # type: ignore[arg-type]
                optimiser.step()
            checkpoints.append(
                OrderedDict((k, v.detach().cpu().clone()) for k, v in net.state_dict().items())
            )
    net.eval()
    return checkpoints


def accuracy(net: nn.Module, batch: Batch, rows: int = 256) -> float:
    """The share of samples whose largest class score is that of their label."""
    if batch.label is None:
        raise UserError("accuracy needs labels, and the batch has none")
    right = 0
    with torch.no_grad():
        for start in range(0, len(batch), rows):
            part = batch[start : start + rows].to(next(net.parameters()).device)
            right += int((net(part.x, **part.aux).argmax(1) == part.label).sum())
    return right / len(batch)
