"""The long table as dense arrays, one cube per dataset, model and evaluation, for statistics and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.types import REDRAW, STATUS

Array = NDArray[np.float64]

SUFFIXES = ("_aligned_chance", "_aligned", "_chance")
DECISIVE = ("fass", "equivariance", "invariance", "rate")
"""Measures whose status is that of the pair, where an evaluation has several."""


@dataclass(frozen=True)
class Cube:
    """One dataset, model and evaluation of the table as dense arrays.

    `values` maps each measure (with its suffix) to (explainers, conditions, samples), NaN where there is no score;
    `status` has the same shape: 0 ok, 1 flipped, 2 undefined, −1 not attempted. The redraws of stochastic explainers
    are kept apart in `floor`: base measure to (explainers, samples). `reasons` counts why maps are undefined, and
    `asked` says for each measure which (explainers, conditions) the table has rows of.
    """

    dataset: str
    model: str
    evaluation: str
    explainers: list[str]
    conditions: list[tuple[str, float]]
    samples: list[str]
    values: dict[str, Array]
    status: NDArray[np.int8]
    floor: dict[str, Array]
    reasons: pd.DataFrame
    asked: dict[str, NDArray[np.bool_]]

    @property
    def measures(self) -> list[str]:
        """The base measures, those without a suffix."""
        return [m for m in self.values if not m.endswith(SUFFIXES)]

    def without(self, condition: str) -> Cube:
        """The cube less one condition."""
        kept = np.array([name != condition for name, _ in self.conditions], dtype=bool)
        values = {measure: scores[:, kept] for measure, scores in self.values.items()}
        conditions = [c for c, keep in zip(self.conditions, kept, strict=True) if keep]
        asked = {measure: flags[:, kept] for measure, flags in self.asked.items()}
        return replace(self, conditions=conditions, values=values, status=self.status[:, kept], asked=asked)

    @property
    def key(self) -> dict[str, str]:
        """The columns that say what a row of statistics is about."""
        return {"dataset": self.dataset, "model": self.model}


def arrange(table: pd.DataFrame | Sequence[Cube]) -> list[Cube]:
    """The table as one `Cube` per dataset, model and evaluation, in order of first appearance.

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
        cubes.append(_cube(rows[_NEEDED], *(str(rows[name].iloc[0]) for name in ("dataset", "model", "evaluation"))))
    return cubes


_NEEDED = ["explainer", "sample", "measure", "condition", "level", "value", "status", "reason"]


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
    place = np.full(int(raw.max(initial=-1)) + 2, -1, dtype=np.int32)  # the last is for what is missing
    place[found[list(order)]] = np.arange(len(names))
    return place[raw], [names[i] for i in order]


def _cube(rows: pd.DataFrame, dataset: str, model: str, evaluation: str) -> Cube:
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
    # statuses are those of the pair; the decisive measure, where there is one, is written last
    bare.sort(key=lambda i: measures[i] in DECISIVE)
    for index, text in enumerate(measures):
        here = (measure == index) & (condition >= 0)
        if here.any():
            values[text] = np.full(shape, np.nan)
            values[text][explainer[here], condition[here], sample[here]] = value[here]
            asked[text] = np.zeros(shape[:2], dtype=bool)
            asked[text][explainer[here], condition[here]] = True
        redrawn = (measure == index) & (condition < 0)
        if redrawn.any() and index in bare:
            floor[text] = np.full((shape[0], shape[2]), np.nan)
            floor[text][explainer[redrawn], sample[redrawn]] = value[redrawn]
    for index in bare:
        here = (measure == index) & (condition >= 0)
        status[explainer[here], condition[here], sample[here]] = code[here]
    decisive = measure == (bare[-1] if bare else -1)
    undefined = _spelled_out(rows[(code == 2) & decisive & (condition >= 0)])
    counted = undefined.groupby(["explainer", "condition", "level", "reason"], observed=True, sort=False, dropna=False)
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
    )


def _spelled_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Plain text instead of categories, which would list what none of these rows has."""
    kinds = {name: column.dtype for name, column in rows.items()}
    plain = {name: kind.categories.dtype for name, kind in kinds.items() if isinstance(kind, pd.CategoricalDtype)}
    return rows.astype(plain)
