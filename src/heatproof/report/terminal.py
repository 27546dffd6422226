"""The verdict of every axis and the ranking as text for a terminal, with styles where it has colours."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import groupby

import pandas as pd

from heatproof.axes import AxisResult, Finding
from heatproof.drawing.prose import digits_of, number, records, with_interval
from heatproof.report.findings import findings_here
from heatproof.report.sections import leads
from heatproof.runs.manifest import Manifest

WIDTH = 110
NOTHING = "Nothing can be concluded: the table has no scores."
Line = tuple[str, str]
"""A line of text and its style for rich."""


def text_summary(
    results: Sequence[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    width: int = WIDTH,
) -> str:
    """Return what each axis says of every dataset and model, and its ranking."""
    return "\n".join(line for line, _ in styled_summary(results, samples, manifest, width))


def styled_summary(
    results: Sequence[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    width: int = WIDTH,
) -> list[Line]:
    """The lines of `text_summary`, each with its style; none is longer than `width` but for words that are."""
    lines: list[Line] = []
    by_place = groupby(results, lambda result: (result.cube.dataset, result.cube.model))
    for (dataset, model), group in by_place:
        here = list(group)
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        read = int((own["error"].fillna("") == "").sum()) if len(own) else 0
        lines += [("", "")] if lines else []
        groups = f" of {here[0].groups} groups" if here[0].groups else ""
        lines.append(
            (f"{model} on {dataset}" + (f", {read} samples{groups}" if read else ""), "bold")
        )
        for result in here:
            lines += [("", ""), (f"  {result.title}", "bold cyan")]
            lines += [line for sentence in leads(result) for line in _wrapped(sentence, width)]
            lines += _ranking(result, width)
        lines += _warnings(findings_here(dataset, model, here, own, manifest), width)
    if lines and manifest.ignore:
        ignored = ", ".join(manifest.ignore)
        lines += [("", ""), *_wrapped(f"Ignored rules: {ignored}.", width)]
    return lines or [(NOTHING, "yellow")]


def _warnings(findings: Sequence[Finding], width: int) -> list[Line]:
    """The findings that are more than a note, each with the name of its rule."""
    axes: dict[tuple[str, str], list[str]] = {}
    styles: dict[tuple[str, str], str] = {}
    for finding in findings:
        if finding.severity == "note":
            continue
        key = (finding.rule, finding.title)
        axes.setdefault(key, []).append(finding.axis)
        # The most serious findings come first.
        styles.setdefault(key, "red" if finding.severity == "problem" else "yellow")
    if not axes:
        return []

    lines: list[Line] = [("", ""), ("  Warnings (heatproof rule NAME explains each)", "bold")]
    widest = max(len(rule) for rule, _ in axes)
    for (rule, title), named in axes.items():
        where = ", ".join(dict.fromkeys(filter(None, named)))
        text = f"{rule:<{widest}}  {title}" + (f" ({where})" if where else "")
        lines += _wrapped(text, width, styles[rule, title])
    return lines


def _ranking(result: AxisResult, width: int) -> list[Line]:
    """The explainers in order, by every headline of an axis."""
    lines: list[Line] = []
    for measure in result.headlines:
        ranking = result.ranking[result.ranking["measure"] == measure.name]
        form = "calibrated " if result.cube.is_calibrated(measure.name) else ""
        rows = [(("rank", "explainer", form + measure.title, "raw" if form else "", ""), "bold")]
        for r in records(ranking):
            rank = "–" if math.isnan(r.rank) else f"{r.rank:.0f}"
            if math.isfinite(r.rank_low) and r.rank_low != r.rank_high:
                rank += f" ({r.rank_low:.0f}–{r.rank_high:.0f})"
            score = with_interval(r.score, r.low, r.high, r.samples)
            style = "dim" if r.control else "green" if r.rank_low == 1 else ""
            raw = number(r.raw, digits_of(r.raw, r.raw_low, r.raw_high)) if form else ""
            note = "control" if r.control else ""
            rows.append(((rank, result.looks[r.explainer].name, score, raw, note), style))
        widths = [max(len(row[i]) for row, _ in rows) for i in range(5)]
        widths[1] = max(12, min(widths[1], width - 4 - 8 - (sum(widths) - widths[1])))
        lines.append(("", ""))
        for row, style in rows:
            cut = [shortened(text, most) for text, most in zip(row, widths, strict=True)]
            lines.append(("    " + "  ".join(map(str.ljust, cut, widths)).rstrip(), style))
    return lines


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; a cut is in the middle, for names often differ at their ends.

    >>> shortened("integrated_gradients(steps=8)", 20)
    'integrated…(steps=8)'
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def _wrapped(sentence: str, width: int, style: str = "") -> list[Line]:
    room = max(width, 40)
    folded = textwrap.wrap(
        sentence, room, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    return [(line, style) for line in folded]
