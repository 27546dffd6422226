"""Components as plots: what a page shows as SVG, and a paper as PDF, PNG or SVG.

`looks` has the display name and the colour of every explainer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from heatproof.evaluation import GalleryItem
from heatproof.report import images, map_drawings
from heatproof.report.canvas import Plot, Sheet, Words
from heatproof.report.components import (
    Component,
    CurveChart,
    Gallery,
    Limits,
    Matrix,
    Scatter,
    ScoreChart,
    Tile,
)
from heatproof.report.plots import DASHES, WIDE, Curve, Mark, cells, curves, dots
from heatproof.report.scatter import points as points_plot
from heatproof.results.names import Look
from heatproof.text import number, records, with_interval

Looks = Mapping[str, Look]

ONE_PLOT, OF_SIX = 340.0, 202.0
"""How wide a chart of one plot is, and each of six plots, which then stand side by side on a page."""
MOST_FAINT = 12
"""How many lines stand behind another one at most."""
MOST_SAMPLES = 400
ALL_SAMPLES = 4000
"""How many dots of single samples a row or a plot has at most, and a whole chart."""
MOST_NAMED = 16
"""How many points of a scatter plot are named at most."""
ROOM, ROOM_FOR_NAMES = 0.04, 0.12
"""How much of an axis is left free at either end."""
TILE, CAPTION = 112.0, 32.0
"""How high a picture of a gallery is on paper, and the two lines below it."""


def plots_of(component: Component, looks: Looks) -> list[Plot]:
    """Return the plots of a chart, a shaded matrix or a gallery; a table has none, nor has an empty component."""
    if isinstance(component, ScoreChart):
        return _score_plots(component, looks)
    if isinstance(component, CurveChart):
        all_plots: list[Plot] = []
        for _, plots in curve_plots_by_panel(component, looks):
            all_plots += plots
        return all_plots
    if isinstance(component, Matrix):
        return _matrix_plots(component, looks) if component.shaded else []
    if isinstance(component, Scatter):
        return _scatter_plots(component, looks)
    if isinstance(component, Gallery):
        return _gallery_plots(component, looks)
    return []


# ---- frames ----------------------------------------------------------------------------------------------------------


def with_columns(frame: pd.DataFrame, **defaults: Any) -> pd.DataFrame:
    """Return a frame with the optional columns that it lacks.

    >>> with_columns(pd.DataFrame({"a": [1]}), a=0, b="").to_dict("list")
    {'a': [1], 'b': ['']}
    """
    return frame.assign(
        **{name: default for name, default in defaults.items() if name not in frame}
    )


def shown_name(value: Any, looks: Looks) -> str:
    """Return the display name of an explainer, a number in few digits, or any other text as it is."""
    if isinstance(value, str):
        return looks[value].name if value in looks else value
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    return str(value)


def is_true(value: Any) -> bool:
    """Whether a cell is True; missing values are not."""
    return not pd.isna(value) and bool(value)


def look_of(row: Any, looks: Looks) -> Look:
    """Return the look of the explainer of a row, or a plain one for a row that belongs to none."""
    explainer = getattr(row, "explainer", None)
    if isinstance(explainer, str) and explainer in looks:
        return looks[explainer]
    is_control = is_true(row.is_control)
    return Look(str(explainer or ""), "control" if is_control else "soft", is_control)


def _kind(row: Any, look: Look, frame: pd.DataFrame) -> str:
    """Return how a dot is drawn: hollow unless a verdict says that it is above chance, where there is one."""
    if "above_chance" in frame and not is_true(row.above_chance):
        return "hollow"
    return "open" if look.open else "filled"


def axis_limits(
    values: Iterable[float], limits: Limits | None, log: bool, room: float = ROOM
) -> Limits:
    """Return the ends of a scale that holds some numbers and the limits, with room at both ends, as a share of it.

    >>> axis_limits([0.5], (0.0, 1.0), False)
    (-0.04, 1.04)
    """
    numbers = [value for value in (*values, *(limits or ())) if math.isfinite(value)]
    if log:
        positive = [value for value in numbers if value > 0] or [0.1, 1.0]
        low, high = min(positive), max(positive)
        factor = (high / low) ** room if high > low else 1.5
        return low / factor, high * factor
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    margin = room * (high - low or 1.0)
    return low - margin, high + margin


def thinned(values: pd.Series, most: int) -> list[float]:
    """Return at most so many of the numbers that are not missing, evenly spread over their order."""
    known = values.dropna()
    if len(known) > most:
        known = known.iloc[np.linspace(0, len(known) - 1, most).round().astype(int)]
    return [float(value) for value in known]


def panels(frame: pd.DataFrame) -> list[str]:
    """Return the panels of a frame in the order in which they first appear."""
    return [str(panel) for panel in dict.fromkeys(frame["panel"])]


# ---- scores ----------------------------------------------------------------------------------------------------------


def _score_plots(chart: ScoreChart, looks: Looks) -> list[Plot]:
    rows = with_columns(
        chart.scores,
        low=math.nan,
        high=math.nan,
        chance=math.nan,
        panel="",
        is_control=False,
        note="",
    )
    if rows.empty:
        return []
    samples_per_row = min(MOST_SAMPLES, max(1, ALL_SAMPLES // len(rows)))
    marks: dict[str, list[Mark]] = {}
    guides: dict[str, list[tuple[str, float]]] = {}
    # One chance level for all rows of a panel is a line through the panel; otherwise each row shows its own.
    for panel in panels(rows):
        of_panel = rows[rows["panel"] == panel]
        guides[panel] = list(chart.guides.items())
        levels = of_panel["chance"].dropna().round(6).unique()
        has_one_chance = len(levels) == 1
        if has_one_chance:
            guides[panel].append(("chance", float(levels[0])))
        marks[panel] = []
        for row in records(of_panel):
            cloud = _samples_of(chart, getattr(row, chart.row), panel, samples_per_row)
            of_row = _score_mark(chart, row, looks, cloud)
            marks[panel].append(replace(of_row, chance=math.nan) if has_one_chance else of_row)

    shared = axis_limits(_numbers(marks, guides), chart.limits, chart.log_x)
    limits = dict.fromkeys(marks, shared)
    if not chart.shared_scale:
        for panel, of_panel_marks in marks.items():
            numbers = _numbers({panel: of_panel_marks}, {panel: guides[panel]})
            limits[panel] = axis_limits(numbers, chart.limits, chart.log_x)
    width = {1: ONE_PLOT, 6: OF_SIX}.get(len(marks), WIDE)
    return [
        dots(
            panel,
            of_panel,
            limits[panel],
            axis=chart.x_label,
            note=chart.panel_notes.get(panel, ""),
            guides=guides[panel],
            percent=chart.percent,
            log=chart.log_x,
            width=width,
        )
        for panel, of_panel in marks.items()
    ]


def _score_mark(chart: ScoreChart, row: Any, looks: Looks, cloud: Sequence[float]) -> Mark:
    """Return the dot of one row of a chart, with its interval; `cloud` has the scores of single samples behind it."""
    look = look_of(row, looks)
    # A logarithmic axis has no place for 0 and below.
    is_on_axis = row.score > 0 or not chart.log_x
    score = row.score if is_on_axis else math.nan
    has_own_chance = math.isfinite(row.chance)
    chance_text = f"chance {number(row.chance)}" if has_own_chance else ""
    return Mark(
        shown_name(getattr(row, chart.row), looks),
        score,
        row.low,
        row.high,
        look.colour,
        _kind(row, look, chart.scores),
        ", ".join(filter(None, (row.note, chance_text))),
        method=look.name,
        cloud=cloud,
        chance=row.chance,
    )


def _samples_of(chart: ScoreChart, row: Any, panel: str, most: int) -> list[float]:
    """Return the scores of single samples that stand behind one dot."""
    if chart.samples is None:
        return []
    samples = with_columns(chart.samples, panel=panel)
    is_here = (samples[chart.row] == row) & (samples["panel"] == panel)
    values = samples.loc[is_here, "value"]
    return thinned(values[values > 0] if chart.log_x else values, most)


def _numbers(
    marks: Mapping[str, Sequence[Mark]], guides: Mapping[str, Sequence[tuple[str, float]]]
) -> list[float]:
    """Return every number that a scale must hold."""
    numbers = []
    for of_panel in marks.values():
        for m in of_panel:
            numbers += [m.value, m.low, m.high, m.chance, *m.cloud]
    for of_panel_guides in guides.values():
        numbers += [value for _, value in of_panel_guides]
    return numbers


# ---- curves ----------------------------------------------------------------------------------------------------------


def curve_plots_by_panel(chart: CurveChart, looks: Looks) -> list[tuple[str, list[Plot]]]:
    """Return the plots of every panel of a chart of curves."""
    points = with_columns(
        chart.points,
        low=math.nan,
        high=math.nan,
        x_low=math.nan,
        x_high=math.nan,
        curve="",
        panel="",
        note="",
        is_control=False,
    )
    points = points[points["score"].notna()]
    if chart.log_x:
        points = points[points["x"] > 0]
    if points.empty:
        return []
    styles = _dashes(points, chart)
    references = _references(chart)
    by_panel = []
    for panel in panels(points):
        of_panel = points[points["panel"] == panel]
        rows_of_line: dict[Any, list[Any]] = {}
        for row in records(of_panel):
            rows_of_line.setdefault(getattr(row, chart.line), []).append(row)
        lines = {
            line: _curves_of_line(chart, line, rows, looks, styles)
            for line, rows in rows_of_line.items()
        }
        of_references = references.get(panel, []) + references.get("", [])
        by_panel.append((panel, lines, of_references))

    # All panels share their scales, so that they can be compared.
    marks: list[Mark] = []
    for _, lines, of_references in by_panel:
        for of_line in [*lines.values(), of_references]:
            for curve in of_line:
                marks += curve.marks
    heights: list[float] = []
    for m in marks:
        heights += [m.value, m.low, m.high]
    common: dict[str, Any] = {
        "limits": axis_limits(heights, chart.limits, False),
        "x": chart.x_label,
        "y": chart.y_label,
        "at": [m.x for m in marks],
        "log": chart.log_x,
        "diagonal": chart.diagonal,
        "percent": chart.percent,
        "guides": list(chart.guides.items()),
    }
    plots_by_panel = []
    for panel, lines, of_references in by_panel:
        note = chart.panel_notes.get(panel, "")
        if not chart.plot_per_line:
            all_lines = [*of_references, *_named_by_line(lines, looks)]
            width = ONE_PLOT if len(by_panel) == 1 else WIDE
            plot = curves(panel, all_lines, note=note, width=width, **common)
            plots_by_panel.append((panel, [plot]))
            continue
        # Each line has a plot of its own, with the other lines faint behind it.
        plots = []
        for line, of_line in lines.items():
            background = [*_faint(lines, line), *of_references]
            panel_and_note = ", ".join(filter(None, (panel, note)))
            name = shown_name(line, looks)
            plots.append(curves(name, [*background, *of_line], note=panel_and_note, **common))
        plots_by_panel.append((panel, plots))
    return plots_by_panel


def _dashes(points: pd.DataFrame, chart: CurveChart) -> dict[Any, tuple[float, ...]]:
    """Return the dashes of every curve; of lines that have no colour of their own, those of every line."""
    names = dict.fromkeys(points["curve"])
    if len(names) < 2 and chart.line != "explainer" and not chart.plot_per_line:
        names = dict.fromkeys(points[chart.line])
    return {name: DASHES[i % len(DASHES)] for i, name in enumerate(names)}


def _curves_of_line(
    chart: CurveChart,
    line: Any,
    points: Sequence[Any],
    looks: Looks,
    styles: Mapping[Any, tuple[float, ...]],
) -> list[Curve]:
    """Return the curves of one line, such as both orders of removal of one explainer, from its points as records."""
    points_of_curve: dict[Any, list[Any]] = {}
    for point in points:
        points_of_curve.setdefault(point.curve, []).append(point)
    of_line = []
    for curve, of_curve in points_of_curve.items():
        marks = []
        for row in sorted(of_curve, key=lambda point: float(point.x)):
            look = look_of(row, looks)
            marks.append(
                Mark(
                    ", ".join(filter(None, (shown_name(line, looks), str(curve)))),
                    row.score,
                    row.low,
                    row.high,
                    look.colour,
                    _kind(row, look, chart.points),
                    str(row.note),
                    x=float(row.x),
                    x_low=row.x_low,
                    x_high=row.x_high,
                    method=look.name,
                )
            )
        dash = styles.get(curve, styles.get(line, ()))
        of_line.append(Curve(str(curve), marks, marks[0].colour, dash))
    return of_line


def _references(chart: CurveChart) -> dict[str, list[Curve]]:
    """Return the grey curves that belong to no line, by panel; those without a panel are in every plot."""
    if chart.references is None or chart.references.empty:
        return {}
    points = with_columns(chart.references, low=math.nan, high=math.nan, panel="")
    points = points[points["score"].notna()]
    if chart.log_x:
        points = points[points["x"] > 0]
    by_panel: dict[str, list[Curve]] = {}
    for (panel, name), of_curve in points.groupby(["panel", "curve"], sort=False, observed=True):
        marks = [
            Mark(str(name), row.score, row.low, row.high, "control", x=float(row.x))
            for row in records(of_curve.sort_values("x", kind="stable"))
        ]
        by_panel.setdefault(str(panel), []).append(Curve("", marks, "control", DASHES[2]))
    return by_panel


def _named_by_line(lines: Mapping[Any, Sequence[Curve]], looks: Looks) -> list[Curve]:
    """Return the curves of all lines for one plot; the first of each line has the line's name at its end."""
    together = []
    for line, of_line in lines.items():
        first, *others = of_line
        together.append(replace(first, name=shown_name(line, looks) if len(lines) > 1 else ""))
        together += [replace(curve, name="") for curve in others]
    return together


