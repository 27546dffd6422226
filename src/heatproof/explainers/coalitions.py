"""Which subsets of features KernelSHAP looks at: pairs of complements, stratified by size, balanced over features.

At equal passes the values are several times nearer to the exact ones than with independent draws; the benchmark
`benchmarks/bench_accuracy.py` shows by how much.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heatproof import rand

_LISTED = 5
"""Subsets are listed, and none is drawn twice, where there are at most so many times those wanted. With more, blocks of
random orders come nearer to the exact values, although they may repeat: every feature comes equally often."""


def shapley_coalitions(key: Tensor, counts: Tensor, n: int, samples: int) -> tuple[Tensor, Tensor]:
    """Coalitions (B, samples + 2, n) boolean and their weights (B, samples + 2), 0 for those not needed.

    The first two are the whole and the empty set. The others come in pairs of complements. Size s, together with
    n − s, gets a number of pairs in proportion to the Shapley kernel's mass 1 / (s·(n − s)), rounded at random, and at
    most all that there are; what a size has too many of goes to the others. Where the coalitions are few, no pair of a
    size is drawn twice; else the subsets of a size are consecutive blocks of random orders of the features, so that
    every feature has its turn before one comes again. The weight is the kernel's, (n − 1) / (C(n, s)·s·(n − s)), over
    the share of the size that is drawn on average. Where all 2ⁿ − 2 fit, they are all there and the values are exact.

    >>> kept, weight = shapley_coalitions(rand.keys(0, ["a"], "x"), torch.tensor([2]), 2, 4)
    >>> kept[0].int().tolist(), weight[0].tolist()
    ([[1, 1], [0, 0], [1, 0], [0, 1], [0, 0], [0, 0]], [1.0, 1.0, 0.5, 0.5, 0.0, 0.0])
    """
    exists = torch.arange(n, device=key.device) < counts[:, None]
    pairs = samples // 2
    kept = torch.zeros(len(key), samples + 2, n, dtype=torch.bool, device=key.device)
    weight = torch.zeros(len(key), samples + 2, dtype=torch.float64, device=key.device)
    kept[:, 0], weight[:, :2] = exists, 1
    for m in sorted(set(counts.tolist())):
        rows = (counts == m).nonzero().flatten()
        if m < 2:
            continue
        each, expected = _pairs_per_size(rand.fold(key[rows], -2), m, pairs)
        draw = torch.arange(int(each.sum(1).max()), device=key.device)
        last = each.cumsum(1)
        size = torch.searchsorted(last, draw.expand(len(rows), -1).contiguous(), right=True).clamp(
            max=m // 2 - 1
        )
        turn = draw - (last - each).gather(1, size)
        if 2.0**m - 2 <= _LISTED * samples:
            chosen = _distinct(key[rows], m, size + 1, turn)
        else:
            chosen = _blocks(key[rows], m, size + 1, turn)
        drawn = draw < last[:, -1:]
        mass = (
            (m - 1) / ((size + 1.0) * (m - size - 1)) / torch.where(size + 1 == m - size - 1, 2, 1)
        )
        both = (
            torch.stack([chosen, ~chosen], 2).flatten(1, 2)
            & drawn.repeat_interleave(2, 1)[..., None]
        )
        kept[rows, 2 : 2 + both.shape[1], :m] = both
        value = torch.where(drawn, mass / expected.gather(1, size), 0.0)
        weight[rows, 2 : 2 + both.shape[1]] = value.repeat_interleave(2, 1)
    return kept, weight


def _pairs_per_size(key: Tensor, n: int, pairs: int) -> tuple[Tensor, Tensor]:
    """How many pairs of complements each size 1 … n // 2 gets, and how many are expected, (B, n // 2) both.

    Expected numbers are min(all there are, c / (s·(n − s))) with the c that makes them sum to `pairs`; they are rounded
    by one random offset per sample, so that each is off by less than one.
    """
    s = torch.arange(
        1, n // 2 + 1, dtype=torch.float64
    )  # on the CPU: a few numbers, and hundreds of small steps
    half = torch.where(2 * s == n, 0.5, 1.0)  # the middle size is its own complement
    top = torch.tensor(n + 1.0, dtype=torch.float64)
    most = half * (torch.lgamma(top) - torch.lgamma(s + 1) - torch.lgamma(n - s + 1)).exp().round()
    mass = half / (s * (n - s))
    # `most` of many features is far beyond what halving an interval can cross: no size needs more than all pairs
    low, high = torch.zeros_like(top), torch.minimum((most / mass).max(), pairs / mass.min())
    for _ in range(200):
        middle = (low + high) / 2
        few = torch.minimum(most, middle * mass).sum() < pairs
        low, high = torch.where(few, middle, low), torch.where(few, high, middle)
    most, expected = most.to(key.device), torch.minimum(most, high * mass).to(key.device)
    offset = rand.uniform(key, (1,)).double()
    ends = (expected.cumsum(0) + offset + 1e-9).floor()
    each = ends.diff(dim=1, prepend=offset.new_zeros(len(key), 1))
    return torch.minimum(each, most).long(), expected.expand(len(key), -1)


def _distinct(key: Tensor, n: int, size: Tensor, turn: Tensor) -> Tensor:
    """The subset of each draw (B, P, n), number `turn` (B, P) among those of its `size` in a random order."""
    code = torch.arange(1, 2**n - 1, device=key.device)
    member = ((code[:, None] >> torch.arange(n, device=key.device)) & 1).bool()
    of_size = member.sum(1)
    smaller = (2 * of_size < n) | (
        (2 * of_size == n) & ~member[:, -1]
    )  # one of each pair of complements
    member, of_size = member[smaller], of_size[smaller]
    shuffled = rand.permutation(rand.fold(key, -3), len(member))
    order = shuffled.gather(1, of_size[shuffled].argsort(dim=1, stable=True))
    first = torch.bincount(of_size, minlength=n).cumsum(0).roll(1)
    return member[order.gather(1, first[size] + turn)]


def _blocks(key: Tensor, n: int, size: Tensor, turn: Tensor) -> Tensor:
    """The subset of each draw (B, P, n): the block number `turn` of its `size` in a random order of the features."""
    fits = n // size
    order = rand.fold(rand.fold(key[:, None], size), turn // fits)
    rank = rand.permutation(order.flatten(), n).argsort(1).reshape(*size.shape, n)
    return rank // size[..., None] == (turn % fits)[..., None]
