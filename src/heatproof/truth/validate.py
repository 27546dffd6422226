"""`validate`: every measure of every axis on maps of known truth, and which of them prefers the truer map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heatproof.axes import AXES
from heatproof.errors import unknown
from heatproof.results.score_estimates import sample_scores
from heatproof.runs.evaluate import evaluate
from heatproof.runs.results import arrays_of_run
from heatproof.statistics.arrays import mean_of_finite
from heatproof.statistics.intervals import rate_interval
from heatproof.text import listing, number, records, with_interval
from heatproof.truth.corruptions import CONSTANT, GRADES, MINOR, RANDOM, RIGHT, corrupted
from heatproof.truth.models import Truth, truths
from heatproof.types import CallableExplainer

QUICK, FULL = 8, 40
"""Samples of each model."""
POWER, LEVEL, SMALLEST = 0.8, 0.05, 1e-9
ASKED = {name: (RIGHT, name) for name in GRADES if name not in (RIGHT, MINOR, CONSTANT)}
ASKED["0.3 over 3"] = ("noise 0.3", "noise 3")
"""Name of a comparison -> the truer map and the other."""
SIGNS = {"prefers": "", "blind": "?", "misled": "!", "": ""}
WAYS = {"higher": "↑", "lower": "↓", "neither": "–"}
MARK = "<!-- heatproof validate -->\n"
"""What comes before it in a page is kept when the table under it is written anew."""
MADE = "`heatproof validate{} --markdown docs/validation.md`, {} samples of each model: {}."


def validate(samples: int = FULL, seed: int = 0, only: Sequence[str] | None = None) -> pd.DataFrame:
    """Return one row for every axis, measure and comparison, over all models whose right map is known, or `only` some.

    `wins` counts the samples on which the truer map scores better than the other, `losses` those on which it scores
    worse, of `n`; `share` = wins / n has its Clopper–Pearson interval. `verdict` is "prefers" where the interval of
    wins lies above ½, "misled" where that of losses does, else "blind". `needed` is how many samples a sign test takes
    to see the preference four times out of five. For a measure without a better direction more counts as better.

    `resilience` is the share of samples on which minor noise moves the score less than half as far as a random map does
    (MetaQuantus' noise resilience), with its interval; `constant` the share of constant maps that got a score.
    """
    by_name = {truth.name: truth for truth in truths()}
    names = list(only or by_name)
    if unknown_names := [name for name in names if name not in by_name]:
        raise unknown("model", unknown_names[0], by_name)
    scores = [table for name in names for table in _scores(by_name[name], samples, seed)]
    scores_of_all = pd.concat(scores, ignore_index=True)
    rows = []
    for (axis, measure), own in scores_of_all.groupby(["axis", "measure"], sort=False):
        facts = {"axis": axis, "measure": measure, "better": own["better"].iloc[0]}
        facts |= _resilience(own)
        facts["constant"] = float(own[CONSTANT].notna().mean())
        for corruption, (truer, other) in ASKED.items():
            rows.append({**facts, "corruption": corruption, **_comparison(own, truer, other)})
    return pd.DataFrame(rows)


def _resilience(scores: pd.DataFrame) -> dict[str, float]:
    """Return how often minor noise moves a score less than half as far as a random map, with its interval."""
    by_noise = (scores[RIGHT] - scores[MINOR]).abs()
    by_random = (scores[RIGHT] - scores[RANDOM]).abs()
    compared = by_random.gt(SMALLEST) & by_noise.notna()
    resilient = (by_noise < 0.5 * by_random)[compared]
    share, low, high = _share(int(resilient.sum()), len(resilient))
    return {"resilience": share, "resilience_low": low, "resilience_high": high}


def _comparison(scores: pd.DataFrame, truer: str, other: str) -> dict[str, Any]:
    """Return how often the truer of two maps scores better, and what follows for the measure."""
    gap = pd.Series(dtype=float)
    if other in scores:
        gap = (scores[truer] - scores[other]).dropna()
    n = len(gap)
    wins, losses = int((gap > SMALLEST).sum()), int((gap < -SMALLEST).sum())
    share, low, high = _share(wins, n)
    verdict = ""
    if n:
        _, losses_low, _ = _share(losses, n)
        verdict = "prefers" if low > 0.5 else "misled" if losses_low > 0.5 else "blind"
    counts = {"wins": wins, "losses": losses, "n": n}
    interval = {"share": share, "low": low, "high": high}
    return {**counts, **interval, "verdict": verdict, "needed": needed(share)}


def _share(k: int, n: int) -> tuple[float, float, float]:
    """Return k / n with its interval; NaN where n is 0."""
    return (k / n, *rate_interval(k, n)) if n else (np.nan, np.nan, np.nan)


def _scores(truth: Truth, samples: int, seed: int) -> Iterator[pd.DataFrame]:
    """Yield the scores of every map of one model's samples by each measure, turned so that more is better.

    Columns: axis, measure, better, and one for each map; a row per sample.
    """
    maps = {}
    for name, (how, level) in GRADES.items():
        if how != "sobel" or "image" in truth.tags:
            maps[name] = CallableExplainer(partial(corrupted, how, level), stochastic=False)
    axes, evaluations = {}, {}
    for axis in AXES:
        tag = next((tag for tag in truth.tags if tag in axis.trial), None)
        if axis.evaluation is not None and tag is not None:
            axes[axis.name] = axis
            evaluations[axis.name] = {axis.name: dict(axis.trial[tag])}
    run = evaluate(
        truth.model(),
        truth.samples(samples, seed),
        maps,
        evaluations,
        seed=seed,
        show_progress=False,
    )
    for arrays in arrays_of_run(run.table(), run.manifest):
        for measure in axes[arrays.evaluation].measures:
            if measure.name not in arrays.values or measure.role not in ("headline", "component"):
                continue
            scores = sample_scores(arrays.for_measure(measure.name), measure.name)
            mean_over_conditions = mean_of_finite(scores.transpose(0, 2, 1))
            turned = (measure.sign or 1) * mean_over_conditions
            about = {"axis": arrays.evaluation, "measure": measure.name, "better": measure.better}
            yield pd.DataFrame({**about, **dict(zip(arrays.explainers, turned, strict=True))})


def needed(share: float, most: int = 1000) -> int:
    """How many samples a one-sided sign test at 5 % takes to see a preference of this share with 80 % power; 0: never.

    >>> needed(1.0), needed(0.8), needed(0.5)
    (5, 18, 0)
    """
    n = np.arange(1, most + 1)
    enough = n[stats.binom.sf(stats.binom.isf(LEVEL, n, 0.5), n, share) >= POWER]
    return int(enough[0]) if share > 0.5 and len(enough) else 0


def sentences(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """(axis.measure, what it can be trusted for) of every measure, from its rows of `validate`."""
    for (axis, measure), rows in table.groupby(["axis", "measure"], sort=False):
        first, names = (
            records(rows)[0],
            {v: listing(rows.loc[rows["verdict"] == v, "corruption"]) for v in SIGNS},
        )
        most, minor = rows.loc[rows["verdict"] == "prefers", "needed"].max(), first.resilience
        ways = ("prefers the right map to", "is blind to", "is misled by")
        if first.better == "neither":
            ways = (
                "scores the right map higher than",
                "does not tell it from",
                "scores it lower than",
            )
        said = [f"{way} {names[v]}" for way, v in zip(ways, SIGNS, strict=False) if names[v]]
        text = f"{'No direction is better; it' if first.better == 'neither' else 'It'} {', '.join(said)}."
        text += (
            f" {most} samples show each preference four times out of five."
            if names["prefers"]
            else ""
        )
        ends = with_interval(minor, first.resilience_low, first.resilience_high)
        text += f" Resilience is {ends}." if minor >= 0 else ""
        yield (
            f"{axis}.{measure}",
            text + (" It scores constant maps, which say nothing." if first.constant else ""),
        )


def markdown(table: pd.DataFrame, samples: int, how: str = "") -> str:
    """A table with a row for each measure, a sentence for each, and what was not tried."""
    shown = [*dict.fromkeys(table["corruption"])]
    models = "; ".join(f"*{truth.name}*: {truth.text}" for truth in truths())
    columns = ["axis", "measure", "", *shown, "resilient", "reactive"]
    lines = [
        MADE.format(how, samples, models),
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
    ]
    for (axis, measure), rows in table.groupby(["axis", "measure"], sort=False):
        cells = {r.corruption: r for r in records(rows)}
        shares = [f"{number(cells[c].share)}{SIGNS[cells[c].verdict]}" for c in shown]
        ends = [number(cells[RANDOM].resilience), number(cells[RANDOM].share)]
        lines.append(
            f"| {axis} | `{measure}` | {WAYS[cells[RANDOM].better]} | {' | '.join([*shares, *ends])} |"
        )
    lines += [
        "",
        "## Measure by measure",
        "",
        *(f"- `{name}`: {text}" for name, text in sentences(table)),
    ]
    tried = set(zip(table["axis"], table["measure"], strict=True))
    every = [
        (axis.name, m.name)
        for axis in AXES
        for m in axis.measures
        if m.role in ("headline", "component")
    ]
    left = listing(f"`{axis}.{name}`" for axis, name in every if (axis, name) not in tried)
    return "\n".join(
        [
            *lines,
            "",
            f"Not tried, for want of another mode, retraining or kind of explanation: {left}.",
            "",
        ]
    )
