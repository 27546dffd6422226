"""How often tests, intervals and bounds are wrong, on drawn scores whose truth is known.

Every cell draws studies anew, calls the functions that reports and gates call, and counts. Usage:

    python benchmarks/coverage.py [--replicates 4000] [--quick] [--out docs/coverage.md]

Each part writes its table into OUT between marks of its own, and leaves the text around it alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from heatproof.evaluation import Span
from heatproof.results.arrays import ScoreArrays, rows_to_arrays
from heatproof.results.comparisons import paired_tests
from heatproof.results.ranking import ranking
from heatproof.results.score_estimates import score_estimates
from heatproof.results.summary import summary
from heatproof.statistics.above_chance import numbers_of_hits
from heatproof.statistics.arrays import mean_of_finite
from heatproof.statistics.betting import reaches_goal
from heatproof.statistics.bounds_of_means import bet_on_calibrated_mean
from heatproof.statistics.estimates import Estimate, calibrated, of_means, sample_totals
from heatproof.statistics.sign_flips import sign_flips, simultaneous_tests

Array = NDArray[np.float64]
Generator = np.random.Generator
Scores = Callable[[Generator, tuple[int, ...]], Array]

SIZES = (8, 14, 30, 100, 400)
FEW = (2, 3, 5)
METHODS = 6
PAIRS = np.array(list(combinations(range(METHODS), 2)))
ALPHA = 0.05
UNIT = (0.0, 1.0)
FLIPS = 2_000
"""Flips of each test here, beyond 14 samples. A test with random flips keeps its level with any number of them."""
ENTRIES = 4_000_000
"""How many scores are held at once."""


# What scores are drawn from


@dataclass(frozen=True)
class Population:
    """Scores (studies, methods, conditions, samples) of methods that all have the same mean.

    `draw` takes a generator, the number of studies and methods, and n. `is_new` says that no part of the methods was
    chosen by looking at it, `is_exchangeable` that all methods have the same distribution, not only the same mean.
    """

    draw: Callable[[Generator, int, int, int], Array]
    mean: float
    span: Span | None = UNIT
    rate: bool = False
    in_groups: bool = False
    is_new: bool = False
    is_exchangeable: bool = True


def alike(draw: Scores) -> Callable[..., Array]:
    """Independent scores of one distribution, under one condition."""
    return lambda g, studies, methods, n: draw(g, (studies, methods, 1, n))


def shared_and_beta(g: Generator, studies: int, methods: int, n: int) -> Array:
    difficulty = g.beta(2, 2, (studies, 1, 1, n))
    return 0.3 * difficulty + 0.7 * g.beta(8, 2, (studies, methods, 1, n))


def failures(share: float) -> Scores:
    """Scores between .9 and 1, but for a share of failures between 0 and .2."""
    return lambda g, shape: np.where(
        g.random(shape) < share, 0.2 * g.random(shape), 0.9 + 0.1 * g.random(shape)
    )


def zero_inflated_beta(g: Generator, shape: tuple[int, ...]) -> Array:
    return np.where(g.random(shape) < 0.3, 0.0, g.beta(5, 2, shape))


def ratings(g: Generator, shape: tuple[int, ...]) -> Array:
    return g.choice([0.0, 0.25, 0.5, 0.75, 1.0], shape, p=[0.05, 0.05, 0.1, 0.3, 0.5])


def bimodal(g: Generator, shape: tuple[int, ...]) -> Array:
    return np.where(g.random(shape) < 0.5, g.beta(20, 80, shape), g.beta(80, 20, shape))


def of_unequal_spread(g: Generator, studies: int, methods: int, n: int) -> Array:
    """Normal scores; each method has 1.6 times the spread of the one before."""
    spread = 0.02 * 1.6 ** np.arange(methods)[:, None, None]
    return 0.5 + spread * g.standard_normal((studies, methods, 1, n))


def of_unequal_skewness(g: Generator, studies: int, methods: int, n: int) -> Array:
    """Every other method is skewed to the right instead of to the left."""
    skewed = g.beta(8, 2, (studies, methods, 1, n)) - 0.8
    return 0.5 + np.where(np.arange(methods)[:, None, None] % 2, -skewed, skewed)


def correlated_conditions(g: Generator, studies: int, methods: int, n: int) -> Array:
    """Four conditions, each like the one before (correlation .7), and a fifth of the scores missing."""
    shape = (studies, methods, n)
    noise = g.standard_normal(shape)
    rows = []
    for _ in range(4):
        noise = 0.7 * noise + np.sqrt(1 - 0.7**2) * g.standard_normal(shape)
        rows.append(noise)
    scores = 0.5 + 0.1 * np.stack(rows, 2) + 0.1 * g.standard_normal((studies, 1, 1, n))
    return np.where(g.random(scores.shape) < 0.2, np.nan, scores)


def groups_of(n: int) -> NDArray[np.int64]:
    """The group of every sample: n groups of 1 to 8 samples."""
    return np.repeat(np.arange(n), 1 + np.arange(n) % 8)


def in_unequal_groups(g: Generator, studies: int, methods: int, n: int) -> Array:
    groups = groups_of(n)
    own = 0.12 * g.standard_normal((studies, methods, 1, n))[..., groups]
    return 0.5 + own + 0.1 * g.standard_normal((studies, methods, 1, len(groups)))


POPULATIONS = {
    "uniform": Population(alike(lambda g, shape: g.random(shape)), 0.5),
    "shared difficulty + beta": Population(shared_and_beta, 0.15 + 0.56),
    "beta(½, 2)": Population(alike(lambda g, shape: g.beta(0.5, 2, shape)), 0.2),
    "exponential tail": Population(alike(lambda g, shape: g.exponential(0.2, shape)), 0.2, None),
    "binary ½, a rate": Population(alike(lambda g, shape: 1.0 * (g.random(shape) < 0.5)), 0.5, rate=True),
    "binary .9, a rate": Population(alike(lambda g, shape: 1.0 * (g.random(shape) < 0.9)), 0.9, rate=True),
    "normal": Population(alike(lambda g, shape: g.standard_normal(shape)), 0.0, None),
    "t, 3 degrees of freedom": Population(alike(lambda g, shape: g.standard_t(3, shape)), 0.0, None),
    "lognormal ¾": Population(alike(lambda g, shape: g.lognormal(0, 0.75, shape)), np.exp(0.75**2 / 2), None),
    "10 % failures": Population(alike(failures(0.1)), 0.9 * 0.95 + 0.1 * 0.1),
    "5 % failures": Population(alike(failures(0.05)), 0.95 * 0.95 + 0.05 * 0.1, is_new=True),
    "zero-inflated beta": Population(alike(zero_inflated_beta), 0.7 * 5 / 7, is_new=True),
    "ratings, five levels": Population(alike(ratings), 0.7875, is_new=True),
    "bimodal": Population(alike(bimodal), 0.5, is_new=True),
    "correlated conditions, 20 % missing": Population(correlated_conditions, 0.5, None, is_new=True),
    "groups of 1 to 8 samples": Population(in_unequal_groups, 0.5, None, in_groups=True, is_new=True),
    "unequal spread": Population(of_unequal_spread, 0.5, None, is_new=True, is_exchangeable=False),
    "unequal skewness": Population(of_unequal_skewness, 0.5, is_new=True, is_exchangeable=False),
}  # fmt: skip


OF_POWER = (
    "uniform",
    "shared difficulty + beta",
    "binary ½, a rate",
    "zero-inflated beta",
    "ratings, five levels",
)
OF_GATE = (
    "uniform",
    "shared difficulty + beta",
    "10 % failures",
    "5 % failures",
    "zero-inflated beta",
    "bimodal",
)


def generator_of(*key: object) -> Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def studies_of(
    name: str, n: int, replicates: int, methods: int, part: str
) -> Iterator[tuple[Array, NDArray[np.int64] | None]]:
    """Scores (studies, methods, conditions, samples) with the groups of samples, a block of studies at a time."""
    population = POPULATIONS[name]
    g = generator_of(part, name, n)
    rows_of_a_study = max(len(PAIRS), methods) * 4
    step = max(1, ENTRIES // (rows_of_a_study * n))
    for start in range(0, replicates, step):
        scores = population.draw(g, min(step, replicates - start), methods, n)
        yield scores, groups_of(n) if population.in_groups else None


def names_of(scores: Array) -> list[str]:
    return [f"c{i}" for i in range(scores.shape[-2])]


# Tests of all pairs of methods


def flips_of(n: int) -> Array:
    """The flips of a product's test of n samples, but no more than `FLIPS` where they are drawn at random."""
    rows = np.concatenate(list(sign_flips(n)))
    return (rows if n <= 14 else rows[:FLIPS]).astype(np.float32)


