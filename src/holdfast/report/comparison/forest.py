"""Differences between runs as forest plots: a dot with its interval for each, on a line through zero."""

from __future__ import annotations

import html
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from holdfast.axes.measures import direction, measure_title
from holdfast.drawing.charts import PALETTE, Chart, blank_figure, error_bars, label, rounded
from holdfast.drawing.prose import p_value, records, with_interval
from holdfast.report.comparison.joining import OVERALL
from holdfast.report.comparison.words import condition_title, outcome

SAME = "#8A8D91"
LATER, EARLIER = PALETTE[0], PALETTE[1]
ROW, LINE, GAP = 34, 17, 10  # pixels
LONGEST_VIEW = 60


def forests(differences: pd.DataFrame) -> list[Chart]:
    """A chart for every data set, model, evaluation and leading measure: overall, and by condition."""
    drawn = []
    leading = differences[differences["family"].isin([OVERALL, "conditions", "controls"])]
    place = ["dataset", "model", "evaluation", "measure"]
    several = {name: leading[name].nunique() > 1 for name in place[:2]}
    for number, (key, rows) in enumerate(leading.groupby(place, sort=False)):
        overall = rows[rows["condition"] == OVERALL]
        views = [("All conditions", overall), ("By condition", rows[rows["condition"] != OVERALL])]
        kept = [(name, _figure(part)) for name, part in views if part["joined"].any() and len(part) <= LONGEST_VIEW]
        if not kept:
            continue
        dataset, model, evaluation, measure = map(str, key)
        title = f"{evaluation.capitalize()}: difference in {measure_title(measure)}"
        title += f", {model}" if several["model"] else ""
        title += f" on {dataset}" if several["dataset"] else ""
        height = height_of(kept[0][1])
        drawn.append(Chart(f"forest-{number}", title, _caption(rows), _alt(overall), kept, height, 0, rows))
    return drawn


def height_of(figure: go.Figure) -> int:
    """How many pixels a view needs: a row for every dot, as high as the longest name in lines."""
    names = [name for trace in figure.data for name in trace.y]
    lines = max((name.count("<br>") + 1 for name in names), default=1)
    return max(2, len(names)) * max(ROW, LINE * lines + GAP) + 110


def _caption(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    way = direction(first["kind"], first["measure"])
    pairs = rows[["a", "b"]].drop_duplicates()
    later, earlier = (first["b"], first["a"]) if len(pairs) == 1 else ("the later run", "the earlier one")
    side = f"Right of zero {later} is better, left of it {earlier}." if way > 0 else ""
    side = f"Less is better: left of zero {later} is better, right of it {earlier}." if way < 0 else side
    side = side or f"Right of zero {later} scores higher than {earlier}."
    return f"{side} Bars are 95 % bootstrap intervals over the joined samples; hollow dots are not separated from zero."


def _alt(rows: pd.DataFrame) -> str:
    apart = rows[rows["separated"]]
    return f"Forest plot of {len(rows)} differences, {len(apart)} of them separated; the numbers are in the table."


def _figure(rows: pd.DataFrame) -> go.Figure:
    figure = blank_figure(x_title="difference")
    turned = rows.iloc[::-1]
    names = [_name(r, rows) for r in records(turned)]
    higher, lower, same = _groups(rows)
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
            hovertext=[_hover(r) for r in records(part)],
            hoverinfo="text",
            showlegend=True,
        )
    figure.update_yaxes(categoryorder="array", categoryarray=names, range=[-0.6, len(rows) - 0.4])
    figure.update_xaxes(zeroline=True, range=_span(rows), nticks=6)
    return figure


def _groups(rows: pd.DataFrame) -> tuple[str, str, str]:
    """What dots right of zero, left of it, and those that are not separated are called."""
    first = rows.iloc[0]
    way = direction(first["kind"], first["measure"])
    one = len(rows[["a", "b"]].drop_duplicates()) == 1
    later, earlier = (first["b"], first["a"]) if one else ("later run", "earlier run")
    word = "better" if way else "higher"
    ends = (f"{later} {word}", f"{earlier} {word}")
    return (*(ends[::-1] if way < 0 else ends), "not separated")


def _name(row: Any, rows: pd.DataFrame) -> str:
    parts = [row.explainer] if row.condition == OVERALL else [f"{row.explainer}, {condition_title(row)}"]
    if len(rows[["a", "b"]].drop_duplicates()) > 1:
        parts.append(f"{row.b} − {row.a}")
    return "<br>".join(label(part, 20) for part in parts)


def _hover(row: Any) -> str:
    gap = with_interval(row.difference, row.low, row.high, 3)
    text = f"{row.explainer}, {condition_title(row)}, {row.b} − {row.a}: {gap}"
    facts = f"{p_value(row.p_holm) if row.joined else 'not tested'}, {row.joined} of {row.samples} samples"
    return f"{html.escape(text)}<br>{facts}, {html.escape(outcome(row))}"


def _span(rows: pd.DataFrame) -> list[float]:
    edges = rows[["difference", "low", "high"]].to_numpy(dtype=float)
    reach = float(pd.Series(abs(edges).ravel()).max())
    reach = 1.15 * reach if reach > 0 else 0.1
    return [-reach, reach]
