"""The manifest: what is written is read again, a wrong field is named, and a run grows without contradicting itself."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import heatproof
from heatproof.errors import UserError
from heatproof.runs import digests, manifest
from heatproof.runs.manifest import (
    FORMAT,
    EvaluationEntry,
    ExplainerEntry,
    Manifest,
    Study,
    begin,
    read_manifest,
    write_manifest,
)
from heatproof.runs.verify import missing


def study_of(**changes: Any) -> dict[str, Any]:
    """A study as manifest.json holds it."""
    return {
        "seed": 7,
        "models": {"nét": {"fingerprint": "a1", "mean": [0.5], "std": None}},
        "datasets": {"photos": {"fingerprint": "b2", "samples": 5, "references": ["x", "y"]}},
        "tasks": {"photos": {"nét": {"modality": "image", "unit": "pixel"}}},
        "explainers": {
            "lime": {"name": "lime", "role": "method", "samples": 64, "fill": {"name": "blur"}},
            "edges": {"name": "sobel", "role": "control"},
        },
        "evaluations": {
            "mine": {"name": "stability", "k": 50, "conditions": [["jpeg", 40]], "left_out": {}}
        },
        **changes,
    }


def content_of(**study: Any) -> dict[str, Any]:
    return {"format": FORMAT, "heatproof": "1", "shard_size": 2, "study": study_of(**study)}


def write(root, content: dict[str, Any]) -> None:
    """Write a manifest that a run might not have written, with a digest that is right."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "manifest.json").write_bytes(digests.sealed(content))


def with_explainer(name: str, entry: ExplainerEntry) -> Study:
    study = Study.model_validate(study_of())
    return study.model_copy(update={"explainers": {name: entry}})


# ---- reading and writing -------------------------------------------------------------------------------------------


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    content = content_of(later={"a key of a later version": [1, 2.5, None]})
    write(tmp_path, content)
    found = read_manifest(tmp_path)
    assert json.loads(json.dumps(found.as_mapping())) == content
    write_manifest(tmp_path / "copy", found)
    assert read_manifest(tmp_path / "copy") == found


def test_parameters_of_the_users_objects_are_kept_as_they_are(tmp_path):
    write(tmp_path, content_of())
    study = read_manifest(tmp_path).study
    assert study.explainer("lime").parameters == {"samples": 64, "fill": {"name": "blur"}}
    assert study.evaluation("mine").parameters == {"k": 50}
    assert study.evaluation("mine").settings == {"name": "stability", "k": 50}


@pytest.mark.parametrize(
    "name", ["copy", "json", "model_dump", "parameters", "self", "model_extra"]
)
def test_a_parameter_may_have_the_name_of_a_method(name):
    entry = ExplainerEntry.model_validate({"name": "mine", name: 3})
    assert entry.parameters == {name: 3} and entry.as_mapping() == {"name": "mine", name: 3}


def test_accessors_answer_what_the_study_says_and_stay_silent_on_the_rest(tmp_path):
    write(tmp_path, content_of())
    found = read_manifest(tmp_path)
    assert found.controls == ["edges"]
    assert found.references("photos") == ["x", "y"] and found.references("other") == []
    assert found.task("photos", "nét").unit == "pixel" and found.task("photos", "b").unit == ""
    assert [*found.shards("photos")] == [0, 1, 2] and [*found.shards("other")] == []
    assert found.study.evaluation("other").conditions == []


@pytest.mark.parametrize("content", ["not json", "[]", "{}", '{"name": "my web app", "icons": []}'])
def test_a_manifest_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match="manifest"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("form", [{}, {"format": 2}, {"format": FORMAT + 1}])
def test_a_run_of_another_format_is_refused_with_both_formats_and_the_version(tmp_path, form):
    write(tmp_path, {**form, "heatproof": "0.1.0", "study": {"seed": 0}, "shard_size": 3})
    facts = rf"{form.get('format', 1)} .*0\.1\.0.* {FORMAT}"
    with pytest.raises(UserError, match=facts):
        heatproof.read(tmp_path)
    with pytest.raises(UserError, match=facts):
        heatproof.evaluate(torch.nn.Flatten(), torch.rand(2, 3, 32, 32), "random", out=tmp_path)


