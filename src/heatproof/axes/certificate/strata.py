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
    """Return in how many ways at most r (or exactly r) of m features can be added to an explanation.

    It is |Δ_r| = Σ_{k ≤ r} C(m, k), or C(m, r). An r beyond m counts as m.

    >>> supersets(147, 1), supersets(3, 5), supersets(147, 1, "exactly")
    (148, 8, 147)
    """
    return sum(math.comb(m, k) for k in strata_of(min(r, m), added))


def log_sizes(m: Tensor, most: int) -> Tensor:
    """Return the log of the number of ways to add at most r of m features, for r = 0 … most and each m (B,).

    These are log Σ_{k ≤ r} C(m, k), (B, most + 1) float64, constant from r = m on.

    >>> log_sizes(torch.tensor([3]), 4).exp().round().tolist()
    [[1.0, 4.0, 7.0, 8.0, 8.0]]
    """
    k = torch.arange(most + 1, device=m.device, dtype=torch.float64)
    not_added = m[:, None].double() - k
    log_choose = (
        torch.lgamma(m[:, None].double() + 1)
        - torch.lgamma(k + 1)
        - torch.lgamma(not_added.clamp(min=0) + 1)
    )
    log_choose = torch.where(not_added >= 0, log_choose, -torch.inf)
    return log_choose.logcumsumexp(1)


def drawn_strata(
    key: Tensor, m: Tensor, radii: Tensor, draws: int, added: Added = "at most"
) -> Tensor:
    """Return how many features each draw adds to an explanation, (B, R, draws) int64, for radii (B, R) of at most m (B,).

    A draw takes a uniform set of at most r of m features, so it adds k of them with probability C(m, k) / |Δ_r|, where
    |Δ_r| = Σ_{j ≤ r} C(m, j). k is drawn by inverting the distribution function: it is the smallest k with
    u ≤ |Δ_k| / |Δ_r|, for a uniform number u. All radii of a sample use the same u, so that they need the same k as
    often as possible. Where exactly r features are added, k is r.

    >>> drawn_strata(rand.keys(0, ["a"], "x"), torch.tensor([3]), torch.tensor([[0, 3]]), 4)[0, 0].tolist()
    [0, 0, 0, 0]
    """
    if added == "exactly":
        return radii[..., None].expand(-1, -1, draws)
    # A uniform number in (0, 1) from the upper 53 of 64 random bits, as many as a float64 holds.
    random_bits = rand.bits(rand.fold(key, -3), draws)
    upper_bits = (random_bits >> 11) & ((1 << 53) - 1)
    uniform = (upper_bits.double() + 0.5) * 2.0**-53
    # u ≤ |Δ_k| / |Δ_r| is log(u |Δ_r|) ≤ log |Δ_k|.
    log_size = log_sizes(m, int(radii.max()))
    log_level = uniform.log()[:, None] + log_size.gather(1, radii)[..., None]
    added_features = torch.searchsorted(log_size, log_level.flatten(1)).reshape(log_level.shape)
    return added_features.minimum(radii[..., None])  # rounding must not lead beyond r


def random_supersets(
    key: Tensor, stratum: Tensor, index: Tensor, mask: Tensor, free: Tensor
) -> Tensor:
    """Return explanations with random features added, (R, n) boolean.

    Row i is `mask`[i] (n,) with `stratum`[i] more of the features that are `free`[i] (n,), every set of them equally likely.
    It depends on the random `key`[i] of the sample and on `index`[i], the number of the draw. Each free feature gets a
    random number, and those with the smallest ones are added.

    >>> mask, free = torch.tensor([[True, False, False]]), torch.tensor([[False, True, True]])
    >>> random_supersets(rand.keys(0, ["a"], "x"), torch.tensor([2]), torch.tensor([0]), mask, free).tolist()
    [[True, True, True]]
    """
    random_numbers = rand.bits(rand.fold(rand.fold(key, stratum), index), mask.shape[1])
    random_numbers = torch.where(free, random_numbers, torch.iinfo(torch.int64).max)
    ascending = random_numbers.sort(1).values
    position_of_last = (stratum - 1).clamp(min=0)[:, None]
    largest_added = ascending.gather(1, position_of_last)
    is_added = free & (random_numbers <= largest_added) & (stratum > 0)[:, None]
    return mask | is_added


def all_supersets(mask: Tensor, free: Tensor, strata: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Return every set that adds k features to an explanation, for each k of `strata`: sets (S, n) boolean and k (S,).

    `mask` (n,) is the explanation, and `free` (n,) says which features can be added.

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
