"""Constants, declarations and defaults of every file of the axes and of the reference models, read anew from it."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from support.recorded import recorded

PACKAGE = Path(holdfast.__file__).parent
FILES = sorted(p for room in ("axes", "truth") for p in (PACKAGE / room).glob("**/*.py") if p.name != "__init__.py")
ROOMS = sorted({"/".join(path.relative_to(PACKAGE).parts[:2]).removesuffix(".py") for path in FILES})
CHANGING = re.compile(r" at 0x[0-9a-f]+|\b_?read_anew\w*\.")
ANY_ORDER = "frozenset("
LIMITS = re.compile(r"\b(?:g[et]|l[et]|min_length|max_length|strict|allow_inf_nan)=[^,)\]]+")


def read_anew(path: Path) -> ModuleType:
    """A module of its own from a file of the package."""
    name = f"_read_anew_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def said(value: Any) -> str:
    """A value in at most a line: its beginning, and for the rest a sum that changes with it."""
    text = CHANGING.sub("", repr(sorted(value, key=str) if isinstance(value, set | frozenset) else value))
    return text if len(text) <= 70 else f"{text[:50]}… {len(text)} {zlib.crc32(text.encode())}"


def of_class(kind: type) -> dict[str, str]:
    """The defaults of its fields, and what all of its objects share."""
    fields = {f.name: f for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    told = {name: said(f.default) for name, f in fields.items() if f.default is not dataclasses.MISSING}
    plain = {n: v for n, v in vars(kind).items() if not n.startswith("__") and n not in fields}
    return told | {n: said(v) for n, v in plain.items() if isinstance(v, bool | int | float | tuple | frozenset)}


def constants(path: Path) -> dict[str, Any]:
    module = read_anew(path)
    told: dict[str, Any] = {}
    for name, value in vars(module).items():
        own = isinstance(value, type) and value.__module__ == module.__name__
        if own and (found := of_class(value)):
            told[name] = found
        elif "Annotated[" in (text := repr(value)):
            told[name] = LIMITS.findall(text)
        elif name.isupper() and not isinstance(value, str) and (isinstance(value, frozenset) or ANY_ORDER not in text):
            told[name] = said(value)
    return told


@pytest.mark.parametrize("room", ROOMS)
def test_constants(room: str) -> None:
    own = [p for p in FILES if p.relative_to(PACKAGE).as_posix().startswith((f"{room}/", f"{room}."))]
    found = {path.relative_to(PACKAGE).as_posix(): constants(path) for path in own}
    recorded(f"constants/{room.replace('/', '_')}", {name: told for name, told in found.items() if told})
