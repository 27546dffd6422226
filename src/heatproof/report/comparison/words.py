"""A comparison in words, which follow the tests: the verdict, and the outcome of each row."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from heatproof.evaluation import Measure
from heatproof.report.comparison.differences import OVERALL
from heatproof.report.comparison.match import Matched
from heatproof.statistics.intervals import FEWEST
from heatproof.text import MOST_DIGITS, digits_of, listing, number, p_value, records, with_interval

if TYPE_CHECKING:
    from heatproof.report.comparison.compare import Comparison

ALL_CONDITIONS = "all conditions"
MOST_SENTENCES = 6
"""How many significant differences the verdict spells out."""
SURE = 0.001
"""p-values below this are not told apart."""
NO_SAMPLE, IDENTICAL, TOO_FEW = "no common sample", "identical", "too few samples"
UNDECIDED, EQUAL = "undecided", "equal to rounding"
UNCLEAR = (NO_SAMPLE, IDENTICAL, TOO_FEW, UNDECIDED, EQUAL)
"""The outcomes of rows that show no difference."""


def results_of_pairs(comparison: Comparison) -> list[str]:
    """Return one sentence on each pair of runs: what the tests of all their methods say."""
    labels = [run.label for run in comparison.runs]
    if not (comparison.overall["joined"] > 0).any():
        return [f"Nothing to compare: no sample has a score in two of the runs {listing(labels)}."]
    sentences = []
    for a, b in combinations(labels, 2):
        rows = rows_of_pair(comparison.differences, a, b)
        sentences.append(_result_of_pair(a, b, rows[rows["joined"] > 0]))
    return sentences


def clearest_differences(comparison: Comparison) -> list[str]:
    """Return a sentence on each of the clearest significant differences; without any, on the largest difference."""
    overall = comparison.overall
    outcomes = [outcome(row, comparison.measure_of(row)) for row in records(overall)]
    clear = [row for row, o in zip(records(overall), outcomes, strict=True) if o not in UNCLEAR]
    if not clear:
        return _largest_difference(comparison)
    clear.sort(key=lambda row: (max(row.p, SURE), -abs(row.difference)))
    sentences = [_difference_sentence(row, comparison) for row in clear[:MOST_SENTENCES]]
    left_out = len(clear) - MOST_SENTENCES
    if left_out > 0:
        sentences.append(f"{left_out} more are in the table.")
    return sentences


def rows_of_pair(rows: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Return the rows that compare two runs."""
    return rows[(rows["a"] == a) & (rows["b"] == b)]


def _result_of_pair(a: str, b: str, rows: pd.DataFrame) -> str:
    """Return what the tests of two runs say; `rows` are all their differences with a joined sample."""
    overall = rows[rows["family"] == OVERALL]
    if overall.empty:
        return f"{a} and {b} have no scored sample in common."
    if rows["identical"].all():
        return _identical_sentence(a, b, rows)
    if overall["low"].isna().all():
        joined = counted(int(overall["joined"].max()), "sample")
        return f"Too few samples to compare {a} and {b}: {joined}; at least {FEWEST} are needed."

    tested = overall[overall["low"].notna()]
    comparisons = counted(len(tested), "comparison")
    untested = len(overall) - len(tested)
    rest = f" ({untested} more have too few samples)" if untested else ""
    is_visible = tested["difference"].abs() > 10**-MOST_DIGITS
    differs = tested["significant"] & (tested["better"] == "") & is_visible
    counts = {f"{run} better": int((tested["better"] == run).sum()) for run in (b, a)}
    counts["different"] = int(differs.sum())
    parts = [f"{what} in {count}" for what, count in counts.items() if count]
    if not parts:
        return f"No significant difference between {a} and {b} in {comparisons}{rest}."
    return f"{b} against {a}: {listing(parts)} of {comparisons}{rest}."


def _identical_sentence(a: str, b: str, rows: pd.DataFrame) -> str:
    is_complete = not rows[["absent", "unreadable"]].to_numpy().any()
    samples = counted(int(rows["samples"].max()), "sample")
    if is_complete:
        return f"{a} and {b} are identical: all scores of {samples} agree."
    samples = counted(int(rows["joined"].max()), "sample")
    return f"{a} and {b} are identical on the {samples} that both have."


def _largest_difference(comparison: Comparison) -> list[str]:
    """Return a sentence on the largest difference between two runs, where none is significant."""
    if len(comparison.runs) > 2:
        return []
    rows = comparison.overall
    rows = rows[(rows["joined"] > 0) & ~rows["identical"] & rows["low"].notna()]
    if rows.empty:
        return []
    row = max(records(rows), key=lambda row: abs(row.difference))
    measure = comparison.measure_of(row)
    name = f"{comparison.named(row)}{place_of(row, comparison.overall)}"
    return [f"Largest: {name}, {measure.title}, {row.b} − {row.a} = {gap_text(row)}."]


def counted(n: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "sample"), counted(2, "sample")
    ('1 sample', '2 samples')
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _difference_sentence(row: Any, comparison: Comparison) -> str:
    """Say which run has the better or the higher score, by how much, and from how many samples."""
    measure = comparison.measure_of(row)
    sign = measure.sign or 1
    is_later_first = sign * row.difference > 0
    first, second = (row.b, row.a) if is_later_first else (row.a, row.b)
    verb = comparison.axis_of(row).verb
    if not measure.sign:
        verb = "scores higher than"
    gap = gap_text(row, -1 if row.difference < 0 else 1)
    facts = [_measure_title(measure), p_value(row.p), counted(row.joined, "sample")]
    where = place_of(row, comparison.overall)
    name = comparison.named(row)
    return f"{name}{where}: {first} {verb} {second} by {gap} ({', '.join(facts)})."


def _measure_title(measure: Measure) -> str:
    return f"{measure.title}, lower is better" if measure.better == "lower" else measure.title


def gap_text(row: Any, sign: int = 1) -> str:
    """Return the difference, or its negative, with its interval and the two scores on the joined samples behind it."""
    low, high = (row.low, row.high) if sign > 0 else (-row.high, -row.low)
    digits = digits_of(row.difference, row.low, row.high)
    scores = [number(row.mean_b, digits), number(row.mean_a, digits)][::sign]
    gap = with_interval(sign * row.difference, low, high)
    return f"{gap}, {scores[0]} against {scores[1]}"


def place_of(row: Any, rows: pd.DataFrame) -> str:
    """Return the evaluation, model and data set of a row, as far as others of the rows have another one."""
    same_kind = rows[rows["kind"] == row.kind]
    words = ""
    if same_kind["evaluation"].nunique() > 1:
        words += f" in {row.evaluation}"
    if rows["model"].nunique() > 1:
        words += f" for {row.model}"
    if rows["dataset"].nunique() > 1:
        words += f" on {row.dataset}"
    return words


def condition_title(row: Any, matched: Matched) -> str:
    """Return the condition of a row with its level in words."""
    if row.condition == OVERALL:
        return ALL_CONDITIONS
    axis = matched.test(row.dataset, row.model, row.evaluation).axis
    return axis.condition(row.condition, row.level)


def outcome(row: Any, measure: Measure) -> str:
    """Return what the test of a row says, in a word or two."""
    if not row.joined:
        return NO_SAMPLE
    if row.identical:
        return IDENTICAL
    if np.isnan(row.low):
        return TOO_FEW
    if not row.significant:
        return UNDECIDED
    if abs(row.difference) <= 10**-MOST_DIGITS:
        return EQUAL
    if row.better:
        return f"{row.better} better"
    return f"{row.b if row.difference > 0 else row.a} higher"
