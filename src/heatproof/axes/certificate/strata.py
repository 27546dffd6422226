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
    """Return |Δ_r|, the number of supersets with at most r more of m features.

    >>> supersets(147, 1), supersets(3, 5)
    (148, 8)
    """
    return sum(math.comb(m, k) for k in range(min(r, m) + 1))


@lru_cache(maxsize=4096)
def exact_radius(m: int, most: int) -> int:
    """Return the largest r for which Δ_r has at most `most` elements, for m features left out; at least 0.

    >>> exact_radius(147, 150), exact_radius(147, 70), exact_radius(3, 100)
    (1, 0, 3)
    """
    r, size = 0, 1
    while r < m and size + math.comb(m, r + 1) <= most:
        r += 1
        size += math.comb(m, r)
    return r


def log_sizes(m: Tensor, most: int) -> Tensor:
    """Return log |Δ_r| for r = 0 … most and each m (B,): (B, most + 1) float64, constant from r = m on.

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
    """Return the stratum of each draw from Δ_r, (B, R, draws) int64, for radii (B, R) of at most m (B,).

    A stratum k has the probability C(m, k) / |Δ_r|. It is found by inverting the distribution function: the smallest k
    with u ≤ |Δ_k| / |Δ_r|, for a uniform number u. All radii of a sample use the same u, so that they need the same
    strata as often as possible.

    >>> drawn_strata(rand.keys(0, ["a"], "x"), torch.tensor([3]), torch.tensor([[0, 3]]), 4)[0, 0].tolist()
    [0, 0, 0, 0]
    """
    words = rand.bits(rand.fold(key, -3), draws)
    uniform = (((words >> 11) & ((1 << 53) - 1)).double() + 0.5) * 2.0**-53  # in (0, 1), of 53 bits
    log_size = log_sizes(m, int(radii.max()))
    level = uniform.log()[:, None] + log_size.gather(1, radii)[..., None]  # log(u |Δ_r|)
    strata = torch.searchsorted(log_size, level.flatten(1)).reshape(level.shape)
    return strata.minimum(radii[..., None])


def random_supersets(
    key: Tensor, stratum: Tensor, index: Tensor, mask: Tensor, free: Tensor
) -> Tensor:
    """Return draw number `index` (R,) of a stratum, one per row: `mask` (R, n) with `stratum` (R,) more features.

    Each of the `free` features (R, n) gets a random word; those with the smallest words are added.

    >>> mask, free = torch.tensor([[True, False, False]]), torch.tensor([[False, True, True]])
    >>> random_supersets(rand.keys(0, ["a"], "x"), torch.tensor([2]), torch.tensor([0]), mask, free).tolist()
    [[True, True, True]]
    """
    words = rand.bits(rand.fold(rand.fold(key, stratum), index), mask.shape[1])
    words = torch.where(free, words, torch.iinfo(torch.int64).max)
    largest_added = words.sort(1).values.gather(1, (stratum - 1).clamp(min=0)[:, None])
    is_added = free & (words <= largest_added) & (stratum > 0)[:, None]
    return mask | is_added


def all_supersets(mask: Tensor, free: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """Return every set of Δ_r but the mask itself, (S, n) boolean, and its stratum (S,), smallest first.

    `mask` (n,) is the explanation, `free` (n,) says which features can be added.

    >>> all_supersets(torch.tensor([True, False, False]), torch.tensor([False, True, True]), 5)[1].tolist()
    [1, 1, 2]
    """
    addable = free.nonzero().flatten().tolist()
    additions: list[tuple[int, ...]] = []
    for k in range(1, min(r, len(addable)) + 1):
        additions.extend(combinations(addable, k))
    strata = torch.tensor([len(added) for added in additions], dtype=torch.int64)
    row_of_added = torch.arange(len(additions)).repeat_interleave(strata)
    feature = torch.tensor(list(chain.from_iterable(additions)), dtype=torch.int64)
    sets = mask.repeat(len(additions), 1)
    sets[row_of_added, feature] = True
    return sets, strata
