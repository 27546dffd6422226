"""Pages and parts of pages from templates: one head that forbids the network, and one way to fill them in."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from heatproof.drawing.methods import css

SHARED = "heatproof.drawing"


def template(package: str, name: str) -> str:
    """The text of a template of a package.

    >>> template("heatproof.drawing", "head.html").splitlines()[0]
    '<!doctype html>'
    """
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def shared_style() -> str:
    """The colours and the style of charts, which stand before what a page adds."""
    return css() + "\n" + template(SHARED, "charts.css")


def shared_script() -> str:
    """The script of charts, which stands before what a page adds."""
    return template(SHARED, "charts.js")


@lru_cache(maxsize=8)
def page(package: str, name: str) -> Template:
    """A template of a package, to be rendered; everything that is not marked safe is escaped.

    It may include and import the templates that all share, such as `head.html`, `tables.html` and `charts.html`.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(SHARED)])
    whole = Environment(
        autoescape=True,
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return whole.get_template(name)
