"""The command that writes figures and tables for papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from holdfast.report.figures import Written


def figures(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, or a run packed as a zip.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where they go; by default DIR/figures.")] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="LIST", help="Formats of figures, of pdf, png and svg; tables are tex.")
    ] = "pdf,png",
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these; repeat it or separate names by commas.")
    ] = None,
    width: Annotated[str, typer.Option(help="column (3.25 in), text (6.75 in) or inches.")] = "text",
) -> None:
    """Write the papers' figures and LaTeX tables.

    Whatever the run has the rows for; what is left out is said, with the reason.
    """
    from holdfast.report.figures import write_all

    names = _listed(only) if only else None
    written = write_all(directory, out, _listed([formats]), names, width)
    _say(written)
    if not written.files:
        raise typer.Exit(1)


def _listed(given: list[str]) -> list[str]:
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def _count(files: int) -> str:
    return f"{files} file{'' if files == 1 else 's'}"


def _say(written: Written) -> None:
    by_item: dict[tuple[str, str], list[str]] = {}
    for file in written.files:
        by_item.setdefault((file.item, file.paper), []).append(file.path.name)
    wide = max((len(item) for item in [*(k for k, _ in by_item), *(s[0] for s in written.skipped)]), default=0)
    if by_item:
        typer.echo(f"{_count(len(written.files))} in {written.index.parent.resolve()}")
    for (item, paper), files in by_item.items():
        typer.echo(f"  {item:<{wide}}  {_count(len(files)):>8}  {paper}")
    if written.skipped:
        typer.echo("left out" if by_item else "nothing was written")
    for item, subject, reason in written.skipped:
        typer.echo(f"  {item:<{wide}}  {f'{subject}: ' if subject else ''}{reason}")
    if by_item:
        typer.echo(f"{written.index.name} lists the files with their captions")
