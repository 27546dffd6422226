"""One sample in the terminal: its prediction, and every score of every explanation of it."""

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


def sample_text(run: Run, sample: str, explainer: str | None = None, width: int = 80) -> list[Line]:
    """Return the scores of one sample as lines for a terminal; an unknown id is an error that names the nearest.

    Every score stands beside the method's median under the same condition and the share of samples that it is above.
    """
    samples = run.samples()
    chosen = _identify(sample, list(dict.fromkeys(samples["sample"])))
    scores = list(_scores_of_sample(run.path, chosen, explainer))
    if explainer is not None and not scores:
        raise unknown("explainer", explainer, run.manifest.study.explainers)
    lines: list[Line] = []
    for facts in records(samples[samples["sample"] == chosen]):
        if lines:
            lines.append(("", ""))
        lines += [(chosen, "bold"), *_prediction(facts)]
        by_evaluation: dict[str, list[pd.DataFrame]] = {}
        for rows in scores:
            first = rows.iloc[0]  # the rows are those of one explainer in one evaluation
            if (first["dataset"], first["model"]) == (facts.dataset, facts.model):
                by_evaluation.setdefault(first["evaluation"], []).append(rows)
        for evaluation in run.manifest.study.evaluations:
            if evaluation in by_evaluation:
                lines += _evaluation_lines(run, evaluation, by_evaluation[evaluation], width)
    return lines


def _evaluation_lines(
    run: Run, evaluation: str, tables: Sequence[pd.DataFrame], width: int
) -> Iterator[Line]:
    """Yield the scores of one evaluation, explainer by explainer; `tables` has the rows of each explainer."""
    stored = pd.concat([rows["measure"] for rows in tables]).unique()
    axis = axis_of(evaluation, run.manifest, stored)
    measures: set[str] = set()
    for rows in tables:
        measures.update(_leading(axis, rows)["measure"])
    heading = axis.title if evaluation == axis.name else f"{axis.title}: {evaluation}"
    has_one_measure = len(measures) == 1
    if has_one_measure:
        heading += f" ({min(measures)})"
    yield "", ""
    yield heading, "bold cyan"
    for rows in tables:
        explainer = str(rows["explainer"].iloc[0])
        yield f"  {shortened(explainer, width - 2)}", "bold"
        yield from _score_lines(axis, _leading(axis, rows), not has_one_measure, width)
        yield from _curves(axis, rows)


def sparkline(values: Sequence[float]) -> str:
    """Return numbers from 0 to 1 as blocks, with a dot for a missing one.

    >>> sparkline([1.0, 0.6, 0.2, float("nan"), 0.0])
    '█▅▂·▁'
    """
    line = ""
    for value in values:
        if math.isfinite(value):
            share = min(max(value, 0.0), 1.0)
            line += BLOCKS[round(share * (len(BLOCKS) - 1))]
        else:
            line += "·"
    return line


def _identify(sample: str, ids: Sequence[str]) -> str:
    """Return the id of a sample, which may be given by its end; raise `UserError` with the nearest ids."""
    if sample in ids:
        return sample
    ending = [name for name in ids if name.endswith(sample)] if sample else []
    if len(ending) == 1:
        return ending[0]
    containing = [name for name in ids if sample in name]
    close = ending[:5] or nearest(sample, ids, 5) or containing[:5] or list(ids[:5])
    problem = f"{len(ending)} samples end in" if ending else "there is no sample"
    raise UserError(f"{problem} {sample!r}; the nearest are {', '.join(close)}")


def _scores_of_sample(root: Place, sample: str, explainer: str | None) -> Iterator[pd.DataFrame]:
    """Yield the rows of a sample, one explainer at a time to bound the memory.

    Columns `median`, `above` and `n` say where each value stands among those of all samples; see `_standing`.
    """
    for rows in read_scores_by_explainer(root):
        of_sample = rows[rows["sample"] == sample]
        if of_sample.empty:
            continue
        name = str(of_sample["explainer"].iloc[0])
        if explainer is not None and not matches(explainer, name):
            continue
        scored = rows[rows["status"] == "ok"]
        by_condition = scored.groupby(["measure", "condition", "level"], sort=False)["value"]
        values = {key: np.asarray(group, dtype=np.float64) for key, group in by_condition}
        standings = []
        for row in records(of_sample):
            all_values = values.get((row.measure, row.condition, row.level))
            standings.append(_standing(row.value, all_values))
        columns = pd.DataFrame(standings, columns=["median", "above", "n"], index=of_sample.index)
        yield of_sample.assign(median=columns["median"], above=columns["above"], n=columns["n"])


