"""Tables of a page: rows of text and the HTML that shows them, and CSV that a spreadsheet cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup
from pandas.api.types import is_numeric_dtype

from heatproof.drawing.pages import SHARED, page

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a text starts that a spreadsheet takes for a formula or hides one behind."""
DIGITS = 6


@dataclass(frozen=True)
class Row:
    """One line of a table: its cells as text, and whether it belongs to a control.

    A `heading` has one cell, which stands over the rows below it.
    """

    cells: Sequence[str]
    control: bool = False
    heading: bool = False


def grid(
    columns: Sequence[str], rows: Sequence[Row], label: str, spans: Sequence[tuple[str, int]] = ()
) -> Markup:
    """A table that scrolls sideways where it is narrow.

    `spans` are headings over so many columns each; without them, columns without an entry are left out.

    >>> "<td>2</td>" in grid(["a", "b"], [Row(["1", "2"])], "Numbers")
    True
    """
    table: Any = page(SHARED, "tables.html").module
    return Markup(table.grid(columns, rows, label, spans))


def to_csv(frame: pd.DataFrame) -> str:
    """A table as CSV: numbers with six digits, missing ones empty, text that a spreadsheet would run made inert.

    >>> print(to_csv(pd.DataFrame({"explainer": ["=1+1", "ig"], "score": [-0.5, float("nan")]})), end="")
    explainer,score
    '=1+1,-0.5
    ig,
    """
    safe = pd.DataFrame(
        {n: column if is_numeric_dtype(column) else inert(column) for n, column in frame.items()}
    )
    safe.columns = pd.Index(inert(safe.columns.to_series()))
    return safe.to_csv(index=False, lineterminator="\n", float_format=_written)


def _written(number: Any) -> str:
    return f"{number:.0f}" if float(number).is_integer() else f"{number:.{DIGITS}g}"


def inert(texts: pd.Series) -> pd.Series:
    """Texts of which a spreadsheet runs none: those that start like a formula get an apostrophe in front.

    >>> inert(pd.Series(["=1+1", "ig", None])).tolist()[:2]
    ["'=1+1", 'ig']
    """
    return pd.Series(
        [
            f"'{text}" if isinstance(text, str) and text.startswith(FORMULA) else text
            for text in texts
        ],
        texts.index,
    )
