"""What a study will cost, from its first sample: maps are drawn and most passes pretended, so that it takes seconds.

Passes are counted and not made, but where a layer is watched: a linear function about the network's answer to the first
input stands in, whose predictions never change, so every pair counts as retained. Each explainer makes one map in that
way and is charged for every map that an axis asks for; these are noise. The time is that of all this, of the
explainers for as many maps, and of the passes at the rates of the network itself.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from holdfast import rand
from holdfast.explainers.gradient import input_gradient
from holdfast.models import Model
from holdfast.models.batches import Workbench
from holdfast.models.model import Read
from holdfast.runs import manifest
from holdfast.runs.engine import Runner
from holdfast.runs.plan import Plan, describe
from holdfast.types import Batch, Explainer


@dataclass
class Tally(Workbench):
    """A bench on which an explainer makes one map, and noise stands for the others."""

    maps: Counter[str] = field(default_factory=Counter)
    cost: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    shapes: dict[str, torch.Size] = field(default_factory=dict)

    def explain(self, explainer: Explainer, name: str, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Noise in the shape of the maps; what one of them costs is known from the first."""
        if name not in self.cost:
            begun, before = time.perf_counter(), (self.model.passes, self.model.gradient_passes)
            self.shapes[name] = super().explain(explainer, name, batch[:1], target[:1], seed).shape[1:]
            passes, gradients = self.model.passes - before[0], self.model.gradient_passes - before[1]
            self.cost[name] = passes, gradients, time.perf_counter() - begun
        self.maps[name] += len(batch)
        return rand.normal(rand.keys(seed, batch.ids, name).to(self.model.device), self.shapes[name])


@contextmanager
def pretended(model: Model) -> Iterator[None]:
    """Let a linear function answer the passes of a model into which nobody looks."""
    real, base = model._call, list[Tensor]()

    def call(inputs: Tensor, aux: Mapping[str, Tensor], read: Read) -> Tensor:
        watched = model._is_hooked() or torch._C._len_torch_function_stack()
        if watched or getattr(read, "__func__", None) is not Model.read:
            return real(inputs, aux, read)
        if not base:
            with torch.no_grad():
                base.append(real(inputs[:1], {name: value[:1] for name, value in aux.items()}, read))
        weights = rand.normal(rand.keys(0, ("",), "trial").to(inputs.device), inputs.shape[1:])
        return base[0] + 0.01 * (inputs * weights).flatten(1).mean(1, keepdim=True) * (base[0] == base[0].amax())

    model._call = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        del model._call


def _network(model: Model, batch: Batch, rows: int, passes: int, differentiated: int) -> float:
    """Seconds of so many passes through the network itself, some of them differentiated, in full batches."""
    batch = model.fixed(batch[[0] * rows].to(model.device))
    seconds = 0.0
    target = torch.zeros(rows, dtype=torch.int64, device=model.device)

    def forward(part: Batch) -> Tensor:
        with torch.no_grad():
            return model.logits(model.inputs(part), part.aux)

    def gradient(part: Batch) -> Tensor:
        return input_gradient(model, model.inputs(part), part.aux, target[: len(part)])[0]

    for call, count in ((forward, passes - differentiated), (gradient, differentiated)):
        if count:
            float(
                call(batch if model.device.type == "cuda" else batch[:1]).sum()
            )  # where kernels are built, for the same size
            begun = time.perf_counter()
            float(call(batch).sum())
            seconds += count * (time.perf_counter() - begun) / rows
    return seconds


def trial(plan: Plan) -> tuple[float, float]:
    """Passes through the models, and seconds, that one sample of each data set costs."""
    few = replace(plan, data={name: data.limit(1) for name, data in plan.data.items()}, references=2)
    passes, seconds = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        manifest.begin(Path(folder), describe(few), few.shard_size, "holdfast plan")
        runner = Runner(few, Path(folder), workbench=Tally)
        for job in few.jobs():
            model = few.models[job[1]]
            counts, begun = (model.passes, model.gradient_passes), time.perf_counter()
            with pretended(model):
                runner(job, lambda what, amount: None)
            seconds += time.perf_counter() - begun
            bench, _ = runner.workplace(*job[:2])
            assert isinstance(bench, Tally)
            made = [model.passes - counts[0], model.gradient_passes - counts[1]]
            for name, (each, differentiated, spent) in bench.cost.items():
                more = bench.maps[name] - 1
                made[0], made[1] = made[0] + more * each, made[1] + more * differentiated
                seconds += more * spent
            passes += made[0]
            seconds += _network(model, few.data[job[0]].load([0]).batch, bench.batch_size, *made)
    return passes / len(few.data), seconds / len(few.data)
