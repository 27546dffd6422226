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
import torch
from numpy.typing import NDArray
from scipy import stats

from heatproof.evaluation import Span
from heatproof.statistics.bounds import mean_interval
from heatproof.statistics.bounds_of_means import bet_on_calibrated
from heatproof.statistics.cubes import Cube
from heatproof.statistics.estimates import Estimate, estimates, of_means, sample_totals
from heatproof.statistics.pairs import paired_tests
from heatproof.statistics.sign_flips import sign_flips, simultaneous_tests

Array = NDArray[np.float64]
Generator = np.random.Generator

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


def alike(draw: Callable[[Generator, tuple[int, ...]], Array]) -> Callable[..., Array]:
    """Independent scores of one distribution, under one condition."""
    return lambda g, studies, methods, n: draw(g, (studies, methods, 1, n))


def shared_and_beta(g: Generator, studies: int, methods: int, n: int) -> Array:
    difficulty = g.beta(2, 2, (studies, 1, 1, n))
    return 0.3 * difficulty + 0.7 * g.beta(8, 2, (studies, methods, 1, n))


def failures(share: float) -> Callable[[Generator, tuple[int, ...]], Array]:
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
    """Random studies with 0 to 30 % of the scores missing: pairs whose interval and test disagree."""
    g = generator_of("contradictions")
    counted = {"studies": studies, "pairs": 0, "significant": 0, "contradictions": 0}
    names = [name for name, population in POPULATIONS.items() if not population.in_groups]
    for _ in range(studies):
        n, methods = int(g.integers(2, 41)), int(g.integers(2, METHODS + 1))
        scores = POPULATIONS[str(g.choice(names))].draw(g, 1, methods, n)[0]
        scores = scores + g.choice([0.0, 0.1, 0.3]) * np.arange(methods)[:, None, None]
        scores[g.random(scores.shape) < g.uniform(0, 0.3)] = np.nan
        first, second = np.array(list(combinations(range(methods), 2))).T
        apart = of_means(scores[first] - scores[second])
        found = simultaneous_tests(*sample_totals(apart, names_of(scores)))
        has_interval = ~np.isnan(found.low)
        excludes_zero = (found.low > 0) | (found.high < 0)
        counted["pairs"] += int(has_interval.sum())
        counted["significant"] += int(found.significant.sum())
        disagree = (excludes_zero != found.significant) | (excludes_zero != (found.p <= ALPHA))
        counted["contradictions"] += int(disagree[has_interval].sum())
    return counted


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


def calibrated_cube(
    g: Generator, level: ChanceLevel, rows: int, n: int, references: int, among: bool
) -> tuple[Cube, Array]:
    """Studies as the explainers of a cube: their scores, and chance from references drawn anew for every study.

    A map is like another by base + own part + the other's part + noise; a reference that is a sample has one part.
    Beside the cube stands the calibrated score for the references of each study, not among the samples.
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
    above = np.nansum(pairs - chance[:, None], 2)

    mean_score = level.base + CALIBRATED * (1 - level.base)
    room = 1 - mean_score
    score = 1 - 2 * room * g.beta(2, 2, (rows, n))  # between 1 − 2 · room and 1
    samples = [f"s{i}" for i in range(n)]
    names = samples[:references] if among else [f"r{i}" for i in range(references)]
    cube = cube_of(
        {"score": score[:, None], "score_chance": chance[:, None]},
        samples,
        references=tuple(names),
        by_reference={"score_chance": above[:, None]},
    )
    chance_of_references = level.base + of_references.mean(1)
    return cube, (mean_score - chance_of_references) / (1 - chance_of_references)


def cube_of(values: dict[str, Array], samples: list[str], **more: object) -> Cube:
    rows, conditions, n = next(iter(values.values())).shape
    return Cube(
        dataset="d",
        model="m",
        evaluation="e",
        explainers=[f"e{i}" for i in range(rows)],
        conditions=[(f"c{i}", 0.0) for i in range(conditions)],
        samples=samples,
        values=values,
        status=np.zeros((rows, conditions, n), dtype=np.int8),
        floor={},
        reasons=pd.DataFrame(),
        asked={name: np.ones((rows, conditions), dtype=bool) for name in values},
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
                    cube, _ = calibrated_cube(g, level, number, n, references, among)
                    low, high = estimates(cube, "score").nested(["c0"]).interval()
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
        cube, _ = calibrated_cube(g, level, number * methods, n, references, among)
        place = methods * np.arange(number)[:, None]
        first, second = (estimates(cube, "score", e=(place + side).ravel()) for side in pairs.T)
        totals = sample_totals(first.minus(second), ["c0"])[0].reshape(number, len(pairs), -1)
        errors += sum(int(shown.any(1).sum()) for shown, _ in in_blocks(totals, flips))
    return errors


# Bounds


def hits_less_chance(g: Generator, shape: tuple[int, ...]) -> Array:
    """Pointing by luck: a hit as often as the object's share of the picture, which is chance."""
    share = g.beta(1, 6, shape)
    return (g.random(shape) < share) - share


