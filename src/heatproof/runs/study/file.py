"""From a study file to a plan: every mistake is found here, with its line, before any model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import yaml
from pydantic import AfterValidator, BeforeValidator, StrictBool, ValidationInfo
from pydantic.dataclasses import dataclass

from heatproof.axes import DEFAULT_EVALUATION
from heatproof.data import open_data
from heatproof.data.code import load_object
from heatproof.data.hub import hub_name
from heatproof.data.sources import check_data_name
from heatproof.data.subsets import as_subset
from heatproof.errors import BadParameter, UserError, inside, make, nearest, only_known, unknown
from heatproof.explainers.background import background
from heatproof.explainers.baselines import REFERENCES
from heatproof.explainers.concepts.concepts import concepts
from heatproof.explainers.examples.training_set import examples
from heatproof.models.loaders import check_model_name, load_model, short_name
from heatproof.models.precision import PRECISIONS, Precision
from heatproof.models.tasks import as_task, resolved_reference
from heatproof.rules import check_rules
from heatproof.runs.configure import check_data_names
from heatproof.runs.plan import Plan, make_plan
from heatproof.runs.sampling import sampling_of
from heatproof.runs.storage import tried
from heatproof.runs.study import registry
from heatproof.runs.study.yaml_lines import check_keys_once, check_unfolded, line_of
from heatproof.types import STRICT

SAMPLING = ("half_width", "until", "margin", "at_most")
"""The settings that decide on the number of samples."""
SETTINGS = (
    "seed",
    "limit",
    "device",
    "precision",
    "compile",
    "batch_size",
    "shard_size",
    "references",
    "keep_maps",
    "ignore",
    "background",
    *SAMPLING,
)
KEYS = ("model", "models", "data", "explainers", "evaluations", *SETTINGS)
MODEL_KEYS = (
    "source",
    "name",
    "mean",
    "std",
    "classes",
    "channels_last",
    "embedding",
    "task",
    "architecture",
    "new_head",
)
DATA_KEYS = (
    "source",
    "name",
    "size",
    "resize",
    "shape",
    "limit",
    "sample",
    "length",
    "vocabulary",
    "split",
    "label",
    "groups",
    "regions",
    "pad",
)
LARGEST_FILE = 1_000_000


def _from(least: int) -> BeforeValidator:
    def check(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(
                f"{info.field_name} must be a whole number of at least {least}, got {value!r}"
            )
        return value

    return BeforeValidator(check)


def _precision(value: Any) -> Any:
    if value not in PRECISIONS:
        raise unknown("precision", value, PRECISIONS)
    return value


@dataclass(frozen=True, config=STRICT)
class Study:
    """A study file, read and checked as far as it can be without loading models or data."""

    models: dict[str, dict[str, Any]]
    data: dict[str, dict[str, Any]]
    explainers: dict[str, Any]
    evaluations: dict[str, Any]
    seed: Annotated[int, _from(0)] = 0
    limit: Annotated[int, _from(1)] | None = None
    device: Annotated[str, AfterValidator(registry.check_device)] | None = None
    batch_size: Annotated[int, _from(1)] | None = None
    shard_size: Annotated[int, _from(1)] = 32
    precision: Annotated[Precision, BeforeValidator(_precision)] | None = None
    compile: StrictBool = False
    references: Annotated[int, _from(2)] | None = None
    keep_maps: StrictBool | list[str] = False
    ignore: Annotated[tuple[str, ...], BeforeValidator(check_rules)] = ()
    background: Any = None
    half_width: float | None = None
    until: Literal["decided"] | None = None
    margin: float | None = None
    at_most: int | None = None
    text: str = ""

    def plan(self, allow_code: bool = False) -> Plan:
        """Open the data, load the models, and check that everything fits together."""
        data = {}
        for name, settings in self.data.items():
            options = {**settings, "limit": self.limit or settings.get("limit")}
            data[name] = open_data(
                options.pop("source"), name=name, allow_code=allow_code, **options
            )
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        models = {}
        for name, settings in self.models.items():
            options = dict(settings)
            model = load_model(
                options.pop("source"), device=device, allow_code=allow_code, **options
            )
            # Without a name in the study, code knows what it made better than the name of its function does.
            source = settings["source"]
            is_unnamed_code = source.startswith("python:") and name == _short_name(source)
            if not is_unnamed_code:
                model.name = name
            models[model.name] = model
        options = {key: getattr(self, key) for key in SETTINGS if key not in ("limit", "device")}
        return make_plan(
            models, data, self.explainers, self.evaluations, study_file=self.text, **options
        )


def read_study(
    path: str | Path, *, seed: int | None = None, limit: int | None = None, allow_code: bool = False
) -> Study:
    """Read a study file; a mistake raises one `UserError` that names the file and the line."""
    file = Path(path)
    if not file.is_file():
        siblings = []
        if file.parent.is_dir():
            siblings = [sibling.name for sibling in file.parent.glob("*.y*ml")]
        close = nearest(file.name, siblings)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UserError(f"no study file {str(file)!r}{hint}")
    if file.stat().st_size > LARGEST_FILE:
        raise UserError(
            f"{file} is larger than {LARGEST_FILE} bytes; a study file is a page of YAML"
        )
    try:
        text = tried(file, partial(file.read_text, encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file} is not text in UTF-8: {error.reason} at byte {error.start}"
        ) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        check_unfolded(root, str(file))
        check_keys_once(root, str(file))
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = str(getattr(error, "problem", error))
        hint = "; indent with spaces, not with tabs" if "'\\t'" in problem else ""
        raise UserError(f"{file}{line}: this is not YAML: {problem}{hint}") from error
    try:
        return replace(
            parse(content, file.parent, seed=seed, limit=limit, allow_code=allow_code), text=text
        )
    except BadParameter as error:
        raise UserError(f"{file}, line {line_of(root, error.keys)}: {error}") from error


def parse(
    content: Any,
    folder: Path,
    *,
    seed: int | None = None,
    limit: int | None = None,
    allow_code: bool = False,
) -> Study:
    """Check the content of a study file; relative paths are relative to `folder`."""
    if not isinstance(content, Mapping):
        raise BadParameter(f"a study is a mapping with the keys {', '.join(KEYS)}", ())
    only_known(content, KEYS, "a study")
    if "model" in content and "models" in content:
        raise BadParameter("give either model or models, not both", ("model",))
    which = "models" if "models" in content else "model"
    for key in ("data", "explainers"):
        if key not in content:
            raise BadParameter(f"the study names no {key}", ())
    settings = {key: content[key] for key in SETTINGS if content.get(key) is not None}
    # Options of the command take precedence.
    if seed is not None:
        settings["seed"] = seed
    if limit is not None:
        settings["limit"] = limit
    sampling_of(**{key: settings.get(key) for key in SAMPLING})
    if "background" in settings:
        with inside("background"):
            settings["background"] = background(
                settings["background"], folder=folder, allow_code=allow_code
            )
    models: dict[str, dict[str, Any]] = {}
    if which in content:  # else a study of maps from elsewhere; what needs a model will say so
        models = _sources(
            content[which], which, MODEL_KEYS, lambda source: check_model_name(source, folder)
        )
    data = _sources(
        content["data"], "data", DATA_KEYS, lambda source: check_data_name(source, folder)
    )

    parts = {
        "models": _checked_models(models, which, folder),
        "data": _with_vocabularies(data, folder),
    }
    with inside("explainers"):
        specs = _with_code(content["explainers"], folder, allow_code)
        parts["explainers"] = registry.explainers(_with_files(specs, folder, allow_code))
    with inside("evaluations"):
        specs = _with_code(content.get("evaluations", DEFAULT_EVALUATION), folder, allow_code)
        named_evaluations = registry.evaluations(specs)
        check_data_names(named_evaluations, data)
    study: Study = make(Study, "", {**parts, "evaluations": named_evaluations, **settings})
    return study


def _sources(
    content: Any, section: str, keys: tuple[str, ...], check: Callable[[str], str]
) -> dict[str, dict[str, Any]]:
    """Return name -> {source, options}, from a string, a mapping, or a list of these.

    Mistakes are raised with the keys that lead to them in the file, from which the number of the line is found.
    """
    sources: dict[str, dict[str, Any]] = {}
    is_list = isinstance(content, list)
    for number, entry in enumerate(content if is_list else [content]):
        path: tuple[str | int, ...] = (section, number) if is_list else (section,)
        options = {"source": entry} if isinstance(entry, str) else entry
        if not isinstance(options, Mapping) or not isinstance(options.get("source"), str):
            raise BadParameter(
                f"{section} needs a name or a mapping with the key source, got {entry!r}", path
            )
        source = options["source"]
        with inside(*path):
            only_known(options, keys, f"an entry of {section}")
        sample: Any = options.get("sample")
        if section == "data" and sample is not None:
            with inside(*path, "sample"):
                as_subset(sample)
        path_of_source = path if isinstance(entry, str) else (*path, "source")
        with inside(*path_of_source):
            checked = {**options, "source": check(source)}
        name = str(checked.pop("name", None) or _short_name(source))
        if name in sources:
            raise BadParameter(
                f"{section} has two entries named {name!r}; give one of them another name", path
            )
        sources[name] = checked
    if not sources:
        raise BadParameter(f"{section} is empty", (section,))
    return sources


def _checked_models(
    models: dict[str, dict[str, Any]], section: str, folder: Path
) -> dict[str, dict[str, Any]]:
    """Return the models with tasks made and architectures checked; a Python file is relative to the study file."""
    for options in models.values():
        if options.get("task") is not None:
            with inside(section, "task"):
                options["task"] = as_task(resolved_reference(options["task"], folder))
        if "architecture" in options:
            with inside(section, "architecture"):
                options["architecture"] = check_model_name(str(options["architecture"]), folder)
    return models


def _with_vocabularies(data: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the data, with paths of vocabularies and folders of masks relative to the study file."""
    for name, options in data.items():
        path, regions = options.get("vocabulary"), options.get("regions")
        if isinstance(regions, str) and (folder / regions).is_dir():
            options["regions"] = str(folder / regions)
        if path is None:
            continue
        if isinstance(path, str) and path.startswith("hf:"):
            options["vocabulary"] = f"hf:{hub_name(path.removeprefix('hf:'), folder)}"
            continue
        if not isinstance(path, str) or not (folder / path).is_file():
            raise BadParameter(
                f"the vocabulary of {name} must be the path of a JSON file, got {path!r}", ("data",)
            )
        options["vocabulary"] = str(folder / path)
    return data