WRONG = {
    "study.seed": lambda c: c["study"].update(seed=0.5),
    "study.datasets": lambda c: c["study"].pop("datasets"),
    "study.datasets.d.samples": lambda c: c["study"]["datasets"].update(d={"samples": "3"}),
    "study.datasets.e.samples": lambda c: c["study"]["datasets"].update(e={"samples": 10**18}),
    "study.datasets.d.references": lambda c: c["study"]["datasets"].update(d={"references": "a"}),
    "study.models.m": lambda c: c["study"]["models"].update(m=None),
    "study.models.m.fingerprint": lambda c: c["study"]["models"].update(m={"fingerprint": 3}),
    "study.tasks.photos": lambda c: c["study"]["tasks"].update(photos=[]),
    "study.explainers.e.role": lambda c: c["study"]["explainers"].update(e={"role": ["method"]}),
    "conditions.0": lambda c: c["study"]["evaluations"].update(e={"conditions": [["jpeg"]]}),
    "left_out.lime": lambda c: c["study"]["evaluations"].update(e={"left_out": {"lime": None}}),
    "study.maps.samples": lambda c: c["study"].update(maps={"samples": "some"}),
    "shard_size": lambda c: c.update(shard_size=0),
    "versions.torch": lambda c: c.update(versions={"torch": 2}),
    "created": lambda c: c.update(created=2026),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_field_is_named_with_the_file(tmp_path, field):
    content = content_of()
    WRONG[field](content)
    write(tmp_path, content)
    for reader in (heatproof.read, missing):
        with pytest.raises(UserError) as error:
            reader(tmp_path)
        assert field in str(error.value) and "manifest.json" in str(error.value)
        assert "\n" not in str(error.value)


def test_a_wrong_field_of_a_session_is_named_with_its_file(tmp_path):
    write(tmp_path, content_of())
    (tmp_path / "sessions").mkdir()
    path = tmp_path / "sessions" / "20260101.json"
    path.write_bytes(digests.sealed({"durations": {"stability": "long"}}))
    with pytest.raises(UserError, match=r"20260101\.json.*durations\.stability"):
        read_manifest(tmp_path)


def test_what_a_session_adds_must_be_of_the_right_type_as_well(tmp_path):
    write(tmp_path, content_of())
    (tmp_path / "sessions").mkdir()
    path = tmp_path / "sessions" / "20260101.json"
    path.write_bytes(digests.sealed({"adds": {"explainers": {"new": "saliency"}}}))
    with pytest.raises(UserError, match=r"sessions.*explainers\.new"):
        read_manifest(tmp_path)


# ---- resuming ------------------------------------------------------------------------------------------------------


def test_a_resumed_run_has_every_session_and_the_command_of_the_last(tmp_path):
    study = Study.model_validate(study_of())
    for number, command in enumerate(("first", "second")):
        session = begin(tmp_path, study, 2, command)
        session.record({"started": "2026-01-01", "command": command, "passes": {"nét": number}})
    found = read_manifest(tmp_path)
    assert [session.passes["nét"] for session in found.sessions] == [0, 1]
    assert found.command == "second" and found.study == study


def test_recording_again_replaces_what_the_process_wrote_before(tmp_path):
    session = begin(tmp_path, Study.model_validate(study_of()), 2, "first")
    session.record({"seconds": 1.0})
    session.record({"seconds": 2.0})
    assert [recorded.seconds for recorded in read_manifest(tmp_path).sessions] == [2.0]


def test_a_run_keeps_its_shard_size_and_its_references_when_it_is_resumed(tmp_path):
    study = Study.model_validate(study_of())
    begin(tmp_path, study, 2, "first")
    assert begin(tmp_path, study, 16, "second").manifest.shard_size == 2
    fewer = study_of()
    fewer["datasets"]["photos"]["references"] = ["x"]
    with pytest.raises(UserError, match=r"datasets\.photos\.references.*y"):
        begin(tmp_path, Study.model_validate(fewer), 2, "third")


def test_many_processes_may_begin_one_run_and_add_explainers_at_once(tmp_path):
    studies = [with_explainer(f"e{i}", ExplainerEntry(name="lime")) for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda study: begin(tmp_path, study, 2, "test"), studies))
    assert set(read_manifest(tmp_path).study.explainers) == {f"e{i}" for i in range(8)}


def test_another_explainer_under_a_known_name_is_refused_with_both_values(tmp_path):
    first = ExplainerEntry.model_validate({"name": "lime", "samples": 64})
    second = ExplainerEntry.model_validate({"name": "lime", "samples": 65})
    begin(tmp_path, with_explainer("lime", first), 2, "test")
    with pytest.raises(manifest.AnotherStudy, match=r"explainers\.lime\.samples.*64.*65"):
        begin(tmp_path, with_explainer("lime", second), 2, "test")


# ---- what a part depends on ----------------------------------------------------------------------------------------

KEY = ("photos", "nét", "mine", "lime")


def changed(change) -> Manifest:
    content = content_of()
    change(content)
    return Manifest.model_validate(content)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["study"].update(seed=8),
        lambda c: c.update(shard_size=3),
        lambda c: c.update(heatproof="2"),
        lambda c: c["study"]["models"]["nét"].update(fingerprint="a2"),
        lambda c: c["study"]["datasets"]["photos"].update(fingerprint="b3"),
        lambda c: c["study"]["explainers"]["lime"].update(samples=65),
        lambda c: c["study"]["evaluations"]["mine"].update(k=51),
    ],
)
def test_the_key_of_a_part_changes_with_everything_that_its_rows_depend_on(change):
    assert changed(change).study_key(*KEY) != changed(lambda c: None).study_key(*KEY)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["study"]["explainers"].update(new={"name": "random"}),
        lambda c: c["study"]["evaluations"].update(new={"name": "agreement"}),
        lambda c: c["study"]["evaluations"]["mine"]["left_out"].update(edges="a control"),
        lambda c: c["study"]["datasets"]["photos"].update(samples=6),
        lambda c: c["study"]["explainers"]["lime"].update(samples=64.0),
        lambda c: c.update(command="another", created="2027"),
    ],
)
def test_the_key_of_a_part_stays_when_a_run_grows(change):
    assert changed(change).study_key(*KEY) == changed(lambda c: None).study_key(*KEY)


def test_the_evaluations_of_the_engine_have_shards_and_retraining_has_none():
    assert EvaluationEntry.model_validate({"left_out": {}}).is_sharded
    assert not EvaluationEntry.model_validate({"name": "retraining"}).is_sharded
