"""The leaderboard as one HTML page and as text: functions of its JSON alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from heatproof.axes import axis_of
from heatproof.errors import UserError
from heatproof.report.comparison.leaderboard import NO_DIRECTION, SCHEMA, leaderboard
from heatproof.report.comparison.match import numbered
from heatproof.report.comparison.page import PACKAGE, style_and_script
from heatproof.report.comparison.text import Line, table_lines, wrapped
from heatproof.report.components import Matrix, ScoreChart, Table
from heatproof.report.html import page
from heatproof.report.page_parts import Chart, Panel, part_of
from heatproof.results.names import Look, looks
from heatproof.runs.atomic import write_atomically
from heatproof.runs.differences import ABSENT, brief, call, plain, presets, told_apart
from heatproof.runs.run import Run
from heatproof.text import number, with_interval

HEADS = ("Rank", "Explainer", "Score", "Result", "Model", "Run", "Retention", "Samples")
NUMERIC = ("Rank", "Score", "Retention", "Samples")
"""Columns that are sorted by their numbers."""
MISSING = "–"
MOST_METHODS = 12
"""How many methods of a board a terminal shows."""
Row = Mapping[str, Any]
Board = Mapping[str, Any]


def write_leaderboard(runs: Sequence[Run | str | Path], out: str | Path) -> tuple[Path, Path]:
    """Write leaderboard.json and leaderboard.html into a directory and return their paths."""
    return write_standings(leaderboard(*runs), out)


def write_standings(standings: Mapping[str, Any], out: str | Path) -> tuple[Path, Path]:
    """Write what `leaderboard` returned into a directory and return the paths of the two files."""
    data, html = Path(out) / "leaderboard.json", Path(out) / "leaderboard.html"
    text = json.dumps(standings, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(data, text.encode())
    write_atomically(html, leaderboard_page(json.loads(text)).encode())
    return data, html


def leaderboard_page(data: Mapping[str, Any]) -> str:
    """Return one HTML page from what `leaderboard` returns or its JSON holds; it needs no network.

    >>> "No scores" in leaderboard_page({"schema": "heatproof-leaderboard/1", "runs": [], "boards": []})
    True
    >>> leaderboard_page({"schema": "other/2"})
    Traceback (most recent call last):
    heatproof.errors.UserError: this is no leaderboard of schema heatproof-leaderboard/1: schema is 'other/2'
    """
    _check_schema(data)
    names = EntryNames(data)
    boards = data["boards"]
    titles = board_titles(boards)
    context = {
        "boards": [_board(b, title, names) for b, title in zip(boards, titles, strict=True)],
        "scores": _score_matrix(boards, titles, names) if len(boards) > 1 else None,
        "runs": data["runs"],
        "columns": [(head, head in NUMERIC) for head in HEADS],
        **style_and_script("leaderboard.js"),
    }
    return page(PACKAGE, "leaderboard.html").render(context)


def leaderboard_text(data: Mapping[str, Any], width: int) -> list[Line]:
    """Return the verdict and the first rows of every board for a terminal."""
    _check_schema(data)
    names = EntryNames(data)
    if not data["boards"]:
        return [("No scores: the runs hold no results yet.", "yellow")]
    lines: list[Line] = []
    boards = data["boards"]
    for board, title in zip(boards, board_titles(boards), strict=True):
        lines += [("", "")] if lines else []
        lines.append((title, "bold"))
        for sentence in board.get("verdict", []):
            lines += wrapped(f"  {sentence}", width)
        lines += table_lines(_text_table(board, names), names.looks, width)[1:]
        hidden = len(board["rows"]) - len(_first_rows(board))
        if hidden > 0:
            lines.append((f"  and {hidden} more in leaderboard.html", ""))
    return lines


def _check_schema(data: Mapping[str, Any]) -> None:
    schema = data.get("schema")
    if schema != SCHEMA:
        raise UserError(f"this is no leaderboard of schema {SCHEMA}: schema is {schema!r}")


class EntryNames:
    """What the rows of all boards are called: the explainer, and its run and model where there are several."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        rows: list[Row] = []
        for board in data["boards"]:
            rows += board["rows"]
        controls = {row["explainer"] for row in rows if row["control"]}
        self.looks: dict[str, Look] = looks([row["explainer"] for row in rows], controls)
        self.has_runs = len(data["runs"]) > 1
        self.has_models = any(len(run["models"]) > 1 for run in data["runs"])

    def look(self, row: Row) -> Look:
        """Return the display name of the explainer of a row, with its mark, and its colour."""
        look, mark = self.looks[row["explainer"]], row.get("mark")
        return replace(look, name=f"{look.name} ({mark})") if mark else look

    def where(self, row: Row) -> str:
        """Return the run of a row, with its model if some run has several."""
        return f"{row['model']}, {row['run']}" if self.has_models else str(row["run"])

    def entry(self, row: Row) -> str:
        """Return the explainer of a row, with its run where there are several."""
        name = self.look(row).name
        return f"{name}, {self.where(row)}" if self.has_runs or self.has_models else name


