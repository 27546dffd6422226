"""What the page says of symmetry, as plain frames: a row per sample and method, a row per method, one for the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast import statistics
from holdfast.axes.contract import Judged
from holdfast.axes.symmetry.evaluation import SENSITIVITY, SYMMETRISED
from holdfast.axes.symmetry.groups import build
from holdfast.errors import UserError
from holdfast.explainers import EXPLAINERS
from holdfast.statistics.bootstrap import bootstrap_counts, mean_of_finite, percentiles, resampled_means
from holdfast.statistics.cubes import Array, arrange
from holdfast.types import REDRAW

INVARIANT = 0.999
"""The mean model invariance from which the page calls a model invariant."""
HIGH = 0.99
"""The mean score from which the page says that a method keeps the symmetry."""
TOLERANCE = 1e-4
"""The largest relative error of a layer that is called invariant or equivariant, as in `symmetry.layer_symmetry`."""
SCORES = ("equivariance", "invariance")
KINDS = ("feature", "example", "concept", "example or concept")
_KIND = {"cav": "concept", "car": "concept", "influence": "example", "tracin": "example", "simplex": "example"}
_KIND["representation_similarity"] = "example"
RESAMPLES = 2000


@dataclass(frozen=True)
class Mean:
    """A mean over samples with its bootstrap interval, NaN from fewer than two samples."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Symmetries:
    """The scores of one evaluation.

    `scores` has a row per explainer and sample: kind, measure, value, low, high, chance, floor, model_invariance,
    model_agreement, max_sensitivity, status, reason. `means` has a row per explainer that was asked for, kinds in
    order and the best of each first: kind, measure, control, n, attempted, mean, mean_low, mean_high, chance,
    over_chance (the lower end of the interval of the score less chance), floor, error (the median over samples of half
    the Monte-Carlo interval). `whole` says that every element of the group was tried.
    """

    title: str
    interpolates: bool
    whole: bool
    elements: int
    model: Mean
    agreement: Mean
    scores: pd.DataFrame
    means: pd.DataFrame

    @property
    def invariant(self) -> bool | None:
        """Whether the model is invariant by its mean; None when that was not measured."""
        return None if math.isnan(self.model.value) else self.model.value >= INVARIANT

    @property
    def methods(self) -> pd.DataFrame:
        """The rows of `means` with a score, controls left out."""
        return self.means[self.means["mean"].notna() & ~self.means["control"]]


def symmetries(axis: Judged) -> Symmetries | None:
    """The frames of an evaluation of symmetry; None when it has no scores of explanations at all."""
    rows = axis.rows.drop_duplicates(["explainer", "sample", "measure", "condition", "level"])
    group = _group_condition(axis, rows)
    here = rows[rows["condition"].astype(str) == group]
    if not here["measure"].isin(SCORES).any():
        return None
    scores = _scores(axis, rows, here)
    counts = bootstrap_counts(len(axis.cube.samples), RESAMPLES, 0)
    used = int(here["level"].max())
    bounded = scores[scores["value"].notna()]
    whole = bool(((bounded["high"] - bounded["low"]).fillna(0) <= 1e-12).all())
    means = _means(axis, scores, counts)
    one = scores.groupby("sample", sort=False)[["model_invariance", "model_agreement"]].first()  # alike for all methods
    model, agreement = (_mean(one[name].reindex(axis.cube.samples).to_numpy(float), counts) for name in one)
    title, interpolates = group_words(axis.settings)
    return Symmetries(title or group, interpolates, whole, used, model, agreement, scores, means)


def _group_condition(axis: Judged, rows: pd.DataFrame) -> str:
    """The condition of the group's rows: where the model is judged, else the first that no other part has taken."""
    judged = rows.loc[rows["measure"].isin(("model_invariance", "model_agreement")), "condition"].astype(str)
    left = rows.loc[rows["measure"].isin(SCORES), "condition"].astype(str)
    named = [str(_map(axis.settings.get("group")).get("name", ""))]
    free = [c for c in left if c not in (REDRAW, SYMMETRISED, SENSITIVITY)]
    return next(iter([*judged, *(c for c in named if c in free), *free]), "")


def _scores(axis: Judged, rows: pd.DataFrame, here: pd.DataFrame) -> pd.DataFrame:
    own = here[here["measure"].isin(SCORES)].drop_duplicates(["explainer", "sample"])
    frame = own[["explainer", "sample", "measure", "value", "low", "high", "status", "reason"]].copy()
    frame["explainer"], frame["sample"] = frame["explainer"].astype(str), frame["sample"].astype(str)
    ok = frame["status"].eq("ok")
    for name in ("value", "low", "high"):
        frame[name] = pd.to_numeric(frame[name]).where(ok)
    at = pd.MultiIndex.from_frame(frame[["explainer", "sample"]])

    def beside(part: pd.DataFrame, measures: tuple[str, ...]) -> Array:
        found = part[part["measure"].isin(measures) & part["status"].eq("ok")]
        found = found.assign(explainer=found["explainer"].astype(str), sample=found["sample"].astype(str))
        values = found.drop_duplicates(["explainer", "sample"]).set_index(["explainer", "sample"])["value"]
        return values.reindex(at).to_numpy(dtype=np.float64)

    floor, ball = (rows[rows["condition"].astype(str) == name] for name in (REDRAW, SENSITIVITY))
    frame["chance"] = beside(here, ("equivariance_chance", "invariance_chance"))
    frame["floor"] = beside(floor, SCORES)
    frame["model_invariance"] = beside(here, ("model_invariance",))
    frame["model_agreement"] = beside(here, ("model_agreement",))
    frame["max_sensitivity"] = beside(ball, ("max_sensitivity",))
    kinds = {e: _kind(axis, e, str(m)) for e, m in zip(frame["explainer"], frame["measure"], strict=True)}
    frame["kind"] = frame["explainer"].map(kinds)
    return frame.reset_index(drop=True)


