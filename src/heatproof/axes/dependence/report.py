"""Dependence in the report: verdicts, sentences, findings, charts. Nobody is ranked, for noise depends on weights too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heatproof.axes.dependence.evaluation import CASCADE_DEPENDENCE, CASCADES
from heatproof.axes.dependence.overview import number_of_networks, overview
from heatproof.axes.dependence.verdicts import BLIND, DEPENDS, NEGLIGIBLE, UNDECIDED
from heatproof.report.components import Component, CurveChart, ScoreChart, Table
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.statistics.few import FEW_NETWORKS
from heatproof.statistics.intervals import FEWEST
from heatproof.text import each, listing, number, records, with_interval

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
    do="Do not use it to explain this model. Every ranking marks it: ignores the model.",
)
UNDECIDED_DEPENDENCE = finding_template(
    "dependence-unclear",
    axis="dependence",
    title="Undecided whether the map depends on the trained weights",
    seen="The interval of the dependence reaches below {bound:g}: {scores}.",
    means="From these samples one cannot say whether the map would change if the model had learned nothing.",
    do="Test more samples: four times as many halve the interval.",
)
IGNORES_CLASS = finding_template(
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
    """Return a sentence on how many methods depend on the trained weights, with their scores.

    `table` has a row per explainer: explainer, score, low, high and verdict. `noun` is "method" or "control".

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
    """Return a sentence on whether the maps change when another class is explained; none where that was not measured."""
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
    if len(scored) == 1:
        verb = "depends" if depends.all() else "is not shown to depend"
        return [f"Its map {verb} on the class that is explained: {_with_scores(scored, 'class_')}."]
    if depends.all():
        maps = f"The maps of {_all_of(len(scored))} methods depend on the class that is explained"
    else:
        names = listing(scored.loc[~depends, "explainer"])
        maps = f"Not shown to depend on the class that is explained: {names}"
    lowest, highest = scored["class_score"].min(), scored["class_score"].max()
    return [f"{maps} (scores from {number(lowest)} to {number(highest)})."]


def _network_sentences(result: AxisResult, table: pd.DataFrame) -> list[str]:
    """Return a sentence on how far the scores under single random networks differ, for the explainer where they do most."""
    spread = table["most"] - table["least"]
    if not (spread > 0).any():
        return []
    row = records(table.loc[[spread.idxmax()]])[0]
    networks = _count(number_of_networks(result))
    ends = f"{row.explainer}: from {number(row.least)} to {number(row.most)}"
    apart = number(row.most - row.least)
    return [f"Across the {networks} random networks, scores differ by up to {apart} ({ends})."]


