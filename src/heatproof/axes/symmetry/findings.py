"""Findings about symmetry: the five guidelines of the invariance paper, decided by bounds, and a remedy per method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from heatproof.axes.contract import AxisResult, Finding
from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.axes.symmetry.frames import HIGH, Symmetries, layer_verdicts, repaired, symmetries
from heatproof.drawing.prose import each, listing, number, plural, records, with_interval
from heatproof.statistics.estimates import interval

LOSS_BASED = ("influence", "tracin")
TOO_ROUGH = 0.05
"""The uncertainty of one sample's score from which more elements are worth their cost."""


@dataclass(frozen=True)
class Guideline:
    """What the paper says of one kind of explanation: its score, what should hold, and what helps where it does not."""

    number: int
    score: str
    should: str
    remedy: str


GUIDELINES = {
    "feature": Guideline(
        1,
        "equivariance should be 1",
        "A map of a model that does not see the difference should move with the input.",
        "give it a baseline that the group leaves alone, such as a constant, or use a method whose steps move with "
        "the input",
    ),
    "example": Guideline(
        2,
        "invariance should be 1",
        "The importance of training examples should not change when the model does not see the difference.",
        "use a method based on the loss, or an invariant layer",
    ),
    "concept": Guideline(
        3,
        "invariance should be 1",
        "The importance of concepts should not change when the model does not see the difference.",
        "use an invariant layer",
    ),
}
GUIDELINES["example or concept"] = GUIDELINES["example"]

KEEP = "Nothing to do."
NO_WORSE = ("no worse than moving a map there and back", "no worse than its own draws")
DRAW_MORE = "Give it more random draws, for two runs on the same input agree only to {floor}."
WEIGH = "Read it beside the model’s own invariance, and do not symmetrise."
BY_LOSS = "It is based on the loss and should be invariant: look for padding, dropout or unlike precision."
BY_INVARIANT = "Its layer {layer} is invariant, so this should be 1: look for random draws or unlike precision."
BY_OTHER = "Its layer {layer} is not invariant ({verdict}). {use}"
BY_UNTESTED = "{use} Whether {layer} is one was not tested; name it in layers: […]."
REPAIR_UNTRIED = "Or symmetrise it; repair: [4, 8] in the study shows how many elements that takes."
REPAIR_ENOUGH = "Or symmetrise it: {n:g} elements give {mean}, at {n:g} times the cost."
REPAIR_MORE = "Or symmetrise it over more than {n:g} elements, which give {mean}."

BROKEN = Finding(
    axis=Symmetry.name,
    severity="act",
    title="{breaks} a symmetry that the model has",
    seen="Mean {measure} under {group}: {scores}; the model’s own invariance is {model}.",
    means="{guideline.should} Here it does not, so the fault is the method’s (guidelines {guideline.number} and 4 of "
    "the invariance paper).",
    do="{remedy} {how} It mends the symmetry by construction and does not make the explanation more faithful.",
)
SYMMETRISE = "In Python: heatproof.symmetrise(explainer, {group}); in a study: symmetrised: {{of: …, group: {group}}}."
SYMMETRISE_OWN = "In Python: heatproof.symmetrise(explainer, your group)."
MOVED_BACK = " Maps are moved back before they are averaged."
LOOSE_MODEL = Finding(
    axis=Symmetry.name,
    severity="mind",
    title="The model itself does not keep the symmetry",
    seen="Model invariance under {group} is {model}{kept}.{lowest}",
    means="Explanations need not keep a symmetry that the model breaks, so a low score is no fault of a method by "
    "itself. There is no linear relation between the two either: on a model that is almost invariant some "
    "explanations hold and others fall apart (guideline 5).",
    do="Do not symmetrise these methods, it would hide what the model does (guideline 4). If the symmetry should hold, "
    "mend the model first: train on moved inputs, or use an architecture that is invariant by design. Compare methods "
    "on this model only, and do not carry their order to another.",
)
KEPT = "; its prediction stays for {share} % of the moved inputs"
LOWEST = " The lowest score of an explanation is {score}, of {method}."
AT_CHANCE = Finding(
    axis=Symmetry.name,
    severity="mind",
    title="No more alike under the group than explanations of other samples",
    seen="{scores}; the interval of the difference to chance reaches 0.",
    means="The score is what unrelated explanations get, so it says nothing about symmetry.",
    do="Do not read these scores as symmetry; test more samples, or more elements of the group.",
)
DRAWS = Finding(
    axis=Symmetry.name,
    severity="mind",
    title="Random draws cost more than the symmetry",
    seen="Two draws on the same input agree to {floors}.",
    means="The scores share their draws. With another seed the agreement is the lower one, however symmetric the "
    "method is.",
    do="Give the method more samples, and give the floor beside the score.",
)
INTERPOLATES = Finding(
    axis=Symmetry.name,
    severity="note",
    title="The group interpolates",
    seen="{group} moves pixels to places between pixels.",
    means="No method can score 1, and small differences may be those of the interpolation.",
    do="Use a group that only permutes pixels, such as group: {dihedral: {n: 4}}, for statements about exactness.",
)
FEW_ELEMENTS = Finding(
    axis=Symmetry.name,
    severity="note",
    title="Few elements of the group were tried",
    seen="{n} elements for each sample leave its score uncertain by ±{error} (median).",
    means="Scores of single samples are rough; means over samples are less so, and their intervals include it.",
    do="elements: {more} halves it, at four times the cost.",
)


