"""The verdict of every axis and the ranking as plain text for a terminal."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import pandas as pd

from holdfast.cubes import arrange
from holdfast.report.axes import axis_sections, base_model
from holdfast.report.verdict import Findings, cautions, findings, number, records, verdict, with_interval

WIDTH = 110


def text_summary(table: pd.DataFrame, samples: pd.DataFrame, manifest: dict[str, Any]) -> str:
    """For every dataset and model: what holds under perturbation, with the ranking, and what the other axes found.

    >>> samples = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    >>> text_summary(pd.DataFrame(), samples, {})
    'Nothing can be concluded: the table has no scores.'
    """
    cubes = arrange(table)
    stable = {(found.dataset, found.model): found for found in findings(cubes)}
    others = [cube for cube in cubes if "fass" not in cube.values]
    blocks = []
    for dataset, model in dict.fromkeys([*stable, *((c.dataset, base_model(c)) for c in others)]):
        found = stable.get((dataset, model))
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        read = int((own["error"].fillna("") == "").sum()) if len(own) else 0
        lines = [f"{model} on {dataset}" + (f", {read} samples" if read else "")]
        if found is not None:
            lines += ["", *_stability(found, samples, manifest)]
        for section in axis_sections("", (dataset, model), others, table, samples, (), manifest, draw=False):
            if section.lead:
                lines += ["", f"  {section.title}", *(_wrapped(sentence) for sentence in section.lead)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) or "Nothing can be concluded: the table has no scores."


def _stability(found: Findings, samples: pd.DataFrame, manifest: dict[str, Any]) -> list[str]:
    lines = ["  Stability", *(_wrapped(sentence) for sentence in verdict(found)), ""]
    rows = [("rank", "explainer", "calibrated" if found.calibrated else "score", "raw", "")]
    for r in records(found.ranking):
        rank = "–" if math.isnan(r.rank) else f"{r.rank:.0f}"
        if math.isfinite(r.rank_low) and r.rank_low != r.rank_high:
            rank += f" ({r.rank_low:.0f}–{r.rank_high:.0f})"
        score = with_interval(r.score, r.low, r.high)
        rows.append((rank, r.explainer, score, number(r.raw), "control" if r.control else ""))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines += ["    " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    warned = [c for c in cautions(found, samples, manifest) if c.title != "Stability is not faithfulness"]
    if warned:
        lines += ["", _wrapped("Mind: " + "; ".join(c.title[0].lower() + c.title[1:] for c in warned) + ".")]
    return lines


def _wrapped(sentence: str) -> str:
    return textwrap.fill(sentence, WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
