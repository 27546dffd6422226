"""Many runs as a leaderboard: plain data, one board for what was measured on the same data in the same way."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from holdfast import statistics
from holdfast.axes.measures import HEADLINES, direction, headlines
from holdfast.axes.symmetry.evaluation import SYMMETRISED
from holdfast.drawing.prose import records
from holdfast.errors import UserError
from holdfast.report.comparison.compare import open_sides
from holdfast.report.comparison.matching import FORMAT, Side
from holdfast.runs import study_differences as settings
from holdfast.runs.manifest import references_of
from holdfast.statistics.cubes import Cube, arrange

if TYPE_CHECKING:
    from holdfast.runs.run import Run

SCHEMA = "holdfast-leaderboard/1"
RESAMPLES = 2000
SAME = ("axis", "measure", "dataset_fingerprint", "seed", "references", "parameters")
"""What the rows of one board have in common; data may go by several names."""


@dataclass(frozen=True)
class Entry:
    """One row to be: which run and model and explainer, with its scores as a cube of a single explainer."""

    side: Side
    dataset: str
    model: str
    explainer: str
    cube: Cube
    expected: int


def leaderboard(*runs: Run | str | Path) -> dict[str, Any]:
    """The standings of all runs as plain data that JSON can hold.

    `boards` has one entry for every measure that was taken on the same data (by fingerprint), with the same parameters
    of the evaluation and the same seed; what differs in any of these is never on one board. A row has its score with a
    95 % interval, its rank with the central 95 % of its ranks over bootstrap draws of the shared samples, its
    retention, and which of `runs`, with command and fingerprints, it comes from. A row that lacks samples or conditions
    is shown without a rank, and says why. Numbers that do not exist are None.

    >>> leaderboard()
    Traceback (most recent call last):
    holdfast.errors.UserError: a leaderboard needs at least one run
    """
    if not runs:
        raise UserError("a leaderboard needs at least one run")
    sides = open_sides(runs)
    for side in sides:
        if side.manifest.get("format") != FORMAT:
            held = side.manifest.get("format")
            raise UserError(f"{side.path} has a table of format {held}; this holdfast reads format {FORMAT}")
    boards: dict[str, tuple[dict[str, Any], list[Entry]]] = {}
    for side in sides:
        for about, entry in _entries(side):
            key = settings.plain({name: about[name] for name in SAME})
            boards.setdefault(key, (about, []))[1].append(entry)
    known = {axis: i for i, axis in enumerate(HEADLINES)}
    chosen = sorted(boards.items(), key=lambda item: known.get(item[1][0]["axis"], len(known)))
    made = {"schema": SCHEMA, "holdfast": metadata.version("holdfast"), "runs": [_run(side) for side in sides]}
    return {**made, "boards": [_board(key, about, entries) for key, (about, entries) in chosen]}


def _entries(side: Side) -> list[tuple[dict[str, Any], Entry]]:
    """Every (what a board is about, row) of one run."""
    found = []
    for cube in arrange(side.table):
        evaluation = side.study("evaluations").get(cube.evaluation)
        data = side.study("datasets").get(cube.dataset)
        if evaluation is None or data is None or cube.model not in side.study("models"):
            continue  # networks that were retrained belong to another question
        kind = str(evaluation.get("name") or cube.evaluation)
        here = (side.samples["dataset"] == cube.dataset) & (side.samples["model"] == cube.model)
        unreadable = int((side.samples[here]["error"].fillna("").astype(str) != "").sum())
        asked = [name for name, _ in evaluation.get("conditions") or ()]
        for measure in headlines(kind, cube.measures):
            about = {
                "axis": kind,
                "measure": measure,
                "lower_is_better": direction(kind, measure) < 0,
                "dataset": cube.dataset,
                "samples": data.get("samples"),
                "dataset_fingerprint": data.get("fingerprint"),
                "seed": side.manifest["study"].get("seed"),
                "references": references_of(side.manifest["study"]),
                "parameters": settings.own_settings(evaluation),
                "conditions": list(dict.fromkeys(str(name) for name in asked)),
            }
            for e, explainer in enumerate(cube.explainers):
                part = _only(cube, e, measure)
                if part is not None:
                    expected = int(data.get("samples") or 0) - unreadable
                    found.append((about, Entry(side, cube.dataset, cube.model, explainer, part, expected)))
    return found


def _only(cube: Cube, e: int, measure: str) -> Cube | None:
    """One explainer, one measure with its chance, and the conditions in which it counts."""
    kept = [
        i
        for i, (name, _) in enumerate(cube.conditions)
        if cube.asked[measure][e, i] and name not in (statistics.IDENTITY, SYMMETRISED)
    ]
    if not kept:
        return None
    forms = [measure + suffix for suffix in ("", "_chance", "_aligned", "_aligned_chance")]
    values = {m: cube.values[m][[e]][:, kept] for m in forms if m in cube.values}
    return replace(
        cube,
        explainers=[cube.explainers[e]],
        conditions=[cube.conditions[i] for i in kept],
        values=values,
        status=cube.status[[e]][:, kept],
        floor={},
        asked={m: cube.asked[m][[e]][:, kept] for m in values},
        reasons=cube.reasons.iloc[:0],
    )


def _board(key: str, about: dict[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    measure, lower = about["measure"], about["lower_is_better"]
    places = {name: i for i, name in enumerate(about["conditions"])}
    found = dict.fromkeys(c for entry in entries for c in entry.cube.conditions)
    conditions = sorted(found, key=lambda c: (places.get(c[0], len(places)), c))
    cube = _stacked(entries, conditions, -1.0 if lower else 1.0)
    scores = statistics.ranking([cube], measure, resamples=RESAMPLES).set_index("explainer")
    why = [_why_unranked(entry, i, cube, measure) for i, entry in enumerate(entries)]
    ranked = [str(i) for i, reason in enumerate(why) if not reason]
    ranks = statistics.ranking([_rows_of(cube, ranked)], measure, resamples=RESAMPLES) if ranked else pd.DataFrame()
    ranks = _sharing_ranks(ranks.set_index("explainer")) if len(ranks) else ranks
    summary = statistics.summary([cube], resamples=RESAMPLES)
    sign = -1 if lower else 1
    rows = []
    for i, entry in enumerate(entries):
        name = str(i)
        own: dict[str, Any] = dict(scores.loc[name])
        ends = (own["low"], own["high"]) if not lower else (own["high"], own["low"])
        attempted = cube.status[i] >= 0
        row: dict[str, Any] = {
            "run": entry.side.label,
            "model": entry.model,
            "explainer": entry.explainer,
            "control": statistics.is_control(entry.explainer),
            "parameters": dict(entry.side.study("explainers").get(entry.explainer) or {}),
            "model_fingerprint": entry.side.study("models")[entry.model].get("fingerprint"),
            "precision": entry.side.study("models")[entry.model].get("precision"),
            "score": _number(sign * own["score"]),
            "low": _number(sign * ends[0]),
            "high": _number(sign * ends[1]),
            "rank": _number(ranks["rank"].get(name)) if not why[i] else None,
            "rank_low": _number(ranks["rank_low"].get(name)) if not why[i] else None,
            "rank_high": _number(ranks["rank_high"].get(name)) if not why[i] else None,
            "unranked": why[i],
            "samples": int(own["samples"]),
            "attempted": int(attempted.sum()),
            "retained": int((cube.status[i] == 0).sum()),
            "flipped": int((cube.status[i] == 1).sum()),
            "undefined": int((cube.status[i] == 2).sum()),
        }
        row["retention"] = row["retained"] / row["attempted"] if row["attempted"] else None
        row["conditions"] = _by_condition(summary[summary["explainer"] == name], conditions, sign)
        rows.append(row)
    rows.sort(key=lambda r: (r["rank"] is None, r["rank"] or 0, -sign * (r["score"] or 0), r["run"]))
    name = hashlib.sha256(key.encode()).hexdigest()[:12]
    return {"id": name, **{k: v for k, v in about.items() if k != "conditions"}, "rows": rows}


def _sharing_ranks(ranks: pd.DataFrame) -> pd.DataFrame:
    """Rows that score the same in every draw, as a repeated run does, share the best of their ranks."""
    alike = ranks.groupby(["score", "low", "high"], dropna=False)
    return ranks.assign(rank_low=alike["rank_low"].transform("min"), rank_high=alike["rank_high"].transform("min"))


def _stacked(entries: Sequence[Entry], conditions: list[tuple[str, float]], sign: float) -> Cube:
    """All rows of a board in one cube, the explainers being numbers; samples that a row lacks are not attempted."""
    samples = sorted({sample for entry in entries for sample in entry.cube.samples})
    measures = dict.fromkeys(m for entry in entries for m in entry.cube.values)
    size = (len(entries), len(conditions), len(samples))
    values = {m: np.full(size, np.nan) for m in measures}
    asked = {m: np.zeros(size[:2], dtype=bool) for m in measures}
    status = np.full(size, -1, dtype=np.int8)
    for i, entry in enumerate(entries):
        rows = np.array([conditions.index(c) for c in entry.cube.conditions])
        at = np.ix_(rows, np.searchsorted(samples, entry.cube.samples))
        status[i][at] = entry.cube.status[0]
        for m, scores in entry.cube.values.items():
            values[m][i][at] = sign * scores[0]
            asked[m][i, rows] = entry.cube.asked[m][0]
    names = [str(i) for i in range(len(entries))]
    first = entries[0].cube
    parts: dict[str, Any] = {"explainers": names, "conditions": conditions, "samples": samples, "values": values}
    return replace(first, **parts, status=status, asked=asked)


def _rows_of(cube: Cube, names: Sequence[str]) -> Cube:
    kept = [cube.explainers.index(name) for name in names]
    values = {m: scores[kept] for m, scores in cube.values.items()}
    asked = {m: flags[kept] for m, flags in cube.asked.items()}
    return replace(cube, explainers=list(names), values=values, asked=asked, status=cube.status[kept])


def _why_unranked(entry: Entry, i: int, cube: Cube, measure: str) -> str:
    """Why a row has no rank: its mean would be over other samples or conditions than those of the others."""
    seen = int((cube.status[i] >= 0).any(0).sum())
    if seen < max(entry.expected, len(cube.samples)):
        return f"unfinished: {seen} of {max(entry.expected, len(cube.samples))} samples attempted"
    scored = np.isfinite(cube.values[measure][i]).any(-1)
    lost = [f"{name} {level:g}" for (name, level), ok in zip(cube.conditions, scored, strict=True) if not ok]
    return f"no score under {', '.join(lost)}" if lost else ""


def _by_condition(summary: pd.DataFrame, conditions: list[tuple[str, float]], sign: int) -> list[dict[str, Any]]:
    rows = {(str(r.condition), float(r.level)): r for r in records(summary)}
    found = []
    for name, level in conditions:
        r = rows.get((name, level))
        cell: dict[str, Any] = {"condition": name, "level": level, "score": None, "low": None, "high": None}
        if r is not None:
            forms = [
                (r.aligned_calibrated, r.aligned_calibrated_low, r.aligned_calibrated_high),
                (r.calibrated, r.calibrated_low, r.calibrated_high),
            ]
            best = next((form for form in forms if math.isfinite(form[0])), (r.mean, r.low, r.high))
            ends = best[1:] if sign > 0 else best[:0:-1]
            cell |= {"score": _number(sign * best[0]), "low": _number(sign * ends[0]), "high": _number(sign * ends[1])}
            cell |= {"retained": int(r.retained), "attempted": int(r.attempted)}
        found.append(cell)
    return found


def _run(side: Side) -> dict[str, Any]:
    manifest = side.manifest
    return {
        "run": side.label,
        "path": side.path,
        "command": manifest.get("command"),
        "created": manifest.get("created"),
        "holdfast": manifest.get("holdfast"),
        "versions": dict(manifest.get("versions") or {}),
        "models": {name: entry.get("fingerprint") for name, entry in side.study("models").items()},
        "datasets": {name: entry.get("fingerprint") for name, entry in side.study("datasets").items()},
    }


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6)


def boards_of(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The boards of a leaderboard's data, or an error when it is of another schema."""
    if data.get("schema") != SCHEMA:
        raise UserError(f"this is no leaderboard of schema {SCHEMA}: schema is {data.get('schema')!r}")
    return list(data["boards"])
