"""Expansions, operators and stability bounds on {0, 1}^n against brute force, and the paper's counterexamples.

Sets of features are integers here as in the module; the paper's feature 1 is bit 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from heatproof import boolean
from heatproof.errors import UserError

AND = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)


def functions(n: int, *batch: int, seed: int = 0) -> Tensor:
    return torch.randn(
        *batch, 2**n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-12)


def subsets(whole: int) -> Iterator[int]:
    part = whole
    while True:
        yield part
        if part == 0:
            return
        part = (part - 1) & whole


def ball(n: int, alpha: int, r: int) -> list[int]:
    """The sets of Δ_r, one by one."""
    return [b for b in range(2**n) if b & alpha == alpha and (b & ~alpha).bit_count() <= r]


def character(s: int, a: int, n: int, p: float) -> float:
    return math.prod((p - (a >> i & 1)) / math.sqrt(p - p * p) for i in range(n) if s >> i & 1)


def expansion(n: int, p: float) -> Tensor:
    """The matrix from Fourier coefficients to values, (2^n, 2^n)."""
    return torch.tensor(
        [[character(s, a, n, p) for s in range(2**n)] for a in range(2**n)], dtype=torch.float64
    )


def masked(h: Tensor, keep: float) -> Tensor:
    """M_λh by summing over every way to keep features."""
    out = torch.zeros_like(h)
    for a in range(h.shape[-1]):
        for kept in subsets(a):
            size = kept.bit_count()
            out[..., a] += keep**size * (1 - keep) ** (a.bit_count() - size) * h[..., kept]
    return out


def variance(h: Tensor, p: float) -> Tensor:
    """Σ_{S≠∅} ĥ(S)², the variance of h where features are present with probability p."""
    return boolean.fourier(h, p)[..., 1:].square().sum(-1)


def tails(coefficients: Tensor) -> Tensor:
    """Σ_{|S|≥k} |ĥ(S)| for k = 0 … n."""
    sizes = boolean.degrees(coefficients.shape[-1].bit_length() - 1)
    return torch.stack(
        [coefficients[..., sizes >= k].abs().sum(-1) for k in range(int(sizes.max()) + 1)], -1
    )


def printed_weight(h: Tensor, alpha: int, r: int) -> Tensor:
    """Q of the paper's equations (60) and (65): only sets disjoint from α. Wrong, and here to show it."""
    n = h.shape[-1].bit_length() - 1
    m, coefficients = n - alpha.bit_count(), boolean.monotone(h)
    total = torch.zeros(h.shape[:-1], dtype=torch.float64)
    for t in subsets((2**n - 1) & ~alpha):
        if 1 <= t.bit_count() <= r:
            total += coefficients[..., t].abs() * boolean.containment(m, t.bit_count(), r)
    return total


@pytest.mark.parametrize("n", range(6))
@pytest.mark.parametrize("p", [0.5, 0.2, 0.9])
def test_fourier_coefficients_are_expectations_and_expand_the_function(n, p):
    h, basis = functions(n, 3), expansion(n, p)
    chance = torch.tensor(
        [p ** a.bit_count() * (1 - p) ** (n - a.bit_count()) for a in range(2**n)],
        dtype=torch.float64,
    )
    assert close(basis.T @ torch.diag(chance) @ basis, torch.eye(2**n, dtype=torch.float64))
    coefficients = boolean.fourier(h, p)
    assert torch.allclose(coefficients, (h * chance) @ basis, rtol=0, atol=1e-12)
    assert torch.allclose(coefficients @ basis.T, h, rtol=0, atol=1e-10)
    assert torch.allclose(boolean.from_fourier(coefficients, p), h, rtol=0, atol=1e-10)
    mean, square = (h * chance).sum(-1), (h**2 * chance).sum(-1)
    assert torch.allclose(variance(h, p), square - mean**2, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", range(7))
def test_monotone_coefficients_follow_the_papers_recursion(n):
    h = functions(n, 2)
    expected = torch.zeros_like(h)
    for t in range(2**n):
        expected[..., t] = h[..., t] - sum(expected[..., s] for s in subsets(t) if s != t)
    assert close(boolean.monotone(h), expected)
    assert close(boolean.from_monotone(expected), h)


def test_sixteen_features_come_back_exactly_from_every_basis():
    h = torch.randint(0, 2, (2**16,), generator=torch.Generator().manual_seed(1)).double()
    assert torch.equal(boolean.from_fourier(boolean.fourier(h)), h)
    assert torch.equal(boolean.from_monotone(boolean.monotone(h)), h)
    assert torch.allclose(boolean.from_fourier(boolean.fourier(h, 0.4), 0.4), h, atol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 3, 6])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.75, 1.0])
