"""Exceptions for users' mistakes, whose messages name the nearest valid choice, and parameter objects from plain data."""

from __future__ import annotations

import difflib
import errno
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from heatproof.lazy import LazyRegistry

T = TypeVar("T")
_LONGEST_VALUE = 80
"""The most characters of a value that an error shows."""
CONTROL_CHARACTERS = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"
)
"""What moves a terminal's cursor or colours it, and what turns the direction of text; tab and line end are allowed."""
PAUSES = (0.1, 0.5, 2.0)
"""Seconds before each further try of what failed for a reason that may pass."""
CONNECTION_ERRORS = {"ConnectionError", "HTTPClientError", "TimeoutError"}
"""Exceptions that may pass, by name, since botocore has its own."""
TRANSIENT_CODES = (
    "EIO",
    "EAGAIN",
    "EINTR",
    "EBUSY",
    "ESTALE",
    "ETIMEDOUT",
    "ENETDOWN",
    "ENETUNREACH",
    "ENETRESET",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "ECONNABORTED",
    "ECONNRESET",
    "ECONNREFUSED",
    "EREMOTEIO",
)
"""Codes of the operating system that may pass; not every system has all of them."""


class UserError(ValueError):
    """Something in the study, the data or a call cannot work; the message names the value and what was expected.

    >>> raise UserError("k must be at least 1, got 0")
    Traceback (most recent call last):
    heatproof.errors.UserError: k must be at least 1, got 0
    """


class ProbabilitiesError(UserError):
    """A network gives probabilities where its task reads logits."""


