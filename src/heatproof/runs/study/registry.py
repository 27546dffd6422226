"""What a study can name, and the models, data, explainers and evaluations made from names and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

import torch

from heatproof.axes import AXES, EVALUATIONS
from heatproof.axes.stability import perturbations
from heatproof.axes.symmetry.groups import GROUPS
from heatproof.data import Data, holds_texts, is_encoding, open_data
from heatproof.data.sequences import prompts
from heatproof.errors import BadParameter, UserError, inside, resolve
from heatproof.evaluation import Evaluation, wrap_evaluation
from heatproof.explainers import EXPLAINERS as METHODS
from heatproof.explainers.adapters.named import LIBRARIES, by_library
from heatproof.features import GROUPINGS
from heatproof.models import Model
from heatproof.models.decoders import Decoder
from heatproof.models.loaders import load_model
from heatproof.removal import CONTEXTUAL, IMPUTERS
from heatproof.runs.study.recommended import RECOMMENDED
from heatproof.types import label_of, name_of, wrap_explainer

EXPLAINERS: dict[str, Any] = {
    **METHODS,
    **{kind.name: kind for axis in AXES for kind in axis.explainers},
}
"""Every explainer by its name in a study, those that only one axis can make included."""
REGISTRIES: dict[str, dict[str, Any]] = {
    "explainers": EXPLAINERS
    | {f"{of}: {name}": kind for of in LIBRARIES for name, kind in LIBRARIES[of].items()},
    "evaluations": EVALUATIONS,
    "groups": GROUPS,
    "features": GROUPINGS,
    "imputers": {**IMPUTERS, **CONTEXTUAL},
}


def catalogue(what: str) -> list[tuple[str, str]]:
    """(name, description) pairs of the explainers, evaluations, perturbations, presets, measures and so on.

    >>> dict(catalogue("presets"))["fass-mild"]
    'rotation 5°, ...'
    """
    if what in REGISTRIES:
        terms = (
            {name: f"; {kind.terms()}" for name, kind in EXPLAINERS.items()}
            if what == "explainers"
            else {}
        )
        return [
            (name, _summary(kind) + terms.get(name, "")) for name, kind in REGISTRIES[what].items()
        ]
    if what == "perturbations":
        kinds = {
            "series": perturbations.FOR_SERIES,
            "table": perturbations.FOR_TABLES,
            "text": perturbations.FOR_TEXTS,
        }
        made_for = {name: f"{kind}, " for kind, names in kinds.items() for name in names}
        return [
            (name, f"{made_for.get(name, '')}{kind.family}; {_summary(kind)}")
            for name, kind in perturbations.KNOWN.items()
        ]
    if what == "presets":
        return [
            (name, ", ".join(perturbations.describe(p) for p in chosen))
            for name, chosen in perturbations.KNOWN_PRESETS.items()
        ]
    return list(_measures())


def _measures() -> Iterator[tuple[str, str]]:
    """Every measure once, with the axes that have it, its role and its direction."""
    measures = {measure.name: measure for axis in AXES for measure in axis.measures}
    for name, measure in measures.items():
        axes = " and ".join(axis.name for axis in AXES if measure in axis.measures)
        better = "" if measure.better == "neither" else f"; {measure.better} is better"
        yield name, f"{axes}, {measure.role}: {measure.text}{better}"


def _summary(kind: Any) -> str:
    """The first line of the docstring, then the parameters with their defaults."""
    first = (inspect.getdoc(kind) or "").split("\n", 1)[0].rstrip(".")
    shown = []
    for f in fields(kind):
        if f.default is MISSING and f.default_factory is MISSING:
            shown.append(f.name)  # one that must be given
            continue
        value = f.default if f.default_factory is MISSING else f.default_factory()
        shown.append(f"{f.name}={_written(value)}")
    return f"{first} ({', '.join(shown)})" if shown else first


def _written(value: Any) -> str:
    """A default as a study would name it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    return label_of(value) if is_dataclass(value) else str(value)


def build(what: str, known: Mapping[str, Any], spec: Any) -> Any:
    """An object from a name, a one-entry mapping {name: parameters}, or the object itself.

    >>> build("explainer", EXPLAINERS, {"smoothgrad": {"of": "input_x_gradient"}}).of
    InputXGradient()
    """
    if (
        isinstance(spec, Mapping)
        and len(spec) == 1
        and (of := next(iter(spec))) in LIBRARIES
        and what == "explainer"
    ):
        with inside(of):
            return by_library(of, spec[of])
    if isinstance(spec, Mapping):
        spec = {name: _with_inner_explainer(name, values) for name, values in spec.items()}
    return resolve(what, known, spec)


def _with_inner_explainer(name: str, values: Any) -> Any:
    """Parameters with the explainer that they name `of` made."""
    if not isinstance(values, Mapping) or "of" not in values:
        return values
    with inside(name, "of"):
        return {**values, "of": build("explainer", EXPLAINERS, values["of"])}


