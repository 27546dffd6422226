"""Findings from the removal scores: leaks, rankings that disagree, random orders, and controls that are ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heatproof.axes.contract import AxisResult, Finding, unseen
from heatproof.axes.faithfulness import AXIS, RETRAINING, frames
from heatproof.axes.faithfulness.checks import leakage_rows
from heatproof.axes.faithfulness.consistency import consistency
from heatproof.axes.faithfulness.frames import Line
from heatproof.axes.faithfulness.kinds import KINDS
from heatproof.drawing.prose import (
    above,
    at_least,
    difference,
    each,
    listing,
    number,
    plural,
    records,
    some,
    with_interval,
)
from heatproof.evaluation import Measure
from heatproof.removal.imputers import NoisyLinear
from heatproof.types import matches

AGREE = 0.5
"""Rankings are said to disagree when the whole interval of their correlation is below this."""
ONE_COLOUR = "zero|value|image_mean|dataset_mean"
"""Imputers that put one colour in place of what is removed, so that its outline stays visible."""

LEAKS = unseen(
    "act",
    "Leaking imputers",
    "The outline of what was removed gives the class away, and the filled-in pictures show the outline. A map can "
    "score well by the shape of what it removes.",
    "Use another filling, such as imputers: [{noisy_linear: {sigma: 0.05}}], and measure the leak again "
    "(heatproof.retrain with leakage=True).",
    AXIS.name,
)
MAY_LEAK = unseen(
    "mind",
    "Imputers that may leak",
    "One colour keeps the outline of the removed part visible, and the outline can give the class away. It also makes "
    "pictures that the model has never seen the like of.",
    "heatproof.retrain with leakage=True measures the leak.",
    AXIS.name,
)
ORDERS_DISAGREE = unseen(
    "mind",
    "MoRF and LeRF rank the methods differently",
    "Removing the most relevant {parts} first and removing the least relevant first put the methods in different "
    "orders. Which method is the most faithful then depends on the question that is asked.",
    "Do not publish one ranking. Say which order you care about, {either}; more samples narrow the interval.",
    AXIS.name,
)
IMPUTERS_DISAGREE = unseen(
    "mind",
    "Two fillings rank the methods differently",
    "The ranking of the methods depends on what takes the place of removed {parts}.",
    "Give both rankings; {which}.",
    AXIS.name,
)
UNREAL = unseen(
    "mind",
    "Filled inputs do not look real to the model",
    "By its own features the model tells inputs with {parts} filled in from real ones. What it says of them may be due "
    "to how they look, not to what was removed.",
    "Compare methods with one another and with the random order only, which is filled in alike; prefer small fractions "
    "and the filling with the smallest area.",
    AXIS.name,
)
TOLD = 0.9
"""Filled inputs are said not to look real where the lower end of the area under the ROC curve is above this."""
WORSE_THAN_RANDOM = unseen(
    "act",
    "Worse than removing {parts} at random",
    "What these maps call important matters less to the model than {parts} picked at random. Often the sign is the "
    "reason: strongly negative values are removed last.",
    "Try absolute: true in the faithfulness evaluation; if that does not turn it, do not use the maps.",
    AXIS.name,
)
AS_RANDOM = unseen(
    "mind",
    "Not shown to beat a random order of {parts}",
    "The data do not show that the order of these maps means anything to the model.",
    "Test more samples before you rely on them, or use a method whose interval is above 0.",
    AXIS.name,
)
CONTROL_AHEAD = unseen(
    "act",
    "A control is more faithful",
    "Removing edges hurts this model more than removing what these methods point at. They add nothing to what the "
    "picture alone shows.",
    "Do not use these methods for this model. Check their layer and target, and the model’s preprocessing.",
    AXIS.name,
)


def findings(judged: AxisResult) -> Iterator[Finding]:
    """The findings of one evaluation, in no particular order."""
    yield from _leaks(judged)
    if judged.axis.name != AXIS.name:
        return
    yield from _rankings(judged)
    yield from _unreal(judged)
    best = frames.best_headline(judged.cube)
    if best is not None:
        yield from _against_random(judged, *best)
        yield from _controls(judged, *best)


def _leaks(judged: AxisResult) -> Iterator[Finding]:
    measured, used = leakage_rows(judged), frames.imputers(judged.cube)
    if len(measured):
        leaking = measured[measured["leaks"].astype(bool)].sort_values(
            "mask_bits", ascending=False, kind="stable"
        )
        if leaking.empty:
            return
        names = frames.primary_first(dict.fromkeys(leaking["imputer"]))
        safe = [imputer for imputer in used if imputer not in names]
        seen = listing(
            f"{r.imputer}: the mask of {r.explainer} holds at least {at_least(r.mask_bits)} bits about the class, and "
            f"{100 * r.pixels:.0f} % of the removed and kept pixels are told apart"
            for r in records(leaking.drop_duplicates("imputer"))
        )
        yield replace(
            LEAKS,
            axis=judged.axis.name,
            title=f"{listing(names)} {plural(names, 'leaks', 'leak')} the class",
            seen=f"{seen}.",
            do=f"Rank the methods by {listing(safe)}." if safe else LEAKS.do,
            explainers=tuple(dict.fromkeys(leaking["explainer"])),
        )
        return
    filled = [imputer for imputer in used if matches(ONE_COLOUR, imputer)]
    # Only what learns from masks can use them: a model that was not trained on filled images has never seen one.
    retrained = (judged.related["evaluation"] == RETRAINING.name).any()
    if filled and retrained and frames.words(judged) is KINDS["image"]:
        who, other = listing(filled), [imputer for imputer in used if imputer not in filled]
        rank = (
            f"Rank by {listing(other)}"
            if other
            else "Add noisy_linear to the imputers and rank by that"
        )
        yield replace(
            MAY_LEAK,
            axis=judged.axis.name,
            title=f"{who} may leak the class",
            seen=f"{who} {plural(filled, 'fills', 'fill')} what is removed with one colour; whether that leaks was "
            "not measured.",
            do=f"{rank}; {MAY_LEAK.do}",
        )


def _rankings(judged: AxisResult) -> Iterator[Finding]:
    """Strategies whose rankings of methods are shown to have little in common."""
    pairs = consistency(judged.rows, frames.readout(judged))
    pairs = pairs[pairs["level"].isna() & (pairs["high"] < AGREE)]
    words = frames.words(judged)
    paper = words.imputer == NoisyLinear.name
    told = frames.detectability(judged.rows)
    areas = told.groupby("imputer")["area"].mean() if len(told) else None
    which = "detectability, from 50 samples on, says which filling the model finds the more real"
    if areas is not None:
        which = f"{areas.idxmin()} is the harder to tell from real inputs, with a mean area of {number(areas.min())}"
    either = (
        "or rank by noisy_linear, which makes the two agree more in the ROAD paper"
        if paper
        else "and give both"
    )
    for kind, finding in (("order", ORDERS_DISAGREE), ("imputer", IMPUTERS_DISAGREE)):
        own = pairs[pairs["kind"] == kind]
        if own.empty:
            continue
        said = some(
            [f"{r.a} and {r.b} {with_interval(r.spearman, r.low, r.high)}" for r in records(own)], 3
        )
        seen = f"Spearman’s correlation of the rankings of {own['explainers'].max()} methods: {said}; 1 is the same order."
        yield replace(
            finding.filled({"parts": words.parts, "either": either, "which": which}), seen=seen
        )


def _unreal(judged: AxisResult) -> Iterator[Finding]:
    """Imputers that the model's own features tell from real inputs, at most fractions or at all."""
    told = frames.detectability(judged.rows)
    seen = told[told["low"] > TOLD] if len(told) else told
    if len(seen):
        parts = frames.words(judged).parts
        items = []
        for imputer, rows in seen.groupby("imputer", sort=False, observed=True):
            low = rows.sort_values("level").iloc[0]
            area = with_interval(low["area"], low["low"], low["high"])
            items.append(
                f"{imputer}: area under the ROC curve {area} from {100 * low['level']:g} % removed on"
            )
        yield replace(UNREAL, seen="; ".join(items) + ".", means=UNREAL.means.format(parts=parts))


