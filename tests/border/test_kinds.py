"""From a study file to the table, for every kind of data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import heatproof
from border.entry import command, write_study
from border.kinds import EVALUATIONS, KINDS, evaluations, model_and_data
from border.nets import NAMES
from border.tables import PAIR, assert_same, range_of, rows

every_kind = pytest.mark.parametrize("kind", KINDS)
NAMES_OF_THE_STUDY = ("dataset", "model")
"""A study file calls data and model after their source, and Python after what they are."""


class CountedGradient:
    """The gradient times the input, which counts the maps that it makes."""

    stochastic = False

    def __init__(self) -> None:
        self.maps = 0

    def __call__(self, model, batch, target, seed):
        self.maps += len(batch)
        return heatproof.InputXGradient()(model, batch, target, seed)


def part_files(directory: Path) -> dict[str, bytes]:
    files = sorted(directory.rglob("*.parquet"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@every_kind
def test_the_samples_are_those_given(kind, studied):
    run = heatproof.read(studied(kind))
    assert sorted(run.samples()["sample"]) == sorted(NAMES)
    assert set(run.table()["sample"]) == set(NAMES)


@every_kind
def test_every_attempted_pair_is_exactly_one_row(kind, studied):
    table = heatproof.read(studied(kind)).table()
    assert not table.duplicated(PAIR).any()
    samples = table.groupby(PAIR[:-1])["sample"].nunique()
    assert set(samples) == {len(NAMES)}


@every_kind
def test_every_test_of_the_study_has_rows_of_every_explainer(kind, studied):
    table = heatproof.read(studied(kind)).table()
    asked = {line.split(":")[0] for line in EVALUATIONS[kind]}
    assert set(table["evaluation"]) == asked
    for _, part in table.groupby("evaluation"):
        assert set(part["explainer"]) == {"saliency", "random"}


@every_kind
def test_a_row_has_a_score_or_a_reason(kind, studied):
    table = heatproof.read(studied(kind)).table()
    assert set(table["status"]) <= {"ok", "flipped", "undefined"}
    scored = table["status"] == "ok"
    assert scored.any()
    assert np.isfinite(table["value"][scored]).all()
    assert table["value"][~scored].isna().all()
    assert (table["reason"][~scored] != "").all()
    assert (table["reason"][scored] == "").all()


@every_kind
def test_values_lie_in_the_range_of_their_measure(kind, studied):
    table = heatproof.read(studied(kind)).table()
    for measure, part in table[table["status"] == "ok"].groupby("measure"):
        low, high = range_of(measure)
        assert part["value"].between(low - 1e-6, high + 1e-6).all(), measure
        bounded = part.dropna(subset=["low", "high"])
        assert (bounded["low"] <= bounded["value"] + 1e-6).all(), measure
        assert (bounded["high"] >= bounded["value"] - 1e-6).all(), measure


@every_kind
def test_the_summary_is_the_mean_of_the_scored_rows(kind, studied):
    run = heatproof.read(studied(kind))
    keys = PAIR[:-1]
    scored = run.table().query("status == 'ok'")
    means = scored.groupby(keys)["value"].mean()
    summary = run.summary().set_index(keys)["mean"].dropna()
    assert len(summary) > 0
    expected = means.reindex(summary.index).to_numpy()
    np.testing.assert_allclose(summary.to_numpy(), expected, rtol=0, atol=1e-6)


@every_kind
def test_python_gives_the_table_of_the_study_file(kind, studied, tmp_path):
    study_file = heatproof.read(studied(kind)).table()
    model, data = model_and_data(kind)
    again = heatproof.evaluate(
        model, data, ["saliency", "random"], evaluations(kind), tmp_path / "run", shard_size=4
    )
    assert_same(study_file, again.table(), but=NAMES_OF_THE_STUDY)


@every_kind
def test_a_part_that_was_deleted_is_computed_again_with_the_same_result(kind, tmp_path):
    model, data = model_and_data(kind)
    asked = (["saliency", "random"], evaluations(kind), tmp_path / "run")
    before = heatproof.evaluate(model, data, *asked, shard_size=4).table()
    files = sorted((tmp_path / "run" / "parts").rglob("*.parquet"))
    files[len(files) // 2].unlink()
    assert len(heatproof.read(tmp_path / "run").table()) < len(before)
    after = heatproof.evaluate(model, data, *asked, shard_size=4)
    assert_same(before, after.table())


@every_kind
def test_an_added_explainer_computes_only_its_own_part(kind, tmp_path):
    model, data = model_and_data(kind)
    without_agreement = evaluations(kind, but=("agreement",))
    counted = CountedGradient()
    explainers = {"counted": counted}
    out = tmp_path / "run"
    before = heatproof.evaluate(model, data, explainers, without_agreement, out, shard_size=4)
    table, files, maps = before.table(), part_files(out / "parts"), counted.maps
    assert maps > 0
    explainers["random"] = heatproof.RandomMap()
    after = heatproof.evaluate(model, data, explainers, without_agreement, out, shard_size=4)
    assert counted.maps == maps
    assert files.items() <= part_files(out / "parts").items()
    assert_same(table, rows(after, explainer="counted"))
    assert set(after.table()["explainer"]) == {"counted", "random"}


@every_kind
def test_a_study_that_grew_ends_with_the_table_of_one_that_was_whole(kind, tmp_path):
    model, data = model_and_data(kind)
    explainers = ["input_x_gradient", "saliency", "random"]
    tests = evaluations(kind)
    whole = heatproof.evaluate(model, data, explainers, tests, shard_size=4)
    grown = tmp_path / "run"
    heatproof.evaluate(model, data, explainers[:2], tests, grown, shard_size=4)
    after = heatproof.evaluate(model, data, explainers, tests, grown, shard_size=4)
    assert_same(whole.table(), after.table())


@every_kind
def test_a_random_map_belongs_to_its_sample_and_not_to_its_place_in_the_data(kind):
    model, data = model_and_data(kind)
    maps = heatproof.explain(model, data, "random")
    backwards = heatproof.explain(model, data[list(range(len(NAMES)))[::-1]], "random")
    assert (maps == backwards[::-1]).all()
    for batch_size in (1, 3):
        assert (maps == heatproof.explain(model, data, "random", batch_size=batch_size)).all()


@pytest.mark.parametrize("shard_size", [1, 3])
def test_the_table_does_not_depend_on_how_the_work_was_divided(shard_size):
    model, data = model_and_data("table")
    tests = evaluations("table", but=("faithfulness",))
    whole = heatproof.evaluate(model, data, ["random", "weight_noise"], tests)
    divided = heatproof.evaluate(
        model, data, ["random", "weight_noise"], tests, shard_size=shard_size
    )
    assert_same(whole.table(), divided.table())


def test_the_same_study_run_twice_gives_the_same_table(tmp_path):
    study = write_study(
        tmp_path, "table", "[saliency, random, {smoothgrad: {samples: 4}}]", ["stability"]
    )
    for name in ("first", "second"):
        assert command("run", study, "--allow-code", "--out", tmp_path / name).code == 0
    first, second = heatproof.read(tmp_path / "first"), heatproof.read(tmp_path / "second")
    assert_same(first.table(), second.table())


@every_kind
def test_another_seed_gives_other_random_maps_and_the_same_gradients(kind):
    model, data = model_and_data(kind)
    gradients = [heatproof.explain(model, data, "saliency", seed=seed) for seed in (0, 1)]
    np.testing.assert_allclose(*gradients, rtol=0, atol=1e-6)
    drawn = [heatproof.explain(model, data, "random", seed=seed) for seed in (0, 0, 1)]
    assert (drawn[0] == drawn[1]).all()
    assert not (drawn[0] == drawn[2]).all()


def test_explanations_have_the_shape_of_the_samples():
    for kind in KINDS:
        model, data = model_and_data(kind)
        maps = torch.from_numpy(heatproof.explain(model, data, "saliency"))
        assert len(maps) == len(NAMES)
        if kind != "text":
            assert maps.shape == data.x.shape
        else:
            assert maps.shape[:2] == data.x.shape
        assert torch.isfinite(maps).all()
