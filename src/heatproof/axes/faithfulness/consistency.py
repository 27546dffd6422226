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
LEAST_RELIABILITY = 1e-3
"""Keeps a division finite; such an interval reaches from −1 to 1 anyway."""


@dataclass(frozen=True)
class Strategy:
    """The scores of one way to evaluate: fraction removed → (explainers, samples), NaN where there is none.

    They are turned so that larger is better: accuracy that is left after the most relevant pixels were removed counts
    against a map. `name` is that of its condition in the table.
    """

    name: str
    imputer: str
    order: str
    is_retrained: bool
    explainers: list[str]
    samples: list[str]
    scores: dict[float, Array]


@dataclass(frozen=True)
class Pair:
    """Two strategies to compare, what they differ in (`kind`), their `names`, and which fractions are set side by side."""

    kind: str
    names: tuple[str, str]
    a: Strategy
    b: Strategy
    fractions: list[tuple[float, float]]


@dataclass(frozen=True)
class Correlations:
    """K rank correlations: `values` (K,), their bootstrap `draws` (resamples, K), and `reliability` (K,) of the means."""

    values: Array
    draws: Array
    reliability: Array


def agreement(
    a: Array,
    b: Array,
    paired: bool = True,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return Spearman's correlation of the mean scores of E explainers, (E, N) and (E, M), with a bootstrap interval.

    `paired` says that column i of both is the same sample; a draw then takes it in both or in neither.

    >>> scores = np.array([[0.1, 0.2], [0.4, 0.5], [0.8, 0.7]])
    >>> [round(end, 3) for end in agreement(scores, -scores, resamples=20)]
    [-1.0, -1.0, -1.0]
    """
    correlations = _correlations([(a, b)], paired, resamples, seed)
    low, high = _interval(correlations, level)
    return float(correlations.values[0]), float(low[0]), float(high[0])


def _interval(correlations: Correlations, level: float) -> tuple[Array, Array]:
    """Return confidence intervals (low, high), (K,) each, of K rank correlations from their bootstrap draws.

    The interval is the union of the percentile and the basic bootstrap interval. Noise in the mean scores weakens a rank
    correlation, and resampling adds noise, so the draws lie below the value as the value lies below the truth: percentile
    intervals alone miss the truth above. Basic intervals alone, 2·value − quantile, shrink to a point at a value of 1.

    The ends are then corrected for attenuation (Spearman 1904): those that point away from 0 are divided by the
    reliability of the means, since any correlation is possible where methods differ by no more than noise. In simulations
    with 30 and 100 samples, 4 and 8 methods, 98 % and more of the 95 % intervals covered the truth.
    """
    values, reliability = correlations.values, correlations.reliability
    lower_quantile, upper_quantile = percentiles(correlations.draws, level)
    basic_low, basic_high = 2 * values - upper_quantile, 2 * values - lower_quantile
    low = np.minimum(lower_quantile, basic_low)
    high = np.maximum(upper_quantile, basic_high)
    low = np.where(low < 0, low / reliability, low)
    high = np.where(high > 0, high / reliability, high)
    return np.clip(low, -1, 1), np.clip(high, -1, 1)


def _correlations(
    pairs: list[tuple[Array, Array]], paired: bool, resamples: int, seed: int
) -> Correlations:
    """Return the rank correlations of K pairs of strategies, with their bootstrap draws and reliabilities.

    A pair has the scores of E explainers under both strategies, (E, N) and (E, M). If `paired`, both have the same N
    samples, and the bootstrap draws the same ones for both.
    """
    values, draws, reliability = [], [], []
    for a, b in pairs:
        counts_a = bootstrap_counts(a.shape[1], resamples, seed)
        counts_b = counts_a if paired else bootstrap_counts(b.shape[1], resamples, seed + 1)
        means_a, means_b = mean_of_finite(a), mean_of_finite(b)
        draws_a, draws_b = resampled_means(a, counts_a), resampled_means(b, counts_b)
        values.append(float(spearman(_without_rounding(means_a), _without_rounding(means_b))))
        draws.append(spearman(_without_rounding(draws_a), _without_rounding(draws_b)))
        # Noise in either weakens the correlation by the root of its reliability (attenuation, Spearman 1904).
        product = _reliability(means_a, draws_a) * _reliability(means_b, draws_b)
        reliability.append(math.sqrt(product))
    return Correlations(
        np.asarray(values, dtype=np.float64), np.stack(draws, -1), np.asarray(reliability)
    )


def _reliability(means: Array, draws: Array) -> float:
    """Return the reliability of the mean scores of E explainers: the share of their variance that is not noise.

    `means` (E,) are the scores, and `draws` (resamples, E) their bootstrap draws, whose variance estimates the noise.
    """
    between = float(means.var(ddof=1))
    if not between > 0:
        return LEAST_RELIABILITY
    # Noise that moves all explainers alike does not change their ranking.
    deviations = draws - draws.mean(-1, keepdims=True)
    noise = float(np.nanvar(deviations, axis=0).sum()) / (len(means) - 1)
    return float(np.clip(1 - noise / between, LEAST_RELIABILITY, 1))


def _without_rounding(means: Array) -> Array:
    """Return mean scores to six digits of the largest, for ranking: rounding errors would break ties of equal scores."""
    largest = np.nanmax(np.abs(means), initial=0.0)
    if largest > 0:
        means = np.round(means / largest, 6)
    return np.asarray(means)


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
    """Return Spearman's correlation of the rankings of explainers under two strategies, at every fraction removed.

    `kind` says in what the strategies a and b differ: "order" (MoRF against LeRF), "imputer", or "retraining" (the
    evaluation `retrained` against the others). With `every_pair` strategies that differ in several respects are
    compared too, as Table 7 of the ROAD paper does; their kind is "several".

    At a fraction, explainers are ranked by their mean over the samples on which all of them have a score in both; the
    row with level NaN is the mean of the correlations at all fractions. Intervals are from a bootstrap over samples.
    With pairing="mask", MoRF at f is set beside LeRF at 1 − f: both then part the pixels at the same place. Repeats of
    a row, such as several retrained networks, are averaged. Controls are left out unless `controls`.

    >>> consistency(pd.DataFrame(columns=["dataset", "model", "measure", "order", "role"])).empty
    True
    """
    if pairing not in ("removed", "mask"):
        raise UserError(f"pairing must be 'removed' or 'mask', got {pairing!r}")
    rows = table[(table["measure"] == measure) & table["order"].isin(["morf", "lerf"])]
    if not controls:
        rows = rows[rows["role"] != CONTROL]
    records: list[dict[str, Any]] = []
    for (dataset, model), group in rows.groupby(["dataset", "model"], sort=False, observed=True):
        by_evaluation: dict[str, dict[str, Strategy]] = {}
        for name, of_evaluation in group.groupby("evaluation", sort=False, observed=True):
            is_retrained = name == retrained
            by_evaluation[str(name)] = _strategies(of_evaluation, is_retrained)
        after_retraining = by_evaluation.get(retrained, {})
        for evaluation, strategies in by_evaluation.items():
            pairs = list(_pairs_within(strategies, pairing))
            if evaluation != retrained:
                pairs += _pairs_between(
                    strategies, after_retraining, pairing, evaluation, retrained
                )
            for pair in pairs:
                if pair.kind == SEVERAL and not every_pair:
                    continue
                names = {
                    "dataset": dataset,
                    "model": model,
                    "evaluation": evaluation,
                    "measure": measure,
                    "kind": pair.kind,
                    "a": pair.names[0],
                    "b": pair.names[1],
                }
                for side, strategy in (("a", pair.a), ("b", pair.b)):
                    names[f"{side}_imputer"] = strategy.imputer
                    names[f"{side}_order"] = strategy.order
                    names[f"{side}_retrained"] = strategy.is_retrained
                records += [names | row for row in _rows_of(pair, level, resamples, seed)]
    return pd.DataFrame.from_records(records, columns=COLUMNS)


def _strategies(rows: pd.DataFrame, is_retrained: bool) -> dict[str, Strategy]:
    """Return the strategies of one evaluation by name, each with the scores of all explainers at every fraction removed.

    A strategy is an imputer and an order of removal. Repeats, such as several retrained networks, are averaged. Scores
    are turned so that larger is better: what is left after the most relevant features were removed counts negative.
    """
    strategies = {}
    rows = rows.assign(value=rows["value"].where(rows["status"] == "ok").astype(np.float64))
    keys = ["condition", "imputer", "order"]
    for key, of_strategy in rows.groupby(keys, sort=False, observed=True):
        name, imputer, order = (str(part) for part in key)
        sign = -1.0 if order == "morf" else 1.0
        explainers = sorted(set(of_strategy["explainer"]))
        samples = sorted(set(of_strategy["sample"]))
        scores = {}
        for fraction, at_fraction in of_strategy.groupby("level"):
            wide = at_fraction.pivot_table(
                "value", "explainer", "sample", aggfunc="mean", dropna=False, observed=True
            )
            wide = wide.reindex(explainers, columns=samples)
            scores[float(str(fraction))] = sign * wide.to_numpy(np.float64)
        strategies[name] = Strategy(name, imputer, order, is_retrained, explainers, samples, scores)
    return strategies


def _pairs_within(strategies: dict[str, Strategy], pairing: Pairing) -> Iterator[Pair]:
    """Yield the pairs among the strategies of one evaluation."""
    for a, b in itertools.combinations(strategies.values(), 2):
        if a.imputer == b.imputer:
            morf, lerf = (a, b) if a.order == "morf" else (b, a)
            fractions = _paired_fractions(morf, lerf, pairing)
            yield Pair("order", (morf.name, lerf.name), morf, lerf, fractions)
        else:
            kind = "imputer" if a.order == b.order else SEVERAL
            yield Pair(kind, (a.name, b.name), a, b, _paired_fractions(a, b, pairing))


def _pairs_between(
    strategies: dict[str, Strategy],
    after_retraining: dict[str, Strategy],
    pairing: Pairing,
    evaluation: str,
    retrained: str,
) -> Iterator[Pair]:
    """Yield the pairs of each strategy with those after retraining."""
    for a in strategies.values():
        for b in after_retraining.values():
            kind = "retraining" if a.name == b.name else SEVERAL
            names = (f"{evaluation}: {a.name}", f"{retrained}: {b.name}")
            yield Pair(kind, names, a, b, _paired_fractions(a, b, pairing))


def _paired_fractions(a: Strategy, b: Strategy, pairing: Pairing) -> list[tuple[float, float]]:
    """Return which fraction of strategy b each fraction f of strategy a is compared with, as pairs.

    It is f too. With pairing "mask" it is 1 − f for opposite orders of removal: removing the most relevant f, or the least
    relevant 1 − f, divides the features at the same value. Fractions that b does not have are left out.
    """
    # Rounded, as 1 − 0.9 is not quite 0.1.
    of_b = {round(fraction, 9): fraction for fraction in b.scores}
    is_complement = pairing == "mask" and a.order != b.order
    pairs = []
    for fraction in a.scores:
        counterpart = 1 - fraction if is_complement else fraction
        counterpart = round(counterpart, 9)
        if counterpart in of_b:
            pairs.append((fraction, of_b[counterpart]))
    return pairs


def _rows_of(pair: Pair, level: float, resamples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the table rows of two strategies: their rank correlation at each fraction, then the mean (level NaN).

    Each row has the interval and the numbers of explainers and samples. With fewer than three explainers or no sample
    there is no correlation.
    """
    scores, is_paired = _comparable_scores(pair)
    if not scores:
        return
    explainers = len(scores[0][0])
    samples = [min(a.shape[1], b.shape[1]) for a, b in scores]
    if explainers >= FEWEST and min(samples):
        correlations = _correlations(scores, is_paired, resamples, seed)
    else:
        nothing = np.full(len(scores), np.nan)
        correlations = Correlations(nothing, nothing[None], np.ones(len(scores)))

    # The mean over fractions is treated like one more fraction.
    mean = mean_of_finite(correlations.values[None])
    draws_of_mean = mean_of_finite(correlations.draws)[:, None]
    with_mean = Correlations(
        np.concatenate([correlations.values, mean]),
        np.concatenate([correlations.draws, draws_of_mean], 1),
        np.append(correlations.reliability, correlations.reliability.mean()),
    )
    low, high = _interval(with_mean, level)
    fractions = [*(fraction for fraction, _ in pair.fractions), math.nan]
    for k, (fraction, n) in enumerate(zip(fractions, [*samples, min(samples)], strict=True)):
        has_interval = n > 1
        yield {
            "level": fraction,
            "spearman": with_mean.values[k],
            "low": low[k] if has_interval else math.nan,
            "high": high[k] if has_interval else math.nan,
            "explainers": explainers,
            "samples": n,
        }


def _comparable_scores(pair: Pair) -> tuple[list[tuple[Array, Array]], bool]:
    """Return the scores of two strategies at each fraction, (E, N) and (E, M), and whether their samples are paired.

    Only the explainers that both strategies have are compared, and if they share samples, only on those (paired).
    """
    a, b = pair.a, pair.b
    samples_of_b = set(b.samples)
    explainers = [name for name in a.explainers if name in b.explainers]
    shared = [sample for sample in a.samples if sample in samples_of_b]
    is_paired = bool(shared)
    scores = []
    for fraction_a, fraction_b in pair.fractions:
        scores_a = _scores_at(a, fraction_a, explainers, shared)
        scores_b = _scores_at(b, fraction_b, explainers, shared)
        scores.append((scores_a, scores_b))

    # An explainer without any score at some fraction has no rank there, so it is left out.
    is_ranked = np.ones(len(explainers), dtype=bool)
    for scores_a, scores_b in scores:
        is_ranked &= np.isfinite(scores_a).any(1) & np.isfinite(scores_b).any(1)
    comparable = []
    for scores_a, scores_b in scores:
        comparable.append(_on_common_samples(scores_a[is_ranked], scores_b[is_ranked], is_paired))
    return comparable, is_paired


def _scores_at(
    strategy: Strategy, fraction: float, explainers: list[str], samples: list[str]
) -> Array:
    """Return the scores of some explainers and samples at one fraction removed; all samples if none are named."""
    rows = [strategy.explainers.index(name) for name in explainers]
    scores = strategy.scores[fraction][rows]
    if not samples:
        return scores
    columns = [strategy.samples.index(sample) for sample in samples]
    return scores[:, columns]


def _on_common_samples(a: Array, b: Array, paired: bool) -> tuple[Array, Array]:
    """Return the samples of which every explainer has a score: in both if they are paired, else in each by itself."""
    complete_in_a, complete_in_b = np.isfinite(a).all(0), np.isfinite(b).all(0)
    if not paired:
        return a[:, complete_in_a], b[:, complete_in_b]
    complete = complete_in_a & complete_in_b
    return a[:, complete], b[:, complete]
