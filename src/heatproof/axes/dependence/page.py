"""Dependence on the page: verdicts, sentences, findings, charts. Nobody is ranked, for noise depends on weights too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.contract import AxisResult, Finding, Page, finding_template
from heatproof.axes.dependence.evaluation import (
    CASCADE_DEPENDENCE,
    CASCADES,
    CLASS_DEPENDENCE,
    DEPENDENCE,
    WEIGHTS,
)
from heatproof.axes.dependence.verdicts import BLIND, DEPENDS, NEGLIGIBLE, UNDECIDED, verdicts
from heatproof.axes.material import charted
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import Look
from heatproof.drawing.pieces import Item
from heatproof.drawing.plots import Curve, Mark, by_method, dots, mark, of_marks
from heatproof.drawing.prose import each, listing, number, records, with_interval
from heatproof.drawing.tables import Row, grid
from heatproof.evaluation import CLEAN, Condition
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array, Cube
from heatproof.statistics.estimates import interval
from heatproof.statistics.few import FEW_NETWORKS
from heatproof.statistics.intervals import FEWEST

NOTHING = "Nothing can be concluded: no map was compared under random weights."
SCALE = (
    "0: the map stays the same under random weights; 1: it changes as much as maps of unrelated samples differ. "
    "More is not better: noise drawn from the weights scores 1 too."
)
COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

IGNORES = finding_template(
    "ignores-weights",
    axis="dependence",
    title="Maps that ignore the trained weights",
    seen="Under random weights these maps change by less than {bound:g} of the distance between maps of unrelated "
    "samples: {scores}.",
    means="The map shows the input, not what the model has learned. However stable or symmetric it is, it cannot tell "
    "a good model from a broken one.",
    do="Do not use it to explain this model. Every ranking marks it as blind.",
)
UNSHOWN = finding_template(
    "dependence-unclear",
    axis="dependence",
    title="Undecided whether the map depends on the trained weights",
    seen="The interval of the dependence reaches below {bound:g}: {scores}.",
    means="From these samples one cannot say whether the map would change if the model had learned nothing.",
    do="Test more samples: four times as many halve the interval.",
)
ANY_CLASS = finding_template(
    "ignores-class",
    axis="dependence",
    title="The same map for another class",
    seen="When another class is explained, these maps change by less than {bound:g} of the distance between maps of "
    "unrelated samples: {scores}.",
    means="The map shows what the network reacts to, not why it chose this class.",
    do="Read it as a map of the input, or use a method that distinguishes classes.",
)
NOISE = finding_template(
    "dependence-within-noise",
    axis="dependence",
    title="Dependence not above the noise floor",
    seen="Two random draws of the same map differ about as much as maps under random weights do. Dependence minus noise "
    "floor: {scores}.",
    means="The method draws random numbers, and these alone may change its map as much as random weights do. That the "
    "map changes with the weights then says little.",
    do="Give the method more samples, and look at the noise floor of stability.",
)
NETWORKS = finding_template(
    "few-networks",
    axis="dependence",
    title="Few random networks",
    seen="Maps were compared under {networks}; {enough} or more are recommended.",
    means="The score depends on which random weights were drawn, and so few networks hardly show by how much: the "
    "95 % interval may cover the mean less often than that.",
    do="Draw more networks. Each costs as many passes as explaining all samples once more.",
)


def overview(result: AxisResult) -> pd.DataFrame:
    """Return one row per explainer: score, verdict, what they rest on, and what describes its maps.

    `least` and `most` are the lowest and the highest mean over samples of one random network; `class_score` with
    `class_low`, `class_high` and `class_verdict` are those for other classes. `floor` is the mean change between two
    draws of the same map, and `above_floor` with its interval the score less that, sample by sample.
    """
    if "overview" not in result.computed:
        result.computed["overview"] = _overview(result)
    table: pd.DataFrame = result.computed["overview"]
    return table


def _overview(result: AxisResult) -> pd.DataFrame:
    cube = result.cube
    table = verdicts(cube).set_index("explainer")
    other_class = verdicts(cube, CLASS_DEPENDENCE).set_index("explainer")
    other_class = other_class[["score", "low", "high", "verdict"]].add_prefix("class_")
    table = table.join(other_class)

    network_means = means_by_network(result).groupby(level="explainer", observed=True)
    table["least"] = network_means.min().reindex(table.index)
    table["most"] = network_means.max().reindex(table.index)

    rows = [cube.explainers.index(name) for name in table.index]
    scores = values_of(cube, DEPENDENCE, WEIGHTS)[rows]
    noise_floor = cube.noise_floor(DEPENDENCE)
    floor = np.full(scores.shape, np.nan) if noise_floor is None else noise_floor[rows]
    table["floor"] = mean_of_finite(floor)
    table["above_floor"] = mean_of_finite(scores - floor)
    table["above_floor_low"], table["above_floor_high"] = interval(scores - floor)

    similarity_chance = _under(cube, cube.chance.get("similarity"), WEIGHTS)
    table["similarity_chance"] = mean_of_finite(similarity_chance)[rows]
    for measure in ("similarity", "entropy_rise"):
        table[measure] = mean_of_finite(values_of(cube, measure, WEIGHTS))[rows]
    for measure in ("gini", "entropy", "completeness_gap", "passes"):
        table[measure] = mean_of_finite(values_of(cube, measure, CLEAN))[rows]
    return table.reset_index()


def means_by_network(result: AxisResult) -> pd.Series:
    """Return the mean dependence over samples of every explainer and random network (`repeat`)."""
    rows = result.rows
    is_score = (rows["measure"] == DEPENDENCE) & (rows["status"] == "ok")
    by_network = rows[is_score].groupby(["explainer", "repeat"], observed=True)
    means: pd.Series = by_network["value"].mean()
    return means


def values_of(cube: Cube, measure: str, condition: Condition) -> Array:
    """Return (explainers, samples) of a measure under a condition, NaN where it was not measured."""
    return _under(cube, cube.values.get(measure), condition)


def _under(cube: Cube, values: Array | None, condition: Condition) -> Array:
    """Return one condition of values (explainers, conditions, samples), NaN where there is none."""
    if values is None or condition not in cube.conditions:
        return np.full((len(cube.explainers), len(cube.samples)), np.nan)
    return values[:, cube.conditions.index(condition)]


def lead(result: AxisResult) -> list[str]:
    """Return sentences: whose maps depend on the weights and on the class, and how far random networks differ."""
    table = result.named(overview(result))
    if table.empty:
        return [NOTHING]
    is_control = table["control"].astype(bool)
    controls, methods = table[is_control], table[~is_control]
    if methods.empty:
        sentences = [f"Only controls were scored. {verdict_sentence(controls, 'control')}", SCALE]
    else:
        sentences = [verdict_sentence(methods, "method"), SCALE]
        if len(controls):
            sentences.append(f"Controls: {_with_scores(controls)}.")
    sentences += _class_sentences(methods)
    sentences += _network_sentences(result, table)
    return sentences


def verdict_sentence(table: pd.DataFrame, noun: str) -> str:
    """Return how many methods (or controls, by the noun) depend on the trained weights, with their scores.

    >>> row = dict(score=0.0, low=0.0, high=0.0)
    >>> one = pd.DataFrame([dict(row, explainer="a", verdict="blind")])
    >>> verdict_sentence(one, "method")
    'a ignores the trained weights (0.00 [0.00, 0.00]).'
    >>> verdict_sentence(pd.concat([one, one.assign(explainer="b")]), "control")
    'Both controls ignore the trained weights (a 0.00 [0.00, 0.00] and b 0.00 [0.00, 0.00]).'
    """
    if table["low"].isna().all():
        scores = listing(f"{r.explainer} {number(r.score)}" for r in records(table))
        return (
            f"Too few samples to decide what depends on the trained weights (below {FEWEST} there is no interval): "
            f"{scores}."
        )
    if len(table) == 1:
        row = records(table)[0]
        score = with_interval(row.score, row.low, row.high)
        return f"{row.explainer} {_SINGULAR[row.verdict]} the trained weights ({score})."

    parts: list[str] = []
    for verdict in (DEPENDS, UNDECIDED, BLIND):
        group = table[table["verdict"] == verdict]
        if group.empty:
            continue
        verb = _SINGULAR[verdict] if len(group) == 1 else _PLURAL[verdict]
        if len(group) == len(table) and verdict == UNDECIDED:
            n = len(table)
            subject = f"neither {noun}" if n == 2 else f"none of the {_count(n)} {noun}s"
            verb = _SINGULAR[verdict].replace(" not", "")
        elif len(group) == len(table):
            subject = f"{_all_of(len(table))} {noun}s"
        elif parts:
            subject = _count(len(group))
        else:
            subject = f"{_count(len(group))} of {_count(len(table))} {noun}s"
        weights = "them" if parts else "the trained weights"
        parts.append(f"{subject} {verb} {weights} ({_with_scores(group)})")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


_SINGULAR = {
    DEPENDS: "depends on",
    UNDECIDED: "is not shown to depend on",
    BLIND: "ignores",
}
_PLURAL = {
    DEPENDS: "depend on",
    UNDECIDED: "are not shown to depend on",
    BLIND: "ignore",
}


def _count(n: int) -> str:
    """Return a number as a word, where it is small."""
    return COUNTS[n] if n < len(COUNTS) else str(n)


def _all_of(n: int) -> str:
    return "both" if n == 2 else f"all {_count(n)}"


def _class_sentences(methods: pd.DataFrame) -> list[str]:
    """Return what becomes of the maps of the methods when another class is explained."""
    scored = methods[methods["class_low"].notna()]
    if scored.empty:
        return []
    unchanged = scored[scored["class_verdict"] == BLIND]
    if len(unchanged):
        verb = "hardly changes" if len(unchanged) == 1 else "hardly change"
        maps = "map" if len(unchanged) == 1 else "maps"
        names = _with_scores(unchanged, "class_")
        return [f"When another class is explained, the {maps} of {names} {verb}."]

    depends = scored["class_verdict"] == DEPENDS
    least = scored.sort_values("class_score").head(1)
    if len(scored) == 1:
        verb = "depends" if depends.all() else "is not shown to depend"
        return [f"Its map {verb} on the class that is explained: {_with_scores(least, 'class_')}."]
    if depends.all():
        maps = f"The maps of {_all_of(len(scored))} methods depend on the class that is explained"
    else:
        names = listing(scored.loc[~depends, "explainer"])
        maps = f"Not shown to depend on the class that is explained: {names}"
    return [f"{maps}; {_with_scores(least, 'class_')} changes the least."]


def _network_sentences(result: AxisResult, table: pd.DataFrame) -> list[str]:
    """Return how far the means of single random networks lie apart, where they do."""
    spread = table["most"] - table["least"]
    if not (spread > 0).any():
        return []
    row = records(table.loc[[spread.idxmax()]])[0]
    networks = _count(number_of_networks(result))
    ends = f"from {number(row.least)} to {number(row.most)}"
    return [f"Across the {networks} random networks, {row.explainer} varies the most: {ends}."]


def number_of_networks(result: AxisResult) -> int:
    """Return under how many random networks maps were compared."""
    return int(result.rows.loc[result.rows["measure"] == DEPENDENCE, "repeat"].nunique())


def _with_scores(table: pd.DataFrame, prefix: str = "") -> str:
    """Return the explainers, each with its score and interval; `prefix` names the columns."""
    scores = []
    for row in records(table):
        value, low, high = (getattr(row, f"{prefix}{name}") for name in ("score", "low", "high"))
        scores.append((row.explainer, with_interval(value, low, high)))
    return each(scores)


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield what one evaluation of dependence shows of the methods, in no particular order."""
    table = overview(result)
    methods = table[~table["control"].astype(bool)]
    blind = methods["verdict"] == BLIND
    seeing = methods[~blind]
    has_interval = seeing["low"].notna()
    found = [
        (IGNORES, methods[blind], ""),
        (UNSHOWN, seeing[(seeing["verdict"] == UNDECIDED) & has_interval], ""),
        (ANY_CLASS, seeing[seeing["class_verdict"] == BLIND], "class_"),
    ]
    for finding, rows, prefix in found:
        if len(rows):
            facts = {"bound": NEGLIGIBLE, "scores": _with_scores(rows, prefix)}
            yield finding.filled(facts, rows["explainer"])

    noisy = seeing[seeing["above_floor_low"] <= 0]
    if len(noisy):
        above_floor = noisy[
            ["explainer", "above_floor", "above_floor_low", "above_floor_high"]
        ].set_axis(["explainer", "score", "low", "high"], axis=1)
        yield NOISE.filled({"scores": _with_scores(above_floor)}, noisy["explainer"])

    networks = number_of_networks(result)
    if 0 < networks < FEW_NETWORKS:
        plural = "" if networks == 1 else "s"
        text = f"{_count(networks)} random network{plural}"
        change = {"evaluations": [{"dependence": {"draws": FEW_NETWORKS}}]}
        yield NETWORKS.filled({"networks": text, "enough": FEW_NETWORKS}, change=change)


