"""`write`: every figure and table that a run has the rows for, and an index of what was written and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from heatproof.axes import BY_NAME
from heatproof.axes.material import Material
from heatproof.drawing.latex import Tabular, escape, render
from heatproof.drawing.pieces import Drawing, Item, Skipped, about, file_part, subjects
from heatproof.drawing.sheet import Plot, flowed, need_matplotlib
from heatproof.errors import UserError, unknown
from heatproof.report import components
from heatproof.report.components import Component, Matrix
from heatproof.report.draw import Looks, plots_of
from heatproof.report.latex import tabular_of
from heatproof.report.proof_sheet_drawing import ITEM
from heatproof.results.axis_result import AxisResult
from heatproof.results.reports import components_across, components_of, figures_of
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
    return (ITEM, *(item for axis in BY_NAME.values() for item in figures_of(axis)))


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


@dataclass(frozen=True)
class PaperComponent:
    """A component that reproduces a figure or table of a paper: what it is called, and of which model and data it is.

    `subject` tells it from others of the same name and is empty where there is one only; `about` is the subject in full.
    """

    name: str
    subject: str
    about: str
    component: Component
    looks: Looks

    @property
    def has_plots(self) -> bool:
        """Whether it is a figure and not only a table."""
        is_plain_table = isinstance(self.component, Matrix) and not self.component.shaded
        return not is_plain_table and not isinstance(self.component, components.Table)

    @property
    def caption(self) -> str:
        """The caption of its file."""
        title = self.component.title
        head = f"{title}: {self.about}" if self.about else title
        return f"{head}. {self.component.caption}".strip()


def paper_components(results: Sequence[AxisResult]) -> list[PaperComponent]:
    """Return the components of some results that reproduce a figure or table of a paper, axis by axis."""
    found: list[PaperComponent] = []
    for axis in BY_NAME:
        of_axis = [result for result in results if result.axis.name == axis]
        every_arrays = [result.arrays for result in of_axis]
        for result, subject in zip(of_axis, subjects(every_arrays), strict=True):
            for component in components_of(result):
                name = component.figure or f"{axis}-{component.key}"
                found.append(
                    PaperComponent(name, subject, about(result.arrays), component, result.looks)
                )
        looks = {name: look for result in of_axis for name, look in result.looks.items()}
        for component in components_across(of_axis):
            name = component.figure or f"{axis}-{component.key}"
            found.append(PaperComponent(name, "", "", component, looks))
    return [component for component in found if component.component.paper]


def write(
    run_or_dir: Run | str | Path,
    out: str | Path | None = None,
    formats: Sequence[str] = ("pdf", "png"),
    only: Sequence[str] | None = None,
    width: float | str = "text",
) -> list[Path]:
    """Write the papers' figures and tables for a run, and return the paths, the index last.

    Figures are written in `formats` (pdf, png, svg), tables as LaTeX that needs booktabs. `only` names figures, such as
    "localisation-scores", or the beginnings of names, such as "localisation"; `width` is "column" (3.25 inches), "text"
    (6.75 inches) or inches. Without `out` they go to the folder `figures` of the run. What the run has no rows for is left
    out; docs/figures.md says what each figure needs.

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
    if only is not None and (isinstance(only, str) or not only):
        raise UserError(f"only takes a list of names, such as {ITEM.name}; got {only!r}")
    inches = as_width(width)
    if not formats:
        raise UserError(f"no format is given; name at least one of {', '.join(FORMATS)}")
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    run = run_or_dir if isinstance(run_or_dir, Run) else read(run_or_dir)
    if out is None and not isinstance(run.path, Path):
        raise UserError(
            f"{run.path} is in a store; name the directory for its figures with out (--out)"
        )
    folder = Path(str(run.path)) / "figures" if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; figures need a directory")

    results = run.results(gallery=True)
    of_papers = paper_components(results)
    known = dict.fromkeys([*(item.name for item in items()), *(c.name for c in of_papers)])
    names = choose(only, list(known))
    chosen_items = [item for item in items() if item.name in names]
    chosen = [component for component in of_papers if component.name in names]
    are_figures = [c.has_plots for c in chosen] + [item.kind == "figure" for item in chosen_items]
    if any(are_figures) and {*formats} - {"svg"}:
        need_matplotlib()
    material = Material(results, run.manifest, run.samples())
    return write_figures(
        material, chosen_items, chosen, folder, list(dict.fromkeys(formats)), inches
    )


