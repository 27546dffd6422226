"""Findings about symmetry: the five guidelines of the invariance paper, decided by bounds, and a remedy per method."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.axes.symmetry.frames import (
    HIGH,
    Symmetries,
    layer_verdicts,
    symmetries,
    symmetrised_curves,
)
from heatproof.drawing.prose import each, listing, number, plural, records, with_interval
from heatproof.explainers import EXPLAINERS
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.statistics.estimates import interval

LOSS_BASED = ("influence", "tracin")
TOO_ROUGH = 0.05
"""The uncertainty of one sample's score from which more elements are worth their cost."""
NOISE_MARGIN = 0.01
"""How far a score must be above its noise floor for the report to say that the draws cost more than the symmetry."""


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
CLOSE = "close to 1"
NO_WORSE_THAN_DRAWS = "no worse than its own draws"
NO_WORSE_THAN_MOVING = "no worse than moving a map there and back"
BROKEN_BY_METHOD = "below 1 though the model is invariant"
BROKEN_BY_MODEL = "not close to 1, but the model is not invariant itself"
MODEL_UNDECIDED = "not close to 1, but whether the model is invariant is undecided"
MODEL_UNKNOWN = "not close to 1, but the model’s invariance is not known"
DRAW_MORE = "Give it more random draws: two draws on the same input agree only to {floor}."
WEIGH = "Read it beside the model’s own invariance, and do not symmetrise."
BY_LOSS = "It is based on the loss and should be invariant: look for padding, dropout or unlike precision."
BY_INVARIANT = "Its layer {layer} is invariant, so this should be 1: look for random draws or unlike precision."
BY_OTHER = "Its layer {layer} is not invariant ({verdict}). {use}"
BY_UNTESTED = "{use} Whether {layer} is one was not tested; name it in layers: […]."
REPAIR_UNTRIED = "Or symmetrise it; repair: [4, 8] in symmetry shows how many elements that takes."
REPAIR_ENOUGH = "Or symmetrise it: {n:g} elements give {mean}, at {n:g} times the cost."
REPAIR_MORE = "Or symmetrise it over more than {n:g} elements, which give {mean}."

BROKEN = finding_template(
    "broken-symmetry",
    axis=Symmetry.name,
    title="{breaks} a symmetry that the model has",
    seen="Mean {measure} under {group}: {scores}. The model’s own invariance is {model}.",
    means="{guideline.should} Here it does not, so the fault is the method’s (guidelines {guideline.number} and 4 of "
    "the invariance paper).",
    do="{remedy} {how} Symmetrising enforces the symmetry; it does not make the explanation more faithful.",
)
SYMMETRISE = "In Python: heatproof.symmetrise(explainer, {group})."
OWN_GROUP = "your group"
MOVED_BACK = " Maps are moved back before they are averaged."
LOOSE_MODEL = finding_template(
    "model-not-invariant",
    axis=Symmetry.name,
    title="The model itself does not keep the symmetry",
    seen="Model invariance under {group} is {model}{kept}.{lowest}",
    means="An explanation need not keep a symmetry that the model breaks, so a low score alone is no fault of the "
    "method. The two are not related linearly either: on an almost invariant model some explanations keep the symmetry "
    "and others do not (guideline 5).",
    do="Do not symmetrise these methods: that would hide what the model does (guideline 4). If the symmetry should hold, "
    "fix the model first: train on moved inputs, or use an invariant architecture. The ranking holds for this model only.",
)
KEPT = "; its prediction stays the same for {share} % of the moved inputs"
LOWEST = " The lowest score of an explanation is {score}, of {method}."
AT_CHANCE = finding_template(
    "not-above-chance",
    axis=Symmetry.name,
    title="Not significantly above chance",
    seen="{scores}; the interval of the difference to chance contains 0.",
    means="Explanations of other samples agree as well, so the score says nothing about symmetry.",
    do="Do not read these scores as symmetry. Test more samples, or more elements of the group.",
)
DRAWS = finding_template(
    "noisy-draws",
    axis=Symmetry.name,
    title="Random draws change the explanation more than the group does",
    seen="Two draws on the same input agree only to {floors}.",
    means="Both explanations of a pair use the same random draws. With another seed they agree less, however symmetric "
    "the method is.",
    do="Give the method more samples, and report the noise floor beside the score.",
)
INTERPOLATES = finding_template(
    "interpolating-group",
    axis=Symmetry.name,
    title="The group interpolates",
    seen="{group} moves pixels to places between pixels.",
    means="No method can score 1, and small differences may come from the interpolation.",
    do="For exact statements, use a group that only permutes pixels.",
)
FEW_ELEMENTS = finding_template(
    "few-elements",
    axis=Symmetry.name,
    title="Few elements of the group were tried",
    seen="With {n} elements, the score of a single sample is uncertain by ±{error} (median).",
    means="Scores of single samples are rough. Means over samples are less so, and their intervals include it.",
    do="Use {more} elements: half the uncertainty at four times the cost.",
)
PIXEL_GROUP = {"dihedral": {"n": 4}}
"""A group that only permutes pixels."""


