"""Intervals, tests, chance levels and ranks: pure functions of the table.

Samples are the unit of resampling throughout: a bootstrap draw takes whole samples, with every explainer and every
condition they were seen under, so that differences between explainers stay paired and the correlation between the
conditions of one sample is kept. Draws are count matrices (resamples × samples), so a bootstrap is a matrix product.

Every function takes the long table (see `holdfast.table`) or the cubes that `holdfast.cubes.arrange` makes of it;
arranging once and passing the cubes on saves time on large runs. The identity perturbation, a control, takes no part
in ranks and tests.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from holdfast.cubes import Array, Cube, arrange
from holdfast.resampling import bootstrap_counts, calibrate, mean_of_finite, percentiles, resampled_means
from holdfast.similarity import COMPONENTS

Form = Literal["best", "raw"]

CONTROLS = ("random", "sobel")
IDENTITY = "identity"
FEWEST_PAIRS, LOWEST_RETENTION = 30, 0.01


def is_control(explainer: str) -> bool:
    """Whether an explainer is one of the controls, which do not look at the model.

    >>> is_control("sobel"), is_control("random(seed=1)"), is_control("randomised_smoothing")
    (True, True, False)
    """
    return explainer.split("(", maxsplit=1)[0] in CONTROLS


def wilson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion; (nan, nan) without trials.

    With p = successes/n and z the normal quantile: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n).

    >>> low, high = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if n < 1:
        return math.nan, math.nan
    z = float(stats.norm.ppf(0.5 + level / 2))
    p = successes / n
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)
    return 0.0 if successes == 0 else low, 1.0 if successes == n else high


def retention(table: pd.DataFrame | Sequence[Cube], level: float = 0.95) -> pd.DataFrame:
    """How many attempted pairs were scored: retention = retained / attempted, with Wilson's interval.

    One row per dataset, model, evaluation, explainer, condition and level, with attempted = retained + flipped +
    undefined. `flag` says in words where fewer than 30 pairs or less than 1 % remain, and is empty elsewhere.

    >>> retention([])["retention"].tolist()
    []
    """
    columns = ["dataset", "model", "evaluation", "explainer", "condition", "level", "attempted", "retained", "flipped"]
    columns += ["undefined", "retention", "retention_low", "retention_high", "flag"]
    records = []
    for cube in arrange(table):
        counts = np.stack([(cube.status == code).sum(-1) for code in range(3)], -1)
        for (e, explainer), (c, condition) in itertools.product(enumerate(cube.explainers), enumerate(cube.conditions)):
            ok, flipped, undefined = counts[e, c].tolist()
            attempted = ok + flipped + undefined
            if attempted:
                share = ok / attempted
                head = (cube.dataset, cube.model, cube.evaluation, explainer, *condition)
                interval = wilson(ok, attempted, level)
                records.append((*head, attempted, ok, flipped, undefined, share, *interval, _flag(ok, share)))
    return pd.DataFrame.from_records(records, columns=columns)


def _flag(retained: int, share: float) -> str:
    few = f"only {retained} pair{'' if retained == 1 else 's'} retained" if retained < FEWEST_PAIRS else ""
    rare = f"only {100 * share:.2g} % retained" if share < LOWEST_RETENTION else ""
    return "; ".join(filter(None, (few, rare)))


def summary(
    table: pd.DataFrame | Sequence[Cube], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Mean scores with percentile bootstrap intervals, beside chance, alignment, noise floor and retention.

    One row per dataset, model, evaluation, explainer, condition, level and base measure. `calibrated` is
    (mean − chance) / (1 − chance) of the means over the retained samples; its interval resamples score and chance
    together. `aligned` and `aligned_calibrated` are the same for maps compared after moving them with the image.
    What a measure does not have is NaN, and so is an interval from fewer than two samples.

    >>> summary([]).shape[0]
    0
    """
    kept = retention(table, level)
    blocks = []
    for cube in arrange(table):
        counts = bootstrap_counts(len(cube.samples), resamples, seed)
        for e, explainer in enumerate(cube.explainers):  # one explainer at a time bounds the memory
            stacked = resampled_means(np.concatenate([v[e] for v in cube.values.values()]), counts)
            draws = dict(zip(cube.values, np.split(stacked, len(cube.values), axis=1), strict=True))
            for measure in cube.measures:
                block = _measure_block(cube, e, measure, draws, level)
                block.update(cube.key, evaluation=cube.evaluation, explainer=explainer, measure=measure)
                block["noise_floor"] = mean_of_finite(cube.floor[measure][e]) if measure in cube.floor else math.nan
                attempted = (cube.status[e] >= 0).any(-1) & cube.asked[measure][e]
                blocks.append(pd.DataFrame(block)[attempted])
    order = ["dataset", "model", "evaluation", "explainer", "condition", "level", "measure", *_MEANS, "noise_floor"]
    if not blocks:
        return pd.DataFrame(columns=order + list(kept.columns[6:]))
    means = pd.concat(blocks, ignore_index=True)[order]
    merged: pd.DataFrame = means.merge(kept, on=order[:6], how="left", validate="many_to_one")
    return merged


