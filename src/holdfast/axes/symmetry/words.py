"""The verdict on symmetry in sentences, never saying more than the scores do."""

from __future__ import annotations

import math

import pandas as pd

from holdfast.axes.contract import Judged
from holdfast.axes.symmetry.frames import HIGH, INVARIANT, Symmetries, paired_tests, symmetries
from holdfast.drawing.prose import LISTED, above, listing, number, records, with_interval
from holdfast.statistics import FEW_SAMPLES

_BEST = {"equivariance": "moves with the input best", "invariance": "changes least under the group"}
_KEEP = {"equivariance": ("moves", "move"), "invariance": ("stays the same", "stay the same")}


def lead(axis: Judged) -> list[str]:
    """Which method keeps the symmetry, whether the model has it, and how far the numbers can be trusted."""
    found = symmetries(axis)
    if found is None:
        return ["Nothing can be concluded: no explanation was compared under the group."]
    said = [s for _, own in found.methods.groupby("kind", sort=False) for s in _verdict(axis, found, own)]
    if not said:
        said = ["Nothing can be concluded: no explanation of a method has a score."]
    return [*said, *_model(found), *_chance(found), *_controls(found), *_floor(found), *_limits(axis, found)]


def score(mean: float, low: float, high: float) -> str:
    """A score with its interval, to three digits where two would round it to 1.

    >>> score(0.9961, 0.993, 0.9984), score(0.5, 0.4, 0.6)
    ('0.996 [0.993, 0.998]', '0.50 [0.40, 0.60]')
    """
    return with_interval(mean, low, high, 3 if mean > 0.985 else 2)


def _verdict(axis: Judged, found: Symmetries, own: pd.DataFrame) -> list[str]:
    """One sentence or two for the methods of a kind, the best first."""
    kind, measure = own.iloc[0]["kind"], own.iloc[0]["measure"]
    text = {r.explainer: score(r.mean, r.mean_low, r.mean_high) for r in records(own)}
    best, *others = own["explainer"]
    keep = own.loc[own["mean"] >= HIGH, "explainer"].tolist()
    if not others:
        return [f"{best} has an {measure} of {text[best]}; no other {kind} method was run to compare it with."]
    of = f"Of {len(own)} {kind} methods, "
    if keep:
        many = len(keep) > 1
        who = listing(keep) if len(keep) <= LISTED else f"{len(keep)} methods"
        verb = _KEEP[measure][many] + (" with the input" if measure == "equivariance" else " under the group")
        said = f"{of}{who} {verb}: mean {measure} {'at least ' if many else ''}"
        said += number(float(own.loc[own["mean"] >= HIGH, "mean"].min()), 3) if many else text[best]
        rest = [e for e in own["explainer"] if e not in keep]
        last = "the lowest of the others is" if len(rest) > 1 else "the other is"
        last = f"; {last} {rest[-1]} with {text[rest[-1]]}" if rest else ""
        return [f"{said}{last}."]
    tests = paired_tests(axis, found, own)
    tied = [name for name in others if not above(tests, best, name)]
    if tied:
        top = [best, *tied]
        who = listing(top) if len(top) <= LISTED else f"{len(top)} methods"
        scores = listing(f"{e} {text[e]}" for e in top[:LISTED])
        more = f" and {len(top) - LISTED} more" if len(top) > LISTED else ""
        return [f"{of}{who} cannot be separated at the top: {measure} {scores}{more}."]
    return [f"{of}{best} {_BEST[measure]}: {measure} {text[best]}, ahead of {others[0]} with {text[others[0]]}."]


def _model(found: Symmetries) -> list[str]:
    if found.invariant is None:
        return ["Whether the model itself is invariant is not known, so a low score may be the model’s doing."]
    m, a = found.model, found.agreement
    measured = f"model invariance {with_interval(m.value, m.low, m.high, 3)}"
    if math.isfinite(a.value):
        measured += f", top class unchanged for {100 * a.value:.3g} % of moved inputs"
    if found.invariant:
        return [f"The model is invariant to the group, {found.title} ({measured}): a score below 1 is not its doing."]
    said = f"The model itself is not invariant to the group, {found.title} ({measured}; invariant means at least "
    said += f"{INVARIANT:g}). Its explanations need not keep the symmetry, and a low score may be the model’s doing."
    return [said]


def _chance(found: Symmetries) -> list[str]:
    level = found.methods[found.methods["over_chance"] <= 0]
    if level.empty:
        return []
    items = [f"{r.explainer} ({number(r.mean)}, chance {number(r.chance)})" for r in records(level)]
    more = f" and {len(items) - LISTED} more" if len(items) > LISTED else ""
    said = f"Within noise of chance: {listing(items[:LISTED])}{more}. "
    return [said + "Explanations of other samples, moved alike, are as similar."]


def _controls(found: Symmetries) -> list[str]:
    controls = found.means[found.means["control"] & found.means["mean"].notna()]
    if controls.empty or found.methods.empty:
        return []
    said = []
    for r in records(controls):
        below = found.methods[(found.methods["measure"] == r.measure) & (found.methods["mean"] <= r.mean)]
        if len(below):
            text = f"The control {r.explainer}, which never sees the model, scores "
            text += f"{score(r.mean, r.mean_low, r.mean_high)}, no less than {listing(below['explainer'][:LISTED])}"
            more = f" and {len(below) - LISTED} more" if len(below) > LISTED else ""
            said.append(f"{text}{more}: a high score does not mean that an explanation is true of the model.")
    return said


def _floor(found: Symmetries) -> list[str]:
    noisy = found.methods[found.methods["floor"] < found.methods["mean"] - 0.01]
    if noisy.empty:
        return []
    items = [f"{r.explainer} {number(r.floor)} (score {number(r.mean)})" for r in records(noisy)]
    more = f" and {len(items) - LISTED} more" if len(items) > LISTED else ""
    said = f"Two runs with other random draws on the same input agree less than these scores: {listing(items[:LISTED])}"
    return [f"{said}{more}. The scores share their draws; a user with another seed sees the lower agreement."]


def _limits(axis: Judged, found: Symmetries) -> list[str]:
    said = []
    if found.interpolates:
        said.append(f"The group interpolates ({found.title}): scores are approximate, and no method can reach 1.")
    if not found.whole:
        error = float(found.means["error"].median())
        share = 100 * (1 - float(axis.settings.get("delta", 0.05)))
        text = f"For each sample {found.elements} element{'s were' if found.elements != 1 else ' was'} drawn from a "
        text += "larger group. That leaves the score of one sample uncertain by "
        said.append(f"{text}±{number(error)} (median of the {share:g} % bounds); intervals of means include it.")
    lost = found.scores[found.scores["value"].isna()]
    if len(lost):
        reasons = lost["reason"].fillna("").astype(str).replace("", "no reason given")
        counted = lost.assign(reason=reasons).groupby(["explainer", "reason"], sort=False).size()
        items = [f"{r.explainer}: {r.times} × {r.reason}" for r in records(counted.rename("times").reset_index())]
        more = f"; and {len(items) - LISTED} more" if len(items) > LISTED else ""
        said.append(f"{len(lost)} of {len(found.scores)} scores are undefined ({'; '.join(items[:LISTED])}{more}).")
    n = len(axis.cube.samples)
    if n < FEW_SAMPLES:
        said.append(f"Only {n} sample{'s were' if n != 1 else ' was'} tested: intervals are rough.")
    return said