def test_masking_agrees_with_the_expectation_in_every_basis(n, keep):
    h = functions(n, 2, 2)
    expected = masked(h, keep)
    assert close(boolean.masking(h, keep), expected)
    assert close(
        boolean.from_monotone(boolean.masking(boolean.monotone(h), keep, "monotone")), expected
    )
    for p in (0.5, 0.15, 0.8):
        smoothed = boolean.masking(boolean.fourier(h, p), keep, "fourier", p=p)
        assert torch.allclose(boolean.from_fourier(smoothed, p), expected, rtol=0, atol=1e-9)


def test_masking_scales_monotone_coefficients_and_moves_fourier_mass_down():
    h, size = functions(5), boolean.degrees(5).double()
    assert close(boolean.monotone(masked(h, 0.3)), 0.3**size * boolean.monotone(h))
    down = boolean.fourier(masked(h, 0.3))
    terms = boolean.fourier(h)
    for t in range(32):
        above = sum(0.7 ** (s & ~t).bit_count() * terms[s] for s in range(32) if s & t == t)
        assert float(down[t]) == pytest.approx(float(0.3 ** t.bit_count() * above), abs=1e-12)
    assert float(down.sum()) == pytest.approx(float(terms.sum()), abs=1e-12)  # eq. 30


@pytest.mark.parametrize(("p", "keep"), [(0.2, 0.21), (0.2, 0.7), (0.6, 1.0), (0.5, 0.9)])
def test_masking_changes_the_bias_and_shrinks_the_variance(p, keep):
    h, size = functions(5, 50) + 3, boolean.degrees(5).double()
    rebiased = boolean.fourier(h, p) * ((keep - p) / (1 - p)) ** (size / 2)  # Lemma A.6
    assert torch.allclose(
        boolean.from_fourier(rebiased, p / keep), masked(h, keep), rtol=0, atol=1e-9
    )
    shrunk = variance(boolean.masking(h, keep), p / keep)
    assert bool((shrunk <= (keep - p) / (1 - p) * variance(h, p) + 1e-9).all())


