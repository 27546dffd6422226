"""How often intervals, bounds and tests keep their promise: everything the product prints, on known superpopulations.

Every cell draws samples anew from a stated distribution, and references too where chance has a part in the score, calls
the product's own functions, and counts how often the truth was covered. Usage:

    python benchmarks/coverage.py [intervals] [families] [evaluate] [--jobs 16] [--replicates N] [--quick] [--out FILE]

Each part writes its own table into OUT, docs/coverage.md if nothing is said, and leaves the others as they are; without
a name all are done. Replicates are 2,000 for intervals, 5,000 for families and 200 through `evaluate` unless said
otherwise. `--quick` is a trial of a few cells.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
import re
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes.faithfulness.consistency import agreement
from heatproof.axes.faithfulness.retraining.leakage import leakage_summary
from heatproof.statistics.bounds_of_means import guaranteed
from heatproof.statistics.cubes import Cube
from heatproof.statistics.estimates import calibrated, column, of_means
from heatproof.statistics.ranks import rank_ranges

SIZES = (5, 8, 14, 30, 100, 400)
UNIT = (0.0, 1.0)
ABOUT = {
    "intervals": """Shares of replicates in which the truth was covered: two-sided intervals at 95 %, bounds (one-sided)
at 95 %. In brackets the mean width, and the width of a betting interval, which is a guarantee for any bounded scores. A
dash in place of the width: no interval shorter than half of the scale holds, so none is printed.""",
    "families": """Five methods under five conditions. *Family of tests*: the share of replicates in which any of the
ten pairs of methods with equal means was called different at 5 % after Holm's correction. *Ranks*: the share in which
the ranks of any method, of means 0.60, 0.60, 0.63, 0.66 and 0.70, left out a true one; in brackets how many ranks are
open to a method on average. *No ends*: the scale has no declared ends, so that rare
failures which no sample showed cannot be allowed for.""",
    "evaluate": """The interval of whole runs of a small network on drawn images against the score of one large run,
