"""The k largest values of a map, and the expected overlap of two such sets when values tie at the edge.

With ties the top k is not a set but a lottery: `sure` places are in, and the places that tie for the last slots are
drawn at random. Both maps of a pair are settled by ONE random order of the places, so a map compared with itself
scores exactly 1, which two independent lotteries would not give.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln
from torch import Tensor

Floats = npt.NDArray[np.float64]
Ties = Literal["average", "ordinal"]

EXACT_UP_TO = 16
"""Open slots up to which the expectation is summed exactly; beyond, its limit for many slots is used."""
COLUMNS = 1 << 18
"""How many places are counted at once: bounds the memory, and such counts are exact in float32."""


@dataclass(frozen=True)
class Top:
    """The k largest of n values of B maps."""

    k: Tensor  # (B,)
    places: Tensor  # (B, K) the largest values' places in descending order, K at least every k
    among: Tensor  # (B, K) bool, which of them are in the top k whatever the ties
    sure: Tensor  # (B, n) the same as a mask of all places
    tied: Tensor  # (B, n) tied for the last places
    slots: Tensor  # (B,) how many of `tied` belong to the top k
    rivals: Tensor  # (B,) how many are tied

    def __getitem__(self, index: slice | Tensor) -> Top:
        """The sets at some positions."""
        return Top(
            self.k[index], self.places[index], self.among[index], self.sure[index], self.tied[index],
            self.slots[index], self.rivals[index],
        )  # fmt: skip


def ranking(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Keys (B, n) that rise as the values (B, n) fall, equal where they are equal, and their places; ties keep order.

    >>> ranking(torch.tensor([[1.0, 3.0, 1.0]]))[1].tolist()
    [[1, 0, 2]]
    """
    falling = 0.0 - flat  # which leaves no negative zero
    if falling.device.type != "cpu":
        keys, order = falling.sort(dim=1, stable=True)
        return keys, order
    # NumPy sorts whole numbers ten times as fast as torch sorts floats with their places, so one number holds both:
    # the float's bits, made to rise with its value, above the place.
    bits = falling.view(torch.int32)
    packed = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    packed.bitwise_left_shift_(32).bitwise_or_(torch.arange(packed.shape[1]))
    packed.numpy().sort(axis=1)
    return packed >> 32, packed & 0xFFFFFFFF


def centred_ranks(keys: Tensor, order: Tensor, counts: Tensor, ties: Ties) -> Tensor:
    """Ranks (B, n) minus their mean over the first `counts` (B,) of a `ranking`, zero beyond; exact in float32.

    >>> centred_ranks(*ranking(torch.tensor([[1.0, 3.0, 1.0]])), torch.tensor([3]), "average").tolist()
    [[-0.5, 1.0, -0.5]]
    """
    rank = torch.empty(keys.shape, device=keys.device)
    if keys.device.type == "cpu":
        rows = (tensor.numpy() for tensor in (keys, order, rank))
        for key, places, found, count in zip(*rows, counts.tolist(), strict=True):
            middle = (
                _middles_of_row(key) if ties == "average" else np.arange(len(key), dtype=np.float32)
            )
            middle[count:] = (count - 1) / 2
            found[places] = (count - 1) / 2 - middle
        return rank
    place = torch.arange(keys.shape[1], device=keys.device)
    position = _middles(keys) if ties == "average" else place.expand_as(keys).float()
    centred = ((counts[:, None] - 1).float() / 2 - position).masked_fill_(
        place >= counts[:, None], 0
    )
    return rank.scatter_(1, order, centred)


def _middles(keys: Tensor) -> Tensor:
    """The middle of the run of equal keys that each key of (B, n) lies in, found without waiting for the device."""
    rows, n = keys.shape
    place = torch.arange(rows * n, device=keys.device)
    new = place.view(rows, n) % n == 0
    new[:, 1:] |= keys[:, 1:] != keys[:, :-1]
    run = new.flatten().cumsum(
        0
    )  # from 1 on, over all rows; 0 takes what is not the start of a run
    starts = torch.full((rows * n + 2,), rows * n, device=keys.device)
    starts.scatter_(0, run.masked_fill(~new.flatten(), 0), place)
    twice = (starts[run] + starts[1:][run] - 1).view(rows, n) - 2 * n * torch.arange(
        rows, device=keys.device
    )[:, None]
    return twice.float() / 2


