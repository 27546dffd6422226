"""The verdict as text: one table, one conclusion, at most five warnings; for a terminal, a file or `print`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from heatproof.report.overview import NO_CELL, NOTHING, Cell, Column, Overview, overviews
from heatproof.report.terminal import shortened
from heatproof.results.axis_result import AxisResult
from heatproof.results.verdict import Label
from heatproof.runs.manifest import Manifest

WIDTH = 110
"""Columns of text that goes to no terminal."""

MOST_WARNINGS = 5
NARROWEST = 40
"""Columns of the narrowest terminal that text is folded for."""
Line = list[tuple[str, str]]
"""A line as segments of text, each with its style for rich."""

LABEL_WORDS = {
    Label.BEST: "best",
    Label.UNDECIDED: "undecided",
    Label.AS_RANDOM: "random",
    Label.NONE: "",
}
LABEL_STYLES = {Label.BEST: "bold green", Label.AS_RANDOM: "yellow"}
LEGEND = {
    Label.BEST: "best: significantly better than every other method.",
    Label.UNDECIDED: "undecided: no method is significantly better.",
    Label.AS_RANDOM: "random: not distinguishable from a random map.",
}
UNCLEAR = "unclear: too few samples to tell."


def overview_lines(overview: Overview, width: int, intervals: bool = False) -> list[Line]:
    """Return the title, the table with its legend, the conclusion and the warnings; no line is wider than `width`.

    With `intervals`, scores have their 95 % intervals.
    """
    width = max(width, NARROWEST)
    blocks = [
        [*_wrapped(_title(overview), width, "bold"), *_wrapped(overview.sampling, width, "dim")],
        *_tables(overview, width, intervals),
        _legend(overview, width),
        _wrapped(overview.headline, width, "bold"),
        _warnings(overview, width),
    ]
    lines: list[Line] = []
    for block in blocks:
        if block and lines:
            lines.append([])
        lines += block
    return lines


def run_lines(
    results: Sequence[AxisResult], samples: pd.DataFrame, manifest: Manifest, width: int
) -> list[Line]:
    """Return the verdict on every model and data set of a run, one after another."""
    lines: list[Line] = []
    for overview in overviews(results, samples, manifest):
        lines += [[], []] if lines else []
        lines += overview_lines(overview, width)
    if not lines:
        return _wrapped(NOTHING, width, "yellow")
    if manifest.ignore:
        lines += [[], *_wrapped(f"Ignored rules: {', '.join(manifest.ignore)}.", width, "dim")]
    return lines


def plain(lines: Iterable[Line]) -> str:
    """Return lines without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def _title(overview: Overview) -> str:
    methods, controls = len(overview.methods), len(overview.controls)
    parts = [f"{overview.model} on {overview.dataset}", overview.counted_samples]
    tested = [_count(methods, "method")] if methods else []
    tested += [_count(controls, "control")] if controls else []
    return " · ".join([*parts, ", ".join(tested)])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# ---- table -----------------------------------------------------------------------------------------------------------


def _tables(overview: Overview, width: int, intervals: bool) -> Iterator[list[Line]]:
    """Yield the table, in blocks of columns where it is wider than the terminal."""
    if not overview.columns:
        return
    explainers = overview.rows
    names = [_row_name(overview, explainer, width) for explainer in explainers]
    name_width = max(len(name) for name in names) + 2

    columns = [_TextColumn(column, explainers, intervals) for column in overview.columns]
    blocks: list[list[_TextColumn]] = [[]]
    used = 2 + name_width
    for column in columns:
        if blocks[-1] and used + column.width > width:
            blocks.append([])
            used = 2 + name_width
        blocks[-1].append(column)
        used += column.width

    for block in blocks:
        lines = []
        height = max(len(column.head) for column in block)
        for i in range(height):
            cells = [(column.head_line(i, height), "bold") for column in block]
            lines.append([(" " * (2 + name_width), ""), *cells])
        for row, (explainer, name) in enumerate(zip(explainers, names, strict=True)):
            is_control = explainer in overview.controls
            segments = [(f"  {name}".ljust(2 + name_width), "dim" if is_control else "")]
            for column in block:
                style = column.styles[row]
                segments.append(
                    (column.texts[row].ljust(column.width), "dim" if is_control else style)
                )
            lines.append(segments)
        yield lines


class _TextColumn:
    """One test as text: the lines of its heading, and a cell for every explainer."""

    def __init__(self, column: Column, explainers: Sequence[str], intervals: bool) -> None:
        cells = [column.cell(explainer) for explainer in explainers]
        heading = column.question if column.is_check else column.title
        # Questions are longer than the answers below them.
        self.head = textwrap.wrap(heading, 12) if column.is_check else [heading]
        self.texts = [_cell_text(cell, intervals) for cell in cells]
        self.styles = [LABEL_STYLES.get(cell.label, "") for cell in cells]
        self.width = max(map(len, [*self.head, *self.texts])) + 2

    def head_line(self, i: int, height: int) -> str:
        """Return one line of the heading, which stands at the bottom of `height` lines."""
        padded = [""] * (height - len(self.head)) + self.head
        return padded[i].ljust(self.width)


def _row_name(overview: Overview, explainer: str, width: int) -> str:
    name = overview.looks[explainer].name
    suffix = " (control)" if explainer in overview.controls else ""
    longest = max(12, width // 3) - len(suffix)
    return shortened(name, longest) + suffix


def _cell_text(cell: Cell, intervals: bool) -> str:
    parts = [cell.text, LABEL_WORDS[cell.label]]
    if intervals and cell.interval:
        parts.append(f"[{cell.interval}]")
    return " ".join(filter(None, parts))


def _legend(overview: Overview, width: int) -> list[Line]:
    """Explain the scale and the words that occur in the table, and no others."""
    if not overview.columns:
        return []
    sentences = []
    if any(not column.is_check and not column.note for column in overview.columns):
        sentences.append("0 = a random map, 1 = perfect.")
    cells: list[Cell] = []
    for column in overview.columns:
        if column.note:
            sentences.append(f"{column.title}: {column.note}.")
        cells += [column.cell(name) for name in overview.rows]
    sentences += [LEGEND[label] for label in overview.labels]
    if any(cell.text == "unclear" for cell in cells):
        sentences.append(UNCLEAR)
    if NO_CELL in cells:
        sentences.append("–: no score.")
    return _wrapped(" ".join(sentences), width, "dim", indent="  ")


# ---- sentences -------------------------------------------------------------------------------------------------------


def _warnings(overview: Overview, width: int) -> list[Line]:
    """Return the first warnings, each with the name of its rule before or above it, and how many more there are."""
    warnings = overview.warnings()
    if not warnings:
        return []
    shown = warnings[:MOST_WARNINGS]
    widest = max(len(rule) for rule, _ in shown) + 4
    lines: list[Line] = [[("Warnings", "bold")]]
    for rule, message in shown:
        head = f"  {rule}".ljust(widest)
        if widest > width // 2:  # too little room beside the names
            lines += [[(head.rstrip(), "yellow")], *_wrapped(message, width, indent="    ")]
            continue
        folded = textwrap.wrap(message, width - widest, break_long_words=True)
        for i, text in enumerate(folded):
            lines.append([(head if i == 0 else " " * widest, "yellow"), (text, "")])
    rest = len(warnings) - len(shown)
    if rest:
        lines.append([(f"  … and {rest} more in the report.", "dim")])
    return lines


def _wrapped(text: str, width: int, style: str = "", indent: str = "") -> list[Line]:
    folded = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)
    return [[(line, style)] for line in folded]
