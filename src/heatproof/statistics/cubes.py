"""The long table as dense arrays, one cube per dataset, model and evaluation, for statistics and charts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.evaluation import FLIPPED, IDENTITY, OK, REDRAW, STATUS, UNDEFINED, Condition, Span
from heatproof.maps.chance import unpacked

Array = NDArray[np.float64]

SUFFIXES = ("_aligned_chance", "_aligned", "_chance")
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

    `values` maps each measure (with its suffix) to (explainers, conditions, samples), NaN where there is no score, and
    the mean over repeats where there are several; `status` has the same shape: 0 ok, 1 flipped, 2 undefined, −1 not
    attempted. The redraws of stochastic explainers are kept apart in `floor`: base measure to (explainers, samples).
    `reasons` counts why maps are undefined, and `asked` says for each measure which (explainers, conditions) the table
    has rows of. `controls` are the explainers that do not look at the model, `makeup` says what a condition is made of,
    and conditions `aside` take no part in overall scores. `spans` has the ends of the scale of a measure, `rates` the
    names of those that are 0 or 1, `groups` (N,) the number of the group each sample belongs to, where samples are not
    independent. `references` are the samples that chance was taken from, and `by_reference` has for each column of
    chance what each of them scored above the mean of
    all, summed over samples: (explainers, conditions, references).
    """

    dataset: str
    model: str
    evaluation: str
    explainers: list[str]
    conditions: list[Condition]
    samples: list[str]
    values: dict[str, Array]
    status: NDArray[np.int8]
    floor: dict[str, Array]
    reasons: pd.DataFrame
    asked: dict[str, NDArray[np.bool_]]
    controls: frozenset[str] = frozenset()
    makeup: Mapping[str, Makeup] = field(default_factory=dict)
    aside: frozenset[str] = frozenset({IDENTITY})
    spans: Mapping[str, Span] = field(default_factory=dict)
    rates: frozenset[str] = frozenset()
    groups: NDArray[np.int64] | None = None
    references: tuple[str, ...] = ()
    by_reference: Mapping[str, Array] = field(default_factory=dict)

    @property
    def measures(self) -> list[str]:
        """The base measures, those without a suffix."""
        return [m for m in self.values if not m.endswith(SUFFIXES)]

    @property
    def key(self) -> dict[str, str]:
        """The columns that say what a row of statistics is about."""
        return {"dataset": self.dataset, "model": self.model, "evaluation": self.evaluation}

    def span(self, column: str) -> Span | None:
        """The ends of the scale of a column, whichever form of its measure it is; None where it has none."""
        return next(
            (
                self.spans[name]
                for name in (column, *map(column.removesuffix, SUFFIXES))
                if name in self.spans
            ),
            None,
        )

    def made_of(self, condition: str) -> Makeup:
        """What a condition is made of; empty where its rows do not say."""
        return self.makeup.get(condition, Makeup())

    def counted(self) -> Cube:
        """The cube less the conditions that take no part in overall scores."""
        return self.select(conditions=[c for c in self.conditions if c[0] not in self.aside])

    def select(
        self,
        explainers: Collection[str] | None = None,
        conditions: Collection[Condition] | None = None,
        measures: Collection[str] | None = None,
    ) -> Cube:
        """The cube with these explainers, conditions and base measures only, in its own order.

        With `measures` a pair without any of them is flipped, undefined or not attempted as before, and undefined if it
        was ok.
        """
        rows = [i for i, e in enumerate(self.explainers) if explainers is None or e in explainers]
        columns = [
            i for i, c in enumerate(self.conditions) if conditions is None or c in conditions
        ]
        forms = (
            None
            if measures is None
            else {m + suffix for m in measures for suffix in ("", *SUFFIXES)}
        )
        kept = [m for m in self.values if forms is None or m in forms]
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
            floor={
                m: scores[rows] for m, scores in self.floor.items() if forms is None or m in forms
            },
            by_reference={m: sums[cell] for m, sums in self.by_reference.items() if m in values},
        )