def significant_pairs(totals: Array, flips: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of the totals (studies, K, n) are significant: by the largest statistic of each flip, and by Holm.

    This is `simultaneous_tests` for many studies at once, in single precision.
    """
    rounding = 1e-5
    length = np.sqrt((totals**2).sum(-1))
    unit = totals / np.where(length > 1e-9, length, np.inf)[..., None]
    studies, k, n = unit.shape
    statistic = np.abs(unit.sum(-1)).astype(np.float32)
    flipped = np.abs(flips @ unit.reshape(-1, n).T.astype(np.float32)).reshape(-1, studies, k)

    allowed = int(np.floor(ALPHA * len(flips)))
    critical = -np.partition(-flipped.max(2), allowed, axis=0)[allowed]
    by_largest = statistic > critical[:, None] + rounding

    p = (flipped >= statistic - rounding).mean(0)
    order = p.argsort(1)
    steps = np.take_along_axis(p, order, 1) * (k - np.arange(k))
    holm = np.empty_like(p)
    np.put_along_axis(holm, order, np.maximum.accumulate(steps, 1), 1)
    return by_largest, holm <= ALPHA


def totals_of_pairs(scores: Array, groups: NDArray[np.int64] | None = None) -> Array:
    first, second = PAIRS.T
    apart = of_means(scores[:, first] - scores[:, second], groups=groups)
    return sample_totals(apart, names_of(scores))[0]


def in_blocks(totals: Array, flips: Array) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    step = max(1, 5 * ENTRIES // (len(flips) * totals.shape[1]))
    for start in range(0, len(totals), step):
        yield significant_pairs(totals[start : start + step], flips)


def family_wise_errors(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """The share of studies with any significant pair among six methods of equal mean."""
    rows = {}
    for name in POPULATIONS:
        row: dict[str, str] = {}
        for n in FEW:
            errors = 0
            for scores, groups in studies_of(name, n, min(replicates, 200), METHODS, "few"):
                first, second = PAIRS.T
                apart = of_means(scores[:, first] - scores[:, second], groups=groups)
                for totals, shares in zip(*sample_totals(apart, names_of(scores)), strict=True):
                    errors += bool(simultaneous_tests(totals, shares).significant.any())
            row[f"n = {n}"] = f"{errors / min(replicates, 200):.3f}"
        for n in sizes:
            errors, flips = 0, flips_of(n)
            for scores, groups in studies_of(name, n, replicates, METHODS, "tests"):
                for by_largest, _ in in_blocks(totals_of_pairs(scores, groups), flips):
                    errors += int(by_largest.any(1).sum())
            row[f"n = {n}"] = f"{errors / replicates:.3f}{too_many(errors, replicates)}"
        rows[label(name)] = row
    return pd.DataFrame(rows).T


def too_many(errors: int, replicates: int, allowed: float = ALPHA) -> str:
    """A star where the 99 % lower limit of the share of errors is above what is allowed."""
    limit = stats.beta.ppf(0.01, errors, replicates - errors + 1) if errors else 0.0
    return "*" if limit > allowed else ""


def label(name: str) -> str:
    population = POPULATIONS[name]
    return name + (" †" if population.is_new else "") + ("" if population.is_exchangeable else " ‡")


def power(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Three methods are better than three others: the share of the nine true differences that is found.

    The difference is three quarters of the standard deviation of a score.
    """
    rows = {}
    better = np.arange(METHODS) >= METHODS // 2
    is_true = better[PAIRS[:, 0]] != better[PAIRS[:, 1]]
    for name in OF_POWER:
        row = {}
        spread = POPULATIONS[name].draw(generator_of("spread", name), 1000, 1, 100).std()
        for n in sizes:
            found, flips = np.zeros(2), flips_of(n)
            for scores, groups in studies_of(name, n, replicates, METHODS, "power"):
                shift = 0.75 * spread * better[:, None, None]
                if POPULATIONS[name].rate:
                    g = generator_of("power", name, n, len(scores))
                    shift = (g.random(scores.shape) < 0.75) & better[:, None, None] & (scores == 0)
                for decided in in_blocks(totals_of_pairs(scores + shift, groups), flips):
                    found += [each[:, is_true].sum() for each in decided]
            share = found / (replicates * is_true.sum())
            row[f"n = {n}"] = f"{share[0]:.2f} / {share[1]:.2f}"
        rows[label(name)] = row
    return pd.DataFrame(rows).T


def contradictions(studies: int) -> dict[str, int]:
    """Random studies with 0 to 30 % of the scores missing: pairs whose interval and test disagree.

    The tests are those of a run, `paired_tests`; in every other study scores are calibrated by a chance level.
    """
    g = generator_of("contradictions")
    counted = {"studies": studies, "pairs": 0, "significant": 0, "contradictions": 0}
    names = [name for name, population in POPULATIONS.items() if not population.in_groups]
    for study in range(studies):
        n, methods = int(g.integers(2, 41)), int(g.integers(2, METHODS + 1))
        scores = POPULATIONS[str(g.choice(names))].draw(g, 1, methods, n)[0]
        scores = scores + g.choice([0.0, 0.1, 0.3]) * np.arange(methods)[:, None, None]
        scores[g.random(scores.shape) < g.uniform(0, 0.3)] = np.nan
        chance = {"score": 0.3 * g.random(scores.shape)} if study % 2 else {}
        arrays = arrays_of({"score": scores}, [f"s{i}" for i in range(n)], chance=chance)
        tests = paired_tests(arrays, "score")
        tests = tests[tests["low"].notna()]
        excludes_zero = (tests["low"] > 0) | (tests["high"] < 0)
        disagree = (excludes_zero != tests["significant"]) | (
            excludes_zero != (tests["p"] <= ALPHA)
        )
        counted["pairs"] += len(tests)
        counted["significant"] += int(tests["significant"].sum())
        counted["contradictions"] += int(disagree.sum())
    return counted


def contradictions_in_words(is_quick: bool) -> str:
    counted = contradictions(50 if is_quick else 1000)
    return (
        f"{counted['studies']:,} random studies: {counted['pairs']:,} pairs with an interval, "
        f"{counted['significant']:,} significant, {counted['contradictions']} contradictions."
    )


# Intervals


def coverage_of_means(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """How often the 95 % interval of a mean holds the true one, and its median width."""
    rows = {}
    for name, population in POPULATIONS.items():
        if not population.is_exchangeable:
            continue
        row = {}
        for n in sizes:
            held, widths = 0, []
            for scores, groups in studies_of(name, n, replicates, 1, "means"):
                found = of_means(scores, population.span, groups, population.rate)
                low, high = found.nested(names_of(scores)).interval()
                held += int(((low <= population.mean) & (population.mean <= high)).sum())
                widths.append((high - low).ravel())
            width = np.concatenate(widths)
            width = width[np.isfinite(width)]  # a sample may have lost all of its scores
            row[f"n = {n}"] = f"{held / len(width):.3f} ({np.median(width):.2g})"
        rows[label(name)] = row
    return pd.DataFrame(rows).T


@dataclass(frozen=True)
class ChanceLevel:
    """Maps of one method are alike by `base` on average, and `spread` says how much samples differ in that."""

    base: float
    spread: float


CHANCES = {"chance .4": ChanceLevel(0.4, 0.06), "chance .8": ChanceLevel(0.8, 0.03)}
CALIBRATED = 0.6
REFERENCES = (2, 3, 4, 6, 8, 12)


def calibrated_cube(
    g: Generator, level: ChanceLevel, rows: int, n: int, references: int, among: bool
) -> tuple[ScoreArrays, Array]:
    """Studies as the explainers of a arrays: their scores, and chance from references drawn anew for every study.

    A map is like another by base + own part + the other's part + noise; a reference that is a sample has one part.
    Beside the arrays stands the calibrated score for the references of each study, not among the samples.
    """
    parts = level.spread * (g.gamma(2, 1, (rows, n + references)) - 2) / np.sqrt(2)
    of_samples = parts[:, :n]
    of_references = of_samples[:, :references] if among else parts[:, n:]
    pairs = level.base + of_samples[:, None] + of_references[:, :, None]
    pairs = pairs + 0.3 * level.spread * g.standard_normal(pairs.shape)
    if among:
        own = np.arange(references)
        pairs[:, own, own] = np.nan  # no map is compared with itself
    chance = np.nanmean(pairs, 1)
    above = np.nanmean(pairs - chance[:, None], 2)

    mean_score = level.base + CALIBRATED * (1 - level.base)
    room = 1 - mean_score
    score = 1 - 2 * room * g.beta(2, 2, (rows, n))  # between 1 − 2 · room and 1
    samples = [f"s{i}" for i in range(n)]
    names = samples[:references] if among else [f"r{i}" for i in range(references)]
    arrays = arrays_of(
        {"score": score[:, None]},
        samples,
        chance={"score": chance[:, None]},
        references=tuple(names),
        by_reference={"score": above[:, None]},
    )
    chance_of_references = level.base + of_references.mean(1)
    return arrays, (mean_score - chance_of_references) / (1 - chance_of_references)


def arrays_of(values: dict[str, Array], samples: list[str], **more: object) -> ScoreArrays:
    rows, conditions, n = next(iter(values.values())).shape
    return ScoreArrays(
        dataset="d",
        model="m",
        evaluation="e",
        explainers=[f"e{i}" for i in range(rows)],
        conditions=[(f"c{i}", 0.0) for i in range(conditions)],
        samples=samples,
        values=values,
        status=np.zeros((rows, conditions, n), dtype=np.int8),
        undefined_reasons=pd.DataFrame(),
        has_rows={name: np.ones((rows, conditions), dtype=bool) for name in values},
        **more,  # type: ignore[arg-type]
    )


def references_for(n: int) -> int:
    """As many as a run takes: an eighth of the samples on top of 8, at most 32."""
    return min(n, 8 + n // 8, 32)


def calibrated_scores(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Coverage of calibrated scores; family-wise error of four equal methods that share their references."""
    rows = {}
    for name, level in CHANCES.items():
        for among in (True, False):
            row = {}
            for n in sizes:
                references = references_for(n)
                g = generator_of("calibrated", name, among, n)
                held, widths = 0, []
                step = max(1, ENTRIES // (n * references))
                for start in range(0, replicates, step):
                    number = min(step, replicates - start)
                    arrays, _ = calibrated_cube(g, level, number, n, references, among)
                    low, high = score_estimates(arrays, "score").nested(["c0"]).interval()
                    held += int(((low <= CALIBRATED) & (high >= CALIBRATED)).sum())
                    widths.append(high - low)
                errors = calibrated_errors(g, level, replicates, n, references, among)
                row[f"n = {n}"] = (
                    f"{held / replicates:.3f} ({np.median(np.concatenate(widths)):.2g}); "
                    f"{errors / replicates:.3f}{too_many(errors, replicates)}"
                )
            where = "among the samples" if among else "not among them"
            rows[f"{name}, references {where}"] = row
    return pd.DataFrame(rows).T


def calibrated_errors(
    g: Generator, level: ChanceLevel, replicates: int, n: int, references: int, among: bool
) -> int:
    """In how many studies any pair of four equal methods is significant."""
    methods = 4
    pairs = np.array(list(combinations(range(methods), 2)))
    flips = flips_of(n + (0 if among else references))
    errors, step = 0, max(1, ENTRIES // (n * references * len(pairs)))
    for start in range(0, replicates, step):
        number = min(step, replicates - start)
        arrays, _ = calibrated_cube(g, level, number * methods, n, references, among)
        place = methods * np.arange(number)[:, None]
        first, second = (
            score_estimates(arrays, "score", explainers=(place + side).ravel()) for side in pairs.T
        )
        totals = sample_totals(first.minus(second), ["c0"])[0].reshape(number, len(pairs), -1)
        errors += sum(int(shown.any(1).sum()) for shown, _ in in_blocks(totals, flips))
    return errors


def coverage_by_references(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Coverage of the 95 % interval of a calibrated score, by the number of references; its width is put behind."""
    rows = {}
    for name, level in CHANCES.items():
        for among in (True, False):
            for references in REFERENCES:
                row = {}
                for n in sizes:
                    if among and references > n:
                        row[f"n = {n}"] = "–"
                        continue
                    g = generator_of("references", name, among, references, n)
                    held, widths = 0, []
                    step = max(1, ENTRIES // (n * references))
                    for start in range(0, replicates, step):
                        number = min(step, replicates - start)
                        arrays, _ = calibrated_cube(g, level, number, n, references, among)
                        low, high = score_estimates(arrays, "score").nested(["c0"]).interval()
                        held += int(((low <= CALIBRATED) & (high >= CALIBRATED)).sum())
                        widths.append(high - low)
                    width = np.median(np.concatenate(widths))
                    row[f"n = {n}"] = f"{held / replicates:.3f} ({width:.2g})"
                where = "among the samples" if among else "not among them"
                rows[f"{name}, {references} references {where}"] = row
    return pd.DataFrame(rows).T


@dataclass(frozen=True)
class UnderNetworks:
    """Scores (studies, samples, networks), drawn from a generator and the three numbers, and their true mean."""

    draw: Callable[[Generator, int, int, int], Array]
    mean: float = 0.7


def skewed(g: Generator, shape: tuple[int, ...]) -> Array:
    """A long tail below, with a mean of 0 and a standard deviation of 1."""
    return (2 - g.gamma(2, 1, shape)) / np.sqrt(2)


def normal(g: Generator, shape: tuple[int, ...]) -> Array:
    return g.standard_normal(shape)


def heavy_tailed(g: Generator, shape: tuple[int, ...]) -> Array:
    return g.standard_t(3, shape) / np.sqrt(3)


def of_two_kinds(g: Generator, shape: tuple[int, ...]) -> Array:
    return g.choice([-1.0, 1.0], shape)


def parts_of_scores(
    g: Generator,
    shape: tuple[int, int, int],
    spread: tuple[float, float, float],
    samples: Scores,
    networks: Scores,
) -> Array:
    """The sum of the parts of sample, network and the rest; `spread` are their standard deviations."""
    studies, n, k = shape
    total = spread[0] * samples(g, (studies, n, 1)) + spread[1] * networks(g, (studies, 1, k))
    return total + spread[2] * g.standard_normal(shape)


def added(
    spread: tuple[float, float, float],
    samples: Scores = normal,
    networks: Scores = normal,
    missing: float = 0.0,
) -> UnderNetworks:
    """0.7 and the three parts, with a share of the scores missing."""

    def draw(g: Generator, studies: int, n: int, k: int) -> Array:
        scores = 0.7 + parts_of_scores(g, (studies, n, k), spread, samples, networks)
        return np.where(g.random(scores.shape) < missing, np.nan, scores)

    return UnderNetworks(draw)


def logistic(spread: tuple[float, float, float]) -> UnderNetworks:
    """1 / (1 + exp(−1.5 − the three parts)): scores between 0 and 1, skewed in all parts, with interactions."""

    def draw(g: Generator, studies: int, n: int, k: int) -> Array:
        return special.expit(1.5 + parts_of_scores(g, (studies, n, k), spread, normal, normal))

    points, weights = np.polynomial.hermite_e.hermegauss(60)
    total_spread = np.sqrt(np.sum(np.square(spread)))
    mean = weights @ special.expit(1.5 + total_spread * points) / weights.sum()
    return UnderNetworks(draw, float(mean))


def multiplied(g: Generator, studies: int, n: int, k: int) -> Array:
    """A network scales the scores of all samples."""
    scale = 1 + 0.15 * g.standard_normal((studies, 1, k))
    return g.beta(14, 6, (studies, n, 1)) * scale


NETWORKS = {
    "networks differ little": added((0.08, 0.02, 0.06)),
    "networks differ like samples": added((0.08, 0.08, 0.06)),
    "the same, skewed samples": added((0.08, 0.08, 0.06), samples=skewed),
    "the same, skewed networks": added((0.08, 0.08, 0.06), networks=skewed),
    "networks do not differ": added((0.08, 0.0, 0.06), samples=skewed),
    "mostly noise, 20 % missing": added((0.05, 0.03, 0.2), missing=0.2),
    "logistic †": logistic((1.0, 0.7, 0.5)),
    "networks multiply †": UnderNetworks(multiplied),
    "two kinds of networks †": added((0.08, 0.08, 0.06), networks=of_two_kinds),
    "heavy tails, half missing †": added((0.08, 0.05, 0.1), samples=heavy_tailed, missing=0.5),
}


def coverage_with_redrawn_networks(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Coverage of the 95 % interval over samples and networks (its width), and of the one over samples alone."""
    rows = {}
    for name, kind in NETWORKS.items():
        for k in (2, 3, 5, 10):
            row = {}
            for n in (n for n in sizes if n <= 100):
                g = generator_of("networks", name, n, k)
                covers_both, covers_samples, widths = [], [], []
                step = max(1, ENTRIES // (n * k))
                for start in range(0, replicates, step):
                    scores = kind.draw(g, min(step, replicates - start), n, k)
                    low, high = estimates_over_networks(scores).interval()
                    has_interval = np.isfinite(low)  # too many scores may be missing
                    covers_both.append(((low <= kind.mean) & (kind.mean <= high))[has_interval])
                    widths.append((high - low)[has_interval])
                    low, high = of_means(mean_of_finite(scores)).interval()
                    covers_samples.append(((low <= kind.mean) & (kind.mean <= high))[has_interval])
                both, alone = np.concatenate(covers_both), np.concatenate(covers_samples)
                width = np.median(np.concatenate(widths))
                row[f"n = {n}"] = f"{both.mean():.3f} ({width:.2g}) / {alone.mean():.3f}"
            rows[f"{name}, {k} networks"] = row
    return pd.DataFrame(rows).T


def estimates_over_networks(scores: Array) -> Estimate:
    """The means of studies (studies, n, networks) with the errors that reports give them."""
    n = scores.shape[1]
    arrays = arrays_of(
        {"score": mean_of_finite(scores)[:, None]},
        [f"s{i}" for i in range(n)],
        repeats={"score": scores[:, None]},
    )
    return score_estimates(arrays, "score").nested(["c0"])


# Bounds


@dataclass(frozen=True)
class AtChance:
    """Scores whose mean is their chance level: a number, or drawn with the scores as (score, chance).

    `bounded` says that scores lie between 0 and 1.
    """

    draw: Callable[[Generator, tuple[int, ...]], Array | tuple[Array, Array]]
    chance: float = float("nan")
    bounded: bool = True

    def studies(self, g: Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
        drawn = self.draw(g, shape)
        return drawn if isinstance(drawn, tuple) else (drawn, np.full(shape, self.chance))


def pointing_by_luck(g: Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """A hit as often as the object's share of the picture, which is chance."""
    share = g.beta(1, 6, shape)
    return 1.0 * (g.random(shape) < share), share


def varied_chance(g: Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Scores around the chance of their own sample, from .1 to .7."""
    chance = 0.1 + 0.6 * g.beta(2, 2, shape)
    return g.beta(4 * chance, 4 * (1 - chance)), chance


def two_kinds_of_samples(g: Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """One sample in five has a high chance and scores below it; the others have a low one and score above it."""
    is_high = g.random(shape) < 0.2
    score = np.where(is_high, g.beta(6, 6, shape), g.beta(3, 7, shape))
    return score, np.where(is_high, 0.7, 0.25)


def alike_but_for_failures(g: Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """A little above a chance that differs between samples, but for failures at 0 with the same chance."""
    chance = 0.3 + 0.2 * g.random(shape)
    score = np.where(g.random(shape) < 0.02, 0.0, chance * (1 / 0.98))
    return score, chance


def rarely_high_chance(g: Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Scores a little above a chance of .1, but one sample in twenty has a chance of .95, far above its score."""
    is_high = g.random(shape) < 0.05
    a_little = 0.05 * 0.85 / 0.95
    return np.where(is_high, 0.1, 0.1 + a_little), np.where(is_high, 0.95, 0.1)


TAIL = 1 - 0.2 * (1 - np.exp(-5.0))
"""The mean of 1 − a waiting time with a mean of .2 that is cut at 1."""
AT_CHANCE = {
    "uniform": AtChance(lambda g, shape: g.random(shape), 0.5),
    "exponential, long tail above": AtChance(lambda g, shape: g.exponential(0.2, shape), 0.2, False),
    "exponential, long tail below": AtChance(lambda g, shape: -g.exponential(0.2, shape), -0.2, False),
    "lognormal ¾": AtChance(lambda g, shape: g.lognormal(0, 0.75, shape), np.exp(0.75**2 / 2), False),
    "beta(½, 2)": AtChance(lambda g, shape: g.beta(0.5, 2, shape), 0.2),
    "10 % far above": AtChance(lambda g, shape: 1 - failures(0.1)(g, shape), 0.135),
    "10 % far below": AtChance(failures(0.1), 0.865),
    "5 % far below †": AtChance(failures(0.05), 0.9075),
    "zero-inflated beta †": AtChance(zero_inflated_beta, 0.5),
    "exponential tail below, cut at 0": AtChance(lambda g, shape: 1 - np.minimum(g.exponential(0.2, shape), 1), TAIL),
    "beta(8, ½)": AtChance(lambda g, shape: g.beta(8, 0.5, shape), 8 / 8.5),
    "two values, 5 % at 0": AtChance(lambda g, shape: 0.4 * (g.random(shape) >= 0.05), 0.38),
    "chance differs between samples": AtChance(varied_chance),
    "chance rarely high": AtChance(rarely_high_chance),
    "pointing by luck †": AtChance(pointing_by_luck),
    "ratings, five levels †": AtChance(ratings, 0.7875),
    "bimodal †": AtChance(bimodal, 0.5),
    "two kinds of samples †": AtChance(two_kinds_of_samples),
    "score and chance alike, 2 % failures †": AtChance(alike_but_for_failures),
}  # fmt: skip


def claims_of(
    score: Array, chance: Array, bounded: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of six methods (studies, methods, n) are claimed to be above chance at α / 6: by bets, and by Hall's bound.

    The first is `bet_above_chance` for one condition and the order in which samples were drawn.
    """
    by_hall, _ = of_means(score - chance).bound(1 - ALPHA / METHODS, lower=True)
    by_bets = np.zeros(score.shape[:-1], dtype=bool)
    if bounded:
        by_bets = reaches_goal(score - chance, chance.max(-1), -np.log(ALPHA / METHODS))
    return by_bets, by_hall > 0


def false_claims_above_chance(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Six methods exactly at chance: the share of studies in which any is claimed to be above.

    By bets and by Hall's one-sided bound at α / 6 each; and by sign flips, which assume symmetric scores.
    """
    rows = {}
    for name, population in AT_CHANCE.items():
        row = {}
        for n in sizes:
            g, flips = generator_of("claims", name, n), flips_of(n)
            claims = np.zeros(3)
            step = max(1, ENTRIES // (METHODS * n))
            for start in range(0, replicates, step):
                shape = (min(step, replicates - start), METHODS, n)
                score, chance = population.studies(g, shape)
                by_bets, by_hall = claims_of(score, chance, population.bounded)
                claims[:2] += by_bets.any(1).sum(), by_hall.any(1).sum()
                block = max(1, 5 * ENTRIES // (len(flips) * METHODS))
                for i in range(0, len(score), block):
                    some = (score - chance)[i : i + block]
                    shown, _ = significant_pairs(some, flips)
                    claims[2] += (shown & (some.mean(-1) > 0)).any(1).sum()
            star = [too_many(int(number), replicates) for number in claims]
            bets = f"{claims[0] / replicates:.3f}{star[0]}" if population.bounded else "–"
            row[f"n = {n}"] = (
                f"{bets} / {claims[1] / replicates:.3f}{star[1]} / {claims[2] / replicates:.3f}"
            )
        rows[name] = row
    return pd.DataFrame(rows).T


def beta_around(mean: float, spread: float) -> Scores:
    """Scores between 0 and 1 with this mean and standard deviation."""
    size = mean * (1 - mean) / spread**2 - 1
    return lambda g, shape: g.beta(mean * size, (1 - mean) * size, shape)


ABOVE = {
    f"{excess:.1f} above, scores {kind}": beta_around(0.4 + excess, spread)
    for excess in (0.1, 0.2, 0.3, 0.5)
    for kind, spread in (("alike (sd .05)", 0.05), ("spread (sd .2)", 0.2))
}


def power_above_chance(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Scores above a chance of .35 to .45: the share of methods for which it is claimed, by bets and by Hall's bound."""
    rows = {}
    for name, draw in ABOVE.items():
        row = {}
        for n in sizes:
            g = generator_of("power above chance", name, n)
            claims = np.zeros(2)
            studies = max(1, replicates // METHODS)
            step = max(1, ENTRIES // (METHODS * n))
            for start in range(0, studies, step):
                score = draw(g, (min(step, studies - start), METHODS, n))
                chance = 0.35 + 0.1 * g.random(score.shape)
                by_bets, by_hall = claims_of(score, chance, bounded=True)
                claims += by_bets.sum(), by_hall.sum()
            share = claims / (studies * METHODS)
            row[f"n = {n}"] = f"{share[0]:.2f} / {share[1]:.2f}"
        rows[name] = row
    return pd.DataFrame(rows).T


# Other methods that were considered for "above chance"


def by_bootstrap_t(excess: Array, alpha: float, resamples: int = 999) -> NDArray[np.bool_]:
    """Whether the lower bootstrap-t bound of the mean (studies, n) is above 0 (Efron 1979; Hall 1992, ch. 3)."""
    n = excess.shape[-1]
    draws = generator_of("bootstrap", n).integers(0, n, (resamples, n))
    counts = np.zeros((resamples, n))
    np.add.at(counts, (np.arange(resamples)[:, None], draws), 1)
    mean, error = excess.mean(-1), excess.std(-1, ddof=1) / np.sqrt(n)
    means = excess @ counts.T / n
    variances = np.maximum(excess**2 @ counts.T / n - means**2, 0) / (n - 1)
    is_constant = variances < 1e-18
    t = (means - mean[:, None]) / np.sqrt(np.where(is_constant, 1, variances))
    t = np.where(is_constant, 1e9 * (means - mean[:, None]), t)
    quantile = np.quantile(t, 1 - alpha, axis=1)
    return np.where(error > 1e-12, mean - quantile * error > 0, mean > 0)


def by_empirical_likelihood(excess: Array, alpha: float) -> NDArray[np.bool_]:
    """The same by Owen's empirical likelihood with Bartlett's correction (Owen 2001, ch. 2 and 13)."""
    n = excess.shape[-1]
    lowest = excess.min(-1, keepdims=True)
    low, high = np.zeros_like(lowest), (1 - 1e-9) / np.maximum(-lowest, 1e-9)
    for _ in range(50):  # the multiplier at which the weighted mean is 0
        middle = (low + high) / 2
        is_too_small = (excess / (1 + middle * excess)).sum(-1, keepdims=True) > 0
        low, high = np.where(is_too_small, middle, low), np.where(is_too_small, high, middle)
    ratio = 2 * np.log1p(low * excess).sum(-1)
    centred = excess - excess.mean(-1, keepdims=True)
    second, third, fourth = ((centred**power).mean(-1) for power in (2, 3, 4))
    with np.errstate(invalid="ignore", divide="ignore"):
        correction = (fourth / second**2 / 2 - third**2 / second**3 / 3) / n
    is_above = ratio / (1 + correction) > stats.norm.ppf(1 - alpha) ** 2
    return (excess.mean(-1) > 0) & (is_above | (lowest[..., 0] >= 0))


def by_gaffke(excess: Array, chance: Array, alpha: float, draws: int = 20_000) -> NDArray[np.bool_]:
    """The same by Gaffke's bound: the mean with random spacings as weights, with a score of 0 as one sample more.

    No failure of it is known, and none is proved to be impossible (Gaffke 2005; Learned-Miller and Thomas 2019). A study
    whose samples are all alike it finds just where any method can that holds for every distribution.
    """
    n = excess.shape[-1]
    weights = generator_of("spacings", n).dirichlet(np.ones(n + 1), draws).astype(np.float32)
    with_worst = np.concatenate([excess, -chance.max(-1, keepdims=True)], -1).astype(np.float32)
    p = np.empty(len(excess))
    for start in range(0, len(excess), 500):
        block = slice(start, start + 500)
        p[block] = (with_worst[block] @ weights.T <= 0).mean(-1)
    return p <= alpha


OTHERS_AT_CHANCE = (
    "uniform",
    "exponential tail below, cut at 0",
    "beta(8, ½)",
    "5 % far below †",
    "ratings, five levels †",
    "chance differs between samples",
)
OTHERS_ABOVE = ("0.1 above, scores alike (sd .05)", "0.2 above, scores alike (sd .05)")


def other_methods(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Claims of a single method at α / 6: by Hall's bound, bootstrap-t, empirical likelihood, Gaffke's bound and bets.

    At chance this is the share of false claims, which should be at most 0.0083, and above it power.
    """
    alpha = ALPHA / METHODS
    rows = {}
    for name in (*OTHERS_AT_CHANCE, *OTHERS_ABOVE):
        row = {}
        for n in (n for n in sizes if n <= 100):
            g = generator_of("others", name, n)
            if name in ABOVE:
                score = ABOVE[name](g, (replicates, n))
                chance = 0.35 + 0.1 * g.random(score.shape)
            else:
                score, chance = AT_CHANCE[name].studies(g, (replicates, n))
            excess = score - chance
            claims = (
                of_means(excess).bound(1 - alpha, lower=True)[0] > 0,
                by_bootstrap_t(excess, alpha),
                by_empirical_likelihood(excess, alpha),
                by_gaffke(excess, chance, alpha),
                reaches_goal(excess, chance.max(-1), -np.log(alpha)),
            )
            row[f"n = {n}"] = " / ".join(f"{claim.mean():.3f}" for claim in claims)
        rows[name] = row
    return pd.DataFrame(rows).T


@dataclass(frozen=True)
class Pointing:
    """The objects' shares of the picture, and how much more often than by luck they are hit."""

    shares: Callable[[Generator, int], Array]
    times: float = 1.0


def small_objects(g: Generator, n: int) -> Array:
    return g.beta(1, 6, n)


def equal_objects(g: Generator, n: int) -> Array:
    return np.full(n, 0.05)


def objects_of_all_sizes(g: Generator, n: int) -> Array:
    return g.beta(0.5, 0.5, n)


POINTING = {
    "small objects, luck": Pointing(small_objects),
    "objects of 5 %, luck": Pointing(equal_objects),
    "objects of all sizes, luck †": Pointing(objects_of_all_sizes),
    "small objects, hit twice as often": Pointing(small_objects, 2),
    "objects of 5 %, hit five times as often": Pointing(equal_objects, 5),
}


def pointing(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Six methods: the share of studies in which any is claimed to hit more often than by luck.

    By the exact test, by bets and by Hall's bound, all at α / 6; behind luck the share of false claims, else power.
    """
    rows = {}
    for name, kind in POINTING.items():
        row = {}
        for n in sizes:
            g = generator_of("pointing", name, n)
            claims = np.zeros(3)
            for _ in range(replicates):
                chances = kind.shares(g, n)
                hits = 1.0 * (g.random((METHODS, n)) < np.minimum(kind.times * chances, 1))
                tail = numbers_of_hits(chances)[::-1].cumsum()[
                    ::-1
                ]  # as `poisson_binomial_p` sums it
                exact = tail[hits.sum(1).astype(int)] <= ALPHA / METHODS
                given = np.broadcast_to(chances, (1, METHODS, n))
                by_bets, by_hall = claims_of(hits[None], given, bounded=True)
                claims += exact.any(), by_bets.any(), by_hall.any()
            star = [too_many(int(c), replicates) if kind.times == 1 else "" for c in claims]
            row[f"n = {n}"] = " / ".join(
                f"{c / replicates:.3f}{mark}" for c, mark in zip(claims, star, strict=True)
            )
        rows[name] = row
    return pd.DataFrame(rows).T


def gate(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """False passes at 95 %, the threshold just above the mean, and passes that are due, .1 below it."""
    rows = {}
    for name in OF_GATE:
        mean = POPULATIONS[name].mean
        row = {}
        for n in sizes:
            passes = np.zeros((2, 2))
            for scores, _ in studies_of(name, n, replicates, 1, "gate"):
                of_study = scores[:, 0, 0]
                usual = of_means(of_study, UNIT).bound(1 - ALPHA, lower=True)[0]
                no_chance = np.zeros_like(of_study)
                for i, threshold in enumerate((mean, mean - 0.1)):
                    passes[0, i] += bets_beat(of_study, no_chance, threshold).sum()
                    passes[1, i] += (usual > threshold).sum()
            row[f"n = {n}"] = passes_in_words(passes, replicates)
        rows[label(name)] = row
    for name, level in CHANCES.items():
        rows[f"calibrated, {name}"] = {
            f"n = {n}": calibrated_gate(name, level, replicates, n) for n in sizes
        }
    for missing in (0.0, 0.2):
        kind = f", {missing:.0%} missing".replace("%", " %") if missing else ""
        rows[f"calibrated, four conditions{kind} †"] = {
            f"n = {n}": gate_of_conditions(missing, replicates, n) for n in sizes
        }
    return pd.DataFrame(rows).T


def bets_beat(score: Array, chance: Array, thresholds: float | Array) -> NDArray[np.bool_]:
    """Whether the bet of each study (studies, n) is won against a threshold (studies,) of its calibrated score.

    That is whether the bound of `bet_on_calibrated` is above it, but for the grid on which a bound is looked for.
    """
    threshold = np.broadcast_to(thresholds, len(score))
    gains = score - chance - threshold[:, None] * (1 - chance)
    # The largest loss is that of a score of 0, with a chance of 0 or, where there is a chance level, of 1.
    most_lost = np.maximum(threshold, 1.0 if chance.any() else 0.0)
    return reaches_goal(gains, most_lost, -np.log(ALPHA))


def passes_in_words(passes: Array, replicates: int) -> str:
    """False and due passes of the bet, and of the usual bound, from their numbers (2 bounds, 2 kinds of passes)."""
    texts = []
    for false, due in passes:
        star = too_many(int(false), replicates)
        texts.append(f"{false / replicates:.3f}{star}, {due / replicates:.2f}")
    return " / ".join(texts)


def gate_of_conditions(missing: float, replicates: int, n: int) -> str:
    """The same for the mean over four conditions that are correlated; one sample in ten fails under all of them."""
    conditions = 4
    names = [f"c{i}" for i in range(conditions)]
    g = generator_of("gate of conditions", missing, n)
    base = np.array([0.2, 0.3, 0.4, 0.5])[:, None]
    fails = g.random((replicates, 1, n)) < 0.1
    score = np.where(fails, 0.1, 0.8 + 0.1 * g.beta(2, 2, (replicates, conditions, n)))
    chance = base * g.beta(20, 20, (replicates, conditions, n)) / 0.5
    truth = float(((0.9 * 0.85 + 0.01 - base) / (1 - base)).mean())
    score[g.random(score.shape) < missing] = np.nan
    usual = calibrated(of_means(score), of_means(np.where(np.isnan(score), np.nan, chance)))
    bounds = usual.nested(names).bound(1 - ALPHA, lower=True)[0]
    passes = np.zeros((2, 2))
    for k in range(replicates):
        bet = bet_on_calibrated_mean(score[k], chance[k], UNIT, names, 1 - ALPHA, lower=True).bound
        passes[0] += bet > truth, bet > truth - 0.1
        passes[1] += bounds[k] > truth, bounds[k] > truth - 0.1
    return passes_in_words(passes, replicates)


def calibrated_gate(name: str, level: ChanceLevel, replicates: int, n: int) -> str:
    """The same for a calibrated score, for the references of each study: the truth is theirs."""
    references = references_for(n)
    g = generator_of("calibrated gate", name, n)
    arrays, truth = calibrated_cube(g, level, replicates, n, references, among=False)
    usual = score_estimates(arrays, "score").nested(["c0"]).bound(1 - ALPHA, lower=True)[0]
    scores, chances = arrays.values["score"][:, 0], arrays.chance["score"][:, 0]
    passes = np.zeros((2, 2))
    for i, margin in enumerate((0.0, 0.1)):
        passes[0, i] = bets_beat(scores, chances, truth - margin).sum()
        passes[1, i] = (usual > CALIBRATED - margin).sum()
    return passes_in_words(passes, replicates)


# Time


def seconds_of_a_large_study(methods: int, conditions: int, samples: int) -> dict[str, float]:
    """Processor seconds from the rows of a study to its tests and tables, step by step."""
    shape = (methods, conditions, samples)
    method, condition, sample = (index.ravel() for index in np.indices(shape))
    g = generator_of("large")
    table = pd.DataFrame(
        {
            "dataset": "d",
            "model": "m",
            "evaluation": "e",
            "measure": "score",
            "explainer": pd.Categorical.from_codes(method, [f"e{i}" for i in range(methods)]),
            "condition": pd.Categorical.from_codes(condition, [f"c{i}" for i in range(conditions)]),
            "level": 0.0,
            "sample": pd.Categorical.from_codes(sample, [f"s{i}" for i in range(samples)]),
            "value": g.random(methods * conditions * samples),
            "chance": 0.3 * g.random(methods * conditions * samples),
            "status": pd.Categorical(["ok"]).repeat(methods * conditions * samples),
            "reason": "",
        }
    )
    seconds = {}
    begun = time.process_time()
    (arrays,) = rows_to_arrays(table)
    seconds["arranging the rows"] = time.process_time() - begun
    begun = time.process_time()
    tests = paired_tests(arrays, "score")
    seconds["the tests of all pairs"] = time.process_time() - begun
    begun = time.process_time()
    ranking(arrays, "score", tests=tests)
    summary(arrays)
    seconds["ranking and summary"] = time.process_time() - begun
    return seconds


def time_in_words(is_quick: bool) -> str:
    size = (5, 4, 200) if is_quick else (20, 20, 5000)
    seconds = seconds_of_a_large_study(*size)
    steps = ", ".join(f"{spent:.1f} s for {step}" for step, spent in seconds.items())
    about = "{} methods × {} conditions × {:,} samples".format(*size)
    return f"{about} take {sum(seconds.values()):.1f} s of one core: {steps}."


# The page

Table = Callable[[int, Sequence[int]], pd.DataFrame]
PARTS: dict[str, Table] = {
    "family-wise error": family_wise_errors,
    "means": coverage_of_means,
    "calibrated scores": calibrated_scores,
    "references": coverage_by_references,
    "networks": coverage_with_redrawn_networks,
    "above chance": false_claims_above_chance,
    "power above chance": power_above_chance,
    "other methods": other_methods,
    "pointing": pointing,
    "gate": gate,
    "power": power,
}
SENTENCES: dict[str, Callable[[bool], str]] = {
    "contradictions": contradictions_in_words,
    "time": time_in_words,
}


def markdown(table: pd.DataFrame) -> str:
    lines = [
        "| scores | " + " | ".join(table.columns) + " |",
        "|---" * (len(table.columns) + 1) + "|",
    ]
    for name, row in table.iterrows():
        lines.append(f"| {name} | " + " | ".join(str(cell) for cell in row) + " |")
    return "\n".join(lines)


def put(path: Path, part: str, text: str) -> None:
    """Write a part of the page between its two marks, at the end where it has none yet."""
    page = path.read_text(encoding="utf-8") if path.exists() else "# Measured coverage\n"
    begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
    block = f"{begin}\n\n{text}\n\n{end}"
    if begin in page:
        page = re.sub(f"{begin}.*?{end}", lambda _: block, page, flags=re.DOTALL)
    else:
        page = f"{page.rstrip()}\n\n{block}\n"
    path.write_text(page, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join([*PARTS, *SENTENCES]))
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--quick", action="store_true", help="a trial: n = 8 and 30, 40 replicates")
    page = Path(__file__).parents[1] / "docs" / "coverage.md"
    parser.add_argument("--out", type=Path, default=page)
    given = parser.parse_args(arguments)
    replicates, sizes = (40, (8, 30)) if given.quick else (given.replicates, SIZES)

    for part in given.parts or [*PARTS, *SENTENCES]:
        if part in SENTENCES:
            text = SENTENCES[part](given.quick)
            put(given.out, part, text)
            print(text, flush=True)
            continue
        begun = time.process_time()
        table = PARTS[part](replicates, sizes)
        seconds = time.process_time() - begun
        about = f"{replicates:,} replicates a cell, {seconds:.0f} s of one core."
        put(given.out, part, f"{markdown(table)}\n\n{about}")
        print(f"{part}: {seconds:.0f} s\n{table.to_string()}\n", flush=True)


if __name__ == "__main__":
    main()
