"""The rows of one test as arrays: explainers × conditions × samples.

All statistics are paired: two methods are compared on the same samples, and the conditions of one sample belong together.
In these arrays a sample has the same index for every explainer and condition, so the difference of two methods is a
subtraction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.evaluation import FLIPPED, OK, OPEN, STATUS, UNDEFINED, Condition, Measure, Span
from heatproof.statistics.arrays import Array, mean_of_finite

CONTROL = "control"
"""The role of an explainer that does not look at the model."""
NOT_ATTEMPTED = -1
"""The status of a pair that the table has no row of."""


@dataclass(frozen=True)
class ConditionSettings:
    """The settings of a condition, from the columns of its rows: imputer, order of removal, share of features kept."""

    imputer: str = ""
    order: str = ""
    share: float = float("nan")


@dataclass(frozen=True)
class ScoreArrays:
    """The scores of one test of one dataset and model, with E explainers, C conditions and N samples.

    values        by measure: scores (E, C, N), NaN where there is none; the mean over repeats if there are several
    repeats       by measure that has repeats: scores (E, C, N, repeats)
    chance        by measure that has a chance level: chance (E, C, N)
    status        of every pair (E, C, N), that of the deciding measure (see `rows_to_arrays`): 0 ok, 1 flipped,
                  2 undefined, 3 open, −1 not attempted
    undefined_reasons   how often each reason was given, by explainer, condition and level
    has_rows      by measure: for which explainers and conditions (E, C) the table has rows
    controls      the explainers that ignore the model
    settings      by the name of a condition: its settings
    declared      by measure: its declaration
    spans         by measure whose scale depends on the settings of the test: the ends of the scale
    groups        the number of the group of each sample (N,); None if samples are independent
    references    the ids of the samples that chance was computed from
    by_reference  by measure: the mean score against each reference (E, C, references)
    """

    dataset: str
    model: str
    evaluation: str
    explainers: list[str]
    conditions: list[Condition]
    samples: list[str]
    values: dict[str, Array]
    status: NDArray[np.int8]
    undefined_reasons: pd.DataFrame
    has_rows: dict[str, NDArray[np.bool_]]
    repeats: Mapping[str, Array] = field(default_factory=dict)
    chance: dict[str, Array] = field(default_factory=dict)
    controls: frozenset[str] = frozenset()
    settings: Mapping[str, ConditionSettings] = field(default_factory=dict)
    declared: Mapping[str, Measure] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)
    groups: NDArray[np.int64] | None = None
    references: tuple[str, ...] = ()
    by_reference: Mapping[str, Array] = field(default_factory=dict)

    @property
    def measures(self) -> list[str]:
        """The measures that the table has rows of."""
        return list(self.values)

    @property
    def key(self) -> dict[str, str]:
        """The columns that say what a row of statistics is about."""
        return {"dataset": self.dataset, "model": self.model, "evaluation": self.evaluation}

    def span(self, measure: str) -> Span | None:
        """The ends of the scale of a measure; None where it has none."""
        declared = self.declared.get(measure)
        return self.spans.get(measure, declared.span if declared else None)

    def is_rate(self, measure: str) -> bool:
        """Whether every value of a measure is declared to be 0 or 1."""
        return measure in self.declared and self.declared[measure].rate

    def is_calibrated(self, measure: str) -> bool:
        """Whether scores of a measure are calibrated by their chance level, which is usual where there is one."""
        if measure not in self.chance:
            return False
        return measure not in self.declared or self.declared[measure].chance == "calibrate"

    def noise_floor(self, measure: str) -> Array | None:
        """The similarity (explainers, samples) of two draws of a map on one input; None where it was not measured."""
        name = self.declared[measure].noise_floor if measure in self.declared else ""
        if name not in self.values:
            return None
        return mean_of_finite(np.moveaxis(self.values[name], 1, -1))

    def settings_of(self, condition: str) -> ConditionSettings:
        """The settings of a condition; empty where its rows have none."""
        return self.settings.get(condition, ConditionSettings())

    def for_measure(self, measure: str) -> ScoreArrays:
        """The arrays with the conditions under which a measure has rows."""
        numbers = np.flatnonzero(self.has_rows[measure].any(0))
        return self.select(conditions=[self.conditions[i] for i in numbers])

    def select(
        self,
        explainers: Collection[str] | None = None,
        conditions: Collection[Condition] | None = None,
        measures: Collection[str] | None = None,
    ) -> ScoreArrays:
        """The arrays of these explainers, conditions and measures only, in their present order; None takes all.

        With `measures`, a pair that has no score by any of them becomes undefined, unless it is flipped, open or was not
        attempted.
        """
        kept_explainers = _indices_of(self.explainers, explainers)
        kept_conditions = _indices_of(self.conditions, conditions)
        names = [name for name in self.values if measures is None or name in measures]
        cell = np.ix_(kept_explainers, kept_conditions)

        def cut(arrays: Mapping[str, Any]) -> dict[str, Any]:
            return {name: arrays[name][cell] for name in names if name in arrays}

        selected = replace(
            self,
            explainers=[self.explainers[e] for e in kept_explainers],
            conditions=[self.conditions[c] for c in kept_conditions],
            values=cut(self.values),
            has_rows=cut(self.has_rows),
            status=self.status[cell],
            repeats=cut(self.repeats),
            chance=cut(self.chance),
            by_reference=cut(self.by_reference),
        )
        if measures is None:
            return selected
        return replace(selected, status=selected._status_by_scores())

    def _status_by_scores(self) -> NDArray[np.int8]:
        """Return the status of every pair where only the scores of these measures count."""
        has_score = np.zeros(self.status.shape, dtype=bool)
        has_row = np.zeros(self.status.shape[:2], dtype=bool)
        for measure, values in self.values.items():
            has_score |= np.isfinite(values)
            has_row |= self.has_rows[measure]

        is_attempted = has_row[..., None] & (self.status >= 0)
        keeps_status = (self.status == FLIPPED) | (self.status == OPEN)
        without_score = np.where(keeps_status, self.status, UNDEFINED)
        status = np.where(is_attempted, without_score, NOT_ATTEMPTED)
        return np.where(has_score, OK, status).astype(np.int8)


def _indices_of(names: Sequence[Any], selected: Collection[Any] | None) -> list[int]:
    """Return the indices of the selected names, in their present order; None selects all."""
    return [i for i, name in enumerate(names) if selected is None or name in selected]


def rows_to_arrays(
    table: pd.DataFrame,
    measures: Mapping[str, Sequence[Measure]] | None = None,
    references: pd.DataFrame | None = None,
) -> list[ScoreArrays]:
    """Return the arrays of each dataset, model and evaluation of a table, in order of first appearance.

    `measures` has the declared measures of each evaluation. The status of a pair is that of its first headline that has
    rows, else that of the last measure that is no diagnostic. `references` is the side table of what each reference adds
    to chance (see `Run.references`). `heatproof.runs.results.arrays_of_run` knows the measures of every test.

    >>> row = dict(dataset="d", model="m", explainer="e", evaluation="stability", sample="s", measure="fass",
    ...            condition="jpeg", level=40.0, value=0.5, chance=0.2, status="ok", reason="")
    >>> arrays, = rows_to_arrays(pd.DataFrame([row]))
    >>> arrays.values["fass"].shape, arrays.conditions
    ((1, 1, 1), [('jpeg', 40.0)])
    """
    if table.empty:
        return []
    every_arrays = []
    group_of_row, groups = _numbered_evaluations(table)
    for number in groups:
        rows = table if len(groups) == 1 else table[group_of_row == number]
        declared = (measures or {}).get(str(rows["evaluation"].iloc[0]), ())
        arrays = _arrays_of_rows(rows, {measure.name: measure for measure in declared})
        if references is not None:
            arrays = _with_references(arrays, references)
        every_arrays.append(arrays)
    return every_arrays


def _numbered_evaluations(table: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of every row's (dataset, model, evaluation), −1 where one is missing, and all numbers."""
    group = np.zeros(len(table), dtype=np.int64)
    is_missing = np.zeros(len(table), dtype=bool)
    for name in ("dataset", "model", "evaluation"):
        numbers, names = numbered(table[name])
        group = group * len(names) + numbers
        is_missing |= numbers < 0
    group[is_missing] = -1
    present = pd.unique(group)
    return group, present[present >= 0]


