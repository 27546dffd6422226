"""The comparison as one HTML page that needs no network."""

from __future__ import annotations

import html
import json
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from holdfast.axes import Measure
from holdfast.drawing.charts import PALETTE, Chart, blank_figure, error_bars, label, rounded
from holdfast.drawing.pages import page, template
from holdfast.drawing.prose import number, p_value, records, with_interval
from holdfast.drawing.tidy import to_csv
from holdfast.report.comparison.common import Common, Side, short
from holdfast.report.comparison.compare import Comparison
from holdfast.report.comparison.pairs import OVERALL
from holdfast.report.comparison.words import ALL_CONDITIONS, cautions, condition_title, legend, outcome
from holdfast.report.page import embed
from holdfast.runs.manifest import references_of

COLUMNS = ["Explainer", "Condition", "Measure", "Pair", "Earlier", "Later", "Difference", "p (Holm)", "Better"]
COLUMNS += ["Joined", "Flipped", "Undefined", "Absent", "Unreadable"]
MOST_ROWS = 400
SAME = "#8A8D91"
LATER, EARLIER = PALETTE[0], PALETTE[1]
ROW, LINE, GAP = 34, 17, 10  # pixels
LONGEST_VIEW = 60
PACKAGE = "holdfast.report.comparison"


def comparison_page(comparison: Comparison) -> str:
    """Verdict, what differs, forest plots, tables, what was not compared, and how each run was made."""
    charts = forests(comparison)
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
        "tables": _tables(comparison),
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


def forests(comparison: Comparison) -> list[Chart]:
    """Forest plots of the differences: a dot with its interval for each, on a line through zero.

    There is a chart for every data set, model, evaluation and leading measure: overall, and by condition.
    """
    drawn, differences, common = [], comparison.differences, comparison.common
    leading = differences[differences["family"].isin([OVERALL, "conditions", "controls"])]
    place = ["dataset", "model", "evaluation", "measure"]
    several = {name: leading[name].nunique() > 1 for name in place[:2]}
    for i, (key, rows) in enumerate(leading.groupby(place, sort=False)):
        overall = rows[rows["condition"] == OVERALL]
        views = [("All conditions", overall), ("By condition", rows[rows["condition"] != OVERALL])]
        kept = [
            (name, _figure(part, common)) for name, part in views if part["joined"].any() and len(part) <= LONGEST_VIEW
        ]
        if not kept:
            continue
        dataset, model, evaluation, measure = map(str, key)
        known = common.evaluation(evaluation).measure(measure)
        title = f"{evaluation.capitalize()}: difference in {known.title}"
        title += f", {model}" if several["model"] else ""
        title += f" on {dataset}" if several["dataset"] else ""
        height = height_of(kept[0][1])
        drawn.append(Chart(f"forest-{i}", title, _caption(rows, known), _alt(overall), kept, height, 0, rows))
    return drawn


def height_of(figure: go.Figure) -> int:
    """How many pixels a view needs: a row for every dot, as high as the longest name in lines."""
    names = [name for trace in figure.data for name in trace.y]
    lines = max((name.count("<br>") + 1 for name in names), default=1)
    return max(2, len(names)) * max(ROW, LINE * lines + GAP) + 110


def _caption(rows: pd.DataFrame, measure: Measure) -> str:
    later, earlier = _pair(rows, "the later run", "the earlier one")
    side = {
        "higher": f"Right of zero {later} is better, left of it {earlier}.",
        "lower": f"Less is better: left of zero {later} is better, right of it {earlier}.",
        "neither": f"Right of zero {later} scores higher than {earlier}.",
    }[measure.better]
    return f"{side} Bars are 95 % bootstrap intervals over the joined samples; hollow dots are not separated from zero."


def _pair(rows: pd.DataFrame, later: str, earlier: str) -> tuple[str, str]:
    """What the two sides of a difference are called: by their letters where there is one pair of runs."""
    first = rows.iloc[0]
    return (first["b"], first["a"]) if _is_one_pair(rows) else (later, earlier)


def _is_one_pair(rows: pd.DataFrame) -> bool:
    return len(rows[["a", "b"]].drop_duplicates()) == 1


def _alt(rows: pd.DataFrame) -> str:
    apart = rows[rows["separated"]]
    return f"Forest plot of {len(rows)} differences, {len(apart)} of them separated; the numbers are in the table."


