"""Commands that read: report, show and ls."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

PIPED = 80
"""Columns of running text that goes to a file or a pipe."""


class Listing(str, Enum):
    """What `holdfast ls` can list."""

    explainers = "explainers"
    perturbations = "perturbations"
    measures = "measures"
    presets = "presets"


def report(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="Where the HTML file goes; by default inside the directory.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Print the verdict and the main table; write nothing.")] = False,
) -> None:
    """Draw the report of a run again, or print what it says."""
    from holdfast.run import read

    found = read(directory)
    if not text:
        typer.echo(found.report(out))
        return
    from holdfast.errors import UserError
    from holdfast.report.terminal import styled_summary

    if out is not None:
        raise UserError("--text prints and --out writes; give one of them")
    paint(styled_summary(found.in_study_order(), found.samples(), found.manifest, terminal_width() or PIPED))


def show(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    sample: Annotated[str | None, typer.Option(help="The id of a sample, or its end where only one has it.")] = None,
    explainer: Annotated[str | None, typer.Option(help="Only these explainers; * stands for anything.")] = None,
    worst: Annotated[int, typer.Option(min=1, help="How many samples to list.")] = 10,
) -> None:
    """Show what a run holds and which samples did worst, or the story of one sample."""
    from holdfast.report.overview import overview
    from holdfast.report.story import story
    from holdfast.run import read

    found = read(directory)
    width = terminal_width() or PIPED
    if sample is None:
        paint(overview(found, explainer, worst, width))
    else:
        paint(story(found, sample, explainer, width))


def list_names(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List what a study file may name, with its parameters and their defaults."""
    import textwrap

    from holdfast.catalogue import catalogue

    rows = catalogue(what.value)
    width, columns = max(len(name) for name, _ in rows), terminal_width()
    for name, text in rows:
        line = f"{name:<{width}}  {text}"
        if columns is not None and columns > width + 30:
            line = textwrap.fill(line, columns, subsequent_indent=" " * (width + 2), break_long_words=False)
        typer.echo(line)


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes elsewhere."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def paint(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines, each with its style of rich, on a terminal; without colours where NO_COLOR is set or it is none."""
    if not sys.stdout.isatty():
        for line, _ in lines:
            typer.echo(line)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line, style in lines:
        console.print(Text(line, style), soft_wrap=True)
