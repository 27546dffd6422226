"""Dependence on the page: the verdicts with everything that they rest on, and cascades."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.axes.contract import Judged, Page
from holdfast.axes.dependence.evaluation import CASCADES
from holdfast.axes.dependence.results import lead, overview
from holdfast.axes.dependence.verdicts import NEGLIGIBLE
from holdfast.axes.material import Material, drawings
from holdfast.drawing.charts import Chart, Panel
from holdfast.drawing.pieces import Item, Piece
from holdfast.drawing.plots import Curve, Mark, by_method, dots, mark, of_marks
from holdfast.drawing.prose import number, records, with_interval
from holdfast.drawing.tables import Row, grid

COLUMNS = ["Explainer", "Verdict", "Dependence", "Each network", "Similarity", "Chance", "Redrawn", "Another class"]
COLUMNS += ["Rise of entropy", "Gini", "Entropy", "Completeness gap", "Passes per map"]
NONE = "no dependence rows: add `dependence` to the study"
WAYS = dict(zip(CASCADES, ("from the output", "from the input"), strict=True))


def parts(judged: Judged) -> list[Chart | Panel]:
    """Scores with their verdicts, cascades, and the table of everything that describes the maps."""
    drawn: list[Chart | Panel | None] = [score_chart(judged), cascade_chart(judged), verdicts_panel(judged)]
    return [part for part in drawn if part is not None]


def score_chart(judged: Judged) -> Chart | None:
    """Dependence on the weights and on the class, a dot for each explainer."""
    table, looks = overview(judged), judged.looks
    if table.empty:
        return None
    guides = (("negligible", NEGLIGIBLE), ("unrelated samples", 1.0))
    drawn = {
        "Random weights": [mark(looks[r.explainer], r.score, r.low, r.high, said=r.verdict) for r in records(table)]
    }
    other = table[table["class_score"].notna()]
    drawn["Another class"] = [
        mark(looks[r.explainer], r.class_score, r.class_low, r.class_high) for r in records(other)
    ]
    ends = of_marks([m for marks in drawn.values() for m in marks], 0.0, 1.0)
    caption = "0: the map stays as it is; 1: it changes as between unrelated samples. A method whose band lies below "
    caption += f"{NEGLIGIBLE:g}, the first dotted line, is blind; more is not better. Bands: 95 % intervals."
    alt = f"Dependence of {len(table)} explainers on weights and class."
    plots = [dots(name, marks, ends, guides=guides) for name, marks in drawn.items() if marks]
    return Chart("scores", "What changes the maps", caption, alt, plots)


def cascade_chart(judged: Judged) -> Chart | None:
    """Dependence against the share of layers that are random, where cascades were asked for."""
    rows = judged.summary[(judged.summary["measure"] == "dependence") & judged.summary["mean"].notna()]
    lines = []
    for explainer in dict.fromkeys(rows["explainer"]):
        look, own = judged.looks[explainer], rows[rows["explainer"] == explainer]
        curves = []
        for (way, name), dash in zip(WAYS.items(), ((), (5, 3)), strict=True):
            steps = records(own[own["condition"] == way].sort_values("level"))
            marks = [Mark(look.name, r.mean, r.low, r.high, look.colour, x=r.level) for r in steps]
            curves += [Curve(name, [Mark(look.name, 0.0, x=0.0), *marks], look.colour, dash)] if marks else []
        lines += [(look, curves)] if curves else []
    if not lines:
        return None
    ends = of_marks([m for _, curves in lines for curve in curves for m in curve.marks], 0.0, 1.0)
    caption = (
        "Dependence against the share of layers with random weights, from the output or from the input on; the other "
    )
    caption += "methods faint behind. Bars are 95 % intervals over samples."
    plots = by_method(lines, ends, "share of layers")
    return Chart("cascade", "Layer by layer", caption, f"Curves of dependence for {len(lines)} explainers.", plots)


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


def scores(material: Material, width: float) -> Iterator[Piece]:
    """Dependence on weights and class of every method."""
    yield from drawings([(j, score_chart(j)) for j in material.of("dependence")], NONE, "no map has a score")


def cascades(material: Material, width: float) -> Iterator[Piece]:
    """Curves over the layers."""
    every = [(j, cascade_chart(j)) for j in material.of("dependence")]
    yield from drawings(every, NONE, "no cascade: add `cascades: top_down` to dependence")


PAGE = Page(lead, parts)
ITEMS = (
    Item("dependence-scores", "sanity checks, with chance", "figure", scores),
    Item("dependence-cascades", "sanity checks, layer by layer", "figure", cascades),
)
