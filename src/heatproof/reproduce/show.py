"""A reproduction in the terminal and as files: the table as CSV, LaTeX and a picture, and the figures of the runs."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.report.components import Component, Matrix, Table
from heatproof.report.draw import Looks
from heatproof.report.figures import PaperComponent, paper_components, write_figures
from heatproof.report.terminal import component_text
from heatproof.reproduce.experiment import OURS, PUBLISHED, Reproduction
from heatproof.runs.atomic import write_atomically
from heatproof.runs.manifest import Manifest, this_command

INCHES = 6.75


def matrix_of(done: Reproduction) -> Matrix:
    """Return the table with two columns under every heading: the published number and ours."""
    frames = []
    has_printed = bool(done.table[PUBLISHED].notna().any())
    for column in dict.fromkeys(done.table["column"]):
        numbers = done.table[done.table["column"] == column]
        if has_printed:
            printed = numbers.assign(score=numbers[PUBLISHED], low=float("nan"), high=float("nan"))
            frames.append(printed.assign(column_group=column, column=PUBLISHED))
        ours = numbers.assign(score=numbers[OURS])
        if has_printed:
            ours = ours.assign(column_group=column, column=OURS)
        frames.append(ours)
    item = done.item
    published = item.published
    return Matrix(
        key=item.name,
        title=f"{item.source}: {item.title}",
        caption=_caption(done),
        scores=pd.concat(frames, ignore_index=True),
        percent=published is not None and published.percent,
        row_title="",
        paper=item.source,
        figure=item.name,
    )


def _caption(done: Reproduction) -> str:
    item, table = done.item, done.table
    sentences = []
    if item.studies:
        sentences.append(f"Ours: {done.experiment.limit} samples of each data set.")
    if table["low"].notna().any():
        sentences.append("Brackets: 95 % intervals.")
    if item.published is None:
        sentences.append("The paper prints no numbers for it.")
    return " ".join(sentences)


def setup_table(done: Reproduction) -> Table:
    """Return how the set-up differs: an aspect per row, in the paper and here."""
    rows = [(aspect, *texts) for aspect, texts in done.item.setup.items()]
    experiment = done.experiment
    replaced = {"data": experiment.data.values(), "models": experiment.models}
    rows = [
        (aspect, paper, ", ".join(replaced.get(aspect) or [here])) for aspect, paper, here in rows
    ]
    return Table(
        key="setup",
        title="How the set-up differs",
        caption="",
        rows=pd.DataFrame(rows, columns=["aspect", "paper", "here"]),
        columns={"aspect": "", "paper": "in the paper", "here": "here"},
    )


def text_of(done: Reproduction, width: int) -> str:
    """Return the table, what the paper says, how the set-up differs, and notes, as text."""
    parts = [component_text(matrix_of(done), looks_of(done), width)]
    if done.item.says:
        parts.append("\n".join(["The paper says:", *_folded(done.item.says, width)]))
    differences = ["How the set-up differs (paper → here):"]
    for row in setup_table(done).rows.itertuples():
        differences += _folded([f"{row.aspect}: {row.paper} → {row.here}"], width)
    parts.append("\n".join(differences))
    if done.item.notes:
        parts.append("\n".join(["Notes:", *_folded(done.item.notes, width)]))
    return "\n\n".join(parts)


def _folded(sentences: list[str], width: int) -> Iterator[str]:
    for sentence in sentences:
        yield from textwrap.wrap(
            sentence, max(width, 40), initial_indent="  ", subsequent_indent="    "
        )


def looks_of(done: Reproduction) -> Looks:
    """Return the display names and colours of the explainers of the runs."""
    if not done.item.studies:
        return {}
    return {name: look for result in done.experiment.results for name, look in result.looks.items()}


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
    figures = list(_figures(done))
    manifest = _manifest(done)
    written = write_figures(figures, manifest, folder, formats, INCHES)
    return [table, *(file.path for file in written.files)]


def _figures(done: Reproduction) -> Iterator[PaperComponent]:
    """Yield the table, the item's own charts, and the figures of the runs that it names."""
    looks = looks_of(done)

    def figure(component: Component) -> PaperComponent:
        name = component.figure or f"{done.item.name}-{component.key}"
        return PaperComponent(name, "", "", component, looks)

    yield figure(matrix_of(done))
    for chart in done.charts:
        yield figure(chart)
    if done.item.figures:
        for drawn in paper_components(done.experiment.results):
            if drawn.name in done.item.figures:
                yield drawn


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
