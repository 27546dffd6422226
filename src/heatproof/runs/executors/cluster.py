"""A Ray cluster: one actor per GPU, or per group of cores, loads the model once and takes the next shard when free.

Actors write their parts to the run directory, a path that all nodes share; only names and counts pass through the
driver. An actor that is lost with its node is replaced wherever there is room, and its shard is done again.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from heatproof.errors import UserError, counted
from heatproof.runs.directory import Job, RunDirectory
from heatproof.runs.executors.worker import Done, FromStudy, Sharding, Tally, Worker, WorkerError
from heatproof.runs.plan import Plan
from heatproof.runs.progress import Advance
from heatproof.runs.storage import Place, expect, must_be_shared, place

CORES = 4
"""How many cores an actor without a GPU takes, where its node has so many."""
PATIENCE = 30.0
"""Seconds until the driver says that it waits for room, and how long a file may take to be seen on another machine."""
MOST_FAILED_STARTS = 10

_log = logging.getLogger("heatproof")


@dataclass(frozen=True)
class Ray:
    """The Ray cluster at `address`; without one the cluster that runs on this machine, else a new one on its cores.

    `workers` is the largest number of actors.
    """

    recipe: FromStudy
    address: str | None = None
    workers: int | None = None

    def __call__(
        self, plan: Plan, root: Place, jobs: list[Job], advance: Advance
    ) -> dict[str, Any]:
        """Run `jobs` on the cluster and return the record of the session."""
        must_be_shared(root)
        ray = import_ray()
        connected = not ray.is_initialized()
        if connected:
            _connect(ray, self.address)
        try:
            return self._carry_out(ray, plan, root.resolve(), jobs, advance)
        finally:
            if connected:
                ray.shutdown()

    def _carry_out(
        self, ray: Any, plan: Plan, root: Place, jobs: list[Job], advance: Advance
    ) -> dict[str, Any]:
        """Hand out the jobs to actors until all are done; the actors end with this call, whatever happens."""
        resources_by_node = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room, needs = seats(resources_by_node, wants_gpu=self.recipe.study().device != "cpu")
        count = min(room, len(jobs), self.workers or room)
        crew = _Crew(
            ray,
            actor_class=ray.remote(ShardActor).options(**needs),
            load_arguments=(self.recipe, str(root), Sharding.in_plan(plan)),
            waiting=deque(jobs),
            tally=Tally("ray", count),
        )
        try:
            for _ in range(count):
                crew.start()
            while crew.waiting or crew.busy():
                crew.hand_out()
                crew.listen(advance)
        finally:
            crew.stop()
        _must_be_there(plan, root, jobs)
        return crew.tally.session()


def import_ray() -> Any:
    """The package, or an error that names the extra."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UserError('--ray needs ray: pip install "heatproof[ray]"') from error


def _connect(ray: Any, address: str | None) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        where = f"at {address}" if address else "here"
        raise UserError(f"no Ray cluster answers {where}: {error}") from error


