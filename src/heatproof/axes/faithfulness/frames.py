"""What charts and words about removal share: the headlines, where they were read, and standings with intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes.contract import AxisResult
from heatproof.axes.faithfulness import AXIS
from heatproof.axes.faithfulness.realism import POPULATION, area_and_interval
from heatproof.drawing.methods import removal_words
from heatproof.drawing.prose import listing
from heatproof.evaluation import Condition, Measure
from heatproof.explainers.controls import RandomMap
from heatproof.features import Passages
from heatproof.kinds import KINDS, DataKind
from heatproof.removal.imputers import NoisyLinear
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array, Cube
from heatproof.statistics.estimates import estimates
from heatproof.statistics.intervals import ALIKE
from heatproof.types import matches

RANDOM = "random order"
HEADLINES = tuple(measure for measure in AXIS.measures if measure.role == "headline")
BY_NAME = {measure.name: measure for measure in HEADLINES}
_SHORT = {
    "road": "ROAD (LeRF − MoRF)/2",
    "road_morf_accuracy": "MoRF accuracy",
    "deletion_auc": "Deletion",
    "insertion_auc": "Insertion",
    "pixel_flipping": "Flipping",
    "faithfulness_correlation": "Correlation",
    "sensitivity_n": "Sens.-n",
    "infidelity_scaled": "Infidelity",
    "infidelity": "Unscaled",
}
"""Titles in this section, where they differ from those of the records."""


@dataclass(frozen=True)
class Reading:
    """Where a headline was read: conditions, over which the mean is taken, a name for a chart, and words for a sentence.

    The mean is that of `statistics.ranking`: over imputers of the mean over the shares removed.
    """

    conditions: tuple[Condition, ...]
    name: str
    words: str


def short(measure: Measure) -> str:
    """A headline's title in this section."""
    return _SHORT.get(measure.name, measure.title)


def better(measure: Measure) -> str:
    """Which direction is good, in words."""
    return f"{measure.better} is better"


def words(result: AxisResult) -> DataKind:
    """The words for the data of an axis; those for images where the manifest does not say."""
    kind = KINDS[result.modality]
    name = result.settings.get("features", {}).get("name")
    return replace(kind, parts=name, segments=name) if name == Passages.name else kind


def spoken(result: AxisResult) -> str:
    """The readout in words: of a task without probabilities what it reads, in its own units."""
    has_probability = result.task.task in ("", "classification", "binary", "multi_label")
    if has_probability:
        return readout(result)
    return f"{result.task.readout.removeprefix('the ')}, in its own units"


def readout(result: AxisResult) -> str:
    """The readout of the model that curves are summed up by."""
    return str(result.settings.get("readout") or "probability")


