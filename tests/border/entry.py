"""The command line as a user meets it, in this process for speed or in a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from heatproof.cli import program

HERE = Path(__file__).parent
NETS = HERE / "nets.py"


@dataclass(frozen=True)
class Done:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> Done:
    """Run `heatproof ARGUMENTS…` through the console script's function, without a new process."""
    words = ["heatproof", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            program()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def process(*arguments: object, cwd: Path) -> Done:
    """Run `python -m heatproof ARGUMENTS…` in a process of its own."""
    words = [sys.executable, "-m", "heatproof", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def write_study(
    folder: Path, kind: str, explainers: str, evaluations: list[str], rest: str = ""
) -> Path:
    """Write a study file about the model and data of a kind in `nets.py`."""
    lines = [
        f"model: python:{NETS}:{kind}_model",
        f"data: python:{NETS}:{kind}_data",
        f"explainers: {explainers}",
        "evaluations:",
        *(f"  - {evaluation}" for evaluation in evaluations),
        rest,
    ]
    path = folder / "study.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path
