"""The pictures of the atlas, drawn with the bench's own pencil: matrix, frontier, spread and the strip of claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from claims import DOES_NOT, HOLDS, Judged
from reading import CONTROLS, SIGNS, Tables, averaged, base
from spread import Split

from holdfast.axes import BY_NAME
from holdfast.drawing.methods import TITLES, colour_of
from holdfast.drawing.plots import Mark, Scale, cells, dots, of_marks
from holdfast.drawing.scatter import points
from holdfast.drawing.sheet import Box, Dot, Sheet, Stroke, Words, width_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
PURPOSES = ("stability", "faithfulness", "certificate", "symmetry", "dependence", "localisation")
ASIDE = ("redraw", "there_and_back", "convergence", "sensitivity", "symmetrised", "class")
COLOURS = {HOLDS: "m2", DOES_NOT: "m1"}


def overall(t: Tables, by: Sequence[str]) -> pd.DataFrame:
    """axis, measure, method and `by`: the mean of headline scores in their best form over conditions and settings."""
    frames = []
    for axis in PURPOSES:
        rows = t.select(axis=axis, measure=t.headline(axis), control=False, sweep=False)
        rows = rows[~rows["condition"].isin(ASIDE) & rows["best"].notna()]
        if len(rows):
            each = averaged(rows, ("axis", "measure", "base", "network", *by), "best")
            frames.append(averaged(each, ("axis", "measure", "base", *by), "value"))
    columns = ["axis", "measure", "base", *by, "value", "low", "high"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def titled(t: Tables, axis: str) -> str:
    """An axis with the title of its headline."""
    known = BY_NAME[axis].measure(t.headline(axis))
    return f"{BY_NAME[axis].title}: {known.title if known else t.headline(axis)}"


def matrix(t: Tables) -> Sheet | None:
    """Methods by networks, a block for every axis; networks that differ in their seed are one column."""
    scores = overall(t, ("data", "architecture", "variant"))
    if scores.empty:
        return None
    plain = scores["variant"].fillna("plain").astype(str)
    names = scores["data"].astype(str) + " " + scores["architecture"].astype(str)
    scores["column"] = names.where(plain == "plain", names + " " + plain)
    columns, axes = list(dict.fromkeys(scores["column"])), list(dict.fromkeys(scores["axis"]))
    methods = sorted(scores["base"].unique(), key=lambda m: [*TITLES].index(m) if m in TITLES else 99)
    held = {(r.axis, r.base, r.column): r for r in scores.itertuples()}
    drawn = Sheet(0, 0)
    for axis in axes:
        values: list[list[Mark | None]] = []
        for method in methods:
            found = [held.get((axis, method, column)) for column in columns]
            values.append([Mark(method, r.value, r.low, r.high) if r else None for r in found])
        block = cells([TITLES.get(m, m) for m in methods], columns, values).sheet
        drawn.add(Words(0, drawn.height + 16, titled(t, axis), "ink", bold=True))
        drawn.place(Sheet(0, 0, [({}, block.pieces)]), 0, drawn.height + 22)  # without what a report's page would read
        drawn.width, drawn.height = max(drawn.width, block.width), drawn.height + 30 + block.height
    return drawn


def frontier(t: Tables, one: str = "stability", other: str = "faithfulness") -> Sheet | None:
    """Methods by two axes on networks of images, with the line of those that none is better than in both."""
    scores = overall(t, ("modality",))
    scores = scores[scores["modality"] == "image"]
    sides = [scores[scores["axis"] == axis].set_index("base") for axis in (one, other)]
    both = [m for m in sides[0].index if m in sides[1].index]
    if len(both) < 2:
        return None
    signs = [SIGNS[axis, t.headline(axis)] for axis in (one, other)]
    marks = []
    for method in both:
        a, b = (side.loc[method] for side in sides)
        marks.append(Mark(TITLES.get(method, method), b["value"], b["low"], b["high"], colour_of(method),
                          x=a["value"], x_low=a["low"], x_high=a["high"]))  # fmt: skip

    def better(m: Mark, than: Mark) -> bool:
        return signs[0] * (m.x - than.x) > 0 and signs[1] * (m.value - than.value) > 0

    best = sorted((m for m in marks if not any(better(o, m) for o in marks)), key=lambda m: m.x)
    across = of_marks([Mark(m.name, m.x, m.x_low, m.x_high) for m in marks])
    steps = [(m.x, m.value) for m in best]
    labels = [titled(t, axis) for axis in (one, other)]
    plot = points(
        "", marks, across, of_marks(marks), labels[0], labels[1], steps=steps, named=True, width=620, height=330
    )
    return plot.sheet


def spread(found: Split | None) -> Sheet | None:
    """Shares of the variance with their intervals."""
    if found is None:
        return None
    marks = [Mark(r.factor, r.value, r.low, r.high, "m0") for r in found.table().itertuples()]
    return dots(
        "", marks, (0, max(1.0, *(m.high for m in marks))), "share of the variance", percent=True, width=520
    ).sheet


def strip(judged: Sequence[Judged]) -> Sheet | None:
    """A row for every claim with a published number: that number as a ring, ours as dots with their intervals.

    Each row has a scale of its own, from the least to the largest of its numbers, which stand at its ends.
    """
    rows = [j for j in judged if math.isfinite(j.found.published) and j.found.parts]
    if not rows:
        return None
    name, left, right, tall = 330.0, 392.0, 690.0, 26.0
    sheet = Sheet(right + 62, 30 + tall * len(rows))
    sheet.add(Words(0, 14, "ring: published; dots and bands: found (green: holds, orange: does not)", "third"))
    for i, j in enumerate(rows):
        y = 30 + tall * (i + 0.5)
        ends = [v for p in j.found.parts for v in (p.value, p.low, p.high) if math.isfinite(v)] + [j.found.published]
        low, high = min(ends), max(ends)
        scale = Scale(low, high if high > low else low + 1, left, right)
        text = j.claim.text if width_of(j.claim.text) < name else j.claim.text[: int(name / width_of("a")) - 1] + "…"
        sheet.add(Words(0, y + 4, text, "soft"), Stroke([(left, y), (right, y)], "grid"))
        sheet.add(Words(left - 8, y + 4, _end(low), "third", "end", 11))
        sheet.add(Words(right + 8, y + 4, _end(high), "third", "start", 11))
        colour = COLOURS.get(j.verdict, "soft")
        for p in j.found.parts:
            if p.low < p.high:
                sheet.add(Box(scale(p.low), y - 4, max(scale(p.high) - scale(p.low), 1), 8, colour, 0.28))
            sheet.add(Dot(scale(p.value), y, 3.6, colour))
        sheet.add(Dot(scale(j.found.published), y, 5.6, "ink", "hollow"))
        for p in j.found.parts:
            if abs(scale(p.value) - scale(j.found.published)) < 6:
                sheet.add(Dot(scale(p.value), y, 2, colour))
    return sheet


def _end(value: float) -> str:
    return (f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}").replace("-", "−")


def unbeaten(t: Tables) -> pd.DataFrame:
    """Per axis and method of images: on how many networks it was asked, beats another, and is beaten by one.

    By the paired tests of the bench (Holm within a network, 5 %), without controls and measures without a direction.
    """
    rows = t.pairs[~t.pairs["sweep"]].merge(t.networks[["network", "modality"]], on="network")
    rows = rows[rows["modality"] == "image"]
    asked: dict[tuple[str, str], set[str]] = {}
    for side in ("first_base", "second_base"):
        for axis, name, network in rows[["axis", side, "network"]].drop_duplicates().itertuples(index=False):
            asked.setdefault((axis, name), set()).add(network)
    rows = rows[rows["p"] < 0.05]
    led = [r.measure == t.headline(r.axis) and SIGNS.get((r.axis, r.measure), 0) != 0 for r in rows.itertuples()]
    rows = rows[np.array(led, dtype=bool)]
    counts: dict[tuple[str, str], list[set[str]]] = {}
    for r in rows.itertuples():
        ahead = SIGNS[r.axis, r.measure] * r.difference > 0
        winner, loser = map(base, (r.first, r.second) if ahead else (r.second, r.first))
        if not {winner, loser} & set(CONTROLS):
            counts.setdefault((r.axis, winner), [set(), set()])[0].add(r.network)
            counts.setdefault((r.axis, loser), [set(), set()])[1].add(r.network)
    found = [(*key, len(asked[key]), len(won), len(lost)) for key, (won, lost) in counts.items()]
    return pd.DataFrame(found, columns=["axis", "explainer", "asked", "won", "lost"])
