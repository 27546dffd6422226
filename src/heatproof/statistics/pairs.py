"""Explainers two at a time: paired tests with Holm's correction, and where the components disagree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array, Cube, arrange
from heatproof.statistics.estimates import estimates
from heatproof.statistics.forms import Form, best_columns, sample_scores

PAIRS_AT_ONCE = 2**23
"""How many differences of samples are held at once."""


def paired_tests(
    table: pd.DataFrame | Sequence[Cube], measure: str, form: Form = "best", level: float = 0.95
) -> pd.DataFrame:
    """Every pair of explainers compared on the samples that both retain under each condition.

    Overall scores are those of `ranking`, but of these samples only: `difference` is a − b with its interval, and `p`
    the two-sided test that it is 0, which is the interval turned round (see `intervals`): a test of means, with the
    choice of the references in it. `score_a` and `score_b` are the scores on the common samples, `n` their number,
    `p_holm` is Holm's correction within the dataset, model and evaluation, `significant` p_holm < 1 − level. The
    difference is in the measure's own unit; whether more is better is not its business.

    >>> paired_tests([], "depth").empty
    True
    """
    blocks = []
    for cube in (whole.counted() for whole in arrange(table)):
        if measure not in cube.values:
            continue
        judged = np.flatnonzero(cube.asked[measure].any(1)).tolist()
        pairs = list(itertools.combinations(judged, 2))
        names = [
            (*cube.key.values(), measure, cube.explainers[a], cube.explainers[b]) for a, b in pairs
        ]
        frame = pd.DataFrame.from_records(names, columns=_TEST_COLUMNS[:6])
        frame[_TEST_COLUMNS[6:13]] = _differences(cube, measure, form, pairs, level)
        frame["p_holm"] = holm(frame["p"].to_numpy(dtype=np.float64))
        frame["significant"] = frame["p_holm"] < 1 - level
        blocks.append(frame)
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=_TEST_COLUMNS)


def _differences(
    cube: Cube, measure: str, form: Form, pairs: list[tuple[int, int]], level: float
) -> Array:
    """n, score_a, score_b, difference, low, high and p of pairs of explainers, (P, 7)."""
    names = [name for name, _ in cube.conditions]
    used = [score for here, score, _ in best_columns(cube, measure, form) if here.any()] or [
        measure
    ]
    scored = np.asarray(np.isfinite(np.stack([cube.values[name] for name in used])).any(0))
    kinds: dict[bytes, int] = {}
    kind = [kinds.setdefault(np.packbits(mask).tobytes(), len(kinds)) for mask in scored]
    together: dict[tuple[int, int], list[int]] = {}
    for i, (a, b) in enumerate(pairs):
        together.setdefault((min(kind[a], kind[b]), max(kind[a], kind[b])), []).append(i)
    rows = np.full((len(pairs), 7), np.nan)
    step = max(1, PAIRS_AT_ONCE // max(len(cube.samples), 1))
    for group in (
        together.values()
    ):  # explainers with the same samples are estimated once for all their pairs
        members = sorted({e for i in group for e in pairs[i]})
        keep = scored[pairs[group[0]][0]] & scored[pairs[group[0]][1]]
        scores = estimates(cube, measure, form, keep, members).nested(names)
        place = {e: i for i, e in enumerate(members)}
        for start in range(0, len(group), step):
            some = group[start : start + step]
            first, second = (scores[[place[pairs[i][side]] for i in some]] for side in (0, 1))
            apart = first.minus(second)
            low, high = apart.interval(level, np.inf)
            rows[some] = np.stack(
                [apart.n, first.value, second.value, apart.value, low, high, apart.p()], 1
            )
    return rows


_TEST_COLUMNS = ["dataset", "model", "evaluation", "measure", "a", "b", "n", "score_a", "score_b"]
_TEST_COLUMNS += ["difference", "low", "high", "p", "p_holm", "significant"]


def holm(p: Array) -> Array:
    """Holm's step-down correction: the i-th smallest of m values becomes max over j ≤ i of min(1, (m − j + 1) p₍ⱼ₎).

    NaN values are no tests and stay NaN.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    corrected = np.full(len(p), np.nan)
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    corrected[order] = np.minimum(
        1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    )
    return corrected


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
    for cube in (whole.counted() for whole in arrange(table)):
        if not set(components) <= set(cube.values):
            continue
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
