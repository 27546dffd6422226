"""The manifest of a run: the study with every setting, versions, and every session that worked on it.

`manifest.json` is written once, by the first process. Every process that works in the directory has a file of its own in
`sessions/`, with what it did and what it added to the study, so several may start at once and none is lost. Reading a
manifest joins them.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from heatproof.data import Data
from heatproof.errors import Damaged, UserError
from heatproof.kinds import kind_of
from heatproof.models import Model
from heatproof.models.guards import missing_normalisation, untrained_head
from heatproof.runs import atomic, digests, storage
from heatproof.runs.differences import DERIVED, differences, joined, plain
from heatproof.runs.storage import Place, files, tried
from heatproof.statistics.intervals import ERROR
from heatproof.types import Batch, Explainer, name_of, parameters, role_of

FORMAT = 5
"""The format of run directories that this version writes and reads."""
EXTENDABLE = ("models", "datasets", "tasks", "explainers", "evaluations", "configured", "maps")
"""The sections of a study to which a later process may add names."""
MOST_SHARDS = 10**6
"""A manifest that promises more shards of a data set was not written by heatproof."""

LOOKS = 5
"""The most looks of a study that runs until its methods are told apart."""

Number = StrictInt | StrictFloat
Count = Annotated[StrictInt, Field(ge=0)]
DataAndModel = tuple[str, str]
"""The names of a data set and a model."""


class AnotherStudy(UserError):
    """A run directory holds another study than the one that is to be run there."""


# ---- what a manifest holds -----------------------------------------------------------------------------------------


class Entry(BaseModel):
    """A part of a manifest. Keys without a field are kept: parameters of the user's objects, or later versions."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def as_mapping(self) -> dict[str, Any]:
        """Return the entry as plain data, with the keys that it was made from and no others."""
        return self.model_dump(exclude_unset=True)

    @property
    def parameters(self) -> dict[str, Any]:
        """The keys without a field, which are the parameters of an explainer or an evaluation."""
        return dict(self.model_extra or {})


class ModelEntry(Entry):
    """A model: its weights' fingerprint, its normalisation, and what looks wrong with it."""

    fingerprint: StrictStr = ""
    precision: StrictStr = ""
    untrained_head: StrictStr | None = None
    unnormalised: StrictStr | None = None


class DatasetEntry(Entry):
    """A data set: its fingerprint, its size, and the ids of the samples from which chance is taken.

    `pilot` is the number of samples before the first look, in a study that decides on its number of samples.
    """

    fingerprint: StrictStr = ""
    samples: Count = 0
    references: list[StrictStr] = []
    pilot: Count | None = None


class TaskEntry(Entry):
    """What a model does on a data set, and which number of its output is explained."""

    modality: StrictStr = ""
    task: StrictStr = ""
    readout: StrictStr = ""
    unchanged: StrictStr = ""
    unit: StrictStr = ""


class ExplainerEntry(Entry):
    """An explainer: its registered name, its role and its parameters."""

    name: StrictStr = ""
    role: StrictStr = "method"


class EvaluationEntry(Entry):
    """An evaluation: its registered name, its parameters, and what follows from them."""

    name: StrictStr = ""
    conditions: list[tuple[StrictStr, Number]] = []
    left_out: dict[str, StrictStr] | None = None
    measures: list[dict[str, Any]] = []
    data: list[StrictStr] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The name and the parameters: what two runs must share for their scores to be comparable."""
        return {key: value for key, value in self.as_mapping().items() if key not in DERIVED}

    @property
    def is_sharded(self) -> bool:
        """Whether the engine runs it shard by shard; retraining has jobs of its own and leaves no explainer out."""
        return self.left_out is not None


class ConfiguredEntry(Entry):
    """The explainers and evaluations that have other settings for one data set and model than the study's entries."""

    explainers: dict[str, ExplainerEntry] = {}
    evaluations: dict[str, EvaluationEntry] = {}


class MapsEntry(Entry):
    """Whose maps the run keeps."""

    samples: Literal["all"] | list[StrictStr] = "all"


