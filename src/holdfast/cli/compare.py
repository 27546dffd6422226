"""Commands that put runs beside each other: compare and leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[
    list[Path], typer.Argument(metavar="DIR…", help="Run directories, or runs packed as zips.", show_default=False)
]


def compare(
    runs: Runs,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the comparison page, one HTML file, here.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print everything, also with --out.")] = False,
    evaluation: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this evaluation; may be repeated.")
    ] = None,
    only_shared: Annotated[
        bool, typer.Option("--only-shared", help="Leave out what differs where the rest does not depend on it.")
    ] = False,
    across_seeds: Annotated[
        bool, typer.Option("--across-seeds", help="Compare runs of different seeds or references, by raw scores.")
    ] = False,
) -> None:
    """Compare runs on the same samples, pair by pair.

    Which explanations hold better, and is the difference real? What was measured differently is refused.
    """
    from holdfast.cli.read import check_file

    check_file("--out", out, "comparison.html")
    from holdfast.report.comparison import compare as compare_runs

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
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory for leaderboard.json and leaderboard.html.")
    ] = Path("."),
) -> None:
    """Rank the explainers of many runs on one page.

    One board for what was measured in the same way: data, evaluation, seed and measure.
    """
    from holdfast.report.comparison import write_leaderboard

    for path in write_leaderboard(runs, out):
        typer.echo(path)
