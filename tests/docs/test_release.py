"""What a release promises and can be seen without building one; `.ci/release` builds it and tries it."""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys

import pytest
import yaml

import heatproof
from support.paths import ROOT

PACKAGE = ROOT / "src" / "heatproof"
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
HEAVY = (
    "torch",
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
    "pydantic",
    "matplotlib",
    "mlflow",
    "wandb",
    "ray",
)


def declared(name: str) -> list[str]:
    """The texts of a list in pyproject.toml; Python 3.10 has no reader for TOML."""
    found = re.search(rf"^{re.escape(name)} = \[(.*?)\]$", PROJECT, re.S | re.M)
    assert found is not None, name
    return re.findall(r'"([^"]+)"', found[1])


def test_every_file_is_written_for_the_oldest_python():
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', PROJECT)
    assert oldest is not None
    for path in sorted(PACKAGE.glob("**/*.py")):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, int(oldest[1])))


def test_everything_beside_the_code_is_packaged():
    patterns = declared("heatproof")
    for path in PACKAGE.glob("**/*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            name = path.relative_to(PACKAGE).as_posix()
            assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), (
                f"{name} is not in the wheel"
            )
    folders = {path.parent for path in PACKAGE.glob("**/*.py")}
    assert all((folder / "__init__.py").is_file() for folder in folders), (
        "a folder of code that setuptools leaves out"
    )


def test_every_public_name_is_there_and_typed():
    assert all(getattr(heatproof, name) is not None for name in heatproof.__all__)
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    seen = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(heatproof.__all__) <= seen, "a type checker does not see these"


@pytest.mark.parametrize("words", ["import heatproof", "from heatproof.cli import app"])
def test_light_imports(words):
    script = f"import sys\n{words}\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_citation_file_is_of_this_version_and_names_the_papers():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    version = re.search(r'^version = "(.+)"$', PROJECT, re.M)
    assert version is not None and cited["version"] == version[1]
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert [reference["year"] for reference in cited["references"]] == [2026, 2025, 2023, 2022]
    assert all(reference["authors"] and reference["title"] for reference in cited["references"])


def test_the_first_example_is_short_and_ends_with_a_report():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```", readme, re.S | re.M)[0]  # test_pages.py runs it
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 20
    assert "torch.nn" in block and ".report()" in block


def test_the_release_scripts_are_sound():
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "release")], check=True)
    ast.parse((ROOT / ".ci" / "smoke.py").read_text(encoding="utf-8"))
