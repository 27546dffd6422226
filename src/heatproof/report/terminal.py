"""The verdict of every axis and the ranking as text for a terminal, with styles where it has colours."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import pandas as pd

from heatproof.evaluation import Measure
from heatproof.report.chart_tables import as_table
from heatproof.report.components import Component, CurveChart, Gallery, Matrix, Table
from heatproof.report.draw import Looks, MatrixGrid, shown_name
from heatproof.report.findings import findings_here
from heatproof.report.sections import leads
from heatproof.report.table_rows import cell_text, table_rows
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding
from heatproof.results.verdict import Label
from heatproof.runs.manifest import Manifest
from heatproof.text import digits_of, number, records, with_interval

WIDTH = 110
NOTHING = "Nothing can be concluded: the table has no scores."
Line = tuple[str, str]
"""A line of text and its style for rich."""
STYLES = {Label.BEST: "green", Label.AS_RANDOM: "yellow"}
"""The colour of a method in a ranking, by what the tests say of it."""


def text_summary(
    results: Sequence[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    width: int = WIDTH,
) -> str:
    """Return what each axis says of every dataset and model, and its ranking."""
    return "\n".join(line for line, _ in styled_summary(results, samples, manifest, width))


def styled_summary(
    results: Sequence[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    width: int = WIDTH,
) -> list[Line]:
    """The lines of `text_summary`, each with its style; none is longer than `width` but for words that are."""
    lines: list[Line] = []
    by_data_and_model = groupby(results, lambda result: (result.dataset, result.model))
    for (dataset, model), of_pair in by_data_and_model:
        results_of_pair = list(of_pair)
        is_of_pair = (samples["dataset"] == dataset) & (samples["model"] == model)
        samples_of_pair = samples[is_of_pair]
        if lines:
            lines.append(("", ""))
        heading = f"{model} on {dataset}{_sample_count(samples_of_pair, results_of_pair[0].groups)}"
        lines.append((heading, "bold"))
        for result in results_of_pair:
            lines += [("", ""), (f"  {result.title}", "bold cyan")]
            for sentence in leads(result):
                lines += _wrapped(sentence, width)
            lines += _ranking(result, width)
        findings = findings_here(dataset, model, results_of_pair, samples_of_pair, manifest)
        lines += _warnings(findings, width)
    if lines and manifest.ignore:
        ignored = ", ".join(manifest.ignore)
        lines += [("", ""), *_wrapped(f"Ignored rules: {ignored}.", width)]
    return lines or [(NOTHING, "yellow")]


def _sample_count(samples: pd.DataFrame, groups: int) -> str:
    """Return how many samples were read, for a heading; empty where none was."""
    if samples.empty:
        return ""
    was_read = samples["error"].fillna("") == ""
    if not was_read.any():
        return ""
    of_groups = f" of {groups} groups" if groups else ""
    return f", {was_read.sum()} samples{of_groups}"


def _warnings(findings: Sequence[Finding], width: int) -> list[Line]:
    """The findings that are more than a note, each with the name of its rule."""
    axes: dict[tuple[str, str], list[str]] = {}
    styles: dict[tuple[str, str], str] = {}
    for finding in findings:
        if finding.severity == "note":
            continue
        key = (finding.rule, finding.title)
        axes.setdefault(key, []).append(finding.axis)
        # The most serious findings come first.
        styles.setdefault(key, "red" if finding.severity == "problem" else "yellow")
    if not axes:
        return []

    lines: list[Line] = [("", ""), ("  Warnings (heatproof rule NAME explains each)", "bold")]
    widest = max(len(rule) for rule, _ in axes)
    for (rule, title), named in axes.items():
        where = ", ".join(dict.fromkeys(filter(None, named)))
        text = f"{rule:<{widest}}  {title}" + (f" ({where})" if where else "")
        lines += _wrapped(text, width, styles[rule, title])
    return lines


def _ranking(result: AxisResult, width: int) -> list[Line]:
    """The explainers in order, by every headline of an axis."""
    lines: list[Line] = []
    for measure in result.headlines:
        rows = _ranking_rows(result, measure)
        cells_by_column = zip(*(cells for cells, _ in rows), strict=True)
        widths = [max(map(len, cells)) for cells in cells_by_column]
        # Names of explainers are cut where the line would be too long: 4 columns of indent, 8 of gaps.
        used = 4 + 8 + sum(widths) - widths[1]
        widths[1] = max(12, min(widths[1], width - used))
        lines.append(("", ""))
        for cells, style in rows:
            cut = [shortened(text, most) for text, most in zip(cells, widths, strict=True)]
            line = "    " + "  ".join(map(str.ljust, cut, widths)).rstrip()
            lines.append((shortened(line, max(width, 40)), style))
    return lines


def _ranking_rows(result: AxisResult, measure: Measure) -> list[tuple[tuple[str, ...], str]]:
    """Return the cells and the style of each row of a ranking, after those of its head.

    A calibrated score has the raw one beside it.
    """
    is_calibrated = result.arrays.is_calibrated(measure.name)
    title, raw_title = measure.title, ""
    if is_calibrated:
        title, raw_title = f"calibrated {measure.title}", "raw"
    labels = result.verdict(measure).labels
    head = ("rank", "explainer", title, raw_title, "")
    rows: list[tuple[tuple[str, ...], str]] = [(head, "bold")]
    for row in records(result.ranking[result.ranking["measure"] == measure.name]):
        rank = "–" if math.isnan(row.rank) else f"{row.rank:.0f}"
        if math.isfinite(row.rank_low) and row.rank_low != row.rank_high:
            rank += f" ({row.rank_low:.0f}–{row.rank_high:.0f})"
        name = result.looks[row.explainer].name
        score = with_interval(row.score, row.low, row.high, row.samples)
        raw = number(row.raw, digits_of(row.raw, row.raw_low, row.raw_high))
        label = labels.get(row.explainer, Label.NONE)
        style = "dim" if row.control else STYLES.get(label, "")
        note = "control" if row.control else ""
        rows.append(((rank, name, score, raw if is_calibrated else "", note), style))
    return rows


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; a cut is in the middle, for names often differ at their ends.

    >>> shortened("integrated_gradients(steps=8)", 20)
    'integrated…(steps=8)'
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def _wrapped(sentence: str, width: int, style: str = "") -> list[Line]:
    room = max(width, 40)
    folded = textwrap.wrap(
        sentence, room, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    return [(line, style) for line in folded]


def component_text(component: Component, looks: Looks, width: int = WIDTH) -> str:
    """Return a component as text: its title, the numbers that it draws in columns, and its caption.

    A gallery has a line per strip of pictures. `looks` has the display names of the explainers. No line is longer than
    `width`.
    """
    table = as_table(component, looks)
    caption = component.caption
    if table is not None and table is not component:
        caption = f"{caption} {table.caption}".strip()
    if isinstance(component, Gallery) and isinstance(table, Table):
        lines = _gallery_lines(table, looks, width)
    elif isinstance(component, CurveChart) and isinstance(table, Matrix):
        lines = _curve_lines(table, looks, width)
    else:
        lines = _aligned(_text_grid(table, looks, width), width)
    return "\n".join([component.title, *lines, *textwrap.wrap(caption, max(width, 40))])


def _text_grid(table: Matrix | Table | None, looks: Looks, width: int) -> list[list[str]]:
    """Return rows of cells; a row with one cell is a heading. A matrix that is too wide loses its intervals."""
    if isinstance(table, Matrix):
        grid = _matrix_grid(table, looks)
        return grid if _width_of(grid) <= width else _matrix_grid(table, looks, intervals=False)
    if isinstance(table, Table):
        heads = list(table.columns.values())
        return [heads, *(list(row.cells) for row in table_rows(table, looks))]
    return []


def _curve_lines(curves: Matrix, looks: Looks, width: int) -> list[str]:
    """Return a table for every panel of curves, here with a row per curve and a column per x.

    There are fewer values of x than curves, and they are shorter than the names, so that more fits into a line.
    """
    lines: list[str] = []
    for panel, cells in curves.scores.groupby("row_group", sort=False):
        turned = cells.rename(columns={"row": "column", "column": "row"}).drop(columns="row_group")
        has_numbers = turned.groupby("row")["score"].transform("count") > 0
        table = replace(curves, scores=turned[has_numbers])
        lines += [str(panel)] if panel else []
        lines += _aligned(_text_grid(table, looks, width), width)
    return lines


def _gallery_lines(table: Table, looks: Looks, width: int) -> list[str]:
    """Return a line for every strip of pictures: its method, its sample and what the pictures show."""
    lines: list[str] = []
    for row in table_rows(table, looks):
        method, sample, shown = row.cells
        text = f"{method}, {sample}: {shown}"
        lines += textwrap.wrap(text, max(width, 40), initial_indent="  ", subsequent_indent="    ")
    return lines


def _matrix_grid(matrix: Matrix, looks: Looks, intervals: bool = True) -> list[list[str]]:
    """Return the lines of cells of a matrix: its heads, then its rows; a line with one cell is a heading over rows."""
    cells = MatrixGrid(matrix)
    grid = []
    if cells.spans:
        # The name of a group stands over its first column only.
        group_heads = [""]
        last_group = None
        for group, _ in cells.columns:
            name = shown_name(group, looks)
            group_heads.append("" if name == last_group else name)
            last_group = name
        grid.append(group_heads)
    heads = [shown_name(column, looks) for _, column in cells.columns]
    grid.append([matrix.row_title, *heads])
    for i, row in enumerate(cells.rows):
        if i in cells.row_heads:
            grid.append([shown_name(cells.row_heads[i], looks)])
        of_row = []
        for column in cells.columns:
            cell = cells.cells.get((row, column))
            if cell is not None and not intervals:
                cell = cell._replace(low=math.nan, high=math.nan)
            of_row.append(cell_text(cell, matrix.percent))
        grid.append([shown_name(row[1], looks), *of_row])
    return grid


def _column_widths(grid: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column is; rows of one cell are headings, which have no say."""
    rows = [row for row in grid if len(row) > 1]
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _width_of(grid: Sequence[Sequence[str]]) -> int:
    widths = _column_widths(grid)
    return sum(widths) + 2 * len(widths)


def _aligned(grid: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return rows of cells in columns, in blocks below each other where the columns do not fit into `width`."""
    widths = _column_widths(grid)
    if not widths:
        return [shortened(row[0], width) for row in grid]
    # Long names are cut, so that at least one column of numbers stands beside them.
    widths[0] = max(12, min(widths[0], width - 4 - max(widths[1:])))
    blocks: list[list[int]] = [[]]
    used = widths[0] + 2
    for column in range(1, len(widths)):
        if blocks[-1] and used + 2 + widths[column] > width:
            blocks.append([])
            used = widths[0] + 2
        blocks[-1].append(column)
        used += 2 + widths[column]

    lines = []
    for block in blocks:
        for row in grid:
            if len(row) == 1:
                lines.append(shortened(row[0], width))
                continue
            cells = [shortened(row[i], widths[i]).ljust(widths[i]) for i in (0, *block)]
            lines.append(shortened(("  " + "  ".join(cells)).rstrip(), width))
    return lines