def _with_references(arrays: ScoreArrays, references: pd.DataFrame) -> ScoreArrays:
    """Return the arrays with the mean score against each reference: the sum in the side table by the number of samples."""
    is_of_test = np.ones(len(references), dtype=bool)
    for name, value in arrays.key.items():
        is_of_test &= (references[name] == value).to_numpy()
    rows = references[is_of_test]
    if rows.empty:
        return arrays
    explainer_number = {name: i for i, name in enumerate(arrays.explainers)}
    condition_number = {condition: i for i, condition in enumerate(arrays.conditions)}
    names = list(arrays.references) or sorted(rows["reference"].unique())
    reference_number = {name: i for i, name in enumerate(names)}
    conditions = zip(rows["condition"], rows["level"], strict=True)
    rows = rows.assign(
        e=rows["explainer"].map(explainer_number),
        c=[condition_number.get(condition, np.nan) for condition in conditions],
        r=rows["reference"].map(reference_number),
    )
    rows = rows.dropna(
        subset=["e", "c", "r"]
    )  # explainers and conditions that are not in the arrays

    by_reference = {}
    shape = (len(arrays.explainers), len(arrays.conditions), len(names))
    for measure, of_measure in rows.groupby("measure", sort=False, observed=True):
        sums, counts = np.zeros(shape), np.zeros(shape)
        cell = tuple(of_measure[axis].to_numpy(dtype=np.int64) for axis in ("e", "c", "r"))
        np.add.at(sums, cell, of_measure["sum"].to_numpy(dtype=np.float64))
        np.add.at(counts, cell, of_measure["count"].to_numpy(dtype=np.float64))
        by_reference[str(measure)] = sums / np.maximum(counts, 1)
    return replace(arrays, references=tuple(names), by_reference=by_reference)