class Sampling(Entry):
    """How a study decides on its number of samples; `heatproof.runs.sampling` describes the procedure.

    half_width  the half-width of the intervals of overall scores that is requested
    until       "decided": until every pair of methods is told apart, or known to differ by less than `margin`
    at_most     the most samples of a data set; None for all of them, or for the default number of `until`

    >>> Sampling(until="decided", margin=0.05).level
    0.99
    """

    half_width: Number | None = None
    until: Literal["decided"] | None = None
    margin: Number | None = None
    at_most: Count | None = None

    @property
    def level(self) -> float:
        """The level of each test and interval, such that all looks together are wrong with a probability of 5 %."""
        return 1 - ERROR / LOOKS if self.until else 1 - ERROR

    def __str__(self) -> str:
        if self.half_width is not None:
            return f"half_width: {self.half_width:g}"
        return f"until: {self.until}"


Outcome = Literal["goes on", "reached", "missed", "at_most", "all samples", "no scores"]
"""What follows from a look: there will be another one; the request was fulfilled; it was not, because a planned number
was too small, `at_most` was reached, or the data have no more samples; or there is no score to look at."""


PairState = Literal["different", "equal", "open"]


class WidthEntry(Entry):
    """The half-width of one overall score at a look, by the choice of samples alone, and how many samples it takes.

    `width` and `needed` are None where there are too few scores to tell.
    """

    model: StrictStr
    evaluation: StrictStr
    measure: StrictStr
    explainer: StrictStr
    width: Number | None = None
    needed: StrictInt | None = None


class PairEntry(Entry):
    """What a look says of two methods: whether they are told apart, equal to within the margin, or neither."""

    model: StrictStr
    evaluation: StrictStr
    measure: StrictStr
    a: StrictStr
    b: StrictStr
    state: PairState


class Look(Entry):
    """One look at the scores of the first `samples` samples of a data set, after which the run has `next` samples.

    `next` is `samples` where the run stops. `needed` is how many samples the request takes, whatever the cap.
    """

    dataset: StrictStr
    samples: Count
    next: Count
    outcome: Outcome
    needed: Count | None = None
    widths: list[WidthEntry] = []
    pairs: list[PairEntry] = []

    @property
    def stops(self) -> bool:
        """Whether it is the last look."""
        return self.outcome != "goes on"


