"""A checked study: what is done, in which shards, and what of it is still to do; and the checks that make it one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from heatproof.axes import USUAL
from heatproof.data import Data
from heatproof.errors import UserError, unknown
from heatproof.evaluation import Evaluation, Pairwise
from heatproof.models import Model
from heatproof.models.guards import check_arguments
from heatproof.models.precision import Precision, check_precision
from heatproof.models.tasks import has_probability
from heatproof.rules import check_rules
from heatproof.runs import manifest
from heatproof.runs.directory import Job, PartKey, RunDirectory, expected_parts
from heatproof.runs.manifest import Study
from heatproof.runs.references import load_references
from heatproof.runs.study import registry
from heatproof.runs.study.recommended import RECOMMENDED, recommended
from heatproof.runs.usual import (
    with_evident_task,
    with_references,
    with_usual_features,
)
from heatproof.types import Batch, Explainer, Stored, name_of, parameters


def why_left_out(evaluation: str, item: Evaluation, name: str, explainer: Explainer) -> str:
    """Why an evaluation does not judge an explainer; empty where it does.

    An evaluation that `reexplains` may ask for maps of changed inputs, which stored maps are not.
    """
    if explainer.kind not in item.kinds:
        wanted = " and ".join(sorted(item.kinds))
        return f"{evaluation} judges {wanted} explanations, and {name} gives {explainer.kind} explanations"
    if isinstance(explainer, Stored) and item.reexplains:
        return f"{evaluation} explains changed inputs anew, and {name} only has maps of the data as they are"
    return ""


@dataclass(frozen=True)
class Plan:
    """A checked study: every name resolved, every model loaded, every file found."""

    models: Mapping[str, Model]
    data: Mapping[str, Data]
    explainers: Mapping[str, Explainer]
    evaluations: Mapping[str, Evaluation]
    seed: int = 0
    shard_size: int = 32
    batch_size: int | None = None
    references: int | None = None
    reasons: tuple[str, ...] = ()
    keep_maps: bool | tuple[str, ...] = False
    map_values: int = 0
    study_file: str = ""
    ignore: tuple[str, ...] = ()

    def left_out(self, evaluation: str) -> dict[str, str]:
        """explainer -> why this evaluation does not judge it."""
        item = self.evaluations[evaluation]
        reasons = {
            name: why_left_out(evaluation, item, name, explainer)
            for name, explainer in self.explainers.items()
        }
        return {name: why for name, why in reasons.items() if why}

    def notes(self) -> list[str]:
        """What evaluations cannot show as they are set, known before any pass."""
        asked = [
            (e, model)
            for e in self.evaluations.values()
            for model in self.models.values()
            if hasattr(e, "notes")
        ]
        return list(self.reasons) + list(
            dict.fromkeys(note for item, model in asked for note in item.notes(model))
        )

    def shards(self, dataset: str) -> list[range]:
        """The positions of each shard of a data set."""
        n = len(self.data[dataset].ids)
        return [range(i, min(i + self.shard_size, n)) for i in range(0, n, self.shard_size)]

    def judged(self, evaluation: str) -> list[str]:
        """The explainers that an evaluation judges."""
        skipped = self.left_out(evaluation)
        return [name for name in self.explainers if name not in skipped]

    def positions(self, job: Job) -> range:
        """Return the positions of the samples of a job in its data set."""
        return self.shards(job.dataset)[job.shard]

    def expected_parts(self, job: Job) -> list[PartKey]:
        """Return the parts that a finished job has."""
        explainers_of = {name: self.judged(name) for name in self.evaluations}
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
        pairwise = {name for name in incomplete if isinstance(self.evaluations[name], Pairwise)}
        return [key for key in expected if key in missing or key.evaluation in pairwise]

    def possible_parts(self, job: Job) -> Iterator[PartKey]:
        """Yield every part that a job may have: the expected ones, and what evaluations write beside their scores."""
        for key in self.expected_parts(job):
            if key.kind == "scores":
                yield PartKey.references(job, key.evaluation, key.explainer)
                yield PartKey.gallery(job, key.evaluation, key.explainer)
            yield key

    def keeps(self, sample: str) -> bool:
        """Whether the maps of a sample are kept."""
        return self.keep_maps is True or (self.keep_maps is not False and sample in self.keep_maps)

    def megabytes(self) -> float:
        """How large the kept maps of features are before they are compressed, in 10⁶ bytes."""
        samples = sum(self.keeps(sample) for data in self.data.values() for sample in data.ids)
        return 4e-6 * samples * self.map_values * len(self.models) * len(self.explainers)

    def jobs(self) -> list[Job]:
        """Return every job of the study, in the order in which they are done."""
        jobs = []
        for dataset in self.data:
            for model in self.models:
                for shard in range(len(self.shards(dataset))):
                    jobs.append(Job(dataset, model, shard))
        return jobs

    def conditions(self, evaluation: str) -> int:
        """How many conditions an evaluation has for every explainer; of one of pairs, one for every other."""
        if isinstance(self.evaluations[evaluation], Pairwise):
            return len(self.explainers) - len(self.left_out(evaluation)) - 1
        return len(self.evaluations[evaluation].conditions())

    def amount_of_work(self, key: PartKey) -> int:
        """Return the work that a part takes: samples × conditions; the samples' part takes none."""
        samples = len(self.positions(Job(key.dataset, key.model, key.shard)))
        if key.kind == "scores":
            return samples * self.conditions(key.evaluation)
        return samples if key.kind == "maps" else 0

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
    evaluations: Any = USUAL,
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
    study_file: str = "",
) -> Plan:
    """The plan for what `heatproof.evaluate` takes, with everything checked that can be without a model pass.

    Without a precision, the models compute as they were made. Where maps are kept, there may be no evaluation.
    """
    methods = registry.explainers(explainers)
    judges = {} if keep_maps and evaluations in ([], (), {}) else registry.evaluations(evaluations)
    datasets, models = registry.datasets_of(data, limit), registry.models_of(model, device)
    for what, named in (("model", models), ("data", datasets)):
        if not named:
            raise UserError(f"no {what} is given")
    if not isinstance(compile, bool):
        raise UserError(f"compile must be true or false, got {compile!r}")
    if precision is not None or compile:
        for network in models.values():
            network.use(
                network.precision if precision is None else check_precision(precision),
                compile,
            )
    check_whole("seed", seed)
    check_whole("shard_size", shard_size, 1)
    if references is not None:
        check_whole("references", references, 2)
    if batch_size is not None:
        check_whole("batch_size", batch_size, 1)
    models = {name: with_evident_task(network, datasets) for name, network in models.items()}
    reasons = {}
    if RECOMMENDED in methods:
        first = _first_sample(next(iter(datasets.values())))
        reasons = recommended(models, first)
        methods = {name: registry.EXPLAINERS[name]() for name in reasons}
    methods = with_references(methods, datasets, seed, references)
    for source in datasets.values():
        first = _first_sample(source)
        judges = with_usual_features(judges, models, first)
        for network in sorted(
            models.values(), key=lambda model: has_probability(model.task)
        ):  # what all can read
            judges = {name: item.suited(network, first) for name, item in judges.items()}
        methods = _configured_explainers(source, first, models, methods, judges)
    _check_something_to_judge(judges, methods)
    kept = _kept(keep_maps, datasets)
    settings = (
        seed,
        shard_size,
        batch_size,
        references,
        tuple(reasons.values()),
        kept,
        first.x[0].numel(),
        study_file,
    )
    return Plan(models, datasets, methods, judges, *settings, check_rules(ignore))


