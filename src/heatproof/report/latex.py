"""LaTeX tables in the style of booktabs: text made safe, numbers with their intervals, and every kind of component."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

from heatproof import text
from heatproof.report.chart_tables import as_table
from heatproof.report.components import Component, Gallery, Matrix, Table
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
    """A table as LaTeX has it.

    heads             the heads of the columns
    rows              the rows, of LaTeX or numbers; the first column has words
    section_heads     number of a row -> the heading over the whole width that stands above it, with a rule between
                      sections; "" for a rule alone
    spans             a first line of heads over several columns, as (text, columns)
    prose_columns     the numbers of the columns with sentences, whose lines are broken
    note              what the caption ends with, as LaTeX
    pictures          the names of the picture files that stand below the rows
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    section_heads: dict[int, str] = field(default_factory=dict)
    spans: Sequence[tuple[str, int]] = ()
    prose_columns: Collection[int] = ()
    note: str = ""
    pictures: Sequence[str] = ()

    def blocks(self, most: int) -> list[Tabular]:
        """Return the table as one or more with at most so many columns beside the first, to be set under each other."""
        columns_beside_first = len(self.heads) - 1
        if columns_beside_first <= most or self.spans:
            return [self]
        # As few blocks as possible, and of about the same width.
        count = math.ceil(columns_beside_first / most)
        size = math.ceil(columns_beside_first / count)
        blocks = []
        for start in range(1, len(self.heads), size):
            columns = [0, *range(start, min(start + size, len(self.heads)))]
            heads = [self.heads[column] for column in columns]
            rows = [[row[column] for column in columns] for row in self.rows]
            prose = {i for i, column in enumerate(columns) if column in self.prose_columns}
            blocks.append(Tabular(heads, rows, self.section_heads, (), prose))
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
    scale, decimals = (100, 1) if cell.percent else (1, digits)
    latex = latex_number(scale * cell.value, decimals)
    if cell.bold and math.isfinite(cell.value):
        latex = rf"\textbf{{{latex}}}"
    if math.isfinite(cell.low) and math.isfinite(cell.high):
        low = latex_number(scale * cell.low, decimals)
        high = latex_number(scale * cell.high, decimals)
        latex += rf" {{\scriptsize [{low}, {high}]}}"
    return latex


def render(content: Tabular, caption: str, label: str, notes: Sequence[str], width: float) -> str:
    """Return the whole file: comments, then a table environment for a width in inches that needs only booktabs.

    One with pictures needs graphicx too.

    >>> text = render(Tabular(["Method", "FASS"], [["lime", Cell(0.5)]]), "Scores.", "tab:x", ["by heatproof"], 6.75)
    >>> text.splitlines()[0], "lime & 0.50" in text
    ('% by heatproof', True)
    """
    most_columns = max(2, int((width - 1.7) / COLUMN_INCHES))
    spans_columns = width > ONE_COLUMN and len(content.heads) > 3
    environment = "table*" if spans_columns else "table"
    label = re.sub(r"[^A-Za-z0-9:.-]+", "-", label)
    packages = "booktabs,graphicx" if content.pictures else "booktabs"
    caption = f"{caption} {content.note}".strip()
    lines = [
        *(comment(note) for note in notes),
        comment(rf"needs \usepackage{{{packages}}}"),
        rf"\begin{{{environment}}}[t]",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{{label}}}",
        r"\footnotesize",
        r"\setlength{\tabcolsep}{4pt}",
    ]
    cells: list[Entry] = []
    for row in content.rows:
        cells += row
    digits = digits_for(cells)
    for i, block in enumerate(content.blocks(most_columns)):
        if i:
            lines.append(r"\\[1ex]")
        lines += _tabular(block, digits)
    for picture in content.pictures:
        # The inner braces keep LaTeX from taking a dot inside of the name for the beginning of the ending.
        name, _, ending = picture.rpartition(".")
        lines += [r"\\[1ex]", rf"\includegraphics{{{{{name}}}.{ending}}}"]
    return "\n".join([*lines, rf"\end{{{environment}}}", ""])


def _tabular(block: Tabular, digits: int) -> list[str]:
    """Return the lines of a tabular environment, numbers with so many digits."""
    columns = ["l", *("r" for _ in block.heads[1:])]
    for column in block.prose_columns:
        columns[column] = PROSE_WIDTH
    lines = [rf"\begin{{tabular}}{{@{{}}{''.join(columns)}@{{}}}}", r"\toprule"]
    lines += _span_lines(block)
    lines += [" & ".join(block.heads) + r" \\", r"\midrule"]
    for i, row in enumerate(block.rows):
        if i in block.section_heads and i:
            lines.append(r"\midrule")
        heading = block.section_heads.get(i)
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


def tabular_of(component: Component, looks: Looks, pictures: Sequence[str] = ()) -> Tabular | None:
    """Return a component for LaTeX, a chart as a table of the numbers that it draws; None for an empty one.

    `pictures` are the names of the files with the pictures of a gallery, which its table includes.
    """
    table = as_table(component, looks)
    if table is None:
        return None
    if isinstance(table, Matrix):
        tabular = _tabular_of_matrix(table, looks)
    else:
        tabular = _tabular_of_table(table, looks)
    if tabular is None or table is component:
        return tabular
    if isinstance(component, Gallery):
        # The note of a gallery says where the pictures are; a paper has them.
        return replace(tabular, pictures=pictures)
    return replace(tabular, note=escape(table.caption))


def _tabular_of_matrix(matrix: Matrix, looks: Looks) -> Tabular | None:
    """Return a matrix for LaTeX, its best scores in bold; None for an empty one."""
    grid = MatrixGrid(matrix)
    if not grid.rows:
        return None
    rows: list[list[Entry]] = []
    for row in grid.rows:
        line: list[Entry] = [escape(shown_name(row[1], looks))]
        for column in grid.columns:
            cell = grid.cells.get((row, column))
            if cell is None:
                line.append(Cell(math.nan))
            else:
                is_best = is_true(cell.best)
                line.append(Cell(cell.score, cell.low, cell.high, is_best, matrix.percent))
        rows.append(line)
    heads = [escape(shown_name(column, looks)) for _, column in grid.columns]
    spans = [(escape(shown_name(group, looks)), count) for group, count in grid.spans]
    section_heads = {i: escape(shown_name(group, looks)) for i, group in grid.row_heads.items()}
    return Tabular(
        heads=[escape(matrix.row_title), *heads],
        rows=rows,
        section_heads=section_heads,
        spans=[("", 1), *spans] if spans else (),
    )


def _tabular_of_table(table: Table, looks: Looks) -> Tabular | None:
    """Return a table of words for LaTeX, without its empty columns, as on the page; None for an empty one."""
    rows = table_rows(table, looks)
    rows_of_cells = [row.cells for row in rows if not row.heading]
    if not rows_of_cells:
        return None
    shown_columns = []
    for column in range(len(table.columns)):
        if any(cells[column] not in ("", MISSING) for cells in rows_of_cells):
            shown_columns.append(column)

    # A row that is a heading becomes the head of the section that begins with the next row.
    lines: list[list[Entry]] = []
    section_heads: dict[int, str] = {}
    for row in rows:
        if row.heading:
            section_heads[len(lines)] = escape(row.cells[0])
        else:
            lines.append([escape(row.cells[column]) for column in shown_columns])

    heads = list(table.columns.values())
    with_sentences = prose_columns(rows)
    return Tabular(
        heads=[escape(heads[column]) for column in shown_columns],
        rows=lines,
        section_heads=section_heads,
        prose_columns={i for i, column in enumerate(shown_columns) if column in with_sentences},
    )
