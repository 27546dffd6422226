"""The verdict on symmetry in sentences, which say no more than the scores do."""

from __future__ import annotations

import math

import pandas as pd

from heatproof.axes.contract import AxisResult
from heatproof.axes.symmetry.frames import (
    CHANGE,
    HIGH,
    INVARIANT,
    Symmetries,
    paired_tests,
    symmetries,
)
from heatproof.drawing.prose import (
    LISTED,
    above,
    ahead_of,
    listing,
    number,
    records,
    some,
    with_interval,
)
from heatproof.statistics import FEW_SAMPLES

_BEST = {"equivariance": "moves with the input best", "invariance": "changes least under the group"}
_KEEP = {
    "equivariance": ("moves with the input", "move with the input"),
    "invariance": ("stays the same under the group", "stay the same under the group"),
}


def lead(judged: AxisResult) -> list[str]:
    """Which method keeps the symmetry, whether the model has it, and how far the numbers can be trusted."""
    measured = symmetries(judged)
    if measured is None:
        return ["Nothing can be concluded: no explanation was compared under the group."]
    verdicts = [
        _verdict(measured, methods) for _, methods in measured.methods.groupby("kind", sort=False)
    ]
    if not verdicts:
        verdicts = ["Nothing can be concluded: no explanation of a method has a score."]
    trust = [*_chance(measured), *_controls(measured), *_floor(measured), *_limits(measured)]
    return [*verdicts, _model(measured), *trust]


def at_chance(*levels: float) -> str:
    """What unrelated explanations score, in brackets; nothing where that is not known.

    >>> at_chance(0.891), at_chance(0.2, 0.5), at_chance(math.nan)
    (' (chance 0.89)', ' (chance 0.20 to 0.50)', '')
    """
    known = [number(level) for level in sorted(levels) if math.isfinite(level)]
    return f" (chance {' to '.join(dict.fromkeys([known[0], known[-1]]))})" if known else ""


def _verdict(measured: Symmetries, methods: pd.DataFrame) -> str:
    """One sentence for the methods of a kind, the best first."""
    kind, measure = methods.iloc[0]["kind"], methods.iloc[0]["measure"]
    text = {
        r.explainer: with_interval(r.mean, r.mean_low, r.mean_high) + at_chance(r.chance)
        for r in records(methods)
    }
    best, *others = methods["explainer"]
    if not others:
        return f"{best} has an {measure} of {text[best]}; no other {kind} method was run to compare it with."
    of = f"Of {len(methods)} {kind} methods, "
    n = int((methods["mean"] >= HIGH).sum())
    if n:
        keep, rest = [best, *others][:n], others[n - 1 :]
        many = n > 1
        least = f"at least {number(float(methods['mean'].iloc[n - 1]), 3)}" if many else text[best]
        least += at_chance(*methods["chance"].iloc[:n]) if many else ""
        last = "the lowest of the others is" if len(rest) > 1 else "the other is"
        last = f"; {last} {rest[-1]} with {text[rest[-1]]}" if rest else ""
        return f"{of}{_names(keep)} {_KEEP[measure][many]}: mean {measure} {least}{last}."
    tests = paired_tests(measured, methods)
    tied = [name for name in others if not above(tests, best, name)]
    if tied:
        top = [best, *tied]
        scores = some(f"{e} {text[e]}" for e in top)
        return f"{of}{_names(top)} cannot be separated at the top: {measure} {scores}."
    return (
        f"{of}{best} {_BEST[measure]}: {measure} {text[best]}. {ahead_of(tests, best, others[0])}"
    )


def _names(names: list[str]) -> str:
    return listing(names) if len(names) <= LISTED else f"{len(names)} methods"


