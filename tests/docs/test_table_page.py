"""The page that specifies the tables and the manifest names everything that they hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heatproof.evaluation import STATUS, Measure
from heatproof.runs.manifest import FORMAT, Manifest, Study
from heatproof.runs.tables import REFERENCES, SAMPLES, SCORES

PAGE = (Path(__file__).parents[2] / "docs" / "table.md").read_text(encoding="utf-8")


def section(title: str) -> set[str]:
    """The words in code marks of the section with this title."""
    (text,) = re.findall(rf"^## {title}.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Scores", SCORES.names),
        ("Samples", SAMPLES.names),
        ("References", REFERENCES.names),
        ("The manifest", set(Manifest.model_fields) - {"study", "prepared", "study_file"}),
        ("The manifest", {f"study.{name}" for name in Study.model_fields}),
        ("Scores", STATUS),
    ],
    ids=["scores", "samples", "references", "manifest", "study", "statuses"],
)
def test_the_page_names_every_column_and_field(title: str, names: list[str]) -> None:
    assert set(names) <= section(title)


def test_the_page_has_the_number_of_the_format() -> None:
    assert re.search(rf"format has number {FORMAT}\b", PAGE)


def test_the_page_names_both_uses_of_chance() -> None:
    for use in Measure.__dataclass_fields__["chance"].type.split('"')[1::2]:
        assert f"**{use}**" in PAGE
