"""One sample's story: its prediction, and what became of every explanation of it under every condition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes import Axis, Measure, axis_of
from heatproof.errors import UserError, nearest, unknown
from heatproof.report.terminal import Line, shortened
from heatproof.runs.run import Run
from heatproof.runs.storage import Place
from heatproof.runs.tables import read_scores_by_explainer
from heatproof.text import number, records, with_interval
from heatproof.types import matches

BLOCKS = "▁▂▃▄▅▆▇█"
TAIL = 0.1
"""A score among this share of the worst or the best of all samples is coloured."""


def story(run: Run, sample: str, explainer: str | None = None, width: int = 80) -> list[Line]:
    """What happened to one sample, for a terminal; an unknown id is an error that names the nearest.

    Every score stands beside the method's median under the same condition and the share of samples that it is above.
    """
    samples = run.samples()
    chosen = _identify(sample, list(dict.fromkeys(samples["sample"])))
    told = list(_told(run.path, chosen, explainer))
    if explainer is not None and not told:
        raise unknown("explainer", explainer, run.manifest.study.explainers)
    evaluations = run.manifest.study.evaluations
    lines: list[Line] = []
    for facts in records(samples[samples["sample"] == chosen]):
        lines += [("", "")] if lines else []
        lines += [(chosen, "bold"), *_prediction(facts)]
        own = [(place, rows) for place, rows in told if place[:2] == (facts.dataset, facts.model)]
        for evaluation in sorted({place[2] for place, _ in own}, key=[*evaluations].index):
            group = [(place[3], rows) for place, rows in own if place[2] == evaluation]
            axis = axis_of(
                evaluation,
                run.manifest,
                dict.fromkeys(m for _, rows in group for m in rows["measure"]),
            )
            measures = {measure for _, rows in group for measure in _leading(axis, rows)["measure"]}
            heading = axis.title if evaluation == axis.name else f"{axis.title}: {evaluation}"
            lines += [
                ("", ""),
                (f"{heading} ({measures.pop()})" if len(measures) == 1 else heading, "bold cyan"),
            ]
            for name, rows in group:
                lines.append((f"  {shortened(name, width - 2)}", "bold"))
                lines += [
                    *_scores(axis, _leading(axis, rows), len(measures) > 1, width),
                    *_curves(axis, rows),
                ]
    return lines


def sparkline(values: Sequence[float]) -> str:
    """Numbers from 0 to 1 as blocks; a dot where there is none.

    >>> sparkline([1.0, 0.6, 0.2, float("nan"), 0.0])
    '█▅▂·▁'
    """
    return "".join(
        BLOCKS[round(min(max(v, 0.0), 1.0) * (len(BLOCKS) - 1))] if math.isfinite(v) else "·"
        for v in values
    )


def _identify(sample: str, ids: Sequence[str]) -> str:
    if sample in ids:
        return sample
    ending = [name for name in ids if name.endswith(sample)] if sample else []
    if len(ending) == 1:
        return ending[0]
    close = (
        ending[:5]
        or nearest(sample, ids, 5)
        or [name for name in ids if sample in name][:5]
        or list(ids[:5])
    )
    problem = f"{len(ending)} samples end in" if ending else "there is no sample"
    raise UserError(f"{problem} {sample!r}; the nearest are {', '.join(close)}")


def _told(
    root: Place, sample: str, explainer: str | None
) -> Iterator[tuple[tuple[str, str, str, str], pd.DataFrame]]:
    """The sample's rows with `median`, `above` and `n` of all samples, one explainer at a time to bound the memory."""
    for rows in read_scores_by_explainer(root):
        own = rows[rows["sample"] == sample]
        if own.empty or (
            explainer is not None and not matches(explainer, str(own.iloc[0]["explainer"]))
        ):
            continue
        first = own.iloc[0]
        place = (
            str(first["dataset"]),
            str(first["model"]),
            str(first["evaluation"]),
            str(first["explainer"]),
        )
        usual = rows[rows["status"] == "ok"].groupby(["measure", "condition", "level"], sort=False)[
            "value"
        ]
        spread = {key: np.asarray(values, dtype=np.float64) for key, values in usual}
        compared = [
            _standing(row.value, spread.get((row.measure, row.condition, row.level)))
            for row in records(own)
        ]
        yield (
            place,
            own.assign(**{key: [c[key] for c in compared] for key in ("median", "above", "n")}),
        )


