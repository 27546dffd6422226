"""The charts and tables of a comparison as components, for its page and for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from heatproof.report.comparison.differences import OVERALL
from heatproof.report.comparison.words import condition_title, outcome
from heatproof.report.components import ScoreChart, Table
from heatproof.text import digits_of, number, p_value, records, with_interval

if TYPE_CHECKING:
    from heatproof.report.comparison.compare import Comparison

MOST_ROWS = 400
"""How many rows a table on the page has; the CSV has all."""
LEADING = (OVERALL, "conditions", "controls")
"""The families whose rows are about headlines."""
FAMILY_TITLES = {
    OVERALL: "Over all conditions",
    "conditions": "By condition",
    "controls": "Controls",
    "measures": "Other measures",
}
FATES = {
    "flipped": "Flipped",
    "undefined": "Undefined",
    "absent": "Absent",
    "unreadable": "Unreadable",
}


def main_tables(comparison: Comparison) -> list[Table]:
    """Return a table for each pair of runs, data set and model: its methods, test by test, over all conditions.

    There is none for runs that are identical.
    """
    tables = []
    overall = comparison.overall
    by_pair = overall.groupby(["a", "b", "dataset", "model"], sort=False)
    for i, ((a, b, dataset, model), rows) in enumerate(by_pair):
        if rows["identical"].all():
            continue
        # The title names data set and model only if there are several.
        title = f"{b} against {a}"
        if overall["dataset"].nunique() > 1:
            title += f", {dataset}"
        if overall["model"].nunique() > 1:
            title += f", {model}"
        frame = pd.DataFrame([_cells(row, comparison) for row in records(rows)])
        columns = {
            "method": "Method",
            "outcome": "Result",
            "mean_a": str(a),
            "mean_b": str(b),
            "difference": "Difference",
            "p": "p",
            "joined": "Samples",
        }
        caption = f"Result: the test of {b} − {a} on the samples that both scored."
        caption += " Undecided: not significant."
        tables.append(
            Table(
                key=f"main-{i}",
                title=title,
                caption=caption,
                rows=frame,
                columns=columns,
                group="test",
            )
        )
    return tables


def all_tables(comparison: Comparison) -> list[tuple[Table, int]]:
    """Return every row of the differences in tables, each with the number of rows that were left out."""
    differences = comparison.differences
    keys = ["evaluation"]
    keys += [name for name in ("dataset", "model") if differences[name].nunique() > 1]
    tables: list[tuple[Table, int]] = []
    for family, family_title in FAMILY_TITLES.items():
        of_family = differences[differences["family"] == family]
        for names, rows in of_family.groupby(keys, sort=False):
            title = f"{family_title}: {', '.join(map(str, names))}"
            cells = [_cells(row, comparison) for row in records(rows.head(MOST_ROWS))]
            frame = pd.DataFrame(cells)
            columns = _columns_of_all(rows)
            table = Table(
                key=f"all-{len(tables)}", title=title, caption="", rows=frame, columns=columns
            )
            tables.append((table, max(0, len(rows) - MOST_ROWS)))
    return tables


def _columns_of_all(rows: pd.DataFrame) -> dict[str, str]:
    pairs = rows[["a", "b"]].drop_duplicates()
    columns = {"method": "Method"}
    if (rows["condition"] != OVERALL).any():
        columns["condition"] = "Condition"
    columns["measure"] = "Measure"
    if len(pairs) == 1:
        columns |= {"mean_a": pairs["a"].iloc[0], "mean_b": pairs["b"].iloc[0]}
    else:
        columns |= {"pair": "Runs", "mean_a": "Earlier", "mean_b": "Later"}
    columns |= {"difference": "Difference", "p": "p", "outcome": "Result", "joined": "Joined"}
    dropped = {name: title for name, title in FATES.items() if rows[name].any()}
    return columns | dropped


def _cells(row: Any, comparison: Comparison) -> dict[str, Any]:
    """Return what the tables write of a row."""
    measure = comparison.measure_of(row)
    digits = digits_of(row.difference, row.low, row.high)
    lower = ", lower is better" if measure.better == "lower" else ""
    is_tested = row.joined > 0 and not row.identical
    difference = with_interval(row.difference, row.low, row.high) if is_tested else "–"
    p = p_value(row.p).removeprefix("p ").removeprefix("= ") if is_tested else "–"
    title = comparison.title_of(row)
    test = f"{title}: {measure.title}{lower}" if measure.title != title else title
    return {
        "test": test,
        "method": comparison.named(row),
        "condition": condition_title(row, comparison.matched),
        "measure": measure.title,
        "pair": f"{row.b} − {row.a}",
        "outcome": outcome(row, measure),
        "mean_a": number(row.mean_a, digits),
        "mean_b": number(row.mean_b, digits),
        "difference": difference,
        "p": p,
        "joined": f"{row.joined}/{row.samples}",
        "is_control": row.family == "controls",
        **{name: str(getattr(row, name)) for name in FATES},
    }


def forest_charts(comparison: Comparison) -> Iterator[ScoreChart]:
    """Yield a chart of the differences for each data set, model, evaluation and headline: overall, and by condition.

    There is none where all scores are identical.
    """
    differences = comparison.differences
    leading = differences[differences["family"].isin(LEADING) & (differences["joined"] > 0)]
    places = ["dataset", "model", "evaluation", "measure"]
    several = [name for name in ("dataset", "model") if leading[name].nunique() > 1]
    for i, (_, rows) in enumerate(leading.groupby(places, sort=False)):
        if rows["identical"].all():
            continue
        # All conditions come first. The order of the others is that of the study.
        is_overall = rows["condition"] == OVERALL
        entries = records(rows[is_overall]) + records(rows[~is_overall])
        first = entries[0]
        measure = comparison.measure_of(first)
        title = f"{comparison.title_of(first)}: differences in {measure.title}"
        title = ", ".join([title, *(getattr(first, name) for name in several)])
        is_one_pair = len(rows[["a", "b"]].drop_duplicates()) == 1
        marks = []
        for row in entries:
            name = comparison.named(row)
            tested = f"{outcome(row, measure)}, {p_value(row.p)}"
            mark = {
                "row": name if is_one_pair else f"{name}, {row.b} − {row.a}",
                "explainer": row.explainer,
                "panel": condition_title(row, comparison.matched),
                "score": row.difference,
                "low": row.low,
                "high": row.high,
                "note": f"{tested}, {row.joined} of {row.samples} samples",
            }
            marks.append(mark)
        reach = rows[["difference", "low", "high"]].abs().replace(math.inf, math.nan).max().max()
        caption = _forest_caption(first, is_one_pair, measure.better)
        if rows["low"].isna().any():
            caption += " A dot without a band has too few samples for a test."
        yield ScoreChart(
            key=f"forest-{i}",
            title=title,
            caption=caption,
            scores=pd.DataFrame(marks),
            row="row",
            x_label="difference",
            limits=(-reach, reach) if reach > 0 else (-0.1, 0.1),
        )


def _forest_caption(row: Any, is_one_pair: bool, better: str) -> str:
    later, earlier = (row.b, row.a) if is_one_pair else ("the later run", "the earlier run")
    side = {
        "higher": f"Right of zero, {later} is better; left of zero, {earlier}.",
        "lower": f"Lower is better: left of zero, {later} is better; right of zero, {earlier}.",
        "neither": f"Right of zero, {later} scores higher than {earlier}.",
    }[better]
    return f"{side} Bands are simultaneous 95 % intervals; a band that crosses zero is not significant."
