"""Frames of symmetry, for page, sentences and figures: scores by sample and by method, layers, and curves."""

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
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import paired_tests
from heatproof.results.score_estimates import raw_estimates
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.estimates import interval

INVARIANT = 0.999
"""A model is invariant if the intervals of its invariance and of its agreement lie above this …"""
CHANGE = 0.01
"""… and that of the change of its output below this, where unrelated samples differ by 1."""
HIGH = 0.99
"""The mean score from which the page says that a method keeps the symmetry."""
SCORES = ("equivariance", "invariance")
CHECKS = ("noise_floor", "there_and_back", "max_sensitivity")
OF_MODEL = ("model_invariance", "model_agreement", "model_change")
LAYER_ERRORS = {"layer_invariance_error": "invariance", "layer_equivariance_error": "equivariance"}
KINDS = ("feature", "example", "concept", "example or concept")
EXACT = 1e-12
"""Bounds of a score that are no further apart leave no sampling error."""


@dataclass(frozen=True)
class Mean:
    """A mean over samples with its interval, NaN from too few samples."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, eq=False)
class Symmetries:
    """The scores of one evaluation.

    `scores` has a row per explainer and sample: kind, measure, value, low, high, chance, status, reason, and what was
    measured beside it, `CHECKS` and `OF_MODEL`. `means` has a row per explainer that was asked for, kinds in order and
    the best of each first:

    kind, measure, control       what it explains by, which score it has, and whether it ignores the model
    n, attempted                 samples with a score, and all of them
    mean, mean_low, mean_high    the mean score with its interval
    chance, noise_floor, there_and_back    means of the same samples
    over_chance                  the lower end of the interval of the score less chance
    within_noise                 the score is not clearly below the noise floor, or below what moving a map there and
                                 back leaves
    error                        the median over samples of half the Monte-Carlo interval

    `title` says the group in words, `elements` is how many of it were tried, and `whole` whether these are all.
    """

    result: AxisResult
    title: str
    interpolates: bool
    whole: bool
    elements: int
    model: Mean
    agreement: Mean
    change: Mean
    scores: pd.DataFrame
    means: pd.DataFrame

    @property
    def is_measured(self) -> bool:
        """Whether the invariance of the model was measured."""
        return not math.isnan(self.model.value)

    @property
    def invariant(self) -> bool | None:
        """Whether the model is invariant; None if its intervals leave that open, or it was not measured."""
        similarities = [mean for mean in (self.model, self.agreement) if not math.isnan(mean.value)]
        has_change = not math.isnan(self.change.value)  # older runs have none
        if any(mean.high < INVARIANT for mean in similarities):
            return False
        if has_change and self.change.low > CHANGE:
            return False
        is_similar = self.is_measured and all(mean.low >= INVARIANT for mean in similarities)
        is_unchanged = not has_change or self.change.high <= CHANGE
        return True if is_similar and is_unchanged else None

    @property
    def study_group(self) -> Any:
        """The group with its parameters as a study file has it; None for one of the user's own."""
        stored = _group(self.result.settings)
        if not stored or "own" in json.dumps(stored):
            return None
        return _study_form(stored)

    @property
    def methods(self) -> pd.DataFrame:
        """The rows of `means` with a score, controls left out."""
        return self.means[self.means["mean"].notna() & ~self.means["control"]]

    @property
    def controls(self) -> set[str]:
        """The explainers that ignore the model."""
        return set(self.means.loc[self.means["control"], "explainer"])


def symmetries(result: AxisResult) -> Symmetries | None:
    """Return the frames of an evaluation of symmetry; None when it has no scores of explanations at all."""
    scores = _sample_scores(result)
    if scores.empty:
        return None
    of_model = scores.groupby("sample", sort=False)[list(OF_MODEL)].first()
    model, agreement, change = (_mean_of_model(result, of_model[name]) for name in OF_MODEL)
    if math.isnan(model.value):
        model = agreement  # tasks without classes have no probabilities
    widths = (scores["high"] - scores["low"])[scores["value"].notna()].fillna(0)
    title, interpolates = group_words(result.settings)
    return Symmetries(
        result=result,
        title=title or str(scores["condition"].iloc[0]),
        interpolates=interpolates,
        whole=bool((widths <= EXACT).all()),
        elements=int(scores["level"].max()),
        model=model,
        agreement=agreement,
        change=change,
        scores=scores,
        means=_method_means(result, scores),
    )


