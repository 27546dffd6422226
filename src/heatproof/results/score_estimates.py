"""The scores of a test with their errors, and whether they are calibrated: (value − chance) / (1 − chance).

Shapes: E explainers, C conditions, N samples. A score is a mean over samples, and its error has up to three sources: the
choice of the samples, of the reference samples that chance levels come from, and of the random networks. `Estimate` holds
the contributions of each source apart (`sample_parts`, `reference_parts`, `network_parts`), so that what two scores have
in common cancels in their difference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.results.arrays import ScoreArrays
from heatproof.statistics.arrays import Array, calibrate, mean_of_finite
from heatproof.statistics.estimates import Estimate, calibrated, chosen, of_means

ALL = slice(None)
Selection = NDArray[np.bool_] | None
"""Which samples (C, N) or (E, C, N) to use; None uses all."""


def score_estimates(
    arrays: ScoreArrays,
    measure: str,
    calibrate: bool = True,
    use: Selection = None,
    explainers: Any = ALL,
) -> Estimate:
    """Return the scores (E, C) of a measure with their errors, of the explainers at an index.

    They are calibrated under the conditions where the measure has a chance level, unless `calibrate` is False.
    """
    raw = raw_estimates(arrays, measure, use, explainers)
    is_calibrated = calibrated_conditions(arrays, measure)
    if not calibrate or not is_calibrated.any():
        return raw
    chance = chance_estimates(arrays, measure, use, explainers)
    return chosen(is_calibrated, calibrated(raw, chance), raw)


def raw_estimates(
    arrays: ScoreArrays, measure: str, use: Selection = None, explainers: Any = ALL
) -> Estimate:
    """Return the mean value of a measure for each explainer and condition, (E, C), with its errors, uncalibrated."""
    values = arrays.values[measure][explainers]
    if use is not None:
        values = np.where(use, values, np.nan)
    is_rate = arrays.is_rate(measure)
    estimate = of_means(values, arrays.span(measure), arrays.groups, is_rate)
    estimate = _with_network_parts(arrays, measure, estimate, use, explainers)
    if measure in arrays.chance:
        # The reference samples made the chance level, so they are in its error (`chance_estimates`), not in this one.
        return estimate
    return _with_reference_parts(arrays, measure, estimate, explainers)


def chance_estimates(
    arrays: ScoreArrays, measure: str, use: Selection = None, explainers: Any = ALL
) -> Estimate:
    """Return the mean chance level of a measure for each explainer and condition, (E, C), with its errors."""
    values = arrays.chance[measure][explainers]
    if use is not None:
        values = np.where(use, values, np.nan)
    estimate = of_means(values, arrays.span(measure), arrays.groups)
    return _with_reference_parts(arrays, measure, estimate, explainers)


def _with_reference_parts(
    arrays: ScoreArrays, measure: str, estimate: Estimate, explainers: Any
) -> Estimate:
    """Return the estimate with the error that is due to the choice of the R reference samples.

    Reference r adds (b_r − b̄) / √(R (R − 1)), with b_r its mean over the samples that were compared with it: the sum of
    squares is the variance of a mean over R. A reference that is one of the samples is marked as such (or as one of its
    group), because its errors in both roles are not independent.
    """
    if measure not in arrays.by_reference:
        return estimate
    means = arrays.by_reference[measure][explainers]
    references = means.shape[-1]
    deviations = means - means.mean(-1, keepdims=True)
    parts = deviations / np.sqrt(references * max(references - 1, 1))

    position_of_sample = {sample: i for i, sample in enumerate(arrays.samples)}
    positions = [position_of_sample.get(name, -1) for name in arrays.references]
    index = np.array(positions, dtype=np.int64)
    if arrays.groups is not None:
        index = np.where(index >= 0, arrays.groups[index], -1)
    return replace(estimate, reference_parts=parts, reference_index=index)


def _with_network_parts(
    arrays: ScoreArrays, measure: str, estimate: Estimate, use: Selection, explainers: Any
) -> Estimate:
    """Return the estimate with the error that is due to the choice of the K random networks.

    Network j adds (m_j − m̄) / √(K (K − 1)), with m_j its mean over samples.

    Samples and networks are crossed: every network serves all samples. The variance of the mean is that between samples
    plus that between networks, minus what is in both, the noise of single scores. This last term is not subtracted, which
    errs on the safe side (Cameron, Gelbach and Miller 2011, J. Bus. Econ. Stat. 29, 238; Owen 2007, Ann. Appl. Stat. 1,
    386). A single network says nothing of how much networks differ; its part is NaN, and there is no interval.
    """
    declared = arrays.declared.get(measure)
    needs_networks = declared is not None and declared.networks
    if measure not in arrays.repeats:
        unknown = np.full((*estimate.value.shape, 1), np.nan)
        return replace(estimate, network_parts=unknown) if needs_networks else estimate

    values = arrays.repeats[measure][explainers]
    if use is not None:
        values = np.where(use[..., None], values, np.nan)
    network_means = mean_of_finite(np.moveaxis(values, -1, -2))
    networks = np.isfinite(network_means).sum(-1, keepdims=True)
    deviations = np.nan_to_num(network_means - mean_of_finite(network_means)[..., None])
    parts = deviations / np.sqrt(np.maximum(networks * (networks - 1), 1))
    if needs_networks:
        parts = np.where(networks == 1, np.nan, parts)
    return replace(estimate, network_parts=parts)


def calibrated_conditions(arrays: ScoreArrays, measure: str) -> NDArray[np.bool_]:
    """Return under which conditions (C,) a measure is calibrated: those where some pair has a value and a chance."""
    if not arrays.is_calibrated(measure):
        return np.zeros(len(arrays.conditions), dtype=bool)
    has_both = np.isfinite(arrays.values[measure]) & np.isfinite(arrays.chance[measure])
    return np.asarray(has_both.any((0, 2)))


def pair_scores(arrays: ScoreArrays, measure: str) -> Array:
    """Return one score per pair (E, C, N), calibrated by the pair's own chance level where it has one."""
    values = arrays.values[measure]
    if not arrays.is_calibrated(measure):
        return values
    scores = calibrate(values, arrays.chance[measure])
    return np.where(np.isfinite(scores), scores, values)


def sample_scores(arrays: ScoreArrays, measure: str) -> Array:
    """Return scores (E, C, N), calibrated by each explainer's mean chance level under each condition."""
    scores = arrays.values[measure].copy()
    is_calibrated = calibrated_conditions(arrays, measure)
    if is_calibrated.any():
        mean_chance = mean_of_finite(arrays.chance[measure][:, is_calibrated])[..., None]
        values = scores[:, is_calibrated]
        scores[:, is_calibrated] = calibrate(values, np.broadcast_to(mean_chance, values.shape))
    return scores


def calibrated_if_possible(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a `summary` with `score`, `score_low` and `score_high`: calibrated if they can be, else raw."""
    rows = summary.copy()
    is_calibrated = rows["calibrated"].notna()
    for end, raw in (("", "mean"), ("_low", "low"), ("_high", "high")):
        rows[f"score{end}"] = rows[f"calibrated{end}"].where(is_calibrated, rows[raw])
    return rows
