"""Summaries of symmetry: scores by sample and by explainer, the model's own invariance, curves and layers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.symmetry.groups import build
from heatproof.axes.symmetry.scores import layer_verdict
from heatproof.errors import UserError
from heatproof.explainers import EXPLAINERS
from heatproof.report.components import Estimate
from heatproof.results.axis_result import AxisResult
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.estimates import interval
from heatproof.statistics.ranks import spearman
from heatproof.text import records

INVARIANT = 0.999
"""A model is invariant if the intervals of its invariance and of its agreement lie above this …"""
LARGEST_CHANGE = 0.01
"""… and that of the change of its output below this, where unrelated samples differ by 1."""
CLOSE_TO_ONE = 0.99
"""The mean score from which a method keeps the symmetry."""
HEADLINES = ("equivariance", "invariance")
CHECKS = ("noise_floor", "there_and_back", "max_sensitivity")
OF_MODEL = ("model_invariance", "model_agreement", "model_change")
LAYER_ERRORS = {
    "layer_invariance_error": "invariance_error",
    "layer_equivariance_error": "equivariance_error",
}
KINDS = ("feature", "example", "concept", "example or concept")
EXACT = 1e-12
"""Bounds of a score that are no further apart leave no Monte-Carlo error."""
FEWEST_CORRELATED, FEWEST_RESAMPLED = 3, 8
"""The samples from which a correlation is given, and from which it has a bootstrap interval."""


@dataclass(frozen=True, eq=False)
class SymmetrySummary:
    """The scores of one evaluation of symmetry.

    `samples` has a row per explainer and sample: kind, measure, value, low, high, chance, and what was measured beside
    the score, `CHECKS` and `OF_MODEL`. `low` and `high` are the Monte-Carlo bounds of the score of that sample.

    `explainers` has a row per explainer, kinds in order, and each in the order of the ranking:

    kind, measure, is_control    what it explains by, which score it has, and whether it ignores the model
    scored, attempted            samples with a score, and all of them
    score, low, high, chance     the mean score with its interval, not calibrated, and its chance level
    calibrated, _low, _high      the calibrated score with its interval; NaN where there is no chance level
    above_chance                 whether the score is significantly above chance; None where the samples cannot tell
    noise_floor                  the mean score of two random draws on one input; NaN for deterministic explainers
    there_and_back               the mean score of a map that was moved there and back; NaN for groups that are exact
    within_noise                 whether the score is not clearly below one of these two
    monte_carlo_error            half the distance of the Monte-Carlo bounds, the median over samples

    `group_title` names the group, `elements` is how many of its elements were tried for a sample, and `is_exhaustive`
    says whether these are all.
    """

    result: AxisResult
    group_title: str
    interpolates: bool
    elements: int
    is_exhaustive: bool
    model_invariance: Estimate
    model_agreement: Estimate
    model_change: Estimate
    samples: pd.DataFrame
    explainers: pd.DataFrame

    @property
    def methods(self) -> pd.DataFrame:
        """The explainers with a score, without the controls."""
        has_score = self.explainers["score"].notna()
        return self.explainers[has_score & ~self.explainers["is_control"]]

    @property
    def is_model_measured(self) -> bool:
        """Whether the invariance of the model was measured."""
        return not math.isnan(self.model_invariance.score)

    @property
    def is_model_invariant(self) -> bool | None:
        """Whether the model is invariant to the group, by the intervals of three measures of its outputs.

        Its outputs on moved and unmoved inputs must be similar, in their probabilities and in the predicted class, and the
        explained output must hardly change. None if the intervals leave that open, or nothing was measured.
        """
        measured = [self.model_invariance, self.model_agreement]
        similarities = [estimate for estimate in measured if not math.isnan(estimate.score)]
        change = self.model_change
        has_change = not math.isnan(change.score)  # older runs have none
        if any(similarity.high < INVARIANT for similarity in similarities):
            return False
        if has_change and change.low > LARGEST_CHANGE:
            return False
        is_similar = self.is_model_measured and all(s.low >= INVARIANT for s in similarities)
        is_unchanged = not has_change or change.high <= LARGEST_CHANGE
        if is_similar and is_unchanged:
            return True
        return None

    @property
    def score_title(self) -> str:
        """The measures that were scored, as the title of an axis."""
        measured = set(self.explainers["measure"])
        return " or ".join(measure for measure in HEADLINES if measure in measured)

    @property
    def study_group(self) -> Any:
        """The group with its parameters as a study file has it; None for one of the user's own."""
        stored = _stored_group(self.result.settings)
        if not stored or "own" in json.dumps(stored):
            return None
        return _study_form(stored)


