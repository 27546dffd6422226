"""Guarantees for an unknown rate or mean from independent draws.

A rate τ is seen in n independent draws of which s agreed, s ~ Binomial(n, τ); `mean_interval` takes the draws
themselves. `delta` is the probability of a wrong statement. Draws and agreements are numbers or tensors of any shape;
bounds are float64 tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from scipy import special
from torch import Tensor

from heatproof.errors import UserError


def check_share(name: str, value: float) -> float:
    """Return a number strictly between 0 and 1; raise a `UserError` that names any other value.

    >>> check_share("delta", 0.1)
    0.1
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise UserError(
            f"{name} must be a number between 0 and 1, both excluded, got {value!r}; usual is 0.1"
        )
    return float(value)


def clopper_pearson_low(agreed: float | Tensor, draws: float | Tensor, delta: float) -> Tensor:
    """Return the exact one-sided lower bound: the τ at which s or more agreements of n have the probability delta.

    It is the delta-quantile of Beta(s, n − s + 1), and 0 for s = 0. P(low > τ) ≤ delta for every τ.

    >>> round(float(clopper_pearson_low(22, 22, 0.1)), 4)
    0.9006
    """
    s, n = _counts(agreed, draws, delta)
    at_least_one = s.clamp(min=1.0)  # Beta(0, …) does not exist
    return torch.where(s > 0, _beta_quantile(at_least_one, n - s + 1, delta), 0.0)


def clopper_pearson_high(agreed: float | Tensor, draws: float | Tensor, delta: float) -> Tensor:
    """Return the exact one-sided upper bound: the τ at which s or fewer agreements of n have the probability delta.

    >>> round(float(clopper_pearson_high(0, 22, 0.1)), 4)
    0.0994
    """
    s, n = _counts(agreed, draws, delta)
    failures = (n - s).clamp(min=1.0)  # Beta(…, 0) does not exist
    return torch.where(s < n, _beta_quantile(s + 1, failures, 1 - delta), 1.0)


def clopper_pearson(
    agreed: float | Tensor, draws: float | Tensor, delta: float
) -> tuple[Tensor, Tensor]:
    """Return the exact two-sided interval (low, high), with delta / 2 on each side.

    >>> [round(float(bound), 4) for bound in clopper_pearson(45, 50, 0.1)]
    [0.8012, 0.9598]
    """
    low = clopper_pearson_low(agreed, draws, delta / 2)
    high = clopper_pearson_high(agreed, draws, delta / 2)
    return low, high


def mean_rate_low(shares: Tensor, draws: Tensor, delta: float) -> float:
    """Return a lower confidence bound of the mean rate of agreement of many samples; it fails with probability delta.

    `shares` (S,) are the observed shares of agreements, from numbers of `draws` (S,) that were fixed beforehand, independent
    or without replacement; where `draws` is 0 the share is the rate itself. Samples with equally many draws are pooled,
    and each pool gets a Clopper–Pearson bound. Their agreements are a sum of independent trials with unequal rates, whose
    upper tail lies below the binomial one with the mean rate from the mean + 1 on (Hoeffding 1956, Ann. Math. Stat. 27,
    713). So the bound holds for delta up to a quarter and two agreements or more; with fewer it is 0.

    >>> round(mean_rate_low(torch.tensor([1.0, 0.9, 0.5]), torch.tensor([20, 20, 0]), 0.1), 3)
    0.748
    """
    delta = min(check_share("delta", delta), 0.25)
    numbers_of_draws = sorted({int(n) for n in draws.tolist()} - {0})
    sum_of_bounds = float(shares[draws == 0].double().sum())
    for n in numbers_of_draws:
        pooled = shares[draws == n].double()
        agreed = float((pooled * n).round().sum())
        if agreed > 1:
            low = clopper_pearson_low(agreed, n * len(pooled), delta / len(numbers_of_draws))
            sum_of_bounds += len(pooled) * float(low)
    return sum_of_bounds / len(shares)


