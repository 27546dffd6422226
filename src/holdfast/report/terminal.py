"""The verdict of every axis and the ranking as text for a terminal, with styles where it has colours."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import pandas as pd

from holdfast.axes.stability.words import Findings, cautions, findings, verdict
from holdfast.drawing.prose import number, records, with_interval
from holdfast.report.axes import axis_sections, base_model, related_rows
from holdfast.statistics.cubes import arrange

WIDTH = 110
NOTHING = "Nothing can be concluded: the table has no scores."
Line = tuple[str, str]
"""A line of text and its style for rich."""


def text_summary(table: pd.DataFrame, samples: pd.DataFrame, manifest: dict[str, Any], width: int = WIDTH) -> str:
    """For every dataset and model: what holds under perturbation, with the ranking, and what the other axes found.

    >>> samples = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    >>> text_summary(pd.DataFrame(), samples, {})
    'Nothing can be concluded: the table has no scores.'
    """
    return "\n".join(line for line, _ in styled_summary(table, samples, manifest, width))


def styled_summary(
    table: pd.DataFrame, samples: pd.DataFrame, manifest: dict[str, Any], width: int = WIDTH
) -> list[Line]:
    """The lines of `text_summary`, each with its style; none is longer than `width` but for words that are."""
    cubes = arrange(table)
    stable = {(found.dataset, found.model): found for found in findings(cubes)}
    others = [cube for cube in cubes if "fass" not in cube.values]
    lines: list[Line] = []
    for dataset, model in dict.fromkeys([*stable, *((c.dataset, base_model(c)) for c in others)]):
        found = stable.get((dataset, model))
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        read = int((own["error"].fillna("") == "").sum()) if len(own) else 0
        lines += [("", "")] if lines else []
        lines.append((f"{model} on {dataset}" + (f", {read} samples" if read else ""), "bold"))
        if found is not None:
            lines += [("", ""), *_stability(found, samples, manifest, related_rows(table, dataset, model), width)]
        for section in axis_sections("", (dataset, model), others, table, samples, (), manifest, draw=False):
            if section.lead:
                lines += [("", ""), (f"  {section.title}", "bold cyan")]
                lines += [line for sentence in section.lead for line in _wrapped(sentence, width)]
    return lines or [(NOTHING, "yellow")]


def _stability(
    found: Findings, samples: pd.DataFrame, manifest: dict[str, Any], related: pd.DataFrame, width: int
) -> list[Line]:
    lines = [
        ("  Stability", "bold cyan"),
        *(line for text in verdict(found) for line in _wrapped(text, width)),
        ("", ""),
    ]
    head = ("rank", "explainer", "calibrated" if found.calibrated else "score", "raw", "")
    rows = [(head, "bold")]
    for r in records(found.ranking):
        rank = "–" if math.isnan(r.rank) else f"{r.rank:.0f}"
        if math.isfinite(r.rank_low) and r.rank_low != r.rank_high:
            rank += f" ({r.rank_low:.0f}–{r.rank_high:.0f})"
        score = with_interval(r.score, r.low, r.high)
        style = "dim" if r.control else "green" if r.rank_low == 1 else ""
        rows.append(((rank, r.explainer, score, number(r.raw), "control" if r.control else ""), style))
    widths = [max(len(row[i]) for row, _ in rows) for i in range(5)]
    widths[1] = max(12, min(widths[1], width - 4 - 8 - (sum(widths) - widths[1])))
    for row, style in rows:
        cut = [shortened(text, most) for text, most in zip(row, widths, strict=True)]
        lines.append(("    " + "  ".join(map(str.ljust, cut, widths)).rstrip(), style))
    warned = [c for c in cautions(found, samples, manifest, related) if c.title != "Stability is not faithfulness"]
    if warned:
        text = "Mind: " + "; ".join(c.title[0].lower() + c.title[1:] for c in warned) + "."
        lines += [("", ""), *_wrapped(text, width, "yellow")]
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
    folded = textwrap.wrap(sentence, room, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
    return [(line, style) for line in folded]
