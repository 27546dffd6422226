"""The charts of sweeps: score and retention against the level of a perturbation."""

from __future__ import annotations

import html

from holdfast.axes.stability.frames import Frames
from holdfast.axes.stability.tables import unchanged
from holdfast.drawing.charts import CONTROL, PALETTE, Chart, blank_figure, curve_styles, error_bars, label, rounded
from holdfast.drawing.prose import records, with_interval

MOST_NAMED = 10
FAINT = "rgba(128,128,128,.35)"


def severity_charts(frames: Frames) -> list[Chart]:
    """Score and retention against the level, for every condition with at least two levels."""
    cells = frames.cells()
    drawn: list[Chart] = []
    for condition, rows in cells.groupby("condition", sort=False):
        if rows["level"].nunique() < 2:
            continue
        figure = blank_figure()
        styles = curve_styles(frames.ranking["explainer"], frames.cube.controls)
        named = _named(frames)
        for explainer in sorted(styles, key=lambda name: name in named):  # the faint ones lie behind
            colour, symbol = styles[explainer] if explainer in named else (FAINT, "circle")
            part = rows[rows["explainer"] == explainer].sort_values("level")
            bars = error_bars(part["best"], part["best_low"], part["best_high"], colour, thickness=1.5)
            edges = zip(part["best"], part["best_low"], part["best_high"], strict=True)
            figure.add_scatter(
                x=rounded(part["level"]),
                y=rounded(part["best"]),
                error_y=bars if explainer in named else None,
                name=label(explainer, 60),
                showlegend=explainer in named,
                mode="lines+markers" if explainer in named else "lines",
                line={
                    "color": colour,
                    "width": 2 if explainer in named else 1,
                    "dash": "dot" if colour == CONTROL else "solid",
                },
                marker={"color": colour, "symbol": symbol, "size": 8},
                hovertext=[
                    f"{html.escape(explainer)} at {x:g}: {with_interval(*edge)}"
                    for x, edge in zip(part["level"], edges, strict=True)
                ],
                hoverinfo="text",
            )
        held = unchanged(rows).sort_values("level")
        figure.add_scatter(
            x=rounded(held["level"]),
            y=rounded(held["share"]),
            error_y=error_bars(held["share"], held["share_low"], held["share_high"], PALETTE[5], thickness=1.5),
            mode="lines+markers",
            line={"color": PALETTE[5], "width": 2},
            marker={"color": PALETTE[5], "size": 8},
            yaxis="y2",
            showlegend=False,
            hovertext=[f"{r.held} of {r.attempted} unchanged at {r.level:g}" for r in records(held)],
            hoverinfo="text",
        )
        swept = str(condition).replace("_", " ")
        figure.update_layout(
            xaxis={"title": f"level of {html.escape(swept)}", "anchor": "y2", "tickvals": sorted(set(rows["level"]))},
            yaxis={"title": "score", "domain": [0.42, 1]},
            yaxis2={
                "title": "unchanged",
                "domain": [0, 0.32],
                "range": [0, 1.05],
                "tickformat": ".0%",
                "automargin": True,
            },
        )
        caption = "Above: the best available score at every level. Below: the share of predictions unchanged. "
        caption += "Bars are 95 % intervals."
        if len(named) < len(styles):
            caption += f" Named are the first {MOST_NAMED} methods and the controls; the others are faint."
        alt = f"Curves of score and retention over {rows['level'].nunique()} levels of {swept}."
        data = rows[
            ["explainer", "condition", "level", "best", "best_low", "best_high", "mean", "retained", "attempted"]
        ]
        data = data.rename(columns={"best": "score", "best_low": "low", "best_high": "high", "mean": "raw"})
        views = [("", figure)]
        drawn.append(Chart(f"severity-{len(drawn)}", f"Severity: {swept}", caption, alt, views, 480, data=data))
    return drawn


def _named(frames: Frames) -> set[str]:
    """Those with a colour of their own: the best methods, and the controls."""
    methods = [name for name in frames.ranking["explainer"] if name not in frames.cube.controls]
    return {*frames.cube.controls, *methods[:MOST_NAMED]}
