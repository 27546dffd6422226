"""Certificates as an evaluation of a study."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

import holdfast
from holdfast import Certificate, Stability, UserError
from holdfast.features import Patches
from holdfast.table import KEY
from small import model, pictures

METHODS = ["saliency", "random", {"lime": {"samples": 30, "features": {"patches": {"size": 8}}}}]


def run(n=5, evaluations=None, **options):
    axis = evaluations or Certificate(radii=(1, 4), features=Patches(8))
    return holdfast.evaluate(model(), pictures(n), METHODS, axis, **options)


def test_rows_are_rates_with_guaranteed_bounds():
    table = run().table()
    assert set(table.measure) == {"rate", "certified", "passes"}
    rate = table[table.measure == "rate"].set_index(["explainer", "sample", "level"]).sort_index()
    assert len(rate) == 3 * 5 * 2
    ok = rate[rate.status == "ok"]
    assert len(ok) > 20
    assert ((ok.low <= ok.value) & (ok.value <= ok.high) & (ok.low >= 0) & (ok.high <= 1)).all()
    certified = table[table.measure == "certified"].set_index(["explainer", "sample", "level"]).sort_index()
    pd.testing.assert_series_equal(certified.value, rate.low, check_names=False)
    enumerated = ok.xs(1.0, level="level")
    assert (enumerated.low == enumerated.high).all(), "thirteen supersets are few enough to try them all"


def test_rows_agree_with_the_function():
    subject, (images, _) = model(), pictures(5)
    table = run().table()
    ids = tuple(sorted(table["sample"].unique()))
    batch = holdfast.Batch(ids, images)
    target = subject.logits(subject.inputs(batch)).argmax(1)
    maps = holdfast.Saliency()(subject, batch, target, 0)
    mask = holdfast.masks.select(maps, batch, Patches(8), fraction=0.25, seed=0)
    found = holdfast.certify(subject, batch, mask, Patches(8), (1, 4), seed=0)
    rows = table[(table.explainer == "saliency") & (table.measure == "rate")].sort_values(["level", "sample"])
    assert torch.equal(torch.tensor(rows.value.to_numpy()).reshape(2, 5).T.float(), found.rate.float())


@pytest.mark.parametrize(("batch_size", "shard_size"), [(1, 5), (3, 2), (64, 50)])
def test_the_table_does_not_depend_on_batches_or_shards(batch_size, shard_size):
    first = run(batch_size=2, shard_size=5).table().set_index(KEY)
    second = run(batch_size=batch_size, shard_size=shard_size).table().set_index(KEY).reindex(first.index)
    assert (first.status == second.status).all()
    assert (first.value - second.value).abs().max() < 1e-9


def test_both_axes_in_one_study_share_the_clean_maps():
    both = [Stability(perturbations="jpeg", k=50), Certificate(radii=(1,), features=Patches(8))]
    done = run(4, both)
    assert set(done.table().evaluation) == {"stability", "certificate"}
    summary = done.summary()
    assert {"rate", "certified", "fass"} <= set(summary.measure)
    page = done.report().read_text()
    assert "Certified rate" in page


def test_a_constant_map_has_no_certificate():
    def flat(model, batch, target, seed):
        return torch.ones_like(model.inputs(batch))

    axis = Certificate(radii=(1,), features=Patches(8))
    table = holdfast.evaluate(model(), pictures(2), [flat], axis).table()
    assert set(table.status) == {"undefined"}
    assert set(table.reason) == {"the map is constant"}


def test_what_cannot_work_is_refused_before_any_pass():
    subject = model()
    with pytest.raises(UserError, match="make one feature"):
        holdfast.evaluate(subject, pictures(2), "saliency", Certificate(features=Patches(32)))
    assert subject.passes == 0
    with pytest.raises(ValueError, match="different"):
        Certificate(radii=(1, 1))
