"""A run that is killed again and again ends with the table of a run that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import heatproof
from support.paths import SMALL

KILLS = 10
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}  # other tests have the other core
STUDY = f"""
model: python:{SMALL}:model
data: python:{SMALL}:dataset
explainers: [saliency, random, {{lime: {{samples: 100}}}}, {{smoothgrad: {{samples: 8}}}}]
evaluations: [{{stability: {{perturbations: [fass-mild], k: 50}}}}]
shard_size: 2
keep_maps: true
"""


def end(study: Path, out: Path, *stopped: str) -> int:
    """The exit code of a run, which may be stopped at the n-th thing that it does with a file by a signal."""
    program = [str(SMALL.with_name("stopping.py")), *stopped] if stopped else ["-m", "heatproof"]
    command = [sys.executable, *program, "run", str(study), "--out", str(out), "--allow-code"]
    command += ["--limit", "22"]  # so few that no trial, which writes files too, estimates the time
    with (study.parent / "said.txt").open("wb") as said:
        run = subprocess.run(
            command,
            stdout=said,
            stderr=said,
            cwd=study.parent,
            env=ENVIRONMENT,
            timeout=300,
            check=False,
        )
    return run.returncode


def said(study: Path) -> str:
    return (study.parent / "said.txt").read_text()


def parts(out: Path) -> int:
    return sum(1 for path in out.glob("parts/**/*.parquet") if not path.name.startswith("."))


def sorted_bytes(out: Path) -> bytes:
    """The whole table as text with every digit, in the order of its keys."""
    return heatproof.read(out).table().to_csv(index=False, float_format="%.17g").encode()


@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert end(study, whole) == 0, said(study)
    total = parts(whole)
    moments = random.Random(0)
    for number in range(
        KILLS
    ):  # a part with its pictures and maps takes ten steps, so that some stays undone
        moment = moments.randint(1, 8 * total // KILLS)
        assert end(study, killed, str(moment), "SIGKILL") == -signal.SIGKILL, (
            f"kill {number}: {said(study)}"
        )
    assert 0 < parts(killed) < total, "the kills come too early, or too late"
    assert end(study, killed) == 0, said(study)
    assert sorted_bytes(killed) == sorted_bytes(whole)
    maps = [
        sorted(p.relative_to(out) for p in out.glob("maps/**/*.parquet")) for out in (whole, killed)
    ]
    assert len(maps[0]) == total and maps[0] == maps[1], "names carry the digests of the maps"
    assert not list(killed.glob("**/.*.tmp"))


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    assert end(study, tmp_path / "run", "60", "SIGINT") == 130, said(study)
    assert "rerun the command" in said(study)
    assert "Traceback" not in said(study)
    assert parts(tmp_path / "run") >= 2
