"""What an axis says and draws of its results, as texts that can be recorded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from heatproof.axes import Judged
from heatproof.axes.contract import figures_of, findings_of, page_of
from heatproof.axes.material import Material
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.latex import Cell, Entry
from heatproof.drawing.pieces import Drawing, Piece, Skipped
from heatproof.drawing.sheet import Plot
from support.fixed import brief

DATA = re.compile(r'data:[^"]+|\s+')


def found(judged: Judged) -> list[str]:
    """Every finding in one line each for what was seen and what to do."""
    return [
        " | ".join(
            (f.severity, f.axis, f.title, ", ".join(f.explainers), f.seen, f.means, f.do, *f.items)
        )
        for f in findings_of(judged)
    ]


def lead(judged: Judged) -> list[str]:
    """The sentences at the top of the section."""
    page = page_of(judged.axis)
    return [] if page is None else page.lead(judged)


def parts(judged: Judged) -> dict[str, Any]:
    """Every chart and panel of the section."""
    page = page_of(judged.axis)
    return {} if page is None else {part.key: drawn(part) for part in page.parts(judged)}


def drawn(part: Chart | Panel | None) -> Any:
    """The words of a chart with its marks, or of a panel."""
    if part is None:
        return None
    if isinstance(part, Panel):
        return [part.title, part.caption, DATA.sub(" ", re.sub(r"<[^>]+>", " ", str(part.html)))]
    return [part.title, part.caption, part.alt, *map(plot, part.every)]


def plot(one: Plot) -> str:
    """Title, note and the marks of a plot."""
    marks = ["/".join(f"{k}={v}" for k, v in mark.items() if k != "y") for mark in one.sheet.marks]
    return f"{one.title} ({one.note}): {'; '.join(marks)}"


def figures(every: Sequence[Judged], axis: Any = None) -> dict[str, list[str]]:
    """Every figure and table for papers."""
    material = Material(list(every), every[0].manifest if every else {})
    items = figures_of(axis or every[0].axis)
    return {item.name: [_piece(piece) for piece in item.make(material, 5.0)] for item in items}


def _piece(piece: Piece) -> str:
    if isinstance(piece, Skipped):
        return f"skipped {piece.subject}: {piece.reason}"
    if isinstance(piece, Drawing):
        return f"{piece.subject}: {piece.caption} {' '.join(map(plot, piece.plots))}"
    table = piece.content
    rows = [" & ".join(map(_entry, row)) for row in table.rows]
    heads = f"{list(table.heads)} {table.rules} {list(table.spans)} {table.words}"
    return f"{piece.subject}: {piece.caption} {heads} {' // '.join(rows)}"


def _entry(entry: Entry) -> str:
    if not isinstance(entry, Cell):
        return entry
    marks = ("*" if entry.bold else "") + ("%" if entry.percent else "")
    return f"{brief(entry.value)} [{brief(entry.low)}, {brief(entry.high)}]{marks}"
