"""A run directory: one file per part wherever it lies, what is read is what was written, and what is missing is known."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import heatproof
from heatproof.errors import Foreign, UserError
from heatproof.runs import storage
from heatproof.runs.directory import FOLDERS, PartKey, RunDirectory, write_part
from heatproof.runs.manifest import Study, begin
from heatproof.runs.merge import merge
from heatproof.runs.verify import remove_damaged_parts, verify

NAMES = ["a", "A", "a b", "a/b", "a-b", "../a", "", ".", "con", "é", "e\u0301", "x" * 300, "a\x00b"]
JOB = ("photos", "net", 0)
ROWS = pa.table({"number": [1, 2]})
SCHEMA = ROWS.schema
STUDY = Study.model_validate(
    {
        "seed": 0,
        "models": {"net": {"fingerprint": "a"}},
        "datasets": {"photos": {"fingerprint": "b", "samples": 3}},
        "tasks": {},
        "explainers": {"lime": {"name": "lime"}, "dice": {"name": "random"}},
        "evaluations": {"stability": {"name": "stability", "left_out": {}}},
    }
)


def keys_of(job, evaluation="stability", explainer="lime") -> list[PartKey]:
    """One key of every kind."""
    return [
        PartKey.scores(job, evaluation, explainer),
        PartKey.references(job, evaluation, explainer),
        PartKey.gallery(job, evaluation, explainer),
        PartKey.samples(job),
        PartKey.maps(job, explainer),
    ]


@pytest.fixture
def run_directory(tmp_path) -> RunDirectory:
    begin(tmp_path / "run", STUDY, 2, "test")
    return RunDirectory(tmp_path / "run")


def states(root) -> dict[str, str]:
    return {verdict.name: verdict.state for verdict in verify(root) if verdict.state != "missing"}


# ---- keys ----------------------------------------------------------------------------------------------------------


def test_every_part_has_a_path_of_its_own_even_where_case_does_not_count(tmp_path):
    keys = set()
    for names in itertools.product(NAMES, NAMES):
        for job in ((*names, 0), (*names, 1)):
            keys |= {*keys_of(job, *names), *keys_of(job, *reversed(names))}
    paths = {str(key.path(tmp_path)).lower() for key in keys}
    assert len(paths) == len(keys)


@pytest.mark.parametrize("name", NAMES)
def test_every_part_lies_in_the_folder_of_its_kind(tmp_path, name):
    for key in keys_of((name, name, 3), name, name):
        path = key.path(tmp_path).resolve()
        assert path.is_relative_to(tmp_path.resolve() / FOLDERS[key.kind])
        assert len(path.relative_to(tmp_path.resolve()).parts) == key.folder.count("/") + 2


def test_the_references_of_a_part_lie_as_its_scores_do():
    scores, _, *_ = keys_of(JOB)
    folder = replace(scores, kind="references").folder
    assert folder.partition("/")[2] == scores.folder.partition("/")[2]


# ---- parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", keys_of(JOB), ids=lambda key: key.kind)
def test_a_part_is_read_as_it_was_written(run_directory, key):
    assert not run_directory.has(key)
    run_directory.write(key, ROWS)
    assert run_directory.has(key) and not run_directory.has(replace(key, shard=1))
    again = RunDirectory(run_directory.root)
    assert [part.equals(ROWS) for part in again.read(key.kind, SCHEMA)] == [True]
    (path,) = again.parts(key.kind)
    assert pq.read_metadata(path).metadata[b"study"].decode() == key.study_key(again.manifest)
    again.remove([key])
    assert not RunDirectory(run_directory.root).has(key)


def test_the_writer_writes_in_order_and_raises_what_went_wrong(run_directory):
    made: list[int] = []

    def rows(shard: int) -> pa.Table:
        made.append(shard)
        return ROWS

    def failing() -> pa.Table:
        raise UserError("no rows")

    with run_directory.writer() as writer:
        for shard in range(9):
            key = PartKey.samples(("photos", "net", shard))
            writer.write(key, lambda shard=shard: rows(shard))
    assert made == [*range(9)] and len(run_directory.parts("samples")) == 9
    with pytest.raises(UserError, match="no rows"), run_directory.writer() as writer:
        writer.write(PartKey.samples(JOB), failing)


def test_parts_of_an_explainer_that_another_process_adds_are_read(run_directory):
    assert [*run_directory.manifest.study.explainers] == ["lime", "dice"]
    more = {**STUDY.explainers, "new": STUDY.explainers["lime"]}
    begin(run_directory.root, STUDY.model_copy(update={"explainers": more}), 2, "another")
    RunDirectory(run_directory.root).write(PartKey.scores(JOB, "stability", "new"), ROWS)
    assert len([*run_directory.read("scores", SCHEMA)]) == 1
    assert "new" in run_directory.manifest.study.explainers


def test_a_part_of_another_study_is_not_read(run_directory, tmp_path):
    begin(tmp_path / "other", STUDY.model_copy(update={"seed": 1}), 2, "test")
    other, key = RunDirectory(tmp_path / "other"), PartKey.references(JOB, "stability", "lime")
    other.write(key, ROWS)
    shutil.copytree(other.root / "references", run_directory.root / "references")
    with pytest.raises(Foreign, match="lime"):
        list(run_directory.read("references", SCHEMA))
    with pytest.raises(UserError, match="lime"):
        remove_damaged_parts(run_directory, [key])
    assert run_directory.has(key)


def test_two_files_of_one_part_are_refused_until_one_is_removed(run_directory):
    key = PartKey.scores(JOB, "stability", "lime")
    run_directory.write(key, ROWS)
    run_directory.write(key, ROWS.slice(1))
    assert len(run_directory.existing_files([key])) == 2
    with pytest.raises(UserError, match="same shard"):
        run_directory.parts("scores")
    remove_damaged_parts(run_directory, [key])
    assert len(run_directory.parts("scores")) == 1


# ---- what is missing, and what is wrong ----------------------------------------------------------------------------


def test_a_run_misses_exactly_what_its_manifest_promises_and_is_not_there(run_directory):
    jobs = [("photos", "net", shard) for shard in (0, 1)]
    promised = {PartKey.scores(job, "stability", name) for job in jobs for name in ("lime", "dice")}
    assert set(run_directory.missing()) == promised
    for written in sorted(promised, key=str):
        run_directory.write(written, ROWS)
        promised.remove(written)
        assert promised <= set(run_directory.missing())
    assert set(run_directory.missing()) == {PartKey.samples(job) for job in jobs}
    for job in jobs:
        run_directory.write(PartKey.samples(job), ROWS)
    assert run_directory.missing() == []


def test_an_explainer_that_is_left_out_is_not_missing(tmp_path):
    stability = STUDY.evaluation("stability").model_copy(update={"left_out": {"lime": "too slow"}})
    begin(tmp_path, STUDY.model_copy(update={"evaluations": {"stability": stability}}), 2, "test")
    assert {key.explainer for key in RunDirectory(tmp_path).missing()} == {"dice"}


def test_kept_maps_are_promised_where_the_study_keeps_them(tmp_path):
    begin(tmp_path, Study.model_validate({**STUDY.as_mapping(), "maps": {}}), 2, "test")
    assert {key.explainer for key in RunDirectory(tmp_path).missing() if key.kind == "maps"} == {
        "lime",
        "dice",
    }


@pytest.mark.parametrize("key", keys_of(JOB), ids=lambda key: key.kind)
def test_damage_is_found_and_mended_in_every_folder(run_directory, key, caplog):
    run_directory.write(key, ROWS)
    (path,) = run_directory.parts(key.kind)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert states(run_directory.root)[storage.within(path, run_directory.root)] == "corrupt"
    with pytest.raises(UserError, match=path.name):
        list(run_directory.read(key.kind, SCHEMA))
    with pytest.raises(UserError, match=path.name):
        merge(run_directory.root.with_name("joined"), [run_directory.root])
    remove_damaged_parts(run_directory, keys_of(JOB))
    assert path.name in caplog.text and not run_directory.has(key)


@pytest.mark.parametrize("key", keys_of(JOB), ids=lambda key: key.kind)
def test_a_part_without_a_study_and_a_strange_file_are_foreign(run_directory, key):
    path = write_part(key.path(run_directory.root), ROWS)
    (path.parent / "notes.txt").write_text("mine")
    found = states(run_directory.root)
    assert found.pop("manifest.json") == "intact"
    assert set(found.values()) == {"foreign"} and len(found) == 2


def test_merging_takes_every_kind_of_part(run_directory, tmp_path):
    for key in keys_of(("photos", "net", 0)):
        run_directory.write(key, ROWS)
    begin(tmp_path / "second", STUDY, 2, "test")
    second = RunDirectory(tmp_path / "second")
    for key in keys_of(("photos", "net", 1)):
        second.write(key, ROWS)
    joined = merge(tmp_path / "joined", [run_directory.root, second.root])
    assert {kind: len(joined.directory.parts(kind)) for kind in FOLDERS} == dict.fromkeys(
        FOLDERS, 2
    )
    assert set(states(joined.path).values()) == {"intact"}


@pytest.mark.parametrize("kind", ["scores", "references"])
def test_runs_with_different_rows_for_one_part_are_not_merged(run_directory, tmp_path, kind):
    key = PartKey(kind, "photos", "net", "stability", "lime")
    begin(tmp_path / "second", STUDY, 2, "test")
    run_directory.write(key, ROWS)
    RunDirectory(tmp_path / "second").write(key, ROWS.slice(1))
    with pytest.raises(UserError, match="different results"):
        merge(tmp_path / "joined", [run_directory.root, tmp_path / "second"])
    assert not (tmp_path / "joined").exists()


def test_a_finished_run_has_no_missing_and_no_damaged_parts(tmp_path):
    from support.small import model, pictures

    jpeg = heatproof.Stability(perturbations="jpeg", k=20)
    out = tmp_path / "run"
    done = heatproof.evaluate(model(), pictures(4)[0], ["saliency", "random"], jpeg, out)
    assert {verdict.state for verdict in verify(done.path)} == {"intact"}
    assert done.directory.missing() == []
    assert done.directory.parts("references") and len(done.directory.parts("scores")) == 2
    shutil.rmtree(done.path / "references")
    assert {verdict.state for verdict in verify(done.path)} == {"intact"}
