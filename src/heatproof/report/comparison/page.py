"""The comparison as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
from markupsafe import Markup

from heatproof.axes import Measure
from heatproof.report.canvas import Plot
from heatproof.report.comparison.common import Common
from heatproof.report.comparison.compare import Comparison
from heatproof.report.comparison.leaderboard import run_facts
from heatproof.report.comparison.pairs import OVERALL
from heatproof.report.comparison.words import (
    ALL_CONDITIONS,
    cautions,
    condition_title,
    legend,
    outcome,
)
from heatproof.report.html import page, shared_script, shared_style, template
from heatproof.report.page import embed
from heatproof.report.page_parts import Chart
from heatproof.report.plots import Mark, dots
from heatproof.report.table_rows import Row
from heatproof.results.names import Look, looks
from heatproof.text import digits_of, number, p_value, records, to_csv, with_interval

COLUMNS = [
    "Explainer",
    "Condition",
    "Measure",
    "Pair",
    "Earlier",
    "Later",
    "Difference",
    "p (corrected)",
    "Better",
]
COLUMNS += ["Joined", "Flipped", "Undefined", "Absent", "Unreadable"]
MOST_ROWS = 400
PACKAGE = "heatproof.report.comparison"


def comparison_page(comparison: Comparison) -> str:
    """Verdict, what differs, forest plots, tables, what was not compared, and how each run was made."""
    charts = forests(comparison)
    context = {
        "title": f"heatproof comparison of {len(comparison.runs)} runs",
        "legend": legend(comparison),
        "verdict": comparison.verdict(),
        "subject": comparison.subject,
        "cautions": cautions(comparison),
        "charts": charts,
        "tables": _tables(comparison),
        "left_out": comparison.left_out,
        "runs": [
            run_facts(side)
            | {"facts": {"seed": side.manifest.study.seed, "references": side.reference_count}}
            for side in comparison.runs
        ],
        "level": f"{100 * comparison.level:g}",
        "payload": embed({"all": to_csv(comparison.differences)}),
        **look(),
    }
    return page(PACKAGE, "comparison.html").render(context)


def look(*script: str) -> dict[str, Markup]:
    """The report's style with what these pages add, and their script with what one of them adds."""
    style = (
        shared_style()
        + template("heatproof.report", "style.css")
        + template(PACKAGE, "comparison.css")
    )
    scripts = shared_script() + "".join(template(PACKAGE, name) for name in ("shared.js", *script))
    return {"style": Markup(style), "script": Markup(scripts)}


def forests(comparison: Comparison) -> list[Chart]:
    """Forest plots of the differences: a dot with its interval for each, on a line through zero.

    There is a chart for every data set, model, evaluation and leading measure: overall, and by condition.
    """
    drawn, differences, common = [], comparison.differences, comparison.common
    leading = differences[differences["family"].isin([OVERALL, "conditions", "controls"])]
    place = ["dataset", "model", "evaluation", "measure"]
    several = {name: leading[name].nunique() > 1 for name in place[:2]}
    known = looks(
        leading["explainer"], set(leading.loc[leading["family"] == "controls", "explainer"])
    )
    words = {r.explainer: comparison.named(r).removeprefix(r.explainer) for r in records(leading)}
    named = {e: replace(look, name=look.name + words.get(e, "")) for e, look in known.items()}
    for i, (key, rows) in enumerate(leading.groupby(place, sort=False)):
        if not rows["joined"].any():
            continue
        overall, ends = rows[rows["condition"] == OVERALL], _span(rows)
        plots = (
            [_forest("All conditions", overall, common, named, ends)]
            if overall["joined"].any()
            else []
        )
        conditions = rows[rows["condition"] != OVERALL].groupby(["condition", "level"], sort=False)
        parts = [part for _, part in conditions if part["joined"].any()]
        plots += [
            _forest(condition_title(records(part)[0], common), part, common, named, ends)
            for part in parts
        ]
        dataset, model, evaluation, measure = map(str, key)
        measured = common.evaluation(evaluation).measure(measure)
        title = f"{evaluation.capitalize()}: difference in {measured.title}"
        title += f", {model}" if several["model"] else ""
        title += f" on {dataset}" if several["dataset"] else ""
        alt = f"Forest plot of {len(overall)} differences, {int(overall['separated'].sum())} of them separated; the "
        drawn.append(
            Chart(
                f"forest-{i}",
                title,
                _caption(rows, measured),
                f"{alt}numbers are in the table.",
                plots,
            )
        )
    return drawn


