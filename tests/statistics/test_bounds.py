"""Bounds and stopping rules against scipy, brute force and exact binomial sums."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from heatproof import bounds, radii
from heatproof.axes.certificate import sequential
from heatproof.axes.certificate.sequential import (
    NO,
    OPEN,
    YES,
    Rule,
    decide_rule,
    endings,
    estimate_rule,
    hard_rule,
)
from heatproof.errors import UserError

RATES = np.linspace(0, 1, 401)


def expected_draws(rule: Rule, tau: float) -> float:
    """The mean number of draws until a rule stops, exactly."""
    ends = endings(rule.looks, rule.stop.numpy())
    return float(ends.law(tau)[0] @ ends.draws)


@pytest.mark.parametrize(
    ("s", "n"), [(0, 1), (1, 1), (0, 20), (7, 20), (19, 20), (20, 20), (150, 151)]
)
def test_clopper_pearson_is_scipys(s: int, n: int) -> None:
    both = stats.binomtest(s, n).proportion_ci(0.9, "exact")
    low, high = bounds.clopper_pearson(s, n, 0.1)
    assert (float(low), float(high)) == pytest.approx((both.low, both.high), abs=1e-9)
    for side, ours in (
        ("greater", bounds.clopper_pearson_low),
        ("less", bounds.clopper_pearson_high),
    ):
        theirs = stats.binomtest(s, n, alternative=side).proportion_ci(0.9, "exact")
        assert float(ours(s, n, 0.1)) == pytest.approx(
            theirs.low if side == "greater" else theirs.high, abs=1e-9
        )


@pytest.mark.parametrize("interval", [bounds.clopper_pearson, bounds.hoeffding, bounds.betting])
@pytest.mark.parametrize("n", [1, 8, 60])
def test_intervals_cover_at_every_rate(interval, n: int) -> None:
    low, high = (b.numpy() for b in interval(torch.arange(n + 1), n, 0.1))
    law = stats.binom.pmf(np.arange(n + 1), n, RATES[:, None])
    missed = (law * ((low > RATES[:, None]) | (high < RATES[:, None]))).sum(1)
    assert missed.max() <= 0.1
    assert (low <= np.arange(n + 1) / n).all() and (high >= np.arange(n + 1) / n).all()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.1), (0.2, 0.05), (0.3, 0.2), (0.45, 0.1)])
def test_the_exact_sample_size_is_the_smallest(epsilon: float, delta: float) -> None:
    def miss(n: int) -> float:
        s = np.arange(n + 1) / n
        edges = np.concatenate([s - epsilon, s + epsilon])
        rates = np.concatenate([RATES, edges + 1e-9, edges - 1e-9]).clip(0, 1)
        law = stats.binom.pmf(np.arange(n + 1), n, rates[:, None])
        return float((law * (abs(s - rates[:, None]) > epsilon)).sum(1).max())

    n = bounds.sample_size(epsilon, delta)
    assert miss(n) <= delta
    assert all(miss(smaller) > delta for smaller in range(1, n))
    assert bounds.worst_miss(n, epsilon) == pytest.approx(miss(n), abs=1e-6)


def test_the_papers_sample_sizes() -> None:
    assert bounds.sample_size(0.1, 0.1, "hoeffding") == 150
    assert bounds.worst_miss(75, 0.1) <= 0.1
    assert bounds.zero_failure_sample_size(0.1, 0.1) == 22


@pytest.mark.parametrize("tau", [0.03, 0.5, 0.9, 0.99])
def test_the_betting_interval_holds_at_all_times_at_once(tau: float) -> None:
    looks = tuple(range(1, 201))
    rows = [bounds.betting(torch.arange(201).clamp(max=n), n, 0.1) for n in looks]
    outside = torch.stack([(low > tau) | (high < tau) for low, high in rows])
    stop = outside.clone()
    stop[-1] = True
    ends = endings(looks, stop.numpy())
    missed = outside.numpy()[ends.look, ends.agreed.astype(int)]
    assert 0 < (ends.law(tau)[0] * missed).sum() <= 0.1


@pytest.mark.parametrize("side", ["above", "below"])
@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.99])
def test_the_gambler_cannot_expect_to_win_on_the_wrong_side(side, threshold: float) -> None:
    for n in (1, 7, 40):
        worth = bounds.capital(torch.arange(n + 1), n, threshold, side).numpy()
        for tau in (threshold, 0.7 * threshold if side == "above" else 0.3 + 0.7 * threshold):
            expected = (stats.binom.pmf(np.arange(n + 1), n, tau) * worth).sum()
            assert expected <= 1 + 1e-9
            if tau == threshold:
                assert expected == pytest.approx(1, abs=1e-9)


RULES = {
    "clopper-pearson": lambda: estimate_rule(0.1, 0.1),
    "clopper-pearson, small": lambda: estimate_rule(0.2, 0.01),
    "hoeffding": lambda: estimate_rule(0.1, 0.1, "hoeffding"),
    "betting": lambda: estimate_rule(0.1, 0.1, "betting"),
    "decide": lambda: decide_rule(0.9, 0.1, 70),
    "hard": lambda: hard_rule(0.1, 0.1),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_keeps_its_promises_exactly(name: str) -> None:
    rule = RULES[name]()
    delta = 0.01 if "small" in name else 0.1
    ends = endings(rule.looks, rule.stop.numpy())
    place = (ends.look, ends.agreed.astype(int))
    rates = np.concatenate([RATES, [0.8999, 0.901, 0.985, 0.995]])
    law = ends.law(rates)
    np.testing.assert_allclose(law.sum(1), 1, atol=1e-9)
    low, high = rule.low.numpy()[place], rule.high.numpy()[place]
    assert (law * (low > rates[:, None])).sum(1).max() <= delta
    assert (law * (high < rates[:, None])).sum(1).max() <= delta
    estimate = ends.agreed / ends.draws
    assert (low <= estimate + 1e-9).all() and (high >= estimate - 1e-9).all()
    if name not in ("decide", "hard"):
        epsilon = 0.2 if "small" in name else 0.1
        assert (law * (abs(estimate - rates[:, None]) > epsilon + 1e-12)).sum(1).max() <= delta
    decision = rule.decision.numpy()[place]
    if name == "decide":
        assert (law[rates < 0.9] * (decision == YES)).sum(1).max() <= delta
        assert (law[rates >= 0.9] * (decision == NO)).sum(1).max() <= delta
        assert (low[decision == YES] >= 0.9 - 1e-6).all() and (
            high[decision == NO] <= 0.9 + 1e-6
        ).all()
        assert set(decision) == {YES, NO, OPEN}
    if name == "hard":
        assert (law[rates < 0.9] * (decision == YES)).sum(1).max() <= delta
        assert set(decision) == {YES, NO}


def test_the_law_of_a_rule_is_that_of_a_simulation() -> None:
    rule, tau = estimate_rule(0.1, 0.1), 0.9
    g = torch.Generator().manual_seed(0)
    agreed = (torch.rand(20_000, rule.looks[-1], generator=g) < tau).cumsum(1)
    draws = torch.zeros(20_000)
    for look, n in reversed(list(enumerate(rule.looks))):
        draws[rule.stop[look][agreed[:, n - 1]]] = n
    assert float(draws.mean()) == pytest.approx(
        expected_draws(rule, tau), abs=4 * float(draws.std()) / 20_000**0.5
    )


def test_draws_saved_at_the_same_guarantee() -> None:
    estimate, decide = estimate_rule(0.1, 0.1), decide_rule(0.9, 0.1, bounds.sample_size(0.1, 0.1))
    assert expected_draws(estimate, 1.0) < expected_draws(estimate, 0.99) < 34
    assert max(expected_draws(estimate, tau) for tau in RATES) < 80
    assert expected_draws(decide, 0.1) < expected_draws(decide, 0.5) < 6
    assert expected_draws(decide, 1.0) < expected_draws(decide, 0.99) < 36


def test_a_small_delta_and_epsilon_still_make_a_rule() -> None:
    rule = estimate_rule(0.1, 0.1 / 147)
    assert rule.looks[-1] < bounds.sample_size(0.1, 0.1 / 147, "hoeffding")
    assert sequential._worst_error(endings(rule.looks, rule.stop.numpy()), 0.1) <= 0.1 / 147


def all_masks(n: int) -> np.ndarray:
    return np.array(list(product([0, 1], repeat=n)))


@pytest.mark.parametrize("keep", [0.125, 0.25, 0.5])
def test_certified_radii_of_random_functions_are_never_broken(keep: float) -> None:
    n, g = 6, np.random.default_rng(0)
    masks = all_masks(n)
    chance = np.array([[np.prod(np.where(z, keep, 1 - keep)) for z in masks]])
    index = {tuple(z): i for i, z in enumerate(masks)}
    under = np.array([[index[tuple(a & z)] for z in masks] for a in masks])
    certified = {"lipschitz": 0, "bernoulli": 0}
    for _ in range(60):
        f = g.dirichlet(np.full(3, 0.05), len(masks))
        f[g.random(len(masks)) < 0.7] = (0.99, 0.01, 0.0)
        smooth = (chance[0][None, :, None] * f[under]).sum(1)
        start = masks[1]
        order = np.sort(smooth[1])[::-1]
        for rule in certified:
            r = int(radii.mus_radius(torch.tensor(order[0] - order[1]), keep, rule))
            certified[rule] += r
            near = [i for i, z in enumerate(masks) if (z >= start).all() and (z - start).sum() <= r]
            assert (smooth[near].argmax(1) == smooth[1].argmax()).all()
    assert (
        certified["bernoulli"] > certified["lipschitz"] > 0
        if keep < 0.5
        else certified["bernoulli"] >= 0
    )


def test_the_bernoulli_radius_is_tight() -> None:
    keep, gap = 0.125, torch.tensor(1.0)
    r = int(radii.mus_radius(gap, keep, "bernoulli"))
    # a model that changes its mind as soon as one added feature is seen
    unchanged = [(1 - keep) ** added for added in range(r + 2)]
    assert unchanged[r] > 0.5 > unchanged[r + 1]
    assert int(radii.mus_radius(gap, 0.125)) == 3, "2·λ·4 = 1 is not strictly below the gap"
    assert radii.mus_radius(torch.tensor([0.0, 0.3]), 1.0, "bernoulli").tolist() == [0, 0]


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, float("nan"), True, "0.1"])
def test_shares_outside_zero_and_one_are_named(value) -> None:
    with pytest.raises(UserError, match=f"delta.*{value!r}"):
        bounds.check_share("delta", value)


def test_other_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="agreements"):
        bounds.clopper_pearson_low(5, 4, 0.1)
    with pytest.raises(UserError, match="keep"):
        radii.mus_radius(torch.tensor(1.0), 0.0)
    with pytest.raises(UserError, match=r"'bernouli'.*'bernoulli'"):
        radii.mus_radius(torch.tensor(1.0), 0.5, "bernouli")
    with pytest.raises(UserError, match=r"'beting'.*'betting'"):
        estimate_rule(0.1, 0.1, "beting")


def test_one_agreement_bounds_no_mean_rate() -> None:
    assert bounds.mean_rate_low(torch.tensor([1.0]), torch.tensor([1]), 0.1) == 0.0


def test_a_bet_on_nothing_leaves_the_whole_interval() -> None:
    assert [float(end) for end in bounds.betting(0, 0, 0.1)] == [0.0, 1.0]


@pytest.mark.parametrize("delta", [0.05, 0.25])
def test_the_interval_of_a_mean_covers_it_and_shrinks_with_the_samples(delta: float) -> None:
    g = torch.Generator().manual_seed(0)
    widths = []
    for n in (10, 40, 160):
        values = 4 * torch.rand(400, n, generator=g, dtype=torch.float64) ** 3 - 1
        low, high = bounds.mean_interval(values, -1.0, 3.0, delta)
        covered = (low <= 0.0) & (high >= 0.0)  # the mean of 4 u³ − 1
        assert float(covered.double().mean()) >= 1 - delta
        assert (low >= -1).all()
        assert (high <= 3).all()
        widths.append(float((high - low).mean()))
    assert widths == sorted(widths, reverse=True)
