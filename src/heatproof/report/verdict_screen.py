"""The first screen of the page: the table of the verdict with its words and styles, and the same table in LaTeX."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from heatproof.report import latex
from heatproof.report.overview import Cell, Overview, word
from heatproof.results.axis_result import AxisResult
from heatproof.results.names import Look
from heatproof.results.verdict import Label

STYLES = {Label.BEST: "best", Label.AS_RANDOM: "random", Label.UNDECIDED: "tie", Label.NONE: ""}
LATEX_WIDTH = 6.75
"""Inches of a page with two columns."""


@dataclass(frozen=True)
class ScreenCell:
    """A cell as the page shows it: the score or the answer, a word for it, its interval, and a class of the style."""

    text: str
    words: str
    interval: str
    style: str
    is_check: bool


@dataclass(frozen=True)
class ScreenColumn:
    """The head of a column: the question, the test, how to read its scores, and where its section is."""

    question: str
    title: str
    note: str
    anchor: str
    is_check: bool


@dataclass(frozen=True)
class ScreenRow:
    """An explainer with its settings in words and its cells."""

    look: Look
    settings: str
    cells: list[ScreenCell]
    first_control: bool


def verdict_columns(overview: Overview, anchors: Mapping[AxisResult, str]) -> list[ScreenColumn]:
    """Return the heads of the table; `anchors` has the id of the section of every result."""
    columns = []
    for column in overview.columns:
        title = "check" if column.is_check else column.title.lower()
        anchor = anchors.get(column.result, "")
        columns.append(ScreenColumn(column.question, title, column.note, anchor, column.is_check))
    return columns


def verdict_rows(overview: Overview) -> list[ScreenRow]:
    """Return the rows of the table: methods, then controls."""
    rows = []
    methods = len(overview.methods)
    for number, explainer in enumerate(overview.rows):
        cells = [
            _screen_cell(column.cell(explainer), column.is_check, methods)
            for column in overview.columns
        ]
        look = overview.looks[explainer]
        rows.append(ScreenRow(look, overview.settings(explainer), cells, number == methods))
    return rows


def _screen_cell(cell: Cell, is_check: bool, methods: int) -> ScreenCell:
    """Return a cell as the page shows it: yes or no with a mark for a check, else a score with its label."""
    if is_check:
        if cell.passed is None:
            return ScreenCell(cell.text, "", "", "", True)
        mark = "✓" if cell.passed else "✗"
        return ScreenCell(f"{mark} {cell.text}", "", "", cell.text, True)
    words = f"best of {word(methods)}" if cell.label == Label.BEST else str(cell.label)
    return ScreenCell(cell.text, words, cell.interval, STYLES[cell.label], False)


def verdict_note(overview: Overview) -> str:
    """Return how to read the table: the scale, the intervals, and where the labels come from."""
    sentences = []
    if any(not column.is_check and not column.note for column in overview.columns):
        sentences.append("0 = a random map, 1 = perfect.")
    if _has_intervals(overview):
        sentences.append("95 % intervals.")
    if overview.labels:
        sentences.append(
            "Labels come from paired tests over all pairs (5 % together), not from overlapping intervals. "
            "No label: between best and random."
        )
    return " ".join(sentences)


def _has_intervals(overview: Overview) -> bool:
    """Whether any score of the table has an interval."""
    intervals: list[str] = []
    for column in overview.columns:
        intervals += [column.cell(name).interval for name in overview.rows]
    return any(intervals)


def verdict_latex(overview: Overview) -> str:
    """Return the table for a paper: scores with intervals, the best of each test bold."""
    heads = ["Method", *(latex.escape(column.title) for column in overview.columns)]
    rows: list[list[latex.Entry]] = []
    for explainer in overview.rows:
        row: list[latex.Entry] = [latex.escape(overview.looks[explainer].name)]
        for column in overview.columns:
            cell = column.cell(explainer)
            score = column.scores.get(explainer)
            if column.is_check or score is None:
                row.append(latex.escape(cell.text))
                continue
            low, high = (score.low, score.high) if cell.interval else (math.nan, math.nan)
            row.append(latex.Cell(score.score, low, high, bold=cell.label == Label.BEST))
        rows.append(row)
    has_controls = len(overview.rows) > len(overview.methods)
    section_heads = {len(overview.methods): "Controls"} if has_controls else {}
    caption = f"{latex.escape(overview.model)} on {latex.escape(overview.counted_samples)}: scores"
    if _has_intervals(overview):
        caption += r" with 95\,\% intervals"
    caption += "; 0 is a random map."
    if Label.BEST in overview.labels:
        caption += " Bold: significantly better than every other method."
    return latex.render(
        latex.Tabular(heads, rows, section_heads),
        caption,
        "tab:verdict",
        ["made by heatproof"],
        LATEX_WIDTH,
    )
