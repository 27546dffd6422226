"""Commands that read: report, show, verify, rule and ls."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heatproof.errors import UserError, counted, printable

if TYPE_CHECKING:
    from heatproof.runs.run import Run

PIPED = 80
"""Columns of running text that goes to a file or a pipe."""
MOST_UNREADABLE = 10
"""How many samples that could not be read are listed; `heatproof show` and the report have all."""
Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="A run directory, or a run packed as a zip.")
]
KINDS = (
    "explainers",
    "evaluations",
    "perturbations",
    "presets",
    "groups",
    "features",
    "imputers",
    "measures",
)
Listing = Enum("Listing", [(kind, kind) for kind in KINDS], type=str)  # type: ignore[misc]


def report(
    directory: Directory,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML file to write; default: DIR/report.html."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print the verdict; write nothing.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="With --text: print the results of every test as well."),
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the verdict as Markdown; write nothing.")
    ] = False,
) -> None:
    """Write the HTML report again, or print the verdict."""
    from heatproof.runs.run import read
    from heatproof.runs.verify import missing

    if (text or markdown) and out is not None:
        option = "--text" if text else "--markdown"
        raise UserError(f"{option} prints and --out writes; give one of them")
    check_file("--out", out, "report.html")
    run = read(directory)
    if text:
        print_summary(run, verbose)
    elif markdown:
        typer.echo(run.markdown())
    else:
        say(run.report(out))
    say_gaps(missing(run.path))


def show(
    directory: Directory,
    sample: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The id of a sample, or a unique ending of it."),
    ] = None,
    explainer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only these explainers; * is a wildcard."),
    ] = None,
    worst: Annotated[int, typer.Option(min=1, metavar="N", help="Number of samples to list.")] = 10,
) -> None:
    """Show the contents of a run and its worst samples, or every result of one sample."""
    from heatproof.report.sample import sample_text
    from heatproof.report.show import overview
    from heatproof.runs.run import read

    run = read(directory)
    width = terminal_width() or PIPED
    if sample is None:
        paint(overview(run, explainer, worst, width))
    else:
        paint(sample_text(run, sample, explainer, width))


def verify(directory: Directory) -> None:
    """Check every file of a run: intact, corrupt, from another study, duplicate or missing.

    Every byte is read. The exit code is 0 if every file is intact and none is missing, 1 otherwise.
    """
    from heatproof.runs.verify import verify as check_files

    verdicts = check_files(directory)
    problems = [verdict for verdict in verdicts if verdict.state != "intact"]
    for verdict in problems:
        paint([(f"{verdict.state:<9} {verdict.name}", "yellow")])
        if verdict.reason:
            paint([(f"{'':<9} {verdict.reason}", "")])
    intact = f"{counted(len(verdicts) - len(problems), 'file')} OK"
    if not problems:
        paint([(f"{intact} in {directory}", "")])
        return
    paint([(f"{intact}, {len(problems)} with problems in {directory}", "")])
    raise typer.Exit(1)


def rule(
    name: Annotated[
        str | None,
        typer.Argument(help="The name of a rule; without it, list all rules.", show_default=False),
    ] = None,
) -> None:
    """Explain a warning by the name of its rule: what it means, what to do, an example."""
    from heatproof.rules import RULES, section_of

    if name is not None:
        width = min(terminal_width() or PIPED, 100)
        paragraphs = section_of(name).split("\n\n")
        return say("\n\n".join(textwrap.fill(paragraph, width) for paragraph in paragraphs))
    widest = max(map(len, RULES))
    styles = {"problem": "red", "warning": "yellow", "note": ""}
    for rule in RULES.values():
        line = f"{rule.severity:<8} {rule.name:<{widest}}  {rule.summary}"
        paint([(line, styles[rule.severity])])


def list_names(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List the names a study file can use, with parameters and defaults."""
    from heatproof.runs.study.catalogue import catalogue

    rows = catalogue(what.value)
    width, columns = max(len(name) for name, _ in rows), terminal_width()
    for name, text in rows:
        line = f"{name:<{width}}  {text}"
        if columns is not None and columns > width + 30:
            line = textwrap.fill(
                line,
                columns,
                subsequent_indent=" " * (width + 2),
                break_long_words=False,
                break_on_hyphens=False,  # a name such as heatproof[grad-cam] can be copied
            )
        say(line)


def print_summary(run: Run, verbose: bool = False) -> None:
    """Print the verdict, as wide as the terminal, what is missing of the run, and which samples could not be read.

    With `verbose`, print what every test says and its whole ranking as well.
    """
    from heatproof.report.overview_text import run_lines
    from heatproof.report.terminal import styled_summary
    from heatproof.runs.verify import missing, missing_in_words

    samples, width = run.samples(), terminal_width() or PIPED
    results = run.results()
    gaps = missing(run.path)
    if gaps:
        say(f"Unfinished: {missing_in_words(gaps)}.\n")
    if verbose:
        paint([*styled_summary(results, samples, run.manifest, width), ("", "")])
    paint_segments(run_lines(results, samples, run.manifest, width))
    unreadable = samples[samples["error"].fillna("") != ""]
    unreadable = unreadable.drop_duplicates(["dataset", "sample"])
    if len(unreadable) == 0:
        return
    total = len(samples.drop_duplicates(["dataset", "sample"]))
    lines = [
        f"  {len(unreadable)} of {counted(total, 'sample')} could not be read and were left out"
    ]

    listed = unreadable.head(MOST_UNREADABLE)
    width = listed["sample"].str.len().max()
    for sample, error in zip(listed["sample"], listed["error"], strict=True):
        lines.append(f"    {sample:<{width}}  {' '.join(error.split())}")
    if len(unreadable) > len(listed):
        lines.append(f"    and {len(unreadable) - len(listed)} more, listed in the report")
    transient = int(unreadable["transient"].fillna(False).sum())
    if transient > 0:
        lines.append(f"    {transient} of them failed in the storage: retry with --retry-errors")
    paint([("", ""), *((line, "yellow") for line in lines)])


def say_gaps(gaps: list[str]) -> None:
    """Say on standard error how many parts a run lacks; nothing where it is complete."""
    if gaps:
        from heatproof.runs.verify import missing_in_words

        say(f"heatproof: the run is unfinished: {missing_in_words(gaps)}", err=True)


def check_file(option: str, path: Path | None, example: str) -> None:
    """Raise if an option that names a file to write names a directory."""
    if path is not None and path.is_dir():
        raise UserError(
            f"{option} is the name of a file, such as {path / example}; {path} is a directory"
        )


def terminal_width() -> int | None:
    """Return the columns of the terminal; None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: object, err: bool = False) -> None:
    """Print a line, with control characters in names from elsewhere spelled out."""
    typer.echo(printable(text), err=err)


def paint(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines, each with its style of rich; without colours off a terminal or where NO_COLOR is set."""
    paint_segments([line] for line in lines)


def paint_segments(lines: Iterable[Sequence[tuple[str, str]]]) -> None:
    """Print lines of segments, each segment with its style of rich."""
    if not sys.stdout.isatty():
        for line in lines:
            say("".join(text for text, _ in line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        segments = [(printable(text), style) for text, style in line]
        console.print(Text.assemble(*segments), soft_wrap=True)
