"""Charts and galleries as tables of what they draw, for LaTeX and for a terminal.

A chart of scores becomes a row per dot, a chart of curves a column per curve and a row per x, a scatter plot a row per
point, a gallery a row per strip of pictures. The `caption` of such a table says only what the chart's own caption does
not: what its cells hold, the dotted lines of the chart, and how many rows were left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.report.components import (
    Component,
    CurveChart,
    Gallery,
    Matrix,
    Scatter,
    ScoreChart,
    Table,
    Tile,
)
from heatproof.report.draw import (
    Looks,
    gallery_rows,
    is_true,
    panel_estimate,
    panels,
    shown_name,
    with_columns,
)
from heatproof.report.table_rows import MISSING, cell_text, plain_number
from heatproof.text import number, records, with_interval

MOST_ROWS = 12
"""How many values of x, or points of samples, a panel has in a table; a reader takes in no more."""
ABOVE_CHANCE = "Above chance"


def as_table(component: Component, looks: Looks) -> Matrix | Table | None:
    """Return a matrix or table itself, and any other component as a table of what it draws; None for an empty one."""
    if isinstance(component, Matrix | Table):
        return component
    if isinstance(component, ScoreChart):
        return _table_of_scores(component, looks)
    if isinstance(component, CurveChart):
        return _matrix_of_curves(component, looks)
    if isinstance(component, Scatter):
        return _table_of_points(component, looks)
    if isinstance(component, Gallery):
        return _table_of_pictures(component, looks)
    raise TypeError(f"no table is defined for {type(component).__name__}")


# ---- charts of scores ------------------------------------------------------------------------------------------------


def _table_of_scores(chart: ScoreChart, looks: Looks) -> Table | None:
    """Return a row per dot: its name, its score with the interval, its chance level, and whether it is hollow."""
    scores = with_columns(chart.scores, low=math.nan, high=math.nan, chance=math.nan, panel="")
    if scores.empty:
        return None
    has_verdicts = "above_chance" in scores
    rows = []
    for panel in panels(scores):
        heading = _heading(panel, chart.panel_notes.get(panel, ""), looks)
        for row in records(scores[scores["panel"] == panel]):
            chance = row._replace(score=row.chance, low=math.nan, high=math.nan)
            rows.append(
                {
                    "panel": heading,
                    "name": shown_name(getattr(row, chart.row), looks),
                    "score": cell_text(row, chart.percent),
                    "chance": cell_text(chance, chart.percent),
                    "verdict": _yes_or_no(row.above_chance) if has_verdicts else "",
                }
            )
    columns = {"name": _row_title(chart.row), "score": chart.x_label or "Score"}
    if scores["chance"].notna().any():
        columns["chance"] = "Chance"
    if has_verdicts:
        columns["verdict"] = ABOVE_CHANCE
    return _table(chart, rows, columns, _guides_in_words(chart.guides, chart.percent))


# ---- curves ----------------------------------------------------------------------------------------------------------


def _matrix_of_curves(chart: CurveChart, looks: Looks) -> Matrix | None:
    """Return a column per curve and a row per x, at most `MOST_ROWS` in a panel; reference curves come last."""
    points = _points_of_lines(chart, looks)
    if points.empty:
        return None
    references = _points_of_references(chart)
    columns = list(dict.fromkeys([*points["column"], *references["column"]]))
    cells: list[dict[str, Any]] = []
    most_values = 0
    for panel in panels(points):
        of_panel = pd.concat(
            [points[points["panel"] == panel], references[references["panel"].isin(["", panel])]]
        )
        in_order = records(of_panel.sort_values("x", kind="stable"))
        by_cell = {(_text_of_x(row), row.column): row for row in in_order}
        values_of_x = list(dict.fromkeys(x for x, _ in by_cell))
        most_values = max(most_values, len(values_of_x))
        heading = _heading(panel, chart.panel_notes.get(panel, ""), looks)
        for x in _evenly_spread(values_of_x, MOST_ROWS):
            for column in columns:
                row = by_cell.get((x, column))
                score, low, high = (
                    (math.nan, math.nan, math.nan)
                    if row is None
                    else (row.score, row.low, row.high)
                )
                cell = {"row": x, "column": column, "score": score, "low": low, "high": high}
                cells.append({"row_group": heading, **cell})

    notes = [f"Cells: {chart.y_label}."]
    if most_values > MOST_ROWS:
        notes.append(f"{MOST_ROWS} of {most_values} values of x are shown.")
    notes.append(_guides_in_words(chart.guides, chart.percent))
    return Matrix(
        key=chart.key,
        title=chart.title,
        caption=" ".join(filter(None, notes)),
        scores=pd.DataFrame(cells),
        percent=chart.percent,
        row_title=chart.x_label,
    )


def _points_of_lines(chart: CurveChart, looks: Looks) -> pd.DataFrame:
    """Return the points of a chart's lines with the heading of their curve as `column`."""
    points = _drawn_points(chart.points, chart)
    columns = []
    for row in records(points):
        line = shown_name(getattr(row, chart.line), looks)
        columns.append(", ".join(filter(None, (line, str(row.curve)))))
    return points.assign(column=pd.Series(columns, points.index, dtype=object))


def _points_of_references(chart: CurveChart) -> pd.DataFrame:
    """Return the points of the grey curves that belong to no line; an empty frame where a chart has none."""
    if chart.references is None:
        return chart.points.iloc[:0].assign(column="", panel="")
    points = _drawn_points(chart.references, chart)
    return points.assign(column=points["curve"].astype(str))


