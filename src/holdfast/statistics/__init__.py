"""Intervals, tests, chance levels and ranks: pure functions of the table.

Samples are the unit of resampling throughout: a bootstrap draw takes whole samples, with every explainer and every
condition they were seen under, so that differences between explainers stay paired and the correlation between the
conditions of one sample is kept. Draws are count matrices (resamples × samples), so a bootstrap is a matrix product.

Every function takes the long table (see `holdfast.runs.table`) or the cubes that `arrange` makes of it;
arranging once and passing the cubes on saves time on large runs. The identity perturbation, a control, takes no part
in ranks and tests.
"""

from __future__ import annotations

from holdfast.statistics.cubes import arrange
from holdfast.statistics.forms import Form, with_best
from holdfast.statistics.means import FEW_SAMPLES, FEWEST_PAIRS, LOWEST_RETENTION, retention, summary, wilson
from holdfast.statistics.pairs import disagreement, holm, paired_tests, signed_rank
from holdfast.statistics.ranks import ranking

__all__ = ["FEWEST_PAIRS", "FEW_SAMPLES", "LOWEST_RETENTION", "Form", "arrange", "disagreement", "holm"]
__all__ += ["paired_tests", "ranking", "retention", "signed_rank", "summary", "wilson", "with_best"]
