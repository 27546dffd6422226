"""Models by name, and what may be checked about a name without loading anything."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from heatproof.data import bundled
from heatproof.data.code import absolute, check_allowed, made_by
from heatproof.data.files import beside, existing
from heatproof.data.hub import hub_name
from heatproof.errors import UserError, unknown
from heatproof.models import Model
from heatproof.models.loaders.files import PICKLES, SAFE, load_file
from heatproof.models.loaders.heads import with_new_head
from heatproof.models.loaders.hubs import (
    from_decoder,
    from_hf,
    from_timm,
    from_torchvision,
    from_transformers,
    is_of_transformers,
    is_pipeline,
)
from heatproof.models.loaders.onnx import PROBABILITIES, load_onnx
from heatproof.models.loaders.sklearn import from_sklearn, is_table_model
from heatproof.models.network import Channels, Parts


class Loader(NamedTuple):
    """One kind of model name: how to load it, and which package and extra of heatproof it needs."""

    load: Callable[[str], Parts | Model]
    package: str | None = None
    extra: str | None = None


def load_model(
    spec: Any,
    *,
    device: torch.device | str | None = None,
    channels_last: bool | None = None,
    mean: Channels = None,
    std: Channels = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    embedding: str | None = None,
    task: Any = None,
    architecture: str | None = None,
    new_head: int | None = None,
    allow_code: bool = False,
) -> Model:
    """Return a `Model` from a name, a torch module, a fitted model of tables, or a Model (the same, moved to `device`).

    Names: `bundled:efficientnet-lite0`; `torchvision:resnet50` (default weights), `torchvision:resnet50@IMAGENET1K_V1`
    (those), `torchvision:resnet50@none` (random); `timm:name`, `timm:name@none`; `hf:owner/name`, `hf:owner/name@rev`,
    `hf:folder`, `hf:name@none`; `decoder:owner/name`, a language model, whose `classes` are options to choose among;
    `file:weights.safetensors` with an `architecture` such as torchvision:resnet50; `onnx:model.onnx`;
    `python:module:factory` and `python:path/to/file.py:factory`, which run code and so need `allow_code`. What is given
    here replaces what the source says of mean, std, classes, `embedding` and `task`, which are those of `Model`.
    `new_head` puts an untrained linear layer of that many outputs in place of the last one.

    >>> load_model(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), name="tiny").name
    'tiny'
    """
    if architecture is not None and not (isinstance(spec, str) and spec.startswith("file:")):
        raise UserError(
            f"architecture {architecture!r} is for weights in a file: file:weights.safetensors"
        )
    changes = (channels_last, mean, std, embedding, new_head)
    is_changed = any(value is not None for value in changes)

    # First what the specification stands for: a finished `Model`, or the parts of one.
    source: Any = spec
    if isinstance(spec, str):
        source, name = _from_name(spec, name, classes, architecture, allow_code)
        classes = None if spec.startswith("decoder:") else classes
    elif is_table_model(spec):
        source = from_sklearn(spec, classes=classes, name=name, task=task)
        classes = task = None
    elif _is_hugging_face(spec) and not is_changed:
        network, processor = spec if isinstance(spec, tuple) else (spec, None)
        source = from_transformers(network, processor, classes=classes, name=name, task=task)
        classes = task = None
    elif isinstance(spec, nn.Module):
        source = Parts(spec)
        name = name or type(spec).__name__
    if isinstance(source, Model):
        if is_changed or classes is not None or task is not None:
            settings = "mean, std, classes, channels_last, embedding, task, new_head"
            raise UserError(f"{source.name} is a heatproof.Model: give {settings} where it is made")
        return source if device is None else source.to(device)
    if not isinstance(source, Parts):
        raise UserError(
            f"a model is a name, a torch.nn.Module or a heatproof.Model; got {type(source).__name__}"
        )

    # Then a model of these parts; what the caller gives takes precedence over what the source says.
    parts = source if new_head is None else with_new_head(source, new_head)
    return Model(
        parts.module,
        mean=parts.mean if mean is None else mean,
        std=parts.std if std is None else std,
        classes=parts.classes if classes is None else classes,
        name=name,
        device=device,
        channels_last=parts.channels_last if channels_last is None else channels_last,
        embedding=parts.embedding if embedding is None else embedding,
        task=task,
    )


def _from_name(
    spec: str,
    name: str | None,
    classes: Sequence[str] | None,
    architecture: str | None,
    allow_code: bool,
) -> tuple[Parts | Model, str]:
    """Return the model or network that a name such as "torchvision:resnet50" stands for, and its display name.

    `classes` are the options of a decoder, `architecture` is the network for a file of weights, and `name` replaces the
    display name.
    """
    scheme, _, rest = check_model_name(spec).partition(":")
    name = name or short_name(scheme, rest)
    if scheme == "python":
        check_allowed(spec, allow_code)
    if scheme == "decoder":
        return from_decoder(rest, classes or ()), name
    if scheme == "file":
        return load_file(rest, architecture, allow_code), name
    return LOADERS[scheme].load(rest), name


def _is_hugging_face(spec: Any) -> bool:
    """Whether something is a model or pipeline of transformers, or a pair of one and its processor."""
    network = spec[0] if isinstance(spec, tuple) and len(spec) == 2 else spec
    return is_of_transformers(network) or is_pipeline(network)


def check_model_name(spec: str, folder: str | Path | None = None) -> str:
    """Return the name of a model, checked as far as possible without loading it: kind, missing package, missing file.

    The path of a file is made absolute, relative to `folder` when that is given.

    >>> check_model_name("torchvison:resnet50")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown kind of model 'torchvison'; did you mean 'torchvision'? Allowed: bundled, ...
    """
    scheme, colon, rest = spec.partition(":")
    if not colon or not rest:
        example = _example_of(scheme)
        raise UserError(
            f"the model {spec!r} is not kind:name, such as {example}; kinds: {', '.join(sorted(LOADERS))}"
        )
    if scheme not in LOADERS:
        raise unknown("kind of model", scheme, LOADERS)
    if scheme == "bundled" and rest not in BUNDLED_MODELS:
        raise unknown("bundled model", rest, BUNDLED_MODELS)
    package, extra = LOADERS[scheme].package, LOADERS[scheme].extra
    if package is not None and importlib.util.find_spec(package) is None:
        raise UserError(f'the model {spec!r} needs {package}: pip install "heatproof[{extra}]"')
    if scheme == "python":
        return absolute(spec, folder)
    if scheme in ("hf", "decoder"):
        return f"{scheme}:{hub_name(rest, folder)}"
    if scheme in ("file", "onnx"):
        suffix = f"@{PROBABILITIES}" if rest.endswith(f"@{PROBABILITIES}") else ""
        path = rest.removesuffix(suffix)
        return f"{scheme}:{existing(beside(path, folder))}{suffix}"
    return spec


def _example_of(name: str) -> str:
    """Return an example of a full model name for one that was given without its kind, for an error message.

    A file's kind follows from its suffix; anything else is taken for a network of torchvision.

    >>> _example_of("net.pt"), _example_of("resnet50")
    ('file:net.pt', 'torchvision:resnet50')
    """
    kinds = {".py": "python", ".onnx": "onnx"} | dict.fromkeys((SAFE, *PICKLES), "file")
    suffix = Path(name).suffix
    if suffix in kinds:
        return f"{kinds[suffix]}:{name}{':make' if suffix == '.py' else ''}"
    return f"torchvision:{name or 'resnet50'}"


def short_name(scheme: str, rest: str) -> str:
    """Return the default name of a model: the function, the file or the name on its hub.

    >>> short_name("file", "/weights/cats.safetensors"), short_name("hf", "owner/name")
    ('cats', 'owner/name')
    """
    if scheme == "python":
        return rest.rpartition(":")[2]
    if scheme in ("file", "onnx"):
        return Path(rest).stem
    is_folder = scheme == "hf" and rest.startswith((".", "/", "~"))
    return Path(rest).name if is_folder else rest


def from_python(rest: str) -> Parts | Model:
    """Return what the function at `module:name` makes: a torch module, a scikit-learn classifier or a Model."""
    model = made_by(rest)
    if isinstance(model, Model):
        return model
    if is_table_model(model):
        return from_sklearn(model, name=short_name("python", rest))
    if not isinstance(model, nn.Module):
        raise UserError(
            f"python:{rest} gave {type(model).__name__}; a torch.nn.Module or heatproof.Model was expected"
        )
    return Parts(model)


def _efficientnet_lite0() -> Parts:
    net = bundled.efficientnet_lite0()
    mean, std = bundled.EFFICIENTNET_MEAN, bundled.EFFICIENTNET_STD
    return Parts(net, mean, std, bundled.imagenet_names(), channels_last=True)


BUNDLED_MODELS: dict[str, Callable[[], Parts]] = {"efficientnet-lite0": _efficientnet_lite0}
LOADERS: dict[str, Loader] = {
    "bundled": Loader(lambda name: BUNDLED_MODELS[name]()),
    "torchvision": Loader(from_torchvision, "torchvision", "torchvision"),
    "timm": Loader(from_timm, "timm", "timm"),
    "hf": Loader(from_hf, "transformers", "transformers"),
    "decoder": Loader(from_decoder, "transformers", "transformers"),
    "file": Loader(load_file),
    "onnx": Loader(load_onnx, "onnxruntime", "onnx"),
    "python": Loader(from_python),
}
