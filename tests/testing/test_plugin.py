"""The pytest plugin at work in this process; `test_assertions.py` has it in one of its own, as users do."""

from __future__ import annotations

import re

import pytest
import torch

import heatproof
from heatproof.testing import assert_holds

pytest_plugins = ("pytester",)
PROJECT = """\
import pytest
import torch

AXIS = {"stability": {"perturbations": {"brightness": {"factor": 1.05}}, "k": 5}}


def run(made, **options):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    torch.nn.init.constant_(net[1].weight, 0.1)
    net[1].bias.data = torch.arange(4.0)
    return made(net, torch.linspace(0, 1, 1728).reshape(9, 3, 8, 8), ["input_x_gradient"], [AXIS], **options)


@pytest.mark.explanations("stability.fass >= 0.3 @ 0.9", "stability.retention >= 0.5")
def test_holds(heatproof_run):
    assert len(run(heatproof_run, limit=8, seed=3).samples()) == 8


@pytest.mark.explanations("stability.retention >= 0.9999 @ 0.9")
def test_falls_short(heatproof_run):
    run(heatproof_run)


@pytest.mark.explanations("stability.fass >= 0.1")
def test_forgets_to_run(heatproof_run):
    pass


@pytest.mark.explanations("stability.road >= 0.1")
def test_asks_for_what_is_not_there(heatproof_run):
    run(heatproof_run)


@pytest.mark.explanations("stability.fass >= 0.999")
def test_fails_by_itself(heatproof_run):
    raise ZeroDivisionError("the test's own fault")
"""


@pytest.fixture(scope="module", autouse=True)
def everything_is_imported() -> None:
    """pytester forgets what is first imported inside of it, and would import it again every time."""
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    axis = {"stability": {"perturbations": {"brightness": {"factor": 1.05}}, "k": 5}}
    assert_holds(
        net, torch.rand(8, 3, 8, 8), "input_x_gradient", "stability.retention >= 0.01", [axis]
    )
    heatproof.evaluate(net, torch.rand(2, 3, 8, 8), "random", [axis]).report()


def inside(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """With no plugin but ours: those of others change what is told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        own = ("-p", "no:cacheprovider", "-p", "heatproof.testing.pytest_plugin")
        return pytester.runpytest_inprocess(*own, *arguments)


def test_requirements_are_held(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROJECT)
    done = inside(pytester, "--strict-markers", "--junit-xml", "out.xml")
    done.assert_outcomes(passed=1, failed=4)
    text = done.stdout.str()
    for said in ("  FAIL  input_x_gradient", "no run with heatproof_run", "stability 'road'"):
        assert said in text
    assert "ZeroDivisionError: the test's own fault" in text
    assert "report.html" not in text
    told = (pytester.path / "out.xml").read_text()
    assert (
        'value="pass: input_x_gradient of Seq' in told
        and 'value="fail: input_x_gradient of Seq' in told
    )
    assert len(re.findall("<property ", told)) == 3


def test_runs_are_kept_where_they_are_told_and_mistakes_stop_before_any_test(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(PROJECT)
    done = inside(pytester, "--heatproof-out", "kept", "-k", "test_holds")
    done.assert_outcomes(passed=1, deselected=4)
    (kept,) = (pytester.path / "kept").iterdir()
    assert re.fullmatch("test_holds-[0-9a-f]{16}", kept.name)
    (report,) = re.findall(r"^heatproof: (.*report\.html)$", done.stdout.str(), re.MULTILINE)
    assert (pytester.path / report).is_file()
    written = (kept / "manifest.json").read_text()
    assert '"seed": 3' in written and "_before_any_test.py::test_holds" in written
    pytester.makepyfile(
        "import pytest\n@pytest.mark.explanations('stability.fass >= 1')\ndef test_a(): pass\n"
    )
    assert re.search("explanations.*heatproof_run", inside(pytester).stderr.str())
    pytester.makepyfile(
        "import pytest\n@pytest.mark.explanations('stability.fass')\ndef test_a(heatproof_run): pass\n"
    )
    assert re.search("test_a.*'stability.fass'", inside(pytester).stderr.str())
