"""Agreement on the page: the matrix of methods, clusters side by side."""

from __future__ import annotations

from holdfast.axes.agreement.frames import matrix
from holdfast.axes.agreement.words import lead
from holdfast.axes.contract import Judged, Page
from holdfast.drawing.charts import Chart, Panel
from holdfast.drawing.prose import number
from holdfast.drawing.tables import Row, grid

CAPTION = (
    "How far two methods agree on the same sample: 0 is chance, the maps of other samples, 1 the same map. Clusters "
)
CAPTION += "are those of average linkage, cut where agreement is half of the way."


def parts(judged: Judged) -> list[Chart | Panel]:
    """A matrix for every measure that was computed."""
    panels: list[Chart | Panel] = []
    for name in judged.cube.measures:
        measure, found = judged.axis.measure(name), matrix(judged, name)
        if measure is None or not found.pairs:
            continue
        rows = [
            Row([str(cluster + 1), own, *(number(value) for value in line)], own in judged.cube.controls)
            for cluster, own, line in zip(found.clusters, found.explainers, found.mean.tolist(), strict=True)
        ]
        columns = ["Cluster", "Explainer", *found.explainers]
        panels.append(Panel(f"matrix-{name}", measure.title, CAPTION, grid(columns, rows, measure.title)))
    return panels


PAGE = Page(lead, parts)
