"""Expected top-k overlap when values tie at the edge of the top k.

With ties the top k is not a set but a lottery: `sure` places are in, and the places that tie for the last slots are
drawn at random. Both maps of a pair are settled by ONE random order of the places, so a map compared with itself
scores exactly 1, which two independent lotteries would not give.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

Floats = npt.NDArray[np.float64]

EXACT_UP_TO = 16
"""Open slots up to which the expectation is summed exactly; beyond, its limit for many slots is used."""


@lru_cache(maxsize=65536)
def expected_jaccard(
    k: int, common: int, slots_a: int, slots_b: int, both: int, a_only: tuple[int, int], b_only: tuple[int, int]
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
        return _limit(k, common, slots_a, slots_b, both, a_only, b_only)
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
    k: int, common: int, slots_a: int, slots_b: int, both: int, a_only: tuple[int, int], b_only: tuple[int, int]
) -> float:
    """The same with every place counted by its probability of being drawn: exact as the slots grow in number."""
    chance_a = slots_a / max(both + sum(a_only), 1)
    chance_b = slots_b / max(both + sum(b_only), 1)
    overlap = common + both * min(chance_a, chance_b) + a_only[0] * chance_a + b_only[0] * chance_b
    return overlap / (2 * k - overlap)


def _first_to_fill(slots: int, other_slots: int, both: int, own: int, others: int, last: bool) -> Floats:
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
            joint[i, i + more] += drawn[i] * passed * _hypergeometric(more, both - i, others - w, int(room[i]))
        full = other_slots - w
        if last and 0 < full <= slots:  # full at the same place, which is then one of `both`
            joint[full, full] += drawn[full] * passed * full / slots
    return joint


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
