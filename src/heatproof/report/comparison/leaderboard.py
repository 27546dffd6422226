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

from heatproof.axes import BY_NAME, Measure, axis_of
from heatproof.drawing.prose import records
from heatproof.errors import UserError
from heatproof.evaluation import FLIPPED, OK, UNDEFINED, Condition
from heatproof.report.comparison.common import Side
from heatproof.report.comparison.compare import open_sides
from heatproof.results.arrays import ScoreArrays, groups_of
from heatproof.results.ranking import ranking
from heatproof.results.score_estimates import calibrated_if_possible
from heatproof.results.summary import summary
from heatproof.runs.differences import parameters_of, plain
from heatproof.runs.results import arrays_of_run, marked_explainers
from heatproof.runs.run import Run

SCHEMA = "heatproof-leaderboard/1"
SAME = ("axis", "measure", "dataset_fingerprint", "seed", "references", "parameters")
"""What the rows of one board have in common; data may go by several names."""


@dataclass(frozen=True)
class Entry:
    """One row to be: the scores of one explainer by one measure, how many samples there should be, and its mark."""

    side: Side
    measure: Measure
    arrays: ScoreArrays
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
    place = {axis: i for i, axis in enumerate(BY_NAME)}
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
    every_arrays = arrays_of_run(side.table, manifest, side.samples, side.references)
    words = marked_explainers(every_arrays, manifest)
    for arrays in every_arrays:
        evaluation = side.study("evaluations").get(arrays.evaluation)
        data = side.study("datasets").get(arrays.dataset)
        if evaluation is None or data is None or arrays.model not in side.study("models"):
            continue
        axis = axis_of(arrays.evaluation, manifest, arrays.values)
        here = (side.samples["dataset"] == arrays.dataset) & (side.samples["model"] == arrays.model)
        unreadable = int((side.samples[here]["error"].fillna("").astype(str) != "").sum())
        expected = int(data.get("samples") or 0) - unreadable
        for headline in axis.headlines(arrays):
            measure = axis.measure(headline)
            assert measure is not None  # headlines are declared
            board = {
                "axis": str(evaluation.get("name") or arrays.evaluation),
                "measure": headline,
                "lower_is_better": measure.better == "lower",
                "dataset": arrays.dataset,
                "samples": data.get("samples"),
                "dataset_fingerprint": data.get("fingerprint"),
                "seed": side.manifest.study.seed,
                "references": side.reference_count,
                "parameters": parameters_of(evaluation),
                "conditions": list(
                    dict.fromkeys(str(name) for name, _ in evaluation.get("conditions") or ())
                ),
            }
            for explainer in arrays.explainers:
                part = arrays.select(explainers=[explainer], measures=[headline])
                asked_by = zip(part.conditions, part.has_rows[headline][0], strict=True)
                part = part.select(conditions=[condition for condition, asked in asked_by if asked])
                if part.conditions:
                    mark = words[arrays.dataset, arrays.model].get(explainer, "")
                    rows.append((board, Entry(side, measure, part, expected, mark)))
    return rows


