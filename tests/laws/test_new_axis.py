"""The recipe "an axis": one folder and two lines in `axes/__init__.py`, and it appears wherever results are shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import heatproof

RECORD = '''
"""Depth: how far below its peak is the mean of a map?"""

from heatproof.axis import Axis
from heatproof.evaluation import Measure
from heatproof.axes.depth.evaluation import Depth

AXIS = Axis(
    name="depth",
    title="Depth",
    question="how far below its peak is the mean of a map?",
    verb="is deeper than",
    evaluation=Depth,
    measures=(Measure("fathoms", "Fathoms", "1 − mean / peak of the map", "higher", "headline", (0.0, 1.0)),),
    report="heatproof.axes.depth.report",
)
'''
EVALUATION = '''
"""One number per map."""

from typing import ClassVar

from heatproof.evaluation import Evaluation, Scores
from heatproof.maps.undefined import reasons
from heatproof.types import parameter_class


@parameter_class
class Depth(Evaluation):
    """How far the mean of a map lies below its peak."""

    name: ClassVar[str] = "depth"
    reexplains: ClassVar[bool] = False

    def conditions(self):
        return [("clean", 0.0)]

    def __call__(self, subject):
        for explainer in subject.explainers:
            maps = subject.maps(explainer)
            sizes = maps.abs().flatten(1)
            depths = 1 - sizes.mean(1) / sizes.amax(1)
            yield Scores.column(explainer, "fathoms", ("clean", 0.0), depths, reasons(maps, "the map"))
'''
REPORT = '''
"""Depths as dots and as a table."""

from heatproof.report.components import ScoreChart, Table


def lead(result):
    return result.decided()


def components(result):
    yield ScoreChart(key="dots", title="Depths", caption="", scores=result.ranking)
    columns = {"explainer": "Explainer", "score": "Fathoms"}
    yield Table(key="scores", title="Depths", caption="", rows=result.ranking, columns=columns, paper="none")


def findings(result):
    return []
'''
USE = """
import sys
from pathlib import Path
import torch, heatproof
from heatproof.report import figures
from heatproof.runs.study.registry import evaluations
from heatproof.testing.check import check

out = Path(sys.argv[1])
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
images = torch.rand(9, 3, 16, 16)
nets = {"a": net, "b": other}
runs = [heatproof.evaluate(m, images, ["saliency", "random"], ["depth"], out / name) for name, m in nets.items()]
print("RANKING", runs[0].ranking()[["evaluation", "measure", "explainer"]].to_dict("list"))
print("TESTS", runs[0].tests()[["evaluation", "measure"]].to_dict("list"))
print("TEXT", runs[0].text())
print("PAGE", "Fathoms" in runs[0].report().read_text(), ">Depth<" in runs[0].report().read_text())
print("GATE", [o.passed for o in check(runs[0], ["depth.fathoms >= 0.01"])])
print("COMPARE", heatproof.compare(*runs).differences["measure"].unique().tolist())
print("PLOT", "data-value" in runs[0].report().read_text())
print("FIGURES", [p.name for p in figures.write(runs[0], only=["depth-scores"])])
"""


def test_an_axis_is_one_folder_and_two_lines(tmp_path):
    package = tmp_path / "heatproof"
    shutil.copytree(
        Path(heatproof.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    room = package / "axes" / "depth"
    room.mkdir()
    for name, text in (("__init__", RECORD), ("evaluation", EVALUATION), ("report", REPORT)):
        (room / f"{name}.py").write_text(text.lstrip(), encoding="utf-8")
    listing = package / "axes" / "__init__.py"
    before = listing.read_text(encoding="utf-8")
    lines = {
        '"heatproof.axes.agreement:AXIS",': '"depth": "heatproof.axes.depth:AXIS",',
        '"heatproof.axes.agreement.evaluation:Agreement",': '"depth": "heatproof.axes.depth.evaluation:Depth",',
    }
    after = before
    for last_line, new_line in lines.items():
        assert after.count(last_line) == 1
        after = after.replace(last_line, f"{last_line} {new_line}")
    listing.write_text(after, encoding="utf-8")

    here = {**os.environ, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "use.py").write_text(USE, encoding="utf-8")
    command = [sys.executable, "use.py", str(tmp_path)]
    done = subprocess.run(
        command, env=here, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = dict(
        line.split(" ", 1) for line in done.stdout.splitlines() if line.split(" ")[0].isupper()
    )
    assert "'depth', 'depth'" in said["RANKING"] and "'fathoms', 'fathoms'" in said["RANKING"]
    assert "'depth'" in said["TESTS"] and "'fathoms'" in said["TESTS"]
    assert "Depth" in done.stdout and "Fathoms" in done.stdout
    assert said["PAGE"] == "True True"
    assert said["PLOT"] == "True"
    assert said["GATE"] == "[True]"
    assert said["COMPARE"] == "['fathoms']"
    assert "depth-scores.tex" in said["FIGURES"]
    for what, word in (("evaluations", "depth"), ("measures", "fathoms")):
        command = [sys.executable, "-m", "heatproof", "ls", what]
        listed = subprocess.run(command, env=here, capture_output=True, text=True, check=True)
        assert word in listed.stdout
