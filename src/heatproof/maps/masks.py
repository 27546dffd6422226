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
    """Return the features that a map selects, (B, n) boolean.

    That is the top `fraction` (0.25 by default), the top `k`, or those whose value is at least `threshold`. A feature's
    value is the mean of the map over its positions and channels ("sum" and "absolute", the mean of the absolute values,
    are the alternatives). A top selection has exactly max(1, ⌊fraction·n + ½⌋) or k features in each sample, ties or
    not: equal values are ordered by a draw keyed by the seed and the sample's id. Features that a grouping always
    keeps, such as special tokens, are not counted and not selected.

    >>> from heatproof.features import Patches
    >>> maps = torch.zeros(1, 1, 4, 4)
    >>> maps[0, 0, 0, 0] = 1.0
    >>> select(maps, Batch(("a",), torch.zeros(1, 1, 4, 4)), Patches(2)).tolist()
    [[True, False, False, False]]
    """
    values, free = feature_values(maps, batch, features, pooling)
    return top(values, batch.ids, free=free, fraction=fraction, k=k, threshold=threshold, seed=seed)


def feature_values(
    maps: Tensor, batch: Batch, features: Grouping, pooling: Pool = "mean"
) -> tuple[Tensor, Tensor]:
    """Return the value of each feature in a map (B, n) float64, and which features can be selected (B, n) boolean.

    The latter are those that a sample has and that the grouping does not always keep. See `select` for the pooling.
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
    pooled = maps.abs() if pooling == "absolute" else maps
    values = pool(pooled.double(), segments, n)
    if pooling != "sum":
        positions = pool(torch.ones_like(segments, dtype=torch.float64), segments, n)
        channels = maps[0].numel() / segments[0].numel()
        values = values / (positions * channels).clamp(min=1)
    free = torch.arange(n, device=maps.device) < counts[:, None]
    always_kept = fixed(features, batch)
    if always_kept is not None:
        free &= ~always_kept.to(maps.device)
    return values, free


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
    """Return the features with the largest values, (B, n) boolean, given one value per feature (B, n).

    Selected are the top `fraction` (0.25 by default), the top `k`, or values of at least `threshold`. Equal values are
    ordered at random by the seed and the sample's id. `free` (B, n) are the features that may be selected, all by
    default.

    >>> top(torch.ones(1, 8), ["a"], fraction=0.25).sum().item()
    2
    """
    _check_rule(fraction, k, threshold)
    if free is None:
        free = torch.ones_like(values, dtype=torch.bool)
    is_bad = (~torch.isfinite(values) & free).any(1)
    if bool(is_bad.any()):
        sample = ids[int(is_bad.nonzero()[0])]
        raise UserError(f"the map of sample {sample!r} is not finite, so it selects nothing")
    if threshold is not None:
        return (values >= threshold) & free

    counts = _selected_counts(free.sum(1), ids, fraction, k)
    # Features are put into a random order first, which a stable sort keeps for equal values.
    key = rand.keys(seed, ids, "ties").to(values.device)
    random_order = rand.bits(key, values.shape[1]).argsort(dim=1, stable=True)
    shuffled = values.masked_fill(~free, -torch.inf).gather(1, random_order)
    rank_order = shuffled.argsort(dim=1, descending=True, stable=True)
    order = random_order.gather(1, rank_order)
    is_selected = torch.arange(values.shape[1], device=values.device) < counts[:, None]
    return torch.zeros_like(free).scatter(1, order, is_selected) & free


def _check_rule(fraction: float | None, k: int | None, threshold: float | None) -> None:
    """Raise `UserError` unless at most one rule is given, and within its range."""
    rules = {"fraction": fraction, "k": k, "threshold": threshold}
    named = [name for name, value in rules.items() if value is not None]
    if len(named) > 1:
        raise UserError(f"give one of fraction, k and threshold, got {' and '.join(named)}")
    if fraction is not None and not 0 < fraction < 1:
        raise UserError(
            f"fraction must lie between 0 and 1, both excluded, got {fraction!r}; usual is 0.25"
        )
    if k is not None and (isinstance(k, bool) or k < 1):
        raise UserError(f"k must be at least 1, got {k!r}")


def _selected_counts(
    free_counts: Tensor, ids: Sequence[str], fraction: float | None, k: int | None
) -> Tensor:
    """Return how many features each sample selects, (B,): k, or the fraction rounded to a whole number."""
    if k is None:
        share = 0.25 if fraction is None else fraction
        rounded = (share * free_counts.double() + 0.5).floor()
        return rounded.long().clamp(min=1)
    has_too_few = free_counts < k
    if bool(has_too_few.any()):
        row = int(has_too_few.nonzero()[0])
        raise UserError(
            f"k={k} is more than the {int(free_counts[row])} features of sample {ids[row]!r}"
        )
    return torch.full_like(free_counts, k)
