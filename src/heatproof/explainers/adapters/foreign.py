"""Objects of other libraries as parameters, with a short name and a fingerprint of their content."""

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
from heatproof.models import Model
from heatproof.models.tasks import Binary

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Types of values that a manifest can store as they are."""


class Foreign:
    """A class, function or object of another library, with a short name and a fingerprint for the manifest.

    The fingerprint covers an object's attributes, a function's code, defaults and closure, and the content of arrays,
    so that a resumed run notices a changed parameter. Networks inside count by their type only, because the manifest
    has the fingerprint of the model. What a function reads from its module is not covered.

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
        """Wrap a value, unless it is wrapped already."""
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


def call_arguments(arguments: Any) -> dict[str, Any] | None:
    """Return the arguments of another library's call in a form that can be compared and stored in a run's manifest.

    Numbers and texts stay; objects are wrapped in `Foreign`, which knows them by a hash of their content.

    >>> call_arguments({"steps": 3, "fill": np.zeros(2)})
    {'steps': 3, 'fill': numpy.ndarray#...}
    """
    if arguments is None:
        return None
    if not isinstance(arguments, Mapping):
        raise ValueError(f"arguments are a mapping such as {{'n_steps': 20}}, got {arguments!r}")
    wrapped = {}
    for key, value in arguments.items():
        wrapped[str(key)] = value if isinstance(value, PLAIN) else Foreign.of(value)
    return wrapped


Object = Annotated[Any, BeforeValidator(Foreign.of)]
"""The type of a field that holds a class, function or object of another library."""
Arguments = Annotated[Any, BeforeValidator(call_arguments)]
"""The type of a field that holds the arguments of a foreign call."""


def unwrapped(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of another library's call with their objects as the user gave them, not wrapped.

    >>> unwrapped(call_arguments({"steps": 3, "where": [1, 2]}))
    {'steps': 3, 'where': [1, 2]}
    """
    original = {}
    for key, value in (arguments or {}).items():
        original[key] = value.value if isinstance(value, Foreign) else value
    return original


def library(module: str, extra: str) -> Any:
    """Return an imported module of a library that may not be installed.

    If it is not, the error says how to install it: with heatproof's extra dependencies `extra`.

    >>> library("no_such_library.attr", "no-such-extra")
    Traceback (most recent call last):
    heatproof.errors.UserError: no_such_library is not installed: pip install "heatproof[no-such-extra]"
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name != top:
            raise  # the library is installed, but something that it needs is not
        raise UserError(f'{top} is not installed: pip install "heatproof[{extra}]"') from error


def class_named(module: str, extra: str, name: str) -> Any:
    """Return a class of a library's module by its name, or raise with the nearest names.

    >>> class_named("captum.attr", "captum", "Salience")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown class of captum.attr 'Salience'; did you mean 'Saliency'? ...
    """
    imported = library(module, extra)
    choices = []
    for key, value in vars(imported).items():
        if isinstance(value, type) and not key.startswith("_"):
            choices.append(key)
    if name not in choices:
        raise unknown(f"class of {module}", name, choices)
    return getattr(imported, name)


def resolved(module: str, extra: str, value: Any) -> Any:
    """Return the class of a library's module if the value is its name, else the value itself."""
    return class_named(module, extra, value) if isinstance(value, str) else value


def short_name(value: Any) -> str:
    """Return the name of a class or function, or of an object's class; a text is its own name.

    >>> short_name(nn.Linear), short_name("GradCAM"), short_name(nn.ReLU())
    ('Linear', 'GradCAM', 'ReLU')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, functools.partial):
        return short_name(value.func)
    return str(getattr(value, "__name__", type(value).__name__))


def fingerprint(value: Any) -> str:
    """Return a sha256 of an object's content, which is the same in another process.

    >>> fingerprint({"a": 1, "b": np.ones(2)}) == fingerprint({"b": np.ones(2), "a": 1})
    True
    """
    digest = hashlib.sha256()
    _feed(digest.update, value, {})
    return digest.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any, visited: dict[int, int]) -> None:
    """Update a hash with the type and the content of an object, recursively.

    Objects may contain each other: `visited` has those that were met before, by `id`, with their number.
    """
    if isinstance(value, PLAIN):
        update(f"|{value!r}".encode())
        return
    if id(value) in visited:
        update(f"|again {visited[id(value)]}".encode())
        return
    visited[id(value)] = len(visited)
    update(f"|{type(value).__module__}.{type(value).__qualname__}".encode())
    if isinstance(value, Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        update(f"|{array.dtype}|{array.shape}|".encode())
        if array.dtype == object:
            update(repr(array.tolist()).encode())
        else:
            update(np.ascontiguousarray(array).tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            _feed(update, key, visited)
            _feed(update, value[key], visited)
    elif isinstance(value, set | frozenset):
        # Sets have no order, so the hashes of their elements are sorted. An element may contain what contains the set.
        hashes = []
        for element in value:
            digest = hashlib.sha256()
            _feed(digest.update, element, dict(visited))
            hashes.append(digest.hexdigest())
        update("|".join(sorted(hashes)).encode())
    else:
        for content in _contents(value):
            _feed(update, content, visited)


def _contents(value: Any) -> list[Any]:
    """Return the parts of an object that decide what it does, for a hash of its content.

    For a function these are its code, defaults and closure; for most other objects, their attributes. Networks and
    modules have none: they are the model's, or a library's.
    """
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.FunctionType):
        return [
            value.__module__,
            value.__qualname__,
            value.__code__,
            value.__defaults__,
            value.__kwdefaults__,
            [cell.cell_contents for cell in value.__closure__ or ()],
        ]
    if isinstance(getattr(value, "py_func", None), types.FunctionType):
        return [value.py_func]  # compiled by numba, whose other attributes change with its use
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_consts]
    if isinstance(value, type | types.BuiltinFunctionType):
        return [value.__module__, value.__qualname__]
    if isinstance(value, PurePath):
        return [str(value)]
    if isinstance(value, nn.Module | types.ModuleType | weakref.ReferenceType | weakref.WeakSet):
        return []
    return [getattr(value, "__dict__", {})]


def has_two_classes(model: Model) -> bool:
    """Whether a model tells two classes apart, of which a library may explain the second one alone."""
    return isinstance(model.task, Binary) or len(model.classes or ()) == 2