def _kept(keep_maps: bool | Sequence[str], datasets: Mapping[str, Data]) -> bool | tuple[str, ...]:
    """Whose maps are kept: all samples', none's, or those of the samples that are named."""
    if isinstance(keep_maps, str) or not isinstance(keep_maps, bool | Collection):
        raise UserError(
            f"keep_maps is True, False or a list of names of samples, got {keep_maps!r}"
        )
    if isinstance(keep_maps, bool):
        return keep_maps
    known = {sample for source in datasets.values() for sample in source.ids}
    for sample in keep_maps:
        if sample not in known:
            raise UserError(
                str(unknown("sample in keep_maps", sample, known)).partition(" Allowed")[0]
            )
    return tuple(keep_maps)


def _check_something_to_judge(
    evaluations: Mapping[str, Evaluation], explainers: Mapping[str, Explainer]
) -> None:
    for name, item in evaluations.items():
        if not any(explainer.kind in item.kinds for explainer in explainers.values()):
            kinds = " and ".join(sorted(item.kinds))
            raise UserError(f"{name} judges {kinds} explanations, and no explainer gives them")
        refusals = [
            why_left_out(name, item, label, explainer) for label, explainer in explainers.items()
        ]
        if all(refusals):
            raise UserError(f"{name} has nothing to judge: {refusals[0]}")
        if isinstance(item, Pairwise) and refusals.count("") < 2:
            raise UserError(
                f"{name} compares explainers with each other, and there is one; name another or leave it out"
            )


