"""Maps that are less true: the right map with noise, blurred, moved, shuffled, of another class, or none at all."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heatproof import rand
from heatproof.explainers.controls import SobelEdges, content_words
from heatproof.kinds import kind_of
from heatproof.models import Model
from heatproof.truth.models import Summed
from heatproof.types import Batch

How = Literal[
    "none", "noise", "blur", "shift", "shuffle", "class", "sign", "constant", "sobel", "random"
]
RIGHT, MINOR, RANDOM, CONSTANT = "right map", "noise 0.05", "random", "constant"
GRADES: dict[str, tuple[How, float]] = {
    "noise 0.05": ("noise", 0.05),
    "noise 0.3": ("noise", 0.3),
    "noise 1": ("noise", 1.0),
    "noise 3": ("noise", 3.0),
    RIGHT: ("none", 0.0),
    "blurred": ("blur", 0.0),
    "shifted": ("shift", 0.25),
    "shuffled": ("shuffle", 0.0),
    "wrong class": ("class", 0.0),
    "sign flipped": ("sign", 0.0),
    "edge filter": ("sobel", 0.0),
    RANDOM: ("random", 0.0),
    CONSTANT: ("constant", 0.0),
}
"""Name -> what is done to the right map, and how strongly."""


def corrupted(
    how: How, level: float, model: Model, batch: Batch, target: Tensor, seed: int
) -> Tensor:
    """Return the right maps of a model of known truth, made less true in one way; (B, …) in the shape of the input.

    With the right map a: "noise" adds level · rms(a) · z with normal z, "blur" takes means over neighbours (over all
    features where there are none), "shift" moves by the share `level` of the width, "shuffle" permutes the values of a
    sample, "class" is the right map of the next class, "sign" is −a. "random", "constant" and "sobel" (an edge filter) do
    not depend on a, and "none" is a itself.

    >>> from heatproof.truth.models import truths
    >>> truth, target = truths()[0], torch.tensor([0, 1])
    >>> right, turned = (corrupted(how, 0, truth.model(), truth.samples(2), target, 0) for how in ("none", "sign"))
    >>> torch.equal(right, -turned)
    True
    """
    net = model.module
    assert isinstance(net, Summed)
    if how == "class":
        target = (target + 1) % len(net.weight)
    maps = net.right(model.inputs(batch), target)
    key, kind = rand.keys(seed, batch.ids, "corrupted"), kind_of(model, batch).name
    match how:
        case "random":
            return _noise(key, batch, maps)
        case "noise":
            root_mean_square = maps.flatten(1).square().mean(1).sqrt()
            scale = level * root_mean_square.view(-1, *[1] * (maps.ndim - 1))
            return maps + scale * _noise(key, batch, maps)
        case "blur":
            return _blurred(maps, kind)
        case "shift":
            dim = 1 if kind in ("set", "text") else -1
            return maps.roll(round(level * maps.shape[dim]), dim)
        case "shuffle":
            order = rand.permutation(key, maps[0].numel()).to(maps.device)
            return maps.flatten(1).gather(1, order).view_as(maps)
        case "sign":
            return -maps
        case "constant":
            return torch.ones_like(maps)
        case "sobel":
            return SobelEdges()(model, batch, target, seed)
    return maps


def _noise(key: Tensor, batch: Batch, maps: Tensor) -> Tensor:
    """Return normal noise in the shape of the maps, keyed by the content of the inputs: a changed input has other noise."""
    for word in content_words(batch.x).unbind(1):
        key = rand.fold(key, word)
    return rand.normal(key, maps.shape[1:]).to(maps)


def _blurred(maps: Tensor, kind: str) -> Tensor:
    """Return means over windows of 5; where there are no neighbours, halfway to the mean over all features."""
    if kind == "image":
        return F.avg_pool2d(maps, 5, 1, 2)
    if kind == "series":
        return F.avg_pool1d(maps, 5, 1, 2)
    return 0.5 * (maps + maps.mean(1, keepdim=True))
