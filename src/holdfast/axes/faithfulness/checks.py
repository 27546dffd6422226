"""Can the removal scores be trusted? Whether strategies agree, and what imputers give away."""

from __future__ import annotations

import html
import math
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness import LEAKAGE, RETRAINING, frames
from holdfast.axes.faithfulness.consistency import FEWEST, consistency
from holdfast.axes.faithfulness.frames import primary_first
from holdfast.axes.faithfulness.kinds import KINDS
from holdfast.axes.faithfulness.retraining.leakage import LEAK_BITS, TELLTALE, leakage_summary
from holdfast.drawing.charts import PALETTE, Chart, Panel, blank_figure, label, rounded
from holdfast.drawing.prose import LISTED, listing, number, records, with_interval

AGAIN = "retrained "
Strategy = tuple[bool, str, str]
"""Whether networks were retrained, the imputer, and the order."""
MOST_NUMBERS = 24
NOT_MEASURED = "Leakage was not measured in this run (holdfast.retrain with leakage=True measures it). It matters to "
NOT_MEASURED += "networks that are trained on filled images: the ROAD paper shows that the mere shape of the removed "
NOT_MEASURED += "part can give the class away, the more so where one value fills it."
NOT_MEASURABLE = (
    "Leakage was not measured: the probes that measure it are made for images. That something is gone, and "
)
NOT_MEASURABLE += "where, may itself tell the class, the more so the less the filling looks like real data."


def consistency_chart(judged: Judged) -> Chart | Panel | None:
    """Spearman's correlation of rankings between strategies as a matrix, a view for every readout."""
    table = judged.related[judged.related["evaluation"].isin([judged.label, RETRAINING.name])]
    again = judged.manifest.get("study", {}).get("evaluations", {}).get(RETRAINING.name, {})
    views, said, few = [], "", 0
    for measure in dict.fromkeys([frames.readout(judged), "accuracy"]):
        pairs = consistency(table, measure)
        if again.get("against") != judged.settings.get("against"):  # two accuracies, which are not compared
            pairs = pairs[pairs["kind"] != "retraining"]
        pairs = pairs[pairs["level"].isna()]
        few += len(pairs)
        pairs = pairs[pairs["spearman"].notna()]
        if len(pairs):
            said = said or _orders_in_words(pairs)
            views.append((measure.capitalize(), consistency_figure(pairs)))
    if not views:
        if not few:
            return None
        text = f"Rankings of fewer than {FEWEST} methods (controls left out) cannot be compared."
        return Panel("consistency", "Do the strategies agree?", text, Markup(""))
    caption = "Spearman’s correlation of the rankings of methods between two ways to evaluate, the mean over "
    caption += "fractions, with 95 % bootstrap intervals over samples; 1 is the same ranking, 0 nothing in common. "
    caption += "Controls are left out; empty cells differ in more than one respect and are not compared. "
    caption += f"{said}For comparison, the ROAD paper reports, for its eight methods on CIFAR-10, MoRF against LeRF "
    caption += "without retraining, 0.01 with a fixed value and 0.54 with noisy linear imputation (retrained: −0.09 "
    caption += "and 0.59). These are the paper’s numbers, not of this run."
    size = max(len(figure.data[0].x) for _, figure in views)
    alt = f"Matrix of rank correlations between {size} evaluation strategies. {said}"
    return Chart("consistency", "Do the strategies agree?", caption, alt.strip(), views, 62 * size + 130, 2 * size + 1)


def _orders_in_words(pairs: pd.DataFrame) -> str:
    own = pairs[(pairs["kind"] == "order") & (pairs["evaluation"] != RETRAINING.name)]
    said = [f"{r.a_imputer} {with_interval(r.spearman, r.low, r.high)}" for r in records(own)]
    return f"Here, MoRF against LeRF: {listing(said)}. " if said else ""


