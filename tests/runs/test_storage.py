"""Runs in an object store: the same files, the same table and the same refusals as in a directory."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

import heatproof
from heatproof import errors
from heatproof.errors import UserError
from heatproof.evaluation import OK, GalleryImage, Scores
from heatproof.report.figures import write
from heatproof.runs import atomic, manifest, storage, tables
from heatproof.runs import merge as merging
from heatproof.runs.directory import PartKey, RunDirectory, write_part
from heatproof.runs.gallery import gallery_rows, read_gallery
from heatproof.runs.manifest import Study
from heatproof.runs.storage import StorePath, place
from heatproof.runs.verify import deduplicate_parts, missing
from support.loopback import keys, s3_server
from support.paths import SMALL

pytest.importorskip("fsspec")
_number = itertools.count()
STUDY = Study(seed=0, models={}, datasets={}, tasks={}, explainers={}, evaluations={})


@pytest.fixture(params=["directory", "store"])
def root(request, tmp_path) -> storage.Place:
    return tmp_path / "run" if request.param == "directory" else fresh()


def fresh() -> StorePath:
    found = place(f"memory://tests/{os.getpid()}/{next(_number)}")
    assert isinstance(found, StorePath)
    return found


def test_paths_and_addresses_are_told_apart(tmp_path):
    assert place("runs/x") == Path("runs/x") and place(tmp_path) is not None
    assert place(tmp_path.as_uri()) == tmp_path
    assert (
        place(Path("s3://bucket/run")) == place("s3://bucket/run/") == StorePath("s3://bucket/run")
    )
    assert isinstance(place("C:/runs/x"), Path)
    with pytest.raises(UserError, match="'s3'"):
        place("s33://bucket/run")
    with pytest.raises(UserError, match="s3://"):
        place("s3://")


def test_a_directory_needs_no_fsspec(tmp_path):
    code = (
        "import sys; from heatproof.runs import atomic, storage; root = storage.place(sys.argv[1]);"
        "atomic.write_atomically(root / 'a.parquet', b'1'); assert storage.present(root / 'a.parquet');"
        "assert [path.read_bytes() for path in storage.files(root, '.parquet')] == [b'1'];"
        "assert 'fsspec' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_files_behave_alike_in_both(root):
    names = [
        "b/00001.parquet",
        "b/00000.parquet",
        "a/c/00000.parquet",
        "a-b/00000.parquet",
        "b/.00002.parquet",
        "b/x",
    ]
    for name in names:
        atomic.write_atomically(root / name, name.encode())
    found = storage.files(root, ".parquet")
    wanted = ["a/c/00000.parquet", "a-b/00000.parquet", "b/00000.parquet", "b/00001.parquet"]
    assert [str(path)[len(str(root)) + 1 :] for path in found] == wanted
    assert [path.read_bytes() for path in found] == [name.encode() for name in wanted]
    assert (
        not atomic.create_atomically(root / "b" / "x", b"later")
        and (root / "b" / "x").read_bytes() == b"b/x"
    )
    assert (
        atomic.create_atomically(root / "new.json", b"{}")
        and (root / "new.json").read_bytes() == b"{}"
    )
    assert {path.name for path in root.iterdir()} == {"a", "a-b", "b", "new.json"}
    assert (root / "b").is_dir() and not (root / "b").is_file() and (root / "b" / "x").is_file()
    (root / "b" / "x").unlink()
    (root / "b" / "x").unlink(missing_ok=True)
    assert not (root / "b" / "x").exists() and not (root / "nowhere").is_dir()


def test_a_listing_answers_for_a_while(monkeypatch):
    root = fresh()
    first, second = root / "p" / "0.parquet", root / "p" / "1.parquet"
    assert not storage.present(first)
    write_part(first, tables.SCORES.empty_table())  # by this process, so it is known at once
    assert storage.present(first) and not storage.present(second)
    storage._connect(root.base)[0].pipe_file(
        storage._connect(root.base)[1] + "/p/1.ab.parquet", b"y"
    )  # by another one
    assert not storage.present(second)
    monkeypatch.setattr(storage, "FRESH", (0.0, 0.0))
    assert storage.present(second)


def test_a_part_that_another_process_doubled_meanwhile_is_seen_and_one_is_kept(tmp_path):
    run_directory, key = RunDirectory(tmp_path), PartKey.samples(("d", "m", 0))
    folder = key.path(tmp_path).parent
    folder.mkdir(parents=True)
    (folder / "00000.1111111111111111.parquet").write_bytes(b"")
    assert len(run_directory.existing_files([key])) == 1, "the listing is known from here on"
    (folder / "00000.2222222222222222.parquet").write_bytes(b"")
    deduplicate_parts(run_directory, [key])
    assert [path.name for path in folder.iterdir()] == ["00000.1111111111111111.parquet"]
    assert len(run_directory.existing_files([key])) == 1


def test_a_run_reads_back_the_same_from_both(tmp_path):
    places = [tmp_path / "run", fresh()]
    for where in places:
        session = manifest.begin(where, STUDY, 32, "a command")
        session.record({"started": manifest.now()})
        for shard, ids in enumerate((["b", "d"], ["a", "c"])):
            value = torch.tensor([0.25, float("nan")])
            scores = [
                Scores("saliency", m, "jpeg", 40.0, value, torch.full((2,), OK), reason=("", "é"))
                for m in "xy"
            ]
            rows = tables.score_rows("d", "m", "stability", "method", ids, scores)
            RunDirectory(where).write(
                PartKey.scores(("d", "m", shard), "stability", "saliency"), rows
            )
        shown = GalleryImage(
            "saliency", "clean", 0.0, "a", torch.rand(3, 8, 8), torch.rand(1, 8, 8)
        )
        pictures = gallery_rows("d", "m", "stability", [shown])
        RunDirectory(where).write(PartKey.gallery(("d", "m", 0), "stability", "saliency"), pictures)
    local, stored = (tables.read_scores(where) for where in places)
    pd.testing.assert_frame_equal(local, stored)
    assert len(read_gallery(places[1])) == 1
    found = RunDirectory(places[1]).manifest
    assert found.study == STUDY and len(found.sessions) == 1


def test_a_store_is_begun_once_and_refused_to_others():
    root = fresh()
    manifest.begin(root, STUDY, 32, "first")
    assert manifest.begin(root, STUDY, 16, "again").manifest.shard_size == 32
    with pytest.raises(UserError, match="seed"):
        manifest.begin(root, STUDY.model_copy(update={"seed": 1}), 32, "other")
    other = fresh()
    (other / "thesis.pdf").write_bytes(b"")
    with pytest.raises(UserError, match=str(other)):
        manifest.begin(other, STUDY, 32, "first")


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match=r"heatproof\[s3\]"):
        storage.place("s3://heatproof-no-such/run").is_file()
    with pytest.raises(UserError, match=r"memory.*process"):
        storage.must_be_shared(fresh())


class TestEvaluate:
    """The whole of a study, with a net of random weights."""

    def run(self, out) -> heatproof.Run:
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
        weights = torch.rand(4, 3 * 16 * 16, generator=torch.Generator().manual_seed(1))
        net[1].weight.data, net[1].bias.data = weights, torch.zeros(4)
        images = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        how = heatproof.Stability(perturbations="jpeg", k=20)
        return heatproof.evaluate(net, images, ["saliency", "random"], how, out, shard_size=2)

    def test_a_study_in_memory_is_the_study_on_disk(self, tmp_path):
        here, there = self.run(tmp_path / "run"), self.run(str(fresh()))
        pd.testing.assert_frame_equal(here.table(), there.table())
        assert (
            str(there.report()).startswith("memory://") and (there.path / "report.html").is_file()
        )
        with pytest.raises(
            UserError,
            match=r"memory://.*out",
        ):
            write(there, formats=("svg",))
        joined = merging.merge(fresh(), [there.path, here.path])
        pd.testing.assert_frame_equal(joined.table(), here.table())
        assert missing(joined.path) == []

    def test_what_was_lost_is_done_again(self):
        run = self.run(str(fresh()))
        part = storage.files(run.path / "parts", ".parquet")[1]
        before = part.read_bytes()
        part.unlink()
        assert len(missing(run.path)) == 1
        assert self.run(run.path).table().equals(run.table()) and part.read_bytes() == before


def test_a_store_that_has_answered_is_waited_for_a_minute_and_one_that_never_has_is_not(
    monkeypatch,
):
    class ConnectionError(Exception):
        pass

    def away(*_: object) -> None:
        raise ConnectionError("Could not connect to the endpoint URL")

    paused: list[float] = []
    monkeypatch.setattr(errors, "PAUSES", (0.1, 0.2))
    monkeypatch.setattr(storage, "AWAY", (5.0, 60.0))
    monkeypatch.setattr(errors.time, "sleep", paused.append)
    (there := fresh() / "a.json").write_bytes(b"1")
    other = fresh() / "a.json"
    with monkeypatch.context() as patch:
        patch.setattr(storage._connect(there.base)[0].__class__, "info", away)
        for path in (there, other):
            with pytest.raises(ConnectionError):
                path.is_file()  # no "no": it may be there
    assert paused == [0.1, 0.2, 5.0, 60.0, 0.1, 0.2]
    storage.expect(place(other.base))
    with monkeypatch.context() as patch:
        patch.setattr(storage._connect(there.base)[0].__class__, "cat_file", away)
        with pytest.raises(ConnectionError):
            other.read_bytes()
    assert paused[-2:] == [5.0, 60.0], "another process has reached it"
    with monkeypatch.context() as patch:
        monkeypatch.setattr(errors.time, "sleep", lambda _: patch.undo())
        patch.setattr(storage._connect(there.base)[0].__class__, "cat_file", away)
        assert there.read_bytes() == b"1", "it came back"


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """The environment of a client of an S3 server on loopback."""
    one_thread = {
        "OMP_NUM_THREADS": "1"
    }  # the net that the study trains depends on the number of threads
    with (
        s3_server(tmp_path_factory.mktemp("s3") / "said.txt") as port,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in (keys(port) | one_thread).items():
            patch.setenv(name, value)
        yield


@pytest.mark.slow
def test_two_workers_write_to_s3_what_one_process_writes_to_disk(s3, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(
        f"model: python:{SMALL}:model\ndata: python:{SMALL}:dataset\nexplainers: [saliency, random]\n"
        "evaluations: [{stability: {perturbations: [jpeg], k: 50}}]\nshard_size: 4\ndevice: cpu\n"
    )
    command = [
        sys.executable,
        "-m",
        "heatproof",
        "run",
        str(study),
        "--allow-code",
        "--limit",
        "12",
        "--out",
    ]
    subprocess.run([*command, str(tmp_path / "run")], check=True, capture_output=True)
    for _ in range(2):  # the second finds everything done
        subprocess.run(
            [*command, "s3://heatproof/run", "--workers", "2"], check=True, capture_output=True
        )
    local, stored = heatproof.read(tmp_path / "run"), heatproof.read("s3://heatproof/run")
    pd.testing.assert_frame_equal(local.table(), stored.table())
    pd.testing.assert_frame_equal(local.samples(), stored.samples())
    first, second = stored.manifest.sessions
    assert first.workers.count == 2 and second.workers is None
    assert (stored.path / "report.html").is_file()
    with pytest.raises(UserError, match="bucket"):
        manifest.begin(place("s3://no-such-bucket/run"), STUDY, 32, "first")