SKEWED = {
    "uniform": (lambda g, shape: g.random(shape) - 0.5, (-0.5, 0.5)),
    "exponential, long tail above": (lambda g, shape: g.exponential(0.2, shape) - 0.2, None),
    "exponential, long tail below": (lambda g, shape: 0.2 - g.exponential(0.2, shape), None),
    "lognormal ¾": (lambda g, shape: g.lognormal(0, 0.75, shape) - np.exp(0.75**2 / 2), None),
    "beta(½, 2)": (lambda g, shape: g.beta(0.5, 2, shape) - 0.2, (-0.2, 0.8)),
    "10 % far above": (lambda g, shape: 0.1 - failures(0.1)(g, shape) + 0.765, None),
    "10 % far below": (lambda g, shape: failures(0.1)(g, shape) - 0.865, None),
    "5 % far below †": (lambda g, shape: failures(0.05)(g, shape) - 0.9075, None),
    "zero-inflated beta †": (lambda g, shape: zero_inflated_beta(g, shape) - 0.5, (-0.5, 0.5)),
    "pointing by luck †": (hits_less_chance, None),
}  # fmt: skip


def false_claims_above_chance(replicates: int, sizes: Sequence[int]) -> pd.DataFrame:
    """Six methods exactly at chance: the share of studies in which any is claimed to be above.

    By the one-sided bound at α / 6, as `ranking` gives it; and by sign flips, which assume symmetric scores.
    """
    rows = {}
    for name, (draw, span) in SKEWED.items():
        row = {}
        for n in sizes:
            g, flips = generator_of("claims", name, n), flips_of(n)
            claims = np.zeros(2)
            step = max(1, ENTRIES // (METHODS * n))
            for start in range(0, replicates, step):
                scores = draw(g, (min(step, replicates - start), METHODS, n))
                bound, _ = of_means(scores, span).bound(1 - ALPHA / METHODS, lower=True)
                claims[0] += (bound > 0).any(1).sum()
                block = max(1, 5 * ENTRIES // (len(flips) * METHODS))
                for i in range(0, len(scores), block):
                    some = scores[i : i + block]
                    shown, _ = significant_pairs(some, flips)
                    claims[1] += (shown & (some.mean(-1) > 0)).any(1).sum()
            star = too_many(int(claims[0]), replicates)
            row[f"n = {n}"] = f"{claims[0] / replicates:.3f}{star} / {claims[1] / replicates:.3f}"
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
                flat = scores[:, 0, 0]
                usual = of_means(flat, UNIT).bound(1 - ALPHA, lower=True)[0]
                bets = mean_interval(torch.as_tensor(flat), *UNIT, 2 * ALPHA)[0].numpy()
                for i, bound in enumerate((usual, bets)):
                    passes[i] += (bound > mean).sum(), (bound > mean - 0.1).sum()
            share = passes / replicates
            star = [too_many(int(number), replicates) for number in passes[:, 0]]
            row[f"n = {n}"] = (
                f"{share[1, 0]:.3f}{star[1]}, {share[1, 1]:.2f} / {share[0, 0]:.3f}{star[0]}, {share[0, 1]:.2f}"
            )
        rows[label(name)] = row
    for name, level in CHANCES.items():
        rows[f"calibrated, {name}"] = {
            f"n = {n}": calibrated_gate(name, level, max(1, replicates // 4), n) for n in sizes
        }
    return pd.DataFrame(rows).T


def calibrated_gate(name: str, level: ChanceLevel, replicates: int, n: int) -> str:
    """The same for a calibrated score, for the references of each study: the truth is theirs."""
    references = references_for(n)
    g = generator_of("calibrated gate", name, n)
    passes = np.zeros((2, 2))
    cube, truth = calibrated_cube(g, level, replicates, n, references, among=False)
    seen: Estimate = estimates(cube, "score").nested(["c0"])
    usual = seen.bound(1 - ALPHA, lower=True)[0]
    scores, chances = cube.values["score"][:, 0], cube.values["score_chance"][:, 0]
    for k in range(replicates):
        bet = bet_on_calibrated(scores[k], chances[k], UNIT, 1 - ALPHA, lower=True).bound
        passes[0] += usual[k] > CALIBRATED, usual[k] > CALIBRATED - 0.1
        passes[1] += bet > truth[k], bet > truth[k] - 0.1
    share = passes / replicates
    star = [too_many(int(number), replicates) for number in passes[:, 0]]
    return f"{share[1, 0]:.3f}{star[1]}, {share[1, 1]:.2f} / {share[0, 0]:.3f}{star[0]}, {share[0, 1]:.2f}"


# Time


def seconds_of_a_large_study(methods: int, conditions: int, samples: int) -> float:
    """The tests of all pairs of methods, of a table that is arranged already."""
    scores = generator_of("large").random((methods, conditions, samples))
    cube = cube_of({"score": scores}, [f"s{i}" for i in range(samples)])
    begun = time.process_time()
    paired_tests([cube], "score")
    return time.process_time() - begun


# The page

Table = Callable[[int, Sequence[int]], pd.DataFrame]
PARTS: dict[str, Table] = {
    "family-wise error": family_wise_errors,
    "means": coverage_of_means,
    "calibrated scores": calibrated_scores,
    "above chance": false_claims_above_chance,
    "gate": gate,
    "power": power,
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
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--quick", action="store_true", help="a trial: n = 8 and 30, 40 replicates")
    page = Path(__file__).parents[1] / "docs" / "coverage.md"
    parser.add_argument("--out", type=Path, default=page)
    given = parser.parse_args(arguments)
    replicates, sizes = (40, (8, 30)) if given.quick else (given.replicates, SIZES)

    for part in given.parts or PARTS:
        begun = time.process_time()
        table = PARTS[part](replicates, sizes)
        seconds = time.process_time() - begun
        about = f"{replicates:,} replicates a cell, {seconds:.0f} s of one core."
        put(given.out, part, f"{markdown(table)}\n\n{about}")
        print(f"{part}: {seconds:.0f} s\n{table.to_string()}\n", flush=True)
    if not given.parts:
        counted = contradictions(50 if given.quick else 1000)
        size = (5, 4, 200) if given.quick else (20, 20, 5000)
        seconds = seconds_of_a_large_study(*size)
        text = (
            f"{counted['studies']:,} random studies: {counted['pairs']:,} pairs with an interval, "
        )
        text += f"{counted['significant']:,} significant, {counted['contradictions']} contradictions.\n\n"
        text += "{} methods × {} conditions × {:,} samples: ".format(*size)
        text += f"{seconds:.1f} s of one core for the tests of all pairs."
        put(given.out, "contradictions", text)
        print(text)


if __name__ == "__main__":
    main()