def groups_of(arrays: ScoreArrays, samples: pd.DataFrame | None) -> NDArray[np.int64] | None:
    """Return the number of the group of every sample, by the column `group` of the samples; None if no sample has a group.

    >>> arrays = ScoreArrays("d", "m", "e", [], [], ["a", "b", "c"], {}, np.empty((0, 0, 3), np.int8), pd.DataFrame(), {})
    >>> groups_of(arrays, pd.DataFrame({"dataset": "d", "sample": ["a", "b", "c"], "group": ["p", "", "p"]})).tolist()
    [0, 1, 0]
    """
    if samples is None or "group" not in samples:
        return None
    named = samples.loc[
        (samples["dataset"] == arrays.dataset) & samples["group"].fillna("").ne(""),
        ["sample", "group"],
    ]
    if named.empty:
        return None
    group_of = dict(zip(named["sample"].astype(str), named["group"].astype(str), strict=True))
    number_of: dict[tuple[str, str], int] = {}
    numbers = []
    for sample in arrays.samples:
        is_grouped = sample in group_of
        # A sample without a group is one by itself.
        key = ("group", group_of[sample]) if is_grouped else ("sample", sample)
        numbers.append(number_of.setdefault(key, len(number_of)))
    return np.array(numbers, dtype=np.int64)


