"""Numbers, lists and comparisons as they are written in a sentence, and tables as CSV."""

from __future__ import annotations

import math
import re
from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

LISTED = 6
"""How many names or findings a sentence holds before the rest is only counted."""
MOST_DIGITS = 6
"""After so many decimals a number is written as 0, and a difference counts as none."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a text starts that a spreadsheet takes for a formula, or hides one behind."""


def records(frame: pd.DataFrame) -> list[Any]:
    """Return the rows of a frame, each with its columns as attributes.

    A report asks for hundreds of short frames. `DataFrame.itertuples` makes a class for each of them and takes three times
    as long.

    >>> records(pd.DataFrame({"rank": [3]}))[0].rank
    3
    """
    row_class = _row_class(tuple(map(str, frame.columns)))
    columns = [column.tolist() for _, column in frame.items()]
    return list(map(row_class._make, zip(*columns, strict=True)))


@lru_cache(maxsize=256)
def _row_class(columns: tuple[str, ...]) -> Any:
    """Return a named tuple with these columns; one that is no name in Python is called by its position."""
    return namedtuple("Row", columns, rename=True)


def number(value: float, digits: int = 2) -> str:
    """Return a number for reading, with a true minus sign and a dash for what is missing.

    >>> number(0.614), number(-0.001), number(float("nan"))
    ('0.61', '0.00', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def digits_of(value: float, low: float, high: float) -> int:
    """Return the number of decimals with which to print a value, from the width of its interval [low, high].

    The last decimal is at most a fifth of the width. Without an interval there are two decimals; for an interval without
    width as many as show the value.

    >>> digits_of(0.61, 0.58, 0.64), digits_of(0.6143, 0.6121, 0.6165), digits_of(0.5, 0.1, 0.9), digits_of(0, 0, 0)
    (2, 4, 1, 2)
    """
    smallest = 10**-MOST_DIGITS
    width = high - low
    if width <= smallest:
        width = abs(value) / 5
    if math.isnan(width) or width <= smallest:
        return 2
    digits = math.ceil(-math.log10(width / 5) - 1e-9)
    return min(max(digits, 0), MOST_DIGITS)


def with_interval(value: float, low: float, high: float, n: int | None = None) -> str:
    """Return a number with its interval, or the words that it has none; the width decides how many digits they get.

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
    """Return a lower bound for reading, which rounding must not lift.

    >>> at_least(0.7069), at_least(0.71)
    ('0.70', '0.71')
    """
    if not math.isfinite(bound):
        return number(bound)
    return number(math.floor(100 * bound + 1e-9) / 100)


def listing(names: Iterable[str]) -> str:
    """Return names as they are written in a sentence.

    >>> listing(["a", "b", "c"]), listing(["a"]), listing([])
    ('a, b and c', 'a', '')
    """
    *first, last = list(names) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def some(names: Iterable[str], most: int = LISTED) -> str:
    """Return the first names as they are written in a sentence, and how many more there are.

    >>> some("abc"), some("abcd", 2)
    ('a, b and c', 'a, b and 2 more')
    """
    all_names = list(names)
    rest = len(all_names) - most
    if rest <= 0:
        return listing(all_names)
    return f"{', '.join(all_names[:most])} and {rest} more"


def p_value(p: float) -> str:
    """Return a p-value as it is written in a sentence.

    >>> p_value(0.0312), p_value(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def difference(tests: pd.DataFrame, a: str, b: str) -> dict[str, Any] | None:
    """Return the row of paired `tests` for a against b, with the sign of a − b; None if they were not compared.

    Each pair is in the table once. If it is there as b against a, differences and scores are turned around.
    """
    in_order = tests[(tests["a"] == a) & (tests["b"] == b)]
    if len(in_order):
        return {str(column): value for column, value in in_order.iloc[0].items()}

    reversed_order = tests[(tests["a"] == b) & (tests["b"] == a)]
    if reversed_order.empty:
        return None
    test = {str(column): value for column, value in reversed_order.iloc[0].items()}
    return test | {
        "difference": -test["difference"],
        "low": -test["high"],
        "high": -test["low"],
        "score_a": test["score_b"],
        "score_b": test["score_a"],
    }


def ahead_of(tests: pd.DataFrame, a: str, b: str) -> str:
    """Return a sentence on how far explainer a is ahead of b, which scores worse, with both scores and the p-value.

    `tests` are paired tests on the samples that both have. The lead is positive even where lower scores are better.
    """
    test = difference(tests, a, b)
    if test is None or not math.isfinite(test["difference"]):
        return f"{a} and {b} have no sample in common."
    lead = (test["difference"], test["low"], test["high"])
    if test["difference"] < 0:
        lead = (-test["difference"], -test["high"], -test["low"])
    digits = digits_of(*lead)
    score_a, score_b = number(test["score_a"], digits), number(test["score_b"], digits)
    return (
        f"On the {test['n']:g} samples of both, {a} scores {score_a} and {b} {score_b}: "
        f"ahead by {with_interval(*lead)}, {p_value(test['p'])}."
    )


def each(pairs: Iterable[tuple[str, str]], most: int = 4) -> str:
    """Return explainers with what was measured of them, the first few by name.

    >>> each([("a", "0.1 [0.0, 0.2]"), ("b", "0.3 [0.2, 0.4]")])
    'a 0.1 [0.0, 0.2] and b 0.3 [0.2, 0.4]'
    """
    return some([f"{name} {text}" for name, text in pairs], most)


def plural(names: Sequence[object], one: str, many: str) -> str:
    """Return one of two words by how many names there are."""
    return one if len(names) == 1 else many


def file_part(text: str) -> str:
    """Return a name as part of a file name.

    >>> file_part("ResNet-50, retrained 1/α")
    'resnet-50-retrained-1'
    """
    return re.sub(r"[^a-z0-9.=]+", "-", text.lower()).strip("-.")[:60].strip("-.")


# ---- CSV -------------------------------------------------------------------------------------------------------------


def to_csv(frame: pd.DataFrame) -> str:
    """Return a table as CSV: numbers with six digits, missing ones empty, no text that a spreadsheet would run.

    >>> print(to_csv(pd.DataFrame({"explainer": ["=1+1", "ig"], "score": [-0.5, float("nan")]})), end="")
    explainer,score
    '=1+1,-0.5
    ig,
    """
    columns = {}
    for name, column in frame.items():
        columns[name] = column if is_numeric_dtype(column) else inert(column)
    safe = pd.DataFrame(columns)
    safe.columns = pd.Index(inert(safe.columns.to_series()))
    return safe.to_csv(index=False, lineterminator="\n", float_format=_six_digits)


def _six_digits(value: Any) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"


def inert(texts: pd.Series) -> pd.Series:
    """Return texts of which a spreadsheet runs none: those that start like a formula get an apostrophe in front.

    >>> inert(pd.Series(["=1+1", "ig", None])).tolist()[:2]
    ["'=1+1", 'ig']
    """
    safe = []
    for text in texts:
        is_formula = isinstance(text, str) and text.startswith(FORMULA)
        safe.append(f"'{text}" if is_formula else text)
    return pd.Series(safe, texts.index)