class Study(Entry):
    """What is run: models, data, explainers and evaluations by the names that the user chose.

    An entry of `explainers` or `evaluations` has the settings of the first data set and model that it is for;
    `configured` has the complete entries of those data sets and models for which they are others.
    """

    seed: StrictInt
    models: dict[str, ModelEntry]
    datasets: dict[str, DatasetEntry]
    tasks: dict[str, dict[str, TaskEntry]] = {}
    explainers: dict[str, ExplainerEntry]
    evaluations: dict[str, EvaluationEntry]
    configured: dict[str, dict[str, ConfiguredEntry]] = {}
    maps: MapsEntry | None = None
    sampling: Sampling | None = None

    # The table of a run may hold rows of what its study does not name, so these accessors never fail.

    def model(self, name: str) -> ModelEntry:
        """Return a model's entry, an empty one if the study does not name it."""
        return self.models.get(name, ModelEntry())

    def dataset(self, name: str) -> DatasetEntry:
        """Return a data set's entry, an empty one if the study does not name it."""
        return self.datasets.get(name, DatasetEntry())

    def explainer(self, name: str, dataset: str = "", model: str = "") -> ExplainerEntry:
        """Return an explainer's entry for a data set and model, an empty one if the study does not name it."""
        other = self._configured(dataset, model).explainers
        return other.get(name) or self.explainers.get(name, ExplainerEntry())

    def evaluation(self, name: str, dataset: str = "", model: str = "") -> EvaluationEntry:
        """Return an evaluation's entry for a data set and model, an empty one if the study does not name it."""
        other = self._configured(dataset, model).evaluations
        return other.get(name) or self.evaluations.get(name, EvaluationEntry())

    def evaluations_of(self, dataset: str) -> list[str]:
        """Return the evaluations that are for a data set."""
        names = []
        for name, entry in self.evaluations.items():
            if entry.data is None or dataset in entry.data:
                names.append(name)
        return names

    def conditions_of(self, evaluation: str) -> list[tuple[str, Number]]:
        """Return the conditions of an evaluation for all data sets and models, each once."""
        conditions = list(self.evaluation(evaluation).conditions)
        for by_model in self.configured.values():
            for configured in by_model.values():
                if evaluation in configured.evaluations:
                    conditions += configured.evaluations[evaluation].conditions
        return list(dict.fromkeys(conditions))

    def _configured(self, dataset: str, model: str) -> ConfiguredEntry:
        return self.configured.get(dataset, {}).get(model, ConfiguredEntry())

    def task(self, dataset: str, model: str) -> TaskEntry:
        """Return what a model does on a data set, an empty entry if the study does not say."""
        return self.tasks.get(dataset, {}).get(model, TaskEntry())

    @property
    def controls(self) -> list[str]:
        """The explainers that are controls."""
        return [name for name, entry in self.explainers.items() if entry.role == "control"]

    def explainers_of(self, evaluation: str, dataset: str, model: str) -> list[str]:
        """Return the explainers of which a sharded evaluation has parts; none of one that is not sharded."""
        left_out = self.evaluation(evaluation, dataset, model).left_out
        if left_out is None:
            return []
        return [name for name in self.explainers if name not in left_out]

    def explainers_with_maps(self, dataset: str, model: str) -> list[str]:
        """Return the explainers whose maps the run keeps."""
        if self.maps is None:
            return []
        if not self.evaluations:
            return list(self.explainers)
        evaluated: dict[str, None] = {}
        for evaluation in self.evaluations_of(dataset):
            evaluated |= dict.fromkeys(self.explainers_of(evaluation, dataset, model))
        return list(evaluated)

    def settings_everywhere(self) -> dict[str, Any]:
        """Return the settings of everything for each data set and model, as nested plain data."""
        settings: dict[str, Any] = {}
        for dataset in self.datasets:
            for model in self.models:
                explainers, evaluations = {}, {}
                for name in self.explainers:
                    explainers[name] = self.explainer(name, dataset, model).as_mapping()
                for name in self.evaluations_of(dataset):
                    evaluations[name] = self.evaluation(name, dataset, model).as_mapping()
                entry = {"explainers": explainers, "evaluations": evaluations}
                settings.setdefault(dataset, {})[model] = entry
        return settings


class WorkersEntry(Entry):
    """The processes that did the shards of a session, and the shards at which one was lost."""

    kind: str = ""
    count: int = 0
    lost: list[str] = []


class Session(Entry):
    """What one process, or one with its workers, did in a run directory."""

    started: StrictStr = ""
    command: StrictStr = ""
    versions: dict[str, StrictStr] = {}
    devices: list[StrictStr] = []
    durations: dict[str, Number] = {}
    passes: dict[str, Number] = {}
    batch_sizes: dict[str, StrictInt] = {}
    seconds: Number | None = None
    workers: WorkersEntry | None = None
    prepared: dict[str, dict[str, Any]] = {}
    study_file: StrictStr = ""
    ignore: list[StrictStr] = []
    adds: dict[str, dict[str, Any]] = {}
    looks: list[Look] = []


