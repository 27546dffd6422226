"""Commands that take a run elsewhere: figures, export and push."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heatproof.cli.read import say, say_gaps
from heatproof.errors import counted

if TYPE_CHECKING:
    from heatproof.report.figures import Written


Format = Enum(
    "Format", {"csv": "csv", "arrow": "arrow", "hf": "hf", "maps": "maps", "zip": "zip"}, type=str
)
Tracker = Enum("Tracker", {"mlflow": "mlflow", "wandb": "wandb"}, type=str)
Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="A run directory, a zip, or an address in a store.")
]
NEXT = {
    "csv": "read them with any spreadsheet, pandas or R; study.json says what was measured",
    "arrow": "read them with pandas.read_feather, polars.read_ipc or R's arrow; study.json says what was measured",
    "hf": 'load it with datasets.load_dataset(FOLDER, "scores"); README.md is its card',
    "maps": "judge one again with the explainer precomputed: {path: FILE}, or open it with numpy.load",
    "zip": "open it with heatproof.read(FILE); heatproof report, show and compare take it as well",
}


def figures(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run directory, or a run packed as a zip.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where they go; by default DIR/figures.")
    ] = None,
    formats: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="LIST",
            help="Formats of figures, of pdf, png and svg; tables are tex.",
        ),
    ] = "pdf,png",
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only these; repeat it or separate names by commas."),
    ] = None,
    width: Annotated[
        str, typer.Option(help="column (3.25 in), text (6.75 in) or inches.")
    ] = "text",
) -> None:
    """Write the papers' figures and LaTeX tables.

    Whatever the run has the rows for; what is left out is said, with the reason.
    """
    from heatproof.report.figures import write_all

    names = _listed(only) if only else None
    written = write_all(directory, out, _listed([formats]), names, width)
    _say(written)
    if not written.files:
        raise typer.Exit(1)


def _listed(texts: list[str]) -> list[str]:
    """Return the names in texts, which may have several, separated by commas."""
    names = ",".join(texts).split(",")
    return [name.strip() for name in names if name.strip()]


def _count(files: int) -> str:
    return f"{files} file{'' if files == 1 else 's'}"


def _say(written: Written) -> None:
    """Print a line for each figure that was written: its name, the number of its files, and what it reproduces."""
    files_by_figure: dict[tuple[str, str], int] = {}
    for file in written.files:
        figure = (file.item, file.paper)
        files_by_figure[figure] = files_by_figure.get(figure, 0) + 1
    if not files_by_figure:
        say("Nothing was written: the run has no scores.")
        return
    widest = max(len(name) for name, _ in files_by_figure)
    say(f"{_count(len(written.files))} in {written.index.parent.resolve()}")
    for (name, paper), count in files_by_figure.items():
        say(f"  {name:<{widest}}  {_count(count):>8}  {paper}")
    say(f"{written.index.name} lists the files with their captions")


def export(
    directory: Directory,
    to: Annotated[
        Format,
        typer.Option(help="csv, arrow (Feather), hf (Hugging Face), maps (npz, PNG) or zip (all)."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Where it goes; by default beside the run.")
    ] = None,
) -> None:
    """Write CSV, Arrow, a Hugging Face data set, the kept maps, or one zip."""
    from heatproof.runs.export import export as write

    done = write(directory, to.value, out)
    say(done.path.resolve())
    tables = {name: rows for name, rows in done.files.items() if rows is not None}
    wide = max((len(name) for name in tables), default=0)
    for name, rows in tables.items():
        say(f"  {name:<{wide}}  {rows:>9,} {'row' if rows == 1 else 'rows'}")
    if to is Format.zip:
        say(f"  {counted(len(done.files), 'file')}, {done.path.stat().st_size:,} bytes")
    say_gaps(done.missing)
    say(NEXT[to.value])


def push(
    directory: Directory,
    to: Annotated[Tracker, typer.Option(help="mlflow or wandb.")],
    project: Annotated[
        str | None,
        typer.Option(
            "--project", "--experiment", help="The project or experiment; by default heatproof."
        ),
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(help="The tracking server; by default the one in the tracker's own settings."),
    ] = None,
) -> None:
    """Send a run to MLflow or Weights & Biases, or update it there.

    Scores with their intervals, the study, the report and the tables.
    """
    from heatproof.runs.export.trackers import push as send

    done = send(directory, to.value, project, uri)
    say(
        f"{'updated' if done.updated else 'new'} run with {done.metrics} metrics and {done.params} parameters"
    )
    say(f"  files  {', '.join(done.files)}")
    say(f"  where  {done.where}")
    say_gaps(done.missing)
    if to is Tracker.wandb and Path(done.where).is_dir():
        say(f"W&B is offline; send it later with: wandb sync {done.where}")
