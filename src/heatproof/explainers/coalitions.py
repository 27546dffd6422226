"""The coalitions that KernelSHAP evaluates: pairs of complements, stratified by size, balanced over features.

With the same number of passes, the values are several times closer to the exact ones than with independent draws;
`benchmarks/bench_accuracy.py` measures by how much.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heatproof import rand

_ENUMERATE_UP_TO = 5
"""Up to this many times as many subsets as samples, subsets are enumerated and drawn without replacement. Above it,
blocks of random orders are closer to the exact values, although they may repeat: every feature comes equally often."""


def shapley_coalitions(key: Tensor, counts: Tensor, n: int, samples: int) -> tuple[Tensor, Tensor]:
    """Return coalitions (B, samples + 2, n) boolean and their weights (B, samples + 2), 0 for unused rows.

    The first two are the whole and the empty set. The others come in pairs of complements. Size s, together with
    n − s, gets a number of pairs in proportion to the Shapley kernel's mass 1 / (s·(n − s)), rounded at random, and at
    most all that exist; what exceeds that goes to the other sizes. If there are few subsets, no pair of a size is
    drawn twice; else the subsets of a size are consecutive blocks of random orders of the features, so that every
    feature is used once before any is used again. The weight of a coalition is the kernel's,
    (n − 1) / (C(n, s)·s·(n − s)), over the expected share of its size that is drawn. If all 2ⁿ − 2 coalitions fit,
    all are used and the values are exact.

    >>> kept, weight = shapley_coalitions(rand.keys(0, ["a"], "x"), torch.tensor([2]), 2, 4)
    >>> kept[0].int().tolist(), weight[0].tolist()
    ([[1, 1], [0, 0], [1, 0], [0, 1], [0, 0], [0, 0]], [1.0, 1.0, 0.5, 0.5, 0.0, 0.0])
    """
    coalitions = torch.zeros(len(key), samples + 2, n, dtype=torch.bool, device=key.device)
    weights = torch.zeros(len(key), samples + 2, dtype=torch.float64, device=key.device)
    coalitions[:, 0] = torch.arange(n, device=key.device) < counts[:, None]
    weights[:, :2] = 1
    # Samples with the same number of features m are drawn together.
    for m in sorted(set(counts.tolist())):
        if m < 2:
            continue
        rows = (counts == m).nonzero().flatten()
        drawn, drawn_weights = _draw(key[rows], m, samples)
        end = 2 + drawn.shape[1]
        coalitions[rows, 2:end, :m] = drawn
        weights[rows, 2:end] = drawn_weights
    return coalitions, weights


def _draw(key: Tensor, n: int, samples: int) -> tuple[Tensor, Tensor]:
    """Return the coalitions (B, 2·P, n) of samples with n features, in pairs of complements, and weights (B, 2·P)."""
    pairs_per_size, expected = _pairs_per_size(rand.fold(key, -2), n, samples // 2)
    # Pairs are drawn size by size: pair `draw` has index `turn` among those of size `size`.
    last = pairs_per_size.cumsum(1)
    draw = torch.arange(int(pairs_per_size.sum(1).max()), device=key.device)
    size_index = torch.searchsorted(last, draw.expand(len(key), -1).contiguous(), right=True)
    size_index = size_index.clamp(max=n // 2 - 1)
    size = size_index + 1
    turn = draw - (last - pairs_per_size).gather(1, size_index)
    is_drawn = draw < last[:, -1:]

    if 2.0**n - 2 <= _ENUMERATE_UP_TO * samples:
        subsets = _distinct_subsets(key, n, size, turn)
    else:
        subsets = _blocks_of_orders(key, n, size, turn)
    coalitions = torch.stack([subsets, ~subsets], 2).flatten(1, 2)
    coalitions &= is_drawn.repeat_interleave(2, 1)[..., None]

    # The kernel's mass of all subsets of a size, (n − 1) / (s·(n − s)), per pair; the middle size is its own complement.
    is_middle = size == n - size
    mass = (n - 1) / ((size_index + 1.0) * (n - size)) / torch.where(is_middle, 2, 1)
    pair_weights = torch.where(is_drawn, mass / expected.gather(1, size_index), 0.0)
    return coalitions, pair_weights.repeat_interleave(2, 1)


def _pairs_per_size(key: Tensor, n: int, pairs: int) -> tuple[Tensor, Tensor]:
    """Return how many pairs of complements each size 1 … n // 2 gets, and its expectation, (B, n // 2) each.

    The expectation is min(all that exist, c / (s·(n − s))), with c such that they sum to `pairs`. It is rounded
    by one random offset per sample (systematic sampling), so that each number is off by less than one.
    """
    # On the CPU, because these are hundreds of small steps on a few numbers.
    size = torch.arange(1, n // 2 + 1, dtype=torch.float64)
    half = torch.where(2 * size == n, 0.5, 1.0)  # the middle size is its own complement
    top = torch.tensor(n + 1.0, dtype=torch.float64)
    log_subsets = torch.lgamma(top) - torch.lgamma(size + 1) - torch.lgamma(n - size + 1)
    existing = half * log_subsets.exp().round()
    mass = half / (size * (n - size))

    # Find c by bisection. `existing` may be too large for it, and no size needs more than all pairs, so the upper end
    # is bounded by that as well.
    low = torch.zeros_like(top)
    high = torch.minimum((existing / mass).max(), pairs / mass.min())
    for _ in range(200):
        middle = (low + high) / 2
        too_few = torch.minimum(existing, middle * mass).sum() < pairs
        low = torch.where(too_few, middle, low)
        high = torch.where(too_few, high, middle)
    expected = torch.minimum(existing, high * mass).to(key.device)
    existing = existing.to(key.device)

    offset = rand.uniform(key, (1,)).double()
    cumulative = (expected.cumsum(0) + offset + 1e-9).floor()
    rounded = cumulative.diff(dim=1, prepend=offset.new_zeros(len(key), 1))
    return torch.minimum(rounded, existing).long(), expected.expand(len(key), -1)


def _distinct_subsets(key: Tensor, n: int, size: Tensor, turn: Tensor) -> Tensor:
    """Return subset number `turn` (B, P) among those of its `size` in a random order, (B, P, n) boolean."""
    code = torch.arange(1, 2**n - 1, device=key.device)
    members = ((code[:, None] >> torch.arange(n, device=key.device)) & 1).bool()
    members_count = members.sum(1)
    # One of each pair of complements: the smaller one, and of two halves the one without the last feature.
    is_half = 2 * members_count == n
    represents_pair = (2 * members_count < n) | (is_half & ~members[:, -1])
    members, members_count = members[represents_pair], members_count[represents_pair]
    # Shuffle all subsets, then sort them by size; `first` is where each size begins.
    shuffled = rand.permutation(rand.fold(key, -3), len(members))
    by_size = members_count[shuffled].argsort(dim=1, stable=True)
    order = shuffled.gather(1, by_size)
    first = torch.bincount(members_count, minlength=n).cumsum(0).roll(1)
    return members[order.gather(1, first[size] + turn)]


def _blocks_of_orders(key: Tensor, n: int, size: Tensor, turn: Tensor) -> Tensor:
    """Return subset number `turn` (B, P) of its `size`, (B, P, n) boolean: a block of a random order of the features.

    A random order is cut into n // size blocks; then the next order begins.
    """
    blocks_per_order = n // size
    order_key = rand.fold(rand.fold(key[:, None], size), turn // blocks_per_order)
    rank = rand.permutation(order_key.flatten(), n).argsort(1).reshape(*size.shape, n)
    block = rank // size[..., None]
    return block == (turn % blocks_per_order)[..., None]
