"""Advice about a run as a whole: a model that was never trained, and samples too few to tell methods apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.axes.stability.words import Findings
from holdfast.drawing.prose import above, difference, listing, with_interval
from holdfast.report.advice_contract import Advice
from holdfast.report.cautions import FEW_SAMPLES, untrained_head

PILOT = 100
"""The samples from which on the intervals of means are usually narrow enough to rank a handful of methods."""
FAR = 50  # times as many samples are not worth naming


def run_advice(model: str, samples: int, found: Sequence[Findings], manifest: Mapping[str, Any]) -> Iterator[Advice]:
    """The findings of one dataset and model, in no particular order."""
    head = untrained_head(model, manifest)
    if head:
        yield Advice(
            "run",
            "act",
            "The model looks untrained",
            f"{head[0].upper()}{head[1:]}.",
            "The last layer answers at random, so every explanation explains noise.",
            "Load the trained weights, or train the head, and run again into a new directory.",
        )
    if samples < FEW_SAMPLES:
        plural = "s" if samples != 1 else ""
        tied = next(filter(None, map(_tie, found)), "")
        yield Advice(
            "run",
            "mind",
            "Few samples",
            f"{samples} sample{plural} {'were' if plural else 'was'} tested.{f' {tied}' if tied else ''}",
            "Intervals from so few samples are rough and may be too narrow, and methods that look equal may not be.",
            f"Take this run as a trial. Test at least {PILOT} samples before you choose a method: a larger limit, or a "
            "folder with more data; four times as many halve the intervals.",
        )
    else:
        for text in filter(None, map(_tie, found)):
            yield Advice(
                "run",
                "note",
                "The best methods are not separated",
                text,
                "With these data the first places could be exchanged.",
                "Choose among them by cost or by another axis, or test more samples.",
            )


def _tie(found: Findings) -> str:
    """That the two best methods are not told apart, and how many samples it might take; empty where they are."""
    ranked = found.ranking[found.ranking["score"].notna() & ~found.ranking["control"].astype(bool)]["explainer"]
    best = list(ranked[:2])
    gap = difference(found.tests, *best) if len(best) == 2 else None
    if gap is None or above(found.tests, *best) or not math.isfinite(gap["low"]):
        return ""
    said = f"{listing(best)}, the most stable, differ by {with_interval(gap['difference'], gap['low'], gap['high'])}"
    half = (gap["high"] - gap["low"]) / 2
    times = (half / gap["difference"]) ** 2 if gap["difference"] > 0 else math.inf
    n = math.ceil(times * gap["n"] / 10) * 10 if times < FAR else 0
    if n <= PILOT:
        return f"{said}."
    return f"{said}; if the difference is as large as that, it takes at least about {n} samples to show it."