def _standing(
    value: float, all_values: np.ndarray[Any, np.dtype[np.float64]] | None
) -> tuple[float, float, int]:
    """Return where a value stands among those of all samples, itself included: their median, `above`, their number.

    `above` is the share of the other samples that it is above; ties count half.
    """
    if all_values is None or not len(all_values):
        return math.nan, math.nan, 0
    n = len(all_values)
    above = math.nan
    if n > 1:
        lower = float((all_values < value).sum())
        ties = float((all_values == value).sum()) - 1  # without the value itself
        above = (lower + ties / 2) / (n - 1)
    return float(np.median(all_values)), above, n


def _prediction(facts: Any) -> list[Line]:
    """Return what the model says of the sample, and whether the label agrees; `facts` is its row of the samples."""
    subject = (f"  {facts.model} on {facts.dataset}", "")
    if facts.error:
        return [subject, (f"  could not be read: {facts.error}", "red")]
    if pd.isna(facts.predicted):
        return [subject, ("  no prediction: the study has no model", "")]
    if pd.isna(facts.probability):
        # The prediction is a number or a region, and no label speaks of it.
        return [subject, (f"  predicted {facts.predicted_name}", "")]
    text = f"  predicted {facts.predicted_name} ({facts.predicted}) with probability {number(facts.probability)}"
    if pd.isna(facts.label):
        return [subject, (f"{text}; it has no label", "")]
    if facts.label == facts.predicted:
        return [subject, (f"{text}, as labelled", "")]
    return [subject, (f"{text}; labelled {facts.label}", "yellow")]


def _leading(axis: Axis, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that get a line: headlines, and components in conditions without a headline."""
    is_headline = rows["measure"].isin(axis.of_role("headline"))
    is_component = rows["measure"].isin(axis.of_role("component"))
    conditions = pd.MultiIndex.from_frame(rows[["condition", "level"]])
    has_headline = conditions.isin(conditions[is_headline])
    return rows[is_headline | (is_component & ~has_headline)]


def _score_lines(axis: Axis, rows: pd.DataFrame, several: bool, width: int) -> Iterator[Line]:
    """Yield a line for each condition; the measure is named where there are `several`."""
    names = []
    for row in records(rows):
        condition = axis.condition(row.condition, row.level)
        names.append(f"{row.measure}, {condition}" if several else condition)
    longest = max(map(len, names), default=0)
    room = min(longest, max(16, width - 50))
    for name, row in zip(names, records(rows), strict=True):
        head = f"    {shortened(name, room):<{room}}  "
        if row.status != "ok":
            reason = f": {row.reason}" if row.reason else ""
            yield f"{head}{row.status}{reason}", "yellow"
            continue
        has_bounds = not (pd.isna(row.low) or pd.isna(row.high))
        text = f"{number(row.value):>6}"
        if has_bounds:
            text = with_interval(row.value, row.low, row.high)
        if row.n > 1:
            rest = f"{row.n - 1:.0f} {'others' if row.n > 2 else 'other'}"
            text += f"  median {number(row.median)}, above {100 * row.above:.0f} % of {rest}"
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
    """Yield the first curve of the axis, for each condition."""
    curve = next(iter(axis.of_role("curve")), "")
    points = rows[rows["measure"] == curve]
    if points.empty:
        return
    levels = sorted(set(points["level"]))
    yield f"    {curve} with {levels[0]:.0%} to {levels[-1]:.0%} removed", ""
    room = max(map(len, points["condition"]))
    for condition, of_condition in points.groupby("condition", sort=False):
        values = of_condition.sort_values("level")["value"].tolist()
        ends = f"{number(values[0])} → {number(values[-1])}"
        yield f"      {condition:<{room}}  {sparkline(values)}  {ends}", ""
