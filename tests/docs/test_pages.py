"""Every Python example and study file in the README and the docs works, links lead somewhere, and the site builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import heatproof
from heatproof.runs.study.file import read_study
from support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
EVERY_PAGE = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


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
        text = block.replace(
            "torchvision:resnet50", "bundled:efficientnet-lite0"
        )  # torchvision may not be installed
        study = tmp_path / f"{number}.yaml"
        study.write_text(text, encoding="utf-8")
        assert read_study(study).explainers, page


def test_links_between_pages_lead_somewhere_and_stay_inside_the_site():
    for page in EVERY_PAGE:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            found = Path(
                os.path.normpath(page.parent / target)
            )  # rules.md is a link into the package
            assert found.exists(), f"{page.name} points to {target}"
            assert page.name == "README.md" or found.is_relative_to(DOCS), (
                f"{page.name} leaves the site for {target}"
            )


def test_every_benchmark_can_be_found_by_its_command():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    missing = []
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        is_command = "__main__" in path.read_text(encoding="utf-8")  # others are imported by these
        if is_command and f"python benchmarks/{path.name}" not in pages:
            missing.append(path.name)
    assert not missing


def test_the_reference_has_every_public_name():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    named = set(re.findall(r"^::: heatproof\.(\w+)$", pages, re.M))
    assert set(heatproof.__all__) - named == set()


def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    # without --quiet, which keeps warnings from being counted
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    for page, html in built.items():
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?https?:", html), (
            page
        )
    reference = "\n".join(html for page, html in built.items() if page.parent.name == "api")
    assert [name for name in heatproof.__all__ if f'id="heatproof.{name}"' not in reference] == []
    assert "&gt;&gt;&gt; " not in re.sub(
        r"<pre.*?</pre>", "", reference, flags=re.S
    )  # examples are code, not quotations
