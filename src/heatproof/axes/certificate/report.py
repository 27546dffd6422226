"""Certificates in the report: rates with what is guaranteed of them, decisions, and examples of flips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.certificate.evaluation import RADIUS
from heatproof.axes.certificate.findings import findings
from heatproof.axes.certificate.gallery import EXPLANATION, FLIP, INPUT
from heatproof.axes.certificate.shares import (
    answer_shares,
    certified_mean,
    delta,
    least_rate,
    next_sample,
    one_fraction,
)
from heatproof.evaluation import GalleryItem
from heatproof.report.components import Component, CurveChart, Gallery, Matrix, Tile
from heatproof.results.axis_result import AxisResult
from heatproof.results.verdict import NO_METHOD_SCORED
from heatproof.text import at_least, number, records, with_interval

__all__ = ["components", "findings", "lead"]

UNIT = (0.0, 1.0)
ADDED_AT_MOST = "features added at most"
NOT_MONOTONE = "The rate is not monotone in r: a bound at one radius says nothing of another."
CALIBRATED_SCALE = "0 = as many random features, 1 = never changes"
ANCHORED = {
    "explanation": "Certified is the prediction on the explanation alone",
    "full": "Certified is the prediction on the whole input",
}
KEPT = {
    "rate": "the prediction on explanations of {name} stays for {share} of the supersets",
    "stable": "the decision for {name} is positive for a share of {share} of the samples",
    "unflipped": "no draw changes the prediction of {name} for a share of {share} of the samples",
}
MOST_EXAMPLES = 24
"""How many rows of the examples of other samples are shown."""


# ---- sentences -------------------------------------------------------------------------------------------------------


def lead(result: AxisResult) -> list[str]:
    """Return the sentences that open the certificate's section of the report.

    They are the verdict on the methods, then the best method's stability rate at the largest radius, what is guaranteed of
    it, and how often its explanations alone are predicted like the input.
    """
    result = one_fraction(result)
    names = [headline.name for headline in result.headlines]
    cells = [result.cells(name) for name in names]
    scored = pd.concat(cells) if cells else pd.DataFrame(columns=["score", "mean", "level"])
    scored = scored[scored["mean"].notna()]
    if scored.empty:
        return ["Nothing can be concluded: no sample has a certificate."]

    radius = float(scored["level"].max())
    at_radius = scored[scored["level"] == radius].sort_values(
        "score", ascending=False, kind="stable"
    )
    methods = at_radius[~at_radius["control"]]
    best = records(methods if len(methods) else at_radius)[0]
    decided = result.decided()
    if decided == [NO_METHOD_SCORED]:
        decided = ["No method can be compared: random features always keep the prediction, too."]
    sentences = [*decided, _rate_sentence(result, best)]
    if best.measure == "rate":
        sentences += _guarantee(result, best)
    return [*sentences, *_prediction_sentence(result, best.explainer)]


def _rate_sentence(result: AxisResult, best: Any) -> str:
    """Return a sentence: how often the best method's explanations keep the prediction, compared with random features.

    `best` is the row of a summary for this method at the largest radius, whose score may be calibrated for chance; the
    sentence has the rate itself.
    """
    raw = result.cells(best.measure, calibrate=False)
    key = (best.explainer, best.condition, best.level)
    row = raw.set_index(["explainer", "condition", "level"]).loc[[key]].iloc[0]
    share = with_interval(row["score"], row["low"], row["high"])
    name = result.name_of(best.explainer)
    name = f"the control {name}" if best.control else name
    sentence = KEPT[best.measure].format(name=name, share=share)
    if best.open:
        sentence += f" that were decided ({best.open} of {best.attempted} stayed open)"
    if np.isfinite(row["chance"]):
        sentence += f"; as many random features keep it for {number(row['chance'])} (chance)"
    return f"With {features_added(result, best.level)} added, {sentence}."


def _guarantee(result: AxisResult, best: Any) -> list[str]:
    """Return sentences on what is guaranteed of the best method: its mean stability rate, and the rate of a further sample.

    `best` is its row of a summary. Both have their confidence; none if it has no certificates.
    """
    low, n = certified_mean(result, best.explainer, (best.condition, best.level))
    if not n:
        return []
    scope = " for all methods and radii at once" if result.settings.get("simultaneous") else ""
    tested = "this sample" if n == 1 else f"these {n} samples"
    confidence = f"{100 * (1 - delta(result)):g} % confidence, δ = {delta(result):g}"
    sentences = [
        f"Guaranteed mean rate over {tested}{scope}: at least {at_least(low)} ({confidence})."
    ]
    of_next, _ = next_sample(result, best.explainer, (best.condition, best.level))
    if of_next > 0:
        # One δ for the rank of the further sample, and one for its certificate.
        total = 2 * delta(result)
        sentences.append(
            f"A further sample of the same kind has a rate of at least {at_least(of_next)} "
            f"({100 * (1 - total):g} % confidence, α = δ = {delta(result):g})."
        )
    return sentences


def _prediction_sentence(result: AxisResult, explainer: str) -> list[str]:
    """Return a sentence on how often the explanation alone is predicted like the whole input; none if not measured."""
    sufficient = result.arrays.values.get("sufficient")
    if sufficient is None:
        return []
    of_explainer = sufficient[result.explainers.index(explainer)].ravel()
    n, yes = int(np.isfinite(of_explainer).sum()), int(np.nansum(of_explainer))
    return [
        f"{anchor(result)}; the explanation alone is predicted like the whole input for {yes} of {count(n)}."
    ]


def is_exactly(result: AxisResult) -> bool:
    """Whether a radius r is about exactly r added features, and not about up to r of them."""
    return str(result.settings.get("added", "at most")) == "exactly"


def features_added(result: AxisResult, radius: float) -> str:
    """Return how many features are added at a radius, in words."""
    if radius == 1:
        return "1 feature"
    return f"{'exactly' if is_exactly(result) else 'up to'} {radius:g} features"


def radius_label(result: AxisResult) -> str:
    """Return the label of the axis of radii."""
    return "features added" if is_exactly(result) else ADDED_AT_MOST


def anchor(result: AxisResult) -> str:
    """Say which prediction is certified."""
    return ANCHORED[str(result.settings.get("anchor", "explanation"))]


def count(n: int, kind: str = "") -> str:
    """Return a number of samples in words.

    >>> count(1), count(14, "labelled")
    ('1 sample', '14 labelled samples')
    """
    noun = "sample" if n == 1 else "samples"
    return " ".join(filter(None, (str(n), kind, noun)))


# ---- components ------------------------------------------------------------------------------------------------------


def components(result: AxisResult) -> Iterator[Component]:
    """Yield the charts, tables and pictures of a certificate for the report, in reading order."""
    panels = _panel_of_fraction(result)
    yield from rate_chart(result, panels)
    yield from _examples(result)
    yield from calibrated_chart(result, panels)
    yield from _answer_chart(one_fraction(result))
    yield from _rate_table(one_fraction(result))


def _panel_of_fraction(result: AxisResult) -> dict[str, str]:
    """Return the heading of the chart panel that each condition belongs to.

    Several fractions of features to keep are conditions such as "fraction=0.5", with a panel each. A single fraction is the
    condition "radius", whose panel needs no heading.
    """
    panels = {}
    for condition, _ in result.conditions:
        panels[condition] = "" if condition == RADIUS else condition.replace("=", " = ")
    return panels


def rate_chart(result: AxisResult, panels: Mapping[str, str]) -> Iterator[CurveChart]:
    """Yield a chart of stability rates, their certified bounds and their chance level against the number of added features.

    The rate is how often the prediction stays. `panels` has the heading of the panel of every condition. No chart without
    rates.
    """
    rates = points_at_radii(result.cells("rate", calibrate=False), panels)
    if rates.empty:
        return
    bounds = points_at_radii(result.cells("certified", calibrate=False), panels)
    chance = rates[rates["chance"].notna()]
    no_interval = {"low": np.nan, "high": np.nan}
    curves = [
        rates.assign(curve="rate"),
        bounds.assign(curve="guaranteed", **no_interval),
        chance.assign(curve="chance", score=chance["chance"], **no_interval),
    ]
    error = delta(result)
    added = "exactly" if is_exactly(result) else "up to"
    caption = (
        f"Solid: how often the prediction stays when {added} r features are added to those that the method calls important "
        "(mean over samples, 95 % intervals). Dashed: mean of the guaranteed lower bounds "
        f"({100 * (1 - error):g} % confidence, δ = {error:g}). "
    )
    if len(chance):
        caption += "Dotted: as many random features (chance). "
    yield CurveChart(
        key="rates",
        title="Certified rate",
        caption=f"{caption}{anchor(result)}. {NOT_MONOTONE}",
        points=pd.concat(curves, ignore_index=True),
        x_label=radius_label(result),
        y_label="prediction stays",
        limits=UNIT,
        paper="soft stability, Figures 6 and 11",
    )


def points_at_radii(cells: pd.DataFrame, panels: Mapping[str, str]) -> pd.DataFrame:
    """Return the points of curves of scores against the radius r, how many features are added, sorted by panel.

    `cells` are rows of a summary with r as their `level`, and `panels` has the panel of every condition. Rows without a
    score are left out, and so is level 0, the explanation alone.
    """
    is_in_a_panel = cells["condition"].isin(list(panels))
    scored = cells[(cells["level"] > 0) & cells["score"].notna() & is_in_a_panel]
    position = {condition: i for i, condition in enumerate(panels)}
    in_order = scored.sort_values(
        "condition", key=lambda names: names.map(position), kind="stable", ignore_index=True
    )
    points = in_order.assign(x=in_order["level"], panel=in_order["condition"].map(panels))
    # With this column a dot is hollow unless it is above chance. Curves show chance as a line, so their dots are filled.
    return points.drop(columns="above_chance")


def calibrated_chart(result: AxisResult, panels: Mapping[str, str]) -> Iterator[CurveChart]:
    """Yield a chart of stability rates, calibrated for chance, against the number of added features.

    No chart if no chance level was measured. `panels` has the heading of the panel of every condition.
    """
    if not result.arrays.is_calibrated("rate"):
        return
    cells = result.cells("rate")
    points = points_at_radii(cells[cells["calibrated"].notna()], panels)
    if points.empty:
        return
    yield CurveChart(
        key="calibrated",
        title="Rate above random features",
        caption=f"(rate − chance) / (1 − chance): {CALIBRATED_SCALE}. Methods are ranked by it. Means over samples with "
        "95 % intervals. Guarantees concern the rate itself, not this score.",
        points=points,
        x_label=radius_label(result),
        y_label="calibrated rate",
        limits=UNIT,
    )


def _answer_chart(result: AxisResult) -> Iterator[CurveChart]:
    """Yield a chart of the share of samples with a positive answer, against the number of added features.

    The answer is whether the stability rate is at least a threshold (mode "decide"), or whether no drawn superset changed
    the prediction (mode "hard"). No chart in other modes.
    """
    error = delta(result)
    if "stable" in result.arrays.values:
        least = float(result.settings.get("threshold", 0.9))
        measure, title = "stable", f"Share of samples with τ ≥ {least:g}"
        caption = (
            f"Solid: samples with a rate shown to be at least {least:g}. Dashed: samples where that was not refuted; "
            f"those between the two are open. A decision is wrong with probability at most {error:g}."
        )
    elif "unflipped" in result.arrays.values:
        least = least_rate(result)
        measure = "unflipped"
        title = f"Share of samples with no flip, which certifies τ ≥ {least:g}"
        caption = (
            "Samples where no drawn superset flipped the prediction. That certifies a rate of at least "
            f"{least:g} ({100 * (1 - error):g} % confidence), not hard stability (a rate of 1)."
        )
    else:
        return
    frames = []
    for explainer in result.explainers:
        shares = answer_shares(result.arrays, explainer, measure)
        shares = shares.assign(explainer=explainer, x=shares["level"])
        frames.append(
            shares.assign(
                curve="shown",
                score=shares["share"],
                note=[f"{row.yes} of {row.n}, {row.open} open" for row in records(shares)],
            )
        )
        if shares["open"].any():
            not_refuted = (shares["yes"] + shares["open"]) / shares["n"]
            frames.append(
                shares.assign(
                    curve="not refuted", note="", score=not_refuted, low=np.nan, high=np.nan
                )
            )
    points = pd.concat(frames, ignore_index=True)
    if points.empty:
        return
    yield CurveChart(
        key="answers",
        title=title,
        caption=f"{caption} Bars are exact 95 % intervals over samples. {NOT_MONOTONE}",
        points=result.best_first(points),
        x_label=radius_label(result),
        y_label="share of samples",
        limits=UNIT,
    )


def _rate_table(result: AxisResult) -> Iterator[Matrix]:
    """Yield methods by radii: rate and what is guaranteed of it; the last row has the rates of random features."""
    rates = result.cells("rate", calibrate=False)
    rates = rates[rates["level"] > 0]
    if rates["score"].isna().all():
        return
    confidence = f"{100 * (1 - delta(result)):g} %"
    columns = [result.mark_best(rates, calibrate=False).assign(column="rate")]
    caption = (
        f"{anchor(result)}. Rate: mean over samples, 95 % intervals. Guaranteed: mean of the lower bounds ({confidence} "
        "confidence each). "
    )
    columns.append(_column_of(result, "certified", "guaranteed"))
    of_next = _next_samples(result)
    if of_next["score"].notna().any():
        columns.append(of_next)
        caption += (
            "Next sample: its rate is at least this, for each method and radius with "
            f"{100 * (1 - 2 * delta(result)):g} % confidence (split conformal). "
        )
    if "lowest_rate" in result.arrays.values:
        columns.append(_column_of(result, "lowest_rate", "lowest"))
        caption += "Lowest: mean of the lowest rate of a sample at any radius up to r. "
    if "withstands_search" in result.arrays.values:
        columns.append(_column_of(result, "withstands_search", "no flip found"))
        caption += "No flip found: share of samples where a search found none up to r, so at most so many have τ = 1. "
    columns += _chance_row(rates)
    caption += "Bold: the best method at that radius and all that do not differ significantly from it; never a control."
    cells = pd.concat(columns, ignore_index=True).sort_values("level", kind="stable")
    yield Matrix(
        key="scores",
        title="Stability rate by radius",
        caption=caption,
        scores=cells.assign(
            row=cells["explainer"], column_group=[f"r = {level:g}" for level in cells["level"]]
        ),
        shaded=False,
        paper="soft stability, Figure 6 as a table",
    )


def _column_of(result: AxisResult, measure: str, column: str) -> pd.DataFrame:
    """Return the means of a measure at every radius as cells of the table, without intervals."""
    cells = result.cells(measure, calibrate=False)
    cells = cells[cells["level"] > 0]
    return cells.assign(low=np.nan, high=np.nan, column=column, best=False)


def _next_samples(result: AxisResult) -> pd.DataFrame:
    """Return the lower bound of the stability rate of a further sample, by method and radius, as cells of the table."""
    cells = _column_of(result, "certified", "next sample")
    guarantees = [
        next_sample(result, row.explainer, (row.condition, row.level))[0] for row in records(cells)
    ]
    return cells.assign(score=guarantees)


def _chance_row(rates: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the last row of the table of rates, that of random features, as a list; empty if chance was not measured."""
    chance = rates.groupby("level")["chance"].mean().dropna()
    if not len(chance):
        return []
    row = pd.DataFrame({"level": chance.index, "score": chance.to_numpy()})
    name = "random features (chance)"
    return [row.assign(explainer=name, column="rate", best=False, is_control=True)]


