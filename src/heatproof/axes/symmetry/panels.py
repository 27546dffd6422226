"""Panels of symmetry: the way through the paper's five guidelines, which layers keep it, and the worst cases."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from heatproof.axes.symmetry.findings import GUIDELINES, Remedy, remedies
from heatproof.axes.symmetry.frames import HIGH, INVARIANT, KINDS, Symmetries, layer_verdicts
from heatproof.axes.symmetry.scores import TOLERANCE
from heatproof.axes.tiles import tiles_of, worst_panel
from heatproof.drawing.charts import Panel
from heatproof.drawing.prose import listing, number, records, with_interval
from heatproof.results.axis_result import AxisResult

FLOW = (
    f"A model is called invariant where the 95 % interval of its invariance lies above {INVARIANT:g}, a score close to 1 "
    f"from a mean of {HIGH:g}. "
    "The answers of this run are framed. After the guidelines of Crabbé and van der Schaar (2023)."
)
RELAXED = "they need not; expect no linear relation between the two (guideline 5)"
SYMMETRISE = "average over more and more elements until the score is reached (guideline 4)"
LEAVE = "the model breaks the symmetry: averaging would hide that. Make the model invariant, or read the scores beside "
LEAVE += "its own"
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
    remedy_of = remedies(measured)
    if not remedy_of:
        return None
    methods_by_remedy: dict[Remedy, list[Markup]] = {}  # methods with the same remedy share a line
    for row in records(measured.methods):
        score = with_interval(row.mean, row.mean_low, row.mean_high)
        text = Markup("<b>{}</b> ({} {})").format(row.explainer, row.measure, score)
        methods_by_remedy.setdefault(remedy_of[row.explainer], []).append(text)
    lines = Markup("").join(
        Markup("<li>{}: {}. {}</li>").format(Markup(", ").join(names), remedy.seen, remedy.do)
        for remedy, names in methods_by_remedy.items()
    )
    body = Markup('<ol class="flow">{}</ol><h4>What to do</h4><ul class="advice">{}</ul>')
    body = body.format(_steps(measured, remedy_of), lines)
    return Panel("flow", "What follows from the scores", FLOW, body)


def _steps(measured: Symmetries, remedy_of: dict[str, Remedy]) -> Markup:
    """The questions with the answers of this run."""
    keep, weigh, repair = (
        [explainer for explainer, remedy in remedy_of.items() if remedy.way == way]
        for way in ("keep", "weigh", "repair")
    )
    of_kind, remedies_of_kind = [], []
    for kind in KINDS[:3]:
        has_kind = measured.methods["kind"].str.contains(kind)  # or "example or concept"
        names = measured.methods.loc[has_kind, "explainer"].tolist()
        guideline = GUIDELINES[kind]
        advice = f"{guideline.remedy} (guideline {guideline.number})."
        if kind != "feature":
            advice += f" {_layers(measured)}"
        of_kind.append(_answer(kind, guideline.score, names))
        to_repair = [name for name in names if name in repair]
        remedies_of_kind.append(_answer(kind, advice, to_repair))

    is_invariant, is_not = measured.invariant is True, measured.invariant is False
    steps = [
        (
            "Is the model invariant to the group?",
            f"interval of the model invariance above {INVARIANT:g}; {_invariance_text(measured)}",
            [
                _answer("yes", "explanations should keep the symmetry", lit=is_invariant),
                _answer("no", RELAXED, lit=is_not),
            ],
        ),
        ("Which kind of explanation?", "as the method says", of_kind),
        (
            "Is the score close to 1?",
            f"mean score ≥ {HIGH:g}",
            [
                _answer("yes", "use the method as it is", keep),
                _answer("no", "go on", [*weigh, *repair]),
            ],
        ),
        (
            "What is it computed from?",
            "where the model is invariant and the score is not close to 1",
            remedies_of_kind,
        ),
        (
            "Still below 1?",
            "only worth it where the model is invariant",
            [_answer("symmetrise", SYMMETRISE, repair), _answer("leave it", LEAVE, weigh)],
        ),
    ]
    line = Markup('<li><b>{}</b> <span class="small">{}</span><ul>{}</ul></li>')
    return Markup("").join(
        line.format(question, rule, Markup("").join(answers)) for question, rule, answers in steps
    )


def _invariance_text(measured: Symmetries) -> str:
    """The invariance of the model with its interval."""
    if not measured.is_measured:
        return "not measured"
    model = measured.model
    text = f"measured {with_interval(model.value, model.low, model.high)}"
    return text if measured.invariant is not None else f"{text}, undecided"


def _layers(measured: Symmetries) -> str:
    """Which of the tested layers are invariant."""
    layers = layer_verdicts(measured.result)
    invariant = layers.loc[layers["verdict"] == "invariant", "layer"].tolist()
    if invariant:
        return f"Here: {listing(invariant)}."
    if layers.empty:
        return "Here no layer was tested; name some in layers: […]."
    return "Here none of the tested layers is."


def _answer(text: str, follows: str, names: Sequence[str] = (), lit: bool = False) -> Markup:
    """One answer, what follows from it, and the methods that it holds for, which light it."""
    attributes, chips = Markup(""), Markup("")
    if lit or names:
        attributes = Markup(' class="lit" aria-current="step"')
    if names:
        spans = Markup("").join(Markup("<span>{}</span>").format(name) for name in names)
        chips = Markup("<div>{}</div>").format(spans)
    return Markup("<li{}><b>{}</b>: {}{}</li>").format(attributes, text, follows, chips)


def layer_table(result: AxisResult) -> Panel | None:
    """Every tested layer with its verdict and the largest errors."""
    layers = layer_verdicts(result)
    if layers.empty:
        return None
    titles = ("Layer", "Invariance error", "Equivariance error")
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(title) for title in titles)
    line = Markup('<tr><th scope="row"><span>{}</span> <b>{}</b></th><td>{}</td><td>{}</td></tr>')
    body = Markup("").join(
        line.format(r.layer, r.verdict, error_text(r.invariance), error_text(r.equivariance))
        for r in records(layers)
    )
    table = Markup(
        '<div class="scroll"><table class="layers"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    )
    caption = LAYERS
    undefined = int(layers["undefined"].sum())
    if undefined:
        outputs = "output was" if undefined == 1 else "outputs were"
        caption += f" {undefined} {outputs} zero or not finite and took no part."
    return Panel("layers", "Which layers keep the symmetry", caption, table.format(head, body))


def error_text(value: float) -> str:
    """A relative error as a small number.

    >>> error_text(0.0), error_text(3.2e-7), error_text(0.257), error_text(float("nan"))
    ('0', '3e−07', '0.26', '–')
    """
    if value == 0:
        return "0"
    if 0 < value < 1e-3:
        return f"{value:.0e}".replace("-", "−")
    return number(value)


def failures(result: AxisResult) -> Panel | None:
    """For each method the worst of the samples that were kept: input and map, moved input and map."""
    return worst_panel(result, tiles_of(result), "failures", "Worst cases", FAILURES)
