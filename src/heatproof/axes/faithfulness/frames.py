"""What charts and words about removal share: the headlines, where they were read, and standings with intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes.contract import RANDOM as RANDOM_ORDER
from heatproof.axes.contract import AxisResult
from heatproof.axes.faithfulness import AXIS
from heatproof.axes.faithfulness.kinds import KINDS, Kind
from heatproof.axes.faithfulness.realism import POPULATION, area_and_interval
from heatproof.evaluation import Condition, Measure
from heatproof.explainers.controls import RandomMap
from heatproof.features import Passages
from heatproof.removal.imputers import NoisyLinear
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array, Cube
from heatproof.statistics.estimates import interval
from heatproof.statistics.intervals import ALIKE, ERROR
from heatproof.types import matches

RANDOM = "random order"
HEADLINES = tuple(measure for measure in AXIS.measures if measure.role == "headline")
BY_NAME = {measure.name: measure for measure in HEADLINES}
_SHORT = {
    "deletion_auc": "Deletion",
    "insertion_auc": "Insertion",
    "pixel_flipping": "Flipping",
    "faithfulness_correlation": "Correlation",
    "sensitivity_n": "Sens.-n",
    "infidelity_scaled": "Infidelity",
    "infidelity": "Unscaled",
}
"""Titles that fit on a button or in the head of a column, where those of the records do not."""


@dataclass(frozen=True)
class Line:
    """Where a headline was read: the imputer that filled in, and for sensitivity-n the share that was removed."""

    condition: str
    level: float
    name: str

    @property
    def where(self) -> Condition:
        """The condition with its level, as cubes have it."""
        return self.condition, self.level


def short(measure: Measure) -> str:
    """A headline's title on a button or in the head of a column."""
    return _SHORT.get(measure.name, measure.title)


def better(measure: Measure) -> str:
    """Which direction is good, in words."""
    return f"{measure.better} is better"


def words(judged: AxisResult) -> Kind:
    """The words for the data of an axis; those for images where the manifest does not say."""
    kind, name = (
        KINDS[judged.task.get("modality", "image")],
        judged.settings.get("features", {}).get("name"),
    )
    return replace(kind, parts=name, segments=name) if name == Passages.name else kind


def spoken(judged: AxisResult) -> str:
    """The readout in words: of a task without probabilities what it reads, in its own units."""
    own, classes = str(judged.task.get("readout", "")), ("classification", "binary", "multi_label")
    named = judged.task.get("task", classes[0]) in classes
    return readout(judged) if named else f"{own.removeprefix('the ')}, in its own units"


def readout(judged: AxisResult) -> str:
    """The readout of the model that curves are summed up by."""
    return str(judged.settings.get("readout") or "probability")


