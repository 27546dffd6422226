"""The comparison as one HTML page that needs no network."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from heatproof.report.comparison.cautions import cautions
from heatproof.report.comparison.compare import Comparison
from heatproof.report.comparison.match import reference_count
from heatproof.report.comparison.runs import run_facts
from heatproof.report.comparison.tables import all_tables, forest_charts, main_tables
from heatproof.report.comparison.text import legend
from heatproof.report.comparison.words import results_of_pairs
from heatproof.report.html import page, shared_script, shared_style, template
from heatproof.report.page import embed
from heatproof.report.page_parts import Chart, Panel, part_of
from heatproof.text import to_csv

PACKAGE = "heatproof.report.comparison"


def comparison_page(comparison: Comparison) -> str:
    """Return the page: result and main table, warnings, what differs, charts, all numbers, how the runs were made."""
    looks = comparison.looks
    main = [part_of(table, looks) for table in main_tables(comparison)]
    charts = [part_of(chart, looks) for chart in forest_charts(comparison)]
    runs = []
    for run in comparison.runs:
        draws = {"seed": run.manifest.study.seed, "references": reference_count(run)}
        runs.append(run_facts(run) | {"facts": draws})
    result, *other_results = results_of_pairs(comparison)
    context = {
        "title": f"heatproof comparison of {len(comparison.runs)} runs",
        "legend": legend(comparison),
        "result": result,
        "other_results": other_results,
        "main": [panel for panel in main if isinstance(panel, Panel)],
        "subject": comparison.subject,
        "cautions": cautions(comparison),
        "charts": [chart for chart in charts if isinstance(chart, Chart)],
        "tables": _number_tables(comparison),
        "left_out": comparison.left_out,
        "runs": runs,
        "level": f"{100 * comparison.level:g}",
        "payload": embed({"all": to_csv(comparison.differences)}),
        **style_and_script(),
    }
    return page(PACKAGE, "comparison.html").render(context)


def style_and_script(*scripts: str) -> dict[str, Markup]:
    """Return the style and the script of a page of this folder, the latter with those of its own."""
    styles = [shared_style(), template("heatproof.report", "style.css")]
    styles.append(template(PACKAGE, "comparison.css"))
    sources = [shared_script(), *(template(PACKAGE, name) for name in ("shared.js", *scripts))]
    return {"style": Markup("".join(styles)), "script": Markup("".join(sources))}


def _number_tables(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the tables of all numbers with how many rows are only in the CSV."""
    tables = []
    for table, left_out in all_tables(comparison):
        panel = part_of(table, comparison.looks)
        if isinstance(panel, Panel):
            tables.append({"title": table.title, "html": panel.html, "left_out": left_out})
    return tables
