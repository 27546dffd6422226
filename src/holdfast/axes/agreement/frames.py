"""The matrix of agreement and its clusters, from the rows of every two explainers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from holdfast.axes.contract import Judged
from holdfast.drawing.prose import records
from holdfast.statistics.cubes import Array

ALIKE = 0.5
"""Two clusters are one where their methods agree, in the mean, at least half of the way from chance to equality."""


@dataclass(frozen=True)
class Matrix:
    """Calibrated agreement of every two explainers, (E, E), with the outer ends of the intervals of both directions.

    Explainers are ordered so that those of a cluster are neighbours; `clusters` has their numbers from 0. NaN stands
    on the diagonal and where two were not compared.
    """

    explainers: list[str]
    mean: Array
    low: Array
    high: Array
    clusters: list[int]

    @property
    def pairs(self) -> list[tuple[str, str, float, float, float]]:
        """(a, b, mean, low, high) of every two that were compared, those that agree most first."""
        first, second = (index.tolist() for index in np.triu_indices(len(self.explainers), 1))
        low, mean, high = self.low, self.mean, self.high
        every = [
            (self.explainers[a], self.explainers[b], float(mean[a, b]), float(low[a, b]), float(high[a, b]))
            for a, b in zip(first, second, strict=True)
            if np.isfinite(mean[a, b])
        ]
        return sorted(every, key=lambda pair: -pair[2])


def matrix(judged: Judged, measure: str = "spearman") -> Matrix:
    """The agreement by one measure: A with B and B with A differ in their chance level alone, and are averaged."""
    if measure not in judged.computed:
        judged.computed[measure] = _matrix(judged, measure)
    made: Matrix = judged.computed[measure]
    return made


def _matrix(judged: Judged, measure: str) -> Matrix:
    names = list(judged.cube.explainers)
    place = {name: i for i, name in enumerate(names)}
    both = np.full((3, 2, len(names), len(names)), np.nan)
    rows = judged.summary[judged.summary["measure"] == measure]
    for r in records(rows[rows["condition"].isin(names)]):
        a, b = place[r.explainer], place[r.condition]
        for kind, value in enumerate((r.calibrated, r.calibrated_low, r.calibrated_high)):
            both[kind, 0, a, b] = both[kind, 1, b, a] = value
    one, other = both[:, 0], both[:, 1]
    mean = np.where(np.isnan(one[0]) | np.isnan(other[0]), np.fmax(one[0], other[0]), (one[0] + other[0]) / 2)
    order, clusters = clustered(mean)
    seen = np.ix_(order, order)
    low, high = np.fmin(one[1], other[1])[seen], np.fmax(one[2], other[2])[seen]
    return Matrix([names[i] for i in order], mean[seen], low, high, [clusters[i] for i in order])


def clustered(mean: Array) -> tuple[list[int], list[int]]:
    """An order in which alike explainers are neighbours, and the number of each one's cluster, by average linkage.

    >>> clustered(np.array([[np.nan, 0.1, 0.9], [0.1, np.nan, 0.0], [0.9, 0.0, np.nan]]))[1]
    [0, 1, 0]
    """
    n = len(mean)
    if n < 2:
        return list(range(n)), [0] * n
    far = 1 - np.nan_to_num(mean, nan=0.0).clip(0, 1)
    np.fill_diagonal(far, 0)
    tree = hierarchy.linkage(squareform((far + far.T) / 2, checks=False), "average")
    flat = hierarchy.fcluster(tree, 1 - ALIKE, "distance")
    numbers = {cluster: i for i, cluster in enumerate(dict.fromkeys(flat.tolist()))}
    order = sorted(hierarchy.leaves_list(tree).tolist(), key=lambda i: numbers[int(flat[i])])
    return order, [numbers[cluster] for cluster in flat.tolist()]