@pytest.mark.parametrize("keep", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_high_degree_mass_after_masking_stays_under_theorem_a4(keep):
    h = functions(6, 40) * (functions(6, 40, seed=1) > 0)
    theorem = torch.from_numpy(stats.binom.sf(np.arange(7) - 1, 6, keep)) * tails(
        boolean.fourier(h)
    )
    assert bool((tails(boolean.fourier(boolean.masking(h, keep))) <= theorem + 1e-9).all())


def test_equation_28_has_the_wrong_signs_for_and():
    keep = 0.3
    found = boolean.masking(boolean.fourier(AND), keep, "fourier")
    assert close(found, keep**2 / 4 * torch.tensor([1.0, -1.0, -1.0, 1.0]).double())
    assert close(found, boolean.fourier(masked(AND, keep)))
    printed = (
        torch.tensor([(2 - keep) ** 2, -keep * (2 - keep), -keep * (2 - keep), keep**2]).double()
        / 4
    )
    assert not torch.allclose(found, printed, atol=0.1)


def test_equation_58_forgets_sets_that_reach_into_the_explanation():
    coefficients = boolean.monotone(AND)
    assert (
        float(boolean.difference(coefficients, 0b01, 0b11)) == 1.0 == float(AND[0b11] - AND[0b01])
    )
    assert sum(float(coefficients[t]) for t in subsets(0b11 & ~0b01) if t) == 0.0  # as printed
    h = functions(5, 2)
    for alpha in range(32):
        for beta in ball(5, alpha, 5):
            assert close(
                boolean.difference(boolean.monotone(h), alpha, beta), h[:, beta] - h[:, alpha]
            )


def test_containment_is_the_share_of_the_ball_and_not_what_equation_61_calls_it():
    n = 4
    for alpha in range(2**n):
        m = n - alpha.bit_count()
        for r in range(m + 2):
            sets = ball(n, alpha, r)
            for t in range(2**n):
                share = sum(t & b == t for b in sets) / len(sets)
                assert boolean.containment(m, (t & ~alpha).bit_count(), r) == pytest.approx(
                    share, abs=1e-15
                )
    added_one = sum(b.bit_count() >= 1 for b in ball(2, 0, 1)) / len(ball(2, 0, 1))
    assert boolean.containment(2, 1, 1) == pytest.approx(1 / 3) and added_one == pytest.approx(
        2 / 3
    )


def cases(seed: int) -> Iterator[tuple[Tensor, int, int, float, float]]:
    """Settings with 20 functions on [0, 1] each: dense, Boolean, and sparse in the monotone basis."""
    rng = np.random.default_rng(seed)
    for _ in range(150):
        n = int(rng.integers(2, 7))
        alpha = int(rng.integers(0, 2**n - 1))
        sparse = torch.from_numpy(rng.normal(size=(6, 2**n)) * (rng.random((6, 2**n)) < 3 / 2**n))
        low_order = boolean.from_monotone(sparse)
        low_order -= low_order.amin(-1, keepdim=True)
        low_order /= low_order.amax(-1, keepdim=True).clamp_min(1e-9)
        dense, hard = (
            torch.from_numpy(rng.random((7, 2**n))),
            torch.from_numpy(rng.random((7, 2**n)) < 0.5).double(),
        )
        r = int(rng.integers(1, n - alpha.bit_count() + 2))
        yield (
            torch.cat([dense, hard, low_order]),
            alpha,
            r,
            rng.uniform(0.02, 0.8),
            rng.uniform(0.05, 1),
        )


def test_corrected_bounds_hold_in_3000_cases_where_the_printed_ones_fail():
    total = meaningful = printed_fails = printed_smoothed_fails = 0
    sayings = torch.zeros(2, dtype=torch.int64)
    for h, alpha, r, gamma, keep in cases(seed=0):
        smoothed = boolean.masking(h, keep)
        unstable = 1 - boolean.stability_rate(h, alpha, r, gamma)
        unstable_smoothed = 1 - boolean.stability_rate(smoothed, alpha, r, gamma)
        bound = boolean.instability_bound(h, alpha, r, gamma)
        bound_smoothed = boolean.instability_bound(h, alpha, r, gamma, keep=keep)
        assert bool((unstable <= bound + 1e-12).all())
        assert bool((unstable_smoothed <= bound_smoothed + 1e-12).all())
        paper = keep * boolean.instability_weight(h, alpha, r) / gamma
        assert bool((bound_smoothed <= paper + 1e-12).all())
        printed = printed_weight(h, alpha, r) / gamma
        total += len(h)
        meaningful += int((bound < 1).sum())
        sayings += torch.tensor([int((bound_smoothed < 1).sum()), int((paper < 1).sum())])
        printed_fails += int((unstable > printed + 1e-12).sum())
        printed_smoothed_fails += int(
            ((unstable <= printed + 1e-12) & (unstable_smoothed > keep * printed + 1e-12)).sum()
        )
    assert total == 3000 and meaningful > 300
    assert sayings[0] > 1.5 * sayings[1], (
        "the bound on the smoothed function itself says something far more often"
    )
    assert printed_fails > 100 and printed_smoothed_fails > 0


def test_theorem_b4_as_printed_fails_on_three_features():
    coefficients = torch.zeros(8)
    coefficients[0b101], coefficients[0b111] = 0.5, -0.5
    h, alpha, keep, gamma = boolean.from_monotone(coefficients), 0b011, 2 / 3, 0.05
    smoothed = boolean.masking(h, keep)
    assert float(h.amin()) == 0.0 and float(h.amax()) == 0.5
    assert float(printed_weight(h, alpha, 1)) == 0.0
    assert float(boolean.stability_rate(h, alpha, 1, gamma)) == 1.0
    assert float(boolean.stability_rate(smoothed, alpha, 1, gamma)) == 0.5
    assert float(boolean.instability_weight(h, alpha, 1)) == pytest.approx(0.5)
    assert float(boolean.instability_bound(h, alpha, 1, gamma, keep=keep)) >= 0.5
    # Adding up what cancels on α first is right for h, but not for λ times the bound of h.
    assert float(boolean.instability_weight(boolean.restrict(h, alpha), 0, 1)) == 0.0


def test_hard_radius_is_the_last_radius_without_a_failure():
    for h, alpha, _, gamma, _ in cases(seed=1):
        n = h.shape[-1].bit_length() - 1
        m, coefficients = n - alpha.bit_count(), boolean.monotone(h)
        worst = [
            torch.stack(
                [boolean.difference(coefficients, alpha, b).abs() for b in ball(n, alpha, r)]
            ).amax(0)
            for r in range(min(m, 2) + 1)
        ]
        radius = boolean.hard_radius(h, alpha, gamma)
        for r, largest in enumerate(worst):
            assert torch.equal(radius >= r, largest <= gamma)
        for r in range(m + 1):
            assert torch.equal(radius >= r, boolean.stability_rate(h, alpha, r, gamma) == 1)
        assert int(radius.max()) <= m


def test_theorem_b5_as_printed_certifies_what_flips():
    # AND at α = {1}: the printed sum over T ⊆ β∖α is 0 at β = {1, 2}, so radius 1; yet h moves by 1.
    assert sum(float(boolean.monotone(AND)[t]) for t in subsets(0b10) if t) == 0.0
    assert int(boolean.hard_radius(AND, 0b01, 0.25)) == 0
    assert int(boolean.hard_radius(AND, 0b00, 0.25)) == 1
    assert int(boolean.hard_radius(AND, 0b00, 1.0)) == 2


def test_half_the_gap_of_the_top_two_does_not_keep_the_prediction():
    scores = torch.tensor([[0.5, 0.4], [0.3, 0.5], [0.2, 0.1]]).double()
    gamma = float(scores[0, 0] - scores[1, 0]) / 2
    assert float(boolean.stability_rate(scores[0], 0, 1, gamma)) == 1.0
    assert float(boolean.prediction_rate(scores, 0, 1)) == 0.5
    assert float(boolean.prediction_bound(scores, 0, 1)) >= 0.5


def test_prediction_bound_holds_for_many_classes():
    meaningful = 0
    rng = np.random.default_rng(5)
    for _ in range(100):
        n, classes = int(rng.integers(1, 6)), int(rng.integers(2, 5))
        alpha, r = int(rng.integers(0, 2**n)), int(rng.integers(0, n + 1))
        coefficients = rng.normal(size=(20, classes, 2**n)) * np.array(
            [0.3 ** s.bit_count() for s in range(2**n)]
        )
        coefficients[:, 0, 0] += rng.uniform(0, 6)
        scores = boolean.from_monotone(torch.from_numpy(coefficients)).softmax(-2)
        rate, bound = (
            boolean.prediction_rate(scores, alpha, r),
            boolean.prediction_bound(scores, alpha, r),
        )
        first = scores[..., alpha].argmax(-1)
        held = (
            torch.stack([scores[..., b].argmax(-1) == first for b in ball(n, alpha, r)])
            .double()
            .mean(0)
        )
        assert close(rate, held)
        assert bool((1 - rate <= bound + 1e-12).all())
        meaningful += int(((bound < 1) & (bound > 0)).sum())
    assert meaningful > 200


def test_a_tie_that_may_break_has_no_bound_and_one_that_cannot_is_stable():
    tie = torch.tensor([[0.5, 0.4], [0.5, 0.6]])
    assert float(boolean.prediction_bound(tie, 0, 1)) == math.inf
    assert float(boolean.prediction_rate(tie, 0, 1)) == 0.5
    assert float(boolean.prediction_bound(torch.full((2, 4), 0.5), 0b01, 1)) == 0.0
    assert float(boolean.prediction_rate(torch.full((2, 4), 0.5), 0b01, 1)) == 1.0


@pytest.mark.parametrize("alpha", [0, 0b0101, 0b1111])
def test_stability_rate_counts_the_ball(alpha):
    h = functions(4, 3, 2)
    for r in range(7):
        expected = (
            torch.stack([(h[..., b] - h[..., alpha]).abs() <= 0.7 for b in ball(4, alpha, r)])
            .double()
            .mean(0)
        )
        assert close(boolean.stability_rate(h, alpha, r, 0.7), expected)
    assert torch.equal(boolean.stability_rate(h, alpha, 0, 0.7), torch.ones(3, 2).double())
    mask = torch.tensor([bool(alpha >> i & 1) for i in range(4)])
    assert torch.equal(
        boolean.stability_rate(h, mask, 2, 0.7), boolean.stability_rate(h, alpha, 2, 0.7)
    )
    assert torch.equal(boolean.restrict(h, mask)[..., 0], h[..., alpha])


def test_from_function_asks_every_mask_once_in_chunks_and_keeps_the_classes():
    weights, seen = torch.tensor([1.0, 10.0, 100.0]), []

    def model(mask: Tensor) -> Tensor:
        seen.append(len(mask))
        return torch.stack([mask.float() @ weights, mask.float().sum(1)], 1)

    values = boolean.from_function(model, 3, rows=3)
    assert seen == [3, 3, 2] and values.shape == (2, 8) and values.dtype == torch.float64
    assert values[0].tolist() == [0, 1, 10, 11, 100, 101, 110, 111]
    assert torch.equal(values[1].long(), boolean.degrees(3))
    assert torch.equal(values, boolean.from_function(model, 3))


def flipped(h: Tensor, rho: float) -> Tensor:
    """T_ρh by summing over every set of features that may be flipped."""
    n = h.shape[-1].bit_length() - 1
    q = (1 - rho) / 2
    out = torch.zeros_like(h)
    for a in range(2**n):
        for z in range(2**n):
            size = z.bit_count()
            out[..., a] += q**size * (1 - q) ** (n - size) * h[..., a ^ z]
    return out


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.5, 1.0])
def test_flipping_is_the_mean_over_all_flips_in_every_basis(rho):
    h = functions(4, 3, seed=1)
    truth = flipped(h, rho)
    assert close(boolean.flipping(h, rho), truth)
    for p in (0.5, 0.2):
        coefficients = boolean.flipping(boolean.fourier(h, p), rho, "fourier", p)
        assert close(boolean.from_fourier(coefficients, p), truth)
    coefficients = boolean.flipping(boolean.monotone(h), rho, "monotone")
    assert close(boolean.from_monotone(coefficients), truth)