def _faint(lines: Mapping[Any, Sequence[Curve]], line: Any) -> list[Curve]:
    """Return the first curve of every other line that is not a control, to stand behind the curves of one line."""
    firsts = [of_line[0] for other, of_line in list(lines.items())[:MOST_FAINT] if other != line]
    return [Curve("", curve.marks, faint=True) for curve in firsts if curve.colour != "control"]


# ---- matrices --------------------------------------------------------------------------------------------------------


def _matrix_plots(matrix: Matrix, looks: Looks) -> list[Plot]:
    grid = MatrixGrid(matrix)
    if not grid.rows:
        return []
    marks: list[list[Mark | None]] = []
    for row in grid.rows:
        line: list[Mark | None] = []
        for column in grid.columns:
            cell = grid.cells.get((row, column))
            line.append(None if cell is None else _cell_mark(cell, row[1], column[1], looks))
        marks.append(line)
    plot = cells(
        [shown_name(row, looks) for _, row in grid.rows],
        [shown_name(column, looks) for _, column in grid.columns],
        marks,
        row_heads={i: shown_name(group, looks) for i, group in grid.row_heads.items()},
        spans=[(shown_name(group, looks), count) for group, count in grid.spans],
        percent=matrix.percent,
    )
    return [plot]


def _cell_mark(cell: Any, row: Any, column: Any, looks: Looks) -> Mark:
    name = f"{shown_name(row, looks)}, {shown_name(column, looks)}"
    method = looks[row].name if isinstance(row, str) and row in looks else ""
    return Mark(
        name,
        cell.score,
        cell.low,
        cell.high,
        note=str(cell.note),
        method=method,
        bold=is_true(cell.best),
    )


