"""Removal curves: what becomes of the prediction as pixels go, the most or the least relevant first."""

from __future__ import annotations

import html
from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from holdfast import statistics
from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness import frames
from holdfast.axes.faithfulness.frames import RANDOM
from holdfast.drawing.charts import CONTROL, Chart, blank_figure, curve_styles, faint, label, rounded
from holdfast.drawing.prose import number, records, with_interval
from holdfast.statistics.bootstrap import mean_of_finite
from holdfast.statistics.cubes import Cube
from holdfast.statistics.estimates import interval

READOUTS = ("probability", "accuracy", "logit", "margin")
PANELS = {"morf": "Most relevant first: should fall early", "lerf": "Least relevant first: should stay high"}


def curve_chart(judged: Judged, imputer: str, order: list[str]) -> Chart | None:
    """Readouts against the fraction removed with 95 % bands, both orders in one figure, a view for every readout."""
    cube = judged.cube
    first = frames.readout(judged)
    views = []
    for readout in sorted((r for r in READOUTS if r in cube.values), key=lambda r: r != first):
        figure = curve_figure(judged, imputer, readout, order)
        if figure is not None:
            views.append((readout.capitalize(), figure))
    if not views:
        return None
    swept, words = frames.swept(cube, imputer), frames.words(judged)
    whole = f"the class predicted for the whole {words.sample}"
    against = "the label" if judged.settings.get("against") == "label" else whole
    filled = imputer if words.parts == "tokens" else f"filled in by {imputer}"
    caption = f"{words.parts.capitalize()} are removed in the order of a map and {filled}. A faithful map loses the "
    caption += (
        f"class early when its most relevant {words.parts} go first (MoRF), and keeps it when the least relevant "
    )
    caption += "do (LeRF). "
    caption += "Lines are means over samples, bands 95 % bootstrap intervals. "
    if any(cube.made_of(c).order == "random" for c, _ in swept):
        caption += f"The dashed grey line removes {words.parts} in a random order: only the distance to it counts. "
    caption += f"Accuracy is against {against}; the other readouts are of the predicted class."
    fractions = len({level for _, level in swept if level > 0})
    alt = f"Curves over {fractions} fractions removed for {len(order)} methods, imputer {imputer}."
    every = frames.imputers(cube)
    title = "Removal curves" if len(every) == 1 else f"Removal curves: {imputer}"
    return Chart(f"curves-{every.index(imputer)}", title, caption, alt, views, 620)


def curve_figure(judged: Judged, imputer: str, readout: str, explainers: list[str]) -> go.Figure | None:
    """Both orders of one imputer and readout, one above the other; None without any number."""
    own = judged.cube.select(measures=[readout], conditions=frames.swept(judged.cube, imputer))
    cells = frames.with_makeup(statistics.summary([own]), own)
    cells = cells[cells["mean"].notna()]
    shown = [order for order in PANELS if any(own.made_of(c).order == order for c, _ in own.conditions)]
    if not cells["order"].isin(shown).any():
        return None
    figure, words = blank_figure(), frames.words(judged)
    control = random_curve(own, imputer, readout)
    start = untouched(judged, readout)
    styles = curve_styles(explainers, own.controls)
    for order, name in zip(shown, ("y", "y2"), strict=False):
        add_curves(figure, cells[cells["order"] == order], control, styles, name)
        if start is not None:
            figure.add_scatter(
                x=[0],
                y=rounded([start]),
                yaxis=name,
                name=f"whole {words.sample}",
                showlegend=name == "y",
                mode="markers",
                marker={"symbol": "diamond", "size": 9, "color": CONTROL},
                hovertext=f"whole {words.sample}: {number(start)}",
                hoverinfo="text",
            )
    lay_out(figure, [PANELS[order] for order in shown], readout, sorted(set(cells["level"])), words.parts)
    return figure


