"""Intervals, tests, chance levels and ranks: pure functions of the table.

Samples are the unit throughout, or groups of samples where the data names them: every number is kept with what each
sample adds to its error (`estimates`), under every condition at once, so that differences between explainers stay
paired and the correlation between the conditions of one sample is kept. One rule makes intervals, tests and bounds of
it (`intervals`).

Every function takes the long table (see `heatproof.runs.tables`) or the cubes that `arrange` makes of it;
arranging once and passing the cubes on saves time on large runs.
"""

from __future__ import annotations

from heatproof.statistics.calibration import Form, with_best
from heatproof.statistics.cubes import arrange, groups_of
from heatproof.statistics.intervals import FEWEST
from heatproof.statistics.means import (
    FEW_SAMPLES,
    FEWEST_PAIRS,
    LOWEST_RETENTION,
    exact_share,
    mean_chance,
    retention,
    summary,
)
from heatproof.statistics.pairs import disagreement, paired_tests
from heatproof.statistics.ranks import ranking

__all__ = [
    "FEWEST",
    "FEWEST_PAIRS",
    "FEW_SAMPLES",
    "LOWEST_RETENTION",
    "Form",
    "arrange",
    "disagreement",
    "exact_share",
    "groups_of",
]
__all__ += ["mean_chance", "paired_tests", "ranking", "retention", "summary", "with_best"]