def _short_name(source: str) -> str:
    scheme, _, rest = source.partition(":")
    return short_name(scheme, rest) if rest else Path(source).name


def _with_code(spec: Any, folder: Path, allow_code: bool) -> Any:
    """Return explainers or evaluations, with objects in place of names of the form python:module:name."""
    if isinstance(spec, str) and spec.startswith("python:"):
        return load_object(spec, folder, allow_code=allow_code)
    return _with_each_entry(spec, lambda key, entry: _with_code(entry, folder, allow_code))


def _names_rows(value: Any, folder: Path) -> bool:
    """Return whether a background is a file, beside the study file, or a mapping with one as its source.

    Any other text is for an adapter, such as the masker "blur(16,16)" of SHAP.
    """
    if isinstance(value, Mapping):
        return "source" in value
    return isinstance(value, str) and value != REFERENCES and (folder / value).exists()


def _with_files(spec: Any, folder: Path, allow_code: bool) -> Any:
    """Return explainers with the training data, concepts and checkpoints that they name opened.

    Their paths are relative to the study file.
    """

    def opened(key: Any, value: Any) -> Any:
        try:
            return _opened_parameter(key, value, folder, allow_code)
        except TypeError as error:  # an option that such samples do not have
            raise UserError(str(error)) from error

    return _with_each_entry(spec, opened)


