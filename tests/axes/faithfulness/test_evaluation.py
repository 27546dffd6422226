"""Faithfulness as an evaluation of a study."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes.faithfulness.curves import readouts
from heatproof.axes.faithfulness.evaluation import NEEDS, Faithfulness
from heatproof.axes.faithfulness.sweeps import removal_ranks, removal_sizes, resolve_imputer
from heatproof.errors import make
from heatproof.features import Patches, Pixels, Tokens
from heatproof.runs.gallery import read_gallery
from heatproof.runs.tables import KEY
from support.small import model, pictures

METHODS = ["saliency", "input_x_gradient", "random"]
FEW = {"imputers": ["noisy_linear", "zero"], "fractions": (0.2, 0.6), "masks": 8}


def run(axis=None, n=5, methods=METHODS, subject=None, **options):
    data = options.pop("data", pictures(n))
    return heatproof.evaluate(
        subject or model(), data, methods, axis or Faithfulness(**FEW), **options
    )


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return run(batch_size=64, shard_size=50).table()


def test_every_condition_that_is_announced_has_rows_for_every_sample_and_no_other_has(table):
    announced = set(Faithfulness(**FEW).conditions())
    found = set(zip(table.condition, table.level, strict=True))
    assert found == announced
    assert not table.duplicated(KEY).any()
    assert (table.groupby(["explainer", "measure", "condition", "level"]).size() == 5).all()
    curves = table[table.condition.str.contains(" ")]
    for order, measures in (
        ("morf", {"accuracy", "probability", "logit", "margin"}),
        ("lerf", {"accuracy", "probability", "logit", "margin"}),
        ("random", {"detectability"}),
    ):
        of_order = curves[curves.order == order]
        assert set(of_order.measure) == measures
        assert set(of_order.condition) == {f"{i} {order}" for i in ("noisy_linear", "zero")}
    others = table[~table.condition.str.contains(" ")]
    swept = {metric for metric, orders in NEEDS.items() if orders}
    assert set(others[others.condition == "noisy_linear"].measure) == swept
    assert {
        "irof",
        "infidelity",
        "infidelity_scaled",
        "sensitivity_n",
        "faithfulness_correlation",
    } <= set(others[others.condition == "own_baseline"].measure)
    told = table.measure == "detectability"
    assert table[told].reason.str.contains("50 samples").all()
    table = table[~told]
    ok = table.status == "ok"
    assert ok.mean() > 0.95
    assert table[ok].value.notna().all() and (table[ok].reason == "").all()
    assert table[~ok].value.isna().all() and (table[~ok].reason != "").all()


def test_rows_are_what_the_model_says_of_images_imputed_by_hand(table):
    subject, (images, labels) = model(), pictures(5)
    ids = tuple(sorted(table["sample"].unique()))
    batch = Batch(ids, images)
    clean = subject.logits(subject.inputs(batch))
    target = clean.argmax(1)
    maps = heatproof.InputXGradient()(subject, batch, target, 0).sum(1).double()
    linear = resolve_imputer("noisy_linear")
    for order in ("morf", "lerf"):
        ranks = removal_ranks(maps.flatten(1), torch.full((5,), 1024), ids, order, 0).reshape(
            5, 32, 32
        )
        for fraction in (0.2, 0.6):
            size = int(removal_sizes((fraction,), torch.tensor([1024])))
            x = linear(images, ranks >= size, ids, 0)
            found = readouts(
                subject.logits(subject.inputs(batch.with_x(x)))[:, None], target, labels
            )
            rows = table[
                (table.explainer == "input_x_gradient")
                & (table.condition == f"noisy_linear {order}")
            ]
            rows = rows[rows.level == fraction].sort_values("sample")
            for name, value in found.items():
                got = rows[rows.measure == name].value.to_numpy()
                assert np.allclose(got, value[:, 0].numpy(), atol=1e-4), (order, fraction, name)


def test_summaries_follow_from_the_curves_in_the_table(table):
    wide = table[table.measure == "probability"].pivot_table(
        "value", ["explainer", "sample"], ["condition", "level"]
    )
    morf, lerf = ([wide[f"zero {order}"][f] for f in (0.2, 0.6)] for order in ("morf", "lerf"))
    road = ((lerf[0] - morf[0]) + (lerf[1] - morf[1])) / 4
    found = (
        table[(table.measure == "road") & (table.condition == "zero")]
        .set_index(["explainer", "sample"])
        .value
    )
    assert np.allclose(found.reindex(road.index), road)
    clean = run(
        Faithfulness(imputers="zero", fractions=(0.0, 1.0), metrics=()), methods=["saliency"]
    ).table()
    start = clean[
        (clean.measure == "probability") & (clean.level == 0) & clean.condition.str.endswith("morf")
    ]
    start = (
        start.set_index("sample").value.reindex(wide.index.get_level_values("sample")).to_numpy()
    )
    area = (0.2 * (start + morf[0]) / 2 + 0.4 * (morf[0] + morf[1]) / 2) / 0.6
    found = table[(table.measure == "deletion_auc") & (table.condition == "zero")].set_index(
        ["explainer", "sample"]
    )
    assert np.allclose(found.value.reindex(road.index), area)


def test_the_random_order_is_the_chance_of_both_orders_and_of_what_is_read_from_them(table):
    of_a_curve = table[(table.order != "") & (table.measure != "detectability")]
    of_a_curve = of_a_curve[of_a_curve.status == "ok"]
    drawn = of_a_curve.groupby(["sample", "measure", "imputer", "level"]).chance
    assert (drawn.size() == 2 * len(METHODS)).all()
    assert (drawn.nunique() == 1).all(), "one draw for every explainer, and for both orders"

    read = table[table.measure.isin(["deletion_auc", "insertion_auc"])]
    areas = read.pivot_table("chance", "sample", ["imputer", "measure"])
    for imputer in ("noisy_linear", "zero"):
        assert areas[imputer].notna().all(axis=None)
        assert np.allclose(areas[imputer]["deletion_auc"], areas[imputer]["insertion_auc"])


def test_chance_is_what_the_model_says_after_a_random_removal_by_hand(table):
    subject, (images, labels) = model(), pictures(5)
    batch = Batch(tuple(sorted(table["sample"].unique())), images)
    target = subject.logits(subject.inputs(batch)).argmax(1)
    counts = torch.full((5,), 1024)
    ranks = removal_ranks(torch.zeros(5, 1024), counts, batch.ids, "random", 0).reshape(5, 32, 32)
    size = int(removal_sizes((0.6,), counts)[0])
    left = batch.with_x(images * (ranks >= size)[:, None])
    expected = readouts(subject.logits(subject.inputs(left))[:, None], target, labels)
    rows = table[(table.explainer == "saliency") & (table.condition == "zero lerf")]
    rows = rows[rows.level == 0.6].sort_values("sample")
    for name, value in expected.items():
        assert np.allclose(rows[rows.measure == name].chance, value[:, 0].numpy(), atol=1e-4), name


def test_what_has_a_chance_by_symmetry_and_what_has_none(table):
    ok = table[table.status == "ok"]
    by_symmetry = ok.measure.isin(["road", "faithfulness_correlation", "sensitivity_n"])
    assert (ok[by_symmetry].chance == 0).all()
    nothing_known = ok.measure.isin(["infidelity", "infidelity_scaled", "detectability"])
    assert ok[nothing_known].chance.isna().all()
    assert ok[~nothing_known].chance.notna().all()
    without = run(Faithfulness(imputers="zero", fractions=(0.5,), orders=("morf", "lerf"), masks=8))
    rows = without.table().query("status == 'ok'")
    assert set(rows[rows.chance.notna()].measure) == set(ok[by_symmetry].measure)


def test_a_random_removal_that_the_model_does_not_survive_is_no_chance():
    """The map sends the left half away first and keeps the lower right corner, which a random order does not."""

    class NeedsTheCorner(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, -1.0, 0.0]))

        def forward(self, x):
            dark = x[:, 0, -8:, -8:].flatten(1).amin(1) == 0
            broken = torch.where(dark, torch.nan, 0.0)
            return (x.mean((1, 2, 3)) + broken)[:, None] * self.weight

    def leftwards(model, batch, target, seed):
        return torch.linspace(1, 0, 32).expand_as(model.inputs(batch))

    axis = Faithfulness(
        imputers="zero", fractions=(0.5,), orders=("morf", "random"), metrics=("aopc",)
    )
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)) + 0.01
    rows = run(axis, methods=[leftwards], subject=NeedsTheCorner(), data=images.clamp(max=1))
    rows = rows.table().query("measure != 'detectability'")
    assert set(rows.status) == {"ok"} and rows.chance.isna().all()
    assert rows.chance_reason.str.contains("random removal").all()


def test_the_accuracy_of_the_road_paper_is_the_share_of_samples_that_stay_right(table):
    """Tables 5 and 6 of the paper: at each share removed, right answers by the number of samples."""
    subject, (images, labels) = model(), pictures(5)
    batch = Batch(tuple(sorted(table["sample"].unique())), images)
    target = subject.logits(subject.inputs(batch)).argmax(1)
    maps = heatproof.InputXGradient()(subject, batch, target, 0).sum(1).flatten(1).double()
    counts = torch.full((5,), 1024)
    ranks = removal_ranks(maps, counts, batch.ids, "morf", 0).reshape(5, 32, 32)
    rows = table[(table.measure == "road_morf_accuracy") & (table.condition == "zero")]
    found = rows[rows.explainer == "input_x_gradient"].groupby("level").value.mean()
    for fraction in (0.2, 0.6):
        size = int(removal_sizes((fraction,), counts)[0])
        left = batch.with_x(images * (ranks >= size)[:, None])
        right = subject.logits(subject.inputs(left)).argmax(1) == labels
        assert found[fraction] == pytest.approx(right.double().mean().item())


@pytest.mark.parametrize(("batch_size", "shard_size"), [(1, 5), (3, 2)])
def test_the_table_does_not_depend_on_batches_or_shards(table, batch_size, shard_size):
    first = table.set_index(KEY)
    second = (
        run(batch_size=batch_size, shard_size=shard_size)
        .table()
        .set_index(KEY)
        .reindex(first.index)
    )
    assert (first.status == second.status).all()
    assert (
        first.value - second.value
    ).abs().max() < 1e-3  # what the solver of the imputation leaves open


def test_a_good_map_beats_a_random_one_on_a_model_whose_evidence_is_known():
    """Logits are sums of pixels of one half each, so the product of input and gradient knows what matters."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 2, bias=False))
    weight = torch.zeros(2, 3, 16, 16)
    weight[0, :, :, :4], weight[1, :, :, 12:] = 0.2, 0.2
    with torch.no_grad():
        net[1].weight.copy_(weight.flatten(1))
    images = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images[..., :4] *= 0.9
    axis = Faithfulness(imputers="zero", fractions=(0.25, 0.5), segments=Patches(4), masks=40)
    rows = run(
        axis, methods=["input_x_gradient", "random"], subject=Model(net), data=images
    ).table()
    rows = rows[rows.status == "ok"]
    mean = (
        rows[~rows.condition.str.contains(" ")]
        .groupby(["measure", "explainer"])
        .value.mean()
        .unstack()
    )
    good, chance = mean["input_x_gradient"], mean["random"]
    for up in (
        "road",
        "aopc",
        "insertion_auc",
        "irof",
        "sensitivity_n",
        "faithfulness_correlation",
    ):
        assert good[up] > chance[up], up
    for down in ("deletion_auc", "pixel_flipping", "infidelity"):
        assert good[down] < chance[down], down
    assert good["infidelity"] == pytest.approx(0, abs=1e-6)
    assert [good["sensitivity_n"], good["faithfulness_correlation"]] == pytest.approx([1, 1])


