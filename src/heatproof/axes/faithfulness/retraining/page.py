"""Retraining on the page: the curves of ROAR and KAR, and what they cost beside removal without it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from heatproof import statistics
from heatproof.axes.contract import Axis, AxisResult, Page
from heatproof.axes.faithfulness import FIDELITY, LEAKAGE, RETRAINING, frames
from heatproof.axes.faithfulness.checks import consistency_chart, leakage_charts
from heatproof.axes.faithfulness.curve_charts import ORDERS, random_curve, removal_plots
from heatproof.axes.faithfulness.words import leak
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import looks, spoken
from heatproof.drawing.tables import Row, grid
from heatproof.statistics.cubes import Cube, arrange


def lead(judged: AxisResult) -> list[str]:
    """That networks were retrained and nothing else was done, or which imputers leak; faithfulness says both itself."""
    if judged.axis.name == LEAKAGE.name:
        return leak(judged) or ["No imputer was shown to leak the class."]
    if judged.axis.name == FIDELITY.name:
        return [
            "One network per imputer was tuned to random removals and asked of what is left of the test images."
        ]
    return ["Networks were retrained, but nothing was removed from the inputs of the model itself."]


def parts(judged: AxisResult) -> list[Chart | Panel]:
    """What faithfulness would show among its own: curves, cost and consistency of retraining, or the leak."""
    if judged.axis.name == LEAKAGE.name:
        return leakage_charts(judged)
    unmeasured = not (judged.related["evaluation"] == LEAKAGE.name).any()
    drawn = [consistency_chart(judged), *(leakage_charts(judged) if unmeasured else [])]
    drawn += [*retraining_charts(judged), cost_panel(judged)]
    return [part for part in drawn if part is not None]


PAGE = Page(lead, parts)


def retrained_cube(judged: AxisResult, axis: Axis = RETRAINING) -> Cube | None:
    """What networks retrained on the data of an axis score, the mean over repeats; None where there are none."""
    return next(iter(arrange(judged.related[judged.related["evaluation"] == axis.name])), None)


def retraining_charts(judged: AxisResult) -> list[Chart | None]:
    """The curves of ROAR and KAR, and those of F-Fidelity."""
    return [retraining_chart(judged, axis) for axis in (RETRAINING, FIDELITY)]


def retraining_chart(judged: AxisResult, axis: Axis = RETRAINING) -> Chart | None:
    """Accuracy of networks trained or tuned on what is left, against the fraction removed."""
    cube = retrained_cube(judged, axis)
    if cube is None:
        return None
    cells = frames.with_makeup(statistics.summary([cube]), cube)
    order = dict.fromkeys([*frames.explainer_order(judged.cube), *cube.explainers])
    named = {**looks(cube.explainers, cube.controls), **judged.looks}
    drawn = {}
    for imputer in frames.imputers(cube):
        own, control = cells[cells["imputer"] == imputer], random_curve(cube, imputer, "accuracy")
        drawn[imputer] = removal_plots(own, {e: named[e] for e in order}, "accuracy", control)
    drawn = {imputer: plots for imputer, plots in drawn.items() if plots}
    if not drawn:
        return None
    repeats = judged.related.loc[judged.related["evaluation"] == axis.name, "repeat"].nunique()
    settings = judged.manifest.get("study", {}).get("evaluations", {}).get(axis.name, {})
    truth = "the model’s prediction" if settings.get("against") == "prediction" else "the label"
    caption = "Networks trained anew on images whose most relevant (MoRF, solid: ROAR) or least relevant (LeRF, "
    caption += "dashed: KAR) pixels are gone, and tested on held-out images treated alike; "
    if axis is FIDELITY:
        caption = "One network, tuned on images of which random parts are gone, is asked about held-out images whose "
        caption += "most (MoRF, solid) or least relevant (LeRF, dashed) pixels are; "
    caption += f"accuracy against {truth}. A faithful map gives low curves with MoRF and high ones with LeRF. "
    caption += f"Mean of {repeats} network{'s' if repeats != 1 else ''} per point; "
    caption += "bars are 95 % intervals over test images and leave out the luck of training. "
    (imputer, plots), *others = drawn.items()
    caption += f"Filled in by {spoken(imputer, {})}."
    alt = f"Accuracy of {axis.title} over fractions for {len(cube.explainers)} methods."
    return Chart(axis.name.replace("_", "-"), axis.title, caption, alt, plots, dict(others))


def seconds_spent(manifest: Mapping[str, Any], evaluation: str) -> float:
    """Seconds that the sessions of a run spent on an evaluation; NaN where none says so.

    >>> seconds_spent({"sessions": [{"durations": {"road": 3.0}}, {}, {"durations": {"road": 1.0}}]}, "road")
    4.0
    """
    spent = [
        s["durations"][evaluation]
        for s in manifest.get("sessions") or []
        if evaluation in s.get("durations", {})
    ]
    return float(sum(spent)) if spent else math.nan


def cost_panel(judged: AxisResult) -> Panel | None:
    """What a point of a curve costs with and without retraining."""
    again = judged.related[judged.related["evaluation"] == RETRAINING.name]
    if again.empty:
        return None
    trained = len(again[["explainer", "condition", "level", "repeat"]].drop_duplicates())
    ends = judged.rows["order"].isin(list(ORDERS)) & (judged.rows["measure"] == "accuracy")
    swept = len(judged.rows.loc[ends, ["explainer", "condition", "level"]].drop_duplicates())
    entries = [("Retraining", seconds_spent(judged.manifest, RETRAINING.name), trained, "networks")]
    if judged.axis.name != RETRAINING.name:
        plain = seconds_spent(judged.manifest, judged.label)
        entries.insert(0, ("Without retraining", plain, swept, "points"))
    entries = [entry for entry in entries if math.isfinite(entry[1]) and entry[2]]
    if not entries:
        return None
    rows = [
        Row([n, f"{_seconds(s)} s", f"{k} {what}", f"{_seconds(s / k)} s"])
        for n, s, k, what in entries
    ]
    table = grid(["", "Time", "For", "Each"], rows, "Cost")
    caption = "A point is one method, order, imputer and fraction. "
    if len(entries) == 2 and entries[0][1] > 0:
        ratio = (entries[1][1] / entries[1][2]) / (entries[0][1] / entries[0][2])
        caption += f"Here a point costs {_count(ratio)} times as much with retraining. The time without it includes every "
        caption += "other metric of this evaluation. "
    if (judged.related["evaluation"] == LEAKAGE.name).any():
        caption += "The probes of the leak are not counted. "
    caption += "Seconds of all sessions of the run, on the machine that ran them."
    return Panel("cost", "What retraining costs", caption, table)


def _count(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f") if value >= 10 else f"{value:.2g}"


def _seconds(value: float) -> str:
    return _count(value) if value >= 100 else f"{value:.3g}"
