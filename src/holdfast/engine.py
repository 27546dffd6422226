"""The engine: shards of samples, work shared between evaluations and explainers, memory, and finished parts.

Within a shard the clean prediction and each explainer's clean maps are computed once for all evaluations. What is
finished is one part per (dataset, model, evaluation, explainer, shard); what exists is skipped, so resuming is running
again. Only the engine knows batch sizes: when memory runs out it halves them and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast import rand
from holdfast.data import Data
from holdfast.errors import UserError
from holdfast.memory import Workbench
from holdfast.models import Model
from holdfast.table import (
    SAMPLES,
    exhibit_rows,
    exhibits_path,
    part_path,
    samples_path,
    score_rows,
    write_part,
)
from holdfast.types import REDRAW, Batch, Evaluation, Exhibit, Explainer, Scores

REFERENCES = 8
"""How many samples of a data set serve as the other halves of mismatched pairs."""
FEATURE_MAPS = frozenset({"feature"})
"""The kinds of explanations that an evaluation judges unless it says otherwise."""
SHOWCASE = 6
"""How many samples appear in the report's gallery."""

Tick = Callable[[str, int], None]
Job = tuple[str, str, int]
"""What one process does at a time: a shard, by its data set, model and number."""


@dataclass(frozen=True)
class Plan:
    """A checked study: every name resolved, every model loaded, every file found."""

    models: Mapping[str, Model]
    data: Mapping[str, Data]
    explainers: Mapping[str, Explainer]
    evaluations: Mapping[str, Evaluation]
    seed: int = 0
    shard_size: int = 32
    batch_size: int = 8

    def left_out(self, evaluation: str) -> dict[str, str]:
        """explainer -> why this evaluation does not judge it."""
        judged = getattr(self.evaluations[evaluation], "kinds", FEATURE_MAPS)
        kinds = {name: getattr(explainer, "kind", "feature") for name, explainer in self.explainers.items()}
        wanted = " and ".join(sorted(judged))
        return {
            name: f"{evaluation} judges {wanted} explanations, and {name} gives {kind} explanations"
            for name, kind in kinds.items()
            if kind not in judged
        }

    def shards(self, dataset: str) -> list[range]:
        """The positions of each shard of a data set."""
        n = len(self.data[dataset].ids)
        return [range(i, min(i + self.shard_size, n)) for i in range(0, n, self.shard_size)]

    def pending(self, root: Path, dataset: str, model: str, shard: int) -> dict[str, list[str]]:
        """evaluation -> explainers whose part is not there yet."""
        todo: dict[str, list[str]] = {}
        for evaluation in self.evaluations:
            skipped = self.left_out(evaluation)
            missing = [
                name
                for name in self.explainers
                if name not in skipped and not part_path(root, dataset, model, evaluation, name, shard).is_file()
            ]
            if missing:
                todo[evaluation] = missing
        return todo

    def jobs(self) -> list[Job]:
        """Every shard of the study, in the order in which they are done."""
        return [(d, m, number) for d in self.data for m in self.models for number in range(len(self.shards(d)))]

    def is_pending(self, root: Path, job: Job) -> bool:
        """Whether something of a shard is not there yet."""
        return bool(self.pending(root, *job)) or not samples_path(root, *job).is_file()

    def work(self, root: Path, jobs: Iterable[Job] | None = None) -> int:
        """How many explained conditions are left to do, the unit of the progress bar."""
        total = 0
        for dataset, model, number in self.jobs() if jobs is None else jobs:
            samples = len(self.shards(dataset)[number])
            for evaluation, missing in self.pending(root, dataset, model, number).items():
                total += samples * len(missing) * len(self.evaluations[evaluation].conditions())
        return total


@dataclass
class References:
    """A few samples of the data set, the same for every shard, with their maps per explainer."""

    bench: Workbench
    batch: Batch
    seed: int
    target: Tensor = field(init=False)
    maps: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.target = self.bench.predict(self.batch).argmax(1) if len(self.batch) else torch.empty(0)

    def explain(self, name: str, explainer: Explainer) -> Tensor:
        if name not in self.maps:
            self.maps[name] = self.bench.explain(explainer, name, self.batch, self.target, self.seed)
        return self.maps[name]


def reference_positions(data: Data, seed: int) -> list[int]:
    """Positions in the order in which they are tried as references: by a hash of the id, so order does not matter."""
    order: list[int] = rand.keys(seed, data.ids, "references").argsort().tolist()
    return order


