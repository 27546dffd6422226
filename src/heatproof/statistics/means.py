"""Retention with Clopper and Pearson's interval, and mean scores with theirs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heatproof.evaluation import STATUS
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array, Cube, arrange
from heatproof.statistics.estimates import (
    Estimate,
    calibrated,
    chance_column,
    column,
    of_means,
    stacked,
)
from heatproof.statistics.intervals import FEWEST

FEWEST_PAIRS, LOWEST_RETENTION = 30, 0.5
"""Pairs from which on a mean is worth much, and the retention that is low where its whole interval is below."""
ONE_NETWORK = "a single random network says nothing of how much networks differ"
FEW_SAMPLES = 30
"""Intervals from fewer samples are rough."""


def exact_share(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval for a proportion, which never misses more often than it says; NaN without trials.

    >>> [round(end, 3) for end in exact_share(8, 10)]
    [0.444, 0.975]
    """
    if n < 1:
        return math.nan, math.nan
    miss = (1 - level) / 2
    low = float(stats.beta.ppf(miss, successes, n - successes + 1)) if successes else 0.0
    return low, float(
        stats.beta.ppf(1 - miss, successes + 1, n - successes)
    ) if successes < n else 1.0


def retention(table: pd.DataFrame | Sequence[Cube], level: float = 0.95) -> pd.DataFrame:
    """How many attempted pairs were scored: retention = retained / attempted, with an exact interval.

    One row per dataset, model, evaluation, explainer, condition and level, with attempted = retained + flipped +
    undefined + open. `flag` says in words where fewer than 30 pairs are left, and where surely less than half of them are,
    which are two things; it is empty elsewhere.

    >>> retention([])["retention"].tolist()
    []
    """
    columns = [
        "dataset",
        "model",
        "evaluation",
        "explainer",
        "condition",
        "level",
        "attempted",
        "retained",
        "flipped",
    ]
    columns += ["undefined", "open", "retention", "retention_low", "retention_high", "flag"]
    records = []
    for cube in arrange(table):
        counts = np.stack([(cube.status == code).sum(-1) for code in range(len(STATUS))], -1)
        for (e, explainer), (c, condition) in itertools.product(
            enumerate(cube.explainers), enumerate(cube.conditions)
        ):
            ok, flipped, undefined, still_open = counts[e, c].tolist()
            attempted = ok + flipped + undefined + still_open
            if attempted:
                share = ok / attempted
                head = (*cube.key.values(), explainer, *condition)
                interval = exact_share(ok, attempted, level)
                few = [f"few pairs: {ok}"] if ok < FEWEST_PAIRS else []
                low = (
                    [f"low retention: {100 * share:.2g} %"]
                    if interval[1] < LOWEST_RETENTION
                    else []
                )
                records.append(
                    (
                        *head,
                        attempted,
                        ok,
                        flipped,
                        undefined,
                        still_open,
                        share,
                        *interval,
                        "; ".join(few + low),
                    )
                )
    # A frame without rows has no types of its own, and `summary` merges by the level.
    return pd.DataFrame.from_records(records, columns=columns).astype({"level": np.float64})


def summary(table: pd.DataFrame | Sequence[Cube], level: float = 0.95) -> pd.DataFrame:
    """Mean scores with their intervals, beside chance, noise floor and retention.

    One row per dataset, model, evaluation, explainer, condition, level and measure. `calibrated` is
    (mean − chance) / (1 − chance) of the means over the retained samples, for measures that are calibrated. Each has
    its interval, `_low` and `_high`, which includes the choice of the references that chance comes from (see
    `estimates`); `by_references` is their share of the variance of the calibrated score. What a measure does not have
    is NaN, and so is an interval from too few samples, for which `no_interval` gives the reason.

    >>> summary([]).shape[0]
    0
    """
    kept = retention(table, level)
    blocks = []
    for cube in arrange(table):
        for e, explainer in enumerate(cube.explainers):  # one explainer at a time bounds the memory
            figures = _figures(cube, e, level)
            for measure in cube.measures:
                block = _measure_block(
                    cube, {form: figures.get((measure, form)) for form in _FORMS}
                )
                block.update(
                    cube.key,
                    explainer=explainer,
                    control=explainer in cube.controls,
                    measure=measure,
                )
                blocks.append(pd.DataFrame(block)[cube.asked[measure][e]])
    order = [
        "dataset",
        "model",
        "evaluation",
        "explainer",
        "condition",
        "level",
        "measure",
        *_MEANS,
    ]
    order += ["by_references", "no_interval", "control"]
    if not blocks:
        return pd.DataFrame(columns=order + list(kept.columns[6:]))
    means = pd.concat(blocks, ignore_index=True)[order]
    merged: pd.DataFrame = means.merge(kept, on=order[:6], how="left", validate="many_to_one")
    counts = ["attempted", "retained", "flipped", "undefined", "open"]
    merged[counts] = merged[counts].fillna(0).astype(np.int64)  # a diagnostic belongs to no pair
    return merged.assign(flag=merged["flag"].fillna(""))