def choose(only: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Return the known names that are asked for, by themselves or by their beginning; all of them for None.

    >>> choose(["agreement", "symmetry-scores"], ["agreement-matrix", "symmetry-scores", "symmetry-boxes"])
    ['agreement-matrix', 'symmetry-scores']
    """
    if only is None:
        return list(known)
    chosen: set[str] = set()
    for name in only:
        matching = [other for other in known if other == name or other.startswith(f"{name}-")]
        if not matching:
            error = unknown("figure of this run", name, known)
            raise UserError(f"{error}; docs/figures.md says what each figure needs")
        chosen.update(matching)
    return [name for name in known if name in chosen]


def write_figures(
    material: Material,
    chosen_items: Sequence[Item],
    chosen: Sequence[PaperComponent],
    folder: Path,
    formats: Sequence[str],
    width: float,
) -> Written:
    """Draw and write figures one by one, so that a run of many methods does not hold all of them in memory."""
    writer = _Writer(material, folder, formats, width)
    for item in chosen_items:
        for piece in item.make(material, width):
            if isinstance(piece, Skipped):
                writer.skipped.append((item.name, piece.subject, piece.reason))
            elif isinstance(piece, Drawing):
                writer.write_plots(piece.plots, item.name, item.paper, piece.subject, piece.caption)
            else:
                writer.write_table(
                    piece.content, item.name, item.paper, piece.subject, piece.caption
                )
    for named in chosen:
        facts = (named.name, named.component.paper, named.subject, named.caption)
        plots = plots_of(named.component, named.looks)
        if plots:
            writer.write_plots(plots, *facts)
        content = tabular_of(named.component, named.looks)
        if content is not None:
            writer.write_table(content, *facts)
    index = folder / INDEX
    write_atomically(index, as_json(_index(material, writer.files, writer.skipped, width)))
    return Written(writer.files, writer.skipped, index)


class _Writer:
    """Writes plots and tables under names of their own, and remembers what it wrote."""

    def __init__(
        self, material: Material, folder: Path, formats: Sequence[str], width: float
    ) -> None:
        self.material = material
        self.folder = folder
        self.formats = formats
        self.width = width
        self.files: list[File] = []
        self.skipped: list[tuple[str, str, str]] = []
        self.taken: set[str] = set()

    def write_plots(
        self, plots: Sequence[Plot], name: str, paper: str, subject: str, caption: str
    ) -> None:
        """Write plots on as many sheets as they need, each in every format."""
        sheets = flowed(plots, self.width)
        for i, sheet in enumerate(sheets):
            part = f"part {i + 1}" if len(sheets) > 1 else ""
            of_sheet = ", ".join(filter(None, (subject, part)))
            stem = _free(name, of_sheet, self.taken)
            for kind in self.formats:
                path = self.folder / f"{stem}.{kind}"
                write_atomically(path, sheet.encoded(kind, caption, self.width))
                self.files.append(File(path, name, paper, of_sheet, caption))

    def write_table(
        self, content: Tabular, name: str, paper: str, subject: str, caption: str
    ) -> None:
        """Write a table as LaTeX."""
        stem = _free(name, subject, self.taken, "tex")
        path = self.folder / f"{stem}.tex"
        write_atomically(path, _latex(content, caption, stem, self.material, self.width))
        self.files.append(File(path, name, paper, subject, caption))


def _latex(content: Tabular, caption: str, stem: str, material: Material, width: float) -> bytes:
    manifest = material.manifest
    notes = [
        f"from: {manifest.command or 'unknown'}",
        f"run {material.fingerprint}, heatproof {manifest.heatproof}; written by `heatproof figures`",
    ]
    return render(content, escape(caption), f"tab:{stem}", notes, width).encode()


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


def _free(name: str, subject: str, taken: set[str], kind: str = "") -> str:
    """Return a file name that no other figure has; names that only differ in odd characters get a number.

    A figure and a table of the same name differ by their `kind`.
    """
    base = "-".join(filter(None, (name, file_part(subject))))
    stem, again = base, 1
    while f"{stem}.{kind}" in taken:
        again += 1
        stem = f"{base}-{again}"
    taken.add(f"{stem}.{kind}")
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
