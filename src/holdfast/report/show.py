"""What a run directory holds, and which of its samples did worst."""

from __future__ import annotations

import shlex
import textwrap
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.compute as pc

from holdfast.axes.stability.perturbations import title
from holdfast.drawing.prose import number, records
from holdfast.errors import unknown
from holdfast.report.story import folders, rows_of
from holdfast.report.terminal import Line, shortened
from holdfast.runs.merge import missing
from holdfast.statistics import is_control
from holdfast.statistics.cubes import DECISIVE
from holdfast.testing.choose import ASIDE, matches
from holdfast.types import REDRAW

if TYPE_CHECKING:
    from holdfast.runs.run import Run

JUDGED = (*DECISIVE, "stable", "unflipped", "hard_radius", "road")
"""The measures by which samples are put in order; the first that a run has is used."""


def overview(run: Run, explainer: str | None = None, worst: int = 10, width: int = 80) -> list[Line]:
    """What was tested on what, whether it is complete, and the samples with the lowest scores."""
    study, samples = run.manifest["study"], run.samples()
    facts = {"run": f"{run.path}, by holdfast {run.manifest['holdfast']}, {run.manifest.get('created', '')[:10]}"}
    facts["models"] = ", ".join(study["models"])
    facts["data"] = ", ".join(f"{name}, {d['samples']} samples" for name, d in study["datasets"].items())
    facts["explainers"] = ", ".join(study["explainers"])
    for name, settings in study["evaluations"].items():
        facts[name] = ", ".join(_conditions(settings.get("conditions", [])))
    gaps = missing(run.path)
    facts["state"] = f"{len(gaps)} parts are missing; run the command again" if gaps else "complete"
    unread = int(samples["error"].fillna("").ne("").sum())
    if unread:
        facts["state"] += f"; {unread} samples could not be read"
    facts["command"] = str(run.manifest.get("command", ""))
    room = max(map(len, facts)) + 2
    lines: list[Line] = []
    for name, text in facts.items():
        folded = textwrap.wrap(text, max(width - room, 30), break_long_words=False) or [""]
        style = "yellow" if name == "state" and text != "complete" else ""
        lines += [(f"{name if i == 0 else '':<{room}}{part}", style) for i, part in enumerate(folded)]
    return lines + _worst(run, samples, explainer, worst, width)


def _conditions(given: list[list[object]]) -> list[str]:
    """Conditions with their levels, those of one name together."""
    levels: dict[str, list[float]] = {}
    for name, level in given:
        levels.setdefault(str(name), []).append(float(str(level)))
    found = []
    for name, values in levels.items():
        more = "".join(f", {value:g}" for value in values[1:])
        found.append(title(name, values[0]) + more if values != [0.0] else name.replace("_", " "))
    return found


def _worst(run: Run, samples: pd.DataFrame, explainer: str | None, worst: int, width: int) -> list[Line]:
    keys = ["dataset", "model", "sample"]
    sums: dict[str, list[pd.DataFrame]] = {}
    for paths in folders(run.path):
        wanted = pc.field("measure").isin(list(JUDGED)) & ~pc.field("condition").isin([REDRAW, *ASIDE])
        rows = rows_of(paths, wanted)
        name = "" if rows.empty else str(rows.iloc[0]["explainer"])
        if rows.empty or (is_control(name) if explainer is None else not matches(explainer, name)):
            continue
        for measure, own in rows.groupby("measure", sort=False):
            ok = own["status"] == "ok"
            counted = own.assign(value=own["value"].where(ok, 0.0), scored=ok, flipped=own["status"] == "flipped")
            counted = counted.assign(pairs=1).groupby(keys, sort=False)[["value", "scored", "flipped", "pairs"]].sum()
            sums.setdefault(str(measure), []).append(counted.reset_index())
    if not sums:
        if explainer is not None:
            raise unknown("explainer", explainer, run.manifest["study"]["explainers"])
        return []
    measure = next(name for name in JUDGED if name in sums)
    total = pd.concat(sums[measure]).groupby(keys, as_index=False)[["value", "scored", "flipped", "pairs"]].sum()
    total["score"] = total["value"] / total["scored"].where(total["scored"] > 0)
    total = total.merge(samples, on=keys, how="left").sort_values(["score", "sample"], na_position="first")
    who = explainer or "all explainers but controls"
    lines: list[Line] = [("", ""), (f"Samples with the lowest {measure}, mean over {who}", "bold cyan")]
    table = [("sample", measure, "flipped", "predicted")]
    for r in records(total.head(worst)):
        seen = "" if pd.isna(r.predicted) else f"{r.predicted_name} {number(r.probability)}"
        table.append((str(r.sample), number(r.score), f"{r.flipped} of {r.pairs}" if r.flipped else "", seen))
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    widths[3] = min(widths[3], 24)
    widths[0] = max(16, min(widths[0], width - 8 - sum(widths[1:])))
    for number_, row in enumerate(table):
        cells = [shortened(text, most) for text, most in zip(row, widths, strict=True)]
        lines.append(("  " + "  ".join(map(str.ljust, cells, widths)).rstrip(), "bold" if number_ == 0 else ""))
    again = shlex.join(["holdfast", "show", str(run.path), "--sample", table[1][0]])
    return [*lines, ("", ""), (again, "dim")]
