"""The plan of a run: a checked study, its shards, and which of their parts are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from heatproof.axes import DEFAULT_EVALUATION
from heatproof.data import Data
from heatproof.data.frames import is_frame
from heatproof.errors import UserError, nearest
from heatproof.evaluation import Evaluation
from heatproof.explainers.background import background as as_background
from heatproof.explainers.background import backgrounds_in
from heatproof.models import Model
from heatproof.models.guards import refuse_nan_weights, refuse_no_values
from heatproof.models.loaders.sklearn import with_frames
from heatproof.models.precision import Precision, check_precision
from heatproof.rules import check_rules
from heatproof.runs import manifest
from heatproof.runs.configure import (
    ConfiguredStudy,
    check_data_names,
    configure,
    with_evident_task,
    with_references,
)
from heatproof.runs.directory import Job, PartKey, RunDirectory, expected_parts
from heatproof.runs.manifest import Sampling, Study, shard_ranges
from heatproof.runs.references import load_references
from heatproof.runs.sampling import (
    check_tests,
    in_random_order,
    look_sizes,
    sampling_of,
    unit_ends,
)
from heatproof.runs.study import registry
from heatproof.runs.study.recommended import RECOMMENDED, recommended
from heatproof.types import Batch, Explainer, name_of, parameters, role_of


@dataclass(frozen=True)
class Plan:
    """A checked study: every name resolved, every model loaded, every file found.

    `explainers` and `evaluations` are those of the study; `configured` has, for each data set and model, what of them
    applies there, with every default filled in. `sampling` says how the number of samples is decided, None that all
    are tested; `stage_ends` has, for each data set, after how many samples each stage of the run ends, as far as that
    is decided (see `runs.sampling`).
    """

    models: Mapping[str, Model]
    data: Mapping[str, Data]
    explainers: Mapping[str, Explainer]
    evaluations: Mapping[str, Evaluation]
    configured: Mapping[tuple[str, str], ConfiguredStudy]
    seed: int = 0
    shard_size: int = 32
    batch_size: int | None = None
    references: int | None = None
    reasons: tuple[str, ...] = ()
    keep_maps: bool | tuple[str, ...] = False
    map_values: Mapping[str, int] = field(default_factory=dict)
    study_file: str = ""
    ignore: tuple[str, ...] = ()
    sampling: Sampling | None = None
    stage_ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return what evaluations cannot show as they are set, known before any pass."""
        notes = list(self.reasons)
        for (_, model), study in self.configured.items():
            for evaluation in study.evaluations.values():
                notes += evaluation.notes(self.models[model])
        return list(dict.fromkeys(notes))

    def shards(self, dataset: str) -> list[range]:
        """Return the positions of each shard of a data set, as far as its number of samples is decided."""
        return shard_ranges(self._stage_ends(dataset), self.shard_size)

    def _stage_ends(self, dataset: str) -> tuple[int, ...]:
        return self.stage_ends.get(dataset) or (len(self.data[dataset].ids),)

    def sample_count(self, dataset: str) -> int:
        """Return how many samples of a data set are tested, as far as that is decided."""
        return self._stage_ends(dataset)[-1]

    def gallery_candidates(self, dataset: str) -> tuple[str, ...]:
        """Return the samples among which those for the report are drawn: all that the run has in any case."""
        return self.data[dataset].ids[: self._stage_ends(dataset)[0]]

    def configured_for(self, job: Job) -> ConfiguredStudy:
        """Return the explainers and evaluations that are configured for the data set and model of a job."""
        return self.configured[job.dataset, job.model]

    def positions(self, job: Job) -> range:
        """Return the positions of the samples of a job in its data set."""
        return self.shards(job.dataset)[job.shard]

    def expected_parts(self, job: Job) -> list[PartKey]:
        """Return the parts that a finished job has."""
        study = self.configured_for(job)
        explainers_of = {name: study.judged(name) for name in study.evaluations}
        explainers_with_maps = self.explainers if self.keep_maps else ()
        return expected_parts(job, explainers_of, explainers_with_maps)

    def missing_parts(self, run_directory: RunDirectory, job: Job) -> list[PartKey]:
        """Return the expected parts of a job that must be computed: none if it is finished.

        An evaluation that compares explainers must compute all its parts if one is missing: those on disk say nothing
        about the explainer whose part is missing.
        """
        expected = self.expected_parts(job)
        missing = {key for key in expected if not run_directory.has(key)}
        incomplete = {key.evaluation for key in missing if key.kind == "scores"}
        evaluations = self.configured_for(job).evaluations
        pairwise = {name for name in incomplete if evaluations[name].pairwise}
        return [key for key in expected if key in missing or key.evaluation in pairwise]

    def possible_parts(self, job: Job) -> Iterator[PartKey]:
        """Yield every part that a job may have: the expected ones, and what evaluations write beside their scores."""
        for key in self.expected_parts(job):
            if key.kind == "scores":
                yield PartKey.references(job, key.evaluation, key.explainer)
                yield PartKey.gallery(job, key.evaluation, key.explainer)
            yield key

    def keeps(self, sample: str) -> bool:
        """Return whether the maps of a sample are kept."""
        if isinstance(self.keep_maps, bool):
            return self.keep_maps
        return sample in self.keep_maps

    def megabytes(self) -> float:
        """Return how large the kept maps of features are before they are compressed, in 10⁶ bytes."""
        values = 0
        for name, data in self.data.items():
            kept_samples = sum(self.keeps(i) for i in data.ids[: self.sample_count(name)])
            values += self.map_values[name] * kept_samples
        bytes_per_value = 4
        return 1e-6 * bytes_per_value * values * len(self.models) * len(self.explainers)

    def jobs(self) -> list[Job]:
        """Return every job of the study, in the order in which they are done."""
        jobs = []
        for dataset in self.data:
            for model in self.models:
                for shard in range(len(self.shards(dataset))):
                    jobs.append(Job(dataset, model, shard))
        return jobs

    def amount_of_work(self, key: PartKey) -> int:
        """Return the work that a part takes: samples × conditions; the samples' part takes none."""
        job = Job(key.dataset, key.model, key.shard)
        samples = len(self.positions(job))
        if key.kind == "scores":
            return samples * self.configured_for(job).condition_count(key.evaluation)
        return samples if key.kind == "maps" else 0

    def total_work(self, jobs: Iterable[Job]) -> Counter[str]:
        """Return the work that these jobs take if nothing of them is finished, by step of the progress bar."""
        work: Counter[str] = Counter()
        for job in jobs:
            for key in self.expected_parts(job):
                work[key.step] += self.amount_of_work(key)
        return +work

    def work(self, run_directory: RunDirectory, jobs: Iterable[Job]) -> Counter[str]:
        """Return the work that these jobs still take, by step of the progress bar."""
        work: Counter[str] = Counter()
        for job in jobs:
            for key in self.missing_parts(run_directory, job):
                work[key.step] += self.amount_of_work(key)
        return +work


