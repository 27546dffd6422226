"""Objects of other libraries as parameters: named for people, and identified by their content, not by their address."""

from __future__ import annotations

import functools
import hashlib
import types
import weakref
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import PurePath
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator
from torch import Tensor, nn

from heatproof.errors import UserError, unknown

PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Foreign:
    """A class, function or object of another library, with a short name and a fingerprint for the manifest.

    The fingerprint covers an object's attributes, a function's code, defaults and what it closes over, and the content
    of arrays, so that a run notices on resuming that a parameter has changed. Networks inside count by their type
    only, as the manifest has the fingerprint of the model. What a function reads from its module is not covered.

    >>> Foreign.of(print), Foreign.of(Foreign.of(print)) == Foreign.of(print)
    (builtins.print#..., True)
    >>> make = lambda steps: Foreign.of(lambda module: (module, steps))
    >>> make(1) == make(1), make(1) == make(2)
    (True, False)
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.name = short_name(value)
        self.fingerprint = fingerprint(value)

    @classmethod
    def of(cls, value: Any) -> Foreign:
        """The object itself if it is one already."""
        return value if isinstance(value, Foreign) else cls(value)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        named = self.value if hasattr(self.value, "__qualname__") else type(self.value)
        return f"{named.__module__}.{named.__qualname__}#{self.fingerprint[:12]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def call_arguments(given: Any) -> dict[str, Any] | None:
    """Arguments for a foreign call, those that are not plain data as `Foreign`.

    >>> call_arguments({"steps": 3, "fill": np.zeros(2)})
    {'steps': 3, 'fill': numpy.ndarray#...}
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ValueError(f"arguments are a mapping such as {{'n_steps': 20}}, got {given!r}")
    return {
        str(key): value if isinstance(value, PLAIN) else Foreign.of(value)
        for key, value in given.items()
    }


Object = Annotated[Any, BeforeValidator(Foreign.of)]
"""The type of a field that holds a class, function or object of another library."""
Arguments = Annotated[Any, BeforeValidator(call_arguments)]
"""The type of a field that holds the arguments of a foreign call."""


def unwrapped(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments as they were given.

    >>> unwrapped(call_arguments({"steps": 3, "where": [1, 2]}))
    {'steps': 3, 'where': [1, 2]}
    """
    return {k: v.value if isinstance(v, Foreign) else v for k, v in (arguments or {}).items()}


def library(module: str, extra: str) -> Any:
    """A module of a library that may not be installed; `extra` of heatproof installs it.

    >>> library("no_such_library.attr", "no-such-extra")
    Traceback (most recent call last):
    heatproof.errors.UserError: no_such_library is not installed: pip install "heatproof[no-such-extra]"
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name != top:
            raise  # the library is there, but something that it needs is not
        raise UserError(f'{top} is not installed: pip install "heatproof[{extra}]"') from error


def class_named(module: str, extra: str, name: str) -> Any:
    """A class of a library's module by its name, or an error with the nearest names.

    >>> class_named("captum.attr", "captum", "Salience")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown class of captum.attr 'Salience'; did you mean 'Saliency'? ...
    """
    found = library(module, extra)
    choices = [
        key
        for key, value in vars(found).items()
        if isinstance(value, type) and not key.startswith("_")
    ]
    if name not in choices:
        raise unknown(f"class of {module}", name, choices)
    return getattr(found, name)


def short_name(value: Any) -> str:
    """The name of a class or function, or of an object's class; a text is its own name.

    >>> short_name(nn.Linear), short_name("GradCAM"), short_name(nn.ReLU())
    ('Linear', 'GradCAM', 'ReLU')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, functools.partial):
        return short_name(value.func)
    return str(getattr(value, "__name__", type(value).__name__))


def fingerprint(value: Any) -> str:
    """sha256 of what an object consists of.

    >>> fingerprint({"a": 1, "b": np.ones(2)}) == fingerprint({"b": np.ones(2), "a": 1})
    True
    """
    digest = hashlib.sha256()
    _feed(digest.update, value, {})
    return digest.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any, seen: dict[int, int]) -> None:
    if isinstance(value, PLAIN):
        update(f"|{value!r}".encode())
        return
    if id(value) in seen:
        update(f"|again {seen[id(value)]}".encode())
        return
    seen[id(value)] = len(seen)
    update(f"|{type(value).__module__}.{type(value).__qualname__}".encode())
    if isinstance(value, Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        update(f"|{array.dtype}|{array.shape}|".encode())
        update(
            repr(array.tolist()).encode()
            if array.dtype == object
            else np.ascontiguousarray(array).tobytes()
        )
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            _feed(update, key, seen)
            _feed(update, value[key], seen)
    elif isinstance(value, set | frozenset):
        update("|".join(sorted(fingerprint(item) for item in value)).encode())
    else:
        for part in next(parts(value) for kinds, parts in _PARTS if isinstance(value, kinds)):
            _feed(update, part, seen)


def _function(value: types.FunctionType) -> list[Any]:
    closed = [cell.cell_contents for cell in value.__closure__ or ()]
    return [
        value.__module__,
        value.__qualname__,
        value.__code__,
        value.__defaults__,
        value.__kwdefaults__,
        closed,
    ]


_PARTS: list[tuple[tuple[type, ...], Callable[[Any], list[Any]]]] = [
    ((list, tuple), list),
    ((functools.partial,), lambda value: [value.func, value.args, value.keywords]),
    ((types.MethodType,), lambda value: [value.__func__, value.__self__]),
    ((types.FunctionType,), _function),
    ((types.CodeType,), lambda value: [value.co_code, value.co_names, value.co_consts]),
    ((type, types.BuiltinFunctionType), lambda value: [value.__module__, value.__qualname__]),
    ((PurePath,), lambda value: [str(value)]),
    ((nn.Module, types.ModuleType, weakref.ReferenceType, weakref.WeakSet), lambda value: []),
    ((object,), lambda value: [getattr(value, "__dict__", {})]),
]
"""What objects that hold no numbers consist of; the first type that fits counts."""
