"""Panels of symmetry: which layers keep it, and the worst cases of every method as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from holdfast.axes.contract import Judged
from holdfast.axes.symmetry.frames import Symmetries, layer_verdicts
from holdfast.axes.symmetry.scores import TOLERANCE
from holdfast.drawing.charts import Panel
from holdfast.drawing.pictures import pair_card, prediction
from holdfast.drawing.prose import number, records
from holdfast.types import Shown

MOST_FAILURES = 24
CLEAN = "clean"
LAYERS = (
    "An invariant layer puts out the same for a moved input, an equivariant one the same but moved. Errors are the "
    "largest over samples and elements: ‖h(g·x) − h(x)‖ / ‖h(x)‖ of the layer’s output h, and ‖h(g·x) − g·h(x)‖ / "
    f"‖h(x)‖. A verdict needs at most {TOLERANCE:g}. There is no equivariance error where the group cannot move the "
    "output, as after pooling. Examples and concepts computed on an invariant layer are invariant."
)
FAILURES = (
    "For each method, the worst first, the sample with the lowest mean score among those kept as pictures, and the "
    "element that is worst for it: a bad case, not a typical one. If the method respects the group, the second map is "
    "the first, moved as the input was; the score is its mean over the group."
)


def layer_table(judged: Judged) -> Panel | None:
    """Every tested layer with its verdict and the largest errors."""
    rows = layer_verdicts(judged)
    if rows.empty:
        return None
    body = Markup("").join(
        Markup('<tr><th scope="row"><span>{}</span> <b>{}</b></th><td>{}</td><td>{}</td></tr>').format(
            r.layer, r.verdict, error_text(r.invariance), error_text(r.equivariance)
        )
        for r in records(rows)
    )
    head = Markup("").join(
        Markup('<th scope="col">{}</th>').format(t) for t in ("Layer", "Invariance error", "Equivariance error")
    )
    head = Markup("<tr>{}</tr>").format(head)
    table = Markup('<div class="scroll"><table class="layers"><thead>{}</thead><tbody>{}</tbody></table></div>')
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


def failures(judged: Judged, measured: Symmetries | None) -> Panel | None:
    """For each method the worst of the samples that were kept as pictures: input and map, moved input and map."""
    pairs = shown_pairs(judged.exhibits)
    if not pairs:
        return None
    scores: dict[tuple[str, str], float] = {}
    order: list[str] = []
    if measured is not None:
        scores = {(r.explainer, r.sample): r.value for r in records(measured.scores)}
        order = measured.means.iloc[::-1].sort_values("control", kind="stable")["explainer"].tolist()  # the worst first
    known = judged.samples.drop_duplicates("sample").set_index("sample")
    worst = {}
    for explainer in dict.fromkeys([*order, *(e for e, _ in pairs)]):
        samples = [sample for e, sample in pairs if e == explainer]
        if samples:
            # A sample without a score says less than one with a bad score.
            worst[explainer] = min(samples, key=lambda s: (math.isnan(v := scores.get((explainer, s), math.nan)), v, s))
    chosen = list(worst.items())[:MOST_FAILURES]
    cards = []
    for e, s in chosen:
        words = ", ".join(filter(None, (s, prediction(known, s), pairs[e, s][1].note.replace(" -", " −"))))
        cards.append(pair_card(judged.looks[e], *pairs[e, s], number(scores.get((e, s), math.nan)), words))
    caption = FAILURES
    left = len(worst) - len(chosen)
    if left:
        caption += f" {left} better methods were left out to keep this file small."
    inside = Markup('<div class="pairs">{}</div>').format(Markup("").join(cards))
    return Panel("failures", "Worst cases", caption, inside, strip=True)


def shown_pairs(exhibits: Sequence[Shown]) -> dict[tuple[str, str], tuple[Shown, Shown]]:
    """The clean and the moved picture of every explainer and sample that has both with their maps."""
    pairs: dict[tuple[str, str], dict[bool, Shown]] = {}
    for item in exhibits:
        if item.map is not None and item.explainer:
            pairs.setdefault((item.explainer, item.sample), {})[item.condition == CLEAN] = item
    return {key: (pair[True], pair[False]) for key, pair in pairs.items() if len(pair) == 2}
