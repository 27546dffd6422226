"""Faults of storage, one operation at a time: no change in silence, no loss, an error that names a file, and it mends.

A sample of `benchmarks/faults.py`, which tries every command with every error at thousands of places.
"""

from __future__ import annotations

import os
import random
import stat
from typing import Any

import pytest

import heatproof
from heatproof.runs import atomic
from support import faults
from support.faults import Stage, flip, power_loss, race, rightly, trial


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return Stage(tmp_path_factory.mktemp("faults"))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(faults.errors, "PAUSES", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("name", ["resume", "merge", "csv", "verify"])
@pytest.mark.parametrize("kind", ["directory", "store"])
def test_a_fault_is_an_error_that_names_a_file_and_the_command_mends_it(stage, kind, name):
    scene = next(scene for scene in stage.scenes(kind) if scene.name == name)
    operations, right = rightly(stage, kind, scene)
    draw = random.Random(f"{kind} {name}")
    for error in ("EIO", "EACCES", "ENOSPC" if kind == "directory" else "connection"):
        found = trial(
            stage, kind, scene, right, draw.randint(1, operations), error, lasting=error != "EACCES"
        )
        assert found is None


def test_a_fault_while_pictures_are_read_is_told_and_read_again(stage):
    scene = next(scene for scene in stage.scenes("directory") if scene.name == "run")
    (known,) = heatproof.read(stage.folder / "whole").manifest.study.datasets.values()
    lost = next(name for name in ("5.png", "4.png", "3.png") if name not in known.references)
    read = f"read {stage.folder / 'pictures' / lost}"
    stage.set_up("directory")
    watch = faults.Faults(stage.root("directory"), only=read)
    with watch.standing_between():
        assert faults.call(*scene.command)[0] == 0
    stage.set_up("directory")
    # The last time that it is read, after the fingerprint was taken; not a fault that passes.
    unlucky = faults.Faults(stage.root("directory"), len(watch.done), "EACCES", only=read)
    with unlucky.standing_between():
        code, said = faults.call(*scene.command)
    assert code == 0, said
    assert "1 of 6 samples" in said and "--retry-errors" in said
    assert stage.outcome("directory", scene, said) != stage.expected
    assert faults.call(*scene.command)[0] == 0
    assert stage.outcome("directory", scene, said) != stage.expected, (
        "what failed is not tried again unasked"
    )
    assert faults.call(*scene.command, "--retry-errors")[0] == 0
    assert stage.outcome("directory", scene, said) == stage.expected


@pytest.mark.parametrize("kind", ["directory", "store"])
def test_two_processes_that_resume_one_run_come_to_one_table(stage, kind):
    for number in (40, 60) if kind == "store" else (150, 300):
        assert race(stage, kind, number) is None


def test_flipped_bits_and_cut_files_are_named(stage):
    for number in range(12):
        what, found = flip(stage, random.Random(f"test {number}"))
        assert found is None, what


@pytest.mark.parametrize("name", ["run", "resume", "merge", "zip"])
def test_when_the_power_fails_what_was_finished_is_there(stage, name):
    scene = next(scene for scene in stage.scenes("directory") if scene.name == name)
    operations, right = rightly(stage, "directory", scene)
    draw = random.Random(name)
    for number in (
        draw.randint(1, operations),
        draw.randint(operations // 2, operations),
        operations + 1,
    ):
        assert power_loss(stage, scene, right, number) is None


class Careless:
    """The system's functions, but files, or directories, are not synced."""

    def __init__(self, left_out: str) -> None:
        self.left_out = left_out

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode) != (self.left_out == "directory"):
            os.fsync(handle)


@pytest.mark.parametrize("left_out", ["file", "directory"])
def test_a_program_that_does_not_sync_is_caught(stage, left_out, monkeypatch):
    """A test of the layer: without either fsync, what a finished command made is lost."""
    scene = next(scene for scene in stage.scenes("directory") if scene.name == "merge")
    operations, right = rightly(stage, "directory", scene)
    monkeypatch.setattr(atomic, "os", Careless(left_out))
    assert "what it made is lost" in str(power_loss(stage, scene, right, 2 * operations))


def test_a_study_file_that_cannot_be_read_is_named(stage):
    """Trial 1066 of `benchmarks/faults.py faults` with seed 0."""
    scene = next(scene for scene in stage.scenes("directory") if scene.name == "resume")
    stage.set_up("directory")
    study = stage.folder / "study.yaml"
    away = faults.Faults(
        stage.root("directory"), 1, "connection", lasting=True, only=f"read {study}"
    )
    with away.standing_between():
        code, said = faults.call(*scene.command)
    assert code == 2 and str(study) in said and len(away.done) == 4, "tried three times more"
