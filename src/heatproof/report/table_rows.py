"""The cells of a table as text, the same on a page, in LaTeX and in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from heatproof.report.components import Table
from heatproof.report.draw import Looks, is_true, shown_name
from heatproof.text import digits_of, number, with_interval

MISSING = "–"
LONG_TEXT = 44
"""The letters from which on the text of a cell is folded."""


@dataclass(frozen=True)
class Row:
    """One line of a table: its cells as text, and whether it belongs to a control.

    A `heading` has one cell, which stands over the rows below it.
    """

    cells: Sequence[str]
    control: bool = False
    heading: bool = False


def table_rows(table: Table, looks: Looks) -> list[Row]:
    """Return the rows of a table in order, each group under its heading.

    >>> frame = pd.DataFrame({"a": ["x"], "score": [0.5], "low": [0.4], "high": [0.6]})
    >>> table = Table(key="", title="", caption="", rows=frame, columns={"a": "A", "score": "Score"})
    >>> table_rows(table, {})[0].cells
    ['x', '0.50 [0.40, 0.60]']
    """
    rows: list[Row] = []
    group: Any = None
    for row in table.rows.to_dict("records"):
        if table.group is not None and row[table.group] != group:
            group = row[table.group]
            rows.append(Row([shown_name(group, looks)], heading=True))
        cells = [_table_cell(row, column, looks) for column in table.columns]
        look = looks.get(str(row.get("explainer")))
        is_control = is_true(row.get("is_control", False)) if look is None else look.control
        rows.append(Row(cells, is_control))
    return rows


def prose_columns(rows: Sequence[Row]) -> set[int]:
    """Return the numbers of the columns with sentences, which are folded and aligned to the left.

    >>> sorted(prose_columns([Row(["LIME", "Draw more random samples: two draws agree to 0.66 only."])]))
    [1]
    """
    columns = set()
    for row in rows:
        if row.heading:
            continue
        for column, text in enumerate(row.cells):
            if len(text) > LONG_TEXT:
                columns.add(column)
    return columns


def _table_cell(row: dict[Any, Any], column: str, looks: Looks) -> str:
    """Return one cell, with its interval where the row has one."""
    value = row[column]
    if not isinstance(value, str) and pd.isna(value):
        return MISSING
    prefix = "" if column == "score" else f"{column}_"
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if is_number and f"{prefix}low" in row and f"{prefix}high" in row:
        return with_interval(value, row[f"{prefix}low"], row[f"{prefix}high"])
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return str(value)
    if is_number:
        return plain_number(float(value))
    return shown_name(value, looks) or MISSING


def plain_number(value: float) -> str:
    """Return a number without an interval: two decimals, more for small numbers, none for large ones.

    >>> plain_number(0.5), plain_number(0.0123), plain_number(512.3)
    ('0.50', '0.012', '512')
    """
    if abs(value) >= 100:
        return number(value, 0)
    return number(value, 2 if value == 0 or abs(value) >= 0.0995 else 3)


def cell_text(cell: Any, percent: bool) -> str:
    """Return the number of a cell of a matrix with its interval, or a dash; `cell` is a row of its frame, or None."""
    if cell is None or pd.isna(cell.score):
        return MISSING
    has_interval = not (pd.isna(cell.low) or pd.isna(cell.high))
    if percent:
        text = f"{number(100 * cell.score, 1)} %"
        ends = f" [{number(100 * cell.low, 1)}, {number(100 * cell.high, 1)}]"
        return text + ends if has_interval else text
    if has_interval:
        return with_interval(cell.score, cell.low, cell.high)
    return number(cell.score, digits_of(cell.score, cell.low, cell.high))
