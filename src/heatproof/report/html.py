"""Pages and tables from templates: one head that forbids the network, and one way to fill templates in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from heatproof.report.styles import css
from heatproof.report.table_rows import Row

SHARED = "heatproof.report"


def template(package: str, name: str) -> str:
    """Return the text of a template of a package.

    >>> template("heatproof.report", "head.html").splitlines()[0]
    '<!doctype html>'
    """
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def shared_style() -> str:
    """Return the colours and the style of charts, which stand before what a page adds."""
    return css() + "\n" + template(SHARED, "charts.css")


def shared_script() -> str:
    """Return the script of charts, which stands before what a page adds."""
    return template(SHARED, "charts.js")


@lru_cache(maxsize=8)
def page(package: str, name: str) -> Template:
    """Return a template of a package, to be rendered; everything that is not marked safe is escaped.

    It may include and import the templates that all share, such as `head.html`, `tables.html` and `charts.html`.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(SHARED)])
    environment = Environment(
        autoescape=True,
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def grid(
    columns: Sequence[str],
    rows: Sequence[Row],
    label: str,
    spans: Sequence[tuple[str, int]] = (),
    prose: Collection[int] = (),
) -> Markup:
    """Return a table that scrolls sideways where it is narrow.

    `spans` are headings over so many columns each; without them, columns without an entry are left out. The columns
    with the numbers in `prose` hold sentences, which are folded.

    >>> "<td>2</td>" in grid(["a", "b"], [Row(["1", "2"])], "Numbers")
    True
    """
    table: Any = page(SHARED, "tables.html").module
    return Markup(table.grid(columns, rows, label, spans, prose))
