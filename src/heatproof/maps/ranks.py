"""Ranks and top-k sets of maps with ties, and the expected overlap of two such sets.

Ties make the top k a random set. Positions with a value above the k-th largest are *certain* members. Positions with
exactly that value are *tied*: only some of them still fit, and these are drawn at random. Both maps of a pair draw with
one shared random order of the positions, so that a map compared with itself scores exactly 1. With two independent
orders it would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln
from torch import Tensor

Floats = npt.NDArray[np.float64]
Ties = Literal["average", "ordinal"]

EXACT_UP_TO = 16
"""Number of draws up to which the expected overlap is summed exactly; above it, its limit for many draws is used."""
COLUMNS = 1 << 18
"""How many positions are counted at once: bounds the memory, and such counts are exact in float32."""
_NEGLIGIBLE = 1e-15
"""Probabilities up to this one are left out of the sum."""


@dataclass(frozen=True)
class Top:
    """The sets of the k largest of n values, for B maps.

    k                   (B,)    the size of each set; it may differ from map to map
    largest             (B, K)  the positions of the K largest values in descending order, K being at least every k
    largest_is_certain  (B, K)  which of `largest` belong to the set however ties are broken
    certain             (B, n)  the same as a mask of all positions
    tied                (B, n)  the positions with the k-th largest value, where only some of them fit into the set
    draws               (B,)    how many of the tied positions fit; 0 where nothing is left to chance
    tied_count          (B,)    how many positions are tied; 0 where nothing is left to chance
    """

    k: Tensor
    largest: Tensor
    largest_is_certain: Tensor
    certain: Tensor
    tied: Tensor
    draws: Tensor
    tied_count: Tensor

    def __getitem__(self, index: slice | Tensor) -> Top:
        """Return the top-k sets of a selection of the B maps, such as `sets[:2]`; `index` selects along the batch."""
        return Top(
            k=self.k[index],
            largest=self.largest[index],
            largest_is_certain=self.largest_is_certain[index],
            certain=self.certain[index],
            tied=self.tied[index],
            draws=self.draws[index],
            tied_count=self.tied_count[index],
        )


def ranking(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Return sort keys and positions of the values (B, n) of each map, from the largest value to the smallest.

    `order` (B, n) are the positions of the values in descending order; equal values stay in the order of positions.
    `keys` (B, n) belong to `order`: they rise along it, and two are equal exactly where the values are. They are floats
    on a GPU and whole numbers on a CPU, so only their order has a meaning.

    >>> ranking(torch.tensor([[1.0, 3.0, 1.0]]))[1].tolist()
    [[1, 0, 2]]
    """
    negated = 0.0 - flat  # in contrast to -flat, this gives no negative zero
    if negated.device.type != "cpu":
        keys, order = negated.sort(dim=1, stable=True)
        return keys, order
    # NumPy sorts whole numbers ten times as fast as torch sorts floats together with their positions. So one 64-bit
    # number holds both: the bits of the float in the upper half, the position in the lower half.
    bits = negated.view(torch.int32)
    # Read as whole numbers, the bits of negative floats fall as the floats rise. Flipping all bits but the sign of
    # negative floats makes them rise as well.
    is_negative_mask = bits >> 31  # all ones for negative floats, else all zeros
    rising_bits = bits ^ (is_negative_mask & 0x7FFFFFFF)
    packed = rising_bits.long()
    packed.bitwise_left_shift_(32).bitwise_or_(torch.arange(packed.shape[1]))
    packed.numpy().sort(axis=1)
    keys, order = packed >> 32, packed & 0xFFFFFFFF
    return keys, order


