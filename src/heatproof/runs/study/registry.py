"""Models, data, explainers and evaluations, made from the names and parameters of a study."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heatproof.axes import AXIS_EXPLAINERS, EVALUATIONS
from heatproof.data import Data, holds_texts, is_encoding, open_data
from heatproof.data.frames import with_values_of
from heatproof.data.processed import is_pixels, open_processed
from heatproof.data.sequences import prompts
from heatproof.errors import BadParameter, UserError, inside, resolve
from heatproof.evaluation import Evaluation, wrap_evaluation
from heatproof.explainers import EXPLAINERS as EXPLAINERS_OF_MODELS
from heatproof.explainers.adapters import LIBRARY_NAMES
from heatproof.explainers.adapters.objects import evaluation_of, explainer_of, is_maps
from heatproof.models import Model
from heatproof.models.absent import NAME, NoModel
from heatproof.models.decoders import Decoder
from heatproof.models.guards import first_channels
from heatproof.models.loaders import load_model
from heatproof.models.loaders.hubs import RawAudio
from heatproof.runs.study.recommended import RECOMMENDED
from heatproof.types import Explainer, label_of, name_of, wrap_explainer

EXPLAINERS = EXPLAINERS_OF_MODELS | AXIS_EXPLAINERS
"""Every explainer by its name in a study, those that are built on an axis included."""


def build(what: str, registered: Mapping[str, Any], spec: Any) -> Any:
    """Return an object from a name, a one-entry mapping {name: parameters}, or the object itself.

    `what` is "explainer" or "evaluation", and `registered` has the classes of these by name.

    >>> build("explainer", EXPLAINERS, {"smoothgrad": {"of": "input_x_gradient"}}).of
    InputXGradient()
    """
    if not isinstance(spec, Mapping):
        return resolve(what, registered, spec)
    if what == "explainer" and len(spec) == 1:
        name, parameters = next(iter(spec.items()))
        if name in LIBRARY_NAMES:
            # Not at the top: it makes a class for every method of four libraries.
            from heatproof.explainers.adapters.named import by_library

            with inside(name):
                return by_library(name, parameters)
    built = {name: _with_inner_explainer(name, parameters) for name, parameters in spec.items()}
    return resolve(what, registered, built)


def _with_inner_explainer(name: str, parameters: Any) -> Any:
    """Return parameters in which the explainer that they name `of` is built."""
    if not isinstance(parameters, Mapping) or "of" not in parameters:
        return parameters
    with inside(name, "of"):
        return {**parameters, "of": build("explainer", EXPLAINERS, parameters["of"])}


def explainers(specs: Any) -> dict[str, Any]:
    """Return explainers by unique label, from a list of specifications or a mapping of label to specification.

    "recommended" stays as it is: which explainers suit is known when the model and the data are.

    >>> list(explainers(["saliency", {"integrated_gradients": {"steps": 20}}]))
    ['saliency', 'integrated_gradients(steps=20)']
    """
    if _is_recommended(specs):
        return {RECOMMENDED: RECOMMENDED}
    wrapped: dict[str, Explainer] = {}
    for label, explainer in _by_label("explainer", EXPLAINERS, specs).items():
        wrapped[label] = wrap_explainer(explainer)
    return wrapped


def evaluations(specs: Any) -> dict[str, Evaluation]:
    """Return evaluations by unique label; the label of an unnamed one is its axis.

    >>> list(evaluations(["stability"]))
    ['stability']
    """
    wrapped: dict[str, Evaluation] = {}
    for label, evaluation in _by_label("evaluation", EVALUATIONS, specs).items():
        wrapped[label] = wrap_evaluation(evaluation, label)
    return wrapped


def models_of(model: Any, device: str | None) -> dict[str, Model]:
    """Return models by name, from what `evaluate` takes; for None what stands in for one."""
    if model is None or (isinstance(model, Mapping) and not model):
        return {NAME: NoModel()}
    if isinstance(model, Mapping) and all(isinstance(item, Tensor) for item in model.values()):
        raise UserError(
            "the model is a state dict, the weights alone; load it into its network, net.load_state_dict(weights), and "
            "give net"
        )
    named = model if isinstance(model, Mapping) else {None: model}
    models: dict[str, Model] = {}
    for name, item in named.items():
        loaded = item if isinstance(item, Model) else load_model(item)
        if device is not None:
            loaded.to(check_device(device))
        models[str(name or loaded.name)] = loaded
    return models


def datasets_of(
    data: Any,
    limit: int | None,
    models: Mapping[str, Model] | None = None,
    backgrounds: Sequence[Any] = (),
) -> dict[str, Data]:
    """Return data by name, from what `evaluate` takes; of each the first `limit` samples.

    Texts become token ids by the tokenizer of a model that has one. Frames have the categories of the `backgrounds` too,
    which are frames of the same columns.
    """
    readers = [
        model
        for model in (models or {}).values()
        if model.tokenizer is not None or model.image_processor is not None
    ]
    hears = any(isinstance(model.module, RawAudio) for model in (models or {}).values())
    channels = [first_channels(model.module) for model in (models or {}).values()]
    is_sample_mapping = is_encoding(data) or is_pixels(data)
    is_mapping_of_names = isinstance(data, Mapping) and not is_sample_mapping
    datasets: dict[str, Data] = {}
    for name, item in (data if is_mapping_of_names else {None: data}).items():
        source = as_data(item, readers[0] if readers else None, hears, channels)
        source = with_values_of(source, item, backgrounds)
        datasets[str(name or source.name)] = source if limit is None else source.limit(limit)
    return datasets


def as_data(
    item: Any,
    reader: Model | None = None,
    hears: bool = False,
    channels: Sequence[int | None] = (),
) -> Data:
    """Return data from a name, a path, tensors, a Dataset or a Batch; a `Data` stays itself.

    `reader` is a model with a tokenizer, for texts and for token ids that nobody knows the tokenizer of, or one with an
    image processor, for pictures. `hears` says that the models read raw audio. `channels` are those that the models read:
    pictures may have another number than 1 or 3 if all models read it.
    """
    if isinstance(item, Data):
        return item if reader is None else _with_tokenizer(item, reader)
    if reader is not None and reader.image_processor is not None:
        processed = open_processed(item, reader.image_processor, reader.mean, reader.std)
        if processed is not None:
            return processed
    if reader is not None and reader.tokenizer is not None and holds_texts(item):
        data = _texts_for(reader, item)
    elif (
        isinstance(item, Tensor | np.ndarray) and item.ndim == 4 and {*channels} == {item.shape[1]}
    ):
        data = open_data(item, shape=tuple(item.shape[1:]))
    else:
        data = open_data(item)
    if hears and len(data.shape or ()) == 1:
        data = open_data(
            item, shape=(1, *(data.shape or ()))
        )  # waves (T,) are series of one channel
    return data if reader is None else _with_tokenizer(data, reader)


def _with_tokenizer(data: Data, reader: Model) -> Data:
    """Return token ids that nobody knows the tokenizer of with that of a model; other data as they are."""
    if reader.tokenizer is None or data.tokenizer is not None or not _is_text(data):
        return data
    return replace(data, tokenizer=reader.tokenizer)


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
    """Return a device that exists on this machine; raise `UserError` for any other."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UserError(f"unknown device {device!r}; use cpu, cuda or cuda:0") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device!r} is not available: torch sees no GPU; use cpu")
    return device


