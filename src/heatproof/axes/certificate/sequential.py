"""Group-sequential rules for an unknown rate τ, as tables: when to stop drawing, and what is then guaranteed.

A rule looks at the number of agreements s after n = n₁ < n₂ < … draws. Its tables say for every look and s whether
to stop, and which bounds hold then. Their guarantees are computed exactly, by summing over all ways to stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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

_MOST_LOOKS = 26
"""About so many looks: more of them save few draws, and the exact probabilities take longer to compute."""
_GRID = 2000
"""How many intervals [0, 1] is cut into where something is computed for every τ."""
_MOST_REFINED = 1200
"""Up to so many different scores, bounds are refined beyond the grid; with more they stay at its points."""
_SHRINK = (1.0, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.01, 0.0)
"""Shares of δ for which stopping early is tried; with 0 it is one look at the end."""


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
    """All E ways in which a rule can end, as columns (E,).

    `look` is the index of the look, `draws` and `agreed` are the numbers of draws and agreements, `log_ways` the log of
    the number of sequences of outcomes that end so. Draws are independent, or without replacement from `population`.
    """

    look: npt.NDArray[np.int64]
    draws: Floats
    agreed: Floats
    log_ways: Floats
    population: int | None = None

    def law(self, tau: npt.ArrayLike) -> Floats:
        """Return the probability of each ending, (T, E) for rates τ (T,).

        Every sequence of s agreements in n draws has the probability τ^s (1 − τ)^(n − s). Without replacement from N
        items, of which G = τN agree, it is G(G − 1)···(G − s + 1) · (N − G)···(N − G − n + s + 1) / N···(N − n + 1).
        """
        rate = np.asarray(tau, dtype=np.float64).reshape(-1, 1)
        missed = self.draws - self.agreed
        if self.population is None:
            log_sequence = special.xlogy(self.agreed, rate) + special.xlog1py(missed, -rate)
        else:
            items = float(self.population)
            good = np.rint(rate * items)
            log_sequence = (
                _log_falling(good, self.agreed)
                + _log_falling(items - good, missed)
                - _log_falling(items, self.draws)
            )
        probability: Floats = np.exp(self.log_ways + log_sequence)
        return probability


@lru_cache(maxsize=64)
def estimate_rule(
    epsilon: float, delta: float, method: Method = "clopper-pearson", population: int | None = None
) -> Rule:
    """Return the rule that draws until s/n is within ± epsilon of τ with probability 1 − delta; so is `low` ≤ τ.

    "clopper-pearson" stops as early as the exact probability of an error beyond epsilon, all looks included, stays at
    most delta for every τ; `low` and `high` are then the exact one-sided bounds for the endings ordered by s/n, each
    at delta, which for a single look are those of Clopper and Pearson. "hoeffding" draws as many as the paper says
    (Theorem 3.1: N ≥ log(2/δ) / 2ε²), which is right but more than is needed. "betting" stops when its interval, which
    holds at all times at once, lies within ± epsilon. Draws without replacement from a `population` need fewer; they
    are for the first method.

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
    if population is None:
        single_look = sample_size(epsilon, delta)
        limit = 10 * single_look
    else:
        single_look = _size_without_replacement(epsilon, delta, population)
        limit = population
    # A tenth more draws at most leaves room for stopping early at the other rates.
    most_draws = min(math.ceil(1.11 * single_look), limit)
    for share in _SHRINK:
        looks, stop = _early_stops(epsilon, share * delta, most_draws, population)
        ends = endings(looks, stop, population)
        if _worst_error(ends, epsilon) <= delta:
            break
    low, high = _bound_tables(looks, ends, delta)
    return Rule(looks, torch.as_tensor(stop), low, high, _all_open(len(looks), looks[-1]))


