"""The command line: one command per function, each imported light; heavy imports happen inside, so help is instant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

from holdfast.cli.comparing import compare, leaderboard
from holdfast.cli.exporting import export, push
from holdfast.cli.figures import figures
from holdfast.cli.gating import check
from holdfast.cli.reading import list_names, report, show
from holdfast.cli.running import LOCAL_RAY, demo, merge, run

app = typer.Typer(
    help="Does the explanation hold? A test bench for feature attributions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "run": run,
    "merge": merge,
    "report": report,
    "show": show,
    "check": check,
    "compare": compare,
    "leaderboard": leaderboard,
    "figures": figures,
    "export": export,
    "push": push,
    "ls": list_names,
}
for name, command in COMMANDS.items():
    app.command(name)(command)


def _with_ray_address(arguments: list[str]) -> list[str]:
    """`--ray` alone means the cluster of this machine.

    >>> _with_ray_address(["run", "--ray", "study.yaml", "--limit", "3"])
    ['run', '--ray=auto', 'study.yaml', '--limit', '3']
    >>> _with_ray_address(["run", "study.yaml", "--ray", "10.0.0.1:6379"])
    ['run', 'study.yaml', '--ray', '10.0.0.1:6379']
    """
    given = list(arguments)
    for i, word in enumerate(given):
        following = given[i + 1] if i + 1 < len(given) else "-"
        if word == "--ray" and (following.startswith("-") or following.endswith((".yaml", ".yml"))):
            given[i] = f"--ray={LOCAL_RAY}"
    return given


def main() -> Any:
    """The entry point: a user's mistake is one message, not a traceback."""
    try:
        return app(args=_with_ray_address(sys.argv[1:]))
    except ValueError as error:
        from holdfast.errors import UserError

        if not isinstance(error, UserError):
            raise
        print(f"holdfast: {error}", file=sys.stderr)
        return sys.exit(2)
