"""The numbers of the FASS paper's tables: raw scores of maps that are not moved, kinds of perturbation, retention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from heatproof.axes.stability.evaluation import FASS, SIMILARITIES, unaligned
from heatproof.axes.stability.perturbations import known
from heatproof.evaluation import Condition
from heatproof.results.arrays import ScoreArrays
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import TEST_COLUMNS, paired_tests
from heatproof.results.ranking import ranking
from heatproof.results.verdict import best_methods
from heatproof.statistics.intervals import rate_interval

CALIBRATED = "Calibrated"
COLUMNS = {"ssim": "SSIM", "spearman": "Spn.", "jaccard": "Jac.", FASS: "FASS"}
"""The measures of the paper's Tables 4 and 5, and their headings there."""


def retention(result: AxisResult) -> pd.DataFrame:
    """Return the retention: the share of predictions that stay under each perturbation, with exact 95 % intervals.

    Columns: condition, level, condition_title, attempted, unchanged, score, low, high, note. The share depends on the
    model alone. Explainers may have been run on different numbers of samples; it is read from the one with most.
    """
    cells = result.cells(FASS).sort_values("attempted", ascending=False, kind="stable")
    cells = cells.drop_duplicates(["condition", "level"])
    unchanged = cells["attempted"] - cells["flipped"]
    intervals, notes = [], []
    for k, n in zip(unchanged, cells["attempted"], strict=True):
        intervals.append(rate_interval(int(k), int(n)))
        notes.append(f"{k} of {n}")
    shares = pd.DataFrame(
        {
            "condition": cells["condition"],
            "level": cells["level"],
            "condition_title": cells["condition_title"],
            "attempted": cells["attempted"],
            "unchanged": unchanged,
            "score": unchanged / cells["attempted"],
            "low": [low for low, _ in intervals],
            "high": [high for _, high in intervals],
            "note": notes,
        }
    )
    # In the order of the study.
    position = {condition: i for i, condition in enumerate(result.conditions)}
    positions = [position[key] for key in zip(shares["condition"], shares["level"], strict=True)]
    return shares.iloc[np.argsort(positions, kind="stable")].reset_index(drop=True)


def moving_conditions(result: AxisResult) -> list[Condition]:
    """Return the perturbations that move the input, under which maps were compared aligned and unaligned."""
    if unaligned(FASS) not in result.arrays.values:
        return []
    return result.arrays.for_measure(unaligned(FASS)).conditions


def families(conditions: Iterable[Condition]) -> dict[str, list[Condition]]:
    """Return conditions by the kind of their perturbation: geometric, photometric, compression, noise and so on."""
    by_family: dict[str, list[Condition]] = {}
    for condition in conditions:
        perturbation = known(condition[0])
        family = perturbation.family if perturbation else "other"
        by_family.setdefault(family, []).append(condition)
    return by_family


def paper_scores(
    result: AxisResult, conditions: list[Condition] | None = None, bold: bool = False
) -> pd.DataFrame:
    """Return the components and FASS as the paper computes them, and calibrated FASS: a row per explainer and column.

    Columns: row, explainer, column, score, low, high, is_control, best. Scores are means over the conditions; without
    `conditions`, over all. `best` is decided where cells are to be `bold`, by the paired tests of each column.
    """
    arrays = result.arrays.for_measure(FASS)
    if conditions is not None:
        arrays = arrays.select(conditions=conditions)
    published = as_published(arrays)
    columns = [
        overall_scores(published, measure, heading, bold)
        for measure, heading in COLUMNS.items()
        if measure in published.values
    ]
    if arrays.is_calibrated(FASS):
        columns.append(overall_scores(arrays, FASS, CALIBRATED, bold))
    return result.best_first(pd.concat(columns, ignore_index=True))


def as_published(arrays: ScoreArrays) -> ScoreArrays:
    """Return the raw scores as the FASS paper computes them: maps are never moved, and nothing is calibrated."""
    values = dict(arrays.values)
    for measure in SIMILARITIES:
        if measure in values and unaligned(measure) in values:
            # Conditions that move the input have an unaligned score, which takes the place of the aligned one.
            is_moving = np.asarray(arrays.has_rows[unaligned(measure)].any(0))
            values[measure] = np.where(
                is_moving[:, None], values[unaligned(measure)], values[measure]
            )
    return replace(arrays, values=values, chance={}, by_reference={})


def overall_scores(arrays: ScoreArrays, measure: str, column: str, bold: bool) -> pd.DataFrame:
    """Return the overall scores of one measure as a column of a matrix."""
    no_tests = pd.DataFrame(columns=TEST_COLUMNS)
    tests = paired_tests(arrays, measure) if bold else no_tests
    scores = ranking(arrays, measure, better="neither", tests=tests)
    best = best_methods(scores, tests) if bold else set()
    return pd.DataFrame(
        {
            "row": scores["explainer"],
            "explainer": scores["explainer"],
            "column": column,
            "score": scores["score"],
            "low": scores["low"],
            "high": scores["high"],
            "is_control": scores["control"],
            "best": scores["explainer"].isin(best),
        }
    )
