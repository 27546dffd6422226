"""Localisation in the report: whose maps lie where the class is more than chance allows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heatproof.axes.localisation.evaluation import MOSAICS
from heatproof.report.components import Component, Matrix, ScoreChart
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.text import each

NOTHING = "Nothing can be concluded: no map of a sample with a region has a score."
CONTEXT = (
    "A model may rightly look beside the object, so a low score alone does not make a map wrong."
)
ALIGNMENT = "alignment"
ALIGNED = (
    "1 ranks the positions as people do, 0 is chance, −1 the reverse. A model may rightly use what people do not, so a low "
    "score alone does not make a map wrong."
)
AT_CHANCE = finding_template(
    "not-above-chance",
    axis="localisation",
    title="Maps not significantly above chance",
    seen="Localisation, where 0 is chance: {scores}.",
    means="The maps put no more relevance into the region of the class than its share of the area.",
    do="Check whether the method is faithful. If it is, the model looks at the context; if not, use another method.",
)


def lead(result: AxisResult) -> list[str]:
    """Return sentences on who localises best, what 0 and 1 are, and what a low score does not mean."""
    if not result.ranking["score"].notna().any():
        return [NOTHING]
    if result.headlines[0].name == ALIGNMENT:
        return [*result.decided(), ALIGNED]
    by_mosaics = any(condition == MOSAICS for condition, _ in result.conditions)
    where = "the tile of the class in a mosaic" if by_mosaics else "the region of the class"
    scale = f"0 is chance, the share of the area of {where}, and 1 a map that lies inside it."
    return [*result.decided(), scale, CONTEXT]


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield the methods that are not significantly above chance."""
    if not result.headlines:
        return
    verdict = result.verdict(result.headlines[0])
    if verdict.as_random:
        names = result.unmarked_names
        scores = each((names[e], verdict.scores[e]) for e in verdict.as_random)
        yield AT_CHANCE.filled({"scores": scores}, verdict.as_random)


def components(result: AxisResult) -> Iterator[Component]:
    """Yield the headline of every explainer, and every measure beside its chance."""
    ranking = result.ranking[result.ranking["score"].notna()]
    sign = result.settings.get("sign", "positive")
    is_graded = bool(result.headlines) and result.headlines[0].name == ALIGNMENT
    title = "Where the maps point"
    score = "Relevance mass beyond chance: (score − chance) / (1 − chance)"
    if is_graded:
        title = "Agreement with people"
        score = "Rank correlation of the relevance with human grades of the positions"
    yield ScoreChart(
        key="scores",
        title=title,
        caption=f"{score}, with 95 % intervals; hollow dots are not significantly above chance. Relevance is the {sign} "
        "part of the map.",
        scores=ranking.assign(chance=0.0),
        limits=(-1.0, 1.0) if is_graded else (0.0, 1.0),
        paper="localisation, with chance",
    )
    caption = "Means with 95 % intervals beside what chance scores: the share of the area, and ½ for the AUC."
    if margin := result.settings.get("margin"):
        caption += f" In the pointing game a peak within {margin} pixels of the region is a hit."
    yield Matrix(
        key="measures",
        title="All measures",
        caption=caption,
        scores=_measures_and_chance(result),
        shaded=False,
    )


def _measures_and_chance(result: AxisResult) -> pd.DataFrame:
    """Return a table with a row per explainer, measure, and kind of number: the mean score, or the mean chance level."""
    summary = result.summary
    columns = []
    for measure in result.axis.measures:
        rows = summary[(summary["measure"] == measure.name) & summary["mean"].notna()]
        if rows.empty:
            continue
        head = rows.assign(row=rows["explainer"], column_group=measure.title)
        columns.append(head.assign(column="mean", score=rows["mean"]))
        columns.append(head.assign(column="chance", score=rows["chance"], low=np.nan, high=np.nan))
    return pd.concat(columns, ignore_index=True) if columns else summary.iloc[:0]
