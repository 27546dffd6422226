"""The same table from one process, from several, and from shares that are joined; and what happens when one is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch

import heatproof
from heatproof import Model, Stability, UserError
from heatproof.runs import atomic, manifest
from heatproof.runs.evaluate import execute
from heatproof.runs.executors import Processes, WorkerError, pickled
from heatproof.runs.gallery import read_gallery
from heatproof.runs.merge import merge
from heatproof.runs.plan import describe, make_plan
from heatproof.runs.storage import part_of
from heatproof.runs.study.file import read_study
from heatproof.runs.verify import missing
from heatproof.types import wrap_explainer
from support.edits import edit_json, rewrite_part
from support.paths import SMALL
from support.small import pictures
from support.tables import assert_same_table
from support.treachery import Treacherous

STUDY = f"""\
model: python:{SMALL}:model
data: python:{SMALL}:dataset
explainers: [saliency, random, {{smoothgrad: {{samples: 3}}}}]
evaluations: [{{stability: {{perturbations: [jpeg, rotation], k: 50}}}}]
limit: 9
shard_size: 2
keep_maps: true
"""


def linear() -> Model:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 4))
    with torch.no_grad():
        for i, weights in enumerate(net.parameters()):
            weights.copy_(
                torch.rand(weights.shape, generator=torch.Generator().manual_seed(i)) - 0.5
            )
    return Model(net, name="linear")


def plan_with(*explainers, shard_size: int = 2):
    methods = {f"method {i}": wrap_explainer(item) for i, item in enumerate(explainers)}
    data = {"shapes": heatproof.open_data(pictures(8)[0])}
    evaluation = {"stability": Stability(perturbations="brightness", k=50)}
    return make_plan({"linear": linear()}, data, methods, evaluation, shard_size=shard_size)


def in_processes(plan, out: Path, count: int = 2) -> heatproof.Run:
    with pickled(plan) as recipe:
        return execute(plan, out, "test", executor=Processes(recipe, count))


def maps_of(run: heatproof.Run) -> set[tuple[str, str]]:
    """The folders and numbers of the kept maps, without the digests in their names."""
    return {
        (str(path.parent.relative_to(run.path)), part_of(path.name))
        for path in run.path.glob("maps/**/*.parquet")
    }


def assert_same(one: heatproof.Run, other: heatproof.Run) -> None:
    """Two processes may use different numbers of threads, so scores may differ by rounding."""
    assert_same_table(one.table(), other.table())
    pd.testing.assert_frame_equal(one.samples(), other.samples(), rtol=1e-4, atol=1e-5)
    assert len(read_gallery(one.path)) == len(read_gallery(other.path))
    assert maps_of(one) == maps_of(other)
    assert not list(one.path.glob("**/.*.tmp"))


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("study") / "shapes.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def whole(study, tmp_path_factory) -> heatproof.Run:
    """The study done in this process."""
    plan = read_study(study, allow_code=True).plan(allow_code=True)
    return execute(plan, tmp_path_factory.mktemp("whole") / "run", "test")


# --- the same table from all --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_workers_of_a_study_give_the_same_table(main, study, whole, tmp_path):
    code, text, error = main(
        "run", study, "--allow-code", "--workers", 2, "--out", tmp_path / "run"
    )
    assert code == 0 and error == "" and "report.html" in text
    run = heatproof.read(tmp_path / "run")
    assert_same(run, whole)
    (session,) = run.manifest.sessions
    workers = session.workers
    assert (workers.kind, workers.count, workers.lost) == ("processes", 2, [])
    assert session.devices == ["cpu"] or torch.cuda.is_available()
    alone = whole.manifest.sessions[0].passes["shapes"]
    assert session.passes["shapes"] >= alone, "a second worker that gets work explains references"
    before = {p: p.stat().st_mtime_ns for p in run.path.glob("parts/**/*.parquet")}
    in_processes(read_study(study, allow_code=True).plan(allow_code=True), run.path)
    assert before == {p: p.stat().st_mtime_ns for p in run.path.glob("parts/**/*.parquet")}


@pytest.mark.slow
def test_workers_of_a_call_give_the_same_table(tmp_path):
    given = (
        linear(),
        pictures(5)[0],
        ["saliency", "random"],
        Stability(perturbations="jpeg", k=50),
    )
    alone = heatproof.evaluate(*given, tmp_path / "one", shard_size=2)
    run = heatproof.evaluate(*given, tmp_path / "two", shard_size=2, workers=2)
    assert_same(run, alone)
    assert run.manifest.sessions[0].workers.count == 2


@pytest.mark.slow
def test_shares_give_the_same_table_in_one_directory_and_joined(main, study, whole, tmp_path):
    for i in (1, 2):
        code, text, error = main(
            "run", study, "--allow-code", "--shard", f"{i}/2", "--out", tmp_path / "shared"
        )
        assert code == 0 and error == "" and f"{i}/2" in text
        assert ("report.html" in text) == (i == 2)
        code, text, _ = main(
            "run", study, "--allow-code", "--shard", f"{i}/2", "--out", tmp_path / str(i)
        )
        assert code == 0 and "report.html" not in text
    assert_same(heatproof.read(tmp_path / "shared"), whole)
    assert len(heatproof.read(tmp_path / "shared").manifest.sessions) == 2
    own = [
        {part_of(p.name) for p in (tmp_path / str(i)).glob("samples/**/*.parquet")} for i in (1, 2)
    ]
    assert own == [{"00000", "00002", "00004"}, {"00001", "00003"}]
    code, text, error = main("merge", tmp_path / "joined", tmp_path / "1", tmp_path / "2")
    assert code == 0 and error == "" and str(tmp_path / "joined" / "report.html") in text
    joined = heatproof.read(tmp_path / "joined")
    assert_same(joined, whole)
    assert joined.manifest.study == whole.manifest.study
    assert len(joined.manifest.sessions) == 2
    again = merge(tmp_path / "joined", [tmp_path / "2", tmp_path / "joined", tmp_path / "shared"])
    assert_same(again, whole)
    assert len(again.manifest.sessions) == 4


@pytest.mark.slow
def test_the_tasks_of_an_array_may_start_at_once_in_one_directory(study, whole, tmp_path):
    command = [
        sys.executable,
        "-m",
        "heatproof",
        "run",
        str(study),
        "--allow-code",
        "--out",
        str(tmp_path / "run"),
    ]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    tasks = [subprocess.Popen([*command, "--shard", f"{i}/3"], env=one_thread) for i in (1, 2, 3)]
    assert [task.wait(300) for task in tasks] == [0, 0, 0]
    run = heatproof.read(tmp_path / "run")
    assert_same(run, whole)
    assert len(run.manifest.sessions) == 3 and all(
        s.seconds is not None for s in run.manifest.sessions
    )


# --- workers that are lost, and mistakes in them ------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_nothing_is_missing(tmp_path, caplog):
    honest = execute(plan_with(Treacherous("", "")), tmp_path / "honest", "test")
    plan = plan_with(Treacherous(str(tmp_path / "marker"), "kill", run=str(tmp_path / "killed")))
    run = in_processes(plan, tmp_path / "killed")
    assert_same(run, honest)
    assert len(run.manifest.sessions[0].workers.lost) == 1
    assert "signal 9" in caplog.text


@pytest.mark.slow
def test_a_shard_that_kills_every_worker_is_given_up(tmp_path):
    plan = plan_with(Treacherous("", "kill", once=False), shard_size=8)
    with pytest.raises(WorkerError, match=r"shard 0 of shapes on linear.*3 workers.*signal 9"):
        in_processes(plan, tmp_path, 1)


def test_an_error_in_a_worker_is_shown_and_what_is_finished_is_kept(tmp_path):
    plan = plan_with(
        heatproof.Saliency(),
        heatproof.InputXGradient(),
        Treacherous("", "raise", once=False),
        shard_size=8,
    )
    with pytest.raises(
        WorkerError, match=r"shard 0 of shapes on linear(.|\n)*in __call__(.|\n)*no such luck"
    ):
        in_processes(plan, tmp_path, 1)
    assert set(heatproof.read(tmp_path).table().explainer) >= {"method 0"}


def test_a_mistake_in_a_worker_is_one_message(tmp_path):
    plan = plan_with(Treacherous("", "mistake", once=False), shard_size=8)
    with pytest.raises(UserError, match=r"^this cannot work$"):
        in_processes(plan, tmp_path, 1)


def test_a_model_that_is_not_the_same_in_every_process_is_refused(main, study, tmp_path):
    (tmp_path / "nets.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 4))\n"
    )
    text = re.sub("model: .*", "model: python:nets.py:make", STUDY)
    (tmp_path / "random.yaml").write_text(text)
    code, _, error = main(
        "run", tmp_path / "random.yaml", "--allow-code", "--workers", 2, "--out", tmp_path / "run"
    )
    assert (
        code == 2
        and "models.make: other weights" in error
        and "each process must load the same" in error
    )
    assert not list((tmp_path / "run").glob("parts/**/*.parquet"))


def test_what_cannot_be_sent_to_workers_is_refused_before_any_starts(tmp_path):
    net = linear()
    with pytest.raises(UserError, match=r"pickle.*study"):
        heatproof.evaluate(
            net, pictures(4)[0], {"mine": lambda *_: None}, "stability", tmp_path / "run", workers=2
        )
    assert net.passes == 0 and not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=r"workers.*1.*0"):
        heatproof.evaluate(
            net, pictures(4)[0], "saliency", "stability", tmp_path / "run", workers=0
        )


def test_of_many_workers_only_as_many_start_as_there_are_shards(tmp_path):
    plan = plan_with(heatproof.Saliency(), shard_size=8)
    assert in_processes(plan, tmp_path, 50).manifest.sessions[0].workers.count == 1


def children_of(pid: int) -> list[int]:
    listing = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    return [
        int(child) for child, parent in map(str.split, listing.splitlines()) if int(parent) == pid
    ]


def is_running(pid: int) -> bool:
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return bool(shown.strip()) and not shown.startswith("Z")


HELD = f"""
import multiprocessing, pathlib, sys, time, torch
sys.path.insert(0, {str(SMALL.parents[1])!r})
from support import small

