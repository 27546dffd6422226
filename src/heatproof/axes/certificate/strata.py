"""Supersets of an explanation: how many there are, uniform draws of them, and all of them.

With m features left out, Δ_r holds the Σ_{k ≤ r} C(m, k) supersets with at most r more features; those with exactly k
more are the stratum k. A uniform draw from Δ_r takes the stratum k with probability C(m, k) / |Δ_r| and then k of the
m features. Draw i of a stratum does not depend on r, so draws serve all radii: for each radius they are independent.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import chain, combinations

import torch
from torch import Tensor

from heatproof import rand


def supersets(m: int, r: int) -> int:
    """|Δ_r| for m features left out.

    >>> supersets(147, 1), supersets(3, 5)
    (148, 8)
    """
    return sum(math.comb(m, k) for k in range(min(r, m) + 1))


@lru_cache(maxsize=4096)
def exact_radius(m: int, most: int) -> int:
    """The largest r up to which Δ_r has at most `most` elements; m features left out, r = 0 always counts.

    >>> exact_radius(147, 150), exact_radius(147, 70), exact_radius(3, 100)
    (1, 0, 3)
    """
    r, size = 0, 1
    while r < m and size + math.comb(m, r + 1) <= most:
        r += 1
        size += math.comb(m, r)
    return r


def log_sizes(m: Tensor, most: int) -> Tensor:
    """log |Δ_r| for r = 0 … most and each m (B,), (B, most + 1) float64; constant from r = m on.

    >>> log_sizes(torch.tensor([3]), 4).exp().round().tolist()
    [[1.0, 4.0, 7.0, 8.0, 8.0]]
    """
    k = torch.arange(most + 1, device=m.device, dtype=torch.float64)
    left = m[:, None].double() - k
    choose = (
        torch.lgamma(m[:, None].double() + 1)
        - torch.lgamma(k + 1)
        - torch.lgamma(left.clamp(min=0) + 1)
    )
    return torch.where(left >= 0, choose, -torch.inf).logcumsumexp(1)


def drawn_strata(key: Tensor, m: Tensor, radii: Tensor, draws: int) -> Tensor:
    """The stratum of draws 0 … draws − 1 from Δ_r, (B, R, draws) int64, for radii (B, R) of at most m (B,).

    All radii of a sample use the same uniform numbers, so that they ask for the same strata where they can.

    >>> drawn_strata(rand.keys(0, ["a"], "x"), torch.tensor([3]), torch.tensor([[0, 3]]), 4)[0, 0].tolist()
    [0, 0, 0, 0]
    """
    words = rand.bits(rand.fold(key, -3), draws)
    share = (((words >> 11) & ((1 << 53) - 1)).double() + 0.5) * 2.0**-53
    sizes = log_sizes(m, int(radii.max()))
    level = share.log()[:, None] + sizes.gather(1, radii)[..., None]
    strata = torch.searchsorted(sizes, level.flatten(1)).reshape(level.shape)
    return strata.minimum(radii[..., None])


def random_supersets(
    key: Tensor, stratum: Tensor, index: Tensor, mask: Tensor, free: Tensor
) -> Tensor:
    """Draw number `index` of a stratum, one per row: `mask` (R, n) with `stratum` (R,) more of the `free` features.

    >>> mask, free = torch.tensor([[True, False, False]]), torch.tensor([[False, True, True]])
    >>> random_supersets(rand.keys(0, ["a"], "x"), torch.tensor([2]), torch.tensor([0]), mask, free).tolist()
    [[True, True, True]]
    """
    words = rand.bits(rand.fold(rand.fold(key, stratum), index), mask.shape[1])
    words = torch.where(free, words, torch.iinfo(torch.int64).max)
    last = words.sort(1).values.gather(1, (stratum - 1).clamp(min=0)[:, None])
    return mask | (free & (words <= last) & (stratum > 0)[:, None])


def all_supersets(mask: Tensor, free: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """Every set of Δ_r but the mask itself, (S, n) boolean, and its stratum (S,), smallest first; mask (n,), free (n,).

    >>> all_supersets(torch.tensor([True, False, False]), torch.tensor([False, True, True]), 5)[1].tolist()
    [1, 1, 2]
    """
    addable = free.nonzero().flatten().tolist()
    chosen = [set_ for k in range(1, min(r, len(addable)) + 1) for set_ in combinations(addable, k)]
    sizes = torch.tensor([len(set_) for set_ in chosen], dtype=torch.int64)
    rows, added = (
        mask.repeat(len(chosen), 1),
        torch.tensor(list(chain.from_iterable(chosen)), dtype=torch.int64),
    )
    rows[torch.arange(len(chosen)).repeat_interleave(sizes), added] = True
    return rows, sizes
