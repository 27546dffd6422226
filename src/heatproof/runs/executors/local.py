"""Several processes on one machine: one per GPU, or one per group of cores, each taking the next shard when it is free.

Every worker talks to the parent through a pipe of its own, so one that is killed leaves no lock behind: its pipe ends,
its shard goes to another, and a new worker takes its place.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from heatproof.errors import UserError
from heatproof.runs.directory import Job, RunDirectory
from heatproof.runs.executors.worker import (
    MOST_LOSSES,
    Recipe,
    Sharding,
    Tally,
    Worker,
    WorkerError,
)
from heatproof.runs.plan import Plan
from heatproof.runs.progress import Advance
from heatproof.runs.storage import Place, expect, must_be_shared

PATIENCE = 10.0
"""Seconds that a worker has to end by itself."""


@dataclass(frozen=True)
class Processes:
    """`count` new processes, with the cores of the machine divided among them."""

    recipe: Recipe
    count: int

    def __call__(
        self, plan: Plan, root: Place, jobs: list[Job], advance: Advance
    ) -> dict[str, Any]:
        """Run `jobs` and return the session record."""
        must_be_shared(root)
        count = min(self.count, len(jobs))
        threads = max(1, min(torch.get_num_threads(), cores() // count))
        team = _Team(
            plan, root, self.recipe, threads, advance, deque(jobs), Tally("processes", count)
        )
        try:
            for number in range(count):
                team.start(number)
            while team.waiting or any(member.job for member in team.members.values()):
                team.hand_out()
                team.listen()
            team.dismiss()
        finally:
            team.stop()
        return team.tally.session()


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class _Member:
    """A worker process: its shard, the work of that shard by step, and how much of it was reported."""

    number: int
    process: SpawnProcess
    ready: bool = False
    job: Job | None = None
    due: Counter[str] = field(default_factory=Counter)
    ticked: Counter[str] = field(default_factory=Counter)


@dataclass
class _Team:
    """The worker processes of a session, by their pipes, and the shards that wait for one."""

    plan: Plan
    root: Place
    recipe: Recipe
    threads: int
    advance: Advance
    waiting: deque[Job]
    tally: Tally
    members: dict[Connection, _Member] = field(default_factory=dict)
    failed_starts: int = 0

    def start(self, number: int) -> None:
        """Start a worker process; it says when it is ready."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        sharding = Sharding.in_plan(self.plan)
        given = (theirs, self.recipe, self.root, sharding, number, self.threads)
        process = context.Process(
            target=_serve, args=given, name=f"heatproof-worker-{number}", daemon=True
        )
        with _deaf_to_interrupts():
            process.start()
        theirs.close()  # so that our end says when the worker is gone
        self.members[ours] = _Member(number, process)

    def hand_out(self) -> None:
        """Give every idle worker the next shard."""
        for connection, member in self.members.items():
            if not self.waiting:
                return
            if member.ready and member.job is None:
                job = self.waiting.popleft()
                member.job, member.due, member.ticked = (
                    job,
                    self.plan.work(RunDirectory(self.root), [job]),
                    Counter(),
                )
                try:
                    connection.send(job)
                except OSError:
                    continue  # it is gone; listening will say so

    def listen(self) -> None:
        """Wait until a worker has something to say, and act on it."""
        for connection in wait(list(self.members)):
            assert isinstance(connection, Connection)
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                self._replace(connection)
                continue
            self._hear(self.members[connection], kind, content)

    def _hear(self, member: _Member, kind: str, content: Any) -> None:
        """Act on one message of a worker: progress, ready, done, a user's mistake, or an error of ours."""
        if kind == "tick":
            member.ticked[content[0]] += content[1]
            self.advance(*content)
        elif kind == "ready":
            member.ready, self.failed_starts = True, 0
        elif kind == "done":
            member.job = None
            self.tally.add(content)
        elif kind == "mistake":
            raise UserError(content)
        else:
            where = f" at {member.job}" if member.job else ""
            raise WorkerError(
                f"worker {member.number} failed{where}; what is finished is kept.\n{content}"
            )

    def _replace(self, connection: Connection) -> None:
        """Take back the shard of a worker whose pipe ended, and start another worker."""
        member = self.members.pop(connection)
        connection.close()
        member.process.join(PATIENCE)
        code = member.process.exitcode
        was_killed = code is not None and code < 0
        reason = f"it ended with exit code {code}"
        if code is not None and was_killed:
            reason = f"it was ended by signal {-code}"
        logging.getLogger("heatproof").warning(
            "worker %d is lost: %s; another takes its place", member.number, reason
        )
        if not member.ready:
            self.failed_starts += 1
            has_failed = code is not None and code > 0
            if has_failed or self.failed_starts >= MOST_LOSSES:
                raise UserError(
                    f"a worker process could not start: {reason}, and its output is above; a script that uses workers "
                    'must do so under `if __name__ == "__main__":`'
                )
        if member.job is not None:
            self.tally.lose(member.job, reason)
            self._take_back_progress(member, member.job)
            self.waiting.appendleft(member.job)
        self.start(member.number)

    def _take_back_progress(self, member: _Member, job: Job) -> None:
        """Set the progress bar to what of a lost worker's shard is on disk."""
        undone = self.plan.work(RunDirectory(self.root), [job])
        for step, amount in member.due.items():
            self.advance(step, amount - member.ticked[step] - undone[step])

    def dismiss(self) -> None:
        """Tell every worker that there is nothing more to do, and wait for it to end."""
        for connection, member in self.members.items():
            if member.ready:
                try:
                    connection.send(None)
                except OSError:  # it has ended already
                    continue
                member.process.join(PATIENCE)

    def stop(self) -> None:
        """End every worker, whatever it does."""
        for member in self.members.values():
            member.process.terminate()
        for connection, member in self.members.items():
            member.process.join(PATIENCE)
            member.process.kill()
            member.process.join()
            connection.close()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that are started in the context ignore Ctrl-C, which a terminal sends to all: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(
    connection: Connection,
    recipe: Recipe,
    root: Place,
    sharding: Sharding,
    number: int,
    threads: int,
) -> None:
    """Serve shards in a worker process until the parent has no more."""

    def say(kind: str, content: Any) -> None:
        try:
            connection.send((kind, content))
        except OSError as error:
            raise SystemExit(
                0
            ) from error  # the parent is gone; whatever starts next finds the finished parts

    expect(root)
    try:
        worker = Worker(recipe, root, sharding, number, threads)
        say("ready", None)
        while (job := _next(connection)) is not None:
            say("done", worker(job, lambda what, amount: say("tick", (what, amount))))
    except UserError as error:
        say("mistake", str(error))
    except Exception:  # the parent raises it, with this traceback
        say("error", traceback.format_exc())


def _next(connection: Connection) -> Job | None:
    """Return the next shard; None if there is none, or if the parent is gone."""
    try:
        job: Job | None = connection.recv()
    except (EOFError, OSError):
        return None
    return job
