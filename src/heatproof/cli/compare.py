"""Commands that judge runs or measures: check, compare, leaderboard and validate."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heatproof.cli.read import PIPED, Directory, check_file, paint, say, terminal_width

if TYPE_CHECKING:
    from heatproof.testing.check import Outcome
    from heatproof.testing.forbid import Ruling

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR…", help="Run directories, or runs packed as zips.", show_default=False
    ),
]
Form = Enum("Form", {"text": "text", "json": "json", "github": "github"}, type=str)


def check(
    directory: Directory,
    require: Annotated[
        list[str] | None,
        typer.Option(help="A requirement, such as 'stability.fass >= 0.6 @ 0.95'; repeatable."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(help="A file of requirements, one per line, or YAML."),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Fail if this rule reports a finding; repeatable."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Also write a JUnit report to this file.")
    ] = None,
    format: Annotated[Form, typer.Option(help="Output format.")] = Form.text,
    min_samples: Annotated[int, typer.Option(help="Fail with fewer scored samples than this.")] = 8,
    min_retention: Annotated[
        float, typer.Option(help="Fail with a smaller share of retained pairs than this.")
    ] = 0.1,
    max_undefined: Annotated[
        float,
        typer.Option(
            help="Fail with a larger share of undefined maps or undecided samples than this."
        ),
    ] = 0.1,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Use betting bounds, which make no assumption about the distribution of scores.",
        ),
    ] = False,
) -> None:
    """Check a run against requirements, for CI.

    Exit status: 0 passed, 1 failed, 2 usage error, such as a requirement that matches nothing in the run.
    `heatproof rule` lists the rules.
    """
    from heatproof.runs.atomic import write_atomically
    from heatproof.runs.run import read
    from heatproof.testing import output
    from heatproof.testing.check import Limits
    from heatproof.testing.check import check as check_run
    from heatproof.testing.forbid import forbidden
    from heatproof.testing.requirement import read_requirements

    texts, rules = list(require or []), list(forbid or [])
    for path in file or []:
        content = read_requirements(path)
        texts += content.require
        rules += content.forbid
    run = read(directory)
    outcomes: list[Outcome | Ruling] = list(forbidden(run, rules))
    if texts or not rules:
        limits = Limits(min_samples, min_retention, max_undefined, strict)
        outcomes = [*check_run(run, texts, limits), *outcomes]
    if junit is not None:
        write_atomically(junit, output.junit(outcomes, str(directory)))
    if format is Form.json:
        say(output.as_json(outcomes, str(directory)))
    elif format is Form.github:
        say("\n".join(output.github_log(outcomes)))
    else:
        paint(output.styled(output.lines(outcomes, terminal_width())))
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)


def compare(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the comparison to this HTML file."),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print the comparison even with --out.")
    ] = False,
    evaluation: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this evaluation; repeatable."),
    ] = None,
    only_shared: Annotated[
        bool,
        typer.Option("--only-shared", help="Compare only what was measured the same way."),
    ] = False,
    across_seeds: Annotated[
        bool,
        typer.Option(
            "--across-seeds", help="Allow different seeds or references; compare raw scores."
        ),
    ] = False,
) -> None:
    """Compare runs on the same samples: which run has the better explanations?

    Runs measured differently can't be compared; the error names every setting that differs.
    """
    check_file("--out", out, "comparison.html")
    from heatproof.report.comparison import compare as compare_runs
    from heatproof.report.comparison.text import styled_text
    from heatproof.report.comparison.words import results_of_pairs

    comparison = compare_runs(
        *runs, only_shared=only_shared, across_seeds=across_seeds, evaluations=evaluation or None
    )
    if out is None or text:
        paint(styled_text(comparison, terminal_width() or PIPED))
    else:
        say("\n".join(results_of_pairs(comparison)))
    if out is None:
        say("\nFor a page with charts: --out comparison.html")
    else:
        say(comparison.page(out))


def validate(
    quick: Annotated[
        bool, typer.Option("--quick", help="Few samples per model; about a minute on one core.")
    ] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the results as Markdown to this file."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this model; repeatable.")
    ] = None,
) -> None:
    """Test every measure on models whose correct map is known.

    How often does a measure prefer the truer map, which errors does it miss, and how many samples does it need?
    """
    check_file("--markdown", markdown, "validation.md")
    from heatproof.runs.atomic import write_atomically
    from heatproof.truth.validate import FULL, MARK, QUICK, sentences
    from heatproof.truth.validate import markdown as table
    from heatproof.truth.validate import validate as validate_measures

    samples = QUICK if quick else FULL
    results = validate_measures(samples, seed, only)
    for name, text in sentences(results):
        say(f"{name}: {text}")
    if markdown is not None:
        # The text above the mark is the user's own, and stays.
        head = markdown.read_text("utf-8").partition(MARK)[0] if markdown.exists() else ""
        options = " --quick" * quick + f" --seed {seed}" * bool(seed)
        write_atomically(markdown, (head + MARK + table(results, samples, options)).encode())
        say(markdown)


def leaderboard(
    runs: Runs,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Directory for leaderboard.json and leaderboard.html."),
    ] = Path("."),
) -> None:
    """Rank the explainers of several runs; write a page.

    Each board ranks scores that were measured the same way: same data, settings, seed and measure.
    """
    from heatproof.report.comparison import leaderboard as standings_of
    from heatproof.report.comparison.leaderboard_page import leaderboard_text, write_standings

    standings = standings_of(*runs)
    paths = write_standings(standings, out)
    paint(leaderboard_text(standings, terminal_width() or PIPED))
    say("")
    for path in paths:
        say(path)
