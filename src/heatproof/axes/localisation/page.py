"""Localisation on the page: whose maps lie where the class is more than chance allows."""

from __future__ import annotations

from collections.abc import Iterator

from heatproof.axes.contract import AxisResult, Finding, Page
from heatproof.axes.localisation.evaluation import MOSAICS
from heatproof.axes.material import charted
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.pieces import Item
from heatproof.drawing.plots import dots, mark, of_marks
from heatproof.drawing.prose import above, each, listing, number, records, some, with_interval
from heatproof.drawing.tables import Row, grid
from heatproof.statistics.intervals import ALIKE

NOTHING = "Nothing can be concluded: no map of a sample with a region has a score."
CONTEXT = (
    "A model may rightly look beside the object, so a low score alone does not make a map wrong."
)
AT_CHANCE = Finding(
    axis="localisation",
    severity="mind",
    title="Maps that do not find the class",
    seen="Not shown to lie where the class is more than chance allows: {scores}.",
    means="The maps put no more of their relevance into the region than its share of the area.",
    do="See whether the method is faithful. If it is, the model looks at the context; if not, take another method.",
)


def lead(judged: AxisResult) -> list[str]:
    """Who points best, who is shown to be above chance, and what that does not mean."""
    rows = judged.ranking[judged.ranking["score"].notna()]
    methods = records(rows[~rows["control"].astype(bool)]) or records(rows)
    if not methods:
        return [NOTHING]
    told = [(r.explainer, with_interval(r.score, r.low, r.high, r.samples)) for r in methods]
    tied = [
        pair for pair in told if pair == told[0] or not above(judged.tests, told[0][0], pair[0])
    ]
    said = f"{told[0][0]} points best: {told[0][1]}, ahead of {each(told[1:2])}."
    if len(told) == 1:
        said = f"{told[0][0]} scores {told[0][1]}; no other method was run to compare it with."
    elif len(tied) > 1:
        said = f"{some(name for name, _ in tied)} cannot be separated at the top: {each(tied)}."
    shown = sum(r.lower_bound > ALIKE for r in methods)
    by_mosaics = any(condition == MOSAICS for condition, _ in judged.cube.conditions)
    where = "the tile of the class in a mosaic" if by_mosaics else "the region of the class"
    scale = f"0 is chance, the share of the area of {where}, and 1 a map that lies inside it"
    return [said, f"{shown} of {len(methods)} are shown to be above chance; {scale}.", CONTEXT]


def findings(judged: AxisResult) -> Iterator[Finding]:
    """Methods that are not significantly above chance."""
    rows = judged.ranking[judged.ranking["score"].notna() & ~judged.ranking["control"].astype(bool)]
    unshown = [r for r in records(rows) if r.lower_bound <= ALIKE]
    if unshown:
        scores = each((r.explainer, with_interval(r.score, r.low, r.high)) for r in unshown)
        yield AT_CHANCE.filled({"scores": scores}, (r.explainer for r in unshown))


def score_chart(judged: AxisResult) -> Chart | None:
    """The headline of every explainer, chance at 0."""
    rows = records(judged.ranking[judged.ranking["score"].notna()])
    marks = [mark(judged.looks[r.explainer], r.score, r.low, r.high, chance=0.0) for r in rows]
    if not marks:
        return None
    caption = "Relevance mass beyond chance: (score − chance) / (1 − chance), with 95 % intervals; hollow where an "
    caption += f"interval reaches chance. Relevance is the {judged.settings.get('sign', 'positive')} part of the map."
    alt = f"Localisation of {len(marks)} explainers: {listing(f'{r.explainer} {number(r.score)}' for r in rows)}."
    plots = [dots("", marks, of_marks(marks, 0.0, 1.0), guides=(("chance", 0.0),))]
    return Chart("scores", "Where the maps point", caption, alt, plots)


def parts(judged: AxisResult) -> list[Chart | Panel]:
    """The headline as a chart, and a table of every measure as it is beside its chance."""
    measures = [m for m in judged.axis.measures if m.name in judged.cube.values]
    known = records(judged.summary[judged.summary["mean"].notna()])
    told = {
        (r.explainer, r.measure): f"{with_interval(r.mean, r.low, r.high)} ({number(r.chance)})"
        for r in known
    }
    cells = {
        e: [told.get((e, m.name), "–") for m in measures]
        for e in dict.fromkeys(r.explainer for r in known)
    }
    table = [Row([e, *line], e in judged.cube.controls) for e, line in cells.items()]
    caption = "Means with 95 % intervals, and in brackets what chance scores: the share of the area, and ½ for the AUC."
    html = grid(["Explainer", *(m.title for m in measures)], table, "Measures")
    chart = score_chart(judged)
    return [] if chart is None else [chart, Panel("measures", "All measures", caption, html)]


NONE = "no localisation rows: add `localisation` to the study"
scores = charted("localisation", score_chart, NONE, "no map has a score")
PAGE = Page(lead, parts)
ITEMS = (Item("localisation-scores", "localisation, with chance", "figure", scores),)
