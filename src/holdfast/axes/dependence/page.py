"""Dependence on the page: the verdicts with everything that they rest on, and cascades."""

from __future__ import annotations

from holdfast.axes.contract import Judged, Page
from holdfast.axes.dependence.frames import overview
from holdfast.axes.dependence.words import lead
from holdfast.drawing.charts import Chart, Panel
from holdfast.drawing.prose import number, records, with_interval
from holdfast.drawing.tables import Row, grid

COLUMNS = ["Explainer", "Verdict", "Dependence", "Each network", "Similarity", "Chance", "Redrawn", "Another class"]
COLUMNS += ["Rise of entropy", "Gini", "Entropy", "Completeness gap", "Passes per map"]


def parts(judged: Judged) -> list[Chart | Panel]:
    """The table of verdicts, and what the cascades show."""
    drawn: list[Chart | Panel | None] = [verdicts_panel(judged)]
    return [part for part in drawn if part is not None]


def verdicts_panel(judged: Judged) -> Panel | None:
    """One row per explainer: the verdict, what it rests on, and what describes the map and its cost."""
    rows = []
    for r in records(overview(judged)):
        cells = [r.explainer, r.verdict, with_interval(r.score, r.low, r.high), f"{number(r.least)} – {number(r.most)}"]
        cells += [number(r.similarity), number(r.similarity_chance), number(r.floor)]
        cells += [with_interval(r.class_score, r.class_low, r.class_high) if r.class_score == r.class_score else "–"]
        cells += [number(r.entropy_rise), number(r.gini), number(r.entropy), number(r.completeness_gap, 3)]
        rows.append(Row([*cells, number(r.passes, 0)], bool(r.control)))
    if not rows:
        return None
    caption = (
        "Dependence is (1 − similarity) / (1 − chance), sample by sample: 0 where random weights leave the map as "
    )
    caption += "it is, 1 where it changes as between unrelated samples. Redrawn is the change between two draws of the "
    caption += "same map. Nothing here has a better direction but the gap and the cost."
    return Panel("verdicts", "Verdicts, and what describes the maps", caption, grid(COLUMNS, rows, "Verdicts"))


PAGE = Page(lead, parts)