def add_curves(
    figure: go.Figure, cells: pd.DataFrame, control: pd.DataFrame, styles: Mapping[str, tuple[str, str]], yaxis: str
) -> None:
    """The curve of every explainer in `cells`, over the dashed `control` of the random order where there is one."""
    if len(control):
        _add_curve(figure, RANDOM, control, CONTROL, "", "dash", yaxis)
    for explainer, (colour, symbol) in styles.items():
        rows = cells[cells["explainer"] == explainer]
        if len(rows):
            _add_curve(figure, explainer, rows, colour, symbol, "dot" if colour == CONTROL else "solid", yaxis)


def _add_curve(
    figure: go.Figure, name: str, rows: pd.DataFrame, colour: str, symbol: str, dash: str, yaxis: str
) -> None:
    """A mean curve with the band of its intervals; `rows` has level, mean, low and high."""
    rows = rows.sort_values("level")
    sure = rows[rows["low"].notna() & rows["high"].notna()]
    if len(sure) > 1:
        figure.add_scatter(
            x=rounded([*sure["level"], *sure["level"][::-1]]),
            y=rounded([*sure["high"], *sure["low"][::-1]]),
            yaxis=yaxis,
            fill="toself",
            fillcolor=faint(colour, 0.06 if colour == CONTROL else 0.1),
            line={"width": 0},
            mode="lines",
            legendgroup=label(name, 60),
            showlegend=False,
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=rounded(rows["level"]),
        y=rounded(rows["mean"]),
        yaxis=yaxis,
        name=label(name, 60),
        legendgroup=label(name, 60),
        showlegend=yaxis == "y",
        mode="lines+markers" if symbol else "lines",
        line={"color": colour, "width": 2, "dash": dash},
        marker={"color": colour, "symbol": symbol or "circle", "size": 7},
        hovertext=[
            f"{html.escape(name)}, {100 * r.level:g} % removed: {with_interval(r.mean, r.low, r.high)}"
            for r in records(rows)
        ],
        hoverinfo="text",
    )


def random_curve(cube: Cube, imputer: str, readout: str) -> pd.DataFrame:
    """level, mean, low, high of the random order, which is drawn once per sample and stored under every explainer."""
    wanted = [c for c in frames.swept(cube, imputer) if cube.made_of(c[0]).order == "random"]
    columns = ["level", "mean", "low", "high"]
    if not wanted or readout not in cube.values:
        return pd.DataFrame(columns=columns)
    values = np.stack([frames.once(cube.values[readout][:, cube.conditions.index(c)]) for c in wanted])
    ends = interval(values, groups=cube.groups)
    frame = pd.DataFrame(
        dict(zip(columns, ([level for _, level in wanted], mean_of_finite(values), *ends), strict=True))
    )
    return frame[frame["mean"].notna()]


def untouched(judged: Judged, readout: str) -> float | None:
    """The mean readout before anything is removed, where the run knows it."""
    known = judged.samples
    if "sample" in known:
        known = known[known["sample"].isin(judged.cube.samples)]
    if known.empty or "probability" not in known:
        return None
    if readout == "probability" and known["probability"].notna().any():
        return float(known["probability"].mean())
    return 1.0 if readout == "accuracy" and judged.settings.get("against", "prediction") == "prediction" else None


def lay_out(figure: go.Figure, titles: list[str], readout: str, fractions: list[float], parts: str = "pixels") -> None:
    """One or two panels above each other, each with its title, on one axis of fractions."""
    domains = [[0, 0.94]] if len(titles) == 1 else [[0.54, 0.96], [0, 0.42]]
    spread = {"range": [0, 1.05]} if readout in ("probability", "accuracy") else {}
    for i, (title, domain) in enumerate(zip(titles, domains, strict=True)):
        axis = {"title": readout, "domain": domain, "automargin": True, "zeroline": False, "ticks": "", **spread}
        figure.update_layout({f"yaxis{'' if i == 0 else i + 1}": axis})
        figure.add_annotation(
            text=f"<b>{title}</b>",
            xref="paper",
            yref="paper",
            x=0,
            y=domain[1],
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
        )
    last = max([*fractions, 0.1])
    ticks = {"tickvals": [0, *fractions]} if len(fractions) <= 10 else {}
    figure.update_xaxes(
        title=f"fraction of the {parts} removed",
        anchor="y" if len(titles) == 1 else "y2",
        range=[-0.02 * last, 1.02 * last],
        **ticks,
    )