COLUMNS = [
    "Explainer",
    "Verdict",
    "Dependence",
    "Each network",
    "Similarity",
    "Chance",
    "Noise floor",
    "Another class",
    "Rise of entropy",
    "Gini",
    "Entropy",
    "Completeness gap",
    "Passes per map",
]
NONE = "no dependence rows: add `dependence` to the study"
CASCADE_TITLES = dict(zip(CASCADES, ("from the output", "from the input"), strict=True))
CASCADE_DASHES: dict[str, tuple[float, ...]] = dict(zip(CASCADES, ((), (5, 3)), strict=True))


def parts(result: AxisResult) -> list[Chart | Panel]:
    """Return scores with their verdicts, cascades, and the table of everything that describes the maps."""
    drawn = (score_chart(result), cascade_chart(result), verdicts_panel(result))
    return [part for part in drawn if part is not None]


def score_chart(result: AxisResult) -> Chart | None:
    """Return dependence on the weights and on the class, a dot for each explainer."""
    table, looks = overview(result), result.looks
    if table.empty:
        return None
    of_weights = [
        mark(looks[r.explainer], r.score, r.low, r.high, said=r.verdict) for r in records(table)
    ]
    with_class = table[table["class_score"].notna()]
    of_class = [
        mark(looks[r.explainer], r.class_score, r.class_low, r.class_high, said=r.class_verdict)
        for r in records(with_class)
    ]
    axis_limits = of_marks([*of_weights, *of_class], 0.0, 1.0)
    guides = (("negligible", NEGLIGIBLE), ("unrelated samples", 1.0))
    plots = [dots("Random weights", of_weights, axis_limits, guides=guides)]
    if of_class:
        plots.append(dots("Another class", of_class, axis_limits, guides=guides))
    return Chart(
        "scores",
        "What changes the maps",
        "0: the map stays the same; 1: it changes as much as maps of unrelated samples differ. A method whose band "
        f"lies below {NEGLIGIBLE:g}, the first dotted line, is blind; more is not better. Bands: 95 % intervals.",
        f"Dependence of {len(table)} explainers on weights and class.",
        plots,
    )


