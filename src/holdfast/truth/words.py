"""What `validate` found in sentences and as a page of Markdown, both made of its numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from holdfast.axes import AXES
from holdfast.drawing.prose import listing, number, records, with_interval
from holdfast.truth.corruptions import RANDOM
from holdfast.truth.models import truths

SIGNS = {"prefers": "", "blind": "?", "misled": "!", "": ""}
WAYS = {"higher": "↑", "lower": "↓", "neither": "–"}
HEAD = """# Which measure can be trusted for what

Written by `holdfast validate{how} --markdown docs/validation.md`: every measure of every axis on models whose right
map is known, {n} samples of each ({models}). The right map competes with maps that are less true. A number is the
share of samples on which the right map scores better; by its Clopper–Pearson interval (95 %) the measure *prefers* the
right map (plain), is *blind* (`?`) or *misled* (`!`); pairs without a score of both are left out. Noise is in root
mean squares of the map, and *0.3 over 3* asks for less of it; shuffled maps keep an order that belongs to the sample.
The last columns are MetaQuantus' two tests in our form: the share of samples on which minor noise (0.05) moves the
score less than half as far as a random map does (*resilient*), and on which the score of a random map is worse
(*reactive*). Models are small, and the corruptions ours: a measure that fails here fails where the truth is known; one
that passes has passed these tests and no others.
"""


def sentences(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """(axis.measure, what it can be trusted for) of every measure, from its rows of `validate`."""
    for (axis, measure), rows in table.groupby(["axis", "measure"], sort=False):
        first, names = records(rows)[0], {v: listing(rows.loc[rows["verdict"] == v, "corruption"]) for v in SIGNS}
        most, minor = rows.loc[rows["verdict"] == "prefers", "needed"].max(), first.resilience
        ways = ("prefers the right map to", "is blind to", "is misled by")
        if first.better == "neither":
            ways = ("scores the right map higher than", "does not tell it from", "scores it lower than")
        said = [f"{way} {names[v]}" for way, v in zip(ways, SIGNS, strict=False) if names[v]]
        text = f"{'No direction is better; it' if first.better == 'neither' else 'It'} {', '.join(said)}."
        text += f" {most} samples show each preference four times out of five." if names["prefers"] else ""
        ends = with_interval(minor, first.resilience_low, first.resilience_high)
        text += f" Resilience is {ends}." if minor >= 0 else ""
        yield f"{axis}.{measure}", text + (" It scores constant maps, which say nothing." if first.constant else "")


def markdown(table: pd.DataFrame, samples: int, how: str = "") -> str:
    """The page: a table with a row for each measure, a sentence for each, and what was not tried."""
    shown = [*dict.fromkeys(table["corruption"])]
    models = "; ".join(f"*{truth.name}*: {truth.text}" for truth in truths())
    columns = ["axis", "measure", "", *shown, "resilient", "reactive"]
    lines = [HEAD.format(how=how, models=models, n=samples), f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for (axis, measure), rows in table.groupby(["axis", "measure"], sort=False):
        cells = {r.corruption: r for r in records(rows)}
        shares = [f"{number(cells[c].share)}{SIGNS[cells[c].verdict]}" for c in shown]
        ends = [number(cells[RANDOM].resilience), number(cells[RANDOM].share)]
        lines.append(f"| {axis} | `{measure}` | {WAYS[cells[RANDOM].better]} | {' | '.join([*shares, *ends])} |")
    lines += ["", "## Measure by measure", "", *(f"- `{name}`: {text}" for name, text in sentences(table))]
    tried = set(zip(table["axis"], table["measure"], strict=True))
    every = [(axis.name, m.name) for axis in AXES for m in axis.measures if m.role in ("headline", "component")]
    left = listing(f"`{axis}.{name}`" for axis, name in every if (axis, name) not in tried)
    return "\n".join(
        [*lines, "", f"Not tried, for want of another mode, retraining or kind of explanation: {left}.", ""]
    )