_MEANS = ["mean", "low", "high", "chance", "calibrated", "calibrated_low", "calibrated_high", "aligned"]
_MEANS += ["aligned_chance", "aligned_calibrated", "aligned_calibrated_low", "aligned_calibrated_high"]


def _measure_block(cube: Cube, e: int, measure: str, draws: dict[str, Array], level: float) -> dict[str, Any]:
    names = [measure + suffix for suffix in ("", "_chance", "_aligned", "_aligned_chance")]
    nothing = np.full(len(cube.conditions), np.nan)
    mean, chance, aligned, aligned_chance = (
        mean_of_finite(cube.values[n][e]) if n in cube.values else nothing for n in names
    )
    drawn, chance_drawn, aligned_drawn, aligned_chance_drawn = (draws.get(name) for name in names)
    few = np.isfinite(cube.values[measure][e]).sum(-1) < 2

    def interval(sampled: Array | None) -> tuple[Array, Array]:
        low, high = percentiles(sampled, level) if sampled is not None else (nothing, nothing)
        return np.where(few, np.nan, low), np.where(few, np.nan, high)

    def calibrated(score: Array | None, by: Array | None) -> Array | None:
        return None if score is None or by is None else calibrate(score, by)

    low, high = interval(drawn)
    calibrated_low, calibrated_high = interval(calibrated(drawn, chance_drawn))
    moved_low, moved_high = interval(calibrated(aligned_drawn, aligned_chance_drawn))
    figures = [mean, low, high, chance, calibrate(mean, chance), calibrated_low, calibrated_high]
    figures += [aligned, aligned_chance, calibrate(aligned, aligned_chance), moved_low, moved_high]
    keys = {"condition": [c for c, _ in cube.conditions], "level": [x for _, x in cube.conditions]}
    return {**keys, **dict(zip(_MEANS, figures, strict=True))}


