"""Localisation on the page: whose maps lie where the class is more than chance allows."""

from __future__ import annotations

from collections.abc import Iterator

from heatproof.axes.contract import AxisResult, Finding, Page, finding_template
from heatproof.axes.localisation.evaluation import MOSAICS
from heatproof.axes.material import charted
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.pieces import Item
from heatproof.drawing.plots import dots, mark, of_marks
from heatproof.drawing.prose import each, listing, number, records, with_interval
from heatproof.drawing.tables import Row, grid

NOTHING = "Nothing can be concluded: no map of a sample with a region has a score."
CONTEXT = (
    "A model may rightly look beside the object, so a low score alone does not make a map wrong."
)
AT_CHANCE = finding_template(
    "not-above-chance",
    axis="localisation",
    title="Maps not significantly above chance",
    seen="Localisation, where 0 is chance: {scores}.",
    means="The maps put no more relevance into the region of the class than its share of the area.",
    do="Check whether the method is faithful. If it is, the model looks at the context; if not, use another method.",
)


def lead(result: AxisResult) -> list[str]:
    """Return sentences on who localises best, what 0 and 1 are, and what a low score does not mean."""
    if not result.ranking["score"].notna().any():
        return [NOTHING]
    by_mosaics = any(condition == MOSAICS for condition, _ in result.cube.conditions)
    where = "the tile of the class in a mosaic" if by_mosaics else "the region of the class"
    scale = f"0 is chance, the share of the area of {where}, and 1 a map that lies inside it."
    return [*result.decided(), scale, CONTEXT]


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield the methods that are not significantly above chance."""
    if not result.headlines:
        return
    verdict = result.verdict(result.headlines[0])
    if verdict.as_random:
        scores = each((name, verdict.scores[name]) for name in verdict.as_random)
        yield AT_CHANCE.filled({"scores": scores}, verdict.as_random)


def score_chart(result: AxisResult) -> Chart | None:
    """Return the calibrated headline of every explainer as a chart, with chance at 0."""
    rows = records(result.ranking[result.ranking["score"].notna()])
    marks = [mark(result.looks[r.explainer], r.score, r.low, r.high, chance=0.0) for r in rows]
    if not marks:
        return None
    sign = result.settings.get("sign", "positive")
    caption = "Relevance mass beyond chance: (score − chance) / (1 − chance), with 95 % intervals; hollow where an "
    caption += f"interval reaches chance. Relevance is the {sign} part of the map."
    scores = listing(f"{r.explainer} {number(r.score)}" for r in rows)
    alt = f"Localisation of {len(marks)} explainers: {scores}."
    plots = [dots("", marks, of_marks(marks, 0.0, 1.0), guides=(("chance", 0.0),))]
    return Chart("scores", "Where the maps point", caption, alt, plots)


def parts(result: AxisResult) -> list[Chart | Panel]:
    """Return the chart of the headline, and a table of every measure beside its chance."""
    chart = score_chart(result)
    return [] if chart is None else [chart, _measures_panel(result)]


def _measures_panel(result: AxisResult) -> Panel:
    """Return a table of explainers by measures: means with intervals, and chance in brackets."""
    measures = [m for m in result.axis.measures if m.name in result.cube.values]
    means = records(result.summary[result.summary["mean"].notna()])
    texts = {
        (r.explainer, r.measure): f"{with_interval(r.mean, r.low, r.high)} ({number(r.chance)})"
        for r in means
    }
    rows = []
    for explainer in dict.fromkeys(r.explainer for r in means):
        cells = [texts.get((explainer, m.name), "–") for m in measures]
        rows.append(Row([explainer, *cells], explainer in result.cube.controls))
    caption = "Means with 95 % intervals, and in brackets what chance scores: the share of the area, and ½ for the AUC."
    if margin := result.settings.get("margin"):
        caption += f" In the pointing game a peak within {margin} pixels of the region is a hit."
    table = grid(["Explainer", *(m.title for m in measures)], rows, "Measures")
    return Panel("measures", "All measures", caption, table)


NONE = "no localisation rows: add `localisation` to the study"
scores = charted("localisation", score_chart, NONE, "no map has a score")
PAGE = Page(lead, parts)
ITEMS = (Item("localisation-scores", "localisation, with chance", "figure", scores),)
