"""The chart of certificates: how often the prediction survives added features, and what of that is guaranteed."""

from __future__ import annotations

import html

from holdfast import statistics
from holdfast.cubes import Cube
from holdfast.report.charts import Chart, blank_figure, curve_styles, error_bars, label, rounded
from holdfast.report.verdict import with_interval


def certificate_chart(cube: Cube, number: int = 0) -> Chart | None:
    """Mean rate τ_r with intervals and mean guaranteed lower bound against the radius, a curve per explainer."""
    if not {"rate", "certified"} <= set(cube.values):
        return None
    cells = statistics.summary([cube])
    figure = blank_figure("features added at most", "share of supersets with the same prediction")
    for explainer, (colour, symbol) in curve_styles(cube.explainers).items():
        own = cells[cells["explainer"] == explainer].sort_values("level")
        rate, certified = own[own["measure"] == "rate"], own[own["measure"] == "certified"]
        name = html.escape(explainer)
        edges = zip(rate["mean"], rate["low"], rate["high"], strict=True)
        figure.add_scatter(
            x=rounded(rate["level"]),
            y=rounded(rate["mean"]),
            error_y=error_bars(rate["mean"], rate["low"], rate["high"], colour, thickness=1.5),
            name=label(explainer, 60),
            legendgroup=explainer,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"color": colour, "symbol": symbol, "size": 8},
            hovertext=[
                f"{name}, r = {x:g}: rate {with_interval(*edge)}" for x, edge in zip(rate["level"], edges, strict=True)
            ],
            hoverinfo="text",
        )
        figure.add_scatter(
            x=rounded(certified["level"]),
            y=rounded(certified["mean"]),
            legendgroup=explainer,
            showlegend=False,
            mode="lines",
            line={"color": colour, "width": 1.5, "dash": "dot"},
            hovertext=[
                f"{name}, r = {x:g}: {m:.2f} guaranteed"
                for x, m in zip(certified["level"], certified["mean"], strict=True)
            ],
            hoverinfo="text",
        )
    levels = sorted({level for _, level in cube.conditions})
    figure.update_layout(xaxis={"tickvals": levels}, yaxis={"range": [0, 1.05]})
    caption = "Only the features that a method calls important are shown to the model; then up to r others are added. "
    caption += (
        "Solid: how often the prediction stays, mean over samples with 95 % bootstrap intervals. Dotted: the mean "
    )
    caption += "of the lower bounds that are guaranteed for each sample. The rate is not monotone in r: a bound at one "
    caption += "radius says nothing of another."
    alt = f"Curves of the certified rate over {len(levels)} radii for {len(cube.explainers)} methods."
    return Chart(f"certified-{number}", "Certified rate", caption, alt, [("", figure)], 400)
