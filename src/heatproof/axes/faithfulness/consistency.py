"""Do evaluation strategies agree on which explainer is better? Rank correlations as a pure function of the table.

Between removing the most and the least relevant pixels first, between imputers, and between networks that were
retrained on imputed images and the one that was not: Tables 2 and 3 of the ROAD paper, with bootstrap intervals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from heatproof.axes.faithfulness import RETRAINING
from heatproof.errors import UserError
from heatproof.results.arrays import CONTROL
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.statistics.bootstrap import bootstrap_counts, percentiles, resampled_means
from heatproof.statistics.ranks import spearman

Pairing = Literal["removed", "mask"]
COLUMNS = [
    "dataset",
    "model",
    "evaluation",
    "measure",
    "kind",
    "a",
    "b",
    "level",
    "spearman",
    "low",
    "high",
]
COLUMNS += ["explainers", "samples", "a_imputer", "a_order", "a_retrained"]
COLUMNS += ["b_imputer", "b_order", "b_retrained"]
SEVERAL = "several"
"""The kind of a pair of strategies that differ in more than one respect."""
FEWEST = 3
"""With fewer explainers a rank correlation can only be −1 or 1, and is not given."""


@dataclass(frozen=True)
class Strategy:
    """The scores of one way to evaluate: fraction removed → (explainers, samples), NaN where there is none.

    They are turned so that larger is better: what is left after the most relevant pixels went counts against a map.
    `name` is that of its condition in the table.
    """

    name: str
    imputer: str
    order: str
    is_retrained: bool
    explainers: list[str]
    samples: list[str]
    scores: dict[float, Array]


Pair = tuple[str, tuple[str, str], Strategy, Strategy, list[tuple[float, float]]]


def agreement(
    a: Array,
    b: Array,
    paired: bool = True,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Spearman's correlation of the mean scores of E explainers, (E, N) and (E, M), with a bootstrap interval.

    `paired` says that column i of both is the same sample; a draw then takes it in both or in neither.

    >>> scores = np.array([[0.1, 0.2], [0.4, 0.5], [0.8, 0.7]])
    >>> [round(end, 3) for end in agreement(scores, -scores, resamples=20)]
    [-1.0, -1.0, -1.0]
    """
    values, draws, reliability = _agreements([(a, b)], paired, resamples, seed)
    low, high = _interval(values, draws, reliability, level)
    return float(values[0]), float(low[0]), float(high[0])


def _interval(values: Array, draws: Array, reliability: Array, level: float) -> tuple[Array, Array]:
    """From the quantiles of the draws, and from their mirror images at the value, whichever reach further.

    Noise in the means weakens a rank correlation, and resampling adds noise: the draws lie below the value as the
    value lies below the truth. So their quantiles alone miss the truth above, and the mirror images alone, 2·value −
    quantile, shrink to a point at a value of 1. What noise took from a correlation is given back by dividing ends
    that point away from 0 by the reliability of the means: where methods differ by no more than noise, any
    correlation is possible. Of 95 % intervals, 98 % and more covered with 30 and 100 samples, 4 and 8 methods.
    """
    low, high = percentiles(draws, level)
    low, high = np.minimum(low, 2 * values - high), np.maximum(high, 2 * values - low)
    return (
        np.clip(np.where(low < 0, low / reliability, low), -1, 1),
        np.clip(np.where(high > 0, high / reliability, high), -1, 1),
    )


def _agreements(
    pairs: list[tuple[Array, Array]], paired: bool, resamples: int, seed: int
) -> tuple[Array, Array, Array]:
    """Correlations (K,) of K pairs of scores, their draws (resamples, K), and the reliability (K,) of their means."""
    values, draws, reliability = [], [], []
    for a, b in pairs:
        first = bootstrap_counts(a.shape[1], resamples, seed)
        drawn = resampled_means(a, first)
        second = first if paired else bootstrap_counts(b.shape[1], resamples, seed + 1)
        again = resampled_means(b, second)
        means = mean_of_finite(a), mean_of_finite(b)
        values.append(float(spearman(_settled(means[0]), _settled(means[1]))))
        draws.append(spearman(_settled(drawn), _settled(again)))
        reliability.append(math.sqrt(_reliability(means[0], drawn) * _reliability(means[1], again)))
    return np.asarray(values, dtype=np.float64), np.stack(draws, -1), np.asarray(reliability)


