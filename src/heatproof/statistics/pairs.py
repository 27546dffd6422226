"""Explainers two at a time: paired tests of all pairs, and where the components of a score disagree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.calibration import Form, sample_scores
from heatproof.statistics.cubes import Array, Cube, arrange
from heatproof.statistics.estimates import Estimate, estimates, sample_totals
from heatproof.statistics.sign_flips import simultaneous_tests

SCORES_AT_ONCE = 2**22
"""How many scores of pairs are held at once."""


def paired_tests(
    table: pd.DataFrame | Sequence[Cube], measure: str, form: Form = "best", level: float = 0.95
) -> pd.DataFrame:
    """Every pair of methods, and every method with every control, on the samples that both retain.

    The tests are sign flips of the samples, corrected for all pairs of the dataset, model and evaluation at once (see
    `sign_flips`). Overall scores are those of `ranking`, but of the common samples only: `score_a` and `score_b`, with
    `n` their number. `difference` is a − b, `low` and `high` its simultaneous interval, and `p` the corrected p-value.
    `significant` says that p ≤ 1 − level and n is at least `FEWEST`; then, and only then, the interval excludes 0. The
    difference is in the measure's own unit; whether more is better is not its business.

    >>> paired_tests([], "depth").empty
    True
    """
    blocks = []
    for whole in arrange(table):
        if measure not in whole.values:
            continue
        cube = whole.conditions_of(measure)
        pairs = tested_pairs(cube, measure)
        names = [
            (*cube.key.values(), measure, cube.explainers[a], cube.explainers[b]) for a, b in pairs
        ]
        frame = pd.DataFrame.from_records(names, columns=_TEST_COLUMNS[:6])
        frame[_TEST_COLUMNS[6:]] = _tests_of_pairs(cube, measure, form, pairs, level)
        frame["n"] = frame["n"].astype(np.int64)
        frame["significant"] = frame["significant"].astype(bool)
        blocks.append(frame)
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=_TEST_COLUMNS)


_TEST_COLUMNS = ["dataset", "model", "evaluation", "measure", "a", "b", "n", "score_a", "score_b"]
_TEST_COLUMNS += ["difference", "low", "high", "p", "significant"]


def tested_pairs(cube: Cube, measure: str) -> list[tuple[int, int]]:
    """Pairs of explainers that have the measure, but for those of two controls, which nobody asks about."""
    scored = np.flatnonzero(cube.asked[measure].any(1)).tolist()
    controls = {i for i in scored if cube.explainers[i] in cube.controls}
    return [
        (a, b)
        for a, b in itertools.combinations(scored, 2)
        if not (a in controls and b in controls)
    ]


def _tests_of_pairs(
    cube: Cube, measure: str, form: Form, pairs: list[tuple[int, int]], level: float
) -> Array:
    """n, score_a, score_b, difference, low, high, p and significance of pairs of explainers, (P, 8)."""
    names = [name for name, _ in cube.conditions]
    rows = np.full((len(pairs), 8), np.nan)
    rows[:, 0] = rows[:, 7] = 0
    all_totals, all_shares = [], []
    for start in range(0, len(pairs), step := _pairs_at_once(cube)):
        some = pairs[start : start + step]
        first, second = _scores_on_common_samples(cube, measure, form, some)
        totals, shares = sample_totals(first.minus(second), names)
        end = start + len(some)
        rows[start:end, 0] = (shares > 0).sum(1)
        rows[start:end, 1] = first.nested(names).value
        rows[start:end, 2] = second.nested(names).value
        all_totals.append(totals)
        all_shares.append(shares)
    compared = np.flatnonzero(rows[:, 0] > 0)
    if len(compared):
        rows[:, 3] = rows[:, 1] - rows[:, 2]
        totals = np.concatenate(all_totals)[compared]
        shares = np.concatenate(all_shares)[compared]
        tests = simultaneous_tests(totals, shares, level)
        rows[compared, 4:7] = np.stack([tests.low, tests.high, tests.p], 1)
        rows[compared, 7] = tests.significant
    return rows


def _pairs_at_once(cube: Cube) -> int:
    scores_of_a_pair = max(len(cube.samples) * len(cube.conditions), 1)
    return max(1, SCORES_AT_ONCE // scores_of_a_pair)


def _scores_on_common_samples(
    cube: Cube, measure: str, form: Form, pairs: list[tuple[int, int]]
) -> tuple[Estimate, Estimate]:
    """The scores (P, C) of both sides of pairs, on the samples that both have under each condition."""
    scored = np.isfinite(cube.values[measure])
    a = np.array([first for first, _ in pairs], dtype=np.int64)
    b = np.array([second for _, second in pairs], dtype=np.int64)
    common = scored[a] & scored[b]
    return estimates(cube, measure, form, common, a), estimates(cube, measure, form, common, b)


def disagreement(
    table: pd.DataFrame | Sequence[Cube], components: Sequence[str], form: Form = "best"
) -> pd.DataFrame:
    """How often the components of a score do not order two explainers the same way.

    One row per dataset, model and evaluation: over every condition and pair of explainers with a mean in all of the
    components, `count` of `compared` comparisons have differing signs, `share` = count / compared, and `a_b` is the
    share for the components a and b alone.

    >>> disagreement([], ["depth", "width"]).empty
    True
    """
    pairs = list(itertools.combinations(components, 2))
    names = [
        "dataset",
        "model",
        "evaluation",
        "compared",
        "count",
        "share",
        *(f"{a}_{b}" for a, b in pairs),
    ]
    records = []
    for whole in arrange(table):
        if not set(components) <= set(whole.values):
            continue
        cube = whole.conditions_of(components[0])
        means = {name: mean_of_finite(sample_scores(cube, name, form)) for name in components}
        first, second = np.triu_indices(len(cube.explainers), 1)
        signs = np.stack(
            [np.sign(means[name][first] - means[name][second]).ravel() for name in components]
        )
        signs = signs[:, np.isfinite(signs).all(0)]
        n = signs.shape[1]
        row: dict[str, Any] = {
            **cube.key,
            "compared": n,
            "count": int((signs != signs[0]).any(0).sum()),
        }
        row["share"] = row["count"] / n if n else math.nan
        for (i, a), (j, b) in itertools.combinations(enumerate(components), 2):
            row[f"{a}_{b}"] = float((signs[i] != signs[j]).mean()) if n else math.nan
        records.append(row)
    return pd.DataFrame.from_records(records, columns=names)
