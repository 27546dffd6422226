"""The command line. Heavy imports happen inside the commands, so that help is instant."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from holdfast.engine import Plan

app = typer.Typer(
    help="Does the explanation hold? A test bench for feature attributions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Listing(str, Enum):
    """What `holdfast ls` can list."""

    explainers = "explainers"
    perturbations = "perturbations"
    measures = "measures"
    presets = "presets"


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the run goes.")] = Path("demo-run"),
    limit: Annotated[int, typer.Option(min=1, max=28, help="How many photographs to use.")] = 14,
) -> None:
    """Judge five explainers of EfficientNet-Lite0 on real photographs, and write a report."""
    from holdfast.demo import demo_plan

    plan = demo_plan(limit)
    sizes = ", ".join(f"{len(data.ids)} {name}" for name, data in plan.data.items())
    typer.echo(f"{', '.join(plan.models)} on {sizes}: {', '.join(plan.explainers)}")
    _carry_out(plan, out)


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="A study file.")],
    out: Annotated[Path | None, typer.Option(help="Where the run goes; by default runs/<name of the study>.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N samples of each data set.")] = None,
    seed: Annotated[int | None, typer.Option(help="Replace the study's seed.")] = None,
    allow_code: Annotated[bool, typer.Option(help="Let the study load models and data from Python code.")] = False,
) -> None:
    """Run a study, or finish one that was interrupted, and write its report."""
    from holdfast.study import read_study

    plan = read_study(study, seed=seed, limit=limit, allow_code=allow_code).plan(allow_code=allow_code)
    _carry_out(plan, out or Path("runs") / study.stem)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="Where the HTML file goes; by default inside the directory.")] = None,
) -> None:
    """Draw the report of a run again."""
    from holdfast.run import read

    typer.echo(read(directory).report(out))


@app.command("ls")
def list_names(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List what a study file may name, with its parameters and their defaults."""
    from holdfast.catalogue import catalogue

    rows = catalogue(what.value)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        typer.echo(f"{name:<{width}}  {text}")


def _carry_out(plan: Plan, out: Path) -> None:
    from holdfast.manifest import this_command
    from holdfast.run import execute

    try:
        done = execute(plan, out, this_command())
    except KeyboardInterrupt as stop:
        typer.echo("\nholdfast: interrupted; run the same command again to go on from here", err=True)
        raise typer.Exit(130) from stop
    typer.echo("")
    typer.echo(done.text())
    typer.echo("")
    typer.echo(f"report: {done.report().resolve()}")


def main() -> Any:
    """The entry point: a user's mistake is one message, not a traceback."""
    try:
        return app()
    except ValueError as error:
        from holdfast.errors import UserError

        if not isinstance(error, UserError):
            raise
        print(f"holdfast: {error}", file=sys.stderr)
        return sys.exit(2)
