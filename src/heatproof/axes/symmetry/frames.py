"""Frames of symmetry, for page, sentences and figures: scores by sample and by method, layers, and repair."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof import statistics
from heatproof.axes.contract import AxisResult
from heatproof.axes.symmetry.evaluation import BACK, CONVERGENCE, SENSITIVITY, SYMMETRISED
from heatproof.axes.symmetry.groups import build
from heatproof.axes.symmetry.scores import layer_verdict
from heatproof.errors import UserError
from heatproof.evaluation import REDRAW, Span
from heatproof.explainers import EXPLAINERS
from heatproof.statistics.bootstrap import mean_of_finite
from heatproof.statistics.cubes import Array
from heatproof.statistics.estimates import interval

INVARIANT = 0.999
"""The mean model invariance and agreement from which the page calls a model invariant."""
CHANGE = 0.01
"""The largest mean change of the explained output, where unrelated samples differ by 1, of an invariant model."""
HIGH = 0.99
"""The mean score from which the page says that a method keeps the symmetry."""
SCORES = ("equivariance", "invariance")
KINDS = ("feature", "example", "concept", "example or concept")


@dataclass(frozen=True)
class Mean:
    """A mean over samples with its interval, NaN from fewer than two samples."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Symmetries:
    """The scores of one evaluation, `judged`.

    `scores` has a row per explainer and sample: kind, measure, value, low, high, chance, floor, model_invariance,
    model_agreement, model_change, max_sensitivity, back, status, reason. `means` has a row per explainer that was asked
    for, kinds in order and the best of each first: kind, measure, control, n, attempted, mean, mean_low, mean_high,
    chance, over_chance (the lower end of the interval of the score less chance), floor, back, excused (the score is not
    below the floor, or below what moving there and back leaves, beyond doubt), error (the median over samples of half
    the Monte-Carlo interval). `condition` is that of the rows, `title` says the group in words, and `whole` that every
    element of it was tried.
    """

    judged: AxisResult
    condition: str
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
    def invariant(self) -> bool | None:
        """Whether the model is invariant by its means; None when that was not measured."""
        if math.isnan(self.model.value):
            return None
        return not (
            self.model.value < INVARIANT
            or self.agreement.value < INVARIANT
            or self.change.value > CHANGE
        )  # older runs have no change

    @property
    def surely(self) -> bool | None:
        """Whether the model is invariant beyond doubt, or surely not; None where the intervals leave it open."""
        if (
            self.model.high < INVARIANT
            or self.agreement.high < INVARIANT
            or self.change.low > CHANGE
        ):
            return False
        sure = (
            self.model.low >= INVARIANT
            and not self.agreement.low < INVARIANT
            and not self.change.high > CHANGE
        )
        return True if sure else None

    @property
    def group_text(self) -> str:
        """The group with its parameters as a study file and Python have it; empty for one of the user's own."""
        stored = _group(self.judged.settings)
        return "" if not stored or "own" in json.dumps(stored) else json.dumps(_study_form(stored))

    @property
    def methods(self) -> pd.DataFrame:
        """The rows of `means` with a score, controls left out."""
        return self.means[self.means["mean"].notna() & ~self.means["control"]]

    @property
    def controls(self) -> set[str]:
        """The explainers that do not look at the model."""
        return set(self.means.loc[self.means["control"], "explainer"])


def symmetries(judged: AxisResult) -> Symmetries | None:
    """The frames of an evaluation of symmetry; None when it has no scores of explanations at all."""
    rows = judged.rows.drop_duplicates(["explainer", "sample", "measure", "condition", "level"])
    rows = rows.assign(
        **{name: rows[name].astype(str) for name in ("explainer", "sample", "condition")}
    )
    condition = _group_condition(judged, rows)
    here = rows[rows["condition"] == condition]
    if not here["measure"].isin(SCORES).any():
        return None
    scores = _scores(judged, rows, here)
    bounded = scores[scores["value"].notna()]
    whole = bool(((bounded["high"] - bounded["low"]).fillna(0) <= 1e-12).all())
    names = ["model_invariance", "model_agreement", "model_change"]
    one = scores.groupby("sample", sort=False)[names].first()  # alike for all methods
    groups = judged.cube.groups
    model, agreement, change = (
        _mean(one[name].reindex(judged.cube.samples).to_numpy(float), None, groups) for name in one
    )
    if one[names[0]].isna().all():
        model = agreement  # of tasks without classes, which have no probabilities
    title, interpolates = group_words(judged.settings)
    elements, title = int(here["level"].max()), title or condition
    means = _means(judged, scores)
    return Symmetries(
        judged,
        condition,
        title,
        interpolates,
        whole,
        elements,
        model,
        agreement,
        change,
        scores,
        means,
    )


