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
        """Return the probability of each way in which a sequential test can end, (T, E) for rates of agreement τ (T,).

        Ending e has `draws` n and `agreed` s, and exp(`log_ways`) sequences of outcomes lead to it. Each of these sequences
        has the probability τ^s (1 − τ)^(n − s) for independent draws. Without replacement from a `population` of N items,
        of which G = τN agree, it is G(G − 1)···(G − s + 1) · (N − G)···(N − G − n + s + 1) / N(N − 1)···(N − n + 1).
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
    """Return the stopping rule for estimating a rate τ to ± epsilon with probability 1 − delta.

    After n draws of which s agree, the estimate is s/n. The rule says at which n and s to stop, with one-sided bounds
    `low` and `high` of τ that each fail with probability delta at most.

    "clopper-pearson"  stops as early as the exact probability of an error beyond epsilon, over all looks, allows for
                       every τ. The bounds are exact for endings ordered by s/n (Clopper and Pearson's for a single look)
    "hoeffding"        draws N ≥ log(2/δ) / 2ε² times, as in Theorem 3.1 of Jin et al. (2025): valid, but more than needed
    "betting"          stops when an interval that holds at all n at once lies within ± epsilon of s/n

    Draws without replacement from a `population` need fewer; only "clopper-pearson" has a rule for them.

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
    # Every early stop adds to the error. A maximum of a tenth more draws than a single look needs makes up for that.
    most_draws = min(math.ceil(1.11 * single_look), limit)
    # Stop early as often as possible: take the largest level of the stopping criterion that keeps the error below delta.
    for share in _SHRINK:
        looks, stop = _early_stops(epsilon, share * delta, most_draws, population)
        ends = endings(looks, stop, population)
        if _worst_error(ends, epsilon) <= delta:
            break
    low, high = _bound_tables(looks, ends, delta)
    return Rule(looks, torch.as_tensor(stop), low, high, _all_open(len(looks), looks[-1]))


@lru_cache(maxsize=64)
def decide_rule(threshold: float, delta: float, most: int) -> Rule:
    """Return the stopping rule for deciding whether a rate τ is at least the threshold: YES, NO, or OPEN after `most` draws.

    It is a test by betting: a gambler bets on τ > threshold, another on τ < threshold, and the first to reach a required
    capital decides. A capital of 1/delta is proof for any number of draws (Ville's inequality). Because draws are
    limited to `most`, less is enough: each required capital is lowered as far as the exact probability of the wrong
    decision at τ = threshold stays at most delta. That is its largest value, since more agreements never turn a YES
    into a NO. `low` and `high` of the rule are exact one-sided bounds, each at delta.

    >>> decide_rule(0.9, 0.1, 70).looks[-1]
    70
    """
    looks = _looks_from(2, most)
    agreed = torch.arange(looks[-1] + 1)
    is_last = torch.tensor([n == looks[-1] for n in looks])[:, None]
    # The capital of both gamblers after every look and number of agreements, (L, n_L + 1).
    above = torch.stack([capital(agreed.clamp(max=n), n, threshold, "above") for n in looks])
    below = torch.stack([capital(agreed.clamp(max=n), n, threshold, "below") for n in looks])

    def probability_of_no(yes_capital: float, no_capital: float) -> float:
        is_yes, is_no = above >= yes_capital, below >= no_capital
        return _probability_of(is_no, looks, is_yes | is_no | is_last, threshold)

    def probability_of_yes(yes_capital: float, no_capital: float) -> float:
        is_yes, is_no = above >= yes_capital, below >= no_capital
        return _probability_of(is_yes, looks, is_yes | is_no | is_last, threshold)

    # First the least capital for a NO while a YES requires 1/delta, then the least capital for a YES with that NO.
    proof = 1 / delta
    no_capital = _least_capital(lambda least: probability_of_no(proof, least) <= delta, proof)
    yes_capital = _least_capital(
        lambda least: probability_of_yes(least, no_capital) <= delta, proof
    )

    is_yes, is_no = above >= yes_capital, below >= no_capital
    decision = torch.where(is_yes, YES, torch.where(is_no, NO, OPEN))
    stop = is_yes | is_no | is_last
    low, high = _bound_tables(looks, endings(looks, stop.numpy()), delta, decision)
    return Rule(looks, stop, low, high, decision)


def _probability_of(
    decision: Tensor, looks: tuple[int, ...], stop: Tensor, threshold: float
) -> float:
    """Return the probability at τ = threshold that a rule which stops where `stop` says ends in a decision.

    `decision` and `stop` (L, n_L + 1) are boolean tables with a row per look and a column per number of agreements.
    """
    ends = endings(looks, stop.numpy())
    is_decided = decision.numpy()[ends.look, ends.agreed.astype(np.int64)]
    probability = ends.law(threshold)[0]
    return float(probability @ is_decided)


def _least_capital(is_enough: Callable[[float], bool], proof: float) -> float:
    """Return the least capital in [1, `proof`] that is enough for a decision of a test by betting, by bisection.

    `proof` is enough for certain, and a capital above another that is enough is enough, too.
    """
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
    """Return the stopping rule that draws until the first disagreement (NO), or until τ ≥ 1 − epsilon is certified (YES).

    τ is the rate of agreement, and the certificate fails with probability delta at most. The number of draws is that of
    Theorem 3.2 of Jin et al. (2025), who call it hard stability. A disagreement does refute hard stability (τ = 1), but a
    YES does not prove it: it certifies a rate.

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
    """Return the numbers of draws 1, 2, 4, … and `most` after which a rule looks whether to stop.

    Early looks catch most disagreements; few looks keep the batches of the model full.
    """
    looks = []
    n = 1
    while n < most:
        looks.append(n)
        n *= 2
    return (*looks, most)


def _looks_from(first: int, most: int) -> tuple[int, ...]:
    """Return the numbers of draws from `first` to `most` after which a rule looks whether to stop.

    There is a look after every draw up to 8, then after every second, and from 48 on in steps of a sixteenth of n.
    """
    looks = []
    n = min(first, most)
    while n < most:
        looks.append(n)
        if n < 8:
            n += 1
        else:
            n += max(2, n // 16)
    return (*looks, most)


def _betting_rule(epsilon: float, delta: float) -> Rule:
    """Return the stopping rule for a rate by betting: stop when its interval (low, high) lies within ± epsilon of s/n.

    s of n draws agreed. The interval holds for all n at once with probability 1 − delta, so stopping needs no correction.
    """

    def is_narrow(n: int, agreed: Tensor) -> Tensor:
        """Whether the interval after n draws is within ± epsilon, by number of agreements (S,)."""
        low, high = betting(agreed, n, delta)
        return (agreed / n - low <= epsilon) & (high - agreed / n <= epsilon)

    # The number of draws after which the interval is narrow however many agreed.
    most = sample_size(epsilon, delta, "hoeffding")
    while not bool(is_narrow(most, torch.arange(most + 1)).all()):
        most += max(1, most // 20)
    # The interval is narrowest if all draws agree: before it is narrow enough then, no look could stop.
    first = next(n for n in range(1, most + 1) if bool(is_narrow(n, torch.tensor([n]))))
    looks = _looks_from(first, most)

    lows, highs, stops = [], [], []
    for n in looks:
        agreed = torch.arange(most + 1).clamp(max=n)  # columns beyond n are never used
        low, high = betting(agreed, n, delta)
        lows.append(low)
        highs.append(high)
        stops.append(is_narrow(n, agreed))
    no_decision = _all_open(len(looks), most)
    return Rule(looks, torch.stack(stops), torch.stack(lows), torch.stack(highs), no_decision)


@lru_cache(maxsize=256)
def _size_without_replacement(epsilon: float, delta: float, population: int) -> int:
    """Return how many draws without replacement estimate a rate to ± epsilon with probability 1 − delta.

    It is the smallest n for which that is true at every rate that a `population` of so many items can have, for a rule
    that looks only once, after n draws. Never more than `sample_size`, the number of independent draws.
    """
    independent = sample_size(epsilon, delta)
    for n in range(1, min(independent, population)):
        agreed = np.arange(n + 1.0)  # 0, 1, …, n agreements are the ways to end
        log_ways = _log_falling(float(n), agreed) - special.gammaln(agreed + 1)  # log C(n, s)
        look, draws = np.zeros(n + 1, np.int64), np.full(n + 1, float(n))
        ends = Endings(look, draws, agreed, log_ways, population)
        if _worst_error(ends, epsilon) <= delta:
            return n
    return min(independent, population)


def _log_falling(n: Floats | float, k: Floats) -> Floats:
    """Return the log of n(n − 1)···(n − k + 1), the number of ways to draw k of n in order, −∞ for k > n."""
    not_drawn = np.asarray(n - k)
    log = special.gammaln(np.asarray(n) + 1.0) - special.gammaln(np.maximum(not_drawn, 0) + 1)
    return np.where(not_drawn < 0, -np.inf, log)


def _early_stops(
    epsilon: float, level: float, most: int, population: int | None
) -> tuple[tuple[int, ...], npt.NDArray[np.bool_]]:
    """Return when to look, and when to stop, in order to estimate a rate τ to ± epsilon.

    The looks are numbers of draws up to `most`. The table (L, n_L + 1) boolean has a row per look and a column per number
    of agreements. It says stop where the posterior probability that s/n errs by more than epsilon is at most `level`,
    for a uniform prior on τ. The prior only shapes the rule: its guarantee for each τ is computed afterwards, exactly.
    """

    def is_settled(n: int, agreed: Floats) -> npt.NDArray[np.bool_]:
        """Whether an error beyond epsilon is improbable enough after n draws, by number of agreements (S,)."""
        # The posterior of τ is Beta(s + 1, n − s + 1). Without replacement from N items the variance of s/n is smaller
        # by the factor (N − n) / (N − 1), so a draw counts like (N − 1) / (N − n) independent ones.
        weight = 1.0
        if population is not None:
            weight = (population - 1) / max(population - n, 1e-9)
        a, b = weight * agreed + 1, weight * (n - agreed) + 1
        rate = agreed / n
        tau_is_below = special.betainc(a, b, np.clip(rate - epsilon, 0, 1))
        tau_is_above = special.betaincc(a, b, np.clip(rate + epsilon, 0, 1))
        settled: npt.NDArray[np.bool_] = tau_is_below + tau_is_above <= level
        return settled

    # All agreements are the clearest outcome: no look before this number of draws could stop.
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
    """Return every way in which a sequential rule can end, with the number of sequences of outcomes that lead to it.

    The rule looks after `looks` draws and stops where `stop` (L, n_L + 1) says, by look and number of agreements.
    Sequences that have not stopped are counted look by look (logarithms, since the numbers overflow). For a `population`
    draws are without replacement.

    >>> rule = hard_rule(0.5, 0.25)
    >>> ends = endings(rule.looks, rule.stop.numpy())
    >>> float(ends.law(0.3).sum().round(12)), ends.draws.tolist()
    (1.0, [1.0, 2.0, 2.0])
    """
    most = looks[-1]
    # By number of agreements: the log number of sequences that have not stopped. At first there is one, the empty one.
    log_ways = np.full(most + 1, -np.inf)
    log_ways[0] = 0.0
    draws = 0
    look_of, draws_of, agreed_of, log_ways_of = [], [], [], []
    for look, n in enumerate(looks):
        log_ways = _log_ways_after_draws(log_ways, n - draws)
        draws = n
        is_possible = np.isfinite(log_ways) & (np.arange(most + 1) <= n)
        agreed = np.flatnonzero(stop[look] & is_possible)
        look_of.append(np.full(len(agreed), look, dtype=np.int64))
        draws_of.append(np.full(len(agreed), float(n)))
        agreed_of.append(agreed.astype(np.float64))
        log_ways_of.append(log_ways[agreed])
        log_ways[stop[look]] = -np.inf  # these sequences end here
    return Endings(
        np.concatenate(look_of),
        np.concatenate(draws_of),
        np.concatenate(agreed_of),
        np.concatenate(log_ways_of),
        population,
    )


def _log_ways_after_draws(log_ways: Floats, gap: int) -> Floats:
    """Return how many sequences of outcomes have s agreements after `gap` more draws, as logarithms, (n + 1,) by s.

    A sequential test draws yes/no outcomes, and the probability of each way to end is the number of sequences that lead to
    it times the probability of one. exp(`log_ways`[s]) (n + 1,) is the number of sequences with s agreements so far.
    Of `gap` further draws j agree in C(gap, j) ways, so the new numbers are

        ways_after[s] = Σ_j C(gap, j) · ways[s − j],

    a convolution. The numbers overflow a float, so it is done on logarithms.
    """
    j = np.arange(gap + 1)
    log_choose = special.gammaln(gap + 1) - special.gammaln(j + 1) - special.gammaln(gap - j + 1)

    # Row s of `ways_before` holds log ways[s − j] for j = 0, …, gap; there are no sequences with fewer than 0 agreements.
    no_ways = np.full(gap, -np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([no_ways, log_ways]), gap + 1)
    ways_before = windows[:, ::-1]
    terms = ways_before + log_choose

    # log Σ exp(terms), with the largest term taken out. It must be finite where no sequence leads to s.
    largest = np.maximum(terms.max(1), -1e300)
    with np.errstate(divide="ignore"):
        total: Floats = largest + np.log(np.exp(terms - largest[:, None]).sum(1))
    return total


def _worst_error(ends: Endings, epsilon: float) -> float:
    """Return an upper bound, over all rates τ, on the probability that s/n at the end errs by more than epsilon.

    `ends` are all ways in which a sequential rule can end, with s = `agreed` of n = `draws`. Where τ is continuous, [0, 1]
    is cut into small intervals; on each of them every ending that errs somewhere counts with its largest probability.
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
    # τ^s (1 − τ)^(n − s) is largest at s/n, or at the end of the interval that is next to it.
    likeliest_tau = np.clip(rate, left, right)
    missed = ends.draws - ends.agreed
    log_agreed = special.xlogy(ends.agreed, likeliest_tau)
    log_missed = special.xlog1py(missed, -likeliest_tau)
    largest_probability = np.exp(ends.log_ways + (log_agreed + log_missed))
    return float((largest_probability * is_wrong).sum(1).max())


def _bound_tables(
    looks: tuple[int, ...], ends: Endings, delta: float, decision: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return exact one-sided bounds of a rate τ for every way in which a sequential rule can end.

    low and high (L, n_L + 1) have a row per look and a column per number of agreements; each bound fails with
    probability delta at most. They are the bounds of Clopper and Pearson for endings in place of numbers of successes
    (Jennison and Turnbull 1983, Technometrics 25, 49): endings are ordered by s/n, and low is the smallest τ at which
    this ending and all those above it have a probability above delta.

    Where the rule has a `decision` (L, n_L + 1), endings are ordered by it first, NO < OPEN < YES, so that a YES has a low
    at the threshold or above. The bounds hold for any order that is fixed beforehand.
    """
    look_and_agreed = (ends.look, ends.agreed.astype(np.int64))
    score = ends.agreed / ends.draws
    if decision is not None:
        decision_of_ending = decision.numpy()[look_and_agreed]
        # Steps of 2 are larger than any difference of two rates, so the decision comes before the rate.
        score = score + 2.0 * (decision_of_ending == OPEN) + 4.0 * (decision_of_ending == YES)
    # A high bound of τ is a low bound of 1 − τ, the rate of disagreements.
    disagreements = replace(ends, agreed=ends.draws - ends.agreed)
    low, high = torch.zeros(2, len(looks), looks[-1] + 1, dtype=torch.float64)
    low[look_and_agreed] = torch.as_tensor(_low_bounds(ends, score, delta))
    high[look_and_agreed] = torch.as_tensor(1 - _low_bounds(disagreements, -score, delta))
    return low, high


def _low_bounds(ends: Endings, score: Floats, delta: float) -> Floats:
    """Return a lower bound of the rate τ for every way in which a sequential rule can end, (E,), wrong at most at delta.

    `score` (E,) orders the endings. The bound is the smallest τ at which all endings with the same or a larger score have,
    together, a probability above delta. It is found on a grid of τ, refined by bisection, and rounded down.
    """
    score = score.round(12)
    largest_first = np.argsort(-score, kind="stable")
    negative_scores = np.unique(-score)  # in ascending order, so the largest score comes first
    score_of_ending = np.searchsorted(negative_scores, -score)  # its position among these scores
    last_ending = np.searchsorted(-score[largest_first], negative_scores, side="right") - 1

    # The probability of a score or more, at every point of the grid: (grid, scores).
    steps = ends.population or _GRID
    grid = np.linspace(0, 1, steps + 1)
    cumulative = ends.law(grid)[:, largest_first].cumsum(1)
    tail = cumulative[:, last_ending]
    is_above = tail > delta
    first_above = np.where(is_above.any(0), is_above.argmax(0), steps)
    if ends.population is not None:
        # The grid has every τ that is possible.
        exact: Floats = grid[first_above][score_of_ending]
        return exact

    # τ lies between this point and the one before it: bisect, and keep the lower end.
    low, high = grid[np.maximum(first_above - 1, 0)], grid[first_above]
    if len(negative_scores) <= _MOST_REFINED:
        has_score_or_more = score >= -negative_scores[:, None] - 1e-12
        for _ in range(30):
            middle = (low + high) / 2
            is_above = (ends.law(middle) * has_score_or_more).sum(1) > delta
            low = np.where(is_above, low, middle)
            high = np.where(is_above, middle, high)
    bounds: Floats = np.where(first_above == 0, 0.0, low)[score_of_ending]
    return bounds
