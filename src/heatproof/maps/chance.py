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
    """Return the profile of maps (B, …) of a kind of data, by its name; without `windows` there is no SSIM.

    >>> [profile_of(torch.rand(2, 3, 16, 16), kind).windows is None for kind in ("image", "set")]
    [False, True]
    """
    dims = KINDS[kind].ssim_dimensions if windows else 0
    top_k = KINDS[kind].top_k if isinstance(k, str) else k
    return profile(maps, top_k, dims=dims)


def over_references(scores: Tensor, ids: Sequence[str], references: Sequence[str]) -> Chance:
    """Return the chance level of B samples from their scores (R, B) against R references.

    A sample that is a reference itself is not compared with itself; without another one its level is NaN. The sums say
    how far each reference lies above the level, so those of several shards add up.

    >>> chance = over_references(torch.tensor([[0.2, 0.9], [0.4, 0.6]]), ["a", "b"], ["b", "c"])
    >>> chance.level.tolist(), [round(float(x), 3) for x in chance.sums], chance.counts.tolist()
    ([0.300..., 0.600...], [-0.1, 0.1], [1, 2])
    """
    others = of_others(scores, ids, references)
    level = others.nanmean(0)
    above = others - level
    return Chance(level.to(scores.dtype), above.nansum(1), torch.isfinite(above).sum(1))


def of_others(scores: Tensor, ids: Sequence[str], references: Sequence[str]) -> Tensor:
    """Return scores (R, B) in float64, NaN where a sample is the reference itself."""
    return scores.double().masked_fill(itself(tuple(ids), tuple(references)), torch.nan)


@lru_cache(maxsize=16)
def itself(ids: tuple[str, ...], references: tuple[str, ...]) -> Tensor:
    """Return where a sample is the reference itself, (R, B) boolean; cached, because every measure asks."""
    is_same = [[sample == reference for sample in ids] for reference in references]
    return torch.tensor(is_same, dtype=torch.bool).view(len(references), len(ids))


def check_k(k: int | float | str, shape: Sequence[int], evaluation: str) -> None:
    """Raise `UserError` for a k that is not below the number of values of a map; `shape` is that of a sample.

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