def _reliability(means: Array, drawn: Array) -> float:
    """The share of the variance between the means (E,) that is not noise, given their draws (resamples, E)."""
    between = float(means.var(ddof=1))
    noise = float(np.nanvar(drawn - drawn.mean(-1, keepdims=True), axis=0).sum()) / (len(means) - 1)
    return float(np.clip(1 - noise / between, 1e-3, 1)) if between > 0 else 1e-3


def _settled(means: Array) -> Array:
    """Means without their last digits, where the rounding of equal accuracies would break ties."""
    largest = np.nanmax(np.abs(means), initial=0.0)
    return np.asarray(np.round(means / largest, 6) if largest > 0 else means)


def consistency(
    table: pd.DataFrame,
    measure: str = "accuracy",
    pairing: Pairing = "removed",
    retrained: str = RETRAINING.name,
    controls: bool = False,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    every_pair: bool = False,
) -> pd.DataFrame:
    """Spearman's correlation of the rankings of explainers under two strategies, a and b, at every fraction removed.

    `kind` is "order" (MoRF against LeRF), "imputer" (two imputers in one order), or "retraining" (the evaluation
    `retrained` against the others). With `every_pair` strategies that differ in several respects are compared too, and
    their kind is "several"; that is Table 7 of the ROAD paper. At a fraction, explainers are ranked by their mean over
    the samples on which all
    of them have a score in both; the row with level NaN is the mean of the correlations at all fractions. Intervals
    are from a bootstrap over samples.
    With pairing="mask", MoRF at f is set beside LeRF at 1 − f: both then part the pixels at the same place. Repeats of
    a row, such as several retrained networks, are averaged. Controls are left out unless `controls`. `a_imputer`,
    `a_order`, `a_retrained`, `b_imputer`, `b_order` and `b_retrained` say what the two are made of.

    >>> consistency(pd.DataFrame(columns=["dataset", "model", "measure", "order", "role"])).empty
    True
    """
    if pairing not in ("removed", "mask"):
        raise UserError(f"pairing must be 'removed' or 'mask', got {pairing!r}")
    rows = table[(table["measure"] == measure) & table["order"].isin(["morf", "lerf"])]
    if not controls:
        rows = rows[rows["role"] != CONTROL]
    records: list[dict[str, Any]] = []
    for (dataset, model), here in rows.groupby(["dataset", "model"], sort=False, observed=True):
        groups = {
            str(name): _strategies(own, is_retrained=name == retrained)
            for name, own in here.groupby("evaluation", sort=False, observed=True)
        }
        again = groups.get(retrained, {})
        for evaluation, strategies in groups.items():
            pairs = [*_within(strategies, pairing)]
            if evaluation != retrained:
                pairs += _between(strategies, again, evaluation, retrained)
            if not every_pair:
                pairs = [pair for pair in pairs if pair[0] != SEVERAL]
            for kind, names, a, b, levels in pairs:
                head = {
                    "dataset": dataset,
                    "model": model,
                    "evaluation": evaluation,
                    "measure": measure,
                    "kind": kind,
                }
                head |= {"a": names[0], "b": names[1]}
                for side, strategy in (("a", a), ("b", b)):
                    head[f"{side}_imputer"] = strategy.imputer
                    head[f"{side}_order"] = strategy.order
                    head[f"{side}_retrained"] = strategy.is_retrained
                records += [head | row for row in _rows(a, b, levels, level, resamples, seed)]
    return pd.DataFrame.from_records(records, columns=COLUMNS)


def _strategies(rows: pd.DataFrame, is_retrained: bool) -> dict[str, Strategy]:
    """Return the strategies in the rows of one evaluation, by name; repeats of a row are averaged."""
    strategies = {}
    value = rows["value"].where(rows["status"] == "ok").astype(np.float64)
    keys = ["condition", "imputer", "order"]
    for (condition, imputer, order), own in rows.assign(value=value).groupby(
        keys, sort=False, observed=True
    ):
        sign = -1.0 if order == "morf" else 1.0
        explainers, samples = sorted(set(own["explainer"])), sorted(set(own["sample"]))
        scores = {}
        for fraction, at in own.groupby("level"):
            wide = at.pivot_table(
                "value", "explainer", "sample", aggfunc="mean", dropna=False, observed=True
            )
            scores[float(str(fraction))] = sign * wide.reindex(
                explainers, columns=samples
            ).to_numpy(np.float64)
        strategies[str(condition)] = Strategy(
            str(condition), str(imputer), str(order), is_retrained, explainers, samples, scores
        )
    return strategies


