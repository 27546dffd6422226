"""Makes reference pages of heatproof's docstrings: a griffe extension, named in mkdocs.yml.

Docstrings are plain prose. Read as Markdown, an example that begins with `>>>` would be a quotation within a quotation
within a quotation, so examples are put into code blocks, without the flags that only the test runner reads. And griffe
knows the fields of the standard library's dataclasses, not of pydantic's, whose signatures would be empty.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

FLAG = re.compile(r"\s*#\s*doctest:.*$")
CONSTRAINED = re.compile(r"Annotated\[([^,\[\]]+), Field\([^()]*\)\]")
PARAMETER_OBJECT = "pydantic.dataclasses.dataclass"


def fenced(text: str) -> str:
    """The text with every example, `>>>` up to the next empty line, in a code block.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1  # doctest: +SKIP\\n2\\n\\nNo more."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    No more.
    """
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        if inside and not line.strip():
            out.append("```")
            inside = False
        elif not inside and line.startswith(">>> "):
            out += [] if not out or not out[-1].strip() else [""]
            out.append("```pycon")
            inside = True
        out.append(FLAG.sub("", line) if inside else line)
    return "\n".join([*out, "```"] if inside else out)


def plain(annotation: object) -> str:
    """An annotation without its constraints, which messages spell out when they are hurt.

    >>> plain("Annotated[int, Field(ge=1)] | None")
    'int | None'
    """
    return CONSTRAINED.sub(r"\1", str(annotation))


def constructor(cls: griffe.Class) -> griffe.Function:
    """`__init__` of a pydantic dataclass: its fields; class variables are no instance attributes."""
    named = griffe.ParameterKind.positional_or_keyword
    fields = [
        field
        for field in cls.attributes.values()
        if field.annotation and "instance-attribute" in field.labels
    ]
    given = [
        griffe.Parameter(f.name, annotation=plain(f.annotation), kind=named, default=f.value)
        for f in fields
    ]
    return griffe.Function(
        "__init__", parameters=griffe.Parameters(griffe.Parameter("self", kind=named), *given)
    )


class Docstrings(griffe.Extension):
    """Applies `fenced` to every docstring, and gives parameter objects their constructor."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        made_by = [getattr(d.value, "canonical_path", "") for d in cls.decorators]
        if PARAMETER_OBJECT in made_by and "__init__" not in cls.members:
            cls.set_member("__init__", constructor(cls))
