"""Assertions and the pytest plugin, as the tests of a model's repository use them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import heatproof
from heatproof import testing
from heatproof.errors import UserError
from heatproof.runs.plan import make_plan
from heatproof.testing.cache import fingerprint
from support import small
from support.paths import TESTS

MILD = {"brightness": {"factor": 1.05}}
PROJECT = f"""\
import sys

import pytest
import torch

sys.path.insert(0, {str(TESTS)!r})
from support import small

torch.set_num_threads(1)
AXIS = {{"stability": {{"stability": {{"perturbations": {MILD!r}, "k": 50}}}}}}


@pytest.mark.explanations("stability.fass >= 0.3 @ 0.9", "stability.retention >= 0.5")
def test_holds(heatproof_run):
    run = heatproof_run(small.model(), small.pictures(10)[0], ["saliency"], AXIS)
    assert len(run.samples()) == 10


@pytest.mark.explanations("stability.fass >= 0.999 @ 0.9")
def test_falls_short(heatproof_run):
    heatproof_run(small.model(), small.pictures(10)[0], ["saliency"], AXIS)


@pytest.mark.explanations("stability.fass >= 0.1")
def test_forgets_to_run(heatproof_run):
    pass


@pytest.mark.explanations("stability.road >= 0.1")
def test_asks_for_what_is_not_there(heatproof_run):
    heatproof_run(small.model(), small.pictures(10)[0], ["saliency"], AXIS)


@pytest.mark.explanations("stability.fass >= 0.999")
def test_fails_by_itself(heatproof_run):
    raise ZeroDivisionError("the test's own fault")


def test_without_requirements(heatproof_run):
    heatproof_run(small.model(), small.pictures(10)[0], ["saliency"], AXIS)
"""


def test_assertions_raise_with_the_lines_of_the_check_and_name_the_run_that_was_kept(tmp_path):
    images, axis = small.pictures(10)[0], heatproof.Stability(perturbations=MILD, k=50)
    found = testing.assert_holds(
        small.model(), images, ["saliency", "random"], "stability.fass >= 0.3 @ 0.9", axis
    )
    assert [(o.explainer, o.passed) for o in found] == [("saliency", True)]
    keep, wish = tmp_path / "kept", "stability.fass >= 0.999 @ 0.95"
    with pytest.raises(AssertionError) as failure:
        testing.assert_holds(small.model(), images, "saliency", wish, axis, out=keep)
    text = str(failure.value)
    assert wish in text and "  FAIL  saliency" in text and str(keep) in text
    assert (keep / "manifest.json").is_file()
    with pytest.raises(UserError, match="confidence"):
        testing.assert_holds(small.model(), images, "saliency", "stability.fass >= 0.6 @ 95")


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    entry_points = metadata.entry_points(group="pytest11")
    plugin = (
        []
        if any(e.value == "heatproof.testing.pytest_plugin" for e in entry_points)
        else ["-p", "heatproof.testing.pytest_plugin"]
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-W",
        "error",
        "--strict-markers",
        "-q",
        *plugin,
        *arguments,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_marker_holds_runs_to_requirements_and_tests_share_what_was_computed(tmp_path):
    (tmp_path / "test_model.py").write_text(PROJECT)
    (tmp_path / "pytest.ini").touch()
    first = pytest_in(tmp_path, "--junit-xml", "out.xml")
    assert first.returncode == 1, first.stdout + first.stderr
    assert "4 failed, 2 passed" in first.stdout
    assert "  FAIL  saliency" in first.stdout and ">= 0.999" in first.stdout
    assert "no run with heatproof_run" in first.stdout
    assert "stability 'road'" in first.stdout
    assert "the test's own fault" in first.stdout
    cases = {
        case.get("name"): case for case in ElementTree.parse(tmp_path / "out.xml").iter("testcase")
    }
    properties = [entry.get("name") for entry in cases["test_holds"].iter("property")]
    assert properties == [
        "heatproof stability.fass >= 0.3 @ 0.9 [saliency]",
        "heatproof stability.retention >= 0.5 [saliency]",
    ]
    assert cases["test_falls_short"].find("failure") is not None

    (cached,) = (tmp_path / ".pytest_cache" / "d" / "heatproof").iterdir()  # four tests, one run
    passes = [session.passes["shapes"] for session in heatproof.read(cached).manifest.sessions]
    assert passes[0] > 0 and passes[1:] == [0, 0, 0]

    kept = pytest_in(tmp_path, "-k", "test_without", "--heatproof-out", "kept")
    assert kept.returncode == 0 and "report.html" in kept.stdout, kept.stdout
    (page,) = tmp_path.glob("kept/test_without_requirements-*/report.html")
    assert page.stat().st_size > 10_000


def test_other_code_with_the_same_weights_is_another_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    images = small.pictures(2)[0]

    def found(name: str, factor: int) -> str:
        (tmp_path / f"{name}.py").write_text(
            "import torch\n\n\nclass Net(torch.nn.Sequential):\n"
            f"    def forward(self, x):\n        return {factor} * super().forward(x)\n"
        )
        net = importlib.import_module(name).Net(small.network())
        return fingerprint(
            make_plan(net, images, "saliency", {"s": {"stability": {"perturbations": MILD}}})
        )

    assert found("nets_a", 2) == found("nets_b", 2) != found("nets_c", 3)


def test_a_network_that_was_typed_in_is_known_by_its_name():
    typed: dict[str, object] = {"__name__": "typed_in", "torch": torch}
    exec(
        "class Net(torch.nn.Sequential):\n    pass\nclass Other(torch.nn.Sequential):\n    pass",
        typed,
    )
    axis = {"s": {"stability": {"perturbations": MILD}}}
    kinds = (typed["Net"], typed["Net"], typed["Other"])
    one, same, other = (
        fingerprint(
            make_plan({"net": kind(small.network())}, small.pictures(2)[0], "saliency", axis)
        )  # type: ignore[operator]
        for kind in kinds
    )
    assert one == same != other


def test_a_requirement_that_cannot_be_read_stops_before_any_test(tmp_path):
    (tmp_path / "test_model.py").write_text(
        "import pytest\n\n@pytest.mark.explanations('stability.fass is fine')\ndef test_it(heatproof_run):\n    pass\n"
    )
    done = pytest_in(tmp_path, "-p", "no:cacheprovider")
    assert done.returncode == 4 and "'stability.fass is fine'" in done.stderr


def test_the_plugin_loads_nothing_heavy():
    heavy = "{'torch', 'pandas', 'scipy', 'numpy', 'pyarrow', 'rich', 'pydantic'}"
    load = "import sys; from heatproof.testing import pytest_plugin, requirement"
    code = f"{load}; sys.exit(str({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"
