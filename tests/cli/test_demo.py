"""`heatproof demo` with a classifier of one's own, and what its quick part holds."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from heatproof import cli
from heatproof.data.bundled import photograph_credits
from heatproof.errors import UserError
from heatproof.runs.study.demo import CONTROLS, METHODS, demo_plan

NETWORK = """
import torch
from torch import nn

def make():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 4, 9, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 1000)
        )
    return network.eval()
"""


@pytest.fixture
def code(tmp_path):
    (tmp_path / "nets.py").write_text(NETWORK)
    return f"python:{tmp_path}/nets.py:make"


@pytest.fixture
def weights(tmp_path):
    (tmp_path / "nets.py").write_text(NETWORK)
    parts: dict[str, object] = {}
    exec(NETWORK, parts)
    torch.save(parts["make"]().state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


def run(*arguments):
    return CliRunner().invoke(cli.app, ["demo", *map(str, arguments)])


def test_the_demo_runs_on_weights_in_a_file(weights, tmp_path):
    done = run(
        "--quick", "--limit", 1, "--out", tmp_path / "run", "--model", f"file:{weights}",
        "--architecture", f"python:{tmp_path}/nets.py:make", "--mean", "0.485,0.456,0.406",
        "--std", "0.229,0.224,0.225", "--allow-code",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "weights on photographs (1 sample)" in done.output
    assert "quick demo: 2 of 6 tests" in done.output
    assert "Stability" in done.output and "Faithfulness" in done.output
    assert (tmp_path / "run" / "report.html").exists()


def test_code_of_ones_own_has_to_be_allowed(code):
    done = run("--model", code)
    assert isinstance(done.exception, UserError) and "--allow-code" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mean", "0.5"], "--mean"),
        (["--std", "0.5"], "--std"),
        (["--architecture", "torchvision:resnet18"], "--architecture"),
        (["--model", "bundled:efficientnet-lite1"], "efficientnet-lite0"),
        (["--limit", 0], "from 1 to 16"),
        (["--limit", 17], "from 1 to 16"),
    ],
)
def test_what_the_demo_refuses(arguments, words):
    done = run(*arguments)
    assert isinstance(done.exception, UserError) and words in str(done.exception)


def test_a_mean_that_is_no_number_is_refused(code):
    done = run("--model", code, "--allow-code", "--mean", "grey")
    assert isinstance(done.exception, UserError) and "'grey'" in str(done.exception)


def test_the_whole_demo_is_what_its_help_says(code):
    from heatproof.models.loaders import load_model

    plan = demo_plan(limit=1, model=load_model(code, allow_code=True))
    assert len(METHODS) == 4 and len(CONTROLS) == 3
    controls = [explainer.control for explainer in plan.explainers.values()]
    assert controls.count(False) == 4 and controls.count(True) == 3
    assert set(plan.evaluations) == {
        "stability", "certificate", "symmetry", "faithfulness", "dependence", "localisation", "agreement",
    }  # fmt: skip
    shown = " ".join(run("--help").output.split())
    assert "four methods and three controls" in shown and "all six tests" in shown


def test_the_quick_demo_is_a_part_of_the_whole(code):
    from heatproof.models.loaders import load_model

    model = load_model(code, allow_code=True)
    whole, quick = demo_plan(model=model), demo_plan(quick=True, model=model)
    assert set(quick.explainers) < set(whole.explainers)
    assert set(quick.evaluations) == {"stability", "faithfulness"}
    controls = [name for name, explainer in quick.explainers.items() if explainer.control]
    assert len(controls) == 3 and len(quick.explainers) == 6
    sizes = [len(data) for plan in (whole, quick) for data in plan.data.values()]
    assert sizes == [14, 4] and max(sizes) <= len(photograph_credits())
