"""`validate`: every measure of every axis on maps of known truth, and which of them prefers the truer map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from holdfast.axes import AXES, Axis, arrange
from holdfast.runs.run import evaluate
from holdfast.statistics import exact_share
from holdfast.statistics.bootstrap import mean_of_finite
from holdfast.statistics.cubes import Array
from holdfast.statistics.forms import sample_scores
from holdfast.truth.corruptions import CONSTANT, GRADES, MINOR, OF_IMAGES, RANDOM, RIGHT, Corrupted
from holdfast.truth.models import Truth, truths

QUICK, FULL = 8, 40
"""Samples of each model."""
POWER, LEVEL = 0.8, 0.05
SMALLEST = 1e-9
GRADED = "0.3 over 3"
"""Whether the map with less noise scores better than the one with more."""
ASKED = {name: (RIGHT, name) for name in GRADES if name not in (RIGHT, MINOR, CONSTANT)}
ASKED[GRADED] = ("noise 0.3", "noise 3")


def validate(samples: int = FULL, seed: int = 0, only: Sequence[str] | None = None) -> pd.DataFrame:
    """One row for every axis, measure and corruption, over all models whose right map is known.

    `wins` counts the samples on which the right map scores better than the corrupted one, `losses` those on which it
    scores worse, of `n`; `share` = wins / n has its Clopper–Pearson interval. `verdict` is "prefers" where the interval
    of wins lies above ½, "misled" where that of losses does, else "blind". `needed` is how many samples a sign test
    takes to see the preference four times out of five. For a measure without a better direction more counts as better.

    `resilience` is the share of samples on which minor noise moves the score less than half as far as a random map does
    (MetaQuantus' noise resilience), with its interval; `constant` the share of constant maps that got a score.
    """
    rows = [row for truth in truths() if only is None or truth.name in only for row in _judged(truth, samples, seed)]
    scores = pd.concat(rows, ignore_index=True)
    found = []
    for (axis, measure), here in scores.groupby(["axis", "measure"], sort=False):
        facts = {"axis": axis, "measure": measure, "better": here["better"].iloc[0], **_minor(here)}
        for name, (truer, other) in ASKED.items():
            gap = (here[truer] - here[other]).dropna() if other in here else pd.Series(dtype=float)
            wins, losses, n = int((gap > SMALLEST).sum()), int((gap < -SMALLEST).sum()), len(gap)
            low, high = exact_share(wins, n) if n else (np.nan, np.nan)
            against = exact_share(losses, n)[0] if n else np.nan
            verdict = "" if not n else "prefers" if low > 0.5 else "misled" if against > 0.5 else "blind"
            told = {
                "wins": wins,
                "losses": losses,
                "n": n,
                "share": wins / n if n else np.nan,
                "low": low,
                "high": high,
            }
            found.append(
                {**facts, "corruption": name, **told, "verdict": verdict, "needed": needed(wins / n if n else 0)}
            )
    return pd.DataFrame(found)


def _judged(truth: Truth, samples: int, seed: int) -> Iterator[pd.DataFrame]:
    """Scores of every map of one model's samples, turned so that more is better: a row per axis, measure and sample."""
    usable = {name: made for name, made in GRADES.items() if made[0] not in OF_IMAGES or "image" in truth.tags}
    asked = {
        axis.name: {axis.name: dict(settings)} for axis in AXES if (settings := _settings(axis, truth)) is not None
    }
    maps = {name: Corrupted(*made) for name, made in usable.items()}
    run = evaluate(truth.model(), truth.samples(samples, seed), maps, asked, seed=seed, show_progress=False)
    for cube in arrange(run.table(), run.manifest):
        axis = next(axis for axis in AXES if axis.name == cube.evaluation)
        for measure in axis.measures:
            if measure.name in cube.values and measure.role in ("headline", "component"):
                turned = (measure.sign or 1) * _by_sample(sample_scores(cube.counted(), measure.name, "best"))
                scored = dict(zip(cube.explainers, turned, strict=True))
                about = {"axis": axis.name, "measure": measure.name, "better": measure.better, "truth": truth.name}
                yield pd.DataFrame({**about, **scored})


def _settings(axis: Axis, truth: Truth) -> dict[str, object] | None:
    """How an axis is tried on such a model: by the first of its tags that the axis knows; None where by none."""
    return next((dict(axis.trial[tag]) for tag in truth.tags if tag in axis.trial), None) if axis.evaluation else None


def _by_sample(scores: Array) -> Array:
    """(E, C, N) to the mean over conditions, (E, N)."""
    return mean_of_finite(scores.transpose(0, 2, 1))


def _minor(here: pd.DataFrame) -> dict[str, float]:
    """How often a minor change of the map moves the score much less than a map without merit does."""
    near, far = (here[RIGHT] - here[MINOR]).abs(), (here[RIGHT] - here[RANDOM]).abs()
    both = near.notna() & far.notna() & (far > SMALLEST)
    kept = int((near[both] < 0.5 * far[both]).sum())
    low, high = exact_share(kept, int(both.sum())) if both.any() else (np.nan, np.nan)
    share = kept / both.sum() if both.any() else np.nan
    scored = here[CONSTANT].notna().mean() if CONSTANT in here else 0.0
    return {"resilience": share, "resilience_low": low, "resilience_high": high, "constant": float(scored)}


def needed(share: float, most: int = 1000) -> int:
    """How many samples a one-sided sign test at 5 % takes to see a preference of this share with 80 % power; 0: never.

    >>> needed(1.0), needed(0.8), needed(0.5)
    (5, 18, 0)
    """
    n = np.arange(1, most + 1)
    reached = stats.binom.isf(LEVEL, n, 0.5)
    enough = n[stats.binom.sf(reached, n, share) >= POWER]
    return int(enough[0]) if share > 0.5 and len(enough) else 0
