"""What a worker process does, done in this one: its answers, its counts, and what it says of mistakes."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import heatproof
from heatproof.errors import UserError
from heatproof.runs import manifest
from heatproof.runs.directory import Job, RunDirectory
from heatproof.runs.executors.local import _serve
from heatproof.runs.executors.worker import (
    FromStudy,
    Pickled,
    Sharding,
    Tally,
    Worker,
    WorkerError,
    pickled,
)
from heatproof.runs.plan import Plan, describe, make_plan
from support.paths import SMALL
from support.small import drawn, pictures

AXIS = {"stability": {"perturbations": "brightness", "k": 50}}


def plan(seed: int = 0, weights: int = 1) -> Plan:
    data = {"shapes": heatproof.open_data(pictures(5)[0])}
    return make_plan(drawn(weights), data, ["saliency", "random"], [AXIS], seed=seed, shard_size=2)


def served(root: Path, recipe: Any, *jobs: Any) -> list[tuple[str, Any]]:
    """The answers of a worker to some shards."""
    ours, theirs = multiprocessing.Pipe()
    for job in jobs:
        ours.send(job)
    _serve(theirs, recipe, root, Sharding(2), 0, torch.get_num_threads())
    answers = []
    while ours.poll(0):
        answers.append(ours.recv())
    return answers


def test_a_worker_answers_with_ticks_and_what_each_shard_took(tmp_path: Path) -> None:
    made = plan()
    manifest.begin(tmp_path, describe(made), 2, "test")
    jobs = made.jobs()
    work = made.work(RunDirectory(tmp_path), jobs[:2])
    answers = served(tmp_path, lambda number: plan(), *jobs[:2], None, jobs[2])
    assert [kind for kind, _ in answers if kind != "tick"] == ["ready", "done", "done"], (
        "None ends it"
    )
    ticked: Counter[str] = Counter()
    for kind, content in answers:
        if kind == "tick":
            ticked[content[0]] += content[1]
    assert +ticked == work
    done = [content for kind, content in answers if kind == "done"]
    assert [part.device for part in done] == ["cpu", "cpu"] and all(
        part.passes["drawn"] > 0 for part in done
    )
    assert [set(part.seconds) for part in done] == [{"stability"}, {"stability"}]
    assert sum((Counter(part.ticks) for part in done), Counter()) == work
    run_directory = RunDirectory(tmp_path)
    assert [bool(made.missing_parts(run_directory, job)) for job in jobs] == [False, False, True]
    tally = Tally("processes", 2)
    for part in done:
        tally.add(part)
    session = tally.session()
    assert session["passes"] == {"drawn": sum(part.passes["drawn"] for part in done)}
    assert session["workers"] == {"kind": "processes", "count": 2, "lost": []} and session[
        "devices"
    ] == ["cpu"]
    assert session["durations"]["stability"] == pytest.approx(
        sum(part.seconds["stability"] for part in done), abs=0.01
    )


def test_a_worker_counts_each_shard_for_itself(tmp_path: Path) -> None:
    made = plan()
    manifest.begin(tmp_path, describe(made), 2, "test")
    worker = Worker(lambda number: plan(), tmp_path, Sharding(2), 0)
    begun = time.perf_counter()
    first, second, again = (
        worker(job, lambda what, amount: None) for job in (*made.jobs()[:2], made.jobs()[0])
    )
    model = worker.plan.models["drawn"]
    assert first.passes["drawn"] + second.passes["drawn"] == model.passes and again.passes == {
        "drawn": 0
    }
    total = worker.engine.seconds["stability"]
    assert 0 < first.seconds["stability"] < total < time.perf_counter() - begun
    assert first.seconds["stability"] + second.seconds["stability"] == pytest.approx(
        total, rel=1e-6
    )
    assert again.ticks == {} and again.seconds["stability"] == 0


def test_a_worker_says_what_went_wrong(tmp_path: Path) -> None:
    made = plan()
    manifest.begin(tmp_path, describe(made), 2, "test")
    other = served(tmp_path, lambda number: plan(weights=2), made.jobs()[0])
    assert [kind for kind, _ in other] == ["mistake"]
    assert "models.drawn" in other[0][1]
    ((kind, text),) = served(tmp_path, lambda number: 1 // 0)
    assert kind == "error" and text.startswith("Traceback") and "ZeroDivisionError" in text
    assert [
        kind for kind, _ in served(tmp_path, lambda number: plan(), Job("shapes", "drawn", 9))
    ] == ["ready", "error"]


def test_a_shard_that_loses_three_workers_is_given_up() -> None:
    tally = Tally("processes", 2)
    job = Job("photos", "net", 3)
    tally.lose(job, "it was ended")
    tally.lose(Job("photos", "net", 4), "it was ended")
    tally.lose(job, "it was ended")
    assert tally.session()["workers"]["lost"] == [f"shard {i} of photos on net" for i in (3, 4, 3)]
    with pytest.raises(WorkerError, match=r"shard 3 of photos on net.*3 workers.*thirst"):
        tally.lose(job, "of thirst")


def test_recipes_make_the_same_plan(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    explainers = "explainers: [saliency, random]\nevaluations: [{stability: {perturbations: brightness, k: 50}}]\n"
    path.write_text(f"model: python:{SMALL}:model\ndata: python:{SMALL}:dataset\n{explainers}")
    low = tmp_path / "low.yaml"
    low.write_text(path.read_text() + "precision: bfloat16\n")
    recipe = FromStudy(str(low), seed=4, limit=3, allow_code=True)
    made = recipe(1)
    assert (made.seed, len(made.data["dataset"]), made.models["shapes"].precision) == (
        4,
        3,
        "bfloat16",
    )
    assert FromStudy(str(path), allow_code=True)().models["shapes"].precision == "float32"
    with pytest.raises(UserError, match="allow"):
        FromStudy(str(path))()
    with pickled(plan(seed=6)) as kept:
        assert (
            isinstance(kept, Pickled)
            and describe(kept(0)) == describe(plan(seed=6))
            and kept(0).seed == 6
        )
    assert not Path(kept.path).exists()