def _forest(
    title: str,
    rows: pd.DataFrame,
    common: Common,
    named: Mapping[str, Look],
    ends: tuple[float, float],
) -> Plot:
    """A row for every difference, hollow where it is not separated from zero."""
    several, marks = not _is_one_pair(rows), []
    for r in records(rows):
        look = named[r.explainer]
        name = f"{look.name}, {r.b} − {r.a}" if several else look.name
        tested = p_value(r.p) if r.joined else "not tested"
        said = f"{tested}, {r.joined} of {r.samples} samples, {outcome(r)}"
        kind = "filled" if r.separated else "hollow"
        marks.append(
            Mark(name, r.difference, r.low, r.high, look.colour, kind, said, method=look.name)
        )
    return dots(title, marks, ends, "difference")


def _caption(rows: pd.DataFrame, measure: Measure) -> str:
    later, earlier = (
        rows[["b", "a"]].iloc[0] if _is_one_pair(rows) else ("the later run", "the earlier one")
    )
    side = {
        "higher": f"Right of zero {later} is better, left of it {earlier}.",
        "lower": f"Less is better: left of zero {later} is better, right of it {earlier}.",
        "neither": f"Right of zero {later} scores higher than {earlier}.",
    }[measure.better]
    return f"{side} Bands are 95 % intervals over the joined samples; hollow dots are not separated from zero."


def _is_one_pair(rows: pd.DataFrame) -> bool:
    return len(rows[["a", "b"]].drop_duplicates()) == 1


def _span(rows: pd.DataFrame) -> tuple[float, float]:
    edges = rows[["difference", "low", "high"]].to_numpy(dtype=float)
    reach = float(pd.Series(abs(edges).ravel()).max())
    reach = 1.15 * reach if reach > 0 else 0.1
    return -reach, reach


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
            cells = [_cells(r, comparison) for r in records(rows.head(MOST_ROWS))]
            heads = COLUMNS.copy()
            if _is_one_pair(rows):
                heads[3:6] = ["", *rows[["a", "b"]].iloc[0]]
            if all(row[1] == ALL_CONDITIONS for row in cells):
                heads[1] = ""
            kept = [i for i, name in enumerate(heads) if name]
            about = {
                "title": f"{title}: {heading}",
                "columns": [heads[i] for i in kept],
                "open": family == OVERALL,
            }
            shown = [Row([row[i] for i in kept]) for row in cells]
            tables.append({**about, "rows": shown, "left_out": max(0, len(rows) - MOST_ROWS)})
    return tables


def _cells(r: Any, comparison: Comparison) -> list[str]:
    common = comparison.common
    p = p_value(r.p).removeprefix("p ").removeprefix("= ") if r.joined else "–"
    measure = common.evaluation(r.evaluation).measure(r.measure)
    cells = [comparison.named(r), condition_title(r, common), measure.title, f"{r.b} − {r.a}"]
    digits = digits_of(r.difference, r.low, r.high)
    cells += [
        number(r.mean_a, digits),
        number(r.mean_b, digits),
        with_interval(r.difference, r.low, r.high),
        p,
    ]
    cells.append(outcome(r))
    counts = [r.flipped, r.undefined, r.absent, r.unreadable]
    return [*cells, f"{r.joined}/{r.samples}", *(str(n) if n else "–" for n in counts)]
