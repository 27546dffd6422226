"""The verdict on dependence in sentences; it ranks nobody, for noise depends on the model as well."""

from __future__ import annotations

import pandas as pd

from holdfast.axes.contract import Judged
from holdfast.axes.dependence.frames import overview
from holdfast.axes.dependence.verdicts import BLIND
from holdfast.drawing.prose import each, number, plural, records, with_interval

NOTHING = "Nothing can be concluded: no map was compared under random weights."
SAID = {
    "depends": ("depends on", "depend on"),
    "not shown to depend": ("is not shown to depend on", "are not shown to depend on"),
    BLIND: ("is blind to", "are blind to"),
}


def lead(judged: Judged) -> list[str]:
    """Whose maps depend on the model and on the class, where the controls stand, and how far networks differ."""
    table = overview(judged)
    if table.empty:
        return [NOTHING]
    methods = table[~table["control"].astype(bool)]
    return [*_verdicts(methods if len(methods) else table), *_controls(table), *_classes(methods), *_draws(table)]


def _verdicts(methods: pd.DataFrame) -> list[str]:
    said: list[str] = []
    for verdict, (one, many) in SAID.items():
        rows = records(methods[methods["verdict"] == verdict])
        if rows:
            scores = each((r.explainer, with_interval(r.score, r.low, r.high)) for r in rows)
            what = "it" if said else "what the model has learned"
            said.append(f"{len(rows)} {plural(rows, one, many)} {what} ({scores})")
    said[0] = f"Of {len(methods)} {'methods' if len(methods) > 1 else 'method'}, {said[0]}"
    ends = "0 is a map that stays when the weights are random, 1 one that changes as between unrelated samples; "
    return [f"{'; '.join(said)}.", f"{ends}more is not better, for noise that knows the weights scores 1 as well."]


def _controls(table: pd.DataFrame) -> list[str]:
    rows = records(table[table["control"].astype(bool)])
    scores = each((r.explainer, with_interval(r.score, r.low, r.high)) for r in rows)
    return [f"Controls: {scores}."] if rows else []


def _classes(methods: pd.DataFrame) -> list[str]:
    asked = methods[methods["class_score"].notna()]
    rows = records(asked[asked["class_verdict"] == BLIND])
    if asked.empty:
        return []
    if not rows:
        least = records(asked.sort_values("class_score"))[0]
        score = with_interval(least.class_score, least.class_low, least.class_high)
        return [
            f"No map is shown to ignore the class asked about; the least change is that of {least.explainer}, {score}."
        ]
    scores = each((r.explainer, with_interval(r.class_score, r.class_low, r.class_high)) for r in rows)
    return [
        f"Asked about another class, {plural(rows, 'one map hardly changes', 'some maps hardly change')}: {scores}."
    ]


def _draws(table: pd.DataFrame) -> list[str]:
    spread = table["most"] - table["least"]
    if not (spread > 0).any():
        return []
    row = records(table.loc[[spread.idxmax()]])[0]
    ends = f"from {number(row.least)} to {number(row.most)} for {row.explainer}"
    return [f"Intervals are over samples; between the random networks a mean differs the most {ends}."]
