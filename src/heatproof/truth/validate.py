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
POWER, LEVEL = 0.8, 0.05
"""Power and level of the sign test that `needed` plans."""
SMALLEST = 1e-9
"""A smaller difference between two scores is rounding."""
COMPARISONS = {name: (RIGHT, name) for name in GRADES if name not in (RIGHT, MINOR, CONSTANT)}
COMPARISONS["noise 0.3 over 3"] = ("noise 0.3", "noise 3")
"""Name of a comparison -> the truer map and the other."""
SIGNS = {"prefers": "", "blind": "?", "misled": "!", "": ""}
"""What stands behind a share in the table, by verdict."""
ARROWS = {"higher": "↑", "lower": "↓", "neither": "–"}
VERDICTS_IN_WORDS = {
    "prefers": "prefers the right map to",
    "blind": "cannot tell the right map from",
    "misled": "scores the right map worse than",
}
VERDICTS_WITHOUT_DIRECTION = {
    "prefers": "scores the right map higher than",
    "blind": "cannot tell the right map from",
    "misled": "scores the right map lower than",
}
"""The same for measures of which neither more nor less is better."""
MARK = "<!-- heatproof validate -->\n"
"""The text of a page before this mark stays when the table below it is rewritten."""
HEADING = "`heatproof validate{} --markdown docs/validation.md`, {} samples of each model: {}."


def validate(samples: int = FULL, seed: int = 0, only: Sequence[str] | None = None) -> pd.DataFrame:
    """Return how reliably each measure of each axis scores a true map better than a worse one, a row per comparison.

    It is tried on models whose right map is known in closed form, all of them or `only` some, with maps that are less
    true: the right map with noise, blurred, shuffled and so on. Of the `n` samples of a comparison, `wins` counts those on
    which the truer map scores better and `losses` those on which it scores worse; `share` = wins / n has its
    Clopper–Pearson interval. `verdict` is "prefers" where the interval of wins lies above ½, "misled" where that of losses
    does, else "blind". `needed` is the number of samples with which a sign test shows the preference with 80 % power. For
    a measure without a better direction a higher score counts as better.

    `resilience` is the share of samples on which minor noise moves the score less than half as far as a random map does
    (the noise resilience of MetaQuantus, Hedström et al. 2023), with its interval; `constant` is the share of constant
    maps that got a score.
    """
    by_name = {truth.name: truth for truth in truths()}
    names = list(only or by_name)
    for name in names:
        if name not in by_name:
            raise unknown("model", name, by_name)
    tables: list[pd.DataFrame] = []
    for name in names:
        tables += _scores(by_name[name], samples, seed)
    scores = pd.concat(tables, ignore_index=True)
    rows = []
    for (axis, measure), group in scores.groupby(["axis", "measure"], sort=False):
        facts = {"axis": axis, "measure": measure, "better": group["better"].iloc[0]}
        facts |= _resilience(group)
        facts["constant"] = float(group[CONSTANT].notna().mean())
        for corruption, (truer, other) in COMPARISONS.items():
            rows.append({**facts, "corruption": corruption, **_comparison(group, truer, other)})
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
    """Return how often the truer of two maps scores better by a measure, with an interval and a verdict.

    `scores` has a row per sample and a column per map, turned so that more is better; `truer` and `other` name the maps.
    """
    gap = pd.Series(dtype=float)
    if other in scores:
        gap = (scores[truer] - scores[other]).dropna()
    n = len(gap)
    wins, losses = int((gap > SMALLEST).sum()), int((gap < -SMALLEST).sum())
    share, low, high = _share(wins, n)
    _, losses_low, _ = _share(losses, n)
    if n == 0:
        verdict = ""
    elif low > 0.5:
        verdict = "prefers"
    elif losses_low > 0.5:
        verdict = "misled"
    else:
        verdict = "blind"
    counts = {"wins": wins, "losses": losses, "n": n}
    interval = {"share": share, "low": low, "high": high}
    return {**counts, **interval, "verdict": verdict, "needed": needed(share)}


def _share(k: int, n: int) -> tuple[float, float, float]:
    """Return k / n with its interval; NaN where n is 0."""
    return (k / n, *rate_interval(k, n)) if n else (np.nan, np.nan, np.nan)


