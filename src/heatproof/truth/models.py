"""Models whose right map is known, because each is the sum of what its features add; and random samples for them.

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

CLASSES = 3
SIZE = 16
"""The sides of images."""
WINDOW = 5
"""The sides of planted patterns."""
MASKS = {"set": ("mask", torch.bool), "text": ("attention_mask", torch.int64)}
"""The auxiliary tensor that sets and texts come with."""
Draw = Callable[[Tensor], Tensor]
"""From keys (B,) to samples (B, …)."""


class Summed(nn.Module):
    """A network whose logits are the sums of `parts`, a function of its weights (K, …) and the inputs.

    With `vectors` the inputs are token ids, and each stands for a vector.

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
        self.table: nn.Module = nn.Identity()
        if vectors is not None:
            self.table = nn.Embedding(len(vectors), vectors.shape[1], _weight=vectors)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, K); elements or tokens (B, N) that a mask leaves out add nothing."""
        parts = self.parts(self.weight, self.table(x))
        is_present = attention_mask if mask is None else mask
        if is_present is not None:
            parts = parts * is_present[:, None, :, None]
        return parts.flatten(2).sum(2)

    def right(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the right maps (B, …) for the classes `target` (B,)."""
        with torch.no_grad():
            parts = self.parts(self.weight, self.table(x))
        return parts[torch.arange(len(x)), target.to(x.device)]


def linear(w: Tensor, x: Tensor) -> Tensor:
    """Return what each feature adds to the logits of a linear model, (B, K, …): weight times value.

    `w` (K, …) has a weight per class and feature, or for sets and texts (B, N, D) one vector (K, D) for all elements.
    """
    shared_by_elements = w.ndim < x.ndim
    weights = w[:, None] if shared_by_elements else w
    return weights * x[:, None]


def stepped(w: Tensor, x: Tensor) -> Tensor:
    """Return w max(0, x − ½) of every column of a table, or of every element of a set."""
    return linear(w, (x - 0.5).clamp(min=0))


def gated(w: Tensor, x: Tensor) -> Tensor:
    """Return what each pixel adds to the logits of a model of gated patches, (B, K, C, H, W).

    A patch of 4 × 4 pixels adds its weighted sum w x to a logit where that is positive, and nothing where it is not.
    """
    parts = linear(w, x)
    patch_means = F.avg_pool2d(parts.sum(2), 4)
    is_open = F.interpolate(patch_means, scale_factor=4.0) > 0
    return parts * is_open[:, :, None]


def convolved(w: Tensor, x: Tensor) -> Tensor:
    """Return what each pixel adds to the logits of a small CNN, (B, K, C, H, W): a convolution, ReLU, and a global sum.

    A pixel adds its value times the kernel weights of all positions at which the ReLU is active and the kernel covers it.
    """
    is_active = (F.conv2d(x, w, padding=1) > 1e-4).to(x)
    return _kernels_at(is_active, w, padding=1) * x[:, None]


def matched(w: Tensor, x: Tensor) -> Tensor:
    """Return what each feature adds to the logits of a pattern detector, (B, K, …): a convolution with global max-pooling.

    The logit of a class is the largest response to its pattern w, so only the features of the window that fits the
    pattern best add to it, and the right map is 0 elsewhere. A method that marks all edges is not right here. Series are
    treated as images of one row.
    """
    if x.ndim == 4:
        images, kernels = x, w
    else:
        images, kernels = x[:, :, None], w[:, :, None]
    response = F.conv2d(images, kernels)
    # 1 at the position of the largest response of each class, 0 elsewhere.
    best_position = response.flatten(2).argmax(2)
    is_best = F.one_hot(best_position, response[0, 0].numel()).view_as(response).to(x)
    placed = _kernels_at(is_best, kernels).view(len(x), len(w), *x.shape[1:])
    return placed * x[:, None]


def _kernels_at(is_active: Tensor, w: Tensor, padding: int = 0) -> Tensor:
    """Return the weight that each pixel has for each class, (B, K, C, H, W), if kernels act at some positions only.

    It is the sum of the kernel `w` (K, C, h, w) of the class, laid over all positions where `is_active` (B, K, …) is 1:
    the transposed convolution.
    """
    of_classes = []
    for c in range(len(w)):
        of_class = F.conv_transpose2d(is_active[:, c : c + 1], w[c : c + 1], padding=padding)
        of_classes.append(of_class)
    return torch.stack(of_classes, 1)