def test_passes_are_shared_and_paid_once():
    subject, n = model(), 3
    axis = Faithfulness(
        imputers=("zero", "image_mean"), fractions=(0.2, 0.4, 0.6), masks=8, segments=Patches(8)
    )
    done = run(axis, n, ["random", {"random": {}, "as": "again"}, "sobel"], subject, batch_size=4)
    assert len(done.table()) > 0
    engine = (
        n + n
    )  # the clean prediction, and that of the references, which are the same three samples
    sweeps = (
        3 * 2 * 2 * 3 + 2 * 3
    )  # explainers × imputers × orders × fractions, and the random order once
    segments = 3 * 3 + 3
    assert subject.passes == engine + n * (sweeps + segments + 8)


def test_bad_maps_are_undefined_and_cost_no_sweep():
    def flat(model, batch, target, seed):
        return torch.ones_like(model.inputs(batch))

    def balanced(model, batch, target, seed):
        maps = torch.zeros_like(model.inputs(batch))
        maps[:, 0], maps[:, 1] = 1.0, -1.0
        return maps

    def broken(model, batch, target, seed):
        maps = model.inputs(batch).clone()
        maps[0, 0, 0, 0] = torch.nan
        return maps

    subject = model()
    rows = run(n=2, methods=[flat, balanced], subject=subject, batch_size=2).table()
    assert set(rows.status) == {"undefined"}
    assert set(rows.reason) == {"the map is constant"}
    assert rows.value.isna().all()
    assert set(zip(rows.condition, rows.level, strict=True)) == set(
        Faithfulness(**FEW).conditions()
    )
    assert subject.passes == 2 * (2 + 2 * 2 + 2 + 8), (
        "predictions, random orders and the bank, and no sweep of a map"
    )
    rows = run(n=3, methods=[broken], batch_size=3).table()
    assert rows[rows.reason == "the map is not finite"]["sample"].nunique() == 1
    assert (
        rows[rows.reason == "the map is not finite"].groupby("sample").size() == len(rows) // 3
    ).all()
    assert (rows.status == "ok").mean() > 0.5


