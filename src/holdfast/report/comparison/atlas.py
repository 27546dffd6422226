"""`compare RUN atlas`: a run beside the networks of the atlas, where both were measured alike.

`atlas.parquet`, written by `studies/atlas/page.py`, has a row per network and headline score: `KEY`, `network`, `data`,
`n`, `score`, `low` and `high`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from holdfast.axes import axis_of
from holdfast.drawing.prose import listing, number, records, with_interval
from holdfast.errors import UserError
from holdfast.runs.differences import parameters_of
from holdfast.statistics import with_best

if TYPE_CHECKING:
    from holdfast.runs.run import Run

TABLE = Path(__file__).with_name("atlas.parquet")
KEY = ["modality", "axis", "settings", "measure", "condition", "level", "explainer"]
"""What has to agree: `settings` are the parameters of the evaluation but those whose entries are the conditions."""


def headline_scores(run: Run) -> pd.DataFrame:
    """The headline scores of a run in their best form (`score`, `low`, `high`), with `KEY`."""
    study, rows = run.manifest["study"], with_best(run.summary())
    axes = {name: axis_of(name, run.manifest) for name in study["evaluations"]}
    rows = rows[[r.measure in axes[r.evaluation].of_role("headline") for r in records(rows)]]
    asked = {name: parameters_of(entry) for name, entry in study["evaluations"].items()}
    alike = {e: json.dumps({k: v for k, v in asked[e].items() if k != axes[e].separable}, sort_keys=True) for e in axes}
    tasks, best = study.get("tasks") or {}, {"score": "best", "low": "best_low", "high": "best_high"}
    kinds = [tasks.get(r.dataset, {}).get(r.model, {}).get("modality", "") for r in records(rows)]
    named = {"modality": kinds, "settings": rows["evaluation"].map(alike), "level": rows["level"].round(6)}
    return rows.assign(
        axis=[axes[e].name for e in rows["evaluation"]], **named, **{k: rows[v] for k, v in best.items()}
    )


def beside_atlas(run: Run, atlas: pd.DataFrame | None = None) -> pd.DataFrame:
    """The headline scores of a run with how many `networks` of the atlas were measured alike, and where they lie.

    `lowest` and `highest` are their scores; the run is `above` or `below` a network where the two intervals, each over
    its own samples, have no value in common. `otherwise`: the atlas has this condition under other settings only.
    """
    if atlas is None:
        if not TABLE.exists():
            raise UserError("the atlas was not run yet for this version of holdfast: it comes without its table")
        atlas = pd.read_parquet(TABLE)
    own, loose = headline_scores(run).reset_index(drop=True), [name for name in KEY if name != "settings"]
    both = own.reset_index(names="row").merge(atlas, on=KEY, suffixes=("", "_there"))
    both = both.assign(above=both["low"] > both["high_there"], below=both["high"] < both["low_there"])
    found = both.groupby("row").agg(
        networks=("network", "nunique"), above=("above", "sum"), below=("below", "sum"),
        lowest=("score_there", "min"), highest=("score_there", "max"),
    ).reindex(own.index)  # fmt: skip
    counts = ["networks", "above", "below"]
    found[counts] = found[counts].fillna(0).astype(int)
    known = pd.MultiIndex.from_frame(atlas[loose])
    return own.join(found).assign(otherwise=pd.MultiIndex.from_frame(own[loose]).isin(known) & (found["networks"] == 0))


def atlas_text(run: Run, atlas: pd.DataFrame | None = None) -> str:
    """`beside_atlas` for a terminal: the scores that have company, then the conditions that the atlas lacks."""
    rows, cells = beside_atlas(run, atlas), [("evaluation", "condition", "explainer", "yours", "atlas", "networks")]
    for r in records(rows[rows["networks"] > 0]):
        place = f"above {r.above}, below {r.below}, not told from {r.networks - r.above - r.below}"
        title = axis_of(r.evaluation, run.manifest).condition(r.condition, r.level)
        there = f"{number(r.lowest)} to {number(r.highest)}"
        cells.append((r.evaluation, title, r.explainer, with_interval(r.score, r.low, r.high), there, place))
    widths = [max(len(row[i]) for row in cells) for i in range(6)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells] if len(cells) > 1 else []
    for other, how in ((True, "only with other settings"), (False, "not")):
        for key, part in rows[(rows["networks"] == 0) & (rows["otherwise"] == other)].groupby(
            ["evaluation", "condition"]
        ):
            lines.append(f"{how} in the atlas: {key[0]}, {key[1]}, {listing(dict.fromkeys(part['explainer']))}")
    note = "95 % intervals over the samples of each; above and below: they do not touch; data and networks differ."
    return "\n".join([*lines, note])