def cascade_chart(result: AxisResult) -> Chart | None:
    """Return dependence against the share of layers that are random, where cascades were run."""
    summary = result.summary
    points = summary[(summary["measure"] == CASCADE_DEPENDENCE) & summary["mean"].notna()]
    lines: list[tuple[Look, Sequence[Curve]]] = []
    for explainer in dict.fromkeys(points["explainer"]):
        look = result.looks[explainer]
        lines.append((look, _cascades(points[points["explainer"] == explainer], look)))
    if not lines:
        return None
    marks = [m for _, curves in lines for curve in curves for m in curve.marks]
    return Chart(
        "cascade",
        "Layer by layer",
        "Dependence against the share of layers with random weights, starting from the output or from the input; the "
        "other methods are faint. Bars: 95 % intervals.",
        f"Curves of dependence for {len(lines)} explainers.",
        by_method(lines, of_marks(marks, 0.0, 1.0), "share of layers"),
    )


def _cascades(points: pd.DataFrame, look: Look) -> list[Curve]:
    """Return the curves of one explainer, from the model, whose map is unchanged, to all layers random."""
    curves = []
    for cascade, title in CASCADE_TITLES.items():
        steps = points[points["condition"] == cascade].sort_values("level")
        marks = [Mark(look.name, 0.0, x=0.0)]
        for r in records(steps):
            marks.append(Mark(look.name, r.mean, r.low, r.high, look.colour, x=r.level))
        if len(steps):
            curves.append(Curve(title, marks, look.colour, CASCADE_DASHES[cascade]))
    return curves


