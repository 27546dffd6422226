"""Retention and mean scores of one test, with their intervals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.evaluation import STATUS
from heatproof.results.arrays import ScoreArrays
from heatproof.results.score_estimates import chance_estimates, raw_estimates
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.estimates import Estimate, calibrated, of_means, stacked
from heatproof.statistics.intervals import FEWEST, rate_interval

FEW_PAIRS = 30
"""A mean over fewer pairs is rough."""
LOW_RETENTION = 0.5
"""Retention is low if its whole interval is below this."""
FEW_SAMPLES = 30
"""Intervals from fewer samples are rough."""
ONE_NETWORK = "a single random network does not show how much networks differ"

KEY = ["dataset", "model", "evaluation", "explainer", "condition", "level"]
COUNTS = ["attempted", "retained", "flipped", "undefined", "open"]
RETENTION_COLUMNS = [*KEY, *COUNTS, "retention", "retention_low", "retention_high", "flag"]
ESTIMATE_COLUMNS = {
    "mean": ["mean", "low", "high"],
    "chance": ["chance", "chance_low", "chance_high"],
    "calibrated": ["calibrated", "calibrated_low", "calibrated_high"],
    "noise_floor": ["noise_floor", "noise_floor_low", "noise_floor_high"],
}
MEAN_COLUMNS = list(itertools.chain.from_iterable(ESTIMATE_COLUMNS.values()))
SUMMARY_COLUMNS = [*KEY, "measure", *MEAN_COLUMNS, "by_references", "no_interval", "control"]
SUMMARY_COLUMNS += RETENTION_COLUMNS[len(KEY) :]


def retention(arrays: ScoreArrays, level: float = 0.95) -> pd.DataFrame:
    """Return the retention of every explainer under every condition: the share of attempted pairs that have a score.

    One row per explainer and condition, with attempted = retained + flipped + undefined + open and Clopper and Pearson's
    interval of the retention. `flag` says in words if fewer than 30 pairs were retained, and if the retention is surely
    below one half.
    """
    rows = []
    for (e, explainer), (c, condition) in itertools.product(
        enumerate(arrays.explainers), enumerate(arrays.conditions)
    ):
        counts = [int((arrays.status[e, c] == code).sum()) for code in range(len(STATUS))]
        attempted = sum(counts)
        if not attempted:
            continue
        retained = counts[0]
        low, high = rate_interval(retained, attempted, level)
        flags = []
        if retained < FEW_PAIRS:
            flags.append(f"few pairs: {retained}")
        if high < LOW_RETENTION:
            flags.append(f"low retention: {100 * retained / attempted:.2g} %")
        rows.append(
            (
                *arrays.key.values(),
                explainer,
                *condition,
                attempted,
                *counts,
                retained / attempted,
                low,
                high,
                "; ".join(flags),
            )
        )
    frame = pd.DataFrame.from_records(rows, columns=RETENTION_COLUMNS)
    return frame.astype({"level": np.float64})  # without rows it would be a column of objects


def summary(arrays: ScoreArrays, level: float = 0.95) -> pd.DataFrame:
    """Return mean scores with their intervals, beside chance, noise floor and retention.

    One row per explainer, condition and measure. `calibrated` is (mean − chance) / (1 − chance) of the means over the
    retained samples, for measures that are calibrated. Each mean has its interval, `_low` and `_high`, which includes
    the choice of the references that chance was computed from; `by_references` is their share of the variance. What a
    measure does not have is NaN. If there is no interval, `no_interval` says why.
    """
    blocks: list[dict[str, Any]] = []
    for e, explainer in enumerate(arrays.explainers):  # one explainer at a time bounds the memory
        estimates = _estimates_of_explainer(arrays, e, level)
        for measure in arrays.measures:
            has_rows = arrays.has_rows[measure][e]
            columns = _columns_of_measure(arrays, measure, estimates)
            columns |= {
                "explainer": np.full(len(has_rows), explainer, dtype=object),
                "control": np.full(len(has_rows), explainer in arrays.controls),
                "measure": np.full(len(has_rows), measure, dtype=object),
            }
            blocks.append({name: column[has_rows] for name, column in columns.items()})
    if not blocks:
        return pd.DataFrame(columns=SUMMARY_COLUMNS)

    # One frame of long columns: a frame for each of the blocks would take ten times as long.
    long_columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    means = pd.DataFrame({**arrays.key, **long_columns})
    pairs = retention(arrays, level)
    merged: pd.DataFrame = means.merge(pairs, on=KEY, how="left", validate="many_to_one")
    merged[COUNTS] = merged[COUNTS].fillna(0).astype(np.int64)  # a diagnostic belongs to no pair
    merged["flag"] = merged["flag"].fillna("")
    return merged.reindex(columns=SUMMARY_COLUMNS)


ScoresWithEnds = tuple[Estimate, Array, Array]
"""Scores (C,) with the lower and upper ends of their intervals."""


def _estimates_of_explainer(
    arrays: ScoreArrays, e: int, level: float
) -> dict[tuple[str, str], ScoresWithEnds]:
    """Return the scores of one explainer by measure and kind: mean, chance, calibrated or noise_floor."""
    estimates: dict[tuple[str, str], Estimate] = {}
    for measure in arrays.measures:
        mean = raw_estimates(arrays, measure, explainers=e)
        estimates[measure, "mean"] = mean
        if measure in arrays.chance:
            chance = chance_estimates(arrays, measure, explainers=e)
            estimates[measure, "chance"] = chance
            if arrays.is_calibrated(measure):
                estimates[measure, "calibrated"] = calibrated(mean, chance)
        noise_floor = arrays.noise_floor(measure)
        if noise_floor is not None:
            floor = of_means(noise_floor[e], arrays.span(measure), arrays.groups)
            same_under_every_condition = np.zeros(len(arrays.conditions), dtype=np.int64)
            estimates[measure, "noise_floor"] = floor[None][same_under_every_condition]
    if not estimates:
        return {}
    low, high = stacked(list(estimates.values())).interval(level)  # all at once is faster
    return {key: (estimate, low[i], high[i]) for i, (key, estimate) in enumerate(estimates.items())}


def _columns_of_measure(
    arrays: ScoreArrays, measure: str, estimates: dict[tuple[str, str], ScoresWithEnds]
) -> dict[str, Any]:
    """Return the columns of the summary of one measure, with an entry for every condition."""
    conditions = len(arrays.conditions)
    columns: dict[str, Any] = {
        "condition": np.array([name for name, _ in arrays.conditions], dtype=object),
        "level": np.array([level for _, level in arrays.conditions], dtype=np.float64),
        "by_references": np.zeros(conditions),
        "no_interval": np.full(conditions, "", dtype=object),
    }
    for kind, names in ESTIMATE_COLUMNS.items():
        if (measure, kind) not in estimates:
            columns |= {name: np.full(conditions, np.nan) for name in names}
            continue
        scores, low, high = estimates[measure, kind]
        columns |= dict(zip(names, (scores.value, low, high), strict=True))
        if kind in ("mean", "calibrated"):  # the calibrated score is what is shown, if there is one
            is_scored = np.isfinite(scores.value)
            reasons = _reasons_for_no_interval(scores, low)
            columns["no_interval"][is_scored] = reasons[is_scored]
            shares = scores.share_of_references
            columns["by_references"] = np.where(is_scored, shares, columns["by_references"])
    return columns


def _reasons_for_no_interval(scores: Estimate, low: Array) -> NDArray[np.object_]:
    """Return why each score (C,) has no interval; empty if it has one."""
    reasons = []
    for n, end, network_parts in zip(scores.n, low, scores.network_parts, strict=True):
        if not np.isnan(end):
            reasons.append("")
        elif np.isnan(network_parts).any() and n >= FEWEST:
            reasons.append(ONE_NETWORK)
        else:
            reasons.append(no_interval(int(n)))
    return np.array(reasons, dtype=object)


def no_interval(n: int) -> str:
    """Return why a score from n samples has no interval.

    >>> no_interval(3)
    '3 samples are too few for an interval; 8 are needed'
    """
    samples = "1 sample is" if n == 1 else f"{n} samples are"
    return f"{samples} too few for an interval; {FEWEST} are needed"


def mean_chance(arrays: ScoreArrays, measure: str) -> float:
    """Return the mean over conditions of the mean chance level over a condition's levels; NaN if there is none.

    Chance may be stored beside every explainer. A sample counts once.
    """
    if measure not in arrays.chance:
        return math.nan
    over_explainers = mean_of_finite(np.moveaxis(arrays.chance[measure], 0, -1))  # (C, N)
    names = [name for name, _ in arrays.conditions]
    by_condition = pd.Series(mean_of_finite(over_explainers), index=names)
    return float(by_condition.groupby(level=0).mean().mean())
