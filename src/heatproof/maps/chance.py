"""Profiles of maps as their kind of data has them, and the chance level: how similar maps of other samples are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.evaluation import Chance
from heatproof.kinds import GRAPH, KINDS, kind_of_shape
from heatproof.maps.similarity import Profile, profile

K = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]


def profile_of(
    maps: Tensor, kind: str, k: int | float | str = "usual", windows: bool = True
) -> Profile:
    """Return what comparing maps (B, …) needs of each map, with the settings usual for a kind of data.

    `kind` is the name of the kind of data, such as "image". It decides over how many dimensions SSIM's windows reach and,
    where `k` is "usual", the size of the top-k sets. Without `windows` there is no SSIM.

    >>> [profile_of(torch.rand(2, 3, 16, 16), kind).windows is None for kind in ("image", "set")]
    [False, True]
    """
    dims = KINDS[kind].ssim_dimensions if windows else 0
    top_k = KINDS[kind].top_k if isinstance(k, str) else k
    return profile(maps, top_k, dims=dims)


def over_references(scores: Tensor, ids: Sequence[str], references: Sequence[str]) -> Chance:
    """Return the chance level of each of B samples: the mean score of its map against the maps of other samples.

    `scores` (R, B) compare the map of each sample in `ids` with the map of each reference sample in `references`. A
    sample that is a reference itself is not compared with itself; its level is NaN if there is no other reference.

    The result also has, for each reference, the sum and the number of its differences from the levels of the samples.
    Statistics take from these how much the choice of references adds to the error. Sums of several batches can be added.

    >>> chance = over_references(torch.tensor([[0.2, 0.9], [0.4, 0.6]]), ["a", "b"], ["b", "c"])
    >>> chance.level.tolist(), [round(float(x), 3) for x in chance.sums], chance.counts.tolist()
    ([0.300..., 0.600...], [-0.1, 0.1], [1, 2])
    """
    others = of_others(scores, ids, references)
    level = others.nanmean(0)
    above_level = others - level
    sums = above_level.nansum(1)
    counts = torch.isfinite(above_level).sum(1)
    return Chance(level.to(scores.dtype), sums, counts)


def of_others(scores: Tensor, ids: Sequence[str], references: Sequence[str]) -> Tensor:
    """Return the scores (R, B) of B samples against R references in float64, NaN where both are the same sample."""
    return scores.double().masked_fill(itself(tuple(ids), tuple(references)), torch.nan)


@lru_cache(maxsize=16)
def itself(ids: tuple[str, ...], references: tuple[str, ...]) -> Tensor:
    """Return where a reference (R) and a sample (B) have the same id, (R, B) boolean.

    Cached, because every measure needs it for the same batch.
    """
    is_same = [[sample == reference for sample in ids] for reference in references]
    return torch.tensor(is_same, dtype=torch.bool).view(len(references), len(ids))


def check_k(k: int | float | str, shape: Sequence[int], evaluation: str) -> None:
    """Raise `UserError` for a top-k size that is not below the number of values of a map.

    `shape` is that of a sample. With k = "usual", the size usual for samples of this shape is checked. `evaluation` is
    the name of the test in the error.

    >>> check_k(50, (3, 2, 2), "agreement")
    Traceback (most recent call last):
    heatproof.errors.UserError: agreement's k must be below the 12 values of a map, got 50; try k=0.1
    """
    kind = kind_of_shape(shape) or GRAPH
    size = math.prod(shape)
    top_k = kind.top_k if isinstance(k, str) else k
    if top_k >= size:
        raise UserError(
            f"{evaluation}'s k must be below the {size} values of a map, got {top_k}; try k=0.1"
        )
