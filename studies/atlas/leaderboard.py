"""The leaderboard of the atlas: scores and the ranks that tests leave open, axis by axis and data set by data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from figures import DATA, PURPOSES, titled
from reading import CONTROLS, Tables

from heatproof.axes import BY_NAME
from heatproof.results.names import TITLES

HEAD = Path(__file__).with_name("leaderboard.md")


def table(part: pd.DataFrame) -> Iterator[str]:
    """One board as markdown: methods by networks."""
    part = part.assign(
        control=part["base"].isin(CONTROLS), place=part["rank"].astype(float).fillna(10_000)
    )
    columns = list(dict.fromkeys(part["column"]))
    yield f"| method | {' | '.join(columns)} |"
    yield f"|---|{'---|' * len(columns)}"
    order = (
        part.groupby("base")[["control", "place"]]
        .mean()
        .sort_values(["control", "place"], kind="stable")
    )
    for method in order.index:
        own = part[part["base"] == method].drop_duplicates("column").set_index("column")
        cells = [_cell(own.loc[column]) if column in own.index else "" for column in columns]
        yield f"| {TITLES.get(method, method)} | {' | '.join(cells)} |"


def _cell(row: pd.Series) -> str:
    score = f"{row['score']:.2f}".replace("-", "−") if pd.notna(row["score"]) else "–"
    if pd.isna(row["rank_low"]):
        return score
    low, high = int(row["rank_low"]), int(row["rank_high"])
    ranks = f"{low}" if low == high else f"{low}–{high}"
    return f"{f'**{score}**' if low == 1 else score} <small>{ranks}</small>"


def page(t: Tables) -> str:
    """The whole page; an axis is a section, a data set a board that opens."""
    about = t.networks[["network", "data", "seed"]]
    rows = t.ranking.merge(about, on="network", how="inner")
    rows = rows[(rows["seed"].fillna(0) == 0) & ~rows["run"].astype(str).str.endswith(".sweeps")]
    lines = [HEAD.read_text(encoding="utf-8")]
    for axis in PURPOSES:
        held = rows[(rows["axis"] == axis) & (rows["measure"] == t.headline(axis))]
        if held.empty:
            continue
        lines += [f"## {titled(t, axis)}", "", BY_NAME[axis].question.capitalize(), ""]
        for data, part in held.groupby("data", sort=False):
            short = part["network"].str.removeprefix(f"{data}-").str.removesuffix("-s0")
            shown = part.assign(column=short)
            samples = sorted({int(n) for n in part["samples"].dropna()})
            n = f"{samples[0]} to {samples[-1]}" if len(samples) > 1 else f"{samples[0]}"
            title = f"{DATA.get(str(data), data)}: {shown['column'].nunique()} networks, {n} samples each"
            lines += [f'??? note "{title}"', "", *(f"    {line}" for line in table(shown)), ""]
    return "\n".join(lines).rstrip() + "\n"
