"""What differences so many samples could separate among so many methods, by the test that will be used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from heatproof.statistics.estimates import of_means

USUAL_SPREAD = 0.1
"""The standard deviation over samples of the difference of two methods that is thought of where nothing is known."""


def smallest_difference(
    n: int, methods: int, spread: float = USUAL_SPREAD, level: float = 0.95
) -> float:
    """The smallest mean difference of two scores in [0, 1] that n samples separate after Holm's first step.

    The samples are thought of as spread like normal numbers, with standard deviation `spread`, about two scores in the
    middle of the scale; the test is that of `paired_tests` at (1 − level) / (pairs of methods). NaN where no difference
    is separated.

    >>> [round(smallest_difference(n, 5), 2) for n in (6, 14, 100)]
    [0.2, 0.11, 0.03]
    """
    if n < 2 or methods < 2:
        return float("nan")
    wanted = (1 - level) / (methods * (methods - 1) / 2)
    shape = stats.norm.ppf((np.arange(n) + 0.5) / n)
    shape = shape / shape.std(ddof=1) * spread
    gaps = np.linspace(0.005, 1.0, 200)
    middle = np.full(len(gaps), 0.5)
    p = replace(of_means(gaps[:, None] + shape), below=middle, above=middle, paired=True).p()
    return float(gaps[p < wanted][0]) if (p < wanted).any() else float("nan")


def power_sentence(n: int, methods: int, spread: float | None = None) -> str:
    """What could be separated, in words; `spread` is that of paired differences where a run knows it.

    >>> power_sentence(14, 5)
    '14 samples, 5 methods: differences below about 0.1 will not be separated.'
    >>> power_sentence(3, 5)
    '3 samples, 5 methods: no difference below half of the scale could be separated.'
    """
    if methods < 2:
        return f"{n} samples, one method: there is nothing to separate."
    least = smallest_difference(n, methods, USUAL_SPREAD if spread is None else spread)
    counted = f"{n} sample{'s' if n != 1 else ''}, {methods} methods"
    if not least < 0.5:
        return f"{counted}: no difference below half of the scale could be separated."
    return f"{counted}: differences below about {least:.1g} will not be separated."
