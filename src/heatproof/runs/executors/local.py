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
        """Do `jobs`; what the session says of it."""
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
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Member:
    number: int
    process: SpawnProcess
    ready: bool = False
    job: Job | None = None
    due: Counter[str] = field(default_factory=Counter)
    ticked: Counter[str] = field(default_factory=Counter)


@dataclass
class _Team:
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
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        given = (theirs, self.recipe, self.root, self.plan.shard_size, number, self.threads)
        process = context.Process(
            target=_serve, args=given, name=f"heatproof-worker-{number}", daemon=True
        )
        with _deaf_to_interrupts():
            process.start()
        theirs.close()  # so that our end says when the worker is gone
        self.members[ours] = _Member(number, process)

    def hand_out(self) -> None:
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
        for connection in wait(list(self.members)):
            assert isinstance(connection, Connection)
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                self._replace(connection)
                continue
            self._hear(self.members[connection], kind, content)

    def _hear(self, member: _Member, kind: str, content: Any) -> None:
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
            place = f" at {member.job}" if member.job else ""
            raise WorkerError(
                f"worker {member.number} failed{place}; what is finished is kept.\n{content}"
            )

    def _replace(self, connection: Connection) -> None:
        """A worker's pipe ended: take back its shard and start another worker."""
        member = self.members.pop(connection)
        connection.close()
        member.process.join(PATIENCE)
        code = member.process.exitcode
        why = (
            f"it was ended by signal {-code}"
            if code is not None and code < 0
            else f"it ended with exit code {code}"
        )
        logging.getLogger("heatproof").warning(
            "worker %d is lost: %s; another takes its place", member.number, why
        )
        if not member.ready:
            self.failed_starts += 1
            if (code is not None and code > 0) or self.failed_starts >= MOST_LOSSES:
                raise UserError(
                    f"a worker process could not start: {why}, and what it said is above; a script that uses workers "
                    'must do so under `if __name__ == "__main__":`'
                )
        if member.job is not None:
            self.tally.lose(member.job, why)
            undone = self.plan.work(RunDirectory(self.root), [member.job])
            for what, amount in member.due.items():
                self.advance(what, amount - member.ticked[what] - undone[what])
            self.waiting.appendleft(member.job)
        self.start(member.number)

    def dismiss(self) -> None:
        for connection, member in self.members.items():
            if member.ready:
                try:
                    connection.send(None)
                except OSError:
                    continue
                member.process.join(PATIENCE)

    def stop(self) -> None:
        for member in self.members.values():
            member.process.terminate()
        for connection, member in self.members.items():
            member.process.join(PATIENCE)
            member.process.kill()
            member.process.join()
            connection.close()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started in here ignore Ctrl-C, which a terminal sends to all: the parent ends them instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(
    connection: Connection, recipe: Recipe, root: Place, shard_size: int, number: int, threads: int
) -> None:
    """What a worker process does."""

    def say(kind: str, content: Any) -> None:
        try:
            connection.send((kind, content))
        except OSError as error:
            raise SystemExit(
                0
            ) from error  # the parent is gone; whatever starts next finds the finished parts

    expect(root)
    try:
        worker = Worker(recipe, root, shard_size, number, threads)
        say("ready", None)
        while (job := _next(connection)) is not None:
            say("done", worker(job, lambda what, amount: say("tick", (what, amount))))
    except UserError as error:
        say("mistake", str(error))
    except Exception:  # the parent raises it, with this traceback
        say("error", traceback.format_exc())


def _next(connection: Connection) -> Job | None:
    try:
        job: Job | None = connection.recv()
    except (EOFError, OSError):
        return None
    return job
