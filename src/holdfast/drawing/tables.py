"""Tables of a page: rows of text and the HTML that shows them, and CSV that a spreadsheet cannot run."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from holdfast.drawing.pages import SHARED, page

FORMULA = ("=", "+", "-", "@", "\t", "\r")
DIGITS = 6


@dataclass(frozen=True)
class Row:
    """One line of a table: its cells as text, and whether it belongs to a control."""

    cells: list[str]
    control: bool = False


def grid(columns: Sequence[str], rows: Sequence[Row], label: str) -> Markup:
    """A table that scrolls sideways where it is narrow; columns without an entry are left out.

    >>> "<td>2</td>" in grid(["a", "b"], [Row(["1", "2"])], "Numbers")
    True
    """
    table: Any = page(SHARED, "tables.html").module
    return Markup(table.grid(columns, rows, label))


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
