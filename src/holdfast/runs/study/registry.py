"""From what a study file or a call gives, a name and parameters, to models, data, explainers and evaluations."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from holdfast.axes import EVALUATIONS
from holdfast.axes.symmetry.symmetrised import Symmetrised
from holdfast.data import Data, open_data
from holdfast.errors import UserError, unknown
from holdfast.explainers import EXPLAINERS
from holdfast.features import GROUPINGS
from holdfast.models import Model
from holdfast.models.loaders import load_model
from holdfast.parameters import BadParameter, make
from holdfast.types import adopted, label_of, name_of

ALL_EXPLAINERS: dict[str, Any] = {**EXPLAINERS, Symmetrised.name: Symmetrised}
"""Every explainer by its name in a study file."""

_NESTED: dict[str, tuple[str, Mapping[str, Any]]] = {
    "of": ("explainer", ALL_EXPLAINERS),
    "features": ("grouping", GROUPINGS),
}
"""Parameters that are themselves given by name."""


def build(what: str, registry: Mapping[str, Any], spec: Any) -> Any:
    """An object from a name, a one-entry mapping {name: parameters}, or the object itself.

    >>> build("explainer", ALL_EXPLAINERS, {"integrated_gradients": {"steps": 20}}).steps
    20
    >>> build("explainer", ALL_EXPLAINERS, "integrated_gradient")
    Traceback (most recent call last):
    holdfast.parameters.BadParameter: unknown explainer 'integrated_gradient'; did you mean 'integrated_gradients'? ...
    """
    if not isinstance(spec, str | Mapping):
        if (callable(spec) or hasattr(spec, "segments")) and not isinstance(spec, type):
            return spec
        hint = f"; make one: {spec.__name__}()" if isinstance(spec, type) else ""
        raise BadParameter(f"{what}s are given by name or as objects, got {spec!r}{hint}")
    name, given = (spec, {}) if isinstance(spec, str) else _only_entry(what, spec)
    if name not in registry:
        raise BadParameter(str(unknown(what, name, registry)), (name,) if isinstance(spec, Mapping) else ())
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise BadParameter(f"{name}: parameters are a mapping such as {{steps: 20}}, got {given!r}", (name,))
    values = {}
    for key, value in given.items():
        try:
            values[key] = build(*_NESTED[key], value) if key in _NESTED else value
        except BadParameter as error:
            raise error.inside(name, key) from error
    try:
        return make(registry[name], name, values)
    except BadParameter as error:
        raise error.inside(name) from error


def explainers(specs: Any) -> dict[str, Any]:
    """Explainers by unique label, from a list of specifications or a mapping of label to specification.

    >>> list(explainers(["saliency", {"integrated_gradients": {"steps": 20}}]))
    ['saliency', 'integrated_gradients(steps=20)']
    """
    return _labelled("explainer", ALL_EXPLAINERS, specs)


def evaluations(specs: Any) -> dict[str, Any]:
    """Evaluations by unique label; the label of an unnamed one is its axis.

    >>> list(evaluations(["stability"]))
    ['stability']
    """
    return _labelled("evaluation", EVALUATIONS, specs)


def models_of(model: Any, device: str | None) -> dict[str, Model]:
    """Models by name, from what `evaluate` takes."""
    given = model if isinstance(model, Mapping) else {None: model}
    found: dict[str, Model] = {}
    for name, item in given.items():
        wrapped = item if isinstance(item, Model) else load_model(item)
        if device is not None:
            wrapped.to(check_device(device))
        found[str(name or wrapped.name)] = wrapped
    return found


def datasets_of(data: Any, limit: int | None) -> dict[str, Data]:
    """Data by name, from what `evaluate` takes; of each the first `limit` samples."""
    given = data if isinstance(data, Mapping) else {None: data}
    found: dict[str, Data] = {}
    for name, item in given.items():
        source = as_data(item)
        found[str(name or source.name)] = source if limit is None else source.limit(limit)
    return found


def as_data(item: Any) -> Data:
    """Data from a name, a path, tensors, a Dataset or a Batch; a `Data` stays itself."""
    return item if isinstance(item, Data) else open_data(item)


def check_device(device: str) -> str:
    """A device that exists here, or an error that names those that do."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UserError(f"unknown device {device!r}; use cpu, cuda or cuda:0") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device!r} was asked for, but torch sees no GPU here; use cpu")
    return device


def _labelled(what: str, registry: Mapping[str, Any], specs: Any) -> dict[str, Any]:
    """A list may hold `{name: parameters, as: label}` entries; a mapping is label to specification."""
    if isinstance(specs, str) or not isinstance(specs, Iterable):
        specs = [specs]
    entries = list(specs.items()) if isinstance(specs, Mapping) else list(enumerate(specs))
    found: dict[str, Any] = {}
    for place, spec in entries:
        label = place if isinstance(specs, Mapping) else None
        named = isinstance(spec, Mapping) and "as" in spec
        label = spec["as"] if named else label
        try:
            item = build(what, registry, {k: v for k, v in spec.items() if k != "as"} if named else spec)
        except BadParameter as error:
            raise error.inside(place) from error
        if hasattr(item, "conditions") != (what == "evaluation"):
            raise BadParameter(f"{name_of(item)} is not an {what}; allowed are {', '.join(sorted(registry))}", (place,))
        if what == "explainer":
            _check_call(item, place)
        if label is None:
            label = name_of(item) if what == "evaluation" else label_of(item)
        if str(label) in found:
            raise BadParameter(
                f"{what} {str(label)!r} is given twice; give one of them another label with `as`", (place,)
            )
        found[str(label)] = adopted(item) if what == "explainer" else item
    if not found:
        raise BadParameter(f"no {what} is given; allowed are {', '.join(sorted(registry))}")
    return found


def _check_call(item: Any, place: Any) -> None:
    """An explainer of one's own takes four arguments; better now than at the first map."""
    try:
        inspect.signature(item).bind(None, None, None, 0)
    except TypeError as error:
        why = f"{name_of(item)} cannot be called as an explainer, (model, batch, target, seed): {error}"
        raise BadParameter(why, (place,)) from error


def _only_entry(what: str, spec: Mapping[str, Any]) -> tuple[str, Any]:
    if len(spec) != 1:
        raise BadParameter(f"an {what} is one name with its parameters, got the keys {', '.join(map(str, spec))}")
    name, given = next(iter(spec.items()))
    return str(name), given
