"""What somebody meets who follows the documentation: the guide to own parts runs, the command says what happened."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import heatproof
from support.paths import ROOT

GUIDE = ROOT / "docs" / "own.md"
TINY = """\
model: {source: "python:mine.py:make", name: mine}
data: {source: photos, size: 32}
explainers: [saliency, {precomputed: {path: maps.npz}}]
evaluations:
  - stability: {perturbations: jpeg, k: 50}
  - faithfulness: {imputers: zero, fractions: [0.5], metrics: [road]}
shard_size: 2
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A directory with the files of the guide, four pictures, and a file that is none."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    draw = np.random.default_rng(0)
    for number in range(4):
        Image.fromarray(draw.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(
            f"photos/{number}.png"
        )
    Path("photos/torn.jpg").write_bytes(b"\xff\xd8\xff\xe0 not a picture")
    for title, block in re.findall(
        r'^```\w+ title="(.*?)"\n(.*?)^```', GUIDE.read_text(encoding="utf-8"), re.S | re.M
    ):
        Path(title).write_text(block, encoding="utf-8")
    ids = [*(f"{number}.png" for number in range(4)), "torn.jpg"]
    np.savez("maps.npz", ids=np.array(ids), maps=draw.random((5, 1, 32, 32)))
    Path("tiny.yaml").write_text(TINY, encoding="utf-8")
    return tmp_path


def test_the_guide_to_own_parts_runs_from_its_study_file(main, folder):
    code, _, error = main("run", "study.yaml", "--allow-code", "--out", "run")
    assert code == 0, error
    run = heatproof.read("run")
    assert set(run.table().explainer.unique()) == {"saliency", "mine"}
    assert {"jpeg", "mirror", "own"} <= set(run.table().condition.unique())
    assert "fass_unaligned" in set(run.table().query("condition == 'mirror'").measure)


def test_a_run_says_what_it_judges_what_it_leaves_out_and_what_it_could_not_read(main, folder):
    code, shown, error = main("run", "tiny.yaml", "--allow-code", "--out", "a run")
    assert code == 0, error
    lines = shown.splitlines()
    for fact in ("mine", "photos", "5 samples", "saliency", "precomputed(path=maps.npz)"):
        assert fact in lines[0]
    assert "stability" in lines[1] and "precomputed" in lines[1], "what is left out"
    (at,) = (i for i, line in enumerate(lines) if "1 of 5 samples" in line)
    assert lines[at + 1].split()[0] == "torn.jpg"
    assert lines[-2].endswith("heatproof show 'a run'")
    assert max(map(len, lines[2:-1])) <= 80


def test_a_run_made_half_way_says_so_and_places_that_cannot_be_written_are_one_line(main, folder):
    assert main("run", "tiny.yaml", "--allow-code", "--out", "half", "--shard", "1/3")[0] == 0
    for arguments in (("--text",), ()):
        code, _, error = main("report", "half", *arguments)
        assert code == 0
        assert error.startswith("heatproof: ") and "unfinished" in error and "missing" in error
    Path("file").touch()
    for arguments, words in (
        (("report", "half", "--out", "photos"), "photos/report.html"),
        (("report", "half", "--out", "file/report.html"), "file/report.html"),
        (("leaderboard", "half", "--out", "file/site"), "file/site/"),
        (("compare", "half", "half", "--out", "photos"), "photos"),
    ):
        code, _, error = main(*arguments)
        assert code == 2, arguments
        assert error.startswith("heatproof: ") and len(error.splitlines()) == 1 and words in error


def test_numbers_out_of_range_are_named(main, folder):
    for arguments, words in (
        (("run", "tiny.yaml", "--limit", 0), "--limit.* 1.* 0$"),
        (("run", "tiny.yaml", "--workers", -2), "--workers.* 1.* -2$"),
        (("demo", "--limit", 99), "--limit.* 1 .*16.* 99$"),
    ):
        code, _, error = main(*arguments)
        assert code == 2 and re.search(words, error) and len(error.splitlines()) == 1


def test_the_command_has_a_version(main):
    code, shown, _ = main("--version")
    assert code == 0 and re.fullmatch(r"heatproof \d+\.\d+\.\d+\n", shown)