def _standing(
    value: float, others: np.ndarray[Any, np.dtype[np.float64]] | None
) -> dict[str, float]:
    """Where a value stands among those of all samples, itself included; ties count half."""
    if others is None or not len(others):
        return {"median": math.nan, "above": math.nan, "n": 0}
    rest = len(others) - 1
    above = (
        (float((others < value).sum()) + (float((others == value).sum()) - 1) / 2) / rest
        if rest
        else math.nan
    )
    return {"median": float(np.median(others)), "above": above, "n": len(others)}


def _prediction(facts: Any) -> list[Line]:
    place = f"  {facts.model} on {facts.dataset}"
    if facts.error:
        return [(place, ""), (f"  could not be read: {facts.error}", "red")]
    text = f"  predicted {facts.predicted_name} ({facts.predicted}) with probability {number(facts.probability)}"
    if pd.isna(
        facts.probability
    ):  # the prediction is a number or a region, and no label speaks of it
        return [(place, ""), (f"  predicted {facts.predicted_name}", "")]
    if pd.isna(facts.label):
        return [(place, ""), (f"{text}; it has no label", "")]
    right = facts.label == facts.predicted
    return [
        (place, ""),
        (
            text + (", as labelled" if right else f"; labelled {facts.label}"),
            "" if right else "yellow",
        ),
    ]


def _leading(axis: Axis, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that get a line of their own: headlines, and components that stand behind none in their condition."""
    headlines = rows["measure"].isin(axis.of_role("headline"))
    places = pd.MultiIndex.from_frame(rows[["condition", "level"]])
    alone = rows["measure"].isin(axis.of_role("component")) & ~places.isin(places[headlines])
    return rows[headlines | alone]


def _scores(axis: Axis, rows: pd.DataFrame, several: bool, width: int) -> Iterator[Line]:
    """A line for each condition; the measure is named where there are several."""
    names = [
        (f"{r.measure}, " if several else "") + axis.condition(r.condition, r.level)
        for r in records(rows)
    ]
    room = min(max(map(len, names), default=0), max(16, width - 50))
    for name, row in zip(names, records(rows), strict=True):
        head = f"    {shortened(name, room):<{room}}  "
        if row.status != "ok":
            yield (
                head + f"{row.status}: {row.reason}" if row.reason else head + row.status,
                "yellow",
            )
            continue
        bounded = not (pd.isna(row.low) or pd.isna(row.high))
        text = with_interval(row.value, row.low, row.high) if bounded else f"{number(row.value):>6}"
        if row.n > 1:
            others = f"{row.n - 1:.0f} other{'s' if row.n > 2 else ''}"
            text += f"  median {number(row.median)}, above {100 * row.above:.0f} % of {others}"
        yield head + text, tail_colour(axis.measure(row.measure), row.above, int(row.n) - 1)


def tail_colour(measure: Measure | None, above: float, others: int) -> str:
    """Return green for a score among the best tenth of all samples, red among the worst tenth, else nothing.

    `above` is the share of the `others` that the score is above. Where lower is better, the lowest scores are green. No
    score is coloured where nobody declared which way is better, or where a tenth of the others is not one sample.

    >>> fass, auc = (Measure("x", "", "", better, "headline") for better in ("higher", "lower"))
    >>> tail_colour(fass, 0.05, 19), tail_colour(auc, 0.05, 19), tail_colour(fass, 0.0, 3)
    ('red', 'green', '')
    """
    if measure is None or not measure.sign or others * TAIL < 1:
        return ""
    share_beaten = above if measure.sign > 0 else 1 - above
    if share_beaten < TAIL:
        return "red"
    return "green" if share_beaten > 1 - TAIL else ""


def _curves(axis: Axis, rows: pd.DataFrame) -> Iterator[Line]:
    """The axis' first curve, for each condition."""
    curve = next(iter(axis.of_role("curve")), "")
    curves = rows[rows["measure"] == curve]
    if curves.empty:
        return
    levels = sorted(set(curves["level"]))
    yield f"    {curve} with {levels[0]:.0%} to {levels[-1]:.0%} removed", ""
    room = max(map(len, curves["condition"]))
    for condition, own in curves.groupby("condition", sort=False):
        values = own.sort_values("level")["value"].tolist()
        yield (
            f"      {condition:<{room}}  {sparkline(values)}  {number(values[0])} → {number(values[-1])}",
            "",
        )
