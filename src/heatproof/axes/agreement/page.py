"""Agreement on the page: the matrix of methods, its clusters, sentences and findings. Nobody is right by agreeing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from heatproof.axes.contract import AxisResult, Finding, Page, finding_template
from heatproof.axes.material import charted
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.pieces import Item
from heatproof.drawing.plots import Mark, cells
from heatproof.drawing.prose import listing, records, some, with_interval
from heatproof.drawing.sheet import Plot
from heatproof.statistics.cubes import Array

ALIKE = 0.5
"""Two clusters are one where their methods agree, in the mean, at least half of the way from chance to equality."""
NOTHING = "Nothing can be concluded: no two methods have a map of the same sample."
DISAGREE = finding_template(
    "methods-disagree",
    axis="agreement",
    title="Methods disagree on which features matter",
    seen="{some} of {all} pairs of methods agree significantly less than half of the way from chance to identical maps; "
    "least of all {worst}.",
    means="For the same sample and class these methods rank the features differently, so at most one of two can be "
    "right. Agreement does not say which.",
    do="Do not choose the map that looks best. Choose by a test that asks the model, such as faithfulness.",
)


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
    def pairs(self) -> list[Pair]:
        """Every two explainers that were compared, those that agree most first."""
        compared = []
        for a, b in itertools.combinations(range(len(self.explainers)), 2):
            if np.isfinite(self.mean[a, b]):
                scores = (float(ends[a, b]) for ends in (self.mean, self.low, self.high))
                compared.append(Pair(self.explainers[a], self.explainers[b], *scores))
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


def matrix(result: AxisResult, measure: str = "spearman") -> Matrix:
    """Return the agreement by one measure: A with B and B with A differ in chance alone, and are averaged."""
    if measure in result.computed:
        known: Matrix = result.computed[measure]
        return known
    names = list(result.cube.explainers)
    index = {name: i for i, name in enumerate(names)}
    mean, low, high = (np.full((len(names), len(names)), np.nan) for _ in range(3))
    rows = result.summary[result.summary["measure"] == measure]
    for r in records(rows[rows["condition"].isin(names)]):
        at = index[r.explainer], index[r.condition]
        mean[at], low[at], high[at] = r.calibrated, r.calibrated_low, r.calibrated_high
    one_direction = np.isnan(mean) | np.isnan(mean.T)
    mean = np.where(one_direction, np.fmax(mean, mean.T), (mean + mean.T) / 2)
    low, high = np.fmin(low, low.T), np.fmax(high, high.T)

    order, clusters = clustered(mean)
    cells = np.ix_(order, order)
    agreement = Matrix(
        explainers=[names[i] for i in order],
        mean=mean[cells],
        low=low[cells],
        high=high[cells],
        clusters=[clusters[i] for i in order],
    )
    result.computed[measure] = agreement
    return agreement


def clustered(mean: Array) -> tuple[list[int], list[int]]:
    """Return an order in which alike explainers are neighbours, and the number of each one's cluster.

    Clusters are those of average linkage, cut where agreement is half of the way from chance to equality.

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


def without_controls(result: AxisResult, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of two methods."""
    return [pair for pair in pairs if not {pair.a, pair.b} & result.cube.controls]


def lead(result: AxisResult) -> list[str]:
    """Return sentences on which methods agree most and least, and which form a cluster."""
    agreement = matrix(result)
    pairs = without_controls(result, agreement.pairs) or agreement.pairs
    if not pairs:
        return [NOTHING]
    closest, farthest = _with_score(result, pairs[0]), _with_score(result, pairs[-1])
    if len(pairs) == 1:
        sentences = [f"The only methods to compare are {closest}."]
    else:
        shown = sum(pair.low > ALIKE for pair in pairs)
        sentences = [
            f"Of {len(pairs)} pairs of methods, {shown} {'is' if shown == 1 else 'are'} shown to agree more than half "
            f"of the way from chance to equality; the closest are {closest}, the farthest {farthest}."
        ]
    members: dict[int, list[str]] = {}
    for cluster, explainer in zip(agreement.clusters, agreement.explainers, strict=True):
        members.setdefault(cluster, []).append(result.name_of(explainer))
    several = [listing(names) for names in members.values() if len(names) > 1]
    if several:
        sentences.append(f"In one cluster: {'; '.join(several)}.")
    sentences.append("By calibrated Spearman; methods that agree may be wrong together.")
    return sentences


def _with_score(result: AxisResult, pair: Pair) -> str:
    """Return the display names of two explainers and how far they agree."""
    return f"{result.name_of(pair.a)} and {result.name_of(pair.b)} with {pair.score}"


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield that methods disagree, where intervals show it."""
    pairs = without_controls(result, matrix(result).pairs)
    apart = [pair for pair in pairs if pair.high < ALIKE]
    if not apart:
        return
    farthest_first = apart[::-1]
    worst = some(
        [f"{p.a} and {p.b} {with_interval(p.mean, p.low, p.high)}" for p in farthest_first], 3
    )
    explainers = dict.fromkeys(name for pair in apart for name in (pair.a, pair.b))
    yield DISAGREE.filled({"some": len(apart), "all": len(pairs), "worst": worst}, explainers)


CAPTION = "How far two methods agree on the same sample: 0 is chance, the maps of other samples, 1 the same map. "
CAPTION += "Neighbours with one number are a cluster: average linkage, cut where agreement is half of the way."


def parts(result: AxisResult) -> list[Chart | Panel]:
    """Return the matrix by each measure."""
    chart = matrix_chart(result)
    return [] if chart is None else [chart]


def matrix_chart(result: AxisResult) -> Chart | None:
    """Return methods by methods, those of a cluster side by side; by the headline, and folded by the other measures."""
    plots: dict[str, list[Plot]] = {}
    for measure in result.axis.measures:
        agreement = matrix(result, measure.name)
        if agreement.pairs:
            plots[measure.title] = [_matrix_plot(result, agreement, measure.title)]
    if not plots:
        return None
    first, *others = plots
    folded = {f"By {title}": plots[title] for title in others}
    alt = f"Agreement of {len(result.cube.explainers)} explainers with each other."
    return Chart("matrix", "Who agrees with whom", CAPTION, alt, plots[first], folded)


def _matrix_plot(result: AxisResult, agreement: Matrix, title: str) -> Plot:
    """Return one matrix as a plot; each row begins with the number of its cluster."""
    names = [result.looks[e].name for e in agreement.explainers]
    marks = []
    for mean, low, high in zip(agreement.mean, agreement.low, agreement.high, strict=True):
        cells_of_row = zip(names, mean.tolist(), low.tolist(), high.tolist(), strict=True)
        marks.append([Mark(*cell) for cell in cells_of_row])
    rows = [
        f"{cluster + 1}  {name}" for cluster, name in zip(agreement.clusters, names, strict=True)
    ]
    return cells(rows, names, marks, title)


NONE = "no rows of agreement: add `agreement` to the study"
matrices = charted("agreement", matrix_chart, NONE, "no two maps could be compared")
PAGE = Page(lead, parts)
ITEMS = (Item("agreement-matrix", "the disagreement problem, with chance", "figure", matrices),)
