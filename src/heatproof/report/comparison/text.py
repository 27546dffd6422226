"""A comparison, and a leaderboard, as text for a terminal: the result first."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from heatproof.report.comparison.cautions import cautions
from heatproof.report.comparison.tables import main_tables
from heatproof.report.comparison.words import results_of_pairs
from heatproof.report.components import Table
from heatproof.report.draw import Looks
from heatproof.report.terminal import component_text
from heatproof.text import listing

if TYPE_CHECKING:
    from heatproof.report.comparison.compare import Comparison

Line = tuple[str, str]
"""A line of text and its style for rich."""
WIDE = 100
"""From this width on, tables also have p-values and numbers of samples."""


def styled_text(comparison: Comparison, width: int) -> list[Line]:
    """Return the verdict, the main tables, warnings, and what differs between the runs."""
    lines: list[Line] = []
    for sentence in results_of_pairs(comparison):
        lines += wrapped(sentence, width, "bold")
    tables = main_tables(comparison)
    for table in tables:
        # All tables have the same caption, which stands under the last one.
        caption = table.caption if table is tables[-1] else ""
        table_to_print = replace(table, caption=caption)
        lines += [("", ""), *table_lines(table_to_print, comparison.looks, width)]
    findings = cautions(comparison)
    if findings:
        lines += [("", ""), ("Warnings (heatproof rule NAME explains each)", "bold")]
        widest = max(len(finding.rule) for finding in findings)
        for finding in findings:
            items = f" ({len(finding.items)})" if finding.items else ""
            lines += wrapped(f"  {finding.rule:<{widest}}  {finding.title}{items}", width, "yellow")
    sections = {
        "Runs": [f"{label}: {text}" for label, text in legend(comparison)],
        "What differs": comparison.subject,
        "Not compared": comparison.left_out,
    }
    for title, sentences in sections.items():
        if not sentences:
            continue
        lines += [("", ""), (title, "bold")]
        for sentence in sentences:
            lines += wrapped(f"  {sentence}", width)
    return lines


def legend(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the label of each run with its path, its models and its data."""
    entries = []
    for i, run in enumerate(comparison.runs):
        models = listing(names[i] for names in comparison.matched.models)
        data = listing(names[i] for names in comparison.matched.datasets)
        entries.append((run.label, f"{run.path} ({models} on {data})"))
    return entries


def table_lines(table: Table, looks: Looks, width: int) -> list[Line]:
    """Return a table as lines; a narrow terminal gets its results and scores, not its p-values and counts."""
    if width < WIDE:
        columns = {k: title for k, title in table.columns.items() if k not in ("p", "joined")}
        table = replace(table, columns=columns)
    title, *rows = component_text(table, looks, width).splitlines()
    return [(title, "bold"), *((row, "") for row in rows)]


def wrapped(text: str, width: int, style: str = "") -> list[Line]:
    """Return a text as lines of at most so many columns, all but the first indented further."""
    indent = text[: len(text) - len(text.lstrip())]
    lines = textwrap.wrap(
        text, max(width, 40), subsequent_indent=f"{indent}  ", break_long_words=False
    )
    return [(line, style) for line in lines]
