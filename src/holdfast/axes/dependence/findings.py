"""Findings from random weights and other classes: maps that do not look at the model, and noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from holdfast.axes.contract import Finding, Judged
from holdfast.axes.dependence.frames import overview
from holdfast.axes.dependence.verdicts import BLIND, NEGLIGIBLE
from holdfast.drawing.prose import each, records, with_interval

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


def findings(judged: Judged) -> Iterator[Finding]:
    """What one evaluation of dependence shows of the methods, in no particular order."""
    table = overview(judged)
    methods = table[~table["control"].astype(bool)]
    both = ("score", "low", "high")
    yield from _found(IGNORES, methods[methods["verdict"] == BLIND], both)
    unshown = methods[(methods["verdict"] == "not shown to depend") & methods["low"].notna()]
    yield from _found(UNSHOWN, unshown, both)
    classes = methods[(methods["class_verdict"] == BLIND) & (methods["verdict"] != BLIND)]
    yield from _found(ANY_CLASS, classes, ("class_score", "class_low", "class_high"))
    noisy = methods[(methods["apart_low"] <= 0) & (methods["verdict"] != BLIND)]
    yield from _found(NOISE, noisy, ("apart", "apart_low", "apart_high"))


def _found(finding: Finding, rows: pd.DataFrame, columns: tuple[str, str, str]) -> Iterator[Finding]:
    if len(rows):
        named = zip(records(rows["explainer"].to_frame()), rows[list(columns)].to_numpy().tolist(), strict=True)
        scores = each((row.explainer, with_interval(*values)) for row, values in named)
        seen = finding.seen.format(bound=NEGLIGIBLE, scores=scores)
        yield replace(finding, seen=seen, explainers=tuple(rows["explainer"]))