@dataclass(frozen=True)
class Remedy:
    """What to do with one method: keep it, weigh it against the model, or repair it; and what that follows from."""

    way: Literal["keep", "weigh", "repair"]
    seen: str
    do: str


def remedies(measured: Symmetries) -> dict[str, Remedy]:
    """Return the remedy of every method with a score."""
    layers = layer_verdicts(measured.result)
    verdicts = dict(zip(layers["layer"], layers["verdict"], strict=True))
    curves = symmetrised_curves(measured)
    return {
        method.explainer: _remedy(
            measured, method, verdicts, curves[curves["explainer"] == method.explainer]
        )
        for method in records(measured.methods)
    }


def _remedy(
    measured: Symmetries, method: Any, verdict_of_layer: Mapping[str, str], curve: pd.DataFrame
) -> Remedy:
    """Return what to do with one row of `Symmetries.methods`."""
    has_floor = math.isfinite(method.noise_floor)
    draw_more = DRAW_MORE.format(floor=number(method.noise_floor))
    if method.mean >= HIGH:
        return Remedy("keep", CLOSE, draw_more if method.noise_floor < HIGH else KEEP)
    if method.within_noise and has_floor:
        return Remedy("keep", NO_WORSE_THAN_DRAWS, draw_more)
    if method.within_noise:
        return Remedy("keep", NO_WORSE_THAN_MOVING, KEEP)
    if measured.invariant:
        settings = measured.result.settings_of(method.explainer)
        mend = _mend(settings, method.kind, verdict_of_layer)
        return Remedy("repair", BROKEN_BY_METHOD, f"{mend} {_symmetrise(curve)}")
    if measured.invariant is False:
        return Remedy("weigh", BROKEN_BY_MODEL, WEIGH)
    return Remedy("weigh", MODEL_UNDECIDED if measured.is_measured else MODEL_UNKNOWN, WEIGH)


def _mend(settings: Mapping[str, Any], kind: str, verdict_of_layer: Mapping[str, str]) -> str:
    """What may bring a method's score to 1, by its kind and by what is known of its layer."""
    remedy = GUIDELINES[kind].remedy
    use = remedy[0].upper() + remedy[1:]
    if kind == "feature":
        return f"{use}."
    if settings.get("name") in LOSS_BASED:
        return BY_LOSS
    invariant = [layer for layer, verdict in verdict_of_layer.items() if verdict == "invariant"]
    use += f", such as {listing(invariant)}." if invariant else "."
    layer = settings.get("layer")
    verdict = verdict_of_layer.get(str(layer))
    if verdict is None:
        return BY_UNTESTED.format(use=use, layer="its layer" if layer is None else f"layer {layer}")
    if verdict == "invariant":
        return BY_INVARIANT.format(layer=layer)
    return BY_OTHER.format(layer=layer, verdict=verdict, use=use)


def _symmetrise(curve: pd.DataFrame) -> str:
    """What symmetrising did where it was tried, from rows of `frames.symmetrised_curves`."""
    if curve.empty:
        return REPAIR_UNTRIED
    enough = curve[curve["mean"] >= HIGH]
    if len(enough):
        fewest = enough.iloc[0]
        return REPAIR_ENOUGH.format(n=fewest["level"], mean=number(fewest["mean"], 3))
    most = curve.iloc[-1]
    return REPAIR_MORE.format(n=most["level"], mean=number(most["mean"]))


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield what one evaluation of symmetry finds, in no particular order."""
    measured = symmetries(result)
    if measured is None or measured.methods.empty:
        return
    low = measured.methods[measured.methods["mean_high"] < HIGH]
    if measured.invariant:
        yield from _broken(measured, low[~low["within_noise"].astype(bool)])
    elif measured.invariant is False:
        yield _loose_model(measured, low)
    yield from _at_chance(measured)
    yield from _noisy_draws(measured)
    if measured.interpolates:
        change = _settings_change({"group": PIXEL_GROUP})
        yield INTERPOLATES.filled({"group": measured.title}, change=change)
    error = float(measured.methods["error"].dropna().median())
    if not measured.whole and error > TOO_ROUGH:
        more = 4 * measured.elements
        numbers = {"n": measured.elements, "error": number(error), "more": more}
        group = measured.study_group
        change = {} if group is None else _settings_change({"group": group, "elements": more})
        yield FEW_ELEMENTS.filled(numbers, measured.methods["explainer"], change=change)


def _settings_change(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what to write into a study file for other settings of symmetry."""
    return {"evaluations": [{Symmetry.name: settings}]}