def test_accuracy_is_against_the_prediction_or_the_label():
    images, labels = pictures(6)
    wrong = (labels + 1) % 4
    first = {"imputers": "zero", "fractions": (0.0, 0.1), "orders": ("morf",), "metrics": ()}
    asked = Faithfulness(against="prediction", **first)
    own = run(asked, data=(images, wrong), methods=["saliency"]).table()
    assert (own[(own.measure == "accuracy") & (own.level == 0)].value == 1).all()
    true = run(
        Faithfulness(against="label", **first), data=(images, wrong), methods=["saliency"]
    ).table()
    assert (true[(true.measure == "accuracy") & (true.level == 0)].value == 0).mean() > 0.8
    pd.testing.assert_frame_equal(own[own.measure != "accuracy"], true[true.measure != "accuracy"])
    usual = run(Faithfulness(**first), data=(images, wrong), methods=["saliency"]).table()
    pd.testing.assert_frame_equal(usual, true)  # as ROAR has it
    unlabelled = run(Faithfulness(**first), data=images, methods=["saliency"]).table()
    assert (
        unlabelled[(unlabelled.measure == "accuracy") & (unlabelled.level == 0)].value == 1
    ).all()
    none = run(Faithfulness(against="label", **first), data=images, methods=["saliency"]).table()
    assert none[none.measure == "accuracy"].reason.str.contains("no label").all()
    assert set(none[none.measure != "accuracy"].status) == {"ok"}