def paired(w: Tensor, x: Tensor) -> Tensor:
    """Return what each feature adds to logits that are products of two weighted sums, (B, K, …); w is (K, 2, …).

    The Aumann–Shapley value of a product gives half of it to the features of each factor: a feature adds half of its own
    term times the other sum.
    """
    terms = w * x[:, None, None]  # (B, K, 2, …)
    sums = terms.flatten(3).sum(3)
    other_sum = sums.flip(2)  # that of the other factor
    other_sum = other_sum.view(*other_sum.shape, *[1] * (x.ndim - 1))
    return 0.5 * (terms * other_sum).sum(2)


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
        """Return the network in its wrapper."""
        return Model(self.net, name=self.name, embedding="table" if "text" in self.tags else None)

    def samples(self, n: int, seed: int = 0) -> Batch:
        """Return n random samples; with the tag "region", also the region in which the right map is not 0."""
        ids = tuple(f"{i:03}" for i in range(n))
        model = self.model()
        x = self.draw(rand.keys(seed, ids, self.name))
        aux = {}
        for tag, (name, dtype) in MASKS.items():
            if tag in self.tags:
                aux[name] = torch.ones(x.shape[:2], dtype=dtype)
        if "region" in self.tags:
            inputs = model.inputs(Batch(ids, x))
            predicted = model.logits(inputs, aux).argmax(1)
            # The model's own copy of the network: of texts it takes embeddings in place of token ids.
            assert isinstance(model.module, Summed)
            right_maps = model.module.right(inputs, predicted).abs()
            # Sets and texts, which have a mask in `aux`, have their features last; others have channels first.
            maps = right_maps.sum(-1 if aux else 1)
            largest = maps.flatten(1).amax(1).view(-1, *[1] * (maps.ndim - 1))
            aux[REGION] = maps > 1e-3 * largest
        return Batch(ids, x, aux)


def truths() -> list[Truth]:
    """Return every model whose right map is known; each of its tags is a key of `Axis.trial`."""
    patterns = _weights("patterns", CLASSES, 3, WINDOW, WINDOW).sign()
    motifs = _weights("motifs", CLASSES, 2, 8).sign()
    pattern_net = Summed(matched, patterns)
    return [
        Truth("linear", "w x of every pixel", _linear_net(), _texture, ("image", "any")),
        Truth(
            "gated",
            "patches that count where they are positive",
            _gated_net(),
            _texture,
            ("image", "any"),
        ),
        Truth(
            "planted",
            "the window that fits a pattern best",
            pattern_net,
            partial(_planted, patterns, _texture),
            ("image", "region", "any"),
        ),
        Truth(
            "colours",
            "a CNN that counts colours",
            _colour_net(),
            _blobs,
            ("invariant image", "image", "region", "any"),
        ),
        Truth(
            "pairs",
            "products of two patches",
            _pair_net(),
            _texture,
            ("image", "region", "any"),
        ),
        Truth(
            "columns",
            "steps of columns",
            _column_net(),
            partial(rand.uniform, shape=(12,)),
            ("table", "any"),
        ),
        Truth(
            "sets",
            "elements looked up in a set",
            Summed(stepped, 4 * torch.eye(CLASSES, 4)),
            partial(rand.uniform, shape=(12, 4)),
            ("invariant set", "set", "region", "any"),
        ),
        Truth(
            "motifs",
            "a motif found in a series",
            Summed(matched, motifs),
            partial(_series, motifs),
            ("series", "region", "any"),
        ),
        Truth(
            "words",
            "words found in a text",
            _word_net(),
            partial(_integers, below=[32] * 16),
            ("text", "region", "any"),
        ),
        Truth(
            "photographs",
            "the same pattern on photographs",
            pattern_net,
            partial(_planted, patterns, partial(_squares, _photograph_tiles())),
            ("image", "region", "any"),
        ),
    ]


# ---- networks --------------------------------------------------------------------------------------------------------


def _weights(purpose: str, *shape: int) -> Tensor:
    """Return normal weights, the same in every run."""
    return rand.normal(rand.keys(0, ("weights",), purpose), shape)[0]


def _linear_net() -> Summed:
    """Return a linear network of images with smooth weights that sum to 0."""
    weights = F.interpolate(_weights("smooth", CLASSES, 3, 4, 4), scale_factor=4.0)
    return Summed(linear, weights - weights.mean((2, 3), keepdim=True))


