"""The long table as dense arrays, one cube per dataset, model and evaluation, for statistics and charts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.evaluation import FLIPPED, OK, STATUS, UNDEFINED, Condition, Measure, Span

Array = NDArray[np.float64]

CONTROL = "control"
"""The role of an explainer that does not look at the model."""


@dataclass(frozen=True)
class Makeup:
    """What a condition is made of, as its rows say: imputer, order of removal, and share of features kept."""

    imputer: str = ""
    order: str = ""
    share: float = float("nan")


@dataclass(frozen=True)
class Cube:
    """One dataset, model and evaluation of the table as dense arrays.

    `values` maps each measure to (explainers, conditions, samples), NaN where there is no score, and the mean over
    repeats where there are several, which `repeats` has apart: (explainers, conditions, samples, repeats). `chance` has
    the chance levels beside the values, for measures that have some. `status`
    has the same shape: 0 ok, 1 flipped, 2 undefined, 3 open, −1 not attempted; it is that of the measure that decides
    about a pair. `reasons` counts why maps are undefined, and `asked` says for each measure which (explainers,
    conditions) the table has rows of. `declared` has what is known of the measures, `spans` the ends of scales that
    depend on the settings. `controls` are the explainers that do not look at the model, `makeup` says what a condition
    is made of, and `groups` (N,) is the number of the group each sample belongs to, where samples are not independent.
    `references` are the samples that chance was taken from, and `by_reference` has for each measure what each of them
    scored above chance on average: (explainers, conditions, references).
    """

    dataset: str
    model: str
    evaluation: str
    explainers: list[str]
    conditions: list[Condition]
    samples: list[str]
    values: dict[str, Array]
    status: NDArray[np.int8]
    reasons: pd.DataFrame
    asked: dict[str, NDArray[np.bool_]]
    repeats: Mapping[str, Array] = field(default_factory=dict)
    chance: dict[str, Array] = field(default_factory=dict)
    controls: frozenset[str] = frozenset()
    makeup: Mapping[str, Makeup] = field(default_factory=dict)
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
        values = self.values[name]
        is_scored = np.isfinite(values)
        number = is_scored.sum(1)
        total = np.where(is_scored, values, 0.0).sum(1)
        mean = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
        return np.asarray(mean)

    def made_of(self, condition: str) -> Makeup:
        """What a condition is made of; empty where its rows do not say."""
        return self.makeup.get(condition, Makeup())

    def conditions_of(self, measure: str) -> Cube:
        """The cube with the conditions that a measure has rows of."""
        numbers = np.flatnonzero(self.asked[measure].any(0))
        return self.select(conditions=[self.conditions[i] for i in numbers])

    def select(
        self,
        explainers: Collection[str] | None = None,
        conditions: Collection[Condition] | None = None,
        measures: Collection[str] | None = None,
    ) -> Cube:
        """The cube with these explainers, conditions and measures only, in its own order.

        With `measures` a pair without any of them is flipped, undefined or not attempted as before, and undefined if it
        was ok.
        """
        rows = [i for i, e in enumerate(self.explainers) if explainers is None or e in explainers]
        columns = [
            i for i, c in enumerate(self.conditions) if conditions is None or c in conditions
        ]
        kept = [m for m in self.values if measures is None or m in measures]
        cell = np.ix_(rows, columns)
        values = {m: self.values[m][cell] for m in kept}
        asked = {m: self.asked[m][cell] for m in kept}
        status = self.status[cell]
        if measures is not None:
            scored, tried = (
                np.zeros(status.shape, dtype=bool),
                np.zeros(status.shape[:2], dtype=bool),
            )
            for m in measures:
                if m in values:
                    scored |= np.isfinite(values[m])
                    tried |= asked[m]
            lost = np.where(status == FLIPPED, FLIPPED, UNDEFINED)
            status = np.where(
                scored, OK, np.where(tried[..., None] & (status >= 0), lost, -1)
            ).astype(np.int8)
        return replace(
            self,
            explainers=[self.explainers[i] for i in rows],
            conditions=[self.conditions[i] for i in columns],
            values=values,
            asked=asked,
            status=status,
            repeats={m: self.repeats[m][cell] for m in kept if m in self.repeats},
            chance={m: self.chance[m][cell] for m in kept if m in self.chance},
            by_reference={m: sums[cell] for m, sums in self.by_reference.items() if m in values},
        )


def arrange(
    table: pd.DataFrame | Sequence[Cube],
    measures: Mapping[str, Sequence[Measure]] | None = None,
    references: pd.DataFrame | None = None,
) -> list[Cube]:
    """The table as one `Cube` per dataset, model and evaluation, in order of first appearance.

    `measures` has what is known of those of each evaluation; the status of a pair is that of the first headline among
    them that it has, else of the last measure that is no diagnostic. `references` is the side table of what each
    reference adds to chance. Cubes stay as they are. `heatproof.axes.arrange` knows the measures of every test.

    >>> row = dict(dataset="d", model="m", explainer="e", evaluation="stability", sample="s", measure="fass",
    ...            condition="jpeg", level=40.0, value=0.5, chance=0.2, status="ok", reason="")
    >>> cube, = arrange(pd.DataFrame([row]))
    >>> cube.values["fass"].shape, cube.conditions
    ((1, 1, 1), [('jpeg', 40.0)])
    """
    if not isinstance(table, pd.DataFrame):
        return list(table)
    if table.empty:
        return []
    keys = [numbered(table[name]) for name in ("dataset", "model", "evaluation")]
    group = np.zeros(len(table), dtype=np.int64)
    for numbers, names in keys:
        group = group * len(names) + numbers
    group[np.any([numbers < 0 for numbers, _ in keys], axis=0)] = -1
    cubes = []
    for number in (found := pd.unique(group))[found >= 0]:
        rows = table if len(found) == 1 else table[group == number]
        of_evaluation = (measures or {}).get(str(rows["evaluation"].iloc[0]), ())
        cube = _cube(rows, {measure.name: measure for measure in of_evaluation})
        cubes.append(cube if references is None else _with_references(cube, references))
    return cubes


def _with_references(cube: Cube, references: pd.DataFrame) -> Cube:
    """The cube with what each reference sample scored above chance, its sum over samples by their number."""
    is_own = np.ones(len(references), dtype=bool)
    for name, value in cube.key.items():
        is_own &= (references[name] == value).to_numpy()
    own = references[is_own]
    if own.empty:
        return cube
    explainer_number = {name: i for i, name in enumerate(cube.explainers)}
    condition_number = {condition: i for i, condition in enumerate(cube.conditions)}
    names = list(cube.references) or sorted(own["reference"].unique())
    reference_number = {name: i for i, name in enumerate(names)}
    own = own.assign(
        e=own["explainer"].map(explainer_number),
        c=[
            condition_number.get(c, np.nan)
            for c in zip(own["condition"], own["level"], strict=True)
        ],
        r=own["reference"].map(reference_number),
    ).dropna(subset=["e", "c", "r"])

    by_reference = {}
    shape = (len(cube.explainers), len(cube.conditions), len(names))
    for measure, rows in own.groupby("measure", sort=False, observed=True):
        sums, counts = np.zeros(shape), np.zeros(shape)
        places = tuple(rows[axis].to_numpy(dtype=np.int64) for axis in ("e", "c", "r"))
        np.add.at(sums, places, rows["sum"].to_numpy(dtype=np.float64))
        np.add.at(counts, places, rows["count"].to_numpy(dtype=np.float64))
        by_reference[str(measure)] = sums / np.maximum(counts, 1)
    return replace(cube, references=tuple(names), by_reference=by_reference)


def groups_of(cube: Cube, samples: pd.DataFrame | None) -> NDArray[np.int64] | None:
    """The number of the group of every sample of a cube, by the column `group` of the samples; None where it has none.

    >>> cube = Cube("d", "m", "e", [], [], ["a", "b", "c"], {}, np.empty((0, 0, 3), np.int8), {}, pd.DataFrame(), {})
    >>> groups_of(cube, pd.DataFrame({"dataset": "d", "sample": ["a", "b", "c"], "group": ["p", "", "p"]})).tolist()
    [0, 1, 0]
    """
    if samples is None or "group" not in samples:
        return None
    named = samples.loc[
        (samples["dataset"] == cube.dataset) & samples["group"].fillna("").ne(""),
        ["sample", "group"],
    ]
    if named.empty:
        return None
    known = dict(zip(named["sample"].astype(str), named["group"].astype(str), strict=True))
    codes: dict[tuple[str, str], int] = {}  # a sample without a group is one by itself
    keys = (
        ("group", known[sample]) if sample in known else ("sample", sample)
        for sample in cube.samples
    )
    return np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)


def numbered(column: pd.Series, by_name: bool = False) -> tuple[NDArray[np.int32], list[str]]:
    """The texts of a column in order of first appearance, or of the texts, and the number of each row's; −1 is missing.

    >>> numbered(pd.Series(["b", "a", "b"])), numbered(pd.Series(["b", "a", "b"], dtype="category"), by_name=True)
    ((array([0, 1, 0], dtype=int32), ['b', 'a']), (array([1, 0, 1], dtype=int32), ['a', 'b']))
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        raw = np.asarray(column.cat.codes)
        found = (first := pd.unique(raw))[first >= 0]
        names = [str(column.cat.categories[i]) for i in found]
    else:
        raw, labels = pd.factorize(column)
        found, names = np.arange(len(labels)), [str(label) for label in labels]
    order = sorted(range(len(names)), key=names.__getitem__) if by_name else range(len(names))
    place = np.full(
        int(raw.max(initial=-1)) + 2, -1, dtype=np.int32
    )  # the last is for what is missing
    place[found[list(order)]] = np.arange(len(names))
    return place[raw], [names[i] for i in order]