def seeing_controls(judged: AxisResult, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of controls that see the input; random maps are left out, as theirs is a random order."""
    names = {
        explainer: judged.settings_of(explainer).get("name", explainer)
        for explainer in rows["explainer"]
    }
    return rows[rows["control"] & (rows["explainer"].map(names) != RandomMap.name)]


def imputers(cube: Cube) -> list[str]:
    """The imputers with curves, that of the ROAD paper first."""
    made = (cube.made_of(condition) for condition, _ in cube.conditions)
    return primary_first(dict.fromkeys(m.imputer for m in made if m.order in ("morf", "lerf")))


def swept(cube: Cube, imputer: str) -> list[Condition]:
    """The conditions of an imputer's curves, every order and fraction."""
    made = ((c, cube.made_of(c[0])) for c in cube.conditions)
    return [c for c, m in made if m.imputer == imputer and m.order]


def primary_first(names: Iterable[str]) -> list[str]:
    """Names with those of noisy linear imputation first.

    >>> primary_first(["blur", "noisy_linear(sigma=0.03)"])
    ['noisy_linear(sigma=0.03)', 'blur']
    """
    return sorted(names, key=lambda name: not matches(f"{NoisyLinear.name}*", name))


def with_makeup(cells: pd.DataFrame, cube: Cube) -> pd.DataFrame:
    """Rows of statistics with the imputer and the order of their conditions as columns."""
    made = [cube.made_of(condition) for condition in cells["condition"]]
    return cells.assign(imputer=[m.imputer for m in made], order=[m.order for m in made])


def lines(cube: Cube, measure: Measure) -> list[Line]:
    """Every place at which a headline has a number, the paper's imputer first."""
    values = cube.values.get(measure.name)
    if values is None:
        return []
    places = [c for i, c in enumerate(cube.conditions) if np.isfinite(values[:, i]).any()]
    by_name = {name: i for i, name in enumerate(primary_first(dict.fromkeys(c for c, _ in places)))}
    places.sort(key=lambda place: (by_name[place[0]], place[1]))
    return [
        Line(c, level, f"{100 * level:g} % removed, {c}" if level else c) for c, level in places
    ]


def standings(cube: Cube, measure: Measure, line: Line) -> pd.DataFrame:
    """explainer, control, mean, low, high, n at one place, the best first; explainers without a number are left out."""
    part = cube.select(measures=[measure.name], conditions=[line.where])
    rows = statistics.summary([part])
    rows = rows.loc[
        rows["mean"].notna(), ["explainer", "control", "mean", "low", "high", "retained"]
    ]
    rows = rows.rename(columns={"retained": "n"})
    return rows.sort_values("mean", ascending=measure.sign < 0, kind="stable", ignore_index=True)


def comparisons(cube: Cube, measure: Measure, line: Line) -> pd.DataFrame:
    """Paired tests between explainers, differences turned so that more is better."""
    tests = statistics.paired_tests(
        [cube.select(measures=[measure.name], conditions=[line.where])], measure.name, form="raw"
    )
    if measure.sign < 0:
        tests["difference"] *= -1
        tests[["low", "high"]] = -tests[["high", "low"]].to_numpy()
    return tests


def random_scores(cube: Cube, measure: Measure, line: Line) -> Array | None:
    """What a random order scores on each sample, (N,); None where nobody knows."""
    if measure.chance == "zero":
        return np.zeros(len(cube.samples))
    name = f"{measure.name}{RANDOM_ORDER}"
    if measure.chance != "random" or name not in cube.values:
        return None
    return once(cube.values[name][:, cube.conditions.index(line.where)])


def once(values: Array) -> Array:
    """A number per sample from the copies under every explainer (E, N); NaN where no explainer has one."""
    return mean_of_finite(values.T)


def over_random(cube: Cube, measure: Measure, line: Line) -> pd.DataFrame | None:
    """By how much each explainer is better than a random order on the same samples.

    Columns: explainer, control, n, mean, low, high, and whether it is significantly `above` or `below` a random order:
    one-sided bounds at 5 % divided by the number of methods.
    """
    chance = random_scores(cube, measure, line)
    if chance is None:
        return None
    scores = cube.values[measure.name][:, cube.conditions.index(line.where)]
    gap = measure.sign * (scores - chance)
    low, high = interval(gap, groups=cube.groups)
    frame = pd.DataFrame(
        {"explainer": cube.explainers, "control": [e in cube.controls for e in cube.explainers]}
    )
    scored = pd.Series(np.isfinite(gap).any(-1))
    methods = max(int((scored & ~frame["control"]).sum()), 1)
    # A two-sided interval with twice the error on both sides has the one-sided bounds as its ends.
    surely_low, surely_high = interval(gap, level=1 - 2 * ERROR / methods, groups=cube.groups)
    frame = frame.assign(n=np.isfinite(gap).sum(-1), mean=mean_of_finite(gap), low=low, high=high)
    frame = frame.assign(above=surely_low > ALIKE, below=surely_high < -ALIKE)
    return frame[frame["n"] > 0].reset_index(drop=True)


def detectability(table: pd.DataFrame) -> pd.DataFrame:
    """How well the filled inputs of each imputer and fraction can be told from real ones by the model's features.

    Columns: dataset, model, evaluation, imputer, level, area, low, high, samples; of a table that has no such rows, or
    too few samples, there are none. ½ is a guess; `realism` has the formulas.

    >>> detectability(pd.DataFrame(columns=["measure", "status", "value"])).empty
    True
    """
    rows = table[(table["measure"] == "detectability") & (table["status"] == "ok")]
    if rows.empty:
        return pd.DataFrame()
    keys, found = ["dataset", "model", "evaluation", "imputer", "level"], []
    for key, part in rows.groupby(keys, sort=False, observed=True):
        values = part.drop_duplicates("sample")["value"].to_numpy(
            np.float64
        )  # repeated under every explainer
        ends = area_and_interval(values, POPULATION)
        found.append([*key, *ends, len(values)])
    return pd.DataFrame(found, columns=[*keys, "area", "low", "high", "samples"]).dropna()


def best_headline(cube: Cube) -> tuple[Measure, Line] | None:
    """What explainers are ranked by: ROAD where there is one, else the first headline that has numbers."""
    return next(
        ((measure, line) for measure in HEADLINES for line in lines(cube, measure)[:1]), None
    )


def explainer_order(cube: Cube) -> list[str]:
    """All explainers, the best first; those without a number come last."""
    best = best_headline(cube)
    ranked = [] if best is None else standings(cube, *best)["explainer"].tolist()
    return [*ranked, *(e for e in cube.explainers if e not in ranked)]
