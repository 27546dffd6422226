"""Finding from certificates: where the guarantee ends, random features, and soft against hard guarantees."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from holdfast import statistics
from holdfast.axes.certificate.smoothing_page import accuracy, guaranteed_shares
from holdfast.axes.contract import Finding, Judged
from holdfast.axes.faithfulness.frames import interval
from holdfast.drawing.prose import each, plural, records, some, with_interval
from holdfast.statistics import is_control
from holdfast.statistics.bootstrap import mean_of_finite

HALF = 0.5


def certificate_advice(axis: Judged) -> Iterator[Finding]:
    """The findings of one evaluation of certificates, in no particular order."""
    cells = statistics.summary([axis.cube])
    cells = cells[~cells["explainer"].map(is_control).astype(bool)]
    yield from _below_half(axis, cells)
    yield from _random_features(axis)


def _below_half(axis: Judged, cells: pd.DataFrame) -> Iterator[Finding]:
    """Radii from which on less than half is guaranteed, told apart by whether the rate itself is low."""
    rates = cells[(cells["measure"] == "rate") & (cells["high"] < HALF)].sort_values("level", kind="stable")
    fragile = rates.drop_duplicates("explainer")
    bounds = cells[(cells["measure"] == "certified") & (cells["high"] < HALF)].sort_values("level", kind="stable")
    loose = bounds[~bounds["explainer"].isin(fragile["explainer"])].drop_duplicates("explainer")
    if len(fragile):
        names = tuple(fragile["explainer"])
        yield Finding(
            "certificate",
            "act",
            "A few more features change the prediction",
            f"The share of supersets with up to r more features on which the prediction stays: {_at(fragile)}.",
            "What the method calls important is not enough for the prediction: with most ways to add a few other "
            "features the model says something else. So the explanation leaves out what holds the prediction.",
            f"{_better(cells)}Keep more of the picture: fraction: 0.5 in place of "
            f"{float(axis.settings.get('fraction', 0.25)):g}. A smoothed model may be steadier; the evaluation "
            "smoothing, with keeps: [0.25, 0.5, 1.0], shows at what cost in accuracy.",
            names,
        )
    if len(loose):
        names = tuple(loose["explainer"])
        epsilon = float(axis.settings.get("epsilon", 0.1))
        narrower = f"epsilon: {epsilon / 2:g} in place of {epsilon:g} takes up to four times the passes and lifts it. "
        yield Finding(
            "certificate",
            "mind",
            "Less than half is guaranteed",
            f"The mean guaranteed rate is {_at(loose)}; {plural(names, 'its', 'their')} measured rate is not shown "
            "to be below a half.",
            "The bound is what may be relied on, and it promises less than one in two. That is a matter of the budget "
            f"as well as of the explanation: the bound lies below the measured rate by up to ε = {epsilon:g}.",
            (narrower if axis.settings.get("mode", "estimate") == "estimate" else "")
            + "Or certify smaller radii; a bound at one radius says nothing of another.",
            names,
        )


def _better(cells: pd.DataFrame) -> str:
    """A method that keeps more than half at the largest radius for certain, if there is one."""
    last = cells[(cells["measure"] == "rate") & (cells["level"] == cells["level"].max()) & (cells["low"] > HALF)]
    if last.empty:
        return ""
    r = records(last.sort_values("mean", ascending=False, kind="stable"))[0]
    return f"Use {r.explainer}, which keeps {with_interval(r.mean, r.low, r.high)} at r = {r.level:g}. "


def _at(rows: pd.DataFrame) -> str:
    return each((r.explainer, f"{with_interval(r.mean, r.low, r.high)} at r = {r.level:g}") for r in records(rows))


def _random_features(axis: Judged) -> Iterator[Finding]:
    measure = next((m for m in ("rate", "stable", "unflipped") if m in axis.cube.values), "")
    controls = [e for e in axis.cube.explainers if is_control(e) and e.startswith("random")]
    if not measure or not controls:
        return
    last = max(axis.cube.conditions, key=lambda place: place[1])
    values = axis.cube.values[measure][:, axis.cube.conditions.index(last)]
    control = values[axis.cube.explainers.index(controls[0])]
    gap = values - control
    low, high = interval(gap)
    level = {
        name: with_interval(float(mean_of_finite(gap[e])), float(low[e]), float(high[e]))
        for e, name in enumerate(axis.cube.explainers)
        if not is_control(name) and low[e] <= 0
    }
    if not level:
        return
    what = {"rate": "rate", "stable": "share of positive decisions", "unflipped": "share without a flip"}[measure]
    yield Finding(
        "certificate",
        "mind",
        "Not shown to keep the prediction better than random features",
        f"At r = {last[1]:g} the {what} less that of {controls[0]}, on the same samples: {each(level.items())}.",
        "As many features picked at random keep the prediction about as well, as far as these samples can tell. The "
        "certificate is then one of the model and of how much is kept, not of the explanation.",
        "Test more samples, or a smaller fraction, at which it matters more which features are kept.",
        tuple(level),
    )


def smoothing_advice(axis: Judged) -> Iterator[Finding]:
    """The findings of one sweep over λ, in no particular order."""
    yield from _accuracy(axis)
    yield from _soft_and_hard(axis)


def _accuracy(axis: Judged) -> Iterator[Finding]:
    rows = accuracy(axis.cube)
    plain = rows[rows["keep"] == 1]
    if plain.empty:
        return
    worse = rows[(rows["keep"] < 1) & (rows["high"] < float(plain.iloc[0]["low"]))]
    if worse.empty:
        return
    kept = rows[(rows["keep"] < 1) & ~rows["keep"].isin(worse["keep"])]
    said = some([f"{_share(r)} with λ = {r.keep:g}" for r in records(worse)], 3)
    use = f"Stay at λ = {float(kept['keep'].min()):g} or more. " if len(kept) else "Use larger λ. "
    yield Finding(
        "smoothing",
        "act",
        "Smoothing costs accuracy",
        f"Accuracy is {said}, and {_share(records(plain)[0])} without smoothing.",
        "A guarantee about a model that no longer predicts well is worth little.",
        f"{use}Or train the model on masked inputs, so that it bears them.",
    )


def _share(row: object) -> str:
    share, low, high = (100 * float(getattr(row, name)) for name in ("share", "low", "high"))
    return f"{with_interval(share, low, high, 0)} %"


def _soft_and_hard(axis: Judged) -> Iterator[Finding]:
    """Where soft guarantees reach samples that hard ones do not, beyond doubt."""
    if not {"hard_radius", "certified"} <= set(axis.cube.values):
        return
    epsilon = float(axis.settings.get("epsilon", 0.1))
    decide = axis.settings.get("mode") == "decide"
    least = float(axis.settings.get("threshold", 0.9)) if decide else 1 - epsilon
    shares = guaranteed_shares(axis.cube, least)
    shares = shares[~shares["explainer"].map(is_control).astype(bool)]
    keys = ["explainer", "keep", "level"]
    both = shares[shares["rule"] == "SCA"].merge(shares[shares["rule"] == "MuS"], on=keys, suffixes=("", "_hard"))
    further = both[(both["keep"] < 1) & (both["low"] > both["high_hard"])]
    if further.empty:
        return
    best = records(further.sort_values(["level", "share"], ascending=False, kind="stable"))[0]
    yield Finding(
        "smoothing",
        "note",
        "Soft guarantees reach further than hard ones",
        f"For {best.explainer} with λ = {best.keep:g} at r = {best.level:g}, τ ≥ {least:g} is guaranteed (SCA) for "
        f"{best.yes} of {best.n} samples, τ = 1 (MuS) for {best.yes_hard}.",
        "MuS promises that no superset turns the prediction, without error, and so reaches only small radii. SCA "
        "promises less, that most supersets do not, with a confidence.",
        "Use MuS where one exception is too many, within its radius; beyond it use SCA and give its τ and confidence.",
        tuple(dict.fromkeys(further["explainer"])),
    )