class MatrixGrid:
    """A long frame of numbers as rows and columns, each (group, name), in the order of the frame.

    `row_heads` maps the number of a row to the group that begins there, `spans` are groups of columns with their number of
    columns; both are empty without groups. `cells` has the row of the frame of every (row, column).

    >>> frame = pd.DataFrame({"row": ["b", "b", "a"], "column": [1, 2, 1], "score": [0.1, 0.2, 0.3]})
    >>> grid = MatrixGrid(Matrix(key="", title="", caption="", scores=frame))
    >>> [row for _, row in grid.rows], [column for _, column in grid.columns]
    (['b', 'a'], [1, 2])
    """

    def __init__(self, matrix: Matrix) -> None:
        frame = with_columns(
            matrix.scores,
            low=math.nan,
            high=math.nan,
            best=False,
            row_group="",
            column_group="",
            is_control=False,
            note="",
        )
        entries = records(frame)
        self.cells = {
            ((row.row_group, row.row), (row.column_group, row.column)): row for row in entries
        }
        self.rows = _by_group((row.row_group, row.row) for row in entries)
        self.columns = _by_group((row.column_group, row.column) for row in entries)
        self.controls = {(row.row_group, row.row) for row in entries if is_true(row.is_control)}
        self.row_heads: dict[int, Any] = {}
        for i, (group, _) in enumerate(self.rows):
            begins = i == 0 or group != self.rows[i - 1][0]
            if begins and group != "":
                self.row_heads[i] = group
        self.spans: list[tuple[Any, int]] = []
        for group, _ in self.columns:
            if self.spans and self.spans[-1][0] == group:
                self.spans[-1] = (group, self.spans[-1][1] + 1)
            else:
                self.spans.append((group, 1))
        if all(group == "" for group, _ in self.spans):
            self.spans = []


