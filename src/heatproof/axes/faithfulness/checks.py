"""Can the removal scores be trusted? Whether strategies agree, and what imputers give away."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from markupsafe import Markup

from heatproof.axes.contract import AxisResult
from heatproof.axes.faithfulness import LEAKAGE, RETRAINING, frames
from heatproof.axes.faithfulness.consistency import FEWEST, consistency
from heatproof.axes.faithfulness.frames import primary_first
from heatproof.axes.faithfulness.retraining.leakage import LEAK_BITS, TELLTALE, leakage_summary
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import looks, removal_words
from heatproof.drawing.plots import Mark, cells, dots, mark, span
from heatproof.drawing.prose import LISTED, at_least, listing, records, with_interval
from heatproof.drawing.sheet import Plot
from heatproof.kinds import IMAGE

AGAIN = "retrained "
Strategy = tuple[bool, str, str]
"""Whether networks were retrained, the imputer, and the order."""
NOT_MEASURED = "Leakage was not measured in this run (heatproof.retrain with leakage=True measures it). It matters to "
NOT_MEASURED += "networks that are trained on filled images: the ROAD paper shows that the mere shape of the removed "
NOT_MEASURED += "part can give the class away, the more so where one value fills it."
NOT_MEASURABLE = "Leakage was not measured: the probes that measure it are made for images. That something is gone, and "
NOT_MEASURABLE += (
    "where, may itself tell the class, the more so the less the filling looks like real data."
)


def consistency_chart(result: AxisResult) -> Chart | Panel | None:
    """Spearman's correlation of rankings between strategies as a matrix for every readout."""
    table = result.related[result.related["evaluation"].isin([result.label, RETRAINING.name])]
    retraining = result.manifest.study.evaluation(RETRAINING.name).parameters
    plots, said, few = [], "", 0
    for measure in dict.fromkeys([frames.readout(result), "accuracy"]):
        pairs = consistency(table, measure)
        if retraining.get("against") != result.settings.get("against"):
            # Accuracy against the label and against the prediction are not compared.
            pairs = pairs[pairs["kind"] != "retraining"]
        pairs = pairs[pairs["level"].isna()]
        few += len(pairs)
        pairs = pairs[pairs["spearman"].notna()]
        if len(pairs):
            said = said or _orders_in_words(pairs)
            plots.append(consistency_plot(pairs, measure.capitalize()))
    if not plots:
        if not few:
            return None
        text = f"Rankings of fewer than {FEWEST} methods (controls left out) cannot be compared."
        return Panel("consistency", "Do the strategies agree?", text, Markup(""))
    caption = "Spearman’s correlation of the rankings of methods between two ways to evaluate, the mean over "
    caption += "fractions, with 95 % bootstrap intervals over samples; 1 is the same ranking, 0 nothing in common. "
    caption += (
        "Controls are left out; empty cells differ in more than one respect and are not compared. "
    )
    caption += f"{said}For comparison, the ROAD paper reports, for its eight methods on CIFAR-10, MoRF against LeRF "
    caption += "without retraining, 0.01 with a fixed value and 0.54 with noisy linear imputation (retrained: −0.09 "
    caption += "and 0.59). These are the paper’s numbers, not of this run."
    alt = f"Matrix of rank correlations between evaluation strategies. {said}".strip()
    folded = {plot.title: [plot] for plot in plots[1:]}
    return Chart("consistency", "Do the strategies agree?", caption, alt, plots[:1], folded)


def _orders_in_words(pairs: pd.DataFrame) -> str:
    own = pairs[(pairs["kind"] == "order") & (pairs["evaluation"] != RETRAINING.name)]
    said = [f"{r.a_imputer} {with_interval(r.spearman, r.low, r.high)}" for r in records(own)]
    return f"Here, MoRF against LeRF: {listing(said)}. " if said else ""


def consistency_plot(pairs: pd.DataFrame, title: str) -> Plot:
    """The matrix of one readout; `pairs` are rows of `consistency` with level NaN."""
    found: dict[tuple[Strategy, Strategy], Mark] = {}
    for r in records(pairs):
        again = r.evaluation == RETRAINING.name
        a, b = (
            (again, r.a_imputer, r.a_order),
            (again or r.kind == "retraining", r.b_imputer, r.b_order),
        )
        said = f"{r.explainers} methods, {r.samples} samples"
        for x, y in ((a, b), (b, a)):
            found[x, y] = Mark(f"{_name(x)} × {_name(y)}", r.spearman, r.low, r.high, said=said)
    strategies = sorted(
        dict.fromkeys(strategy for pair in found for strategy in pair), key=lambda s: s[2] == "lerf"
    )
    imputers = primary_first(dict.fromkeys(imputer for _, imputer, _ in strategies))
    strategies.sort(key=lambda s: (s[0], imputers.index(s[1])))
    names = [_name(s) for s in strategies]
    return cells(names, names, [[found.get((a, b)) for b in strategies] for a in strategies], title)


def _name(strategy: Strategy) -> str:
    return removal_words(f"{AGAIN if strategy[0] else ''}{strategy[1]} {strategy[2]}")