@lru_cache(maxsize=64)
def decide_rule(threshold: float, delta: float, most: int) -> Rule:
    """Return the rule that draws until a gambler has shown τ ≥ threshold (YES) or τ < threshold (NO).

    It stays OPEN after `most` draws. A capital of 1/delta would be proof without any limit on the draws. With a limit
    less will do: the capital that is asked for is lowered as far as the exact probability of a wrong decision stays at
    most delta. It is largest at τ = threshold, because more agreements never turn a YES into a NO. The bounds are exact
    one-sided ones, each at delta.

    >>> decide_rule(0.9, 0.1, 70).looks[-1]
    70
    """
    looks = _looks_from(2, most)
    agreed = torch.arange(looks[-1] + 1)
    is_last = torch.tensor([n == looks[-1] for n in looks])[:, None]
    # The capital of two gamblers after every look and number of agreements, (L, n_L + 1): one bets that τ is above the
    # threshold, the other that it is below.
    above = torch.stack([capital(agreed.clamp(max=n), n, threshold, "above") for n in looks])
    below = torch.stack([capital(agreed.clamp(max=n), n, threshold, "below") for n in looks])

    def errors(yes_capital: float, no_capital: float) -> tuple[float, float]:
        """Return the probabilities of a YES and of a NO at τ = threshold."""
        is_yes, is_no = above >= yes_capital, below >= no_capital
        ends = endings(looks, (is_yes | is_no | is_last).numpy())
        cells = (ends.look, ends.agreed.astype(np.int64))
        law = ends.law(threshold)[0]
        return float(law @ is_yes.numpy()[cells]), float(law @ is_no.numpy()[cells])

    # First the least capital for a NO while a YES asks for 1/delta, then the least for a YES beside it.
    proof = 1 / delta
    no_capital = _least_capital(lambda least: errors(proof, least)[1] <= delta, proof)
    yes_capital = _least_capital(lambda least: errors(least, no_capital)[0] <= delta, proof)

    is_yes, is_no = above >= yes_capital, below >= no_capital
    decision = torch.where(is_yes, YES, torch.where(is_no, NO, OPEN))
    stop = is_yes | is_no | is_last
    low, high = _bound_tables(looks, endings(looks, stop.numpy()), delta, decision)
    return Rule(looks, stop, low, high, decision)


def _least_capital(is_enough: Callable[[float], bool], proof: float) -> float:
    """Return the least capital between 1 and `proof` that is enough, by bisection; `proof` always is."""
    low, high = 1.0, proof
    for _ in range(20):
        middle = (low + high) / 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=64)
def hard_rule(epsilon: float, delta: float) -> Rule:
    """Return the rule that draws until the first disagreement (NO) or until τ ≥ 1 − epsilon is certified (YES).

    This is not a proof of hard stability: it certifies a rate. The number of draws is that of Theorem 3.2 of the paper,
    which calls it hard stability. A disagreement does refute hard stability.

    >>> rule = hard_rule(0.1, 0.1)
    >>> rule.looks[-1], round(float(rule.low[-1, 22]), 4)
    (22, 0.9006)
    """
    most = zero_failure_sample_size(epsilon, delta)
    looks = _doubling_looks(most)
    agreed = torch.arange(most + 1)
    stop = torch.stack([(agreed < n) | (n == most) for n in looks])
    decision = torch.stack([torch.where(agreed >= n, YES, NO) for n in looks])
    low, high = _bound_tables(looks, endings(looks, stop.numpy()), delta, decision)
    return Rule(looks, stop, low, high, decision)


def _all_open(looks: int, most: int) -> Tensor:
    """Return the table of decisions of a rule that decides nothing."""
    return torch.full((looks, most + 1), OPEN)


