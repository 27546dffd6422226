"""A reproduction in the terminal and as files: the table as CSV, LaTeX and a picture, and the figures of the runs."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.report.components import Component, Matrix, Table
from heatproof.report.draw import Looks
from heatproof.report.figures import PaperComponent, paper_components, write_figures
from heatproof.report.latex import Tabular, tabular_of
from heatproof.report.terminal import component_text
from heatproof.reproduce.experiment import OURS, PUBLISHED, Reproduction
from heatproof.runs.atomic import write_atomically
from heatproof.runs.manifest import Manifest, this_command
from heatproof.text import number

INCHES = 6.75
MISSING = "–"
DECIMALS = 2
"""Decimals of a number that the paper does not print."""


# ---- the table ---------------------------------------------------------------------------------------------------------


def table_of(done: Reproduction) -> Table:
    """Return the table of a reproduction in words: in every cell the paper's number and ours, with as many decimals."""
    has_printed = bool(done.table[PUBLISHED].notna().any())
    columns = list(dict.fromkeys(done.table["column"]))
    rows = []
    for (group, row), numbers in done.table.groupby(["row_group", "row"], sort=False):
        decimals = _decimals_of(done, numbers)
        cells = {"row_group": group, "row": row, **dict.fromkeys(columns, MISSING)}
        for entry in numbers.to_dict("records"):
            ours = _with_interval(done, entry[OURS], entry["low"], entry["high"], decimals)
            printed = _text(done, entry[PUBLISHED], decimals)
            cells[entry["column"]] = f"{printed} | {ours}" if has_printed else ours
        rows.append(cells)
    heads = {"row": f"{PUBLISHED} | {OURS}" if has_printed else "", **{c: c for c in columns}}
    frame = pd.DataFrame(rows)
    return Table(
        key="table",
        title=f"{done.item.source}: {done.item.title}",
        caption=_caption(done),
        rows=frame,
        columns=heads,
        group="row_group" if frame["row_group"].ne("").any() else None,
    )


def _scale(done: Reproduction) -> float:
    published = done.item.published
    return 100.0 if published is not None and published.percent else 1.0


def _decimals_of(done: Reproduction, numbers: pd.DataFrame) -> int:
    """Return the number of decimals to print in a row: as many as the paper, or as in its other rows if it lacks this one.

    `numbers` are the cells of the row.
    """
    printed = numbers[PUBLISHED].dropna()
    if printed.empty:
        printed = done.table[PUBLISHED].dropna()
    decimals = []
    for value in printed * _scale(done):
        decimals.append(len(f"{value:.6f}".rstrip("0").partition(".")[2]))
    return max(decimals, default=DECIMALS)


def _text(done: Reproduction, value: float, decimals: int) -> str:
    return MISSING if pd.isna(value) else number(_scale(done) * value, decimals)


def _with_interval(done: Reproduction, value: float, low: float, high: float, decimals: int) -> str:
    text = _text(done, value, decimals)
    if pd.isna(value) or pd.isna(low) or pd.isna(high):
        return text
    return f"{text} [{_text(done, low, decimals)}, {_text(done, high, decimals)}]"


def _caption(done: Reproduction) -> str:
    """Return the caption of the table: how many samples ours rests on, the unit, and what brackets are."""
    item = done.item
    sentences = []
    if item.studies:
        sentences.append(f"Ours: {done.experiment.limit} samples of each data set.")
    if _scale(done) == 100:
        sentences.append("Percentages.")
    if done.table["low"].notna().any():
        sentences.append("Brackets: 95 % intervals.")
    if item.published is None:
        sentences.append("The paper prints no numbers for it.")
    return " ".join(sentences)


def text_of(done: Reproduction, width: int) -> str:
    """Return the table, what the paper says, how the set-up differs, and notes, as text."""
    item = done.item
    parts = [component_text(table_of(done), looks_of(done), width)]
    if item.says:
        parts.append("\n".join(["The paper says:", *_folded(item.says, width)]))
    differences = [f"{aspect}: {paper} → {ours}" for aspect, paper, ours in setup_of(done)]
    heading = "How the set-up differs (paper → ours):"
    parts.append("\n".join([heading, *_folded(differences, width)]))
    if item.notes:
        parts.append("\n".join(["Notes:", *_folded(item.notes, width)]))
    return "\n\n".join(parts)


