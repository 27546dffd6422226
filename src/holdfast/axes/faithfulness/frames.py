"""What charts and words about faithfulness share: the metrics, which way is better, and standings with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from holdfast import statistics
from holdfast.statistics.bootstrap import bootstrap_counts, mean_of_finite, percentiles, resampled_means
from holdfast.statistics.cubes import Array, Cube

RETRAINING, LEAKAGE = "retraining", "leakage"  # as `holdfast.runs.retrain` names its evaluations
ROAD_IMPUTER = "noisy_linear"
RESAMPLES = 2000
RANDOM = "random order"


@dataclass(frozen=True)
class Metric:
    """One number per curve or bank of masks: `sign` is −1 where less is better, `chance` what a random order gets.

    `chance` is "zero", "random" (the table has the measure with `_random`) or empty where nothing is known.
    """

    measure: str
    title: str
    axis: str
    sign: int
    chance: str

    @property
    def better(self) -> str:
        """Which direction is good, in words."""
        return "higher is better" if self.sign > 0 else "lower is better"


METRICS = (
    Metric("road", "ROAD", "ROAD", 1, "zero"),
    Metric("deletion_auc", "Deletion", "deletion area", -1, "random"),
    Metric("insertion_auc", "Insertion", "insertion area", 1, "random"),
    Metric("aopc", "AOPC", "AOPC", 1, "random"),
    Metric("pixel_flipping", "Flipping", "pixel flipping", -1, "random"),
    Metric("irof", "IROF", "IROF", 1, "random"),
    Metric("faithfulness_correlation", "Correlation", "correlation", 1, "zero"),
    Metric("sensitivity_n", "Sens.-n", "sensitivity-n", 1, "zero"),
    Metric("infidelity_scaled", "Infidelity", "infidelity, scaled", -1, ""),
    Metric("infidelity", "Unscaled", "infidelity, not scaled", -1, ""),
)
BY_MEASURE = {metric.measure: metric for metric in METRICS}


@dataclass(frozen=True)
class Line:
    """Where a metric was read: the imputer that filled in, and for sensitivity-n the share that was removed."""

    condition: str
    level: float
    name: str


def imputers(cube: Cube) -> list[str]:
    """The imputers with curves, that of the ROAD paper first."""
    found = [c.rsplit(" ", 1)[0] for c, _ in cube.conditions if c.endswith((" morf", " lerf"))]
    return primary_first(dict.fromkeys(found))


def primary_first(names: Iterable[str]) -> list[str]:
    """Names with those of noisy linear imputation first.

    >>> primary_first(["blur", "noisy_linear(sigma=0.03)"])
    ['noisy_linear(sigma=0.03)', 'blur']
    """
    return sorted(names, key=lambda name: name.split("(", maxsplit=1)[0] != ROAD_IMPUTER)


def lines(cube: Cube, metric: Metric) -> list[Line]:
    """Every place at which a metric has a number, the paper's imputer first."""
    values = cube.values.get(metric.measure)
    if values is None:
        return []
    places = [c for i, c in enumerate(cube.conditions) if np.isfinite(values[:, i]).any()]
    by_name = {name: i for i, name in enumerate(primary_first(dict.fromkeys(c for c, _ in places)))}
    several = len({level for _, level in places}) > 1 or metric.measure == "sensitivity_n"
    found = sorted(places, key=lambda place: (by_name[place[0]], place[1]))
    return [Line(c, x, f"{100 * x:g} % removed, {c}" if several else c) for c, x in found]


