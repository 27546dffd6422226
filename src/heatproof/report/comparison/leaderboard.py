"""Many runs as a leaderboard: plain data, one board for what was measured on the same data in the same way."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes import AXES, Measure, arrange, axis_of, marked
from heatproof.drawing.prose import records
from heatproof.errors import UserError
from heatproof.evaluation import FLIPPED, OK, UNDEFINED, Condition
from heatproof.report.comparison.common import Side
from heatproof.report.comparison.compare import open_sides
from heatproof.runs.differences import parameters_of, plain
from heatproof.runs.run import Run
from heatproof.statistics.cubes import Cube

SCHEMA = "heatproof-leaderboard/1"
SAME = ("axis", "measure", "dataset_fingerprint", "seed", "references", "parameters")
"""What the rows of one board have in common; data may go by several names."""


@dataclass(frozen=True)
class Entry:
    """One row to be: the scores of one explainer by one measure, how many samples there should be, and its mark."""

    side: Side
    measure: Measure
    cube: Cube
    expected: int
    mark: str = ""


def leaderboard(*runs: Run | str | Path) -> dict[str, Any]:
    """The standings of all runs as plain data that JSON can hold.

    `boards` has one entry for every measure that was taken on the same data (by fingerprint), with the same parameters
    of the evaluation and the same seed; what differs in any of these is never on one board. A row has its score with a
    95 % interval, its rank with those that the tests leave open, its retention, and which of `runs`, with command and
    fingerprints, it comes from. A row that lacks samples or conditions is shown without a rank, and says why. Numbers
    that do not exist are None.

    >>> leaderboard()
    Traceback (most recent call last):
    heatproof.errors.UserError: a leaderboard needs at least one run
    """
    if not runs:
        raise UserError("a leaderboard needs at least one run")
    sides = open_sides(runs)
    boards: dict[str, tuple[dict[str, Any], list[Entry]]] = {}
    for side in sides:
        for about, entry in _entries(side):
            key = plain({name: about[name] for name in SAME})
            boards.setdefault(key, (about, []))[1].append(entry)
    place = {axis.name: i for i, axis in enumerate(AXES)}
    chosen = sorted(boards.items(), key=lambda item: place.get(item[1][0]["axis"], len(place)))
    made = {
        "schema": SCHEMA,
        "heatproof": metadata.version("heatproof"),
        "runs": [run_facts(side) for side in sides],
    }
    return {**made, "boards": [_board(key, about, entries) for key, (about, entries) in chosen]}


def _entries(side: Side) -> list[tuple[dict[str, Any], Entry]]:
    """Every (what a board is about, row) of one run."""
    rows = []
    manifest = side.manifest
    cubes = arrange(side.table, manifest, side.samples, side.references)
    words = marked(cubes, manifest)
    for cube in cubes:
        evaluation = side.study("evaluations").get(cube.evaluation)
        data = side.study("datasets").get(cube.dataset)
        if evaluation is None or data is None or cube.model not in side.study("models"):
            continue
        axis = axis_of(cube.evaluation, manifest, cube.values)
        here = (side.samples["dataset"] == cube.dataset) & (side.samples["model"] == cube.model)
        unreadable = int((side.samples[here]["error"].fillna("").astype(str) != "").sum())
        expected = int(data.get("samples") or 0) - unreadable
        for headline in axis.headlines(cube):
            measure = axis.measure(headline)
            assert measure is not None  # headlines are declared
            board = {
                "axis": str(evaluation.get("name") or cube.evaluation),
                "measure": headline,
                "lower_is_better": measure.better == "lower",
                "dataset": cube.dataset,
                "samples": data.get("samples"),
                "dataset_fingerprint": data.get("fingerprint"),
                "seed": side.manifest.study.seed,
                "references": side.reference_count,
                "parameters": parameters_of(evaluation),
                "conditions": list(
                    dict.fromkeys(str(name) for name, _ in evaluation.get("conditions") or ())
                ),
            }
            for explainer in cube.explainers:
                part = cube.select(explainers=[explainer], measures=[headline])
                asked_by = zip(part.conditions, part.asked[headline][0], strict=True)
                part = part.select(conditions=[condition for condition, asked in asked_by if asked])
                if part.conditions:
                    mark = words[cube.dataset, cube.model].get(explainer, "")
                    rows.append((board, Entry(side, measure, part, expected, mark)))
    return rows


def _board(key: str, about: dict[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    measure = entries[0].measure
    places = {name: i for i, name in enumerate(about["conditions"])}
    present = dict.fromkeys(c for entry in entries for c in entry.cube.conditions)
    conditions = sorted(present, key=lambda c: (places.get(c[0], len(places)), c))
    cube = _stacked(entries, conditions)
    scores = statistics.ranking([cube], measure.name, better="neither").set_index("explainer")
    why = [_why_unranked(entry, i, cube) for i, entry in enumerate(entries)]
    comparable = cube.select(explainers=[str(i) for i, reason in enumerate(why) if not reason])
    ranks = statistics.ranking([comparable], measure.name, better=measure.better)
    ranks = ranks.set_index("explainer")
    summary = statistics.with_best(statistics.summary([cube]))
    rows = []
    for i, entry in enumerate(entries):
        name, (explainer,) = str(i), entry.cube.explainers
        score: dict[str, Any] = dict(scores.loc[name])
        model = entry.side.study("models")[entry.cube.model]
        row: dict[str, Any] = {
            "run": entry.side.label,
            "model": entry.cube.model,
            "explainer": explainer,
            "control": explainer in entry.cube.controls,
            "mark": entry.mark,
            "parameters": dict(entry.side.study("explainers").get(explainer) or {}),
            "model_fingerprint": model.get("fingerprint"),
            "precision": model.get("precision"),
            **{end: _number(score[end]) for end in ("score", "low", "high")},
            **{end: _number(ranks[end].get(name)) for end in ("rank", "rank_low", "rank_high")},
            "unranked": why[i],
            "samples": int(score["samples"]),
            "attempted": int((cube.status[i] >= 0).sum()),
            "retained": int((cube.status[i] == OK).sum()),
            "flipped": int((cube.status[i] == FLIPPED).sum()),
            "undefined": int((cube.status[i] == UNDEFINED).sum()),
        }
        row["retention"] = row["retained"] / row["attempted"] if row["attempted"] else None
        row["conditions"] = _by_condition(summary[summary["explainer"] == name], conditions)
        rows.append(row)
    sign = measure.sign or 1
    rows.sort(
        key=lambda r: (r["rank"] is None, r["rank"] or 0, -sign * (r["score"] or 0), r["run"])
    )
    name = hashlib.sha256(key.encode()).hexdigest()[:12]
    return {"id": name, **{k: v for k, v in about.items() if k != "conditions"}, "rows": rows}


def _stacked(entries: Sequence[Entry], conditions: list[Condition]) -> Cube:
    """All rows of a board in one cube, the explainers being numbers; samples that a row lacks are not attempted."""
    samples = sorted({sample for entry in entries for sample in entry.cube.samples})
    measures = list(dict.fromkeys(m for entry in entries for m in entry.cube.values))
    size = (len(entries), len(conditions), len(samples))
    values = {m: np.full(size, np.nan) for m in measures}
    chance: dict[str, Any] = {}
    repeats: dict[str, Any] = {}
    by_reference: dict[str, Any] = {}
    asked = {m: np.zeros(size[:2], dtype=bool) for m in measures}
    status = np.full(size, -1, dtype=np.int8)
    for i, entry in enumerate(entries):
        cube = entry.cube
        rows = np.array([conditions.index(c) for c in cube.conditions])
        at = np.ix_(rows, np.searchsorted(samples, cube.samples))
        status[i][at] = cube.status[0]
        for m in cube.values:
            values[m][i][at] = cube.values[m][0]
            asked[m][i, rows] = cube.asked[m][0]
            if m in cube.chance:
                chance.setdefault(m, np.full(size, np.nan))[i][at] = cube.chance[m][0]
            if m in cube.repeats:
                own = cube.repeats[m][0]
                number = max(e.cube.repeats[m].shape[-1] for e in entries if m in e.cube.repeats)
                of_measure = repeats.setdefault(m, np.full((*size, number), np.nan))
                of_measure[i][..., : own.shape[-1]][at] = own
            if m in cube.by_reference:  # rows of a board share their references
                own = cube.by_reference[m]
                sums = by_reference.setdefault(m, np.zeros((*size[:2], own.shape[-1])))
                sums[i, rows] = own[0]
    whole = replace(
        entries[0].cube,
        explainers=[str(i) for i in range(len(entries))],
        conditions=conditions,
        samples=samples,
        values=values,
        chance=chance,
        repeats=repeats,
        by_reference=by_reference,
        status=status,
        asked=asked,
    )
    known = pd.concat([entry.side.samples.assign(dataset=whole.dataset) for entry in entries])
    return replace(whole, groups=statistics.groups_of(whole, known))


def _why_unranked(entry: Entry, i: int, cube: Cube) -> str:
    """Why a row has no rank: nobody knows what a good score is, or its mean is over other samples or conditions."""
    if entry.measure.better == "neither":
        return "not declared which way is better"
    if set(entry.cube.explainers) <= entry.cube.controls:
        return "a control"
    seen, all_samples = (
        int((cube.status[i] >= 0).any(0).sum()),
        max(entry.expected, len(cube.samples)),
    )
    if seen < all_samples:
        return f"unfinished: {seen} of {all_samples} samples attempted"
    scored = np.isfinite(cube.values[entry.measure.name][i]).any(-1)
    lost = [
        f"{name} {level:g}"
        for (name, level), ok in zip(cube.conditions, scored, strict=True)
        if not ok
    ]
    return f"no score under {', '.join(lost)}" if lost else ""


def _by_condition(summary: pd.DataFrame, conditions: list[Condition]) -> list[dict[str, Any]]:
    rows = {(str(r.condition), float(r.level)): r for r in records(summary)}
    cells = []
    for name, level in conditions:
        r = rows.get((name, level))
        cell: dict[str, Any] = {
            "condition": name,
            "level": level,
            "score": None,
            "low": None,
            "high": None,
        }
        if r is not None:
            cell |= {
                "score": _number(r.best),
                "low": _number(r.best_low),
                "high": _number(r.best_high),
            }
            cell |= {"retained": int(r.retained), "attempted": int(r.attempted)}
        cells.append(cell)
    return cells


def run_facts(side: Side) -> dict[str, Any]:
    """How a run was made, as plain data."""
    manifest = side.manifest
    return {
        "run": side.label,
        "path": side.path,
        "command": manifest.command,
        "created": manifest.created,
        "heatproof": manifest.heatproof,
        "versions": manifest.versions,
        "models": {name: entry.get("fingerprint") for name, entry in side.study("models").items()},
        "datasets": {
            name: entry.get("fingerprint") for name, entry in side.study("datasets").items()
        },
    }


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6)