def test_a_network_that_breaks_on_removed_pixels_is_undefined_there():
    class Fragile(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, -1.0, 0.0]))

        def forward(self, x):
            dark = (x.sum(1) == 0).float().mean((1, 2))
            broken = torch.where(dark > 0.5, torch.nan, 0.0)
            return (x.mean((1, 2, 3)) + broken)[:, None] * self.weight

    rows = run(
        Faithfulness(**{**FEW, "imputers": "zero", "metrics": ("road",)}), 3, ["random"], Fragile()
    ).table()
    rows = rows[rows.measure != "detectability"]
    late = (rows.level == 0.6) | (rows.measure == "road")
    assert rows[late].reason.str.contains("not finite").all()
    assert set(rows[~late].status) == {"ok"}


def test_a_prediction_that_is_not_finite_is_undefined_and_stops_no_other():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model().module

        def forward(self, x):
            return self.inner(x) + torch.where(x[:, 0, 0, 0] == 1, torch.nan, 0.0)[:, None]

    images, _ = pictures(3)
    images[1, 0, 0, 0] = 1.0
    rows = run(data=Batch(("a", "b", "c"), images), methods=["random"], subject=Picky()).table()
    assert rows[rows["sample"] == "b"].reason.str.contains("not finite").all()
    assert (rows[rows["sample"] != "b"].status == "ok").mean() > 0.9