def test_flipping_shrinks_each_coefficient_and_masking_moves_mass_down():
    """Footnote 5 of the paper, and its Figure 13: the two operators act differently on the same spectrum."""
    spectrum = functions(8, 50, seed=2)
    before = boolean.by_degree(spectrum)
    for rate in (0.25, 0.5, 0.75):
        contracted = boolean.flipping(spectrum, rate, "fourier")
        assert close(contracted, rate ** boolean.degrees(8).double() * spectrum)
        assert close(boolean.by_degree(contracted), rate ** torch.arange(9.0).double() * before)
    masked_mass = boolean.by_degree(boolean.masking(spectrum, 0.5, "fourier")).mean(0)
    assert (masked_mass[:2] > before.mean(0)[:2]).all(), "mass arrives at low degrees"
    assert (masked_mass[5:] < before.mean(0)[5:]).all(), "and leaves the high ones"


def test_flipping_composes_and_never_adds_variance():
    h = functions(6, 20, seed=3)
    twice = boolean.flipping(boolean.flipping(h, 0.6), 0.5)
    assert close(twice, boolean.flipping(h, 0.3))
    assert (variance(boolean.flipping(h, 0.6), 0.5) <= 0.36 * variance(h, 0.5) + 1e-12).all()


def test_masses_by_degree_are_sums_over_sets():
    coefficients = functions(5, 2, seed=4)
    for power in (1, 2):
        truth = torch.zeros(2, 6, dtype=torch.float64)
        for s in range(32):
            truth[:, s.bit_count()] += coefficients[:, s].abs() ** power
        assert close(boolean.by_degree(coefficients, power), truth)
    h = boolean.from_fourier(coefficients)
    assert close(boolean.by_degree(coefficients, 2).sum(-1), h.square().mean(-1)), "Parseval"