def _gated_net() -> Summed:
    """Return a network of images with patches that are switched off where they sum to less than 0."""
    weights = F.interpolate(_weights("patchy", CLASSES, 3, 4, 4), scale_factor=4.0)
    return Summed(gated, weights - weights.mean(1, keepdim=True))


def _colour_net() -> Summed:
    """Return a convolutional network that counts blurred spots of red, green or blue."""
    colours = (3 * torch.eye(CLASSES) - 1)[:, :, None, None]
    blur = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]])
    return Summed(convolved, colours * blur)


def _pair_net() -> Summed:
    """Return a network of images whose logits are products of the sums of two patches."""
    weights = torch.zeros(CLASSES, 2, 3, SIZE, SIZE)
    for c, (top, left) in enumerate(((1, 1), (1, 9), (9, 1))):
        weights[c, 0, c, top : top + 4, left : left + 4] = 0.2
        weights[c, 1, c, top + 3 : top + 7, left + 4 : left + 7] = 0.2
    return Summed(paired, weights)


def _column_net() -> Summed:
    """Return a network of tables with a step for each column."""
    weights = _weights("columns", CLASSES, 12)
    return Summed(stepped, weights - weights.mean(1, keepdim=True))


def _word_net() -> Summed:
    """Return a network of texts in which 12 of the 32 tokens say something."""
    vectors = torch.cat([torch.zeros(20, 4), _weights("vectors", 12, 4)])
    return Summed(linear, _weights("words", CLASSES, 4), vectors)


# ---- samples ---------------------------------------------------------------------------------------------------------


def _integers(key: Tensor, below: list[int]) -> Tensor:
    """Return whole numbers from 0 to below each of `below`, (B, len(below))."""
    return (rand.uniform(key, (len(below),)) * torch.tensor(below)).long()


def _texture(key: Tensor) -> Tensor:
    """Return smooth random textures with a little noise, (B, 3, SIZE, SIZE) in [0, 1]."""
    coarse = rand.uniform(rand.fold(key, 1), (3, 5, 5))
    smooth = F.interpolate(coarse, (SIZE, SIZE), mode="bilinear", align_corners=True)
    return 0.8 * smooth + 0.2 * rand.uniform(rand.fold(key, 2), (3, SIZE, SIZE))


def _photograph_tiles() -> Tensor:
    """Return the bundled photographs cut into squares, (N, C, rows, columns, SIZE, SIZE)."""
    photographs = open_data("bundled:photographs", size=4 * SIZE)
    pictures = photographs.load(range(len(photographs))).batch.x
    return pictures.unfold(2, SIZE, SIZE).unfold(3, SIZE, SIZE)


def _squares(tiles: Tensor, key: Tensor) -> Tensor:
    """Return random squares (B, C, SIZE, SIZE) of photographs (N, C, rows, columns, SIZE, SIZE)."""
    below = [len(tiles), *tiles.shape[2:4]]
    photograph, row, column = _integers(rand.fold(key, 3), below).unbind(1)
    return tiles[photograph, :, row, column]


def _planted(patterns: Tensor, background: Draw, key: Tensor) -> Tensor:
    """Return faint backgrounds with the pattern of a random class somewhere."""
    x = 0.25 + 0.5 * background(key)
    choices = _integers(key, [CLASSES, SIZE - WINDOW, SIZE - WINDOW]).tolist()
    for i, (c, row, column) in enumerate(choices):
        x[i, :, row : row + WINDOW, column : column + WINDOW] += 0.25 * patterns[c]
    return x.clamp(0, 1)


def _series(motifs: Tensor, key: Tensor) -> Tensor:
    """Return noise (B, 2, 48) with the motif of a random class somewhere."""
    x = 0.5 * rand.normal(rand.fold(key, 1), (2, 48))
    for i, (c, start) in enumerate(_integers(key, [CLASSES, 40]).tolist()):
        x[i, :, start : start + 8] += 2 * motifs[c]
    return x


def _blobs(key: Tensor) -> Tensor:
    """Return grey textures with a few coloured squares."""
    x = 0.6 * _texture(key).mean(1, keepdim=True).repeat(1, 3, 1, 1)
    for number in range(3):
        choices = _integers(rand.fold(key, 10 + number), [CLASSES, SIZE - 4, SIZE - 4]).tolist()
        for i, (c, row, column) in enumerate(choices):
            x[i, c, row : row + 4, column : column + 4] += 0.3
    return x.clamp(0, 1)