@dataclass(frozen=True)
class Remedy:
    """What to do with one method: keep it, weigh it against the model, or repair it; and what that follows from."""

    way: Literal["keep", "weigh", "repair"]
    seen: str
    do: str


def remedies(measured: Symmetries) -> dict[str, Remedy]:
    """The remedy of every method with a score, decided by means."""
    layers = {r.layer: r.verdict for r in records(layer_verdicts(measured.judged))}
    curves = repaired(measured)
    advised = {}
    for r in records(measured.methods):
        if r.mean >= HIGH:
            do = DRAW_MORE.format(floor=number(r.floor)) if r.floor < HIGH else KEEP
            advised[r.explainer] = Remedy("keep", "close to 1", do)
        elif r.excused:
            do = DRAW_MORE.format(floor=number(r.floor)) if math.isfinite(r.floor) else KEEP
            advised[r.explainer] = Remedy("keep", NO_WORSE[math.isfinite(r.floor)], do)
        elif measured.invariant:
            mend = _mend(measured.judged.settings_of(r.explainer), r.kind, layers)
            do = f"{mend} {_symmetrise(curves[curves['explainer'] == r.explainer])}"
            advised[r.explainer] = Remedy("repair", "below 1 though the model is invariant", do)
        else:
            why = (
                "model’s invariance is not known"
                if measured.invariant is None
                else "model is not invariant itself"
            )
            advised[r.explainer] = Remedy("weigh", f"not close to 1, but the {why}", WEIGH)
    return advised


def _mend(settings: Mapping[str, Any], kind: str, layers: Mapping[str, str]) -> str:
    """What may bring a method's score to 1, by its kind and by what is known of its layer."""
    remedy = GUIDELINES[kind].remedy
    use = remedy[0].upper() + remedy[1:]
    if kind == "feature":
        return f"{use}."
    if settings.get("name") in LOSS_BASED:
        return BY_LOSS
    invariant = [name for name, verdict in layers.items() if verdict == "invariant"]
    use += f", such as {listing(invariant)}." if invariant else "."
    layer = settings.get("layer")
    verdict = layers.get(str(layer))
    if verdict is None:
        return BY_UNTESTED.format(use=use, layer="its layer" if layer is None else f"layer {layer}")
    return (BY_INVARIANT if verdict == "invariant" else BY_OTHER).format(
        layer=layer, verdict=verdict, use=use
    )


def _symmetrise(curve: pd.DataFrame) -> str:
    """What symmetrising did where it was tried, from rows of `frames.repaired`."""
    if curve.empty:
        return REPAIR_UNTRIED
    enough = curve[curve["mean"] >= HIGH]
    if len(enough):
        return REPAIR_ENOUGH.format(
            n=enough["level"].iloc[0], mean=number(enough["mean"].iloc[0], 3)
        )
    return REPAIR_MORE.format(n=curve["level"].iloc[-1], mean=number(curve["mean"].iloc[-1]))


