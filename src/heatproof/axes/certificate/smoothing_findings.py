"""Findings from the sweep over λ: what smoothing costs in accuracy, and soft guarantees against hard ones."""

from __future__ import annotations

from collections.abc import Iterator

from heatproof.axes.certificate.shares import accuracy, delta, guaranteed_shares, least_rate
from heatproof.axes.certificate.words import percent
from heatproof.axes.contract import AxisResult, Finding, finding_template
from heatproof.drawing.prose import records, some

COSTLY = finding_template(
    "smoothing-cost",
    axis="smoothing",
    title="Smoothing costs accuracy",
    seen="Accuracy is {smoothed}, and {plain} without smoothing.",
    means="A guarantee about a model that predicts worse is worth less.",
    do="{larger} Or train the model on masked inputs.",
)
STAY_AT = "Use λ = {keep:g} or more."
LARGER = "Use a larger λ."
FURTHER = finding_template(
    "soft-beyond-hard",
    axis="smoothing",
    title="Soft guarantees reach larger radii than hard ones",
    seen="{best.explainer}, λ = {best.keep:g}, r = {best.level:g}: τ ≥ {least:g} is guaranteed (SCA, δ = {delta:g}) for "
    "{best.yes} of {best.n} samples, and τ = 1 (hard radius) for {best.yes_hard}.",
    means="A hard radius means that no superset changes the prediction, without any error, so it is small. SCA says that "
    "most supersets do not, with probability 1 − δ.",
    do="Use hard radii where one exception is too many; beyond them use SCA and report its τ and δ.",
)


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield what one sweep over λ shows, in no particular order."""
    yield from _costly(result)
    yield from _further(result)


def _costly(result: AxisResult) -> Iterator[Finding]:
    """Values of λ with significantly lower accuracy than without smoothing."""
    rows = accuracy(result.cube)
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


def _further(result: AxisResult) -> Iterator[Finding]:
    """Where soft guarantees hold for significantly more samples than hard ones."""
    least = least_rate(result)
    shares = guaranteed_shares(result.cube, least)
    shares = shares[(shares["keep"] < 1) & ~shares["explainer"].isin(result.cube.controls)]
    soft, hard = shares[shares["rule"] == "SCA"], shares[shares["rule"] == "hard"]
    both = soft.merge(hard, on=["explainer", "keep", "level"], suffixes=("", "_hard"))
    further = both[both["low"] > both["high_hard"]]
    if len(further):
        best = records(further.sort_values(["level", "share"], ascending=False, kind="stable"))[0]
        fill = {"best": best, "least": least, "delta": delta(result)}
        yield FURTHER.filled(fill, dict.fromkeys(further["explainer"]))
