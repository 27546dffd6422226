"""What a run directory holds, and which of its samples did worst."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence

import pandas as pd

from heatproof.axes import BY_NAME, Axis, Measure, axis_of
from heatproof.drawing.prose import number, records
from heatproof.errors import unknown
from heatproof.report.terminal import Line, shortened
from heatproof.results.arrays import CONTROL
from heatproof.runs.run import Run
from heatproof.runs.tables import read_scores_by_explainer
from heatproof.runs.verify import missing
from heatproof.types import matches

COUNTED = ("value", "scored", "flipped", "pairs")


def overview(
    run: Run, explainer: str | None = None, worst: int = 10, width: int = 80
) -> list[Line]:
    """What was tested on what, whether it is complete, and the samples with the lowest scores."""
    study, samples, manifest = run.manifest.study, run.samples(), run.manifest
    facts = {"run": f"{run.path}, by heatproof {manifest.heatproof}, {manifest.created[:10]}"}
    facts["models"] = ", ".join(study.models)
    facts["data"] = ", ".join(
        f"{name}, {dataset.samples} samples" for name, dataset in study.datasets.items()
    )
    facts["explainers"] = ", ".join(study.explainers)
    for name in study.evaluations:
        axis = axis_of(name, manifest)
        facts[name] = ", ".join(_conditions(axis, study.conditions_of(name)))
    gaps = missing(run.path)
    facts["state"] = (
        f"{len(gaps)} parts are missing; rerun the command to resume" if gaps else "complete"
    )
    unread = int(samples["error"].fillna("").ne("").sum())
    if unread:
        facts["state"] += f"; {unread} samples could not be read"
    facts["command"] = manifest.command
    room = max(map(len, facts)) + 2
    lines: list[Line] = []
    for name, text in facts.items():
        folded = textwrap.wrap(text, max(width - room, 30), break_long_words=False) or [""]
        style = "yellow" if name == "state" and text != "complete" else ""
        lines += [
            (f"{name if i == 0 else '':<{room}}{part}", style) for i, part in enumerate(folded)
        ]
    return lines + _worst(run, samples, explainer, worst, width)


def _conditions(axis: Axis, listed: Sequence[tuple[str, float]]) -> list[str]:
    """Conditions with their levels, those of one name together."""
    levels: dict[str, list[float]] = {}
    for name, level in listed:
        levels.setdefault(str(name), []).append(float(str(level)))
    return [
        axis.condition(name, values[0]) + "".join(f", {value:g}" for value in values[1:])
        for name, values in levels.items()
    ]


def _worst(
    run: Run, samples: pd.DataFrame, explainer: str | None, worst: int, width: int
) -> list[Line]:
    keys = ["dataset", "model", "sample"]
    sums: dict[tuple[int, Measure], list[pd.DataFrame]] = {}
    order = list(BY_NAME)
    for part in read_scores_by_explainer(run.path):
        if part.empty:
            continue
        name, control = str(part.iloc[0]["explainer"]), part.iloc[0]["role"] == CONTROL
        if control if explainer is None else not matches(explainer, name):
            continue
        axis = axis_of(str(part.iloc[0]["evaluation"]), run.manifest, part["measure"].unique())
        place = order.index(axis.name) if axis.name in order else len(order)
        for measure in axis.measures:
            own = part[part["measure"] == measure.name]
            if measure.role == "headline" and len(own):
                ok = own["status"] == "ok"
                counted = own.assign(
                    value=own["value"].where(ok, 0.0), scored=ok, flipped=own["status"] == "flipped"
                )
                counted = counted.assign(pairs=1).groupby(keys, sort=False)[[*COUNTED]].sum()
                sums.setdefault((place, measure), []).append(counted.reset_index())
                break
    if not sums:
        if explainer is not None:
            raise unknown("explainer", explainer, run.manifest.study.explainers)
        return []
    chosen = min(sums, key=lambda key: key[0])
    headline, lower = chosen[1].name, chosen[1].better == "lower"
    total = pd.concat(sums[chosen]).groupby(keys, as_index=False)[[*COUNTED]].sum()
    total["score"] = total["value"] / total["scored"].where(total["scored"] > 0)
    total = total.merge(samples, on=keys, how="left")
    total = total.sort_values(["score", "sample"], ascending=[not lower, True], na_position="first")
    who = explainer or "all explainers but controls"
    title = f"Samples with the {'highest' if lower else 'lowest'} {headline}, mean over {who}"
    lines: list[Line] = [("", ""), (title, "bold cyan")]
    table = [("sample", headline, "flipped", "predicted")]
    for r in records(total.head(worst)):
        sure = "" if pd.isna(r.probability) else f" {number(r.probability)}"
        seen = "" if pd.isna(r.predicted) else f"{r.predicted_name}{sure}"
        table.append(
            (str(r.sample), number(r.score), f"{r.flipped} of {r.pairs}" if r.flipped else "", seen)
        )
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    widths[3] = min(widths[3], 24)
    widths[0] = max(16, min(widths[0], width - 8 - sum(widths[1:])))
    for number_, row in enumerate(table):
        cells = [shortened(text, most) for text, most in zip(row, widths, strict=True)]
        lines.append(
            (
                "  " + "  ".join(map(str.ljust, cells, widths)).rstrip(),
                "bold" if number_ == 0 else "",
            )
        )
    again = shlex.join(["heatproof", "show", str(run.path), "--sample", table[1][0]])
    return [*lines, ("", ""), (again, "dim")]