def _board(key: str, about: dict[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    measure = entries[0].measure
    places = {name: i for i, name in enumerate(about["conditions"])}
    present = dict.fromkeys(c for entry in entries for c in entry.arrays.conditions)
    conditions = sorted(present, key=lambda c: (places.get(c[0], len(places)), c))
    arrays = _stacked(entries, conditions)
    scores = ranking(arrays, measure.name, better="neither").set_index("explainer")
    why = [_why_unranked(entry, i, arrays) for i, entry in enumerate(entries)]
    comparable = arrays.select(explainers=[str(i) for i, reason in enumerate(why) if not reason])
    ranks = ranking(comparable, measure.name, better=measure.better)
    ranks = ranks.set_index("explainer")
    cells = calibrated_if_possible(summary(arrays))
    rows = []
    for i, entry in enumerate(entries):
        name, (explainer,) = str(i), entry.arrays.explainers
        score: dict[str, Any] = dict(scores.loc[name])
        model = entry.side.study("models")[entry.arrays.model]
        row: dict[str, Any] = {
            "run": entry.side.label,
            "model": entry.arrays.model,
            "explainer": explainer,
            "control": explainer in entry.arrays.controls,
            "mark": entry.mark,
            "parameters": dict(entry.side.study("explainers").get(explainer) or {}),
            "model_fingerprint": model.get("fingerprint"),
            "precision": model.get("precision"),
            **{end: _number(score[end]) for end in ("score", "low", "high")},
            **{end: _number(ranks[end].get(name)) for end in ("rank", "rank_low", "rank_high")},
            "unranked": why[i],
            "samples": int(score["samples"]),
            "attempted": int((arrays.status[i] >= 0).sum()),
            "retained": int((arrays.status[i] == OK).sum()),
            "flipped": int((arrays.status[i] == FLIPPED).sum()),
            "undefined": int((arrays.status[i] == UNDEFINED).sum()),
        }
        row["retention"] = row["retained"] / row["attempted"] if row["attempted"] else None
        row["conditions"] = _by_condition(cells[cells["explainer"] == name], conditions)
        rows.append(row)
    sign = measure.sign or 1
    rows.sort(
        key=lambda r: (r["rank"] is None, r["rank"] or 0, -sign * (r["score"] or 0), r["run"])
    )
    name = hashlib.sha256(key.encode()).hexdigest()[:12]
    return {"id": name, **{k: v for k, v in about.items() if k != "conditions"}, "rows": rows}


def _stacked(entries: Sequence[Entry], conditions: list[Condition]) -> ScoreArrays:
    """All rows of a board as arrays whose explainers are numbers; samples that a row lacks are not attempted."""
    samples = sorted({sample for entry in entries for sample in entry.arrays.samples})
    measures = list(dict.fromkeys(m for entry in entries for m in entry.arrays.values))
    size = (len(entries), len(conditions), len(samples))
    values = {m: np.full(size, np.nan) for m in measures}
    chance: dict[str, Any] = {}
    repeats: dict[str, Any] = {}
    by_reference: dict[str, Any] = {}
    has_rows = {m: np.zeros(size[:2], dtype=bool) for m in measures}
    status = np.full(size, -1, dtype=np.int8)
    for i, entry in enumerate(entries):
        arrays = entry.arrays
        rows = np.array([conditions.index(c) for c in arrays.conditions])
        at = np.ix_(rows, np.searchsorted(samples, arrays.samples))
        status[i][at] = arrays.status[0]
        for m in arrays.values:
            values[m][i][at] = arrays.values[m][0]
            has_rows[m][i, rows] = arrays.has_rows[m][0]
            if m in arrays.chance:
                chance.setdefault(m, np.full(size, np.nan))[i][at] = arrays.chance[m][0]
            if m in arrays.repeats:
                own = arrays.repeats[m][0]
                number = max(
                    e.arrays.repeats[m].shape[-1] for e in entries if m in e.arrays.repeats
                )
                of_measure = repeats.setdefault(m, np.full((*size, number), np.nan))
                of_measure[i][..., : own.shape[-1]][at] = own
            if m in arrays.by_reference:  # rows of a board share their references
                own = arrays.by_reference[m]
                sums = by_reference.setdefault(m, np.zeros((*size[:2], own.shape[-1])))
                sums[i, rows] = own[0]
    whole = replace(
        entries[0].arrays,
        explainers=[str(i) for i in range(len(entries))],
        conditions=conditions,
        samples=samples,
        values=values,
        chance=chance,
        repeats=repeats,
        by_reference=by_reference,
        status=status,
        has_rows=has_rows,
    )
    known = pd.concat([entry.side.samples.assign(dataset=whole.dataset) for entry in entries])
    return replace(whole, groups=groups_of(whole, known))


def _why_unranked(entry: Entry, i: int, arrays: ScoreArrays) -> str:
    """Why a row has no rank: nobody knows what a good score is, or its mean is over other samples or conditions."""
    if entry.measure.better == "neither":
        return "not declared which way is better"
    if set(entry.arrays.explainers) <= entry.arrays.controls:
        return "a control"
    seen, all_samples = (
        int((arrays.status[i] >= 0).any(0).sum()),
        max(entry.expected, len(arrays.samples)),
    )
    if seen < all_samples:
        return f"unfinished: {seen} of {all_samples} samples attempted"
    scored = np.isfinite(arrays.values[entry.measure.name][i]).any(-1)
    lost = [
        f"{name} {level:g}"
        for (name, level), ok in zip(arrays.conditions, scored, strict=True)
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
                "score": _number(r.score),
                "low": _number(r.score_low),
                "high": _number(r.score_high),
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
