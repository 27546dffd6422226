"""Agreement of every two methods as a matrix, and clusters of methods that agree."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from heatproof.results.axis_result import AxisResult
from heatproof.results.summary import summary
from heatproof.statistics.arrays import Array
from heatproof.text import records, with_interval

LEVEL = 0.95
"""The level of intervals that are shown."""
ALIKE = 0.5
"""Two clusters are one where their methods agree, in the mean, at least half of the way from chance to equality."""


@dataclass(frozen=True)
class AgreementMatrix:
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
    def pairs(self) -> list[Pair]:
        """Every two explainers that were compared, those that agree most first."""
        compared = []
        for i, j in itertools.combinations(range(len(self.explainers)), 2):
            if np.isfinite(self.mean[i, j]):
                pair = Pair(
                    a=self.explainers[i],
                    b=self.explainers[j],
                    mean=float(self.mean[i, j]),
                    low=float(self.low[i, j]),
                    high=float(self.high[i, j]),
                )
                compared.append(pair)
        return sorted(compared, key=lambda pair: -pair.mean)


class Pair(NamedTuple):
    """Two explainers and their calibrated agreement with its interval."""

    a: str
    b: str
    mean: float
    low: float
    high: float

    @property
    def score(self) -> str:
        """The agreement with its interval, in words."""
        return with_interval(self.mean, self.low, self.high)


def matrix(result: AxisResult, measure: str = "spearman", level: float = LEVEL) -> AgreementMatrix:
    """Return how far the maps of every two explainers agree by one measure, with intervals at a confidence level.

    A compared with B and B compared with A differ in their chance level alone: the two are averaged, and the interval
    spans both. Explainers that agree are neighbours in the matrix.
    """
    key = f"{measure} at {level:g}"
    if key in result.cache:
        cached: AgreementMatrix = result.cache[key]
        return cached
    names = list(result.explainers)
    index = {name: i for i, name in enumerate(names)}
    shape = (len(names), len(names))
    mean, low, high = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    scores = result.summary if level == LEVEL else summary(result.arrays, level)
    rows = scores[(scores["measure"] == measure) & scores["condition"].isin(names)]
    for row in records(rows):
        # The condition of a row is the name of the other explainer.
        pair = index[row.explainer], index[row.condition]
        mean[pair], low[pair], high[pair] = row.calibrated, row.calibrated_low, row.calibrated_high
    # The mean of both directions, or the one that there is (`fmax` and `fmin` ignore NaN).
    has_one_direction = np.isnan(mean) | np.isnan(mean.T)
    mean = np.where(has_one_direction, np.fmax(mean, mean.T), (mean + mean.T) / 2)
    low, high = np.fmin(low, low.T), np.fmax(high, high.T)

    order, clusters = clustered(mean)
    cells = np.ix_(order, order)
    agreement = AgreementMatrix(
        explainers=[names[i] for i in order],
        mean=mean[cells],
        low=low[cells],
        high=high[cells],
        clusters=[clusters[i] for i in order],
    )
    result.cache[key] = agreement
    return agreement


def clustered(mean: Array) -> tuple[list[int], list[int]]:
    """Return the positions of explainers in an order with clusters together, and the cluster of each explainer.

    `mean` (E, E) is their calibrated agreement: 0 is chance, 1 equal maps. Clusters are those of hierarchical clustering
    with average linkage on the distance 1 − agreement, cut at an agreement of ½. They are numbered by their first
    explainer.

    >>> clustered(np.array([[np.nan, 0.1, 0.9], [0.1, np.nan, 0.0], [0.9, 0.0, np.nan]]))[1]
    [0, 1, 0]
    """
    n = len(mean)
    if n < 2:
        return list(range(n)), [0] * n
    distance = 1 - np.nan_to_num(mean, nan=0.0).clip(0, 1)
    np.fill_diagonal(distance, 0)
    symmetric = (distance + distance.T) / 2
    tree = hierarchy.linkage(squareform(symmetric, checks=False), "average")
    labels = hierarchy.fcluster(tree, 1 - ALIKE, "distance").tolist()
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    clusters = [numbers[label] for label in labels]
    leaves = hierarchy.leaves_list(tree).tolist()
    return sorted(leaves, key=lambda i: clusters[i]), clusters