def cut(cube: Cube, measures: Sequence[str], conditions: Iterable[tuple[str, float]]) -> Cube:
    """The cube with these measures and conditions only; a pair counts as undefined where it has none of them."""
    wanted = set(conditions)
    kept = [i for i, c in enumerate(cube.conditions) if c in wanted]
    values = {m: cube.values[m][:, kept] for m in measures if m in cube.values}
    asked = {m: cube.asked[m][:, kept] for m in values}
    shape = (len(cube.explainers), len(kept), len(cube.samples))
    some, tried = np.zeros(shape, dtype=bool), np.zeros(shape[:2], dtype=bool)
    for m, scores in values.items():
        some |= np.isfinite(scores)
        tried |= asked[m]
    status = np.where(some, 0, np.where(tried[..., None], 2, -1)).astype(np.int8)
    return replace(cube, conditions=[cube.conditions[i] for i in kept], values=values, status=status, asked=asked)


def standings(cube: Cube, metric: Metric, line: Line) -> pd.DataFrame:
    """explainer, control, mean, low, high, n at one place, the best first; explainers without a number are left out."""
    part = cut(cube, [metric.measure], [(line.condition, line.level)])
    rows = statistics.summary([part], resamples=RESAMPLES)[["explainer", "mean", "low", "high", "retained"]]
    rows = rows[rows["mean"].notna()].rename(columns={"retained": "n"})
    rows.insert(1, "control", [statistics.is_control(e) for e in rows["explainer"]])
    return rows.sort_values("mean", ascending=metric.sign < 0, kind="stable", ignore_index=True)


def comparisons(cube: Cube, metric: Metric, line: Line) -> pd.DataFrame:
    """Paired tests between explainers, differences turned so that more is better."""
    part = cut(cube, [metric.measure], [(line.condition, line.level)])
    turned = replace(part, values={m: metric.sign * v for m, v in part.values.items()})
    return statistics.paired_tests([turned], metric.measure, form="raw", resamples=RESAMPLES)


def random_scores(cube: Cube, metric: Metric, line: Line) -> Array | None:
    """What a random order scores on each sample, (N,); None where nobody knows."""
    if metric.chance == "zero":
        return np.zeros(len(cube.samples))
    name = f"{metric.measure}_random"
    if metric.chance != "random" or name not in cube.values:
        return None
    return once(cube.values[name][:, cube.conditions.index((line.condition, line.level))])


def once(values: Array) -> Array:
    """A number per sample from the copies under every explainer (E, N); NaN where no explainer has one."""
    return mean_of_finite(values.T)


def over_random(cube: Cube, metric: Metric, line: Line) -> pd.DataFrame | None:
    """By how much each explainer is better than a random order on the same samples: explainer, n, mean, low, high."""
    chance = random_scores(cube, metric, line)
    if chance is None:
        return None
    scores = cube.values[metric.measure][:, cube.conditions.index((line.condition, line.level))]
    gap = metric.sign * (scores - chance)
    low, high = interval(gap)
    frame = pd.DataFrame({"explainer": cube.explainers, "n": np.isfinite(gap).sum(-1), "mean": mean_of_finite(gap)})
    return frame.assign(low=low, high=high)[frame["n"] > 0].reset_index(drop=True)


def interval(values: Array) -> tuple[Array, Array]:
    """The 95 % bootstrap interval over samples of the means of (K, N); NaN from fewer than two samples."""
    draws = resampled_means(values, bootstrap_counts(values.shape[-1], RESAMPLES, 0))
    few = np.isfinite(values).sum(-1) < 2
    low, high = (np.where(few, np.nan, edge) for edge in percentiles(draws, 0.95))
    return low, high


def best_metric(cube: Cube) -> tuple[Metric, Line] | None:
    """What explainers are ranked by: ROAD where there is one, else the first metric that has numbers."""
    return next(((metric, line) for metric in METRICS for line in lines(cube, metric)[:1]), None)


def explainer_order(cube: Cube) -> list[str]:
    """All explainers, the best first; those without a number come last."""
    found = best_metric(cube)
    ranked = [] if found is None else standings(cube, *found)["explainer"].tolist()
    return [*ranked, *(e for e in cube.explainers if e not in ranked)]


def faint(colour: str, opacity: float) -> str:
    """A colour such as #0072B2 with an opacity.

    >>> faint("#0072B2", 0.1)
    'rgba(0,114,178,0.1)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"
