"""What the page's charts are made of: Plotly figures with captions, labels, colours and error bars.

Colours that depend on light or dark (ink, grid lines, backgrounds) are left to the page, which fills them in from its
style sheet; the figures only hold what carries meaning.
"""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from holdfast.drawing.tidy import figure_table

# Okabe and Ito's colours without black and yellow, which vanish on a dark or a light page
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8D91")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
CONTROL = "#8A8D91"
COLOURS = tuple(colour for colour in PALETTE if colour != CONTROL)
WRAP = 18


@dataclass(frozen=True)
class Chart:
    """A figure with one or more views to switch between, a caption and a sentence for those who cannot see it.

    A figure with many `columns` scrolls inside its frame on a narrow screen instead of being squeezed. `data` is what
    a reader gets as CSV; without it that is what the traces draw. `more` is HTML to show under the figure.
    """

    key: str
    title: str
    caption: str
    alt: str
    views: list[tuple[str, go.Figure]]
    height: int
    columns: int = 0
    data: pd.DataFrame | None = None
    more: Markup = field(default_factory=Markup)

    @property
    def table(self) -> pd.DataFrame:
        """The numbers behind the figure, one tidy table for all views."""
        return figure_table(self.views) if self.data is None else self.data


@dataclass(frozen=True)
class Panel:
    """A part of the page that is not a chart: a table, pictures or a drawing, as HTML that is safe to embed.

    Pictures that its HTML names with `data-picture` are kept in `pictures`, as URIs by key.
    """

    key: str
    title: str
    caption: str
    html: Markup
    pictures: Mapping[str, str] = field(default_factory=dict)


def label(text: str, width: int = WRAP) -> str:
    """A name as a chart label: inert to Plotly's own mark-up and broken at underscores, commas and brackets.

    >>> label("integrated_gradients(steps=16)")
    'integrated_gradients<br>(steps=16)'
    >>> label("<script>"), label("gaussian noise σ 0.15", 10)
    ('&lt;script&gt;', 'gaussian<br>noise σ 0.15')
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


def curve_styles(explainers: Iterable[str], controls: Collection[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for the curve of each explainer; controls are grey and open."""
    styles: dict[str, tuple[str, str]] = {}
    methods = 0
    for explainer in explainers:
        if explainer in controls:
            styles[explainer] = (CONTROL, "circle-open")
            continue
        # The marker moves on by one with every round of colours, so that no two curves look alike.
        turn, colour = divmod(methods, len(COLOURS))
        styles[explainer] = (COLOURS[colour], SYMBOLS[(colour + turn) % len(SYMBOLS)])
        methods += 1
    return styles


def blank_figure(x_title: str = "", y_title: str = "") -> go.Figure:
    """An empty figure in the style of the page; ink, grid lines and backgrounds are left to it."""
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
    """Error bars from the ends of intervals."""
    up, down = (high - value).clip(lower=0), (value - low).clip(lower=0)
    style = {"width": 0, "thickness": 2, **style}
    return {"type": "data", "array": rounded(up), "arrayminus": rounded(down), "color": colour, **style}


def point(colour: str, size: int, control: bool) -> dict[str, Any]:
    """The marker of a method's mean, hollow for a control.

    >>> point("#000", 9, control=True)["symbol"]
    'circle-open'
    """
    symbol = "circle-open" if control else "circle"
    return {"color": colour, "size": size, "symbol": symbol, "line": {"width": 2, "color": colour}}


def rounded(values: Sequence[float] | pd.Series) -> list[float | None]:
    """Numbers with five digits after the point, None where there is none: small, and valid JSON."""
    return [round(float(v), 5) if v is not None and math.isfinite(v) else None for v in values]


def faint(colour: str, opacity: float) -> str:
    """A colour such as #0072B2 with an opacity.

    >>> faint("#0072B2", 0.1)
    'rgba(0,114,178,0.1)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"
