"""The engine: does the shards of a plan one after another and writes their parts.

Within a shard the clean prediction and each explainer's clean maps are computed once for all evaluations. What is
finished is one part per (dataset, model, evaluation, explainer, shard); what exists is skipped, so resuming is running
again. Only the engine knows batch sizes: when memory runs out it halves them and goes on.
"""

from __future__ import annotations

import math
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
from heatproof.data import Data, Loaded
from heatproof.data.dataset import READING_AHEAD, decoding
from heatproof.errors import UserError
from heatproof.evaluation import Condition, GalleryImage, Pairwise, Scores
from heatproof.models import Model
from heatproof.models.batches import Workbench
from heatproof.models.modality import watches
from heatproof.models.tasks import at, has_probability
from heatproof.runs import tables
from heatproof.runs.differences import listed
from heatproof.runs.directory import Job, PartKey, PartWriter, RunDirectory
from heatproof.runs.kept import MAPS, map_rows
from heatproof.runs.pictures import gallery_rows
from heatproof.runs.plan import Plan
from heatproof.runs.shard import References, Shard, load_references
from heatproof.runs.threads import read_ahead
from heatproof.types import Batch, role_of

PHOTOGRAPH = 3 * 224 * 224
BATCHES = {"cpu": (8, 256), "cuda": (256, 1024)}
"""Inputs in one pass: photographs, and at most, of series and rows of tables. A GPU gains little beyond, and a size
that is measured anew would be another every time."""
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
    workbench: type[Workbench] = Workbench
    _kept: tuple[str, str, Workbench, References] | None = None

    def __call__(self, job: Job, tick: Tick, loaded: Future[Loaded] | None = None) -> None:
        """Do what is not done yet of a shard, whose samples may be on their way already."""
        dataset, model, number = job
        if not self.plan.is_pending(self.directory, job):
            return
        bench, shared = self.workplace(dataset, model)
        positions = self.plan.shards(dataset)[number]
        samples = loaded.result() if loaded is not None else self.plan.data[dataset].load(positions)
        self._refuse_changed(job, samples)
        with self.directory.writer() as writer:
            _run_shard(
                self.plan, self.directory, job, samples, bench, shared, tick, self.seconds, writer
            )
        self.batch_sizes[model] = bench.batch_size

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

    def workplace(self, dataset: str, name: str) -> tuple[Workbench, References]:
        """The bench of a model and the references of a data set, kept until another of them is asked for."""
        if self._kept is None or self._kept[:2] != (dataset, name):
            self._kept = None  # the maps of the last references go before the next are made
            model = self.plan.models[name]
            load = partial(load_references, self.plan.data[dataset], self.plan.seed)
            # Whoever began the run chose the references; every process reads their ids from the manifest.
            named = self.directory.manifest.references(dataset)
            batch = load(len(named), named).to(model.device)
            rows = self.plan.batch_size or usual_rows(batch.x[:1].numel(), model.device.type)
            bench = self.workbench(model, rows)
            shared = References(bench, batch, self.plan.seed, load)
            self._refuse_early(shared)
            self._kept = (dataset, name, bench, shared)
        return self._kept[2:]

    def _refuse_early(self, shared: References) -> None:
        """Explain a reference by every method that a network may lack something for, before others work for hours."""
        model = shared.bench.model
        counted = model.passes, model.gradient_passes
        for name, explainer in self.plan.explainers.items():
            if len(shared.batch) and watches(explainer):
                shared.bench.explain(
                    explainer, name, shared.batch[:1], shared.target[:1], self.plan.seed
                )
        model.passes, model.gradient_passes = counted


def usual_rows(values: int, device: str = "cpu") -> int:
    """How many inputs of so many values go into one pass: a few photographs, many rows of a table.

    On a CPU fewer small pictures than have the values of these photographs, a power of two: networks for them have no
    early stride, and what is above 32 MiB is given back and faulted in again. Where memory runs out, it is halved.

    >>> usual_rows(3 * 224 * 224), usual_rows(3 * 32 * 32), usual_rows(30), usual_rows(3 * 224 * 224, "cuda")
    (8, 32, 256, 256)
    """
    least, most = BATCHES.get(device, BATCHES["cuda"])
    if device == "cpu":
        return min(most, least << max(0, int(math.log2(PHOTOGRAPH / max(values, 1)) / 2)))
    return min(most, max(min(8, least), least * PHOTOGRAPH // max(values, 1)))


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
def on_show(ids: tuple[str, ...], seed: int, most: int = SHOWCASE) -> frozenset[str]:
    """The samples that are kept with their maps, whatever they look like: the order and the shards have no say.

    >>> on_show(("a", "b"), 0) == {"a", "b"}, len(on_show(tuple(map(str, range(99))), 0))
    (True, 12)
    """
    return frozenset(ids[i] for i in rand.keys(seed, ids, "showcase").argsort()[:most].tolist())


def _run_shard(
    plan: Plan,
    run_directory: RunDirectory,
    job: Job,
    loaded: Loaded,
    bench: Workbench,
    shared: References,
    tick: Tick,
    seconds: dict[str, float],
    writer: PartWriter,
) -> None:
    dataset, model_name, number = job
    data = plan.data[dataset]
    positions = plan.shards(dataset)[number]
    batch = loaded.batch.to(bench.model.device)
    pending = plan.pending(run_directory, job)
    if not len(batch):
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
        _write_samples(job, bench.model, data, positions, loaded, None, writer)
        return
    batch = bench.fixed(batch)
    task, logits = bench.model.task, bench.predict(batch)
    if task.name == "classification":
        _check_labels(dataset, batch, logits.shape[1])
    target = task.target(logits)
    readout, chance = at(logits, target), task.probability(logits)
    probability = torch.full_like(readout, torch.nan) if chance is None else at(chance, target)
    prediction = (target, readout, probability)
    _write_samples(job, bench.model, data, positions, loaded, (logits, *prediction), writer)
    showcase, large = on_show(data.ids, plan.seed), on_show(data.ids, plan.seed, IN_LARGE)
    shard = Shard(
        bench, batch, plan.seed, *prediction, plan.explainers, shared, showcase, logits=logits
    )
    for evaluation, names in pending.items():
        if isinstance(
            plan.evaluations[evaluation], Pairwise
        ):  # rows of the new ones go into the parts of the old too
            for kind in (PartKey.scores, PartKey.references):
                run_directory.remove(kind(job, evaluation, name) for name in names)
        shard.explainers = {name: shard.settled(name) for name in names}
        told = shard.announce = partial(_told, tick, evaluation)
        begun = time.perf_counter()
        stream = plan.evaluations[evaluation](shard)
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
        maps = shard.clean(name)[wanted] if wanted else torch.empty(0)
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
