"""Agreement on the page: the matrix of methods, its clusters, sentences and findings. Nobody is right by agreeing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from heatproof.axes.contract import AxisResult, Finding, Page
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
DISAGREE = Finding(
    axis="agreement",
    severity="mind",
    title="Which features matter depends on the method",
    seen="{some} of {all} pairs of methods agree less than half of the way from chance to equality for certain, "
    "the farthest {worst}.",
    means="For the same sample and class these methods put the features in different orders, so at most one of two can "
    "be right about which matter most. Agreement does not say which.",
    do="Do not choose the map that looks best. Choose by an axis that asks the model, such as faithfulness.",
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
    def pairs(self) -> list[tuple[str, str, float, float, float]]:
        """(a, b, mean, low, high) of every two that were compared, those that agree most first."""
        first, second = (index.tolist() for index in np.triu_indices(len(self.explainers), 1))
        low, mean, high = self.low, self.mean, self.high
        every = [
            (
                self.explainers[a],
                self.explainers[b],
                float(mean[a, b]),
                float(low[a, b]),
                float(high[a, b]),
            )
            for a, b in zip(first, second, strict=True)
            if np.isfinite(mean[a, b])
        ]
        return sorted(every, key=lambda pair: -pair[2])


def matrix(judged: AxisResult, measure: str = "spearman") -> Matrix:
    """The agreement by one measure: A with B and B with A differ in their chance level alone, and are averaged."""
    if measure in judged.computed:
        made: Matrix = judged.computed[measure]
        return made
    names = list(judged.cube.explainers)
    place = {name: i for i, name in enumerate(names)}
    both = np.full((3, 2, len(names), len(names)), np.nan)
    rows = judged.summary[judged.summary["measure"] == measure]
    for r in records(rows[rows["condition"].isin(names)]):
        a, b = place[r.explainer], place[r.condition]
        for kind, value in enumerate((r.calibrated, r.calibrated_low, r.calibrated_high)):
            both[kind, 0, a, b] = both[kind, 1, b, a] = value
    one, other = both[:, 0], both[:, 1]
    mean = np.where(
        np.isnan(one[0]) | np.isnan(other[0]), np.fmax(one[0], other[0]), (one[0] + other[0]) / 2
    )
    order, clusters = clustered(mean)
    seen = np.ix_(order, order)
    low, high = np.fmin(one[1], other[1])[seen], np.fmax(one[2], other[2])[seen]
    made = Matrix([names[i] for i in order], mean[seen], low, high, [clusters[i] for i in order])
    judged.computed[measure] = made
    return made


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


def lead(judged: AxisResult) -> list[str]:
    """Which methods agree most and least, and which stand together."""
    found = matrix(judged)
    pairs = [p for p in found.pairs if not {p[0], p[1]} & judged.cube.controls] or found.pairs
    if not pairs:
        return [NOTHING]
    said = f"The only methods to compare are {_pair(pairs[0])}"
    if len(pairs) > 1:
        shown = sum(low > ALIKE for *_, low, _ in pairs)
        ends = f"the closest are {_pair(pairs[0])}, the farthest {_pair(pairs[-1])}"
        said = f"Of {len(pairs)} pairs of methods, {shown} {'is' if shown == 1 else 'are'} shown to agree more than "
        said += f"half of the way from chance to equality; {ends}"
    by_number = groupby(
        zip(found.clusters, found.explainers, strict=True), key=lambda pair: pair[0]
    )
    several = [
        listing(names) for _, own in by_number if len(names := [name for _, name in own]) > 1
    ]
    together = [f"In one cluster: {'; '.join(several)}."] if several else []
    return [
        f"{said}.",
        *together,
        "By calibrated Spearman; methods that agree may be wrong together.",
    ]


def _pair(pair: tuple[str, str, float, float, float]) -> str:
    return f"{pair[0]} and {pair[1]} with {with_interval(*pair[2:])}"


def findings(judged: AxisResult) -> Iterator[Finding]:
    """That methods disagree, where intervals show it."""
    pairs = [p for p in matrix(judged).pairs if not {p[0], p[1]} & judged.cube.controls]
    apart = [pair for pair in pairs if pair[4] < ALIKE]
    if apart:
        worst = some(
            [f"{a} and {b} {with_interval(m, low, high)}" for a, b, m, low, high in apart[::-1]], 3
        )
        fill = {"some": len(apart), "all": len(pairs), "worst": worst}
        yield DISAGREE.filled(fill, dict.fromkeys(e for pair in apart for e in pair[:2]))


CAPTION = "How far two methods agree on the same sample: 0 is chance, the maps of other samples, 1 the same map. "
CAPTION += "Neighbours with one number are a cluster: average linkage, cut where agreement is half of the way."


def parts(judged: AxisResult) -> list[Chart | Panel]:
    """The matrix by each measure."""
    chart = matrix_chart(judged)
    return [] if chart is None else [chart]


def matrix_chart(judged: AxisResult) -> Chart | None:
    """Methods by methods, those of a cluster side by side; by the headline, and folded by the other measures."""
    plots: dict[str, list[Plot]] = {}
    for measure in judged.axis.measures:
        found = matrix(judged, measure.name)
        if found.pairs:
            names = [judged.looks[e].name for e in found.explainers]
            ends = zip(found.mean.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
            lines = [zip(names, *line, strict=True) for line in ends]
            values = [[Mark(b, mean, low, high) for b, mean, low, high in line] for line in lines]
            rows = [
                f"{cluster + 1}  {own}" for cluster, own in zip(found.clusters, names, strict=True)
            ]
            plots[measure.title] = [cells(rows, names, values, measure.title)]
    if not plots:
        return None
    first, *rest = plots
    folded = {f"By {title}": plots[title] for title in rest}
    alt = f"Agreement of {len(judged.cube.explainers)} explainers with each other."
    return Chart("matrix", "Who agrees with whom", CAPTION, alt, plots[first], folded)


NONE = "no rows of agreement: add `agreement` to the study"
matrices = charted("agreement", matrix_chart, NONE, "no two maps could be compared")
PAGE = Page(lead, parts)
ITEMS = (Item("agreement-matrix", "the disagreement problem, with chance", "figure", matrices),)
