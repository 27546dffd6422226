"""Models and data by name: `torchvision:resnet50`, `timm:…`, `hf:…`, `bundled:…`, `python:module:factory`, or a path.

A name that begins with a hub (torchvision, timm, hf) may fetch that hub's weights; nothing else touches the network.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from holdfast import bundled
from holdfast.data import Data, Size, existing, open_data
from holdfast.errors import UserError, nearest, unknown
from holdfast.images import Resize
from holdfast.models import Model

Channels = Sequence[float] | float | None


class Parts(NamedTuple):
    """What a loader found: a network, its normalisation, the names of its outputs and its best memory format."""

    module: nn.Module
    mean: Channels = None
    std: Channels = None
    classes: Sequence[str] | None = None
    channels_last: bool = False


class Loader(NamedTuple):
    """One kind of model name: how to load it, and which package and extra of holdfast it needs."""

    load: Callable[[str], Parts | Model]
    package: str | None = None
    extra: str | None = None


def load_model(
    spec: str | nn.Module | Model,
    *,
    device: torch.device | str | None = None,
    channels_last: bool | None = None,
    mean: Channels = None,
    std: Channels = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    embedding: str | None = None,
    allow_code: bool = False,
) -> Model:
    """A `Model` from a name, a torch module, or a Model (which is returned as it is, moved to `device`).

    Names: `bundled:efficientnet-lite0`; `torchvision:resnet50` (default weights), `torchvision:resnet50@IMAGENET1K_V1`
    (those), `torchvision:resnet50@none` (random); `timm:name`, `timm:name@none`; `hf:owner/name`, `hf:owner/name@rev`;
    `python:module:factory` and `python:path/to/file.py:factory`, which run code and so need `allow_code`. What is
    given here replaces what the source says of mean, std and classes. `embedding` is that of `Model`.

    >>> load_model(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), name="tiny").name
    'tiny'
    """
    if isinstance(spec, nn.Module):
        made: Parts | Model = Parts(spec)
        name = name or type(spec).__name__
    elif isinstance(spec, str):
        scheme, _, rest = check_model_name(spec).partition(":")
        if scheme == "python":
            _check_allowed(spec, allow_code)
        made = LOADERS[scheme].load(rest)
        name = name or (rest.rpartition(":")[2] if scheme == "python" else rest)
    else:
        made = spec
    if isinstance(made, Model):
        if any(value is not None for value in (channels_last, mean, std, classes, embedding)):
            raise UserError(
                f"{made.name} is a holdfast.Model: give mean, std, classes, channels_last, embedding where it is made"
            )
        return made if device is None else made.to(device)
    if not isinstance(made, Parts):
        raise UserError(f"a model is a name, a torch.nn.Module or a holdfast.Model; got {type(made).__name__}")
    return Model(
        made.module,
        mean=made.mean if mean is None else mean,
        std=made.std if std is None else std,
        classes=made.classes if classes is None else classes,
        name=name,
        device=device,
        channels_last=made.channels_last if channels_last is None else channels_last,
        embedding=embedding,
    )


def check_model_name(spec: str, folder: str | Path | None = None) -> str:
    """The name of a model, checked as far as possible without loading it: kind, missing package, missing file.

    The path of a Python file is made absolute, relative to `folder` when that is given.

    >>> check_model_name("torchvison:resnet50")
    Traceback (most recent call last):
    holdfast.errors.UserError: unknown kind of model 'torchvison'; did you mean 'torchvision'? Allowed: bundled, hf, ...
    """
    scheme, colon, rest = spec.partition(":")
    if not colon or not rest:
        example = f"torchvision:{scheme or 'resnet50'}"
        raise UserError(f"the model {spec!r} is not kind:name, such as {example}; kinds: {', '.join(sorted(LOADERS))}")
    if scheme not in LOADERS:
        raise unknown("kind of model", scheme, LOADERS)
    if scheme == "bundled" and rest not in BUNDLED_MODELS:
        raise unknown("bundled model", rest, BUNDLED_MODELS)
    package, extra = LOADERS[scheme].package, LOADERS[scheme].extra
    if package is not None and importlib.util.find_spec(package) is None:
        raise UserError(f'the model {spec!r} needs {package}: pip install "holdfast[{extra}]"')
    return _absolute(spec, folder) if scheme == "python" else spec


def check_data_name(spec: str, folder: str | Path | None = None) -> str:
    """The name of data, checked without reading it; paths are made absolute, relative to `folder` when given.

    >>> check_data_name("bundled:photos")
    Traceback (most recent call last):
    holdfast.errors.UserError: unknown bundled data 'photos'; did you mean 'photographs'? Allowed: photographs
    """
    scheme, _, rest = spec.partition(":")
    if scheme == "bundled":
        if rest not in BUNDLED_DATA:
            raise unknown("bundled data", rest, BUNDLED_DATA)
        return spec
    if scheme == "python":
        return _absolute(spec, folder)
    path = Path(folder or Path.cwd()) / Path(spec).expanduser()
    if re.match(r"[a-z]{2,}:", spec) and not path.exists():
        raise unknown("kind of data", scheme, ("bundled", "python"))
    return str(existing(path))


def open_source(
    spec: str,
    *,
    size: Size = "auto",
    resize: Resize = "squash",
    shape: Sequence[int] | None = None,
    name: str | None = None,
    labels: Sequence[int] | Mapping[str, int] | None = None,
    limit: int | None = None,
    length: int | None = None,
    vocabulary: Any = None,
    allow_code: bool = False,
) -> Data:
    """Data from a name: `bundled:photographs`, `python:module:factory` (a Dataset, tensor or path), or a path.

    The other parameters are those of `open_data`.

    >>> open_source("no/such/folder")
    Traceback (most recent call last):
    holdfast.errors.UserError: there is no file or folder ...
    """
    scheme, _, rest = check_data_name(spec).partition(":")
    source: Any = spec
    if scheme == "bundled":
        source, size = BUNDLED_DATA[rest](size=size, resize=resize), "auto"
    elif scheme == "python":
        _check_allowed(spec, allow_code)
        source, name = _made_by(rest), name or rest.rpartition(":")[2]
    return open_data(
        source,
        size=size,
        resize=resize,
        shape=shape,
        name=name,
        labels=labels,
        limit=limit,
        length=length,
        vocabulary=vocabulary,
    )


def _bundled(name: str) -> Parts:
    return BUNDLED_MODELS[name]()


def _efficientnet_lite0() -> Parts:
    net = bundled.efficientnet_lite0()
    mean, std = bundled.EFFICIENTNET_MEAN, bundled.EFFICIENTNET_STD
    return Parts(net, mean, std, bundled.imagenet_names(), channels_last=True)


def _torchvision(name: str) -> Parts:
    from torchvision import models

    name, _, wanted = name.partition("@")
    if name not in models.list_models():
        raise unknown("torchvision model", name, models.list_models())
    choices = models.get_model_weights(name)
    if wanted not in ("", "none") and wanted not in choices.__members__:
        raise unknown(f"weights of {name}", wanted, ["none", *choices.__members__])
    weights = choices[wanted] if wanted in choices.__members__ else choices.DEFAULT
    preset = weights.transforms()
    try:
        module = models.get_model(name, weights=None if wanted == "none" else weights)
    except OSError as error:
        place = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
        raise UserError(
            f"cannot fetch the weights of {name} ({error}); put {weights.url} at {place}, "
            f"or use torchvision:{name}@none for random weights"
        ) from error
    return Parts(module, getattr(preset, "mean", None), getattr(preset, "std", None), weights.meta.get("categories"))


def _timm(name: str) -> Parts:
    import timm

    name, _, wanted = name.partition("@")
    if wanted not in ("", "none"):
        raise unknown(f"weights of {name}", wanted, ["none"])
    if not timm.is_model(name):
        close = nearest(name, timm.list_models(), n=5)
        raise UserError(f"timm has no model {name!r}; the nearest are {', '.join(close) or 'none'}")
    try:
        module = timm.create_model(name, pretrained=wanted != "none")
    except OSError as error:
        raise UserError(
            f"cannot fetch the weights of {name} ({error}); put them into the Hugging Face cache, "
            f"or use timm:{name}@none for random weights"
        ) from error
    config = timm.data.resolve_model_data_config(module)
    return Parts(module, config["mean"], config["std"])


def _hf(name: str) -> Parts:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    name, _, revision = name.partition("@")
    try:
        module = AutoModelForImageClassification.from_pretrained(
            name, revision=revision or "main", trust_remote_code=False
        )
        processor = AutoImageProcessor.from_pretrained(name, revision=revision or "main", trust_remote_code=False)
    except OSError as error:
        raise UserError(f"cannot load {name!r} from the Hugging Face hub: {error}") from error
    normalised = getattr(processor, "do_normalize", True)
    mean = getattr(processor, "image_mean", None) if normalised else None
    std = getattr(processor, "image_std", None) if normalised else None
    labels: Mapping[int, str] = module.config.id2label
    return Parts(module, mean, std, [labels[i] for i in sorted(labels)])


def _python(rest: str) -> Parts | Model:
    made = _made_by(rest)
    if isinstance(made, Model):
        return made
    if not isinstance(made, nn.Module):
        raise UserError(f"python:{rest} gave {type(made).__name__}; a torch.nn.Module or holdfast.Model was expected")
    return Parts(made)


def _check_allowed(spec: str, allow_code: bool) -> None:
    if not allow_code:
        place = spec.removeprefix("python:").rpartition(":")[0]
        raise UserError(f"{spec!r} runs code from {place}; add --allow-code (allow_code=True) if you trust it")


def _absolute(spec: str, folder: str | Path | None) -> str:
    """A python: name with the path of its file, if it has one, made absolute."""
    place, _, attribute = spec.removeprefix("python:").rpartition(":")
    if not place or not attribute:
        raise UserError(f"{spec!r} should be python:module:factory or python:path/to/file.py:factory")
    if not place.endswith(".py"):
        return spec
    return f"python:{existing(Path(folder or Path.cwd()) / Path(place).expanduser())}:{attribute}"


def load_object(spec: str, folder: str | Path | None = None, *, allow_code: bool = False) -> Any:
    """What `python:module:name` names: an object, or what a function or class without required parameters makes.

    >>> load_object("python:math:pi", allow_code=True)
    3.14...
    >>> load_object("python:math:pi")
    Traceback (most recent call last):
    holdfast.errors.UserError: 'python:math:pi' runs code from math; add --allow-code (allow_code=True) if you trust it
    """
    _check_allowed(spec, allow_code)
    found = _found_at(_absolute(spec, folder).removeprefix("python:"))
    return found if inspect.isfunction(found) and _needs_arguments(found) else _called(found)


def _needs_arguments(function: Callable[..., Any]) -> bool:
    return any(
        p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values()
    )


def _called(found: Any) -> Any:
    """What a function or class makes without arguments; anything else is itself."""
    return found() if inspect.isroutine(found) or isinstance(found, type | functools.partial) else found


def _made_by(rest: str) -> Any:
    """The object at `module:name`; a function or class is called without arguments."""
    return _called(_found_at(rest))


def _found_at(rest: str) -> Any:
    place, _, attribute = rest.rpartition(":")
    module = _file_module(Path(place)) if place.endswith(".py") else _named_module(place)
    if not hasattr(module, attribute):
        close = nearest(attribute, (n for n in vars(module) if not n.startswith("_")), n=3)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise UserError(f"{place} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def _named_module(name: str) -> Any:
    with _importable(Path.cwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the module is there, but something that it imports is not
            close = nearest(name, (found.name for found in pkgutil.iter_modules()), n=3)
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            raise UserError(f"there is no Python module {name!r}{hint}") from error


def _file_module(path: Path) -> Any:
    name = f"holdfast_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    with _importable(path.parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let code import its neighbours, as a script can, only while it is loaded."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


BUNDLED_MODELS: dict[str, Callable[[], Parts]] = {"efficientnet-lite0": _efficientnet_lite0}
BUNDLED_DATA: dict[str, Callable[..., Data]] = {"photographs": bundled.photographs}
LOADERS: dict[str, Loader] = {
    "bundled": Loader(_bundled),
    "torchvision": Loader(_torchvision, "torchvision", "torchvision"),
    "timm": Loader(_timm, "timm", "timm"),
    "hf": Loader(_hf, "transformers", "transformers"),
    "python": Loader(_python),
}
