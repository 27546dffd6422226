"""The items that can be reproduced: a YAML file each, found by name and read when it is needed."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pydantic.dataclasses import dataclass

from heatproof.errors import UserError, make, unknown
from heatproof.types import STRICT

FOLDER = Path(__file__).parent
PAPERS = {
    "fass": "FASS",
    "soft_stability": "Soft stability",
    "invariance": "Explanation invariance",
    "road": "ROAD",
}
"""The folder of each paper -> what it is called."""
PAPER = "paper"
"""The group and column of published numbers in a table."""


@dataclass(frozen=True, config=STRICT)
class Published:
    """Numbers as the paper prints them: rows of numbers under `columns`, which may be in groups; null for none.

    `rows` maps names to numbers, or groups of rows to such mappings. With `percent` they are percentages.
    """

    columns: list[str]
    rows: dict[str, Any]
    percent: bool = False

    def frame(self) -> pd.DataFrame:
        """Return a row per printed number: row_group, row, column, score; percentages become shares."""
        groups = self.rows
        if not all(isinstance(of_group, dict) for of_group in groups.values()):
            groups = {"": self.rows}
        records = []
        for group, rows in groups.items():
            for row, numbers in rows.items():
                if len(numbers) != len(self.columns):
                    raise UserError(
                        f"published row {row!r} has {len(numbers)} numbers for {len(self.columns)} columns"
                    )
                for column, number in zip(self.columns, numbers, strict=True):
                    if number is not None:
                        score = _as_number(number)
                        score = score / 100 if self.percent else score
                        records.append((group, row, column, score))
        return pd.DataFrame(records, columns=["row_group", "row", "column", "score"])


def _as_number(printed: float | str) -> float:
    """Return a printed number; "<0.1" stands as 0.1.

    >>> _as_number("<0.1"), _as_number(37.2)
    (0.1, 37.2)
    """
    return float(str(printed).removeprefix("<"))


@dataclass(frozen=True, config=STRICT)
class Item:
    """One table or figure of a paper.

    paper, place   the folder of the paper, and where the item is in it, such as "Table 4, Section 4.3"
    title          what it shows
    studies        study files beside this file, one run each; none where `table` measures by itself
    limit          samples of each data set, if the user does not say
    table          the function of the paper's `tables.py` that makes our table
    then           a function there that adds to the runs of the studies, such as retrained networks
    charts         a function there that makes components of its own to draw
    figures        figures of the runs to draw, named as `heatproof figures` names them
    setup          aspect -> [in the paper, here]: how the set-up differs
    stands_for     our data set -> the paper's, whose published numbers stand beside it; other data sets of the studies
                   are left out
    published      the printed numbers; a figure has none
    says           what the paper says of a figure without numbers
    notes          mistakes in the paper, and how to read our numbers
    """

    name: str
    paper: str
    place: str
    title: str
    table: str
    setup: dict[str, list[str]]
    studies: list[str] = field(default_factory=list)
    limit: int = 8
    then: str = ""
    charts: str = ""
    figures: list[str] = field(default_factory=list)
    stands_for: dict[str, str] = field(default_factory=dict)
    published: Published | None = None
    says: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The folder of its paper."""
        return FOLDER / self.paper

    @property
    def source(self) -> str:
        """The paper and the place in it."""
        return f"{PAPERS[self.paper]}, {self.place}"


def item_files() -> dict[str, Path]:
    """Return name -> YAML file of every item, paper by paper.

    >>> list(item_files())[0]
    'fass-appendix-cifar10'
    """
    files = {}
    for paper in PAPERS:
        for path in sorted((FOLDER / paper).glob("*.yaml"), key=_in_order):
            if path.stem.startswith(("table_", "figure_", "appendix_")):
                files[f"{paper}_{path.stem}".replace("_", "-")] = path
    return files


def _in_order(path: Path) -> tuple[str, int, str]:
    """Sort figure_13 behind figure_2."""
    kind, _, number = path.stem.partition("_")
    return kind, int(number) if number.isdecimal() else 0, number


def read_item(name: str) -> Item:
    """Return an item by its name.

    >>> read_item("fass-table-4").place
    'Table 4, Section 4.3'
    >>> read_item("fass-tabel-4")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown reproduction 'fass-tabel-4'; did you mean 'fass-table-4'? ...
    """
    files = item_files()
    if name not in files:
        raise unknown("reproduction", name, files)
    content = yaml.safe_load(files[name].read_text("utf-8"))
    content |= {"name": name, "paper": files[name].parent.name}
    item: Item = make(Item, "", content)
    return item