class Held(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        until = time.monotonic() + 120
        while multiprocessing.parent_process() and any(pathlib.Path("run").glob("parts/**/[!.]*.parquet")):
            if pathlib.Path("go").exists() or time.monotonic() > until:
                break
            time.sleep(0.01)
        return self.net(x)

def model():
    return small.Model(Held(small.network()), mean=(0.5,) * 3, std=(0.5,) * 3, classes=small.CLASSES, name="shapes")
"""
"""A model whose passes, in a worker, wait from the first finished part on until they are told to go on."""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals and ps")
@pytest.mark.parametrize("sent", ["SIGINT", "SIGKILL"])
def test_the_workers_of_a_run_that_ends_early_end_too(whole, tmp_path, sent):
    (tmp_path / "held.py").write_text(HELD)
    (tmp_path / "study.yaml").write_text(
        STUDY.replace(f"python:{SMALL}:model", "python:held.py:model")
    )
    command = [
        sys.executable,
        "-m",
        "heatproof",
        "run",
        "study.yaml",
        "--allow-code",
        "--out",
        "run",
    ]
    how = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "cwd": tmp_path}
    with (tmp_path / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--workers", "2"], stderr=said, start_new_session=True, **how
        )
    until = time.monotonic() + 120
    while process.poll() is None and not list((tmp_path / "run").glob("parts/**/[!.]*.parquet")):
        assert time.monotonic() < until, (tmp_path / "said.txt").read_text()
        time.sleep(0.01)
    workers = children_of(process.pid)
    assert process.poll() is None and len(workers) >= 2
    if sent == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
        assert process.wait(60) == 130
        shown = (tmp_path / "said.txt").read_text()
        assert shown and "Traceback" not in shown
    else:
        process.kill()
        process.wait()
    (tmp_path / "go").touch()
    until = time.monotonic() + 60
    while any(map(is_running, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(is_running, workers))
    assert "Traceback" not in (tmp_path / "said.txt").read_text()
    assert subprocess.run(command, **how, check=False, capture_output=True).returncode == 0
    assert_same_table(heatproof.read(tmp_path / "run").table(), whole.table())


# --- joining ------------------------------------------------------------------------------------------------------


@pytest.fixture
def halves(tmp_path) -> list[Path]:
    plan = plan_with(heatproof.Saliency())
    return [execute(plan, tmp_path / f"half {i}", "test", share=(i, 2)).path for i in (1, 2)]


def test_what_is_missing_is_said_and_can_be_finished(main, halves, tmp_path):
    code, text, error = main("merge", tmp_path / "joined", halves[0])
    assert code == 1 and text == ""
    assert (
        "2 parts are missing" in error
        and "shard 1 of shapes on linear: stability of method 0" in error
    )
    run = execute(plan_with(heatproof.Saliency()), tmp_path / "joined", "test")
    assert missing(run.path) == []
    assert_same(run, merge(tmp_path / "both", halves))


def test_runs_of_different_studies_are_not_joined(halves, tmp_path):
    other = execute(
        plan_with(heatproof.Saliency(absolute=False)), tmp_path / "other", "test", share=(2, 2)
    ).path
    with pytest.raises(
        UserError,
        match=r"explainers\.method 0\.absolute.*true.*false",
    ):
        merge(tmp_path / "joined", [halves[0], other])
    more = execute(
        plan_with(heatproof.Saliency(), heatproof.RandomMap()),
        tmp_path / "more",
        "test",
        share=(2, 2),
    ).path
    joined = merge(tmp_path / "united", [halves[0], more])
    assert set(joined.table().explainer) == {"method 0", "method 1"}
    assert missing(joined.path) == [
        f"shard {i} of shapes on linear: stability of method 1" for i in (0, 2)
    ]
    assert not (tmp_path / "joined").exists()


def test_runs_with_other_versions_or_shards_are_not_joined(halves, tmp_path):
    (session,) = (halves[1] / "sessions").glob("*.json")
    edit_json(session, lambda content: content["versions"].update(torch="1.0"))
    with pytest.raises(UserError, match=r'versions\.torch.*"1\.0"'):
        merge(tmp_path / "joined", halves)
    assert missing(merge(tmp_path / "joined", halves, mixed_versions=True).path) == []
    edit_json(halves[1] / "manifest.json", lambda content: content.update(shard_size=4))
    with pytest.raises(UserError, match=r"shard_size.* 2.* 4"):
        merge(tmp_path / "again", halves, mixed_versions=True)


def test_the_same_part_with_other_numbers_is_not_joined(halves, tmp_path):
    both = merge(tmp_path / "both", halves)
    part = next(halves[0].glob("parts/**/*.parquet"))
    twin = both.path / part.relative_to(halves[0])
    frame = pd.read_parquet(part)
    part = rewrite_part(part, frame)
    assert part.name != twin.name, "the same rows in other bytes"
    merge(tmp_path / "same", [halves[0], both.path])
    part = rewrite_part(part, frame.assign(value=frame.value + 1e-9))
    with pytest.raises(UserError, match="different") as caught:
        merge(tmp_path / "joined", [halves[0], both.path])
    assert str(part) in str(caught.value) and str(twin) in str(caught.value)
    assert not (tmp_path / "joined").exists()


def test_a_run_is_joined_neither_with_nothing_nor_into_something_else(
    halves, tmp_path, monkeypatch
):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "main.tex").write_text("dear to me")
    for taken in ("thesis", "thesis/main.tex"):
        with pytest.raises(UserError, match=str(tmp_path / taken)):
            merge(tmp_path / taken, halves)
    (tmp_path / "empty").mkdir()
    assert missing(merge(tmp_path / "empty", halves).path) == []
    with pytest.raises(UserError, match="thesis"):
        merge(tmp_path / "joined", [tmp_path / "thesis"])
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match=r"heatproof\[s3\]"):
        merge("s3://bucket/run", halves)


# --- several writers of one directory -----------------------------------------------------------------------------


def test_the_second_of_two_that_start_at_once_follows_the_first(tmp_path, monkeypatch):
    first, second = (
        plan_with(heatproof.Saliency(), shard_size=2),
        plan_with(heatproof.Saliency(), shard_size=3),
    )
    create = atomic.create_atomically

    def too_late(path: Path, content: bytes) -> bool:
        monkeypatch.setattr(atomic, "create_atomically", create)
        manifest.begin(tmp_path / "run", describe(first), 2, "the first")
        return create(path, content)

    monkeypatch.setattr(atomic, "create_atomically", too_late)
    run = execute(second, tmp_path / "run", "the second")
    assert run.manifest.shard_size == 2
    assert len(list((tmp_path / "run" / "samples").glob("**/*.parquet"))) == 4
    monkeypatch.setattr(atomic, "create_atomically", too_late)
    other = plan_with(heatproof.Saliency(absolute=False))
    with pytest.raises(UserError, match=r"absolute.*true.*false"):
        execute(other, tmp_path / "run", "another")


def test_what_two_sessions_add_at_once_is_kept(tmp_path):
    plans = [
        plan_with(heatproof.Saliency(), *more)
        for more in ((), (heatproof.RandomMap(),), (heatproof.InputXGradient(),))
    ]
    studies = [describe(plan) for plan in plans]
    renamed = dict(studies[2].explainers)
    renamed["edges"] = renamed.pop("method 1")
    studies[2] = studies[2].model_copy(update={"explainers": renamed})
    sessions = [manifest.begin(tmp_path, study, 2, "test") for study in studies]
    for session in sessions:
        session.record({"started": manifest.now(), "passes": {}})
    joined = manifest.read_manifest(tmp_path)
    assert set(joined.study.explainers) == {"method 0", "method 1", "edges"}
    assert len(joined.sessions) == 3
    assert json.loads((tmp_path / "manifest.json").read_text())["study"]["explainers"].keys() == {
        "method 0"
    }


def test_a_name_that_another_session_takes_meanwhile_is_refused(tmp_path, monkeypatch):
    studies = [
        describe(plan_with(heatproof.Saliency(), *m))
        for m in ((), (heatproof.RandomMap(),), (heatproof.InputXGradient(),))
    ]
    manifest.begin(tmp_path, studies[0], 2, "test")
    record = manifest.OpenSession.record

    def meanwhile(*given) -> None:
        monkeypatch.setattr(manifest.OpenSession, "record", record)
        manifest.begin(tmp_path, studies[1], 2, "the other")
        record(*given)

    monkeypatch.setattr(manifest.OpenSession, "record", meanwhile)
    with pytest.raises(UserError, match=r"explainers\.method 1"):
        manifest.begin(tmp_path, studies[2], 2, "test")
    assert manifest.read_manifest(tmp_path).study.explainer("method 1").name == "random"


def test_only_what_nobody_writes_any_more_is_swept(tmp_path):
    plan = plan_with(heatproof.Saliency())
    root = execute(plan, tmp_path / "run", "test").path
    here = atomic.this_host()
    kept = [root / f".a.{here}-{os.getppid()}.tmp", root / "parts" / ".a.elsewhere-7.tmp"]
    swept = [
        root / f".a.{here}-999999999.tmp",
        root / f".b.{here}-{os.getpid()}.tmp",
        root / ".b.elsewhere-7.tmp",
    ]
    for path in (*kept, *swept):
        path.write_bytes(b"half")
    os.utime(swept[2], (0, 0))
    execute(plan, root, "test")
    assert [path.exists() for path in (*kept, *swept)] == [True, True, False, False, False]


def test_a_file_is_created_by_one_only_and_without_hard_links_too(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "manifest.json"
    assert atomic.create_atomically(path, b"first") and not atomic.create_atomically(
        path, b"second"
    )
    assert path.read_bytes() == b"first"

    def refuse(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    assert not atomic.create_atomically(path, b"third")
    assert path.read_bytes() == b"first"
    assert atomic.create_atomically(path.with_name("other.json"), b"fourth")
    assert sorted(p.name for p in path.parent.iterdir()) == ["manifest.json", "other.json"]


# --- mistakes on the command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "1/"])
def test_a_share_that_is_none_is_refused(main, study, tmp_path, share):
    code, _, error = main(
        "run", study, "--allow-code", f"--shard={share}", "--out", tmp_path / "run"
    )
    assert code == 2 and "--shard" in error and repr(share) in error
    assert not (tmp_path / "run").exists()


def test_a_store_without_its_package_names_it(main, study, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    code, _, error = main("run", study, "--allow-code", "--out", "s3://bucket/run")
    assert code == 2 and "heatproof[s3]" in error


def test_ray_without_ray_names_the_extra(main, study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, error = main("run", study, "--allow-code", "--out", tmp_path / "run", "--ray")
    assert (
        code == 2
        and 'pip install "heatproof[ray]"' in error
        and len(error.strip().splitlines()) == 1
    )
    assert not (tmp_path / "run").exists()
