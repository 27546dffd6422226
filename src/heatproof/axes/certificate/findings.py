"""Findings from certificates: where the guarantee ends, and whether random features do as well."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from heatproof import statistics
from heatproof.axes.certificate.shares import delta, gaps_to, one_fraction
from heatproof.axes.contract import AxisResult, Finding
from heatproof.drawing.prose import each, plural, records, with_interval

FRAGILE = Finding(
    axis="certificate",
    severity="act",
    title="A few more features change the prediction",
    seen="The share of supersets with up to r more features on which the prediction stays: {rates}.",
    means="What the method calls important is not enough for the prediction: with most ways to add a few other "
    "features the model says something else. So the explanation leaves out what holds the prediction.",
    do="{better}Keep more of the picture: fraction: 0.5 in place of {fraction:g}. A smoothed model may be steadier; "
    "the evaluation smoothing, with keeps: [0.25, 0.5, 1.0], shows at what cost in accuracy.",
)
BETTER = "Use {method}, which keeps {rate} at r = {radius:g}. "
LOOSE = Finding(
    axis="certificate",
    severity="mind",
    title="Less than half is guaranteed",
    seen="The mean of the lower bounds is {bounds}; {their} measured rate is not shown to be below a half.",
    means="The bound of a sample is what may be relied on but for a probability of δ = {delta:g}, and it promises less "
    "than one in two. That is a matter of the budget as well as of the explanation: the bound lies below the measured "
    "rate by up to ε = {epsilon:g}.",
    do="{narrower}Or certify smaller radii; a bound at one radius says nothing of another.",
)
NARROWER = (
    "epsilon: {half:g} in place of {epsilon:g} takes up to four times the passes and lifts it. "
)
LIKE_RANDOM = Finding(
    axis="certificate",
    severity="mind",
    title="Not shown to keep the prediction better than random features",
    seen="At r = {radius:g} the {what} less that of {control}, on the same samples: {gaps}.",
    means="As many features picked at random keep the prediction about as well, as far as these samples can tell. The "
    "certificate is then one of the model and of how much is kept, not of the explanation.",
    do="Test more samples, or a smaller fraction, at which it matters more which features are kept.",
)
WHAT = {
    "rate": "rate",
    "stable": "share of positive decisions",
    "unflipped": "share without a flip",
}

HALF = 0.5
RANDOM = "random"
"""The registered name of the control that picks features at random."""


def findings(judged: AxisResult) -> Iterator[Finding]:
    """What one evaluation of certificates shows, in no particular order."""
    judged = one_fraction(judged)
    cells = statistics.summary([judged.cube])
    yield from _below_half(judged, cells[~cells["control"].astype(bool)])
    yield from _random_features(judged)


def _below_half(judged: AxisResult, cells: pd.DataFrame) -> Iterator[Finding]:
    """Radii from which on less than half is guaranteed, told apart by whether the rate itself is low."""
    low = cells[cells["high"] < HALF].sort_values("level", kind="stable")
    fragile = low[low["measure"] == "rate"].drop_duplicates("explainer")
    bounds = low[low["measure"] == "certified"].drop_duplicates("explainer")
    loose = bounds[~bounds["explainer"].isin(fragile["explainer"])]
    if len(fragile):
        chosen = judged.settings.get("fraction", 0.25)
        fraction = float(chosen[0] if isinstance(chosen, list | tuple) else chosen)
        fill = {"rates": _at(fragile), "better": _better(cells), "fraction": fraction}
        yield FRAGILE.filled(fill, fragile["explainer"])
    if len(loose):
        names, epsilon = tuple(loose["explainer"]), float(judged.settings.get("epsilon", 0.1))
        estimated = judged.settings.get("mode", "estimate") == "estimate"
        narrower = NARROWER.format(half=epsilon / 2, epsilon=epsilon) if estimated else ""
        fill = {"bounds": _at(loose), "their": plural(names, "its", "their"), "narrower": narrower}
        yield LOOSE.filled(fill | {"epsilon": epsilon, "delta": delta(judged)}, names)


def _better(cells: pd.DataFrame) -> str:
    """A method that keeps more than half at the largest radius for certain, if there is one."""
    last = cells[
        (cells["measure"] == "rate")
        & (cells["level"] == cells["level"].max())
        & (cells["low"] > HALF)
    ]
    if last.empty:
        return ""
    best = records(last.sort_values("mean", ascending=False, kind="stable"))[0]
    return BETTER.format(
        method=best.explainer, rate=with_interval(best.mean, best.low, best.high), radius=best.level
    )


def _at(rows: pd.DataFrame) -> str:
    return each(
        (r.explainer, f"{with_interval(r.mean, r.low, r.high)} at r = {r.level:g}")
        for r in records(rows)
    )


def _random_features(judged: AxisResult) -> Iterator[Finding]:
    """Methods that are not shown to keep the prediction better than the same number of random features."""
    cube = judged.cube
    names = (
        (e, judged.settings_of(e).get("name") or e) for e in cube.explainers if e in cube.controls
    )
    control = next((e for e, registered in names if registered == RANDOM), None)
    if control is None or not judged.axis.headlines(cube):
        return
    measure, radius, gaps = gaps_to(judged, control)
    level = {name: with_interval(*gap) for name, gap in gaps.items() if gap[1] <= 0}
    if level:
        fill = {
            "radius": radius,
            "what": WHAT[measure],
            "control": control,
            "gaps": each(level.items()),
        }
        yield LIKE_RANDOM.filled(fill, level)
