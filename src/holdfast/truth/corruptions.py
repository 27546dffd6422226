"""Maps that are less true: the right map with noise, blurred, moved, shuffled, of another class, or none at all."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast import rand
from holdfast.explainers.controls import SobelEdges, content_words
from holdfast.models import Model
from holdfast.models.modality import modality
from holdfast.types import STRICT, Batch, Method

How = Literal["none", "noise", "blur", "shift", "shuffle", "class", "sign", "constant", "sobel", "random"]
RIGHT, MINOR, RANDOM, CONSTANT = "right map", "noise 0.05", "random", "constant"
GRADES: dict[str, tuple[How, float]] = {f"noise {level:g}": ("noise", level) for level in (0.05, 0.3, 1.0, 3.0)}
GRADES |= {RIGHT: ("none", 0.0), "blurred": ("blur", 0.0), "shifted": ("shift", 0.25), "shuffled": ("shuffle", 0.0)}
GRADES |= {"wrong class": ("class", 0.0), "sign turned": ("sign", 0.0), "Sobel": ("sobel", 0.0)}
GRADES |= {RANDOM: ("random", 0.0), CONSTANT: ("constant", 0.0)}
"""Name -> what is done to the right map, and how strongly."""


@dataclass(frozen=True, config=STRICT)
class Corrupted(Method):
    """The right map a of a model that knows it, made less true; (B, …) in the shape of the input.

    `noise` adds level · rms(a) · z with fresh z for every input, `blur` takes means over neighbours (over all features
    where there are none), `shift` moves by a share of the width, `shuffle` puts the values in an order that belongs to
    the sample, `class` explains the next class, `sign` is −a; the rest do not look at a.

    >>> from holdfast.truth.models import truths
    >>> truth = truths()[0]
    >>> batch, target = truth.samples(2), torch.tensor([0, 1])
    >>> right, turned = (Corrupted(how)(truth.model(), batch, target, seed=0) for how in ("none", "sign"))
    >>> torch.equal(right, -turned)
    True
    """

    name: ClassVar[str] = "corrupted"
    how: How
    level: float = 0.0

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        asked = (target + 1) % len(model.module.weight) if self.how == "class" else target
        maps: Tensor = model.module.right(model.inputs(batch), asked)
        key, kind = rand.keys(seed, batch.ids, "corrupted"), modality(model, batch)
        match self.how:
            case "noise" | "random":
                for word in content_words(batch.x).unbind(1):
                    key = rand.fold(key, word)
                noise = rand.normal(key, maps.shape[1:]).to(maps)
                size = maps.flatten(1).square().mean(1).sqrt().view(-1, *[1] * (maps.ndim - 1))
                maps = noise if self.how == "random" else maps + self.level * size * noise
            case "blur" if kind in ("image", "series"):
                maps = (F.avg_pool2d if kind == "image" else F.avg_pool1d)(maps, 5, 1, 2)
            case "blur":
                maps = 0.5 * (maps + maps.mean(1, keepdim=True))
            case "shift":
                along = 1 if kind in ("set", "text") else -1
                maps = maps.roll(round(self.level * maps.shape[along]), along)
            case "shuffle":
                maps = maps.flatten(1).gather(1, rand.permutation(key, maps[0].numel()).to(maps.device)).view_as(maps)
            case "sign":
                maps = -maps
            case "constant":
                maps = torch.ones_like(maps)
            case "sobel":
                maps = SobelEdges()(model, batch, target, seed)
        return maps