def explainers(specs: Any) -> dict[str, Any]:
    """Explainers by unique label, from a list of specifications or a mapping of label to specification.

    "recommended" stays as it is: the plan knows what suits.

    >>> list(explainers(["saliency", {"integrated_gradients": {"steps": 20}}]))
    ['saliency', 'integrated_gradients(steps=20)']
    """
    if specs in (RECOMMENDED, [RECOMMENDED], {RECOMMENDED: RECOMMENDED}):
        return {RECOMMENDED: RECOMMENDED}
    return {
        label: wrap_explainer(item)
        for label, item in _labelled("explainer", EXPLAINERS, specs).items()
    }


def evaluations(specs: Any) -> dict[str, Evaluation]:
    """Return evaluations by unique label; the label of an unnamed one is its axis.

    >>> list(evaluations(["stability"]))
    ['stability']
    """
    return {
        label: wrap_evaluation(item, label)
        for label, item in _labelled("evaluation", EVALUATIONS, specs).items()
    }


def models_of(model: Any, device: str | None) -> dict[str, Model]:
    """Models by name, from what `evaluate` takes."""
    models: dict[str, Model] = {}
    for name, item in (model if isinstance(model, Mapping) else {None: model}).items():
        wrapped = item if isinstance(item, Model) else load_model(item)
        if device is not None:
            wrapped.to(check_device(device))
        models[str(name or wrapped.name)] = wrapped
    return models


def datasets_of(
    data: Any, limit: int | None, models: Mapping[str, Model] | None = None
) -> dict[str, Data]:
    """Return data by name, from what `evaluate` takes; of each the first `limit` samples.

    Texts become token ids by the tokenizer of a model that has one.
    """
    readers = [model for model in (models or {}).values() if model.tokenizer is not None]
    is_mapping_of_names = isinstance(data, Mapping) and not is_encoding(data)
    datasets: dict[str, Data] = {}
    for name, item in (data if is_mapping_of_names else {None: data}).items():
        source = as_data(item, readers[0] if readers else None)
        datasets[str(name or source.name)] = source if limit is None else source.limit(limit)
    return datasets


def as_data(item: Any, reader: Model | None = None) -> Data:
    """Return data from a name, a path, tensors, a Dataset or a Batch; a `Data` stays itself.

    `reader` is a model with a tokenizer, for texts and for token ids that nobody knows the tokenizer of.
    """
    if isinstance(item, Data):
        data = item
    elif reader is not None and holds_texts(item):
        data = _texts_for(reader, item)
    else:
        data = open_data(item)
    if reader is not None and data.tokenizer is None and _is_text(data):
        return replace(data, tokenizer=reader.tokenizer)
    return data


def _texts_for(reader: Model, item: Any) -> Data:
    """Return texts as token ids of a model: prompts for a decoder."""
    if not isinstance(reader.module, Decoder) or not isinstance(item, list):
        return open_data(item, vocabulary=reader.tokenizer)
    return open_data(prompts(reader.tokenizer, item))


def _is_text(data: Data) -> bool:
    """Whether the samples are token ids."""
    batch = data.load([0]).batch
    return len(batch) > 0 and not batch.x.is_floating_point()


def check_device(device: str) -> str:
    """A device that exists here, or an error that names those that do."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UserError(f"unknown device {device!r}; use cpu, cuda or cuda:0") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device!r} was asked for, but torch sees no GPU here; use cpu")
    return device


def _labelled(what: str, known: Mapping[str, Any], specs: Any) -> dict[str, Any]:
    """A list may hold `{name: parameters, as: label}` entries; a mapping has labels or names as keys.

    >>> list(_labelled("explainer", EXPLAINERS, {"lime": {"samples": 9}, "a": "saliency", "b": {"rise": {}}}))
    ['lime', 'a', 'b']
    """
    if isinstance(specs, str) or not isinstance(specs, Iterable):
        specs = [specs]
    by_label = isinstance(specs, Mapping)
    items: dict[str, Any] = {}
    for key, given in specs.items() if by_label else enumerate(specs):
        bare = key in known and isinstance(given, Mapping) and not known.keys() & given.keys()
        spec = {key: given} if bare else given
        renamed = isinstance(spec, Mapping) and "as" in spec
        with inside(key):
            item = build(
                what, known, {k: v for k, v in spec.items() if k != "as"} if renamed else spec
            )
            _check_role(what, known, item)
            usual = key if by_label else name_of(item) if what == "evaluation" else label_of(item)
            label = str(spec["as"] if renamed else usual)
            if label in items:
                raise BadParameter(
                    f"{what} {label!r} is given twice; give one of them another label with `as`"
                )
        items[label] = item
    if not items:
        raise BadParameter(f"no {what} is given; allowed are {', '.join(sorted(known))}")
    return items


def _check_role(what: str, known: Mapping[str, Any], item: Any) -> None:
    """Refuse an explainer for an evaluation and the reverse, and an explainer that cannot be called as one."""
    if hasattr(item, "conditions") != (what == "evaluation"):
        raise BadParameter(
            f"{name_of(item)} is not an {what}; allowed are {', '.join(sorted(known))}"
        )
    if what == "explainer":
        try:
            inspect.signature(item).bind(None, None, None, 0)
        except TypeError as error:
            why = f"{name_of(item)} cannot be called as an explainer, (model, batch, target, seed): {error}"
            raise BadParameter(why) from error
