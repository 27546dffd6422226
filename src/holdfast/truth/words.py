"""What `validate` found in sentences and as a page of Markdown, both made of its numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from holdfast.axes import AXES
from holdfast.drawing.prose import listing, number, records, with_interval
from holdfast.truth.corruptions import RANDOM
from holdfast.truth.models import truths

SIGNS = {"prefers": "", "blind": "?", "misled": "!", "": ""}
HEAD = """# Which measure can be trusted for what

Written by `holdfast validate{how} --markdown docs/validation.md`: every measure of every axis on models whose right map
is known ({models}), {n} samples of each, drawn anew by a key. Each right map competes with maps that are less true. A
number is the share of samples on which the right map scores better (Clopper–Pearson intervals, 95 %, decide): plain
where the measure *prefers* the right map, `?` where it is *blind*, for more than half of the samples are not shown to prefer
either, `!` where it is *misled*. Noise is given in root mean squares of the map; shuffled values keep an order that
belongs to the sample. The last columns are the two tests of MetaQuantus in our form: *resilient* is the share of
samples on which a minor change (noise 0.05) moves the score less than half as far as a random map does, *reactive* the share on
which the score of a random map is worse. The models are small and the corruptions ours: a measure that fails here
fails where the truth is known; one that passes has passed these tests, no others.
"""


def sentence(rows: pd.DataFrame) -> str:
    """What one measure can be trusted for, from its rows of `validate`."""
    first, told = records(rows)[0], {verdict: rows[rows["verdict"] == verdict] for verdict in SIGNS}
    names = {verdict: listing(part["corruption"]) for verdict, part in told.items()}
    if first.better == "neither":
        said = [(names["prefers"], "scores the right map higher than {}"), (names["misled"], "lower than {}")]
        known = " and ".join(text.format(what) for what, text in said if what) or "tells the right map from no other"
        return f"No direction is better; it {known}."
    most = int(told["prefers"]["needed"].max()) if len(told["prefers"]) else 0
    parts = [f"prefers the right map to {names['prefers']}" if most else "prefers the right map to none"]
    parts += [f"is blind to {names['blind']}"] if names["blind"] else []
    parts += [f"is misled by {names['misled']}"] if names["misled"] else []
    minor = with_interval(first.resilience, first.resilience_low, first.resilience_high)
    samples = f" {most} samples show each of these preferences four times out of five." if most else ""
    constant = " It scores constant maps, which say nothing." if first.constant > 0 else ""
    return f"It {listing(parts)}.{samples} Resilience is {minor}.{constant}"


def sentences(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """(axis.measure, sentence) of every measure."""
    for (axis, measure), rows in table.groupby(["axis", "measure"], sort=False):
        yield f"{axis}.{measure}", sentence(rows)


def markdown(table: pd.DataFrame, samples: int, how: str = "") -> str:
    """The page: a table with a row for each measure, a sentence for each, and what was not tried."""
    corruptions = list(dict.fromkeys(table["corruption"]))
    models = "; ".join(f"*{truth.name}*: {truth.text}" for truth in truths())
    lines = [HEAD.format(how=how, models=models, n=samples)]
    columns = ["axis", "measure", "", *corruptions, "resilient", "reactive"]
    lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for (axis, measure), rows in table.groupby(["axis", "measure"], sort=False):
        first, cells = records(rows)[0], {r.corruption: r for r in records(rows)}
        way = {"higher": "↑", "lower": "↓", "neither": "–"}[first.better]
        shares = [f"{number(cells[c].share)}{SIGNS[cells[c].verdict]}" for c in corruptions]
        ends = [number(first.resilience), number(cells[RANDOM].share)]
        lines.append(f"| {axis} | `{measure}` | {way} | {' | '.join([*shares, *ends])} |")
    tried = set(zip(table["axis"], table["measure"], strict=True))
    lines += ["", "## Measure by measure", "", *(f"- `{name}`: {text}" for name, text in sentences(table))]
    every = [(a.name, m.name) for a in AXES for m in a.measures if m.role in ("headline", "component")]
    left = listing(f"`{axis}.{name}`" for axis, name in every if (axis, name) not in tried)
    last = f"Not tried, as they need another mode, retraining or explanations of another kind: {left}."
    return "\n".join([*lines, "", last, ""])
