"""Stability on the page: ranking, heat map, components, retention, sweeps, tests, noise floor and gallery."""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from holdfast.axes.contract import Judged, Page
from holdfast.axes.stability.frames import Frames, frames
from holdfast.axes.stability.gallery import gallery_panel
from holdfast.axes.stability.perturbations import title
from holdfast.axes.stability.severity import severity_charts
from holdfast.axes.stability.tables import disagreement, floor_panel, ranking_table, tests_panel, unchanged
from holdfast.axes.stability.words import verdict
from holdfast.drawing.charts import CONTROL, PALETTE, Chart, Panel, blank_figure, error_bars, label, rounded
from holdfast.drawing.prose import listing, number, records, with_interval
from holdfast.models.modality import words_of

MANY = 12  # rows from which on a chart is drawn closer


def lead(judged: Judged) -> list[str]:
    """Which method holds, in sentences."""
    made = frames(judged)
    return ["Nothing can be concluded: there is no score."] if made is None else verdict(made)


def parts(judged: Judged) -> list[Chart | Panel]:
    """Everything the rows have data for, in reading order."""
    made = frames(judged)
    if made is None:
        return []
    drawn: list[Chart | Panel | None] = [ranking_chart(made), heat_map(made), components_chart(made)]
    drawn += [retention_chart(made), *severity_charts(made)]
    drawn += [tests_panel(made), floor_panel(made), gallery_panel(judged)]
    return [part for part in drawn if part is not None]


PAGE = Page(lead, parts)


