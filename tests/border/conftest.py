"""Runs that many tests look at, each made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from border.entry import command, write_study
from border.kinds import EVALUATIONS, EXPLAINERS


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`studied("image")` gives the directory of a run that the command line made of that kind."""
    made: dict[str, Path] = {}

    def directory(kind: str) -> Path:
        if kind in made:
            return made[kind]
        folder = tmp_path_factory.mktemp(kind)
        study = write_study(folder, kind, EXPLAINERS[kind], EVALUATIONS[kind], "shard_size: 4")
        done = command("run", study, "--allow-code", "--out", folder / "run")
        assert done.code == 0, done.err
        made[kind] = folder / "run"
        return made[kind]

    return directory
