"""Charts of symmetry against something else: the model's own invariance, that of several models, sensitivity."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy import stats

from holdfast.axes.contract import Judged
from holdfast.axes.symmetry.frames import INVARIANT, SCORES, Symmetries, symmetries
from holdfast.axes.symmetry.words import score
from holdfast.drawing.charts import Chart, blank_figure, curve_styles, error_bars, label, rounded
from holdfast.drawing.prose import number, records
from holdfast.statistics.cubes import Array

MOST_DOTS = 400
ALL_DOTS = 4000
GUIDE = "rgba(128,128,128,.7)"


def relaxed_chart(measured: Symmetries) -> Chart | None:
    """The score against the model's own invariance; None where the model is invariant on every sample."""
    scores = measured.scores[measured.scores["value"].notna() & measured.scores["model_invariance"].notna()]
    if scores.empty or scores["model_invariance"].min() >= INVARIANT:
        return None
    rows = measured.means[measured.means["explainer"].isin(scores["explainer"])]
    figure = blank_figure("model invariance", score_title(rows["measure"]))
    styles = curve_styles(rows["explainer"], measured.controls)
    m = measured.model
    for r in records(rows):
        colour, symbol = styles[r.explainer]
        cloud = scores[scores["explainer"] == r.explainer]
        cloud = cloud.iloc[thinned(len(cloud), dots(len(rows)))]
        _add_cloud(figure, cloud, "model_invariance", (colour, "circle"))
        figure.add_scatter(
            x=rounded([m.value]),
            y=rounded([r.mean]),
            error_y=_bar(r.mean, r.mean_low, r.mean_high, colour),
            mode="markers",
            name=label(r.explainer, 60),
            legendgroup=html.escape(r.explainer),
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 1.5, "color": colour}},
            hovertext=f"{html.escape(r.explainer)}: {score(r.mean, r.mean_low, r.mean_high)}",
            hoverinfo="text",
        )
    if math.isfinite(m.low):
        figure.add_vrect(x0=round(m.low, 5), x1=round(m.high, 5), fillcolor="rgba(128,128,128,.12)", line_width=0)
    low = float(scores["model_invariance"].min())
    edge = low - 0.05 * (1 - low)
    _add_diagonal(figure, edge)
    floor = float(scores["value"].min())
    figure.update_layout(xaxis={"range": [edge, 1 + 0.05 * (1 - low)]}, yaxis={"range": [min(0.0, floor) - 0.03, 1.05]})
    caption = "Large: the means of a method and of the model with 95 % intervals, the model’s shaded. Small: samples. "
    caption += "On the dotted line an explanation is as alike as the predictions are. The relation need not be linear, "
    caption += "nor alike for two methods: a model that is nearly invariant can have explanations that are far from it."
    alt = f"Scores of {len(rows)} explainers against the model invariance, {number(m.value, 3)} on average."
    return Chart("relaxed", "Against the model’s own invariance", caption, alt, [("", figure)], 480)


def sensitivity_chart(measured: Symmetries) -> Chart | None:
    """The score against max-sensitivity, sample by sample, with Spearman's correlation for each method."""
    scores = measured.scores[measured.scores["value"].notna() & measured.scores["max_sensitivity"].notna()]
    if scores.empty:
        return None
    figure = blank_figure("max-sensitivity", score_title(scores["measure"]))
    order = [e for e in measured.means["explainer"] if e in set(scores["explainer"])]
    for explainer, style in curve_styles(order, measured.controls).items():
        cloud = scores[scores["explainer"] == explainer]
        rho = correlation(cloud["max_sensitivity"].to_numpy(), cloud["value"].to_numpy())
        name = f"{label(explainer, 60)} (ρ {rho})"
        _add_cloud(figure, cloud.iloc[thinned(len(cloud), dots(len(order)))], "max_sensitivity", style, name)
    positive = scores.loc[scores["max_sensitivity"] > 0, "max_sensitivity"]
    if len(positive) == len(scores) and positive.max() > 20 * positive.min():
        ticks = log_ticks(float(positive.min()), float(positive.max()))
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks])
    low = float(scores["value"].min())
    figure.update_layout(yaxis={"range": [min(0.0, low) - 0.03, 1.05]})
    radius = measured.judged.settings.get("sensitivity")
    caption = "How much an explanation changes within a small ball around the input"
    caption += f" (radius {radius:g})" if isinstance(radius, int | float) else ""
    caption += ", as a share of its size, against the score; a dot is a sample. ρ is Spearman’s correlation with its "
    caption += "95 % bootstrap interval. Near 0, the two axes tell of different faults."
    alt = f"Scatter of the score against max-sensitivity for {len(order)} methods."
    return Chart("sensitivity", "Against sensitivity", caption, alt, [("", figure)], 440)


def correlation(x: Array, y: Array, resamples: int = 500) -> str:
    """Spearman's correlation with a bootstrap interval over samples, in words.

    >>> correlation(np.arange(3.0), np.array([3.0, 2.0, 1.0])), correlation(np.arange(5.0), np.ones(5))
    ('−1.00, 3 samples', 'not defined')
    """
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return "not defined"
    value = _spearman(x[None], y[None])[0]
    if len(x) < 8:
        return f"{number(value)}, {len(x)} samples"
    drawn = np.random.default_rng(0).integers(0, len(x), (resamples, len(x)))
    draws = _spearman(x[drawn], y[drawn])
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return f"{number(value)} [{number(low)}, {number(high)}]"


