"""Tables of a page: rows of text and the HTML that shows them, and CSV that a spreadsheet cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup
from pandas.api.types import is_string_dtype

from holdfast.drawing.pages import SHARED, page

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a text starts that a spreadsheet takes for a formula or hides one behind."""
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
    texts = {str(name): inert(frame[name]) for name in frame if is_string_dtype(frame[name])}
    safe = frame.assign(**texts).set_axis(inert(frame.columns.to_series()), axis=1)
    return safe.to_csv(index=False, lineterminator="\n", float_format=_written)


def _written(number: Any) -> str:
    return f"{number:.0f}" if float(number).is_integer() else f"{number:.{DIGITS}g}"


def inert(texts: pd.Series) -> pd.Series:
    """Texts of which a spreadsheet runs none: those that start like a formula get an apostrophe in front.

    >>> inert(pd.Series(["=1+1", "ig", None])).tolist()[:2]
    ["'=1+1", 'ig']
    """
    return texts.mask(texts.str.startswith(FORMULA, na=False).astype(bool), "'" + texts)
