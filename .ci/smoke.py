"""What a stranger does with an installed heatproof, in an environment that has nothing else.

python -I smoke.py README.md DIRECTORY_OF_THE_BUILT_FILES
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

NEEDED = {
    "heatproof/py.typed",
    "heatproof/__init__.pyi",
    "heatproof/report/templates/charts.js",
    "heatproof/report/templates/head.html",
    "heatproof/report/templates/report.html",
    "heatproof/report/comparison/templates/comparison.html",
    "heatproof/data/photographs/credits.json",
    "heatproof/data/photographs/imagenet_names.txt",
}
LICENCES = {"LICENSE", "NOTICE.md"}
FEWEST_PHOTOGRAPHS = 12
HEAVY = {"torch", "pandas", "numpy", "pyarrow", "scipy", "matplotlib", "pydantic"}
LONGEST = 20
USER = '''"""A user's script: what an editor and a type checker see of the package."""

import heatproof
from heatproof import Model, Run


def judge(model: Model, images: heatproof.Data) -> Run:
    methods = ["grad_cam", heatproof.IntegratedGradients(steps=20)]
    return heatproof.evaluate(model, images, methods, [heatproof.Stability(perturbations="fass-mild")], out="my-run")


def best(run: Run) -> str:
    return str(run.ranking()["explainer"].iloc[0])


try:
    heatproof.read("no-such-run")
except heatproof.UserError as error:
    reveal = str(error)
'''


def command(*words: str) -> str:
    done = subprocess.run(["heatproof", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"heatproof {' '.join(words)}: {done.stderr}"
    return done.stdout


def check_files(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (source,) = built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert names >= NEEDED, NEEDED - names
    photographs = [name for name in names if name.startswith("heatproof/data/photographs/")]
    assert sum(name.endswith(".jpg") for name in photographs) >= FEWEST_PHOTOGRAPHS
    licences = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licences == LICENCES, licences
    strays = [name for name in names if not name.startswith(("heatproof/", "heatproof-"))]
    assert not strays, f"the wheel installs {strays}"
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    lost = {f"src/{name}" for name in names if name.startswith("heatproof/")} - inside
    assert not lost, f"the source archive lacks {lost}"
    assert LICENCES | {"README.md", "pyproject.toml"} <= inside


def check_surface() -> None:
    import heatproof

    light = HEAVY & set(sys.modules)
    assert not light, f"import heatproof loads {light}"
    assert Path(heatproof.__file__).is_relative_to(sys.prefix), (
        "the installed package is the one to try"
    )
    missing = [name for name in heatproof.__all__ if getattr(heatproof, name, None) is None]
    assert not missing and len(set(heatproof.__all__)) == len(heatproof.__all__), missing
    extras = set(importlib.metadata.metadata("heatproof").get_all("Provides-Extra") or [])
    assert {"demo", "ray", "figures"} <= extras, extras
    assert not {"dev", "docs", "ecosystem"} & extras, "tools of the repository are no extras"


def check_commands() -> None:
    shown = command("--help")
    for name in ("run", "report", "compare", "ls"):
        assert name in shown
    assert "grad_cam" in command("ls", "explainers")
    assert (
        subprocess.run(
            [sys.executable, "-m", "heatproof", "--help"], capture_output=True, check=False
        ).returncode
        == 0
    )


def check_first_example(readme: Path) -> None:
    """The first lines of Python of the README, as they are there, end with a report on a model of one's own."""
    block = re.findall(r"^```python\n(.*?)^```", readme.read_text(encoding="utf-8"), re.S | re.M)[0]
    lines = [line for line in block.splitlines() if line.strip()]
    assert len(lines) <= LONGEST, f"the first example has {len(lines)} lines"
    Path("first.py").write_text(block, encoding="utf-8")
    begun, spent = time.perf_counter(), os.times().children_user
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "first.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (report,) = Path().glob("*/report.html")
    assert report.stat().st_size > 100_000
    seconds, busy = time.perf_counter() - begun, os.times().children_user - spent
    print(
        f"smoke: {len(lines)} lines of the README gave {report} in {seconds:.1f} s, {busy:.1f} s of them of one core"
    )


if __name__ == "__main__":
    check_surface()
    check_files(Path(sys.argv[2]))
    check_commands()
    check_first_example(Path(sys.argv[1]))
    Path("user.py").write_text(USER, encoding="utf-8")