# ---- examples --------------------------------------------------------------------------------------------------------


def _examples(result: AxisResult) -> Iterator[Gallery]:
    """Yield pictures of a few added features that change the prediction: one sample as an example, then the others.

    The example is the sample with the most flips; there is a row of pictures per explainer.
    """
    rows = _example_rows(result)
    if not rows:
        return
    flips: dict[str, list[float]] = {sample: [] for sample, _ in rows}
    for (sample, _), row in rows.items():
        if row[FLIP].level:
            flips[sample].append(row[FLIP].level)
    # Most flips first, then the fewest features that were needed.
    first, *others = sorted(flips, key=lambda sample: (-len(flips[sample]), sum(flips[sample])))
    yield Gallery(
        key="example",
        title="A few features more",
        caption="The input; only the features that the method calls important; a few more; the new prediction. The added "
        "features were searched for, most harmful first, so this is a bad case, not a typical one. Left-out features have "
        f"the colour that the model sees in their place. {anchor(result)}.",
        tiles=_tiles_of(rows, [first]),
        paper="soft stability, Figures 1 and 3",
    )
    if others:
        yield Gallery(
            key="more-examples",
            title="More examples",
            caption="The same for other samples.",
            tiles=_tiles_of(rows, others, MOST_EXAMPLES),
        )


