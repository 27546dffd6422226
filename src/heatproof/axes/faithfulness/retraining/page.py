"""Retraining on the page: the curves of ROAR and KAR, and what they cost beside removal without it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from heatproof import statistics
from heatproof.axes.contract import Axis, AxisResult, Page
from heatproof.axes.faithfulness import FIDELITY, LEAKAGE, RETRAINING, frames
from heatproof.axes.faithfulness.checks import consistency_chart, leakage_charts
from heatproof.axes.faithfulness.curve_charts import ORDERS, random_curve, removal_plots
from heatproof.axes.faithfulness.words import leak
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import looks, removal_words
from heatproof.drawing.tables import Row, grid
from heatproof.statistics.cubes import Cube, arrange

if TYPE_CHECKING:
    from heatproof.runs.manifest import Manifest


def lead(result: AxisResult) -> list[str]:
    """Return what was done where nothing but retraining, tuning or probing was; faithfulness says it otherwise."""
    if result.axis.name == LEAKAGE.name:
        return leak(result) or ["No imputer was shown to leak the class."]
    if result.axis.name == FIDELITY.name:
        return [
            "One network per imputer was tuned to random removals and asked of what is left of the test images."
        ]
    return ["Networks were retrained, but nothing was removed from the inputs of the model itself."]


def parts(result: AxisResult) -> list[Chart | Panel]:
    """Return what faithfulness would show among its own: curves, cost and consistency of retraining, or the leak."""
    if result.axis.name == LEAKAGE.name:
        return leakage_charts(result)
    leakage_has_its_own_section = (result.related["evaluation"] == LEAKAGE.name).any()
    drawn = [
        consistency_chart(result),
        *([] if leakage_has_its_own_section else leakage_charts(result)),
        *retraining_charts(result),
        cost_panel(result),
    ]
    return [part for part in drawn if part is not None]


PAGE = Page(lead, parts)


def retrained_cube(result: AxisResult, axis: Axis = RETRAINING) -> Cube | None:
    """Return what networks retrained on the data of a result score, the mean over repeats; None where there are none."""
    cubes = arrange(result.related[result.related["evaluation"] == axis.name])
    return cubes[0] if cubes else None


def retraining_charts(result: AxisResult) -> list[Chart | None]:
    """Return the curves of ROAR and KAR, and those of F-Fidelity."""
    return [retraining_chart(result, axis) for axis in (RETRAINING, FIDELITY)]


def retraining_chart(result: AxisResult, axis: Axis = RETRAINING) -> Chart | None:
    """Return the accuracy of networks trained or tuned on what is left, against the fraction removed."""
    cube = retrained_cube(result, axis)
    if cube is None:
        return None
    cells = frames.with_makeup(statistics.summary([cube]), cube)
    known_looks = {**looks(cube.explainers, cube.controls), **result.looks}
    order = dict.fromkeys([*frames.explainer_order(result.cube), *cube.explainers])
    ordered_looks = {explainer: known_looks[explainer] for explainer in order}
    plots_by_imputer = {}
    for imputer in frames.imputers(cube):
        random_order = random_curve(cube, imputer, "accuracy")
        of_imputer = cells[cells["imputer"] == imputer]
        plots = removal_plots(of_imputer, ordered_looks, "accuracy", random_order)
        if plots:
            plots_by_imputer[imputer] = plots
    if not plots_by_imputer:
        return None
    (imputer, plots), *others = plots_by_imputer.items()
    caption = f"{_caption(result, axis)} Filled in by {removal_words(imputer)}."
    alt = f"Accuracy of {axis.title} over fractions for {len(cube.explainers)} methods."
    return Chart(axis.name.replace("_", "-"), axis.title, caption, alt, plots, dict(others))


def _caption(result: AxisResult, axis: Axis) -> str:
    """Return what the networks were trained on and asked, and how a curve is read."""
    settings = result.manifest.study.evaluation(axis.name).parameters
    truth = "the model’s prediction" if settings.get("against") == "prediction" else "the label"
    repeats = result.related.loc[result.related["evaluation"] == axis.name, "repeat"].nunique()
    if axis is FIDELITY:
        how = (
            "One network, tuned on images of which random parts are gone, is asked about held-out images whose most "
            "(MoRF, solid) or least relevant (LeRF, dashed) pixels are"
        )
    else:
        how = (
            "Networks trained anew on images whose most relevant (MoRF, solid: ROAR) or least relevant (LeRF, dashed: "
            "KAR) pixels are gone, and tested on held-out images treated alike"
        )
    return (
        f"{how}; accuracy against {truth}. A faithful map gives low curves with MoRF and high ones with LeRF. Mean of "
        f"{repeats} network{'s' if repeats != 1 else ''} per point; bars are 95 % intervals over test images and leave "
        "out the luck of training."
    )


def seconds_spent(manifest: Manifest, evaluation: str) -> float:
    """Return the seconds that the sessions of a run spent on an evaluation; NaN where none says so."""
    durations = [session.durations for session in manifest.sessions]
    spent = [seconds[evaluation] for seconds in durations if evaluation in seconds]
    return float(sum(spent)) if spent else math.nan


def cost_panel(result: AxisResult) -> Panel | None:
    """Return what a point of a curve costs with and without retraining."""
    retrained = result.related[result.related["evaluation"] == RETRAINING.name]
    if retrained.empty:
        return None
    networks = len(retrained[["explainer", "condition", "level", "repeat"]].drop_duplicates())
    seconds = seconds_spent(result.manifest, RETRAINING.name)
    entries = [("Retraining", seconds, networks, "networks")]
    if result.axis.name != RETRAINING.name:
        on_curve = result.rows["order"].isin(list(ORDERS)) & (result.rows["measure"] == "accuracy")
        swept = len(
            result.rows.loc[on_curve, ["explainer", "condition", "level"]].drop_duplicates()
        )
        without = seconds_spent(result.manifest, result.label)
        entries.insert(0, ("Without retraining", without, swept, "points"))
    entries = [entry for entry in entries if math.isfinite(entry[1]) and entry[2]]
    if not entries:
        return None
    rows = [
        Row([name, f"{_seconds(spent)} s", f"{count} {what}", f"{_seconds(spent / count)} s"])
        for name, spent, count, what in entries
    ]
    caption = "A point is one method, order, imputer and fraction. "
    if len(entries) == 2 and entries[0][1] > 0:
        each_without, each_retrained = (spent / count for _, spent, count, _ in entries)
        caption += (
            f"Here a point costs {_count(each_retrained / each_without)} times as much with retraining. The time "
            "without it includes every other metric of this evaluation. "
        )
    if (result.related["evaluation"] == LEAKAGE.name).any():
        caption += "The probes of the leak are not counted. "
    caption += "Seconds of all sessions of the run, on the machine that ran them."
    table = grid(["", "Time", "For", "Each"], rows, "Cost")
    return Panel("cost", "What retraining costs", caption, table)


def _count(value: float) -> str:
    """Return a number from 10 on whole, with thin spaces between thousands, and a smaller one with two digits."""
    return f"{value:,.0f}".replace(",", "\u202f") if value >= 10 else f"{value:.2g}"


def _seconds(value: float) -> str:
    return _count(value) if value >= 100 else f"{value:.3g}"