def looked_up(h: Tensor):
    """A function of masks that looks its values up in a table (2^n,)."""
    powers = 2 ** torch.arange(h.shape[-1].bit_length() - 1)
    return lambda mask: h[(mask * powers).sum(1)]


@pytest.mark.parametrize("n", [4, 8, 12])
def test_sampled_weights_are_unbiased_and_their_intervals_cover(n):
    h = functions(n, seed=n)
    # Half of the function lies on single features, as in a classifier; the rest is spread over all sets.
    h = h + 2 * functions(n, seed=n + 1)[:n] @ boolean.masks(n).double().T
    centre = float(h.mean())
    degrees = (1, 2, 3)
    truth = boolean.by_degree(boolean.fourier(h), 2)[list(degrees)]
    repeats = [
        boolean.sampled_weights(looked_up(h), n, degrees, 200, centre=centre + 0.1, seed=seed)
        for seed in range(300)
    ]
    weights = torch.stack([repeat.weight for repeat in repeats])
    error_of_mean = weights.std(0) / math.sqrt(len(weights))
    assert ((weights.mean(0) - truth).abs() < 4 * error_of_mean).all()
    covers = torch.stack([(r.low <= truth) & (truth <= r.high) for r in repeats])
    assert (covers.double().mean(0) > 0.9).all(), "the 95 % intervals are approximate"
    assert error_of_mean[0] * math.sqrt(300) < 0.5 * truth[0], "the interval says something"


