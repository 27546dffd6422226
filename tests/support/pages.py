"""A report's page taken apart, and a name that attacks it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

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