def board_titles(boards: Sequence[Board]) -> list[str]:
    """Return the title of each board; boards of one axis and data set also say in what they differ."""
    titles = [f"{str(board['axis']).capitalize()} on {board['dataset']}" for board in boards]
    boards_of_title: dict[str, list[int]] = {}
    for i, title in enumerate(titles):
        boards_of_title.setdefault(title, []).append(i)
    for same_title in boards_of_title.values():
        settings = [_settings(boards[i]) for i in same_title]
        keys: dict[str, None] = {}
        for of_board in settings:
            keys |= dict.fromkeys(of_board)
        for key in keys:
            values = [of_board.get(key, ABSENT) for of_board in settings]
            if key == "data":
                values = numbered(values)  # fingerprints, which nobody can tell apart
            if len(set(map(plain, values))) > 1:
                for i, text in zip(same_title, told_apart(values), strict=True):
                    titles[i] += f", {key} {text}"
    return titles


def _settings(board: Board) -> dict[str, Any]:
    """Return everything in which two boards of one axis may differ."""
    draws = {key: board.get(key, ABSENT) for key in ("seed", "references")}
    data = {"data": board["dataset_fingerprint"], "measure": board["measure"]}
    return {**board["parameters"], **draws, **data}


def _measure_title(board: Board) -> str:
    """Return the title of the measure of a board."""
    axis = axis_of(str(board["axis"]), None, [board["measure"]])
    measure = axis.measure(board["measure"])
    return measure.title if measure else str(board["measure"])


def _measure_text(board: Board) -> str:
    """Return the measure of a board, and which way is better."""
    axis = axis_of(str(board["axis"]), None, [board["measure"]])
    measure = axis.measure(board["measure"])
    if measure is None or measure.better == "neither":
        return _measure_title(board)
    return f"{measure.title}, {measure.better} is better"


# ---- the cells of a row ----------------------------------------------------------------------------------------------


def _float(value: float | None) -> float:
    return math.nan if value is None else value


def _score(row: Row) -> str:
    """Return the score of a row with its interval."""
    score, low, high = (_float(row[end]) for end in ("score", "low", "high"))
    return with_interval(score, low, high, row["samples"])


def _rank(row: Row) -> str:
    """Return the rank of a row, with the ranks that the tests leave open."""
    if row["rank"] is None:
        return MISSING
    rank = f"{row['rank']:.0f}"
    if row["rank_low"] == row["rank_high"]:
        return rank
    return f"{rank} ({row['rank_low']:.0f}–{row['rank_high']:.0f})"


def _result(row: Row) -> str:
    """Return what the tests say of a row, or why they say nothing."""
    if row["control"]:
        return "control"
    if row["unranked"] == NO_DIRECTION:
        return ""  # said once for the whole board
    return str(row["unranked"] or row.get("label") or "")


def _cells(row: Row, names: EntryNames) -> list[dict[str, Any]]:
    """Return the text of each cell, and what the column is sorted by; one without a number goes last."""
    retention = row["retention"]
    share = MISSING if retention is None else f"{100 * retention:.0f} %"
    name = names.look(row).name
    values = {
        "Rank": (_rank(row), row["rank"]),
        "Explainer": (name, name),
        "Score": (_score(row), row["score"]),
        "Result": (_result(row), _result(row)),
        "Model": (str(row["model"]), str(row["model"])),
        "Run": (str(row["run"]), str(row["run"])),
        "Retention": (share, retention),
        "Samples": (str(row["samples"]), row["samples"]),
    }
    cells = []
    for head in HEADS:
        text, by = values[head]
        cells.append({"text": text, "by": "" if by is None else by})
    return cells


# ---- boards ----------------------------------------------------------------------------------------------------------


def _board(board: Board, title: str, names: EntryNames) -> dict[str, Any]:
    """Return what the template shows of a board."""
    key = f"board-{board['id']}"
    facts = []
    for fact in ("samples", "seed", "references"):
        if fact in board:
            facts.append((fact.capitalize(), str(board[fact])))
    facts.append(("Parameters", _parameters(board["parameters"])))
    rows = [{"cells": _cells(row, names), "control": row["control"]} for row in board["rows"]]
    return {
        "id": key,
        "title": title,
        "measure": _measure_text(board),
        "verdict": board.get("verdict", []),
        "chart": _chart(board, f"{key}-chart", title, names),
        "conditions": _condition_table(board, names),
        "facts": facts,
        "rows": rows,
    }


