"""Dependence on the page: verdicts, sentences, findings, charts. Nobody is ranked, for noise depends on weights too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.contract import AxisResult, Finding, Page
from heatproof.axes.dependence.evaluation import CASCADES, CLEAN, WEIGHTS
from heatproof.axes.dependence.verdicts import BLIND, NEGLIGIBLE, judged_explainers
from heatproof.axes.material import charted
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.pieces import Item
from heatproof.drawing.plots import Curve, Mark, by_method, dots, mark, of_marks
from heatproof.drawing.prose import each, number, plural, records, with_interval
from heatproof.drawing.tables import Row, grid
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array, Cube
from heatproof.statistics.estimates import interval

NOTHING = "Nothing can be concluded: no map was compared under random weights."
SAID = {
    "depends": ("depends on", "depend on"),
    "not shown to depend": ("is not shown to depend on", "are not shown to depend on"),
    BLIND: ("is blind to", "are blind to"),
}
IGNORES = Finding(
    axis="dependence",
    severity="act",
    title="A map that does not look at the model",
    seen="With random weights the map changes by less than {bound:g} of what maps of unrelated samples differ by: "
    "{scores}.",
    means="What the map shows is in the picture, not in what the model learned. However stable or symmetric it is, it "
    "cannot tell a good model from a broken one.",
    do="Do not use it to explain this model. It is marked as blind in the ranking of every axis.",
)
UNSHOWN = Finding(
    axis="dependence",
    severity="mind",
    title="Not shown to depend on the model",
    seen="The interval of the dependence reaches below {bound:g}: {scores}.",
    means="The samples do not tell whether the map would be any different if the model had learned nothing.",
    do="Test more samples; four times as many halve the interval.",
)
ANY_CLASS = Finding(
    axis="dependence",
    severity="mind",
    title="The same map for another class",
    seen="When another class is asked about, the map changes by less than {bound:g} of what maps of unrelated samples "
    "differ by: {scores}.",
    means="The map shows what the network reacts to, not why it chose this class.",
    do="Read it as a map of the input, or use a method that tells classes apart.",
)
NOISE = Finding(
    axis="dependence",
    severity="mind",
    title="Dependence not told from noise",
    seen="Two draws of the same map differ too; the dependence less that difference reaches 0: {scores}.",
    means="The method draws random numbers, and these alone may move its map as far as random weights do. That the map "
    "changes with the weights then says little.",
    do="Give the method more samples, and look at the noise floor of stability.",
)


def overview(judged: AxisResult) -> pd.DataFrame:
    """explainer, control, score, low, high, verdict, and beside them what they rest on and what describes the map.

    `least` and `most` are the lowest and the highest mean over samples of one random network; `class_score` with
    `class_low`, `class_high` and `class_verdict` are those for other classes, `floor` is the mean change between two
    draws of the same map, `apart` with `apart_low` and `apart_high` the score less that, sample by sample.
    """
    if "overview" in judged.computed:
        made: pd.DataFrame = judged.computed["overview"]
        return made
    cube = judged.cube
    table = judged_explainers(cube).set_index("explainer")
    other = judged_explainers(cube, "class_dependence").set_index("explainer")
    table = table.join(other[["score", "low", "high", "verdict"]].add_prefix("class_"))
    rows = judged.rows[
        (judged.rows["measure"] == "dependence") & (judged.rows["condition"] == WEIGHTS)
    ]
    draws = (
        rows[rows["status"] == "ok"].groupby(["explainer", "repeat"], observed=True)["value"].mean()
    )
    by_draw = draws.groupby(level=0, observed=True)
    table["least"], table["most"] = (
        by_draw.min().reindex(table.index),
        by_draw.max().reindex(table.index),
    )
    places = [cube.explainers.index(name) for name in table.index]
    floor = cube.floor.get(
        "dependence", np.full((len(cube.explainers), len(cube.samples)), np.nan)
    )[places]
    apart = values_of(cube, "dependence", WEIGHTS)[places] - floor
    table["floor"], table["apart"] = mean_of_finite(floor), mean_of_finite(apart)
    table["apart_low"], table["apart_high"] = interval(apart)
    for name in ("similarity", "similarity_chance", "entropy_rise"):
        table[name] = mean_of_finite(values_of(cube, name, WEIGHTS))[places]
    for name in ("gini", "entropy", "completeness_gap", "passes"):
        table[name] = mean_of_finite(values_of(cube, name, CLEAN))[places]
    judged.computed["overview"] = table.reset_index()
    return overview(judged)


def values_of(cube: Cube, measure: str, condition: str) -> Array:
    """(explainers, samples) of a measure under a condition, NaN where it was not measured."""
    nothing = np.full((len(cube.explainers), len(cube.samples)), np.nan)
    there = (condition, 0.0) in cube.conditions and measure in cube.values
    return cube.values[measure][:, cube.conditions.index((condition, 0.0))] if there else nothing


def lead(judged: AxisResult) -> list[str]:
    """Whose maps depend on the model and on the class, where the controls stand, and how far networks differ."""
    table = overview(judged)
    if table.empty:
        return [NOTHING]
    controls, methods = (table[table["control"].astype(bool) == which] for which in (True, False))
    if methods.empty:
        said = _verdicts(controls, "control")
    else:
        said = _verdicts(methods, "method")
        said += [f"Controls: {_told(records(controls))}."] if len(controls) else []
    asked = methods[methods["class_score"].notna()]
    hardly = records(asked[asked["class_verdict"] == BLIND])
    if hardly:
        some = plural(hardly, "one map hardly changes", "some maps hardly change")
        said.append(f"Asked about another class, {some}: {_told(hardly, 'class_')}.")
    elif len(asked):
        least = records(asked.sort_values("class_score"))[:1]
        said.append(
            f"No map is shown to ignore the class asked about; the least change is that of {_told(least, 'class_')}."
        )
    spread = table["most"] - table["least"]
    if (spread > 0).any():
        row = records(table.loc[[spread.idxmax()]])[0]
        ends = f"from {number(row.least)} to {number(row.most)} for {row.explainer}"
        said.append(
            f"Intervals are over samples; between the random networks a mean differs the most {ends}."
        )
    return said


def _told(rows: Sequence[Any], what: str = "") -> str:
    """Explainers with a score and its interval; `what` comes before the names of the columns."""
    columns = ("score", "low", "high") if not what.endswith("apart") else ("", "_low", "_high")
    return each(
        (r.explainer, with_interval(*(getattr(r, f"{what}{column}") for column in columns)))
        for r in rows
    )


def _verdicts(methods: pd.DataFrame, noun: str) -> list[str]:
    """How many methods (or controls, by the noun) depend on the model, with their scores, and how to read these."""
    said: list[str] = []
    for verdict, (one, many) in SAID.items():
        rows = records(methods[methods["verdict"] == verdict])
        if rows:
            what = "it" if said else "what the model has learned"
            said.append(f"{len(rows)} {plural(rows, one, many)} {what} ({_told(rows)})")
    said[0] = f"Of {len(methods)} {noun}{'s' if len(methods) > 1 else ''}, {said[0]}"
    ends = "0 is a map that stays when the weights are random, 1 one that changes as between unrelated samples; "
    return [
        f"{'; '.join(said)}.",
        f"{ends}more is not better, for noise that knows the weights scores 1 as well.",
    ]


def findings(judged: AxisResult) -> Iterator[Finding]:
    """What one evaluation of dependence shows of the methods, in no particular order."""
    table = overview(judged)
    methods = table[~table["control"].astype(bool)]
    seeing = methods[methods["verdict"] != BLIND]
    unshown = seeing[(seeing["verdict"] == "not shown to depend") & seeing["low"].notna()]
    for finding, rows, what in (
        (IGNORES, methods[methods["verdict"] == BLIND], ""),
        (UNSHOWN, unshown, ""),
        (ANY_CLASS, seeing[seeing["class_verdict"] == BLIND], "class_"),
        (NOISE, seeing[seeing["apart_low"] <= 0], "apart"),
    ):
        if len(rows):
            yield finding.filled(
                {"bound": NEGLIGIBLE, "scores": _told(records(rows), what)}, rows["explainer"]
            )


COLUMNS = [
    "Explainer",
    "Verdict",
    "Dependence",
    "Each network",
    "Similarity",
    "Chance",
    "Redrawn",
    "Another class",
]
COLUMNS += ["Rise of entropy", "Gini", "Entropy", "Completeness gap", "Passes per map"]
NONE = "no dependence rows: add `dependence` to the study"
WAYS = dict(zip(CASCADES, ("from the output", "from the input"), strict=True))


def parts(judged: AxisResult) -> list[Chart | Panel]:
    """Scores with their verdicts, cascades, and the table of everything that describes the maps."""
    drawn: list[Chart | Panel | None] = [
        score_chart(judged),
        cascade_chart(judged),
        verdicts_panel(judged),
    ]
    return [part for part in drawn if part is not None]


def score_chart(judged: AxisResult) -> Chart | None:
    """Dependence on the weights and on the class, a dot for each explainer."""
    table, looks = overview(judged), judged.looks
    if table.empty:
        return None
    guides = (("negligible", NEGLIGIBLE), ("unrelated samples", 1.0))
    rows, other = records(table), records(table[table["class_score"].notna()])
    drawn = {
        "Random weights": [
            mark(looks[r.explainer], r.score, r.low, r.high, said=r.verdict) for r in rows
        ]
    }
    drawn["Another class"] = [
        mark(looks[r.explainer], r.class_score, r.class_low, r.class_high) for r in other
    ]
    ends = of_marks([m for marks in drawn.values() for m in marks], 0.0, 1.0)
    caption = "0: the map stays as it is; 1: it changes as between unrelated samples. A method whose band lies below "
    caption += f"{NEGLIGIBLE:g}, the first dotted line, is blind; more is not better. Bands: 95 % intervals."
    alt = f"Dependence of {len(table)} explainers on weights and class."
    plots = [dots(name, marks, ends, guides=guides) for name, marks in drawn.items() if marks]
    return Chart("scores", "What changes the maps", caption, alt, plots)


def cascade_chart(judged: AxisResult) -> Chart | None:
    """Dependence against the share of layers that are random, where cascades were asked for."""
    rows = judged.summary[
        (judged.summary["measure"] == "dependence") & judged.summary["mean"].notna()
    ]
    lines = []
    for explainer in dict.fromkeys(rows["explainer"]):
        look, own = judged.looks[explainer], rows[rows["explainer"] == explainer]
        curves = []
        for (way, name), dash in zip(WAYS.items(), ((), (5, 3)), strict=True):
            steps = records(own[own["condition"] == way].sort_values("level"))
            marks = [Mark(look.name, r.mean, r.low, r.high, look.colour, x=r.level) for r in steps]
            curves += (
                [Curve(name, [Mark(look.name, 0.0, x=0.0), *marks], look.colour, dash)]
                if marks
                else []
            )
        lines += [(look, curves)] if curves else []
    if not lines:
        return None
    ends = of_marks([m for _, curves in lines for curve in curves for m in curve.marks], 0.0, 1.0)
    caption = "Dependence against the share of layers with random weights, from the output or from the input on; the "
    caption += "other methods faint behind. Bars are 95 % intervals over samples."
    plots = by_method(lines, ends, "share of layers")
    return Chart(
        "cascade",
        "Layer by layer",
        caption,
        f"Curves of dependence for {len(lines)} explainers.",
        plots,
    )


def verdicts_panel(judged: AxisResult) -> Panel | None:
    """One row per explainer: the verdict, what it rests on, and what describes the map and its cost."""
    rows = []
    for r in records(overview(judged)):
        cells = [
            r.explainer,
            r.verdict,
            with_interval(r.score, r.low, r.high),
            f"{number(r.least)} – {number(r.most)}",
        ]
        cells += [number(r.similarity), number(r.similarity_chance), number(r.floor)]
        cells += [
            with_interval(r.class_score, r.class_low, r.class_high)
            if r.class_score == r.class_score
            else "–"
        ]
        cells += [
            number(r.entropy_rise),
            number(r.gini),
            number(r.entropy),
            number(r.completeness_gap, 3),
        ]
        rows.append(Row([*cells, number(r.passes, 0)], bool(r.control)))
    if not rows:
        return None
    caption = "Dependence is (1 − similarity) / (1 − chance), sample by sample. Redrawn: the change between two draws "
    caption += "of the same map. Nothing here has a better direction but the gap and the cost."
    return Panel(
        "verdicts",
        "Verdicts, and what describes the maps",
        caption,
        grid(COLUMNS, rows, "Verdicts"),
    )


scores = charted("dependence", score_chart, NONE, "no map has a score")
cascades = charted(
    "dependence", cascade_chart, NONE, "no cascade: add `cascades: top_down` to dependence"
)
PAGE = Page(lead, parts)
ITEMS: tuple[Item, ...] = (
    Item("dependence-scores", "sanity checks, with chance", "figure", scores),
)
ITEMS += (Item("dependence-cascades", "sanity checks, layer by layer", "figure", cascades),)
