"""A study file from a stranger does nothing but produce an error, through the real command line.

Each attack would create a canary file if it worked; what may be there afterwards is what was there before.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from heatproof.cli import app
from heatproof.errors import UserError

EXPLAIN = "explainers: [random]\nevaluations: {s: {stability: {perturbations: jpeg}}}\n"
DATA = "data: pictures.npz\n"


class Bomb:
    """What runs a command when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.canary,)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with honest pictures, from which commands are given; its parent must stay as it is."""
    folder = tmp_path / "a" / "desk"
    folder.mkdir(parents=True)
    np.savez(folder / "pictures.npz", x=np.full((2, 3, 16, 16), 0.5))
    canary = tmp_path / "canary"
    (folder / "code.py").write_text(
        f"from pathlib import Path\nimport torch\nPath({str(canary)!r}).touch()\n"
        "def make():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 2))\n"
    )
    (folder / "bomb.pt").write_bytes(pickle.dumps(Bomb(canary)))
    torch.save(Bomb(canary), folder / "saved.pt")
    (folder / "bomb.npz").write_bytes(pickle.dumps(Bomb(canary)))
    np.savez(folder / "objects.npz", x=np.array([Bomb(canary)] * 2, dtype=object))
    monkeypatch.chdir(folder)
    return folder


def attempt(study: str, *options: str) -> Result:
    Path("study.yaml").write_text(study)
    return CliRunner().invoke(app, ["run", "study.yaml", "--limit", "1", *options])


def everything(root: Path) -> set[str]:
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if "__pycache__" not in path.parts
    }


CODE = [
    "model: python:code.py:make\n" + DATA + EXPLAIN,
    "model: {source: 'python:code:make', name: harmless}\n" + DATA + EXPLAIN,
    "model: {source: 'file:bomb.pt', architecture: 'python:code.py:make'}\n" + DATA + EXPLAIN,
    "model: bundled:efficientnet-lite0\ndata: python:code.py:make\n" + EXPLAIN,
    "model: bundled:efficientnet-lite0\n" + DATA + "explainers: ['python:code.py:make']\n",
    "model: bundled:efficientnet-lite0\n" + DATA + "explainers: {x: 'python:code.py:make'}\n",
    "model: bundled:efficientnet-lite0\n"
    + DATA
    + "explainers: [{smoothgrad: {of: 'python:code.py:make'}}]\n",
    "model: bundled:efficientnet-lite0\n"
    + DATA
    + "explainers: [random]\nevaluations: ['python:code.py:make']\n",
    "model: bundled:efficientnet-lite0\n"
    + DATA
    + "explainers: [{influence: {train: 'python:code.py:make'}}]\n",
    "model: bundled:efficientnet-lite0\n" + DATA + "explainers: [random]\n"
    "evaluations: [{symmetry: {group: {own: {of: 'python:code.py:make'}}}}]\n",
]
PICKLES = [
    "model: file:bomb.pt\n" + DATA + EXPLAIN,
    "model: file:saved.pt\n" + DATA + EXPLAIN,
    "model: {source: 'file:saved.pt', architecture: 'torchvision:resnet18'}\n" + DATA + EXPLAIN,
    "model: bundled:efficientnet-lite0\ndata: bomb.npz\n" + EXPLAIN,
    "model: bundled:efficientnet-lite0\ndata: objects.npz\n" + EXPLAIN,
    "model: bundled:efficientnet-lite0\n"
    + DATA
    + "explainers: [{precomputed: {path: bomb.npz}}]\n",
    "model: bundled:efficientnet-lite0\n"
    + DATA
    + "explainers: [{precomputed: {path: objects.npz}}]\n",
    "model: bundled:efficientnet-lite0\n"
    + DATA
    + "explainers: [{tracin: {train: pictures.npz, checkpoints: [saved.pt]}}]\n",
]
TAGS = [
    "model: !!python/object/apply:os.system ['touch ../../canary']\n" + DATA + EXPLAIN,
    "model: !!python/object/new:pathlib.Path ['x']\n" + DATA + EXPLAIN,
    "model: !!python/name:os.system\n" + DATA + EXPLAIN,
]
TRAVERSAL = [
    "model: bundled:efficientnet-lite0\ndata: ../../../../../../../../../etc/passwd\n" + EXPLAIN,
    "model: bundled:efficientnet-lite0\ndata: /etc/passwd\n" + EXPLAIN,
    "model: file:../../../../../../../../../etc/passwd\n" + DATA + EXPLAIN,
    "model: onnx:../../../../../../../../../etc/passwd\n" + DATA + EXPLAIN,
    "model: hf:../../../../../../../../../etc\n" + DATA + EXPLAIN,
    "model: bundled:../../../etc/passwd\n" + DATA + EXPLAIN,
    "model: torchvision:../../../etc/passwd\n" + DATA + EXPLAIN,
    "model: bundled:efficientnet-lite0\n"
    + DATA
    + "explainers: [{precomputed: {path: ../../../../../../../etc/passwd}}]\n",
]


@pytest.mark.parametrize("study", [*CODE, *PICKLES, *TAGS, *TRAVERSAL])
def test_nothing_happens_but_an_error(desk: Path, tmp_path: Path, study: str) -> None:
    before = everything(tmp_path)
    modules = set(sys.modules)
    result = attempt(study)
    assert result.exit_code != 0
    assert isinstance(result.exception, UserError), repr(result.exception)
    assert "root:" not in str(result.exception), "an error does not show what a file holds"
    assert everything(tmp_path) - before == {"a/desk/study.yaml"}
    assert "code" not in set(sys.modules) - modules


def test_the_bombs_are_real(desk: Path, tmp_path: Path) -> None:
    """A test of the attacks: done without care, each leaves its canary."""
    canary = tmp_path / "canary"
    for attack in (
        lambda: pickle.loads((desk / "bomb.pt").read_bytes()),
        lambda: torch.load(desk / "saved.pt", weights_only=False),
        lambda: np.load(desk / "objects.npz", allow_pickle=True)["x"],
        lambda: attempt(CODE[0], "--allow-code"),
        lambda: attempt(PICKLES[1], "--allow-code"),
    ):
        attack()
        assert canary.exists()
        canary.unlink()


def test_a_bomb_of_aliases_is_an_error(desk: Path) -> None:
    """Nine references to nine references, nine times over: 9^9 words if anyone unfolded them."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    for place in ("model: *a9\n" + DATA + EXPLAIN, "model: x:y\n" + DATA + "explainers: *a9\n"):
        result = attempt("\n".join(lines) + "\n" + place)
        assert isinstance(result.exception, UserError)
    inside = ", ".join(
        ["&a0 [lol]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10))]
    )
    for place in (
        f"seed: [{inside}]\nmodel: *a9\n" + DATA + EXPLAIN,
        f"model: x:y\n{DATA}explainers: [{inside}]\n",
    ):
        assert "aliases" in str(attempt(place).exception)
    recursive = attempt("model: bundled:efficientnet-lite0\n" + DATA + "explainers: &e [*e]\n")
    assert isinstance(recursive.exception, UserError), repr(recursive.exception)
    deep = attempt("model: " + "[" * 50_000 + "]" * 50_000)
    assert isinstance(deep.exception, UserError), repr(deep.exception)


def test_the_installed_command_shows_one_message(desk: Path, tmp_path: Path) -> None:
    Path("study.yaml").write_text(CODE[0])
    done = subprocess.run(
        [sys.executable, "-m", "heatproof", "run", "study.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert (
        done.stderr.startswith("heatproof: ")
        and "--allow-code" in done.stderr
        and "Traceback" not in done.stderr
    )
    assert not (tmp_path / "canary").exists()


NAMES = ("../../../evil", "/evil", "<script>alert(1)</script>")


def test_names_are_no_paths_and_no_markup(desk: Path, tmp_path: Path) -> None:
    """An honest study with dishonest names stays inside its directory, and its report shows the names as text."""
    before = everything(tmp_path)
    names = [repr(name) for name in NAMES]
    study = (
        f"model: {{source: 'python:code.py:make', name: {names[0]}}}\n"
        f"data: {{source: pictures.npz, name: {names[1]}}}\n"
        f"explainers: [{{random: {{}}, as: {names[2]}}}]\n"
        "evaluations: {'../../up': {stability: {perturbations: jpeg}}}\n"
    )
    result = attempt(study, "--allow-code", "--out", "run")
    assert result.exit_code == 0, repr(result.exception)
    new = {path for path in everything(tmp_path) - before if not path.startswith("a/desk/run")}
    assert new == {"a/desk/study.yaml", "canary"}
    report = (desk / "run" / "report.html").read_text()
    assert "<script>alert(1)" not in report and "&lt;script&gt;alert(1)" in report