def leakage_rows(result: AxisResult) -> pd.DataFrame:
    """`leakage_summary` of this model and dataset; empty where nothing was measured."""
    rows = result.related[result.related["evaluation"] == LEAKAGE.name]
    summary = leakage_summary(rows) if len(rows) else pd.DataFrame()
    return summary if "mask_bits" in summary else pd.DataFrame()


def leakage_charts(result: AxisResult) -> list[Chart | Panel]:
    """Bits that masks give away and pixels that are recognised, and a warning; or that nothing is known."""
    measured = leakage_rows(result)
    if measured.empty:
        text = NOT_MEASURED if frames.words(result) == IMAGE else NOT_MEASURABLE
        return [Panel("leakage", "Leakage", text, Markup(""))]
    titles = {"mask_bits": "Bits in the mask", "pixels": "Visible masks", "leak": "Leak"}
    measured_columns = set(measured.columns[measured.notna().any()])
    columns = {name: title for name, title in titles.items() if name in measured_columns}
    caption = "How much the mere shape of the removed part says of the class, and whether an imputed image shows it. "
    caption += "Bits in the mask: at least so much information about the class is in the mask (Fano’s bound on a "
    caption += "held-out probe at the lower confidence limit; each dot fails with probability at most 2.5 %). Visible "
    caption += (
        "masks: the share of held-out pixels that a small network tells right, ½ is a guess. "
    )
    if "leak" in columns:
        caption += "Leak: I(C; M) − I(C; M | x′) from probes, an estimate and no bound. "
    caption += "Dots are the largest over fractions. A report warns where a mask holds more than "
    caption += (
        f"{LEAK_BITS:g} bits and more than {100 * TELLTALE:g} % of the pixels are recognised."
    )
    alt = f"Dots for {measured['explainer'].nunique()} methods and {measured['imputer'].nunique()} imputers."
    plots = [
        plot
        for column, title in columns.items()
        for plot in leakage_plots(result, measured, column, title)
    ]
    return [leak_panel(measured), Chart("leakage", "Leakage", caption, alt, plots)]


def leakage_plots(
    result: AxisResult, measured: pd.DataFrame, column: str, title: str
) -> list[Plot]:
    """A plot for each imputer and order; of the fractions the largest value."""
    top = measured[measured[column].notna()].sort_values(column, ascending=False, kind="stable")
    top = top.drop_duplicates(["explainer", "condition"])
    order = {e: i for i, e in enumerate(dict.fromkeys(measured["explainer"]))}
    named = {**looks(order), **result.looks}
    plots = []
    ends = span(top[column], 0.0, 1.0 if column == "pixels" else 2 * LEAK_BITS)
    for imputer in primary_first(dict.fromkeys(measured["imputer"])):
        for way in sorted(dict.fromkeys(measured["order"]), key=lambda order: str(order) != "morf"):
            part = top[(top["imputer"] == imputer) & (top["order"] == way)].sort_values(
                "explainer", key=lambda names: names.map(order)
            )
            marks = [
                replace(mark(named[e], v), said=f"{100 * x:g} % removed")
                for e, x, v in zip(part["explainer"], part["level"], part[column], strict=True)
            ]
            if marks:
                note = removal_words(f"{imputer} {way}")
                plots.append(dots(title, marks, ends, note=note, percent=column == "pixels"))
    return plots


def leak_panel(measured: pd.DataFrame) -> Panel:
    """The warning where an imputer leaks, or that none was shown to."""
    leaking = measured[measured["leaks"].astype(bool)]
    if leaking.empty:
        text = "No imputer was shown to leak here. The probes are small: that they find nothing does not prove that "
        return Panel("leak", "Does an imputer leak?", text + "nothing is there.", Markup(""))
    names = primary_first(dict.fromkeys(leaking["imputer"]))
    items = [
        f"{r.imputer}, {r.explainer}, {r.order} at {100 * r.level:g} %: at least {at_least(r.mask_bits)} bits in the "
        f"mask, {100 * r.pixels:.0f} % of the pixels recognised"
        for r in records(leaking.sort_values("mask_bits", ascending=False))
    ]
    more = f"<li>and {len(items) - LISTED} more</li>" if len(items) > LISTED else ""
    listed = Markup("").join(
        Markup("<li>{}</li>").format(item) for item in items[:LISTED]
    ) + Markup(more)
    said = f"{listing(names)} leak{'s' if len(names) == 1 else ''}: a network can see which pixels were removed, and "
    said += "where they lay says what the class is."
    body = Markup('<div class="caution" role="note"><p><b>{}</b></p><ul>{}</ul></div>').format(
        said, listed
    )
    safe = [name for name in primary_first(dict.fromkeys(measured["imputer"])) if name not in names]
    caption = "Scores with a leaking imputer mix what a map says with the shape of what it removes; do not rank "
    caption += "methods by them" + (
        f", and read those of {listing(safe)} instead." if safe else "."
    )
    return Panel("leak", "Does an imputer leak?", caption, body)