def centred_ranks(keys: Tensor, order: Tensor, counts: Tensor, ties: Ties) -> Tensor:
    """Return the rank of each value of B maps minus the map's mean rank, (B, n), as Spearman's correlation needs them.

    `keys` and `order` are a `ranking` of the maps. Only the `counts` (B,) largest values of each map are ranked; the
    others get 0. The largest value has the highest rank. Equal values share their average rank, or, if `ties` is
    "ordinal", have ranks in the order of their positions. Ranks are multiples of ½, so they are exact in float32.

    >>> centred_ranks(*ranking(torch.tensor([[1.0, 3.0, 1.0]])), torch.tensor([3]), "average").tolist()
    [[-0.5, 1.0, -0.5]]
    """
    n = keys.shape[1]
    ranks = torch.empty(keys.shape, device=keys.device)
    if keys.device.type == "cpu":
        rows = zip(keys.numpy(), order.numpy(), ranks.numpy(), counts.tolist(), strict=True)
        for row_keys, row_order, row_ranks, count in rows:
            if ties == "average":
                falling_rank = _middles_of_row(row_keys)
            else:
                falling_rank = np.arange(n, dtype=np.float32)
            mean_rank = (count - 1) / 2
            falling_rank[count:] = mean_rank
            row_ranks[row_order] = mean_rank - falling_rank
        return ranks
    position = torch.arange(n, device=keys.device)
    falling_ranks = _middles(keys) if ties == "average" else position.expand_as(keys).float()
    mean_ranks = (counts[:, None] - 1).float() / 2
    is_beyond = position >= counts[:, None]
    centred = (mean_ranks - falling_ranks).masked_fill_(is_beyond, 0)
    return ranks.scatter_(1, order, centred)


def _middles(keys: Tensor) -> Tensor:
    """Return the average index of all keys equal to each key, for rows (B, n) of sorted keys.

    Equal sorted keys form a run, so this is the middle of the run that a key lies in. No step waits for the GPU, as
    counting the runs would.
    """
    rows, n = keys.shape
    # Keys of all rows are numbered one after another. A run begins with a row, or where the key changes.
    position = torch.arange(rows * n, device=keys.device)
    is_start = position.view(rows, n) % n == 0
    is_start[:, 1:] |= keys[:, 1:] != keys[:, :-1]
    # Runs are numbered from 1. Entry 0 of `starts` takes the writes of positions that are no start, and the last entry
    # is the end of the last run.
    run = is_start.flatten().cumsum(0)
    starts = torch.full((rows * n + 2,), rows * n, device=keys.device)
    starts.scatter_(0, run.masked_fill(~is_start.flatten(), 0), position)
    first = starts[run].view(rows, n)
    last = starts[1:][run].view(rows, n) - 1
    row_start = n * torch.arange(rows, device=keys.device)[:, None]
    return (first + last - 2 * row_start).float() / 2


