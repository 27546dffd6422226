"""Faithfulness on the page: removal curves, rankings, their consistency, the leak, retraining, and one image going."""

from __future__ import annotations

import html
from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from holdfast.axes.contract import Judged, Measure, Page
from holdfast.axes.faithfulness import frames
from holdfast.axes.faithfulness.checks import consistency_chart, leakage_charts
from holdfast.axes.faithfulness.curve_charts import curve_chart
from holdfast.axes.faithfulness.frames import BY_NAME, RANDOM, better, short
from holdfast.axes.faithfulness.retraining.page import cost_panel, retraining_chart
from holdfast.axes.faithfulness.strip import strip
from holdfast.axes.faithfulness.words import lead
from holdfast.drawing.charts import CONTROL, PALETTE, Chart, Panel, blank_figure, error_bars, label, point, rounded
from holdfast.drawing.prose import number, records, with_interval
from holdfast.statistics.bootstrap import mean_of_finite
from holdfast.statistics.cubes import Cube

MOST_VIEWS = 4
"""More buttons do not fit beside each other on a phone; what has no view is among all numbers."""


def parts(judged: Judged) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    order = frames.explainer_order(judged.cube)
    drawn: list[Chart | Panel | None] = [curve_chart(judged, name, order) for name in frames.imputers(judged.cube)]
    drawn += [ranking_chart(judged), other_metrics_chart(judged), strip(judged, order)]
    drawn += [consistency_chart(judged), *leakage_charts(judged), retraining_chart(judged), cost_panel(judged)]
    return [part for part in drawn if part is not None]


PAGE = Page(lead, parts)


def ranking_chart(judged: Judged) -> Chart | None:
    """Explainers by ROAD with intervals beside a random order; other readings of the same curves as views."""
    read = frames.readout(judged)
    meanings = {
        "road": f"the mean over fractions of (LeRF − MoRF) / 2 of the {read}, higher is better",
        "deletion_auc": "the area under the MoRF curve of the probability, lower is better",
        "insertion_auc": "the area under the LeRF curve of the probability, higher is better",
        "aopc": f"the mean drop of the {read} along MoRF, higher is better",
        "pixel_flipping": "the area under the MoRF curve of the logit, lower is better",
    }
    shown = _with_numbers(judged.cube, meanings)
    if not shown:
        return None
    said = "; ".join(f"{short(measure)}: {meanings[measure.name]}" for measure in shown)
    caption = f"{said}. The best is at the top. {_READ_DOTS}"
    title = "Ranking by ROAD" if shown[0].name == "road" else "Ranking"
    return _metric_chart("ranking", title, caption, shown, judged.cube)


def other_metrics_chart(judged: Judged) -> Chart | None:
    """IROF and what the bank of random masks says."""
    segments = frames.words(judged).segments
    meanings = {
        "irof": f"{segments} go, the most relevant first; the area over the curve, higher is better",
        "faithfulness_correlation": f"of what a map gives to random sets of {segments} with what removing them does to "
        "the logit, higher is better, 0 is chance",
        "sensitivity_n": "the same over sets of one size, higher is better",
        "infidelity_scaled": "the mean squared gap between the two after the best scaling, lower is better",
        "infidelity": "infidelity, the mean squared gap between what a map gives to random sets and what removing them "
        "does, without scaling, lower is better; it only says something of maps in the unit of the logit",
    }
    shown = _with_numbers(judged.cube, meanings)
    if not shown:
        return None
    said = " ".join(f"{short(measure)}: {meanings[measure.name]}." for measure in shown)
    if "infidelity" in judged.cube.values and BY_NAME["infidelity"] not in shown:
        said += " Infidelity without scaling, which only says something of maps in the unit of the logit, is among all "
        said += "numbers."
    return _metric_chart(
        "masks", f"{segments.capitalize()} and random masks", f"{said} {_READ_DOTS}", shown, judged.cube
    )


def _with_numbers(cube: Cube, meanings: Mapping[str, str]) -> list[Measure]:
    """The first of these headlines that have numbers."""
    return [BY_NAME[name] for name in meanings if frames.lines(cube, BY_NAME[name])][:MOST_VIEWS]


_READ_DOTS = "Dots are means with 95 % bootstrap intervals over samples, vertical lines the same for a random order, "
_READ_DOTS += "hollow dots controls that do not look at the model."


def _metric_chart(key: str, title: str, caption: str, shown: list[Measure], cube: Cube) -> Chart:
    views = [(short(measure), metric_figure(cube, measure)) for measure in shown]
    alt = f"Dot plots of {len(cube.explainers)} explainers by {', '.join(name for name, _ in views)}."
    many = max(len(figure.data) for _, figure in views)
    height = max(len(cube.explainers), 2) * (34 if many < 4 else 44) + 120
    return Chart(key, title, caption, alt, views, height)


def metric_figure(cube: Cube, measure: Measure) -> go.Figure:
    """Means with intervals, a colour for every imputer, the order that of the first one."""
    read = {line: frames.standings(cube, measure, line) for line in frames.lines(cube, measure)}
    order = list(dict.fromkeys(e for rows in read.values() for e in rows["explainer"]))
    place = {e: len(order) - 1 - i for i, e in enumerate(order)}
    figure = blank_figure(x_title=f"{measure.title}, {better(measure)}")
    legend = len(read) > 1 or any(e in cube.controls for e in order)
    for k, (line, rows) in enumerate(read.items()):
        offset = 0.62 * (0.5 - (k + 0.5) / len(read))
        for control in (False, True):
            part = rows[rows["control"] == control]
            if part.empty:
                continue
            colour = CONTROL if control and len(read) == 1 else PALETTE[k % len(PALETTE)]
            kind = "control" if control else "method"
            figure.add_scatter(
                x=rounded(part["mean"]),
                y=rounded([place[e] + offset for e in part["explainer"]]),
                error_x=error_bars(part["mean"], part["low"], part["high"], colour),
                mode="markers",
                name=kind if len(read) == 1 else label(line.name + (", control" if control else ""), 60),
                legendgroup=label(line.name, 60),
                showlegend=legend,
                marker=point(colour, 10 if len(read) == 1 else 8, control),
                hovertext=[
                    f"{html.escape(r.explainer)}, {html.escape(line.name)}: "
                    f"{with_interval(r.mean, r.low, r.high, 3)}, {r.n} samples"
                    for r in records(part)
                ],
                hoverinfo="text",
            )
    _add_random_levels(figure, cube, measure, list(read), len(order))
    values = pd.concat(read.values())[["mean", "low", "high"]].stack()
    if values.min() > 0 and values.max() > 50 * values.min():
        figure.update_xaxes(type="log")
    figure.update_yaxes(
        tickvals=list(place.values()), ticktext=[label(e) for e in order], range=[-0.6, len(order) - 0.4]
    )
    return figure


def _add_random_levels(figure: go.Figure, cube: Cube, measure: Measure, lines: list[frames.Line], rows: int) -> None:
    levels: dict[str, float] = {}
    for line in lines:
        chance = frames.random_scores(cube, measure, line)
        if chance is not None:
            name = RANDOM if measure.chance == "zero" or len(lines) == 1 else f"{RANDOM}, {line.name}"
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