def ranking_chart(frames: Frames) -> Chart | None:
    """Overall scores as dots with their intervals, best at the top; controls are hollow."""
    rows = frames.ranking[frames.ranking["score"].notna()].iloc[::-1]
    if rows.empty:
        return None
    figure = blank_figure(x_title="calibrated score" if frames.calibrated else "score")
    for control, name in ((False, "method"), (True, "control")):
        part = rows[rows["control"] == control]
        colour = CONTROL if control else PALETTE[0]
        figure.add_scatter(
            x=rounded(part["score"]),
            y=[_row_label(e, len(rows)) for e in part["explainer"]],
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
    figure.update_yaxes(categoryorder="array", categoryarray=[_row_label(e, len(rows)) for e in rows["explainer"]])
    figure.update_yaxes(range=[-0.6, len(rows) - 0.4])
    figure.update_layout(xaxis_zeroline=True, xaxis_range=_span(rows[["score", "low", "high"]]))
    first = frames.ranking.iloc[0]
    caption = "Mean over perturbations, each aligned and calibrated where it can be. 0 is chance, 1 is a map that does "
    caption += (
        "not change. Bars are 95 % bootstrap intervals over samples; that chance rests on a few others is not in them."
    )
    alt = f"Dot plot of {len(rows)} explainers by score; first {first['explainer']} with {number(first['score'])}."
    data = frames.ranking.drop(columns=["dataset", "model", "evaluation", "measure"])
    views, height = [("", figure)], _height(len(rows), 34)
    return Chart("ranking", "Ranking", caption, alt, views, height, data=data, more=ranking_table(frames))


def heat_map(frames: Frames) -> Chart | None:
    """Explainer × perturbation, switchable between the best form, calibrated and raw scores."""
    cells = frames.cells()
    if cells["mean"].isna().all():
        return None
    explainers = [e for e in frames.ranking["explainer"] if e in set(cells["explainer"])][::-1]
    conditions = frames.cube.conditions
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
    caption += "read the calibrated ones."
    if not cells["aligned"].isna().all():
        caption += f" Aligned scores move the clean map along with the {words_of(frames.judged.task).sample} first."
    alt = f"Heat map of {len(explainers)} explainers by {len(conditions)} perturbations; the numbers are in the tables."
    return Chart(
        "heatmap",
        "Explainer × perturbation",
        caption,
        alt,
        views,
        _height(len(explainers), 38, 120),
        len(conditions) + 2,
        _cell_table(cells),
    )


def components_chart(frames: Frames) -> Chart | None:
    """SSIM, Spearman and Jaccard side by side for every explainer: bars, or dots in rows where there are many."""
    if not any(frame["score"].notna().any() for frame in frames.components.values()):
        return None
    order = frames.ranking["explainer"].tolist()
    views = []
    for name, columns in (("Calibrated", ("score", "low", "high")), ("Raw", ("raw", "raw_low", "raw_high"))):
        if name == "Calibrated" and not frames.calibrated:
            continue
        figure = blank_figure(y_title=f"{name.lower()} score")
        if len(order) > MANY:
            figure = blank_figure(x_title=f"{name.lower()} score")
            figure.update_yaxes(range=[-0.6, len(order) - 0.4])
        for index, (component, frame) in enumerate(frames.components.items()):
            part = frame.set_index("explainer").loc[order[::-1] if len(order) > MANY else order]
            edges = part[list(columns)].set_axis(["value", "low", "high"], axis=1)
            _add_component(figure, edges, frames.title_of(component), PALETTE[index], len(order) > MANY)
        figure.update_layout(barmode="group", bargap=0.25)
        figure.update_layout({"xaxis" if len(order) > MANY else "yaxis": {"zeroline": True}})
        if len(order) <= MANY:
            figure.update_xaxes(showgrid=False)
        views.append((name, figure))
    looks = {"ssim": "structure (SSIM)", "spearman": "order (Spearman)"}
    looks["jaccard"] = f"the most important {words_of(frames.judged.task).parts} (Jaccard)"
    count = {2: "two", 3: "three"}.get(len(frames.components), str(len(frames.components)))
    caption = f"The {count} components of FASS, averaged over perturbations: "
    caption += f"{listing(looks[c] for c in frames.components)}. "
    caption += "A method that fails in one only shows where its maps break."
    alt = f"{listing(frames.title_of(c) for c in frames.components)} side by side for every explainer; the numbers are "
    alt += "in the tables."
    data = pd.concat([frame.assign(component=frames.title_of(c)) for c, frame in frames.components.items()])
    data = data[["explainer", "component", "control", "score", "low", "high", "raw", "raw_low", "raw_high", "samples"]]
    many = len(order) > MANY
    height = _height(len(order), 34) if many else 360
    wide = 0 if many else len(order)
    return Chart("components", "Components", caption, alt, views, height, wide, data, disagreement(frames))


def _add_component(figure: go.Figure, part: pd.DataFrame, name: str, colour: str, in_rows: bool) -> None:
    """One component of every explainer, the index of `part`, as bars beside each other or as dots in rows."""
    hover = [
        f"{html.escape(str(e))}, {name}: {with_interval(*row)}"
        for e, row in zip(part.index, part.to_numpy(), strict=True)
    ]
    edges = (part["value"], part["low"], part["high"])
    if in_rows:
        figure.add_scatter(
            x=rounded(part["value"]),
            y=[_row_label(str(e), len(part)) for e in part.index],
            error_x=error_bars(*edges, colour, thickness=1.5),
            mode="markers",
            name=name,
            marker={"color": colour, "size": 8, "symbol": ("circle", "square", "diamond")[PALETTE.index(colour) % 3]},
            hovertext=hover,
            hoverinfo="text",
        )
        return
    figure.add_bar(
        x=[label(str(e), 12) for e in part.index],
        y=rounded(part["value"]),
        error_y=error_bars(*edges, "rgba(128,128,128,.9)", width=2),
        name=name,
        marker={"color": colour, "line": {"width": 0}},
        hovertext=hover,
        hoverinfo="text",
    )


def retention_chart(frames: Frames) -> Chart | None:
    """Share of predictions unchanged under each perturbation, and of pairs retained by explainer where they differ."""
    cells = frames.cells()
    if cells.empty:
        return None
    held = unchanged(cells).set_index(["condition", "level"]).loc[frames.cube.conditions].reset_index()
    bars = blank_figure(y_title="prediction unchanged")
    bars.add_bar(
        x=[label(title(*c), 10) for c in frames.cube.conditions],
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
        explainers = frames.ranking["explainer"].tolist()[::-1]
        views.append(("Retained by explainer", _cell_map(cells, "retention", explainers, frames.cube.conditions)))
        caption += "Explainers retain fewer where their maps are undefined."
    alt = "Bars of the share of unchanged predictions for every perturbation; the numbers are in the tables."
    height = 320 if len(views) == 1 else max(320, _height(len(frames.cube.explainers), 34))
    columns = len(frames.cube.conditions) + (len(views) > 1) * 2
    data = cells[["explainer", "condition", "level", "attempted", "retained", "flipped", "undefined"]]
    data = data.merge(held.drop(columns="attempted"), on=["condition", "level"], validate="many_to_one")
    data = data.rename(columns={"held": "unchanged", "share": "unchanged_share"})
    data = data.rename(columns={"share_low": "unchanged_low", "share_high": "unchanged_high"})
    return Chart("retention", "Retention", caption, alt, views, height, columns, data)


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
        y=[_row_label(e, len(explainers)) for e in explainers],
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
            y=[_row_label(explainers[i], len(explainers)) for i, _ in written],
            text=[number(float(z[i, j])) for i, j in written],
            textfont={"color": ["#000000" if z[i, j] > 0.48 else "#ffffff" for i, j in written]},
            mode="text",
            hoverinfo="skip",
            showlegend=False,
        )
    figure.update_xaxes(side="top", showgrid=False)
    figure.update_yaxes(showgrid=False)
    return figure


def _span(values: pd.DataFrame) -> list[float]:
    low, high = float(np.nanmin(values.to_numpy())), float(np.nanmax(values.to_numpy()))
    return [min(0.0, low) - 0.03, max(high + 0.05, 0.2)]


def _height(rows: int, each: int, extra: int = 90) -> int:
    return max(rows, 2) * (each if rows <= MANY else 24) + extra


def _row_label(explainer: str, rows: int) -> str:
    """The name of a row; where rows are close together it has one line if it can."""
    return label(explainer) if rows <= MANY else label(explainer, 34)


def _cell_table(cells: pd.DataFrame) -> pd.DataFrame:
    names = {"mean": "raw", "low": "raw_low", "high": "raw_high"}
    kept = ["explainer", "condition", "level", "mean", "low", "high", "chance", "calibrated", "calibrated_low"]
    kept += ["calibrated_high", "aligned", "aligned_chance", "aligned_calibrated", "aligned_calibrated_low"]
    kept += ["aligned_calibrated_high", "noise_floor", "attempted", "retained", "flipped", "undefined"]
    return cells[kept].rename(columns=names)
