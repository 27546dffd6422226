"""Faithfulness on the page: removal curves, rankings, their consistency, the leak, retraining, and one image going."""

from __future__ import annotations

import html
from collections.abc import Iterable

import pandas as pd
import plotly.graph_objects as go

from holdfast import statistics
from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness import frames as scores
from holdfast.axes.faithfulness.checks import consistency_chart, leakage_charts
from holdfast.axes.faithfulness.curve_charts import curve_chart
from holdfast.axes.faithfulness.frames import BY_MEASURE, LEAKAGE, RANDOM, RETRAINING, Metric
from holdfast.axes.faithfulness.nouns import IMAGE, Nouns, nouns
from holdfast.axes.faithfulness.retraining.page import cost_panel, retrained_cubes, retraining_chart
from holdfast.axes.faithfulness.strip import strip
from holdfast.axes.faithfulness.words import lead
from holdfast.drawing.charts import CONTROL, PALETTE, Chart, Panel, blank_figure, error_bars, label, point, rounded
from holdfast.drawing.prose import number, records, with_interval
from holdfast.report.frontier import frontier_chart
from holdfast.statistics.bootstrap import mean_of_finite
from holdfast.statistics.cubes import Cube, arrange

__all__ = ["lead", "parts", "retrained_cubes"]

MOST_VIEWS = 4
"""More buttons do not fit beside each other on a phone; what has no view is among all numbers."""


def parts(axis: Judged) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    kind = str(axis.settings.get("name") or axis.cube.evaluation)
    drawn: list[Chart | Panel | None] = []
    if kind not in (RETRAINING, LEAKAGE):
        order = scores.explainer_order(axis.cube)
        drawn += [curve_chart(axis, imputer, order) for imputer in scores.imputers(axis.cube)]
        drawn += [ranking_chart(axis), other_metrics_chart(axis.cube, nouns(axis)), strip(axis.exhibits, order)]
    drawn += [consistency_chart(axis), *leakage_charts(axis), retraining_chart(axis), cost_panel(axis)]
    drawn += [frontier_chart(stability, axis.cube) for stability in stability_cubes(axis)]
    return [part for part in drawn if part is not None]


def stability_cubes(axis: Judged) -> list[Cube]:
    """The stability of the same dataset and model, where it was tested."""
    if axis.related.empty:
        return []
    own = axis.related[axis.related["model"] == axis.cube.model]
    judged = own[own["evaluation"].isin(own.loc[own["measure"] == "fass", "evaluation"].unique())]
    return arrange(judged)


def ranking_chart(axis: Judged) -> Chart | None:
    """Explainers by ROAD with intervals beside a random order; other readings of the same curves as views."""
    measures = ("road", "deletion_auc", "insertion_auc", "aopc", "pixel_flipping")
    views = metric_views(axis.cube, [BY_MEASURE[m] for m in measures])[:MOST_VIEWS]
    if not views:
        return None
    readout = str(axis.settings.get("readout") or "probability")
    meanings = {
        "ROAD": f"the mean over fractions of (LeRF − MoRF) / 2 of the {readout}, higher is better",
        "Deletion": "the area under the MoRF curve of the probability, lower is better",
        "Insertion": "the area under the LeRF curve of the probability, higher is better",
        "AOPC": f"the mean drop of the {readout} along MoRF, higher is better",
        "Flipping": "the area under the MoRF curve of the logit, lower is better",
    }
    said = "; ".join(f"{name}: {meanings[name]}" for name, _ in views)
    caption = f"{said}. The best is at the top. {_READ_DOTS}"
    return _metric_chart(
        "ranking", "Ranking by ROAD" if views[0][0] == "ROAD" else "Ranking", caption, views, axis.cube
    )


def other_metrics_chart(cube: Cube, words: Nouns = IMAGE) -> Chart | None:
    """IROF and what the bank of random masks says."""
    measures = ("irof", "faithfulness_correlation", "sensitivity_n", "infidelity_scaled", "infidelity")
    views = metric_views(cube, [BY_MEASURE[m] for m in measures])[:MOST_VIEWS]
    if not views:
        return None
    meanings = {
        "IROF": f"{words.segments} go, the most relevant first; the area over the curve, higher is better",
        "Correlation": f"of what a map gives to random sets of {words.segments} with what removing them does to the "
        "logit, higher is better, 0 is chance",
        "Sens.-n": "the same over sets of one size, higher is better",
        "Infidelity": "the mean squared gap between the two after the best scaling, lower is better",
        "Unscaled": "infidelity, the mean squared gap between what a map gives to random sets and what removing them "
        "does, without scaling, lower is better; it only says something of maps in the unit of the logit",
    }
    said = " ".join(f"{name}: {meanings[name]}." for name, _ in views)
    if "infidelity" in cube.values and "Unscaled" not in dict(views):
        said += " Infidelity without scaling, which only says something of maps in the unit of the logit, is among all "
        said += "numbers."
    title = f"{words.segments.capitalize()} and random masks"
    return _metric_chart("masks", title, f"{said} {_READ_DOTS}", views, cube)


