"""The numbers of a figure as one tidy table, and tables as CSV that a spreadsheet cannot run."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

FORMULA = ("=", "+", "-", "@", "\t", "\r")
DIGITS = 6
QUARTILES = {"lowerfence": "lower whisker", "q1": "q1", "median": "median", "q3": "q3", "upperfence": "upper whisker"}


def to_csv(frame: pd.DataFrame) -> str:
    """A table as CSV: numbers with six digits, missing ones empty, text that a spreadsheet would run made inert.

    >>> print(to_csv(pd.DataFrame({"explainer": ["=1+1", "ig"], "score": [-0.5, float("nan")]})), end="")
    explainer,score
    '=1+1,-0.5
    ig,
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in frame.columns])
    writer.writerows([_cell(value) for value in row] for row in frame.itertuples(index=False, name=None))
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    if pd.isna(value):
        return ""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return str(value)
    number = float(value)
    return str(value) if math.isinf(number) else f"{number:.{DIGITS}g}" if number % 1 else f"{number:.0f}"


def figure_table(views: Iterable[tuple[str, go.Figure]]) -> pd.DataFrame:
    """What the traces of a figure draw, one row per point, cell or box; columns without any value are left out.

    Points have series, x and y with the ends of their error bars or bands, cells row, column and value, boxes their
    quartiles and whiskers. Where an axis writes names instead of numbers, so does the table; `meta` of a trace, where
    given, is the name of its series.

    >>> figure = go.Figure()
    >>> _ = figure.add_scatter(name="ig", x=[1, 2], y=[0.5, 0.7], error_y={"array": [0.1, 0.2]})
    >>> print(to_csv(figure_table([("", figure)])), end="")
    series,x,y,y_low,y_high
    ig,1,0.5,0.4,0.6
    ig,2,0.7,0.5,0.9
    """
    rows: list[dict[str, Any]] = []
    for view, figure in views:
        layout = figure.layout.to_plotly_json()
        panels = sum(name.startswith("yaxis") for name in layout) > 1
        bands: dict[tuple[str, str], dict[float, tuple[float, float]]] = {}
        for trace in (trace.to_plotly_json() for trace in figure.data):
            own = _axes(layout, trace)
            head = {"view": view, "panel": _plain(_title(own["y"])) if panels else ""}
            group = (str(trace.get("legendgroup")), str(trace.get("yaxis")))
            if trace.get("fill") == "toself":
                bands[group] = _band(trace)
            elif trace["type"] == "heatmap":
                rows += [head | row for row in _cells(trace)]
            elif trace["type"] == "box":
                rows += [head | row for row in _boxes(trace, own)]
            elif trace.get("mode") != "text":
                rows += [head | row for row in _points(trace, own, bands.get(group, {}))]
    frame = pd.DataFrame(rows)
    return frame[[name for name in frame.columns if not (frame[name].isna() | (frame[name] == "")).all()]]


def _points(
    trace: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]], band: Mapping[float, tuple[float, float]]
) -> list[dict[str, Any]]:
    series = _plain(trace.get("meta") or trace.get("name") or trace.get("legendgroup") or "")
    values = {side: list(trace.get(side, ())) for side in ("x", "y")}
    bars = {side: trace.get(f"error_{side}") or {} for side in ("x", "y")}
    found = []
    for i, (x, y) in enumerate(zip(values["x"], values["y"], strict=True)):
        row: dict[str, Any] = {"series": series, "x": _named(x, axes["x"]), "y": _named(y, axes["y"])}
        for side, value in (("x", x), ("y", y)):
            up, down = (_at(bars[side].get(name), i) for name in ("array", "arrayminus"))
            edges = (_moved(value, down if down is not None else up, -1), _moved(value, up, 1))
            if side == "y" and edges == (None, None):
                edges = band.get(x, (None, None))
            row[f"{side}_low"], row[f"{side}_high"] = edges
        found.append(row)
    return found


def _cells(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = [[_plain(name) for name in trace[side]] for side in ("y", "x")]
    return [
        {"row": names[0][i], "column": names[1][j], "value": value}
        for i, line in enumerate(trace["z"])
        for j, value in enumerate(line)
    ]


def _boxes(trace: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    side = "y" if trace.get("orientation") == "h" else "x"
    return [
        {"series": _named(at, axes[side])} | {name: trace[key][i] for key, name in QUARTILES.items()}
        for i, at in enumerate(trace[side])
    ]


def _band(trace: Mapping[str, Any]) -> dict[float, tuple[float, float]]:
    """x -> low, high of a closed band: the upper edge forwards, then the lower one backwards."""
    half = len(trace["x"]) // 2
    upper, lower = trace["y"][:half], list(trace["y"][half:])[::-1]
    return {x: (low, high) for x, low, high in zip(trace["x"][:half], lower, upper, strict=True)}


def _axes(layout: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {side: layout.get(f"{side}axis{str(trace.get(f'{side}axis') or side)[1:]}") or {} for side in ("x", "y")}


def _title(axis: Mapping[str, Any]) -> str:
    given = axis.get("title") or ""
    return str(given.get("text") or "") if isinstance(given, Mapping) else str(given)


def _named(value: Any, axis: Mapping[str, Any]) -> Any:
    """The name that an axis writes nearest to a number; other values as they are, text without mark-up."""
    if isinstance(value, str):
        return _plain(value)
    texts, places = axis.get("ticktext"), axis.get("tickvals")
    if value is None or texts is None or places is None or len(texts) != len(places) or not len(places):
        return value
    nearest = min(range(len(places)), key=lambda i: abs(places[i] - value))
    return value if texts[nearest] == f"{places[nearest]:g}" else _plain(texts[nearest])


def _plain(text: Any) -> str:
    """A chart label as it was before it was broken into lines and made inert; see `charts.label`.

    >>> _plain("integrated_<br>gradients<br>(steps=8)"), _plain("noise<br>&lt;b&gt;")
    ('integrated_gradients(steps=8)', 'noise <b>')
    """
    return html.unescape(re.sub(r"(?<=_)<br>|<br>(?=\()", "", str(text)).replace("<br>", " "))


def _at(values: Any, i: int) -> float | None:
    return None if values is None or i >= len(values) else values[i]


def _moved(value: Any, by: float | None, sign: int) -> float | None:
    return None if by is None or value is None or isinstance(value, str) else value + sign * by
