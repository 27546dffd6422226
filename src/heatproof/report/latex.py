"""LaTeX tables in the style of booktabs: text made safe, numbers with their intervals, matrices and tables of components."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from heatproof import text
from heatproof.report.components import Component, Matrix, Table
from heatproof.report.draw import Looks, MatrixGrid, is_true, shown_name
from heatproof.report.table_rows import MISSING, prose_columns, table_rows
from heatproof.text import digits_of

COLUMN_INCHES = 0.98
"""How wide a number with its interval is."""
ONE_COLUMN = 4.5
"""The width in inches from which on a table spans both columns of a paper."""
PROSE_WIDTH = r"p{0.3\linewidth}"
"""A column of sentences."""
SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "°": r"\textdegree{}",
    "’": "'",
    "–": "--",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "−": "$-$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "ρ": r"$\rho$",
    "δ": r"$\delta$",
    "ε": r"$\varepsilon$",
}


def escape(text: str) -> str:
    r"""Return any text, inert to LaTeX: special characters are escaped, line breaks become spaces.

    >>> print(escape("lime_50% {a}\\b $x$ ~^#&"))
    lime\_50\% \{a\}\textbackslash{}b \$x\$ \textasciitilde{}\textasciicircum{}\#\&
    """
    return "".join(SPECIAL.get(char, char) for char in " ".join(text.split()))


def comment(text: str) -> str:
    r"""Return a comment line; no text can end it early.

    >>> comment("a\n\\input{b}")
    '% a \\input{b}'
    """
    return "% " + " ".join(text.split())


@dataclass(frozen=True)
class Cell:
    """A number, with its interval where there is one, and whether it is among the best."""

    value: float
    low: float = math.nan
    high: float = math.nan
    bold: bool = False
    percent: bool = False


Entry = Cell | str
"""A string is LaTeX already."""


@dataclass(frozen=True)
class Tabular:
    """A table: column heads, rows of LaTeX or numbers, and before which rows a rule or a heading stands.

    `rules` maps a row's number to a heading over the whole width, or to "" for a plain rule. `spans` is a first line of
    heads as (text, columns). The first column has words, those with the numbers in `prose` have sentences.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    rules: dict[int, str] = field(default_factory=dict)
    spans: Sequence[tuple[str, int]] = ()
    prose: Collection[int] = ()

    def blocks(self, most: int) -> list[Tabular]:
        """Return the table as one or more with at most so many columns beside the first, to be set under each other."""
        others = len(self.heads) - 1
        if others <= most or self.spans:
            return [self]
        count = math.ceil(others / most)
        size = math.ceil(others / count)
        blocks = []
        for start in range(1, len(self.heads), size):
            columns = [0, *range(start, min(start + size, len(self.heads)))]
            heads = [self.heads[column] for column in columns]
            rows = [[row[column] for column in columns] for row in self.rows]
            prose = {i for i, column in enumerate(columns) if column in self.prose}
            blocks.append(Tabular(heads, rows, self.rules, (), prose))
        return blocks


def latex_number(value: float, digits: int) -> str:
    """Return a number with a true minus sign.

    >>> latex_number(-0.5, 2), latex_number(-0.0001, 2), latex_number(float("nan"), 2)
    ('$-$0.50', '0.00', '--')
    """
    return escape(text.number(value, digits))


def digits_for(cells: Iterable[Entry]) -> int:
    """Return the decimals of all numbers of a table: those that half of them deserve by the width of their intervals."""
    digits = [
        digits_of(cell.value, cell.low, cell.high)
        for cell in cells
        if isinstance(cell, Cell) and not cell.percent and cell.low <= cell.high
    ]
    return median_low(digits or [2])


def entry(cell: Entry, digits: int) -> str:
    r"""Return a cell as LaTeX.

    >>> print(entry(Cell(0.614, 0.58, 0.64, bold=True), 2))
    \textbf{0.61} {\scriptsize [0.58, 0.64]}
    """
    if isinstance(cell, str):
        return cell
    scale, places = (100, 1) if cell.percent else (1, digits)
    latex = latex_number(scale * cell.value, places)
    if cell.bold and math.isfinite(cell.value):
        latex = rf"\textbf{{{latex}}}"
    if math.isfinite(cell.low) and math.isfinite(cell.high):
        low, high = latex_number(scale * cell.low, places), latex_number(scale * cell.high, places)
        latex += rf" {{\scriptsize [{low}, {high}]}}"
    return latex


