"""Constants, declarations and defaults of every file of the package, read anew from it."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import heatproof
from support.recorded import recorded

PACKAGE = Path(heatproof.__file__).parent
NOT_HERE = ("drawing", "report", "kernels")
"""Pixels, which may change as they please, and operators, which torch lets nobody declare twice."""
FILES = sorted(
    path
    for path in PACKAGE.glob("**/*.py")
    if not path.name.startswith("__") and path.relative_to(PACKAGE).parts[0] not in NOT_HERE
)
DECLARING = ("axes", "truth")
"""Rooms whose declarations are recorded whole; elsewhere only what is made of numbers and words."""


def room_of(path: Path) -> str:
    """A folder of the package; in the rooms that declare, one below it."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "/".join(parts[:2]) if parts[0] in DECLARING else parts[0]


ROOMS = sorted({room_of(path) for path in FILES})
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
    text = CHANGING.sub(
        "", repr(sorted(value, key=str) if isinstance(value, set | frozenset) else value)
    )
    return text if len(text) <= 70 else f"{text[:50]}… {len(text)} {zlib.crc32(text.encode())}"


def of_class(kind: type) -> dict[str, Any]:
    """The defaults of its fields, and what all of its objects share."""
    fields = {f.name: f for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    told: dict[str, Any] = {
        name: said(f.default) for name, f in fields.items() if f.default is not dataclasses.MISSING
    }
    plain = {
        n: v for n, v in vars(kind).items() if not n.startswith(("__", "_is_")) and n not in fields
    }
    told |= {
        n: said(v)
        for n, v in plain.items()
        if isinstance(v, bool | int | float | tuple | frozenset)
    }
    return told | {f"{n}()": given for n, v in plain.items() if (given := usual(v))}


def usual(value: Any) -> dict[str, str]:
    """What the arguments of a function are where nobody gives them; those of the command line are recorded there."""
    made = getattr(value, "__func__", value)
    if not inspect.isfunction(made):
        return {}
    every = inspect.signature(made).parameters.values()
    return {
        p.name: said(p.default)
        for p in every
        if isinstance(p.default, bool | int | float | str | tuple)
    }


def constants(path: Path) -> dict[str, Any]:
    module = read_anew(path)
    told: dict[str, Any] = {}
    for name, value in vars(module).items():
        own = isinstance(value, type) and value.__module__ == module.__name__
        if isinstance(value, ModuleType):  # where a machine keeps it is nobody's business
            continue
        if own and (found := of_class(value)):
            told[name] = found
        elif getattr(value, "__module__", "") == module.__name__ and (given := usual(value)):
            told[f"{name}()"] = given
        elif "Annotated[" in (text := repr(value)):
            told[name] = LIMITS.findall(text)
        elif not name.isupper() or isinstance(value, str):
            continue
        elif path.is_relative_to(PACKAGE / "axes") or path.is_relative_to(PACKAGE / "truth"):
            if isinstance(value, frozenset) or ANY_ORDER not in text:
                told[name] = said(value)
        elif is_plain(value):
            told[name] = said(value)
    return told


def is_plain(value: Any) -> bool:
    """Whether a value is of numbers and words in an order of its own."""
    if isinstance(value, dict):
        return all(map(is_plain, (*value, *value.values())))
    if isinstance(value, list | tuple):
        return all(is_plain(each) and not isinstance(each, set | frozenset) for each in value)
    if isinstance(value, set | frozenset):
        return all(isinstance(each, int | float | str) for each in value)
    return value is None or isinstance(value, bool | int | float | str)


@pytest.mark.parametrize("room", ROOMS)
def test_constants(room: str) -> None:
    own = [path for path in FILES if room_of(path) == room]
    found = {path.relative_to(PACKAGE).as_posix(): constants(path) for path in own}
    recorded(
        f"constants/{room.replace('/', '_')}", {name: told for name, told in found.items() if told}
    )
