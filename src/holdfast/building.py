"""From a name and parameters, as a study file or a call gives them, to an explainer or an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from pydantic import ValidationError

from holdfast.errors import UserError, nearest, unknown
from holdfast.evaluations import EVALUATIONS
from holdfast.explainers import EXPLAINERS
from holdfast.features import GROUPINGS
from holdfast.types import label_of

_NESTED: dict[str, tuple[str, Mapping[str, Any]]] = {
    "of": ("explainer", EXPLAINERS),
    "features": ("grouping", GROUPINGS),
}
"""Parameters that are themselves given by name."""


class BadParameter(UserError):
    """A mistake inside a specification; `place` leads to it, for the line number in a study file."""

    def __init__(self, message: str, place: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.place = place


def build(what: str, registry: Mapping[str, Any], spec: Any) -> Any:
    """An object from a name, a one-entry mapping {name: parameters}, or the object itself.

    >>> build("explainer", EXPLAINERS, {"integrated_gradients": {"steps": 20}}).steps
    20
    >>> build("explainer", EXPLAINERS, "integrated_gradient")
    Traceback (most recent call last):
    holdfast.building.BadParameter: unknown explainer 'integrated_gradient'; did you mean 'integrated_gradients'? ...
    """
    if not isinstance(spec, str | Mapping):
        if callable(spec) and not isinstance(spec, type):
            return spec
        hint = f"; make one: {spec.__name__}()" if isinstance(spec, type) else ""
        raise BadParameter(f"{what}s are given by name or as objects, got {spec!r}{hint}", ())
    name, given = (spec, {}) if isinstance(spec, str) else _only_entry(what, spec)
    if name not in registry:
        raise BadParameter(str(unknown(what, name, registry)), (name,) if isinstance(spec, Mapping) else ())
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise BadParameter(f"{name}: parameters are a mapping such as {{steps: 20}}, got {given!r}", (name,))
    return make(registry[name], name, given)


def make(kind: Any, name: str, given: Mapping[str, Any]) -> Any:
    """Construct a parameter object, with one clear line when a parameter is wrong."""
    known = [f.name for f in fields(kind)]
    values = {}
    for key, value in given.items():
        if key not in known:
            guess = nearest(str(key), known)
            hint = f"; did you mean {guess[0]!r}?" if guess else "."
            allowed = ", ".join(known) or "none"
            raise BadParameter(f"{name} has no parameter {str(key)!r}{hint} Allowed: {allowed}", (name, key))
        try:
            values[key] = build(*_NESTED[key], value) if key in _NESTED else value
        except BadParameter as error:
            raise BadParameter(f"{name}.{key}: {error}", (name, key, *error.place)) from error
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        message = first["msg"].removeprefix("Value error, ")
        shown = "" if first["type"] == "value_error" else f", got {first['input']!r}"
        raise BadParameter(f"{name}.{field}: {message}{shown}", (name, field)) from error


def explainers(specs: Any) -> dict[str, Any]:
    """Explainers by unique label, from a list of specifications or a mapping of label to specification.

    >>> list(explainers(["saliency", {"integrated_gradients": {"steps": 20}}]))
    ['saliency', 'integrated_gradients(steps=20)']
    """
    return _labelled("explainer", EXPLAINERS, specs)


def evaluations(specs: Any) -> dict[str, Any]:
    """Evaluations by unique label; the label of an unnamed one is its axis.

    >>> list(evaluations(["stability"]))
    ['stability']
    """
    return _labelled("evaluation", EVALUATIONS, specs)


def _labelled(what: str, registry: Mapping[str, Any], specs: Any) -> dict[str, Any]:
    if isinstance(specs, str) or not isinstance(specs, Iterable):
        specs = [specs]
    named = isinstance(specs, Mapping)
    found: dict[str, Any] = {}
    for place, entry in enumerate(specs.items() if isinstance(specs, Mapping) else specs):
        label, spec = entry if named else (None, entry)
        try:
            item = build(what, registry, spec)
        except BadParameter as error:
            raise BadParameter(str(error), (label if named else place, *error.place)) from error
        label = str(label) if named else (type(item).name if what == "evaluation" else label_of(item))
        if label in found:
            hint = f'name one of them: {{"another name": ...}} instead of a list of {what}s'
            raise BadParameter(f"{what} {label!r} is given twice; {hint}", (place,))
        found[label] = item
    if not found:
        raise BadParameter(f"no {what} is given; allowed are {', '.join(sorted(registry))}", ())
    return found


def _only_entry(what: str, spec: Mapping[str, Any]) -> tuple[str, Any]:
    if len(spec) != 1:
        raise BadParameter(f"an {what} is one name with its parameters, got the keys {', '.join(map(str, spec))}", ())
    name, given = next(iter(spec.items()))
    return str(name), given
