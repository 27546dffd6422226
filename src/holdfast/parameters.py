"""Making a parameter object from plain data, with one clear line when a parameter is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import ValidationError

from holdfast.errors import UserError, nearest

Place = tuple[str | int, ...]


class BadParameter(UserError):
    """A mistake inside a specification; `place` leads to it, for the line number in a study file."""

    def __init__(self, message: str, place: Place = ()) -> None:
        super().__init__(message)
        self.place = place

    def inside(self, *place: str | int) -> BadParameter:
        """The same mistake as seen from further outside."""
        return BadParameter(str(self), (*place, *self.place))


def only_known(given: Mapping[Any, Any], known: list[str] | tuple[str, ...], what: str) -> None:
    """Refuse a key that is not known, naming the nearest one that is.

    >>> only_known({"stepz": 1}, ["steps"], "saliency")
    Traceback (most recent call last):
    holdfast.parameters.BadParameter: saliency has no parameter 'stepz'; did you mean 'steps'? Allowed: steps
    """
    for key in given:
        if key not in known:
            guess = nearest(str(key), known)
            hint = f"; did you mean {guess[0]!r}?" if guess else "."
            allowed = ", ".join(known) or "none"
            raise BadParameter(f"{what} has no parameter {str(key)!r}{hint} Allowed: {allowed}", (key,))


def make(kind: Any, name: str, given: Mapping[str, Any]) -> Any:
    """Construct a parameter object, one `BadParameter` for the first thing that is wrong with it.

    >>> from holdfast.axes.stability.perturbations import Jpeg
    >>> make(Jpeg, "jpeg", {"quality": 400})
    Traceback (most recent call last):
    holdfast.parameters.BadParameter: jpeg.quality must be less than or equal to 100, got 400
    """
    only_known(given, [f.name for f in fields(kind)], name)
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, BadParameter):  # a validator that resolves names inside the value
            raise BadParameter(f"{name}.{field}: {cause}", (field, *cause.place)) from error
        if isinstance(cause, ValueError):
            raise BadParameter(f"{name}.{field}: {cause}", (field,)) from error
        message = first["msg"].replace("Input should be", "must be")
        raise BadParameter(f"{name}.{field} {message}, got {first['input']!r}", (field,)) from error
