"""Commands that read: report and ls."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Listing(str, Enum):
    """What `holdfast ls` can list."""

    explainers = "explainers"
    perturbations = "perturbations"
    measures = "measures"
    presets = "presets"


def report(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="Where the HTML file goes; by default inside the directory.")] = None,
) -> None:
    """Draw the report of a run again."""
    from holdfast.run import read

    typer.echo(read(directory).report(out))


def list_names(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List what a study file may name, with its parameters and their defaults."""
    from holdfast.catalogue import catalogue

    rows = catalogue(what.value)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        typer.echo(f"{name:<{width}}  {text}")