def make_plan(
    model: Any,
    data: Any,
    explainers: Any,
    evaluations: Any = DEFAULT_EVALUATION,
    *,
    seed: int = 0,
    limit: int | None = None,
    shard_size: int = 32,
    batch_size: int | None = None,
    references: int | None = None,
    device: str | None = None,
    precision: Precision | None = None,
    compile: bool = False,
    keep_maps: bool | Sequence[str] = False,
    ignore: Sequence[str] = (),
    background: Any = None,
    study_file: str = "",
    half_width: float | None = None,
    until: str | None = None,
    margin: float | None = None,
    at_most: int | None = None,
) -> Plan:
    """Return the plan for what `heatproof.evaluate` takes, with everything checked that can be without a model pass.

    Without a precision, the models compute as they were made. Where maps are kept, there may be no evaluation.
    """
    chosen_explainers = registry.explainers(explainers)
    chosen_evaluations: dict[str, Evaluation] = {}
    if not (keep_maps and evaluations in ([], (), {})):
        chosen_evaluations = registry.evaluations(evaluations)
    _check_order(model, data)
    sampling = sampling_of(half_width, until, margin, at_most)
    models = registry.models_of(model, device)
    for network in models.values():
        refuse_no_values(network)
        refuse_nan_weights(network)
    of_study = as_background(background)
    in_use = [of_study, *chosen_explainers.values()]
    frames = [
        rows.frame for item in in_use for rows in backgrounds_in(item) if hasattr(rows, "frame")
    ]
    frames = [frame for frame in frames if frame is not None]
    datasets = registry.datasets_of(data, limit, models, frames)
    if sampling is not None:
        check_whole("seed", seed)
        datasets = {name: in_random_order(source, seed) for name, source in datasets.items()}
    if not models:
        raise UserError("no model is given")
    if not datasets:
        raise UserError("no data is given")
    _set_precision(models, precision, compile)
    check_whole("seed", seed)
    check_whole("shard_size", shard_size, 1)
    if references is not None:
        check_whole("references", references, 2)
    if batch_size is not None:
        check_whole("batch_size", batch_size, 1)
    for name, network in models.items():
        models[name] = with_evident_task(with_frames(network, datasets), datasets)
    check_data_names(chosen_evaluations, datasets)

    # A sample of each data set tells its kind, for which defaults are filled in.
    samples = {name: _first_sample(source) for name, source in datasets.items()}
    reasons: dict[str, str] = {}
    if RECOMMENDED in chosen_explainers:
        reasons = recommended(models, samples.values())
        chosen_explainers = {name: registry.EXPLAINERS[name]() for name in reasons}
    configured = {}
    for dataset, source in datasets.items():
        for name, network in models.items():
            sample = samples[dataset]
            with_backgrounds, background_rows = with_references(
                chosen_explainers,
                dataset,
                source,
                network,
                sample,
                seed,
                references,
                of_study,
            )
            configured[dataset, name] = configure(
                dataset,
                source,
                sample,
                network,
                with_backgrounds,
                chosen_evaluations,
                other_data=len(datasets) > 1,
                background=background_rows,
            )
    return Plan(
        models,
        datasets,
        chosen_explainers,
        chosen_evaluations,
        configured,
        seed=seed,
        shard_size=shard_size,
        batch_size=batch_size,
        references=references,
        reasons=tuple(reasons.values()),
        keep_maps=_check_keep_maps(keep_maps, datasets),
        map_values={name: sample.x[0].numel() for name, sample in samples.items()},
        study_file=study_file,
        ignore=check_rules(ignore),
        sampling=sampling,
        stage_ends=_first_stages(sampling, datasets, chosen_explainers, configured),
    )