def hoeffding(agreed: float | Tensor, draws: float | Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Return the two-sided interval s/n ± √(log(2/delta) / 2n) of the paper, cut at 0 and 1.

    >>> [round(float(bound), 3) for bound in hoeffding(120, 150, 0.1)]
    [0.7, 0.9]
    """
    s, n = _counts(agreed, draws, delta)
    half = torch.sqrt(math.log(2 / delta) / (2 * n))
    return (s / n - half).clamp(min=0), (s / n + half).clamp(max=1)


def betting(agreed: float | Tensor, draws: float | Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Return a confidence interval (low, high) of a rate τ that holds at all numbers of draws at once.

    So drawing may stop at any time, for any reason. s = `agreed` of n = `draws` agree. Against each candidate τ a gambler
    bets on every draw by the Krichevsky–Trofimov rule. The capital B(s + ½, n − s + ½) / B(½, ½) / τ^s (1 − τ)^(n − s) is a
    martingale if τ is true (Krichevsky and Trofimov 1981, IEEE Trans. Inf. Theory 27, 199). The interval has all τ at which
    it is below 1/delta; by Ville's inequality the true τ is ever missed with probability at most delta.

    >>> [round(float(bound), 3) for bound in betting(50, 50, 0.1)]
    [0.908, 1.0]
    """
    s, n = _counts(agreed, draws, delta)
    log_mixture = _log_beta(s + 0.5, n - s + 0.5) - math.log(math.pi)  # B(½, ½) = π

    def is_beaten(rate: Tensor) -> Tensor:
        log_likelihood = torch.special.xlogy(s, rate) + torch.special.xlog1py(n - s, -rate)
        return torch.ge(log_mixture - log_likelihood, -math.log(delta))

    observed = torch.where(n > 0, s / n.clamp(min=1), 0.5)
    low = _edge(torch.zeros_like(observed), observed, is_beaten)
    high = _edge(torch.ones_like(observed), observed, is_beaten)
    return low, high


def mean_interval(
    values: Tensor, lowest: float, highest: float, delta: float
) -> tuple[Tensor, Tensor]:
    """Return a confidence interval (low, high), (B,) each, of the mean of a bounded variable, from n independent draws.

    `values` (B, n) lie between `lowest` and `highest`. Like Hoeffding's, the interval holds with probability 1 − delta for
    any distribution, and it is much shorter where the draws are alike. It is by betting (Waudby-Smith and Ramdas 2024,
    eq. 26): the capital Π_i (1 + λ_i (u_i − m)) of draws u_i scaled to [0, 1] is a martingale if m is the mean, so it
    reaches 2/delta with probability at most delta/2 (Ville). The bound is the last candidate m at which it does. The
    bets λ_i grow as the variance of the earlier draws falls and are cut at ¾/m. `betting.betting_bound` is a still shorter
    bound for numpy arrays.

    >>> [round(float(bound), 2) for bound in mean_interval(torch.ones(1, 50), -1.0, 1.0, 0.05)]
    [0.81, 1.0]
    """
    check_share("delta", delta)
    values = values.double()
    width = highest - lowest
    unit = ((values - lowest) / width).clamp(0, 1)

    # As if there had been one draw before, at ½ with a variance of ¼.
    n = unit.shape[1]
    count = torch.arange(2, n + 2, dtype=torch.float64, device=unit.device)
    mean_so_far = (0.5 + unit.cumsum(1)) / count
    variance = (0.25 + (unit - mean_so_far).square().cumsum(1)) / count
    variance_before = torch.cat([torch.full_like(unit[:, :1], 0.25), variance[:, :-1]], 1)
    bets = (2 * math.log(2 / delta) / (n * variance_before)).sqrt()

    low = lowest + width * _largest_beaten(unit, bets, delta)
    high = highest - width * _largest_beaten(1 - unit, bets, delta)
    mean, is_undefined = values.mean(1), values.isnan().any(1)
    low = torch.minimum(low, mean).masked_fill(is_undefined, torch.nan)
    high = torch.maximum(high, mean).masked_fill(is_undefined, torch.nan)
    return low, high


def capital(
    agreed: float | Tensor, draws: float | Tensor, threshold: float, side: Literal["above", "below"]
) -> Tensor:
    """Return the evidence that a rate τ is above (or below) a threshold: the capital of a gambler who bets on it.

    s = `agreed` of n = `draws` agree. A capital of 1/delta or more shows it, with an error of delta, and drawing may stop at
    any time: if τ is not above (below) the threshold, the expected capital is at most 1 at every stopping time.

    It is a likelihood ratio, averaged over the rates p on that side of the threshold t (method of mixtures): the mean of
    p^s (1 − p)^(n − s) / t^s (1 − t)^(n − s). The density of p is uniform for "below". For "above" it is proportional to
    (1 − p)^(−0.6), which gives weight to rates near 1, as stable explanations have them.

    >>> round(float(capital(30, 30, 0.9, "above"))), round(float(capital(0, 2, 0.9, "below")))
    (13, 37)
    """
    s, n = _counts(agreed, draws, 0.5)
    check_share("threshold", threshold)
    failures = n - s
    b = 0.4 if side == "above" else 1.0

    def log_integral(p: Tensor, q: Tensor) -> Tensor:
        """Log of the integral of x^(p−1) (1−x)^(q−1) over the side of the threshold that the bet is on."""
        regularised = special.betaincc if side == "above" else special.betainc
        share = torch.as_tensor(regularised(p.numpy(), q.numpy(), threshold))
        return _log_beta(p, q) + share.clamp(min=1e-300).log()

    one = torch.ones_like(s)
    log_mixture = log_integral(s + 1, failures + b) - log_integral(one, b * one)
    log_likelihood = s * math.log(threshold) + failures * math.log1p(-threshold)
    return (log_mixture - log_likelihood).exp()


@lru_cache(maxsize=256)
def sample_size(
    epsilon: float, delta: float, method: Literal["exact", "hoeffding"] = "exact"
) -> int:
    """Return how many draws estimate a rate τ to ± epsilon with probability at least 1 − delta, whatever τ is.

    The estimate is s/n, the share of draws that agree. "hoeffding" is ⌈log(2/delta) / 2 epsilon²⌉, as in Theorem 3.1 of Jin
    et al. (2025). "exact" is the smallest n for which the binomial probability of an error beyond epsilon is at most
    delta for all τ.

    >>> sample_size(0.1, 0.1), sample_size(0.1, 0.1, "hoeffding")
    (70, 150)
    """
    check_share("epsilon", epsilon)
    check_share("delta", delta)
    by_hoeffding = math.ceil(math.log(2 / delta) / (2 * epsilon**2))
    if method == "hoeffding":
        return by_hoeffding
    # The normal law at τ = ½ comes close; the exact size is more than half of that.
    by_normal_law = (float(special.ndtri(1 - delta / 2)) / (2 * epsilon)) ** 2
    for n in range(max(1, int(by_normal_law / 2)), by_hoeffding):
        if worst_miss(n, epsilon) <= delta:
            return n
    return by_hoeffding


def worst_miss(draws: int, epsilon: float) -> float:
    """Return the largest probability, over all rates τ, that the share s/n of n draws errs by more than epsilon.

    s is binomial, and the probability is exact. The set of s with |s/n − τ| ≤ epsilon changes only at τ = s/n ± epsilon.
    Between two neighbouring changes its probability has a single peak as a function of τ, so it is smallest at an end.

    >>> round(worst_miss(150, 0.1), 3)
    0.014
    """
    shares = np.arange(draws + 1) / draws
    changes = np.concatenate([[0.0, 1.0], shares - epsilon, shares + epsilon])
    ends = np.unique(changes[(changes >= 0) & (changes <= 1)].round(12))
    middle = (ends[1:] + ends[:-1]) / 2
    fewest = np.ceil(draws * (middle - epsilon)).clip(0)
    most = np.floor(draws * (middle + epsilon)).clip(max=draws)

    # The probability of fewest ≤ s ≤ most at both ends of each piece.
    probability_of_no_error = []
    for tau in (ends[1:], ends[:-1]):
        at_most = special.bdtr(most, draws, tau)
        fewer = np.where(fewest > 0, special.bdtr(np.maximum(fewest - 1, 0), draws, tau), 0.0)
        probability_of_no_error.append(at_most - fewer)
    return float(1 - np.minimum(*probability_of_no_error).min())


def zero_failure_sample_size(epsilon: float, delta: float) -> int:
    """Return how many draws certify a rate τ ≥ 1 − epsilon with an error of delta, if all of them agree.

    It is the smallest n with (1 − epsilon)^n ≤ delta.

    >>> zero_failure_sample_size(0.1, 0.1)
    22
    """
    check_share("epsilon", epsilon)
    check_share("delta", delta)
    n = math.ceil(math.log(delta) / math.log1p(-epsilon) - 1e-9)  # rounding must not add a draw
    return max(1, n)


def _counts(agreed: float | Tensor, draws: float | Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Return agreements and draws as float64 tensors of one shape, after a check of all arguments."""
    check_share("delta", delta)
    s = torch.as_tensor(agreed, dtype=torch.float64)
    n = torch.as_tensor(draws, dtype=torch.float64)
    s, n = s + 0 * n, n + 0 * s  # one shape
    if bool(((s < 0) | (s > n)).any()):
        raise UserError("there must be between 0 and `draws` agreements")
    return s, n


def _beta_quantile(a: Tensor, b: Tensor, p: float) -> Tensor:
    """Return the p-quantile of Beta(a, b)."""
    return torch.as_tensor(special.betaincinv(a.numpy(), b.numpy(), p))


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    """Return the logarithm of the beta function."""
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


def _largest_beaten(unit: Tensor, bets: Tensor, delta: float) -> Tensor:
    """Return the lower confidence bound (B,) of a mean by betting: the largest mean at which the capital reaches 2/delta.

    `unit` (B, n) are draws between 0 and 1 and `bets` (B, n) those of a gambler. It is found by bisection and rounded down.
    """
    low = torch.zeros(len(unit), dtype=torch.float64)
    high = torch.ones(len(unit), dtype=torch.float64)
    for _ in range(50):
        middle = (low + high) / 2
        cut_bets = torch.minimum(bets, 0.75 / middle[:, None])
        log_capital = torch.log1p(cut_bets * (unit - middle[:, None])).cumsum(1)
        is_beaten = log_capital.amax(1) >= math.log(2 / delta)
        low, high = torch.where(is_beaten, middle, low), torch.where(is_beaten, high, middle)
    return low


def _edge(outer: Tensor, inner: Tensor, is_outside: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the end of an interval by bisection, between `outer`, a point outside of it, and `inner`, one inside.

    The result is the nearest point that is known to be outside, so the interval is not too short.
    """
    for _ in range(60):
        middle = (outer + inner) / 2
        outside = is_outside(middle)
        outer, inner = torch.where(outside, middle, outer), torch.where(outside, inner, middle)
    return outer
