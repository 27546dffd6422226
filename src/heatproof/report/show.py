"""What a run directory holds, and which of its samples did worst."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence

import pandas as pd

from heatproof.axes import BY_NAME, Axis, Measure, axis_of
from heatproof.errors import unknown
from heatproof.report.terminal import Line, shortened
from heatproof.results.arrays import CONTROL
from heatproof.runs.manifest import Manifest
from heatproof.runs.run import Run
from heatproof.runs.tables import read_scores_by_explainer
from heatproof.runs.verify import missing
from heatproof.text import number, records
from heatproof.types import matches

SUBJECT = ["dataset", "model", "sample"]
COUNTED = ["value", "scored", "flipped", "pairs"]
"""What is added up of every sample: its scores, how many there are, how many pairs are flipped, and all pairs."""


def overview(
    run: Run, explainer: str | None = None, worst: int = 10, width: int = 80
) -> list[Line]:
    """Return what was tested on what, whether it is complete, and the samples with the lowest scores."""
    facts = _facts(run)
    samples = run.samples()
    room = max(map(len, facts)) + 2
    lines: list[Line] = []
    for name, text in facts.items():
        folded = textwrap.wrap(text, max(width - room, 30), break_long_words=False) or [""]
        style = "yellow" if name == "state" and text != "complete" else ""
        for i, part in enumerate(folded):
            head = name if i == 0 else ""
            lines.append((f"{head:<{room}}{part}", style))
    return lines + _worst(run, samples, explainer, worst, width)


def _facts(run: Run) -> dict[str, str]:
    """Return what a run consists of, and whether it is complete."""
    manifest = run.manifest
    study = manifest.study
    datasets = [f"{name}, {_sample_count(manifest, name)} samples" for name in study.datasets]
    facts = {
        "run": f"{run.path}, by heatproof {manifest.heatproof}, {manifest.created[:10]}",
        "models": ", ".join(study.models),
        "data": ", ".join(datasets),
        "explainers": ", ".join(study.explainers),
    }
    for name in study.evaluations:
        axis = axis_of(name, manifest)
        facts[name] = ", ".join(_conditions(axis, study.conditions_of(name)))

    gaps = missing(run.path)
    state = f"{len(gaps)} parts are missing; rerun the command to resume" if gaps else "complete"
    unread = int(run.samples()["error"].fillna("").ne("").sum())
    if unread:
        state += f"; {unread} samples could not be read"
    return facts | {"state": state, "command": manifest.command}


def _sample_count(manifest: Manifest, dataset: str) -> str:
    """Return how many samples of a data set are tested, and of how many where the study chose the number."""
    samples = manifest.study.dataset(dataset).samples
    tested = manifest.stage_ends(dataset)[-1]
    return str(samples) if tested == samples else f"{tested} of {samples}"


def _conditions(axis: Axis, listed: Sequence[tuple[str, float]]) -> list[str]:
    """Return conditions with their levels, those of one name together."""
    levels: dict[str, list[float]] = {}
    for name, level in listed:
        levels.setdefault(str(name), []).append(float(str(level)))
    texts = []
    for name, values in levels.items():
        first, *others = values
        texts.append(axis.condition(name, first) + "".join(f", {value:g}" for value in others))
    return texts


def _worst(
    run: Run, samples: pd.DataFrame, explainer: str | None, worst: int, width: int
) -> list[Line]:
    """Return a table of the samples with the worst mean score by the headline of the first axis that was run."""
    headline, totals = _totals(run, explainer)
    if headline is None:
        if explainer is not None:
            raise unknown("explainer", explainer, run.manifest.study.explainers)
        return []
    is_lower_better = headline.better == "lower"
    totals["score"] = totals["value"] / totals["scored"].where(totals["scored"] > 0)
    totals = totals.merge(samples, on=SUBJECT, how="left")
    totals = totals.sort_values(
        ["score", "sample"], ascending=[not is_lower_better, True], na_position="first"
    )

    whose = explainer or "all explainers but controls"
    extreme = "highest" if is_lower_better else "lowest"
    title = f"Samples with the {extreme} {headline.name}, mean over {whose}"
    table = [("sample", headline.name, "flipped", "predicted")]
    for row in records(totals.head(worst)):
        probability = "" if pd.isna(row.probability) else f" {number(row.probability)}"
        predicted = "" if pd.isna(row.predicted) else f"{row.predicted_name}{probability}"
        flipped = f"{row.flipped} of {row.pairs}" if row.flipped else ""
        table.append((str(row.sample), number(row.score), flipped, predicted))

    command = shlex.join(["heatproof", "show", str(run.path), "--sample", table[1][0]])
    return [("", ""), (title, "bold cyan"), *_aligned(table, width), ("", ""), (command, "dim")]


def _totals(run: Run, explainer: str | None) -> tuple[Measure | None, pd.DataFrame]:
    """Return the first headline that was measured, and the sums of `COUNTED` of every sample over explainers."""
    order = list(BY_NAME)
    sums: dict[tuple[int, Measure], list[pd.DataFrame]] = {}
    for rows in read_scores_by_explainer(run.path):
        if rows.empty:
            continue
        first = rows.iloc[0]
        is_control = first["role"] == CONTROL
        is_chosen = (
            not is_control if explainer is None else matches(explainer, str(first["explainer"]))
        )
        if not is_chosen:
            continue
        axis = axis_of(str(first["evaluation"]), run.manifest, rows["measure"].unique())
        position = order.index(axis.name) if axis.name in order else len(order)
        for measure in axis.measures:
            of_measure = rows[rows["measure"] == measure.name]
            if measure.role == "headline" and len(of_measure):
                sums.setdefault((position, measure), []).append(_sums(of_measure))
                break
    if not sums:
        return None, pd.DataFrame()
    chosen = min(sums, key=lambda key: key[0])
    _, headline = chosen
    totals = pd.concat(sums[chosen]).groupby(SUBJECT, as_index=False)[COUNTED].sum()
    return headline, totals


def _sums(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the sums of `COUNTED` of every sample, from the rows of one explainer."""
    is_scored = rows["status"] == "ok"
    counted = rows.assign(
        value=rows["value"].where(is_scored, 0.0),
        scored=is_scored,
        flipped=rows["status"] == "flipped",
        pairs=1,
    )
    return counted.groupby(SUBJECT, sort=False)[COUNTED].sum().reset_index()


def _aligned(table: Sequence[tuple[str, str, str, str]], width: int) -> list[Line]:
    """Return the rows of a table in columns, the first row in bold; long names are cut."""
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    widths[3] = min(widths[3], 24)
    widths[0] = max(16, min(widths[0], width - 8 - sum(widths[1:])))
    lines = []
    for i, row in enumerate(table):
        cells = [shortened(text, most) for text, most in zip(row, widths, strict=True)]
        line = "  " + "  ".join(map(str.ljust, cells, widths)).rstrip()
        lines.append((line, "bold" if i == 0 else ""))
    return lines