def _kind(axis: Judged, explainer: str, measure: str) -> str:
    if measure == "equivariance":
        return "feature"
    base = str(explainer_settings(axis, explainer).get("name") or explainer.split("(", maxsplit=1)[0])
    kind = _KIND.get(base) or getattr(EXPLAINERS.get(base), "kind", "")
    return kind if kind in KINDS and kind != "feature" else KINDS[-1]


def explainer_settings(axis: Judged, explainer: str) -> Mapping[str, Any]:
    """The parameters of an explainer as the manifest has them; empty when it does not."""
    return _map(((axis.manifest.get("study") or {}).get("explainers") or {}).get(explainer))


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _means(axis: Judged, scores: pd.DataFrame, counts: NDArray[np.float32]) -> pd.DataFrame:
    found = []
    for explainer, own in scores.groupby("explainer", sort=False):
        placed = own.set_index("sample").reindex(axis.cube.samples)
        value, chance = (placed[name].to_numpy(dtype=np.float64) for name in ("value", "chance"))
        mean, over = _mean(value, counts), _mean(value - chance, counts)
        half = ((own["high"] - own["low"]) / 2).median()
        first = own.iloc[0]
        who = (explainer, first["kind"], first["measure"], statistics.is_control(str(explainer)))
        counted = (int(np.isfinite(value).sum()), len(own), mean.value, mean.low, mean.high)
        floor = placed["floor"].to_numpy(dtype=np.float64)
        centre = (float(mean_of_finite(part)) for part in (chance, floor))
        found.append((*who, *counted, *centre, over.low, half))
    columns = ["explainer", "kind", "measure", "control", "n", "attempted", "mean", "mean_low", "mean_high"]
    frame = pd.DataFrame.from_records(found, columns=[*columns, "chance", "floor", "over_chance", "error"])
    place = frame["kind"].map({kind: i for i, kind in enumerate(KINDS)})
    order = frame.assign(place=place, worst=-frame["mean"]).sort_values(["place", "worst"], kind="stable").index
    return frame.loc[order].reset_index(drop=True)


def _mean(values: Array, counts: NDArray[np.float32]) -> Mean:
    """The same mean and interval as in `statistics.summary`, which draws the same samples."""
    finite = int(np.isfinite(values).sum())
    mean = float(mean_of_finite(values))
    if finite < 2:
        return Mean(mean)
    low, high = percentiles(resampled_means(values[None], counts), 0.95)
    return Mean(mean, float(low[0]), float(high[0]))


def group_words(settings: Mapping[str, Any]) -> tuple[str, bool]:
    """The group of an evaluation in words, and whether it is known to interpolate; empty when it is not known.

    >>> group_words({"group": {"name": "dihedral", "n": 4}})
    ('D4: rotations by 90° and reflections', False)
    >>> group_words({"group": {"name": "own", "title": "change of sign", "interpolating": False}})
    ('change of sign', False)
    """
    given = _map(settings.get("group"))
    if not given.get("name"):
        return "", False
    if given["name"] == "own":
        return str(given.get("title") or "own"), bool(given.get("interpolating"))
    try:
        group = build(_as_given(given))
    except UserError:  # a group of another version, or with a part that only its author can make
        return str(given["name"]), False
    return group.title, not group.exact


def _as_given(value: Any) -> Any:
    """What the manifest has of a group, {name: …, parameters}, as a study file gives it, {name: parameters}."""
    if isinstance(value, Mapping) and "name" in value:
        return {str(value["name"]): {k: _as_given(v) for k, v in value.items() if k != "name"}}
    return [_as_given(v) for v in value] if isinstance(value, list | tuple) else value


def paired_tests(axis: Judged, found: Symmetries, methods: pd.DataFrame) -> pd.DataFrame:
    """Wilcoxon's tests between some rows of `means`, of one measure, by plain scores; see `statistics.paired_tests`."""
    own = found.scores[found.scores["explainer"].isin(methods["explainer"])]
    rows = own.assign(condition="group", level=0.0, evaluation=axis.cube.evaluation, **axis.cube.key)
    return statistics.paired_tests(arrange(rows), str(methods.iloc[0]["measure"]), form="raw")


def layer_verdicts(axis: Judged) -> pd.DataFrame:
    """Per tested layer: the verdict and the largest errors over samples; `equivariance` is NaN where none exists."""
    rows = axis.rows[axis.rows["measure"].isin(("layer_invariance_error", "layer_equivariance_error"))]
    named = [str(layer) for layer in axis.settings.get("layers") or ()]
    groups = {str(layer): own for layer, own in rows.groupby(rows["condition"].astype(str), sort=False)}
    found = []
    for layer, own in sorted(groups.items(), key=lambda item: named.index(item[0]) if item[0] in named else len(named)):
        same = own[own["measure"] == "layer_invariance_error"]
        moved = own[(own["measure"] == "layer_equivariance_error") & own["status"].eq("ok")]["value"]
        judged = same[same["status"].eq("ok")]["value"]
        lost = int(same[same["status"].ne("ok")]["sample"].nunique())
        invariance, equivariance = (float(v.max()) if len(v) else math.nan for v in (judged, moved))
        verdict = "unknown" if math.isnan(invariance) else "neither"
        if invariance <= TOLERANCE:
            verdict = "invariant"
        elif equivariance <= TOLERANCE:
            verdict = "equivariant"
        found.append((layer, verdict, invariance, equivariance, lost))
    return pd.DataFrame.from_records(found, columns=["layer", "verdict", "invariance", "equivariance", "lost"])
