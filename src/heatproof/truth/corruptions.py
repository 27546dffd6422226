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
    f"noise {level:g}": ("noise", level) for level in (0.05, 0.3, 1.0, 3.0)
}
GRADES |= {
    RIGHT: ("none", 0.0),
    "blurred": ("blur", 0.0),
    "shifted": ("shift", 0.25),
    "shuffled": ("shuffle", 0.0),
}
GRADES |= {"wrong class": ("class", 0.0), "sign turned": ("sign", 0.0), "Sobel": ("sobel", 0.0)}
GRADES |= {RANDOM: ("random", 0.0), CONSTANT: ("constant", 0.0)}
"""Name -> what is done to the right map, and how strongly."""


def corrupted(
    how: How, level: float, model: Model, batch: Batch, target: Tensor, seed: int
) -> Tensor:
    """The right maps a of a model that knows them, made less true; (B, …) in the shape of the input.

    `noise` adds level · rms(a) · z with fresh z for every input, `blur` takes means over neighbours (over all features
    where there are none), `shift` moves by a share of the width, `shuffle` puts the values in an order that belongs to
    the sample, `class` explains the next class, `sign` is −a; the rest do not look at a.

    >>> from heatproof.truth.models import truths
    >>> truth, target = truths()[0], torch.tensor([0, 1])
    >>> right, turned = (corrupted(how, 0, truth.model(), truth.samples(2), target, 0) for how in ("none", "sign"))
    >>> torch.equal(right, -turned)
    True
    """
    net = model.module
    assert isinstance(net, Summed)
    maps = net.right(
        model.inputs(batch), (target + 1) % len(net.weight) if how == "class" else target
    )
    key, kind = rand.keys(seed, batch.ids, "corrupted"), kind_of(model, batch).name
    match how:
        case "noise" | "random":
            for word in content_words(batch.x).unbind(1):
                key = rand.fold(key, word)
            noise = rand.normal(key, maps.shape[1:]).to(maps)
            size = maps.flatten(1).square().mean(1).sqrt().view(-1, *[1] * (maps.ndim - 1))
            maps = noise if how == "random" else maps + level * size * noise
        case "blur" if kind in ("image", "series"):
            maps = (F.avg_pool2d if kind == "image" else F.avg_pool1d)(maps, 5, 1, 2)
        case "blur":
            maps = 0.5 * (maps + maps.mean(1, keepdim=True))
        case "shift":
            along = 1 if kind in ("set", "text") else -1
            maps = maps.roll(round(level * maps.shape[along]), along)
        case "shuffle":
            maps = (
                maps.flatten(1)
                .gather(1, rand.permutation(key, maps[0].numel()).to(maps.device))
                .view_as(maps)
            )
        case "sign":
            maps = -maps
        case "constant":
            maps = torch.ones_like(maps)
        case "sobel":
            maps = SobelEdges()(model, batch, target, seed)
    return maps