def ranking(
    table: pd.DataFrame | Sequence[Cube],
    measure: str = "fass",
    form: Form = "best",
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Explainers in order of their overall score, with the uncertainty of score and rank.

    The overall score is the mean over conditions of the mean over a condition's levels of the mean over samples, so
    a sweep counts as one condition. With `form="best"` each mean is aligned and calibrated where the table has both,
    else calibrated, else raw; `raw` is always the raw one. Rank 1 is best; `rank_low` and `rank_high` hold the
    central `level` of the bootstrap ranks and `p_best` is the share of draws with rank 1. Controls are ranked too
    and marked. `conditions` counts the conditions with a score, `conditions_total` all of them.

    >>> ranking([]).empty
    True
    """
    blocks = []
    for cube in (whole.without(IDENTITY) for whole in arrange(table)):
        if measure not in cube.values:
            continue
        counts = bootstrap_counts(len(cube.samples), resamples, seed)
        score, draws = _overall(cube, measure, form, counts)
        raw, raw_draws = (score, draws) if form == "raw" else _overall(cube, measure, "raw", counts)
        ranks = (-np.where(np.isnan(draws), -np.inf, draws)).argsort(1, kind="stable").argsort(1) + 1
        edges = ((1 - level) / 2, (1 + level) / 2)
        frame = pd.DataFrame({**cube.key, "explainer": cube.explainers})
        frame["control"] = [is_control(e) for e in cube.explainers]
        sampled = np.isfinite(cube.values[measure]).any(1).sum(-1)
        for name, mean, spread in (("", score, draws), ("raw_", raw, raw_draws)):
            low, high = (np.where(sampled < 2, np.nan, edge) for edge in percentiles(spread, level))
            frame[name.rstrip("_") or "score"], frame[name + "low"], frame[name + "high"] = mean, low, high
        frame["rank"] = frame["score"].rank(ascending=False, method="min")
        scored = np.isfinite(score)
        frame["rank_low"] = np.where(scored, np.quantile(ranks, edges[0], axis=0, method="lower"), np.nan)
        frame["rank_high"] = np.where(scored, np.quantile(ranks, edges[1], axis=0, method="higher"), np.nan)
        frame["p_best"] = np.where(scored, (ranks == 1).mean(0), np.nan)
        frame["samples"] = sampled
        frame["conditions"] = np.isfinite(cube.values[measure]).any(-1).sum(-1)
        frame["conditions_total"] = len(cube.conditions)
        blocks.append(frame.sort_values("rank", kind="stable"))
    names = ["dataset", "model", "explainer", "control", "score", "low", "high", "raw", "raw_low", "raw_high", "rank"]
    names += ["rank_low", "rank_high", "p_best", "samples", "conditions", "conditions_total"]
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=names)


def paired_tests(
    table: pd.DataFrame | Sequence[Cube],
    measure: str = "fass",
    form: Form = "best",
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Every pair of explainers compared on the samples and conditions that both retain.

    A sample's score under a condition is (value − c) / (1 − c) with c the mean chance of that explainer there (raw
    values with `form="raw"`), aligned where that exists; its difference is averaged over the conditions both
    explainers retain. `difference` is the mean over samples with a bootstrap interval, `p` Wilcoxon's signed-rank
    test (two-sided), `p_holm` Holm's correction within the dataset and model, `significant` p_holm < 1 − level.

    >>> paired_tests([]).empty
    True
    """
    blocks = []
    for cube in (whole.without(IDENTITY) for whole in arrange(table)):
        if measure not in cube.values:
            continue
        scores = _sample_scores(cube, measure, form)
        counts = bootstrap_counts(len(cube.samples), resamples, seed)
        names, differences = [], []
        for a, b in itertools.combinations(range(len(cube.explainers)), 2):
            names.append((cube.dataset, cube.model, cube.explainers[a], cube.explainers[b]))
            differences.append(mean_of_finite((scores[a] - scores[b]).T))
        stacked = np.array(differences).reshape(len(names), len(cube.samples))
        frame = pd.DataFrame.from_records(names, columns=_TEST_COLUMNS[:4])
        frame["n"] = np.isfinite(stacked).sum(-1)
        frame["difference"] = mean_of_finite(stacked)
        low, high = percentiles(resampled_means(stacked, counts), level)
        few = frame["n"].to_numpy() < 2
        frame["low"], frame["high"] = np.where(few, np.nan, low), np.where(few, np.nan, high)
        frame["p"] = [_wilcoxon(row[np.isfinite(row)]) for row in stacked]
        frame["p_holm"] = holm(frame["p"].to_numpy(dtype=np.float64))
        frame["significant"] = frame["p_holm"] < 1 - level
        blocks.append(frame)
    return pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=_TEST_COLUMNS)


_TEST_COLUMNS = ["dataset", "model", "a", "b", "n", "difference", "low", "high", "p", "p_holm", "significant"]


