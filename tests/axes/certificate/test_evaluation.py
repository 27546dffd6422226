"""Certificates as an evaluation of a study."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pandas as pd
import pytest
import torch

import heatproof
from heatproof import Batch, Certificate, Model, Stability, UserError
from heatproof.axes.certificate.chance import random_set_rates
from heatproof.axes.certificate.evaluation import NO_CLASSES
from heatproof.axes.certificate.explanations import MASKED_NOT_FINITE
from heatproof.axes.certificate.flips import TRIALS, find_flips
from heatproof.axes.certificate.gallery import EXAMPLES, EXPLANATION, FLIP, INPUT, NO_FLIP
from heatproof.features import Patches, Pixels, Superpixels, Tokens, count
from heatproof.maps.masks import select
from heatproof.runs.gallery import read_gallery
from heatproof.runs.tables import KEY
from support.small import model, pictures

METHODS = ["saliency", "random", {"lime": {"samples": 30, "features": {"patches": {"size": 8}}}}]


def run(n=5, evaluations=None, **options):
    axis = evaluations or Certificate(radii=(1, 4), features=Patches(8))
    return heatproof.evaluate(model(), pictures(n), METHODS, axis, **options)


def test_rows_are_rates_with_guaranteed_bounds():
    table = run().table()
    assert set(table.measure) == {
        "rate",
        "certified",
        "passes",
        "early",
        "early_draws",
        "sufficient",
    }
    rate = table[table.measure == "rate"].set_index(["explainer", "sample", "level"]).sort_index()
    assert len(rate) == 3 * 5 * 2
    ok = rate[rate.status == "ok"]
    assert len(ok) > 20
    assert ((ok.low <= ok.value) & (ok.value <= ok.high) & (ok.low >= 0) & (ok.high <= 1)).all()
    certified = (
        table[table.measure == "certified"].set_index(["explainer", "sample", "level"]).sort_index()
    )
    pd.testing.assert_series_equal(certified.value, rate.low, check_names=False)
    enumerated = ok.xs(1.0, level="level")
    assert (enumerated.low == enumerated.high).all(), (
        "thirteen supersets are few enough to try them all"
    )


def test_rows_agree_with_the_function():
    subject, (images, _) = model(), pictures(5)
    table = run().table()
    ids = tuple(sorted(table["sample"].unique()))
    batch = heatproof.Batch(ids, images)
    target = subject.logits(subject.inputs(batch)).argmax(1)
    maps = heatproof.Saliency()(subject, batch, target, 0)
    mask = select(maps, batch, Patches(8), fraction=0.25, seed=0)
    found = heatproof.certify(subject, batch, mask, Patches(8), (1, 4), seed=0)
    rows = table[(table.explainer == "saliency") & (table.measure == "rate")].sort_values(
        ["level", "sample"]
    )
    assert torch.equal(
        torch.tensor(rows.value.to_numpy()).reshape(2, 5).T.float(), found.rate.float()
    )


@pytest.mark.parametrize(("batch_size", "shard_size"), [(1, 5), (3, 2), (64, 50)])
def test_the_table_does_not_depend_on_batches_or_shards(batch_size, shard_size):
    first = run(batch_size=2, shard_size=5).table().set_index(KEY)
    second = (
        run(batch_size=batch_size, shard_size=shard_size)
        .table()
        .set_index(KEY)
        .reindex(first.index)
    )
    assert (first.status == second.status).all()
    assert (first.value - second.value).abs().max() < 1e-9


def test_explainers_certified_together_have_the_rows_and_flips_of_those_alone_in_fewer_calls(
    monkeypatch,
):
    calls, forward = [], Model.logits
    monkeypatch.setattr(
        Model, "logits", lambda self, *given: calls.append(1) or forward(self, *given)
    )
    axis = Certificate(
        radii=(1, 4), features=Superpixels(kernel_size=1.0, max_dist=4.0)
    )  # of any number

    def found(methods, rows):
        done = heatproof.evaluate(model(), pictures(5), methods, axis, batch_size=rows)
        shown = {
            (e.explainer, e.sample, e.condition): (e.level, e.note) for e in read_gallery(done.path)
        }
        return done.table().set_index(KEY).sort_index()[["value", "status", "reason"]], shown

    together = found(METHODS, 64)
    spent = len(calls)
    alone = [found([method], 64) for method in METHODS]
    pd.testing.assert_frame_equal(
        together[0], pd.concat([table for table, _ in alone]).sort_index()
    )
    assert (
        together[1] == {key: value for _, shown in alone for key, value in shown.items()}
        and len(together[1]) > 9
    )
    assert spent < 0.6 * (len(calls) - spent)


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
    table = heatproof.evaluate(model(), pictures(2), [flat], axis).table()
    assert set(table.status) == {"undefined"}
    assert set(table.reason) == {"the map is constant"}


def test_decisions_are_one_zero_or_open():
    table = run(
        8, Certificate(radii=(4, 8), features=Patches(8), mode="decide", epsilon=0.3)
    ).table()
    assert {"stable", "certified", "passes"} < set(table.measure)
    table = table[table.measure.isin({"stable", "certified", "passes"})]
    wide = table.pivot(
        index=["explainer", "sample", "level"],
        columns="measure",
        values=["value", "status", "reason", "low", "high"],
    )
    stable, status = wide["value"]["stable"], wide["status"]["stable"]
    assert set(stable[status == "ok"]) == {0.0, 1.0}
    undecided = status == "open"
    assert undecided.any() and stable[undecided].isna().all()
    assert wide["reason"]["stable"][undecided].str.contains("0.9").all()
    low, high = wide["low"]["stable"][undecided], wide["high"]["stable"][undecided]
    assert ((low < 0.9) & (high >= 0.9)).all(), "an open decision keeps what is known of the rate"
    assert (wide["value"]["certified"][undecided] == low).all()
    assert (wide["status"]["passes"][undecided] == "ok").all(), "an open decision has its price too"
    assert (wide["value"]["certified"][stable == 1] >= 0.9 - 1e-9).all()
    assert (wide["value"]["certified"][stable == 0] < 0.9).all()


def linear(**parameters) -> pd.DataFrame:
    """Rows about a linear net with ten inputs, of which an explanation has three."""
    g = torch.Generator().manual_seed(1)
    net = torch.nn.Linear(10, 3)
    with torch.no_grad():
        net.weight.copy_(torch.randn(3, 10, generator=g))
        net.bias.zero_()
    axis = Certificate(**{"features": Pixels(), "fill": "zero", **parameters})
    return heatproof.evaluate(
        net, torch.rand(4, 10, generator=g) + 0.3, ["saliency", "random"], axis
    ).table()


def test_decisions_agree_with_exact_rates():
    exact, decided = linear(radii=(1,)), linear(radii=(1,), mode="decide", threshold=0.87)
    keys = ["explainer", "sample"]
    rate = exact[exact.measure == "rate"].set_index(keys)
    assert (
        (rate.low == rate.high).all() and (rate.value < 0.87).any() and (rate.value == 0.875).any()
    )
    stable = decided[decided.measure == "stable"].set_index(keys).value
    pd.testing.assert_series_equal(stable, (rate.value >= 0.87).astype(float), check_names=False)


def test_hard_certificates_say_what_they_certify():
    table = run(8, Certificate(radii=(2, 8), features=Patches(8), mode="hard", epsilon=0.1)).table()
    assert {"unflipped", "certified", "passes"} < set(table.measure)
    assert set(table.status) == {"ok"}
    table = table[table.measure.isin({"unflipped", "certified", "passes"})]
    wide = table.pivot(index=["explainer", "sample", "level"], columns="measure", values="value")
    assert set(wide.unflipped) == {0.0, 1.0}
    assert (wide.certified[wide.unflipped == 1] >= 0.9).all() and (
        wide.certified[wide.unflipped == 0] < 1
    ).all()
    assert (wide.passes <= 22).all()


@pytest.mark.parametrize(
    "options", [{"agreement": "margin"}, {"simultaneous": True}, {"fill": 0.4}]
)
def test_margins_simultaneous_bounds_and_fills_reach_the_function(options):
    plain, other = (
        linear(radii=(2, 3), epsilon=0.3, **more).set_index(KEY).value for more in ({}, options)
    )
    assert not plain.equals(other)


def test_the_prediction_on_the_whole_input_can_be_the_anchor():
    subject, (images, _) = model(), pictures(12)
    batch = Batch(tuple(f"p{i:02}" for i in range(12)), images)
    target = subject.logits(subject.inputs(batch)).argmax(1)
    mask = select(
        heatproof.RandomMap()(subject, batch, target, 0), batch, Patches(8), fraction=0.25, seed=0
    )
    truth = heatproof.certify(subject, batch, mask, Patches(8), (1,), target=target)
    rows = {}
    for anchor in ("explanation", "full"):
        axis = Certificate(radii=(1,), features=Patches(8), anchor=anchor)
        table = heatproof.evaluate(subject, batch, ["random"], axis).table()
        rows[anchor] = {
            m: table[table.measure == m].sort_values("sample").value.tolist()
            for m in ("rate", "sufficient")
        }
    same = (truth.target == target).double().tolist()
    assert rows["full"]["rate"] == truth.rate[:, 0].tolist() != rows["explanation"]["rate"]
    assert rows["full"]["sufficient"] == rows["explanation"]["sufficient"] == same
    assert 0 < sum(same) < 12, "otherwise the two anchors are one"
    with pytest.raises(ValueError, match=r"full.*argmax"):
        Certificate(agreement="margin", anchor="full")


def wavering() -> tuple[Model, Batch]:
    """A model whose prediction on few features often changes when more are shown, and its samples."""
    g = torch.Generator().manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3, bias=False)
    )
    with torch.no_grad():
        for weights in net.parameters():
            weights.copy_(torch.randn(weights.shape, generator=g))
    ids = tuple(f"s{i:02}" for i in range(40))
    return Model(net), Batch(ids, torch.randn(40, 8, generator=g))


def rates_of(table: pd.DataFrame, explainer: str) -> pd.DataFrame:
    rows = table[(table.measure == "rate") & (table.explainer == explainer)]
    return rows.sort_values(["level", "sample"]).reset_index(drop=True)


@pytest.mark.parametrize("agreement", ["argmax", "margin"])
@pytest.mark.parametrize("anchor", ["explanation", "full"])
def test_chance_is_the_mean_rate_of_all_feature_sets_of_the_size(agreement, anchor):
    if (agreement, anchor) == ("margin", "full"):
        return  # a margin has no anchor
    net, batch = wavering()
    batch = batch[:6]
    target = net.logits(batch.x).argmax(1) if anchor == "full" else None
    radii, draws = (1, 3), 1500
    rates = []
    for chosen in combinations(range(8), 2):
        mask = torch.zeros(6, 8, dtype=torch.bool)
        mask[:, list(chosen)] = True
        result = heatproof.certify(
            net, batch, mask, Pixels(), radii, target=target, agreement=agreement, budget=100
        )
        assert bool(result.exact.all())
        rates.append(result.rate)
    truth = torch.stack(rates).mean(0)
    kept = torch.full((6,), 2)
    before = net.passes
    found = random_set_rates(
        net, batch, kept, Pixels(), radii, draws, target=target, agreement=agreement
    )
    assert (found - truth).abs().max() < 4.5 * (0.25 / draws) ** 0.5
    assert net.passes - before <= 6 * 2**8, "a set that is drawn again needs no pass"
    assert truth.max() - truth.min() > 0.2, "otherwise any number would do"


def test_random_features_are_at_chance_and_better_ones_above():
    net, batch = wavering()

    def sufficient(model, batch, target, seed):
        """Of all pairs of features the one after which the prediction changes least."""
        best = torch.full((len(batch),), -1.0)
        maps = torch.zeros(batch.x.shape)
        for chosen in combinations(range(8), 2):
            mask = torch.zeros(batch.x.shape, dtype=torch.bool)
            mask[:, list(chosen)] = True
            rate = heatproof.certify(model, batch, mask, Pixels(), (2,), budget=100).rate[:, 0]
            better = rate > best
            best, maps = best.where(~better, rate.float()), maps.where(~better[:, None], mask * 1.0)
        return maps

    axis = Certificate(radii=(2,), features=Pixels(), fill="zero", epsilon=0.05)
    done = heatproof.evaluate(net, batch, {"random": "random", "searched": sufficient}, axis)
    summary = done.summary()
    summary = summary[summary.measure == "rate"].set_index("explainer")
    assert summary.calibrated_low["random"] < 0 < summary.calibrated_high["random"]
    assert summary.calibrated_low["searched"] > 0
    (chance,) = set(summary.chance)
    assert summary.calibrated["searched"] == pytest.approx(
        (summary["mean"]["searched"] - chance) / (1 - chance)
    )
    ranking = done.ranking().set_index("explainer")
    assert ranking.score["searched"] == pytest.approx(summary.calibrated["searched"])
    assert ranking.raw["searched"] == pytest.approx(summary["mean"]["searched"])


def test_chance_is_shared_by_explainers_and_costs_nothing_when_off():
    net, batch = wavering()
    axis = Certificate(radii=(1, 3), features=Pixels(), fill="zero", chance_draws=20)

    def run_with(explainers, axis, **options):
        passes = net.passes
        table = heatproof.evaluate(net, batch, explainers, axis, **options).table()
        return table, net.passes - passes

    both, spent = run_with(["saliency", "random"], axis)
    alone, _ = run_with(["random"], axis, batch_size=3, shard_size=7)
    for name in ("saliency", "random"):
        assert rates_of(both, name).chance.tolist() == rates_of(alone, "random").chance.tolist()
    assert both[both.measure != "rate"].chance.isna().all(), "guarantees concern the rate itself"

    off, spent_without = run_with(["saliency", "random"], replace(axis, chance_draws=0))
    assert off.chance.isna().all()
    assert 0 < spent - spent_without <= 40 * 20 * 3
    pd.testing.assert_frame_equal(off.drop(columns="chance"), both.drop(columns="chance"))
    assert replace(axis, chance_draws=None).draws_for_chance == 64
    with pytest.raises(ValueError, match=r"chance_draws.*estimate"):
        Certificate(mode="hard", chance_draws=5)


def test_random_sets_of_texts_always_keep_the_special_tokens():
    seen_ids, seen_masks = [], []

    class Watched(torch.nn.Module):
        def forward(self, ids, attention_mask):
            seen_ids.append(ids)
            seen_masks.append(attention_mask)
            total = (ids * attention_mask).sum(1).float()
            return torch.stack([total, torch.full_like(total, 20.0)], 1)

    ids = torch.tensor([[1, 9, 4, 7, 5, 6], [1, 5, 6, 7, 5, 0]])
    batch = Batch(("a", "b"), ids, {"attention_mask": (ids > 0).long()})
    tokens = Tokens(special=(1,))
    random_set_rates(Model(Watched()), batch, torch.tensor([2, 1]), tokens, (1,), 30)
    is_first = (torch.cat(seen_ids) == ids[0]).all(1)
    masks = torch.cat(seen_masks)
    of_first, of_second = masks[is_first], masks[~is_first]
    assert (masks[:, 0] == 1).all(), "the special token"
    assert set(of_first.sum(1).tolist()) == {1 + 2, 1 + 3}, "a set, and a token more"
    assert set(of_second.sum(1).tolist()) == {1 + 1, 1 + 2}
    assert (of_second[:, 5] == 0).all(), "padding is no feature"
    smallest = of_first[of_first.sum(1) == 1 + 2]
    assert (smallest[:, 1:].sum(0) > 0).all() and (of_second[:, 1:5].sum(0) > 0).all()


def test_all_radii_and_several_fractions():
    sweep = Certificate(radii="all", features=Patches(8), fraction=(0.75, 0.5), epsilon=0.3)
    with pytest.raises(UserError, match="data"):
        sweep.conditions()
    done = run(3, sweep)
    table = done.table()
    rates = table[table.measure == "rate"]
    assert set(rates.condition) == {"fraction=0.75", "fraction=0.5"} and set(rates.level) == set(
        range(1, 9)
    )
    assert set(table.groupby("condition")["share"].first().items()) == {
        ("fraction=0.75", 0.75),
        ("fraction=0.5", 0.5),
    }
    one = run(3, Certificate(radii=(3,), features=Patches(8), fraction=0.5, epsilon=0.3)).table()
    keys = ["explainer", "sample"]
    same = rates[(rates.condition == "fraction=0.5") & (rates.level == 3)].set_index(keys).value
    pd.testing.assert_series_equal(same, one[one.measure == "rate"].set_index(keys).value)
    assert "fraction = 0.75, radius 8" in done.report().read_text()
    with pytest.raises(UserError, match="number of features"):
        run(3, Certificate(radii="all", features=Superpixels()))
    with pytest.raises(ValueError, match="fraction"):
        Certificate(fraction=(0.5, 0.5))


def test_a_masked_input_without_finite_scores_makes_one_sample_undefined():
    class Fragile(torch.nn.Module):
        def forward(self, x):
            broken = (x[:, :1] > 50) & (x[:, 1:2] == 0)
            return torch.where(broken, torch.nan, x[:, :3])

    x = torch.rand(4, 10, generator=torch.Generator().manual_seed(0)) + 0.1
    x[2, :2] = 99.0

    def last_first(model, batch, target, seed):
        return torch.arange(10.0).expand(len(batch), 10)

    for mode, measure in (("estimate", "rate"), ("decide", "stable"), ("hard", "unflipped")):
        axis = Certificate(features=Pixels(), fill="zero", radii=(1, 3), mode=mode)
        table = heatproof.evaluate(Fragile(), x, [last_first], axis).table()
        rows = table[table.measure.isin([measure, "sufficient"])]
        lost = rows[rows["sample"] == sorted(set(rows["sample"]))[2]]
        assert set(lost.status) == {"undefined"} and set(lost.reason) == {MASKED_NOT_FINITE}
        assert set(lost.measure) == {measure, "sufficient"}
        assert set(rows[~rows["sample"].isin(lost["sample"])].status) == {"ok"}


def test_random_sets_without_finite_scores_leave_a_rate_without_chance():
    class Fragile(torch.nn.Module):
        def forward(self, x):
            broken = (x[:, :1] > 50) & (x[:, 1:2] == 0)
            return torch.where(broken, torch.nan, x[:, :3])

    x = torch.rand(4, 10, generator=torch.Generator().manual_seed(0)) + 0.1
    x[2, :2] = 99.0

    def first_last(model, batch, target, seed):
        return torch.arange(10.0, 0, -1).expand(len(batch), 10)

    axis = Certificate(features=Pixels(), fill="zero", radii=(1, 3))
    table = heatproof.evaluate(Fragile(), x, {"first": first_last}, axis).table()
    rates = rates_of(table, "first")
    assert set(rates.status) == {"ok"}
    without = rates.chance.isna()
    assert set(rates["sample"][without]) == {sorted(set(rates["sample"]))[2]}
    assert set(rates.chance_reason[without]) == {MASKED_NOT_FINITE}
    assert rates.chance_reason[~without].isna().all()


def test_a_number_is_no_class_that_could_stay_the_same():
    numbers = Model(torch.nn.Linear(6, 1), task="regression")
    table = heatproof.evaluate(
        numbers, torch.rand(3, 6), "random", Certificate(radii=(1,), features=Pixels(), fill="zero")
    ).table()
    alone = table.measure == "sufficient"
    assert set(table[alone].status) == {"undefined"} and set(table[alone].reason) == {NO_CLASSES}
    assert set(table[~alone].status) == {"ok"}


def test_exhibits_really_flip():
    subject, (images, labels) = model(), pictures(5)
    ids = tuple(f"p{i}" for i in range(5))
    axis = Certificate(radii=(1,), features=Patches(8), fraction=0.2)
    done = heatproof.evaluate(
        subject, Batch(ids, images, label=labels), ["saliency", "random"], axis
    )
    shown = {
        (e.explainer, e.sample, e.condition): e
        for e in read_gallery(done.path)
        if e.evaluation == "certificate"
    }
    assert len(shown) == 2 * EXAMPLES * 3
    batch = Batch(ids, images)
    target = subject.logits(subject.inputs(batch)).argmax(1)
    flipped = 0
    for name, explainer in (("saliency", heatproof.Saliency()), ("random", heatproof.RandomMap())):
        mask = select(explainer(subject, batch, target, 0), batch, Patches(8), fraction=0.2, seed=0)
        for i, sample in enumerate(ids[:EXAMPLES]):
            flip, alpha = shown[name, sample, FLIP], shown[name, sample, EXPLANATION]
            grid = mask[i].reshape(4, 4).repeat_interleave(8, 0).repeat_interleave(8, 1)
            seen = subject.logits(subject.inputs(batch)[i : i + 1] * grid)
            assert alpha.note.startswith(subject.class_name(int(seen.argmax())))
            assert shown[name, sample, INPUT].note.startswith(subject.class_name(int(target[i])))
            left_out = torch.tensor(alpha.image)[~grid].float() / 255
            assert (left_out - 0.5).abs().median() < 0.03, "zero after normalisation is grey"
            if flip.note == NO_FLIP:
                assert flip.level == 0
                continue
            flipped += 1
            added = torch.tensor(flip.map)[4::8, 4::8].flatten() > 0.5
            assert int(added.sum()) == flip.level and not (added & mask[i]).any()
            both = (added | mask[i]).reshape(4, 4).repeat_interleave(8, 0).repeat_interleave(8, 1)
            after = subject.logits(subject.inputs(batch)[i : i + 1] * both).softmax(1)[0]
            assert int(after.argmax()) != int(seen.argmax())
            said = f"{subject.class_name(int(after.argmax()))} ({100 * float(after.max()):.0f} %)"
            back = int(after.argmax()) == int(target[i])
            assert flip.note == said + (", as on the whole input" if back else "")
    assert flipped >= 2


def test_the_search_for_a_flip_keeps_to_its_budget_and_finds_the_smallest_of_a_sum():
    class Sum(torch.nn.Module):
        def forward(self, x):
            return torch.stack([x.sum(1) * 0 + 3.5, x.sum(1)], 1)

    subject = Model(Sum(), rows=7)
    x, mask = torch.ones(1, 60), torch.arange(60) < 1
    found = find_flips(subject, Batch(("a",), x), mask[None], Pixels(), "zero", 0)[0]
    assert found[4:].sum() == 3 and not found[4:][mask].any() and found[[0, 2]].tolist() == [0, 1]
    assert subject.passes <= TRIALS + 1
    never = find_flips(subject, Batch(("a",), 0 * x), mask[None], Pixels(), "zero", 0)[0]
    assert never[4:].sum() == 0 and never[0] == never[2]
    assert subject.passes <= 2 * (TRIALS + 1)
    every = find_flips(subject, Batch(("a",), x[:, :4]), mask[None, :4], Pixels(), "zero", 0)[0]
    assert every[4:].tolist() == [0, 1, 1, 1], "only with all of them"


def hard_radius(subject: Model, x: torch.Tensor, mask: torch.Tensor) -> int:
    """The largest r up to which no superset changes the prediction, by trying every superset."""
    own = int(subject.logits((x * mask)[None]).argmax())
    free = (~mask).nonzero().flatten().tolist()
    for k in range(1, len(free) + 1):
        for added in combinations(free, k):
            both = mask.clone()
            both[list(added)] = True
            if int(subject.logits((x * both)[None]).argmax()) != own:
                return k - 1
    return len(free)


@pytest.mark.parametrize("anchor", ["explanation", "full"])
def test_what_a_search_finds_bounds_the_hard_radius_from_above(anchor):
    g = torch.Generator().manual_seed(1)
    net = torch.nn.Linear(8, 3)
    with torch.no_grad():
        net.weight.copy_(2 * torch.randn(3, 8, generator=g))
    batch = Batch(tuple(f"s{i:02}" for i in range(24)), torch.randn(24, 8, generator=g))
    axis = Certificate(
        radii=(1, 2, 9), features=Pixels(), fill="zero", search=60, anchor=anchor, chance_draws=0
    )
    table = heatproof.evaluate(net, batch, ["random"], axis).table()
    table = table.set_index(["measure", "level", "sample"])
    subject = Model(net)
    target = subject.logits(batch.x).argmax(1)
    mask = select(heatproof.RandomMap()(subject, batch, target, 0), batch, Pixels(), fraction=0.25)
    tight = 0
    for i, sample in enumerate(batch.ids):
        row = table.loc[("hard_radius_high", 0.0, sample)]
        if (
            anchor == "full"
            and int(subject.logits((batch.x * mask)[i : i + 1]).argmax()) != target[i]
        ):
            assert row.status == "undefined" and "otherwise" in row.reason
            continue
        truth = hard_radius(subject, batch.x[i], mask[i])
        assert truth <= row.value <= 6
        tight += truth == row.value
        for radius in (1, 2, 9):
            withstands = table.loc[("withstands_search", radius, sample)].value
            assert withstands == (row.value >= min(radius, 6))
            is_stable = table.loc[("rate", radius, sample)].value == 1
            assert withstands >= is_stable, "a flip that was found is a counterexample"
    assert tight > 8


def test_a_search_is_within_its_passes_and_off_by_default():
    assert not {"hard_radius_high", "withstands_search"} & set(run().table().measure)
    spent = []
    for search in (0, 20, 60):
        subject = model()
        axis = Certificate(radii=(1,), features=Patches(8), search=search, chance_draws=0)
        heatproof.evaluate(subject, pictures(6), ["random"], axis)
        spent.append(subject.passes)
    assert spent[0] < spent[1] <= spent[0] + 6 * 21
    assert spent[1] <= spent[2] <= spent[0] + 6 * 61


def test_the_lowest_rate_is_that_of_the_worst_number_of_added_features():
    axis = Certificate(radii=(1, 2, 4), features=Patches(8), added="exactly")
    table = run(evaluations=axis).table()
    wide = table.pivot(index=["explainer", "sample"], columns=["measure", "level"], values="value")
    low = table.pivot(index=["explainer", "sample"], columns=["measure", "level"], values="low")
    for number, radius in enumerate((1.0, 2.0, 4.0), 1):
        tested = list((1.0, 2.0, 4.0)[:number])
        lowest = wide["rate"][tested].min(axis=1)
        pd.testing.assert_series_equal(wide["lowest_rate"][radius], lowest, check_names=False)
        lowest = low["rate"][tested].min(axis=1)
        pd.testing.assert_series_equal(low["lowest_rate"][radius], lowest, check_names=False)
    rows = table[table.measure == "lowest_rate"]
    assert rows.high.isna().all(), "an upper bound needs all of them at once"
    at_once = run(evaluations=replace(axis, simultaneous=True)).table()
    assert at_once[at_once.measure == "lowest_rate"].high.notna().all()
    # The chance level is that of exactly as many random features.
    rates = table[table.measure == "rate"]
    assert rates.chance.between(0, 1).all()


def test_the_chance_level_of_exactly_k_features_is_the_mean_over_all_sets():
    subject = Model(torch.nn.Linear(6, 3))
    batch = Batch(("a",), torch.randn(1, 6, generator=torch.Generator().manual_seed(2)))
    agreements = []
    for kept in combinations(range(6), 2):
        mask = torch.zeros(1, 6, dtype=torch.bool)
        mask[0, list(kept)] = True
        result = heatproof.certify(subject, batch, mask, Pixels(), (2,), added="exactly")
        agreements.append(float(result.rate))
    truth = sum(agreements) / len(agreements)
    rate = random_set_rates(
        subject, batch, torch.tensor([2]), Pixels(), (2,), draws=4000, added="exactly"
    )
    assert float(rate) == pytest.approx(truth, abs=0.04)


def test_other_data_has_no_pictures_and_lone_features_a_reason():
    numbers = Batch(("a", "b"), torch.rand(2, 6, generator=torch.Generator().manual_seed(0)))
    net = torch.nn.Linear(6, 3)
    done = heatproof.evaluate(
        net, numbers, ["random"], Certificate(radii=(1,), features=Pixels(), fill="zero")
    )
    assert set(done.table().status) == {"ok"} and not [
        e for e in read_gallery(done.path) if e.explainer
    ]

    images, _ = pictures(2)
    images[0] = 0.5  # one colour is one superpixel
    grouping = Superpixels(kernel_size=1.0, max_dist=20.0)
    assert count(grouping.segments(Batch(("a", "b"), images))).tolist()[0] == 1
    table = heatproof.evaluate(
        model(), images, ["random"], Certificate(radii=(1,), features=grouping)
    ).table()
    by_sample = table.groupby("sample").status.agg(set).tolist()
    assert by_sample == [{"undefined"}, {"ok"}]
    assert set(table.reason) - {""} and not table.reason[table.status == "ok"].any()


def test_what_cannot_work_is_refused_before_any_pass():
    subject = model()
    with pytest.raises(UserError, match="32"):
        heatproof.evaluate(subject, pictures(2), "saliency", Certificate(features=Patches(32)))
    with pytest.raises(UserError, match=r"0\.9.* 4 "):
        heatproof.evaluate(
            subject, pictures(2), "saliency", Certificate(features=Patches(16), fraction=0.9)
        )
    flat = Certificate(features=Pixels(), fill="blur")
    with pytest.raises(UserError, match=r"blur.*4,"):
        heatproof.evaluate(torch.nn.Linear(4, 2), torch.rand(2, 4), "saliency", flat)
    assert subject.passes == 0
    for options, message in (
        ({"radii": (1, 1)}, "radii"),
        ({"mode": "decide", "method": "betting"}, r"mode.*'decide'"),
        ({"mode": "hard", "threshold": 0.8}, r"threshold.*decide"),
        ({"fill": float("nan")}, r"fill.*nan"),
        ({"search": 10, "agreement": "margin"}, "search.*argmax"),
        ({"search": -1}, "search"),
        ({"added": "exact"}, "added"),
    ):
        with pytest.raises(ValueError, match=message):
            Certificate(**options)
