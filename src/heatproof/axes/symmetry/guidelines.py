"""The five guidelines of Crabbé and van der Schaar (2023) as a remedy for every method, decided by intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from heatproof.axes.symmetry.summaries import (
    CLOSE_TO_ONE,
    SymmetrySummary,
    curve_points,
    invariant_layers,
    layer_verdicts,
)
from heatproof.text import listing, number, records

LOSS_BASED = ("influence", "tracin")


@dataclass(frozen=True)
class Guideline:
    """The guideline for one kind of explanation: what should hold, and what helps if it does not."""

    number: int
    should: str
    remedy: str


GUIDELINES = {
    "feature": Guideline(
        1,
        "A map should move with the input if the model is invariant.",
        "Use a baseline that the group leaves unchanged, such as a constant, or a method whose steps move with the "
        "input.",
    ),
    "example": Guideline(
        2,
        "The importance of training examples should not change if the model is invariant.",
        "Use a method based on the loss, or an invariant layer{layers}.",
    ),
    "concept": Guideline(
        3,
        "The importance of concepts should not change if the model is invariant.",
        "Use an invariant layer{layers}.",
    ),
}
GUIDELINES["example or concept"] = GUIDELINES["example"]

KEEP = "Nothing."
DRAW_MORE = "Draw more random samples: two draws on one input agree to {floor} only."
WEIGH = "Compare with the model's own invariance; do not symmetrise."
LOSS_SHOULD_KEEP = (
    "It uses the loss, so it should be invariant: check for padding, dropout or low precision."
)
LAYER_SHOULD_KEEP = (
    "Its layer {layer} is invariant, so it should be, too: check for random draws or low precision."
)
LAYER_DOES_NOT_KEEP = "Its layer {layer} is {verdict}, not invariant. {remedy}"
LAYER_NOT_TESTED = "{remedy} {layer} was not tested; name it under `layers`."


@dataclass(frozen=True)
class Remedy:
    """What to do with one method.

    way           keep it, weigh it against the model's own invariance, or repair it
    is_close      whether its score is close to 1, as an answer
    advice        what to do, as a sentence
    symmetrised   what symmetrising gives where it was tried; empty elsewhere
    """

    way: Literal["keep", "weigh", "repair"]
    is_close: str
    advice: str
    symmetrised: str = ""


def remedies(summary: SymmetrySummary) -> dict[str, Remedy]:
    """Return the remedy of every method with a score."""
    points = curve_points(summary, "symmetrised")
    by_method = {}
    for method in records(summary.methods):
        of_method = points[points["explainer"] == method.explainer]
        by_method[method.explainer] = _remedy(summary, method, _symmetrised(of_method))
    return by_method


def _remedy(summary: SymmetrySummary, method: Any, symmetrised: str) -> Remedy:
    """Return what to do about one method's symmetry score: keep the method, weigh it against the model, or repair it.

    `method` is a row of `SymmetrySummary.methods`, with its score and its noise floor (how well two random draws on one input
    agree). `symmetrised` says in words what averaging over the group gives.
    """
    is_close = method.score >= CLOSE_TO_ONE
    draw_more = DRAW_MORE.format(floor=number(method.noise_floor, 3))
    if is_close and method.noise_floor < CLOSE_TO_ONE:
        return Remedy("keep", "yes", draw_more, symmetrised)
    if is_close:
        return Remedy("keep", "yes", KEEP, symmetrised)
    if method.within_noise and math.isfinite(method.noise_floor):
        return Remedy("keep", "as close as two draws", draw_more, symmetrised)
    if method.within_noise:
        return Remedy("keep", "as close as interpolation allows", KEEP, symmetrised)
    if not summary.is_model_invariant:
        return Remedy("weigh", "no", WEIGH)
    return Remedy("repair", "no", _repair(summary, method), symmetrised)


def _repair(summary: SymmetrySummary, method: Any) -> str:
    """Return advice in words on how to make a method keep the symmetry, after the guidelines of the paper.

    It depends on whether the method explains by features, examples or concepts, and on whether the layer that it is
    computed on is invariant.
    """
    layers = invariant_layers(summary.result)
    such_as = f", such as {listing(layers)}" if layers else ""
    remedy = GUIDELINES[method.kind].remedy.format(layers=such_as)
    if method.kind == "feature":
        return remedy

    # The loss of an invariant model is invariant, and so is what is computed on an invariant layer.
    settings = summary.result.settings_of(method.explainer)
    if settings.get("name") in LOSS_BASED:
        return LOSS_SHOULD_KEEP
    return _by_layer(settings, remedy, layer_verdicts(summary.result))


def _by_layer(settings: Mapping[str, Any], remedy: str, layers: pd.DataFrame) -> str:
    """Return the advice for an explainer that is computed on a layer."""
    layer = settings.get("layer")
    verdicts = dict(zip(layers["layer"], layers["verdict"], strict=True))
    verdict = verdicts.get(str(layer))
    if verdict is None:
        name = "Its layer" if layer is None else f"Its layer {layer}"
        return LAYER_NOT_TESTED.format(remedy=remedy, layer=name)
    if verdict == "invariant":
        return LAYER_SHOULD_KEEP.format(layer=layer)
    return LAYER_DOES_NOT_KEEP.format(layer=layer, verdict=verdict, remedy=remedy)


def _symmetrised(points: pd.DataFrame) -> str:
    """Return in words what symmetrising a method gives: a number of group elements and the score with so many.

    `points` has the score by number of elements x, in ascending order. It is the fewest elements with a score close to 1,
    else the most that were tried; empty if none were.
    """
    if points.empty:
        return ""
    is_enough = points["score"] >= CLOSE_TO_ONE
    if is_enough.any():
        point, digits = points[is_enough].iloc[0], 3
    else:
        point, digits = points.iloc[-1], 2
    return f"{point['x']:g} elements: {number(point['score'], digits)}"
