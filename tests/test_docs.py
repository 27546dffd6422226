"""Every Python example and study file in the README and the docs works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.study import read_study

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_the_python_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)  # one page is one session
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "yaml")], ids=lambda p: p.name)
def test_the_study_files_are_read(page, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "nets.py").touch()
    for number, block in enumerate(blocks(page, "yaml")):
        text = block.replace("torchvision:resnet50", "bundled:efficientnet-lite0")  # torchvision may not be installed
        study = tmp_path / f"{number}.yaml"
        study.write_text(text, encoding="utf-8")
        assert read_study(study).explainers, page


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