def seats(nodes: list[dict[str, float]], wants_gpu: bool) -> tuple[int, dict[str, float]]:
    """Return how many actors have room at once, and what each of them asks Ray for.

    >>> seats([{"CPU": 16.0, "GPU": 2.0}, {"CPU": 8.0}], wants_gpu=True)
    (2, {'num_gpus': 1, 'num_cpus': 1})
    >>> seats([{"CPU": 16.0}, {"CPU": 2.0}, {}], wants_gpu=False)
    (9, {'num_cpus': 2})
    """
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if wants_gpu and gpus:
        return gpus, {"num_gpus": 1, "num_cpus": 1}
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    if not cpus:
        raise UserError(
            "no node of the Ray cluster offers a core; start some with `ray start --num-cpus`"
        )
    cores_per_actor = min(CORES, *cpus)
    actors = sum(cores // cores_per_actor for cores in cpus)
    return actors, {"num_cpus": cores_per_actor}


class ShardActor:
    """What runs on the cluster: one worker, which an error leaves alive to tell of it."""

    def load(self, recipe: FromStudy, root: str, sharding: Sharding) -> None:
        """Make the plan in this process; separate from the making of the actor, so that a mistake is told as such."""
        expect(place(root))
        if not (place(root) / "manifest.json").is_file():
            raise UserError(
                f"a node of the Ray cluster does not see {root}; a run needs a path that all nodes share"
            )
        self.worker = Worker(recipe, place(root), sharding, 0)

    def run(self, job: Job) -> Done:
        """Do a shard; its parts are on disk when this returns."""
        return self.worker(job, lambda what, amount: None)


@dataclass
class _Crew:
    """The actors of a session, and the jobs that wait for one.

    `running` has the actor and the job of every call that is not finished, by the reference that Ray gives for it; the
    job is None while an actor loads its model. `idle` actors are ready for a job.
    """

    ray: Any
    actor_class: Any
    load_arguments: tuple[FromStudy, str, Sharding]
    waiting: deque[Job]
    tally: Tally
    running: dict[Any, tuple[Any, Job | None]] = field(default_factory=dict)
    idle: list[Any] = field(default_factory=list)
    failed_starts: int = 0

    def start(self) -> None:
        """Start an actor, which loads its model."""
        actor = self.actor_class.remote()
        self.running[actor.load.remote(*self.load_arguments)] = (actor, None)

    def busy(self) -> bool:
        """Whether some actor does a job."""
        return any(job is not None for _, job in self.running.values())

    def hand_out(self) -> None:
        """Give waiting jobs to idle actors."""
        while self.waiting and self.idle:
            actor, job = self.idle.pop(), self.waiting.popleft()
            self.running[actor.run.remote(job)] = (actor, job)

    def listen(self, advance: Advance) -> None:
        """Wait until a call finishes or `PATIENCE` is over, and record what finished; lost actors are replaced."""
        finished, _ = self.ray.wait(list(self.running), num_returns=1, timeout=PATIENCE)
        if not finished and not self.busy():
            _log.warning("waiting for a node of the Ray cluster that has room")
        for reference in finished:
            actor, job = self.running.pop(reference)
            errors = self.ray.exceptions
            try:
                done = self.ray.get(reference)
            except errors.RayTaskError as error:
                # Our code or the user's failed, and would fail elsewhere.
                if isinstance(error.cause, UserError):
                    raise UserError(str(error.cause)) from error
                at_job = f" at {job}" if job else ""
                raise WorkerError(
                    f"a worker failed{at_job}; what is finished is kept.\n{error}"
                ) from error
            except errors.RayError as error:
                # The process, its node or the way to it is gone.
                self._replace(actor, job, error)
                continue
            self.idle.append(actor)
            self.failed_starts = 0
            if done is not None:
                self.tally.add(done)
                for step, amount in done.ticks.items():
                    advance(step, amount)

    def _replace(self, actor: Any, job: Job | None, error: BaseException) -> None:
        """Start another actor in place of a lost one, and put its job back to the front of those that wait."""
        reason = str(error).strip().splitlines()[0]
        _log.warning("a worker is lost: %s; another takes its place", reason)
        self.ray.kill(actor)  # if it is only out of reach, it must not go on beside its successor
        if job is None:
            self.failed_starts += 1
            if self.failed_starts >= MOST_FAILED_STARTS:
                raise WorkerError(
                    f"{self.failed_starts} workers in a row were lost before they were ready: {error}"
                )
        else:
            self.tally.lose(job, reason)
            self.waiting.appendleft(job)
        self.start()

    def stop(self) -> None:
        """End all actors."""
        working = [actor for actor, _ in self.running.values()]
        for actor in self.idle + working:
            self.ray.kill(actor)


def _must_be_there(plan: Plan, root: Place, jobs: list[Job]) -> None:
    """Raise unless what the workers wrote is visible here within `PATIENCE`; shared file systems take their time."""
    deadline = time.monotonic() + PATIENCE
    run_directory = RunDirectory(root)
    while missing := [job for job in jobs if plan.missing_parts(run_directory, job)]:
        if time.monotonic() > deadline:
            raise UserError(
                f"workers finished {counted(len(missing), 'shard')} not found in {root}, the first is {missing[0]}; "
                "a run needs a path that all nodes share"
            )
        time.sleep(1)