_READ_DOTS = "Dots are means with 95 % bootstrap intervals over samples, vertical lines the same for a random order, "
_READ_DOTS += "hollow dots controls that do not look at the model."


def _metric_chart(key: str, title: str, caption: str, views: list[tuple[str, go.Figure]], cube: Cube) -> Chart:
    alt = f"Dot plots of {len(cube.explainers)} explainers by {', '.join(name for name, _ in views)}."
    many = max(len(figure.data) for _, figure in views)
    height = max(len(cube.explainers), 2) * (34 if many < 4 else 44) + 120
    return Chart(key, title, caption, alt, views, height)


def metric_views(cube: Cube, metrics: Iterable[Metric]) -> list[tuple[str, go.Figure]]:
    """A dot plot for every metric that has numbers."""
    return [(metric.title, metric_figure(cube, metric)) for metric in metrics if scores.lines(cube, metric)]


def metric_figure(cube: Cube, metric: Metric) -> go.Figure:
    """Means with intervals, a colour for every imputer, the order that of the first one."""
    found = {line: scores.standings(cube, metric, line) for line in scores.lines(cube, metric)}
    order = list(dict.fromkeys(e for rows in found.values() for e in rows["explainer"]))
    place = {e: len(order) - 1 - i for i, e in enumerate(order)}
    figure = blank_figure(x_title=f"{metric.axis}, {metric.better}")
    legend = len(found) > 1 or any(statistics.is_control(e) for e in order)
    for k, (line, rows) in enumerate(found.items()):
        offset = 0.62 * (0.5 - (k + 0.5) / len(found))
        for control in (False, True):
            part = rows[rows["control"] == control]
            if part.empty:
                continue
            colour = CONTROL if control and len(found) == 1 else PALETTE[k % len(PALETTE)]
            kind = "control" if control else "method"
            figure.add_scatter(
                x=rounded(part["mean"]),
                y=rounded([place[e] + offset for e in part["explainer"]]),
                error_x=error_bars(part["mean"], part["low"], part["high"], colour),
                mode="markers",
                name=kind if len(found) == 1 else label(line.name + (", control" if control else ""), 60),
                legendgroup=label(line.name, 60),
                showlegend=legend,
                marker=point(colour, 10 if len(found) == 1 else 8, control),
                hovertext=[
                    f"{html.escape(r.explainer)}, {html.escape(line.name)}: "
                    f"{with_interval(r.mean, r.low, r.high, 3)}, {r.n} samples"
                    for r in records(part)
                ],
                hoverinfo="text",
            )
    _add_random_levels(figure, cube, metric, list(found), len(order))
    values = pd.concat(found.values())[["mean", "low", "high"]].stack()
    if values.min() > 0 and values.max() > 50 * values.min():
        figure.update_xaxes(type="log")
    figure.update_yaxes(
        tickvals=list(place.values()), ticktext=[label(e) for e in order], range=[-0.6, len(order) - 0.4]
    )
    return figure


def _add_random_levels(figure: go.Figure, cube: Cube, metric: Metric, found: list[scores.Line], rows: int) -> None:
    levels: dict[str, float] = {}
    for line in found:
        chance = scores.random_scores(cube, metric, line)
        if chance is not None:
            name = RANDOM if metric.chance == "zero" or len(found) == 1 else f"{RANDOM}, {line.name}"
            levels[name] = float(mean_of_finite(chance))
    for k, (name, value) in enumerate(levels.items()):
        figure.add_scatter(
            x=rounded([value, value]),
            y=[-0.6, rows - 0.4],
            mode="lines",
            name=label(name, 60),
            line={"color": CONTROL if len(levels) == 1 else PALETTE[k % len(PALETTE)], "width": 1.5, "dash": "dash"},
            hovertext=f"{html.escape(name)}: {number(value, 3)}",
            hoverinfo="text",
        )
