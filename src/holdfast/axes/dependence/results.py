"""What the results of dependence allow to say: one row per explainer, sentences and findings.

It ranks nobody, for noise depends on the model as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from holdfast.axes.contract import Finding, Judged
from holdfast.axes.dependence.evaluation import CLEAN, WEIGHTS
from holdfast.axes.dependence.verdicts import BLIND, NEGLIGIBLE, judged_explainers
from holdfast.drawing.prose import each, number, plural, records, with_interval
from holdfast.statistics.bootstrap import mean_of_finite
from holdfast.statistics.cubes import Array, Cube
from holdfast.statistics.estimates import interval

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


def overview(judged: Judged) -> pd.DataFrame:
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
    rows = judged.rows[(judged.rows["measure"] == "dependence") & (judged.rows["condition"] == WEIGHTS)]
    draws = rows[rows["status"] == "ok"].groupby(["explainer", "repeat"], observed=True)["value"].mean()
    by_draw = draws.groupby(level=0, observed=True)
    table["least"], table["most"] = by_draw.min().reindex(table.index), by_draw.max().reindex(table.index)
    places = [cube.explainers.index(name) for name in table.index]
    floor = cube.floor.get("dependence", np.full((len(cube.explainers), len(cube.samples)), np.nan))[places]
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


def lead(judged: Judged) -> list[str]:
    """Whose maps depend on the model and on the class, where the controls stand, and how far networks differ."""
    table = overview(judged)
    if table.empty:
        return [NOTHING]
    controls, methods = (table[table["control"].astype(bool) == which] for which in (True, False))
    said = _verdicts(methods if len(methods) else table)
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
        said.append(f"Intervals are over samples; between the random networks a mean differs the most {ends}.")
    return said


def _told(rows: Sequence[Any], what: str = "") -> str:
    """Explainers with a score and its interval; `what` comes before the names of the columns."""
    columns = ("score", "low", "high") if not what.endswith("apart") else ("", "_low", "_high")
    return each((r.explainer, with_interval(*(getattr(r, f"{what}{column}") for column in columns))) for r in rows)


def _verdicts(methods: pd.DataFrame) -> list[str]:
    said: list[str] = []
    for verdict, (one, many) in SAID.items():
        rows = records(methods[methods["verdict"] == verdict])
        if rows:
            what = "it" if said else "what the model has learned"
            said.append(f"{len(rows)} {plural(rows, one, many)} {what} ({_told(rows)})")
    said[0] = f"Of {len(methods)} {'methods' if len(methods) > 1 else 'method'}, {said[0]}"
    ends = "0 is a map that stays when the weights are random, 1 one that changes as between unrelated samples; "
    return [f"{'; '.join(said)}.", f"{ends}more is not better, for noise that knows the weights scores 1 as well."]


def findings(judged: Judged) -> Iterator[Finding]:
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
            seen = finding.seen.format(bound=NEGLIGIBLE, scores=_told(records(rows), what))
            yield replace(finding, seen=seen, explainers=tuple(rows["explainer"]))