def _drawn_points(points: pd.DataFrame, chart: CurveChart) -> pd.DataFrame:
    """Return the points that have a score and, on a logarithmic axis, a positive x."""
    points = with_columns(
        points,
        low=math.nan,
        high=math.nan,
        x_low=math.nan,
        x_high=math.nan,
        curve="",
        panel="",
    )
    points = points[points["score"].notna()]
    return points[points["x"] > 0] if chart.log_x else points


def _text_of_x(row: Any) -> str:
    """Return the x of a point, with its interval where x was measured too."""
    if row.x_low < row.x_high:
        return with_interval(row.x, row.x_low, row.x_high)
    return f"{row.x:g}"


# ---- points ----------------------------------------------------------------------------------------------------------


def _table_of_points(chart: Scatter, looks: Looks) -> Table | None:
    """Return a row per point with both numbers; of samples, at most `MOST_ROWS` in a panel."""
    points = with_columns(chart.points, panel="", note="", on_frontier=False)
    points = points[points["x"].notna() & points["y"].notna()]
    if chart.log_x:
        points = points[points["x"] > 0]
    if points.empty:
        return None
    rows = []
    most_points = 0
    for panel in panels(points):
        of_panel = points[points["panel"] == panel]
        most_points = max(most_points, len(of_panel))
        if chart.is_sample:
            in_order = of_panel.sort_values("x", kind="stable")
            of_panel = in_order.iloc[_evenly_spread(range(len(in_order)), MOST_ROWS)]
        heading = _heading(panel, panel_estimate(chart, panel), looks)
        for row in of_panel.to_dict("records"):
            rows.append(_row_of_point(heading, row, chart.is_sample, looks))

    columns = {"name": "Sample" if chart.is_sample else "Method"}
    columns |= {"x": chart.x_label, "y": chart.y_label}
    if points["on_frontier"].map(is_true).any():
        columns["frontier"] = "On the frontier"
    if "above_chance" in points:
        columns["verdict"] = ABOVE_CHANCE
    is_thinned = chart.is_sample and most_points > MOST_ROWS
    note = f"{MOST_ROWS} of {most_points} points are shown." if is_thinned else ""
    return _table(chart, rows, columns, note)


def _row_of_point(
    heading: str, row: dict[Any, Any], is_sample: bool, looks: Looks
) -> dict[str, str]:
    """Return the cells of one point: its name, which is its note or its method, its coordinates and what they show."""
    explainer = row.get("explainer")
    method = "" if explainer is None or pd.isna(explainer) else shown_name(explainer, looks)
    names = (str(row["note"]), method) if is_sample else (method, str(row["note"]))
    return {
        "panel": heading,
        "name": names[0] or names[1],
        "x": _text_of_number(row, "x"),
        "y": _text_of_number(row, "y"),
        "frontier": _yes_or_no(row["on_frontier"]),
        "verdict": _yes_or_no(row.get("above_chance")),
    }


def _text_of_number(row: dict[Any, Any], name: str) -> str:
    """Return a coordinate of a point with its interval, where it has one."""
    low, high = row.get(f"{name}_low", math.nan), row.get(f"{name}_high", math.nan)
    if math.isfinite(low) and math.isfinite(high):
        return with_interval(row[name], low, high)
    return plain_number(float(row[name]))


# ---- galleries -------------------------------------------------------------------------------------------------------


def _table_of_pictures(gallery: Gallery, looks: Looks) -> Table | None:
    """Return a row per strip of pictures: its method, its sample and what the pictures show."""
    rows = []
    for tiles in gallery_rows(gallery):
        item = tiles[0].item
        rows.append(
            {
                "panel": "",
                "name": shown_name(item.explainer, looks),
                "sample": item.sample,
                "shown": "; ".join(text for text in map(_text_of_tile, tiles) if text),
            }
        )
    if not rows:
        return None
    where = "The pictures are on the page of the run"
    if gallery.paper:
        where += ", and `heatproof figures` writes them as files"
    columns = {"name": "Method", "sample": "Sample", "shown": "Shown"}
    return _table(gallery, rows, columns, f"{where}.")


def _text_of_tile(tile: Tile) -> str:
    """Return what stands beside a picture: its title, its score and its note."""
    score = "" if tile.score is None else number(tile.score)
    return ", ".join(filter(None, (tile.title, score, tile.note)))


# ---- all -------------------------------------------------------------------------------------------------------------


def _table(
    component: Component, rows: Sequence[Mapping[str, str]], columns: Mapping[str, str], note: str
) -> Table:
    """Return rows of text as a table, in panels where there are any."""
    has_panels = any(row["panel"] for row in rows)
    return Table(
        key=component.key,
        title=component.title,
        caption=note,
        rows=pd.DataFrame(rows),
        columns=columns,
        group="panel" if has_panels else None,
    )


def _heading(panel: str, note: str, looks: Looks) -> str:
    return ", ".join(filter(None, (shown_name(panel, looks), note)))


def _row_title(column: str) -> str:
    return "Method" if column == "explainer" else ""


def _yes_or_no(value: Any) -> str:
    """Return a verdict in a word, and a dash for one that is missing."""
    if pd.isna(value):
        return MISSING
    return "yes" if value else "no"


def _guides_in_words(guides: Mapping[str, float], percent: bool) -> str:
    """Return the dotted lines of a chart by name; nothing without any."""
    if not guides:
        return ""
    named = []
    for name, value in guides.items():
        text = f"{number(100 * value, 1)} %" if percent else plain_number(value)
        named.append(f"{name} {text}")
    return f"Dotted lines: {', '.join(named)}."


def _evenly_spread(values: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of some values, the first and the last among them.

    >>> _evenly_spread(range(101), 3), _evenly_spread([1, 2], 3)
    ([0, 50, 100], [1, 2])
    """
    if len(values) <= most:
        return list(values)
    positions = np.linspace(0, len(values) - 1, most).round().astype(int)
    return [values[int(position)] for position in positions]
