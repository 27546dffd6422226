"""The ten questions of docs/reading.md: where the page answers them, and after how many presses."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from heatproof.report.page import build_report
from heatproof.runs.results import axis_results
from support import synthetic

READING = Path(__file__).parents[2] / "docs" / "reading.md"
ROW = re.compile(r"^\| (.+\?) \| (.+) \| (\d) \|$", re.M)
QUESTIONS = [
    (m[1], re.findall("`#([^`]+)`", m[2]), int(m[3]))
    for m in ROW.finditer(READING.read_text("utf-8"))
]
VOID = ("img", "meta", "input", "br", "link", "path", "rect", "circle")


class Presses(HTMLParser):
    """For every id, how many folds and tabs have to be opened before it is seen."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.path: list[tuple[str, bool]] = []
        self.found: dict[str, int] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        folded = tag == "details" and "open" not in given
        hidden = given.get("role") == "tabpanel" and "on" not in str(given.get("class")).split()
        if tag not in VOID:
            self.path.append((tag, folded or hidden))
        if given.get("id"):
            self.found[str(given["id"])] = sum(shut for _, shut in self.path)

    def handle_endtag(self, tag: str) -> None:
        while tag not in VOID and self.path and self.path.pop()[0] != tag:
            pass


@pytest.fixture(scope="module")
def presses() -> dict[str, int]:
    known = synthetic.samples()
    return Presses(
        build_report(
            axis_results(synthetic.table(), known, synthetic.gallery(), synthetic.manifest()),
            known,
            synthetic.manifest(),
        )
    ).found


def test_there_are_ten() -> None:
    assert len(QUESTIONS) == 10 and all(places for _, places, _ in QUESTIONS)


@pytest.mark.parametrize(("question", "places", "most"), QUESTIONS)
def test_an_answer_is_at_most_one_press_away(
    question: str, places: list[str], most: int, presses: dict[str, int]
) -> None:
    assert max(presses[place] for place in places) == most <= 1, question
