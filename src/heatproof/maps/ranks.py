"""Ranks and top-k sets of maps with ties, and the expected overlap of two such sets.

With ties the top k is not a set but a lottery: the *sure* positions are in, and the positions that tie for the remaining
*slots* are drawn at random. Both maps of a pair use one random order of the positions, so that a map compared with
itself scores exactly 1, which two independent lotteries would not give.
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
"""Slots up to which the expected overlap is summed exactly; above it, its limit for many slots is used."""
COLUMNS = 1 << 18
"""How many positions are counted at once: bounds the memory, and such counts are exact in float32."""
_NEGLIGIBLE = 1e-15
"""Probabilities up to this one are left out of the sum."""


@dataclass(frozen=True)
class Top:
    """The k largest of n values of B maps.

    k       (B,)    how many; it may differ from map to map
    places  (B, K)  the positions of the largest values in descending order, where K is at least every k
    among   (B, K)  which of `places` are in the top k however ties are broken
    sure    (B, n)  the same as a mask of all positions
    tied    (B, n)  which positions tie for the last slots; none where there is no lottery
    slots   (B,)    how many of the tied positions belong to the top k
    rivals  (B,)    how many positions are tied
    """

    k: Tensor
    places: Tensor
    among: Tensor
    sure: Tensor
    tied: Tensor
    slots: Tensor
    rivals: Tensor

    def __getitem__(self, index: slice | Tensor) -> Top:
        """Return the sets of the maps at some positions."""
        return Top(
            k=self.k[index],
            places=self.places[index],
            among=self.among[index],
            sure=self.sure[index],
            tied=self.tied[index],
            slots=self.slots[index],
            rivals=self.rivals[index],
        )


def ranking(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions (B, n) of the values (B, n) in descending order, and a sort key for each of them.

    Returned are (keys, order): `order` are the positions, equal values in their original order; `keys` rise along it,
    and are equal where the values are. The keys are floats on a GPU and whole numbers on a CPU.

    >>> ranking(torch.tensor([[1.0, 3.0, 1.0]]))[1].tolist()
    [[1, 0, 2]]
    """
    negated = 0.0 - flat  # which leaves no negative zero
    if negated.device.type != "cpu":
        keys, order = negated.sort(dim=1, stable=True)
        return keys, order
    # NumPy sorts whole numbers ten times as fast as torch sorts floats together with their positions. So one 64-bit
    # number holds both: the bits of the float above, the position below.
    bits = negated.view(torch.int32)
    # As whole numbers, the bits of negative floats fall as the floats rise. Flipping all but the sign mends that.
    rising_bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    packed = rising_bits.long()
    packed.bitwise_left_shift_(32).bitwise_or_(torch.arange(packed.shape[1]))
    packed.numpy().sort(axis=1)
    return packed >> 32, packed & 0xFFFFFFFF


