"""`write`: every figure and table of the papers that a run has the rows for, and an index of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heatproof.axes import BY_NAME
from heatproof.errors import UserError, unknown
from heatproof.report import components
from heatproof.report.canvas import Plot, flowed, inches_of, need_matplotlib
from heatproof.report.components import Component, Matrix
from heatproof.report.draw import Looks, plots_of
from heatproof.report.latex import Tabular, escape, render, tabular_of
from heatproof.report.proof_sheet import ProofSheet, proof_sheets
from heatproof.report.proof_sheet_drawing import drawn
from heatproof.results.axis_result import AxisResult
from heatproof.results.names import about, subjects
from heatproof.results.reports import components_across, components_of
from heatproof.runs.atomic import write_atomically
from heatproof.runs.digests import as_json
from heatproof.runs.manifest import Manifest
from heatproof.runs.run import Run, read
from heatproof.text import file_part

INDEX = "index.json"
PROOF_SHEET = "proof-sheet"
WIDTHS = {"column": 3.25, "text": 6.75}
"""Inches: one column of a two-column paper, and both."""
NARROWEST, WIDEST = 2.0, 20.0
FORMATS = ("pdf", "png", "svg")


@dataclass(frozen=True)
class PaperComponent:
    """A component that reproduces a figure or table of a paper: what it is called, and of which model and data it is.

    `subject` tells it from others of the same name and is empty if there is only one; `about` is the subject in full.
    """

    name: str
    subject: str
    about: str
    component: Component
    looks: Looks

    @property
    def paper(self) -> str:
        """The figure or table that it reproduces."""
        return self.component.paper

    @property
    def has_plots(self) -> bool:
        """Whether it is a figure and not only a table."""
        is_plain_matrix = isinstance(self.component, Matrix) and not self.component.shaded
        return not is_plain_matrix and not isinstance(self.component, components.Table)

    @property
    def caption(self) -> str:
        """The caption of its file."""
        title = self.component.title
        head = f"{title}: {self.about}" if self.about else title
        return f"{head}. {self.component.caption}".strip()

    def plots(self) -> list[Plot]:
        """Return its plots; a table has none."""
        return plots_of(self.component, self.looks)

    def table(self, pictures: Sequence[str]) -> Tabular | None:
        """Return it as a LaTeX table: a chart with the numbers that it draws, a gallery with its `pictures`."""
        return tabular_of(self.component, self.looks, pictures)


@dataclass(frozen=True)
class PaperProofSheet:
    """The proof sheet of one model and data set, as a figure."""

    proof: ProofSheet
    subject: str
    name: str = PROOF_SHEET
    paper: str = "the maps behind the scores"
    has_plots: bool = True

    @property
    def caption(self) -> str:
        """The caption of its file."""
        return f"{self.proof.sentence} {about(self.proof.here[0].arrays)}."

    def plots(self) -> list[Plot]:
        """Return the sheet of the sample that the page opens."""
        return [Plot("", drawn(self.proof))]

    def table(self, pictures: Sequence[str]) -> Tabular | None:
        """Return None: the scores of its maps are those of other figures."""
        return None


Figure = PaperComponent | PaperProofSheet


@dataclass(frozen=True)
class File:
    """One file that was written; `item` is the name of the figure."""

    path: Path
    item: str
    paper: str
    subject: str
    caption: str


@dataclass(frozen=True)
class Written:
    """The files that `write_all` wrote, and their index."""

    files: list[File]
    index: Path


# ---- what can be written ---------------------------------------------------------------------------------------------


def figures_of_run(run: Run) -> list[Figure]:
    """Return every figure and table that a run has the rows for: the proof sheets, then axis by axis."""
    results = run.results(gallery=True)
    proofs = proof_sheets(results, run.samples())
    arrays_of_proofs = [proof.here[0].arrays for proof in proofs]
    figures: list[Figure] = []
    for proof, subject in zip(proofs, subjects(arrays_of_proofs), strict=True):
        figures.append(PaperProofSheet(proof, subject))
    return [*figures, *paper_components(results)]


def paper_components(results: Sequence[AxisResult]) -> list[PaperComponent]:
    """Return the components of some results that reproduce a figure or table of a paper, axis by axis."""
    figures: list[PaperComponent] = []
    for axis in BY_NAME:
        of_axis = [result for result in results if result.axis.name == axis]
        every_arrays = [result.arrays for result in of_axis]
        for result, subject in zip(of_axis, subjects(every_arrays), strict=True):
            whole_subject = about(result.arrays)
            for component in components_of(result):
                name = component.figure or f"{axis}-{component.key}"
                figure = PaperComponent(name, subject, whole_subject, component, result.looks)
                figures.append(figure)
        looks = {name: look for result in of_axis for name, look in result.looks.items()}
        for component in components_across(of_axis):
            name = component.figure or f"{axis}-{component.key}"
            figures.append(PaperComponent(name, "", "", component, looks))
    return [figure for figure in figures if figure.paper]


# ---- writing ---------------------------------------------------------------------------------------------------------


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
    """Do what `write` does, and return what each file shows."""
    if only is not None and (isinstance(only, str) or not only):
        raise UserError(f"only takes a list of names, such as {PROOF_SHEET}; got {only!r}")
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

    figures = figures_of_run(run)
    names = choose(only, list(dict.fromkeys(figure.name for figure in figures)))
    chosen = [figure for figure in figures if figure.name in names]
    needs_drawing = any(figure.has_plots for figure in chosen)
    if needs_drawing and set(formats) - {"svg"}:
        need_matplotlib()
    return write_figures(chosen, run.manifest, folder, list(dict.fromkeys(formats)), inches)


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
    figures: Sequence[Figure],
    manifest: Manifest,
    folder: Path,
    formats: Sequence[str],
    width: float,
) -> Written:
    """Draw and write figures one by one, so that a run of many methods does not hold all of them in memory."""
    files: list[File] = []
    stems: set[str] = set()
    for figure in figures:
        sheets = flowed(figure.plots(), width)
        pictures = []
        # LaTeX includes no SVG.
        picture_format = next((name for name in ("pdf", "png") if name in formats), None)
        for number, sheet in enumerate(sheets, 1):
            part = f"part {number}" if len(sheets) > 1 else ""
            subject = ", ".join(filter(None, (figure.subject, part)))
            stem = _unused_stem(figure.name, subject, stems)
            if picture_format is not None:
                pictures.append(f"{stem}.{picture_format}")
            for file_format in formats:
                path = folder / f"{stem}.{file_format}"
                inches = inches_of(sheet, width)
                write_atomically(path, sheet.encoded(file_format, figure.caption, inches))
                files.append(File(path, figure.name, figure.paper, subject, figure.caption))
        table = figure.table(pictures)
        if table is not None:
            stem = _unused_stem(figure.name, figure.subject, stems, "tex")
            path = folder / f"{stem}.tex"
            write_atomically(path, _latex(table, figure.caption, stem, manifest, width))
            files.append(File(path, figure.name, figure.paper, figure.subject, figure.caption))
    index = folder / INDEX
    write_atomically(index, as_json(_index(manifest, files, width)))
    return Written(files, index)


def _latex(table: Tabular, caption: str, stem: str, manifest: Manifest, width: float) -> bytes:
    notes = [
        f"from: {manifest.command or 'unknown'}",
        f"run {_fingerprint(manifest)}, heatproof {manifest.heatproof}; written by `heatproof figures`",
    ]
    return render(table, escape(caption), f"tab:{stem}", notes, width).encode()


def _fingerprint(manifest: Manifest) -> str:
    """Return twelve digits that stand for the study with the hashes of its models and data, and for the version."""
    study = {"heatproof": manifest.heatproof, "study": manifest.study.as_mapping()}
    text = json.dumps(study, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def as_width(width: float | str) -> float:
    """Return a width in inches from "column", "text" or a number.

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


def _unused_stem(name: str, subject: str, stems: set[str], kind: str = "") -> str:
    """Return a file name that no other figure has; names that only differ in odd characters get a number.

    A figure and a table of the same name differ by their `kind`.
    """
    base = "-".join(filter(None, (name, file_part(subject))))
    stem, number = base, 1
    while f"{stem}.{kind}" in stems:
        number += 1
        stem = f"{base}-{number}"
    stems.add(f"{stem}.{kind}")
    return stem


def _index(manifest: Manifest, files: Sequence[File], width: float) -> dict[str, object]:
    """Return what was written as plain data without dates, so that the same run gives the same file."""
    written = [
        {
            "file": file.path.name,
            "item": file.item,
            "paper": file.paper,
            "subject": file.subject,
            "caption": file.caption,
        }
        for file in files
    ]
    return {
        "run": _fingerprint(manifest),
        "command": manifest.command,
        "heatproof": manifest.heatproof,
        "width": width,
        "written": written,
    }