def consistency_figure(pairs: pd.DataFrame) -> go.Figure:
    """The matrix of one readout; `pairs` are rows of `consistency` with level NaN."""
    cells: dict[tuple[Strategy, Strategy], Any] = {}
    for r in records(pairs):
        again = r.evaluation == RETRAINING.name
        a, b = (again, r.a_imputer, r.a_order), (again or r.kind == "retraining", r.b_imputer, r.b_order)
        cells[a, b] = cells[b, a] = r
    strategies = sorted(dict.fromkeys(strategy for pair in cells for strategy in pair), key=lambda s: s[2] == "lerf")
    imputers = primary_first(dict.fromkeys(imputer for _, imputer, _ in strategies))
    strategies.sort(key=lambda s: (s[0], imputers.index(s[1])))
    names = {s: f"{AGAIN if s[0] else ''}{s[1]} {s[2]}" for s in strategies}
    z = [[float(cells[a, b].spearman) if (a, b) in cells else math.nan for b in strategies] for a in strategies]
    hover = [
        [
            f"{html.escape(names[a])} × {html.escape(names[b])}: "
            f"{with_interval(cells[a, b].spearman, cells[a, b].low, cells[a, b].high)}<br>"
            f"{cells[a, b].explainers} methods, {cells[a, b].samples} samples"
            if (a, b) in cells
            else ""
            for b in strategies
        ]
        for a in strategies
    ]
    titles = {strategy: label(name, 14) for strategy, name in names.items()}
    figure = blank_figure()
    figure.add_heatmap(
        z=[rounded(row) for row in z],
        x=list(titles.values()),
        y=list(titles.values()),
        hovertext=hover,
        hoverinfo="text",
        hoverongaps=False,
        colorscale=[[0, "#B2182B"], [0.25, "#EF8A62"], [0.5, "#F7F7F7"], [0.75, "#67A9CF"], [1, "#2166AC"]],
        zmin=-1,
        zmax=1,
        xgap=2,
        ygap=2,
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 1, "tickvals": [-1, 0, 1], "ticklen": 0},
    )
    written = [(a, b) for a, b in cells if math.isfinite(cells[a, b].spearman)]
    figure.add_scatter(
        x=[titles[b] for _, b in written],
        y=[titles[a] for a, _ in written],
        text=[
            f"<b>{number(r.spearman)}</b><br>{number(r.low, 1)} to {number(r.high, 1)}"
            if math.isfinite(r.low)
            else f"<b>{number(r.spearman)}</b>"
            for r in (cells[pair] for pair in written)
        ],
        textfont={"color": ["#ffffff" if abs(cells[pair].spearman) > 0.7 else "#000000" for pair in written]},
        mode="text",
        hoverinfo="skip",
        showlegend=False,
    )
    figure.update_xaxes(side="top", showgrid=False, categoryorder="array", categoryarray=list(titles.values()))
    figure.update_yaxes(showgrid=False, categoryorder="array", categoryarray=list(titles.values())[::-1])
    return figure


def leakage_rows(judged: Judged) -> pd.DataFrame:
    """`leakage_summary` of this model and dataset; empty where nothing was measured."""
    rows = judged.related[judged.related["evaluation"] == LEAKAGE.name]
    summary = leakage_summary(rows) if len(rows) else pd.DataFrame()
    return summary if "mask_bits" in summary else pd.DataFrame()