with references drawn anew each time; in brackets the mean width.""",
}
TITLES = {
    "intervals": "Intervals and bounds",
    "families": "Families of tests, and ranks",
    "evaluate": "Whole runs",
}
REPLICATES = {"intervals": 2000, "families": 5000, "evaluate": 200}
Generator = np.random.Generator


@dataclass(frozen=True)
class Population:
    """Scores of samples: how to draw (times, n) of them, their mean, the ends of the scale, and what is promised."""

    draw: Callable[[Generator, tuple[int, int]], Any]
    mean: float
    kind: str
    span: tuple[float | None, float | None] | None = UNIT


def beta(
    a: float, b: float, kind: str = "smooth", low: float = 0.0, high: float = 1.0
) -> Population:
    mean = low + (high - low) * a / (a + b)
    return Population(
        lambda g, shape: low + (high - low) * g.beta(a, b, shape), mean, kind, (low, high)
    )


def mixture(high: float, low: float, rare: float, spread: float) -> Population:
    """Scores near `high`, and a rare share of failures near `low`."""

    def draw(g: Generator, shape: tuple[int, int]) -> Any:
        return np.where(g.random(shape) < rare, low, high) + spread * g.uniform(-1, 1, shape)

    return Population(draw, (1 - rare) * high + rare * low, "rare failures")


def values(points: list[float], weights: list[float], kind: str) -> Population:
    return Population(
        lambda g, shape: g.choice(points, shape, p=weights), float(np.dot(points, weights)), kind
    )


POPULATIONS = {
    "mean: Beta(6, 4)": beta(6, 4),
    "mean: Beta(12, 8)": beta(12, 8),
    "mean: Beta(20, 5)": beta(20, 5),
    "mean: Beta(8, 2)": beta(8, 2),
    "mean: uniform": beta(1, 1),
    "mean: Beta(8, 1)": beta(8, 1, "near the end"),
    "mean: Beta(57, 3)": beta(57, 3, "near the end"),
    "mean: 90 % near .95, 10 % near .3": mixture(0.95, 0.3, 0.1, 0.03),
    "mean: 95 % near .95, 5 % near .3": mixture(0.95, 0.3, 0.05, 0.03),
    "mean: 90 % near .8, 10 % near .2": mixture(0.8, 0.2, 0.1, 0.05),
    "ties: 0, ½ and 1": values([1.0, 0.5, 0.0], [0.9, 0.05, 0.05], "ties"),
    "ties: six steps": values([0, 0.2, 0.4, 0.6, 0.8, 1], [0.02, 0.08, 0.2, 0.3, 0.3, 0.1], "ties"),
    # declared without a lower end, as in the product
    "equivariance: 1 − small errors": replace(
        beta(90, 1, "without ends", -1.0, 1.0), span=(None, 1.0)
    ),
    "certified rate: U-shaped": beta(3, 0.5, "near the end"),
    "ROAD: within ± ½": beta(9, 6, "smooth", -0.5, 0.5),
    "AUC of a curve": beta(5, 7),
}
RATES = (0.5, 0.8, 0.9, 0.97)


def seed_of(*key: Any) -> Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def cell(
    name: str, kind: str, n: int, times: int, covered: Any, width: Any = math.nan, **more: Any
) -> dict[str, Any]:
    """One line of the table; where no interval was given, its replicate counts for nothing."""
    given = (
        np.isfinite(np.broadcast_to(width, np.shape(covered)))
        if np.ndim(width)
        else np.full(np.shape(covered), True)
    )
    share = float(np.mean(np.asarray(covered)[given])) if given.any() else math.nan
    line = {
        "what": name,
        "kind": kind,
        "n": n,
        "replicates": times,
        "covered": share,
        "given": float(given.mean()),
    }
    return line | {
        "width": float(np.nanmean(width)) if given.any() and np.ndim(width) else None,
        **more,
    }


def of_population(name: str, n: int, times: int) -> list[dict[str, Any]]:
    """Two-sided interval, one-sided bounds at 95 %, and the width of a betting interval beside it."""
    population = POPULATIONS[name]
    scores = population.draw(seed_of(name, n), (times, n))
    found = of_means(scores, population.span)
    low, high = found.interval()
    wide_low, wide_high = found.interval(widest=np.inf)
    truth = population.mean
    some = slice(0, 20)
    bets = [
        [guaranteed(row[None], population.span, ["x"], 0.975, side).bound for side in (True, False)]
        for row in scores[some]
        if population.span is not None and None not in population.span
    ]
    betting = float(np.mean([b - a for a, b in bets])) if bets else math.nan
    held = (wide_low <= truth) & (truth <= wide_high)
    lines = [cell(name, population.kind, n, times, held, high - low, betting=betting)]
    lines[0]["covered"] = float(held.mean())
    for side in (True, False):
        bound, _ = found.bound(0.95, side)
        missed = bound > truth if side else bound < truth
        label = f"{'lower' if side else 'upper'} bound of {name}"
        lines.append(cell(label, f"bound, {population.kind}", n, times, ~missed))
    return lines


def of_rate(rate: float, n: int, times: int) -> list[dict[str, Any]]:
    """Retention, as the report prints it, and the gate's bounds of a share."""
    hits = seed_of("rate", rate, n).binomial(n, rate, times)
    ends = {k: statistics.exact_share(int(k), n) for k in set(hits)}
    low, high = np.array([ends[k] for k in hits]).T
    name = f"retention {rate:g}"
    lines = [cell(name, "rate", n, times, (low <= rate) & (rate <= high), high - low)]
    once = sorted(set(hits))
    bounds = of_means(np.array([[1.0] * k + [0.0] * (n - k) for k in once]), UNIT).bound(
        0.95, True
    )[0]
    by_hits = dict(zip(once, bounds, strict=True))
    return [
        *lines,
        cell(
            f"lower bound of {name}",
            "bound, rate",
            n,
            times,
            np.array([by_hits[k] <= rate for k in hits]),
        ),
    ]


def studies(g: Generator, times: int, n: int, r: int, strength: float, column_: str) -> Cube:
    """Many studies side by side, as if they were explainers: scores, and chance levels from r of their n samples.

    A sample has an effect as the map that is looked for and one as a reference, and they are related, as maps that look
    like every other map are. The truth of the calibrated score is (0.75 − 0.5) / (1 − 0.5).
    """
    own = 0.05 * g.standard_normal((times, n))
    as_reference = 0.7 * own + 0.05 * strength * g.standard_normal((times, n))
    scores = np.clip(0.75 + 0.6 * own + 0.08 * g.standard_normal((times, n)), 0, 1)
    pairs = (
        0.5
        + 0.5 * own[:, None]
        + as_reference[:, :r, None]
        + 0.05 * g.standard_normal((times, r, n))
    )
    pairs[:, np.arange(r), np.arange(r)] = np.nan
    level = np.nanmean(pairs, 1)
    data = {column_: scores[:, None], f"{column_}_chance": level[:, None]}
    ids = [f"{i:04d}" for i in range(n)]
    asked = {name: np.ones((times, 1), dtype=bool) for name in data}
    status = np.zeros((times, 1, n), dtype=np.int8)
    names = [str(i) for i in range(times)]
    cube = Cube(
        "d",
        "m",
        "s",
        names,
        [("jpeg", 1.0)],
        ids,
        data,
        status,
        {},
        pd.DataFrame(),
        asked,
        spans={"fass": UNIT},
    )
    above = np.nansum(pairs - level[:, None], 2)[:, None]
    return replace(cube, references=tuple(ids[:r]), by_reference={f"{column_}_chance": above})


