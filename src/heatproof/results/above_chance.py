"""Whether explainers are significantly above chance, decided from the scores of one test."""

from __future__ import annotations

import numpy as np

from heatproof.evaluation import Better
from heatproof.results.arrays import ScoreArrays
from heatproof.results.score_estimates import score_estimates
from heatproof.statistics.above_chance import (
    FEW_SAMPLES_ABOVE_CHANCE,
    above_chance,
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
    fewer than `FEW_SAMPLES_ABOVE_CHANCE` samples this bound makes too many false claims for skewed scores. A bet, which
    holds for any scores, may then still show that a method is above chance; nothing shows that it is not.
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
    samples = int(np.isfinite(score).any(0).sum())
    if samples < FEWEST:
        return None

    is_grouped = arrays.groups is not None
    has_one_condition = len(score) == 1
    if arrays.is_rate(measure) and has_one_condition and better == "higher" and not is_grouped:
        return poisson_binomial_p(score[0], chance[0]) <= 1 - confidence
    if samples >= FEW_SAMPLES_ABOVE_CHANCE:
        return _bound_is_above_chance(arrays, measure, better, confidence)

    span = arrays.span(measure)
    if span is None or None in span or is_grouped:
        return None  # a bet needs both ends of the scale, and independent samples
    if better == "lower":
        score, chance = chance, score
    names = [name for name, _ in arrays.conditions]
    bet = above_chance(score, chance, span, names, arrays.samples, confidence)
    return True if bet.bound > ALIKE else None


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
