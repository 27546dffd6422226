"""One exception for every mistake a user can make, and parameter objects from plain data, with messages that say how
to mend it."""

from __future__ import annotations

import difflib
import errno
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")
_COMMANDS = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"
)
PAUSES = (0.1, 0.5, 2.0)
"""Seconds before each further try of what failed for a reason that may pass."""
_LOST = {
    "ConnectionError",
    "HTTPClientError",
    "TimeoutError",
}  # by their names, since botocore has its own
_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *(
            "EIO",
            "EAGAIN",
            "EINTR",
            "EBUSY",
            "ESTALE",
            "ETIMEDOUT",
            "ENETDOWN",
            "ENETUNREACH",
            "ENETRESET",
        ),
        *("EHOSTDOWN", "EHOSTUNREACH", "ECONNABORTED", "ECONNRESET", "ECONNREFUSED", "EREMOTEIO"),
    )
    if hasattr(errno, name)
)


class UserError(ValueError):
    """Something in the study, the data or a call cannot work; the message names the value and what was expected.

    >>> raise UserError("k must be at least 1, got 0")
    Traceback (most recent call last):
    heatproof.errors.UserError: k must be at least 1, got 0
    """


class BadParameter(UserError):
    """A mistake inside a specification; `keys` lead to it, for the line number in a study file."""

    def __init__(self, message: str, keys: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.keys = keys


@contextmanager
def inside(*keys: str | int) -> Iterator[None]:
    """A mistake in here is one at this place of a specification.

    >>> with inside("explainers", 0):
    ...     raise UserError("no such file")
    Traceback (most recent call last):
    heatproof.errors.BadParameter: no such file
    """
    try:
        yield
    except UserError as error:
        raise BadParameter(str(error), (*keys, *getattr(error, "keys", ()))) from error


def printable(text: object) -> str:
    """Text for a terminal: what would move its cursor, colour it or turn the order of its letters is spelled out.

    >>> print(printable("a\\x1b[2Jb\\u202ec"))
    a\\u001b[2Jb\\u202ec
    """
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


class Damaged(UserError):
    """A file is not what was written there: its bytes do not have the digest that is known apart from them."""


class Foreign(UserError):
    """A part is whole, but of another study than the run that it lies in."""


def is_passing(error: BaseException) -> bool:
    """Whether trying again may help, as with network file systems and object stores.

    >>> is_passing(OSError(errno.ESTALE, "stale file handle")), is_passing(OSError(errno.ENOSPC, "disk full"))
    (True, False)
    """
    return (
        bool(_LOST & {kind.__name__ for kind in type(error).__mro__})
        or getattr(error, "errno", None) in _PASSING
    )


def patiently(act: Callable[[], T], longer: tuple[float, ...] = ()) -> T:
    """What `act` gives, tried again after each of `PAUSES` and `longer` while it fails for a reason that may pass."""
    for pause in PAUSES + longer:
        try:
            return act()
        except Exception as error:
            if not is_passing(error):
                raise
        time.sleep(pause)
    return act()


@contextmanager
def no_exit() -> Iterator[None]:
    """What a study's own code, such as a model, does with `sys.exit` is an error: a run is not finished by it.

    >>> with no_exit():
    ...     raise SystemExit(0)
    Traceback (most recent call last):
    heatproof.errors.UserError: the study's own code called sys.exit(0); what is finished is kept
    """
    try:
        yield
    except SystemExit as error:
        raise UserError(
            f"the study's own code called sys.exit({error.code!r}); what is finished is kept"
        ) from error


def nearest(value: str, choices: Iterable[str], n: int = 1) -> list[str]:
    """The choices most like `value`, best first; empty when none is close.

    >>> nearest("sailency", ["saliency", "random"])
    ['saliency']
    """
    folded = {option.lower().replace("-", "_"): option for option in choices}
    close = difflib.get_close_matches(value.lower().replace("-", "_"), folded, n=n, cutoff=0.5)
    return [folded[key] for key in close]


def unknown(what: str, value: object, choices: Iterable[str]) -> UserError:
    """The error for a name that is not one of `choices`.

    >>> print(unknown("explainer", "sailency", ["saliency", "random"]))
    unknown explainer 'sailency'; did you mean 'saliency'? Allowed: random, saliency
    """
    options = sorted(choices)
    return UserError(
        f"unknown {what} {str(value)!r}{_hint(value, options)} Allowed: {', '.join(options)}"
    )


def only_known(values: Mapping[Any, Any], known: Sequence[str], what: str) -> None:
    """Refuse a key that is not known, naming the nearest one that is.

    >>> only_known({"stepz": 1}, ["steps"], "saliency")
    Traceback (most recent call last):
    heatproof.errors.BadParameter: saliency has no parameter 'stepz'; did you mean 'steps'? Allowed: steps
    """
    for key in values:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise BadParameter(
                f"{what} has no parameter {str(key)!r}{_hint(key, known)} Allowed: {allowed}",
                (key,),
            )


def _hint(value: object, choices: Iterable[str]) -> str:
    close = nearest(str(value), choices)
    return f"; did you mean {close[0]!r}?" if close else "."


def make(kind: Any, name: str, values: Mapping[str, Any]) -> Any:
    """Construct a parameter object, one `BadParameter` for the first thing that is wrong with it.

    >>> from heatproof.axes.stability.perturbations import Jpeg
    >>> make(Jpeg, "jpeg", {"quality": 400})
    Traceback (most recent call last):
    heatproof.errors.BadParameter: jpeg.quality must be less than or equal to 100, got 400
    """
    from pydantic import ValidationError  # not at the top: pytest loads this module at every start

    only_known(values, [f.name for f in fields(kind)], name)
    try:
        return kind(**values)
    except ValidationError as error:
        raise _mistake(error, name) from error


def _mistake(error: Any, name: str) -> BadParameter:
    """The first thing that pydantic found wrong with a parameter object."""
    first = error.errors()[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    place = f"{name}.{field}" if name else field
    if first["type"] == "missing":
        return BadParameter(
            f"{place} is needed" + (f": {{{name}: {{{field}: …}}}}" if name else ""), (field,)
        )
    cause = first.get("ctx", {}).get("error")
    if isinstance(
        cause, ValueError
    ):  # of a validator, which may have resolved names inside the value
        keys = (field, *cause.keys) if isinstance(cause, BadParameter) else (field,)
        return BadParameter(f"{place}: {cause}" if name else str(cause), keys)
    said = [
        e["msg"]
        for e in error.errors()
        if e["loc"][:1] == first["loc"][:1] and isinstance(e["loc"][-1], str)
    ]
    every = [
        msg.removeprefix("Input should be ") for msg in said if msg.startswith("Input should be ")
    ]
    message = f"must be {' or '.join(dict.fromkeys(every))}" if every else first["msg"]
    message = message.replace("a valid boolean", "true or false")
    return BadParameter(f"{place} {message}, got {first['input']!r}", (field,))


def speak_plainly(kind: Any) -> None:
    """Let a parameter object that is made in Python refuse what is wrong as one in a study file does.

    >>> from heatproof import Stability
    >>> Stability(perturbations=["noise"])
    Traceback (most recent call last):
    heatproof.errors.BadParameter: stability.perturbations: unknown perturbation or preset 'noise'; did you ...
    """
    from pydantic import ValidationError

    @wraps(made := kind.__init__)
    def init(self: Any, *given: Any, **named: Any) -> None:
        try:
            made(self, *given, **named)
        except ValidationError as error:
            raise _mistake(error, kind.name) from error

    kind.__init__ = init


def resolve(
    what: str, known: Mapping[str, Any], spec: Any, fits: Callable[[Any], bool] = callable
) -> Any:
    """A parameter object from its name or from {name: parameters}; an object that `fits` stays itself.

    >>> from heatproof.explainers import EXPLAINERS
    >>> resolve("explainer", EXPLAINERS, {"integrated_gradients": {"steps": 20}}).steps
    20
    >>> resolve("explainer", EXPLAINERS, "integrated_gradient")
    Traceback (most recent call last):
    heatproof.errors.BadParameter: unknown explainer 'integrated_gradient'; did you mean 'integrated_gradients'? ...
    """
    if not isinstance(spec, str | Mapping):
        if isinstance(spec, type) or not fits(spec):
            hint = f"; make one: {spec.__name__}()" if isinstance(spec, type) else ""
            raise BadParameter(f"{what}s are given by name or as objects, got {spec!r}{hint}")
        return spec
    if isinstance(spec, Mapping) and len(spec) != 1:
        raise BadParameter(
            f"{what}: expected one name with its parameters, got the keys {', '.join(map(str, spec))}"
        )
    name, values = (spec, None) if isinstance(spec, str) else next(iter(spec.items()))
    if name not in known:
        raise BadParameter(
            str(unknown(what, name, known)), (name,) if isinstance(spec, Mapping) else ()
        )
    if not isinstance(values, Mapping | None):
        defaults = [
            f"{f.name}: {f.default}"
            for f in fields(known[name])
            if isinstance(f.default, int | float | str)
        ]
        example = f" such as {{{defaults[0]}}}" if defaults else ""
        raise BadParameter(f"{name}: parameters are a mapping{example}, got {values!r}", (name,))
    with inside(name):
        return make(known[name], name, values or {})