def check_whole(what: str, value: Any, least: int | None = None) -> None:
    """Raise `UserError` unless a parameter is a whole number, of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{what} must be a whole number, got {value!r}")
    if least is not None and value < least:
        raise UserError(f"{what} must be at least {least}, got {value}")


def _configured_explainers(
    source: Data,
    first: Batch,
    models: Mapping[str, Model],
    explainers: Mapping[str, Explainer],
    evaluations: Mapping[str, Evaluation],
) -> dict[str, Explainer]:
    """Return the explainers for samples such as the first; raise where something does not fit."""
    shape = tuple(first.x.shape[1:])
    configured = dict(explainers)
    for evaluation in evaluations.values():
        evaluation.check(shape)
    for explainer in explainers.values():
        if isinstance(explainer, Stored):
            explainer.check_ids(source.ids, source.name)
    for model in models.values():
        _check_channels(model, source.name, shape)
        check_arguments(model, first.aux)
        problems = []
        for name, explainer in configured.items():
            try:
                configured[name] = explainer.configured_for(model, first)
            except UserError as error:
                problems.append(error)
        raise_all(problems, f"{model.name} on {source.name}")
    return configured


def _check_channels(model: Model, source: str, shape: tuple[int, ...]) -> None:
    for what, values in (("mean", model.mean), ("std", model.std)):
        if values is not None and len(values) > 1 and len(values) != shape[0]:
            channels = f"{len(values)} channels, but samples of {source} have shape {shape}"
            raise UserError(f"the {what} of model {model.name} has {channels}")


def raise_all(problems: Sequence[UserError], where: str) -> None:
    """Raise the problem if there is one, or a list of them."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "\n  ".join(map(str, problems))
        raise UserError(f"{where}:\n  {lines}")


def _first_sample(source: Data) -> Batch:
    """The first sample that can be read, as a batch of one."""
    why = ""
    for position in range(len(source.ids)):
        loaded = source.load([position])
        if len(loaded.batch):
            return loaded.batch
        why = why or f"the first is {next(iter(loaded.errors.items()))}"
        if loaded.transient:  # the storage, and waiting for it at every sample would take days
            break
    raise UserError(f"no sample of {source.name} could be read; {why}")


def describe(plan: Plan) -> Study:
    """Return what the manifest of a plan's run says of its study."""
    evaluations = {}
    for name, item in plan.evaluations.items():
        described = {
            "name": name_of(item),
            **parameters(item),
            "conditions": [list(condition) for condition in item.conditions()],
            "left_out": plan.left_out(name),
        }
        if declared := getattr(item, "measures", ()):  # of somebody's own
            described["measures"] = [asdict(measure) for measure in declared]
        evaluations[name] = described
    references = {
        name: load_references(data, plan.seed, plan.references) for name, data in plan.data.items()
    }
    return manifest.describe(
        plan.models,
        plan.data,
        plan.explainers,
        evaluations,
        plan.seed,
        samples=references,
        references={name: batch.ids for name, batch in references.items()},
        maps="all" if plan.keep_maps is True else plan.keep_maps or None,
    )
