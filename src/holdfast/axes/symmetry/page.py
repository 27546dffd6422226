"""The symmetry section of the page: scores by method, against the model's own invariance, repair and sensitivity."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from holdfast.axes.contract import Judged, Page
from holdfast.axes.symmetry.flowchart import flow_chart
from holdfast.axes.symmetry.frames import KINDS, SCORES, Symmetries, repaired, symmetries
from holdfast.axes.symmetry.panels import failures, layer_table
from holdfast.axes.symmetry.relations import (
    GUIDE,
    dots,
    models_chart,
    relaxed_chart,
    score_title,
    sensitivity_chart,
    thinned,
)
from holdfast.axes.symmetry.words import lead, score
from holdfast.drawing.charts import (
    CONTROL,
    PALETTE,
    Chart,
    Panel,
    blank_figure,
    curve_styles,
    error_bars,
    faint,
    label,
    point,
    rounded,
)
from holdfast.drawing.prose import number, records

ABOVE, BELOW = 0.1, 0.28  # where the box and the mean of a row are drawn, so that they do not cover each other
MEANINGS = {
    "equivariance": "1 means that the map moves exactly as the input does",
    "invariance": "1 means that the importances of examples or concepts do not change",
}


def parts(judged: Judged) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    measured = symmetries(judged)
    drawn: list[Chart | Panel | None] = []
    if measured is not None:
        drawn += [box_chart(measured), flow_chart(measured), relaxed_chart(measured)]
        drawn += [repair_chart(measured), sensitivity_chart(measured)]
    drawn += [layer_table(judged), failures(judged, measured)]
    return [part for part in drawn if part is not None]


def across(judged: Sequence[Judged]) -> list[Chart]:
    """How symmetry of explanations goes with that of the model, for every evaluation of several models on one dataset.

    >>> across([])
    []
    """
    models: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        models.setdefault((one.cube.dataset, one.cube.evaluation), []).append(one)
    charts = (models_chart(dataset, every) for (dataset, _), every in models.items())
    return [chart for chart in charts if chart is not None]


def box_chart(measured: Symmetries) -> Chart | None:
    """A box per method over its samples, with mean, chance and floor; the best at the top of its kind."""
    rows = measured.means[measured.means["mean"].notna()].iloc[::-1]
    if rows.empty:
        return None
    figure = blank_figure(x_title=score_title(rows["measure"]))
    height = {e: float(i) for i, e in enumerate(rows["explainer"])}
    several = rows["kind"].nunique() > 1
    for r in records(rows):
        scores = measured.scores[(measured.scores["explainer"] == r.explainer) & measured.scores["value"].notna()]
        _add_box(figure, scores, height[r.explainer] + ABOVE, _colour(r.kind, r.control), dots(len(rows)))
    for (kind, control), part in rows.iloc[::-1].groupby(["kind", "control"], sort=False):
        at = [height[e] - BELOW for e in part["explainer"]]
        _add_means(figure, part, at, _colour(str(kind), bool(control)), bool(control), str(kind) if several else "")
    for column, name, symbol, size in (
        ("chance", "chance", "line-ns-open", 22),
        ("floor", "floor: same input, other draws", "diamond-open", 10),
    ):
        part = rows[rows[column].notna()]
        if len(part):
            figure.add_scatter(
                x=rounded(part[column]),
                y=[height[e] + ABOVE for e in part["explainer"]],
                mode="markers",
                name=name,
                marker={"symbol": symbol, "size": size, "color": GUIDE, "line": {"width": 2, "color": GUIDE}},
                hovertext=[
                    f"{html.escape(e)}: {column} {number(x)}"
                    for e, x in zip(part["explainer"], part[column], strict=True)
                ],
                hoverinfo="text",
            )
    low = float(np.nanmin([measured.scores["value"].min(), rows["chance"].min(), rows["floor"].min()]))
    figure.update_yaxes(tickvals=list(height.values()), range=[-0.7, len(rows) - 0.35], showgrid=False)
    figure.update_yaxes(ticktext=[_row_label(r.explainer, r.kind if several else "") for r in records(rows)])
    figure.update_layout(xaxis={"range": [min(0.0, low) - 0.03, 1.03], "zeroline": low < 0})
    best = measured.means.iloc[0]
    alt = f"Box plots of {len(rows)} explainers over samples; first {best['explainer']} with {number(best['mean'])}."
    size = max(len(rows), 2) * 52 + 130
    return Chart("boxes", "Scores by method", _box_caption(measured, rows), alt, [("", figure)], size)


def _box_caption(measured: Symmetries, rows: pd.DataFrame) -> str:
    caption = f"Group: {measured.title}. {'; '.join(MEANINGS[m] for m in SCORES if m in set(rows['measure']))}. "
    caption += "Boxes hold the middle half of the samples, whiskers reach to the last within 1.5 box lengths, dots are "
    caption += "samples; under each box the mean with its 95 % interval. "
    if rows["chance"].notna().any():
        caption += "Short lines mark chance, the score against the explanations of other samples"
        lifted = measured.whole and measured.elements > 1
        caption += ", with the identity counted, which always scores 1. " if lifted else ". "
    if rows["floor"].notna().any():
        caption += "Diamonds mark what a random method scores against itself on the same input. "
    if rows["control"].any():
        caption += "Grey methods are controls. "
    if measured.whole:
        return f"{caption}All {measured.elements} elements of the group were tried, so there is no Monte-Carlo error."
    error = number(float(rows["error"].median()))
    caption += f"{measured.elements} elements were drawn for each sample: a dot is known to ±{error} (median bound), "
    return caption + "and the intervals of the means include that error."


def _add_box(figure: go.Figure, scores: pd.DataFrame, at: float, colour: str, most: int) -> None:
    values = scores["value"].to_numpy(dtype=np.float64)
    q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75])
    reach = 1.5 * (q3 - q1)
    inside = values[(values >= q1 - reach) & (values <= q3 + reach)]
    shown = scores.iloc[thinned(len(scores), most)]
    figure.add_box(
        y=[at],
        x=[rounded(shown["value"])],
        text=[[html.escape(s) for s in shown["sample"]]],
        q1=rounded([q1]),
        median=rounded([median]),
        q3=rounded([q3]),
        lowerfence=rounded([inside.min()]),
        upperfence=rounded([inside.max()]),
        orientation="h",
        boxpoints="all",
        jitter=0.6,
        pointpos=0,
        width=0.46,
        line={"color": colour, "width": 1.5},
        fillcolor=faint(colour, 0.14),
        marker={"size": 4, "opacity": 0.35, "color": colour},
        hoveron="points",
        hovertemplate="%{text}: %{x:.3f}<extra></extra>",
        showlegend=False,
    )


def _add_means(figure: go.Figure, part: pd.DataFrame, at: list[float], colour: str, control: bool, kind: str) -> None:
    figure.add_scatter(
        x=rounded(part["mean"]),
        y=at,
        error_x=error_bars(part["mean"], part["mean_low"], part["mean_high"], colour, thickness=2.5),
        mode="markers",
        name=", ".join(filter(None, ("mean", kind, "control" if control else ""))),
        marker=point(colour, 9, control),
        hovertext=[
            f"{html.escape(r.explainer)}: {score(r.mean, r.mean_low, r.mean_high)}, {r.n} of {r.attempted} samples"
            for r in records(part)
        ],
        hoverinfo="text",
    )


def repair_chart(measured: Symmetries) -> Chart | None:
    """The score of a method averaged over n elements, from the plain one at n = 1."""
    rows = repaired(measured)
    if rows.empty:
        return None
    figure = blank_figure("n, elements averaged over", score_title(rows["measure"]))
    order = [e for e in measured.means["explainer"] if e in set(rows["explainer"])]
    for explainer, (colour, symbol) in curve_styles(order, measured.controls).items():
        curve = rows[rows["explainer"] == explainer]
        figure.add_scatter(
            x=rounded(curve["level"]),
            y=rounded(curve["mean"]),
            error_y=error_bars(curve["mean"], curve["low"], curve["high"], colour, thickness=1.5),
            name=label(explainer, 60),
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": "dot" if colour == CONTROL else "solid"},
            marker={"color": colour, "symbol": symbol, "size": 8},
            hovertext=[
                f"{html.escape(explainer)}, n = {r.level:g}: {score(r.mean, r.low, r.high)}" for r in records(curve)
            ],
            hoverinfo="text",
        )
    levels = sorted(set(rows["level"]))
    low = float(np.nanmin(rows[["mean", "low"]].to_numpy(dtype=np.float64)))
    figure.update_layout(yaxis={"range": [min(0.0, low) - 0.03, 1.05]})
    figure.update_layout(xaxis={"type": "log", "tickvals": levels, "ticktext": [f"{n:g}" for n in levels]})
    caption = "The explanation averaged over n elements, at the cost of n explanations; n = 1 is the method as it is. "
    nearly = "nearly " if measured.interpolates else ""
    caption += (
        f"Over the whole group the score is {nearly}1 by construction, which says nothing about faithfulness and "
    )
    caption += "is only worth having where the model is invariant. "
    if measured.invariant is False:
        caption += "This model is not: averaging hides what it does differently on moved inputs. "
    alt = f"Curves of the score over {len(levels)} numbers of elements for {len(order)} methods."
    caption += "Bars are 95 % intervals over samples."
    return Chart("repair", "Symmetrised explanations", caption, alt, [("", figure)], 420)


def _row_label(explainer: str, kind: str) -> str:
    return label(explainer) + (f"<br><i>{kind}</i>" if kind else "")


def _colour(kind: str, control: bool) -> str:
    return CONTROL if control else PALETTE[KINDS.index(kind) % len(PALETTE)]


PAGE = Page(lead, parts, across)