def verdicts_panel(result: AxisResult) -> Panel | None:
    """Return a table with one row per explainer: the verdict, what it rests on, what describes the map, and its cost."""
    rows = [Row(_cells(r), bool(r.control)) for r in records(overview(result))]
    if not rows:
        return None
    caption = (
        "Dependence is (1 − similarity) / (1 − chance), sample by sample; each network: the lowest and highest mean of "
        "one random network. Noise floor: the change between two random draws of the same map. Only the gap and the "
        "cost have a better direction."
    )
    return Panel(
        "verdicts",
        "Verdicts, and what describes the maps",
        caption,
        grid(COLUMNS, rows, "Verdicts"),
    )


def _cells(r: Any) -> list[str]:
    """Return the cells of one explainer, in the order of `COLUMNS`."""
    has_class_score = np.isfinite(r.class_score)
    of_class = with_interval(r.class_score, r.class_low, r.class_high) if has_class_score else "–"
    return [
        r.explainer,
        r.verdict,
        with_interval(r.score, r.low, r.high),
        f"{number(r.least)} – {number(r.most)}",
        number(r.similarity),
        number(r.similarity_chance),
        number(r.floor),
        of_class,
        number(r.entropy_rise),
        number(r.gini),
        number(r.entropy),
        number(r.completeness_gap, 3),
        number(r.passes, 0),
    ]


scores = charted("dependence", score_chart, NONE, "no map has a score")
cascades = charted(
    "dependence", cascade_chart, NONE, "no cascade: add `cascades: top_down` to dependence"
)
PAGE = Page(lead, parts)
ITEMS: tuple[Item, ...] = (
    Item("dependence-scores", "sanity checks, with chance", "figure", scores),
    Item("dependence-cascades", "sanity checks, layer by layer", "figure", cascades),
)