def _check_order(model: Any, data: Any) -> None:
    """Raise `UserError` for arguments in the wrong order: data in place of the model."""
    is_data = isinstance(model, Tensor | np.ndarray | Data | Batch) or is_frame(model)
    data_is_model = isinstance(data, nn.Module | Model)
    if is_data or (data_is_model and not isinstance(model, nn.Module | Model)):
        hint = "the model comes first: evaluate(model, data, explainers, ...)"
        raise UserError(
            f"the model is {type(model).__name__} and the data are {type(data).__name__}; {hint}"
        )


def _first_stages(
    sampling: Sampling | None,
    datasets: Mapping[str, Data],
    explainers: Mapping[str, Explainer],
    configured: Mapping[tuple[str, str], ConfiguredStudy],
) -> dict[str, tuple[int, ...]]:
    """Return after how many samples of each data set there is a first look; raise if there would be nothing to look at.

    Empty for a study that tests all samples.
    """
    if sampling is None:
        return {}
    methods = [name for name, explainer in explainers.items() if role_of(explainer) == "method"]
    for (dataset, _), study in configured.items():
        check_tests(sampling, dataset, study.evaluations, methods)
    stages: dict[str, tuple[int, ...]] = {}
    for name, source in datasets.items():
        stages[name] = (look_sizes(sampling, unit_ends(source))[0],)
    return stages


def _set_precision(
    models: Mapping[str, Model], precision: Precision | None, compiled: bool
) -> None:
    """Let all models compute in a precision and through `torch.compile`, where the study asks for it."""
    if not isinstance(compiled, bool):
        raise UserError(f"compile must be true or false, got {compiled!r}")
    if precision is None and not compiled:
        return
    for model in models.values():
        chosen = model.precision if precision is None else check_precision(precision)
        model.use(chosen, compiled)


def _check_keep_maps(
    keep_maps: bool | Sequence[str], datasets: Mapping[str, Data]
) -> bool | tuple[str, ...]:
    """Return whose maps are kept: all samples', none's, or those of the samples named; raise for an unknown sample."""
    if isinstance(keep_maps, bool):
        return keep_maps
    if isinstance(keep_maps, str) or not isinstance(keep_maps, Collection):
        raise UserError(
            f"keep_maps is True, False or a list of names of samples, got {keep_maps!r}"
        )
    samples = {sample for source in datasets.values() for sample in source.ids}
    for sample in keep_maps:
        if sample not in samples:
            close = nearest(str(sample), samples)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UserError(f"unknown sample in keep_maps: {sample!r}{hint}")
    return tuple(keep_maps)


def check_whole(what: str, value: Any, least: int | None = None) -> None:
    """Raise `UserError` unless a parameter is a whole number, of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{what} must be a whole number, got {value!r}")
    if least is not None and value < least:
        raise UserError(f"{what} must be at least {least}, got {value}")


def _first_sample(source: Data) -> Batch:
    """Return the first sample that can be read, as a batch of one."""
    first_error = ""
    for position in range(len(source.ids)):
        loaded = source.load([position])
        if len(loaded.batch):
            return loaded.batch
        if not first_error:
            sample, error = next(iter(loaded.errors.items()))
            first_error = f"the first is {sample!r}: {error}"
        if loaded.transient:  # the storage, and waiting for it at every sample would take days
            break
    raise UserError(f"no sample of {source.name} could be read; {first_error}")


def describe(plan: Plan) -> Study:
    """Return what the manifest of a plan's run says of its study."""
    references = {
        name: load_references(data, plan.seed, plan.references) for name, data in plan.data.items()
    }
    return manifest.describe(
        plan.models,
        plan.data,
        {place: study.explainers for place, study in plan.configured.items()},
        {place: _described_evaluations(study) for place, study in plan.configured.items()},
        plan.seed,
        samples=references,
        references={name: batch.ids for name, batch in references.items()},
        maps="all" if plan.keep_maps is True else plan.keep_maps or None,
        sampling=plan.sampling,
        pilots={name: ends[0] for name, ends in plan.stage_ends.items()},
    )


def _described_evaluations(study: ConfiguredStudy) -> dict[str, dict[str, Any]]:
    """Return what the manifest says of the evaluations of one data set and model."""
    described = {}
    for name, evaluation in study.evaluations.items():
        settings = parameters(evaluation)
        settings.pop("data", None)
        entry = {
            "name": name_of(evaluation),
            **settings,
            "conditions": [list(condition) for condition in evaluation.conditions()],
            "left_out": study.left_out(name),
        }
        if evaluation.data is not None:
            entry["data"] = list(evaluation.data)
        if evaluation.measures:  # of a user's own
            entry["measures"] = [asdict(measure) for measure in evaluation.measures]
        described[name] = entry
    return described
