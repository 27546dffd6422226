"""The choice of pairs to show among those whose maps a run has kept: the worst, the median and the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.axes.stability.pairs import ROLES, pair_scores
from holdfast.statistics.cubes import Cube
from holdfast.types import IDENTITY, Shown


@dataclass(frozen=True)
class ChosenPair:
    """A pair with its role and score, as the exhibits of its two halves."""

    role: str
    score: float
    before: Shown
    after: Shown


@dataclass(frozen=True)
class Chosen:
    """What is shown of an explainer: pairs in the order worst, median, best, out of `seen` of all `retained`."""

    pairs: list[ChosenPair]
    seen: int
    retained: int

    @property
    def words(self) -> str:
        """How many pairs these were chosen from."""
        if self.seen == self.retained:
            return f"chosen among all {self.retained:,} retained pairs".replace(",", "\u202f")
        return f"chosen among {self.seen:,} of {self.retained:,} retained pairs".replace(",", "\u202f")


def choose(exhibits: Sequence[Shown], cube: Cube) -> dict[str, Chosen]:
    """explainer -> its worst, median and best pair among those with both maps.

    The extreme pairs of a shard have a role and say how many they were chosen from, so the worst and the best of all
    such shards are among them, and the median is the kept pair nearest to the median of all retained pairs. Without
    such pairs there are the first samples only, and the choice is among these.
    """
    clean = {(s.explainer, s.sample): s for s in exhibits if s.condition == "clean" and s.map is not None}
    by: dict[str, list[Shown]] = {}
    for item in exhibits:
        if item.explainer and item.map is not None and item.condition not in ("clean", IDENTITY):
            by.setdefault(item.explainer, []).append(item)
    where = {sample: i for i, sample in enumerate(cube.samples)}
    found = {}
    for explainer in (e for e in cube.explainers if e in by):
        scores = _scores(cube, explainer)
        placed = {}
        for item in by[explainer]:
            score = _score(cube, scores, where, item)
            if np.isfinite(score) and (explainer, item.sample) in clean:
                placed[item.sample, item.condition, item.level, item.role] = (score, item)
        extreme = {key: value for key, value in placed.items() if value[1].role}
        pool = extreme or placed
        if pool:
            retained = int(np.isfinite(scores).sum())
            # Each shard with extremes has one worst pair, which says how many it is the worst of.
            seen = sum(item.pairs for _, item in extreme.values() if item.role == ROLES[0]) or len(pool)
            found[explainer] = Chosen(_roles(pool, clean, float(np.nanmedian(scores))), seen, retained)
    return found


def _scores(cube: Cube, explainer: str) -> NDArray[np.float64]:
    """The score of every retained pair of an explainer, (conditions, samples); NaN elsewhere and for the identity."""
    e = cube.explainers.index(explainer)
    scores = pair_scores({m: v[e] for m, v in cube.values.items() if m.startswith("fass")})
    scores[[c == IDENTITY for c, _ in cube.conditions]] = np.nan
    return scores


def _score(cube: Cube, scores: NDArray[np.float64], where: Mapping[str, int], item: Shown) -> float:
    condition = (item.condition, item.level)
    if condition not in cube.conditions or item.sample not in where:
        return float("nan")
    return float(scores[cube.conditions.index(condition), where[item.sample]])


def _roles(
    pool: dict[tuple[str, str, float, str], tuple[float, Shown]], clean: dict[tuple[str, str], Shown], middle: float
) -> list[ChosenPair]:
    order = sorted(pool, key=lambda key: (round(pool[key][0], 6), key))
    nearest = min(order, key=lambda key: (abs(pool[key][0] - middle), key))
    places = dict(zip(ROLES, (order[0], nearest, order[-1]), strict=True))
    pairs, used = [], set()
    for role, key in places.items():
        if key[:3] not in used:  # of one or two pairs, none is shown twice
            used.add(key[:3])
            score, item = pool[key]
            pairs.append(ChosenPair(role, score, clean[item.explainer, item.sample], item))
    return pairs
