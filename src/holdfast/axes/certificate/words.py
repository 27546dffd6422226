"""The verdict on certificates in sentences, never saying more than the bounds do."""

from __future__ import annotations

from typing import Any

from holdfast import statistics
from holdfast.axes.certificate.shares import accuracy
from holdfast.axes.contract import Judged
from holdfast.drawing.prose import listing, number, records, with_interval

NOTHING = "Nothing can be concluded: no sample has a certificate."
KEPT = {
    "rate": "the prediction stays on {} of the supersets",
    "stable": "the decision is positive for a share of {} of the samples",
    "unflipped": "no draw changes the prediction for a share of {} of the samples",
}


def certificate_lead(judged: Judged) -> list[str]:
    """How often predictions survive at the largest radius, what of that is guaranteed, and how random masks fare."""
    summary = statistics.summary([judged.cube])
    cells = summary[summary["measure"].isin(judged.axis.headlines(judged.cube)) & summary["mean"].notna()]
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
    most = f", the most of {len(methods)} methods" if len(methods) > 1 else ""
    said = [f"When {added} added to the explanations of {best.explainer}, {share}{most}."]
    bounds = summary[(summary["measure"] == "certified") & (summary["level"] == radius)]
    bound = bounds.loc[bounds["explainer"] == best.explainer, "mean"].dropna()
    if len(bound):
        said.append(f"{number(float(bound.iloc[0]))} of that is guaranteed, in the mean over samples.")
    controls = here[here["control"]]
    if len(controls) and not methods.equals(here):
        control = records(controls)[0]
        level = [m.explainer for m in records(methods) if m.low <= control.mean]
        kept = with_interval(control.mean, control.low, control.high)
        said.append(f"Features chosen by {control.explainer} keep {kept}.")
        if level:
            verb = "does" if len(level) == 1 else "do"
            said.append(f"{listing(level)} {verb} not keep clearly more than that.")
    return said


def smoothing_lead(judged: Judged) -> list[str]:
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
            f"The largest mean hard radius is {with_interval(best.mean, best.low, best.high, 1)} features, "
            f"of {best.explainer} with λ = {judged.cube.made_of(best.condition).share:g}."
        )
    return said or [NOTHING]


def percent(row: Any) -> str:
    """A share with its interval in percent; `row` is one of `shares`."""
    return f"{with_interval(100 * row.share, 100 * row.low, 100 * row.high, 0)} %"
