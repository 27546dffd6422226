"""Findings from the sweep over λ: what smoothing costs in accuracy, and soft guarantees against hard ones."""

from __future__ import annotations

from collections.abc import Iterator

from heatproof.axes.certificate.shares import accuracy, delta, guaranteed_shares, least_rate
from heatproof.axes.certificate.words import percent
from heatproof.axes.contract import AxisResult, Finding
from heatproof.drawing.prose import records, some

COSTLY = Finding(
    axis="smoothing",
    severity="act",
    title="Smoothing costs accuracy",
    seen="Accuracy is {smoothed}, and {plain} without smoothing.",
    means="A guarantee about a model that no longer predicts well is worth little.",
    do="{larger} Or train the model on masked inputs, so that it bears them.",
)
STAY_AT = "Stay at λ = {keep:g} or more."
LARGER = "Use larger λ."
FURTHER = Finding(
    axis="smoothing",
    severity="note",
    title="Soft guarantees reach further than hard ones",
    seen="For {best.explainer} with λ = {best.keep:g} at r = {best.level:g}, τ ≥ {least:g} is guaranteed (SCA, δ = "
    "{delta:g}) for {best.yes} of {best.n} samples, τ = 1 (a hard radius) for {best.yes_hard}.",
    means="A hard radius promises that no superset turns the prediction, without error, and so is small. SCA promises "
    "less, that most supersets do not, but for a probability of δ.",
    do="Use hard radii where one exception is too many; beyond them use SCA and give its τ and δ.",
)


def findings(judged: AxisResult) -> Iterator[Finding]:
    """What one sweep over λ shows, in no particular order."""
    yield from _costly(judged)
    yield from _further(judged)


def _costly(judged: AxisResult) -> Iterator[Finding]:
    """Values of λ with which accuracy is lower than without smoothing beyond doubt."""
    rows = accuracy(judged.cube)
    plain, smoothed = rows[rows["keep"] == 1], rows[rows["keep"] < 1]
    if plain.empty:
        return
    lower = smoothed["high"] < float(plain["low"].iloc[0])
    worse, kept = smoothed[lower], smoothed[~lower]
    if len(worse):
        shares = some([f"{percent(r)} with λ = {r.keep:g}" for r in records(worse)], 3)
        larger = STAY_AT.format(keep=float(kept["keep"].min())) if len(kept) else LARGER
        yield COSTLY.filled(
            {"smoothed": shares, "plain": percent(records(plain)[0]), "larger": larger}
        )


def _further(judged: AxisResult) -> Iterator[Finding]:
    """Where soft guarantees reach samples that hard ones do not, beyond doubt."""
    least = least_rate(judged)
    shares = guaranteed_shares(judged.cube, least)
    shares = shares[(shares["keep"] < 1) & ~shares["explainer"].isin(judged.cube.controls)]
    soft, hard = shares[shares["rule"] == "SCA"], shares[shares["rule"] == "hard"]
    both = soft.merge(hard, on=["explainer", "keep", "level"], suffixes=("", "_hard"))
    further = both[both["low"] > both["high_hard"]]
    if len(further):
        best = records(further.sort_values(["level", "share"], ascending=False, kind="stable"))[0]
        fill = {"best": best, "least": least, "delta": delta(judged)}
        yield FURTHER.filled(fill, dict.fromkeys(further["explainer"]))
