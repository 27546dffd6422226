"""The leaderboard as one HTML page: a pure function of its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.axes import axis_of
from holdfast.drawing.pages import page
from holdfast.drawing.prose import digits_of, number, with_interval
from holdfast.report.comparison.common import short
from holdfast.report.comparison.leaderboard import boards_of, leaderboard
from holdfast.report.comparison.page import PACKAGE, look
from holdfast.runs.differences import ABSENT, brief, call, plain, presets, told_apart

if TYPE_CHECKING:
    from holdfast.runs.run import Run

MISSING = "missing"


def write_leaderboard(runs: Sequence[Run | str | Path], out: str | Path) -> tuple[Path, Path]:
    """Write leaderboard.json and leaderboard.html into a directory and return where they are."""
    from holdfast.runs.atomic import write_atomically

    data, page = Path(out) / "leaderboard.json", Path(out) / "leaderboard.html"
    standings = leaderboard(*runs)
    text = json.dumps(standings, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(data, text.encode())
    write_atomically(page, leaderboard_page(json.loads(text)).encode())
    return data, page


def leaderboard_page(data: Mapping[str, Any]) -> str:
    """One HTML page from what `leaderboard` gives or its JSON holds; it needs no network.

    >>> "No scores" in leaderboard_page({"schema": "holdfast-leaderboard/1", "runs": [], "boards": []})
    True
    >>> leaderboard_page({"schema": "other/2"})
    Traceback (most recent call last):
    holdfast.errors.UserError: this is no leaderboard of schema holdfast-leaderboard/1: schema is 'other/2'
    """
    boards = boards_of(data)
    runs = {run["run"]: run for run in data["runs"]}
    shown = [_board(board, title, runs) for board, title in zip(boards, _titles(boards), strict=True)]
    context = {"boards": shown, "runs": [_made(run) for run in runs.values()], **look("leaderboard.js")}
    return page(PACKAGE, "leaderboard.html").render(context)


def _titles(boards: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each board is called; boards of one axis and data set also say in what they differ."""
    names = [f"{str(board['axis']).capitalize()} on {board['dataset']}" for board in boards]
    for name in set(names):
        alike = [i for i, other in enumerate(names) if other == name]
        entries = []
        for board in (boards[i] for i in alike):
            draws = {key: board.get(key, ABSENT) for key in ("seed", "references")}
            entries.append({**board["parameters"], **draws, "data": short(board["dataset_fingerprint"])})
        for key in dict.fromkeys(key for entry in entries for key in entry):
            values = [entry.get(key, ABSENT) for entry in entries]
            if len({plain(value) for value in values}) > 1:
                for i, text in zip(alike, told_apart(values), strict=True):
                    names[i] += f", {key} {text}"
    return names