_FORMS = ("mean", "chance", "calibrated", "noise_floor")
_MEANS = [name + edge for name in _FORMS for edge in ("", "_low", "_high")]
_MEANS[1:3] = ["low", "high"]


def _figures(
    cube: Cube, e: int, level: float
) -> dict[tuple[str, str], tuple[Estimate, Array, Array]]:
    """(measure, form) -> the scores (C,) of an explainer with their intervals."""
    found: dict[tuple[str, str], Estimate] = {}
    every_condition = np.zeros(len(cube.conditions), dtype=np.int64)
    for measure in cube.measures:
        found[measure, "mean"] = column(cube, measure, e=e)
        if measure in cube.chance:
            found[measure, "chance"] = chance_column(cube, measure, e=e)
        if cube.is_calibrated(measure):
            score, chance = found[measure, "mean"], found[measure, "chance"]
            found[measure, "calibrated"] = calibrated(score, chance)
        floor = cube.noise_floor(measure)
        if floor is not None:
            estimate = of_means(floor[e], cube.span(measure), cube.groups)
            found[measure, "noise_floor"] = estimate[None][every_condition]
    ends = stacked(list(found.values())).interval(level) if found else ()
    return {
        key: (scores, *edges) for (key, scores), *edges in zip(found.items(), *ends, strict=True)
    }


def _measure_block(
    cube: Cube, forms: dict[str, tuple[Estimate, Array, Array] | None]
) -> dict[str, Any]:
    """The columns of the summary of one measure, with a row for every condition of the cube."""
    conditions = len(cube.conditions)
    columns: dict[str, Any] = {
        "condition": [name for name, _ in cube.conditions],
        "level": [level for _, level in cube.conditions],
        "by_references": np.zeros(conditions),
        "no_interval": np.full(conditions, "", dtype=object),
    }
    figures = []
    for form, found in forms.items():
        if found is None:
            figures += [np.full(conditions, np.nan)] * 3
            continue
        scores, low, high = found
        figures += [scores.value, low, high]
        if form in ("mean", "calibrated"):  # the last of them is the best
            is_scored = np.isfinite(scores.value)
            reasons = _reasons_for_no_interval(scores, low)
            columns["no_interval"] = np.where(is_scored, reasons, columns["no_interval"])
            shares = scores.share_of_references
            columns["by_references"] = np.where(is_scored, shares, columns["by_references"])
    return columns | dict(zip(_MEANS, figures, strict=True))


def _reasons_for_no_interval(scores: Estimate, low: Array) -> list[str]:
    """Why each score (C,) has no interval; empty where it has one."""
    reasons = []
    for n, bound, networks in zip(scores.n, low, scores.networks, strict=True):
        if not np.isnan(bound):
            reasons.append("")
        elif np.isnan(networks).any() and n >= FEWEST:
            reasons.append(ONE_NETWORK)
        else:
            reasons.append(no_interval(int(n)))
    return reasons


def mean_chance(cube: Cube, measure: str) -> float:
    """Return the mean chance level over conditions of the mean over a condition's levels; NaN where there is none.

    Chance may be stored beside every explainer; a sample counts once.
    """
    if measure not in cube.chance:
        return math.nan
    copies = np.moveaxis(cube.chance[measure], 0, -1)
    by_sample = mean_of_finite(copies)  # (conditions, samples)
    names = [name for name, _ in cube.conditions]
    by_condition = pd.Series(mean_of_finite(by_sample), index=names)
    return float(by_condition.groupby(level=0).mean().mean())


def no_interval(n: int) -> str:
    """Why a score from n samples has no interval.

    >>> no_interval(3)
    '3 samples are too few for an interval; 8 are needed'
    """
    samples = "1 sample is" if n == 1 else f"{n} samples are"
    return f"{samples} too few for an interval; {FEWEST} are needed"