def centred_ranks(keys: Tensor, order: Tensor, counts: Tensor, ties: Ties) -> Tensor:
    """Return the ranks (B, n) of a `ranking`, minus their mean over the first `counts` (B,), and 0 beyond those.

    Ranks rise with the values; ties have their average rank, or, if "ordinal", the order of their positions. Ranks are
    multiples of ½, so they are exact in float32.

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
    """Return the middle of the run of equal keys that each key of (B, n) lies in, without waiting for the device."""
    rows, n = keys.shape
    # Keys of all rows are numbered one after another; a run begins with a row, or where the key changes.
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
    """Return the same for keys (n,) on a CPU."""
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
    """Return the top k (B,) of values (B, n), given their `ranking`; `most` is at least every k."""
    edge_index = k[:, None] - 1
    if ties == "average":
        # The run of values equal to the k-th largest goes from `first` to `last`.
        edge_key = keys.gather(1, edge_index)
        first = torch.searchsorted(keys, edge_key)
        last = torch.searchsorted(keys, edge_key, right=True)
    else:
        first = last = k[:, None]
    is_settled = last == k[:, None]  # the whole run belongs to the top k, so there is no lottery

    places = order[:, :most].contiguous()
    sure_count = torch.where(is_settled, last, first)
    among = torch.arange(most, device=flat.device) < sure_count
    sure = torch.zeros_like(flat, dtype=torch.bool).scatter_(1, places, among)
    edge_value = flat.gather(1, order.gather(1, edge_index))
    tied = (flat == edge_value).logical_and_(~is_settled)
    slots = (k[:, None] - first).masked_fill(is_settled, 0)
    rivals = (last - first).masked_fill(is_settled, 0)
    return Top(k, places, among, sure, tied, slots[:, 0], rivals[:, 0])


def overlap(a: Top, b: Top) -> Tensor:
    """Return the expected Jaccard index of B pairs of sets, (B,) in float64; one of the two may hold a single set."""
    if 1 in (len(a.k), len(b.k)):
        return overlaps(a, b).flatten()
    in_both = a.sure.gather(1, b.places).logical_and_(b.among)
    return _expected_scores(in_both.sum(1), a, b, a.k, b.k, "bsn,btn->bst")


def overlaps(a: Top, b: Top) -> Tensor:
    """Return the expected Jaccard index of every set of a with every set of b, (A, B) in float64."""
    in_a = a.sure[:, b.places.flatten()].view(len(a.k), *b.places.shape)
    in_both = in_a.logical_and_(b.among)
    return _expected_scores(in_both.sum(2), a, b, a.k[:, None], b.k[None], "asn,btn->abst")


def _expected_scores(
    common: Tensor, a: Top, b: Top, k_a: Tensor, k_b: Tensor, products: str
) -> Tensor:
    """Return the expected Jaccard index of pairs, from how many sure positions they have in `common`.

    Only where there is a lottery, the other counts are needed. `products` is the einsum that counts positions in both
    masks of a pair.
    """
    k = torch.minimum(k_a, k_b)
    score = common.double() / (2 * k - common).double()
    if not bool(a.slots.any() | b.slots.any()):
        return score
    shape_of_a = (-1, *[1] * (common.ndim - 1))
    slots_a = a.slots.view(shape_of_a).expand_as(common)
    slots_b = b.slots.expand_as(common)

    # shared[..., i, j]: positions that are sure (0) or tied (1) in a as i says, and in b as j says.
    shared = torch.zeros(*common.shape, 2, 2, device=common.device, dtype=torch.float64)
    for start in range(0, a.sure.shape[1], COLUMNS):
        columns = slice(start, start + COLUMNS)
        masks_a = torch.stack((a.sure[:, columns], a.tied[:, columns]), 1).float()
        masks_b = torch.stack((b.sure[:, columns], b.tied[:, columns]), 1).float()
        shared += torch.einsum(products, masks_a, masks_b)
    tied_a_sure_b, sure_a_tied_b, tied_both = (
        shared[..., 1, 0],
        shared[..., 0, 1],
        shared[..., 1, 1],
    )
    tied_a_absent_b = a.rivals.view(shape_of_a) - tied_a_sure_b - tied_both
    absent_a_tied_b = b.rivals - sure_a_tied_b - tied_both

    has_lottery = (slots_a > 0) | (slots_b > 0)
    lottery = torch.stack(
        [
            k,
            common,
            slots_a,
            slots_b,
            tied_both,
            tied_a_sure_b,
            tied_a_absent_b,
            sure_a_tied_b,
            absent_a_tied_b,
        ],
        -1,
    )
    counts = lottery[has_lottery].long().cpu().numpy()
    expected = torch.from_numpy(_expected(counts)).to(score.device)
    return score.masked_scatter(has_lottery, expected)


class _Lottery(NamedTuple):
    """The counts that decide the expected overlap of two top-k sets; numbers, or arrays of them.

    k                 the size of the sets
    common            positions that are sure in both
    slots_a, slots_b  how many of the positions that tie in a (in b) are drawn
    both              positions that tie in both
    a_only, b_only    the other positions that tie in a (in b): (sure in the other map, absent from it)
    """

    k: Any
    common: Any
    slots_a: Any
    slots_b: Any
    both: Any
    a_only: tuple[Any, Any]
    b_only: tuple[Any, Any]


def _expected(counts: npt.NDArray[np.int64]) -> Floats:
    """Return `expected_jaccard` of every row of counts (N, 9), all at once but for those of a few slots.

    Superpixels tie for many slots, and a map that is repeated for three channels ties for one of its 100.
    """
    k, common, slots_a, slots_b, both, a_sure, a_absent, b_sure, b_absent = counts.T
    lotteries = _Lottery(k, common, slots_a, slots_b, both, (a_sure, a_absent), (b_sure, b_absent))
    most_slots = np.maximum(slots_a, slots_b)
    one_slot = most_slots <= 1
    expected: Floats = np.where(one_slot, _of_one_slot(lotteries), _of_many_slots(lotteries))

    same_ties = (a_sure + a_absent + b_sure + b_absent == 0) & (slots_a == slots_b)
    needs_sum = ~one_slot & (same_ties | (most_slots <= EXACT_UP_TO))
    for row in np.flatnonzero(needs_sum):
        *numbers, a_in, a_out, b_in, b_out = counts[row].tolist()
        expected[row] = expected_jaccard(*numbers, (a_in, a_out), (b_in, b_out))
    return expected


def _of_one_slot(lottery: _Lottery) -> Any:
    """Return the expected Jaccard index where each map draws one position, or none.

    The first position in the random order is drawn by every map that it ties in. If it ties in one map only, the other
    map draws later from the positions that tie in it, each equally likely. One that ties in both is then no gain, because
    the first map has no slot left for it.
    """
    k, common, _, _, both, a_only, b_only = lottery
    tied = np.maximum(both + sum(a_only) + sum(b_only), 1)
    # How likely a map hits the other's sure positions with a draw of its own.
    a_hits = a_only[0] / np.maximum(both + sum(a_only), 1)
    b_hits = b_only[0] / np.maximum(both + sum(b_only), 1)
    # The expected number of draws that join the overlap is `gains`; with probability `gains_two` it is two.
    gains_two = a_only[0] / tied * b_hits + b_only[0] / tied * a_hits
    first_draw_gains = (both + a_only[0] + b_only[0]) / tied
    second_draw_gains = sum(a_only) / tied * b_hits + sum(b_only) / tied * a_hits
    gains = first_draw_gains + second_draw_gains
    # The Jaccard index with zero, one and two more positions in the overlap.
    with_gains = []
    for gained in range(3):
        size = np.minimum(common + gained, k)
        with_gains.append(size / (2 * k - size))
    gains_one = gains - 2 * gains_two
    gains_none = 1 - gains + gains_two
    return gains_none * with_gains[0] + gains_one * with_gains[1] + gains_two * with_gains[2]


def _of_many_slots(lottery: _Lottery) -> Any:
    """Return the Jaccard index of the expected overlap: the limit of the expected index as slots grow in number."""
    k, common, slots_a, slots_b, both, a_only, b_only = lottery
    chance_a = slots_a / np.maximum(both + sum(a_only), 1)
    chance_b = slots_b / np.maximum(both + sum(b_only), 1)
    # One random order for both maps: whoever is drawn at the lower chance is drawn at the higher one too.
    drawn_by_both = both * np.minimum(chance_a, chance_b)
    size = common + drawn_by_both + a_only[0] * chance_a + b_only[0] * chance_b
    return size / (2 * k - size)


@lru_cache(maxsize=65536)
def expected_jaccard(
    k: int,
    common: int,
    slots_a: int,
    slots_b: int,
    both: int,
    a_only: tuple[int, int],
    b_only: tuple[int, int],
) -> float:
    """Return E[I / (2k − I)] over one shared random order, where I is the overlap of the two top-k sets.

    `common` positions are sure in both. `both` positions tie in both maps; `a_only` = (sure in b, absent from b) counts
    the other positions that tie in a, `b_only` likewise; `slots_a` of all that tie in a are drawn, `slots_b` in b.

    A map whose two largest values tie for one slot, against a map that is sure of one of them:

    >>> expected_jaccard(1, 0, 1, 0, 0, (1, 1), (0, 0))
    0.5
    """
    same_lottery = a_only == b_only == (0, 0) and slots_a == slots_b
    if same_lottery:
        return (common + slots_a) / (2 * k - common - slots_a)
    if max(slots_a, slots_b) > EXACT_UP_TO:
        lottery = _Lottery(k, common, slots_a, slots_b, both, a_only, b_only)
        return float(_of_many_slots(lottery))

    size = np.arange(k + 1)
    score = size / (2 * k - size)
    hits_a = _hit_laws(a_only, slots_a)
    hits_b = _hit_laws(b_only, slots_b)
    total = 0.0
    for from_both, full_map in _draws_from_both(slots_a, slots_b, both, sum(a_only), sum(b_only)):
        for drawn_a, drawn_b in np.argwhere(from_both > _NEGLIGIBLE):
            # What a map does not draw from `both`, it draws from its own positions, independently of the other map.
            gained = np.convolve(hits_a[slots_a - drawn_a], hits_b[slots_b - drawn_b])
            # The map that is full first has drawn fewer of `both`, and all that it drew are in the other map too.
            shared = (drawn_a, drawn_b)[full_map]
            sizes = common + int(shared) + np.arange(len(gained))
            expected = float(gained @ score[np.minimum(sizes, k)])
            total += float(from_both[drawn_a, drawn_b]) * expected
    return total


def _draws_from_both(
    slots_a: int, slots_b: int, both: int, a_only: int, b_only: int
) -> list[tuple[Floats, int]]:
    """Return the law of how many positions of `both` the two maps draw, split by which of them is full first.

    Each entry is (probabilities[drawn by a, drawn by b], 0 where a is full first, else 1).
    """
    if both == 0:
        certain = np.zeros((slots_a + 1, slots_b + 1))
        certain[0, 0] = 1.0
        return [(certain, 0)]
    a_first = _first_to_fill(slots_a, slots_b, both, a_only, b_only, counts_draws=True)
    b_first = _first_to_fill(slots_b, slots_a, both, b_only, a_only, counts_draws=False)
    return [(a_first, 0), (b_first.T, 1)]


def _first_to_fill(
    slots: int, other_slots: int, both: int, only: int, other_only: int, counts_draws: bool
) -> Floats:
    """Return the law of how many of the `both` positions each map draws, on the event that the first map is full first.

    Walking down the shared order until the first map is full, it has drawn x of `both` (hypergeometric) while w of the
    other map's own positions went by (negative hypergeometric, independent of x); the other map then fills its
    remaining slots from what is left. When one position fills both maps at once, the event counts for the map with
    `counts_draws`.
    """
    law = np.zeros((slots + 1, other_slots + 1))
    x = np.arange(slots + 1)
    x_law = _hypergeometric(x, both, only, slots)
    for w in range(min(other_only, other_slots) + 1):
        # C(slots − 1 + w, w) · C(both + only − slots + other_only − w, other_only − w) / C(both + only + other_only,
        # other_only): the order of the other map's own positions among those that tie in the first map.
        log_before = _log_choose(slots - 1 + w, w)
        log_after = _log_choose(both + only - slots + other_only - w, other_only - w)
        log_all = _log_choose(both + only + other_only, other_only)
        w_probability = np.exp(log_before + log_after - log_all)

        open_slots = other_slots - x - w
        for i in x[(open_slots > 0) & (x_law > 0)]:
            more = np.arange(min(open_slots[i], both - i) + 1)
            more_law = _hypergeometric(more, both - i, other_only - w, int(open_slots[i]))
            law[i, i + more] += x_law[i] * w_probability * more_law
        x_if_full = other_slots - w
        if counts_draws and 0 < x_if_full <= slots:
            # Both are full at the same position, which is then one of `both`: the last of x among `slots` draws.
            law[x_if_full, x_if_full] += x_law[x_if_full] * w_probability * x_if_full / slots
    return law


@lru_cache(maxsize=65536)
def _hit_laws(positions: tuple[int, int], slots: int) -> list[Floats]:
    """Return for 0 … slots draws from (hits, misses) the law of how many are hits."""
    hits, misses = positions
    laws = []
    for draws in range(slots + 1):
        if draws > hits + misses:
            laws.append(np.zeros(1))  # impossible
            continue
        count = np.arange(min(draws, hits) + 1)
        laws.append(_hypergeometric(count, hits, misses, draws))
    return laws


def _hypergeometric(hits: npt.NDArray[Any], good: int, bad: int, draws: int) -> Floats:
    """Return the probability of each number of hits among draws without replacement from `good` and `bad`."""
    is_possible = (hits <= good) & (draws - hits <= bad) & (hits <= draws)
    safe_hits = np.where(is_possible, hits, max(0, draws - bad))
    log_hits = _log_choose(good, safe_hits)
    log_misses = _log_choose(bad, draws - safe_hits)
    probability = np.exp(log_hits + log_misses - _log_choose(good + bad, draws))
    return np.where(is_possible, probability, 0.0)


def _log_choose(n: Any, r: Any) -> Any:
    """Return log C(n, r)."""
    return gammaln(np.add(n, 1)) - gammaln(np.add(r, 1)) - gammaln(np.subtract(n, r) + 1)