def setup_of(done: Reproduction) -> list[tuple[str, str, str]]:
    """Return how the set-up differs, as triples (aspect, the paper's, ours).

    Where the user replaced data or models, theirs are ours.
    """
    experiment = done.experiment
    chosen = {"data": list(experiment.data.values()), "models": list(experiment.models)}
    rows = []
    for aspect, (paper, ours) in done.item.setup.items():
        rows.append((aspect, paper, ", ".join(chosen.get(aspect, [])) or ours))
    return rows


def _folded(sentences: Iterable[str], width: int) -> Iterator[str]:
    for sentence in sentences:
        yield from textwrap.wrap(
            sentence, max(width, 40), initial_indent="  ", subsequent_indent="    "
        )


def looks_of(done: Reproduction) -> Looks:
    """Return the display names and colours of the explainers of the runs."""
    if not done.item.studies:
        return {}
    return {name: look for result in done.experiment.results for name, look in result.looks.items()}


# ---- files -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableFigure(PaperComponent):
    """The table as a picture and, with the numbers as printed, as LaTeX."""

    printed: Table

    def table(self, pictures: Sequence[str]) -> Tabular | None:
        """Return the table for LaTeX, with the numbers as printed; it has no pictures."""
        return tabular_of(self.printed, self.looks)


def write(done: Reproduction) -> list[Path]:
    """Write table.csv, the table and the figures below the folder of reproductions; return the paths.

    Figures are SVG, and PNG where matplotlib is installed.
    """
    folder = done.experiment.out / done.item.name
    table = folder / "table.csv"
    write_atomically(table, done.table.to_csv(index=False).encode())
    formats = ["svg"]
    if importlib.util.find_spec("matplotlib") is not None:
        formats.append("png")
    written = write_figures(list(_figures(done)), _manifest(done), folder, formats, INCHES)
    return [table, *(file.path for file in written.files)]


def _figures(done: Reproduction) -> Iterator[PaperComponent]:
    """Yield the table, the item's own charts, and the figures of the runs that it names."""
    looks, name = looks_of(done), done.item.name
    yield TableFigure(name, "", "", picture_of(done), looks, table_of(done))
    for chart in done.charts:
        yield PaperComponent(f"{name}-{chart.key}", "", "", chart, looks)
    if done.item.figures:
        for drawn in paper_components(done.experiment.results):
            if drawn.name in done.item.figures:
                yield drawn


def picture_of(done: Reproduction) -> Component:
    """Return the table as a heat map, with two columns under every heading: the published number and ours."""
    frames = []
    has_printed = bool(done.table[PUBLISHED].notna().any())
    for column in dict.fromkeys(done.table["column"]):
        numbers = done.table[done.table["column"] == column]
        ours = numbers.assign(score=numbers[OURS])
        if has_printed:
            printed = numbers.assign(score=numbers[PUBLISHED], low=math.nan, high=math.nan)
            frames.append(printed.assign(column_group=column, column=PUBLISHED))
            ours = ours.assign(column_group=column, column=OURS)
        frames.append(ours)
    return Matrix(
        key="table",
        title=f"{done.item.source}: {done.item.title}",
        caption=_caption(done),
        scores=pd.concat(frames, ignore_index=True),
        percent=_scale(done) == 100,
        row_title="",
        paper=done.item.source,
    )


def _manifest(done: Reproduction) -> Manifest:
    """Return the manifest that the files name as their source; without a run, one with the command alone."""
    if done.item.studies:
        return done.experiment.runs[0].manifest
    nothing: dict[str, Any] = {"models": {}, "datasets": {}, "explainers": {}, "evaluations": {}}
    return Manifest(
        heatproof=version("heatproof"),
        shard_size=1,
        study={"seed": 0, **nothing},
        command=this_command(),
    )
