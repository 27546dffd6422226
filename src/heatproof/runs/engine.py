"""The engine: does the shards of a plan one after another and writes their parts.

Within a shard the clean prediction and each explainer's clean maps are computed once for all evaluations. What is
finished is one part per (dataset, model, evaluation, explainer, shard); what exists is skipped, so resuming is running
again. Only the engine knows batch sizes: when memory runs out it halves them and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from heatproof import rand
from heatproof.batching import BatchRunner, default_batch_size
from heatproof.data import Data, Loaded
from heatproof.data.dataset import READING_AHEAD, decoding
from heatproof.errors import UserError
from heatproof.evaluation import Condition, GalleryImage, Pairwise, Scores
from heatproof.models import Model
from heatproof.models.tasks import has_probability
from heatproof.runs import tables
from heatproof.runs.differences import listed
from heatproof.runs.directory import Job, PartKey, PartWriter, RunDirectory
from heatproof.runs.kept import MAPS, map_rows
from heatproof.runs.pictures import gallery_rows
from heatproof.runs.plan import Plan
from heatproof.runs.references import load_references
from heatproof.runs.threads import read_ahead
from heatproof.subject import Subject
from heatproof.types import Batch, role_of

SHOWCASE = 12
"""How many samples are kept with their maps for the proof sheet; they are drawn by key, before anything is computed."""
IN_LARGE = 6
"""Those of them whose maps are kept in their full size."""

Tick = Callable[[str, int], None]


@dataclass
class Runner:
    """Does shards one after another; what they share is kept while the data set and the model stay the same."""

    plan: Plan
    directory: RunDirectory
    seconds: dict[str, float] = field(default_factory=dict)
    batch_sizes: dict[str, int] = field(default_factory=dict)
    runner_type: type[BatchRunner] = BatchRunner
    _references: tuple[str, str, Subject] | None = None

    def __call__(self, job: Job, tick: Tick, loaded: Future[Loaded] | None = None) -> None:
        """Do what is not done yet of a shard, whose samples may be on their way already."""
        dataset, model, number = job
        if not self.plan.is_pending(self.directory, job):
            return
        references = self.reference_subject(dataset, model)
        positions = self.plan.shards(dataset)[number]
        samples = loaded.result() if loaded is not None else self.plan.data[dataset].load(positions)
        self._refuse_changed(job, samples)
        with self.directory.writer() as writer:
            _run_shard(
                self.plan, self.directory, job, samples, references, tick, self.seconds, writer
            )
        self.batch_sizes[model] = references.runner.batch_size

    def _refuse_changed(self, job: Job, samples: Loaded) -> None:
        """Raise where samples are not what they were when an earlier session, or another model, was given them."""
        dataset, _, number = job
        models = self.directory.manifest.study.models
        keys = [PartKey.samples((dataset, model, number)) for model in models]
        rows = tables.read_rows(self.directory.root, self.directory.existing_files(keys))
        known = {row["sample"]: row["digest"] for row in rows if row["digest"]}
        changed = [
            name for name, digest in samples.digests.items() if known.get(name, digest) != digest
        ]
        if changed:
            raise UserError(
                f"{dataset} has changed since {self.directory} was begun; choose another directory or restore "
                f"{listed(changed)}"
            )

    def reference_subject(self, dataset: str, name: str) -> Subject:
        """Return the references of a data set on a model, kept until others are asked for."""
        if self._references is None or self._references[:2] != (dataset, name):
            self._references = (
                None  # frees the maps of the last references before new ones are made
            )
            model, data, seed = self.plan.models[name], self.plan.data[dataset], self.plan.seed
            # Whoever began the run chose the references; every process reads their ids from the manifest.
            ids = self.directory.manifest.references(dataset)
            batch = load_references(data, seed, ids=ids).to(model.device)
            batch_size = self.plan.batch_size
            if batch_size is None:
                batch_size = default_batch_size(batch.x[:1].numel(), model.device.type)
            runner = self.runner_type(model, batch_size)
            load_samples = partial(load_references, data, seed)
            references = Subject.of_references(
                runner, batch, self.plan.explainers, seed, load_samples
            )
            references.explain_one_sample()
            self._references = (dataset, name, references)
        return self._references[2]


def run_shards(
    plan: Plan, run_directory: RunDirectory, tick: Tick, jobs: Iterable[Job] | None = None
) -> dict[str, Any]:
    """Do everything that is not done yet, or these shards of it; seconds per evaluation, and batch size per model.

    What evaluations share, such as clean maps, counts for the first that asks for it. While a shard is worked on, the
    files of the next are read.
    """
    runner = Runner(plan, run_directory)
    jobs = plan.jobs() if jobs is None else jobs
    todo = [job for job in jobs if plan.is_pending(run_directory, job)]
    with decoding(), ThreadPoolExecutor(1, READING_AHEAD) as reader:
        ahead = read_ahead(plan, todo[:1], reader)
        for following, job in enumerate(todo, start=1):
            loaded, ahead = ahead, read_ahead(plan, todo[following : following + 1], reader)
            runner(job, tick, loaded)
    durations = {evaluation: round(spent, 2) for evaluation, spent in runner.seconds.items()}
    return {"durations": durations, "batch_sizes": runner.batch_sizes}


@lru_cache(maxsize=8)
def gallery_ids(ids: tuple[str, ...], seed: int, most: int = SHOWCASE) -> frozenset[str]:
    """The samples that are kept with their maps, whatever they look like: the order and the shards have no say.

    >>> gallery_ids(("a", "b"), 0) == {"a", "b"}, len(gallery_ids(tuple(map(str, range(99))), 0))
    (True, 12)
    """
    return frozenset(ids[i] for i in rand.keys(seed, ids, "showcase").argsort()[:most].tolist())


def _run_shard(
    plan: Plan,
    run_directory: RunDirectory,
    job: Job,
    loaded: Loaded,
    shared: Subject,
    tick: Tick,
    seconds: dict[str, float],
    writer: PartWriter,
) -> None:
    dataset, model_name, number = job
    data = plan.data[dataset]
    positions = plan.shards(dataset)[number]
    pending = plan.pending(run_directory, job)
    if not len(loaded.batch):
        for evaluation, names in pending.items():
            for name in names:
                empty = partial(
                    tables.score_rows,
                    dataset,
                    model_name,
                    evaluation,
                    role_of(plan.explainers[name]),
                    (),
                    (),
                )
                writer.write(PartKey.scores(job, evaluation, name), empty)
                _told(tick, evaluation, name, len(positions) * plan.conditions(evaluation))
        for name in plan.unkept(run_directory, job):
            writer.write(PartKey.maps(job, name), MAPS.empty_table)
            _told(tick, "maps", name, len(positions))
        _write_samples(job, shared.model, data, positions, loaded, None, writer)
        return
    shown, large = gallery_ids(data.ids, plan.seed), gallery_ids(data.ids, plan.seed, IN_LARGE)
    subject = shared.for_batch(loaded.batch, shown)
    batch, target = subject.batch, subject.target
    if subject.model.task.name == "classification":
        _check_labels(dataset, batch, subject.logits.shape[1])
    prediction = (subject.logits, target, subject.readout, subject.probability)
    _write_samples(job, subject.model, data, positions, loaded, prediction, writer)
    for evaluation, names in pending.items():
        if isinstance(
            plan.evaluations[evaluation], Pairwise
        ):  # rows of the new ones go into the parts of the old too
            for kind in (PartKey.scores, PartKey.references):
                run_directory.remove(kind(job, evaluation, name) for name in names)
        told = partial(_told, tick, evaluation)
        begun = time.perf_counter()
        stream = plan.evaluations[evaluation](subject.with_explainers(names))
        for name, results in groupby(
            _ticking(stream, told, len(positions), plan.evaluations[evaluation].conditions()),
            key=lambda r: r.explainer,
        ):
            kept = list(results)
            gallery = [r for r in kept if isinstance(r, GalleryImage)]
            if gallery:
                writer.write(
                    PartKey.gallery(job, evaluation, name),
                    partial(gallery_rows, dataset, model_name, evaluation, gallery, data, large),
                )
            scores = [r for r in kept if isinstance(r, Scores)]
            # Before the scores, whose part says that this piece of work is finished.
            references = tables.reference_rows(
                dataset, model_name, evaluation, shared.batch.ids, scores
            )
            if len(references):
                writer.write(PartKey.references(job, evaluation, name), references.slice)
            role = role_of(plan.explainers[name])
            rows = partial(
                tables.score_rows, dataset, model_name, evaluation, role, batch.ids, scores
            )
            writer.write(PartKey.scores(job, evaluation, name), rows)
        seconds[evaluation] = seconds.get(evaluation, 0.0) + time.perf_counter() - begun
    wanted = [i for i, sample in enumerate(batch.ids) if plan.keeps(sample)]
    for name in plan.unkept(run_directory, job):
        _told(tick, "maps", name)
        maps = subject.maps(name)[wanted] if wanted else torch.empty(0)
        rows = partial(
            map_rows,
            dataset,
            model_name,
            name,
            [batch.ids[i] for i in wanted],
            target[wanted],
            maps,
        )
        writer.write(PartKey.maps(job, name), rows)
        _told(tick, "maps", name, len(positions))


def _check_labels(dataset: str, batch: Batch, classes: int) -> None:
    """Raise where a label is none of the model's classes; one of −1 is not known."""
    for sample, label in zip(
        batch.ids, () if batch.label is None else batch.label.tolist(), strict=False
    ):
        if not -1 <= label < classes:
            raise UserError(
                f"{sample!r} of {dataset} has the label {label}, and the model has the classes 0 to {classes - 1}; "
                "give labels that are its classes, or none"
            )


