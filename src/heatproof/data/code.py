"""Objects from Python code, which only runs where the user allowed it."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heatproof.data.files import beside, existing
from heatproof.errors import UserError, nearest, no_exit
from heatproof.types import name_of


def check_allowed(spec: str, allow_code: bool) -> None:
    """Raise `UserError` for a python: name unless code is allowed."""
    if not allow_code:
        module = spec.removeprefix("python:").rpartition(":")[0]
        raise UserError(
            f"{spec!r} runs code from {module}; add --allow-code (allow_code=True) if you trust it"
        )


def absolute(spec: str, folder: str | Path | None) -> str:
    """Return a python: name with the path of its file, if it has one, made absolute."""
    module, _, attribute = spec.removeprefix("python:").rpartition(":")
    if not module or not attribute:
        raise UserError(
            f"{spec!r} should be python:module:factory or python:path/to/file.py:factory"
        )
    if not module.endswith(".py"):
        return spec
    return f"python:{existing(beside(module, folder))}:{attribute}"


def load_object(spec: str, folder: str | Path | None = None, *, allow_code: bool = False) -> Any:
    """Return the object at `python:module:name`; a function or class is called, unless a function needs arguments.

    >>> load_object("python:math:pi", allow_code=True)
    3.14...
    >>> load_object("python:math:pi")
    Traceback (most recent call last):
    heatproof.errors.UserError: 'python:math:pi' runs code from math; add --allow-code (allow_code=True) if you trust it
    """
    check_allowed(spec, allow_code)
    value = _imported(absolute(spec, folder).removeprefix("python:"))
    if inspect.isfunction(value) and _needs_arguments(value):
        return value
    return _called(value)


def made_by(rest: str) -> Any:
    """Return the object at `module:name`; a function or class is called without arguments."""
    return _called(_imported(rest))


def _needs_arguments(function: Callable[..., Any]) -> bool:
    for parameter in inspect.signature(function).parameters.values():
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not is_variadic:
            return True
    return False


def _called(value: Any) -> Any:
    """Return what a function or class makes without arguments; anything else as it is."""
    if not (inspect.isroutine(value) or isinstance(value, type | functools.partial)):
        return value
    if _needs_arguments(value):
        raise UserError(
            f"{name_of(value)} needs arguments; name a function without any that makes the model"
        )
    with no_exit():
        return value()


def _named_module(name: str) -> Any:
    """Import a module, also from the working directory."""
    with _importable(Path.cwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            is_missing = error.name is not None and f"{name}.".startswith(f"{error.name}.")
            if not is_missing:
                raise  # the module is there, but something that it imports is not
            names = [module.name for module in pkgutil.iter_modules()]
            raise UserError(
                f"there is no Python module {name!r}{_did_you_mean(name, names)}"
            ) from error


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


def _imported(rest: str) -> Any:
    """Return the attribute at `module:name` or `path/to/file.py:name`."""
    module_name, _, attribute = rest.rpartition(":")
    if module_name.endswith(".py"):
        module = _file_module(Path(module_name))
    else:
        module = _named_module(module_name)
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        raise UserError(f"{module_name} has no {attribute!r}{_did_you_mean(attribute, names)}")
    return getattr(module, attribute)


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    close = nearest(name, names, n=3)
    return f"; did you mean {', '.join(close)}?" if close else ""
