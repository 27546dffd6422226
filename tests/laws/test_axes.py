"""The laws of the bench for the axes other than stability, and for explainers by examples and concepts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch import nn

import heatproof
from heatproof import Batch
from heatproof.runs.tables import KEY
from support.laws import AXES, OTHER_KINDS, TRAIN, run_axis, undeclared
from support.small import drawn, model, pictures


@pytest.fixture(scope="module", params=sorted(AXES))
def axis(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reference(axis: str) -> pd.DataFrame:
    return run_axis(axis, batch_size=64, shard_size=50)


def assert_same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    a, b = (frame.sort_values(KEY, ignore_index=True) for frame in (a, b))
    pd.testing.assert_frame_equal(a[[*KEY, "status", "reason"]], b[[*KEY, "status", "reason"]])
    for column in ("value", "low", "high"):
        x, y = a[column].to_numpy(dtype=float), b[column].to_numpy(dtype=float)
        assert np.array_equal(np.isnan(x), np.isnan(y))
        far = np.abs(x - y) > 1e-4 * np.maximum(1, np.abs(x))
        assert not far.any(), a[far].assign(other=y[far])


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 3, "shard_size": 2}])
def test_the_table_does_not_depend_on_batches_and_shards(
    axis: str, reference: pd.DataFrame, options: dict[str, int]
) -> None:
    assert_same(reference, run_axis(axis, **{"shard_size": 50, **options}))


@pytest.mark.parametrize("seed", range(20))
def test_nor_does_it_for_any_other_weights(seed: int) -> None:
    axis = sorted(AXES)[seed % len(AXES)]
    assert_same(*(run_axis(axis, n=3, net=drawn(seed), batch_size=size) for size in (64, 1)))


def test_nor_on_the_order_of_the_samples(axis: str, reference: pd.DataFrame) -> None:
    images, labels = pictures(5)
    order = [3, 0, 4, 2, 1]
    known = sorted(reference["sample"].unique())
    shuffled = Batch(tuple(known[i] for i in order), images[order], label=labels[order])
    assert_same(reference, run_axis(axis, data=shuffled, batch_size=64, shard_size=3))


def test_a_second_run_is_the_same_to_the_last_bit(axis: str, reference: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(reference, run_axis(axis, batch_size=64, shard_size=50))


def test_every_row_is_whole(axis: str, reference: pd.DataFrame) -> None:
    assert not reference.duplicated(KEY).any()
    ok = reference.status == "ok"
    assert reference[ok].value.notna().all() and (reference[ok].reason == "").all()
    assert reference[~ok].value.isna().all() and (reference[~ok].reason.str.len() > 0).all()
    counts = reference.groupby([*set(KEY) - {"sample"}], observed=True).size()
    assert (counts == 5).all(), "one row per sample"
    bounded = reference[ok & reference.low.notna()]
    assert (bounded.low <= bounded.value + 1e-9).all() and (
        bounded.value <= bounded.high + 1e-9
    ).all()
    assert ok.mean() > 0.5, "an axis that is never defined proves nothing"


def test_every_measure_is_declared_with_direction_and_role(reference: pd.DataFrame) -> None:
    assert undeclared(reference) == set()


def test_so_is_every_measure_of_other_modes_and_of_retraining(tmp_path: Path) -> None:
    given = {
        label: {"certificate": {**AXES["certificate"], "mode": label}}
        for label in ("decide", "hard")
    }
    done = heatproof.evaluate(model(), pictures(2), "saliency", given)
    assert {"stable", "unflipped"} <= set(done.table().measure)
    assert undeclared(done.table(), done.manifest) == set()

    def untrained(dataset: object, seed: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))

    probed = {"imputers": ["zero"], "orders": ["morf"], "fractions": [0.5], "leakage": True}
    retrained = heatproof.retrain(
        model(), pictures(24), pictures(8, seed=1), "saliency", untrained, tmp_path, **probed
    )
    assert set(retrained.table().evaluation) == {"retraining", "leakage"}
    assert undeclared(retrained.table(), retrained.manifest) == set()


def test_every_kind_of_explainer_is_judged(axis: str, reference: pd.DataFrame) -> None:
    expected = 4 + (len(OTHER_KINDS) if axis == "symmetry" else 0)
    assert reference.explainer.nunique() == expected


def test_explainers_of_other_kinds_are_left_out_and_the_manifest_says_so() -> None:
    methods = ["saliency", {"influence": {"train": TRAIN}, "as": "influence"}]
    axes = [{"certificate": AXES["certificate"]}, {"symmetry": {"group": {"dihedral": {"n": 1}}}}]
    done = heatproof.evaluate(model(), pictures(2), methods, axes)
    judged = done.table().groupby("evaluation").explainer.unique().map(set).to_dict()
    assert judged == {"certificate": {"saliency"}, "symmetry": {"saliency", "influence"}}
    why = done.manifest.study.evaluation("certificate").left_out["influence"]
    assert (
        why == "certificate judges feature explanations, and influence gives example explanations"
    )
    with pytest.raises(heatproof.UserError, match="feature explanations"):
        heatproof.evaluate(model(), pictures(2), methods[1:], axes[:1])
