"""Selection of features by an attribution map, (B, n) boolean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError, unknown
from heatproof.features import Grouping, count, fixed, pool
from heatproof.types import Batch

Pool = Literal["mean", "sum", "absolute"]


def select(
    maps: Tensor,
    batch: Batch,
    features: Grouping,
    *,
    fraction: float | None = None,
    k: int | None = None,
    threshold: float | None = None,
    pooling: Pool = "mean",
    seed: int = 0,
) -> Tensor:
    """The features that a map selects, (B, n) boolean: the top `fraction` (0.25 by default), the top `k`, or those
    whose value is at least `threshold`.

    A feature's value is the mean of the map over its positions and channels ("sum" and "absolute", the mean of the
    absolute values, are the alternatives). A top selection has exactly max(1, ⌊fraction·n + ½⌋) or k features in each
    sample, ties or not: equal values are ordered by a draw keyed by the seed and the sample's id. Features that a
    grouping always keeps, such as special tokens, are not counted and not selected.

    >>> from heatproof.features import Patches
    >>> maps = torch.zeros(1, 1, 4, 4)
    >>> maps[0, 0, 0, 0] = 1.0
    >>> select(maps, Batch(("a",), torch.zeros(1, 1, 4, 4)), Patches(2)).tolist()
    [[True, False, False, False]]
    """
    segments = features.segments(batch).to(maps.device)
    counts = count(segments)
    n = int(counts.max())
    if maps.shape[0] != len(batch) or maps.shape[-(segments.ndim - 1) :] != segments.shape[1:]:
        raise UserError(
            f"maps of shape {tuple(maps.shape)} do not lie on inputs of shape {tuple(batch.x.shape)}"
        )
    if pooling not in ("mean", "sum", "absolute"):
        raise unknown("pooling", pooling, ("mean", "sum", "absolute"))
    values = pool((maps.abs() if pooling == "absolute" else maps).double(), segments, n)
    if pooling != "sum":
        area = pool(torch.ones_like(segments, dtype=torch.float64), segments, n)
        channels = maps[0].numel() / segments[0].numel()
        values = values / (area * channels).clamp(min=1)
    free = torch.arange(n, device=maps.device) < counts[:, None]
    if (always := fixed(features, batch)) is not None:
        free &= ~always.to(maps.device)
    return top(values, batch.ids, free=free, fraction=fraction, k=k, threshold=threshold, seed=seed)


def top(
    values: Tensor,
    ids: Sequence[str],
    *,
    free: Tensor | None = None,
    fraction: float | None = None,
    k: int | None = None,
    threshold: float | None = None,
    seed: int = 0,
) -> Tensor:
    """The same from values (B, n); `free` (B, n) are the features that may be selected, all by default.

    >>> top(torch.ones(1, 8), ["a"], fraction=0.25).sum().item()
    2
    """
    given = [
        name
        for name, v in (("fraction", fraction), ("k", k), ("threshold", threshold))
        if v is not None
    ]
    if len(given) > 1:
        raise UserError(f"give one of fraction, k and threshold, got {' and '.join(given)}")
    if fraction is not None and not 0 < fraction < 1:
        raise UserError(
            f"fraction must lie between 0 and 1, both excluded, got {fraction!r}; usual is 0.25"
        )
    if k is not None and (isinstance(k, bool) or k < 1):
        raise UserError(f"k must be at least 1, got {k!r}")
    free = torch.ones_like(values, dtype=torch.bool) if free is None else free
    bad = (~torch.isfinite(values) & free).any(1)
    if bool(bad.any()):
        raise UserError(
            f"the map of sample {ids[int(bad.nonzero()[0])]!r} is not finite, so it selects nothing"
        )
    if threshold is not None:
        return (values >= threshold) & free
    n = free.sum(1)
    if k is not None:
        size = torch.full_like(n, k)
        if bool((size > n).any()):
            at = int((size > n).nonzero()[0])
            raise UserError(f"k={k} is more than the {int(n[at])} features of sample {ids[at]!r}")
    else:
        size = (
            ((0.25 if fraction is None else fraction) * n.double() + 0.5)
            .floor()
            .long()
            .clamp(min=1)
        )
    lottery = rand.bits(rand.keys(seed, ids, "ties").to(values.device), values.shape[1]).argsort(
        dim=1, stable=True
    )
    ranked = (
        values.masked_fill(~free, -torch.inf)
        .gather(1, lottery)
        .argsort(dim=1, descending=True, stable=True)
    )
    order = lottery.gather(1, ranked)
    chosen = torch.arange(values.shape[1], device=values.device) < size[:, None]
    return torch.zeros_like(free).scatter(1, order, chosen) & free