def _sample_scores(result: AxisResult) -> pd.DataFrame:
    """Return a row per explainer and sample; see `Symmetries.scores`."""
    key = ["explainer", "sample"]
    texts = [*key, "measure", "condition"]
    numbers = ["value", "low", "high", "chance"]
    rows = result.rows.reindex(columns=[*texts, "level", *numbers, "status", "reason"])
    rows = rows.astype(dict.fromkeys(texts, str)).astype(dict.fromkeys(numbers, float))
    rows.loc[rows["status"] != "ok", numbers] = np.nan

    frame = rows[rows["measure"].isin(SCORES)].drop_duplicates(key).reset_index(drop=True)
    for measure in (*CHECKS, *OF_MODEL):
        beside = rows[rows["measure"] == measure].drop_duplicates(key)
        beside = beside[[*key, "value"]].rename(columns={"value": measure})
        frame = frame.merge(beside, on=key, how="left", validate="one_to_one")
    score_of = dict(zip(frame["explainer"], frame["measure"], strict=True))
    kinds = {explainer: _kind(result, explainer, score_of[explainer]) for explainer in score_of}
    return frame.assign(kind=frame["explainer"].map(kinds))


def _kind(result: AxisResult, explainer: str, measure: str) -> str:
    """Return what an explainer explains by; only maps are measured by their equivariance."""
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


def _mean_of_model(result: AxisResult, values: pd.Series) -> Mean:
    """Return the mean over samples of what was measured of the model, which is the same for every explainer."""
    return _mean(result, values.reindex(result.sample_ids).to_numpy(dtype=np.float64))


def _mean(result: AxisResult, values: Array) -> Mean:
    """Return the mean of values by sample, as the samples are ordered in the arrays, with its interval."""
    low, high = interval(values[None], groups=result.arrays.groups)
    return Mean(float(mean_of_finite(values)), float(low[0]), float(high[0]))


def _method_means(result: AxisResult, scores: pd.DataFrame) -> pd.DataFrame:
    """Return a row per explainer; see `Symmetries.means`."""
    cells = pd.concat([mean_scores(result, measure.name) for measure in result.headlines])
    cells = cells.drop_duplicates("explainer").set_index("explainer")
    records = []
    for explainer, rows in scores.groupby("explainer", sort=False):
        by_sample = rows.set_index("sample").reindex(result.sample_ids)
        value, chance, noise_floor, there_and_back = (
            by_sample[name].to_numpy(dtype=np.float64)
            for name in ("value", "chance", "noise_floor", "there_and_back")
        )
        cell = cells.loc[explainer]
        records.append(
            {
                "explainer": explainer,
                "kind": rows["kind"].iloc[0],
                "measure": rows["measure"].iloc[0],
                "control": explainer in result.controls,
                "n": int(np.isfinite(value).sum()),
                "attempted": len(rows),
                "mean": cell["mean"],
                "mean_low": cell["low"],
                "mean_high": cell["high"],
                "chance": float(mean_of_finite(chance)),
                "noise_floor": float(mean_of_finite(noise_floor)),
                "there_and_back": float(mean_of_finite(there_and_back)),
                "over_chance": _mean(result, value - chance).low,
                "within_noise": _is_not_below(result, value - noise_floor)
                or _is_not_below(result, value - there_and_back),
                "error": ((rows["high"] - rows["low"]) / 2).dropna().median(),
            }
        )
    means = pd.DataFrame(records)
    order = means.assign(kind=means["kind"].map(KINDS.index), mean=-means["mean"])
    order = order.sort_values(["kind", "mean"], kind="stable")
    return means.loc[order.index].reset_index(drop=True)


def _is_not_below(result: AxisResult, differences: Array) -> bool:
    """Return whether differences are not clearly below 0; False where there are none."""
    mean = _mean(result, differences)
    upper_end = mean.value if math.isnan(mean.high) else mean.high
    return bool(upper_end >= 0)


def mean_scores(result: AxisResult, measure: str) -> pd.DataFrame:
    """Return explainer, condition, level, mean, low and high of a measure, for every explainer that it was asked of."""
    columns = ["explainer", "condition", "level", "mean", "low", "high"]
    if measure not in result.arrays.values:
        return pd.DataFrame(columns=columns)
    arrays = result.arrays.for_measure(measure)
    means = raw_estimates(arrays, measure)
    low, high = means.interval()
    records = [
        (explainer, *condition, means.value[e, c], low[e, c], high[e, c])
        for e, explainer in enumerate(arrays.explainers)
        for c, condition in enumerate(arrays.conditions)
    ]
    frame = pd.DataFrame.from_records(records, columns=columns)
    return frame[arrays.has_rows[measure].ravel()].reset_index(drop=True)