def _against_random(judged: AxisResult, measure: Measure, line: Line) -> Iterator[Finding]:
    gaps = frames.over_random(judged.cube, measure, line)
    if gaps is None:
        return
    known = gaps[gaps["low"].notna() & ~gaps["control"]]
    worse, level = known[known["below"]], known[~known["above"] & ~known["below"]]
    parts = frames.words(judged).parts
    chance = "0" if measure.chance == "zero" else "the score of that order"
    for rows, finding in ((worse, WORSE_THAN_RANDOM), (level, AS_RANDOM)):
        if rows.empty:
            continue
        said = each((r.explainer, with_interval(r.mean, r.low, r.high)) for r in records(rows))
        seen = f"{frames.short(measure)} with {line.name} less {chance}, turned so that more is better: {said}."
        yield replace(finding.filled({"parts": parts}, rows["explainer"]), seen=seen)


def _controls(judged: AxisResult, measure: Measure, line: Line) -> Iterator[Finding]:
    rows, tests = (
        frame(judged.cube, measure, line) for frame in (frames.standings, frames.comparisons)
    )
    methods = rows.loc[~rows["control"], "explainer"].tolist()
    for control in records(frames.seeing_controls(judged, rows)):
        beaten = tuple(m for m in methods if above(tests, control.explainer, m))
        if not beaten:
            continue
        gaps = {name: difference(tests, control.explainer, name) or {} for name in beaten}
        said = each(
            (n, f"by {with_interval(g['difference'], g['low'], g['high'])}")
            for n, g in gaps.items()
        )
        yield replace(
            CONTROL_AHEAD,
            title=f"{control.explainer} is more faithful",
            seen=f"The control {control.explainer}, which explains nothing, has a {frames.short(measure)} of "
            f"{with_interval(control.mean, control.low, control.high)} and is ahead of {said}.",
            explainers=beaten,
        )
