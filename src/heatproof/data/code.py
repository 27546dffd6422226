"""Objects from Python code, which only runs where the user said that it may."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heatproof.data.files import beside, existing
from heatproof.errors import UserError, nearest, no_exit
from heatproof.types import name_of


def check_allowed(spec: str, allow_code: bool) -> None:
    """Refuse a python: name unless code is allowed."""
    if not allow_code:
        place = spec.removeprefix("python:").rpartition(":")[0]
        raise UserError(
            f"{spec!r} runs code from {place}; add --allow-code (allow_code=True) if you trust it"
        )


def absolute(spec: str, folder: str | Path | None) -> str:
    """A python: name with the path of its file, if it has one, made absolute."""
    place, _, attribute = spec.removeprefix("python:").rpartition(":")
    if not place or not attribute:
        raise UserError(
            f"{spec!r} should be python:module:factory or python:path/to/file.py:factory"
        )
    if not place.endswith(".py"):
        return spec
    return f"python:{existing(beside(place, folder))}:{attribute}"


def load_object(spec: str, folder: str | Path | None = None, *, allow_code: bool = False) -> Any:
    """What `python:module:name` names: an object, or what a function or class without required parameters makes.

    >>> load_object("python:math:pi", allow_code=True)
    3.14...
    >>> load_object("python:math:pi")
    Traceback (most recent call last):
    heatproof.errors.UserError: 'python:math:pi' runs code from math; add --allow-code (allow_code=True) if you trust it
    """
    check_allowed(spec, allow_code)
    found = _found_at(absolute(spec, folder).removeprefix("python:"))
    return found if inspect.isfunction(found) and _needs_arguments(found) else _called(found)


def made_by(rest: str) -> Any:
    """The object at `module:name`; a function or class is called without arguments."""
    return _called(_found_at(rest))


def _needs_arguments(function: Callable[..., Any]) -> bool:
    known = inspect.signature(function).parameters.values()
    return any(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in known)


def _called(found: Any) -> Any:
    """What a function or class makes without arguments; anything else is itself."""
    if not (inspect.isroutine(found) or isinstance(found, type | functools.partial)):
        return found
    if _needs_arguments(found):
        raise UserError(
            f"{name_of(found)} needs arguments; name a function without any that makes the model"
        )
    with no_exit():
        return found()


def _found_at(rest: str) -> Any:
    place, _, attribute = rest.rpartition(":")
    module = _file_module(Path(place)) if place.endswith(".py") else _named_module(place)
    if not hasattr(module, attribute):
        close = nearest(attribute, (n for n in vars(module) if not n.startswith("_")), n=3)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise UserError(f"{place} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def _named_module(name: str) -> Any:
    with _importable(Path.cwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the module is there, but something that it imports is not
            close = nearest(name, (found.name for found in pkgutil.iter_modules()), n=3)
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            raise UserError(f"there is no Python module {name!r}{hint}") from error


def _file_module(path: Path) -> Any:
    name = f"heatproof_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # as its name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    with _importable(path.parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let code import its neighbours, as a script can, only while it is loaded."""
    sys.path.insert(0, str(folder))
    try:
        with no_exit():
            yield
    finally:
        sys.path.remove(str(folder))