def render(content: Tabular, caption: str, label: str, notes: Sequence[str], width: float) -> str:
    """Return the whole file: comments, then a table environment for a width in inches that needs only booktabs.

    >>> text = render(Tabular(["Method", "FASS"], [["lime", Cell(0.5)]]), "Scores.", "tab:x", ["by heatproof"], 6.75)
    >>> text.splitlines()[0], "lime & 0.50" in text
    ('% by heatproof', True)
    """
    most_columns = max(2, int((width - 1.7) / COLUMN_INCHES))
    spans_columns = width > ONE_COLUMN and len(content.heads) > 3
    environment = "table*" if spans_columns else "table"
    label = re.sub(r"[^A-Za-z0-9:.-]+", "-", label)
    lines = [
        *(comment(note) for note in notes),
        comment(r"needs \usepackage{booktabs}"),
        rf"\begin{{{environment}}}[t]",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{{label}}}",
        r"\footnotesize",
        r"\setlength{\tabcolsep}{4pt}",
    ]
    digits = digits_for(cell for row in content.rows for cell in row)
    for i, block in enumerate(content.blocks(most_columns)):
        if i:
            lines.append(r"\\[1ex]")
        lines += _tabular(block, digits)
    return "\n".join([*lines, rf"\end{{{environment}}}", ""])


def _tabular(block: Tabular, digits: int) -> list[str]:
    columns = ["l", *("r" for _ in block.heads[1:])]
    for column in block.prose:
        columns[column] = PROSE_WIDTH
    lines = [rf"\begin{{tabular}}{{@{{}}{''.join(columns)}@{{}}}}", r"\toprule"]
    lines += _span_lines(block)
    lines += [" & ".join(block.heads) + r" \\", r"\midrule"]
    for i, row in enumerate(block.rows):
        if i in block.rules and i:
            lines.append(r"\midrule")
        heading = block.rules.get(i)
        if heading:
            span = rf"\multicolumn{{{len(block.heads)}}}{{@{{}}l}}"
            lines.append(rf"{span}{{\textit{{{heading}}}}} \\")
        lines.append(" & ".join(entry(cell, digits) for cell in row) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _span_lines(block: Tabular) -> list[str]:
    """Return the headings over several columns, with a rule under each; empty without spans."""
    if not block.spans:
        return []
    heads = [rf"\multicolumn{{{count}}}{{c}}{{{head}}}" for head, count in block.spans]
    lines = [" & ".join(heads) + r" \\"]
    start = 1
    for head, count in block.spans:
        if head:
            lines.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    return lines


# ---- components ------------------------------------------------------------------------------------------------------


def tabular_of(component: Component, looks: Looks) -> Tabular | None:
    """Return a matrix or a table for LaTeX; None for other components and for empty ones."""
    if isinstance(component, Matrix):
        return _of_matrix(component, looks)
    if isinstance(component, Table):
        return _of_table(component, looks)
    return None


def _of_matrix(matrix: Matrix, looks: Looks) -> Tabular | None:
    cells = MatrixGrid(matrix)
    if not cells.rows:
        return None
    rows: list[list[Entry]] = []
    for row in cells.rows:
        line: list[Entry] = [escape(shown_name(row[1], looks))]
        for column in cells.columns:
            cell = cells.cells.get((row, column))
            if cell is None:
                line.append(Cell(math.nan))
            else:
                is_best = is_true(cell.best)
                line.append(Cell(cell.score, cell.low, cell.high, is_best, matrix.percent))
        rows.append(line)
    heads = [escape(shown_name(column, looks)) for _, column in cells.columns]
    spans = [(escape(shown_name(group, looks)), count) for group, count in cells.spans]
    return Tabular(
        heads=[escape(matrix.row_title), *heads],
        rows=rows,
        rules={i: escape(shown_name(group, looks)) for i, group in cells.row_heads.items()},
        spans=[("", 1), *spans] if spans else (),
    )


def _of_table(table: Table, looks: Looks) -> Tabular | None:
    rows = table_rows(table, looks)
    entries = [row.cells for row in rows if not row.heading]
    if not entries:
        return None
    # A column without an entry is left out, as on the page.
    columns = [
        column
        for column in range(len(table.columns))
        if any(cells[column] not in ("", MISSING) for cells in entries)
    ]
    all_heads = list(table.columns.values())
    all_prose = prose_columns(rows)
    lines: list[list[Entry]] = []
    rules: dict[int, str] = {}
    for row in rows:
        if row.heading:
            rules[len(lines)] = escape(row.cells[0])
        else:
            lines.append([escape(row.cells[column]) for column in columns])
    return Tabular(
        heads=[escape(all_heads[column]) for column in columns],
        rows=lines,
        rules=rules,
        prose={i for i, column in enumerate(columns) if column in all_prose},
    )