def test_an_image_of_one_segment_has_no_irof_and_no_correlation():
    images = torch.full((2, 3, 16, 16), 0.4)
    images[1, :, :, 8:] = 0.9
    axis = Faithfulness(imputers="zero", fractions=(0.5,), orders=(), masks=8)
    assert axis.wanted == ("irof", "infidelity", "sensitivity_n", "faithfulness_correlation")
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3))
    rows = run(axis, methods=["random"], subject=net, data=images).table()
    first, second = (rows[rows["sample"] == s] for s in sorted(rows["sample"].unique()))
    assert first.reason.str.contains("one segment").all()
    assert set(second.status) == {"ok"}


def test_the_strip_shows_the_image_as_its_pixels_go():
    axis = Faithfulness(
        imputers=["zero", "noisy_linear"], fractions=(0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9), metrics=()
    )
    done = run(axis, 2, ["input_x_gradient"])
    strip = [e for e in read_gallery(done.path) if e.condition == "zero morf"]
    assert len(strip) == 2 * 6
    one = sorted((e for e in strip if e.sample == strip[0].sample), key=lambda e: e.level)
    assert [e.level for e in one] == [0.0, 0.1, 0.3, 0.4, 0.7, 0.9]
    dark = [(e.image.max(-1) < 30).mean() for e in one]
    assert all(b > a for a, b in pairwise(dark)) and dark[-1] > 0.8
    kept = [float((e.map > 0).mean()) for e in one[1:]]  # the mask beside the filled image
    assert one[0].map is None and kept == pytest.approx([0.9, 0.7, 0.6, 0.3, 0.1], abs=0.02)


def test_features_other_than_pixels_go_as_a_whole():
    axis = Faithfulness(
        imputers="zero", fractions=(0.5,), features=Patches(16), metrics=(), orders=("morf",)
    )
    done = run(axis, 1, ["input_x_gradient"])
    (gone,) = [e for e in read_gallery(done.path) if e.level == 0.5]
    quarters = [gone.image[r : r + 16, c : c + 16].max() < 40 for r in (0, 16) for c in (0, 16)]
    assert sum(quarters) == 2


