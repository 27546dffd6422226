"""The numbers of a run by the formulas of version 0.1.0 beside those of today, and which of its sentences changed.

Version 0.1.0 took percentile intervals of a bootstrap over samples, as if the references that chance comes from were
fixed, ranks from the same draws, and Wilcoxon's test with Holm's correction for "better". Usage:

    heatproof demo --limit 14 --out RUN
    python benchmarks/intervals_before.py RUN [--out docs/coverage.md]

The table goes into OUT, between marks of its own, as `benchmarks/coverage.py` writes its parts.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import heatproof
from coverage import put
from heatproof import axes, statistics
from heatproof.drawing.prose import above, listing, records, with_interval
from heatproof.statistics.bootstrap import (
    bootstrap_counts,
    calibrate,
    mean_of_finite,
    resampled_means,
)
from heatproof.statistics.cubes import Cube
from heatproof.statistics.forms import best_columns, sample_scores

RESAMPLES = 2000


def overall(cube: Cube, measure: str) -> tuple[Any, Any]:
    """Overall scores (E,) and their draws (RESAMPLES, E), as version 0.1.0 drew them."""
    counts = bootstrap_counts(len(cube.samples), RESAMPLES, 0)
    shape = (len(cube.explainers), len(cube.conditions))
    means, draws = np.full(shape, np.nan), np.full((RESAMPLES, *shape), np.nan)
    for here, score, chance in best_columns(cube, measure, "best"):
        if not here.any():
            continue
        parts = []
        for name in filter(None, (score, chance)):
            values = cube.values[name][:, here]
            drawn = resampled_means(values.reshape(-1, values.shape[-1]), counts)
            parts.append((mean_of_finite(values), drawn.reshape(RESAMPLES, *values.shape[:2])))
        whole = (
            parts[0]
            if chance is None
            else tuple(calibrate(*pair) for pair in zip(*parts, strict=True))
        )
        means[:, here], draws[:, :, here] = whole
    names = [name for name, _ in cube.conditions]
    groups = [
        [k for k, name in enumerate(names) if name == group] for group in dict.fromkeys(names)
    ]
    nested = [
        np.stack([mean_of_finite(each[..., g]) for g in groups], -1) for each in (means, draws)
    ]
    return mean_of_finite(nested[0]), mean_of_finite(nested[1])


def wilcoxon(cube: Cube, measure: str) -> pd.DataFrame:
    """The tests of version 0.1.0: signed ranks of the mean over conditions of a sample's difference."""
    scores, rows = sample_scores(cube, measure, "best"), []
    for a, b in itertools.combinations(range(len(cube.explainers)), 2):
        apart = mean_of_finite((scores[a] - scores[b]).T)
        apart = apart[np.isfinite(apart)]
        p = float(stats.wilcoxon(apart).pvalue) if np.any(apart != 0) else 1.0
        rows.append(
            (
                cube.explainers[a],
                cube.explainers[b],
                apart.mean(),
                apart.mean(),
                apart.mean(),
                0.0,
                0.0,
                p,
            )
        )
    columns = ["a", "b", "difference", "low", "high", "score_a", "score_b", "p"]
    frame = pd.DataFrame.from_records(rows, columns=columns)
    return frame.assign(significant=statistics.holm(frame["p"].to_numpy()) < 0.05)


def first(ranking: pd.DataFrame, tests: pd.DataFrame, sign: int) -> str:
    """What the verdict says of the top: one method, or those that are not separated."""
    names = ranking.loc[~ranking["control"] & ranking["score"].notna(), "explainer"].tolist()
    turned = tests.assign(
        difference=sign * tests["difference"], low=sign * tests["low"], high=sign * tests["high"]
    )
    turned[["low", "high"]] = np.sort(turned[["low", "high"]].to_numpy(), axis=1)
    tied = [name for name in names[1:] if not above(turned, names[0], name)]
    return (
        f"{names[0]} is ahead of all"
        if not tied
        else f"{listing([names[0], *tied])} cannot be separated"
    )


def shown(tests: pd.DataFrame) -> set[str]:
    """The pairs of explainers that are called different."""
    return {f"{r.a} and {r.b}" for r in records(tests[tests["significant"]])}


def compared(run: heatproof.Run) -> tuple[list[str], list[str]]:
    """The rows of the table, and the sentences that changed."""
    rows, changed = [], []
    for cube in (
        whole.counted() for whole in axes.arrange(run.compact(), run.manifest, run.samples())
    ):
        axis = axes.axis_of(cube.evaluation, run.manifest, cube.values)
        for measure in (axis.measure(name) for name in axis.headlines(cube)):
            assert measure is not None
            name, sign = measure.name, measure.sign
            today, tests = (
                statistics.ranking([cube], name, better=measure.better),
                statistics.paired_tests([cube], name),
            )
            score, draws = overall(cube, name)
            low, high = np.nanquantile(draws, [0.025, 0.975], axis=0)
            ranks = (-(sign or 1) * draws).argsort(1, kind="stable").argsort(1) + 1
            place = {explainer: i for i, explainer in enumerate(cube.explainers)}
            for r in records(today[today["score"].notna()]):
                i = place[r.explainer]
                spread = np.quantile(ranks[:, i], [0.025, 0.975], method="nearest").astype(int)
                then = f"{spread[0]}–{spread[1]}" if sign else "–"
                now = "–" if np.isnan(r.rank_low) else f"{r.rank_low:.0f}–{r.rank_high:.0f}"
                before = with_interval(float(score[i]), float(low[i]), float(high[i]))
                rows.append(
                    f"| {cube.evaluation} | {r.explainer} | {before} | {with_interval(r.score, r.low, r.high)} | "
                )
                rows[-1] += f"{then} | {now} |"
            if sign and (~today["control"]).sum() > 1:
                said = [first(today, own, sign) for own in (wilcoxon(cube, name), tests)]
                text = f"{said[1]}, as before" if said[0] == said[1] else " → ".join(said)
                before, after = (shown(own) for own in (wilcoxon(cube, name), tests))
                lost, new = (
                    listing(sorted(pairs)) or "none" for pairs in (before - after, after - before)
                )
                changed.append(
                    f"- {cube.evaluation}: {text}. No longer shown to differ: {lost}. Newly shown: {new}."
                )
    return rows, changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "docs" / "coverage.md"
    )
    given = parser.parse_args()
    run = heatproof.read(given.run)
    rows, changed = compared(run)
    n = max(facts["samples"] for facts in run.manifest["study"]["datasets"].values())
    text = ["## The demo's report before and after", ""]
    text += [
        f"`python benchmarks/intervals_before.py RUN` on the {n} photographs of `heatproof demo`: overall scores with "
    ]
    text[-1] += (
        "95 % intervals and ranks by the formulas of version 0.1.0 (percentiles of a bootstrap over samples, "
    )
    text[-1] += "references fixed, controls ranked) and by those of today."
    text += [
        "",
        "| evaluation | explainer | 0.1.0 | today | ranks, 0.1.0 | ranks, today |",
        "|---|---|---|---|---|---|",
    ]
    text += [
        *rows,
        "",
        "Who comes first, by Wilcoxon's test of version 0.1.0 → by today's test of means:",
        "",
        *changed,
    ]
    put(given.out, "demo", "\n".join(text))
    print("\n".join(text))


if __name__ == "__main__":
    main()
