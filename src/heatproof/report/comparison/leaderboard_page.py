"""The leaderboard as one HTML page: a pure function of its JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heatproof.axes import axis_of
from heatproof.errors import UserError
from heatproof.report.comparison.common import numbered
from heatproof.report.comparison.leaderboard import SCHEMA, leaderboard
from heatproof.report.comparison.page import PACKAGE, look
from heatproof.report.html import page
from heatproof.report.page_parts import Chart
from heatproof.report.plots import Mark, cells, dots, of_marks
from heatproof.results.names import looks
from heatproof.runs.atomic import write_atomically
from heatproof.runs.differences import ABSENT, brief, call, plain, presets, told_apart
from heatproof.runs.run import Run
from heatproof.text import with_interval

HEADS = ("Rank", "Explainer", "Score", "Model", "Run", "Retention", "Samples")
MISSING = "–"


def write_leaderboard(runs: Sequence[Run | str | Path], out: str | Path) -> tuple[Path, Path]:
    """Write leaderboard.json and leaderboard.html into a directory and return where they are."""
    data, page = Path(out) / "leaderboard.json", Path(out) / "leaderboard.html"
    standings = leaderboard(*runs)
    text = json.dumps(standings, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(data, text.encode())
    write_atomically(page, leaderboard_page(json.loads(text)).encode())
    return data, page


def leaderboard_page(data: Mapping[str, Any]) -> str:
    """One HTML page from what `leaderboard` gives or its JSON holds; it needs no network.

    >>> "No scores" in leaderboard_page({"schema": "heatproof-leaderboard/1", "runs": [], "boards": []})
    True
    >>> leaderboard_page({"schema": "other/2"})
    Traceback (most recent call last):
    heatproof.errors.UserError: this is no leaderboard of schema heatproof-leaderboard/1: schema is 'other/2'
    """
    if data.get("schema") != SCHEMA:
        raise UserError(
            f"this is no leaderboard of schema {SCHEMA}: schema is {data.get('schema')!r}"
        )
    boards = [{**board, "rows": [dict(row) for row in board["rows"]]} for board in data["boards"]]
    runs = {run["run"]: run for run in data["runs"]}
    several = any(len(run["models"]) > 1 for run in runs.values())
    every = {row["explainer"]: row["control"] for board in boards for row in board["rows"]}
    named = looks(every, {name for name, control in every.items() if control})
    for row in (row for board in boards for row in board["rows"]):
        known, word = named[row["explainer"]], row.get("mark")
        row["look"] = replace(known, name=f"{known.name} ({word})") if word else known
        row["where"] = f"{row['model']}, {row['run']}" if several else row["run"]
        row["name"] = (
            f"{row['look'].name}, {row['where']}" if len(runs) > 1 or several else row["look"].name
        )
    titles = _titles(boards)
    shown = [_board(board, title) for board, title in zip(boards, titles, strict=True)]
    matrix = _matrix(boards, titles) if len(boards) > 1 else None
    context = {
        "boards": shown,
        "matrix": matrix,
        "runs": [*runs.values()],
        **look("leaderboard.js"),
    }
    return page(PACKAGE, "leaderboard.html").render(context)


def _matrix(boards: Sequence[Any], titles: Sequence[str]) -> Chart:
    """All boards as one picture: a row for each method of a run, a column for each board."""
    every = sorted(
        (row for board in boards for row in board["rows"]), key=lambda row: bool(row["control"])
    )
    rows = list(dict.fromkeys(row["name"] for row in every))
    columns = [{row["name"]: _mark(row, row["name"]) for row in board["rows"]} for board in boards]
    less = [title for board, title in zip(boards, titles, strict=True) if board["lower_is_better"]]
    caption = "Scores of different columns do not compare; point at one for its interval."
    caption += f" Less is better: {', '.join(less)}." if less else ""
    picture = cells(rows, titles, [[column.get(row) for column in columns] for row in rows])
    return Chart(
        "matrix",
        "All boards",
        caption,
        f"Scores of {len(rows)} methods on {len(boards)} boards.",
        [picture],
    )


def _mark(row: Mapping[str, Any], name: str) -> Mark:
    score, low, high = (
        math.nan if row[end] is None else row[end] for end in ("score", "low", "high")
    )
    return Mark(
        name, score, low, high, row["look"].colour, said=_rank(row), method=row["look"].name
    )


def _rank(row: Mapping[str, Any]) -> str:
    return (
        f"rank {row['rank_low']:.0f} to {row['rank_high']:.0f}"
        if row["rank"]
        else str(row["unranked"])
    )


def _titles(boards: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each board is called; boards of one axis and data set also say in what they differ."""
    names = [f"{str(board['axis']).capitalize()} on {board['dataset']}" for board in boards]
    for name in set(names):
        alike = [i for i, other in enumerate(names) if other == name]
        entries = []
        for board in (boards[i] for i in alike):
            draws = {key: board.get(key, ABSENT) for key in ("seed", "references")}
            entries.append({**board["parameters"], **draws, "data": board["dataset_fingerprint"]})
        for key in dict.fromkeys(key for entry in entries for key in entry):
            values = [entry.get(key, ABSENT) for entry in entries]
            values = numbered(values) if key == "data" else values
            if len({plain(value) for value in values}) > 1:
                for i, text in zip(alike, told_apart(values), strict=True):
                    names[i] += f", {key} {text}"
    return names