def _chart(board: Board, key: str, title: str, names: EntryNames) -> Chart | None:
    """Return the scores with their intervals, a plot for each run."""
    scores = []
    for row in board["rows"]:
        score = {end: _float(row[end]) for end in ("score", "low", "high")}
        facts = {
            "row": names.look(row).name,
            "explainer": row["explainer"],
            "panel": names.where(row),
            "note": _result(row),
        }
        if row.get("has_chance"):
            facts["above_chance"] = row["above_chance"]
        scores.append({**score, **facts})
    frame = pd.DataFrame(scores).sort_values("panel", kind="stable")
    caption = f"{_measure_text(board)}. Bands are 95 % intervals."
    if "above_chance" in frame:
        caption += " Hollow: not above chance."
    component = ScoreChart(
        key=key,
        title=f"{title}: scores",
        caption=caption,
        scores=frame,
        row="row",
        x_label=_measure_title(board),
        limits=(0.0, 0.0),
    )
    chart = part_of(component, names.looks)
    return chart if isinstance(chart, Chart) else None


def _condition_table(board: Board, names: EntryNames) -> Markup | None:
    """Return a table of the scores of a board under each condition; None if there is only one."""
    if len(board["rows"][0]["conditions"]) < 2:
        return None
    axis = axis_of(str(board["axis"]), None, [board["measure"]])
    cells = []
    for row in board["rows"]:
        for cell in row["conditions"]:
            scores = {end: _float(cell[end]) for end in ("score", "low", "high")}
            column = axis.condition(cell["condition"], cell["level"])
            cells.append({"row": names.entry(row), "column": column, **scores})
    matrix = Matrix(
        key="conditions",
        title="By condition",
        caption="",
        scores=pd.DataFrame(cells),
        shaded=False,
    )
    panel = part_of(matrix, names.looks)
    return panel.html if isinstance(panel, Panel) else None


def _score_matrix(
    boards: Sequence[Board], titles: Sequence[str], names: EntryNames
) -> dict[str, Any]:
    """Return the scores of all boards as one table: a row for each method of a run, a column for each board."""
    rows: dict[str, bool] = {}
    texts: dict[tuple[str, int], tuple[str, str]] = {}
    for column, board in enumerate(boards):
        for row in board["rows"]:
            name = names.entry(row)
            rows.setdefault(name, bool(row["control"]))
            label = "" if row["control"] else str(row.get("label") or "")
            texts[name, column] = (number(_float(row["score"])), label)
    in_order = sorted(rows, key=lambda name: rows[name])  # controls last
    table = []
    for name in in_order:
        cells = [texts.get((name, column), (MISSING, "")) for column in range(len(boards))]
        table.append({"name": name, "control": rows[name], "cells": cells})
    heads = []
    for board, title in zip(boards, titles, strict=True):
        heads.append((f"board-{board['id']}", title, _measure_text(board)))
    return {"heads": heads, "rows": table}


def _first_rows(board: Board) -> list[Row]:
    """Return the rows of a board that a terminal shows: the first methods, and the best row of each control."""
    methods = [row for row in board["rows"] if not row["control"]]
    controls: dict[str, Row] = {}
    for row in board["rows"]:
        if row["control"]:
            controls.setdefault(row["explainer"], row)
    return [*methods[:MOST_METHODS], *controls.values()]


def _text_table(board: Board, names: EntryNames) -> Table:
    """Return the first rows of a board for a terminal, which has no room for the reasons why a row has no rank."""
    cells = []
    for row in _first_rows(board):
        is_unranked = row["unranked"] not in ("", NO_DIRECTION) and not row["control"]
        facts = {
            "rank": _rank(row),
            "explainer": names.look(row).name,
            "score": _score(row),
            "result": "no rank" if is_unranked else _result(row) or " ",
            "where": names.where(row),
        }
        cells.append(facts)
    columns = {"explainer": "Explainer", "rank": "Rank"}
    columns |= {"score": _measure_title(board), "result": "Result"}
    if names.has_runs or names.has_models:
        columns["where"] = "Run"
    return Table(key="board", title="", caption="", rows=pd.DataFrame(cells), columns=columns)


def _parameters(parameters: Mapping[str, Any]) -> str:
    """Return parameters as one would write them, presets by their names."""
    texts = []
    for key, value in parameters.items():
        if key != "name":
            texts.append(f"{key}={_parameter(value)}")
    return "; ".join(texts)


def _parameter(value: Any) -> str:
    def is_object(entry: Any) -> bool:
        return isinstance(entry, Mapping) and "name" in entry

    if isinstance(value, list) and value and all(is_object(entry) for entry in value):
        return presets().get(plain(value)) or ", ".join(call(entry) for entry in value)
    return call(value) if is_object(value) else brief(value)