def findings(judged: AxisResult) -> Iterator[Finding]:
    """What one evaluation of symmetry finds, in no particular order."""
    measured = symmetries(judged)
    if measured is None or measured.methods.empty:
        return
    low = measured.methods[measured.methods["mean_high"] < HIGH]
    if measured.surely:
        yield from _broken(measured, low[~low["excused"].astype(bool)])
    elif measured.surely is False:
        yield _loose_model(measured, low)
    yield from _at_chance(measured)
    yield from _draws(measured)
    if measured.interpolates:
        yield replace(INTERPOLATES, seen=INTERPOLATES.seen.format(group=measured.title))
    error = float(measured.methods["error"].dropna().median())
    if not measured.whole and error > TOO_ROUGH:
        fill = {"n": measured.elements, "error": number(error), "more": 4 * measured.elements}
        yield FEW_ELEMENTS.filled(fill, measured.methods["explainer"])


def _broken(measured: Symmetries, low: pd.DataFrame) -> Iterator[Finding]:
    """Guidelines 1 to 4: methods that break a symmetry which the model has; one finding for each remedy."""
    group = measured.group_text
    how = SYMMETRISE.format(group=group) if group else SYMMETRISE_OWN
    advised = remedies(measured)
    remedy = low["explainer"].map(lambda explainer: advised[explainer].do)
    model = with_interval(measured.model.value, measured.model.low, measured.model.high)
    for (kind, do), rows in low.groupby([low["kind"], remedy], sort=False):
        names, guideline, measure = (
            tuple(rows["explainer"]),
            GUIDELINES[str(kind)],
            rows.iloc[0]["measure"],
        )
        scores = each(
            (r.explainer, with_interval(r.mean, r.mean_low, r.mean_high)) for r in records(rows)
        )
        fill: dict[str, Any] = {
            "breaks": plural(names, "This method breaks", "These methods break"),
            "model": model,
        }
        fill |= {
            "group": measured.title,
            "measure": measure,
            "scores": scores,
            "guideline": guideline,
        }
        yield BROKEN.filled(
            fill | {"remedy": do, "how": how + (MOVED_BACK if kind == "feature" else "")}, names
        )


def _loose_model(measured: Symmetries, low: pd.DataFrame) -> Finding:
    """Guideline 5, and the caveat of guideline 4."""
    m, a, kept, lowest = measured.model, measured.agreement, "", ""
    if math.isfinite(a.value):
        kept = KEPT.format(share=with_interval(100 * a.value, 100 * a.low, 100 * a.high))
    for r in records(low.nsmallest(1, "mean")):
        lowest = LOWEST.format(
            score=with_interval(r.mean, r.mean_low, r.mean_high), method=r.explainer
        )
    model = with_interval(m.value, m.low, m.high)
    fill = {"group": measured.title, "model": model, "kept": kept, "lowest": lowest}
    return LOOSE_MODEL.filled(fill, low["explainer"])


def _at_chance(measured: Symmetries) -> Iterator[Finding]:
    level = records(measured.methods[measured.methods["over_chance"] <= 0])
    if level:
        scores = (
            f"{with_interval(r.mean, r.mean_low, r.mean_high)} (chance {number(r.chance)})"
            for r in level
        )
        told = dict(zip((r.explainer for r in level), scores, strict=True))
        yield AT_CHANCE.filled({"scores": each(told.items())}, told)


def _draws(measured: Symmetries) -> Iterator[Finding]:
    """Methods whose agreement under the group is above that of two draws on one input, beyond doubt."""
    noisy = {}
    for r in records(measured.methods[measured.methods["floor"].notna()]):
        rows = measured.scores[measured.scores["explainer"] == r.explainer]
        low, _ = interval((rows["value"] - rows["floor"]).to_numpy(dtype=np.float64)[None])
        if low[0] > 0.01:
            noisy[r.explainer] = f"{number(r.floor)} (score {number(r.mean)})"
    if noisy:
        yield DRAWS.filled({"floors": each(noisy.items())}, noisy)