def of_calibrated(
    aligned: bool, strength: float, r: int, n: int, times: int
) -> list[dict[str, Any]]:
    g, name, r = (
        seed_of("calibrated", aligned, strength, r, n),
        "fass_aligned" if aligned else "fass",
        min(r, n),
    )
    found = []
    for start in range(0, times, step := max(1, 4_000_000 // (n * r))):
        cube = studies(g, min(step, times - start), n, r, strength, name)
        scores = calibrated(column(cube, name), column(cube, f"{name}_chance"))[:, 0]
        low, high = scores.interval(widest=np.inf)
        found.append(np.stack([low, high, scores.bound(0.95, True)[0], scores.share_of_references]))
    low, high, bound, share = np.concatenate(found, 1)
    truth = 0.5
    what = f"{'aligned, ' if aligned else ''}calibrated, {r} references, effect × {strength:g}"
    held = (low <= truth) & (truth <= high)
    line = cell(what, "calibrated", n, times, held, high - low, by_references=float(share.mean()))
    return [line, cell(f"lower bound of {what}", "bound, calibrated", n, times, bound <= truth)]


def of_difference(n: int, times: int) -> list[dict[str, Any]]:
    """Two runs of the same samples, as `compare` joins them: a paired difference of correlated scores."""
    g = seed_of("difference", n)
    shared = g.beta(6, 4, (times, n))
    first = np.clip(shared + 0.05 * g.standard_normal((times, n)), 0, 1)
    second = np.clip(shared - 0.04 + 0.08 * g.standard_normal((times, n)), 0, 1)
    many = seed_of("difference, truth")
    base = many.beta(6, 4, 2_000_000)
    truth = np.clip(base - 0.04 + 0.08 * many.standard_normal(len(base)), 0, 1).mean()
    truth -= np.clip(base + 0.05 * many.standard_normal(len(base)), 0, 1).mean()
    low, high = of_means(second, UNIT).minus(of_means(first, UNIT)).interval(widest=np.inf)
    return [
        cell(
            "difference in compare",
            "smooth",
            n,
            times,
            (low <= truth) & (truth <= high),
            high - low,
        )
    ]


def of_correlation(n: int, times: int) -> list[dict[str, Any]]:
    """Spearman's correlation of the mean scores of six methods by two ways of removal; its truth is 1."""
    g = seed_of("correlation", n)
    quality = np.linspace(0, 0.5, 6)[:, None]
    held = []
    for _ in range(min(times, 100)):  # a bootstrap of its own, which is slow
        a, b = (quality + g.normal(0, 0.3, (6, n)) for _ in range(2))
        low, high = agreement(a, b, resamples=400)[1:]
        held.append(low <= 1 <= high)
    return [cell("rank correlation of removals", "correlation", n, len(held), np.array(held))]


def of_leakage(n: int, times: int) -> list[dict[str, Any]]:
    """Bits of class information in masks: the guaranteed lower bound from a probe's hits, where masks know nothing."""
    n += n % 2  # as many of one class as of the other
    hits = seed_of("leakage", n).binomial(n, 0.5, times)
    once = sorted(set(hits))
    place = {
        "dataset": "d",
        "model": "m",
        "evaluation": "leakage",
        "condition": "zero morf",
        "imputer": "zero",
    }
    place |= {"order": "morf", "level": 0.5, "status": "ok"}
    blocks = []
    for k in once:
        for measure, column_ in (
            ("prior", np.arange(n) % 2),
            ("mask_hit", np.arange(n) < k),
            ("mask_log2", np.full(n, -1.0)),
        ):
            blocks.append(
                pd.DataFrame(
                    {
                        **place,
                        "explainer": str(k),
                        "measure": measure,
                        "value": column_.astype(float),
                    }
                )
            )
    bits = leakage_summary(pd.concat(blocks)).set_index("explainer")["mask_bits"]
    return [
        cell(
            "leakage bits, truth 0",
            "bound, rate",
            n,
            times,
            np.array([bits[str(k)] <= 1e-9 for k in hits]),
        )
    ]


KINDS = ("exchangeable", "unequal skew and variance")
MEANS = np.array([0.0, 0.0, 0.03, 0.06, 0.1])
"""What the means of methods that are not alike have more than 0.6: their true ranks are 4 to 5, twice, 3, 2 and 1."""
TRUE_RANKS = rank_ranges(MEANS[:, None] > MEANS + 1e-9)
AT_ONCE = 500
"""Replicates of one task."""


def drawn_scores(g: Generator, kind: str, times: int, n: int) -> Any:
    """Scores (times, 5 methods, 5 conditions, n) with a mean of 0.6."""
    noise = g.normal(0, 0.02, (times, 5, 5, n))
    if kind == "exchangeable":
        return 0.6 + g.normal(0, 0.05, (times, 1, 1, n)) + 4 * noise
    # Equal means; left and right skew, narrow, wide, and rare failures of whole samples.
    skew = g.beta(8, 2, (2, times, n)) - 0.8
    rare = np.where(g.random((times, n)) < 0.1, -0.54, 0.06)
    narrow, wide = g.normal(0, 0.01, (times, n)), g.normal(0, 0.1, (times, n))
    return 0.6 + np.stack([skew[0], -skew[1], narrow, wide, rare], 1)[:, :, None] + noise


def family(kind: str, n: int, times: int, ends: bool = True, part: int = 0) -> list[dict[str, Any]]:
    """Holm's tests between five methods under five conditions: how often any pair, or any rank, is wrongly decided."""
    g, wrong, missed, room = seed_of("family", kind, n, part), 0, 0, 0.0
    a, b = np.triu_indices(5, 1)
    for start in range(0, times, step := max(1, 100_000 // n)):
        scores = drawn_scores(g, kind, min(step, times - start), n)
        for means in (0.0, MEANS):
            found = of_means(scores + np.reshape(means, (-1, 1, 1)), UNIT if ends else None)
            overall = found.nested([f"c{i}" for i in range(5)])
            apart = overall[:, a].minus(overall[:, b])
            shown = np.stack([statistics.holm(row) for row in apart.p()]) < 0.05
            if means is not MEANS:
                wrong += int(shown.any(1).sum())
                continue
            ahead = np.zeros((len(scores), 5, 5), dtype=bool)
            ahead[:, a, b], ahead[:, b, a] = shown & (apart.value > 0), shown & (apart.value < 0)
            low, high = rank_ranges(ahead)
            missed += int(((low > TRUE_RANKS[0]) | (high < TRUE_RANKS[1])).any(1).sum())
            room += float((high - low + 1).mean(1).sum())
    more = "" if ends else ", no ends"
    tests = {"what": f"family of tests, {kind}{more}", "error": wrong / times}
    ranks = {"what": f"ranks, {kind}{more}", "error": missed / times, "width": room / times}
    return [
        {"kind": "family", "n": n, "replicates": times, "width": None} | line
        for line in (tests, ranks)
    ]


WHOLE = {
    "calibrated FASS": {
        "stability": {"perturbations": {"gaussian_noise": {"sigma": 0.1}}, "k": 10}
    },
    "dependence": {"dependence": {"draws": 1, "classes": 0, "k": 10}},
    "calibrated agreement": {"agreement": {"k": 10}},
}


def through_evaluate(what: str, n: int, times: int, many: int) -> list[dict[str, Any]]:
    """A small network on drawn images: does the interval of a run cover the score of a large one?"""
    import torch

    import heatproof

    torch.set_num_threads(1)
    make = torch.Generator().manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 5), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 64, 3)
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=make) * 0.2)
    asked = {"s": WHOLE[what]}
    methods = ["saliency", "input_x_gradient"]

    def images(key: int, count: int) -> Any:
        g = torch.Generator().manual_seed(key)
        spots = torch.rand(count, 1, 3, 3, generator=g)
        smooth = torch.nn.functional.interpolate(spots, size=(12, 12), mode="bilinear")
        return (smooth + 0.1 * torch.rand(count, 1, 12, 12, generator=g)).clamp(0, 1)

    def run(key: int, count: int, **more: Any) -> pd.DataFrame:
        seed = key if what == "calibrated FASS" else 0  # random networks, for one, stay the same
        done = heatproof.evaluate(
            net, images(key, count), methods, asked, seed=seed, show_progress=False, **more
        )
        return done.ranking().set_index("explainer")

    truth = run(10**6, many, references=many // 8, shard_size=500)["score"]
    held: dict[str, list[bool]] = {name: [] for name in methods}
    width: dict[str, list[float]] = {name: [] for name in methods}
    for key in range(times):
        found = run(key + 1, n)
        for name in methods:
            low, high = found.loc[name, ["low", "high"]].astype(float)
            held[name].append(bool(low <= truth[name] <= high))
            width[name].append(high - low)
    return [
        cell(f"{what} of {m}", "evaluate", n, times, np.array(held[m]), np.array(width[m]))
        for m in methods
    ]


Task = tuple[Callable[..., list[dict[str, Any]]], tuple[Any, ...]]


def cells(part: str, times: int, quick: bool) -> Iterable[Task]:
    """Every cell of a part as a function and its arguments, the slow ones first."""
    sizes = (8, 30) if quick else SIZES
    if part == "evaluate":
        for n in (100, 30)[quick:]:
            yield from (
                (through_evaluate, (what, n, times, 200 if quick else 3000)) for what in WHOLE
            )
    if part == "families":
        for n in sizes[::-1]:
            for kind in KINDS:
                for start in range(0, times, AT_ONCE):
                    many = min(AT_ONCE, times - start)
                    yield from ((family, (kind, n, many, ends, start)) for ends in (True, False))
    if part == "intervals":
        for aligned, strength, r in (
            (False, 1.0, 8),
            (False, 1.0, 32),
            (False, 3.0, 8),
            (True, 1.0, 8),
        ):
            for n in sizes:
                yield of_calibrated, (aligned, strength, r, n, times)
        for n in sizes:
            yield from ((of_population, (name, n, times)) for name in POPULATIONS)
            yield from ((of_rate, (rate, n, times)) for rate in RATES)
            yield of_difference, (n, times)
            yield of_correlation, (n, times)
            yield of_leakage, (n, times)


def work(task: Task) -> list[dict[str, Any]]:
    function, arguments = task
    return function(*arguments)


def merged(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of one cell that several tasks did, as one: shares weighted by their replicates."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        key = line["what"], line["n"]
        if key not in found:
            found[key] = dict(line)
            continue
        whole, both = found[key], found[key]["replicates"] + line["replicates"]
        for name in ("error", "covered", "given", "width"):
            if whole.get(name) is not None:
                whole[name] = (
                    whole[name] * whole["replicates"] + line[name] * line["replicates"]
                ) / both
        whole["replicates"] = both
    return list(found.values())


def markdown(part: str, lines: list[dict[str, Any]], seconds: float, jobs: int) -> str:
    """The table of a part, one row per kind of number and one column per number of samples."""
    most = max(line["replicates"] for line in lines)
    text = [
        f"## {TITLES[part]}",
        "",
        f"`python benchmarks/coverage.py {part}`: {len(lines)} cells of up to {most:,} ",
    ]
    text[-1] += f"replicates in {seconds:.0f} s on {jobs} cores. {ABOUT[part]}"
    sizes = sorted({line["n"] for line in lines})
    text += [
        "",
        "| what | " + " | ".join(f"n = {n}" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for what in sorted(
        {line["what"] for line in lines}, key=[line["what"] for line in lines].index
    ):
        row = {line["n"]: line for line in lines if line["what"] == what}
        text.append(f"| {what} | " + " | ".join(_shown(row.get(n)) for n in sizes) + " |")
    return "\n".join(text)


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


def _shown(line: dict[str, Any] | None) -> str:
    if line is None:
        return ""
    if "error" in line:
        return f"{line['error']:.3f}" + (
            f" ({line['width']:.1f})" if line["width"] is not None else ""
        )
    compared = math.isfinite(line.get("betting", math.nan))
    width = "" if line["width"] is None else f" ({line['width']:.2f}" + ("" if compared else ")")
    if compared:
        width = f"{width or ' (–'}; {line['betting']:.2f})"
    return f"{line['covered']:.3f}{width}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(TITLES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replicates", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "docs" / "coverage.md"
    )
    given = parser.parse_args()
    if not set(given.parts) <= set(TITLES):
        parser.error(f"parts are {', '.join(TITLES)}; got {', '.join(given.parts)}")
    for part in given.parts or TITLES:
        begun = time.perf_counter()
        times = given.replicates or (
            (3 if part == "evaluate" else 60) if given.quick else REPLICATES[part]
        )
        tasks = list(cells(part, times, given.quick))
        if given.jobs == 1:
            found = [work(task) for task in tasks]
        else:
            with ProcessPoolExecutor(given.jobs) as pool:
                found = list(pool.map(work, tasks))
        lines = merged(line for each in found for line in each)
        seconds = time.perf_counter() - begun
        put(given.out, part, markdown(part, lines, seconds, given.jobs))
        print(f"{part}: {len(lines)} cells in {seconds:.0f} s: {given.out}")


if __name__ == "__main__":
    main()
