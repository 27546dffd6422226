"""The comparison as one HTML page that needs no network."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pandas as pd
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from holdfast.axes.measures import measure_title
from holdfast.drawing.prose import number, p_value, records, with_interval
from holdfast.drawing.tidy import to_csv
from holdfast.report.comparison.compare import Comparison
from holdfast.report.comparison.forest import forests, height_of
from holdfast.report.comparison.joining import OVERALL
from holdfast.report.comparison.matching import Side, short
from holdfast.report.comparison.words import cautions, condition_title, legend, outcome
from holdfast.report.page import embed
from holdfast.report.pages import page, template
from holdfast.runs.manifest import references_of

COLUMNS = ["Explainer", "Condition", "Measure", "Pair", "Earlier", "Later", "Difference", "p (Holm)", "Better"]
COLUMNS += ["Joined", "Flipped", "Undefined", "Absent", "Unreadable"]
MOST_ROWS = 400
WHOLE = SimpleNamespace(condition=OVERALL, level=0.0)

PACKAGE = "holdfast.report.comparison"


def comparison_page(comparison: Comparison) -> str:
    """Verdict, what differs, forest plots, tables, what was not compared, and how each run was made."""
    charts = forests(comparison.differences)
    drawn = {
        chart.key: [{**json.loads(figure.to_json()), "height": height_of(figure)} for _, figure in chart.views]
        for chart in charts
    }
    data = {chart.key: to_csv(chart.data) for chart in charts if chart.data is not None}
    context = {
        "title": f"holdfast comparison of {len(comparison.runs)} runs",
        "legend": legend(comparison),
        "verdict": comparison.verdict(),
        "subject": comparison.subject,
        "cautions": cautions(comparison),
        "charts": charts,
        "tables": _tables(comparison.differences),
        "left_out": comparison.left_out,
        "runs": [_made(side) for side in comparison.runs],
        "level": f"{100 * comparison.level:g}",
        "payload": embed({"charts": drawn, "data": {**data, "all": to_csv(comparison.differences)}}),
        "plotly": Markup(get_plotlyjs().replace("</", "<\\/")) if charts else "",
        **look("comparison.js"),
    }
    return page(PACKAGE, "comparison.html").render(context)


def look(script: str) -> dict[str, Markup]:
    """The report's style with what these pages add, and the script of one of them."""
    style = template("holdfast.report", "style.css")
    return {"style": Markup(style + template(PACKAGE, "comparison.css")), "script": Markup(template(PACKAGE, script))}


def _tables(differences: pd.DataFrame) -> list[dict[str, Any]]:
    """Tables as title, rows of cells, whether open, and how many rows were left to the CSV."""
    titles = {OVERALL: "Over all conditions", "conditions": "By condition", "controls": "Controls"}
    titles["measures"] = "Other measures"
    place = ["evaluation", "dataset", "model"]
    several = [name for name in place[1:] if differences[name].nunique() > 1]
    tables = []
    for family, title in titles.items():
        part = differences[differences["family"] == family]
        for key, rows in part.groupby(["evaluation", *several], sort=False):
            heading = ", ".join(map(str, key))
            cells = [_cells(r) for r in records(rows.head(MOST_ROWS))]
            kept = [i for i, name in enumerate(COLUMNS) if not _says_nothing(name, {row[i] for row in cells})]
            about = {"title": f"{title}: {heading}", "columns": [COLUMNS[i] for i in kept], "open": family == OVERALL}
            shown = [[row[i] for i in kept] for row in cells]
            tables.append({**about, "rows": shown, "left_out": max(0, len(rows) - MOST_ROWS)})
    return tables


def _says_nothing(column: str, cells: set[str]) -> bool:
    return cells == {"–"} or (column == "Condition" and cells == {condition_title(WHOLE)})


def _cells(r: Any) -> list[str]:
    p = p_value(r.p_holm).removeprefix("p ").removeprefix("= ") if r.joined else "–"
    cells = [r.explainer, condition_title(r), measure_title(r.measure), f"{r.b} − {r.a}"]
    cells += [number(r.mean_a, 3), number(r.mean_b, 3), with_interval(r.difference, r.low, r.high, 3), p, outcome(r)]
    counts = [r.flipped, r.undefined, r.absent, r.unreadable]
    return [*cells, f"{r.joined}/{r.samples}", *(str(n) if n else "–" for n in counts)]


def _made(side: Side) -> dict[str, Any]:
    manifest = side.manifest
    prints = {
        kind: {name: short(entry.get("fingerprint")) for name, entry in side.study(kind).items()}
        for kind in ("models", "datasets")
    }
    return {
        "label": side.label,
        "path": side.path,
        "command": str(manifest.get("command") or ""),
        "created": str(manifest.get("created") or ""),
        "versions": dict(manifest.get("versions") or {}),
        "weights": prints["models"],
        "data": prints["datasets"],
        "seed": manifest["study"].get("seed"),
        "references": references_of(manifest["study"]),
    }
