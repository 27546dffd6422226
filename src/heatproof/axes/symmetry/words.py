"""The verdict on symmetry in sentences, which say no more than the scores do."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from heatproof.axes.symmetry.frames import (
    CHANGE,
    HIGH,
    INVARIANT,
    Symmetries,
    symmetries,
)
from heatproof.drawing.prose import (
    LISTED,
    number,
    records,
    some,
    with_interval,
)
from heatproof.results.axis_result import AxisResult
from heatproof.results.summary import FEW_SAMPLES


def lead(result: AxisResult) -> list[str]:
    """Which method respects the symmetry best, whether the model has it, and how far the numbers can be trusted."""
    measured = symmetries(result)
    if measured is None:
        return ["Nothing can be concluded: no explanation was compared under the group."]
    return [
        *result.decided(),
        _model(measured),
        *_noise_floor(measured),
        *_noise(measured),
        *_limits(measured),
        *_undefined(measured),
        *_few_samples(measured),
    ]


def at_chance(*levels: float) -> str:
    """What unrelated explanations score, in brackets; nothing where that is not known.

    >>> at_chance(0.891), at_chance(0.2, 0.5), at_chance(math.nan)
    (' (chance 0.89)', ' (chance 0.20 to 0.50)', '')
    """
    known = [number(level) for level in sorted(levels) if math.isfinite(level)]
    if not known:
        return ""
    ends = dict.fromkeys([known[0], known[-1]])
    return f" (chance {' to '.join(ends)})"


def _mean_text(row: Any) -> str:
    """The mean score of a row of `Symmetries.means` with its interval."""
    return with_interval(row.mean, row.mean_low, row.mean_high)


def _model(measured: Symmetries) -> str:
    """Whether the model is invariant to the group, by its intervals."""
    if not measured.is_measured:
        return "Whether the model itself is invariant is not known, so a low score may be the model’s doing."
    values = _model_values(measured)
    if measured.invariant:
        return f"The model is invariant to the group, {measured.title} ({values}): a score below 1 is not its doing."
    needed = f"at least {INVARIANT:g}, the same prediction as often, and {100 * CHANGE:g} % at most"
    if measured.invariant is None:
        return (
            f"Whether the model itself is invariant to the group, {measured.title}, is undecided ({values}; invariant "
            f"means that the intervals show {needed}). A low score may be the model’s doing."
        )
    return (
        f"The model itself is not invariant to the group, {measured.title} ({values}; invariant means {needed}). Its "
        "explanations need not keep the symmetry, and a low score may be the model’s doing."
    )


def _model_values(measured: Symmetries) -> str:
    """What was measured of the model, with intervals."""
    model, agreement, change = measured.model, measured.agreement, measured.change
    has_probabilities = model is not agreement
    name = "model invariance" if has_probabilities else "model agreement"
    values = [f"{name} {with_interval(model.value, model.low, model.high)}"]
    if math.isfinite(change.value):
        percent = f"{100 * change.value:.2g} %"
        values.append(f"explained output moved by {percent} of what unrelated samples differ by")
    if math.isfinite(agreement.value):
        what = "top class" if has_probabilities else "prediction"
        values.append(f"{what} unchanged for {100 * agreement.value:.3g} % of moved inputs")
    return ", ".join(values)


def _noise_floor(measured: Symmetries) -> list[str]:
    """Methods whose score is above their noise floor, which shared draws make possible."""
    methods = measured.result.named(measured.methods)
    noisy = methods[methods["noise_floor"] < methods["mean"] - 0.01]
    if noisy.empty:
        return []
    items = some(
        f"{row.explainer} {number(row.noise_floor)} (score {number(row.mean)})"
        for row in records(noisy)
    )
    return [
        f"Two runs with other random draws on the same input agree less than these scores: {items}. The scores share "
        "their draws; a user with another seed sees the lower agreement."
    ]


def _noise(measured: Symmetries) -> list[str]:
    """Methods that are below 1 because of their draws, or because maps are interpolated."""
    methods = measured.result.named(measured.methods)
    excused = methods[methods["within_noise"] & (methods["mean"] < HIGH)]
    has_floor = excused["noise_floor"].notna()
    sentences = []
    if has_floor.any():
        items = _with_check(excused[has_floor], "noise_floor")
        sentences.append(f"Below 1, but no worse than two draws on one input: {items}.")
    if not has_floor.all():
        items = _with_check(excused[~has_floor], "there_and_back")
        sentences.append(f"Below 1, but no worse than a map moved there and back: {items}.")
    return sentences


def _with_check(methods: pd.DataFrame, check: str) -> str:
    """Methods with their mean score, and a check on it in brackets."""
    return some(
        f"{row.explainer} {number(row.mean)} ({number(getattr(row, check))})"
        for row in records(methods)
    )


def _limits(measured: Symmetries) -> list[str]:
    """How exact the scores of single samples are."""
    sentences = []
    if measured.interpolates:
        sentences.append(
            f"The group interpolates ({measured.title}): scores are approximate, and no method can reach 1."
        )
    if not measured.whole:
        drawn = f"{measured.elements} {'element was' if measured.elements == 1 else 'elements were'} drawn"
        error = number(float(measured.means["error"].dropna().median()))
        confidence = 100 * (1 - float(measured.result.settings.get("delta", 0.05)))
        sentences.append(
            f"For each sample {drawn} from a larger group. That leaves the score of one sample uncertain by ±{error} "
            f"(median of the {confidence:g} % bounds); intervals of means include it."
        )
    return sentences


def _undefined(measured: Symmetries) -> list[str]:
    """How many scores are undefined, with the reasons."""
    undefined = measured.scores[measured.scores["value"].isna()]
    if undefined.empty:
        return []
    reason = undefined["reason"].fillna("").astype(str).replace("", "no reason given")
    counts = (
        measured.result.named(undefined)
        .assign(reason=reason)
        .groupby(["explainer", "reason"], sort=False)
        .size()
    )
    rows = records(counts.rename("times").reset_index())
    items = [f"{row.explainer}: {row.times} × {row.reason}" for row in rows]
    more = f"; and {len(items) - LISTED} more" if len(items) > LISTED else ""
    share = f"{len(undefined)} of {len(measured.scores)}"
    return [f"{share} scores are undefined ({'; '.join(items[:LISTED])}{more})."]


def _few_samples(measured: Symmetries) -> list[str]:
    n = len(measured.result.sample_ids)
    if n >= FEW_SAMPLES:
        return []
    return [f"Only {n} {'sample was' if n == 1 else 'samples were'} tested: intervals are rough."]
