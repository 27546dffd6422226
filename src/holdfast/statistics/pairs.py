"""Explainers two at a time: paired tests with Holm's correction, and where the components disagree."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from holdfast.statistics.bootstrap import interval, mean_of_finite
from holdfast.statistics.cubes import Array, Cube, arrange
from holdfast.statistics.forms import Form, sample_scores


def paired_tests(
    table: pd.DataFrame | Sequence[Cube],
    measure: str,
    form: Form = "best",
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Every pair of explainers compared on the samples and conditions that both retain.

    A sample's score under a condition is (value − c) / (1 − c) with c the mean chance of that explainer there (raw
    values with `form="raw"`), aligned where that exists; its difference is averaged over the conditions both
    explainers retain. `difference` is the mean over samples with a bootstrap interval, `p` Wilcoxon's signed-rank
    test (two-sided), `p_holm` Holm's correction within the dataset, model and evaluation, `significant` p_holm < 1 −
    level. The difference is a − b in the measure's own unit; whether more is better is not its business.

    >>> paired_tests([], "depth").empty
    True
    """
    blocks = []
    for cube in (whole.counted() for whole in arrange(table)):
        if measure not in cube.values:
            continue
        scores = sample_scores(cube, measure, form)
        names, differences = [], []
        judged = np.flatnonzero(cube.asked[measure].any(1)).tolist()
        for a, b in itertools.combinations(judged, 2):
            names.append((*cube.key.values(), measure, cube.explainers[a], cube.explainers[b]))
            differences.append(mean_of_finite((scores[a] - scores[b]).T))
        stacked = np.array(differences).reshape(len(names), len(cube.samples))
        frame = pd.DataFrame.from_records(names, columns=_TEST_COLUMNS[:6])
        frame["n"] = np.isfinite(stacked).sum(-1)
        frame["difference"] = mean_of_finite(stacked)
        frame["low"], frame["high"] = interval(stacked, level, resamples, seed)
        frame["p"] = [signed_rank(row[np.isfinite(row)]) for row in stacked]
        frame["p_holm"] = holm(frame["p"].to_numpy(dtype=np.float64))
        frame["significant"] = frame["p_holm"] < 1 - level
        blocks.append(frame)
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=_TEST_COLUMNS)


FEW = 13
"""Up to so many differences SciPy enumerates all signs where some are equal in size."""
_TEST_COLUMNS = ["dataset", "model", "evaluation", "measure", "a", "b", "n", "difference", "low", "high"]
_TEST_COLUMNS += ["p", "p_holm", "significant"]


def holm(p: Array) -> Array:
    """Holm's step-down correction: the i-th smallest of m values becomes max over j ≤ i of min(1, (m − j + 1) p₍ⱼ₎).

    NaN values are no tests and stay NaN.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    corrected = np.full(len(p), np.nan)
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return corrected


def disagreement(table: pd.DataFrame | Sequence[Cube], components: Sequence[str], form: Form = "best") -> pd.DataFrame:
    """How often the components of a score do not order two explainers the same way.

    One row per dataset, model and evaluation: over every condition and pair of explainers with a mean in all of the
    components, `count` of `compared` comparisons have differing signs, `share` = count / compared, and `a_b` is the
    share for the components a and b alone.

    >>> disagreement([], ["depth", "width"]).empty
    True
    """
    pairs = list(itertools.combinations(components, 2))
    names = ["dataset", "model", "evaluation", "compared", "count", "share", *(f"{a}_{b}" for a, b in pairs)]
    records = []
    for cube in (whole.counted() for whole in arrange(table)):
        if not set(components) <= set(cube.values):
            continue
        means = {name: mean_of_finite(sample_scores(cube, name, form)) for name in components}
        first, second = np.triu_indices(len(cube.explainers), 1)
        signs = np.stack([np.sign(means[name][first] - means[name][second]).ravel() for name in components])
        signs = signs[:, np.isfinite(signs).all(0)]
        n = signs.shape[1]
        row: dict[str, Any] = {**cube.key, "compared": n, "count": int((signs != signs[0]).any(0).sum())}
        row["share"] = row["count"] / n if n else math.nan
        for (i, a), (j, b) in itertools.combinations(enumerate(components), 2):
            row[f"{a}_{b}"] = float((signs[i] != signs[j]).mean()) if n else math.nan
        records.append(row)
    return pd.DataFrame.from_records(records, columns=names)


def _signed_ranks_of_few(moved: Array) -> float:
    """Wilcoxon's exact p with ties: the rank sum among all 2ⁿ signs. SciPy takes a second for each such test."""
    ranks = stats.rankdata(np.abs(moved))
    null = ((np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1) @ ranks
    seen = ranks[moved > 0].sum()
    return float(min(1.0, 2 * min((null >= seen - 1e-9).mean(), (null <= seen + 1e-9).mean())))


def signed_rank(differences: Array) -> float:
    """The p-value of Wilcoxon's signed-rank test (two-sided); 1 where nothing differs, NaN without a pair.

    >>> round(signed_rank(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])), 5), signed_rank(np.zeros(3))
    (0.03125, 1.0)
    """
    if len(differences) < 1:
        return math.nan
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0
    if len(moved) <= FEW and len(np.unique(np.abs(moved))) < len(moved):
        return _signed_ranks_of_few(moved)
    with warnings.catch_warnings():  # older SciPy warns about small samples; n is reported beside p
        warnings.simplefilter("ignore", UserWarning)
        return float(stats.wilcoxon(moved).pvalue)
