"""What each sample adds to an overall score, against its definition: missing scores, groups, and references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heatproof.statistics.estimates import Estimate, calibrated, of_means, sample_totals

NAMES = ["rotation", "rotation", "jpeg"]
WEIGHTS = np.array([0.25, 0.25, 0.5])


def scores_with_gaps(seed: int = 0, n: int = 12) -> np.ndarray:
    generator = np.random.default_rng(seed)
    scores = generator.random((3, n))
    scores[generator.random(scores.shape) < 0.25] = np.nan
    scores[:, 4] = np.nan  # a sample without any score
    return scores


def by_definition(scores: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ_c w_c Σ_i x_ci / n_c of the samples i of each unit, times the number of units, and the same of ones."""
    number_of_units = len({unit for i, unit in enumerate(units) if np.isfinite(scores[:, i]).any()})
    totals, shares = np.zeros(units.max() + 1), np.zeros(units.max() + 1)
    for c, i in zip(*np.nonzero(np.isfinite(scores)), strict=True):
        part = WEIGHTS[c] / np.isfinite(scores[c]).sum() * number_of_units
        totals[units[i]] += part * scores[c, i]
        shares[units[i]] += part
    return totals, shares


@pytest.mark.parametrize(
    "groups", [None, np.repeat(np.arange(6), [1, 1, 2, 2, 2, 4])], ids=["samples", "groups"]
)
def test_totals_are_those_of_the_definition(groups: np.ndarray | None) -> None:
    scores = scores_with_gaps()
    totals, shares = sample_totals(of_means(scores, groups=groups), NAMES)
    units = np.arange(12) if groups is None else groups
    wanted_totals, wanted_shares = by_definition(scores, units)
    np.testing.assert_allclose(totals, wanted_totals, atol=1e-12)
    np.testing.assert_allclose(shares, wanted_shares, atol=1e-12)


def test_without_gaps_totals_are_the_mean_scores_of_samples() -> None:
    scores = np.random.default_rng(1).random((3, 9))
    totals, shares = sample_totals(of_means(scores), NAMES)
    np.testing.assert_allclose(totals, WEIGHTS @ scores)
    np.testing.assert_allclose(shares, 1)


def test_conditions_without_any_score_count_for_nothing() -> None:
    scores = np.random.default_rng(2).random((3, 9))
    scores[2] = np.nan
    totals, shares = sample_totals(of_means(scores), NAMES)
    np.testing.assert_allclose(totals, scores[:2].mean(0))
    np.testing.assert_allclose(shares, 1)


@pytest.mark.parametrize("grouped", [False, True])
def test_swapping_two_methods_on_a_unit_changes_the_sign_of_its_total_alone(grouped: bool) -> None:
    first, second = scores_with_gaps(3), scores_with_gaps(4)
    groups = np.repeat(np.arange(6), [1, 1, 2, 2, 2, 4]) if grouped else None
    units = groups if groups is not None else np.arange(12)

    def totals_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        apart = of_means(a - b, groups=groups)
        return sample_totals(apart, NAMES)[0]

    before = totals_of(first, second)
    for unit in range(units.max() + 1):
        own = units == unit
        a, b = np.where(own, second, first), np.where(own, first, second)
        wanted = np.where(np.arange(len(before)) == unit, -before, before)
        np.testing.assert_allclose(totals_of(a, b), wanted, atol=1e-12)


@pytest.mark.parametrize("elsewhere", [0, 2, 5])
def test_references_add_their_share_and_nothing_to_the_sum(elsewhere: int) -> None:
    """Calibrated scores by their first-order parts, as in the textbook on ratios of means (Cochran, chapter 6)."""
    generator = np.random.default_rng(5)
    n, r = 10, 5
    score, chance = generator.uniform(0.5, 0.9, (3, n)), generator.uniform(0.2, 0.4, (3, n))
    by_reference = generator.normal(0, 0.05, (3, r))
    places = np.array([0, 3, 4, 7, 9])
    places[r - elsewhere :] = -1

    centred = by_reference - by_reference.mean(1, keepdims=True)
    levels: Estimate = replace(
        of_means(chance), reference_parts=centred / np.sqrt(r * (r - 1)), reference_index=places
    )
    found = calibrated(of_means(score), levels)
    totals, shares = sample_totals(found, NAMES)

    mean_score, mean_chance = score.mean(1, keepdims=True), chance.mean(1, keepdims=True)
    room = 1 - mean_chance
    slope = (1 - mean_score) / room**2
    of_samples = (mean_score - mean_chance + score - mean_score) / room
    of_samples -= slope * (chance - mean_chance)
    wanted = WEIGHTS @ of_samples
    of_references = WEIGHTS @ (-slope * centred) * n / r
    for place, part in zip(places, of_references, strict=True):
        if place >= 0:
            wanted[place] += part
    np.testing.assert_allclose(totals[:n], wanted, atol=1e-12)
    np.testing.assert_allclose(totals[n:], of_references[r - elsewhere :], atol=1e-12)
    np.testing.assert_allclose(shares, [1.0] * n + [0.0] * elsewhere)
    assert totals.sum() / shares.sum() == pytest.approx(float(found.nested(NAMES).value))


@pytest.mark.parametrize("seed", range(5))
def test_totals_over_shares_are_the_overall_score(seed: int) -> None:
    scores = scores_with_gaps(seed)
    for groups in (None, np.arange(12) // 5):
        found = of_means(scores, groups=groups)
        totals, shares = sample_totals(found, NAMES)
        assert totals.sum() / shares.sum() == pytest.approx(float(found.nested(NAMES).value))