def _mean_text(row: Any) -> str:
    """The mean score of a row of `Symmetries.means` with its interval."""
    return with_interval(row.mean, row.mean_low, row.mean_high)


def _broken(measured: Symmetries, low: pd.DataFrame) -> Iterator[Finding]:
    """Guidelines 1 to 4: methods that break a symmetry which the model has; one finding for each remedy."""
    group = measured.study_group
    how = SYMMETRISE.format(group=OWN_GROUP if group is None else json.dumps(group))
    remedy_of = remedies(measured)
    remedy = low["explainer"].map(lambda explainer: remedy_of[explainer].do)
    model = measured.model
    for (kind, do), rows in low.groupby([low["kind"], remedy], sort=False):
        names = tuple(rows["explainer"])
        words = {
            "breaks": plural(names, "This method breaks", "These methods break"),
            "measure": rows["measure"].iloc[0],
            "group": measured.title,
            "scores": each((row.explainer, _mean_text(row)) for row in records(rows)),
            "model": with_interval(model.value, model.low, model.high),
            "guideline": GUIDELINES[str(kind)],
            "remedy": do,
            "how": how + (MOVED_BACK if kind == "feature" else ""),
        }
        change = {} if group is None else _symmetrised_change(measured, names, group)
        yield BROKEN.filled(words, names, change=change)


def _symmetrised_change(
    measured: Symmetries, explainers: Iterable[str], group: Any
) -> dict[str, Any]:
    """Return the symmetrised form of explainers as a study file has it, of those that it can name."""
    names = [measured.result.registered_name(explainer) for explainer in explainers]
    symmetrised = [
        {"symmetrised": {"of": name, "group": group}} for name in names if name in EXPLAINERS
    ]
    return {"explainers": symmetrised} if symmetrised else {}


def _loose_model(measured: Symmetries, low: pd.DataFrame) -> Finding:
    """Guideline 5, and the caveat of guideline 4."""
    model, agreement = measured.model, measured.agreement
    words = {
        "group": measured.title,
        "model": with_interval(model.value, model.low, model.high),
        "kept": "",
        "lowest": "",
    }
    if math.isfinite(agreement.value):
        share = with_interval(100 * agreement.value, 100 * agreement.low, 100 * agreement.high)
        words["kept"] = KEPT.format(share=share)
    if len(low):
        lowest = records(low.nsmallest(1, "mean"))[0]
        words["lowest"] = LOWEST.format(score=_mean_text(lowest), method=lowest.explainer)
    return LOOSE_MODEL.filled(words, low["explainer"])


def _at_chance(measured: Symmetries) -> Iterator[Finding]:
    """Methods whose score is not clearly above chance."""
    at_chance = records(measured.methods[measured.methods["over_chance"] <= 0])
    if at_chance:
        scores = [
            (row.explainer, f"{_mean_text(row)} (chance {number(row.chance)})") for row in at_chance
        ]
        yield AT_CHANCE.filled({"scores": each(scores)}, [name for name, _ in scores])


def _noisy_draws(measured: Symmetries) -> Iterator[Finding]:
    """Methods whose score is clearly above the noise floor, the agreement of two draws on one input."""
    noisy = []
    for method in records(measured.methods[measured.methods["noise_floor"].notna()]):
        rows = measured.scores[measured.scores["explainer"] == method.explainer]
        above_floor = (rows["value"] - rows["noise_floor"]).to_numpy(dtype=np.float64)
        low, _ = interval(above_floor[None])
        if low[0] > NOISE_MARGIN:
            text = f"{number(method.noise_floor)} (score {number(method.mean)})"
            noisy.append((method.explainer, text))
    if noisy:
        yield DRAWS.filled({"floors": each(noisy)}, [name for name, _ in noisy])