def leakage_charts(judged: Judged) -> list[Chart | Panel]:
    """Bits that masks give away and pixels that are recognised, and a warning; or that nothing is known."""
    measured = leakage_rows(judged)
    if measured.empty:
        text = NOT_MEASURED if frames.words(judged) is KINDS["image"] else NOT_MEASURABLE
        return [Panel("leakage", "Leakage", text, Markup(""))]
    views = [
        ("Bits in the mask", leakage_figure(measured, "mask_bits", "guaranteed bits about the class in the mask")),
        ("Visible masks", leakage_figure(measured, "pixels", "share of pixels recognised as removed or kept")),
    ]
    if "leak" in measured and measured["leak"].notna().any():
        views.append(("Leak", leakage_figure(measured, "leak", "estimated bits that reach the outcome")))
    caption = "How much the mere shape of the removed part says of the class, and whether an imputed image shows it. "
    caption += "Bits in the mask: at least so much information about the class is in the mask (Fano’s bound on a "
    caption += "held-out probe at the lower confidence limit; each bar fails with probability at most 2.5 %). Visible "
    caption += "masks: the share of held-out pixels that a small network tells right, ½ is a guess. "
    if len(views) == 3:
        caption += "Leak: I(C; M) − I(C; M | x′) from probes, an estimate and no bound. "
    caption += "Bars are the largest over fractions. A report warns where a mask holds more than "
    caption += f"{LEAK_BITS:g} bits and more than {100 * TELLTALE:g} % of the pixels are recognised."
    alt = f"Bars for {measured['explainer'].nunique()} methods and {measured['imputer'].nunique()} imputers."
    bars = measured["explainer"].nunique() * measured["condition"].nunique()
    chart = Chart("leakage", "Leakage", caption, alt, views, 380, (bars + 1) * 3 // 4)
    return [leak_panel(measured), chart]


def leakage_figure(measured: pd.DataFrame, column: str, title: str) -> go.Figure:
    """Bars per explainer, grouped by imputer and order; of the fractions the largest value."""
    figure = blank_figure(y_title=title)
    top = measured[measured[column].notna()].sort_values(column, ascending=False, kind="stable")
    top = top.drop_duplicates(["explainer", "condition"])
    imputers = primary_first(dict.fromkeys(measured["imputer"]))
    explainers = list(dict.fromkeys(measured["explainer"]))
    written = len(top) <= MOST_NUMBERS  # a bar of height 0 is only seen by its number
    for k, imputer in enumerate(imputers):
        for order in sorted(dict.fromkeys(measured["order"]), key=lambda order: str(order) != "morf"):
            part = top[(top["imputer"] == imputer) & (top["order"] == order)].set_index("explainer")
            part = part.reindex(explainers)
            if part[column].isna().all():
                continue
            striped = {"shape": "/", "solidity": 0.35, "fillmode": "replace"} if order == "lerf" else {}
            figure.add_bar(
                x=[label(e, 12) for e in explainers],
                y=rounded(part[column]),
                name=label(f"{imputer} {order}", 60),
                marker={"color": PALETTE[k % len(PALETTE)], "line": {"width": 0}, "pattern": striped},
                hovertext=[
                    f"{html.escape(e)}, {html.escape(imputer)} {order}, {100 * x:g} % removed: {number(v)}"
                    for e, x, v in zip(explainers, part["level"], part[column], strict=True)
                ],
                hoverinfo="text",
                text=[number(v) if written else "" for v in part[column]],
                textposition="outside",
                textangle=0,
                cliponaxis=False,
            )
    low, high = (float(edge(top[column])) if len(top) else 0.0 for edge in (min, max))
    if column == "pixels":
        figure.update_yaxes(range=[0, 1.08], tickformat=".0%")
    else:
        figure.update_yaxes(range=[1.1 * min(low, 0.0), 1.12 * max(high, 2 * LEAK_BITS)])
    figure.update_layout(barmode="group", bargap=0.25, yaxis_zeroline=True)
    figure.update_xaxes(showgrid=False)
    return figure


def leak_panel(measured: pd.DataFrame) -> Panel:
    """The warning where an imputer leaks, or that none was shown to."""
    leaking = measured[measured["leaks"].astype(bool)]
    if leaking.empty:
        text = "No imputer was shown to leak here. The probes are small: that they find nothing does not prove that "
        return Panel("leak", "Does an imputer leak?", text + "nothing is there.", Markup(""))
    names = primary_first(dict.fromkeys(leaking["imputer"]))
    items = [
        f"{r.imputer}, {r.explainer}, {r.order} at {100 * r.level:g} %: at least {number(r.mask_bits)} bits in the "
        f"mask, {100 * r.pixels:.0f} % of the pixels recognised"
        for r in records(leaking.sort_values("mask_bits", ascending=False))
    ]
    more = f"<li>and {len(items) - LISTED} more</li>" if len(items) > LISTED else ""
    listed = Markup("").join(Markup("<li>{}</li>").format(item) for item in items[:LISTED]) + Markup(more)
    said = f"{listing(names)} leak{'s' if len(names) == 1 else ''}: a network can see which pixels were removed, and "
    said += "where they lay says what the class is."
    body = Markup('<div class="caution" role="note"><p><b>{}</b></p><ul>{}</ul></div>').format(said, listed)
    safe = [name for name in primary_first(dict.fromkeys(measured["imputer"])) if name not in names]
    caption = "Scores with a leaking imputer mix what a map says with the shape of what it removes; do not rank "
    caption += "methods by them" + (f", and read those of {listing(safe)} instead." if safe else ".")
    return Panel("leak", "Does an imputer leak?", caption, body)
