"""`write`: every figure and table that a run has the rows for, and an index of what was written and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from heatproof.axes import AXES
from heatproof.axes.contract import figures_of
from heatproof.axes.material import Material
from heatproof.drawing.latex import escape, render
from heatproof.drawing.pieces import Drawing, Item, Skipped, Table, file_part
from heatproof.drawing.sheet import flowed, need_matplotlib
from heatproof.errors import UserError, unknown
from heatproof.report.proof_sheet_drawing import ITEM
from heatproof.runs.atomic import write_atomically
from heatproof.runs.digests import as_json
from heatproof.runs.run import Run, read

INDEX = "index.json"
WIDTHS = {"column": 3.25, "text": 6.75}
"""Inches: one column of a two-column paper, and both."""
NARROWEST, WIDEST = 2.0, 20.0
FORMATS = ("pdf", "png", "svg")


@lru_cache(maxsize=1)
def items() -> tuple[Item, ...]:
    """Everything that can be written, axis by axis, in the order of the papers."""
    return (ITEM, *(item for axis in AXES for item in figures_of(axis)))


@dataclass(frozen=True)
class File:
    """One file that was written."""

    path: Path
    item: str
    paper: str
    subject: str
    caption: str


@dataclass(frozen=True)
class Written:
    """What `write_all` did: the files, and (item, subject, reason) of what it left out."""

    files: list[File]
    skipped: list[tuple[str, str, str]]
    index: Path


def write(
    run_or_dir: Run | str | Path,
    out: str | Path | None = None,
    formats: Sequence[str] = ("pdf", "png"),
    only: Sequence[str] | None = None,
    width: float | str = "text",
) -> list[Path]:
    """Write the papers' figures and tables for a run, and return the paths, the index last.

    Figures are written in `formats` (pdf, png, svg), tables as LaTeX that needs booktabs. `only` names items of
    `heatproof.figures.items()`; `width` is "column" (3.25 inches), "text" (6.75 inches) or inches. Without `out` they go
    to the folder `figures` of the run. What the run has no rows for is left out; `index.json` says why.

    >>> write("no-such-run", only=["stability-map"])
    Traceback (most recent call last):
    heatproof.errors.UserError: no-such-run is not a run directory: it has no manifest.json
    """
    written = write_all(run_or_dir, out, formats, only, width)
    return [*(file.path for file in written.files), written.index]


def write_all(
    run_or_dir: Run | str | Path,
    out: str | Path | None = None,
    formats: Sequence[str] = ("pdf", "png"),
    only: Sequence[str] | None = None,
    width: float | str = "text",
) -> Written:
    """`write`, with what was left out and why."""
    chosen, inches = choose(only), as_width(width)
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if any(item.kind == "figure" for item in chosen):
        if not formats:
            raise UserError(f"no format is given; name at least one of {', '.join(FORMATS)}")
        if {*formats} - {"svg"}:
            need_matplotlib()
    run = run_or_dir if isinstance(run_or_dir, Run) else read(run_or_dir)
    if out is None and not isinstance(run.path, Path):
        raise UserError(
            f"{run.path} is in a store; name the directory for its figures with out (--out)"
        )
    folder = Path(str(run.path)) / "figures" if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; figures need a directory")
    results = run.results(gallery=ITEM in chosen)
    return write_items(
        Material(results, run.manifest, run.samples()),
        chosen,
        folder,
        list(dict.fromkeys(formats)),
        inches,
    )


def choose(only: Sequence[str] | None) -> list[Item]:
    """The items of these names, in the order of the papers; all of them for None.

    >>> [item.name for item in choose(["removal-curves", "stability-map"])]
    ['stability-map', 'removal-curves']
    """
    if only is None:
        return list(items())
    if isinstance(only, str) or not only:
        raise UserError(f"only takes a list of names, such as {items()[0].name}; got {only!r}")
    names = {item.name: item for item in items()}
    for name in only:
        if name not in names:
            raise unknown("figure", name, names)
    return [item for item in items() if item.name in only]


def write_items(
    material: Material, chosen: Sequence[Item], folder: Path, formats: Sequence[str], width: float
) -> Written:
    """Make and write items one by one, so that a run of many methods does not hold all its figures in memory."""
    files: list[File] = []
    skipped: list[tuple[str, str, str]] = []
    taken: set[str] = set()
    for item in chosen:
        for piece in item.make(material, width):
            if isinstance(piece, Skipped):
                skipped.append((item.name, piece.subject, piece.reason))
                continue
            sheets = flowed(piece.plots, width) if isinstance(piece, Drawing) else [None]
            for i, sheet in enumerate(sheets):
                part = f"part {i + 1}" if len(sheets) > 1 else ""
                subject = ", ".join(filter(None, (piece.subject, part)))
                stem = _free(item.name, subject, taken)
                for kind in ["tex"] if isinstance(piece, Table) else formats:
                    path = folder / f"{stem}.{kind}"
                    if isinstance(piece, Table):
                        write_atomically(path, _latex(piece, stem, material, width))
                    elif sheet is not None:
                        write_atomically(path, sheet.encoded(kind, piece.caption, width))
                    files.append(File(path, item.name, item.paper, subject, piece.caption))
    index = folder / INDEX
    write_atomically(index, as_json(_index(material, files, skipped, width)))
    return Written(files, skipped, index)


def _latex(piece: Table, stem: str, material: Material, width: float) -> bytes:
    manifest = material.manifest
    notes = [
        f"from: {manifest.command or 'unknown'}",
        f"run {material.fingerprint}, heatproof {manifest.heatproof}; written by `heatproof figures`",
    ]
    return render(piece.content, escape(piece.caption), f"tab:{stem}", notes, width).encode()


def as_width(width: float | str) -> float:
    """A width in inches from "column", "text" or a number.

    >>> as_width("column"), as_width("5.5")
    (3.25, 5.5)
    >>> as_width("colum")
    Traceback (most recent call last):
    heatproof.errors.UserError: width must be column, text or inches from 2 to 20, got 'colum'
    """
    if isinstance(width, str) and width in WIDTHS:
        return WIDTHS[width]
    try:
        inches = float(width)
    except ValueError:
        inches = -1.0
    if not NARROWEST <= inches <= WIDEST:
        limits = f"inches from {NARROWEST:g} to {WIDEST:g}"
        raise UserError(f"width must be column, text or {limits}, got {width!r}")
    return inches


def _free(item: str, subject: str, taken: set[str]) -> str:
    """A file name that no other piece has; names that only differ in odd characters get a number."""
    base = "-".join(filter(None, (item, file_part(subject))))
    stem, again = base, 1
    while stem in taken:
        again += 1
        stem = f"{base}-{again}"
    taken.add(stem)
    return stem


def _index(
    material: Material, files: Sequence[File], skipped: Sequence[tuple[str, str, str]], width: float
) -> dict[str, object]:
    """What was written and what was not, as plain data without dates, so that the same run gives the same file."""
    return {
        "run": material.fingerprint,
        "command": material.manifest.command,
        "heatproof": material.manifest.heatproof,
        "width": width,
        "written": [
            {
                "file": f.path.name,
                "item": f.item,
                "paper": f.paper,
                "subject": f.subject,
                "caption": f.caption,
            }
            for f in files
        ],
        "skipped": [
            {"item": item, "subject": subject, "reason": reason}
            for item, subject, reason in skipped
        ],
    }