def summarise(result: AxisResult) -> SymmetrySummary | None:
    """Return the summary of an evaluation of symmetry; None if no explanation was compared at all."""
    if "symmetry summary" not in result.cache:
        result.cache["symmetry summary"] = _summary(result)
    summary: SymmetrySummary | None = result.cache["symmetry summary"]
    return summary


def _summary(result: AxisResult) -> SymmetrySummary | None:
    """Return the scores of one evaluation of symmetry by sample and by explainer, with the model's own invariance.

    None if no explanation was compared at all.
    """
    samples = _sample_scores(result)
    if samples.empty:
        return None
    of_model = samples.groupby("sample", sort=False)[list(OF_MODEL)].first()
    invariance, agreement, change = (
        _mean_over_samples(result, of_model[measure]) for measure in OF_MODEL
    )
    if math.isnan(invariance.score):
        invariance = agreement  # tasks without classes have no probabilities to compare
    distances = (samples["high"] - samples["low"])[samples["value"].notna()].fillna(0)
    group_title, interpolates = group_words(result.settings)
    return SymmetrySummary(
        result=result,
        group_title=group_title or str(samples["condition"].iloc[0]),
        interpolates=interpolates,
        elements=int(samples["level"].max()),
        is_exhaustive=bool((distances <= EXACT).all()),
        model_invariance=invariance,
        model_agreement=agreement,
        model_change=change,
        samples=samples,
        explainers=_explainer_scores(result, samples),
    )


# ---- scores ----------------------------------------------------------------------------------------------------------


def _sample_scores(result: AxisResult) -> pd.DataFrame:
    """Return the symmetry scores as a table with a row per explainer and sample; see `SymmetrySummary.samples`.

    Further columns are what was measured beside the score, such as the noise floor and the model's invariance.
    """
    key = ["explainer", "sample"]
    texts = [*key, "measure", "condition"]
    numbers = ["value", "low", "high", "chance"]
    rows = result.rows.reindex(columns=[*texts, "level", *numbers, "status"])
    rows = rows.astype(dict.fromkeys(texts, str)).astype(dict.fromkeys(numbers, float))
    rows.loc[rows["status"] != "ok", numbers] = np.nan

    samples = rows[rows["measure"].isin(HEADLINES)].drop_duplicates(key).reset_index(drop=True)
    for measure in (*CHECKS, *OF_MODEL):
        of_measure = rows[rows["measure"] == measure].drop_duplicates(key)
        of_measure = of_measure[[*key, "value"]].rename(columns={"value": measure})
        samples = samples.merge(of_measure, on=key, how="left", validate="one_to_one")
    measure_of = dict(zip(samples["explainer"], samples["measure"], strict=True))
    kinds = {name: _kind(result, name, measure) for name, measure in measure_of.items()}
    return samples.assign(kind=samples["explainer"].map(kinds))


def _kind(result: AxisResult, explainer: str, measure: str) -> str:
    """Return whether an explainer explains by features, examples or concepts, from the measure that it was scored by.

    Only feature maps are scored by their equivariance. For others the registered explainer is looked up.
    """
    if measure == "equivariance":
        return "feature"
    settings = result.settings_of(explainer)
    # A symmetrised explainer is of the kind of the inner one.
    while isinstance(settings.get("of"), Mapping):
        settings = settings["of"]
    registered: Any = EXPLAINERS.get(str(settings.get("name")))
    if registered is not None and registered.kind in ("example", "concept"):
        return str(registered.kind)
    return "example or concept"


