"""A run that is killed again and again ends with the table of a run that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
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


def start(study: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "run", str(study), "--out", str(out), "--allow-code"]
    with (study.parent / "said.txt").open("wb") as said:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, cwd=study.parent, env=ENVIRONMENT)


def said(study: Path) -> str:
    return (study.parent / "said.txt").read_text()


def parts(out: Path) -> int:
    return sum(1 for path in out.glob("parts/**/*.parquet") if not path.name.startswith("."))


def sorted_bytes(out: Path) -> bytes:
    """The whole table as text with every digit, in the order of its keys."""
    return holdfast.read(out).table().to_csv(index=False, float_format="%.17g").encode()


@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(study, whole)
    assert process.wait(300) == 0, said(study)
    total = parts(whole)
    moments = random.Random(0)
    for number in range(KILLS):
        process = start(study, killed)
        goal = total * (number + moments.random()) / (KILLS + 3)  # enough stays undone for every kill to interrupt
        until = time.monotonic() + 240
        while process.poll() is None and parts(killed) < max(goal, 1):
            assert time.monotonic() < until, said(study)
            time.sleep(0.005)
        time.sleep(moments.random() * 0.1)
        assert process.poll() is None, f"finished before kill {number}: {said(study)}"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert parts(killed) < total, "nothing was left to finish"
    process = start(study, killed)
    assert process.wait(300) == 0, said(study)
    assert sorted_bytes(killed) == sorted_bytes(whole)
    maps = [sorted(p.relative_to(out) for p in out.glob("maps/**/*.parquet")) for out in (whole, killed)]
    assert len(maps[0]) == total and maps[0] == maps[1], "names carry the digests of the maps"
    assert not list(killed.glob("**/.*.tmp"))


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    process = start(study, tmp_path / "run")
    until = time.monotonic() + 240
    while process.poll() is None and parts(tmp_path / "run") < 2:
        assert time.monotonic() < until, said(study)
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "run the same command again" in said(study)
    assert "Traceback" not in said(study)
    assert parts(tmp_path / "run") >= 2
