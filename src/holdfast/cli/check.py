"""The command that holds a run against requirements: check."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Form(str, Enum):
    """How `holdfast check` says what it found."""

    text = "text"
    json = "json"
    github = "github"


def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, or a run packed as a zip.")],
    require: Annotated[
        list[str] | None, typer.Option(help="A requirement, such as 'stability.fass >= 0.6 @ 0.95'; may be repeated.")
    ] = None,
    file: Annotated[
        list[Path] | None, typer.Option(help="A file of requirements: one in each line, or a YAML list.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit report here too.")] = None,
    format: Annotated[Form, typer.Option(help="How to print what was found.")] = Form.text,
    min_samples: Annotated[int, typer.Option(help="Fewer samples with a score are a failure.")] = 8,
    min_retention: Annotated[float, typer.Option(help="A smaller share of retained pairs is a failure.")] = 0.1,
    max_undefined: Annotated[float, typer.Option(help="A larger share of undefined maps is a failure.")] = 0.1,
) -> None:
    """Hold a run's confidence bounds against requirements, for CI.

    Exit status: 0 all passed, 1 one fell short, 2 a mistake, such as a requirement about nothing in the run.
    """
    from holdfast.runs.atomic import write_atomically
    from holdfast.runs.run import read
    from holdfast.testing import output as wording
    from holdfast.testing.check import Limits
    from holdfast.testing.check import check as check_run
    from holdfast.testing.requirement import read_requirements

    texts = [*(require or []), *(text for path in file or [] for text in read_requirements(path))]
    outcomes = check_run(read(directory), texts, Limits(min_samples, min_retention, max_undefined))
    if junit is not None:
        write_atomically(junit, wording.junit(outcomes, str(directory)))
    if format is Form.json:
        typer.echo(wording.as_json(outcomes, str(directory)))
    elif format is Form.github:
        typer.echo("\n".join(wording.github_log(outcomes)))
    else:
        from holdfast.cli.read import paint, terminal_width

        paint(wording.styled(wording.lines(outcomes, terminal_width())))
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)
