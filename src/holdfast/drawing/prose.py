"""Numbers, lists and comparisons as they are written in a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

LISTED = 6
"""How many names or findings a sentence holds before the rest is only counted."""


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


def with_interval(value: float, low: float, high: float, digits: int = 2) -> str:
    """A number with its interval, or the words that there is none.

    >>> with_interval(0.61, 0.58, 0.64)
    '0.61 [0.58, 0.64]'
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{number(value, digits)} (no interval)"
    return f"{number(value, digits)} [{number(low, digits)}, {number(high, digits)}]"


def listing(names: Iterable[str]) -> str:
    """Names as they are written in a sentence.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


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
    turned["difference"], turned["low"], turned["high"] = -turned["difference"], -turned["high"], -turned["low"]
    return turned


def above(tests: pd.DataFrame, a: str, b: str) -> bool:
    """Whether a is better than b beyond doubt: significant after correction, and the interval agrees."""
    row = difference(tests, a, b)
    return row is not None and bool(row["significant"]) and row["low"] > 0


def each(pairs: Iterable[tuple[str, str]], most: int = 4) -> str:
    """Explainers with what was measured of them.

    >>> each([("a", "0.1 [0.0, 0.2]"), ("b", "0.3 [0.2, 0.4]")])
    'a 0.1 [0.0, 0.2] and b 0.3 [0.2, 0.4]'
    """
    return some([f"{name} {text}" for name, text in pairs], most)


def plural(names: Sequence[object], one: str, many: str) -> str:
    """One of two words by how many names there are."""
    return one if len(names) == 1 else many
