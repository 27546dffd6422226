"""What all pages share: their templates, with one head that forbids the network, and one way to fill them in."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from jinja2 import DictLoader, Environment, StrictUndefined, Template


def template(package: str, name: str) -> str:
    """The text of a template of a package.

    >>> template("holdfast.report", "head.html").splitlines()[0]
    '<!doctype html>'
    """
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


@lru_cache(maxsize=3)
def page(package: str, name: str) -> Template:
    """A page of a package, to be rendered; everything that is not marked safe is escaped."""
    loader = DictLoader({name: template(package, name), "head.html": template("holdfast.report", "head.html")})
    whole = Environment(autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return whole.get_template(name)