def _cube(rows: pd.DataFrame, known: Mapping[str, Measure]) -> Cube:
    """The cube of the rows of one dataset, model and evaluation."""
    dataset, model, evaluation = (
        str(rows[name].iloc[0]) for name in ("dataset", "model", "evaluation")
    )
    explainer, explainers = numbered(rows["explainer"])
    sample, samples = numbered(rows["sample"], by_name=True)  # draws must not depend on row order
    measure, measures = numbered(rows["measure"])
    condition, conditions = _numbered_conditions(rows)
    code = pd.Categorical(rows["status"], categories=list(STATUS)).codes
    is_ok = code == OK
    columns = {}
    for name in ("value", "chance"):
        if name in rows:
            numbers = rows[name].to_numpy(dtype=np.float64, na_value=np.nan)
            columns[name] = np.where(is_ok, numbers, np.nan)

    shape = (len(explainers), len(conditions), len(samples))
    repeat = _numbered_repeats(rows)
    values: dict[str, Array] = {}
    repeats: dict[str, Array] = {}
    chance: dict[str, Array] = {}
    asked: dict[str, NDArray[np.bool_]] = {}
    for index, name in enumerate(measures):
        here = measure == index
        at = (explainer[here], condition[here], sample[here])
        values[name] = _mean_over_repeats(shape, at, columns["value"][here])
        number_of_repeats = int(repeat[here].max(initial=0)) + 1
        if number_of_repeats > 1:
            repeats[name] = np.full((*shape, number_of_repeats), np.nan)
            repeats[name][*at, repeat[here]] = columns["value"][here]
        if "chance" in columns and np.isfinite(columns["chance"][here]).any():
            chance[name] = _mean_over_repeats(shape, at, columns["chance"][here])
        asked[name] = np.zeros(shape[:2], dtype=bool)
        asked[name][explainer[here], condition[here]] = True

    status = np.full(shape, -1, dtype=np.int8)
    deciding = _deciding_measures(measures, known)
    for name in reversed(deciding):  # the first decides, so it is written last
        here = measure == measures.index(name)
        status[explainer[here], condition[here], sample[here]] = code[here]

    decides = measure == (measures.index(deciding[0]) if deciding else -1)
    undefined = _spelled_out(rows[(code == UNDEFINED) & decides])
    counted = undefined.groupby(
        ["explainer", "condition", "level", "reason"], sort=False, dropna=False
    )
    controls = rows.loc[rows["role"] == CONTROL, "explainer"].unique() if "role" in rows else ()
    return Cube(
        dataset=dataset,
        model=model,
        evaluation=evaluation,
        explainers=explainers,
        conditions=conditions,
        samples=samples,
        values=values,
        status=status,
        reasons=counted.size().rename("count").reset_index(),
        asked=asked,
        repeats=repeats,
        chance=chance,
        controls=frozenset(map(str, controls)),
        makeup=_makeup(rows),
        declared={name: known[name] for name in measures if name in known},
    )


