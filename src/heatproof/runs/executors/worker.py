"""What a process needs to do shards that another hands out: a recipe for the plan, and proof that it is the same."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from heatproof.errors import UserError, no_exit
from heatproof.runs.atomic import scratch
from heatproof.runs.directory import Job, RunDirectory
from heatproof.runs.engine import Engine
from heatproof.runs.evaluate import precisely
from heatproof.runs.manifest import contradictions_between
from heatproof.runs.plan import Plan, describe
from heatproof.runs.progress import Advance
from heatproof.runs.storage import Place

MOST_LOSSES = 3
"""How many workers may be lost with the same shard; then it is the shard that kills them."""


class WorkerError(RuntimeError):
    """Something went wrong in another process; the message holds its traceback."""


@dataclass(frozen=True)
class Sharding:
    """How the data sets of a run are divided into shards, which whoever hands out the shards decides."""

    size: int
    stage_ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def in_plan(cls, plan: Plan) -> Sharding:
        """Return the shards of a plan."""
        return cls(plan.shard_size, dict(plan.stage_ends))

    def of(self, plan: Plan) -> Plan:
        """Return a plan with these shards."""
        return replace(plan, shard_size=self.size, stage_ends=self.stage_ends)


class Recipe(Protocol):
    """How a process makes the plan for itself, on the GPU of this number where the study wants one."""

    def __call__(self, number: int) -> Plan: ...


@dataclass(frozen=True)
class FromStudy:
    """Read the study file again and load its models: nothing but these four values travels.

    >>> FromStudy("study.yaml").allow_code
    False
    """

    path: str
    seed: int | None = None
    limit: int | None = None
    allow_code: bool = False

    def study(self) -> Any:
        """The study as its file has it now."""
        from heatproof.runs.study.file import read_study

        return read_study(self.path, seed=self.seed, limit=self.limit, allow_code=self.allow_code)

    def __call__(self, number: int = 0) -> Plan:
        study = self.study()
        if study.device in (None, "cuda"):
            study = replace(study, device=_gpu(number))
        plan: Plan = study.plan(allow_code=self.allow_code)
        return plan


@dataclass(frozen=True)
class Pickled:
    """Load a plan that another process wrote to a file."""

    path: str

    def __call__(self, number: int = 0) -> Plan:
        plan, devices = torch.load(self.path, map_location="cpu", weights_only=False)
        for name, device in devices.items():
            plan.models[name].to(_gpu(number) if device == "cuda" else device)
        return plan  # type: ignore[no-any-return]


def _gpu(number: int) -> str:
    return f"cuda:{number % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


@contextmanager
def pickled(plan: Plan) -> Iterator[Pickled]:
    """A recipe for workers on this machine, good while the context is open."""
    with scratch() as folder:
        path = folder / "plan.pt"
        devices = {name: model.device.type for name, model in plan.models.items()}
        try:
            torch.save((plan, devices), path)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UserError(
                f"workers need models, data and explainers that can be pickled: {error}; define them in a module, "
                "or name them in a study file, which every worker reads for itself"
            ) from error
        yield Pickled(str(path))


@dataclass
class Done:
    """What one shard took."""

    seconds: dict[str, float]
    passes: dict[str, int]
    device: str
    ticks: dict[str, int]


@dataclass
class Tally:
    """The sum over shards, as the session records it."""

    kind: str
    workers: int
    seconds: Counter[str] = field(default_factory=Counter)
    passes: Counter[str] = field(default_factory=Counter)
    devices: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)

    def add(self, done: Done) -> None:
        """Count a finished shard."""
        self.seconds.update(done.seconds)
        self.passes.update(done.passes)
        self.devices.add(done.device)

    def lose(self, job: Job, why: str) -> None:
        """Count a worker that was lost at a shard; a shard that loses too many is given up."""
        self.lost.append(str(job))
        if self.lost.count(str(job)) >= MOST_LOSSES:
            raise WorkerError(
                f"{job} lost {MOST_LOSSES} workers, the last because {why}; "
                "everything else that was finished is kept; rerun the command to resume"
            )

    def session(self) -> dict[str, Any]:
        """What the manifest says of this session."""
        return {
            "durations": {name: round(spent, 2) for name, spent in self.seconds.items()},
            "passes": dict(self.passes),
            "devices": sorted(self.devices),
            "workers": {"kind": self.kind, "count": self.workers, "lost": self.lost},
        }


class Worker:
    """A plan made in this process, compared with the run it is for, and the shards that it does."""

    def __init__(
        self,
        recipe: Recipe,
        root: Place,
        sharding: Sharding,
        number: int,
        threads: int | None = None,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.plan = sharding.of(recipe(number))
        run_directory = RunDirectory(root)
        different = contradictions_between(run_directory.manifest.study, describe(self.plan))
        if different:
            raise UserError(
                "a worker that followed the same study came to something else, such as other weights at random; "
                "each process must load the same:\n  " + "\n  ".join(different)
            )
        self.engine = Engine(self.plan, run_directory)

    def __call__(self, job: Job, advance: Advance) -> Done:
        """Do a shard."""
        model = self.plan.models[job.model]
        passes_before = model.passes
        seconds_before = dict(self.engine.seconds)
        ticks = Counter[str]()

        def count(step: str, amount: int) -> None:
            ticks[step] += amount
            advance(step, amount)

        self.engine.advance = count
        with precisely(self.plan), no_exit():
            self.engine.run_job(job)
        seconds = {}
        for name, total in self.engine.seconds.items():
            seconds[name] = total - seconds_before.get(name, 0.0)
        passes = {job.model: model.passes - passes_before}
        return Done(seconds, passes, str(model.device), dict(ticks))