def _board(board: Mapping[str, Any], title: str, runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    name = str(board["axis"])
    axis = axis_of(name, {"study": {"evaluations": {name: board["parameters"]}}}, [board["measure"]])
    measure = axis.measure(board["measure"])
    way = {"higher": ", more is better", "lower": ", less is better"}.get(measure.better, "") if measure else ""
    cells = board["rows"][0]["conditions"]
    conditions = [axis.condition(cell["condition"], cell["level"]) for cell in cells]
    facts = [("Data", f"{board['dataset']}, fingerprint {short(board['dataset_fingerprint'])}")]
    facts += [("Samples", str(board["samples"])), ("Seed", str(board["seed"]))]
    facts += [("References", str(board["references"]))] if "references" in board else []
    facts += [("Parameters", _parameters(board["parameters"]))]
    return {
        "id": f"board-{board['id']}",
        "title": title,
        "measure": f"{measure.title if measure else board['measure']}{way}",
        "facts": facts,
        "columns": _columns(),
        "rows": [_row(row, runs[row["run"]]) for row in board["rows"]],
        "conditions": conditions,
        "by_condition": [_cells(row) for row in board["rows"]] if len(conditions) > 1 else [],
    }


def _columns() -> list[tuple[str, bool]]:
    """The heads of a board, and whether the column is sorted by numbers."""
    texts = {"Explainer", "Model", "Run", "Parameters", "Weights", "holdfast", "Command"}
    names = ["Rank", "Explainer", "Score", "Model", "Run", "Retention", "Samples"]
    names += ["Command", "Weights", "holdfast", "Parameters"]
    return [(name, name not in texts) for name in names]


def _row(row: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    ranked = row["rank"] is not None
    rank = f"{row['rank']:.0f}" if ranked else MISSING
    spread = f"{row['rank_low']:.0f} to {row['rank_high']:.0f}" if ranked else str(row["unranked"])
    said = ", ".join(filter(None, ("control" if row["control"] else "", row.get("mark"))))
    name = f"{row['explainer']} ({said})" if said else str(row["explainer"])
    retained = f"{row['retained']} of {row['attempted']} pairs"
    share = None if row["retention"] is None else f"{100 * row['retention']:.0f} %"
    parameters = {key: value for key, value in row["parameters"].items() if key != "name"}
    command = str(run.get("command") or "")
    cells = [
        _cell(rank, row["rank"], spread),
        _cell(name),
        _cell(_score(row), row["score"]),
        _cell(str(row["model"]), more=str(row["precision"] or "")),
        _cell(str(row["run"]), more=str(run["path"])),
        _cell(share, row["retention"], retained),
        _cell(str(row["samples"]), row["samples"]),
        _cell(command or None, code=True, wide=True),
        _cell(short(row["model_fingerprint"]), code=True),
        _cell(str(run["holdfast"]) if run.get("holdfast") else None),
        _cell(_parameters(parameters) if parameters else "none", wide=True),
    ]
    return {"cells": cells, "control": bool(row["control"])}


def _cell(
    text: str | None, value: float | str | None = None, more: str = "", code: bool = False, wide: bool = False
) -> dict[str, Any]:
    """What a cell shows, a line below it, and what it is sorted by; a cell without a value goes last."""
    missing = text is None or text == MISSING
    by = "" if missing else text if value is None else value
    return {"text": text or MISSING, "more": more, "by": by, "missing": missing, "code": code, "wide": wide}


def _score(row: Mapping[str, Any]) -> str | None:
    if row["score"] is None:
        return None
    return with_interval(row["score"], *_ends(row))


def _ends(row: Mapping[str, Any]) -> tuple[float, float]:
    low, high = (float("nan") if row[end] is None else row[end] for end in ("low", "high"))
    return low, high


def _cells(row: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A row's scores by condition, for the second table."""
    cells = []
    for cell in row["conditions"]:
        if cell["score"] is None:
            tried = cell.get("attempted")
            cells.append(f"{MISSING} (0 of {tried} retained)" if tried else MISSING)
        else:
            score = number(cell["score"], digits_of(cell["score"], *_ends(cell)))
            cells.append(f"{score} ({cell['retained']}/{cell['attempted']})")
    return f"{row['run']}: {row['explainer']}, {row['model']}", cells


def _parameters(parameters: Mapping[str, Any]) -> str:
    """Parameters as one would write them, presets by their name."""
    parts = []
    for key, value in parameters.items():
        if key == "name":
            continue
        preset = presets().get(plain(value)) if isinstance(value, list) else None
        named = isinstance(value, list) and all(isinstance(entry, Mapping) and "name" in entry for entry in value)
        if preset:
            text = preset
        elif named and value:
            text = ", ".join(call(entry) for entry in value)
        else:
            text = call(value) if isinstance(value, Mapping) and "name" in value else brief(value)
        parts.append(f"{key}={text}")
    return "; ".join(parts)


def _made(run: Mapping[str, Any]) -> dict[str, Any]:
    prints = {kind: {name: short(value) for name, value in run[kind].items()} for kind in ("models", "datasets")}
    keys = ("run", "path", "command", "created", "holdfast", "versions")
    return {**{key: run.get(key) for key in keys}, **prints}
