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
    """Return the coalitions of features that KernelSHAP evaluates, (B, samples + 2, n) boolean, and their weights.

    Sample b has counts[b] of the n features. Weights (B, samples + 2) are 0 for unused rows. The first two coalitions are
    the whole and the empty set. The others come in pairs of complements. Size s, together with
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
    """Return P pairs of complementary coalitions (B, 2·P, n) for B samples with n features, and weights (B, 2·P).

    P is at most samples / 2. Samples may have fewer pairs; their unused rows are empty and have weight 0.
    """
    pairs_per_size, expected = _pairs_per_size(rand.fold(key, -2), n, samples // 2)
    # The pairs of a sample are numbered size by size. Pair `draw` is number `turn` of those of its `size`.
    end_of_size = pairs_per_size.cumsum(1)
    start_of_size = end_of_size - pairs_per_size
    draw = torch.arange(int(pairs_per_size.sum(1).max()), device=key.device)
    draws = draw.expand(len(key), -1).contiguous()
    size_index = torch.searchsorted(end_of_size, draws, right=True).clamp(max=n // 2 - 1)
    size = size_index + 1
    turn = draw - start_of_size.gather(1, size_index)
    is_drawn = draw < end_of_size[:, -1:]

    if 2.0**n - 2 <= _ENUMERATE_UP_TO * samples:
        subsets = _distinct_subsets(key, n, size, turn)
    else:
        subsets = _blocks_of_orders(key, n, size, turn)
    coalitions = torch.stack([subsets, ~subsets], 2).flatten(1, 2)
    coalitions &= is_drawn.repeat_interleave(2, 1)[..., None]

    # The Shapley kernel's mass of all subsets of a size is (n − 1) / (s·(n − s)). The expected
    # number of coalitions drawn of this size is that of pairs, which share the mass. The middle size is its own
    # complement: both coalitions of a pair share it, so each gets half.
    is_middle = size == n - size
    mass = (n - 1) / ((size_index + 1.0) * (n - size)) / torch.where(is_middle, 2, 1)
    pair_weights = torch.where(is_drawn, mass / expected.gather(1, size_index), 0.0)
    return coalitions, pair_weights.repeat_interleave(2, 1)


def _pairs_per_size(key: Tensor, n: int, pairs: int) -> tuple[Tensor, Tensor]:
    """Return how many pairs of complementary coalitions of each size 1 … n // 2 KernelSHAP evaluates.

    `pairs` pairs of coalitions of n features are shared out among the sizes, for B samples with a random `key` each.
    Returned are whole numbers of pairs (B, n // 2), and their expected values (B, n // 2), by which the pairs are
    weighted.

    The expected number at size s is min(number of pairs that exist, c · mass): in proportion to the mass 1 / (s·(n − s))
    of the Shapley kernel (Lundberg & Lee 2017, Theorem 2, times the number of coalitions of the size), and c such that
    they sum to `pairs`. Whole numbers come by systematic sampling: one random offset per sample rounds all of them, so
    that each is off by less than one.
    """
    # On the CPU, because these are hundreds of small steps on a few numbers.
    size = torch.arange(1, n // 2 + 1, dtype=torch.float64)
    # The complement of a coalition of n / 2 features has the same size, so there are half as many pairs.
    half = torch.where(2 * size == n, 0.5, 1.0)
    n_plus_1 = torch.tensor(n + 1.0, dtype=torch.float64)
    log_subsets = torch.lgamma(n_plus_1) - torch.lgamma(size + 1) - torch.lgamma(n - size + 1)
    existing = half * log_subsets.exp().round()
    mass = half / (size * (n - size))

    # Find c by bisection. At c = max(existing / mass) every size has all the pairs that exist, and at
    # c = pairs / min(mass) every size has `pairs` or all that exist; more is never needed. The first bound may be
    # infinite for large n, so the smaller of the two is the upper end.
    low = torch.zeros_like(n_plus_1)
    high = torch.minimum((existing / mass).max(), pairs / mass.min())
    for _ in range(200):
        middle = (low + high) / 2
        too_few = torch.minimum(existing, middle * mass).sum() < pairs
        low = torch.where(too_few, middle, low)
        high = torch.where(too_few, high, middle)
    expected = torch.minimum(existing, high * mass).to(key.device)
    existing = existing.to(key.device)

    # Systematic sampling: shift the cumulative sums by the offset, round them down, and take differences. The 1e-9
    # keeps sums that are whole up to rounding errors from falling to the next number below.
    offset = rand.uniform(key, (1,)).double()
    cumulative = (expected.cumsum(0) + offset + 1e-9).floor()
    whole = cumulative.diff(dim=1, prepend=offset.new_zeros(len(key), 1))
    return torch.minimum(whole, existing).long(), expected.expand(len(key), -1)


def _distinct_subsets(key: Tensor, n: int, size: Tensor, turn: Tensor) -> Tensor:
    """Return subsets of n features drawn without replacement, (B, P, n) boolean, for few features.

    All subsets of a size are put into a random order, and pair p of sample b is number turn[b, p] of those of
    size[b, p]. Of a subset and its complement only one is in the list.
    """
    # The bits of the numbers 1 … 2ⁿ − 2 are the members of all subsets but the empty and the full one.
    code = torch.arange(1, 2**n - 1, device=key.device)
    bit = torch.arange(n, device=key.device)
    members = ((code[:, None] >> bit) & 1).bool()
    members_count = members.sum(1)
    # Keep one of each pair of complements: the smaller one, or of two halves the one without the last feature.
    is_half = 2 * members_count == n
    represents_pair = (2 * members_count < n) | (is_half & ~members[:, -1])
    members, members_count = members[represents_pair], members_count[represents_pair]
    # Shuffle all subsets, then sort them by size in a stable way. `first` is where each size begins in that order.
    shuffled = rand.permutation(rand.fold(key, -3), len(members))
    by_size = members_count[shuffled].argsort(dim=1, stable=True)
    order = shuffled.gather(1, by_size)
    first = torch.bincount(members_count, minlength=n).cumsum(0).roll(1)
    return members[order.gather(1, first[size] + turn)]


def _blocks_of_orders(key: Tensor, n: int, size: Tensor, turn: Tensor) -> Tensor:
    """Return random subsets of n features in which all features come equally often, (B, P, n) boolean.

    A random order of the features is cut into n // size blocks, each of which is a subset; then the next random order
    begins. Pair p of sample b is block number turn[b, p] of blocks of size[b, p] features.
    """
    blocks_per_order = n // size
    order_key = rand.fold(rand.fold(key[:, None], size), turn // blocks_per_order)
    rank = rand.permutation(order_key.flatten(), n).argsort(1).reshape(*size.shape, n)
    block = rank // size[..., None]
    return block == (turn % blocks_per_order)[..., None]
