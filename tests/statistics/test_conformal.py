"""The guarantee for the next sample, by enumeration of all orders of exchangeable bounds."""

from __future__ import annotations

from itertools import permutations, product

import pytest
import torch

from heatproof import UserError
from heatproof.statistics.conformal import next_sample_low, rank_of_guarantee


def exact_coverage(scores: list[float], alpha: float) -> float:
    """How often the last of n + 1 scores is at least what the others promise, over all orders."""
    orders = list(permutations(scores))
    held = [
        order[-1] >= next_sample_low(torch.tensor(order[:-1], dtype=torch.float64), alpha)
        for order in orders
    ]
    return sum(held) / len(orders)


@pytest.mark.parametrize("n", [1, 3, 4, 6])
@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.25, 0.34, 0.5])
def test_coverage_over_all_orders_lies_between_the_target_and_one_over_n_plus_1_more(n, alpha):
    scores = [0.2, 0.31, 0.55, 0.6, 0.78, 0.9, 0.97][: n + 1]
    coverage = exact_coverage(scores, alpha)
    assert coverage == pytest.approx(1 - rank_of_guarantee(n, alpha) / (n + 1))
    assert 1 - alpha - 1e-9 <= coverage <= 1 - alpha + 1 / (n + 1) + 1e-9


def test_ties_only_raise_the_coverage():
    for scores in product([0.5, 0.8, 1.0], repeat=5):
        for alpha in (0.2, 0.4):
            assert exact_coverage(list(scores), alpha) >= 1 - alpha - 1e-9


def test_errors_of_the_bounds_add_at_most_delta():
    """Every bound is too high for a tenth of its draws: enumerated over orders and over which of the bounds fail."""
    truth, delta, alpha = [0.3, 0.5, 0.7, 0.9], 0.1, 0.25
    missed = 0.0
    for order in permutations(truth):
        for fails in product([False, True], repeat=4):
            probability = 1.0
            for failed in fails:
                probability *= delta if failed else 1 - delta
            # A bound that fails is above the rate; one that holds is below it.
            bounds = [
                rate + (0.25 if failed else -0.1) for rate, failed in zip(order, fails, strict=True)
            ]
            promise = next_sample_low(torch.tensor(bounds[:-1], dtype=torch.float64), alpha)
            missed += probability * (order[-1] < promise)
    missed /= len(list(permutations(truth)))
    assert missed <= alpha + delta


def test_few_samples_promise_nothing():
    assert next_sample_low(torch.ones(8), 0.1) == 0
    assert next_sample_low(torch.ones(9), 0.1) == 1
    assert next_sample_low(torch.zeros(0), 0.1, lowest=-1.0) == -1


@pytest.mark.parametrize(
    ("lows", "alpha", "message"),
    [
        (torch.ones(3), 1.0, r"alpha.*1\.0"),
        (torch.tensor([0.5, torch.nan]), 0.1, "finite"),
        (torch.ones(3, 2), 0.1, r"\(3, 2\)"),
    ],
)
def test_bad_input_is_one_clear_error(lows, alpha, message):
    with pytest.raises(UserError, match=message):
        next_sample_low(lows, alpha)