def _group_condition(judged: AxisResult, rows: pd.DataFrame) -> str:
    """The condition of the group's rows: where the model is judged, else the first that no other part has taken."""
    of_model = rows.loc[rows["measure"].isin(("model_invariance", "model_agreement")), "condition"]
    scored = rows.loc[rows["measure"].isin(SCORES), "condition"]
    free = [c for c in scored if c not in (REDRAW, SYMMETRISED, SENSITIVITY, CONVERGENCE, BACK)]
    named = [c for c in free if c == _group(judged.settings).get("name")]
    return next(iter([*of_model, *named, *free]), "")


def _scores(judged: AxisResult, rows: pd.DataFrame, here: pd.DataFrame) -> pd.DataFrame:
    once = here[here["measure"].isin(SCORES)].drop_duplicates(["explainer", "sample"])
    frame = once[
        ["explainer", "sample", "measure", "value", "low", "high", "status", "reason"]
    ].copy()
    ok = frame["status"].eq("ok")
    for name in ("value", "low", "high"):
        frame[name] = pd.to_numeric(frame[name]).where(ok)
    at = pd.MultiIndex.from_frame(frame[["explainer", "sample"]])

    def beside(part: pd.DataFrame, *measures: str) -> Array:
        scored = part[part["measure"].isin(measures) & part["status"].eq("ok")]
        values = scored.drop_duplicates(["explainer", "sample"]).set_index(["explainer", "sample"])[
            "value"
        ]
        return values.reindex(at).to_numpy(dtype=np.float64)

    frame["chance"] = beside(here, "equivariance_chance", "invariance_chance")
    frame["floor"] = beside(rows[rows["condition"] == REDRAW], *SCORES)
    frame["model_invariance"] = beside(here, "model_invariance")
    frame["back"] = beside(rows[rows["condition"] == BACK], *SCORES)
    frame["model_agreement"] = beside(here, "model_agreement")
    frame["model_change"] = beside(here, "model_change")
    frame["max_sensitivity"] = beside(rows[rows["condition"] == SENSITIVITY], "max_sensitivity")
    kinds = {
        e: _kind(judged, e, str(m))
        for e, m in zip(frame["explainer"], frame["measure"], strict=True)
    }
    frame["kind"] = frame["explainer"].map(kinds)
    return frame.reset_index(drop=True)


def _kind(judged: AxisResult, explainer: str, measure: str) -> str:
    """The kind of an explainer as its class says; only maps are measured by their equivariance."""
    if measure == "equivariance":
        return "feature"
    settings = judged.settings_of(explainer)
    while isinstance(
        settings.get("of"), Mapping
    ):  # a symmetrised explainer is of the kind of the inner one
        settings = settings["of"]
    explained_by: Any = EXPLAINERS.get(str(settings.get("name")))
    kind = "" if explained_by is None else explained_by.kind
    return kind if kind in ("example", "concept") else KINDS[-1]


def _means(judged: AxisResult, scores: pd.DataFrame) -> pd.DataFrame:
    means = []
    for explainer, rows in scores.groupby("explainer", sort=False):
        by_sample = rows.set_index("sample").reindex(judged.cube.samples)
        columns = ("value", "chance", "floor", "back")
        value, chance, floor, back = (
            by_sample[name].to_numpy(dtype=np.float64) for name in columns
        )
        first, groups = rows.iloc[0], judged.cube.groups
        mean = _mean(value, judged.cube.span(str(first["measure"])), groups)
        means.append(
            {
                "explainer": explainer,
                "kind": first["kind"],
                "measure": first["measure"],
                "control": explainer in judged.cube.controls,
                "n": int(np.isfinite(value).sum()),
                "attempted": len(rows),
                "mean": mean.value,
                "mean_low": mean.low,
                "mean_high": mean.high,
                "chance": float(mean_of_finite(chance)),
                "floor": float(mean_of_finite(floor)),
                "back": float(mean_of_finite(back)),
                "excused": any(_reaches(value - level, groups) for level in (floor, back)),
                "over_chance": _mean(value - chance, None, groups).low,
                "error": ((rows["high"] - rows["low"]) / 2).dropna().median(),
            }
        )
    frame = pd.DataFrame(means)
    keys = frame.assign(kind=frame["kind"].map(KINDS.index), mean=-frame["mean"])
    return frame.loc[keys.sort_values(["kind", "mean"], kind="stable").index].reset_index(drop=True)


