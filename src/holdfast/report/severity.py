"""The charts of sweeps: score and retention against the level of a perturbation."""

from __future__ import annotations

import html

from holdfast.report.charts import (
    CONTROL,
    PALETTE,
    Chart,
    blank_figure,
    curve_styles,
    error_bars,
    label,
    rounded,
    unchanged,
)
from holdfast.report.verdict import Findings, records, with_interval


def severity_charts(found: Findings) -> list[Chart]:
    """Score and retention against the level, for every condition with at least two levels."""
    cells = found.cells()
    drawn: list[Chart] = []
    for condition, rows in cells.groupby("condition", sort=False):
        if rows["level"].nunique() < 2:
            continue
        figure = blank_figure()
        for explainer, (colour, symbol) in curve_styles(found.ranking["explainer"]).items():
            part = rows[rows["explainer"] == explainer].sort_values("level")
            edges = zip(part["best"], part["best_low"], part["best_high"], strict=True)
            figure.add_scatter(
                x=rounded(part["level"]),
                y=rounded(part["best"]),
                error_y=error_bars(part["best"], part["best_low"], part["best_high"], colour, thickness=1.5),
                name=label(explainer, 60),
                mode="lines+markers",
                line={"color": colour, "width": 2, "dash": "dot" if colour == CONTROL else "solid"},
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
        alt = f"Curves of score and retention over {rows['level'].nunique()} levels of {swept}."
        drawn.append(Chart(f"severity-{len(drawn)}", f"Severity: {swept}", caption, alt, [("", figure)], 480))
    return drawn
