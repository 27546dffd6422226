"""The paper's five guidelines as a flow of questions, with the way of this run's methods lit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from holdfast.axes.contract import Judged
from holdfast.axes.symmetry.evaluation import SYMMETRISED
from holdfast.axes.symmetry.frames import HIGH, INVARIANT, SCORES, Symmetries, explainer_settings, layer_verdicts
from holdfast.axes.symmetry.words import score
from holdfast.drawing.charts import Panel
from holdfast.drawing.prose import listing, number, records, with_interval

LOSS_BASED = ("influence", "tracin")
KEEP, WEIGH, REPAIR = "keep", "weigh", "repair"


@dataclass(frozen=True)
class Way:
    """One answer to a question: what it says, what follows, the methods that take it, and whether any does."""

    answer: str
    follows: str
    names: tuple[str, ...] = ()
    lit: bool = False


@dataclass(frozen=True)
class Step:
    """A question, how it is decided, and its answers."""

    question: str
    rule: str
    ways: tuple[Way, ...]


def flow_chart(axis: Judged, found: Symmetries) -> Panel | None:
    """The questions from top to bottom, then what to do with each method in words."""
    if found.methods.empty:
        return None
    ends = {r.explainer: end_of(found, r.mean) for r in records(found.methods)}
    items = Markup("").join(_step(step) for step in steps(axis, found, ends))
    said: dict[str, list[Markup]] = {}  # methods with the same advice share a line
    for r in records(found.methods):
        text = Markup("<b>{}</b> ({} {})").format(r.explainer, r.measure, score(r.mean, r.mean_low, r.mean_high))
        said.setdefault(advise(axis, found, r.explainer), []).append(text)
    advice = Markup("").join(
        Markup("<li>{}: {}</li>").format(Markup(", ").join(who), text) for text, who in said.items()
    )
    body = Markup('<ol class="flow">{}</ol><h4>What to do</h4><ul class="advice">{}</ul>').format(items, advice)
    caption = f"Decided by means over samples: a model is called invariant from {INVARIANT:g}, a score close to 1 from "
    caption += (
        f"{HIGH:g}. The answers of this run are framed. After the guidelines of Crabbé and van der Schaar (2023)."
    )
    return Panel("flow", "What follows from the scores", caption, body)


def end_of(found: Symmetries, mean: float) -> str:
    """Where the way of a method ends: kept as it is, weighed because the model is at fault, or repaired."""
    return KEEP if mean >= HIGH else REPAIR if found.invariant else WEIGH


def steps(axis: Judged, found: Symmetries, ends: dict[str, str]) -> list[Step]:
    """The questions with the answers of this run."""
    methods = found.methods
    asked = {kind: _named(methods[methods["kind"].str.contains(kind)]) for kind in ("feature", "example", "concept")}
    high, low = (tuple(e for e, end in ends.items() if (end == KEEP) == kept) for kept in (True, False))
    mending = tuple(e for e, end in ends.items() if end == REPAIR)
    m, known = found.model, found.invariant is not None
    measured = f"measured {with_interval(m.value, m.low, m.high, 3)}" if known else "not measured"

    def those(kind: str) -> tuple[str, ...]:
        return tuple(e for e in asked[kind] if e in mending)

    layers = layer_verdicts(axis)
    invariant = layers.loc[layers["verdict"] == "invariant", "layer"].tolist()
    none = (
        "Here none of the tested layers is." if len(layers) else "Here no layer was tested; name some in layers: […]."
    )
    tested = f"Here: {listing(invariant)}." if invariant else none
    shown = {kind: _way(kind, _SHOULD[kind], asked[kind]) for kind in asked}
    mend = [
        _way(
            "feature",
            "use a baseline that the group leaves alone, such as a constant, and a method whose steps "
            "move with the input (guideline 1)",
            those("feature"),
        ),
        _way(
            "example",
            f"use a method based on the loss, or an invariant layer (guideline 2). {tested}",
            those("example"),
        ),
        _way("concept", f"use an invariant layer (guideline 3). {tested}", those("concept")),
    ]
    return [
        Step(
            "Is the model invariant to the group?",
            f"mean model invariance ≥ {INVARIANT:g}; {measured}",
            (
                Way("yes", "explanations should keep the symmetry", lit=found.invariant is True),
                Way(
                    "no",
                    "they need not; expect no linear relation between the two (guideline 5)",
                    lit=found.invariant is False,
                ),
            ),
        ),
        Step("Which kind of explanation?", "as the method says", tuple(shown.values())),
        Step(
            "Is the score close to 1?",
            f"mean score ≥ {HIGH:g}",
            (_way("yes", "use the method as it is", high), _way("no", "go on", low)),
        ),
        Step("What is it computed from?", "where the model is invariant and the score is not close to 1", tuple(mend)),
        Step(
            "Still below 1?",
            "only worth it where the model is invariant",
            (
                _way(
                    "symmetrise",
                    "average over more and more elements until the score is reached (guideline 4)",
                    mending,
                ),
                _way(
                    "leave it",
                    "the model breaks the symmetry: averaging would hide that. Make the model invariant, or "
                    "read the scores beside its own",
                    tuple(e for e, end in ends.items() if end == WEIGH),
                ),
            ),
        ),
    ]


_SHOULD = {
    "feature": "equivariance should be 1",
    "example": "invariance should be 1",
    "concept": "invariance should be 1",
}


def _way(answer: str, follows: str, names: Iterable[str]) -> Way:
    own = tuple(names)
    return Way(answer, follows, own, bool(own))


def _named(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(rows["explainer"])


def _step(step: Step) -> Markup:
    ways = Markup("").join(_answer(way) for way in step.ways)
    return Markup('<li><b>{}</b> <span class="small">{}</span><ul>{}</ul></li>').format(step.question, step.rule, ways)


def _answer(way: Way) -> Markup:
    names = Markup("").join(Markup("<span>{}</span>").format(name) for name in way.names)
    here = Markup(' class="lit" aria-current="step"') if way.lit else Markup("")
    chips = Markup("<div>{}</div>").format(names) if way.names else Markup("")
    return Markup("<li{}><b>{}</b>: {}{}</li>").format(here, way.answer, way.follows, chips)


def advise(axis: Judged, found: Symmetries, explainer: str) -> str:
    """What to do with one method, in a sentence or two."""
    row = records(found.methods[found.methods["explainer"] == explainer])[0]
    end = end_of(found, row.mean)
    if end == KEEP:
        return f"close to 1; {_other_draws(row.floor)}."
    if end == WEIGH:
        why = "the model is not invariant itself" if found.invariant is False else "the model’s invariance is not known"
        return f"not close to 1, but {why}. Read it beside the model’s own invariance, and do not symmetrise."
    return f"below 1 though the model is invariant. {_remedy(axis, explainer, row.kind)} {_repair(axis, explainer)}"


def _other_draws(floor: float) -> str:
    if math.isfinite(floor) and floor < HIGH:
        return f"give it more random draws, for two runs on the same input agree only to {number(floor)}"
    return "nothing to do"


def _remedy(axis: Judged, explainer: str, kind: str) -> str:
    if kind == "feature":
        return "Give it a baseline that the group leaves alone, or use a method whose steps move with the input."
    given = explainer_settings(axis, explainer)
    layer = given.get("layer")
    if str(given.get("name") or explainer.split("(", maxsplit=1)[0]) in LOSS_BASED:
        return "It is based on the loss and should be invariant: look for padding, dropout or unlike precision."
    found = {r.layer: r.verdict for r in records(layer_verdicts(axis))}
    invariant = [name for name, verdict in found.items() if verdict == "invariant"]
    use = f"Use an invariant layer, such as {listing(invariant)}." if invariant else "Use an invariant layer."
    if layer is None or str(layer) not in found:
        of = f"layer {layer}" if layer is not None else "its layer"
        return f"{use} Whether {of} is one was not tested; name it in layers: […]."
    if found[str(layer)] == "invariant":
        return f"Its layer {layer} is invariant, so this should be 1: look for random draws or unlike precision."
    return f"Its layer {layer} is not invariant ({found[str(layer)]}). {use}"


def _repair(axis: Judged, explainer: str) -> str:
    """What symmetrising did where it was tried."""
    own = axis.rows[(axis.rows["condition"].astype(str) == SYMMETRISED) & axis.rows["status"].eq("ok")]
    own = own[(own["explainer"].astype(str) == explainer) & own["measure"].isin(SCORES)]
    if own.empty:
        return "Or symmetrise it; repair: [4, 8] in the study shows how many elements that takes."
    means = own.groupby("level")["value"].mean()
    enough = means[means >= HIGH]
    if len(enough):
        n = float(enough.index[0])
        return f"Or symmetrise it: {n:g} elements give {number(float(enough.iloc[0]), 3)}, at {n:g} times the cost."
    return f"Or symmetrise it over more than {means.index[-1]:g} elements, which give {number(float(means.iloc[-1]))}."