def _reaches(differences: Array, groups: NDArray[np.int64] | None) -> bool:
    """Whether differences are not below 0 beyond doubt; False where there are none."""
    mean = _mean(differences, None, groups)
    return bool((mean.value if math.isnan(mean.high) else mean.high) >= 0)


def _mean(values: Array, span: Span | None, groups: NDArray[np.int64] | None) -> Mean:
    """The same mean and interval as in `statistics.summary`."""
    low, high = interval(values[None], 0.95, span, groups)
    return Mean(float(mean_of_finite(values)), float(low[0]), float(high[0]))


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
    return [_study_form(v) for v in value] if isinstance(value, list | tuple) else value


def paired_tests(measured: Symmetries, methods: pd.DataFrame) -> pd.DataFrame:
    """Paired tests between some rows of `means`, of one measure, by plain scores; see `statistics.paired_tests`."""
    cube = measured.judged.cube
    conditions = [c for c in cube.conditions if c[0] == measured.condition]
    cube = cube.select(explainers=set(methods["explainer"]), conditions=conditions)
    return statistics.paired_tests([cube], str(methods.iloc[0]["measure"]), form="raw")


def repaired(measured: Symmetries, condition: str = SYMMETRISED) -> pd.DataFrame:
    """explainer, measure, level, mean, low, high of the symmetrised explainers, the plain one for n = 1.

    With the condition `convergence`, the same of the mean over the first n elements.
    """
    cells = measured.judged.summary
    cells = cells[
        (cells["condition"] == condition) & cells["measure"].isin(SCORES) & cells["mean"].notna()
    ]
    rows = cells[["explainer", "measure", "level", "mean", "low", "high"]]
    if rows.empty or condition == CONVERGENCE:
        return rows
    plain = measured.means[
        measured.means["explainer"].isin(rows["explainer"]) & measured.means["mean"].notna()
    ]
    plain = plain[~plain["explainer"].isin(rows.loc[rows["level"] == 1, "explainer"])]
    first = plain[["explainer", "measure", "mean"]].assign(
        level=1.0, low=plain["mean_low"], high=plain["mean_high"]
    )
    return pd.concat([first, rows]).sort_values("level", kind="stable", ignore_index=True)


def layer_verdicts(judged: AxisResult) -> pd.DataFrame:
    """Per tested layer: the verdict and the largest errors over samples; `equivariance` is NaN where none exists."""
    rows = judged.rows[
        judged.rows["measure"].isin(("layer_invariance_error", "layer_equivariance_error"))
    ]
    tested = {
        str(layer): errors
        for layer, errors in rows.groupby(rows["condition"].astype(str), sort=False)
    }
    named = [str(layer) for layer in judged.settings.get("layers") or ()]
    verdicts = []
    for layer in [
        *(name for name in named if name in tested),
        *(name for name in tested if name not in named),
    ]:
        errors = tested[layer]
        ok = errors["status"].eq("ok")
        same = errors["measure"] == "layer_invariance_error"
        # NaN is the largest of no errors
        invariance, equivariance = (
            float(errors.loc[ok & which, "value"].max()) for which in (same, ~same)
        )
        verdict = layer_verdict(invariance, equivariance)
        known = verdict != "neither" or math.isfinite(invariance)
        lost = int(errors.loc[same & ~ok, "sample"].nunique())
        verdicts.append((layer, verdict if known else "unknown", invariance, equivariance, lost))
    return pd.DataFrame.from_records(
        verdicts, columns=["layer", "verdict", "invariance", "equivariance", "lost"]
    )