def test_imputers_and_groupings_by_name_as_a_study_file_gives_them():
    axis = make(
        Faithfulness,
        "faithfulness",
        {
            "imputers": ["zero", {"noisy_linear": {"sigma": 0.05}}],
            "fractions": [0.5],
            "orders": ["morf", "lerf"],
            "segments": {"patches": {"size": 8}},
            "baseline": "image_mean",
            "metrics": ["road", "irof"],
        },
    )
    assert axis.segments == Patches(8) and axis.features == Pixels()
    assert axis.conditions() == [
        ("zero morf", 0.5),
        ("zero lerf", 0.5),
        ("noisy_linear(sigma=0.05) morf", 0.5),
        ("noisy_linear(sigma=0.05) lerf", 0.5),
        ("zero", 0.0),
        ("noisy_linear(sigma=0.05)", 0.0),
        ("image_mean", 0.0),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"imputers": ["noise_linear"]},
            r"faithfulness\.imputers.*'noise_linear'.*'noisy_linear'",
        ),
        ({"baseline": "blak"}, r"faithfulness\.baseline.*'blak'"),
        (
            {"fractions": [0.5, 1.2]},
            r"faithfulness\.fractions.*1\.2",
        ),
        ({"fractions": [0.5, 0.2]}, r"fractions.*0\.5, 0\.2"),
        ({"fractions": [0.2, 0.2]}, r"fractions.*0\.2, 0\.2"),
        ({"orders": ["morf", "mofr"]}, r"faithfulness\.orders.*mofr"),
        ({"orders": ["morf", "morf"]}, r"orders.*twice"),
        ({"orders": ["morf"], "metrics": ["road"]}, r"road.*'lerf'"),
        (
            {"metrics": ["deletion"]},
            r"faithfulness\.metrics.*'deletion'.*'deletion_auc'",
        ),
        ({"masks": 2}, r"4 masks.*2"),
        ({"subsets": [1.5]}, "faithfulness.subsets"),
        ({"fraction": 0.5}, r"'fraction'.*'fractions'"),
        ({"orders": [], "metrics": []}, r"orders.*metrics"),
    ],
)
def test_bad_parameters_are_named(given, message):
    with pytest.raises(UserError, match=message):
        make(Faithfulness, "faithfulness", given)


def test_what_cannot_work_is_refused_before_any_pass():
    subject = model()
    with pytest.raises(UserError, match=r"fraction 1 .*noisy_linear"):
        run(Faithfulness(fractions=(0.5, 1.0)), subject=subject)
    with pytest.raises(UserError, match=r"mean.*2 .*3 channels"):
        run(Faithfulness(imputers={"dataset_mean": {"mean": (0.1, 0.2)}}), subject=subject)
    with pytest.raises(UserError, match="32"):
        run(Faithfulness(features=Patches(32)), subject=subject)
    with pytest.raises(UserError, match="own_baseline"):
        run(Faithfulness(imputers=["own_baseline"]), subject=subject)
    assert subject.passes == 0
    tokens = Batch(("a",), torch.ones(1, 6, dtype=torch.int64))
    patches_of_texts = Faithfulness(features=Tokens(), segments=Patches(2), metrics=["road"])
    with pytest.raises(UserError, match=r"segments.*patches\(size=2\)"):
        patches_of_texts.configured_for(subject, tokens)
    with pytest.raises(UserError, match=r"2, 3, 4, 5, 6"):
        Faithfulness().configured_for(subject, Batch(("a",), torch.ones(1, 2, 3, 4, 5, 6)))


def test_where_features_are_few_a_fraction_that_leaves_nothing_is_undefined():
    class Halves:
        """Two features in even images, one in odd ones."""

        def check(self, shape):
            pass

        def total(self, shape):
            return None

        def segments(self, batch):
            labels = torch.zeros(len(batch), *batch.x.shape[2:], dtype=torch.int64)
            for i, sample in enumerate(batch.ids):
                labels[i, :, 16:] = 1 - int(sample[-1]) % 2
            return labels

    axis = Faithfulness(fractions=(0.5,), features=Halves(), metrics=("road",))
    images, _ = pictures(2)
    rows = run(axis, methods=["saliency"], data=Batch(("0", "1"), images)).table()
    rows = rows[rows.measure != "detectability"]
    assert set(rows[rows["sample"] == "0"].status) == {"ok"}
    assert set(rows[rows["sample"] == "1"].reason) == {"nothing would be kept"}