def _model(measured: Symmetries) -> str:
    if measured.invariant is None:
        return "Whether the model itself is invariant is not known, so a low score may be the model’s doing."
    m, a, c = measured.model, measured.agreement, measured.change
    values = (
        f"model {'agreement' if m is a else 'invariance'} {with_interval(m.value, m.low, m.high)}"
    )
    if math.isfinite(c.value):
        values += (
            f", explained output moved by {100 * c.value:.2g} % of what unrelated samples differ by"
        )
    if math.isfinite(a.value):
        values += f", {'prediction' if m is a else 'top class'} unchanged for {100 * a.value:.3g} % of moved inputs"
    if measured.invariant:
        return f"The model is invariant to the group, {measured.title} ({values}): a score below 1 is not its doing."
    return (
        f"The model itself is not invariant to the group, {measured.title} ({values}; invariant means at least "
        f"{INVARIANT:g}, the same prediction as often, and {100 * CHANGE:g} % at most). Its explanations need not keep "
        "the symmetry, and a low score may be the model’s doing."
    )


def _chance(measured: Symmetries) -> list[str]:
    level = records(measured.methods[measured.methods["over_chance"] <= 0])
    if not level:
        return []
    items = some(f"{r.explainer} ({number(r.mean)}, chance {number(r.chance)})" for r in level)
    return [
        f"Within noise of chance: {items}. Explanations of other samples, moved alike, are as similar."
    ]


def _controls(measured: Symmetries) -> list[str]:
    methods, sentences = measured.methods, []
    for r in records(measured.means[measured.means["control"] & measured.means["mean"].notna()]):
        below = methods[(methods["measure"] == r.measure) & (methods["mean"] <= r.mean)]
        if len(below):
            sentences.append(
                f"The control {r.explainer}, which explains nothing, scores "
                f"{with_interval(r.mean, r.mean_low, r.mean_high)}, no less than {some(below['explainer'])}: a high "
                "score does not mean that an explanation is true of the model."
            )
    return sentences


def _floor(measured: Symmetries) -> list[str]:
    noisy = records(measured.methods[measured.methods["floor"] < measured.methods["mean"] - 0.01])
    if not noisy:
        return []
    items = some(f"{r.explainer} {number(r.floor)} (score {number(r.mean)})" for r in noisy)
    return [
        f"Two runs with other random draws on the same input agree less than these scores: {items}. The scores share "
        "their draws; a user with another seed sees the lower agreement."
    ]


def _beside(methods: pd.DataFrame, column: str) -> str:
    return some(
        f"{r.explainer} {number(r.mean)} ({number(getattr(r, column))})" for r in records(methods)
    )


def _limits(measured: Symmetries) -> list[str]:
    limits = []
    low = measured.methods[measured.methods["excused"] & (measured.methods["mean"] < HIGH)]
    by_floor = low["floor"].notna()
    if by_floor.any():
        limits.append(
            f"Below 1, but no worse than two draws on one input: {_beside(low[by_floor], 'floor')}."
        )
    if not by_floor.all():
        limits.append(
            f"Below 1, but no worse than a map moved there and back: {_beside(low[~by_floor], 'back')}."
        )
    if measured.interpolates:
        limits.append(
            f"The group interpolates ({measured.title}): scores are approximate, and no method can reach 1."
        )
    if not measured.whole:
        drawn = f"{measured.elements} element{'s were' if measured.elements != 1 else ' was'} drawn"
        error = number(float(measured.means["error"].dropna().median()))
        share = 100 * (1 - float(measured.judged.settings.get("delta", 0.05)))
        limits.append(
            f"For each sample {drawn} from a larger group. That leaves the score of one sample uncertain by ±{error} "
            f"(median of the {share:g} % bounds); intervals of means include it."
        )
    lost = measured.scores[measured.scores["value"].isna()]
    if len(lost):
        reasons = lost["reason"].fillna("").astype(str).replace("", "no reason given")
        counted = lost.assign(reason=reasons).groupby(["explainer", "reason"], sort=False).size()
        items = [
            f"{r.explainer}: {r.times} × {r.reason}"
            for r in records(counted.rename("times").reset_index())
        ]
        more = f"; and {len(items) - LISTED} more" if len(items) > LISTED else ""
        many = f"{len(lost)} of {len(measured.scores)}"
        limits.append(f"{many} scores are undefined ({'; '.join(items[:LISTED])}{more}).")
    n = len(measured.judged.cube.samples)
    if n < FEW_SAMPLES:
        limits.append(
            f"Only {n} sample{'s were' if n != 1 else ' was'} tested: intervals are rough."
        )
    return limits