def _opened_parameter(key: Any, value: Any, folder: Path, allow_code: bool) -> Any:
    """Return what a parameter of an explainer is made of, by the name of the parameter."""
    if key in ("train", "pool") and isinstance(value, str | Mapping):
        return examples(value, folder=folder, allow_code=allow_code)
    if key == "baseline" and _names_samples(value):
        return examples(value, folder=folder, allow_code=allow_code)
    if key == "background" and _names_rows(value, folder):
        return background(value, folder=folder, allow_code=allow_code)
    if key == "path" and isinstance(value, str):
        return str(folder / value)
    if key == "concepts":
        return concepts(value, folder=folder, allow_code=allow_code)
    if key == "checkpoints" and isinstance(value, list):
        return [str(folder / path) if isinstance(path, str) else path for path in value]
    return _with_files(value, folder, allow_code)


def _names_samples(baseline: Any) -> bool:
    """Return whether a baseline is samples to be opened, and not a number or a word such as "random"."""
    if isinstance(baseline, Mapping):
        return "source" in baseline
    return isinstance(baseline, str) and baseline not in ("random", REFERENCES)


def _with_each_entry(spec: Any, change: Callable[[Any, Any], Any]) -> Any:
    """Return a list or a mapping with `change(key, entry)` in place of each entry; anything else as it is."""
    if isinstance(spec, list):
        entries: list[Any] = []
        for number, entry in enumerate(spec):
            with inside(number):
                entries.append(change(number, entry))
        return entries
    if isinstance(spec, Mapping):
        changed = {}
        for key, entry in spec.items():
            with inside(key):
                changed[key] = change(key, entry)
        return changed
    return spec