class Manifest(Entry):
    """Everything that is known of a run beside its tables.

    >>> study = {"seed": 0, "models": {}, "datasets": {}, "explainers": {"dice": {"role": "control"}}, "evaluations": {}}
    >>> manifest = Manifest(heatproof="1.0", shard_size=32, study=study)
    >>> manifest.controls, manifest.references("photos")
    (['dice'], [])
    """

    format: StrictInt = FORMAT
    heatproof: StrictStr
    created: StrictStr = ""
    shard_size: Annotated[StrictInt, Field(ge=1)]
    study: Study
    versions: dict[str, StrictStr] = {}
    command: StrictStr = ""
    sessions: list[Session] = []
    prepared: dict[str, dict[str, Any]] = {}
    study_file: StrictStr = ""
    ignore: list[StrictStr] = []

    @property
    def controls(self) -> list[str]:
        """The explainers that are controls."""
        return self.study.controls

    def task(self, dataset: str, model: str) -> TaskEntry:
        """Return what a model does on a data set, an empty entry if the study does not say."""
        return self.study.task(dataset, model)

    def references(self, dataset: str) -> list[str]:
        """Return the ids of the samples of a data set from which chance is taken; none if the study does not say."""
        return self.study.dataset(dataset).references

    def looks(self, dataset: str) -> list[Look]:
        """Return the looks at a data set, in order; none if the study does not decide on its number of samples.

        Processes that look at the same samples come to the same; the first in the order of sessions counts.
        """
        by_samples: dict[int, Look] = {}
        for session in self.sessions:
            for look in session.looks:
                if look.dataset == dataset:
                    by_samples.setdefault(look.samples, look)
        return [by_samples[samples] for samples in sorted(by_samples)]

    def stage_ends(self, dataset: str) -> tuple[int, ...]:
        """Return after how many samples each stage of the run ends, as far as it is decided.

        A study that does not decide on its number of samples has one stage.
        """
        entry = self.study.dataset(dataset)
        if entry.pilot is None:
            return (entry.samples,)
        ends = [entry.pilot]
        for look in self.looks(dataset):
            if look.samples == ends[-1] and not look.stops:
                ends.append(look.next)
        return tuple(ends)

    def undecided_samples(self) -> list[str]:
        """Return the data sets whose number of samples is not decided yet."""
        undecided = []
        for name, entry in self.study.datasets.items():
            if entry.pilot is None:
                continue
            looks = self.looks(name)
            if not looks or not looks[-1].stops:
                undecided.append(name)
        return undecided

    def shards(self, dataset: str) -> range:
        """Return the numbers of the shards of a data set, as far as its number of samples is decided."""
        shards, start = 0, 0
        for end in self.stage_ends(dataset):
            shards += -(-(end - start) // self.shard_size)
            start = end
        return range(shards)

    @model_validator(mode="after")
    def _check_shards(self) -> Self:
        """A manifest that promises millions of shards would have every reader look for as many files."""
        for name in self.study.datasets:
            shards = len(self.shards(name))
            if shards > MOST_SHARDS:
                raise ValueError(f"study.datasets.{name}.samples: no run has {shards:,} shards")
        return self

    def study_key(self, dataset: str, model: str, evaluation: str = "", explainer: str = "") -> str:
        """Return the digest of everything that the rows of a part depend on; the part's footer must carry it.

        Left out is what a study may add to later, which are mappings from names of the user's choice.
        """
        study = self.study
        settled = {}
        for key, value in study.evaluation(evaluation, dataset, model).settings.items():
            is_object = isinstance(value, Mapping) and value.keys() & {"name", "fingerprint"}
            if is_object or not isinstance(value, Mapping):
                settled[key] = value
        facts = {
            "heatproof": self.heatproof,
            "shard_size": self.shard_size,
            "seed": study.seed,
            "dataset": [dataset, study.dataset(dataset).fingerprint],
            "model": [model, study.model(model).as_mapping()],
            "explainer": [explainer, study.explainer(explainer, dataset, model).as_mapping()],
            "evaluation": [evaluation, settled],
        }
        return digests.digest(plain(facts).encode())

    def joined_with(self, sessions: Sequence[Session]) -> Self:
        """Return the manifest with what later sessions did and added to the study."""
        if not sessions:
            return self
        study = self.study.as_mapping()
        latest: dict[str, Any] = {}
        for session in sessions:
            study = joined(study, session.adds)
            for key in ("command", "versions", "study_file", "prepared", "ignore"):
                if key in session.model_fields_set:
                    latest[key] = getattr(session, key)
        # What a session added is in the study from here on.
        done = [session.model_dump(exclude_unset=True, exclude={"adds"}) for session in sessions]
        earlier = [session.as_mapping() for session in self.sessions]
        changes = {**latest, "study": study, "sessions": [*earlier, *done]}
        return type(self).model_validate({**self.as_mapping(), **changes})


def shard_ranges(ends: Sequence[int], size: int) -> list[range]:
    """Return the positions of each shard of `size` samples; a shard ends where a stage of the run does.

    >>> shard_ranges([5, 7], 3)
    [range(0, 3), range(3, 5), range(5, 7)]
    """
    shards, start = [], 0
    for end in ends:
        shards += [range(first, min(first + size, end)) for first in range(start, end, size)]
        start = end
    return shards


# ---- describing a study --------------------------------------------------------------------------------------------


def describe(
    models: Mapping[str, Model],
    data: Mapping[str, Data],
    explainers: Mapping[DataAndModel, Mapping[str, Explainer]],
    evaluations: Mapping[DataAndModel, Mapping[str, Mapping[str, Any]]],
    seed: int,
    samples: Mapping[str, Batch] | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
    maps: Literal["all"] | Sequence[str] | None = None,
    sampling: Sampling | None = None,
    pilots: Mapping[str, int] | None = None,
) -> Study:
    """Return what the manifest stores of a study, and what must agree when a run is resumed.

    `explainers` and `evaluations` are those of each data set and model, as they are configured for it.
    `samples` holds any sample of each data set, from which the kind of data is told; `references` the ids of the samples
    from which chance is taken; `maps` the samples whose maps are kept. `sampling` and `pilots`, the samples of each
    data set before the first look, are those of a study that decides on its number of samples.
    """
    described_models = {}
    for name, model in models.items():
        has_normalisation = model.mean is not None or model.std is not None
        described_models[name] = {
            "fingerprint": model.fingerprint,
            "mean": model.mean,
            "std": model.std,
            "precision": model.precision,
            "untrained_head": untrained_head(model.module),
            "unnormalised": None if has_normalisation else missing_normalisation(model.module),
        }

    described_data: dict[str, dict[str, Any]] = {}
    for name, source in data.items():
        described_data[name] = {"fingerprint": source.fingerprint, "samples": len(source.ids)}
        if references is not None:
            described_data[name]["references"] = list(references[name])
        if pilots:
            described_data[name]["pilot"] = pilots[name]

    tasks: dict[str, dict[str, Any]] = {}
    for dataset, batch in (samples or {}).items():
        tasks[dataset] = {name: task(model, batch[:1]) for name, model in models.items()}

    described_explainers: dict[DataAndModel, dict[str, Any]] = {}
    for data_and_model, configured in explainers.items():
        described_explainers[data_and_model] = {
            name: _described_explainer(explainer) for name, explainer in configured.items()
        }
    study: dict[str, Any] = {
        "seed": seed,
        "models": described_models,
        "datasets": described_data,
        "tasks": tasks,
        "explainers": _first_entries(described_explainers),
        "evaluations": _first_entries(evaluations),
    }
    # What is configured differently for another data set or model is stored apart, for each of them.
    other_settings: dict[str, dict[str, dict[str, Any]]] = {}
    for section, entries in (("explainers", described_explainers), ("evaluations", evaluations)):
        for (dataset, model_name), by_name in entries.items():
            different = _different_entries(by_name, study[section])
            if different:
                of_dataset = other_settings.setdefault(dataset, {})
                of_dataset.setdefault(model_name, {})[section] = different
    if other_settings:
        study["configured"] = other_settings
    if maps:
        study["maps"] = {"samples": maps if maps == "all" else list(maps)}
    if sampling is not None:
        study["sampling"] = sampling.model_dump(exclude_none=True)
    return Study.model_validate(study)


def _described_explainer(explainer: Explainer) -> dict[str, Any]:
    return {"name": name_of(explainer), "role": role_of(explainer), **parameters(explainer)}


def _different_entries(entries: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that differ from the usual ones of the same name."""
    return {name: entry for name, entry in entries.items() if entry != usual[name]}


def _first_entries(entries: Mapping[DataAndModel, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entry of each name for the first data set and model that has one."""
    first: dict[str, Any] = {}
    for by_name in entries.values():
        for name, entry in by_name.items():
            first.setdefault(name, dict(entry))
    return first


def task(model: Model, sample: Batch) -> dict[str, str]:
    """Return what a model does on such data: kind of data, task, readout, when a prediction is unchanged, unit.

    >>> import torch
    >>> task(Model(torch.nn.Flatten()), Batch(("a",), torch.zeros(1, 3, 8, 8)))["unit"]
    'pixel'
    """
    kind = kind_of(model, sample)
    return {
        "modality": kind.name,
        "task": model.task.name,
        "readout": model.task.readout,
        "unchanged": model.task.unchanged,
        "unit": kind.part,
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that the numbers depend on."""
    names = ("heatproof", "torch", "numpy", "scipy", "pillow", "pandas", "pyarrow")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


def this_command() -> str:
    """Return the command line that started this process, as one would type it."""
    return shlex.join(["heatproof", *sys.argv[1:]])


def now() -> str:
    """Return the time in UTC, in the format of ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# ---- reading and writing -------------------------------------------------------------------------------------------


def read_manifest(root: Place) -> Manifest:
    """Return the manifest of a run with what every session added to it."""
    first = read_first_manifest(root)
    try:
        return first.joined_with(read_sessions(root))
    except ValidationError as error:
        raise _wrong_field(root / "sessions", error) from error


def read_first_manifest(root: Place) -> Manifest:
    """Return what manifest.json holds: the run as the first process began it."""
    path = root / "manifest.json"
    try:
        content = tried(path, path.read_bytes)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{root} is not a run directory: it has no manifest.json") from error
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise Damaged(f"{path} is not the manifest of a heatproof run: {error}") from error
    required = {"heatproof", "study", "shard_size"}
    if not isinstance(fields, dict) or not required <= fields.keys():
        raise UserError(f"{path} is not the manifest of a heatproof run")
    if fields.get("format") != FORMAT:
        written = f"format {fields.get('format', 1)} by heatproof {fields['heatproof']}"
        raise UserError(
            f"{root} was written in {written}, and this version reads format {FORMAT}; run the study again"
        )
    # Only now: the checks above say more about a file that is no manifest of this version.
    digests.check(path, content)
    del fields["sha256"]
    try:
        return Manifest.model_validate(fields)
    except ValidationError as error:
        raise _wrong_field(path, error) from error


def read_sessions(root: Place) -> list[Session]:
    """Return the session of every process that worked in a run directory, in the order in which they started."""
    return [read_session(path) for path in files(root / "sessions", ".json")]


def read_session(path: Place) -> Session:
    """Return what one process wrote of its session."""
    try:
        return Session.model_validate(digests.read_json(path))
    except ValidationError as error:
        raise _wrong_field(path, error) from error


def write_manifest(root: Place, manifest: Manifest) -> None:
    """Write manifest.json, in place of the one that is there."""
    atomic.write_atomically(root / "manifest.json", digests.sealed(manifest.as_mapping()))


def _wrong_field(path: Place, error: ValidationError) -> Damaged:
    """Return the error for a file of which a field has another type than a run would write."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return Damaged(f"{path} is damaged: {field}: {first['msg']}; {digests.ADVICE}")


# ---- beginning and resuming ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenSession:
    """The session of this process: the run as it found it, its own file, and what it adds to the study."""

    manifest: Manifest
    path: Place
    adds: Mapping[str, Any]

    def record(self, facts: Mapping[str, Any]) -> None:
        """Write what the process did so far, in place of what it wrote before."""
        atomic.write_atomically(self.path, digests.sealed({**facts, "adds": self.adds}))


def begin(root: Place, study: Study, shard_size: int, command: str) -> OpenSession:
    """Begin a run in a new directory, or resume the one that is there; raise if it holds another study."""
    storage.forget_listings()
    _write_first(root, study, shard_size, command)
    found = agreeing_manifest(root, study)
    session = OpenSession(found, _session_path(root), _additions(found.study, study))
    if session.adds:
        session.record({"started": now(), "command": command, "versions": versions()})
        try:
            # Another process may have added something else under the same name meanwhile.
            agreeing_manifest(root, study)
        except UserError:
            session.path.unlink()
            raise
    atomic.sweep(root)
    return session


def contradictions_between(known: Study, requested: Study) -> list[str]:
    """Return a line for each value in which a study contradicts that of a run; either may have more names."""
    lines = differences(known.as_mapping(), requested.as_mapping())
    if known.configured or requested.configured:
        # A data set without settings of its own has those of the first, so absent entries count too.
        everywhere = known.settings_everywhere(), requested.settings_everywhere()
        lines += differences(*everywhere, "configured")
    if known.sampling or requested.sampling:
        lines += _changes_of_sampling(known, requested)
    return list(dict.fromkeys(lines))


def _changes_of_sampling(known: Study, requested: Study) -> list[str]:
    """Return a line for whatever would change a decision on the number of samples: nothing may be added either.

    A look corrects for the methods that were there, and a number of samples is for the scores that were planned for.
    """
    before = "all samples" if known.sampling is None else str(known.sampling)
    after = "all samples" if requested.sampling is None else str(requested.sampling)
    if before != after:
        return [f"sampling: the run has {before}, this study says {after}"]
    lines = []
    settings = known.sampling or Sampling(), requested.sampling or Sampling()
    for name in ("margin", "at_most"):
        old, new = (getattr(entry, name) for entry in settings)
        if old != new:
            lines.append(f"sampling.{name}: the run has {old}, this study says {new}")
    for section, added in _additions(known, requested).items():
        names = ", ".join(added)
        lines.append(f"{section}: {names} can't be added to a run with {after}")
    for section, removed in _additions(requested, known).items():
        names = ", ".join(removed)
        lines.append(f"{section}: {names} can't be left out of a run with {after}")
    return lines


def agreeing_manifest(root: Place, study: Study) -> Manifest:
    """Return the manifest of a run; raise if its study contradicts the one given."""
    found = read_manifest(root)
    requested = study.as_mapping()
    contradictions = differences(
        {"heatproof": found.heatproof}, {"heatproof": metadata.version("heatproof")}
    )
    contradictions += contradictions_between(found.study, study)
    # Of several processes that add different things under one name the study has the first; all must agree.
    for session in read_sessions(root):
        contradictions += differences(session.adds, requested)
    if contradictions:
        lines = "\n  ".join(dict.fromkeys(contradictions))
        raise AnotherStudy(
            f"{root} holds another study; choose another directory or restore it:\n  {lines}"
        )
    return found


def _write_first(root: Place, study: Study, shard_size: int, command: str) -> None:
    """Write the manifest of a new run; an existing one stays."""
    strangers = []
    if root.is_dir():
        strangers = [path for path in root.iterdir() if not atomic.is_leftover(path)]
    # After the listing: another process that starts here now writes its manifest before anything else.
    if (root / "manifest.json").exists():
        return
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file; a run needs a directory")
    if strangers:
        raise UserError(f"{root} is not empty and holds no heatproof run; choose another directory")
    first = Manifest(
        format=FORMAT,
        heatproof=metadata.version("heatproof"),
        created=now(),
        shard_size=shard_size,
        study=study,
        versions=versions(),
        command=command,
    )
    atomic.create_atomically(root / "manifest.json", digests.sealed(first.as_mapping()))


def _session_path(root: Place) -> Place:
    """Return where this process writes its session; names sort by the time of their start."""
    started = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    process = f"{atomic.this_host()}-{os.getpid()}-{secrets.token_hex(2)}"  # the last for threads
    return root / "sessions" / f"{started}-{process}.json"


def _additions(known: Study, requested: Study) -> dict[str, Any]:
    """Return what a study names beyond that of the run, by section."""
    before, after = known.as_mapping(), requested.as_mapping()
    additions = {}
    for section in EXTENDABLE:
        new = _beyond(before.get(section) or {}, after.get(section) or {})
        if new:
            additions[section] = new
    return additions


def _beyond(known: Mapping[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a mapping names that another does not, at any depth."""
    more = {}
    for name, value in requested.items():
        if name not in known:
            more[name] = value
        elif isinstance(value, Mapping) and isinstance(known[name], Mapping):
            new = _beyond(known[name], value)
            if new:
                more[name] = new
    return more