def _by_label(what: str, registered: Mapping[str, Any], specs: Any) -> dict[str, Any]:
    """Return the objects of a study by their labels.

    A list may hold `{name: parameters, as: label}` entries; the keys of a mapping are labels or names.

    >>> list(_by_label("explainer", EXPLAINERS, {"lime": {"samples": 9}, "a": "saliency", "b": {"rise": {}}}))
    ['lime', 'a', 'b']
    """
    is_single = isinstance(specs, str) or not isinstance(specs, Iterable)
    has_labels = isinstance(specs, Mapping)
    if is_single or (not has_labels and _from_elsewhere(what, specs) is not None):
        specs = [specs]
    items: dict[str, Any] = {}
    for key, entry in specs.items() if has_labels else enumerate(specs):
        is_parameters = _is_parameters_of(key, entry, registered) and not is_maps(entry)
        spec = {key: entry} if is_parameters else entry
        with inside(key):
            spec, label = _without_label(spec)
            item = _from_elsewhere(what, spec)
            if item is None:
                item = build(what, registered, spec)
            _check_role(what, registered, item)
            if label is None and has_labels:
                label = str(key)
            if label is None:
                label = name_of(item) if what == "evaluation" else label_of(item)
            if label in items:
                raise BadParameter(
                    f"{what} {label!r} is given twice; give one of them another label with `as`"
                )
        items[label] = item
    if not items:
        raise BadParameter(f"no {what} is given; allowed are {', '.join(sorted(registered))}")
    return items


def _from_elsewhere(what: str, spec: Any) -> Any:
    """Return what an object of another library stands for, None for what this package knows itself."""
    return evaluation_of(spec) if what == "evaluation" else explainer_of(spec)


def _is_recommended(specs: Any) -> bool:
    """Whether explainers are "recommended" and nothing else, as a name, a list or a mapping."""
    if isinstance(specs, Mapping):
        return list(specs) == [RECOMMENDED] and _is_recommended(specs[RECOMMENDED])
    names = specs if isinstance(specs, list) else [specs]
    return len(names) == 1 and isinstance(names[0], str) and names[0] == RECOMMENDED


def _without_label(spec: Any) -> tuple[Any, str | None]:
    """Return a specification without its entry `as`, and the label that this entry gives."""
    if not isinstance(spec, Mapping) or "as" not in spec:
        return spec, None
    return {name: value for name, value in spec.items() if name != "as"}, str(spec["as"])


def _is_parameters_of(key: Any, spec: Any, registered: Mapping[str, Any]) -> bool:
    """Return whether an entry is `name: {parameter: value}`, and not `label: {name: parameters}`.

    A parameter may be called like something registered: `certificate` has a parameter `agreement`.
    """
    if key not in registered or not isinstance(spec, Mapping):
        return False
    other_names = {name for name in spec if name in registered}
    return other_names <= inspect.signature(registered[key]).parameters.keys()


def _check_role(what: str, registered: Mapping[str, Any], item: Any) -> None:
    """Refuse an explainer for an evaluation and the reverse, and an explainer that cannot be called as one."""
    is_evaluation = hasattr(item, "conditions")
    if is_evaluation != (what == "evaluation"):
        raise BadParameter(
            f"{name_of(item)} is not an {what}; allowed are {', '.join(sorted(registered))}"
        )
    if what == "explainer":
        try:
            inspect.signature(item).bind(None, None, None, 0)
        except TypeError as error:
            raise BadParameter(
                f"{name_of(item)} cannot be called as an explainer, (model, batch, target, seed): {error}"
            ) from error
