"""Settings for all tests."""

from __future__ import annotations

import os
import signal
import sys

import pytest
import torch

# Two test processes on two cores wait for each other's threads; small tensors gain nothing from more than one.
torch.set_num_threads(int(os.environ.get("HEATPROOF_TESTS_THREADS", "1")))

# Started from a background job the tests inherit an ignored SIGINT, and so would every process that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def main(monkeypatch, capsys):
    """`main("ls", "presets")` gives (exit code, standard output, standard error) of the command in this process."""
    from heatproof import (
        cli,
    )  # only for tests that ask for it, so that no other depends on what it imports

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["heatproof", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        shown = capsys.readouterr()
        return int(stop.value.code or 0), shown.out, shown.err

    return call


def pytest_sessionfinish(session, exitstatus):
    """In the environment that has everything (`make test-ecosystem`) a test that skips is a test that is lost."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        os.environ.get("HEATPROOF_NO_SKIPS")
        and reporter
        and reporter.stats.get("skipped")
        and exitstatus == 0
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
