"""A report's page taken apart, and a name that attacks it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pandas as pd

from heatproof.report.canvas import Plot
from heatproof.report.page_parts import Chart

FIELDS = ["name", "method", "row", "column", "said"]
NUMBERS = ["x", "x_low", "x_high", "value", "low", "high"]
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Tags with attributes, and the text of every script element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words.append(data.strip())

    @property
    def payload(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def marks(plots: Iterable[Plot]) -> pd.DataFrame:
    """What the marks of some plots carry, one row each, numbers as numbers."""
    rows = [
        {"plot": plot.title, "note": plot.note, **data}
        for plot in plots
        for data in plot.sheet.marks
    ]
    frame = pd.DataFrame(rows, columns=["plot", "note", *FIELDS, *NUMBERS])
    return frame.assign(**{name: pd.to_numeric(frame[name]) for name in NUMBERS})


def curve(plots: Iterable[Plot], name: str) -> pd.DataFrame:
    """The marks of one name, in order."""
    found = marks(plots)
    return found[found["name"] == name].reset_index(drop=True)


def is_sound(chart: Chart) -> None:
    """Every plot is valid XML, carries the numbers it draws, and takes all colours from variables."""
    for plot in chart.every:
        svg = str(plot.sheet.svg(plot.title))
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img" and not re.search(
            r"#[0-9a-fA-F]{3,6}\b|rgba?\(|nan", svg.split(">", 1)[1]
        )
        drawn = [group for group in root.iter("g") if group.get("class") == "mark"]
        assert drawn and len(drawn) == len(plot.sheet.marks)
        for group in drawn:
            if group.find("circle") is not None:
                value = float(group.get("data-value", "nan"))
                assert (
                    float(group.get("data-low", value))
                    <= value + 1e-6
                    <= float(group.get("data-high", value)) + 2e-6
                )