def numbered(column: pd.Series, by_name: bool = False) -> tuple[NDArray[np.int32], list[str]]:
    """Return the number of each row's text, −1 where it is missing, and the texts that the numbers stand for.

    Texts are numbered in order of first appearance, or in alphabetical order.

    >>> numbered(pd.Series(["b", "a", "b"])), numbered(pd.Series(["b", "a", "b"], dtype="category"), by_name=True)
    ((array([0, 1, 0], dtype=int32), ['b', 'a']), (array([1, 0, 1], dtype=int32), ['a', 'b']))
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = np.asarray(column.cat.codes)
        appeared = pd.unique(codes)
        appeared = appeared[appeared >= 0]
        texts = [str(column.cat.categories[code]) for code in appeared]
    else:
        codes, labels = pd.factorize(column)
        appeared = np.arange(len(labels))
        texts = [str(label) for label in labels]

    order = list(range(len(texts)))
    if by_name:
        order.sort(key=lambda i: texts[i])
    # One entry more than there are codes, which the code −1 of missing texts leads to.
    number_of_code = np.full(int(codes.max(initial=-1)) + 2, -1, dtype=np.int32)
    number_of_code[appeared[order]] = np.arange(len(texts))
    return number_of_code[codes], [texts[i] for i in order]


def _arrays_of_rows(rows: pd.DataFrame, declared: Mapping[str, Measure]) -> ScoreArrays:
    """Return the arrays of the rows of one dataset, model and evaluation; `declared` has its measures by name."""
    explainer, explainers = numbered(rows["explainer"])
    sample, samples = numbered(rows["sample"], by_name=True)  # draws must not depend on row order
    measure, measures = numbered(rows["measure"])
    condition, conditions = _numbered_conditions(rows)
    repeat = _numbered_repeats(rows)
    status_code = pd.Categorical(rows["status"], categories=list(STATUS)).codes
    value = _numbers_of_ok_rows(rows, "value", status_code)
    chance_level = _numbers_of_ok_rows(rows, "chance", status_code)

    shape = (len(explainers), len(conditions), len(samples))
    values: dict[str, Array] = {}
    repeats: dict[str, Array] = {}
    chance: dict[str, Array] = {}
    has_rows: dict[str, NDArray[np.bool_]] = {}
    for number, name in enumerate(measures):
        rows_of_measure = measure == number
        cell = (explainer[rows_of_measure], condition[rows_of_measure], sample[rows_of_measure])
        values[name] = _mean_over_repeats(shape, cell, value[rows_of_measure])
        number_of_repeats = int(repeat[rows_of_measure].max(initial=0)) + 1
        if number_of_repeats > 1:
            repeats[name] = np.full((*shape, number_of_repeats), np.nan)
            repeats[name][*cell, repeat[rows_of_measure]] = value[rows_of_measure]
        if np.isfinite(chance_level[rows_of_measure]).any():
            chance[name] = _mean_over_repeats(shape, cell, chance_level[rows_of_measure])
        has_rows[name] = np.zeros(shape[:2], dtype=bool)
        has_rows[name][cell[:2]] = True

    status = np.full(shape, NOT_ATTEMPTED, dtype=np.int8)
    deciding = _deciding_measures(measures, declared)
    for name in reversed(deciding):  # the first decides, so it is written last
        rows_of_measure = measure == measures.index(name)
        cell = (explainer[rows_of_measure], condition[rows_of_measure], sample[rows_of_measure])
        status[cell] = status_code[rows_of_measure]
    decides = measure == (measures.index(deciding[0]) if deciding else -1)

    is_control = rows["role"] == CONTROL if "role" in rows else np.zeros(len(rows), dtype=bool)
    return ScoreArrays(
        dataset=str(rows["dataset"].iloc[0]),
        model=str(rows["model"].iloc[0]),
        evaluation=str(rows["evaluation"].iloc[0]),
        explainers=explainers,
        conditions=conditions,
        samples=samples,
        values=values,
        status=status,
        undefined_reasons=_counted_reasons(rows[(status_code == UNDEFINED) & decides]),
        has_rows=has_rows,
        repeats=repeats,
        chance=chance,
        controls=frozenset(map(str, rows.loc[is_control, "explainer"].unique())),
        settings=_condition_settings(rows),
        declared={name: declared[name] for name in measures if name in declared},
    )


def _numbers_of_ok_rows(rows: pd.DataFrame, column: str, status_code: NDArray[np.int8]) -> Array:
    """Return a column of numbers, NaN in rows whose status is not ok and where there is no such column."""
    if column not in rows:
        return np.full(len(rows), np.nan)
    numbers = rows[column].to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(status_code == OK, numbers, np.nan)


def _counted_reasons(undefined: pd.DataFrame) -> pd.DataFrame:
    """Return how often each reason stands in these rows, by explainer, condition and level."""
    keys = ["explainer", "condition", "level", "reason"]
    counts = _spelled_out(undefined).groupby(keys, sort=False, dropna=False).size()
    return counts.rename("count").reset_index()


def _numbered_conditions(rows: pd.DataFrame) -> tuple[NDArray[np.int64], list[Condition]]:
    """Return the number of every row's (condition, level), and these in order of appearance, levels rising."""
    name, names = numbered(rows["condition"])
    level, levels = pd.factorize(rows["level"])
    code, codes = pd.factorize(name * max(len(levels), 1) + level)
    conditions = []
    for pair in codes.tolist():
        name_number, level_number = divmod(pair, len(levels))
        conditions.append((names[name_number], float(levels[level_number])))

    def position(i: int) -> tuple[int, float]:
        condition, level_of_condition = conditions[i]
        return names.index(condition), level_of_condition

    order = sorted(range(len(conditions)), key=position)
    number_of_code = np.empty(len(conditions), dtype=np.int64)
    number_of_code[order] = np.arange(len(conditions))
    return number_of_code[code], [conditions[i] for i in order]


