"""The verdict on certificates in sentences, never saying more than the bounds do."""

from __future__ import annotations

from typing import Any

import numpy as np

from heatproof import statistics
from heatproof.axes.certificate.shares import accuracy, certified_mean, delta, gaps_to, one_fraction
from heatproof.axes.contract import AxisResult
from heatproof.drawing.prose import at_least, listing, records, with_interval
from heatproof.evaluation import Condition

NOTHING = "Nothing can be concluded: no sample has a certificate."
KEPT = {
    "rate": "the certified prediction stays on {} of the supersets",
    "stable": "the decision is positive for a share of {} of the samples",
    "unflipped": "no draw changes the prediction for a share of {} of the samples",
}


ANCHORED = {
    "explanation": "Certified is the prediction on the explanation alone",
    "full": "Certified is the prediction on the whole input",
}


def certificate_lead(judged: AxisResult) -> list[str]:
    """How often predictions survive at the largest radius, what is guaranteed of that, and how random masks fare."""
    judged = one_fraction(judged)
    summary = statistics.summary([judged.cube])
    cells = summary[
        summary["measure"].isin(judged.axis.headlines(judged.cube)) & summary["mean"].notna()
    ]
    if cells.empty:
        return [NOTHING]
    radius = float(cells["level"].max())
    here = cells[cells["level"] == radius].sort_values("mean", ascending=False)
    methods = here[~here["control"]]
    if methods.empty:
        methods = here
    best = records(methods)[0]
    share = KEPT[best.measure].format(with_interval(best.mean, best.low, best.high))
    added = "one feature is" if radius == 1 else f"up to {radius:g} features are"
    most = f", the highest mean of {len(methods)} methods" if len(methods) > 1 else ""
    said = [f"When {added} added to the explanations of {best.explainer}, {share}{most}."]
    if best.measure == "rate":
        said += _guaranteed(judged, best.explainer, (best.condition, radius))
    said += _anchored(judged, best.explainer)
    controls = here[here["control"]]
    if len(controls) and not methods.equals(here):
        control = records(controls)[0]
        kept = with_interval(control.mean, control.low, control.high)
        said.append(f"Features chosen by {control.explainer} keep {kept}.")
        level = [
            name
            for name, (_, low, _) in gaps_to(judged, control.explainer)[2].items()
            if not low > 0
        ]
        if level:
            verb = "is" if len(level) == 1 else "are"
            said.append(
                f"{listing(level)} {verb} not shown to keep more than that on the same samples."
            )
    return said


def _guaranteed(judged: AxisResult, explainer: str, condition: Condition) -> list[str]:
    """What is guaranteed of the mean over the samples, and with which probability that may fail."""
    low, n = certified_mean(judged, explainer, condition)
    if not n:
        return []
    scope = " for all methods and radii at once" if judged.settings.get("simultaneous") else ""
    return [
        f"Guaranteed is a mean rate of at least {at_least(low)} over these {n} samples{scope}; "
        f"that fails with probability at most δ = {delta(judged):g}."
    ]


def _anchored(judged: AxisResult, explainer: str) -> list[str]:
    """Which prediction is certified, and how often it is that on the whole input."""
    same = judged.cube.values.get("sufficient")
    said = ANCHORED[str(judged.settings.get("anchor", "explanation"))]
    if same is None:
        return [f"{said}."]
    own = same[judged.cube.explainers.index(explainer)].ravel()
    n, yes = int(np.isfinite(own).sum()), int(np.nansum(own))
    return [
        f"{said}; the explanation alone is predicted like the whole input for {yes} of {n} samples."
    ]


def smoothing_lead(judged: AxisResult) -> list[str]:
    """What smoothing costs in accuracy and buys in hard radii."""
    said = []
    rows = accuracy(judged.cube)
    if len(rows) > 1:
        first, last = records(rows)[0], records(rows)[-1]
        said.append(
            f"Accuracy is {percent(first)} with λ = {first.keep:g} and {percent(last)} with λ = {last.keep:g}, "
            f"on {int(last.n)} labelled samples."
        )
    cells = statistics.summary([judged.cube])
    cells = cells[(cells["measure"] == "hard_radius") & cells["mean"].notna()]
    if len(cells):
        best = records(cells.sort_values("mean", ascending=False))[0]
        said.append(
            f"The largest mean hard radius is {with_interval(best.mean, best.low, best.high)} features, "
            f"of {best.explainer} with λ = {judged.cube.made_of(best.condition).share:g}."
        )
    return said or [NOTHING]


def percent(row: Any) -> str:
    """A share with its interval in percent; `row` is one of `shares`."""
    return f"{with_interval(100 * row.share, 100 * row.low, 100 * row.high)} %"