def test_the_fill_is_what_the_explainer_measures_against():
    """Exact contributions of a linear network of normalised inputs: mass and drop agree with its own baseline only."""
    torch.manual_seed(0)
    linear = heatproof.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 3)), mean=(0.5, 0.4, 0.3), std=0.25
    )
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    methods = {
        "zero": heatproof.IntegratedGradients(steps=4),
        "one": heatproof.IntegratedGradients(steps=4, baseline=1.0),
    }
    axis = {"fractions": (0.5,), "segments": Patches(2), "masks": 16, "orders": ()}
    axis["metrics"] = ("infidelity", "sensitivity_n")
    rows = heatproof.evaluate(linear, images, methods, Faithfulness(**axis)).table()
    wide = rows.groupby(["explainer", "measure"], observed=True).value.agg(["min", "max"])
    for name in methods:
        assert wide.loc[(name, "infidelity"), "max"] < 1e-8
        assert wide.loc[(name, "sensitivity_n"), "min"] > 1 - 1e-5
    black = heatproof.evaluate(
        linear, images, methods, Faithfulness(baseline="zero", **axis)
    ).table()
    assert black[black.measure == "infidelity"].value.min() > 1e-3
    assert set(rows.condition) == {"own_baseline"} and set(black.condition) == {"zero"}


def test_an_imputer_may_be_a_network_and_references_fill_images():
    paint = nn.Sequential(
        nn.Conv2d(4, 8, 16, stride=16), nn.ConvTranspose2d(8, 3, 16, stride=16)
    ).requires_grad_(False)

    def painted(x, keep, ids, seed):
        filled = paint(torch.cat([x * keep[:, None], keep[:, None].to(x)], 1)).sigmoid()
        return torch.where(keep[:, None], x, filled)

    axis = Faithfulness(imputers=[painted, "reference_mean"], fractions=(0.5,), metrics=("road",))
    rows = run(axis, n=3, methods=["saliency"]).table().query("measure == 'road'")
    assert set(rows.condition) == {"painted", "reference_mean"} and set(rows.status) == {"ok"}


def test_the_readout_is_the_one_asked_for_or_what_the_task_has():
    numbers = Model(nn.Sequential(nn.Flatten(), nn.Linear(3072, 1)), task="regression")
    batch = Batch(("a",), pictures(1)[0])
    chosen = {
        (judged.task.name, asked): Faithfulness(readout=asked).configured_for(judged, batch).readout
        for judged, possible in (
            (numbers, (None, "logit")),
            (model(), (None, "logit", "margin", "probability")),
        )
        for asked in possible
    }
    assert chosen == {
        key: key[1] or {"regression": "logit"}.get(key[0], "probability") for key in chosen
    }


def test_the_last_digits_of_a_map_do_not_order_what_is_equal():
    """Maps of other batch sizes differ by rounding; tied pixels keep their places."""
    g = torch.Generator().manual_seed(0)
    ties = torch.randint(0, 6, (3, 400), generator=g).double()
    rounded = ties + 1e-7 * torch.randn(3, 400, generator=g)
    counts, ids = torch.full((3,), 400), ("a", "b", "c")
    assert torch.equal(removal_ranks(ties, counts, ids), removal_ranks(rounded, counts, ids))
    assert not torch.equal(ties.argsort(dim=1, stable=True), rounded.argsort(dim=1, stable=True))


def test_explainers_are_imputed_together_and_score_as_they_do_alone():
    sizes = []

    def zero(x, keep, ids, seed):
        sizes.append(len(x))
        return x * keep[:, None]

    axis = Faithfulness(imputers=[zero], fractions=(0.2, 0.6), metrics=("road",))
    together = run(axis).table().set_index(KEY).value
    judged = [size for size in sizes if size > 1]  # without the trials of an imputer
    assert judged[:2] == [2 * 5, len(METHODS) * 2 * 2 * 5], (
        "a random order, and then both orders of all"
    )
    assert judged[2:] == [5 * 3] * len(METHODS), (
        "then the pictures of each, the whole image among them"
    )
    alone = (
        pd.concat([run(axis, methods=[method]).table() for method in METHODS]).set_index(KEY).value
    )
    pd.testing.assert_series_equal(together.sort_index(), alone.sort_index(), rtol=1e-5, atol=1e-6)
