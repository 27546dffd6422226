"""Numbers of the report that are read off the rows of removal: readings of a metric, the random order, the leak.

They are functions of an `AxisResult`; `report.py` shows them and `findings.py` draws conclusions from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pandas as pd

from heatproof.axes.faithfulness import AXIS, LEAKAGE, RETRAINING
from heatproof.axes.faithfulness.consistency import consistency
from heatproof.axes.faithfulness.realism import POPULATION, area_and_interval
from heatproof.axes.faithfulness.retraining.leakage import PROBES, leakage_summary
from heatproof.evaluation import Condition, Measure
from heatproof.features import Passages
from heatproof.kinds import KINDS, DataKind
from heatproof.removal.names import removal_words
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import paired_tests
from heatproof.results.ranking import ranking
from heatproof.results.verdict import best_methods
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.estimates import interval
from heatproof.statistics.intervals import ALIKE

ORDERS = {"morf": "MoRF", "lerf": "LeRF"}
HEADLINES = tuple(measure for measure in AXIS.measures if measure.role == "headline")
MEAN_OVER_FRACTIONS = "road_morf_accuracy"
"""A headline that is stored for every fraction; its number is the mean, as those are the points of a curve."""


def kind_of_data(result: AxisResult) -> DataKind:
    """Return the words for what is removed from the data; those for images where the manifest does not say."""
    kind = KINDS[result.modality]
    features = result.settings.get("features", {}).get("name")
    return replace(kind, parts=features, segments=features) if features == Passages.name else kind


def readout(result: AxisResult) -> str:
    """Return the readout of the model that curves are summed up by."""
    return str(result.settings.get("readout") or "probability")


def imputers(result: AxisResult) -> list[str]:
    """Return the imputers with removal curves, in the order of the study."""
    makeups = [result.arrays.settings_of(condition) for condition, _ in result.conditions]
    return list(dict.fromkeys(makeup.imputer for makeup in makeups if makeup.order in ORDERS))


# ---- metrics ---------------------------------------------------------------------------------------------------------


def main_metric(result: AxisResult) -> Measure | None:
    """Return the headline by which methods are ranked; None where no map has a score."""
    return next((measure for measure in result.headlines if readings(result, measure)), None)


def readings(result: AxisResult, measure: Measure) -> dict[str, tuple[Condition, ...]]:
    """Return the conditions of every number that a metric has, by the name of the number, such as "noisy linear".

    A metric has a number for each imputer, and sensitivity-n one for each imputer and share of features removed.
    """
    values = result.arrays.values.get(measure.name)
    if values is None:
        return {}
    is_scored = np.asarray(np.isfinite(values).any((0, 2)))
    by_name: dict[str, tuple[Condition, ...]] = {}
    for (condition, level), has_score in zip(result.conditions, is_scored, strict=True):
        if not has_score:
            continue
        shown_level = 0.0 if measure.name == MEAN_OVER_FRACTIONS else level
        name = result.axis.condition(condition, shown_level)
        by_name[name] = (*by_name.get(name, ()), (condition, level))
    return by_name


def name_of_mean(result: AxisResult, measure: Measure) -> str:
    """Return what the overall score is a mean over; empty if the metric has one number only."""
    by_name = readings(result, measure)
    if len(by_name) <= 1:
        return ""
    names = set()
    for conditions in by_name.values():
        names |= {condition for condition, _ in conditions}
    return "mean over imputers" if len(names) > 1 else "mean over shares"


def metric_scores(result: AxisResult, measure: Measure) -> pd.DataFrame:
    """Return the scores of a metric with the panel that they belong to: the overall mean first, then every reading.

    Columns are those of `AxisResult.overall`, and panel and best. All panels have the order of the overall mean.
    """
    by_name = readings(result, measure)
    if len(by_name) > 1:
        conditions = tuple(itertools.chain.from_iterable(by_name.values()))
        by_name = {name_of_mean(result, measure): conditions, **by_name}
    frames = []
    for name, conditions in by_name.items():
        scores = result.overall(measure.name, conditions)
        arrays = result.arrays.select(measures=[measure.name], conditions=conditions)
        tests = paired_tests(arrays, measure.name)
        best = best_methods(scores, tests, measure.sign)
        frames.append(scores.assign(panel=name, best=scores["explainer"].isin(best)))
    if not frames:
        return pd.DataFrame(columns=["explainer", "score", "panel", "best"])
    position = {name: number for number, name in enumerate(frames[0]["explainer"])}
    in_order = [
        frame.sort_values("explainer", key=lambda names: names.map(position)) for frame in frames
    ]
    scores = pd.concat(in_order, ignore_index=True)
    return scores[scores["score"].notna()].reset_index(drop=True)


def gains_over_random(
    result: AxisResult, measure: Measure, conditions: Collection[Condition] | None = None
) -> pd.DataFrame | None:
    """Return by how much explainers are better than a random order on the same samples; None where that is unknown.

    Columns: explainer, control, score, low, high, samples, and `below`: whether the explainer is significantly worse than
    a random order, by a one-sided bound that holds for all methods at once. Who is significantly better is decided by
    `AxisResult.verdict`.
    """
    arrays = result.arrays.select(measures=[measure.name], conditions=conditions)
    if measure.name not in arrays.chance:
        return None
    gain = measure.sign * (arrays.values[measure.name] - arrays.chance[measure.name])
    # A gain has another scale than the metric, so what is declared of the metric does not hold.
    gains = replace(arrays, values={measure.name: gain}, chance={}, declared={}, spans={})
    ranked = ranking(gains, measure.name, calibrate=False, better="neither")
    ranked = ranked[ranked["score"].notna()]
    below = ranked["upper_bound"] < -ALIKE
    columns = ["explainer", "control", "score", "low", "high", "samples"]
    return ranked[columns].assign(below=below).reset_index(drop=True)


# ---- curves ----------------------------------------------------------------------------------------------------------


def curve_cells(result: AxisResult, measure: str) -> pd.DataFrame:
    """Return the points of the removal curves of both orders: the columns of `AxisResult.cells`, x, curve and panel."""
    cells = result.cells(measure, calibrate=False).drop(columns="above_chance")
    cells = cells[cells["order"].isin(list(ORDERS)) & cells["score"].notna()]
    return cells.assign(
        x=cells["level"],
        curve=cells["order"].map(ORDERS),
        panel=[removal_words(imputer) for imputer in cells["imputer"]],
    )


def random_order(result: AxisResult, measure: str) -> pd.DataFrame:
    """Return the points of removal in a random order: panel, x, score, low, high.

    The random order is the chance level of the curves, drawn once per sample and repeated beside every explainer.
    Networks that were retrained on what a random order leaves have rows of their own instead.
    """
    arrays = result.arrays
    copies: dict[tuple[str, float], list[Array]] = {}
    for number, (condition, level) in enumerate(arrays.conditions):
        makeup = arrays.settings_of(condition)
        key = (removal_words(makeup.imputer), level)
        if makeup.order == "random" and measure in arrays.values:
            copies.setdefault(key, []).append(arrays.values[measure][:, number])
        elif makeup.order in ORDERS and measure in arrays.chance:
            copies.setdefault(key, []).append(arrays.chance[measure][:, number])
    points = []
    for (panel, level), of_point in copies.items():
        by_sample = mean_of_finite(np.concatenate(of_point).T)
        low, high = interval(by_sample[None], groups=arrays.groups)
        points.append((panel, level, float(mean_of_finite(by_sample)), low[0], high[0]))
    frame = pd.DataFrame(points, columns=["panel", "x", "score", "low", "high"])
    return frame[frame["score"].notna()].sort_values("x", kind="stable", ignore_index=True)


def untouched_readout(result: AxisResult, measure: str) -> float | None:
    """Return the mean readout before anything is removed; None where the run does not know it."""
    samples = result.samples
    if "sample" in samples:
        samples = samples[samples["sample"].isin(result.sample_ids)]
    if samples.empty or "probability" not in samples:
        return None
    if measure == "probability" and samples["probability"].notna().any():
        return float(samples["probability"].mean())
    if measure == "accuracy" and result.settings.get("against", "prediction") == "prediction":
        return 1.0
    return None


def detectability(table: pd.DataFrame) -> pd.DataFrame:
    """Return how well the model's features tell the filled inputs of each imputer and fraction from real ones.

    Columns: dataset, model, evaluation, imputer, level, area, low, high, samples; of a table that has no such rows, or
    too few samples, there are none. ½ is a guess; `realism` has the formulas.

    >>> detectability(pd.DataFrame(columns=["measure", "status", "value"])).empty
    True
    """
    keys = ["dataset", "model", "evaluation", "imputer", "level"]
    columns = [*keys, "area", "low", "high", "samples"]
    rows = table[(table["measure"] == "detectability") & (table["status"] == "ok")]
    areas = []
    if len(rows):
        for key, of_key in rows.groupby(keys, sort=False, observed=True):
            once_per_sample = of_key.drop_duplicates("sample")  # repeated under every explainer
            values = once_per_sample["value"].to_numpy(np.float64)
            areas.append([*key, *area_and_interval(values, POPULATION), len(values)])
    return pd.DataFrame(areas, columns=columns).dropna()


# ---- strategies and the leak -----------------------------------------------------------------------------------------


def strategy_correlations(result: AxisResult, measure: str) -> pd.DataFrame:
    """Return the rank correlations of every two strategies by one readout, means over fractions; see `consistency`.

    Strategies differ in the order of removal, the imputer, and whether networks were retrained. Those whose rankings
    cannot be compared, as they are of fewer than three methods, are left out.
    """
    evaluations = [result.label, RETRAINING.name]
    retraining = result.manifest.study.evaluation(RETRAINING.name).parameters
    if retraining.get("against") != result.settings.get("against"):
        # Accuracy against the label and against the prediction are different quantities.
        evaluations = [result.label]
    table = result.sibling_rows[result.sibling_rows["evaluation"].isin(evaluations)]
    pairs = consistency(table, measure, every_pair=True)
    return pairs[pairs["level"].isna() & pairs["spearman"].notna()].reset_index(drop=True)


def leakage(result: AxisResult) -> pd.DataFrame:
    """Return `leakage_summary` of this model and data, NaN for probes that were not trained; empty if none was."""
    columns = ["mask_accuracy", "mask_bits", "pixels", "leak"]
    summary = leakage_summary(
        result.sibling_rows[result.sibling_rows["evaluation"] == LEAKAGE.name]
    )
    if "mask_bits" not in summary:
        return pd.DataFrame(columns=["explainer", "imputer", "order", "level", "leaks", *columns])
    probed = [f"{probe}_bits" for probe in PROBES]
    return summary.reindex(columns=list(dict.fromkeys([*summary.columns, *columns, *probed])))
