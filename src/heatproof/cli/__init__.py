"""The command line: one command per function, each imported light; heavy imports happen inside, so help is instant."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from heatproof.cli.compare import check, compare, leaderboard, validate
from heatproof.cli.export import export, figures, push
from heatproof.cli.init import init
from heatproof.cli.read import list_names, report, rule, show, verify
from heatproof.cli.reproduce import reproduce
from heatproof.cli.run import INTERRUPTED, LOCAL_RAY, demo, merge, plan, run
from heatproof.errors import UserError, printable

app = typer.Typer(
    help="Does the explanation hold? A test bench for feature attributions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Make a run": {
        "demo": demo,
        "init": init,
        "plan": plan,
        "run": run,
        "merge": merge,
        "reproduce": reproduce,
    },
    "Read a run": {
        "report": report,
        "show": show,
        "rule": rule,
        "verify": verify,
        "ls": list_names,
    },
    "Judge and compare": {
        "check": check,
        "compare": compare,
        "leaderboard": leaderboard,
        "validate": validate,
    },
    "Take a run elsewhere": {"figures": figures, "export": export, "push": push},
}


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"heatproof {version('heatproof')}")
        raise typer.Exit


def start(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_say_version, is_eager=True
        ),
    ] = False,
) -> None:
    """What comes before every command."""


app.callback()(start)
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)


def _with_ray_address(arguments: list[str]) -> list[str]:
    """`--ray` alone means the cluster of this machine.

    >>> _with_ray_address(["run", "--ray", "study.yaml", "--limit", "3"])
    ['run', '--ray=auto', 'study.yaml', '--limit', '3']
    >>> _with_ray_address(["run", "study.yaml", "--ray", "10.0.0.1:6379"])
    ['run', 'study.yaml', '--ray', '10.0.0.1:6379']
    """
    words = list(arguments)
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else "-"
        if word == "--ray" and (following.startswith("-") or following.endswith((".yaml", ".yml"))):
            words[i] = f"--ray={LOCAL_RAY}"
    return words


def _shown(path: object) -> str:
    """A path that a user knows: of a hidden temporary file, its directory.

    >>> _shown("runs/a/.report.html.host-17.tmp")
    'runs/a'
    """
    folder, _, name = str(path).rpartition("/")
    return folder or "." if name.startswith(".") and len(name) > 2 else str(path)


def main() -> Any:
    """The entry point: a user's mistake, or a file that cannot be read or written, is one message, not a traceback."""
    try:
        return app(args=_with_ray_address(sys.argv[1:]))
    except ValueError as error:
        if not isinstance(error, UserError):
            raise
        message = str(error)
    except OSError as error:
        named = error.filename2 or error.filename
        what = "a file" if named is None else repr(_shown(named))
        message = f"cannot read or write {what}: {error.strerror or error}"
    print(f"heatproof: {printable(message)}", file=sys.stderr)
    return sys.exit(2)


def program() -> None:
    """`main` as a process of its own, which an interruption ends at once, when all of ours is closed.

    A library's thread may still be at work then, and to take the interpreter down around it can abort the process.
    """
    try:
        main()
    except SystemExit as stop:
        if stop.code != INTERRUPTED:
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
