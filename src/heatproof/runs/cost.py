"""What a study will cost, estimated from two samples: `heatproof plan` counts passes in place of making them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from heatproof import rand
from heatproof.batching import BatchRunner
from heatproof.data import Data
from heatproof.explainers.gradient import input_gradient
from heatproof.models import Model
from heatproof.models.model import Read
from heatproof.runs import manifest
from heatproof.runs.atomic import scratch
from heatproof.runs.directory import Job, RunDirectory
from heatproof.runs.engine import Engine
from heatproof.runs.plan import Plan, describe
from heatproof.runs.references import reference_positions
from heatproof.types import Batch, Explainer

SAMPLES_TRIED = 2
"""How many samples of a data set are tried: the first pays for the references too, so the second tells what one costs."""


@dataclass(frozen=True)
class Estimate:
    """What a study takes: passes through the models, and seconds for each step of the progress bar.

    `work` has the amount of each step, in the unit in which the progress bar advances.
    """

    passes: float
    seconds: Mapping[str, float]
    work: Mapping[str, int]

    @property
    def total_seconds(self) -> float:
        """The seconds of all steps."""
        return sum(self.seconds.values())

    @property
    def seconds_per_amount(self) -> dict[str, float]:
        """The seconds that each step takes to advance by one."""
        return {step: self.seconds.get(step, 0.0) / amount for step, amount in self.work.items()}


def estimate_cost(plan: Plan) -> Estimate:
    """Estimate what a study costs in this process, within seconds.

    Two samples of each data set go through the engine. Passes are counted, not made: a linear function stands in for
    the network, so every pair counts as retained. Only where a layer is watched does the network itself run. An
    explainer makes one map; noise stands for the others, which are charged at its price.
    """
    passes = 0.0
    seconds: dict[str, float] = defaultdict(float)
    # One sample a shard, so that each is a job. References are those of the study: comparing with them takes time.
    one_by_one = replace(plan, shard_size=1, sampling=None, stage_ends={})
    with scratch() as folder:
        manifest.begin(folder, describe(one_by_one), 1, "heatproof plan")
        directory = RunDirectory(folder)
        for dataset, data in plan.data.items():
            positions = _positions_to_try(data, plan.seed)
            for model in plan.models:
                meter = Meter(one_by_one, directory, model)
                costs = [meter.run(Job(dataset, model, position)) for position in positions]
                for step, cost in _extrapolated(costs, plan.sample_count(dataset)).items():
                    passes += float(cost[FORWARD] + cost[DIFFERENTIATED])
                    seconds[step] += float(cost[SECONDS])
    return Estimate(passes, seconds, plan.total_work(plan.jobs()))


def _positions_to_try(data: Data, seed: int) -> list[int]:
    """Return the positions of samples that can be read, those first that are references only if all samples are."""
    positions: list[int] = []
    for position in reversed(reference_positions(data, seed)):
        if len(data.load([position]).batch):
            positions.append(position)
        if len(positions) == SAMPLES_TRIED:
            break
    return positions


def _extrapolated(costs: Sequence[Mapping[str, Tensor]], samples: int) -> dict[str, Tensor]:
    """Return the cost of each step for all samples, from those of the first and of the last that was tried."""
    first, last = costs[0], costs[-1]
    nothing = torch.zeros(3, dtype=torch.float64)
    steps = dict.fromkeys([*first, *last])
    total = {}
    for step in steps:
        of_the_last = last.get(step, nothing)
        total[step] = first.get(step, nothing) + (samples - 1) * of_the_last
    return total


# ---- the cost of a job -----------------------------------------------------------------------------------------------

FORWARD, DIFFERENTIATED, SECONDS = 0, 1, 2
"""The three numbers of a cost: passes without a gradient, passes with one, and seconds."""


class Meter:
    """Runs jobs of one data set and model without most of their passes, and says what each step costs."""

    def __init__(self, plan: Plan, directory: RunDirectory, model_name: str) -> None:
        smoothed_or_plain = plan.models[model_name]
        self.model: Model = getattr(smoothed_or_plain, "base", smoothed_or_plain)
        self.charges = torch.zeros(3, dtype=torch.float64)
        runner_type = partial(CostEstimator, charges=self.charges)
        self.engine = Engine(plan, directory, self._charge, runner_type)
        self.costs: dict[str, Tensor] = {}
        self._running = ""
        self._spent_before = torch.zeros(3, dtype=torch.float64)
        self._pace: dict[bool, float] = {}

    def run(self, job: Job) -> dict[str, Tensor]:
        """Run a job, and return the cost (3,) of each step of the progress bar."""
        self.costs = {}
        self._running = ""
        self._spent_before = self._spent()
        with _linear_stand_in(self.model):
            self.engine.run_job(job)
        with_network = {}
        for step, cost in self.costs.items():
            seconds = cost[FORWARD] * self._seconds_per_pass(job, False)
            seconds += cost[DIFFERENTIATED] * self._seconds_per_pass(job, True)
            with_network[step] = torch.stack([cost[0], cost[1], cost[SECONDS] + seconds])
        return with_network

    def _charge(self, step: str, amount: int) -> None:
        """Charge what was spent since the last call to the step that was running, as the progress bar does."""
        spent = self._spent()
        charged_step = step if amount else self._running
        if charged_step:
            before = self.costs.get(charged_step, 0.0)
            self.costs[charged_step] = before + spent - self._spent_before
            self._spent_before = spent
        self._running = step

    def _spent(self) -> Tensor:
        """Return the cost (3,) until now, with what maps would have cost for which noise stands."""
        return spent_by(self.model) + self.charges

    def _seconds_per_pass(self, job: Job, with_gradient: bool) -> float:
        """Return what a pass of one sample in a full batch takes in the network itself, measured once."""
        if with_gradient not in self._pace:
            references = self.engine.reference_subject(job)
            batch_size = references.runner.batch_size
            full_batch = references.batch[[0] * batch_size]
            self._pace[with_gradient] = _pace(self.model, full_batch, with_gradient)
        return self._pace[with_gradient]


@dataclass
class CostEstimator(BatchRunner):
    """Lets each explainer make one map, and charges its price for every other, for which it gives noise.

    `charges` (3,) grows by the cost of the maps that were not made.
    """

    charges: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))
    price_and_shape: dict[str, tuple[Tensor, torch.Size]] = field(default_factory=dict)

    def explain(
        self, explainer: Explainer, name: str, batch: Batch, target: Tensor, seed: int
    ) -> Tensor:
        """Return noise in the shape of maps (B, …), and charge what the maps would cost."""
        maps_charged = len(batch)
        if name not in self.price_and_shape:
            model = getattr(self.model, "base", self.model)
            before = spent_by(model)
            map_of_one = super().explain(explainer, name, batch[:1], target[:1], seed)
            self.price_and_shape[name] = spent_by(model) - before, map_of_one.shape[1:]
            maps_charged -= 1  # the one that was made has been paid for
        price, shape = self.price_and_shape[name]
        self.charges += maps_charged * price
        keys = rand.keys(seed, batch.ids, name).to(self.model.device)
        return rand.normal(keys, shape)


def spent_by(model: Model) -> Tensor:
    """Return the passes of a model without and with a gradient, and the time, (3,)."""
    forward = model.passes - model.gradient_passes
    counts = (forward, model.gradient_passes, time.perf_counter())
    return torch.tensor(counts, dtype=torch.float64)


@contextmanager
def _linear_stand_in(model: Model) -> Iterator[None]:
    """Let a linear function of the input answer the passes of a model, but for those in which a layer is watched.

    The predicted class stays the same, whatever the input: its score alone varies, by little.
    """
    call_network = model._call
    first_outputs: list[Tensor] = []

    def call(inputs: Tensor, aux: Mapping[str, Tensor], read: Read) -> Tensor:
        """Return the first output of the network, changed a little by the inputs, without a pass."""
        is_watched = model._is_hooked() or torch._C._len_torch_function_stack()
        reads_layers = getattr(read, "__func__", None) is not Model.read
        if is_watched or reads_layers:
            return call_network(inputs, aux, read)
        if not first_outputs:
            first_aux = {name: value[:1] for name, value in aux.items()}
            with torch.no_grad():
                first_outputs.append(call_network(inputs[:1], first_aux, read))
        weights = rand.normal(rand.keys(0, ("",), "trial").to(inputs.device), inputs.shape[1:])
        change = 0.01 * (inputs * weights).flatten(1).mean(1, keepdim=True)
        (output,) = first_outputs
        is_predicted = output == output.amax()
        return output + change * is_predicted

    model._call = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        del model._call


def _pace(model: Model, batch: Batch, with_gradient: bool) -> float:
    """Return the seconds that a sample of a full batch takes in the network itself, the second time."""
    inputs = model.inputs(batch)
    target = torch.zeros(len(batch), dtype=torch.int64)
    for _ in range(2):
        started = time.perf_counter()
        if with_gradient:
            result = input_gradient(model, inputs, batch.aux, target)[0]
        else:
            with torch.no_grad():
                result = model.logits(inputs, batch.aux)
        float(result.sum())  # waits for the device
    return (time.perf_counter() - started) / len(batch)
