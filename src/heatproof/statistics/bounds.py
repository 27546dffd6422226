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
    """A number strictly between 0 and 1, or a `UserError` that names it.

    >>> check_share("delta", 0.1)
    0.1
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise UserError(
            f"{name} must be a number between 0 and 1, both excluded, got {value!r}; usual is 0.1"
        )
    return float(value)


def clopper_pearson_low(agreed: float | Tensor, draws: float | Tensor, delta: float) -> Tensor:
    """The exact one-sided lower bound: the τ at which s or more agreements of n have the probability delta.

    It is the delta-quantile of Beta(s, n − s + 1), and 0 for s = 0. P(low > τ) ≤ delta for every τ.

    >>> round(float(clopper_pearson_low(22, 22, 0.1)), 4)
    0.9006
    """
    s, n = _counts(agreed, draws, delta)
    return torch.where(s > 0, _beta_quantile(torch.where(s > 0, s, 1.0), n - s + 1, delta), 0.0)


def clopper_pearson_high(agreed: float | Tensor, draws: float | Tensor, delta: float) -> Tensor:
    """The exact one-sided upper bound: the τ at which s or fewer agreements of n have the probability delta.

    >>> round(float(clopper_pearson_high(0, 22, 0.1)), 4)
    0.0994
    """
    s, n = _counts(agreed, draws, delta)
    return torch.where(s < n, _beta_quantile(s + 1, torch.where(s < n, n - s, 1.0), 1 - delta), 1.0)


def clopper_pearson(
    agreed: float | Tensor, draws: float | Tensor, delta: float
) -> tuple[Tensor, Tensor]:
    """The exact two-sided interval (low, high), with delta / 2 on each side.

    >>> [round(float(bound), 4) for bound in clopper_pearson(45, 50, 0.1)]
    [0.8012, 0.9598]
    """
    return clopper_pearson_low(agreed, draws, delta / 2), clopper_pearson_high(
        agreed, draws, delta / 2
    )


def mean_rate_low(shares: Tensor, draws: Tensor, delta: float) -> float:
    """A lower bound of the mean of many rates τ_i from a share of agreements each; it fails with probability delta.

    `shares` (S,) are of `draws` (S,) fixed beforehand, independent or without replacement; where draws is 0 the share
    is τ_i itself. Samples with as many draws are pooled: their agreements are a sum of independent trials of unequal
    rates, whose upper tail lies below the binomial one with the mean rate from the mean + 1 on (Hoeffding 1956), so
    Clopper and Pearson's bound holds for delta up to a quarter and two agreements or more.

    >>> round(mean_rate_low(torch.tensor([1.0, 0.9, 0.5]), torch.tensor([20, 20, 0]), 0.1), 3)
    0.748
    """
    sizes = sorted({int(n) for n in draws.tolist()} - {0})
    total = float(shares[draws == 0].double().sum())
    for n in sizes:
        own = shares[draws == n].double()
        agreed = float((own * n).round().sum())
        level = min(check_share("delta", delta), 0.25) / len(sizes)
        total += len(own) * (
            float(clopper_pearson_low(agreed, n * len(own), level)) if agreed > 1 else 0.0
        )
    return total / len(shares)


def hoeffding(agreed: float | Tensor, draws: float | Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """The two-sided interval s/n ± √(log(2/delta) / 2n) of the paper, cut at 0 and 1.

    >>> [round(float(bound), 3) for bound in hoeffding(120, 150, 0.1)]
    [0.7, 0.9]
    """
    s, n = _counts(agreed, draws, delta)
    half = torch.sqrt(math.log(2 / delta) / (2 * n))
    return (s / n - half).clamp(min=0), (s / n + half).clamp(max=1)


def betting(agreed: float | Tensor, draws: float | Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """The interval (low, high) that holds at all numbers of draws at once, so one may stop whenever one likes.

    Against each τ a gambler bets on every draw by the Krichevsky-Trofimov rule; the capital after s agreements of n,
    B(s + ½, n − s + ½) / B(½, ½) / τ^s (1 − τ)^(n − s), is a martingale if τ is true. The interval holds the τ against
    which it never reached 1/delta; by Ville's inequality the true one is missed with probability at most delta, ever.

    >>> [round(float(bound), 3) for bound in betting(50, 50, 0.1)]
    [0.908, 1.0]
    """
    s, n = _counts(agreed, draws, delta)
    won = _log_beta(s + 0.5, n - s + 0.5) - _log_beta(
        torch.tensor(0.5).double(), torch.tensor(0.5).double()
    )

    def outside(rate: Tensor) -> Tensor:
        worth = won - torch.special.xlogy(s, rate) - torch.special.xlog1py(n - s, -rate)
        return torch.ge(worth, -math.log(delta))

    best = torch.where(n > 0, s / n.clamp(min=1), 0.5)
    return _edge(torch.zeros_like(best), best, outside), _edge(torch.ones_like(best), best, outside)


def mean_interval(
    values: Tensor, lowest: float, highest: float, delta: float
) -> tuple[Tensor, Tensor]:
    """Bounds (low, high), (B,) each, of the mean of a bounded variable from n independent draws (B, n).

    A gambler bets against a candidate mean m: the capital Π_i (1 + λ_i (u_i − m)) of draws u_i scaled to [0, 1] is a
    martingale if m is the mean, so it ever reaches 2/delta with probability at most delta/2 (Ville); the bound is
    where it does. The bets λ_i grow as the variance of the earlier draws falls and are cut at ¾/m. So the interval
    holds with probability 1 − delta like Hoeffding's, and is much shorter where the draws are alike.

    >>> [round(float(bound), 2) for bound in mean_interval(torch.ones(1, 50), -1.0, 1.0, 0.05)]
    [0.81, 1.0]
    """
    check_share("delta", delta)
    values = values.double()
    unit = ((values - lowest) / (highest - lowest)).clamp(0, 1)
    n = unit.shape[1]
    count = torch.arange(2, n + 2, dtype=torch.float64, device=unit.device)
    centre = (0.5 + unit.cumsum(1)) / count
    variance = (0.25 + (unit - centre).square().cumsum(1)) / count
    before = torch.cat([torch.full_like(unit[:, :1], 0.25), variance[:, :-1]], 1)
    bets = (2 * math.log(2 / delta) / (n * before)).sqrt()
    lost, width = values.isnan().any(1), highest - lowest
    low = torch.minimum(lowest + width * _largest_beaten(unit, bets, delta), values.mean(1))
    high = torch.maximum(highest - width * _largest_beaten(1 - unit, bets, delta), values.mean(1))
    return low.masked_fill(lost, torch.nan), high.masked_fill(lost, torch.nan)


def capital(
    agreed: float | Tensor, draws: float | Tensor, threshold: float, side: Literal["above", "below"]
) -> Tensor:
    """Capital of a gambler who bets on τ above (or below) the threshold; 1/delta or more proves it, at any time.

    The bets mix all rates p above the threshold t: the capital is the mean of p^s (1−p)^(n−s) / t^s (1−t)^(n−s) over p
    with density in proportion to (1 − p)^(−0.6) for "above", which is dense at 1 where stable explanations are, and
    uniform for "below". If τ is not above (below) t, its expectation is at most 1 at every stopping time.

    >>> round(float(capital(30, 30, 0.9, "above"))), round(float(capital(0, 2, 0.9, "below")))
    (13, 37)
    """
    s, n = _counts(agreed, draws, 0.5)
    check_share("threshold", threshold)
    f = n - s
    b = 0.4 if side == "above" else 1.0

    def share(p: Tensor, q: Tensor) -> Tensor:
        part = special.betainc(p.numpy(), q.numpy(), threshold)
        tail = special.betaincc(p.numpy(), q.numpy(), threshold)
        return torch.as_tensor(tail if side == "above" else part).clamp(min=1e-300)

    one = torch.ones_like(s)
    log = (
        _log_beta(s + 1, f + b)
        - _log_beta(one, one * b)
        + share(s + 1, f + b).log()
        - share(one, one * b).log()
    )
    return (log - s * math.log(threshold) - f * math.log1p(-threshold)).exp()


@lru_cache(maxsize=256)
def sample_size(
    epsilon: float, delta: float, method: Literal["exact", "hoeffding"] = "exact"
) -> int:
    """Draws after which |s/n − τ| ≤ epsilon with probability at least 1 − delta, whatever τ is.

    "hoeffding" is the paper's ⌈log(2/delta) / 2 epsilon²⌉. "exact" is the smallest n for which the exact binomial
    probability of an error beyond epsilon is at most delta for all τ.

    >>> sample_size(0.1, 0.1), sample_size(0.1, 0.1, "hoeffding")
    (70, 150)
    """
    check_share("epsilon", epsilon)
    check_share("delta", delta)
    most = math.ceil(math.log(2 / delta) / (2 * epsilon**2))
    if method == "hoeffding":
        return most
    normal = (float(special.ndtri(1 - delta / 2)) / (2 * epsilon)) ** 2
    return next(
        (n for n in range(max(1, int(normal / 2)), most) if worst_miss(n, epsilon) <= delta), most
    )


def worst_miss(draws: int, epsilon: float) -> float:
    """The largest probability over τ that |s/n − τ| exceeds epsilon, by exact binomial sums.

    Between two neighbouring τ at which the set of good s changes, the set is fixed and its probability has a single
    peak; so the smallest one is at an end.

    >>> round(worst_miss(150, 0.1), 3)
    0.014
    """
    s = np.arange(draws + 1)
    changes = np.concatenate([[0.0, 1.0], s / draws - epsilon, s / draws + epsilon])
    ends = np.unique(changes[(changes >= 0) & (changes <= 1)].round(12))
    middle = (ends[1:] + ends[:-1]) / 2
    first = np.ceil(draws * (middle - epsilon)).clip(0)
    last = np.floor(draws * (middle + epsilon)).clip(max=draws)
    inside = [
        special.bdtr(last, draws, tau) - _below(first, draws, tau) for tau in (ends[1:], ends[:-1])
    ]
    return float(1 - np.minimum(*inside).min())


def hard_size(epsilon: float, delta: float) -> int:
    """Draws n that, if all agree, certify τ ≥ 1 − epsilon: the smallest with (1 − epsilon)^n ≤ delta.

    >>> hard_size(0.1, 0.1)
    22
    """
    n = math.ceil(
        math.log(check_share("delta", delta)) / math.log1p(-check_share("epsilon", epsilon)) - 1e-9
    )
    return max(1, n)


def _counts(agreed: float | Tensor, draws: float | Tensor, delta: float) -> tuple[Tensor, Tensor]:
    check_share("delta", delta)
    s, n = torch.as_tensor(agreed, dtype=torch.float64), torch.as_tensor(draws, dtype=torch.float64)
    s, n = s + 0 * n, n + 0 * s
    if bool(((s < 0) | (s > n)).any()):
        raise UserError("there must be between 0 and `draws` agreements")
    return s, n


def _beta_quantile(a: Tensor, b: Tensor, p: float) -> Tensor:
    return torch.as_tensor(special.betaincinv(a.numpy(), b.numpy(), p))


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


def _below(first: np.ndarray[tuple[int], np.dtype[np.float64]], n: int, tau: object) -> object:
    """P(s < first)."""
    return np.where(first > 0, special.bdtr(np.maximum(first - 1, 0), n, tau), 0.0)


def _largest_beaten(unit: Tensor, bets: Tensor, delta: float) -> Tensor:
    """The largest mean (B,) against which the capital reached 2/delta, by bisection, erring to the smaller side."""
    low, high = (
        torch.zeros(len(unit), dtype=torch.float64),
        torch.ones(len(unit), dtype=torch.float64),
    )
    for _ in range(50):
        middle = ((low + high) / 2)[:, None]
        log_capital = (
            torch.log1p(torch.minimum(bets, 0.75 / middle) * (unit - middle)).cumsum(1).amax(1)
        )
        won = log_capital >= math.log(2 / delta)
        low, high = torch.where(won, middle[:, 0], low), torch.where(won, high, middle[:, 0])
    return low


def _edge(outer: Tensor, inner: Tensor, outside: Callable[[Tensor], Tensor]) -> Tensor:
    """The border between the points that are `outside` and `inner`, by bisection, erring to the outer side."""
    low, high = outer, inner
    for _ in range(60):
        middle = (low + high) / 2
        out = outside(middle)
        low, high = torch.where(out, middle, low), torch.where(out, high, middle)
    return low
