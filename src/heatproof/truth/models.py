"""Models whose right map is known, for each is the sum of what its features add; and samples for them, drawn by key.

The parts of a model, (B, K, …) with the shape of the input last, say what each feature adds to each logit: its Aumann–
Shapley value on the way from a blank input, in closed form. They sum to the logits, and the row of a class is its map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import rand
from heatproof.data import open_data
from heatproof.models import Model
from heatproof.models.tasks import REGION
from heatproof.types import Batch

CLASSES, SIZE, WINDOW = 3, 16, 5
MASKS = {"set": ("mask", torch.bool), "text": ("attention_mask", torch.int64)}
Draw = Callable[[Tensor], Tensor]


class Summed(nn.Module):
    """A network with weights (K, …) and the function `parts` of weights and inputs whose sums are its logits.

    >>> net = Summed(linear, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    >>> net(torch.tensor([[3.0, 4.0]])).tolist(), net.right(torch.tensor([[3.0, 4.0]]), torch.tensor([1])).tolist()
    ([[3.0, 8.0]], [[0.0, 8.0]])
    """

    def __init__(
        self,
        parts: Callable[[Tensor, Tensor], Tensor],
        weight: Tensor,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.parts, self.weight = parts, nn.Parameter(weight)
        self.table = (
            nn.Identity()
            if vectors is None
            else nn.Embedding(len(vectors), vectors.shape[1], _weight=vectors)
        )

    def forward(
        self, x: Tensor, mask: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Logits (B, K); elements or tokens (B, N) that a mask leaves out add nothing."""
        parts = self.parts(self.weight, self.table(x))
        there = attention_mask if mask is None else mask
        return (parts if there is None else parts * there[:, None, :, None]).flatten(2).sum(2)

    def right(self, x: Tensor, target: Tensor) -> Tensor:
        """The right maps (B, …) for the classes `target` (B,)."""
        with torch.no_grad():
            return self.parts(self.weight, self.table(x))[torch.arange(len(x)), target.to(x.device)]


def linear(w: Tensor, x: Tensor) -> Tensor:
    """w x of every feature; of tokens and elements, w times each vector."""
    return (w[:, None] if w.ndim < x.ndim else w) * x[:, None]


def stepped(w: Tensor, x: Tensor) -> Tensor:
    """w max(0, x − ½) of every column of a table, or of every element of a set."""
    return linear(w, (x - 0.5).clamp(min=0))


def gated(w: Tensor, x: Tensor) -> Tensor:
    """w x in patches of 4 × 4 where it sums to more than 0, and nothing in the others."""
    added = linear(w, x)
    return added * (F.interpolate(F.avg_pool2d(added.sum(2), 4), scale_factor=4.0) > 0)[:, :, None]


def convolved(w: Tensor, x: Tensor) -> Tensor:
    """A convolution, ReLU, and the sum over places: x times the kernels of the places that answer."""
    seen = (F.conv2d(x, w, padding=1) > 1e-4).to(x)
    return _placed(seen, w, padding=1) * x[:, None]


def matched(w: Tensor, x: Tensor) -> Tensor:
    """The window that answers w most, and nothing else: w x inside it. Series are pictures of one row."""
    plane, kernels = (x, w) if x.ndim == 4 else (x[:, :, None], w[:, :, None])
    answer = F.conv2d(plane, kernels)
    best = F.one_hot(answer.flatten(2).argmax(2), answer[0, 0].numel()).view_as(answer).to(x)
    return _placed(best, kernels).view(len(x), len(w), *x.shape[1:]) * x[:, None]


def _placed(seen: Tensor, w: Tensor, padding: int = 0) -> Tensor:
    """The kernels (K, C, h, w) of each class at its places (B, K, H, W), summed: (B, K, C, …)."""
    every = [
        F.conv_transpose2d(seen[:, c : c + 1], w[c : c + 1], padding=padding) for c in range(len(w))
    ]
    return torch.stack(every, 1)


def paired(w: Tensor, x: Tensor) -> Tensor:
    """The product of two weighted sums, w (K, 2, …): half of it belongs to the features of each."""
    both = w * x[:, None, None]
    sums = both.flatten(3).sum(3).flip(2)
    return 0.5 * (both * sums.view(*sums.shape, *[1] * (x.ndim - 1))).sum(2)


@dataclass(frozen=True)
class Truth:
    """A model whose right map is known, a function that draws samples for it, and tags by which axes know what to ask.

    >>> truth = truths()[0]
    >>> batch, model = truth.samples(2), truth.model()
    >>> top = model.logits(batch.x).max(1)
    >>> torch.allclose(truth.net.right(batch.x, top.indices).flatten(1).sum(1), top.values, atol=1e-4)
    True
    """

    name: str
    text: str
    net: Summed
    draw: Draw
    tags: tuple[str, ...]

    def model(self) -> Model:
        """The network in its wrapper."""
        return Model(self.net, name=self.name, embedding="table" if "text" in self.tags else None)

    def samples(self, n: int, seed: int = 0) -> Batch:
        """So many samples, and where a right map has a region, where its parts are."""
        ids, model = tuple(f"{i:03}" for i in range(n)), self.model()
        x = self.draw(rand.keys(seed, ids, self.name))
        aux = {
            name: torch.ones(x.shape[:2], dtype=kind)
            for tag, (name, kind) in MASKS.items()
            if tag in self.tags
        }
        if "region" in self.tags:
            inputs = model.inputs(Batch(ids, x))
            assert isinstance(model.module, Summed)
            maps = (
                model.module.right(inputs, model.logits(inputs, aux).argmax(1))
                .abs()
                .sum(-1 if aux else 1)
            )
            aux[REGION] = maps > 1e-3 * maps.flatten(1).amax(1).view(-1, *[1] * (maps.ndim - 1))
        return Batch(ids, x, aux)


def truths() -> list[Truth]:
    """Every model whose right map is known; planted patches lie on photographs too where the demo's are installed."""

    def normal(what: str, *shape: int) -> Tensor:
        return rand.normal(rand.keys(0, ("weights",), what), shape)[0]

    smooth, patchy = (
        F.interpolate(normal(what, CLASSES, 3, 4, 4), scale_factor=4.0)
        for what in ("smooth", "patchy")
    )
    smooth, patchy = (
        smooth - smooth.mean((2, 3), keepdim=True),
        patchy - patchy.mean(1, keepdim=True),
    )
    patterns, motifs = (
        normal("patterns", CLASSES, 3, WINDOW, WINDOW).sign(),
        normal("motifs", CLASSES, 2, 8).sign(),
    )
    colours = (3 * torch.eye(CLASSES) - 1)[:, :, None, None] * torch.tensor(
        [[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]
    )
    pairs = torch.zeros(CLASSES, 2, 3, SIZE, SIZE)
    for c, (top, left) in enumerate(((1, 1), (1, 9), (9, 1))):
        pairs[c, 0, c, top : top + 4, left : left + 4] = pairs[
            c, 1, c, top + 3 : top + 7, left + 4 : left + 7
        ] = 0.2
    steps = normal("columns", CLASSES, 12)
    words = Summed(
        linear,
        normal("words", CLASSES, 4),
        torch.cat([torch.zeros(20, 4), normal("vectors", 12, 4)]),
    )
    row, points = (partial(rand.uniform, shape=shape) for shape in ((12,), (12, 4)))
    planted, lookup = partial(_planted, patterns, _texture), Summed(matched, patterns)
    sets, tokens = Summed(stepped, 4 * torch.eye(CLASSES, 4)), partial(_upto, most=[32] * 16)
    known: list[tuple[str, str, Summed, Draw, str]] = [
        ("linear", "w x of every pixel", Summed(linear, smooth), _texture, "image"),
        (
            "gated",
            "patches that count where they are positive",
            Summed(gated, patchy),
            _texture,
            "image",
        ),
        ("planted", "the window that fits a pattern best", lookup, planted, "image, region"),
        (
            "colours",
            "a CNN that counts colours",
            Summed(convolved, colours),
            _blobs,
            "invariant image, image, region",
        ),
        ("pairs", "products of two patches", Summed(paired, pairs), _texture, "image, region"),
        (
            "columns",
            "steps of columns",
            Summed(stepped, steps - steps.mean(1, keepdim=True)),
            row,
            "table",
        ),
        ("sets", "elements looked up in a set", sets, points, "invariant set, set, region"),
        (
            "motifs",
            "a motif found in a series",
            Summed(matched, motifs),
            partial(_series, motifs),
            "series, region",
        ),
        ("words", "words found in a text", words, tokens, "text, region"),
    ]
    photographs = open_data("bundled:photographs", size=4 * SIZE)
    pictures = photographs.load(range(len(photographs))).batch.x
    tiles = pictures.unfold(2, SIZE, SIZE).unfold(3, SIZE, SIZE)
    ground = partial(_planted, patterns, partial(_tiles, tiles))
    known.append(
        ("photographs", "the same pattern on photographs", lookup, ground, "image, region")
    )
    return [
        Truth(name, text, net, draw, (*tags.split(", "), "any"))
        for name, text, net, draw, tags in known
    ]


def _upto(key: Tensor, most: list[int]) -> Tensor:
    """Whole numbers from 0 to below each of `most`, (B, len(most))."""
    return (rand.uniform(key, (len(most),)) * torch.tensor(most)).long()


def _texture(key: Tensor) -> Tensor:
    coarse = rand.uniform(rand.fold(key, 1), (3, 5, 5))
    smooth = F.interpolate(coarse, (SIZE, SIZE), mode="bilinear", align_corners=True)
    return 0.8 * smooth + 0.2 * rand.uniform(rand.fold(key, 2), (3, SIZE, SIZE))


def _tiles(tiles: Tensor, key: Tensor) -> Tensor:
    """Squares (B, C, H, W) of photographs (N, C, rows, columns, H, W)."""
    photograph, row, column = _upto(rand.fold(key, 3), [len(tiles), *tiles.shape[2:4]]).unbind(1)
    return tiles[photograph, :, row, column]


def _planted(patterns: Tensor, ground: Draw, key: Tensor) -> Tensor:
    x = 0.25 + 0.5 * ground(key)
    for i, (c, row, column) in enumerate(
        _upto(key, [CLASSES, SIZE - WINDOW, SIZE - WINDOW]).tolist()
    ):
        x[i, :, row : row + WINDOW, column : column + WINDOW] += 0.25 * patterns[c]
    return x.clamp(0, 1)


def _series(motifs: Tensor, key: Tensor) -> Tensor:
    x = 0.5 * rand.normal(rand.fold(key, 1), (2, 48))
    for i, (c, start) in enumerate(_upto(key, [CLASSES, 40]).tolist()):
        x[i, :, start : start + 8] += 2 * motifs[c]
    return x


def _blobs(key: Tensor) -> Tensor:
    """Grey textures with a few coloured squares."""
    x = 0.6 * _texture(key).mean(1, keepdim=True).repeat(1, 3, 1, 1)
    for step in range(3):
        for i, (c, row, column) in enumerate(
            _upto(rand.fold(key, 10 + step), [CLASSES, SIZE - 4, SIZE - 4]).tolist()
        ):
            x[i, c, row : row + 4, column : column + 4] += 0.3
    return x.clamp(0, 1)