def _with_scores(table: pd.DataFrame, prefix: str = "") -> str:
    """Return the explainers, each with its score and interval; `prefix` names the columns."""
    scores = []
    for row in records(table):
        value, low, high = (getattr(row, f"{prefix}{name}") for name in ("score", "low", "high"))
        scores.append((row.explainer, with_interval(value, low, high)))
    return each(scores)


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield warnings about methods whose maps do not, or may not, depend on the model.

    Dependence is how much a map changes when the trained weights are replaced by random ones (0: not at all; 1: as much
    as maps of unrelated samples differ). There are warnings about methods that ignore the weights or the explained class,
    about undecided ones, about changes that may be random noise of the method itself, and about few random networks.
    """
    table = overview(result)
    methods = table[~table["control"].astype(bool)]

    ignores_weights = methods["verdict"] == BLIND
    if ignores_weights.any():
        yield _finding_with_scores(IGNORES, result, methods[ignores_weights])

    # Of a method that ignores the weights nothing more needs to be said.
    others = methods[~ignores_weights]
    undecided = others[(others["verdict"] == UNDECIDED) & others["low"].notna()]
    if len(undecided):
        yield _finding_with_scores(UNDECIDED_DEPENDENCE, result, undecided)

    ignores_class = others[others["class_verdict"] == BLIND]
    if len(ignores_class):
        yield _finding_with_scores(IGNORES_CLASS, result, ignores_class, prefix="class_")

    # Significantly above the noise floor is a method whose interval of (dependence − noise floor) lies above 0.
    noisy = others[others["above_floor_low"] <= 0]
    if len(noisy):
        columns = ["explainer", "above_floor", "above_floor_low", "above_floor_high"]
        above_floor = noisy[columns].set_axis(["explainer", "score", "low", "high"], axis=1)
        scores = _with_scores(result.unmarked(above_floor))
        yield NOISE.filled({"scores": scores}, noisy["explainer"])

    networks = number_of_networks(result)
    if 0 < networks < FEW_NETWORKS:
        plural = "" if networks == 1 else "s"
        text = f"{_count(networks)} random network{plural}"
        change = {"evaluations": [{"dependence": {"draws": FEW_NETWORKS}}]}
        yield NETWORKS.filled({"networks": text, "enough": FEW_NETWORKS}, change=change)


def _finding_with_scores(
    template: Finding, result: AxisResult, rows: pd.DataFrame, prefix: str = ""
) -> Finding:
    """Return a finding about the explainers in `rows`, with the score of each in its text.

    `prefix` names the columns of the score: "" for dependence on the weights, "class_" for that on the class.
    """
    facts = {"bound": NEGLIGIBLE, "scores": _with_scores(result.unmarked(rows), prefix)}
    return template.filled(facts, rows["explainer"])


COLUMNS = {
    "explainer": "Explainer",
    "verdict": "Verdict",
    "score": "Dependence",
    "each_network": "Each network",
    "similarity": "Similarity",
    "similarity_chance": "Chance",
    "floor": "Noise floor",
    "class_score": "Another class",
    "entropy_rise": "Rise of entropy",
    "gini": "Gini",
    "entropy": "Entropy",
    "completeness_gap": "Completeness gap",
    "passes": "Passes per map",
}
CASCADE_TITLES = dict(zip(CASCADES, ("from the output", "from the input"), strict=True))


def components(result: AxisResult) -> Iterator[Component]:
    """Yield scores with their verdicts, cascades, and the table of everything that describes the maps."""
    table = overview(result)
    yield ScoreChart(
        key="scores",
        title="What changes the maps",
        caption="0: the map stays the same; 1: it changes as much as maps of unrelated samples differ. A method whose band "
        f"lies below {NEGLIGIBLE:g}, the first dotted line, ignores the model; more is not better. Bands: 95 % intervals.",
        scores=_scores_of_weights_and_class(table),
        limits=(0.0, 1.0),
        guides={"negligible": NEGLIGIBLE, "unrelated samples": 1.0},
        paper="sanity checks, with chance",
    )
    yield CurveChart(
        key="cascades",
        title="Layer by layer",
        caption="Dependence against the share of layers with random weights, starting from the output or from the input; "
        "the other methods are faint. Bars: 95 % intervals.",
        points=_cascade_points(result),
        x_label="share of layers",
        y_label="dependence",
        limits=(0.0, 1.0),
        paper="sanity checks, layer by layer",
    )
    yield Table(
        key="verdicts",
        title="Verdicts, and what describes the maps",
        caption="Dependence is (1 − similarity) / (1 − chance), sample by sample; each network: the lowest and highest "
        "mean of one random network. Noise floor: the change between two random draws of the same map. Only the gap and "
        "the cost have a better direction.",
        rows=_described(table),
        columns=COLUMNS,
    )


def _scores_of_weights_and_class(table: pd.DataFrame) -> pd.DataFrame:
    """Return the dependence on the weights, and on the class where it was measured, with the verdicts as notes."""
    of_weights = table.assign(panel="Random weights", note=table["verdict"])
    with_class = table[table["class_score"].notna()]
    of_class = with_class.assign(
        panel="Another class",
        note=with_class["class_verdict"],
        score=with_class["class_score"],
        low=with_class["class_low"],
        high=with_class["class_high"],
    )
    return pd.concat([of_weights, of_class], ignore_index=True)


def _cascade_points(result: AxisResult) -> pd.DataFrame:
    """Return the points of the curves of dependence by the share of layers with random weights.

    Layers are randomised one after the other, from the output or from the input. Every curve starts at (0, 0): with no
    random layer the map is unchanged.
    """
    summary = result.summary
    measured = (summary["measure"] == CASCADE_DEPENDENCE) & summary["mean"].notna()
    steps = summary[measured].sort_values("level", kind="stable")
    points = steps.assign(
        x=steps["level"], score=steps["mean"], curve=steps["condition"].map(CASCADE_TITLES)
    )
    starts = points.drop_duplicates(["explainer", "curve"])
    starts = starts.assign(x=0.0, score=0.0, low=np.nan, high=np.nan)
    return pd.concat([starts, points], ignore_index=True)


def _described(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `overview` as the report prints them, with texts for what is not a number with two decimals."""
    # A table prints an interval beside a score from the columns with its name and _low, _high.
    rows = table.rename(columns={"class_low": "class_score_low", "class_high": "class_score_high"})
    ranges = []
    for lowest, highest in zip(rows["least"], rows["most"], strict=True):
        ranges.append(f"{number(lowest)} – {number(highest)}")
    return rows.assign(
        each_network=ranges,
        completeness_gap=[number(gap, 3) for gap in rows["completeness_gap"]],
        passes=[number(passes, 0) for passes in rows["passes"]],
    )
