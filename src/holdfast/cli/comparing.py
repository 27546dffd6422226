"""Commands that put runs beside each other: compare and leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[list[Path], typer.Argument(help="Run directories.", show_default=False)]


def compare(
    runs: Runs,
    out: Annotated[Path | None, typer.Option(help="Write the comparison page, one HTML file, here.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Print everything, also with --out.")] = False,
    evaluation: Annotated[list[str] | None, typer.Option(help="Only this evaluation; may be repeated.")] = None,
    only_shared: Annotated[
        bool, typer.Option("--only-shared", help="Leave out what differs where the rest does not depend on it.")
    ] = False,
    across_seeds: Annotated[
        bool, typer.Option("--across-seeds", help="Compare runs of different seeds, by raw scores.")
    ] = False,
) -> None:
    """Compare runs on the same samples: which explanations hold better, and is the difference real?"""
    from holdfast.comparison import compare as compare_runs

    found = compare_runs(*runs, only_shared=only_shared, across_seeds=across_seeds, evaluations=evaluation or None)
    if out is None or text:
        typer.echo(found.text())
    else:
        typer.echo(found.verdict()[0])
    if out is None:
        typer.echo("\nThe same as a page with figures: add --out comparison.html")
    else:
        typer.echo(found.page(out))


def leaderboard(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="The directory for leaderboard.json and leaderboard.html.")] = Path("."),
) -> None:
    """Rank the explainers of many runs, one board for what was measured in the same way."""
    from holdfast.comparison import write_leaderboard

    for path in write_leaderboard(runs, out):
        typer.echo(path)
