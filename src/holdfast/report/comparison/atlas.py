"""`compare RUN atlas`: a run beside the networks of the atlas that were measured alike.

`atlas.parquet`, which `studies/atlas/page.py` writes, has a row per network and headline score.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from holdfast.axes import axis_of
from holdfast.drawing.prose import listing, number, records, with_interval
from holdfast.errors import UserError
from holdfast.report.comparison.words import columned
from holdfast.runs.differences import parameters_of
from holdfast.statistics import with_best

if TYPE_CHECKING:
    from holdfast.runs.run import Run

TABLE = Path(__file__).with_name("atlas.parquet")
KEY = ["modality", "axis", "settings", "measure", "condition", "level", "explainer"]
"""What has to agree; `settings` are the parameters of the evaluation but the one whose entries are the conditions."""
NOTE = (
    "95 % intervals, each over its own samples; above and below: they have no value in common. Other data, other nets."
)


def headline_scores(run: Run) -> pd.DataFrame:
    """The headline scores of a run in their best form (`score`, `low`, `high`), with `KEY`."""
    study, rows = run.manifest["study"], with_best(run.summary())
    axes = {name: axis_of(name, run.manifest) for name in study["evaluations"]}
    asked = {name: parameters_of(entry) for name, entry in study["evaluations"].items()}
    alike = {e: json.dumps({k: asked[e][k] for k in asked[e] if k != axes[e].separable}, sort_keys=True) for e in axes}
    rows = rows[[r.measure in axes[r.evaluation].of_role("headline") for r in records(rows)]]
    rows = rows.assign(score=rows["best"], low=rows["best_low"], high=rows["best_high"], level=rows["level"].round(6))
    tasks, named = study.get("tasks") or {}, [axes[e].name for e in rows["evaluation"]]
    kinds = [tasks.get(r.dataset, {}).get(r.model, {}).get("modality", "image") for r in records(rows)]
    return rows.assign(modality=kinds, axis=named, settings=rows["evaluation"].map(alike)).reset_index(drop=True)


def beside_atlas(run: Run) -> pd.DataFrame:
    """The headline scores of a run with how many `networks` of the atlas were measured alike, and where they lie.

    `least` and `most` are their scores; the run is `above` or `below` a network where their intervals, each over its
    own samples, have no value in common. `otherwise`: the atlas has this condition with other settings only.
    """
    if not TABLE.exists():
        raise UserError("this version of holdfast comes without the atlas's table: it was not run yet")
    own, atlas = headline_scores(run), pd.read_parquet(TABLE)
    both = own.reset_index(names="row").merge(atlas, on=KEY, suffixes=("", "_there"))
    both = both.assign(above=both["low"] > both["high_there"], below=both["high"] < both["low_there"]).groupby("row")
    found = both.agg(networks=("network", "nunique"), above=("above", "sum"), below=("below", "sum"))
    found = found.reindex(own.index, fill_value=0).join(
        both.agg(least=("score_there", "min"), most=("score_there", "max"))
    )
    loose = [name for name in KEY if name != "settings"]
    known = pd.MultiIndex.from_frame(own[loose]).isin(pd.MultiIndex.from_frame(atlas[loose]))
    return own.join(found).assign(otherwise=known & (found["networks"] == 0))


def atlas_text(run: Run) -> str:
    """`beside_atlas` for a terminal: the scores that have company, then the conditions that the atlas lacks."""
    rows, cells = beside_atlas(run), [("evaluation", "condition", "explainer", "yours", "atlas", "networks")]
    for r in records(rows[rows["networks"] > 0]):
        place = f"above {r.above}, below {r.below}, not told from {r.networks - r.above - r.below}"
        title, there = (
            axis_of(r.evaluation, run.manifest).condition(r.condition, r.level),
            f"{number(r.least)} to {number(r.most)}",
        )
        cells.append((r.evaluation, title, r.explainer, with_interval(r.score, r.low, r.high), there, place))
    lines = columned(cells) if len(cells) > 1 else []
    alone = rows[rows["networks"] == 0].groupby(["otherwise", "evaluation", "condition", "level"], sort=False)
    for (other, evaluation, condition, level), part in alone:
        title = axis_of(evaluation, run.manifest).condition(condition, level)
        what = f"{evaluation}, {title}: {listing(dict.fromkeys(part['explainer']))}"
        lines.append(f"{'only with other settings' if other else 'not'} in the atlas: {what}")
    return "\n".join([*lines, NOTE])
