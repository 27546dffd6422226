"""A run beside the networks of the atlas: the headline scores of both, where they were measured alike.

python studies/atlas/beside.py RUN
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from reading import HEADLINES, TABLES, Tables, load

from heatproof.axes import axis_of
from heatproof.results.score_estimates import calibrated_if_possible
from heatproof.runs.run import Run, read
from heatproof.text import listing, number, records, with_interval

KEY = ["modality", "axis", "settings", "measure", "condition", "level", "explainer"]
"""What has to agree; `settings` are the parameters of the evaluation but the one whose entries are the conditions."""
NOTE = "95 % intervals, each over its own samples; above and below: without a common value. Other data, other nets."


def headline_scores(run: Run) -> pd.DataFrame:
    """The headline scores of a run in their best form (`score`, `low`, `high`), with `KEY`."""
    study, rows = run.manifest.study, calibrated_if_possible(run.summary())
    axes = {name: axis_of(name, run.manifest) for name in study.evaluations}
    rows = rows[[r.measure in axes[r.evaluation].of_role("headline") for r in records(rows)]]
    rows = rows.assign(
        low=rows["score_low"],
        high=rows["score_high"],
        level=rows["level"].round(6),
    )
    named = [axes[e].name for e in rows["evaluation"]]
    settings = []
    for row in records(rows):
        entry = study.evaluation(row.evaluation, row.dataset, row.model).settings
        entry.pop(axes[row.evaluation].separable, None)
        settings.append(json.dumps(entry, sort_keys=True))
    kinds = [study.task(r.dataset, r.model).modality or "image" for r in records(rows)]
    return rows.assign(modality=kinds, axis=named, settings=settings).reset_index(drop=True)


def atlas_scores(tables: Tables) -> pd.DataFrame:
    """The headline scores of the atlas's networks in their best form, with `KEY`."""
    cells = tables.cells
    pairs = zip(cells["axis"], cells["measure"], strict=True)
    is_headline = np.array([m in HEADLINES.get(a, ()) for a, m in pairs], dtype=bool)
    cells = cells[is_headline]
    cells = cells[cells["settings"].notna() & cells["best"].notna()]
    named = {"severity": "level", "best": "score", "best_low": "low", "best_high": "high"}
    rows = cells.drop(columns=["low", "high"]).rename(columns=named)
    rows = rows.assign(level=rows["level"].astype(float).round(6))
    columns = [*KEY, "network", "data", "n", "score", "low", "high"]
    return rows[columns].sort_values([*KEY, "network"]).reset_index(drop=True)


def beside_atlas(run: Run | str | Path, atlas: pd.DataFrame) -> pd.DataFrame:
    """The headline scores of a run with how many `networks` of the atlas were measured alike, and where they lie.

    `least` and `most` are their scores; the run is `above` or `below` a network where their intervals, each over its
    own samples, have no value in common, to the four decimals of the table.
    """
    own = headline_scores(read(run))
    both = own.reset_index(names="row").merge(atlas, on=KEY, suffixes=("", "_there"))
    both = both.assign(
        above=both["low"] - both["high_there"] > 1e-4, below=both["low_there"] - both["high"] > 1e-4
    )
    asked = {
        "networks": ("network", "nunique"),
        "above": ("above", "sum"),
        "below": ("below", "sum"),
    }
    asked |= {"least": ("score_there", "min"), "most": ("score_there", "max")}
    found = own.join(both.groupby("row").agg(**asked))
    return found.assign(
        **{name: found[name].fillna(0).astype(int) for name in ("networks", "above", "below")}
    )


def atlas_text(path: Run | str | Path, atlas: pd.DataFrame) -> str:
    """`beside_atlas` for a terminal: the scores that have company, then the conditions that the atlas lacks."""
    run, rows, lines = read(path), beside_atlas(path, atlas), []
    named = [
        axis_of(r.evaluation, run.manifest).condition(r.condition, r.level) for r in records(rows)
    ]
    shown = rows.assign(
        condition=named, atlas=[f"{number(r.least)} to {number(r.most)}" for r in records(rows)]
    )
    shown["yours"] = [with_interval(r.score, r.low, r.high) for r in records(rows)]
    columns = [
        "evaluation",
        "condition",
        "explainer",
        "yours",
        "atlas",
        "networks",
        "above",
        "below",
    ]
    lines += (
        [shown.loc[rows["networks"] > 0, columns].to_string(index=False)]
        if rows["networks"].any()
        else []
    )
    for (evaluation, condition), part in shown[rows["networks"] == 0].groupby(
        columns[:2], sort=False
    ):
        who = listing(part["explainer"].unique())
        lines.append(f"not measured alike in the atlas: {evaluation}, {condition}: {who}")
    return "\n".join([*lines, NOTE])


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("run", type=Path)
    ask.add_argument("--tables", type=Path, default=TABLES)
    options = ask.parse_args()
    print(atlas_text(options.run, atlas_scores(load(options.tables))))


if __name__ == "__main__":
    main()