def _within(strategies: dict[str, Strategy], pairing: Pairing) -> Iterator[Pair]:
    """Yield the comparisons among the strategies of one evaluation."""
    for a, b in itertools.combinations(strategies.values(), 2):
        if a.imputer == b.imputer:
            first, second = (a, b) if a.order == "morf" else (b, a)
            other = {f: round(1 - f, 9) if pairing == "mask" else f for f in first.scores}
            there = {round(f, 9): f for f in second.scores}
            levels = [(f, there[round(g, 9)]) for f, g in other.items() if round(g, 9) in there]
            yield "order", (first.name, second.name), first, second, levels
        else:
            kind = "imputer" if a.order == b.order else SEVERAL
            yield kind, (a.name, b.name), a, b, _common_levels(a, b)


def _between(
    strategies: dict[str, Strategy], again: dict[str, Strategy], one: str, other: str
) -> Iterator[Pair]:
    """Yield the comparisons of each strategy with those after retraining."""
    for a in strategies.values():
        for b in again.values():
            kind = "retraining" if a.name == b.name else SEVERAL
            yield kind, (f"{one}: {a.name}", f"{other}: {b.name}"), a, b, _common_levels(a, b)


def _common_levels(a: Strategy, b: Strategy) -> list[tuple[float, float]]:
    return [(f, f) for f in a.scores if f in b.scores]


def _rows(
    a: Strategy,
    b: Strategy,
    levels: list[tuple[float, float]],
    level: float,
    resamples: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """The correlation at each fraction, then their mean with level NaN."""
    common = [e for e in a.explainers if e in b.explainers]
    places = [[s.explainers.index(e) for e in common] for s in (a, b)]
    shared = [sample for sample in a.samples if sample in set(b.samples)]
    columns = [
        [s.samples.index(sample) for sample in shared] if shared else slice(None) for s in (a, b)
    ]
    used = [
        (a.scores[f][places[0]][:, columns[0]], b.scores[g][places[1]][:, columns[1]])
        for f, g in levels
    ]
    # An explainer without any score has no rank, so the others are compared without it.
    scored = [
        e for e in range(len(common)) if all(np.isfinite(v[e]).any() for pair in used for v in pair)
    ]
    used = [_on_common_samples(x[scored], y[scored], bool(shared)) for x, y in used]
    if not used:
        return
    samples = [min(x.shape[1], y.shape[1]) for x, y in used]
    values, draws, reliability = (
        np.full(len(used), np.nan),
        np.full((1, len(used)), np.nan),
        np.ones(len(used)),
    )
    if len(scored) >= FEWEST and min(samples):
        values, draws, reliability = _agreements(used, bool(shared), resamples, seed)
    mean, mean_draws = mean_of_finite(values[None]), mean_of_finite(draws)[:, None]
    every, every_draw = np.concatenate([values, mean]), np.concatenate([draws, mean_draws], 1)
    low, high = _interval(every, every_draw, np.append(reliability, reliability.mean()), level)
    for k, (fraction, n) in enumerate(
        zip([*(f for f, _ in levels), math.nan], [*samples, min(samples)], strict=True)
    ):
        ends = {"low": low[k], "high": high[k]} if n > 1 else {"low": math.nan, "high": math.nan}
        yield {
            "level": fraction,
            "spearman": every[k],
            **ends,
            "explainers": len(scored),
            "samples": n,
        }


def _on_common_samples(a: Array, b: Array, paired: bool) -> tuple[Array, Array]:
    """The samples of which every explainer has a score: in both of two pairs of scores, or in each by itself."""
    first, second = np.isfinite(a).all(0), np.isfinite(b).all(0)
    return (a[:, first & second], b[:, first & second]) if paired else (a[:, first], b[:, second])