class BadParameter(UserError):
    """A mistake inside a specification; `keys` lead to it, for the line number in a study file."""

    def __init__(self, message: str, keys: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.keys = keys


@contextmanager
def inside(*keys: str | int) -> Iterator[None]:
    """Add the place in a specification to the mistakes that are found inside the context.

    >>> with inside("explainers", 0):
    ...     raise UserError("no such file")
    Traceback (most recent call last):
    heatproof.errors.BadParameter: no such file
    """
    try:
        yield
    except UserError as error:
        inner_keys = error.keys if isinstance(error, BadParameter) else ()
        # Without the error itself as the cause: a traceback would show its message twice.
        raise BadParameter(str(error), (*keys, *inner_keys)) from error.__cause__


def printable(text: object) -> str:
    """Return a text for a terminal, with control characters spelled out.

    >>> print(printable("a\\x1b[2Jb\\u202ec"))
    a\\u001b[2Jb\\u202ec
    """

    def spelled_out(match: re.Match[str]) -> str:
        return f"\\u{ord(match[0]):04x}"

    return CONTROL_CHARACTERS.sub(spelled_out, str(text))


class Damaged(UserError):
    """A file is not what was written there: its bytes do not have the digest that is known apart from them."""


class Foreign(UserError):
    """A part is whole, but of another study than the run that it lies in."""


def is_passing(error: BaseException) -> bool:
    """Return whether trying again may help, as with network file systems and object stores.

    >>> is_passing(OSError(errno.ESTALE, "stale file handle")), is_passing(OSError(errno.ENOSPC, "disk full"))
    (True, False)
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & CONNECTION_ERRORS:
        return True
    code = getattr(error, "errno", None)
    return errno.errorcode.get(code, "") in TRANSIENT_CODES if code is not None else False


def retry(act: Callable[[], T], longer: tuple[float, ...] = ()) -> T:
    """Return what `act` returns, tried again after each of `PAUSES` and `longer` while it fails for a passing reason."""
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
    """Raise a `UserError` where code of the user, such as a model, calls `sys.exit` within the context.

    Otherwise the run would seem to have ended well.

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


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, in the plural unless it is 1.

    >>> counted(1, "sample"), counted(0, "sample"), counted(1200, "entry", "entries")
    ('1 sample', '0 samples', '1,200 entries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def nearest(value: str, choices: Iterable[str], n: int = 1) -> list[str]:
    """Return the choices most like `value`, best first; empty when none is close.

    A registry knows other names of its entries, such as "IG".

    >>> nearest("sailency", ["saliency", "random"])
    ['saliency']
    """
    if isinstance(choices, LazyRegistry):
        meant = choices.name_of_alias(value)
        if meant is not None:
            return [meant]
    folded = {option.lower().replace("-", "_"): option for option in choices}
    close = difflib.get_close_matches(value.lower().replace("-", "_"), folded, n=n, cutoff=0.5)
    return [folded[key] for key in close]


def unknown(what: str, value: object, choices: Iterable[str]) -> UserError:
    """Return the error for a name that is not one of `choices`.

    >>> print(unknown("explainer", "sailency", ["saliency", "random"]))
    unknown explainer 'sailency'; did you mean 'saliency'? Allowed: random, saliency
    """
    options = choices if isinstance(choices, LazyRegistry) else list(choices)
    allowed = ", ".join(sorted(options))
    return UserError(f"unknown {what} {str(value)!r}{_hint(value, options)} Allowed: {allowed}")


def only_known(values: Mapping[Any, Any], known: Sequence[str], what: str) -> None:
    """Raise `BadParameter` for a key that is not known, with the nearest one that is.

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
    """Return the end of a sentence about a wrong name, with the nearest choice if one is close."""
    close = nearest(str(value), choices)
    return f"; did you mean {close[0]!r}?" if close else "."


def make(kind: Any, name: str, values: Mapping[str, Any]) -> Any:
    """Return a parameter object; raise one `BadParameter` for the first thing that is wrong with it.

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
        raise wrong_parameter(error, name) from error


def wrong_parameter(error: Any, name: str, parameters: Sequence[str] = ()) -> BadParameter:
    """Return our error for a parameter object that pydantic refused: the parameter, what it must be, and its value.

    `error` is pydantic's `ValidationError`, of which the first problem is reported. `name` is that of the object, ""
    leaves it out of the message. `parameters` are the object's parameters in order, by which values passed by position
    are named.
    """
    problems = error.errors()
    first = problems[0]
    field = _field_of(first, parameters)
    where = f"{name}.{field}" if name and field else name or field
    if any(problem["type"] == "unexpected_positional_argument" for problem in problems):
        return BadParameter(f"{name} has {len(parameters)} parameters: {', '.join(parameters)}")
    if first["type"] == "missing":
        example = f": {{{name}: {{{field}: …}}}}" if name else ""
        return BadParameter(f"{where} is needed{example}", (field,))

    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):  # raised by a validator of ours, which says all itself
        keys = (field, *cause.keys) if isinstance(cause, BadParameter) else (field,)
        return BadParameter(f"{where}: {cause}" if name else str(cause), keys)

    # Where a field has one of several types, pydantic has a problem for each of them.
    prefix = "Input should be "
    expected = []
    for problem in problems:
        # A number after the field is the position in a list, whose problem is that of another value.
        is_in_a_list = len(problem["loc"]) > 1 and isinstance(problem["loc"][-1], int)
        if _field_of(problem, parameters) != field or is_in_a_list:
            continue
        if problem["msg"].startswith(prefix):
            expected.append(problem["msg"].removeprefix(prefix))
    message = f"must be {' or '.join(dict.fromkeys(expected))}" if expected else first["msg"]
    message = message.replace("a valid boolean", "true or false")
    return BadParameter(f"{where} {message}, got {first['input']!r}", (field,))


def _field_of(problem: Mapping[str, Any], parameters: Sequence[str]) -> str:
    """Return the field that a problem of pydantic is about; empty if it is about the object."""
    if not problem["loc"]:
        return ""
    field = problem["loc"][0]
    if isinstance(field, int) and field < len(parameters):
        return parameters[field]
    return str(field)


def resolve(
    what: str,
    registered: Mapping[str, Any],
    spec: Any,
    fits: Callable[[Any], bool] = callable,
) -> Any:
    """Return a parameter object from its name or from {name: parameters}; an object that `fits` stays itself.

    >>> from heatproof.explainers import EXPLAINERS
    >>> resolve("explainer", EXPLAINERS, {"integrated_gradients": {"steps": 20}}).steps
    20
    >>> resolve("explainer", EXPLAINERS, "integrated_gradient")
    Traceback (most recent call last):
    heatproof.errors.BadParameter: unknown explainer 'integrated_gradient'; did you mean 'integrated_gradients'? ...
    """
    if isinstance(spec, str):
        if spec not in registered:
            raise BadParameter(str(unknown(what, spec, registered)))
        return make(registered[spec], spec, {})
    if isinstance(spec, type):
        raise BadParameter(
            f"{what}s are given by name or as objects, got {spec!r}; make one: {spec.__name__}()"
        )
    if not isinstance(spec, Mapping):
        if not fits(spec):
            raise BadParameter(f"{what}s are given by name or as objects, got {_short(spec)}")
        return spec

    if len(spec) != 1:
        raise BadParameter(
            f"{what}: expected one name with its parameters, got the keys {', '.join(map(str, spec))}"
        )
    ((name, values),) = spec.items()
    if name not in registered:
        raise BadParameter(str(unknown(what, name, registered)), (name,))
    kind = registered[name]
    if values is not None and not isinstance(values, Mapping):
        raise BadParameter(
            f"{name}: parameters are a mapping{_example(kind)}, got {values!r}", (name,)
        )
    with inside(name):
        return make(kind, name, values or {})


def _short(value: Any) -> str:
    """Return a value as text of one line, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _example(kind: Any) -> str:
    """Return the first parameter of a class with its default, as an example of a mapping; empty without one."""
    for field in fields(kind):
        if isinstance(field.default, int | float | str):
            return f" such as {{{field.name}: {field.default}}}"
    return ""
