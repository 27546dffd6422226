"""Settings for all tests."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile

import pytest
import torch

from small import KEPT

if KEPT not in os.environ:  # the first process of the tests, which the others inherit it from
    _folder = tempfile.mkdtemp(prefix="holdfast-tests-")
    os.environ[KEPT] = os.path.join(_folder, "network.pt")
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)

# Two test processes on two cores wait for each other's threads; small tensors gain nothing from more than one.
torch.set_num_threads(1)


@pytest.fixture
def main(monkeypatch, capsys):
    """`main("ls", "presets")` gives (exit code, standard output, standard error) of the command in this process."""
    from holdfast import cli  # only for tests that ask for it, so that no other depends on what it imports

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["holdfast", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        shown = capsys.readouterr()
        return int(stop.value.code or 0), shown.out, shown.err

    return call
