"""Tables of a page: rows of text, and the HTML that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from holdfast.drawing.pages import SHARED, page


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


def folded(summary: str, inside: Markup, is_open: bool = False) -> Markup:
    """Something that opens when its summary is pressed.

    >>> print(folded("More", Markup("<p>text</p>")))
    <details><summary>More</summary><p>text</p></details>
    """
    state = Markup(" open") if is_open else ""
    return Markup("<details{}><summary>{}</summary>{}</details>").format(state, summary, inside)