def _board(board: Mapping[str, Any], title: str) -> dict[str, Any]:
    label, rows = str(board["axis"]), board["rows"]
    axis = axis_of(label, None, [board["measure"]])
    measure = axis.measure(board["measure"])
    said = measure.title if measure else board["measure"]
    way = (
        {"higher": ", more is better", "lower": ", less is better"}.get(measure.better, "")
        if measure
        else ""
    )
    by_run: dict[str, list[Mark]] = {
        row["where"]: [] for row in sorted(rows, key=lambda row: str(row["run"]))
    }
    for row in rows:
        by_run[row["where"]].append(_mark(row, row["look"].name))
    ends = of_marks((mark for marks in by_run.values() for mark in marks), 0.0)
    conditions = [
        axis.condition(cell["condition"], cell["level"]) for cell in rows[0]["conditions"]
    ]
    within = [[_mark({**row, **cell}, row["name"]) for cell in row["conditions"]] for row in rows]
    folded = (
        {"By condition": [cells([row["name"] for row in rows], conditions, within)]}
        if len(conditions) > 1
        else {}
    )
    alt = f"Scores with intervals of {len(rows)} methods; the numbers are in the table."
    caption = f"{said}{way}. Bands are 95 % intervals; under a rank are those that the paired tests leave open."
    pictures = [dots(where, marks, ends, said) for where, marks in by_run.items()]
    facts = [
        (key.capitalize(), str(board[key]))
        for key in ("samples", "seed", "references")
        if key in board
    ]
    return {
        "id": f"board-{board['id']}",
        "title": title,
        "measure": f"{said}{way}",
        "chart": Chart(f"board-{board['id']}", title, caption, alt, pictures, folded),
        "facts": [*facts, ("Parameters", _parameters(board["parameters"]))],
        "columns": [(head, head not in ("Explainer", "Model", "Run")) for head in HEADS],
        "rows": [{"cells": _cells(row), "control": bool(row["control"])} for row in rows],
    }


def _cells(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each cell shows, a line below it, and what it is sorted by; one without a number goes last."""
    mark, share = _mark(row, ""), row["retention"]
    said: list[tuple[str, str, Any]] = [
        (
            MISSING if row["rank"] is None else f"{row['rank']:.0f}",
            _rank(row).removeprefix("rank "),
            row["rank"],
        ),
        (row["look"].name, "", row["look"].name),
        (with_interval(mark.value, mark.low, mark.high), "", row["score"]),
        (str(row["model"]), str(row["precision"] or ""), str(row["model"])),
        (str(row["run"]), "", str(row["run"])),
        (
            MISSING if share is None else f"{100 * share:.0f} %",
            f"{row['retained']} of {row['attempted']} pairs",
            share,
        ),
        (str(row["samples"]), "", row["samples"]),
    ]
    return [{"text": text, "more": more, "by": "" if by is None else by} for text, more, by in said]


def _parameters(parameters: Mapping[str, Any]) -> str:
    """Parameters as one would write them, presets by their name."""

    def written(value: Any) -> str:
        if (
            isinstance(value, list)
            and value
            and all(isinstance(v, Mapping) and "name" in v for v in value)
        ):
            return presets().get(plain(value)) or ", ".join(map(call, value))
        return call(value) if isinstance(value, Mapping) and "name" in value else brief(value)

    return "; ".join(
        f"{key}={written(value)}" for key, value in parameters.items() if key != "name"
    )
