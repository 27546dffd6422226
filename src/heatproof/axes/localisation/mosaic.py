"""Mosaics: a sample and three of other classes in one picture, so that the right region is known without a mask."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from heatproof import rand
from heatproof.models.tasks import REGION
from heatproof.subject import Subject
from heatproof.types import Batch

ALONE = "no reference sample of another class"
UNSEEN = "the tile does not raise the score of its class: the network does not see it there"


def mosaics(subject: Subject) -> tuple[Batch, list[str]]:
    """Return a mosaic for every sample of a shard, and for each the reason why it cannot be used ("" where it can).

    A mosaic is a picture of four tiles: the sample in a random quarter, and reference samples of other predicted classes
    in the others. A map of the sample's class should point to the sample's tile, which is the region (`aux["region"]`).
    A mosaic is unusable if there is no reference of another class, or if the model does not see the sample in it: putting
    a reference in the tile's place must lower the score of the class.
    """
    batch, target = subject.batch, subject.target.cpu()
    rows = torch.arange(len(batch))
    key = rand.keys(subject.seed, batch.ids, "mosaic")
    chosen, candidates = _references_of_other_classes(subject, rand.fold(key, 0))
    quarter = (4 * rand.uniform(rand.fold(key, 1), (1,))).long().cpu()[:, 0]

    references = subject.references.batch.x
    tiles_without = references[chosen.to(references.device)].to(batch.x.device)
    tiles = tiles_without.clone()
    tiles[rows, quarter] = batch.x
    is_tile = torch.zeros(len(batch), 4, 1, *batch.x.shape[-2:])
    is_tile[rows, quarter] = 1.0
    region = composed(is_tile)[:, 0] > 0.5
    mosaic = replace(batch, x=composed(tiles), aux={**batch.aux, REGION: region})

    score_without = subject.predict(batch.with_x(composed(tiles_without)))[rows, target]
    score_with = subject.predict(mosaic)[rows, target]
    is_raised = score_with > score_without
    reason = []
    for row in rows.tolist():
        if candidates[row] == 0:
            reason.append(ALONE)
        elif not is_raised[row]:
            reason.append(UNSEEN)
        else:
            reason.append("")
    return mosaic, reason


def _references_of_other_classes(subject: Subject, key: Tensor) -> tuple[Tensor, Tensor]:
    """Return four random references of other predicted classes for each sample, (B, 4), and the number of candidates (B,).

    Where there are fewer than four candidates, they repeat in turn.
    """
    references = subject.references
    same_class = subject.target.cpu()[:, None] == references.target.cpu()
    draw = rand.uniform(key, (len(references.batch),)).cpu()
    # Sorting by random numbers shuffles the references; those of the same class come last.
    shuffled = draw.masked_fill(same_class, torch.inf).argsort(1)
    candidates = (~same_class).sum(1)
    position = torch.arange(4) % candidates[:, None].clamp(min=1)
    return shuffled.gather(1, position), candidates


def composed(tiles: Tensor) -> Tensor:
    """Return four tiles (B, 4, C, H, W) as one picture (B, C, H, W), each shrunk to a quarter of it.

    >>> composed(torch.arange(4.0).view(1, 4, 1, 1, 1).expand(1, 4, 1, 2, 2))[0, 0].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    height, width = tiles.shape[-2:]
    heights = (height // 2, height - height // 2)
    widths = (width // 2, width - width // 2)
    rows = []
    for row, high in enumerate(heights):
        quarters = [
            F.interpolate(tiles[:, 2 * row + column], (high, wide), mode="bilinear", antialias=True)
            for column, wide in enumerate(widths)
        ]
        rows.append(torch.cat(quarters, 3))
    return torch.cat(rows, 2)