def holm(p: Array) -> Array:
    """Holm's step-down correction: the i-th smallest of m values becomes max over j ≤ i of min(1, (m − j + 1) p₍ⱼ₎).

    NaN values are no tests and stay NaN.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    corrected = np.full(len(p), np.nan)
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return corrected


def component_disagreement(table: pd.DataFrame | Sequence[Cube], form: Form = "best") -> pd.DataFrame:
    """How often SSIM, Spearman and Jaccard do not order two explainers the same way.

    One row per dataset and model: over every condition and pair of explainers with a mean in all three components,
    `count` of `compared` comparisons have differing signs, `share` = count / compared, and `ssim_spearman`,
    `ssim_jaccard`, `spearman_jaccard` are the shares for two components at a time.

    >>> component_disagreement([]).empty
    True
    """
    pairs = list(itertools.combinations(COMPONENTS, 2))
    names = ["dataset", "model", "compared", "count", "share", *(f"{a}_{b}" for a, b in pairs)]
    records = []
    for cube in (whole.without(IDENTITY) for whole in arrange(table)):
        if not set(COMPONENTS) <= set(cube.values):
            continue
        means = {name: mean_of_finite(_sample_scores(cube, name, form)) for name in COMPONENTS}
        first, second = np.triu_indices(len(cube.explainers), 1)
        signs = np.stack([np.sign(means[name][first] - means[name][second]).ravel() for name in COMPONENTS])
        signs = signs[:, np.isfinite(signs).all(0)]
        n = signs.shape[1]
        row: dict[str, Any] = {**cube.key, "compared": n, "count": int((signs != signs[0]).any(0).sum())}
        row["share"] = row["count"] / n if n else math.nan
        for (i, a), (j, b) in itertools.combinations(enumerate(COMPONENTS), 2):
            row[f"{a}_{b}"] = float((signs[i] != signs[j]).mean()) if n else math.nan
        records.append(row)
    return pd.DataFrame.from_records(records, columns=names)


def _best_columns(cube: Cube, measure: str, form: Form) -> list[tuple[NDArray[np.bool_], str, str | None]]:
    """Which conditions use which (score, chance) measures: a partition of the conditions."""
    left = np.ones(len(cube.conditions), dtype=bool)
    chosen: list[tuple[NDArray[np.bool_], str, str | None]] = []
    if form == "best":
        for score, chance in ((f"{measure}_aligned", f"{measure}_aligned_chance"), (measure, f"{measure}_chance")):
            if score in cube.values and chance in cube.values:
                here = left & (np.isfinite(cube.values[score]) & np.isfinite(cube.values[chance])).any((0, 2))
                chosen.append((here, score, chance))
                left &= ~here
    return [*chosen, (left, measure, None)]


def _overall(cube: Cube, measure: str, form: Form, counts: NDArray[np.float32]) -> tuple[Array, Array]:
    """Overall scores (E,) and their draws (resamples, E)."""
    e, c = len(cube.explainers), len(cube.conditions)
    means = np.full((e, c), np.nan)
    draws = np.full((len(counts), e, c), np.nan)
    for here, score, chance in _best_columns(cube, measure, form):
        if not here.any():
            continue
        shape = (len(counts), e, int(here.sum()))
        values = cube.values[score][:, here]
        mean, drawn = (
            mean_of_finite(values),
            resampled_means(values.reshape(-1, values.shape[-1]), counts).reshape(shape),
        )
        if chance is not None:
            by = cube.values[chance][:, here]
            by_drawn = resampled_means(by.reshape(-1, by.shape[-1]), counts).reshape(shape)
            mean, drawn = calibrate(mean, mean_of_finite(by)), calibrate(drawn, by_drawn)
        means[:, here], draws[:, :, here] = mean, drawn
    names = [name for name, _ in cube.conditions]
    groups = [[k for k, name in enumerate(names) if name == group] for group in dict.fromkeys(names)]
    nested = np.stack([mean_of_finite(means[:, g]) for g in groups], -1) if groups else means
    nested_draws = np.stack([mean_of_finite(draws[..., g]) for g in groups], -1) if groups else draws
    return mean_of_finite(nested), mean_of_finite(nested_draws)


def _sample_scores(cube: Cube, measure: str, form: Form) -> Array:
    """Scores (E, C, N) in the form asked for, calibrated by each explainer's mean chance under each condition."""
    scores = np.full(cube.status.shape, np.nan)
    for here, score, chance in _best_columns(cube, measure, form):
        scores[:, here] = cube.values[score][:, here]
        if chance is not None:
            by = np.broadcast_to(mean_of_finite(cube.values[chance][:, here])[..., None], scores[:, here].shape)
            scores[:, here] = calibrate(scores[:, here], by)
    return scores


def _wilcoxon(differences: Array) -> float:
    if len(differences) < 1:
        return math.nan
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0
    with warnings.catch_warnings():  # older SciPy warns about small samples; n is reported beside p
        warnings.simplefilter("ignore", UserWarning)
        return float(stats.wilcoxon(moved).pvalue)
