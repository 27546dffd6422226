"""What a study will cost, reckoned from one sample: `heatproof plan` counts passes in place of making them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from heatproof import rand
from heatproof.batching import BatchRunner
from heatproof.explainers.gradient import input_gradient
from heatproof.models import Model
from heatproof.models.model import Read
from heatproof.runs import manifest
from heatproof.runs.atomic import scratch
from heatproof.runs.directory import RunDirectory
from heatproof.runs.engine import Engine
from heatproof.runs.plan import Plan, describe
from heatproof.runs.references import load_references
from heatproof.types import Batch, Explainer


@dataclass
class CostEstimator(BatchRunner):
    """Lets each explainer make one map, and notes its shape and price: passes, differentiated ones, seconds."""

    known: dict[str, tuple[torch.Size, Tensor]] = field(default_factory=dict)
    maps: Counter[str] = field(default_factory=Counter)

    def explain(
        self, explainer: Explainer, name: str, batch: Batch, target: Tensor, seed: int
    ) -> Tensor:
        if name not in self.known:
            before = _spent(self.model)
            shape = super().explain(explainer, name, batch[:1], target[:1], seed).shape[1:]
            self.known[name] = shape, _spent(self.model) - before
        self.maps[name] += len(batch)
        return rand.normal(
            rand.keys(seed, batch.ids, name).to(self.model.device), self.known[name][0]
        )


def _spent(model: Model) -> Tensor:
    inner = getattr(model, "base", model)  # of one that is smoothed
    return torch.tensor(
        [inner.passes, inner.gradient_passes, time.perf_counter()], dtype=torch.float64
    )


def _pretend(model: Model) -> None:
    """Let a linear function answer the passes of a model into which nobody looks."""
    real, base = model._call, list[Tensor]()

    def call(inputs: Tensor, aux: Mapping[str, Tensor], read: Read) -> Tensor:
        watched = model._is_hooked() or torch._C._len_torch_function_stack()
        if watched or getattr(read, "__func__", None) is not Model.read:
            return real(inputs, aux, read)
        if not base:
            with torch.no_grad():
                base.append(
                    real(inputs[:1], {name: value[:1] for name, value in aux.items()}, read)
                )
        weights = rand.normal(rand.keys(0, ("",), "trial").to(inputs.device), inputs.shape[1:])
        return base[0] + 0.01 * (inputs * weights).flatten(1).mean(1, keepdim=True) * (
            base[0] == base[0].amax()
        )

    model._call = call  # type: ignore[method-assign]


def _pace(model: Model, batch: Batch, gradient: bool) -> float:
    """Seconds that a sample of a full batch takes in the network itself, at the second time."""
    x, target = model.inputs(batch), torch.zeros(len(batch), dtype=torch.int64)
    for _ in range(2):
        begun = time.perf_counter()
        with torch.no_grad():
            found = (
                input_gradient(model, x, batch.aux, target)[0]
                if gradient
                else model.logits(x, batch.aux)
            )
        float(found.sum())
    return (time.perf_counter() - begun) / len(batch)


def trial(plan: Plan) -> tuple[float, float]:
    """Passes through the models, and seconds, that one sample of each data set costs, reckoned within seconds.

    Passes are counted, not made, but where a layer is watched: a linear function stands in, so every pair counts as
    retained. An explainer makes one map; noise stands for the others, which are charged at its price.
    """
    one = {
        d: data.only([data.ids.index(load_references(data, 0, 1).ids[0])])
        for d, data in plan.data.items()
    }
    few = replace(plan, data=one, references=2)
    total = torch.zeros(3, dtype=torch.float64)
    with scratch() as folder:
        manifest.begin(folder, describe(few), few.shard_size, "heatproof plan")
        engine = Engine(few, RunDirectory(folder), runner_type=CostEstimator)
        for job in few.jobs():
            model: Model = getattr(few.models[job.model], "base", few.models[job.model])
            before = _spent(model)
            _pretend(model)
            try:
                engine.run_job(job)
            finally:
                del model._call
            references = engine.reference_subject(job)
            estimator = references.runner
            assert isinstance(estimator, CostEstimator)
            more = [
                (estimator.maps[name] - 1) * price for name, (_, price) in estimator.known.items()
            ]
            own = torch.stack([_spent(model) - before, *more]).sum(0)
            for gradient, count in ((False, own[0] - own[1]), (True, own[1])):
                own[2] += (
                    count * _pace(model, references.batch[[0] * estimator.batch_size], gradient)
                    if count
                    else 0
                )
            total += own
    return float(total[0]) / len(few.data), float(total[2]) / len(few.data)
