"""What a release promises and can be seen without building one; `.ci/release` builds it and tries it."""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import heatproof
from support.paths import ROOT

PACKAGE = ROOT / "src" / "heatproof"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
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
DISTRIBUTIONS = {
    "PIL": "pillow",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "pytorch_grad_cam": "grad-cam",
}
"""Import name -> name of the distribution, where they differ."""
BROUGHT_BY = {
    "triton": "torch",  # on Linux; without it the kernels are not used
    "joblib": "scikit-learn",
    "botocore": "s3fs",
    "pytest": "pytest",  # pytest loads the plugin, nothing else does
}
"""Import name -> distribution that brings it along."""
LOADERS_BY_NAME = ("import_module", "find_spec", "library")


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(requirement: str) -> str:
    """The distribution that a requirement such as `pyarrow>=17` names."""
    return normalised(re.match(r"[\w.-]+", requirement)[0])


def imported_names(path: Path) -> Iterator[str]:
    """Top-level names of the packages that a file imports, in functions and through importlib too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and node.args:
            function = getattr(node.func, "attr", getattr(node.func, "id", None))
            name = getattr(node.args[0], "value", None)
            if function in LOADERS_BY_NAME and isinstance(name, str):
                yield name.partition(".")[0]


def test_the_package_compiles_for_the_oldest_python_it_supports():
    oldest = re.fullmatch(r">=3\.(\d+)", PROJECT["requires-python"])
    for path in sorted(PACKAGE.glob("**/*.py")):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, int(oldest[1])))


def test_the_classifiers_begin_with_the_oldest_python():
    prefix = "Programming Language :: Python :: 3."
    minors = [int(c.removeprefix(prefix)) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert PROJECT["requires-python"] == f">=3.{minors[0]}"
    assert minors == list(range(minors[0], minors[-1] + 1))


def test_every_import_belongs_to_a_declared_dependency():
    declared = {distribution(requirement) for requirement in PROJECT["dependencies"]}
    for requirements in EXTRAS.values():
        declared |= {distribution(requirement) for requirement in requirements}
    # Whoever has a booster of XGBoost has XGBoost.
    known = declared | {"pytest", "xgboost"}
    undeclared = []
    for path in sorted(PACKAGE.glob("**/*.py")):
        for name in set(imported_names(path)):
            if name == "heatproof" or name in sys.stdlib_module_names:
                continue
            needed = BROUGHT_BY.get(name, DISTRIBUTIONS.get(name, name))
            if normalised(needed) not in known:
                undeclared.append(f"{path.relative_to(PACKAGE)}: {name}")
    assert undeclared == []


def test_what_loads_with_the_core_needs_no_extra():
    """Module-level imports may use the dependencies of a plain `pip install heatproof` only."""
    core = {distribution(requirement) for requirement in PROJECT["dependencies"]}
    kernels_and_plugin = ("kernels", "testing")
    for path in sorted(PACKAGE.glob("**/*.py")):
        if path.relative_to(PACKAGE).parts[0] in kernels_and_plugin:
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        top_level = ast.Module(
            [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)], []
        )
        for node in top_level.body:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module or ""] if node.level == 0 else []
            for name in (name.partition(".")[0] for name in names):
                if name != "heatproof" and name not in sys.stdlib_module_names:
                    assert normalised(DISTRIBUTIONS.get(name, name)) in core, f"{path}: {name}"


def test_every_extra_that_code_and_documentation_name_exists():
    files = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md"), *PACKAGE.glob("**/*.py")]
    named = set()
    for path in files:
        text = path.read_text(encoding="utf-8")
        for extras in re.findall(r"heatproof\[([a-z][\w, -]*)\]", text):
            named |= {extra.strip() for extra in extras.split(",")}
    named.discard("no-such-extra")  # the example of an error
    assert len(named) >= 8
    assert named <= EXTRAS.keys(), named - EXTRAS.keys()


def test_extras_that_code_composes_exist():
    from heatproof.explainers.adapters import named
    from heatproof.models.loaders.named import LOADERS
    from heatproof.runs import storage

    composed = {loader.extra for loader in LOADERS.values() if loader.extra}
    composed |= {named.EXTRAS.get(library, library) for library in named.METHODS}
    composed |= set(storage.EXTRAS.values())
    assert composed <= EXTRAS.keys(), composed - EXTRAS.keys()
    for package, extra in storage.EXTRAS.items():
        assert package in {distribution(requirement) for requirement in EXTRAS[extra]}


def test_development_tools_are_groups_and_no_extras():
    groups = PYPROJECT["dependency-groups"]
    assert {"dev", "docs", "ecosystem"} <= groups.keys()
    assert not groups.keys() & EXTRAS.keys()


def test_a_dependency_has_the_same_floor_wherever_it_is_named():
    floors: dict[str, set[str]] = {}
    groups = [PROJECT["dependencies"], *EXTRAS.values(), *PYPROJECT["dependency-groups"].values()]
    for requirements in groups:
        for requirement in requirements:
            if isinstance(requirement, str):
                floors.setdefault(distribution(requirement), set()).add(requirement)
    assert {name: texts for name, texts in floors.items() if len(texts) > 1} == {}


def test_everything_beside_the_code_is_packaged():
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["heatproof"]
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


def test_every_licence_file_exists():
    assert PROJECT["license-files"]
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])


def test_every_public_name_is_there_and_typed():
    assert all(getattr(heatproof, name) is not None for name in heatproof.__all__)
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    typed = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            typed |= {alias.asname for alias in node.names}
    assert set(heatproof.__all__) <= typed, "a type checker does not see these"


@pytest.mark.parametrize("words", ["import heatproof", "from heatproof.cli import app"])
def test_light_imports(words):
    script = f"import sys\n{words}\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_citation_file_is_of_this_version_and_names_the_papers():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == PROJECT["version"]
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert [reference["year"] for reference in cited["references"]] == [2026, 2025, 2023, 2022]
    assert all(reference["authors"] and reference["title"] for reference in cited["references"])


def test_the_first_example_is_short_and_ends_with_a_report():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```", readme, re.S | re.M)[0]  # test_pages.py runs it
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 20
    assert "torch.nn" in block and ".report()" in block


@pytest.mark.parametrize("script", ["release", "run", "compat"])
def test_the_scripts_of_ci_are_valid_bash(script):
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / script)], check=True)


def test_the_smoke_test_is_valid_python():
    ast.parse((ROOT / ".ci" / "smoke.py").read_text(encoding="utf-8"))


def test_every_target_that_a_workflow_makes_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    jobs = {"test-lowest", "test-newest", "test-processor"}  # test-${{ matrix.job }}
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = workflow.read_text(encoding="utf-8")
        yaml.safe_load(text)
        jobs |= set(re.findall(r"make ([a-z-]+[a-z])(?!\$)\b", text)) - {"test"}
    assert jobs <= targets, jobs - targets
