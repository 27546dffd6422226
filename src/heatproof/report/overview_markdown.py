"""The verdict as Markdown, for the summary of a job in CI, an issue or a README."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heatproof.report.overview import Cell, Overview
from heatproof.report.overview_text import LABEL_WORDS

MOST_WARNINGS = 5


def overview_markdown(overview: Overview) -> str:
    """Return the conclusion, the table of all tests and the warnings."""
    lines = [f"### {escape(overview.headline)}", ""]
    if overview.pilot:
        lines += [escape(overview.pilot), ""]
    if overview.sampling:
        lines += [escape(overview.sampling), ""]
    if overview.columns:
        lines += [*_table(overview), ""]
    warnings = overview.warnings()
    for rule, message in warnings[:MOST_WARNINGS]:
        lines.append(f"- `{rule}`: {escape(message)}")
    rest = len(warnings) - MOST_WARNINGS
    if rest > 0:
        lines.append(f"- … and {rest} more in the report")
    title = f"{escape(overview.model)} on {escape(overview.dataset)}, {overview.counted_samples}"
    return "\n".join(
        [*lines, "", f"<sub>{title}. 0 = a random map, 1 = perfect; 95 % intervals.</sub>", ""]
    )


def markdown(overviews: Iterable[Overview]) -> str:
    """Return the verdicts of a run, one after another.

    >>> markdown([])
    'Nothing can be concluded: the run has no scores.'
    """
    return "\n".join(overview_markdown(overview) for overview in overviews) or (
        "Nothing can be concluded: the run has no scores."
    )


def _table(overview: Overview) -> list[str]:
    """Return the lines of the table of a verdict: a row for each explainer, a column for each test."""
    heads = ["", *(f"{column.question}<br>*{column.title.lower()}*" for column in overview.columns)]
    rows = [_row(heads), _row(["---"] * len(heads))]
    for explainer in overview.rows:
        name = escape(overview.looks[explainer].name)
        is_control = explainer in overview.controls
        label = f"{name} *(control)*" if is_control else f"**{name}**"
        rows.append(_row([label, *(_cell(column.cell(explainer)) for column in overview.columns)]))
    return rows


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    words = LABEL_WORDS[cell.label]
    score = f"**{cell.text} {words}**" if words == "best" else f"{cell.text} {words}".strip()
    return f"{score}<br>{cell.interval}" if cell.interval else score


def escape(text: str) -> str:
    r"""Return text that Markdown shows as it is: no name can make a link, a table cell or HTML.

    >>> print(escape("<b> [a](b) | `c`"))
    &lt;b&gt; \[a\](b) \| \`c\`
    """
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for char in "\\`*_[]|":
        safe = safe.replace(char, f"\\{char}")
    return " ".join(safe.split())
