"""The pictures of the atlas, drawn with the bench's own pencil: verdicts, matrix, frontier, spread, strip of claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from claims import DOES_NOT, HOLDS, MIXED, UNDECIDED, UNTESTABLE, VERDICTS, AxisResult
from reading import CONTROLS, SIGNS, Tables, averaged, base
from spread import Split

from heatproof.axes import BY_NAME
from heatproof.report.canvas import Box, Dot, Sheet, Stroke, Words, width_of
from heatproof.report.plots import Curve, Mark, Scale, curves, dots, of_marks, wrapped
from heatproof.report.scatter import points
from heatproof.results.names import TITLES, colour_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
PURPOSES = ("stability", "faithfulness", "certificate", "symmetry", "dependence", "localisation")
ASIDE = ("redraw", "there_and_back", "convergence", "sensitivity", "symmetrised", "class")
COLOURS = {HOLDS: "m2", DOES_NOT: "m1"}
STRENGTHS = {
    "rotation": "degrees",
    "translation": "pixels",
    "brightness": "factor",
    "gaussian_noise": "σ",
}
STRENGTHS |= {"jpeg": "quality"}
"""Perturbations of the sweeps, and what their strength is."""


def overall(t: Tables, by: Sequence[str]) -> pd.DataFrame:
    """axis, measure, method and `by`: the mean of headline scores in their best form over conditions and settings."""
    frames = []
    for axis in PURPOSES:
        rows = t.select(axis=axis, measure=t.headline(axis), control=False, sweep=False)
        rows = rows[~rows["condition"].isin(ASIDE) & rows["best"].notna()]
        if len(rows):
            each = averaged(
                rows, tuple(dict.fromkeys(("axis", "measure", "base", "network", *by))), "best"
            )
            frames.append(averaged(each, ("axis", "measure", "base", *by), "value"))
    columns = ["axis", "measure", "base", *by, "value", "low", "high"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def titled(t: Tables, axis: str) -> str:
    """An axis with the title of its headline."""
    known = BY_NAME[axis].measure(t.headline(axis))
    return f"{BY_NAME[axis].title}: {known.title if known else t.headline(axis)}"


def board(judged: Sequence[AxisResult], titles: Mapping[str, str]) -> Sheet:
    """A square for every claim, by paper and verdict; `titles` are papers by name, the empty one has the others."""
    name, step, across = 262.0, 20.0, 20
    counts = Counter(j.verdict for j in judged)
    sheet, x, y = Sheet(name + step * across, 0), 0.0, 8.0
    for verdict in (v for v in VERDICTS if counts[v]):
        text = f"{verdict} {counts[verdict]}"
        if x + 26 + width_of(text) > sheet.width:
            x, y = 0.0, y + 24
        _square(sheet, x, y, verdict)
        sheet.add(Words(x + 21, y + 12, text, "soft"))
        x += 21 + width_of(text) + 16
    y += 38
    for paper, title in titles.items():
        own = [
            j.verdict
            for j in judged
            if j.claim.paper == paper or (paper == "" and j.claim.paper not in titles)
        ]
        for k, line in enumerate(wrapped(title, name - 20)):
            sheet.add(Words(0, y + 12 + 14 * k, line, "ink"))
        for i, verdict in enumerate(sorted(own, key=VERDICTS.index)):
            _square(sheet, name + step * (i % across), y + step * (i // across), verdict)
        y += step * max(-(-len(own) // across), len(wrapped(title, name - 20)) * 0.7) + 10
    sheet.height = y
    return sheet


def _square(sheet: Sheet, x: float, y: float, verdict: str) -> None:
    """Filled where there is a verdict: both colours for mixed, grey for undecided; else empty, and crossed out."""
    if verdict == MIXED:
        sheet.add(Box(x, y, 8, 16, COLOURS[HOLDS]), Box(x + 8, y, 8, 16, COLOURS[DOES_NOT]))
    elif verdict in COLOURS or verdict == UNDECIDED:
        sheet.add(
            Box(x, y, 16, 16, COLOURS.get(verdict, "soft"), 1.0 if verdict in COLOURS else 0.45)
        )
    else:
        sheet.add(
            Stroke(
                [
                    (x + 1, y + 1),
                    (x + 15, y + 1),
                    (x + 15, y + 15),
                    (x + 1, y + 15),
                    (x + 1, y + 1),
                ],
                "strong",
            )
        )
        if verdict == UNTESTABLE:
            sheet.add(Stroke([(x + 1, y + 15), (x + 15, y + 1)], "strong"))


DATA = {"photographs": "photographs", "cifar10": "CIFAR-10", "fashion": "FashionMNIST"}
SMALL, LARGE = ("cifar10", "fashion"), ("photographs",)
"""Data whose networks were asked the same methods."""
ARCHITECTURES = {
    "convnext": "ConvNeXt",
    "densenet": "DenseNet",
    "p4resnet": "ResNet on p4",
    "resnet": "ResNet",
}
ARCHITECTURES |= {
    "vit": "ViT",
    "mobilenet_v2": "MobileNetV2",
    "squeezenet": "SqueezeNet",
    "gnn": "graphs, GNN",
}
ARCHITECTURES |= {f"efficientnet_lite{i}": f"EfficientNet-Lite{i}" for i in range(3)}
ARCHITECTURES |= {
    "deepset": "points, deep set",
    "bag": "text, bag of words",
    "transformer": "text, transformer",
}
ARCHITECTURES |= {name: f"ECG, {name}" for name in ("circular", "standard", "augmented")}


def matrix(t: Tables) -> Sheet | None:
    """Methods by networks, a block for every axis, two beside each other; networks of several seeds are one column.

    The fuller a cell, the larger its score, up to the largest of the block; one whose interval reaches 0 is a dash.
    """
    scores = overall(t, ("data", "architecture", "variant"))
    scores = scores[scores["base"].isin(list(TITLES))].reset_index(
        drop=True
    )  # without variants of other baselines
    if scores.empty:
        return None
    turned = (scores["variant"] == "augmented") & scores["data"].isin(SMALL)
    named = scores["architecture"].map(ARCHITECTURES).fillna(scores["architecture"]).astype(str)
    scores["column"] = named.where(~turned, named + ", turned")
    scores["group"] = scores["data"].map(DATA).fillna("other data")
    order = [*DATA.values(), "other data"]
    columns = sorted(
        set(zip(scores["group"], scores["column"], strict=True)),
        key=lambda c: (order.index(c[0]), c[1]),
    )
    methods = sorted(
        scores["base"].unique(), key=lambda m: [*TITLES].index(m) if m in TITLES else 99
    )
    names, wide, tall = 142.0, 14.0, 16.0
    head = 64 + 1.1 * max(
        width_of(column, 10) for _, column in columns
    )  # the letters of a PNG are wider
    sizes = Counter(group for group, _ in columns)
    lacking = {
        group: max(width_of(group, 11) - wide * count, 0) + 10 for group, count in sizes.items()
    }  # of its name
    gaps = [
        sum(lacking[a[0]] for a, b in pairwise(columns[: i + 1]) if a[0] != b[0])
        for i in range(len(columns))
    ]
    block_width = max(wide * len(columns) + gaps[-1] + lacking[columns[-1][0]] + 20, 210.0)
    block_height = head + tall * len(methods) + 26
    axes = list(dict.fromkeys(scores["axis"]))
    drawn = Sheet(names + 2 * block_width, block_height * -(-len(axes) // 2))
    held = {(r.axis, r.base, r.group, r.column): r for r in scores.itertuples()}
    for place, axis in enumerate(axes):
        left, top = names + place % 2 * block_width, place // 2 * block_height + head
        most = max(abs(r.value) for key, r in held.items() if key[0] == axis)
        drawn.add(Words(left, top - head + 14, titled(t, axis), "ink", bold=True))
        drawn.add(
            Words(left, top - head + 29, f"full: {most:.2g}; dash: may be 0", "third", size=11)
        )
        for (group, column), gap, i in zip(columns, gaps, range(len(columns)), strict=True):
            x = left + wide * i + gap
            if i == 0 or columns[i - 1][0] != group:
                drawn.add(Words(x, top - head + 46, group, "soft", size=11))
            drawn.add(Words(x + 10, top - 4, column, "third", size=10, turned=True))
            for row, method in enumerate(methods):
                y, r = top + tall * row, held.get((axis, method, group, column))
                if r is None:
                    continue
                if r.low <= 0 <= r.high:
                    drawn.add(Stroke([(x + 4, y + 8), (x + 9, y + 8)], "strong"))
                    continue
                full = 0.12 + 0.88 * abs(r.value) / most
                drawn.add(Box(x, y, wide - 1, tall - 1, "heat" if r.value > 0 else "cold", full))
        for row, method in enumerate(methods if place % 2 == 0 else ()):
            drawn.add(
                Words(
                    names - 8, top + tall * row + 12, TITLES.get(method, method), "soft", "end", 11
                )
            )
    return drawn


def asked_both(
    t: Tables, data: Sequence[str], one: str = "stability", other: str = "faithfulness"
) -> list[str]:
    """The networks of some data that were asked about two axes."""
    rows = t.select(data=tuple(data), axis=(one, other))
    axes = rows.groupby("network", sort=False, observed=True)["axis"].nunique()
    return list(axes.index[axes == 2])


def frontier(
    t: Tables, data: Sequence[str] = SMALL, one: str = "stability", other: str = "faithfulness"
) -> Sheet | None:
    """Methods by two axes on networks of some data that were asked both, with the line of those none beats in both.

    Networks that differ in their seed alone count as one. Methods that one of the networks does not have are left out:
    their means would be over other networks.
    """
    kind, networks = ("data", "architecture", "variant"), asked_both(t, data, one, other)
    scores = overall(t, ("network", *kind))
    scores = scores[scores["network"].isin(networks) & scores["axis"].isin((one, other))]
    count = scores.groupby(["axis", "base"])["network"].nunique()
    kinds = averaged(scores, ("axis", "base", *kind), "value")
    sides = [
        averaged(kinds[kinds["axis"] == axis], ("base",), "value").set_index("base")
        for axis in (one, other)
    ]
    both = [
        m for m in sides[0].index if all(count.get((a, m)) == len(networks) for a in (one, other))
    ]
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
    left, right = of_marks([Mark(m.name, m.x, m.x_low, m.x_high) for m in marks])
    across = (left - 0.1 * (right - left), right)  # room for names
    steps = [(m.x, m.value) for m in best]
    labels = [titled(t, axis) for axis in (one, other)]
    plot = points(
        "",
        marks,
        across,
        of_marks(marks),
        labels[0],
        labels[1],
        steps=steps,
        named=True,
        width=620,
        height=330,
    )
    return plot.sheet


def spread(found: Split | None) -> Sheet | None:
    """Shares of the variance with their intervals."""
    if found is None:
        return None
    marks = [Mark(r.factor, r.value, r.low, r.high, "m0") for r in found.table().itertuples()]
    return dots(
        "",
        marks,
        (0, max(1.0, *(m.high for m in marks))),
        "share of the variance",
        percent=True,
        width=520,
    ).sheet


def severity(t: Tables) -> Sheet | None:
    """Photographs under growing perturbations: predictions kept by network, and below them scores by method.

    A score is the mean over networks, in its best form; its interval is the mean of theirs, which is wide enough.
    """
    rows = t.swept[t.swept["data"].isin(LARGE) & (t.swept["measure"] == "fass")]
    if rows.empty:
        return None
    colours = {name: f"m{i}" for i, name in enumerate(sorted(rows["network"].unique()))}
    inks = dict(zip(sorted(rows["base"].unique()), ("ink", "third"), strict=False))
    conditions = [name for name in STRENGTHS if name in set(rows["condition"])]
    wide, tall, left = 240.0, 200.0, 12.0
    high = 2 * tall + 40
    drawn = Sheet(left + 3 * wide, high * 2)
    for number, condition in enumerate(conditions):
        part = rows[rows["condition"] == condition].sort_values("severity")
        held, means = part.drop_duplicates(["network", "severity"]), part[part["best"].notna()]
        means = averaged(means, ("base", "severity"), "best")
        kept = [
            Curve("", _marks(held[held["network"] == n], "retention"), colour)
            for n, colour in colours.items()
        ]
        scores = [
            Curve("", _marks(means[means["base"] == n], "value"), colour)
            for n, colour in inks.items()
        ]
        ends = of_marks([m for line in scores for m in line.marks], 0.0, 1.0)
        x, y = left + wide * (number % 3), 18 + high * (number // 3)
        drawn.add(Words(x, y - 4, condition.replace("_", " "), "ink", bold=True))
        for row, (lines, limits) in enumerate(((kept, (0.0, 1.04)), (scores, ends))):
            title = "score" if row else "predictions kept"
            plot = curves(
                "", lines, limits, STRENGTHS[condition], title, percent=not row, width=wide - 24
            )
            drawn.place(plot.sheet, x, y + tall * row)
    for row, (title, own) in enumerate(
        (("Predictions kept, by network", colours), ("Scores, by method", inks))
    ):
        x, y = left + 2 * wide, high + 34 + tall * row
        drawn.add(Words(x, y, title, "soft"))
        for i, (name, colour) in enumerate(own.items()):
            text = ARCHITECTURES.get(name, TITLES.get(name, name))
            drawn.add(
                Dot(x + 5, y + 20 + 20 * i, 4, colour), Words(x + 16, y + 24 + 20 * i, text, "soft")
            )
    return drawn


def _marks(rows: pd.DataFrame, of: str) -> list[Mark]:
    ends = ("low", "high") if of == "value" else (f"{of}_low", f"{of}_high")
    numbers = zip(rows["severity"], rows[of], rows[ends[0]], rows[ends[1]], strict=True)
    return [Mark("", float(v), float(low), float(high), x=float(x)) for x, v, low, high in numbers]


def strip(judged: Sequence[AxisResult]) -> Sheet | None:
    """A row for every claim with a published number: that number as a ring, ours as dots with their intervals.

    Each row has a scale of its own, from the least to the largest of its numbers, which stand at its ends.
    """
    rows = [j for j in judged if math.isfinite(j.found.published) and j.found.parts]
    if not rows:
        return None
    name, left, right, tall = 300.0, 352.0, 660.0, 34.0
    sheet = Sheet(right + 62, 30 + tall * len(rows))
    sheet.add(
        Words(
            0,
            14,
            "ring: published; dots and bands: found (green: holds, orange: does not)",
            "third",
        )
    )
    for i, j in enumerate(rows):
        y = 30 + tall * (i + 0.5)
        ends = [v for p in j.found.parts for v in (p.value, p.low, p.high) if math.isfinite(v)] + [
            j.found.published
        ]
        low, high = min(ends), max(ends)
        scale = Scale(low, high if high > low else low + 1, left, right)
        lines = wrapped(j.claim.text, name)
        for k, line in enumerate(lines):
            sheet.add(Words(0, y + 4 + 14 * (k - (len(lines) - 1) / 2), line, "soft"))
        sheet.add(Stroke([(left, y), (right, y)], "grid"))
        sheet.add(Words(left - 8, y + 4, _end(low), "third", "end", 11))
        sheet.add(Words(right + 8, y + 4, _end(high), "third", "start", 11))
        colour = COLOURS.get(j.verdict, "soft")
        for p in j.found.parts:
            if p.low < p.high:
                sheet.add(
                    Box(scale(p.low), y - 4, max(scale(p.high) - scale(p.low), 1), 8, colour, 0.28)
                )
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

    By the sign flips of `retest.py` where it has the axis, else by the paired tests of the runs (both corrected within a
    network, 5 %), without controls and measures without a direction.
    """
    rows = t.pairs[~t.pairs["sweep"]].merge(t.networks[["network", "modality"]], on="network")
    rows = rows[rows["modality"] == "image"]
    asked: dict[tuple[str, str], set[str]] = {}
    for side in ("first_base", "second_base"):
        for axis, name, network in (
            rows[["axis", side, "network"]].drop_duplicates().itertuples(index=False)
        ):
            asked.setdefault((axis, name), set()).add(network)
    rows = rows[rows["p"] < 0.05]
    led = [
        r.measure == t.headline(r.axis) and SIGNS.get((r.axis, r.measure), 0) != 0
        for r in rows.itertuples()
    ]
    rows = rows[np.array(led, dtype=bool) & ~rows["axis"].isin(t.ahead["axis"])]
    results = list(t.ahead[["axis", "network", "winner", "loser"]].itertuples(index=False))
    for r in rows.itertuples():
        is_ahead = SIGNS[r.axis, r.measure] * r.difference > 0
        winner, loser = (r.first, r.second) if is_ahead else (r.second, r.first)
        results.append((r.axis, r.network, winner, loser))
    counts: dict[tuple[str, str], list[set[str]]] = {}
    for axis, network, *labels in results:
        winner, loser = map(base, labels)
        if not {winner, loser} & set(CONTROLS):
            counts.setdefault((axis, winner), [set(), set()])[0].add(network)
            counts.setdefault((axis, loser), [set(), set()])[1].add(network)
    found = [(*key, len(asked[key]), len(won), len(lost)) for key, (won, lost) in counts.items()]
    return pd.DataFrame(found, columns=["axis", "explainer", "asked", "won", "lost"])