def _explainer_scores(result: AxisResult, samples: pd.DataFrame) -> pd.DataFrame:
    """Return the mean symmetry scores as a table with a row per explainer; see `SymmetrySummary.explainers`.

    `samples` has the scores of single samples. Explainers of one kind are together, the best first.
    """
    cells = [result.cells(measure.name, calibrate=False) for measure in result.headlines]
    means = pd.concat(cells).drop_duplicates("explainer").set_index("explainer")
    ranked = [result.overall(measure.name) for measure in result.headlines]
    overall = pd.concat(ranked).drop_duplicates("explainer").set_index("explainer")

    entries = []
    for explainer, rows in samples.groupby("explainer", sort=False):
        mean = means.loc[explainer]
        by_sample = rows.set_index("sample").reindex(result.sample_ids)
        value = by_sample["value"].to_numpy(dtype=np.float64)
        noise_floor = by_sample["noise_floor"].to_numpy(dtype=np.float64)
        there_and_back = by_sample["there_and_back"].to_numpy(dtype=np.float64)
        is_noise = _is_not_below(result, value - noise_floor)
        is_interpolation = _is_not_below(result, value - there_and_back)
        entries.append(
            {
                "explainer": explainer,
                "kind": rows["kind"].iloc[0],
                "measure": rows["measure"].iloc[0],
                "is_control": explainer in result.controls,
                "scored": int(np.isfinite(value).sum()),
                "attempted": len(rows),
                "score": mean["score"],
                "low": mean["low"],
                "high": mean["high"],
                "chance": mean["chance"],
                **_calibrated(result, overall.loc[explainer]),
                "noise_floor": float(mean_of_finite(noise_floor)),
                "there_and_back": float(mean_of_finite(there_and_back)),
                "within_noise": is_noise or is_interpolation,
                "monte_carlo_error": ((rows["high"] - rows["low"]) / 2).dropna().median(),
            }
        )
    explainers = pd.DataFrame(entries)
    in_order = result.best_first(explainers)
    return in_order.sort_values(
        "kind", key=lambda kinds: kinds.map(KINDS.index), kind="stable", ignore_index=True
    )


def _calibrated(result: AxisResult, overall: Any) -> dict[str, Any]:
    """Return the calibrated score of an explainer with its verdict, from a row of `AxisResult.overall`."""
    if result.arrays.is_calibrated(overall["measure"]):
        score, low, high = overall["score"], overall["low"], overall["high"]
    else:
        score, low, high = math.nan, math.nan, math.nan
    return {
        "calibrated": score,
        "calibrated_low": low,
        "calibrated_high": high,
        "above_chance": overall["above_chance"],
    }


def _mean_over_samples(result: AxisResult, values: pd.Series) -> Estimate:
    """Return the mean of values by sample with its interval; groups of samples count as one."""
    in_order = values.reindex(result.sample_ids).to_numpy(dtype=np.float64)
    return _mean(result, in_order)


def _mean(result: AxisResult, values: Array) -> Estimate:
    """Return the mean of values in the order of `result.sample_ids`, with its interval."""
    low, high = interval(values[None], groups=result.arrays.groups)
    return Estimate(float(mean_of_finite(values)), float(low[0]), float(high[0]))


def _is_not_below(result: AxisResult, differences: Array) -> bool:
    """Return whether the mean of differences, by sample, is not significantly below 0; False if there are none."""
    mean = _mean(result, differences)
    upper_end = mean.score if math.isnan(mean.high) else mean.high
    return bool(upper_end >= 0)


# ---- curves and correlations -----------------------------------------------------------------------------------------


def curve_points(summary: SymmetrySummary, measure: str) -> pd.DataFrame:
    """Return explainer, x, score, low and high of a measure at every number x of elements, in the order of the summary."""
    points = summary.result.cells(measure, calibrate=False)
    points = points.assign(x=points["level"])[["explainer", "x", "score", "low", "high"]]
    return _in_order(summary, points.dropna(subset="score"))


def symmetrised_points(summary: SymmetrySummary) -> pd.DataFrame:
    """Return the `curve_points` of the symmetrised explainers; the plain explainer is their point at x = 1."""
    points = curve_points(summary, "symmetrised")
    plain = summary.explainers[summary.explainers["explainer"].isin(points["explainer"])]
    plain = plain[["explainer", "score", "low", "high"]].assign(x=1.0).dropna(subset="score")
    if plain.empty:
        return points
    both = pd.concat([plain, points])
    both = both.drop_duplicates(["explainer", "x"], keep="last")  # n = 1 may have been measured
    return _in_order(summary, both)


def _in_order(summary: SymmetrySummary, points: pd.DataFrame) -> pd.DataFrame:
    """Return points by explainer, in the order of the summary, and by x."""
    position = {name: number for number, name in enumerate(summary.explainers["explainer"])}
    in_order = points.assign(position=points["explainer"].map(position))
    in_order = in_order.sort_values(["position", "x"], kind="stable", ignore_index=True)
    return in_order.drop(columns="position")


