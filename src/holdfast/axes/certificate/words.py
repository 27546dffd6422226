"""The verdict on certificates in sentences, never saying more than the bounds do."""

from __future__ import annotations

import pandas as pd

from holdfast import statistics
from holdfast.axes.certificate.smoothing_page import accuracy
from holdfast.axes.contract import Judged
from holdfast.drawing.prose import listing, number, records, with_interval


def certificate_lead(axis: Judged) -> list[str]:
    """How often predictions survive at the largest radius, what of that is guaranteed, and how random masks fare."""
    cells = statistics.summary([axis.cube])
    measure = next((m for m in ("rate", "stable", "unflipped") if m in axis.cube.values), "")
    cells = cells[(cells["measure"] == measure) & cells["mean"].notna()]
    if cells.empty:
        return ["Nothing can be concluded: no sample has a certificate."]
    radius = float(cells["level"].max())
    here = cells[cells["level"] == radius].sort_values("mean", ascending=False)
    methods = here[~here["explainer"].map(statistics.is_control)]
    if methods.empty:
        methods = here
    best = records(methods)[0]
    what = {
        "rate": "the prediction stays on {} of the supersets",
        "stable": "the decision is positive for a share of {} of the samples",
        "unflipped": "no draw changes the prediction for a share of {} of the samples",
    }[measure]
    share = what.format(with_interval(best.mean, best.low, best.high))
    added = "one feature is" if radius == 1 else f"up to {radius:g} features are"
    said = [f"When {added} added to the explanations of {best.explainer}, {share}, the most of {len(methods)} methods."]
    bound = _bound(axis, best.explainer, radius)
    if bound is not None:
        said.append(f"{number(bound)} of that is guaranteed, in the mean over samples.")
    control = here[here["explainer"].map(statistics.is_control)]
    if len(control) and len(methods) and not methods.equals(here):
        r = records(control)[0]
        within = [m.explainer for m in records(methods) if m.low <= r.mean]
        said.append(f"Features chosen by {r.explainer} keep {with_interval(r.mean, r.low, r.high)}.")
        if within:
            verb = "does" if len(within) == 1 else "do"
            said.append(f"{listing(within)} {verb} not keep clearly more than that.")
    return said


def smoothing_lead(axis: Judged) -> list[str]:
    """What smoothing costs in accuracy and buys in hard radii."""
    said = []
    rows = accuracy(axis.cube)
    if len(rows) > 1:
        first, last = records(rows)[0], records(rows)[-1]
        said.append(
            f"Accuracy is {_share(first)} with λ = {first.keep:g} and {_share(last)} with λ = {last.keep:g}, "
            f"on {int(last.n)} labelled samples."
        )
    if "hard_radius" in axis.cube.values:
        cells = statistics.summary([axis.cube])
        cells = cells[(cells["measure"] == "hard_radius") & cells["mean"].notna()]
        if len(cells):
            best = records(cells.sort_values("mean", ascending=False))[0]
            said.append(
                f"The largest mean hard radius is {with_interval(best.mean, best.low, best.high, 1)} features, "
                f"of {best.explainer} with {best.condition.replace('=', ' = ')}."
            )
    return said or ["Nothing can be concluded: no sample has a certificate."]


def _share(row: object) -> str:
    share, low, high = (100 * float(getattr(row, name)) for name in ("share", "low", "high"))
    return f"{with_interval(share, low, high, 0)} %"


def _bound(axis: Judged, explainer: str, radius: float) -> float | None:
    rows: pd.DataFrame = axis.rows
    here = (rows["explainer"] == explainer) & (rows["measure"] == "certified") & (rows["level"] == radius)
    values = rows.loc[here & (rows["status"] == "ok"), "value"]
    return float(values.mean()) if len(values) else None