def _example_rows(result: AxisResult) -> dict[tuple[str, str], dict[str, GalleryItem]]:
    """Return the stored images of each sample and explainer that has all of them, by condition."""
    rows: dict[tuple[str, str], dict[str, GalleryItem]] = {}
    for item in result.gallery:
        rows.setdefault((item.sample, item.explainer), {})[item.condition] = item
    return {
        key: row for key, row in sorted(rows.items()) if {INPUT, EXPLANATION, FLIP} <= row.keys()
    }


def _tiles_of(
    rows: Mapping[tuple[str, str], Mapping[str, GalleryItem]],
    samples: list[str],
    most: int | None = None,
) -> list[Tile]:
    """Return the tiles of some samples, a row of them per explainer, at most so many rows."""
    shown = []
    for sample in samples:
        shown += [row for key, row in rows.items() if key[0] == sample]
    tiles = []
    for row in shown[:most]:
        tiles += _row_of_tiles(row)
    return tiles


def _row_of_tiles(row: Mapping[str, GalleryItem]) -> list[Tile]:
    """Return a row of pictures for the report: the input, the explanation, and the added features that flip the prediction.

    `row` has the stored images by condition. If no flip was found, the third picture says so.
    """
    original, explanation, flip = row[INPUT], row[EXPLANATION], row[FLIP]
    tiles = [
        Tile(original, "input", view="input", note=original.note),
        Tile(explanation, "explanation", view="input", note=explanation.note),
    ]
    if not flip.level or flip.map is None:
        # The stored note says that no flip was found.
        return [*tiles, Tile(flip, "not flipped", view="input", note=flip.note)]
    added = "1 feature added" if flip.level == 1 else f"{flip.level:g} features added"
    return [
        *tiles,
        Tile(replace(flip, image=original.image), added, view="region"),
        Tile(flip, "flipped", view="input", note=flip.note),
    ]
