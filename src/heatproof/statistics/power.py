"""What differences so many samples could separate among so many methods, by the test that will be used."""

from __future__ import annotations

from scipy import stats

from heatproof.statistics.intervals import FEWEST

USUAL_SPREAD = 0.1
"""The standard deviation over samples of the difference of two methods that is thought of where nothing is known."""


def smallest_difference(
    n: int,
    methods: int,
    spread: float = USUAL_SPREAD,
    level: float = 0.95,
    power: float = 0.8,
) -> float:
    """Return the mean difference that n samples find with probability `power` among all pairs of so many methods.

    `spread` is the standard deviation of paired differences. This is the usual formula of sample sizes at Bonferroni's
    level, (t_{1 − α/2m} + t_power) · spread / √n (Cohen 1988). NaN where nothing can be decided.

    >>> [round(smallest_difference(n, 5), 2) for n in (6, 14, 100)]
    [nan, 0.11, 0.04]
    """
    if n < FEWEST or methods < 2:
        return float("nan")
    pairs = methods * (methods - 1) / 2
    critical = stats.t.ppf(1 - (1 - level) / (2 * pairs), n - 1)
    return float((critical + stats.t.ppf(power, n - 1)) * spread / n**0.5)


def power_sentence(n: int, methods: int, spread: float | None = None) -> str:
    """Return what differences could be found, in words; `spread` is that of paired differences where a run knows it.

    >>> power_sentence(14, 5)
    '14 samples, 5 methods: differences below about 0.1 are likely to be missed.'
    >>> power_sentence(3, 5)
    '3 samples, 5 methods: too few samples to compare methods; 8 are needed.'
    """
    if methods < 2:
        return f"{n} sample{'s' if n != 1 else ''}, one method: there is nothing to compare."
    least = smallest_difference(n, methods, USUAL_SPREAD if spread is None else spread)
    counted = f"{n} sample{'s' if n != 1 else ''}, {methods} methods"
    if n < FEWEST:
        return f"{counted}: too few samples to compare methods; {FEWEST} are needed."
    return f"{counted}: differences below about {least:.1g} are likely to be missed."