def seeing_controls(result: AxisResult, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of controls that see the input; random maps are left out, as theirs is a random order."""
    names = {explainer: result.registered_name(explainer) for explainer in rows["explainer"]}
    return rows[rows["control"] & (rows["explainer"].map(names) != RandomMap.name)]


def imputers(cube: Cube) -> list[str]:
    """The imputers with curves, that of the ROAD paper first."""
    makeups = [cube.made_of(condition) for condition, _ in cube.conditions]
    return primary_first(dict.fromkeys(m.imputer for m in makeups if m.order in ("morf", "lerf")))


def swept(cube: Cube, imputer: str) -> list[Condition]:
    """The conditions of an imputer's curves, both orders and every fraction."""
    found = []
    for condition in cube.conditions:
        makeup = cube.made_of(condition[0])
        if makeup.imputer == imputer and makeup.order in ("morf", "lerf"):
            found.append(condition)
    return found


def primary_first(names: Iterable[str]) -> list[str]:
    """Names with those of noisy linear imputation first.

    >>> primary_first(["blur", "noisy_linear(sigma=0.03)"])
    ['noisy_linear(sigma=0.03)', 'blur']
    """
    return sorted(names, key=lambda name: not matches(f"{NoisyLinear.name}*", name))


def with_makeup(cells: pd.DataFrame, cube: Cube) -> pd.DataFrame:
    """Rows of statistics with the imputer and the order of their conditions as columns."""
    makeups = [cube.made_of(condition) for condition in cells["condition"]]
    return cells.assign(imputer=[m.imputer for m in makeups], order=[m.order for m in makeups])


def _scored_conditions(cube: Cube, measure: Measure) -> list[Condition]:
    """The conditions under which a headline has a number, the paper's imputer first, shares rising."""
    if measure.name not in cube.values:
        return []
    is_scored = np.asarray(np.isfinite(cube.values[measure.name]).any((0, 2)))
    scored = [c for c, has in zip(cube.conditions, is_scored, strict=True) if has]
    names = primary_first(dict.fromkeys(name for name, _ in scored))
    return sorted(scored, key=lambda condition: (names.index(condition[0]), condition[1]))


def readings(cube: Cube, measure: Measure) -> list[Reading]:
    """The numbers of a headline, one by one: of every imputer, and of sensitivity-n every share removed.

    The accuracy after MoRF is a mean over the shares, as those are the points of a curve.
    """
    by_name: dict[str, tuple[Condition, ...]] = {}
    for condition, level in _scored_conditions(cube, measure):
        has_own_number = level and measure.name != "road_morf_accuracy"
        name = f"{100 * level:g} % removed, {condition}" if has_own_number else condition
        by_name[name] = (*by_name.get(name, ()), (condition, level))
    return [
        Reading(places, name, f"with {removal_words(name)}") for name, places in by_name.items()
    ]


def overall(cube: Cube, measure: Measure) -> Reading | None:
    """What explainers are ranked by: the mean of all readings of a headline; None where it has no number."""
    every = readings(cube, measure)
    if len(every) <= 1:
        return every[0] if every else None
    conditions = tuple(condition for reading in every for condition in reading.conditions)
    names = list(dict.fromkeys(name for name, _ in conditions))
    if len(names) == 1:
        only = removal_words(names[0])
        return Reading(conditions, "mean over shares", f"with {only}, mean over shares removed")
    imputers = listing(removal_words(name) for name in names)
    return Reading(conditions, "mean over imputers", f"averaged over {imputers}")


def _at(cube: Cube, measure: Measure, reading: Reading) -> Cube:
    """The cube of one headline where it was read."""
    return cube.select(measures=[measure.name], conditions=reading.conditions)


def standings(cube: Cube, measure: Measure, reading: Reading) -> pd.DataFrame:
    """explainer, control, mean, low, high, n of a reading, the best first; explainers without a number are left out."""
    part = _at(cube, measure, reading)
    scores = estimates(part, measure.name, "raw").nested([name for name, _ in part.conditions])
    low, high = scores.interval()
    rows = pd.DataFrame(
        {
            "explainer": part.explainers,
            "control": [explainer in part.controls for explainer in part.explainers],
            "mean": scores.value,
            "low": low,
            "high": high,
            "n": np.isfinite(part.values[measure.name]).any(1).sum(-1),
        }
    )
    rows = rows[rows["mean"].notna()]
    return rows.sort_values("mean", ascending=measure.sign < 0, kind="stable", ignore_index=True)


def comparisons(cube: Cube, measure: Measure, reading: Reading) -> pd.DataFrame:
    """Paired tests between explainers, differences turned so that more is better."""
    part = _at(cube, measure, reading)
    return _turned(statistics.paired_tests([part], measure.name, form="raw"), measure)


def overall_comparisons(result: AxisResult, measure: Measure) -> pd.DataFrame:
    """`comparisons` of the overall reading: the tests that the other charts of the report rest on."""
    if measure in result.headlines:
        return _turned(result.tests[result.tests["measure"] == measure.name].copy(), measure)
    return _turned(statistics.paired_tests([result.cube], measure.name, form="raw"), measure)


def _turned(tests: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """Paired tests with differences that are positive where the first explainer is better."""
    if measure.sign < 0:
        tests["difference"] *= -1
        tests[["low", "high"]] = -tests[["high", "low"]].to_numpy()
    return tests


def random_level(cube: Cube, measure: Measure, reading: Reading) -> float:
    """What a random order scores on average, NaN where nobody knows."""
    part = _at(cube, measure, reading)
    if measure.name not in part.chance:
        return float("nan")
    names = [name for name, _ in part.conditions]
    of_conditions = mean_of_finite(once(part.chance[measure.name]))
    return float(pd.Series(of_conditions, index=names).groupby(level=0).mean().mean())


def once(values: Array) -> Array:
    """A number per condition and sample, (C, N), from the copies under every explainer (E, C, N); NaN where none is."""
    return mean_of_finite(np.moveaxis(values, 0, -1))


def over_random(cube: Cube, measure: Measure, reading: Reading) -> pd.DataFrame | None:
    """By how much each explainer is better than a random order on the same samples; None where nobody knows.

    Columns: explainer, control, n, mean, low, high, and whether it is significantly `below` a random order, by a
    one-sided bound that holds for all methods at once. Who is above it is said by `AxisResult.verdict`.
    """
    part = _at(cube, measure, reading)
    if measure.name not in part.chance:
        return None
    gap = measure.sign * (part.values[measure.name] - part.chance[measure.name])
    # A gap has another scale than the measure, so what is declared of the measure does not hold.
    gaps = replace(part, values={measure.name: gap}, chance={}, declared={}, spans={})
    ranked = statistics.ranking([gaps], measure.name, form="raw", better="neither")
    ranked = ranked[ranked["score"].notna()].rename(columns={"score": "mean", "samples": "n"})
    ranked["below"] = ranked["upper_bound"] < -ALIKE
    columns = ["explainer", "control", "n", "mean", "low", "high", "below"]
    return ranked[columns].reset_index(drop=True)


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
    keys = ["dataset", "model", "evaluation", "imputer", "level"]
    found = []
    for key, part in rows.groupby(keys, sort=False, observed=True):
        once_per_sample = part.drop_duplicates("sample")  # repeated under every explainer
        values = once_per_sample["value"].to_numpy(np.float64)
        found.append([*key, *area_and_interval(values, POPULATION), len(values)])
    return pd.DataFrame(found, columns=[*keys, "area", "low", "high", "samples"]).dropna()


def best_headline(cube: Cube) -> tuple[Measure, Reading] | None:
    """What explainers are ranked by: ROAD where there is one, else the first headline with numbers; over all imputers."""
    for measure in HEADLINES:
        reading = overall(cube, measure)
        if reading is not None:
            return measure, reading
    return None


def explainer_order(cube: Cube) -> list[str]:
    """All explainers, the best first; those without a number come last."""
    best = best_headline(cube)
    ranked = [] if best is None else standings(cube, *best)["explainer"].tolist()
    return [*ranked, *(e for e in cube.explainers if e not in ranked)]