def _by_group(keys: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return (group, name) without repetition, those of one group together, in the order of first appearance."""
    unique = list(dict.fromkeys(keys))
    groups = list(dict.fromkeys(group for group, _ in unique))
    return sorted(unique, key=lambda key: groups.index(key[0]))


# ---- points ----------------------------------------------------------------------------------------------------------


def _scatter_plots(chart: Scatter, looks: Looks) -> list[Plot]:
    """Return a plot of points for every panel; a panel with too many samples shows some, evenly spread."""
    rows = with_columns(
        chart.points,
        x_low=math.nan,
        x_high=math.nan,
        y_low=math.nan,
        y_high=math.nan,
        panel="",
        on_frontier=False,
        is_control=False,
        note="",
    )
    rows = rows[rows["x"].notna() & rows["y"].notna()]
    if chart.log_x:
        rows = rows[rows["x"] > 0]
    if rows.empty:
        return []
    x_limits, y_limits = _scatter_limits(chart, rows)
    names = panels(rows)
    most = min(MOST_SAMPLES, max(1, ALL_SAMPLES // len(names)))
    plots = []
    for panel in names:
        of_panel = rows[rows["panel"] == panel]
        if chart.is_sample and len(of_panel) > most:
            shown_rows = np.linspace(0, len(of_panel) - 1, most).round().astype(int)
            of_panel = of_panel.iloc[shown_rows]
        marks = [_point_mark(chart, row, looks) for row in records(of_panel)]
        is_large = not chart.is_sample
        plots.append(
            points_plot(
                shown_name(panel, looks),
                marks,
                x_limits,
                y_limits,
                chart.x_label,
                chart.y_label,
                note=panel_estimate(chart, panel),
                steps=_frontier_steps(of_panel, x_limits, y_limits),
                diagonal=chart.diagonal,
                named=is_large and len(marks) <= MOST_NAMED,
                small=chart.is_sample,
                log=chart.log_x,
                **({"width": ONE_PLOT, "height": 260.0} if is_large else {}),
            )
        )
    return plots


def _scatter_limits(chart: Scatter, rows: pd.DataFrame) -> tuple[Limits, Limits]:
    """Return the ends of both axes, from worse to better."""
    x_numbers = rows[["x", "x_low", "x_high"]].to_numpy(dtype=np.float64).ravel().tolist()
    y_numbers = rows[["y", "y_low", "y_high"]].to_numpy(dtype=np.float64).ravel().tolist()
    if not chart.is_sample:
        # Scores of methods are read from zero, and their names need room.
        x_numbers, y_numbers = [*x_numbers, 0.0], [*y_numbers, 0.0]
    room = ROOM if chart.is_sample else ROOM_FOR_NAMES
    x_limits = axis_limits(x_numbers, None, chart.log_x, room)
    y_limits = axis_limits(y_numbers, chart.limits, False, room)
    if chart.reverse_x:
        x_limits = x_limits[::-1]
    if chart.reverse_y:
        y_limits = y_limits[::-1]
    return x_limits, y_limits


def _point_mark(chart: Scatter, row: Any, looks: Looks) -> Mark:
    look = look_of(row, looks)
    name = look.name or str(row.note) or "sample"
    return Mark(
        name,
        row.y,
        row.y_low,
        row.y_high,
        look.colour,
        _kind(row, look, chart.points),
        str(row.note),
        x=float(row.x),
        x_low=row.x_low,
        x_high=row.x_high,
        method=look.name,
    )


def _frontier_steps(
    rows: pd.DataFrame, x_limits: Limits, y_limits: Limits
) -> list[tuple[float, float]]:
    """Return the corners of the line that joins the points of the frontier, from the worst x to the best."""
    is_reversed = x_limits[0] > x_limits[1]
    frontier = rows[rows["on_frontier"].astype(bool)].sort_values("x", ascending=not is_reversed)
    if frontier.empty:
        return []
    steps = [(x_limits[0], float(frontier["y"].iloc[0]))]
    for row in records(frontier):
        steps += [(steps[-1][0], row.y), (row.x, row.y)]
    return [*steps, (steps[-1][0], y_limits[0])]


def panel_estimate(chart: Scatter, panel: str) -> str:
    estimate = chart.panel_estimates.get(panel)
    if estimate is None:
        return ""
    has_interval = math.isfinite(estimate.low) and math.isfinite(estimate.high)
    text = with_interval(estimate.score, estimate.low, estimate.high)
    text = text if has_interval else number(estimate.score)
    return f"{chart.estimate_name} {text}".strip()


# ---- galleries -------------------------------------------------------------------------------------------------------


def gallery_rows(gallery: Gallery) -> list[list[Tile]]:
    """Return the tiles in rows: those that follow each other and show one explainer and one sample."""
    rows: list[list[Tile]] = []
    for tile in gallery.tiles:
        key = (tile.item.explainer, tile.item.sample)
        if rows and (rows[-1][0].item.explainer, rows[-1][0].item.sample) == key:
            rows[-1].append(tile)
        else:
            rows.append([tile])
    return rows


def _gallery_plots(gallery: Gallery, looks: Looks) -> list[Plot]:
    """Return a plot for every row of a gallery, for a paper."""
    drawn = []
    for row in gallery_rows(gallery):
        sheet, x = Sheet(0, TILE + CAPTION), 0.0
        is_signed = any(
            images.is_signed(tile.item.map) for tile in row if tile.item.map is not None
        )
        for tile in row:
            x = _place_tile(sheet, tile, is_signed, x)
        sheet.width = x
        first = row[0].item
        drawn.append(Plot(shown_name(first.explainer, looks), sheet, first.sample))
    return drawn


def _place_tile(sheet: Sheet, tile: Tile, is_signed: bool, x: float) -> float:
    """Draw one tile with its captions, and return where the next one begins."""
    wide = 2 * TILE if map_drawings.is_wide(tile.item) else TILE
    start = x
    for item in items_shown(tile):
        images.place_map(sheet, item, is_signed, x, 0, wide, TILE)
        x += wide + 4
    score = "" if tile.score is None else number(tile.score)
    sheet.add(Words(start, TILE + 12, ", ".join(filter(None, (tile.title, score))), "ink", size=10))
    if tile.note:
        sheet.add(Words(start, TILE + 24, tile.note, "third", size=10))
    return x + 8


def items_shown(tile: Tile) -> list[GalleryItem]:
    """Return the pictures of a tile side by side: maps over their inputs, or inputs alone where the map is None."""
    item = tile.item
    if tile.view == "map":
        return [item]
    if tile.view == "region" and item.map is not None:
        return [replace(item, image=images.highlighted(item.image, item.map > 0.5), map=None)]
    shown = [replace(item, map=None)]
    if tile.view == "input_and_mask" and item.map is not None:
        grey = np.where(item.map > 0.5, 255, 0).astype(np.uint8)
        shown.append(replace(item, image=np.repeat(grey[..., None], 3, axis=-1), map=None))
    return shown
