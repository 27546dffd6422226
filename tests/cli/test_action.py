"""The GitHub Action: its steps are run as GitHub runs them, by bash, with the command that users have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import heatproof
from support import small

ACTION = Path(__file__).parents[2] / "action.yml"


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("action") / "run"
    x, _ = small.pictures(24)
    heatproof.evaluate(
        {"net|<b>": small.model()},
        {"shapes": x},
        ["saliency", "random"],
        ["stability"],
        out,
        show_progress=False,
    )
    return out


def run_steps(tmp_path: Path, **inputs: str) -> tuple[list[int], str, str]:
    """The exit codes of the steps that run, what they printed, and the summary of the job."""
    action = yaml.safe_load(ACTION.read_text("utf-8"))
    given = {name: about["default"] for name, about in action["inputs"].items()} | inputs
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    bin_of_venv = str(Path(sys.executable).parent)
    base = {
        **os.environ,
        "PATH": f"{bin_of_venv}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(output),
    }
    codes, printed = [], ""
    for step in action["runs"]["steps"]:
        if step["name"] == "Install heatproof":
            continue
        variables = {
            name: given[value.removeprefix("${{ inputs.").removesuffix(" }}")]
            for name, value in step["env"].items()
        }
        if "if" in step and not any(
            given[name] for name in ("require", "requirements-file", "forbid")
        ):
            continue
        # GitHub runs the scripts of `shell: bash` with these options.
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env=base | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        codes.append(done.returncode)
        printed += done.stdout + done.stderr
    return codes, printed, summary.read_text("utf-8")


def test_a_requirement_that_holds_passes_and_the_summary_has_the_verdict(run_directory, tmp_path):
    requirement = "stability.undefined{explainer=saliency} <= 0.9"
    codes, printed, summary = run_steps(
        tmp_path, out=str(run_directory), require=f"{requirement}\n\n"
    )
    assert codes == [0, 0], printed
    assert "Saliency" in summary and "Random map" in summary
    assert (run_directory / "report.html").is_file()


def test_a_requirement_that_fails_fails_the_job_and_keeps_the_summary(run_directory, tmp_path):
    codes, _, summary = run_steps(
        tmp_path, out=str(run_directory), require="stability.fass >= 0.999", forbid="few-samples"
    )
    assert codes == [0, 1]
    assert "Saliency" in summary


def test_names_cannot_write_html_or_cells_into_the_summary(run_directory, tmp_path):
    _, _, summary = run_steps(tmp_path, out=str(run_directory))
    assert "<b>" not in summary
    assert "net|" not in summary
