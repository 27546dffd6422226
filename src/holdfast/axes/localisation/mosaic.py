"""Mosaics: a sample and three of other classes in one picture, so that the right place is known without a mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast import rand
from holdfast.types import Batch, Subject

NONE = "no reference sample of another class"
UNSEEN = "the tile does not raise the score of its class: the network does not see it there"


@dataclass(frozen=True)
class Mosaics:
    """Pictures (B, C, H, W) of four tiles, where the tile of the sample is, (B, H, W), and why some have none."""

    batch: Batch
    region: Tensor
    reason: list[str]
    seen: Tensor


def mosaics(subject: Subject) -> Mosaics:
    """Every sample of a shard in one quarter, drawn by its id, and references of other predicted classes in the others.

    A sample is `seen` where its tile raises the score of its class over that of a fourth reference in its place.
    """
    batch, others, task = subject.batch, subject.references, subject.model.task
    classes = subject.once(("classes of references",), lambda: task.target(subject.predict(others)))
    key = rand.keys(subject.seed, batch.ids, "mosaic")
    alike = subject.target.cpu()[:, None] == classes.cpu()
    order = rand.uniform(rand.fold(key, 0), (len(others),)).cpu().masked_fill(alike, torch.inf).argsort(1)
    count = (~alike).sum(1, keepdim=True)
    chosen = order.gather(1, torch.arange(4) % count.clamp(min=1))  # again from the first where there are fewer
    place = (4 * rand.uniform(rand.fold(key, 1), (1,))).long().cpu().clamp(max=3)[:, 0]
    bare = others.x[chosen.to(others.x.device)].to(batch.x.device)
    whole = bare.clone()
    whole[torch.arange(len(batch)), place] = batch.x
    made, without = (batch.with_x(composed(tiles)) for tiles in (whole, bare))
    region = composed(F.one_hot(place, 4)[:, :, None, None, None].expand(-1, -1, 1, *batch.x.shape[-2:]).double())
    scores = [subject.predict(each).gather(1, subject.target.cpu()[:, None])[:, 0] for each in (made, without)]
    reason = ["" if many else NONE for many in count[:, 0].tolist()]
    return Mosaics(made, region[:, 0] > 0.5, reason, scores[0] > scores[1])


def composed(tiles: Tensor) -> Tensor:
    """Four tiles (B, 4, C, H, W) as one picture (B, C, H, W), each a quarter of it.

    >>> composed(torch.arange(4.0).view(1, 4, 1, 1, 1).expand(1, 4, 1, 2, 2))[0, 0].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    height, width = tiles.shape[-2:]
    heights, widths = (height // 2, height - height // 2), (width // 2, width - width // 2)
    parts = [
        F.interpolate(tiles[:, 2 * row + column], (high, wide), mode="bilinear", antialias=True)
        for row, high in enumerate(heights)
        for column, wide in enumerate(widths)
    ]
    return torch.cat([torch.cat(parts[:2], 3), torch.cat(parts[2:], 3)], 2)
