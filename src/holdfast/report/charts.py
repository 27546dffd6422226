"""The page's charts as Plotly figures: pure functions of the findings.

Colours that depend on light or dark (ink, grid lines, backgrounds) are left to the page, which fills them in from its
style sheet; the figures only hold what carries meaning.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from holdfast import statistics
from holdfast.perturbations import title
from holdfast.report.verdict import Findings, number, records, with_interval

# Okabe and Ito's colours without black and yellow, which vanish on a dark or a light page
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8D91")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
CONTROL = "#8A8D91"
COMPONENT_NAMES = {"ssim": "SSIM", "spearman": "Spearman", "jaccard": "Jaccard", "fass": "FASS"}
WRAP = 18


@dataclass(frozen=True)
class Chart:
    """A figure with one or more views to switch between, a caption and a sentence for those who cannot see it.

    A figure with many `columns` scrolls inside its frame on a narrow screen instead of being squeezed.
    """

    key: str
    title: str
    caption: str
    alt: str
    views: list[tuple[str, go.Figure]]
    height: int
    columns: int = 0


def label(text: str, width: int = WRAP) -> str:
    """A name as a chart label: inert to Plotly's own mark-up and broken at underscores, commas and brackets.

    >>> label("integrated_gradients(steps=16)")
    'integrated_gradients<br>(steps=16)'
    >>> label("<script>")
    '&lt;script&gt;'
    """
    pieces: list[str] = [""]
    for char in text:
        if char == "(" and pieces[-1]:
            pieces.append("")
        pieces[-1] += char
        if char in "_, ":
            pieces.append("")
    lines: list[str] = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width + 2:
            lines.append("")
        lines[-1] += piece
    return "<br>".join(html.escape(line.strip()) for line in lines if line.strip())


def charts(found: Findings) -> list[Chart]:
    """The charts of one level per condition that the findings have data for, in reading order."""
    drawn = [ranking_chart(found), heat_map(found), components_chart(found), retention_chart(found)]
    return [chart for chart in drawn if chart is not None]


def curve_styles(explainers: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for the curve of each explainer; controls are grey and open."""
    styles: dict[str, tuple[str, str]] = {}
    methods = 0
    for explainer in explainers:
        if statistics.is_control(explainer):
            styles[explainer] = (CONTROL, "circle-open")
            continue
        # The marker moves on by one more with every round of colours, so that no two curves look alike.
        styles[explainer] = (PALETTE[methods % len(PALETTE)], SYMBOLS[(methods * 8 // 7) % len(SYMBOLS)])
        methods += 1
    return styles


def ranking_chart(found: Findings) -> Chart | None:
    """Overall scores as dots with their intervals, best at the top; controls are hollow."""
    rows = found.ranking[found.ranking["score"].notna()].iloc[::-1]
    if rows.empty:
        return None
    figure = blank_figure(x_title="calibrated score" if found.calibrated else "score")
    for control, name in ((False, "method"), (True, "control")):
        part = rows[rows["control"] == control]
        colour = CONTROL if control else PALETTE[0]
        figure.add_scatter(
            x=rounded(part["score"]),
            y=[label(e) for e in part["explainer"]],
            error_x=error_bars(part["score"], part["low"], part["high"], colour),
            mode="markers",
            name=name,
            marker={
                "color": colour,
                "size": 10,
                "symbol": "circle-open" if control else "circle",
                "line": {"width": 2, "color": colour},
            },
            hovertext=[
                f"{html.escape(r.explainer)}: {with_interval(r.score, r.low, r.high)}, raw {number(r.raw)}, "
                f"first in {100 * r.p_best:.0f} % of the draws"
                for r in records(part)
            ],
            hoverinfo="text",
            showlegend=bool(rows["control"].any()),
        )
    figure.update_yaxes(categoryorder="array", categoryarray=[label(e) for e in rows["explainer"]])
    figure.update_yaxes(range=[-0.6, len(rows) - 0.4])
    figure.update_layout(xaxis_zeroline=True, xaxis_range=_span(rows[["score", "low", "high"]]))
    first = found.ranking.iloc[0]
    caption = "Mean over perturbations, each aligned and calibrated where it can be. 0 is chance, 1 is a map that does "
    caption += "not change. Bars are 95 % bootstrap intervals over samples."
    alt = f"Dot plot of {len(rows)} explainers by score; first {first['explainer']} with {number(first['score'])}."
    return Chart("ranking", "Ranking", caption, alt, [("", figure)], _height(len(rows), 34))


def heat_map(found: Findings) -> Chart | None:
    """Explainer × perturbation, switchable between the best form, calibrated and raw scores."""
    cells = found.cells()
    if cells["mean"].isna().all():
        return None
    explainers = [e for e in found.ranking["explainer"] if e in set(cells["explainer"])][::-1]
    conditions = found.cube.conditions
    views = []
    forms = [("Aligned + calibrated", "best"), ("Calibrated", "calibrated"), ("Raw", "mean")]
    if cells["aligned_calibrated"].isna().all():
        forms = [form for form in forms if form[1] != "best"]
    for name, column in forms:
        if cells[column].isna().all():
            continue
        figure = _cell_map(cells, column, explainers, conditions)
        views.append((name, figure))
    caption = "Every explainer under every perturbation (FASS). Raw scores have a chance level that differs by method; "
    caption += "read the calibrated ones. Aligned scores move the clean map along with the image first."
    alt = f"Heat map of {len(explainers)} explainers by {len(conditions)} perturbations; the numbers are in the tables."
    return Chart(
        "heatmap",
        "Explainer × perturbation",
        caption,
        alt,
        views,
        _height(len(explainers), 38, 120),
        len(conditions) + 2,
    )


def components_chart(found: Findings) -> Chart | None:
    """SSIM, Spearman and Jaccard side by side for every explainer."""
    if not any(frame["score"].notna().any() for frame in found.components.values()):
        return None
    order = found.ranking["explainer"].tolist()
    views = []
    for name, columns in (("Calibrated", ("score", "low", "high")), ("Raw", ("raw", "raw_low", "raw_high"))):
        if name == "Calibrated" and not found.calibrated:
            continue
        figure = blank_figure(y_title=f"{name.lower()} score")
        for index, (component, frame) in enumerate(found.components.items()):
            part = frame.set_index("explainer").loc[order]
            value, low, high = (part[c] for c in columns)
            figure.add_bar(
                x=[label(e, 12) for e in order],
                y=rounded(value),
                error_y=error_bars(value, low, high, "rgba(128,128,128,.9)", width=2),
                name=COMPONENT_NAMES[component],
                marker={"color": PALETTE[index], "line": {"width": 0}},
                hovertext=[
                    f"{html.escape(e)}, {COMPONENT_NAMES[component]}: {with_interval(*row)}"
                    for e, row in zip(order, zip(value, low, high, strict=True), strict=True)
                ],
                hoverinfo="text",
            )
        figure.update_layout(barmode="group", bargap=0.25, yaxis_zeroline=True)
        figure.update_xaxes(showgrid=False)
        views.append((name, figure))
    caption = "The three components of FASS, averaged over perturbations: structure (SSIM), order (Spearman) and the "
    caption += "most important pixels (Jaccard). A method that fails in one only shows where its maps break."
    alt = "Grouped bars of SSIM, Spearman and Jaccard for every explainer; the numbers are in the tables."
    return Chart("components", "Components", caption, alt, views, 360, len(order))


def retention_chart(found: Findings) -> Chart | None:
    """Share of predictions unchanged under each perturbation, and of pairs retained by explainer where they differ."""
    cells = found.cells()
    if cells.empty:
        return None
    held = unchanged(cells).set_index(["condition", "level"]).loc[found.cube.conditions].reset_index()
    bars = blank_figure(y_title="prediction unchanged")
    bars.add_bar(
        x=[label(title(*c), 10) for c in found.cube.conditions],
        y=rounded(held["share"]),
        error_y=error_bars(held["share"], held["share_low"], held["share_high"], "rgba(128,128,128,.95)", width=4),
        marker={"color": PALETTE[5], "line": {"width": 0}},
        width=0.5,
        hovertext=[
            f"{r.held} of {r.attempted} unchanged: {with_interval(r.share, r.share_low, r.share_high)}"
            for r in records(held)
        ],
        hoverinfo="text",
    )
    bars.update_layout(yaxis={"range": [0, 1.02], "tickformat": ".0%"})
    bars.update_xaxes(showgrid=False)
    caption = (
        "The model alone decides this: the share of perturbed inputs that keep their top class, with Wilson’s 95 % "
    )
    caption += "intervals. Only these pairs are scored. "
    views = [("Prediction unchanged", bars)]
    if (cells["undefined"] > 0).any():
        explainers = found.ranking["explainer"].tolist()[::-1]
        views.append(("Retained by explainer", _cell_map(cells, "retention", explainers, found.cube.conditions)))
        caption += "Explainers retain fewer where their maps are undefined."
    alt = "Bars of the share of unchanged predictions for every perturbation; the numbers are in the tables."
    height = 320 if len(views) == 1 else max(320, _height(len(found.cube.explainers), 34))
    return Chart(
        "retention", "Retention", caption, alt, views, height, len(found.cube.conditions) + (len(views) > 1) * 2
    )


def unchanged(cells: pd.DataFrame) -> pd.DataFrame:
    """Predictions unchanged per condition and level, with Wilson's interval; no explainer has a say in it."""
    most = cells.sort_values("attempted", ascending=False, kind="stable").drop_duplicates(["condition", "level"])
    frame = most[["condition", "level", "attempted"]].assign(held=most["attempted"] - most["flipped"])
    edges = [statistics.wilson(int(k), int(n)) for k, n in zip(frame["held"], frame["attempted"], strict=True)]
    frame["share"] = frame["held"] / frame["attempted"]
    frame["share_low"], frame["share_high"] = [low for low, _ in edges], [high for _, high in edges]
    return frame


def _cell_map(
    cells: pd.DataFrame, column: str, explainers: list[str], conditions: list[tuple[str, float]]
) -> go.Figure:
    """Explainers by conditions, coloured and written by one column of the cells."""

    def grid(values: str) -> np.ndarray[Any, Any]:
        wide = cells.pivot(index="explainer", columns=["condition", "level"], values=values)
        wide = wide.reindex(index=explainers, columns=pd.MultiIndex.from_tuples(conditions))
        return wide.to_numpy(dtype=float)

    z, retained, attempted = grid(column), grid("retained"), grid("attempted")
    hover = [
        [
            f"{html.escape(e)}<br>{html.escape(title(*c))}: {number(z[i, j])}"
            f"<br>{retained[i, j]:g} of {attempted[i, j]:g} pairs"
            for j, c in enumerate(conditions)
        ]
        for i, e in enumerate(explainers)
    ]
    figure = blank_figure()
    figure.add_heatmap(
        z=[rounded(list(row)) for row in z],
        x=[label(title(*c), 10) for c in conditions],
        y=[label(e) for e in explainers],
        hovertext=hover,
        hoverinfo="text",
        colorscale="Cividis",
        zmin=0,
        zmax=1,
        xgap=2,
        ygap=2,
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 1, "tickvals": [0, 0.5, 1], "ticklen": 0},
    )
    if len(conditions) <= 12:  # own text instead of the heat map's, whose ink is too pale on the middle of the scale
        written = [(i, j) for i, j in np.ndindex(z.shape) if math.isfinite(z[i, j])]
        figure.add_scatter(
            x=[label(title(*conditions[j]), 10) for _, j in written],
            y=[label(explainers[i]) for i, _ in written],
            text=[number(float(z[i, j])) for i, j in written],
            textfont={"color": ["#000000" if z[i, j] > 0.48 else "#ffffff" for i, j in written]},
            mode="text",
            hoverinfo="skip",
            showlegend=False,
        )
    figure.update_xaxes(side="top", showgrid=False)
    figure.update_yaxes(showgrid=False)
    return figure


def blank_figure(x_title: str = "", y_title: str = "") -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="none",
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        xaxis={"title": x_title, "automargin": True, "zeroline": False, "ticks": "", "autotickangles": [0, 60, 90]},
        yaxis={"title": y_title, "automargin": True, "zeroline": False, "ticks": ""},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"align": "left"},
    )
    return figure


def error_bars(value: pd.Series, low: pd.Series, high: pd.Series, colour: str, **style: Any) -> dict[str, Any]:
    up, down = (high - value).clip(lower=0), (value - low).clip(lower=0)
    style = {"width": 0, "thickness": 2, **style}
    return {"type": "data", "array": rounded(up), "arrayminus": rounded(down), "color": colour, **style}


def rounded(values: Sequence[float] | pd.Series) -> list[float | None]:
    return [round(float(v), 5) if v is not None and math.isfinite(v) else None for v in values]


def _span(values: pd.DataFrame) -> list[float]:
    low, high = float(np.nanmin(values.to_numpy())), float(np.nanmax(values.to_numpy()))
    return [min(0.0, low) - 0.03, max(high + 0.05, 0.2)]


def _height(rows: int, each: int, extra: int = 90) -> int:
    return max(rows, 2) * each + extra
