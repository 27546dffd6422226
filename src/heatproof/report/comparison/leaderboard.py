"""Many runs as a leaderboard: plain data, with one board for what was measured on the same data in the same way."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.axes import BY_NAME
from heatproof.errors import UserError
from heatproof.evaluation import FLIPPED, OK, UNDEFINED, Condition, Measure
from heatproof.report.comparison.aligned import aligned, stacked_scores
from heatproof.report.comparison.match import reference_count
from heatproof.report.comparison.runs import ComparedRun, open_runs, run_facts, unreadable
from heatproof.results.arrays import ScoreArrays, groups_of
from heatproof.results.axis_result import AxisResult
from heatproof.results.comparisons import paired_tests
from heatproof.results.names import looks
from heatproof.results.ranking import ranking
from heatproof.results.verdict import RANDOM, Label, Verdict, sentences, verdict_of
from heatproof.runs.differences import parameters_of, plain
from heatproof.runs.run import Run
from heatproof.text import records

SCHEMA = "heatproof-leaderboard/1"
SAME = ("axis", "measure", "dataset_fingerprint", "seed", "references", "parameters")
"""What the rows of one board have in common; the data may have several names."""
NO_DIRECTION = "not declared which way is better"
"""Why no row of a board has a rank."""


@dataclass(frozen=True, eq=False)
class Entry:
    """An explainer of a run on a board: the result that it is from, its scores, and why it can have no rank."""

    run: ComparedRun
    result: AxisResult
    measure: Measure
    explainer: str
    arrays: ScoreArrays
    unranked: str

    @property
    def is_control(self) -> bool:
        """Whether the explainer ignores the model."""
        return self.explainer in self.result.controls


def leaderboard(*runs: Run | str | Path) -> dict[str, Any]:
    """Return the standings of all runs as plain data that JSON can hold.

    `boards` has an entry for every measure that was taken on the same data (by fingerprint), with the same parameters of
    the evaluation and the same seed; what differs in any of these is never on one board. A row has the score of its run
    with a 95 % interval, its rank with those that the paired tests of the board leave open, its `label` (best,
    undecided, as random), its retention, and which of `runs`, with command and fingerprints, it comes from. A row that
    lacks samples or conditions is shown without a rank, and says why. Numbers that do not exist are None.

    >>> leaderboard()
    Traceback (most recent call last):
    heatproof.errors.UserError: a leaderboard needs at least one run
    """
    if not runs:
        raise UserError("a leaderboard needs at least one run")
    opened = open_runs(runs)
    abouts: dict[str, dict[str, Any]] = {}
    entries: dict[str, list[Entry]] = {}
    for run in opened:
        for result in run.results:
            for measure in result.headlines:
                about = _about(run, result, measure)
                if about is None:
                    continue
                key = plain({name: about[name] for name in SAME})
                abouts.setdefault(key, about)
                entries.setdefault(key, []).extend(_entries(run, result, measure))
    position = {name: i for i, name in enumerate(BY_NAME)}
    keys = sorted(abouts, key=lambda key: position.get(abouts[key]["axis"], len(position)))
    boards = [_board(key, abouts[key], entries[key]) for key in keys if entries[key]]
    return {
        "schema": SCHEMA,
        "heatproof": metadata.version("heatproof"),
        "runs": [run_facts(run) for run in opened],
        "boards": boards,
    }


def _about(run: ComparedRun, result: AxisResult, measure: Measure) -> dict[str, Any] | None:
    """Return what a board is about; None for rows of what the study does not name."""
    evaluation = run.manifest.study.evaluation(result.label, result.dataset, result.model)
    data = run.entries("datasets").get(result.dataset)
    is_in_study = result.label in run.entries("evaluations") and result.model in run.entries(
        "models"
    )
    if data is None or not is_in_study:
        return None
    return {
        "axis": evaluation.name or result.label,
        "measure": measure.name,
        "lower_is_better": measure.better == "lower",
        "dataset": result.dataset,
        "samples": data.get("samples"),
        "dataset_fingerprint": data.get("fingerprint"),
        "seed": run.manifest.study.seed,
        "references": reference_count(run),
        "parameters": parameters_of(evaluation.as_mapping()),
    }


def _entries(run: ComparedRun, result: AxisResult, measure: Measure) -> list[Entry]:
    """Return an entry for each explainer that has rows of a measure."""
    entries = []
    for explainer in result.explainers:
        arrays = result.arrays.select(explainers=[explainer], measures=[measure.name])
        has_rows = arrays.has_rows[measure.name][0]
        conditions = [c for c, has in zip(arrays.conditions, has_rows, strict=True) if has]
        arrays = arrays.select(conditions=conditions)
        if conditions:
            entries.append(Entry(run, result, measure, explainer, arrays, ""))
    return entries


def _board(key: str, about: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """Return a board as plain data: what it is about, its verdict, and its rows from the best to those without a rank."""
    measure = entries[0].measure
    conditions = _conditions(entries)
    all_samples: set[str] = set()
    for entry in entries:
        all_samples.update(entry.arrays.samples)
    samples = sorted(all_samples)
    entries = [_with_reason(entry, conditions, len(samples)) for entry in entries]
    verdict, ranks = _ranked(entries, conditions, samples)
    labels = {} if verdict is None or not verdict.can_decide else verdict.labels
    rows = []
    for i, entry in enumerate(entries):
        row = _row(entry, conditions)
        # An entry that is not ranked has no row in the ranking.
        for column in ("rank", "rank_low", "rank_high"):
            row[column] = _number(ranks[column].get(str(i)))
        row["label"] = str(labels.get(str(i), Label.NONE))
        rows.append(row)
    sign = measure.sign or 1

    def position(row: Mapping[str, Any]) -> tuple[bool, float, float, str]:
        """Sort by rank, rows without one last; equal ones by score, the best first, then by run."""
        return row["rank"] is None, row["rank"] or 0, -sign * (row["score"] or 0), row["run"]

    rows.sort(key=position)
    board_id = hashlib.sha256(key.encode()).hexdigest()[:12]
    return {"id": board_id, **about, "verdict": _sentences(verdict, entries), "rows": rows}


def _conditions(entries: Sequence[Entry]) -> list[Condition]:
    """Return the conditions of all rows of a board in the order of the studies, levels rising."""
    names: dict[str, None] = {}
    conditions: dict[Condition, None] = {}
    for entry in entries:
        names |= dict.fromkeys(name for name, _ in entry.arrays.conditions)
        conditions |= dict.fromkeys(entry.arrays.conditions)
    position = {name: i for i, name in enumerate(names)}
    return sorted(conditions, key=lambda condition: (position[condition[0]], condition[1]))


def _with_reason(entry: Entry, conditions: Sequence[Condition], samples: int) -> Entry:
    """Return an entry with the reason why it has no rank: its mean would be over other samples or conditions."""
    attempted = int((entry.arrays.status >= 0).any((0, 1)).sum())
    expected = max(_readable_samples(entry), samples)
    scores_by_condition = entry.arrays.values[entry.measure.name][0]
    scored_conditions = set()
    for condition, scores in zip(entry.arrays.conditions, scores_by_condition, strict=True):
        if pd.notna(scores).any():
            scored_conditions.add(condition)
    unscored = []
    for name, level in conditions:
        if (name, level) not in scored_conditions:
            unscored.append(f"{name} {level:g}")
    if entry.measure.better == "neither":
        reason = NO_DIRECTION
    elif attempted < expected:
        reason = f"unfinished: {attempted} of {expected} samples attempted"
    elif unscored:
        reason = f"no score under {', '.join(unscored)}"
    else:
        reason = ""
    return replace(entry, unranked=reason)


def _readable_samples(entry: Entry) -> int:
    """Return how many samples of its data set could be read."""
    data = entry.run.manifest.study.dataset(entry.result.dataset)
    samples = entry.run.samples_of(entry.result.dataset, entry.result.model)
    return data.samples - int(unreadable(samples).sum())


def _ranked(
    entries: Sequence[Entry], conditions: Sequence[Condition], samples: Sequence[str]
) -> tuple[Verdict | None, pd.DataFrame]:
    """Return the verdict and the ranking of the rows that can be ranked, whose explainers are numbers of entries.

    The tests are those of a single run, between all rows of the board; of one run they give the same ranks.
    """
    comparable = {str(i): entry for i, entry in enumerate(entries) if not entry.unranked}
    if not comparable:
        return None, pd.DataFrame(columns=["rank", "rank_low", "rank_high"])
    first = next(iter(comparable.values()))
    measure, dataset = first.measure, first.result.dataset
    parts = []
    for name, entry in comparable.items():
        parts.append(aligned(entry.arrays, {entry.explainer: name}, conditions, samples))
    known_samples = [entry.run.samples.assign(dataset=dataset) for entry in comparable.values()]
    stacked = replace(stacked_scores(parts, measure.name), dataset=dataset)
    groups = groups_of(stacked, pd.concat(known_samples))
    stacked = replace(stacked, groups=groups)
    tests = paired_tests(stacked, measure.name)
    ranked = ranking(stacked, measure.name, measure.better, tests=tests)
    random = [name for name, entry in comparable.items() if _registered(entry) == RANDOM]
    verdict = verdict_of(
        ranked,
        tests,
        measure,
        random[0] if random else None,
        0 if groups is None else len(set(groups.tolist())),
        measure.name in stacked.chance,
    )
    return verdict, ranked.set_index("explainer")


def _registered(entry: Entry) -> str:
    return entry.result.registered_name(entry.explainer)


def _sentences(verdict: Verdict | None, entries: Sequence[Entry]) -> list[str]:
    """Return what the tests of a board support, in words."""
    if verdict is None:
        is_undirected = all(entry.unranked == NO_DIRECTION for entry in entries)
        return ["Not ranked: neither high nor low scores are better."] if is_undirected else []
    names = _display_names(entries)
    # Of a control that several runs have, only the row with the best score is mentioned.
    controls: dict[str, str] = {}
    for name in verdict.controls:
        controls.setdefault(_registered(entries[int(name)]), name)
    verdict = replace(verdict, controls=tuple(controls.values()))
    return sentences(verdict, entries[0].result.axis.best, names)


def _display_names(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the display name of each entry by its number, with its run or model where there are several."""
    all_looks = looks(entry.explainer for entry in entries)
    runs = {entry.run.label for entry in entries}
    models = {(entry.run.label, entry.result.model) for entry in entries}
    names = {}
    for i, entry in enumerate(entries):
        where = []
        if len(runs) > 1:
            where.append(entry.run.label)
        if len(models) > len(runs):
            where.append(entry.result.model)
        name = all_looks[entry.explainer].name
        mark = entry.result.marks.get(entry.explainer)
        name = f"{name} ({mark})" if mark else name
        names[str(i)] = f"{name} of {', '.join(where)}" if where else name
    return names


