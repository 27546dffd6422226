"""Supersets of an explanation: how many there are, uniform draws of them, and all of them.

With m features left out, Δ_r holds the Σ_{k ≤ r} C(m, k) supersets with at most r more features; those with exactly k
more are the stratum k. A uniform draw from Δ_r takes the stratum k with probability C(m, k) / |Δ_r| and then k of the
m features. Draw i of a stratum does not depend on r, so draws serve all radii: for each radius they are independent.

A radius may also stand for its last stratum alone, "exactly" r more features; see `Added`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, combinations
from typing import Literal

import torch
from torch import Tensor

from heatproof import rand

Added = Literal["at most", "exactly"]
"""Whether a radius r is about the supersets with at most r more features (the rate τ_r) or exactly r (the rate τ_{=r})."""


def strata_of(r: int, added: Added = "at most") -> range:
    """Return the strata that a radius consists of.

    >>> list(strata_of(3)), list(strata_of(3, "exactly"))
    ([0, 1, 2, 3], [3])
    """
    first = 0 if added == "at most" else r
    return range(first, r + 1)


@lru_cache(maxsize=65536)
def supersets(m: int, r: int, added: Added = "at most") -> int:
    """Return |Δ_r|, the number of supersets with at most r more of m features, or with exactly r more.

    Radii beyond m are m.

    >>> supersets(147, 1), supersets(3, 5), supersets(147, 1, "exactly")
    (148, 8, 147)
    """
    return sum(math.comb(m, k) for k in strata_of(min(r, m), added))


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


def drawn_strata(
    key: Tensor, m: Tensor, radii: Tensor, draws: int, added: Added = "at most"
) -> Tensor:
    """Return the stratum of each draw from Δ_r, (B, R, draws) int64, for radii (B, R) of at most m (B,).

    A stratum k has the probability C(m, k) / |Δ_r|. It is found by inverting the distribution function: the smallest k
    with u ≤ |Δ_k| / |Δ_r|, for a uniform number u. All radii of a sample use the same u, so that they need the same
    strata as often as possible. Where exactly r features are added, every draw is from the stratum r.

    >>> drawn_strata(rand.keys(0, ["a"], "x"), torch.tensor([3]), torch.tensor([[0, 3]]), 4)[0, 0].tolist()
    [0, 0, 0, 0]
    """
    if added == "exactly":
        return radii[..., None].expand(-1, -1, draws)
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


def all_supersets(mask: Tensor, free: Tensor, strata: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Return every superset of the given strata, (S, n) boolean, and its stratum (S,), in the order of the strata.

    `mask` (n,) is the explanation, which is the stratum 0; `free` (n,) says which features can be added.

    >>> all_supersets(torch.tensor([True, False, False]), torch.tensor([False, True, True]), [1, 2])[1].tolist()
    [1, 1, 2]
    """
    addable = free.nonzero().flatten().tolist()
    additions: list[tuple[int, ...]] = []
    for stratum in strata:
        additions.extend(combinations(addable, stratum))
    sizes = torch.tensor([len(added) for added in additions], dtype=torch.int64)
    row_of_added = torch.arange(len(additions)).repeat_interleave(sizes)
    feature = torch.tensor(list(chain.from_iterable(additions)), dtype=torch.int64)
    sets = mask.repeat(len(additions), 1)
    sets[row_of_added, feature] = True
    return sets, sizes