def _scores(truth: Truth, samples: int, seed: int) -> Iterator[pd.DataFrame]:
    """Yield a table per measure with the scores of every map of one model, turned so that more is better.

    A map is the right one, made less true in some way and degree (`GRADES`). Columns: axis, measure, better, and one for
    each map; a row per sample.
    """
    maps = {}
    for name, (how, level) in GRADES.items():
        if how == "sobel" and "image" not in truth.tags:
            continue  # an edge filter is for images
        maps[name] = CallableExplainer(partial(corrupted, how, level), stochastic=False)
    axes, evaluations = {}, {}
    for axis in AXES:
        # `trial` has the settings with which an axis is tried on models of a tag.
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
            more_is_better = (measure.sign or 1) * mean_over_conditions
            by_map = dict(zip(arrays.explainers, more_is_better, strict=True))
            names = {"axis": arrays.evaluation, "measure": measure.name, "better": measure.better}
            yield pd.DataFrame({**names, **by_map})


def needed(share: float, most: int = 1000) -> int:
    """Return how many samples a one-sided sign test needs at 5 %, with 80 % power, to show a preference.

    `share` is the probability that a sample agrees with the preference; 0 is returned if `most` samples are not enough.

    >>> needed(1.0), needed(0.8), needed(0.5)
    (5, 18, 0)
    """
    if share <= 0.5:
        return 0
    n = np.arange(1, most + 1)
    critical_wins = stats.binom.isf(LEVEL, n, 0.5)
    power = stats.binom.sf(critical_wins, n, share)
    enough = n[power >= POWER]
    return int(enough[0]) if len(enough) else 0


def sentences(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield (axis.measure, what it can be trusted for) for every measure, from its rows of `validate`."""
    for (axis, measure), rows in table.groupby(["axis", "measure"], sort=False):
        yield f"{axis}.{measure}", " ".join(_sentences_of(rows))


def _sentences_of(rows: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on one measure: which corruptions it recognises, is blind to and is misled by, and its resilience.

    `rows` are its rows in the table of `validate`, one per corruption.
    """
    first = records(rows)[0]
    has_direction = first.better != "neither"
    words = VERDICTS_IN_WORDS if has_direction else VERDICTS_WITHOUT_DIRECTION
    clauses = []
    for verdict, text in words.items():
        corruptions = rows.loc[rows["verdict"] == verdict, "corruption"]
        if len(corruptions):
            clauses.append(f"{text} {listing(corruptions)}")
    subject = "It" if has_direction else "Neither direction is better; it"
    yield f"{subject} {', '.join(clauses)}."

    preferences = rows.loc[rows["verdict"] == "prefers", "needed"]
    if len(preferences):
        yield f"{preferences.max()} samples are enough to show each preference with 80 % power."
    if first.resilience >= 0:
        share = with_interval(first.resilience, first.resilience_low, first.resilience_high)
        yield f"Resilience is {share}."
    if first.constant:
        yield "It also scores constant maps, which carry no information."


def markdown(table: pd.DataFrame, samples: int, how: str = "") -> str:
    """Return a page with a row for each measure, a sentence for each, and what was not tried."""
    models = "; ".join(f"*{truth.name}*: {truth.text}" for truth in truths())
    lines = [HEADING.format(how, samples, models), ""]
    lines += _markdown_table(table)
    lines += ["", "## Measure by measure", ""]
    lines += [f"- `{name}`: {text}" for name, text in sentences(table)]
    lines += [
        "",
        f"Not tried, for want of another mode, retraining or kind of explanation: {_not_tried(table)}.",
        "",
    ]
    return "\n".join(lines)


def _markdown_table(table: pd.DataFrame) -> list[str]:
    """Return the lines of a table: the share of right preferences of each measure, by corruption."""
    corruptions = list(dict.fromkeys(table["corruption"]))
    columns = ["axis", "measure", "", *corruptions, "resilient", "reactive"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for (axis, measure), rows in table.groupby(["axis", "measure"], sort=False):
        by_corruption = {row.corruption: row for row in records(rows)}
        shares = []
        for corruption in corruptions:
            row = by_corruption[corruption]
            shares.append(f"{number(row.share)}{SIGNS[row.verdict]}")
        against_random = by_corruption[RANDOM]
        resilient, reactive = number(against_random.resilience), number(against_random.share)
        arrow = ARROWS[against_random.better]
        cells = [str(axis), f"`{measure}`", arrow, *shares, resilient, reactive]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _not_tried(table: pd.DataFrame) -> str:
    """Return the measures that no model was used for."""
    tried = set(zip(table["axis"], table["measure"], strict=True))
    missing = []
    for axis in AXES:
        for measure in axis.of_role("headline", "component"):
            if (axis.name, measure) not in tried:
                missing.append(f"`{axis.name}.{measure}`")
    return listing(missing)
