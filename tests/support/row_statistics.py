"""The functions of `heatproof.results` for tests: they take rows, or the arrays of several tests, and join the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from heatproof.results import comparisons
from heatproof.results import ranking as rankings
from heatproof.results import summary as summaries
from heatproof.results.arrays import ScoreArrays, rows_to_arrays

Scores = pd.DataFrame | ScoreArrays | Sequence[ScoreArrays]


def every_arrays(scores: Scores) -> list[ScoreArrays]:
    if isinstance(scores, pd.DataFrame):
        return rows_to_arrays(scores)
    return [scores] if isinstance(scores, ScoreArrays) else list(scores)


def _of_every_test(
    scores: Scores,
    make: Callable[..., pd.DataFrame],
    columns: list[str],
    *args: Any,
    **options: Any,
) -> pd.DataFrame:
    frames = [make(arrays, *args, **options) for arrays in every_arrays(scores)]
    frames = [frame for frame in frames if not frame.empty]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def summary(scores: Scores, **options: Any) -> pd.DataFrame:
    return _of_every_test(scores, summaries.summary, summaries.SUMMARY_COLUMNS, **options)


def retention(scores: Scores, **options: Any) -> pd.DataFrame:
    return _of_every_test(scores, summaries.retention, summaries.RETENTION_COLUMNS, **options)


def ranking(scores: Scores, measure: str, **options: Any) -> pd.DataFrame:
    return _of_every_test(scores, rankings.ranking, rankings.RANKING_COLUMNS, measure, **options)


def paired_tests(scores: Scores, measure: str, **options: Any) -> pd.DataFrame:
    columns = comparisons.TEST_COLUMNS
    return _of_every_test(scores, comparisons.paired_tests, columns, measure, **options)


def disagreement(scores: Scores, components: Sequence[str]) -> pd.DataFrame:
    return _of_every_test(scores, comparisons.disagreement, [], components)
