"""What a study will cost, estimated from two samples: `heatproof plan` counts passes in place of making them."""

from __future__ import annotations

import time
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
MAPS_PRICED = 4
"""How many maps of an explainer are made together to find what one costs."""
QUICK = 0.5
"""An explainer whose first map takes more seconds is asked for no more."""
GROUP = 8
"""How many samples are tried together."""
WORTH_A_GROUP = 24
"""From how many samples on a group is tried: smaller data sets take seconds anyway."""
WORTH_AN_ESTIMATE = 24
"""From how many samples on a run estimates before it starts how long it takes, which costs about what two samples cost."""
FORWARD, DIFFERENTIATED, SECONDS = 0, 1, 2
"""The three numbers of a cost: passes without a gradient, passes with one, and seconds."""


@dataclass(frozen=True)
class StepCost:
    """What one step, such as "stability of lime", costs on one data set and model; costs (3,) as in `Meter`.

    `first` is the cost of the first sample, with which the references are worked on, and `another` that of every other.
    """

    dataset: str
    step: str
    first: Tensor
    another: Tensor

    def of_samples(self, samples: int) -> Tensor:
        """Return the cost (3,) for so many samples."""
        return self.first + (samples - 1) * self.another


@dataclass(frozen=True)
class Estimate:
    """What a study takes: passes through the models, and seconds for each step of the progress bar.

    `samples` has the number of samples of each data set, and `work` the amount of each step for these, in the unit in
    which the progress bar advances.
    """

    costs: Sequence[StepCost]
    samples: Mapping[str, int]
    work: Mapping[str, int]

    @property
    def passes(self) -> float:
        """The passes of all steps."""
        return sum(self.passes_of_steps.values())

    @property
    def total_seconds(self) -> float:
        """The seconds of all steps."""
        return sum(self.seconds.values())

    @property
    def passes_of_steps(self) -> dict[str, float]:
        """The passes of each step."""
        return {step: float(cost[FORWARD] + cost[DIFFERENTIATED]) for step, cost in self._by_step()}

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each step."""
        return {step: float(cost[SECONDS]) for step, cost in self._by_step()}

    @property
    def seconds_per_amount(self) -> dict[str, float]:
        """The seconds that each step takes to advance by one."""
        seconds = self.seconds
        return {step: seconds.get(step, 0.0) / amount for step, amount in self.work.items()}

    def for_samples(self, samples: Mapping[str, int]) -> Estimate:
        """Return the estimate for other numbers of samples; its `work` stays that of the plan."""
        return replace(self, samples=samples)

    def seconds_for(self, work: Mapping[str, int]) -> float:
        """Return the seconds of so much work of each step, such as what is missing of a run."""
        per_amount = self.seconds_per_amount
        return sum(amount * per_amount[step] for step, amount in work.items())

    def _by_step(self) -> list[tuple[str, Tensor]]:
        """Return the cost (3,) of each step, over all data sets and models."""
        totals: dict[str, Tensor] = {}
        for cost in self.costs:
            of_all_samples = cost.of_samples(self.samples[cost.dataset])
            totals[cost.step] = totals.get(cost.step, 0.0) + of_all_samples
        return list(totals.items())


def estimate_if_worth_it(plan: Plan, jobs: Sequence[Job]) -> Estimate | None:
    """Return the estimate of a study before these jobs of it are run; None where they are so few that it does not pay."""
    samples = sum(len(plan.positions(job)) for job in jobs)
    return estimate_cost(plan) if samples >= WORTH_AN_ESTIMATE else None


def estimate_cost(plan: Plan) -> Estimate:
    """Estimate what a study costs in this process, within seconds.

    Two samples of each data set go through the engine, and of a larger data set a group of eight: what a sample takes
    besides passes, such as the comparison of maps, is less where samples are worked on together. Passes are counted, not
    made: a linear function stands in for the network, so every pair counts as retained. Only where a layer is watched
    does the network itself run. An explainer makes a few maps; noise stands for the others, which are charged at their
    price.
    """
    step_costs: list[StepCost] = []
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
                first, another = costs[0], costs[-1]
                if plan.sample_count(dataset) >= WORTH_A_GROUP:
                    another = _cost_in_group(plan, meter, dataset, model)
                step_costs += _step_costs(dataset, first, another)
    samples = {dataset: plan.sample_count(dataset) for dataset in plan.data}
    return Estimate(step_costs, samples, plan.total_work(plan.jobs()))


def _positions_to_try(data: Data, seed: int) -> list[int]:
    """Return the positions of samples that can be read, those first that are references only if all samples are."""
    positions: list[int] = []
    for position in reversed(reference_positions(data, seed)):
        if len(data.load([position]).batch):
            positions.append(position)
        if len(positions) == SAMPLES_TRIED:
            break
    return positions


def _cost_in_group(plan: Plan, meter: Meter, dataset: str, model: str) -> dict[str, Tensor]:
    """Return the cost (3,) of each step for a sample that is worked on with others.

    The group is the one with the fewest references among its samples, whose maps are there already.
    """
    data = plan.data[dataset]
    is_reference = set(reference_positions(data, plan.seed))
    groups = range(plan.sample_count(dataset) // GROUP)
    in_group = {
        group: len(is_reference.intersection(range(group * GROUP, (group + 1) * GROUP)))
        for group in groups
    }
    group = min(groups, key=lambda number: in_group[number])
    readable = max(len(data.load(list(range(group * GROUP, (group + 1) * GROUP))).batch), 1)
    with scratch() as folder:
        in_groups = replace(plan, shard_size=GROUP, sampling=None, stage_ends={})
        manifest.begin(folder, describe(in_groups), GROUP, "heatproof plan")
        costs = meter.in_shards_of(in_groups, RunDirectory(folder)).run(Job(dataset, model, group))
    return {step: cost / readable for step, cost in costs.items()}


def _step_costs(
    dataset: str, first: Mapping[str, Tensor], last: Mapping[str, Tensor]
) -> Iterator[StepCost]:
    """Yield the cost of every step, from those of the first and of the last sample that was tried."""
    nothing = torch.zeros(3, dtype=torch.float64)
    for step in dict.fromkeys([*first, *last]):
        yield StepCost(dataset, step, first.get(step, nothing), last.get(step, nothing))


# ---- the cost of a job -----------------------------------------------------------------------------------------------


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

    def in_shards_of(self, plan: Plan, directory: RunDirectory) -> Meter:
        """Return this meter for shards of another size; the references stay as they are."""
        self.engine.plan, self.engine.directory = plan, directory
        return self

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
            maps_charged -= self._find_price(explainer, name, batch, target, seed)
        price, shape = self.price_and_shape[name]
        self.charges += maps_charged * price
        keys = rand.keys(seed, batch.ids, name).to(self.model.device)
        return rand.normal(keys, shape)

    def _find_price(
        self, explainer: Explainer, name: str, batch: Batch, target: Tensor, seed: int
    ) -> int:
        """Note what a map of an explainer costs, and return how many maps were made for that, which have been paid for.

        The first map pays for imports and for being alone, so a quick explainer has its price from a few more.
        """
        price, map_of_one = self._price(explainer, name, batch[:1], target[:1], seed)
        maps_made = 1
        if price[SECONDS] < QUICK and len(batch) > MAPS_PRICED:
            some = slice(1, 1 + MAPS_PRICED)
            price, _ = self._price(explainer, name, batch[some], target[some], seed)
            maps_made += MAPS_PRICED
        self.price_and_shape[name] = price, map_of_one.shape[1:]
        return maps_made

    def _price(
        self, explainer: Explainer, name: str, batch: Batch, target: Tensor, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Return the cost (3,) of one of these maps, and the maps."""
        model = getattr(self.model, "base", self.model)
        before = spent_by(model)
        maps = super().explain(explainer, name, batch, target, seed)
        return (spent_by(model) - before) / len(batch), maps


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