def test_sampled_weights_of_all_pairs_is_the_sum_over_pairs():
    """The U-statistic written out, with characters in place of Krawtchouk polynomials."""
    n, draws, seed = 5, 40, 7
    h = functions(n, seed=5)
    seen: list[Tensor] = []

    def f(mask: Tensor) -> Tensor:
        seen.append(mask)
        return looked_up(h)(mask)

    result = boolean.sampled_weights(f, n, (0, 2, 5), draws, centre=0.3, seed=seed, rows=16)
    masks = torch.cat(seen)
    values = looked_up(h)(masks) - 0.3
    sets = boolean.masks(n)
    characters = 1.0 - 2.0 * ((masks[:, None] & sets).sum(2) % 2).double()  # (draws, 2^n)
    for degree, weight in zip(result.degree.tolist(), result.weight.tolist(), strict=True):
        of_degree = characters[:, sets.sum(1) == degree] * values[:, None]
        all_pairs = of_degree.sum(0).square() - of_degree.square().sum(0)
        assert weight == pytest.approx(float(all_pairs.sum()) / (draws * (draws - 1)))


def test_sampled_weights_of_many_features():
    """A function of 196 features whose weights are known: two single features and one pair."""

    def f(mask: Tensor) -> Tensor:
        signs = 1.0 - 2.0 * mask.double()
        return 0.6 * signs[:, 3] - 0.3 * signs[:, 100] + 0.5 * signs[:, 7] * signs[:, 8]

    result = boolean.sampled_weights(f, 196, (1, 2), draws=2000)
    truth = torch.tensor([0.45, 0.25], dtype=torch.float64)
    assert (result.low < truth).all() and (truth < result.high).all()
    assert result.high[0] - result.low[0] < 0.1


