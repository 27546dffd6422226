"""Finding from the symmetry scores: the five guidelines of the invariance paper, decided by bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from holdfast.axes.contract import Finding, Judged
from holdfast.axes.faithfulness.frames import interval
from holdfast.axes.symmetry.flowchart import advise
from holdfast.axes.symmetry.frames import HIGH, INVARIANT, Symmetries, symmetries
from holdfast.axes.symmetry.words import score
from holdfast.drawing.prose import each, number, plural, records, with_interval

AXIS = "symmetry"
GUIDELINES = {"feature": 1, "example": 2, "concept": 3, "example or concept": 2}
_SHOULD = {
    "feature": "A map of a model that does not see the difference should move with the input.",
    "example": "The importance of training examples should not change when the model does not see the difference.",
    "concept": "The importance of concepts should not change when the model does not see the difference.",
}
_SHOULD["example or concept"] = _SHOULD["example"]
TOO_ROUGH = 0.05


def symmetry_advice(axis: Judged, drawn: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """The findings of one evaluation, in no particular order; stability has told of the draws of those in `drawn`."""
    found = symmetries(axis)
    if found is None or found.methods.empty:
        return
    low = found.methods[found.methods["mean_high"] < HIGH]
    if found.model.low >= INVARIANT:
        yield from _broken(axis, found, low)
    elif found.model.high < INVARIANT:
        yield _model(found, low)
    yield from _chance(found)
    yield from _draws(found, drawn)
    yield from _limits(axis, found)


def _broken(axis: Judged, found: Symmetries, low: pd.DataFrame) -> Iterator[Finding]:
    """Guidelines 1 to 4: methods that break a symmetry which the model has; one card for each remedy."""
    group = str((axis.settings.get("group") or {}).get("name") or "…")
    by: dict[tuple[str, str], list[str]] = {}
    for r in records(low):
        remedy = advise(axis, found, r.explainer).partition(". ")[2]  # after the sentence that says what is seen
        by.setdefault((r.kind, remedy), []).append(r.explainer)
    for (kind, remedy), names in by.items():
        own = low[low["explainer"].isin(names)]
        said = each((r.explainer, score(r.mean, r.mean_low, r.mean_high)) for r in records(own))
        measure = own.iloc[0]["measure"]
        yield Finding(
            AXIS,
            "act",
            f"{plural(names, 'This method breaks', 'These methods break')} a symmetry that the model has",
            f"Mean {measure} under {found.title}: {said}; the model’s own invariance is "
            f"{with_interval(found.model.value, found.model.low, found.model.high, 3)}.",
            f"{_SHOULD[kind]} Here it does not, so the fault is the method’s (guidelines {GUIDELINES[kind]} and 4 "
            "of the invariance paper).",
            f"{remedy} In Python: holdfast.symmetrise(explainer, {group!r}), which averages after moving maps back. It "
            "mends the symmetry by construction and does not make the explanation more faithful.",
            tuple(names),
        )


def _model(found: Symmetries, low: pd.DataFrame) -> Finding:
    """Guideline 5, and the caveat of guideline 4."""
    names = tuple(low["explainer"])
    agreement = ""
    if math.isfinite(found.agreement.value):
        a = found.agreement
        kept = with_interval(100 * a.value, 100 * a.low, 100 * a.high, 0)
        agreement = f"; its top class stays for {kept} % of the moved inputs"
    worst = records(low.sort_values("mean", kind="stable"))[:1]
    said = "".join(
        f" The lowest score of an explanation is {score(r.mean, r.mean_low, r.mean_high)}, of {r.explainer}."
        for r in worst
    )
    return Finding(
        AXIS,
        "mind",
        "The model itself does not keep the symmetry",
        f"Model invariance under {found.title} is "
        f"{with_interval(found.model.value, found.model.low, found.model.high, 3)}{agreement}.{said}",
        "Explanations need not keep a symmetry that the model breaks, so a low score is no fault of a method by "
        "itself. There is no linear relation between the two either: on a model that is almost invariant some "
        "explanations hold and others fall apart (guideline 5).",
        "Do not symmetrise these methods, it would hide what the model does (guideline 4). If the symmetry should "
        "hold, mend the model first: train on moved inputs, or use an architecture that is invariant by design. "
        "Compare methods on this model only, and do not carry their order to another.",
        names,
    )


def _chance(found: Symmetries) -> Iterator[Finding]:
    level = found.methods[found.methods["over_chance"] <= 0]
    if level.empty:
        return
    names = tuple(level["explainer"])
    said = each(
        (r.explainer, f"{score(r.mean, r.mean_low, r.mean_high)} (chance {number(r.chance)})") for r in records(level)
    )
    yield Finding(
        AXIS,
        "mind",
        "No more alike under the group than explanations of other samples",
        f"{said}; the interval of the difference to chance reaches 0.",
        "The score is what unrelated explanations get, so it says nothing about symmetry.",
        "Do not read these scores as symmetry; test more samples, or more elements of the group.",
        names,
    )


def _draws(found: Symmetries, drawn: frozenset[str]) -> Iterator[Finding]:
    """Methods whose agreement under the group is above that of two draws on one input, beyond doubt."""
    rows = []
    for r in records(found.methods[found.methods["floor"].notna() & ~found.methods["explainer"].isin(drawn)]):
        own = found.scores[found.scores["explainer"] == r.explainer]
        gap = (own["value"] - own["floor"]).to_numpy(dtype=np.float64)[None]
        if interval(gap)[0][0] > 0.01:
            rows.append((r.explainer, f"{number(r.floor)} (score {number(r.mean)})"))
    if rows:
        names = tuple(name for name, _ in rows)
        yield Finding(
            AXIS,
            "mind",
            "Random draws cost more than the symmetry",
            f"Two draws on the same input agree to {each(rows)}.",
            "The scores share their draws. With another seed the agreement is the lower one, however symmetric the "
            "method is.",
            "Give the method more samples, and give the floor beside the score.",
            names,
        )


def _limits(axis: Judged, found: Symmetries) -> Iterator[Finding]:
    if found.interpolates:
        yield Finding(
            AXIS,
            "note",
            "The group interpolates",
            f"{found.title} moves pixels to places between pixels.",
            "No method can score 1, and small differences may be those of the interpolation.",
            "Use a group that only permutes pixels, such as group: {dihedral: {n: 4}}, for statements about exactness.",
        )
    error = float(found.methods["error"].median())
    if not found.whole and error > TOO_ROUGH:
        n = found.elements
        yield Finding(
            AXIS,
            "note",
            "Few elements of the group were tried",
            f"{n} elements for each sample leave its score uncertain by ±{number(error)} (median).",
            "Scores of single samples are rough; means over samples are less so, and their intervals include it.",
            f"elements: {4 * n} halves it, at four times the cost.",
            tuple(found.methods["explainer"]),
        )
