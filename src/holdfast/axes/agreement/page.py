"""Agreement on the page: the matrix of methods, clusters side by side."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.axes.agreement.results import lead, matrix
from holdfast.axes.contract import Judged, Page
from holdfast.axes.material import Material, drawings
from holdfast.drawing.charts import Chart, Panel
from holdfast.drawing.pieces import Item, Piece
from holdfast.drawing.plots import Mark, cells
from holdfast.drawing.sheet import Plot

CAPTION = "How far two methods agree on the same sample: 0 is chance, the maps of other samples, 1 the same map. "
CAPTION += "Neighbours with one number are a cluster: average linkage, cut where agreement is half of the way."


def parts(judged: Judged) -> list[Chart | Panel]:
    """The matrix by each measure."""
    chart = matrix_chart(judged)
    return [] if chart is None else [chart]


def matrix_chart(judged: Judged) -> Chart | None:
    """Methods by methods, those of a cluster side by side; by the headline, and folded by the other measures."""
    plots: dict[str, list[Plot]] = {}
    for measure in judged.axis.measures:
        found = matrix(judged, measure.name)
        if found.pairs:
            names = [judged.looks[e].name for e in found.explainers]
            ends = zip(found.mean.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
            lines = [zip(names, *line, strict=True) for line in ends]
            values = [[Mark(b, mean, low, high) for b, mean, low, high in line] for line in lines]
            rows = [f"{cluster + 1}  {own}" for cluster, own in zip(found.clusters, names, strict=True)]
            plots[measure.title] = [cells(rows, names, values, measure.title)]
    if not plots:
        return None
    first, *rest = plots
    folded = {f"By {title}": plots[title] for title in rest}
    alt = f"Agreement of {len(judged.cube.explainers)} explainers with each other."
    return Chart("matrix", "Who agrees with whom", CAPTION, alt, plots[first], folded)


def matrices(material: Material, width: float) -> Iterator[Piece]:
    """Agreement of every two methods beyond chance, by each measure."""
    every = [(j, matrix_chart(j)) for j in material.of("agreement")]
    yield from drawings(every, "no rows of agreement: add `agreement` to the study", "no two maps could be compared")


PAGE = Page(lead, parts)
ITEMS = (Item("agreement-matrix", "the disagreement problem, with chance", "figure", matrices),)