def _numbered_repeats(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Return the number of every row's repeat, from 0."""
    if "repeat" not in rows:
        return np.zeros(len(rows), dtype=np.int64)
    return np.asarray(pd.factorize(rows["repeat"], sort=True)[0], dtype=np.int64)


def _deciding_measures(measures: Sequence[str], declared: Mapping[str, Measure]) -> list[str]:
    """Return the measures that may give a pair its status; where several have a row, the first decides.

    Headlines come first, in the order in which they are declared, then the other measures, the last one first. A
    diagnostic never decides.
    """
    headlines = []
    for name, measure in declared.items():
        if measure.role == "headline" and name in measures:
            headlines.append(name)
    others = []
    for name in measures:
        is_diagnostic = name in declared and declared[name].role == "diagnostic"
        if name not in headlines and not is_diagnostic:
            others.append(name)
    return headlines + others[::-1]


def _mean_over_repeats(
    shape: tuple[int, ...], cell: tuple[NDArray[np.integer[Any]], ...], value: Array
) -> Array:
    """Return the mean of the finite values in each cell of an array of this shape, NaN where there is none."""
    total, count = np.zeros(shape), np.zeros(shape)
    is_finite = np.isfinite(value)
    finite_cell = tuple(index[is_finite] for index in cell)
    np.add.at(total, finite_cell, value[is_finite])
    np.add.at(count, finite_cell, 1.0)
    return np.asarray(np.divide(total, count, out=np.full(shape, np.nan), where=count > 0))


def _condition_settings(rows: pd.DataFrame) -> dict[str, ConditionSettings]:
    """Return the settings of each condition; empty if the table has no columns of them."""
    columns = [name for name in ("imputer", "order", "share") if name in rows]
    if not columns:
        return {}
    one_row_each = _spelled_out(rows[["condition", *columns]].drop_duplicates("condition"))
    settings = {}
    for row in one_row_each.to_dict("records"):
        settings[str(row["condition"])] = ConditionSettings(**{name: row[name] for name in columns})
    return settings


def _spelled_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with plain text instead of categories, which would list what none of these rows has."""
    plain_types = {}
    for name, column in rows.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            plain_types[name] = column.dtype.categories.dtype
    return rows.astype(plain_types)