def _numbered_conditions(rows: pd.DataFrame) -> tuple[NDArray[np.int64], list[Condition]]:
    """The number of every row's (condition, level), and these in order of appearance, levels rising."""
    name, names = numbered(rows["condition"])
    level, levels = pd.factorize(rows["level"])
    pair, pairs = pd.factorize(name * max(len(levels), 1) + level)
    labels = [(names[p // len(levels)], float(levels[p % len(levels)])) for p in pairs.tolist()]
    order = sorted(range(len(labels)), key=lambda i: (names.index(labels[i][0]), labels[i][1]))
    place = np.empty(len(labels), dtype=np.int64)
    place[order] = np.arange(len(labels))
    return place[pair], [labels[i] for i in order]


def _numbered_repeats(rows: pd.DataFrame) -> NDArray[np.int64]:
    """The number of every row's repeat, from 0."""
    if "repeat" not in rows:
        return np.zeros(len(rows), dtype=np.int64)
    return np.asarray(pd.factorize(rows["repeat"], sort=True)[0], dtype=np.int64)


def _deciding_measures(measures: Sequence[str], known: Mapping[str, Measure]) -> list[str]:
    """The measures whose status is that of the pair, the first of them where several have rows.

    Headlines come first, in the order in which they are declared, then the others, the last one first. A diagnostic
    decides about nothing.
    """
    headlines = [name for name, m in known.items() if m.role == "headline" and name in measures]
    others = [
        name
        for name in measures
        if name not in headlines and (name not in known or known[name].role != "diagnostic")
    ]
    return headlines + others[::-1]


def _mean_over_repeats(
    shape: tuple[int, ...], at: tuple[NDArray[np.int32], ...], value: Array
) -> Array:
    """The mean of the finite values at each place, NaN where there is none."""
    total, n = np.zeros(shape), np.zeros(shape)
    finite = np.isfinite(value)
    places = tuple(index[finite] for index in at)
    np.add.at(total, places, value[finite])
    np.add.at(n, places, 1.0)
    return np.asarray(np.divide(total, n, out=np.full(shape, np.nan), where=n > 0))


def _makeup(rows: pd.DataFrame) -> dict[str, Makeup]:
    columns = [name for name in ("imputer", "order", "share") if name in rows]
    if not columns:
        return {}
    once = _spelled_out(rows[["condition", *columns]].drop_duplicates("condition"))
    return {
        str(r["condition"]): Makeup(**{name: r[name] for name in columns})
        for r in once.to_dict("records")
    }


def _spelled_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Plain text instead of categories, which would list what none of these rows has."""
    kinds = {name: column.dtype for name, column in rows.items()}
    plain = {
        name: kind.categories.dtype
        for name, kind in kinds.items()
        if isinstance(kind, pd.CategoricalDtype)
    }
    return rows.astype(plain)