def correlation(x: Array, y: Array, resamples: int = 500) -> Estimate | None:
    """Return Spearman's correlation with a bootstrap interval over samples; None if it is not defined.

    There is no interval for less than `FEWEST_RESAMPLED` samples.

    >>> correlation(np.arange(3.0), np.array([3.0, 2.0, 1.0]))
    Estimate(score=-1.0, low=nan, high=nan)
    """
    if len(x) < FEWEST_CORRELATED or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    value = float(spearman(x, y))
    if len(x) < FEWEST_RESAMPLED:
        return Estimate(value)
    resampled = np.random.default_rng(0).integers(0, len(x), (resamples, len(x)))
    low, high = np.nanquantile(spearman(x[resampled], y[resampled]), [0.025, 0.975])
    return Estimate(value, float(low), float(high))


# ---- groups ----------------------------------------------------------------------------------------------------------


def group_words(settings: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the title of the group of an evaluation, and whether it interpolates; an empty title if it is not known.

    >>> group_words({"group": {"name": "dihedral", "n": 4}})
    ('D4: rotations by 90° and reflections', False)
    >>> group_words({"group": {"name": "own", "title": "change of sign", "interpolating": False}})
    ('change of sign', False)
    """
    stored = _stored_group(settings)
    if not stored.get("name"):
        return "", False
    if stored["name"] == "own":
        return str(stored.get("title") or "own"), bool(stored.get("interpolating"))
    try:
        group = build(_study_form(stored))
    except UserError:  # a group of another version, or with a part that only its author can make
        return str(stored["name"]), False
    return group.title, not group.exact


def _stored_group(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of the group from the manifest of a run; empty if there are none."""
    stored = settings.get("group")
    return stored if isinstance(stored, Mapping) else {}


def _study_form(value: Any) -> Any:
    """Return settings from a manifest in the form of a study file, which `build` reads.

    A manifest has the name of an object among its parameters, a study file has it above them. Parameters may be objects
    themselves, or lists of objects.

    >>> _study_form({"name": "dihedral", "n": 4})
    {'dihedral': {'n': 4}}
    """
    if isinstance(value, Mapping) and "name" in value:
        parameters = {key: _study_form(v) for key, v in value.items() if key != "name"}
        return {str(value["name"]): parameters}
    if isinstance(value, list | tuple):
        return [_study_form(v) for v in value]
    return value


# ---- layers ----------------------------------------------------------------------------------------------------------


def layer_verdicts(result: AxisResult) -> pd.DataFrame:
    """Return layer, verdict, invariance_error, equivariance_error and undefined of every tested layer.

    The errors are the largest over samples and elements; `equivariance_error` is NaN if the group cannot move the
    output. `undefined` counts the samples without an error. Layers are in the order of the study.
    """
    rows = result.rows[result.rows["measure"].isin(list(LAYER_ERRORS))]
    rows = rows.assign(layer=rows["condition"].astype(str))
    tested = list(dict.fromkeys(rows["layer"]))
    named = [str(layer) for layer in result.settings.get("layers") or ()]
    in_order = [layer for layer in named if layer in tested]
    in_order += [layer for layer in tested if layer not in named]

    entries = []
    for layer in in_order:
        of_layer = rows[rows["layer"] == layer]
        is_ok = of_layer["status"] == "ok"
        errors = {}
        for measure, column in LAYER_ERRORS.items():
            is_measured = is_ok & (of_layer["measure"] == measure)
            errors[column] = float(of_layer.loc[is_measured, "value"].max())
        has_no_error = ~is_ok & (of_layer["measure"] == "layer_invariance_error")
        undefined = of_layer.loc[has_no_error, "sample"].nunique()
        verdict: str = layer_verdict(*errors.values())
        if verdict == "neither" and math.isnan(errors["invariance_error"]):
            verdict = "unknown"  # no sample has an error
        entries.append({"layer": layer, "verdict": verdict, **errors, "undefined": undefined})
    columns = ["layer", "verdict", *LAYER_ERRORS.values(), "undefined"]
    return pd.DataFrame.from_records(entries, columns=columns)


def invariant_layers(result: AxisResult) -> list[str]:
    """Return the names of the tested layers that are invariant."""
    return [row.layer for row in records(layer_verdicts(result)) if row.verdict == "invariant"]