def load_references(data: Data, seed: int) -> Batch:
    """The first readable samples in that order."""
    order = reference_positions(data, seed)
    batches, found = [], 0
    for start in range(0, len(order), REFERENCES):
        loaded = data.load(order[start : start + REFERENCES]).batch
        if len(loaded):
            batches.append(loaded[: REFERENCES - found])
            found += len(batches[-1])
        if found == REFERENCES:
            break
    if not batches:
        raise UserError(f"no sample of {data.name} could be read; the first error is {_first_error(data)}")
    return Batch(tuple(i for b in batches for i in b.ids), torch.cat([b.x for b in batches]), _join_aux(batches))


def _join_aux(batches: Sequence[Batch]) -> dict[str, Tensor]:
    return {name: torch.cat([b.aux[name] for b in batches]) for name in batches[0].aux}


def _first_error(data: Data) -> str:
    errors = data.load([0]).errors
    return next(iter(errors.values()), "unknown")


@dataclass
class Shard:
    """The `Subject` that evaluations see: one shard of samples of one model."""

    bench: Workbench
    batch: Batch
    seed: int
    target: Tensor
    probability: Tensor
    all_explainers: Mapping[str, Explainer]
    shared: References
    showcase: frozenset[str]
    explainers: Mapping[str, Explainer] = field(default_factory=dict)
    _clean: dict[str, Tensor] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        return self.bench.model

    @property
    def references(self) -> Batch:
        return self.shared.batch

    def predict(self, batch: Batch) -> Tensor:
        return self.bench.predict(batch)

    def clean(self, explainer: str) -> Tensor:
        if explainer not in self._clean:
            self._clean[explainer] = self._explain_unless_known(explainer)
        return self._clean[explainer]

    def _explain_unless_known(self, explainer: str) -> Tensor:
        """Maps of the shard's samples; those of samples that are references too exist already."""
        known = self.reference(explainer)
        where = {sample: i for i, sample in enumerate(self.references.ids)}
        new = [i for i, sample in enumerate(self.batch.ids) if sample not in where]
        found = self.explain(explainer, self.batch[new], self.target[new]) if new else known[:0]
        place = {self.batch.ids[i]: found[j] for j, i in enumerate(new)}
        return torch.stack([place[s] if s in place else known[where[s]] for s in self.batch.ids])

    def explain(self, explainer: str, batch: Batch, target: Tensor, seed: int | None = None) -> Tensor:
        chosen = self.seed if seed is None else seed
        return self.bench.explain(self.all_explainers[explainer], explainer, batch, target, chosen)

    def compute(self, call: Callable[[Batch, Tensor], Tensor], batch: Batch, extra: Tensor) -> Tensor:
        return self.bench.map(call, batch, extra)

    def reference(self, explainer: str) -> Tensor:
        return self.shared.explain(explainer, self.all_explainers[explainer])


@dataclass
class Runner:
    """Does shards one after another; what they share is kept while the data set and the model stay the same."""

    plan: Plan
    root: Path
    seconds: dict[str, float] = field(default_factory=dict)
    _kept: tuple[str, str, Workbench, References] | None = None

    def __call__(self, job: Job, tick: Tick) -> None:
        """Do what is not done yet of a shard."""
        dataset, model, number = job
        if not self.plan.is_pending(self.root, job):
            return
        bench, shared = self._workplace(dataset, model)
        positions = self.plan.shards(dataset)[number]
        _run_shard(self.plan, self.root, job, positions, bench, shared, tick, self.seconds)

    def _workplace(self, dataset: str, name: str) -> tuple[Workbench, References]:
        if self._kept is None or self._kept[:2] != (dataset, name):
            self._kept = None  # the maps of the last references go before the next are made
            model = self.plan.models[name]
            bench = Workbench(model, self.plan.batch_size)
            batch = load_references(self.plan.data[dataset], self.plan.seed).to(model.device)
            self._kept = (dataset, name, bench, References(bench, batch, self.plan.seed))
        return self._kept[2:]


def run_shards(plan: Plan, root: Path, tick: Tick, jobs: Iterable[Job] | None = None) -> dict[str, float]:
    """Do everything that is not done yet, or these shards of it; seconds per evaluation.

    What evaluations share, such as clean maps, counts for the first that asks for it.
    """
    runner = Runner(plan, root)
    for job in plan.jobs() if jobs is None else jobs:
        runner(job, tick)
    return {evaluation: round(spent, 2) for evaluation, spent in runner.seconds.items()}