def _doubling_looks(most: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … and `most`: most disagreements show early, and few looks fill the batches of the model."""
    looks = []
    n = 1
    while n < most:
        looks.append(n)
        n *= 2
    return (*looks, most)


def _looks_from(first: int, most: int) -> tuple[int, ...]:
    """Return looks after every draw at first, then after every second, later in steps of a sixteenth, up to `most`."""
    looks, n = [], min(first, most)
    while n < most:
        looks.append(n)
        n += 1 if n < 8 else max(2, n // 16)
    return (*looks, most)


def _betting_rule(epsilon: float, delta: float) -> Rule:
    """Return the rule that stops when the interval of a bettor lies within ± epsilon of s/n."""

    def is_narrow(n: int, agreed: Tensor) -> Tensor:
        low, high = betting(agreed, n, delta)
        return (agreed / n - low <= epsilon) & (high - agreed / n <= epsilon)

    # The number of draws after which the interval is narrow however many agreed.
    most = sample_size(epsilon, delta, "hoeffding")
    while not bool(is_narrow(most, torch.arange(most + 1)).all()):
        most += max(1, most // 20)
    # The interval is narrowest if all agree, so looks before this one would never stop.
    first = next(n for n in range(1, most + 1) if bool(is_narrow(n, torch.tensor([n]))))
    looks = _looks_from(first, most)
    agreed = torch.arange(most + 1)
    bounds = [betting(agreed.clamp(max=n), n, delta) for n in looks]
    low = torch.stack([low for low, _ in bounds])
    high = torch.stack([high for _, high in bounds])
    stop = torch.stack([is_narrow(n, agreed.clamp(max=n)) for n in looks])
    return Rule(looks, stop, low, high, _all_open(len(looks), most))


@lru_cache(maxsize=256)
def _size_without_replacement(epsilon: float, delta: float, population: int) -> int:
    """Return how many draws without replacement a single look needs: `sample_size` for a population of items."""
    independent = sample_size(epsilon, delta)
    for n in range(1, min(independent, population)):
        agreed = np.arange(n + 1.0)
        log_ways = _log_falling(float(n), agreed) - special.gammaln(agreed + 1)  # of C(n, s)
        look, draws = np.zeros(n + 1, np.int64), np.full(n + 1, float(n))
        ends = Endings(look, draws, agreed, log_ways, population)
        if _worst_error(ends, epsilon) <= delta:
            return n
    return min(independent, population)


def _log_falling(n: Floats | float, k: Floats) -> Floats:
    """Return the log of n(n − 1)···(n − k + 1), the number of ways to draw k of n in order, −∞ for k > n."""
    rest = np.asarray(n - k)
    log = special.gammaln(np.asarray(n) + 1.0) - special.gammaln(np.maximum(rest, 0) + 1)
    return np.where(rest < 0, -np.inf, log)


def _early_stops(
    epsilon: float, level: float, most: int, population: int | None
) -> tuple[tuple[int, ...], npt.NDArray[np.bool_]]:
    """Return looks, and where to stop: (L, n_L + 1) boolean, a row per look and a column per number of agreements.

    It stops where the posterior probability of an error beyond epsilon is at most `level`, with all τ equally likely
    beforehand. The prior only shapes the rule, and so does the weight that draws without replacement have as
    independent ones: what the rule guarantees for each τ is computed afterwards.
    """

    def is_settled(n: int, agreed: Floats) -> npt.NDArray[np.bool_]:
        """Whether an error beyond epsilon is improbable enough after n draws, by number of agreements (S,)."""
        weight = 1.0 if population is None else (population - 1) / max(population - n, 1e-9)
        a, b = weight * agreed + 1, weight * (n - agreed) + 1
        rate = agreed / n
        too_low = special.betainc(a, b, np.clip(rate - epsilon, 0, 1))
        too_high = special.betaincc(a, b, np.clip(rate + epsilon, 0, 1))
        settled: npt.NDArray[np.bool_] = too_low + too_high <= level
        return settled

    first = most
    for n in range(1, most):
        if is_settled(n, np.array([float(n)]))[0]:
            first = n
            break
    step = max(1, math.ceil((most - first) / _MOST_LOOKS))
    looks = (*range(first, most, step), most)
    agreed = np.arange(most + 1.0)
    stop = [is_settled(n, np.minimum(agreed, n)) | (n == most) for n in looks]
    return looks, np.stack(stop)


def endings(
    looks: tuple[int, ...], stop: npt.NDArray[np.bool_], population: int | None = None
) -> Endings:
    """Return every ending of a rule that stops where `stop` (L, n_L + 1) says.

    Sequences are counted look by look: those that have not stopped go on, and reach j more agreements in C(gap, j) ways.

    >>> rule = hard_rule(0.5, 0.25)
    >>> ends = endings(rule.looks, rule.stop.numpy())
    >>> float(ends.law(0.3).sum().round(12)), ends.draws.tolist()
    (1.0, [1.0, 2.0, 2.0])
    """
    most = looks[-1]
    log_ways = np.full(
        most + 1, -np.inf
    )  # by number of agreements, of sequences that have not stopped
    log_ways[0] = 0.0
    draws = 0
    look_of, draws_of, agreed_of, log_ways_of = [], [], [], []
    for look, n in enumerate(looks):
        log_ways = _log_ways_after(log_ways, n - draws)
        draws = n
        is_possible = np.isfinite(log_ways) & (np.arange(most + 1) <= n)
        agreed = np.flatnonzero(stop[look] & is_possible)
        look_of.append(np.full(len(agreed), look, dtype=np.int64))
        draws_of.append(np.full(len(agreed), float(n)))
        agreed_of.append(agreed.astype(np.float64))
        log_ways_of.append(log_ways[agreed])
        log_ways[stop[look]] = -np.inf
    return Endings(
        np.concatenate(look_of),
        np.concatenate(draws_of),
        np.concatenate(agreed_of),
        np.concatenate(log_ways_of),
        population,
    )


def _log_ways_after(log_ways: Floats, gap: int) -> Floats:
    """Return the log numbers of sequences by agreements (n + 1,) after `gap` more draws.

    It is a convolution with the binomial coefficients C(gap, j), of logs, since the numbers overflow.
    """
    j = np.arange(gap + 1)
    log_choose = special.gammaln(gap + 1) - special.gammaln(j + 1) - special.gammaln(gap - j + 1)
    padded = np.concatenate([np.full(gap, -np.inf), log_ways])
    # Row s holds the log numbers of s, s − 1, …, s − gap agreements, to which 0, 1, …, gap are added.
    before = np.lib.stride_tricks.sliding_window_view(padded, gap + 1)[:, ::-1]
    terms = before + log_choose
    peak = np.maximum(terms.max(1), -1e300)  # finite, where nothing leads to s
    with np.errstate(divide="ignore"):
        total: Floats = peak + np.log(np.exp(terms - peak[:, None]).sum(1))
    return total


def _worst_error(ends: Endings, epsilon: float) -> float:
    """Return an upper bound, over all τ, on the probability that s/n at the end is further than epsilon from τ.

    On each small interval of τ every ending that errs somewhere in it counts with its largest probability there.
    """
    rate = ends.agreed / ends.draws
    if ends.population is not None:
        # Only multiples of 1/N are possible, so every τ is tried.
        tau = np.arange(ends.population + 1) / ends.population
        is_wrong = np.abs(rate - tau[:, None]) > epsilon + 1e-12
        return float((ends.law(tau) * is_wrong).sum(1).max())
    grid = np.linspace(0, 1, _GRID + 1)
    left, right = grid[:-1, None], grid[1:, None]
    is_wrong = (rate > left + epsilon - 1e-12) | (rate < right - epsilon + 1e-12)
    likeliest_tau = np.clip(rate, left, right)
    missed = ends.draws - ends.agreed
    log_sequence = special.xlogy(ends.agreed, likeliest_tau) + special.xlog1py(
        missed, -likeliest_tau
    )
    return float((np.exp(ends.log_ways + log_sequence) * is_wrong).sum(1).max())


def _bound_tables(
    looks: tuple[int, ...], ends: Endings, delta: float, decision: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return exact one-sided bounds at every ending, each at delta, as tables: low and high (L, n_L + 1).

    The endings are ordered by s/n, after NO < OPEN < YES where there are decisions. low is the smallest τ at which
    this ending and those after it have a probability above delta. For the true τ, low > τ means that they have at most
    the probability delta; of such sets of endings the largest holds them all, so this has at most the probability
    delta. For any order it is true; this one makes a YES come with a low at the threshold or above.
    """
    cells = (ends.look, ends.agreed.astype(np.int64))
    score = ends.agreed / ends.draws
    if decision is not None:
        decided = decision.numpy()[cells]
        # Larger than any difference of two rates, so that the decision comes before the rate.
        score = score + 2.0 * np.where(decided == YES, 2, np.where(decided == OPEN, 1, 0))
    # A high bound of τ is a low bound of 1 − τ, the rate of disagreements.
    disagreements = replace(ends, agreed=ends.draws - ends.agreed)
    low, high = torch.zeros(2, len(looks), looks[-1] + 1, dtype=torch.float64)
    low[cells] = torch.as_tensor(_low_bounds(ends, score, delta))
    high[cells] = torch.as_tensor(1 - _low_bounds(disagreements, -score, delta))
    return low, high


def _low_bounds(ends: Endings, score: Floats, delta: float) -> Floats:
    """Return for each ending the smallest τ at which endings with its `score` (E,) or more have more than delta, (E,).

    Endings of equal score count together. The bounds are rounded down.
    """
    score = score.round(12)
    order = np.argsort(-score, kind="stable")
    distinct = np.unique(-score)  # the largest score first
    last_of_distinct = np.searchsorted(-score[order], distinct, side="right") - 1
    distinct_of_ending = np.searchsorted(distinct, -score)

    # The probability of a score or more, at every point of the grid: (grid, distinct scores).
    steps = ends.population or _GRID
    grid = np.linspace(0, 1, steps + 1)
    tail = ends.law(grid)[:, order].cumsum(1)[:, last_of_distinct]
    is_above = tail > delta
    first_above = np.where(is_above.any(0), is_above.argmax(0), steps)
    if ends.population is not None:
        # The grid has every τ that is possible.
        exact: Floats = grid[first_above][distinct_of_ending]
        return exact

    # τ lies between this point and the one before it: bisect, and keep the lower end.
    low, high = grid[np.maximum(first_above - 1, 0)], grid[first_above]
    if len(distinct) <= _MOST_REFINED:
        has_score_or_more = score >= -distinct[:, None] - 1e-12
        for _ in range(30):
            middle = (low + high) / 2
            is_above = (ends.law(middle) * has_score_or_more).sum(1) > delta
            low = np.where(is_above, low, middle)
            high = np.where(is_above, middle, high)
    bounds: Floats = np.where(first_above == 0, 0.0, low)[distinct_of_ending]
    return bounds
