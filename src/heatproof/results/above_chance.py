"""Whether explainers are significantly above chance, decided from the scores of one test."""

from __future__ import annotations

import numpy as np

from heatproof.evaluation import Better
from heatproof.results.arrays import ScoreArrays
from heatproof.results.score_estimates import score_estimates
from heatproof.statistics.above_chance import (
    FEW_SAMPLES_ABOVE_CHANCE,
    bet_above_chance,
    poisson_binomial_p,
)
from heatproof.statistics.estimates import of_means
from heatproof.statistics.intervals import ALIKE, FEWEST


def decide_above_chance(
    arrays: ScoreArrays, measure: str, better: Better, confidence: float
) -> list[bool | None]:
    """Return whether each explainer is significantly above chance; None where the samples cannot tell.

    `confidence` is that of a single claim. A rate under one condition has the exact test of its hits. Other scores are
    above chance if the one-sided bound of their interval is, so that a claim never contradicts the printed interval. With
    fewer than `FEW_SAMPLES_ABOVE_CHANCE` samples (or groups of them) this bound makes too many false claims for skewed
    scores. A bet, which holds for any scores, may then still show that a method is above chance; nothing shows that it is
    not.
    """
    if measure not in arrays.chance or better == "neither":
        return [None] * len(arrays.explainers)
    decisions = []
    for name in arrays.explainers:
        of_explainer = arrays.select(explainers=[name])
        decisions.append(_is_above_chance(of_explainer, measure, better, confidence))
    return decisions


def _is_above_chance(
    arrays: ScoreArrays, measure: str, better: Better, confidence: float
) -> bool | None:
    """Decide for the only explainer of the arrays."""
    score, chance = arrays.values[measure][0], arrays.chance[measure][0]
    is_scored = np.isfinite(score).any(0)
    is_grouped = arrays.groups is not None
    independent = np.arange(len(is_scored)) if arrays.groups is None else arrays.groups
    units = len(np.unique(independent[is_scored]))
    if units < FEWEST:
        return None

    has_one_condition = len(score) == 1
    if arrays.is_rate(measure) and has_one_condition and better == "higher" and not is_grouped:
        return poisson_binomial_p(score[0], chance[0]) <= 1 - confidence
    if units >= FEW_SAMPLES_ABOVE_CHANCE:
        return _bound_is_above_chance(arrays, measure, better, confidence)

    lowest, highest = arrays.span(measure) or (None, None)
    if lowest is None or highest is None or is_grouped:
        return None  # a bet needs both ends of the scale, and independent samples
    names = [name for name, _ in arrays.conditions]
    span = (float(lowest), float(highest))
    if better == "lower":  # the bet is that the mirrored score is above the mirrored chance
        score, chance, span = -score, -chance, (-span[1], -span[0])
    is_shown = bet_above_chance(score, chance, span, names, arrays.samples, confidence)
    return True if is_shown else None


def _bound_is_above_chance(
    arrays: ScoreArrays, measure: str, better: Better, confidence: float
) -> bool | None:
    """Return whether the one-sided bound of the score of the only explainer is above chance; None without a bound."""
    if arrays.is_calibrated(measure):
        excess = score_estimates(arrays, measure)
    else:
        sign = -1.0 if better == "lower" else 1.0
        difference = sign * (arrays.values[measure] - arrays.chance[measure])
        excess = of_means(difference, groups=arrays.groups)
    overall = excess.nested([name for name, _ in arrays.conditions])
    (bound,), _ = overall.bound(confidence, lower=True)
    return None if np.isnan(bound) else bool(bound > ALIKE)
