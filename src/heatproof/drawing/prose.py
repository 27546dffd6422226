"""Numbers, lists and comparisons as they are written in a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

LISTED = 6
"""How many names or findings a sentence holds before the rest is only counted."""
MOST_DIGITS = 6
"""After so many decimals a number is written as 0, and a difference counts as none."""


def records(frame: pd.DataFrame) -> list[Any]:
    """The rows of a frame, each with its columns as attributes.

    >>> records(pd.DataFrame({"rank": [3]}))[0].rank
    3
    """
    return list(frame.itertuples(index=False))


def number(value: float, digits: int = 2) -> str:
    """A number for reading, with a true minus sign and a dash for what is missing.

    >>> number(0.614), number(-0.001), number(float("nan"))
    ('0.61', '0.00', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return (text.lstrip("-") if float(text) == 0 else text).replace("-", "−")


def digits_of(value: float, low: float, high: float) -> int:
    """How many decimals a number has, so that its last place is at most a fifth of its interval's width.

    Two where there is no interval; where it has no width, as many as show the number.

    >>> digits_of(0.61, 0.58, 0.64), digits_of(0.6143, 0.6121, 0.6165), digits_of(0.5, 0.1, 0.9), digits_of(0, 0, 0)
    (2, 4, 1, 2)
    """
    width = high - low if not high - low <= 10**-MOST_DIGITS else abs(value) / 5
    if not width > 10**-MOST_DIGITS:
        return 2
    return min(max(math.ceil(-math.log10(width / 5) - 1e-9), 0), MOST_DIGITS)


def with_interval(value: float, low: float, high: float, n: int | None = None) -> str:
    """A number with its interval, or the words that there is none; the width says how many digits they have.

    An interval without width says nothing of uncertainty: it means that all `n` samples have the same score.

    >>> with_interval(0.61, 0.58, 0.64), with_interval(0.0031, 0.0012, 0.0049)
    ('0.61 [0.58, 0.64]', '0.0031 [0.0012, 0.0049]')
    >>> with_interval(1, 1, 1, n=14)
    '1.00 (identical on all 14 samples)'
    """
    digits = digits_of(value, low, high)
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{number(value)} (no interval)"
    if n is not None and high - low <= 1e-9:  # rounding leaves a little
        return f"{number(value, digits)} (identical on all {n} samples)"
    return f"{number(value, digits)} [{number(low, digits)}, {number(high, digits)}]"


def at_least(bound: float) -> str:
    """A lower bound for reading, which rounding must not lift.

    >>> at_least(0.7069), at_least(0.71)
    ('0.70', '0.71')
    """
    return number(math.floor(100 * bound + 1e-9) / 100) if math.isfinite(bound) else number(bound)


def listing(names: Iterable[str]) -> str:
    """Names as they are written in a sentence.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    names = list(names)
    return (
        names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
    )


def some(names: Iterable[str], most: int = LISTED) -> str:
    """The first names as they are written in a sentence, the rest counted.

    >>> some("abc"), some("abcd", 2)
    ('a, b and c', 'a, b and 2 more')
    """
    every = list(names)
    rest = len(every) - most
    return listing(every) if rest <= 0 else f"{', '.join(every[:most])} and {rest} more"


def p_value(p: float) -> str:
    """A p-value as it is written in a sentence.

    >>> p_value(0.0312), p_value(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def difference(tests: pd.DataFrame, a: str, b: str) -> dict[str, Any] | None:
    """The test of a against b, with the sign of a − b; None when they were not compared."""
    row = tests[(tests["a"] == a) & (tests["b"] == b)]
    if len(row):
        return {str(k): v for k, v in row.iloc[0].items()}
    row = tests[(tests["a"] == b) & (tests["b"] == a)]
    if row.empty:
        return None
    turned = {str(k): v for k, v in row.iloc[0].items()}
    turned["difference"], turned["low"], turned["high"] = (
        -turned["difference"],
        -turned["high"],
        -turned["low"],
    )
    turned["score_a"], turned["score_b"] = turned["score_b"], turned["score_a"]
    return turned


def ahead_of(tests: pd.DataFrame, a: str, b: str) -> str:
    """Say by how much a is ahead of b, with the two scores on their common samples; lower scores may be the better ones."""
    row = difference(tests, a, b)
    if row is None or not math.isfinite(row["difference"]):
        return f"{a} and {b} have no sample in common."
    gap = (row["difference"], row["low"], row["high"])
    if row["difference"] < 0:
        gap = (-row["difference"], -row["high"], -row["low"])
    own, other = (number(row[score], digits_of(*gap)) for score in ("score_a", "score_b"))
    return (
        f"On the {row['n']:g} samples of both, {a} scores {own} and {b} {other}: "
        f"ahead by {with_interval(*gap)}, {p_value(row['p'])}."
    )


def above(tests: pd.DataFrame, a: str, b: str) -> bool:
    """Whether a is better than b beyond doubt: significant after correction, the interval agrees, and it shows."""
    row = difference(tests, a, b)
    shown = row is not None and row["low"] > 0 and row["difference"] > 10**-MOST_DIGITS
    return shown and row is not None and bool(row["significant"])


def each(pairs: Iterable[tuple[str, str]], most: int = 4) -> str:
    """Explainers with what was measured of them.

    >>> each([("a", "0.1 [0.0, 0.2]"), ("b", "0.3 [0.2, 0.4]")])
    'a 0.1 [0.0, 0.2] and b 0.3 [0.2, 0.4]'
    """
    return some([f"{name} {text}" for name, text in pairs], most)


def plural(names: Sequence[object], one: str, many: str) -> str:
    """One of two words by how many names there are."""
    return one if len(names) == 1 else many
