"""Mosaics: a sample and three of other classes in one picture, so that the right place is known without a mask."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from heatproof import rand
from heatproof.evaluation import Subject
from heatproof.models.tasks import REGION
from heatproof.types import Batch

ALONE = "no reference sample of another class"
UNSEEN = "the tile does not raise the score of its class: the network does not see it there"


def mosaics(subject: Subject) -> tuple[Batch, list[str]]:
    """Every sample of a shard in one quarter, drawn by its id, references of other predicted classes in the others.

    The region of each is its tile. Beside them stands why some cannot be judged: a tile must raise the score of its
    class over that of a fourth reference in its place.
    """
    batch, others, task = subject.batch, subject.references, subject.model.task
    classes = subject.once(("classes of references",), lambda: task.target(subject.predict(others)))
    key, rows = rand.keys(subject.seed, batch.ids, "mosaic"), torch.arange(len(batch))
    alike = subject.target.cpu()[:, None] == classes.cpu()
    order = (
        rand.uniform(rand.fold(key, 0), (len(others),))
        .cpu()
        .masked_fill(alike, torch.inf)
        .argsort(1)
    )
    count = (~alike).sum(1, keepdim=True)
    chosen = order.gather(
        1, torch.arange(4) % count.clamp(min=1)
    )  # again from the first where there are fewer
    place = (4 * rand.uniform(rand.fold(key, 1), (1,))).long().cpu()[:, 0]
    without = others.x[chosen.to(others.x.device)].to(batch.x.device)
    whole, tile = without.clone(), torch.zeros(len(batch), 4, 1, *batch.x.shape[-2:])
    whole[rows, place], tile[rows, place] = batch.x, 1.0
    made = replace(batch, x=composed(whole), aux={**batch.aux, REGION: composed(tile)[:, 0] > 0.5})
    pair, target = (batch.with_x(composed(without)), made), subject.target.cpu()
    before, after = (subject.predict(each)[rows, target] for each in pair)
    seen = zip(count[:, 0].tolist(), (after > before).tolist(), strict=True)
    return made, [ALONE if not some else "" if raised else UNSEEN for some, raised in seen]


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
