"""`heatproof init`: the first study file for a model and data, with the choices explained in its comments.

Whatever the model and the data say themselves is read off them: the kind of data, the size that the network takes, its
outputs, whether labels are its classes. What nothing tells, above all the normalisation, is tried on a few samples.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from heatproof.axes import BY_NAME, EVALUATIONS
from heatproof.data import Data, open_data
from heatproof.data.files import existing
from heatproof.errors import ProbabilitiesError, UserError
from heatproof.kinds import kind_of
from heatproof.models import Model
from heatproof.models.guards import refuse_probabilities
from heatproof.models.loaders import load_model
from heatproof.models.loaders.files import PICKLES, SAFE
from heatproof.models.loaders.named import LOADERS, check_model_name
from heatproof.models.tasks import Classification
from heatproof.models.tasks.contract import rows_in
from heatproof.runs.atomic import create_atomically
from heatproof.runs.plan import Plan
from heatproof.runs.study.file import parse
from heatproof.runs.study.recommended import WHY, recommended
from heatproof.types import Batch

MOST_SAMPLES = 100
"""How many samples a first study tests where the data have more."""
TRIED_SAMPLES = 32
"""How many samples the normalisation is tried on."""
FEWEST_RIGHT = 0.7
"""The share of them that must be predicted as labelled, for a normalisation to be chosen by it."""
FEWEST_SAMPLES = 6
"""How many samples must be predicted as labelled at least: on fewer, chance does that too."""
SIZES = (224, 256, 299, 384, 32, 64, 96, 28, 128, 512)
"""Sizes of pictures to be tried, in this order, where neither the network nor the pictures tell."""
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
HALVES = ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
NORMALISATIONS = {"none": (None, None), "ImageNet's numbers": IMAGENET, "halves": HALVES}
"""Normalisations of pictures with three channels that are tried where labels can tell, by what they are called."""
MOST_NAMED_CLASSES = 50
TEXTS = (".txt", ".jsonl", ".ndjson")
ESTIMATORS = (".pkl", ".pickle", ".joblib")
BOOSTERS = (".ubj", ".json", ".cbm")


@dataclass
class Entry:
    """The model or the data of the study: its source, its options, and comments on them by key."""

    source: str
    options: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)

    def choose(self, key: str, value: Any, comment: str) -> None:
        """Set an option, with the reason for it."""
        self.options[key] = value
        self.comments[key] = comment

    def note(self, key: str, comment: str) -> None:
        """Add a comment where an option is left out."""
        self.comments[key] = comment


def write_first_study(
    model: str,
    data: str,
    out: Path,
    *,
    architecture: str | None = None,
    allow_code: bool = False,
) -> Plan:
    """Write a study file for a model and data, each a path or a name of a study file, and return its plan.

    A file that is there is not overwritten. Code is run only where `allow_code` says so.
    """
    if out.exists():
        raise UserError(
            f"{str(out)!r} is there already; name another file with --out, or remove it"
        )
    folder = out.absolute().parent
    if not folder.is_dir():
        raise UserError(f"there is no folder {str(folder)!r} for {out.name}")
    text, plan = first_study(model, data, folder, architecture, allow_code)
    if not create_atomically(out.absolute(), text.encode()):
        raise UserError(f"{str(out)!r} was written by somebody else in the meantime")
    return plan


def first_study(
    model: str, data: str, folder: Path, architecture: str | None, allow_code: bool
) -> tuple[str, Plan]:
    """Return the text of a study file that lies in `folder`, and its plan."""
    of_model = Entry(model_name(model))
    if architecture is not None:
        of_model.choose("architecture", architecture, "the network that the weights belong to")
    network = _load(of_model, allow_code)
    of_data = Entry(_data_name(data))
    opened, batch, raw = _first_pass(network, of_data, of_model.source, allow_code)
    _name_the_task(network, raw, opened, of_model, of_data)
    _name_the_classes(network, raw, opened, of_model, of_data)
    network = _load(of_model, allow_code)
    _choose_normalisation(network, opened, batch, of_model, of_data, allow_code)
    if len(opened) > MOST_SAMPLES:
        reason = f"a random part of the {len(opened):,}; more samples give narrower intervals"
        of_data.choose("sample", {"n": MOST_SAMPLES}, reason)

    network = _load(of_model, allow_code)
    lines = [
        "# The first study of a model, written by heatproof init. Change what you like and run",
        "#",
        "#     heatproof plan STUDY     says what it would do, and how long that takes",
        "#     heatproof run STUDY      runs it, or resumes it, and writes the report",
        "",
        *_entry_lines("model", of_model, folder),
        *_entry_lines("data", of_data, folder),
        *_methods(network, batch),
        *_tests(network, batch),
        "seed: 0            # the same seed gives the same numbers",
    ]
    text = "\n".join(lines) + "\n"
    plan = parse(yaml.safe_load(text), folder, allow_code=allow_code).plan(allow_code=allow_code)
    return text, plan


# ---- the names of the model and the data -----------------------------------------------------------


def model_name(model: str) -> str:
    """Return the name that a study file has for a model: the path of a file gets the kind of file before it.

    >>> model_name("torchvision:resnet50")
    'torchvision:resnet50'
    """
    scheme = model.partition(":")[0]
    if scheme in LOADERS and not Path(model).exists():
        return model
    file, _, function = model.partition(":")
    if function and not Path(file).exists() and not file.endswith(".py"):
        return check_model_name(model)  # which names the nearest kind
    path = existing(Path(file).expanduser())
    if path.suffix == ".py":
        return f"python:{path}:{function or _only_function(path)}"
    if path.suffix == ".onnx":
        return f"onnx:{path}"
    if path.suffix in (SAFE, *PICKLES):
        return f"file:{path}"
    if path.is_dir():
        if (path / "config.json").is_file():
            return f"hf:{path}"
        raise UserError(
            f"the folder {str(path)!r} has no config.json, so it is no model of transformers; name a file of a network"
        )
    if path.suffix in (*ESTIMATORS, *BOOSTERS):
        raise UserError(
            f"{path.name} is a fitted estimator; write a Python file with a function that loads and returns it, and "
            "name that: model.py:load"
        )
    kinds = ", ".join((SAFE, *PICKLES, ".onnx", ".py"))
    raise UserError(f"{path.name} is no file of a network that heatproof reads: {kinds}")


def _only_function(path: Path) -> str:
    """Return the only function of a Python file that can be called without arguments, found without running the file."""
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} is not a file of Python: {error}") from error
    names = []
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and not _needs_arguments(statement.args):
            names.append(statement.name)
    if len(names) == 1:
        return names[0]
    if not names:
        raise UserError(
            f"{path.name} has no function without arguments; write one that makes the model and returns it"
        )
    raise UserError(
        f"{path.name} has the functions {', '.join(names)}; say which makes the model, such as {path.name}:{names[0]}"
    )


def _needs_arguments(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional > 0 or None in arguments.kw_defaults


def _data_name(data: str) -> str:
    """Return the name that a study file has for data; the path of a file is made absolute."""
    if ":" in data and not Path(data).exists():
        return data
    return str(existing(Path(data).expanduser()))


def _load(of_model: Entry, allow_code: bool) -> Model:
    """Return the model with its options; one that ends in a softmax gets the task that says so."""
    try:
        return load_model(of_model.source, allow_code=allow_code, **of_model.options)
    except ProbabilitiesError:
        of_model.options["task"] = {"classification": {"outputs": "probabilities"}}
        return load_model(of_model.source, allow_code=allow_code, **of_model.options)


# ---- the first pass ------------------------------------------------------------------------------------


def _first_pass(
    network: Model, of_data: Entry, source: str, allow_code: bool
) -> tuple[Data, Batch, Tensor]:
    """Return the data in a form that the network reads, their first samples, and its outputs for these (B, …).

    Forms are tried in order; the options of the first that the network reads become those of the data.
    """
    if Path(of_data.source).suffix in TEXTS:
        if not source.startswith("hf:"):
            raise UserError(
                f"{Path(of_data.source).name} holds texts, which need the tokenizer of a model of transformers: "
                f"hf:NAME, not {source}"
            )
        of_data.choose("vocabulary", source, "the tokenizer of the model")
    problems = []
    for options in _forms(network, of_data, allow_code):
        settings = {**of_data.options, **{key: value for key, (value, _) in options.items()}}
        data = open_data(of_data.source, allow_code=allow_code, **settings)
        batch = _first_samples(data, 2)
        try:
            outputs = _outputs(network, batch)
        except UserError as error:
            problems.append(str(error))
            continue
        for key, (value, comment) in options.items():
            of_data.choose(key, value, comment)
        return data, batch, outputs
    raise UserError(
        "the model reads no form of the data that was tried:\n  " + "\n  ".join(problems)
    )


Form = dict[str, tuple[Any, str]]
"""Options of the data that may be needed, each with the reason for it."""


def _forms(network: Model, of_data: Entry, allow_code: bool) -> Iterator[Form]:
    """Yield the forms in which the data may be given to the network."""
    if Path(of_data.source.removesuffix(".gz")).suffix.lower() in (".csv", ".tsv"):
        yield from _forms_of_rows(of_data)
        return
    resized = open_data(of_data.source, allow_code=allow_code, **of_data.options)
    as_they_are = _as_they_are(resized, of_data, allow_code)
    if not as_they_are:
        yield {}
        return
    sizes: dict[int, str] = {}
    size_of_network = _size_of(network)
    if size_of_network is not None:
        sizes[size_of_network] = "what the network was trained on"
    if len(set(as_they_are)) == 1 and as_they_are[0][0] == as_they_are[0][1]:
        sizes.setdefault(as_they_are[0][0], "that of the pictures")
    for size in SIZES:
        sizes.setdefault(size, "the first usual size that the network takes")
    for size, reason in sizes.items():
        yield {"size": (size, f"pictures become {size} × {size}: {reason}")}


def _forms_of_rows(of_data: Entry) -> Iterator[Form]:
    """Yield rows of a file as series (1, T) and as rows of a table (F,): what a header names are columns."""
    data = open_data(of_data.source, **of_data.options)
    steps = _first_samples(data, 1).x.shape[-1]
    table: Form = {
        "shape": ([steps], f"every row is a row of a table; [1, {steps}] would make it a series")
    }
    series: Form = {}
    yield from (table, series) if _has_header(of_data.source) else (series, table)


def _has_header(path: str) -> bool:
    """Return whether the first line of a file has words that are no numbers, beside the label."""
    from heatproof.data.text import as_text, unpacked

    first_line = as_text(unpacked(Path(path)), path).strip().split("\n", 1)[0]
    cells = [cell.strip() for cell in first_line.replace("\t", ",").replace(";", ",").split(",")]
    words = [cell for cell in cells if not _is_number(cell)]
    return len(words) > len(cells) / 2


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell
    return True


def _as_they_are(data: Data, of_data: Entry, allow_code: bool) -> list[tuple[int, int]]:
    """Return heights and widths of the first pictures where these are resized by default; else nothing."""
    if data.kind != "image" or data.prepared.get("size") != "auto" or ":" in of_data.source:
        return []
    original = open_data(of_data.source, size=None, allow_code=allow_code, **of_data.options)
    sizes = []
    for position in range(min(4, len(original))):
        batch = original.load([position]).batch
        if len(batch):
            sizes.append((int(batch.x.shape[2]), int(batch.x.shape[3])))
    are_resized = data.shape is not None and any(size != tuple(data.shape[1:]) for size in sizes)
    return sizes if are_resized or Path(of_data.source).is_dir() else []


def _size_of(network: Model) -> int | None:
    """Return the size of the pictures that a network was trained on, where its own library tells; else None."""
    timm = getattr(network.module, "pretrained_cfg", None)
    if isinstance(timm, Mapping) and timm.get("input_size"):
        return int(timm["input_size"][-1])
    size = getattr(getattr(network.module, "config", None), "image_size", None)
    if isinstance(size, Sequence) and size:
        return int(size[0])
    return int(size) if isinstance(size, int) else None


def _first_samples(data: Data, count: int) -> Batch:
    """Return the first samples that can be read; raise `UserError` with the first error if there is none."""
    first_error = ""
    for start in range(0, len(data.ids), count):
        loaded = data.load(list(range(start, min(start + count, len(data.ids)))))
        if len(loaded.batch):
            return loaded.batch
        if not first_error:
            sample, error = next(iter(loaded.errors.items()))
            first_error = f"the first is {sample!r}: {error}"
    raise UserError(f"no sample of {data.name} could be read; {first_error}")


def _outputs(network: Model, batch: Batch) -> Tensor:
    """Return what the network gives for some samples, (B, K), or (B, K, …) for one output at every position."""
    batch = batch.to(network.device)
    aux = {name: value for name, value in batch.aux.items() if not name.startswith("_")}
    try:
        with torch.no_grad():
            table = rows_in(network.module(network.inputs(batch), **aux))
    except UserError:
        raise
    except Exception as error:  # whatever a foreign network raises for what it does not read
        shape = tuple(batch.x.shape[1:])
        first_line = str(error).strip().partition("\n")[0]
        raise UserError(f"samples of shape {shape}: {first_line}") from error
    if table.ndim < 2 or len(table) != len(batch):
        raise UserError(
            f"samples of shape {tuple(batch.x.shape[1:])}: it returns {tuple(table.shape)} for {len(batch)} of them"
        )
    return table


# ---- outputs, classes, normalisation -------------------------------------------------------------------


def _name_the_task(
    network: Model, outputs: Tensor, data: Data, of_model: Entry, of_data: Entry
) -> None:
    """Name the task that the shape and the range of the outputs tell, where it is no classification by logits."""
    if network.declared is not None and "task" not in of_model.options:
        return
    if outputs.ndim == 4:
        of_model.choose("task", "segmentation", "one class for every position")
        return
    labels = set(data.labels or ()) - {-1}
    if outputs.shape[1] == 1 and labels == {0, 1}:
        are_shares = bool(((outputs >= 0) & (outputs <= 1)).all())
        task: Any = {"binary": {"outputs": "probabilities"}} if are_shares else "binary"
        of_model.choose("task", task, "one output, and the labels are no and yes")
        return
    if outputs.shape[1] == 1:
        reason = "one output: a number. Log-odds of yes would be task: binary"
        of_model.choose("task", "regression", reason)
        if data.labels is not None:
            of_data.choose("label", "none", "the number that is predicted is no class")
        return
    try:
        refuse_probabilities(outputs, network.name, Classification())
    except ProbabilitiesError:
        of_model.options["task"] = {"classification": {"outputs": "probabilities"}}
    if "task" in of_model.options:
        of_model.note("task", "the network ends in a softmax")


def _name_the_classes(
    network: Model, outputs: Tensor, data: Data, of_model: Entry, of_data: Entry
) -> None:
    """Name the outputs after the classes of the data if these are as many; leave the labels out if they are others."""
    count = outputs.shape[1]
    if data.labels is None or count == 1 or outputs.ndim > 2:
        return
    names = data.class_names
    fits = max(data.labels) < count and (names is None or len(names) == count)
    if not fits:
        classes = len(names) if names is not None else max(data.labels) + 1
        reason = f"the data have {classes} classes and the model has {count} outputs, so labels are left out"
        of_data.choose("label", "none", reason)
    elif names is not None and network.classes is None and count <= MOST_NAMED_CLASSES:
        reason = "from the data; the order must be that of the model's outputs"
        of_model.choose("classes", list(names), reason)


def _choose_normalisation(
    network: Model,
    data: Data,
    batch: Batch,
    of_model: Entry,
    of_data: Entry,
    allow_code: bool,
) -> None:
    """Choose the normalisation of pictures by which most labels are predicted, where the model brings none."""
    if network.mean is not None or kind_of(network, batch).name != "image":
        return
    imagenet = f"mean: {IMAGENET[0]}, std: {IMAGENET[1]}"
    unknown = (
        "pixels reach the network as numbers from 0 to 1. If it was trained on normalised pictures, add its mean "
        f"and std; those of ImageNet are {imagenet}"
    )
    are_classes = data.labels is not None and "label" not in of_data.options
    if batch.x.shape[1] != 3 or not are_classes:
        of_model.note("mean", unknown)
        return
    labelled = data.only(data_positions(data))
    loaded = labelled.load(list(range(len(labelled)))).batch
    right = {}
    for name, (mean, std) in NORMALISATIONS.items():
        tried = load_model(
            of_model.source,
            allow_code=allow_code,
            **{**of_model.options, "mean": mean, "std": std},
        )
        with torch.no_grad():
            predicted = tried.logits(tried.inputs(loaded), loaded.aux).argmax(1)
        assert loaded.label is not None
        right[name] = int((predicted == loaded.label).sum())
    best = max(
        right, key=lambda name: right[name]
    )  # the first of several, so none if it is as good
    mean, std = NORMALISATIONS[best]
    counts = ", ".join(f"{name}: {count}" for name, count in right.items())
    reason = f"of {len(loaded)} pictures predicted as labelled, {counts}"
    if right[best] < max(FEWEST_RIGHT * len(loaded), FEWEST_SAMPLES):
        doubt = f"CHECK mean, std and the order of the classes ({reason})"
        of_model.note("mean", f"{doubt}; those of ImageNet are {imagenet}")
    elif mean is None:
        of_model.note("mean", f"no normalisation ({reason})")
    else:
        of_model.choose("mean", mean, f"normalisation by {best} ({reason})")
        of_model.choose("std", std, "")


def data_positions(data: Data) -> list[int]:
    """Return the positions of a few samples with a label, spread over the data, which may be sorted by class."""
    assert data.labels is not None
    labelled = [position for position, label in enumerate(data.labels) if label >= 0]
    step = max(1, len(labelled) // TRIED_SAMPLES)
    return labelled[::step][:TRIED_SAMPLES]


# ---- the file --------------------------------------------------------------------------------------------


def _entry_lines(section: str, entry: Entry, folder: Path) -> Iterator[str]:
    """Yield the lines of the model or of the data, each option below the comment on it."""
    yield f"{section}:"
    yield f"  source: {_inline(_beside(entry.source, folder))}"
    keys = dict.fromkeys([*entry.options, *entry.comments])
    for key in keys:
        comment = entry.comments.get(key, "")
        if comment:
            yield f"  # {comment}"
        if key in entry.options:
            value = entry.options[key]
            if key in ("architecture", "vocabulary"):
                value = _beside(value, folder)
            yield f"  {key}: {_inline(value)}"
    yield ""


def _beside(source: str, folder: Path) -> str:
    """Return a source with its path relative to the folder of the study file, where it has one."""
    scheme, colon, rest = source.partition(":")
    if scheme in LOADERS and colon:
        path, separator, function = rest.partition(":") if scheme == "python" else (rest, "", "")
        if not Path(path).is_absolute():
            return source
        return f"{scheme}:{_relative(path, folder)}{separator}{function}"
    return _relative(source, folder) if Path(source).is_absolute() else source


def _relative(path: str, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _inline(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _methods(network: Model, batch: Batch) -> Iterator[str]:
    """Yield the lines of the methods that suit the model and the data."""
    yield "# Methods that fit the model and the data, and controls, which no method should lose to."
    yield "# heatproof ls explainers has all of them; the number of passes is a parameter: {lime: {samples: 500}}."
    yield "explainers:"
    for name in recommended({network.name: network}, [batch[:1]]):
        yield f"  - {name:<22} # {WHY[name]}"
    yield ""


def _tests(network: Model, batch: Batch) -> Iterator[str]:
    """Yield the lines of the tests that apply as they are, and, as comments, of those that do not or take long."""
    yield "# Tests. heatproof ls evaluations has their parameters."
    yield "evaluations:"
    others = []
    for name in EVALUATIONS:
        axis = BY_NAME[name]
        if not axis.in_first_study:
            others.append(f"  # - {name:<20} # {axis.question}")
            continue
        try:
            axis.evaluation().configured_for(network, batch[:1])
        except UserError as error:
            reason = str(error).partition("\n")[0]
            others.append(f"  # - {name:<20} # not with these data: {reason}")
        else:
            yield f"  - {name:<22} # {axis.question}"
    yield "  # Tests that take longer, or need settings or regions:"
    yield from others
    yield ""