def _middles_of_row(keys: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The same for keys (n,) on the CPU: where few are equal, only those are looked at."""
    tied = np.flatnonzero(keys[1:] == keys[:-1])
    if len(tied) * 32 < len(keys):
        middle = np.arange(len(keys), dtype=np.float32)
        few = np.union1d(tied, tied + 1)
        middle[few] = (
            np.searchsorted(keys, keys[few]) + np.searchsorted(keys, keys[few], "right") - 1
        ) / 2
        return middle
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    sizes = np.diff(starts, append=len(keys))
    return np.repeat((starts + (sizes - 1) / 2).astype(np.float32), sizes)


def top(flat: Tensor, values: Tensor, order: Tensor, k: Tensor, most: int, ties: Ties) -> Top:
    """The top k (B,) of values (B, n), given their stable order: `values` rise as those at `order` fall.

    `most` bounds every k.
    """
    first = last = k[:, None]
    if ties == "average":
        edge = values.gather(1, k[:, None] - 1)
        first, last = torch.searchsorted(values, edge), torch.searchsorted(values, edge, right=True)
    settled = last == k[:, None]  # every tied place belongs to the top k, so there is no lottery
    places = order[:, :most].contiguous()
    among = torch.arange(most, device=flat.device) < torch.where(settled, last, first)
    sure = torch.zeros_like(flat, dtype=torch.bool).scatter_(1, places, among)
    tied = (flat == flat.gather(1, order.gather(1, k[:, None] - 1))).logical_and_(~settled)
    slots, rivals = (
        (k[:, None] - first).masked_fill(settled, 0),
        (last - first).masked_fill(settled, 0),
    )
    return Top(k, places, among, sure, tied, slots[:, 0], rivals[:, 0])


def overlap(a: Top, b: Top) -> Tensor:
    """Expected Jaccard of B pairs of sets, (B,) in float64; one of the two may hold a single set."""
    if 1 in (len(a.k), len(b.k)):
        return overlaps(a, b).flatten()
    common = a.sure.gather(1, b.places).logical_and_(b.among).sum(1)
    return _settle(common, a, b, a.k, b.k, "bsn,btn->bst")


def overlaps(a: Top, b: Top) -> Tensor:
    """Expected Jaccard of every set of a with every set of b, (A, B) in float64."""
    among = a.sure[:, b.places.flatten()].view(len(a.k), *b.places.shape).logical_and_(b.among)
    return _settle(among.sum(2), a, b, a.k[:, None], b.k[None], "asn,btn->abst")


def _settle(common: Tensor, a: Top, b: Top, k_a: Tensor, k_b: Tensor, products: str) -> Tensor:
    """Scores from the number of sure places in common; where there is a lottery, from all the counts it needs."""
    k = torch.minimum(k_a, k_b)
    score = common.double() / (2 * k - common).double()
    if not bool(a.slots.any() | b.slots.any()):
        return score
    shape = (-1, *[1] * (common.ndim - 1))
    slots_a, slots_b = a.slots.view(shape).expand_as(common), b.slots.expand_as(common)
    both = torch.zeros(*common.shape, 2, 2, device=common.device, dtype=torch.float64)
    for start in range(0, a.sure.shape[1], COLUMNS):
        part = slice(start, start + COLUMNS)
        masks = [torch.stack((t.sure[:, part], t.tied[:, part]), 1).float() for t in (a, b)]
        both += torch.einsum(products, *masks)
    a_in, b_in, shared = both[..., 1, 0], both[..., 0, 1], both[..., 1, 1]
    a_out, b_out = a.rivals.view(shape) - a_in - shared, b.rivals - b_in - shared
    lottery = (slots_a > 0) | (slots_b > 0)
    counts = torch.stack([k, common, slots_a, slots_b, shared, a_in, a_out, b_in, b_out], -1)[
        lottery
    ].long()
    return score.masked_scatter(
        lottery, torch.from_numpy(_expected(counts.cpu().numpy())).to(score.device)
    )


def _expected(counts: npt.NDArray[np.int64]) -> Floats:
    """`expected_jaccard` of every row of numbers (N, 9), all at once but for a few slots.

    Superpixels tie for many, and a map that is repeated for three channels ties for one of its 100.
    """
    k, common, slots_a, slots_b, both, in_a, out_a, in_b, out_b = counts.T
    a_only, b_only = (in_a, out_a), (in_b, out_b)
    found: Floats = _limit(k, common, slots_a, slots_b, both, a_only, b_only)
    most = np.maximum(slots_a, slots_b)
    found = np.where(most <= 1, _of_one_slot(k, common, both, a_only, b_only), found)
    alike = (in_a + out_a + in_b + out_b == 0) & (slots_a == slots_b)
    for i in np.flatnonzero((most > 1) & (alike | (most <= EXACT_UP_TO))):
        *first, a, b, c, d = counts[i].tolist()
        found[i] = expected_jaccard(*first, (a, b), (c, d))
    return found


def _of_one_slot(
    k: Any, common: Any, both: Any, a_only: tuple[Any, Any], b_only: tuple[Any, Any]
) -> Any:
    """The same where each map draws one place, or none: the first in the order is drawn by every map that it ties in.

    Whichever map it leaves out draws among its own, of which those that tie in both are then of no use.
    """
    places = np.maximum(both + sum(a_only) + sum(b_only), 1)
    hit_a, hit_b = (only[0] / np.maximum(both + sum(only), 1) for only in (a_only, b_only))
    two = a_only[0] / places * hit_b + b_only[0] / places * hit_a
    one = (
        (both + a_only[0] + b_only[0]) / places
        + sum(a_only) / places * hit_b
        + sum(b_only) / places * hit_a
    )
    none, once, twice = (
        np.minimum(common + more, k) / (2 * k - np.minimum(common + more, k)) for more in range(3)
    )
    return (1 - one + two) * none + (one - 2 * two) * once + two * twice


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
    """E[I / (2k − I)] over one shared random order, where I is the overlap of the two top-k sets.

    `common` places are sure in both. `both` places tie in both maps; `a_only` = (sure in b, absent from b) counts the
    other places that tie in a, `b_only` likewise; `slots_a` of all that tie in a are drawn, `slots_b` in b.

    A map whose two largest values tie for one slot, against a map that is sure of one of them:

    >>> expected_jaccard(1, 0, 1, 0, 0, (1, 1), (0, 0))
    0.5
    """
    if a_only == b_only == (0, 0) and slots_a == slots_b:  # the same places in the same lottery
        return (common + slots_a) / (2 * k - common - slots_a)
    if max(slots_a, slots_b) > EXACT_UP_TO:
        return float(_limit(k, common, slots_a, slots_b, both, a_only, b_only))
    overlap = np.arange(k + 1)
    score = overlap / (2 * k - overlap)
    if both == 0:
        joint = np.zeros((slots_a + 1, slots_b + 1))
        joint[0, 0] = 1.0
        shared: list[tuple[Floats, int]] = [(joint, 0)]
    else:
        shared = [
            (_first_to_fill(slots_a, slots_b, both, sum(a_only), sum(b_only), last=True), 0),
            (_first_to_fill(slots_b, slots_a, both, sum(b_only), sum(a_only), last=False).T, 1),
        ]
    won_a = _drawn(a_only, slots_a)
    won_b = _drawn(b_only, slots_b)
    total = 0.0
    for joint, axis in shared:
        # joint[x, y]: a drew x and b drew y of the places that tie in both; the one that filled up first decides.
        for x, y in np.argwhere(joint > 1e-15):
            gained = np.convolve(won_a[slots_a - x], won_b[slots_b - y])
            start = common + int((x, y)[axis])
            values = score[np.minimum(np.arange(start, start + len(gained)), k)]
            total += float(joint[x, y] * (gained @ values))
    return total


def _limit(
    k: Any,
    common: Any,
    slots_a: Any,
    slots_b: Any,
    both: Any,
    a_only: tuple[Any, Any],
    b_only: tuple[Any, Any],
) -> Any:
    """The same with every place counted by its probability of being drawn: exact as the slots grow in number.

    Of numbers, or of arrays of them.
    """
    chance_a = slots_a / np.maximum(both + sum(a_only), 1)
    chance_b = slots_b / np.maximum(both + sum(b_only), 1)
    overlap = (
        common + both * np.minimum(chance_a, chance_b) + a_only[0] * chance_a + b_only[0] * chance_b
    )
    return overlap / (2 * k - overlap)


def _first_to_fill(
    slots: int, other_slots: int, both: int, own: int, others: int, last: bool
) -> Floats:
    """Joint law of how many of the `both` places each map draws, on the event that the first map fills up first.

    Walking down the shared order until the first map is full, it has drawn x of `both` (hypergeometric) while w of the
    other map's own places went by (negative hypergeometric, independent of x); the other map then fills its remaining
    slots from what is left. When one place fills both maps at once, the event counts for the map with `last`.
    """
    joint = np.zeros((slots + 1, other_slots + 1))
    x = np.arange(slots + 1)
    drawn = _hypergeometric(x, both, own, slots)
    for w in range(min(others, other_slots) + 1):
        passed = np.exp(
            _choose(slots - 1 + w, w)
            + _choose(both + own - slots + others - w, others - w)
            - _choose(both + own + others, others)
        )
        room = other_slots - x - w
        for i in x[(room > 0) & (drawn > 0)]:
            more = np.arange(min(room[i], both - i) + 1)
            joint[i, i + more] += (
                drawn[i] * passed * _hypergeometric(more, both - i, others - w, int(room[i]))
            )
        full = other_slots - w
        if last and 0 < full <= slots:  # full at the same place, which is then one of `both`
            joint[full, full] += drawn[full] * passed * full / slots
    return joint


@lru_cache(maxsize=65536)
def _drawn(places: tuple[int, int], slots: int) -> list[Floats]:
    """For 0 … slots draws from these places: the law of how many hit the first kind."""
    hits, misses = places
    laws = []
    for draws in range(slots + 1):
        count = np.arange(min(draws, hits) + 1)
        feasible = draws <= hits + misses
        laws.append(_hypergeometric(count, hits, misses, draws) if feasible else np.zeros(1))
    return laws


def _hypergeometric(hit: npt.NDArray[Any], good: int, bad: int, draws: int) -> Floats:
    possible = (hit <= good) & (draws - hit <= bad) & (hit <= draws)
    safe = np.where(possible, hit, max(0, draws - bad))
    log = _choose(good, safe) + _choose(bad, draws - safe) - _choose(good + bad, draws)
    return np.where(possible, np.exp(log), 0.0)


def _choose(n: Any, r: Any) -> Any:
    return gammaln(np.add(n, 1)) - gammaln(np.add(r, 1)) - gammaln(np.subtract(n, r) + 1)
