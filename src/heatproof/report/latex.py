"""Matrices and tables of components as LaTeX tables with booktabs."""

from __future__ import annotations

import math

from heatproof.drawing.latex import Cell, Entry, Tabular, escape
from heatproof.report.components import Component, Matrix, Table
from heatproof.report.draw import Looks, MatrixGrid, is_true, shown_name
from heatproof.report.table_rows import MISSING, table_rows


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
    lines = table_rows(table, looks)
    texts = [line.cells for line in lines if not line.heading]
    if not texts:
        return None
    # A column without an entry is left out, as on the page.
    kept = [
        i
        for i in range(len(table.columns))
        if any(cells[i] not in ("", MISSING) for cells in texts)
    ]
    heads = [escape(head) for i, head in enumerate(table.columns.values()) if i in kept]
    rows: list[list[Entry]] = []
    rules: dict[int, str] = {}
    for line in lines:
        if line.heading:
            rules[len(rows)] = escape(line.heading)
        else:
            rows.append([escape(line.cells[i]) for i in kept])
    return Tabular(heads, rows, rules)