def _run_shard(
    plan: Plan,
    root: Path,
    place: Job,
    positions: range,
    bench: Workbench,
    shared: References,
    tick: Tick,
    seconds: dict[str, float],
) -> None:
    dataset, model_name, number = place
    data = plan.data[dataset]
    loaded = data.load(positions)
    batch = loaded.batch.to(bench.model.device)
    pending = plan.pending(root, *place)
    if not len(batch):
        for evaluation, names in pending.items():
            for name in names:
                empty = score_rows(dataset, model_name, evaluation, (), ())
                write_part(part_path(root, dataset, model_name, evaluation, name, number), empty)
                tick(name, len(positions) * len(plan.evaluations[evaluation].conditions()))
        _write_samples(root, place, bench.model, data, positions, batch, None, loaded.errors)
        return
    logits = bench.predict(batch)
    target = logits.argmax(1)
    probability = logits.softmax(1).gather(1, target[:, None])[:, 0]
    _write_samples(root, place, bench.model, data, positions, batch, (target, probability), loaded.errors)
    showcase = frozenset(data.ids[:SHOWCASE])
    _write_inputs(root, place, batch, showcase)
    shard = Shard(bench, batch, plan.seed, target, probability, plan.explainers, shared, showcase)
    for evaluation, names in pending.items():
        shard.explainers = {name: plan.explainers[name] for name in names}
        begun = time.perf_counter()
        stream = plan.evaluations[evaluation](shard)
        for name, results in groupby(_ticking(stream, tick, len(positions)), key=lambda r: r.explainer):
            kept = list(results)
            exhibits = [r for r in kept if isinstance(r, Exhibit)]
            if exhibits:
                target_path = exhibits_path(root, dataset, model_name, evaluation, name, number)
                write_part(target_path, exhibit_rows(dataset, model_name, evaluation, exhibits))
            rows = score_rows(dataset, model_name, evaluation, batch.ids, [r for r in kept if isinstance(r, Scores)])
            write_part(part_path(root, dataset, model_name, evaluation, name, number), rows)
        seconds[evaluation] = seconds.get(evaluation, 0.0) + time.perf_counter() - begun


def _write_inputs(root: Path, place: tuple[str, str, int], batch: Batch, showcase: frozenset[str]) -> None:
    """The first images as the model sees them, so that a reader notices data that was loaded wrongly."""
    dataset, model_name, number = place
    shown = [
        Exhibit("", "clean", 0.0, sample, x, None)
        for sample, x in zip(batch.ids, batch.x, strict=True)
        if sample in showcase and x.ndim == 3
    ]
    if shown:
        path = exhibits_path(root, dataset, model_name, "inputs", "", number)
        write_part(path, exhibit_rows(dataset, model_name, "inputs", shown))


def _ticking(stream: Iterator[Scores | Exhibit], tick: Tick, amount: int) -> Iterator[Scores | Exhibit]:
    """Pass results through, and tell the progress bar of every condition that is new."""
    seen: set[tuple[str, str, float]] = set()
    for result in stream:
        place = (result.explainer, result.condition, result.level)
        if isinstance(result, Scores) and place not in seen and result.condition != REDRAW:
            seen.add(place)
            tick(result.explainer, amount)
        yield result


def _write_samples(
    root: Path,
    place: tuple[str, str, int],
    model: Model,
    data: Data,
    positions: Sequence[int],
    batch: Batch,
    prediction: tuple[Tensor, Tensor] | None,
    errors: Mapping[str, str],
) -> None:
    import pyarrow as pa

    dataset, model_name, number = place
    where = {sample: i for i, sample in enumerate(batch.ids)}
    rows: list[dict[str, Any]] = []
    for sample in (data.ids[p] for p in positions):
        row: dict[str, Any] = {"dataset": dataset, "model": model_name, "sample": sample}
        i = where.get(sample)
        if i is None or prediction is None:
            row |= {"label": None, "predicted": None, "predicted_name": "", "probability": None}
            row["error"] = errors.get(sample, "not loaded")
        else:
            label = None if batch.label is None else int(batch.label[i])
            predicted = int(prediction[0][i])
            row |= {
                "label": label if label is not None and label >= 0 else None,
                "predicted": predicted,
                "predicted_name": model.class_name(predicted),
                "probability": float(prediction[1][i]),
                "error": "",
            }
        rows.append(row)
    write_part(samples_path(root, dataset, model_name, number), pa.Table.from_pylist(rows, schema=SAMPLES))
