"""Which pairs of maps are worth looking at: the worst, the median and the best of a method."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROLES = ("worst", "median", "best")
Key = tuple[Any, ...]


def pair_scores(columns: Mapping[str, Any]) -> NDArray[np.float64]:
    """One score per pair from its measures, arrays of one shape: aligned FASS where it has a number, else plain.

    A score v with a chance level c of the same pair becomes (v − c) / (1 − c), where c < 1 is known.

    >>> pair_scores({"fass": [0.8, 0.8], "fass_chance": [0.6, float("nan")]}).round(3).tolist()
    [0.5, 0.8]
    """
    found = np.full(np.shape(columns["fass"]), np.nan)
    for form in ("fass", "fass_aligned"):
        if form not in columns:
            continue
        value = np.asarray(columns[form], dtype=np.float64)
        chance = np.asarray(columns.get(f"{form}_chance", np.full_like(value, np.nan)), dtype=np.float64)
        known = np.isfinite(chance) & (chance < 1)
        by = np.where(known, chance, 0.0)
        found = np.where(np.isfinite(value), (value - by) / (1 - by), found)
    return found


def extremes(scores: Sequence[float], keys: Sequence[Key]) -> dict[str, int]:
    """role -> place of the worst, the median and the best score; ties go by key, so that order does not matter.

    Of an even number the lower median is taken. Without scores there are no roles. Scores that differ by rounding
    only are ties.

    >>> extremes([0.2, 0.9, 0.5, 0.4], [("a",), ("b",), ("c",), ("d",)])
    {'worst': 0, 'median': 3, 'best': 1}
    """
    finite = [i for i, score in enumerate(scores) if np.isfinite(score)]
    order = sorted(finite, key=lambda i: (round(scores[i], 6), keys[i]))
    return {"worst": order[0], "median": order[(len(order) - 1) // 2], "best": order[-1]} if order else {}


def note(role: str, pairs: int) -> str:
    """What an exhibit says of itself: its role among the pairs of its shard.

    >>> note("worst", 160)
    'worst of 160'
    """
    return f"{role} of {pairs}"


def read_note(text: str) -> tuple[str, int] | None:
    """Role and number of pairs; None where the note says something else.

    >>> read_note("worst of 160"), read_note("")
    (('worst', 160), None)
    """
    match = re.fullmatch(rf"({'|'.join(ROLES)}) of (\d+)", text)
    return (match[1], int(match[2])) if match else None