def group_words(settings: Mapping[str, Any]) -> tuple[str, bool]:
    """The group of an evaluation in words, and whether it is known to interpolate; empty when it is not known.

    >>> group_words({"group": {"name": "dihedral", "n": 4}})
    ('D4: rotations by 90° and reflections', False)
    >>> group_words({"group": {"name": "own", "title": "change of sign", "interpolating": False}})
    ('change of sign', False)
    """
    stored = _group(settings)
    if not stored.get("name"):
        return "", False
    if stored["name"] == "own":
        return str(stored.get("title") or "own"), bool(stored.get("interpolating"))
    try:
        group = build(_study_form(stored))
    except UserError:  # a group of another version, or with a part that only its author can make
        return str(stored["name"]), False
    return group.title, not group.exact


def _group(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The group as the manifest has it; empty when it does not."""
    stored = settings.get("group")
    return stored if isinstance(stored, Mapping) else {}


def _study_form(value: Any) -> Any:
    """What the manifest has of a group, {name: …, parameters}, as a study file has it, {name: parameters}."""
    if isinstance(value, Mapping) and "name" in value:
        return {str(value["name"]): {k: _study_form(v) for k, v in value.items() if k != "name"}}
    if isinstance(value, list | tuple):
        return [_study_form(v) for v in value]
    return value


def raw_tests(measured: Symmetries, methods: pd.DataFrame) -> pd.DataFrame:
    """Paired tests between some rows of `means`, of one measure, by plain scores; see `paired_tests`."""
    arrays = measured.result.arrays.select(explainers=set(methods["explainer"]))
    return paired_tests(arrays, str(methods["measure"].iloc[0]), calibrate=False)


def symmetrised_curves(measured: Symmetries) -> pd.DataFrame:
    """Return explainer, measure, level, mean, low, high of the symmetrised explainers; level 1 is the plain one."""
    curves = _curves(measured, "symmetrised")
    if curves.empty:
        return curves
    plain = measured.means[measured.means["explainer"].isin(curves["explainer"])]
    plain = plain[["explainer", "measure", "mean", "mean_low", "mean_high"]].assign(level=1.0)
    plain = plain.rename(columns={"mean_low": "low", "mean_high": "high"}).dropna(subset="mean")
    both = pd.concat([plain, curves])
    both = both.drop_duplicates(["explainer", "level"], keep="last")  # n = 1 may have been measured
    return both.sort_values("level", kind="stable", ignore_index=True)


def convergence_curves(measured: Symmetries) -> pd.DataFrame:
    """Return explainer, measure, level, mean, low, high of the score over the first elements, `level` of them."""
    return _curves(measured, "convergence")


def _curves(measured: Symmetries, name: str) -> pd.DataFrame:
    """Return the mean scores under a measure of its own, with the score that each explainer has as `measure`."""
    scores = mean_scores(measured.result, name).dropna(subset="mean")
    score_of = measured.means.set_index("explainer")["measure"]
    scores = scores.assign(measure=scores["explainer"].map(score_of))
    return scores[["explainer", "measure", "level", "mean", "low", "high"]]


def layer_verdicts(result: AxisResult) -> pd.DataFrame:
    """Return layer, verdict, the largest errors over samples, and how many outputs have none, of every tested layer.

    `equivariance` is NaN where the group cannot move the output. Layers are in the order of the study.
    """
    rows = result.rows[result.rows["measure"].isin(list(LAYER_ERRORS))]
    rows = rows.assign(layer=rows["condition"].astype(str))
    tested = list(dict.fromkeys(rows["layer"]))
    named = [str(layer) for layer in result.settings.get("layers") or ()]
    in_order = [layer for layer in named if layer in tested]
    in_order += [layer for layer in tested if layer not in named]

    records = []
    for layer in in_order:
        of_layer = rows[rows["layer"] == layer]
        is_ok = of_layer["status"] == "ok"
        errors = {
            name: float(of_layer.loc[is_ok & (of_layer["measure"] == measure), "value"].max())
            for measure, name in LAYER_ERRORS.items()
        }
        has_no_error = ~is_ok & (of_layer["measure"] == "layer_invariance_error")
        records.append(
            {
                "layer": layer,
                "verdict": _verdict(**errors),
                **errors,
                "undefined": of_layer.loc[has_no_error, "sample"].nunique(),
            }
        )
    columns = ["layer", "verdict", "invariance", "equivariance", "undefined"]
    return pd.DataFrame.from_records(records, columns=columns)


def _verdict(invariance: float, equivariance: float) -> str:
    """Return what the largest errors say of a layer; "unknown" where no output has an error, which is NaN."""
    verdict = layer_verdict(invariance, equivariance)
    if verdict == "neither" and math.isnan(invariance):
        return "unknown"
    return verdict