def arrange(
    table: pd.DataFrame | Sequence[Cube],
    headlines: Sequence[str] = (),
    aside: Collection[str] = (IDENTITY,),
) -> list[Cube]:
    """The table as one `Cube` per dataset, model and evaluation, in order of first appearance.

    The status of a pair is that of the first of `headlines` that it has, else of the last measure. Cubes stay as they
    are. `heatproof.axes.arrange` knows the headlines of every axis, and what else each of them sets `aside`.

    >>> row = dict(dataset="d", model="m", explainer="e", evaluation="stability", sample="s", measure="fass",
    ...            condition="jpeg", level=40.0, value=0.5, low=None, high=None, status="ok", reason="")
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
        cubes.append(replace(_cube(rows, headlines), aside=frozenset(aside)))
    return cubes


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


def _cube(rows: pd.DataFrame, headlines: Sequence[str]) -> Cube:
    """The cube of the rows of one dataset, model and evaluation."""
    dataset, model, evaluation = (
        str(rows[name].iloc[0]) for name in ("dataset", "model", "evaluation")
    )
    explainer, explainers = numbered(rows["explainer"])
    sample, samples = numbered(rows["sample"], by_name=True)  # draws must not depend on row order
    measure, measures = numbered(rows["measure"])
    name, titles = numbered(rows["condition"])
    level, levels = pd.factorize(rows["level"])
    pair, pairs = pd.factorize(name * max(len(levels), 1) + level)
    steps = [float(x) for x in levels]
    labels = [(titles[p // len(steps)], steps[p % len(steps)]) for p in pairs.tolist()]
    order = sorted(range(len(labels)), key=lambda i: (titles.index(labels[i][0]), labels[i][1]))
    kept = [i for i in order if labels[i][0] != REDRAW]
    place = np.full(len(labels), -1, dtype=np.int32)
    place[kept] = np.arange(len(kept))
    condition = place[pair]
    value = rows["value"].to_numpy(dtype=np.float64, na_value=np.nan)
    code = pd.Categorical(rows["status"], categories=list(STATUS)).codes
    value = np.where(code == 0, value, np.nan)

    shape = (len(explainers), len(kept), len(samples))
    status = np.full(shape, -1, dtype=np.int8)
    values: dict[str, Array] = {}
    asked: dict[str, NDArray[np.bool_]] = {}
    floor: dict[str, Array] = {}
    bare = [i for i, text in enumerate(measures) if not text.endswith(SUFFIXES)]
    # Statuses are those of the pair, so the measure that decides about it is written last.
    priority = {name: len(headlines) - i for i, name in enumerate(headlines)}
    bare.sort(key=lambda i: priority.get(measures[i], 0))
    for index, text in enumerate(measures):
        here = (measure == index) & (condition >= 0)
        if here.any():
            at = (explainer[here], condition[here], sample[here])
            values[text] = _mean_over_repeats(shape, at, value[here])
            asked[text] = np.zeros(shape[:2], dtype=bool)
            asked[text][explainer[here], condition[here]] = True
        redrawn = (measure == index) & (condition < 0)
        if redrawn.any() and index in bare:
            floor[text] = np.full((shape[0], shape[2]), np.nan)
            floor[text][explainer[redrawn], sample[redrawn]] = value[redrawn]
    for index in bare:
        here = (measure == index) & (condition >= 0)
        status[explainer[here], condition[here], sample[here]] = code[here]
    stored: Any = (
        rows["references"].to_numpy(dtype=object) if "references" in rows else np.empty(0, object)
    )
    by_reference: dict[str, Array] = {}  # summed over shards
    for i in np.flatnonzero(pd.notna(stored)):
        above = unpacked(stored[i])
        sums = by_reference.setdefault(measures[measure[i]], np.zeros((*shape[:2], len(above))))
        sums[explainer[i], condition[i]] += above
    decisive = measure == (bare[-1] if bare else -1)
    undefined = _spelled_out(rows[(code == 2) & decisive & (condition >= 0)])
    controls = rows.loc[rows["role"] == CONTROL, "explainer"].unique() if "role" in rows else ()
    counted = undefined.groupby(
        ["explainer", "condition", "level", "reason"], sort=False, dropna=False
    )
    return Cube(
        dataset=dataset,
        model=model,
        evaluation=evaluation,
        explainers=explainers,
        conditions=[labels[i] for i in kept],
        samples=samples,
        values=values,
        status=status,
        floor=floor,
        reasons=counted.size().rename("count").reset_index(),
        asked=asked,
        controls=frozenset(map(str, controls)),
        makeup=_makeup(rows),
        by_reference=by_reference,
    )


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