def _figure(rows: pd.DataFrame, common: Common) -> go.Figure:
    figure = blank_figure(x_title="difference")
    turned = rows.iloc[::-1]
    names = [_name(r, rows, common) for r in records(turned)]
    higher, lower, same = _groups(rows, common)
    groups: dict[str, list[int]] = {higher: [], lower: [], same: []}
    for i, r in enumerate(records(turned)):
        groups[same if not r.separated else higher if r.difference > 0 else lower].append(i)
    looks = ((LATER, "circle"), (EARLIER, "square"), (SAME, "circle-open"))
    for (name, places), (colour, symbol) in zip(groups.items(), looks, strict=True):
        part = turned.iloc[places]
        if part.empty:
            continue
        figure.add_scatter(
            x=rounded(part["difference"]),
            y=[names[i] for i in places],
            error_x=error_bars(part["difference"], part["low"], part["high"], colour),
            mode="markers",
            name=name,
            marker={"color": colour, "size": 10, "symbol": symbol, "line": {"width": 2, "color": colour}},
            hovertext=[_hover(r, common) for r in records(part)],
            hoverinfo="text",
            showlegend=True,
        )
    figure.update_yaxes(categoryorder="array", categoryarray=names, range=[-0.6, len(rows) - 0.4])
    figure.update_xaxes(zeroline=True, range=_span(rows), nticks=6)
    return figure


def _groups(rows: pd.DataFrame, common: Common) -> tuple[str, str, str]:
    """What dots right of zero, left of it, and those that are not separated are called."""
    first = rows.iloc[0]
    sign = common.evaluation(first["evaluation"]).measure(first["measure"]).sign
    later, earlier = _pair(rows, "later run", "earlier run")
    word = "better" if sign else "higher"
    ends = (f"{later} {word}", f"{earlier} {word}")
    return (*(ends[::-1] if sign < 0 else ends), "not separated")


def _name(row: Any, rows: pd.DataFrame, common: Common) -> str:
    parts = [row.explainer] if row.condition == OVERALL else [f"{row.explainer}, {condition_title(row, common)}"]
    if not _is_one_pair(rows):
        parts.append(f"{row.b} − {row.a}")
    return "<br>".join(label(part, 20) for part in parts)


def _hover(row: Any, common: Common) -> str:
    gap = with_interval(row.difference, row.low, row.high, 3)
    text = f"{row.explainer}, {condition_title(row, common)}, {row.b} − {row.a}: {gap}"
    facts = f"{p_value(row.p_holm) if row.joined else 'not tested'}, {row.joined} of {row.samples} samples"
    return f"{html.escape(text)}<br>{facts}, {html.escape(outcome(row))}"


def _span(rows: pd.DataFrame) -> list[float]:
    edges = rows[["difference", "low", "high"]].to_numpy(dtype=float)
    reach = float(pd.Series(abs(edges).ravel()).max())
    reach = 1.15 * reach if reach > 0 else 0.1
    return [-reach, reach]


def _tables(comparison: Comparison) -> list[dict[str, Any]]:
    """Tables as title, rows of cells, whether open, and how many rows were left to the CSV."""
    differences = comparison.differences
    titles = {OVERALL: "Over all conditions", "conditions": "By condition", "controls": "Controls"}
    titles["measures"] = "Other measures"
    place = ["evaluation", "dataset", "model"]
    several = [name for name in place[1:] if differences[name].nunique() > 1]
    tables = []
    for family, title in titles.items():
        part = differences[differences["family"] == family]
        for key, rows in part.groupby(["evaluation", *several], sort=False):
            heading = ", ".join(map(str, key))
            cells = [_cells(r, comparison.common) for r in records(rows.head(MOST_ROWS))]
            kept = [i for i, name in enumerate(COLUMNS) if not _says_nothing(name, {row[i] for row in cells})]
            about = {"title": f"{title}: {heading}", "columns": [COLUMNS[i] for i in kept], "open": family == OVERALL}
            shown = [[row[i] for i in kept] for row in cells]
            tables.append({**about, "rows": shown, "left_out": max(0, len(rows) - MOST_ROWS)})
    return tables


def _says_nothing(column: str, cells: set[str]) -> bool:
    return cells == {"–"} or (column == "Condition" and cells == {ALL_CONDITIONS})


def _cells(r: Any, common: Common) -> list[str]:
    p = p_value(r.p_holm).removeprefix("p ").removeprefix("= ") if r.joined else "–"
    measure = common.evaluation(r.evaluation).measure(r.measure)
    cells = [r.explainer, condition_title(r, common), measure.title, f"{r.b} − {r.a}"]
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
