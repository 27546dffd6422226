"""Panels of symmetry: the way through the paper's five guidelines, which layers keep it, and the worst cases."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from heatproof.axes.contract import AxisResult
from heatproof.axes.symmetry.findings import GUIDELINES, Remedy, remedies
from heatproof.axes.symmetry.frames import HIGH, INVARIANT, KINDS, Symmetries, layer_verdicts
from heatproof.axes.symmetry.scores import TOLERANCE
from heatproof.axes.tiles import tiles_of, worst_panel
from heatproof.drawing.charts import Panel, Tiles
from heatproof.drawing.prose import listing, number, records, with_interval

FLOW = (
    f"Decided by means over samples: a model is called invariant from {INVARIANT:g}, a score close to 1 from {HIGH:g}. "
    "The answers of this run are framed. After the guidelines of Crabbé and van der Schaar (2023)."
)
RELAXED = "they need not; expect no linear relation between the two (guideline 5)"
SYMMETRISE = "average over more and more elements until the score is reached (guideline 4)"
LEAVE = "the model breaks the symmetry: averaging would hide that. Make the model invariant, or read the scores beside "
LEAVE += "its own"
ASKED = "A {} is moved in ways that should not matter: does the map move along?"
LAYERS = (
    "An invariant layer puts out the same for a moved input, an equivariant one the same but moved. Errors are the "
    "largest over samples and elements: ‖h(g·x) − h(x)‖ / ‖h(x)‖ of the layer’s output h, and ‖h(g·x) − g·h(x)‖ / "
    f"‖h(x)‖. A verdict needs at most {TOLERANCE:g}. There is no equivariance error where the group cannot move the "
    "output, as after pooling. Examples and concepts computed on an invariant layer are invariant."
)
FAILURES = (
    "For each method, the worst first, the sample with the lowest mean score among those kept as pictures, and the "
    "element that is worst for it: a bad case, not a typical one. If the method respects the group, the second map is "
    "the first, moved as the input was; the score is the mean over the group, less chance."
)


def flow_chart(measured: Symmetries) -> Panel | None:
    """The questions from top to bottom, then what to do with each method in words."""
    advised = remedies(measured)
    if not advised:
        return None
    shared: dict[Remedy, list[Markup]] = {}  # methods with the same remedy share a line
    for r in records(measured.methods):
        text = Markup("<b>{}</b> ({} {})").format(
            r.explainer, r.measure, with_interval(r.mean, r.mean_low, r.mean_high)
        )
        shared.setdefault(advised[r.explainer], []).append(text)
    lines = Markup("").join(
        Markup("<li>{}: {}. {}</li>").format(Markup(", ").join(names), remedy.seen, remedy.do)
        for remedy, names in shared.items()
    )
    body = Markup('<ol class="flow">{}</ol><h4>What to do</h4><ul class="advice">{}</ul>')
    return Panel(
        "flow", "What follows from the scores", FLOW, body.format(_steps(measured, advised), lines)
    )


def _steps(measured: Symmetries, advised: dict[str, Remedy]) -> Markup:
    """The questions with the answers of this run."""
    m, kinds = measured.model, measured.methods["kind"]
    value = (
        "not measured"
        if measured.invariant is None
        else f"measured {with_interval(m.value, m.low, m.high)}"
    )
    keep, weigh, repair = (
        [e for e, r in advised.items() if r.way == way] for way in ("keep", "weigh", "repair")
    )
    asked, mended = [], []
    for kind in KINDS[:3]:
        names = measured.methods.loc[kinds.str.contains(kind), "explainer"].tolist()
        guideline = GUIDELINES[kind]
        remedy = f"{guideline.remedy} (guideline {guideline.number})."
        remedy += "" if kind == "feature" else f" {_layers(measured)}"
        asked.append(_answer(kind, guideline.score, names))
        mended.append(_answer(kind, remedy, [e for e in names if e in repair]))
    invariant = _answer(
        "yes", "explanations should keep the symmetry", lit=measured.invariant is True
    )
    relaxed = _answer("no", RELAXED, lit=measured.invariant is False)
    close, far = (
        _answer("yes", "use the method as it is", keep),
        _answer("no", "go on", [*weigh, *repair]),
    )
    last = [_answer("symmetrise", SYMMETRISE, repair), _answer("leave it", LEAVE, weigh)]
    rule = f"mean model invariance ≥ {INVARIANT:g}; {value}"
    steps = [
        ("Is the model invariant to the group?", rule, [invariant, relaxed]),
        ("Which kind of explanation?", "as the method says", asked),
        ("Is the score close to 1?", f"mean score ≥ {HIGH:g}", [close, far]),
        (
            "What is it computed from?",
            "where the model is invariant and the score is not close to 1",
            mended,
        ),
        ("Still below 1?", "only worth it where the model is invariant", last),
    ]
    line = Markup('<li><b>{}</b> <span class="small">{}</span><ul>{}</ul></li>')
    return Markup("").join(
        line.format(question, rule, Markup("").join(answers)) for question, rule, answers in steps
    )


def _layers(measured: Symmetries) -> str:
    """Which of the tested layers are invariant."""
    layers = layer_verdicts(measured.judged)
    invariant = layers.loc[layers["verdict"] == "invariant", "layer"].tolist()
    if invariant:
        return f"Here: {listing(invariant)}."
    return f"Here {'none of the tested layers is' if len(layers) else 'no layer was tested; name some in layers: […]'}."


def _answer(text: str, follows: str, names: Sequence[str] = (), lit: bool = False) -> Markup:
    """One answer, what follows from it, and the methods that it holds for, which light it."""
    chips = Markup("").join(Markup("<span>{}</span>").format(name) for name in names)
    chips = Markup("<div>{}</div>").format(chips) if names else chips
    here = Markup(' class="lit" aria-current="step"') if lit or names else Markup("")
    return Markup("<li{}><b>{}</b>: {}{}</li>").format(here, text, follows, chips)


def layer_table(judged: AxisResult) -> Panel | None:
    """Every tested layer with its verdict and the largest errors."""
    rows = layer_verdicts(judged)
    if rows.empty:
        return None
    body = Markup("").join(
        Markup(
            '<tr><th scope="row"><span>{}</span> <b>{}</b></th><td>{}</td><td>{}</td></tr>'
        ).format(r.layer, r.verdict, error_text(r.invariance), error_text(r.equivariance))
        for r in records(rows)
    )
    head = Markup("").join(
        Markup('<th scope="col">{}</th>').format(t)
        for t in ("Layer", "Invariance error", "Equivariance error")
    )
    head = Markup("<tr>{}</tr>").format(head)
    table = Markup(
        '<div class="scroll"><table class="layers"><thead>{}</thead><tbody>{}</tbody></table></div>'
    )
    caption = LAYERS
    lost = int(rows["lost"].sum())
    if lost:
        caption += f" {lost} {'output was' if lost == 1 else 'outputs were'} zero or not finite and took no part."
    return Panel("layers", "Which layers keep the symmetry", caption, table.format(head, body))


def error_text(value: float) -> str:
    """A relative error as a small number.

    >>> error_text(0.0), error_text(3.2e-7), error_text(0.257), error_text(float("nan"))
    ('0', '3e−07', '0.26', '–')
    """
    if not math.isfinite(value):
        return "–"
    return f"{value:.0e}".replace("-", "−") if 0 < value < 1e-3 else number(value) if value else "0"


def failures(judged: AxisResult) -> Panel | None:
    """For each method the worst of the samples that were kept: input and map, moved input and map."""
    return worst_panel(judged, tiles(judged), "failures", "Worst cases", FAILURES)


def tiles(judged: AxisResult) -> Tiles | None:
    """Maps as they are, and where the method keeps the symmetry least; the score is the mean over the group."""
    if not judged.headlines:
        return None
    return tiles_of(judged, judged.headlines[0].name, ASKED, lambda *_: "moved, at its worst")