def _row(entry: Entry, conditions: Sequence[Condition]) -> dict[str, Any]:
    """Return the row of an entry without its rank: its score, its pairs, and what it was made of."""
    result, explainer = entry.result, entry.explainer
    ranked = result.ranking_by(entry.measure.name).set_index("explainer")
    score: dict[str, Any] = dict(ranked.loc[explainer])
    above_chance = score["above_chance"]
    model = entry.run.manifest.study.model(result.model)
    status = entry.arrays.status
    counts = {
        "attempted": int((status >= 0).sum()),
        "retained": int((status == OK).sum()),
        "flipped": int((status == FLIPPED).sum()),
        "undefined": int((status == UNDEFINED).sum()),
    }
    retention = counts["retained"] / counts["attempted"] if counts["attempted"] else None
    return {
        "run": entry.run.label,
        "model": result.model,
        "explainer": explainer,
        "control": entry.is_control,
        "mark": result.marks.get(explainer, ""),
        "parameters": dict(result.settings_of(explainer)),
        "model_fingerprint": model.fingerprint or None,
        "precision": model.precision or None,
        **{end: _number(score[end]) for end in ("score", "low", "high")},
        "above_chance": None if pd.isna(above_chance) else bool(above_chance),
        "has_chance": entry.measure.name in result.arrays.chance,
        "unranked": "a control" if entry.is_control and not entry.unranked else entry.unranked,
        "samples": int(score["samples"]),
        **counts,
        "retention": retention,
        "conditions": _by_condition(entry, conditions),
    }


def _by_condition(entry: Entry, conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """Return the score of an entry under each condition of the board; None where it has none."""
    cells = entry.result.cells(entry.measure.name)
    of_explainer = cells[cells["explainer"] == entry.explainer]
    by_condition = {(row.condition, float(row.level)): row for row in records(of_explainer)}
    scores = []
    for name, level in conditions:
        cell: dict[str, Any] = {"condition": name, "level": level}
        cell |= {"score": None, "low": None, "high": None}
        row = by_condition.get((name, level))
        if row is not None:
            cell |= {end: _number(getattr(row, end)) for end in ("score", "low", "high")}
            cell |= {"retained": int(row.retained), "attempted": int(row.attempted)}
        scores.append(cell)
    return scores


def _number(value: Any) -> float | None:
    """Return a number as JSON holds it."""
    return None if value is None or not math.isfinite(value) else round(float(value), 6)