def _told(tick: Tick, evaluation: str, explainer: str, amount: int = 0) -> None:
    tick(f"{evaluation} of {explainer}", amount)


def _ticking(
    stream: Iterator[Scores | GalleryImage],
    tick: Tick,
    amount: int,
    announced: Collection[Condition],
) -> Iterator[Scores | GalleryImage]:
    """Pass results through, and tell the progress bar of every condition that is new.

    Only conditions that were `announced` count, if any were: noise floors and other checks have conditions besides.
    """
    seen: set[tuple[str, Condition]] = set()
    for result in stream:
        condition = (result.condition, result.level)
        is_new = isinstance(result, Scores) and (result.explainer, condition) not in seen
        if is_new and (not announced or condition in announced):
            seen.add((result.explainer, condition))
            tick(result.explainer, amount)
        yield result


def _write_samples(
    job: Job,
    model: Model,
    data: Data,
    positions: Sequence[int],
    loaded: Loaded,
    prediction: tuple[Tensor, Tensor, Tensor, Tensor] | None,
    writer: PartWriter,
) -> None:
    import pyarrow as pa

    dataset, model_name, _ = job
    batch = loaded.batch
    index = {sample: i for i, sample in enumerate(batch.ids)}
    probable = has_probability(model.task)
    rows: list[dict[str, Any]] = []
    for position in positions:
        sample = data.ids[position]
        row: dict[str, Any] = {"dataset": dataset, "model": model_name, "sample": sample}
        row["group"] = "" if data.groups is None else data.groups[position]
        row |= {"digest": loaded.digests.get(sample, ""), "transient": sample in loaded.transient}
        i = index.get(sample)
        if i is None or prediction is None:
            row |= dict.fromkeys(("label", "predicted", "readout", "probability"), None) | {
                "predicted_name": ""
            }
            row["error"] = loaded.errors.get(sample, "not loaded")
        else:
            label = None if batch.label is None else int(batch.label[i])
            logits, target, readout, probability = (values[i] for values in prediction)
            row |= {
                "label": label if label is not None and label >= 0 else None,
                "predicted": int(target),
                "predicted_name": model.task.shown(logits, int(target), model.class_name),
                "readout": float(readout),
                "probability": float(probability) if probable else None,
                "error": "",
            }
        rows.append(row)
    writer.write(
        PartKey.samples(job),
        partial(pa.Table.from_pylist, rows, schema=tables.SAMPLES),
    )
