"""Group-sequential rules for an unknown rate τ, as tables: when to stop drawing, and what is then guaranteed.

A rule looks at the number of agreements s after n = n₁ < n₂ < … draws. Its tables say for every look and s whether
to stop, and which bounds hold then. Their guarantees are computed exactly, by summing over all ways to stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor

from heatproof.errors import unknown
from heatproof.statistics.bounds import (
    betting,
    capital,
    hoeffding,
    sample_size,
    zero_failure_sample_size,
)

Method = Literal["clopper-pearson", "hoeffding", "betting"]
Floats = npt.NDArray[np.float64]

YES, NO, OPEN = 1, 0, -1
"""Decisions: shown, refuted, not decided."""

_LOOKS = 26
_GRID = 2000
_REFINED_UP_TO = 1200


@dataclass(frozen=True, eq=False)
class Rule:
    """Looks n₁ < … < n_L and tables (L, n_L + 1), with a row per look and a column per number of agreements.

    `stop` is boolean, `low` and `high` are float64 bounds for τ, `decision` int64. At the last look all stop.
    """

    looks: tuple[int, ...]
    stop: Tensor
    low: Tensor
    high: Tensor
    decision: Tensor


@dataclass(frozen=True)
class Endings:
    """All ways in which a rule can end, (E,) each: draws, agreements, and the log of the number of ways there.

    Draws are independent, or without replacement from a `population` of so many.
    """

    look: npt.NDArray[np.int64]
    draws: Floats
    agreed: Floats
    log_ways: Floats
    population: int | None = None

    def law(self, tau: npt.ArrayLike) -> Floats:
        """Probability of each ending, (T, E) for rates (T,)."""
        rate = np.asarray(tau, dtype=np.float64).reshape(-1, 1)
        missed = self.draws - self.agreed
        if self.population is not None:
            good, all_ = np.rint(rate * self.population), float(self.population)
            orders = (
                _log_orders(good, self.agreed)
                + _log_orders(all_ - good, missed)
                - _log_orders(all_, self.draws)
            )
            return np.asarray(np.exp(self.log_ways + orders))
        log: Floats = (
            self.log_ways + special.xlogy(self.agreed, rate) + special.xlog1py(missed, -rate)
        )
        return np.exp(log)


@lru_cache(maxsize=64)
def estimate_rule(
    epsilon: float, delta: float, method: Method = "clopper-pearson", population: int | None = None
) -> Rule:
    """Draw until s/n is within ± epsilon of τ, guaranteed with probability 1 − delta; `low` ≤ τ with 1 − delta too.

    "clopper-pearson" stops as early as the exact probability of an error beyond epsilon, all looks included, stays at
    most delta for every τ; `low` and `high` are then the exact one-sided bounds for the endings ordered by s/n, each
    at delta, which for a single look are those of Clopper and Pearson. "hoeffding" draws
    the paper's number. "betting" stops when its interval, which holds at all times at once, lies within ± epsilon.
    Draws without replacement from a `population` of so many need fewer; the first method knows how.

    >>> estimate_rule(0.1, 0.1).looks[-1], estimate_rule(0.1, 0.1, population=148).looks[-1]
    (78, 55)
    >>> rule = estimate_rule(0.1, 0.1, "hoeffding")
    >>> rule.looks, round(float(rule.low[0, 150]), 2)
    ((150,), 0.9)
    """
    if method == "hoeffding":
        n = sample_size(epsilon, delta, "hoeffding")
        low, high = hoeffding(torch.arange(n + 1), n, delta)
        return Rule((n,), torch.ones(1, n + 1).bool(), low[None], high[None], _all_open(1, n))
    if method == "betting":
        return _betting_rule(epsilon, delta)
    if method != "clopper-pearson":
        raise unknown("method", method, ("clopper-pearson", "hoeffding", "betting"))
    fixed = (
        sample_size(epsilon, delta)
        if population is None
        else _fixed_size(epsilon, delta, population)
    )
    most = min(math.ceil(1.11 * fixed), population or 10 * fixed)
    for factor in (
        1.0,
        0.8,
        0.7,
        0.6,
        0.5,
        0.4,
        0.3,
        0.2,
        0.1,
        0.01,
        0.0,
    ):  # with 0 it is one look at the end
        looks, stop = _estimate_stops(epsilon, factor * delta, most, population)
        ends = endings(looks, stop, population)
        if _worst_error(ends, epsilon) <= delta:
            break
    return Rule(
        looks,
        torch.as_tensor(stop),
        *_bound_tables(looks, ends, delta),
        _all_open(len(looks), looks[-1]),
    )


@lru_cache(maxsize=64)
def decide_rule(threshold: float, delta: float, most: int) -> Rule:
    """Draw until a gambler has shown τ ≥ threshold (YES) or τ < threshold (NO), or up to `most` draws (OPEN).

    Capital 1/delta would be proof without any limit on the draws. With a limit less will do: the targets are lowered
    as far as the exact probability of a wrong decision stays at most delta. It is largest at τ = threshold, because
    more agreements never turn a YES into a NO. The bounds are exact one-sided ones, each at delta.

    >>> decide_rule(0.9, 0.1, 70).looks[-1]
    70
    """
    looks = _looks_from(2, most)
    s = torch.arange(looks[-1] + 1)
    yes, no = (
        torch.stack([capital(s.clamp(max=n), n, threshold, side) for n in looks])
        for side in ("above", "below")
    )
    last = torch.tensor([n == looks[-1] for n in looks])[:, None]

    def wrong(targets: tuple[float, float]) -> tuple[float, float]:
        shown, refuted = yes >= targets[0], no >= targets[1]
        ends = endings(looks, (shown | refuted | last).numpy())
        cells, law = (ends.look, ends.agreed.astype(np.int64)), ends.law(threshold)[0]
        return float(law @ shown.numpy()[cells]), float(law @ refuted.numpy()[cells])

    targets = (1 / delta, 1 / delta)
    for side in (1, 0):
        low, high = 1.0, 1 / delta
        for _ in range(20):
            middle = (low + high) / 2
            tried = (middle, targets[1]) if side == 0 else (targets[0], middle)
            low, high = (low, middle) if wrong(tried)[side] <= delta else (middle, high)
        targets = (high, targets[1]) if side == 0 else (targets[0], high)
    shown, refuted = yes >= targets[0], no >= targets[1]
    decision = torch.where(shown, YES, torch.where(refuted, NO, OPEN))
    stop = shown | refuted | last
    return Rule(
        looks, stop, *_bound_tables(looks, endings(looks, stop.numpy()), delta, decision), decision
    )


@lru_cache(maxsize=64)
def hard_rule(epsilon: float, delta: float) -> Rule:
    """Draw until the first disagreement (NO) or until enough agreed to certify τ ≥ 1 − epsilon (YES).

    This is not a proof of hard stability: it certifies a rate. A disagreement does refute hard stability.

    >>> rule = hard_rule(0.1, 0.1)
    >>> rule.looks[-1], round(float(rule.low[-1, 22]), 4)
    (22, 0.9006)
    """
    most = zero_failure_sample_size(epsilon, delta)
    looks = tuple(sorted({min(2**i, most) for i in range(64) if 2**i < 2 * most} | {most}))
    s = torch.arange(most + 1)
    stop = torch.stack([(s < n) | (n == most) for n in looks])
    ends = endings(looks, stop.numpy())
    decision = torch.stack([torch.where(s >= n, YES, NO) for n in looks])
    return Rule(looks, stop, *_bound_tables(looks, ends, delta, decision), decision)


def _all_open(looks: int, most: int) -> Tensor:
    return torch.full((looks, most + 1), OPEN)


def _looks_from(first: int, most: int) -> tuple[int, ...]:
    """Every draw at first, then every second, and later steps of a sixteenth."""
    looks, n = [], min(first, most)
    while n < most:
        looks.append(n)
        n += 1 if n < 8 else max(2, n // 16)
    return (*looks, most)


def _betting_rule(epsilon: float, delta: float) -> Rule:
    def fits(n: int, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low, high = betting(s, n, delta)
        return low, high, (s / n - low <= epsilon) & (high - s / n <= epsilon)

    most = sample_size(epsilon, delta, "hoeffding")
    while not bool(fits(most, torch.arange(most + 1))[2].all()):
        most += max(1, most // 20)
    first = next(n for n in range(1, most + 1) if bool(fits(n, torch.tensor([n]))[2]))
    looks = _looks_from(first, most)
    s = torch.arange(most + 1)
    rows = [fits(n, s.clamp(max=n)) for n in looks]
    low, high, stop = (torch.stack([row[i] for row in rows]) for i in range(3))
    return Rule(looks, stop, low, high, _all_open(len(looks), most))


@lru_cache(maxsize=256)
def _fixed_size(epsilon: float, delta: float, population: int) -> int:
    """`sample_size` for draws without replacement."""
    last = sample_size(epsilon, delta)
    for n in range(1, min(last, population)):
        s = np.arange(n + 1.0)
        ways = _log_orders(float(n), s) - special.gammaln(s + 1)
        ends = Endings(np.zeros(n + 1, np.int64), np.full(n + 1, float(n)), s, ways, population)
        if _worst_error(ends, epsilon) <= delta:
            return n
    return min(last, population)


def _log_orders(of: Floats | float, k: Floats) -> Floats:
    """The log of of·(of − 1)···(of − k + 1), −∞ where there are too few."""
    left = np.asarray(of - k)
    orders = special.gammaln(np.asarray(of) + 1.0) - special.gammaln(np.maximum(left, 0) + 1)
    return np.where(left < 0, -np.inf, orders)


def _estimate_stops(
    epsilon: float, level: float, most: int, population: int | None
) -> tuple[tuple[int, ...], npt.NDArray[np.bool_]]:
    """Looks, and where an error beyond epsilon would have at most the probability `level` if all τ were as likely.

    The prior only shapes the rule, and so does the worth of draws without replacement as independent ones; what it
    guarantees for each τ is computed afterwards.
    """

    def settled(n: int, s: Floats) -> npt.NDArray[np.bool_]:
        worth = 1.0 if population is None else (population - 1) / max(population - n, 1e-9)
        a, b, rate = worth * s + 1, worth * (n - s) + 1, s / n
        below = special.betainc(a, b, np.clip(rate - epsilon, 0, 1))
        within: npt.NDArray[np.bool_] = (
            below + special.betaincc(a, b, np.clip(rate + epsilon, 0, 1)) <= level
        )
        return within

    first = next((n for n in range(1, most) if settled(n, np.array([float(n)]))[0]), most)
    looks = (*range(first, most, max(1, -(-(most - first) // _LOOKS))), most)
    s = np.arange(most + 1.0)
    return looks, np.stack([settled(n, np.minimum(s, n)) | (n == most) for n in looks])


def endings(
    looks: tuple[int, ...], stop: npt.NDArray[np.bool_], population: int | None = None
) -> Endings:
    """Every ending of a rule, counted look by look: what has not stopped goes on, in C(gap, j) ways for j agreements.

    >>> rule = hard_rule(0.5, 0.25)
    >>> ends = endings(rule.looks, rule.stop.numpy())
    >>> float(ends.law(0.3).sum().round(12)), ends.draws.tolist()
    (1.0, [1.0, 2.0, 2.0])
    """
    most = looks[-1]
    ways = np.full(most + 1, -np.inf)
    ways[0] = 0.0
    at, stopped = 0, []
    for look, n in enumerate(looks):
        gap = n - at
        choices = special.gammaln(gap + 1) - special.gammaln(np.arange(gap + 1) + 1)
        choices = choices - special.gammaln(gap - np.arange(gap + 1) + 1)
        padded = np.concatenate([np.full(gap, -np.inf), ways])
        shifted = np.lib.stride_tricks.sliding_window_view(padded, gap + 1)[:, ::-1]
        peak = np.maximum((shifted + choices).max(1), -1e300)
        with np.errstate(divide="ignore"):
            ways = peak + np.log(np.exp(shifted + choices - peak[:, None]).sum(1))
        here = np.flatnonzero(stop[look] & np.isfinite(ways) & (np.arange(most + 1) <= n))
        stopped.append(
            (np.full(len(here), look), np.full(len(here), float(n)), here.astype(float), ways[here])
        )
        ways[stop[look]] = -np.inf
        at = n
    parts = [np.concatenate(columns) for columns in zip(*stopped, strict=True)]
    return Endings(parts[0].astype(np.int64), parts[1], parts[2], parts[3], population)


def _worst_error(ends: Endings, epsilon: float) -> float:
    """An upper bound, over all τ, on the probability that s/n at the end is further than epsilon from τ.

    On each small interval of τ every ending that errs somewhere in it counts with its largest probability there.
    """
    rate = ends.agreed / ends.draws
    if ends.population is not None:
        tau = np.arange(ends.population + 1) / ends.population
        return float((ends.law(tau) * (np.abs(rate - tau[:, None]) > epsilon + 1e-12)).sum(1).max())
    grid = np.linspace(0, 1, _GRID + 1)
    a, b = grid[:-1, None], grid[1:, None]
    wrong = (rate > a + epsilon - 1e-12) | (rate < b - epsilon + 1e-12)
    peak = np.clip(rate, a, b)
    log = (
        ends.log_ways
        + special.xlogy(ends.agreed, peak)
        + special.xlog1py(ends.draws - ends.agreed, -peak)
    )
    return float((np.exp(log) * wrong).sum(1).max())


def _bound_tables(
    looks: tuple[int, ...], ends: Endings, delta: float, decision: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Exact one-sided bounds at every ending, each at delta, as tables: low and high (L, n_L + 1).

    The endings are ordered by s/n, after NO < OPEN < YES where there are decisions. low is the smallest τ at which
    this ending and those after it have a probability above delta. For the true τ, low > τ means that they have at most
    the probability delta; of such sets of endings the largest holds them all, so this has at most the probability
    delta. For any order it is true; this one makes a YES come with a low at the threshold or above.
    """
    cells = (ends.look, ends.agreed.astype(np.int64))
    score = ends.agreed / ends.draws
    if decision is not None:
        decided = decision.numpy()[cells]
        score = score + 2.0 * np.where(decided == YES, 2, np.where(decided == OPEN, 1, 0))
    swapped = Endings(
        ends.look, ends.draws, ends.draws - ends.agreed, ends.log_ways, ends.population
    )
    tables = torch.zeros(2, len(looks), looks[-1] + 1, dtype=torch.float64)
    tables[0][cells] = torch.as_tensor(_lowest(ends, score, delta))
    tables[1][cells] = torch.as_tensor(1 - _lowest(swapped, -score, delta))
    return tables[0], tables[1]


def _lowest(ends: Endings, score: Floats, delta: float) -> Floats:
    score = score.round(12)
    order = np.argsort(-score, kind="stable")
    values = np.unique(-score)
    last = np.searchsorted(-score[order], values, side="right") - 1  # ties count together
    value = np.searchsorted(values, -score)
    steps = ends.population or _GRID
    grid = np.linspace(0, 1, steps + 1)
    above = ends.law(grid)[:, order].cumsum(1)[:, last] > delta  # (grid, values)
    first = np.where(above.any(0), above.argmax(0), steps)
    if ends.population is not None:  # the grid has every τ there is
        exact: Floats = grid[first][value]
        return exact
    low, high = grid[np.maximum(first - 1, 0)], grid[first]
    if len(values) <= _REFINED_UP_TO:
        upper = score >= -values[:, None] - 1e-12
        for _ in range(30):
            middle = (low + high) / 2
            over = (ends.law(middle) * upper).sum(1) > delta
            low, high = np.where(over, low, middle), np.where(over, middle, high)
    bounds: Floats = np.where(first == 0, 0.0, low)[value]
    return bounds