def _middles_of_row(keys: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the average index of all keys equal to each key, for one row (n,) of sorted keys in NumPy."""
    tied = np.flatnonzero(keys[1:] == keys[:-1])
    few_are_tied = len(tied) * 32 < len(keys)
    if few_are_tied:
        middles = np.arange(len(keys), dtype=np.float32)
        tied_positions = np.union1d(tied, tied + 1)
        first = np.searchsorted(keys, keys[tied_positions])
        last = np.searchsorted(keys, keys[tied_positions], "right") - 1
        middles[tied_positions] = (first + last) / 2
        return middles
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    sizes = np.diff(starts, append=len(keys))
    return np.repeat((starts + (sizes - 1) / 2).astype(np.float32), sizes)


def top(flat: Tensor, keys: Tensor, order: Tensor, k: Tensor, most: int, ties: Ties) -> Top:
    """Return the sets of the k (B,) largest of the values `flat` (B, n).

    `keys` and `order` are the `ranking` of the values, and `most` is at least every k. With `ties` "ordinal", equal
    values are taken in the order of their positions, so nothing is left to chance.
    """
    edge_index = k[:, None] - 1
    # In descending order, the values equal to the k-th largest go from `first` to just before `last`.
    if ties == "average":
        edge_key = keys.gather(1, edge_index)
        first = torch.searchsorted(keys, edge_key)
        last = torch.searchsorted(keys, edge_key, right=True)
    else:
        first = last = k[:, None]
    all_fit = last == k[:, None]  # all values equal to the k-th largest belong to the set

    largest = order[:, :most].contiguous()
    certain_count = torch.where(all_fit, last, first)
    largest_is_certain = torch.arange(most, device=flat.device) < certain_count
    nowhere = torch.zeros_like(flat, dtype=torch.bool)
    certain = nowhere.scatter_(1, largest, largest_is_certain)
    edge_value = flat.gather(1, order.gather(1, edge_index))
    tied = (flat == edge_value).logical_and_(~all_fit)
    draws = (k[:, None] - first).masked_fill(all_fit, 0)
    tied_count = (last - first).masked_fill(all_fit, 0)
    return Top(k, largest, largest_is_certain, certain, tied, draws[:, 0], tied_count[:, 0])


def overlap(a: Top, b: Top) -> Tensor:
    """Return the expected Jaccard index of B pairs of top-k sets, (B,) in float64.

    Pairs are set i of `a` with set i of `b`; if one of the two holds a single set, it is paired with every other.
    """
    if 1 in (len(a.k), len(b.k)):
        return overlaps(a, b).flatten()
    in_a = a.certain.gather(1, b.largest)
    in_both = in_a.logical_and_(b.largest_is_certain)
    return _expected_scores(in_both.sum(1), a, b, a.k, b.k, "bsn,btn->bst")


def overlaps(a: Top, b: Top) -> Tensor:
    """Return the expected Jaccard index of every set of `a` with every set of `b`, (A, B) in float64."""
    in_a = a.certain[:, b.largest.flatten()].view(len(a.k), *b.largest.shape)
    in_both = in_a.logical_and_(b.largest_is_certain)
    return _expected_scores(in_both.sum(2), a, b, a.k[:, None], b.k[None], "asn,btn->abst")


def _expected_scores(
    common: Tensor, a: Top, b: Top, k_a: Tensor, k_b: Tensor, products: str
) -> Tensor:
    """Return the expected Jaccard index of pairs of top-k sets, in the shape of `common`, (B,) or (A, B).

    common    how many positions are certain in both sets of a pair
    k_a, k_b  the sizes of the sets, in a shape that broadcasts to that of `common`
    products  the einsum that counts the positions in both masks of a pair: (…, s, n) × (…, t, n) → (…, s, t)

    If no set of `a` or `b` is random, `common` alone gives the index |A ∩ B| / |A ∪ B| = common / (2k − common).
    """
    k = torch.minimum(k_a, k_b)
    score = common.double() / (2 * k - common).double()
    if not bool(a.draws.any() | b.draws.any()):
        return score
    shape_of_a = (-1, *[1] * (common.ndim - 1))
    draws_a = a.draws.view(shape_of_a).expand_as(common)
    draws_b = b.draws.expand_as(common)

    # shared[..., i, j] is how many positions are in mask i of a and in mask j of b. Mask 0 is `certain`, 1 is `tied`.
    shared = torch.zeros(*common.shape, 2, 2, device=common.device, dtype=torch.float64)
    for start in range(0, a.certain.shape[1], COLUMNS):
        columns = slice(start, start + COLUMNS)
        masks_a = torch.stack((a.certain[:, columns], a.tied[:, columns]), 1).float()
        masks_b = torch.stack((b.certain[:, columns], b.tied[:, columns]), 1).float()
        shared += torch.einsum(products, masks_a, masks_b)
    tied_a_certain_b = shared[..., 1, 0]
    certain_a_tied_b = shared[..., 0, 1]
    tied_both = shared[..., 1, 1]
    tied_a_absent_b = a.tied_count.view(shape_of_a) - tied_a_certain_b - tied_both
    absent_a_tied_b = b.tied_count - certain_a_tied_b - tied_both

    is_random = (draws_a > 0) | (draws_b > 0)
    # The columns that `_expected` reads.
    counts = torch.stack(
        [
            k,
            common,
            draws_a,
            draws_b,
            tied_both,
            tied_a_certain_b,
            tied_a_absent_b,
            certain_a_tied_b,
            absent_a_tied_b,
        ],
        -1,
    )
    counts_of_random = counts[is_random].long().cpu().numpy()
    expected = torch.from_numpy(_expected(counts_of_random)).to(score.device)
    return score.masked_scatter(is_random, expected)


class _Lottery(NamedTuple):
    """The counts that decide the expected overlap of two top-k sets with ties; numbers, or arrays of them.

    k                 the size of both sets
    common            positions that are certain in both sets
    draws_a, draws_b  how many of the tied positions of a (of b) are drawn
    both              positions that are tied in both sets
    a_only            the other positions tied in a: (those certain in b, those absent from b)
    b_only            the other positions tied in b: (those certain in a, those absent from a)
    """

    k: Any
    common: Any
    draws_a: Any
    draws_b: Any
    both: Any
    a_only: tuple[Any, Any]
    b_only: tuple[Any, Any]


def _expected(counts: npt.NDArray[np.int64]) -> Floats:
    """Return the expected Jaccard index of N pairs of random top-k sets, (N,).

    `counts` (N, 9) are the fields of `_Lottery`, with the pairs `a_only` and `b_only` as two columns each. Pairs with one
    draw have a formula and those with many draws a limit, both computed for all pairs at once; the others are summed
    one by one. Many draws are usual: maps of superpixels have large ties. So is one draw: a map repeated for the three
    colour channels has its values three times, and ties for one of its 100 positions.
    """
    k, common, draws_a, draws_b, both, a_certain, a_absent, b_certain, b_absent = counts.T
    lotteries = _Lottery(
        k, common, draws_a, draws_b, both, (a_certain, a_absent), (b_certain, b_absent)
    )
    most_draws = np.maximum(draws_a, draws_b)
    has_one_draw = most_draws <= 1
    expected: Floats = np.where(has_one_draw, _of_one_draw(lotteries), _of_many_draws(lotteries))

    has_same_ties = (a_certain + a_absent + b_certain + b_absent == 0) & (draws_a == draws_b)
    needs_sum = ~has_one_draw & (has_same_ties | (most_draws <= EXACT_UP_TO))
    for row in np.flatnonzero(needs_sum):
        *numbers, a_in, a_out, b_in, b_out = counts[row].tolist()
        expected[row] = expected_jaccard(*numbers, (a_in, a_out), (b_in, b_out))
    return expected


def _of_one_draw(lottery: _Lottery) -> Any:
    """Return the expected Jaccard index of two top-k sets of which each draws one of its tied positions, or none.

    Both sets draw along one random order of the positions, and each takes the first of its tied positions. Look at the
    first position in that order which is tied in either set. Every set in which it is tied draws it. If that is one set
    only, the other set draws later, each of its own tied positions being equally likely. A draw of that other set which is
    tied in both adds nothing to the overlap, because the first set has drawn already.
    """
    k, common, _, _, both, a_only, b_only = lottery
    tied = np.maximum(both + sum(a_only) + sum(b_only), 1)
    # The probability that the draw of one set is a certain member of the other.
    a_hits = a_only[0] / np.maximum(both + sum(a_only), 1)
    b_hits = b_only[0] / np.maximum(both + sum(b_only), 1)
    # `gains` is the expected number of positions that the draws add to the overlap, and `gains_two` the probability
    # that they add two.
    gains_two = a_only[0] / tied * b_hits + b_only[0] / tied * a_hits
    first_draw_gains = (both + a_only[0] + b_only[0]) / tied
    second_draw_gains = sum(a_only) / tied * b_hits + sum(b_only) / tied * a_hits
    gains = first_draw_gains + second_draw_gains
    # The Jaccard index with zero, one and two more positions in the overlap.
    with_gains = []
    for gained in range(3):
        size = np.minimum(common + gained, k)
        with_gains.append(size / (2 * k - size))
    # From gains = P(one) + 2·P(two) and P(none) = 1 − P(one) − P(two).
    gains_one = gains - 2 * gains_two
    gains_none = 1 - gains + gains_two
    return gains_none * with_gains[0] + gains_one * with_gains[1] + gains_two * with_gains[2]


def _of_many_draws(lottery: _Lottery) -> Any:
    """Return the Jaccard index of the expected overlap: the limit of the expected index as draws grow in number."""
    k, common, draws_a, draws_b, both, a_only, b_only = lottery
    chance_a = draws_a / np.maximum(both + sum(a_only), 1)
    chance_b = draws_b / np.maximum(both + sum(b_only), 1)
    # Both sets draw along one random order, so a position drawn by the set with the lower chance is also drawn by the
    # set with the higher one.
    drawn_by_both = both * np.minimum(chance_a, chance_b)
    size = common + drawn_by_both + a_only[0] * chance_a + b_only[0] * chance_b
    return size / (2 * k - size)


@lru_cache(maxsize=65536)
def expected_jaccard(
    k: int,
    common: int,
    draws_a: int,
    draws_b: int,
    both: int,
    a_only: tuple[int, int],
    b_only: tuple[int, int],
) -> float:
    """Return the expected Jaccard index E[I / (2k − I)] of two top-k sets whose ties are broken by one random order.

    I is the size of their overlap. `common` positions are certain in both sets, and `both` positions are tied in both.
    `a_only` counts the other positions tied in a, as (those certain in b, those absent from b); `b_only` likewise.
    `draws_a` of all positions tied in a are drawn, `draws_b` of those tied in b.

    A map whose two largest values tie for k = 1, against a map that has one of them for certain:

    >>> expected_jaccard(1, 0, 1, 0, 0, (1, 1), (0, 0))
    0.5
    """
    has_same_ties = a_only == b_only == (0, 0) and draws_a == draws_b
    if has_same_ties:  # then both sets draw the same positions
        return (common + draws_a) / (2 * k - common - draws_a)
    if max(draws_a, draws_b) > EXACT_UP_TO:
        lottery = _Lottery(k, common, draws_a, draws_b, both, a_only, b_only)
        return float(_of_many_draws(lottery))

    size = np.arange(k + 1)
    score = size / (2 * k - size)
    hit_laws_a = _hit_laws(*a_only, draws_a)
    hit_laws_b = _hit_laws(*b_only, draws_b)
    total = 0.0
    for from_both, full_map in _draws_from_both(draws_a, draws_b, both, sum(a_only), sum(b_only)):
        for drawn_a, drawn_b in np.argwhere(from_both > _NEGLIGIBLE):
            # A set fills up with positions tied in it alone, independently of the other set. Each certain member of the
            # other set among them joins the overlap; the distribution of a sum of two counts is a convolution.
            gained = np.convolve(hit_laws_a[draws_a - drawn_a], hit_laws_b[draws_b - drawn_b])
            # The set that is full first has drawn fewer of `both`, and the other set has drawn all of those too.
            shared = (drawn_a, drawn_b)[full_map]
            sizes = common + int(shared) + np.arange(len(gained))
            expected = float(gained @ score[np.minimum(sizes, k)])
            total += float(from_both[drawn_a, drawn_b]) * expected
    return total


def _draws_from_both(
    draws_a: int, draws_b: int, both: int, a_only: int, b_only: int
) -> list[tuple[Floats, int]]:
    """Return the joint distribution of how many of the positions tied in both sets each set draws.

    `both` positions are tied in both sets, `a_only` and `b_only` in one of them. The distribution is split by which set
    has made all its draws first: entries are (probabilities[drawn by a, drawn by b], 0 where that is a, else 1).
    """
    if both == 0:
        certain = np.zeros((draws_a + 1, draws_b + 1))
        certain[0, 0] = 1.0
        return [(certain, 0)]
    a_first = _first_to_fill(draws_a, draws_b, both, a_only, b_only, counts_draws=True)
    b_first = _first_to_fill(draws_b, draws_a, both, b_only, a_only, counts_draws=False)
    return [(a_first, 0), (b_first.T, 1)]


def _first_to_fill(
    draws: int, other_draws: int, both: int, only: int, other_only: int, counts_draws: bool
) -> Floats:
    """Return P(the first set draws i, the other j of the positions tied in both, and the first set is full first), [i, j].

    The sets take positions along one shared random order: the first set takes `draws` of the `both` + `only` positions
    tied in it, the other `other_draws` of the `both` + `other_only` tied in that. Stop when the first set is full. It has
    drawn x of `both`, a hypergeometric number; meanwhile w positions went by that are tied in the other set alone, a
    negative hypergeometric number, independent of x. The other set has x + w draws by then, and makes the rest among the
    positions that remain. When one position fills both sets at once, that counts here if `counts_draws`.
    """
    law = np.zeros((draws + 1, other_draws + 1))
    x = np.arange(draws + 1)
    x_law = _hypergeometric(x, both, only, draws)
    for w in range(min(other_only, other_draws) + 1):
        # P(w) = C(draws − 1 + w, w) · C(both + only − draws + other_only − w, other_only − w)
        #        / C(both + only + other_only, other_only),
        # the negative hypergeometric distribution: w of the `other_only` positions come before the one that is drawn
        # last, and the others behind it.
        log_before = _log_choose(draws - 1 + w, w)
        log_after = _log_choose(both + only - draws + other_only - w, other_only - w)
        log_all = _log_choose(both + only + other_only, other_only)
        w_probability = np.exp(log_before + log_after - log_all)

        remaining_draws = other_draws - x - w
        for i in x[(remaining_draws > 0) & (x_law > 0)]:
            more = np.arange(min(remaining_draws[i], both - i) + 1)
            more_law = _hypergeometric(more, both - i, other_only - w, int(remaining_draws[i]))
            law[i, i + more] += x_law[i] * w_probability * more_law
        x_if_full = other_draws - w
        if counts_draws and 0 < x_if_full <= draws:
            # Both sets are full at the same position. It is one of `both`, and the last of the first set's draws is
            # one of these with probability x / draws.
            law[x_if_full, x_if_full] += x_law[x_if_full] * w_probability * x_if_full / draws
    return law


@lru_cache(maxsize=65536)
def _hit_laws(hits: int, misses: int, most_draws: int) -> list[Floats]:
    """Return the distribution of the number of hits among 0, 1, … `most_draws` draws without replacement.

    An urn holds `hits` hits and `misses` misses. Entry d of the list is an array: the probabilities of 0, 1, … hits
    among d draws. Here a hit is a tied position of one map that is a certain member of the other map's top-k set.
    """
    laws = []
    for draws in range(most_draws + 1):
        if draws > hits + misses:
            laws.append(np.zeros(1))  # the urn has fewer positions, so this never happens
            continue
        possible_hits = np.arange(min(draws, hits) + 1)
        laws.append(_hypergeometric(possible_hits, hits, misses, draws))
    return laws


def _hypergeometric(hits: npt.NDArray[Any], good: int, bad: int, draws: int) -> Floats:
    """Return the probability of each number of `hits` among draws without replacement from `good` and `bad` positions.

    The hypergeometric distribution, C(good, hits) · C(bad, draws − hits) / C(good + bad, draws), by logarithms.
    """
    is_possible = (hits <= good) & (draws - hits <= bad) & (hits <= draws)
    # Impossible numbers are replaced, so that no logarithm is undefined.
    safe_hits = np.where(is_possible, hits, max(0, draws - bad))
    log_hits = _log_choose(good, safe_hits)
    log_misses = _log_choose(bad, draws - safe_hits)
    probability = np.exp(log_hits + log_misses - _log_choose(good + bad, draws))
    return np.where(is_possible, probability, 0.0)


def _log_choose(n: Any, r: Any) -> Any:
    """Return log C(n, r)."""
    return gammaln(np.add(n, 1)) - gammaln(np.add(r, 1)) - gammaln(np.subtract(n, r) + 1)