def _spearman(x: Array, y: Array) -> Array:
    a, b = (stats.rankdata(v, axis=1) for v in (x, y))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    size = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.asarray(np.divide((a * b).sum(1), size, out=np.full(len(x), np.nan), where=size > 0))


def models_chart(dataset: str, judged: Sequence[Judged]) -> Chart | None:
    """Means of several models of one dataset, a curve per method: the score against the invariance of the model."""
    measured = [m for one in judged if (m := symmetries(one)) is not None and math.isfinite(m.model.value)]
    known = sorted(measured, key=lambda m: m.model.value)
    if len(known) < 2:
        return None
    columns = {"mean": "y", "mean_low": "y_low", "mean_high": "y_high"}
    every = pd.concat(
        m.means.rename(columns=columns).assign(
            x=m.model.value, x_low=m.model.low, x_high=m.model.high, model=m.judged.cube.model
        )
        for m in known
    )
    order = list(dict.fromkeys(every["explainer"]))
    controls = set().union(*(m.controls for m in known))
    figure = blank_figure("model invariance", score_title(every["measure"]))
    for explainer, (colour, symbol) in curve_styles(order, controls).items():
        curve = every[(every["explainer"] == explainer) & every["y"].notna()]
        figure.add_scatter(
            x=rounded(curve["x"]),
            y=rounded(curve["y"]),
            error_x=error_bars(curve["x"], curve["x_low"], curve["x_high"], colour, thickness=1.5),
            error_y=error_bars(curve["y"], curve["y_low"], curve["y_high"], colour, thickness=1.5),
            name=label(explainer, 60),
            mode="lines+markers",
            line={"color": colour, "width": 1.5, "dash": "dot"},
            marker={"color": colour, "symbol": symbol, "size": 10},
            hovertext=[
                f"{html.escape(explainer)}, {html.escape(r.model)}: {score(r.y, r.y_low, r.y_high)}"
                for r in records(curve)
            ],
            hoverinfo="text",
        )
    low = min(m.model.value if math.isnan(m.model.low) else m.model.low for m in known)
    edge = low - 0.05 * max(1 - low, 0.01)
    _add_diagonal(figure, edge)
    figure.update_layout(xaxis={"range": [edge, 1 + 0.05 * max(1 - low, 0.01)]}, yaxis={"range": [-0.05, 1.05]})
    models = ", ".join(f"{m.judged.cube.model} ({number(m.model.value, 3)})" for m in known)
    caption = f"Models from the least to the most invariant: {models}. Means over samples with 95 % intervals; on the "
    caption += "dotted line an explanation is as alike as the predictions are. What lies between two models was not "
    caption += "measured, and need not be on the lines."
    alt = f"Scores of {len(order)} methods for {len(known)} models against their invariance."
    height = 340 + 18 * max(7, len(order))  # the legend grows with the methods
    return Chart("models", f"Relaxed invariance: {dataset}", caption, alt, [("", figure)], height)


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks at powers of ten, with 2 and 5 between them where the span is short.

    >>> log_ticks(0.02, 0.9), log_ticks(0.001, 3.0)
    ([0.02, 0.05, 0.1, 0.2, 0.5], [0.001, 0.01, 0.1, 1.0])
    """
    steps = (1, 2, 5) if high < 100 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [float(f"{step}e{power}") for power in powers for step in steps]
    return [t for t in every if 0.99 * low <= t <= 1.01 * high] or [low, high]


def thinned(n: int, most: int) -> list[int]:
    """At most `most` of n rows, evenly spread, the same every time.

    >>> thinned(3, 5), thinned(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    return list(range(n)) if n <= most else [int(i) for i in np.linspace(0, n - 1, most).round()]


def dots(explainers: int) -> int:
    """How many samples of each of several explainers are drawn at most."""
    return min(MOST_DOTS, max(20, ALL_DOTS // max(explainers, 1)))


def score_title(measures: Iterable[str]) -> str:
    """The title of an axis of scores.

    >>> score_title(["invariance", "equivariance", "invariance"])
    'equivariance or invariance'
    """
    there = set(measures)
    return " or ".join(m for m in SCORES if m in there) or "score"


def _add_cloud(figure: go.Figure, cloud: pd.DataFrame, x: str, style: tuple[str, str], name: str = "") -> None:
    colour, symbol = style
    figure.add_scatter(
        x=rounded(cloud[x]),
        y=rounded(cloud["value"]),
        mode="markers",
        legendgroup=html.escape(str(cloud["explainer"].iloc[0])),
        name=name,
        meta=name or label(f"{cloud['explainer'].iloc[0]}, samples", 60),
        showlegend=bool(name),
        marker={"color": colour, "size": 7 if name else 5, "opacity": 0.7 if name else 0.35, "symbol": symbol},
        hovertext=[
            f"{html.escape(r.explainer)}, {html.escape(r.sample)}: {number(r.value, 3)}" for r in records(cloud)
        ],
        hoverinfo="text",
    )


def _bar(value: float, low: float, high: float, colour: str) -> dict[str, Any]:
    return error_bars(pd.Series([value]), pd.Series([low]), pd.Series([high]), colour, thickness=1.5)


def _add_diagonal(figure: go.Figure, start: float) -> None:
    line = {"color": GUIDE, "width": 1.5, "dash": "dot"}
    figure.add_scatter(
        x=rounded([start, 1.0]),
        y=rounded([start, 1.0]),
        name="as alike as the predictions",
        mode="lines",
        line=line,
        hoverinfo="skip",
        showlegend=False,
    )
