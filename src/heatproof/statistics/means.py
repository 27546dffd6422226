"""Retention with Clopper and Pearson's interval, and mean scores with theirs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heatproof.statistics.cubes import Array, Cube, arrange
from heatproof.statistics.estimates import Estimate, calibrated, column, of_means, stacked
from heatproof.statistics.intervals import FEWEST

FEWEST_PAIRS, LOWEST_RETENTION = 30, 0.5
"""Pairs from which on a mean is worth much, and the retention that is low where its whole interval is below."""
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
    undefined. `flag` says in words where fewer than 30 pairs are left, and where surely less than half of them are,
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
    columns += ["undefined", "retention", "retention_low", "retention_high", "flag"]
    records = []
    for cube in arrange(table):
        counts = np.stack([(cube.status == code).sum(-1) for code in range(3)], -1)
        for (e, explainer), (c, condition) in itertools.product(
            enumerate(cube.explainers), enumerate(cube.conditions)
        ):
            ok, flipped, undefined = counts[e, c].tolist()
            attempted = ok + flipped + undefined
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
                        share,
                        *interval,
                        "; ".join(few + low),
                    )
                )
    return pd.DataFrame.from_records(records, columns=columns)


def summary(table: pd.DataFrame | Sequence[Cube], level: float = 0.95) -> pd.DataFrame:
    """Mean scores with their intervals, beside chance, alignment, noise floor and retention.

    One row per dataset, model, evaluation, explainer, condition, level and base measure. `calibrated` is
    (mean − chance) / (1 − chance) of the means over the retained samples. `aligned` and `aligned_calibrated` are the
    same for maps compared after moving them with the image. Each has its interval, `_low` and `_high`, which includes
    the choice of the references that chance comes from (see `estimates`); `by_references` is their share of the
    variance of the best form. What a measure does not have is NaN, and so is an interval from too few samples, for
    which `no_interval` gives the reason.

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
                attempted = (cube.status[e] >= 0).any(-1) & cube.asked[measure][e]
                blocks.append(pd.DataFrame(block)[attempted])
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
    return merged


_FORMS = (
    "mean",
    "chance",
    "calibrated",
    "aligned",
    "aligned_chance",
    "aligned_calibrated",
    "noise_floor",
)
_MEANS = [name + edge for name in _FORMS for edge in ("", "_low", "_high")]
_MEANS[1:3] = ["low", "high"]


def _figures(
    cube: Cube, e: int, level: float
) -> dict[tuple[str, str], tuple[Estimate, Array, Array]]:
    """(measure, form) -> the scores (C,) of an explainer with their intervals."""
    found: dict[tuple[str, str], Estimate] = {}
    for measure in cube.measures:
        for form, suffix in zip(
            _FORMS[:2] + _FORMS[3:5], ("", "_chance", "_aligned", "_aligned_chance"), strict=True
        ):
            if measure + suffix in cube.values:
                found[measure, form] = column(cube, measure + suffix, e=e)
        for form, score, chance in (
            ("calibrated", "mean", "chance"),
            ("aligned_calibrated", "aligned", "aligned_chance"),
        ):
            if (measure, score) in found and (measure, chance) in found:
                found[measure, form] = calibrated(found[measure, score], found[measure, chance])
        if measure in cube.floor:
            floor = of_means(cube.floor[measure][e], cube.span(measure), cube.groups)
            found[measure, "noise_floor"] = floor[None][
                np.zeros(len(cube.conditions), dtype=np.int64)
            ]
    ends = stacked(list(found.values())).interval(level) if found else ()
    return {
        key: (scores, *edges) for (key, scores), *edges in zip(found.items(), *ends, strict=True)
    }


def _measure_block(
    cube: Cube, forms: dict[str, tuple[Estimate, Array, Array] | None]
) -> dict[str, Any]:
    c = len(cube.conditions)
    figures, why, theirs = [], np.full(c, "", dtype=object), np.zeros(c)
    for form, found in forms.items():
        if found is None:
            figures += [np.full(c, np.nan)] * 3
            continue
        scores, low, high = found
        figures += [scores.value, low, high]
        if form in ("mean", "calibrated", "aligned_calibrated"):  # the last of them is the best
            scored = np.isfinite(scores.value)
            why = np.where(
                scored, np.where(np.isnan(low), [no_interval(int(n)) for n in scores.n], ""), why
            )
            theirs = np.where(scored, scores.share_of_references, theirs)
    keys = {"condition": [c for c, _ in cube.conditions], "level": [x for _, x in cube.conditions]}
    return {
        **keys,
        **dict(zip(_MEANS, figures, strict=True)),
        "by_references": theirs,
        "no_interval": why,
    }


def no_interval(n: int) -> str:
    """Why a score from n samples has no interval.

    >>> no_interval(3)
    '3 samples are too few for an interval; 8 are needed'
    """
    samples = "1 sample is" if n == 1 else f"{n} samples are"
    return f"{samples} too few for an interval; {FEWEST} are needed"
