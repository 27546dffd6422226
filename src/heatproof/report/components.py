"""Components of a report: charts, tables and galleries as data.

The `report.py` of an axis fills frames; `heatproof.report.draw` turns them into plots, tables and pictures, which the
page shows as SVG and HTML, `heatproof figures` writes as SVG, PDF, PNG and LaTeX, and the terminal prints as text.

Rules that hold for every component:

- Rows are drawn in the order of the frame. Renderers never sort.
- `score`, `low` and `high` are an estimate and its 95 % interval; the ends may be missing or NaN.
- The name of an explainer, alone in a cell, is shown as its display name, and a mark of an explainer has its colour.
  Controls are grey. Rows that belong to no explainer are grey where they have `is_control`.
- A dot is filled if `above_chance` is True, and hollow if it is False or unknown (None, NaN). The verdict decides that,
  not the renderer. Where a frame has no such column, every dot is filled.
- `panel` splits a chart into several plots, which share their scales.
- `note` is a short fact about one mark, shown when the reader points at it.
- The first chart and the first gallery of an axis are open on the page; the rest is folded.
- Alternative texts, file names and the names of model and data come from the renderer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from heatproof.evaluation import GalleryItem

Limits = tuple[float, float]
View = Literal["map", "input", "input_and_mask", "region"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Component:
    """One part of a section.

    `key` is its anchor on the page. `paper` says which figure or table it reproduces; `heatproof figures` writes every
    component that has one, under the name `figure`, by default `<axis>-<key>`.
    """

    key: str
    title: str
    caption: str
    paper: str = ""
    figure: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreChart(Component):
    """Dots with intervals, a row per explainer or per value of another column.

    scores    score and the column named by `row`; optional: explainer, low, high, chance, above_chance, panel, is_control,
              note
    samples   scores of single samples, a faint cloud behind each dot: value and the column `row`; optional: panel
    limits    numbers that the scale must hold besides those of the frame, such as (0, 1)
    guides    dotted lines through all rows, by name

    A `chance` that all rows of a panel share is drawn as a line, others as a short line in each row. `panel_notes` are
    small print beside the titles of panels. Panels of different measures have no `shared_scale`.
    """

    scores: pd.DataFrame
    row: str = "explainer"
    samples: pd.DataFrame | None = None
    shared_scale: bool = True
    x_label: str = ""
    limits: Limits | None = None
    guides: Mapping[str, float] = field(default_factory=dict)
    panel_notes: Mapping[str, str] = field(default_factory=dict)
    percent: bool = False
    log_x: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class CurveChart(Component):
    """Curves with intervals.

    points      x, score and the column named by `line`; optional: low, high, x_low, x_high, above_chance, curve, panel,
                note. `curve` tells several curves of one line apart, such as MoRF and LeRF: solid, dashed, dotted
    references  curves in every plot that belong to no line, grey: curve, x, score; optional: low, high, panel

    There is a plot per panel and line, with the first curve of the other lines faint behind it; without `plot_per_line`
    there is a plot per panel with all lines. `guides` are dotted lines at some heights, `panel_notes` small print beside
    the title of a panel.
    """

    points: pd.DataFrame
    x_label: str
    y_label: str
    references: pd.DataFrame | None = None
    line: str = "explainer"
    plot_per_line: bool = True
    limits: Limits | None = None
    guides: Mapping[str, float] = field(default_factory=dict)
    panel_notes: Mapping[str, str] = field(default_factory=dict)
    diagonal: bool = False
    percent: bool = False
    log_x: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrix(Component):
    """Numbers in rows and columns: a heat map on the page, a booktabs table in a paper.

    scores    row, column, score; optional: low, high, best, row_group, column_group, is_control, note

    Rows, columns and groups stand in the order in which they first appear. Cells with `best` are bold. Groups become
    headings over their rows and spans over their columns. A matrix whose columns have different units is not `shaded`,
    and is a plain table on the page too.
    """

    scores: pd.DataFrame
    shaded: bool = True
    percent: bool = False
    row_title: str = "Method"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, which may be missing."""

    score: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, kw_only=True, eq=False)
class Scatter(Component):
    """Points between two numbers.

    points    x, y; optional: explainer, x_low, x_high, y_low, y_high, above_chance, panel, on_frontier, is_control, note

    With `is_sample` each point is one sample: small, unnamed, and thinned out where there are many. Otherwise points are
    named. Points `on_frontier` are joined by steps. `panel_estimates` are written beside the titles of the panels, after
    `estimate_name`. `limits` are numbers that the scale of y must hold, `diagonal` draws the line y = x. An axis on which
    lower is better is reversed, so that better is always up and to the right.
    """

    points: pd.DataFrame
    x_label: str
    y_label: str
    is_sample: bool = False
    panel_estimates: Mapping[str, Estimate] = field(default_factory=dict)
    estimate_name: str = ""
    limits: Limits | None = None
    diagonal: bool = False
    log_x: bool = False
    reverse_x: bool = False
    reverse_y: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Component):
    """Rows of words and numbers, where a Matrix does not fit.

    `columns` maps columns of `rows` to headings, in order. A number in a column with `<column>_low` and `<column>_high`
    beside it is written with its interval; so is `score` with `low` and `high`. Missing values are written as a dash, and a
    column of dashes is left out. Rows with equal values in the column `group` stand under one heading. Optional column:
    is_control.
    """

    rows: pd.DataFrame
    columns: Mapping[str, str]
    group: str | None = None


@dataclass(frozen=True, eq=False)
class Tile:
    """A stored image in a gallery, and how it is shown.

    map             the map over its input; `score` is written in the corner
    input           the input alone
    input_and_mask  the input, and beside it in white what was kept; the stored map is the mask
    region          the input, dark but for the stored region, which has a border
    """

    item: GalleryItem
    title: str
    view: View = "map"
    note: str = ""
    score: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Gallery(Component):
    """Images in rows; consecutive tiles of one explainer and one sample are a row."""

    tiles: Sequence[Tile]


def spans_decades(values: pd.Series, factor: float = 50.0) -> bool:
    """Whether numbers are positive and so far apart that a logarithmic axis is needed.

    >>> spans_decades(pd.Series([0.01, 3.0])), spans_decades(pd.Series([0.0, 3.0]))
    (True, False)
    """
    smallest, largest = values.min(), values.max()
    return bool(smallest > 0 and largest > factor * smallest)