def test_every_public_name_is_there():
    assert all(getattr(boolean, name) is not None for name in boolean.__all__)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: boolean.fourier(torch.zeros(6)),
            r"6.*8",
        ),
        (lambda: boolean.monotone(torch.zeros(3, 0)), r"2\^n.*0"),
        (lambda: boolean.monotone(torch.tensor(1.0)), r"2\^n.*0"),
        (lambda: boolean.fourier(torch.tensor([0.0, math.nan])), "finite"),
        (lambda: boolean.fourier(torch.zeros(2**17)), r"17.*16"),
        (lambda: boolean.from_function(lambda mask: mask.sum(1), 17), r"17.*16"),
        (lambda: boolean.from_function(lambda mask: mask.sum(1), -1), r"-1.*0"),
        (
            lambda: boolean.from_function(lambda mask: mask.sum(), 2),
            r"4 masks",
        ),
        (lambda: boolean.from_function(lambda mask: mask.sum(1) * math.inf, 2), "finite"),
        (lambda: boolean.from_function(lambda mask: 1.0, 2), "float"),
        (
            lambda: boolean.from_function(lambda mask: mask.sum(1), 2, rows=0),
            r"rows.*0",
        ),
        (lambda: boolean.fourier(AND, p=0), r"p .*0"),
        (lambda: boolean.from_fourier(AND, p=1), r"p .*1"),
        (lambda: boolean.masking(AND, 1.5), r"keep.*1\.5.*1"),
        (lambda: boolean.masking(AND, 0.5, "furier"), r"'furier'.*'fourier'"),
        (lambda: boolean.flipping(AND, -0.5), r"rho.*-0\.5.*0"),
        (lambda: boolean.flipping(AND, 0.5, "monoton"), r"'monoton'.*'monotone'"),
        (lambda: boolean.sampled_weights(lambda mask: mask.sum(1), 3, (4,)), r"0 … 3.*4"),
        (lambda: boolean.sampled_weights(lambda mask: mask.sum(1), 3, draws=2), r"draws.*3.*2"),
        (lambda: boolean.sampled_weights(lambda mask: mask.double(), 3), r"\(1000, 3\)"),
        (
            lambda: boolean.masking(AND, 0.5, "monotone", p=0.3),
            r"p = 0\.3.*'monotone'",
        ),
        (
            lambda: boolean.stability_rate(AND, 4, 1, 0.5),
            r"alpha.*\[0, 3\].*4",
        ),
        (
            lambda: boolean.hard_radius(AND, -1, 0.5),
            r"alpha.*\[0, 3\].*-1",
        ),
        (
            lambda: boolean.restrict(AND, torch.ones(3) > 0),
            r"\(2,\).*\(3,\)",
        ),
        (lambda: boolean.stability_rate(AND, 0, -1, 0.5), r"r .*-1"),
        (lambda: boolean.instability_weight(AND, 0, -1), r"r .*-1"),
        (lambda: boolean.stability_rate(AND, 0, 1, 0), r"gamma.*0"),
        (
            lambda: boolean.instability_bound(AND, 0, 1, -0.5),
            r"gamma.*-0\.5",
        ),
        (lambda: boolean.hard_radius(AND, 0, math.nan), r"gamma.*nan"),
        (
            lambda: boolean.instability_bound(AND, 0, 1, 0.5, keep=1.1),
            r"keep.*1\.1",
        ),
        (
            lambda: boolean.difference(AND, 0b10, 0b01),
            r"beta.*alpha.*0b10.*0b1",
        ),
        (lambda: boolean.containment(2, 1, -1), r"r .*-1"),
        (lambda: boolean.containment(2, 3, 1), r"k .*m = 2.*3"),
        (lambda: boolean.prediction_rate(AND, 0, 1), r"classes.*\(4,\)"),
        (
            lambda: boolean.prediction_bound(AND[None], 0, 1),
            r"classes.*\(1, 4\)",
        ),
    ],
)
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(UserError, match=message):
        call()
