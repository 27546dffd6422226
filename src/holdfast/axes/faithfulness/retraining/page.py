"""Retraining on the page: the curves of ROAR and KAR, and what they cost beside removal without it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from holdfast import statistics
from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness.curve_charts import add_curves, lay_out
from holdfast.axes.faithfulness.frames import LEAKAGE, RETRAINING, explainer_order, primary_first
from holdfast.drawing.charts import Chart, Panel, blank_figure
from holdfast.statistics.cubes import Cube, arrange

PANELS = {"morf": "ROAR: most relevant gone, should be low", "lerf": "KAR: least relevant gone, should be high"}


def retrained_cubes(related: pd.DataFrame, model: str) -> list[Cube]:
    """Accuracies of retrained networks as a cube of the model they come from, per sample the mean over repeats."""
    if related.empty:
        return []
    rows = related[(related["evaluation"] == RETRAINING) & (related["measure"] == "accuracy")]
    if rows.empty:
        return []
    keys = ["dataset", "evaluation", "explainer", "condition", "level", "sample", "measure"]
    value = rows["value"].where(rows["status"] == "ok").astype(np.float64)
    mean = rows.assign(value=value).groupby(keys, sort=False, observed=True)["value"].mean().reset_index()
    status = np.where(mean["value"].notna(), "ok", "undefined")
    return arrange(mean.assign(model=model, status=status, reason="", low=math.nan, high=math.nan))


def retraining_chart(axis: Judged) -> Chart | None:
    """Accuracy of networks trained anew on what is left, against the fraction removed: ROAR and KAR."""
    cubes = retrained_cubes(axis.related, axis.cube.model)
    if not cubes:
        return None
    cube = cubes[0]
    cells = statistics.summary([cube])
    cells = cells[cells["mean"].notna()]
    if cells.empty:
        return None
    imputers = primary_first(dict.fromkeys(cells["condition"].str.rsplit(" ", n=1).str[0]))
    order = list(dict.fromkeys([*explainer_order(axis.cube), *cube.explainers]))  # colours as in the other charts
    drawn = [(imputer, _figure(cells, imputer, order)) for imputer in imputers]
    views = [(imputer, figure) for imputer, figure in drawn if figure is not None]
    if not views:
        return None
    repeats = axis.related.loc[axis.related["evaluation"] == RETRAINING, "model"].nunique()
    caption = "Networks trained anew on images whose most relevant (ROAR) or least relevant (KAR) pixels are gone, and "
    caption += "tested on held-out images treated alike; accuracy against the label. A faithful map gives low curves "
    caption += f"in ROAR and high ones in KAR. Mean of {repeats} network{'s' if repeats != 1 else ''} per point; "
    caption += "bands are 95 % bootstrap intervals over test images and leave out the luck of training."
    alt = f"Accuracy of retrained networks over fractions for {len(cube.explainers)} methods."
    return Chart("retraining", "Retraining", caption, alt, views if len(views) > 1 else [("", views[0][1])], 620)


def _figure(cells: pd.DataFrame, imputer: str, explainers: list[str]) -> go.Figure | None:
    """Both orders of one imputer; None where it only has a random one."""
    shown = [order for order in PANELS if (cells["condition"] == f"{imputer} {order}").any()]
    if not shown:
        return None
    figure = blank_figure()
    for order, yaxis in zip(shown, ("y", "y2"), strict=False):
        control = cells[cells["condition"] == f"{imputer} random"].drop_duplicates("level")
        add_curves(figure, cells[cells["condition"] == f"{imputer} {order}"], control, explainers, yaxis)
    lay_out(figure, [PANELS[order] for order in shown], "accuracy", sorted(set(cells["level"])))
    return figure


def seconds_spent(manifest: Mapping[str, Any], evaluation: str) -> float:
    """Seconds that the sessions of a run spent on an evaluation; NaN where none says so.

    >>> seconds_spent({"sessions": [{"durations": {"road": 3.0}}, {}, {"durations": {"road": 1.0}}]}, "road")
    4.0
    """
    spent = [s["durations"][evaluation] for s in manifest.get("sessions") or [] if evaluation in s.get("durations", {})]
    return float(sum(spent)) if spent else math.nan


def cost_panel(axis: Judged) -> Panel | None:
    """What a point of a curve costs with and without retraining."""
    again = axis.related[axis.related["evaluation"] == RETRAINING] if len(axis.related) else axis.related
    if again.empty:
        return None
    trained = len(again[["model", "explainer", "condition", "level"]].drop_duplicates())
    ends = axis.rows["condition"].str.endswith((" morf", " lerf")) & (axis.rows["measure"] == "accuracy")
    swept = len(axis.rows.loc[ends, ["explainer", "condition", "level"]].drop_duplicates())
    entries = [("Retraining", seconds_spent(axis.manifest, RETRAINING), trained, "networks")]
    if axis.cube.evaluation != RETRAINING:
        plain = seconds_spent(axis.manifest, axis.cube.evaluation)
        entries.insert(0, ("Without retraining", plain, swept, "points"))
    entries = [entry for entry in entries if math.isfinite(entry[1]) and entry[2]]
    if not entries:
        return None
    row = Markup('<tr><th scope="row">{}</th><td>{} s</td><td>{} {}</td><td>{} s</td></tr>')
    body = Markup("").join(row.format(n, _seconds(s), k, what, _seconds(s / k)) for n, s, k, what in entries)
    head = Markup("".join(f'<th scope="col">{title}</th>' for title in ("", "Time", "For", "Each")))
    table = Markup(
        '<div class="scroll" role="region" aria-label="Cost" tabindex="0"><table><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>"
    ).format(head, body)
    caption = "A point is one method, order, imputer and fraction. "
    if len(entries) == 2 and entries[0][1] > 0:
        ratio = (entries[1][1] / entries[1][2]) / (entries[0][1] / entries[0][2])
        caption += (
            f"Here a point costs {_count(ratio)} times as much with retraining. The time without it includes every "
        )
        caption += "other metric of this evaluation. "
    if (axis.related["evaluation"] == LEAKAGE).any():
        caption += "The probes of the leak are not counted. "
    caption += "Seconds of all sessions of the run, on the machine that ran them."
    return Panel("cost", "What retraining costs", caption, table)


def _count(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f") if value >= 10 else f"{value:.2g}"


def _seconds(value: float) -> str:
    return _count(value) if value >= 100 else f"{value:.3g}"
