"""Retention with Wilson's interval, and mean scores with those of the bootstrap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from holdfast.statistics.bootstrap import bootstrap_counts, calibrate, mean_of_finite, percentiles, resampled_means
from holdfast.statistics.cubes import Array, Cube, arrange

FEWEST_PAIRS, LOWEST_RETENTION = 30, 0.01
FEW_SAMPLES = 30
"""Intervals from fewer samples are rough."""


def wilson(successes: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion; (nan, nan) without trials.

    With p = successes/n and z the normal quantile: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n).

    >>> low, high = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if n < 1:
        return math.nan, math.nan
    z = float(stats.norm.ppf(0.5 + level / 2))
    p = successes / n
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)
    return 0.0 if successes == 0 else low, 1.0 if successes == n else high


def retention(table: pd.DataFrame | Sequence[Cube], level: float = 0.95) -> pd.DataFrame:
    """How many attempted pairs were scored: retention = retained / attempted, with Wilson's interval.

    One row per dataset, model, evaluation, explainer, condition and level, with attempted = retained + flipped +
    undefined. `flag` says in words where fewer than 30 pairs or less than 1 % remain, and is empty elsewhere.

    >>> retention([])["retention"].tolist()
    []
    """
    columns = ["dataset", "model", "evaluation", "explainer", "condition", "level", "attempted", "retained", "flipped"]
    columns += ["undefined", "retention", "retention_low", "retention_high", "flag"]
    records = []
    for cube in arrange(table):
        counts = np.stack([(cube.status == code).sum(-1) for code in range(3)], -1)
        for (e, explainer), (c, condition) in itertools.product(enumerate(cube.explainers), enumerate(cube.conditions)):
            ok, flipped, undefined = counts[e, c].tolist()
            attempted = ok + flipped + undefined
            if attempted:
                share = ok / attempted
                head = (*cube.key.values(), explainer, *condition)
                interval = wilson(ok, attempted, level)
                records.append((*head, attempted, ok, flipped, undefined, share, *interval, _flag(ok, share)))
    return pd.DataFrame.from_records(records, columns=columns)


def _flag(retained: int, share: float) -> str:
    few = f"only {retained} pair{'' if retained == 1 else 's'} retained" if retained < FEWEST_PAIRS else ""
    rare = f"only {100 * share:.2g} % retained" if share < LOWEST_RETENTION else ""
    return "; ".join(filter(None, (few, rare)))


def summary(
    table: pd.DataFrame | Sequence[Cube], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Mean scores with percentile bootstrap intervals, beside chance, alignment, noise floor and retention.

    One row per dataset, model, evaluation, explainer, condition, level and base measure. `calibrated` is
    (mean − chance) / (1 − chance) of the means over the retained samples; its interval resamples score and chance
    together. `aligned` and `aligned_calibrated` are the same for maps compared after moving them with the image.
    What a measure does not have is NaN, and so is an interval from fewer than two samples.

    >>> summary([]).shape[0]
    0
    """
    kept = retention(table, level)
    blocks = []
    for cube in arrange(table):
        counts = bootstrap_counts(len(cube.samples), resamples, seed)
        for e, explainer in enumerate(cube.explainers):  # one explainer at a time bounds the memory
            stacked = resampled_means(np.concatenate([v[e] for v in cube.values.values()]), counts)
            draws = dict(zip(cube.values, np.split(stacked, len(cube.values), axis=1), strict=True))
            for measure in cube.measures:
                block = _measure_block(cube, e, measure, draws, level)
                block.update(cube.key, explainer=explainer, control=explainer in cube.controls, measure=measure)
                block["noise_floor"] = mean_of_finite(cube.floor[measure][e]) if measure in cube.floor else math.nan
                attempted = (cube.status[e] >= 0).any(-1) & cube.asked[measure][e]
                blocks.append(pd.DataFrame(block)[attempted])
    order = ["dataset", "model", "evaluation", "explainer", "condition", "level", "measure", *_MEANS, "noise_floor"]
    order += ["control"]
    if not blocks:
        return pd.DataFrame(columns=order + list(kept.columns[6:]))
    means = pd.concat(blocks, ignore_index=True)[order]
    merged: pd.DataFrame = means.merge(kept, on=order[:6], how="left", validate="many_to_one")
    return merged


_MEANS = ["mean", "low", "high", "chance", "calibrated", "calibrated_low", "calibrated_high", "aligned"]
_MEANS += ["aligned_chance", "aligned_calibrated", "aligned_calibrated_low", "aligned_calibrated_high"]


def _measure_block(cube: Cube, e: int, measure: str, draws: dict[str, Array], level: float) -> dict[str, Any]:
    names = [measure + suffix for suffix in ("", "_chance", "_aligned", "_aligned_chance")]
    nothing = np.full(len(cube.conditions), np.nan)
    mean, chance, aligned, aligned_chance = (
        mean_of_finite(cube.values[n][e]) if n in cube.values else nothing for n in names
    )
    drawn, chance_drawn, aligned_drawn, aligned_chance_drawn = (draws.get(name) for name in names)
    few = np.isfinite(cube.values[measure][e]).sum(-1) < 2

    def interval(sampled: Array | None) -> tuple[Array, Array]:
        low, high = percentiles(sampled, level) if sampled is not None else (nothing, nothing)
        return np.where(few, np.nan, low), np.where(few, np.nan, high)

    def calibrated(score: Array | None, by: Array | None) -> Array | None:
        return None if score is None or by is None else calibrate(score, by)

    low, high = interval(drawn)
    calibrated_low, calibrated_high = interval(calibrated(drawn, chance_drawn))
    moved_low, moved_high = interval(calibrated(aligned_drawn, aligned_chance_drawn))
    figures = [mean, low, high, chance, calibrate(mean, chance), calibrated_low, calibrated_high]
    figures += [aligned, aligned_chance, calibrate(aligned, aligned_chance), moved_low, moved_high]
    keys = {"condition": [c for c, _ in cube.conditions], "level": [x for _, x in cube.conditions]}
    return {**keys, **dict(zip(_MEANS, figures, strict=True))}
