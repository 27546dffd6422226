"""The sweep over λ as an evaluation: its rows against enumeration, and what it refuses."""

from __future__ import annotations

from itertools import combinations

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes.certificate.smoothing import OTHERWISE, UNLABELLED, Smoothing
from heatproof.explainers import InputXGradient, RandomMap, Saliency
from heatproof.features import Patches, Pixels, Superpixels, Tokens
from heatproof.maps.masks import select
from heatproof.models.smoothed import Smoothed
from heatproof.runs.plan import make_plan
from heatproof.runs.tables import KEY
from support.small import model as shapes
from support.small import pictures

FEATURES, SELECTED = 8, 2
KEEPS = (0.125, 0.25, 0.5, 1.0)


class Wavering(nn.Module):
    """Three classes from a linear map whose first class is ahead by a little, so that added features can flip it."""

    def __init__(self) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(4)
        self.layer = nn.Linear(FEATURES, 3)
        with torch.no_grad():
            self.layer.weight.copy_(2.5 * torch.randn(3, FEATURES, generator=g))
            self.layer.bias.copy_(torch.tensor([2.0, 0.0, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def rows_of_numbers(n: int = 7, labelled: bool = True) -> Batch:
    g = torch.Generator().manual_seed(0)
    label = torch.tensor([i % 3 - (i == 5) * 3 for i in range(n)]) if labelled else None
    return Batch(
        tuple(f"s{i}" for i in range(n)), torch.randn(n, FEATURES, generator=g), label=label
    )


def sweep(masks: str = "quantised", keeps: tuple[float, ...] = KEEPS, **changes) -> Smoothing:
    given = {"samples": 16, "radii": (1, 2, 6), "features": Pixels(), "epsilon": 0.05}
    given |= {} if "mode" in changes else {"chance_draws": 6}
    given |= changes
    return Smoothing(keeps=keeps, masks=masks, **given)


def run(
    axis: Smoothing, batch: Batch | None = None, explainers=("saliency", "random"), **options
) -> pd.DataFrame:
    data = rows_of_numbers() if batch is None else batch
    return heatproof.evaluate(
        Model(Wavering()), data, list(explainers), {"smoothing": axis}, **options
    ).table()


def explanation(explainer, batch: Batch) -> Tensor:
    subject = Model(Wavering())
    target = subject.logits(subject.inputs(batch)).argmax(1)
    return select(explainer(subject, batch, target, 0), batch, Pixels(), fraction=0.25, seed=0)


def agreements(model: Model, x: Tensor, mask: Tensor) -> dict[int, list[bool]]:
    """Whether the prediction stays, for every superset, by the number of features added."""
    own = int(model.logits((x * mask)[None]).argmax())
    free = (~mask).nonzero().flatten().tolist()
    found: dict[int, list[bool]] = {0: [True]}
    for k in range(1, len(free) + 1):
        sets = [mask.clone() for _ in combinations(free, k)]
        for more, added in zip(sets, combinations(free, k), strict=True):
            more[list(added)] = True
        found[k] = (model.logits(x * torch.stack(sets)).argmax(1) == own).tolist()
    return found


@pytest.mark.parametrize("masks", ["quantised", "bernoulli"])
def test_rates_are_those_of_enumeration_and_no_hard_radius_is_violated(masks):
    table = run(sweep(masks, delta=0.01)).set_index(
        ["explainer", "condition", "measure", "level", "sample"]
    )
    batch = rows_of_numbers()
    flips = certified = 0
    for name, explainer in (("saliency", Saliency()), ("random", RandomMap())):
        mask = explanation(explainer, batch)
        for keep in KEEPS:
            model = Smoothed(
                Model(Wavering(), rows=4096), keep, 16 if keep < 1 else 1, Pixels(), masks
            )
            for i, sample in enumerate(batch.ids):
                truth = agreements(model, batch.x[i], mask[i])
                where = (name, f"λ={keep:g}")
                for r in (1, 2, 6):
                    row = table.loc[(*where, "rate", r, sample)]
                    rate = sum(map(sum, (truth[k] for k in range(r + 1)))) / sum(
                        len(truth[k]) for k in range(r + 1)
                    )
                    assert row.value == row.low == row.high == pytest.approx(rate), (
                        "64 supersets can all be tried"
                    )
                    assert table.loc[(*where, "certified", r, sample)].value == row.low
                    flips += rate < 1
                radius = int(table.loc[(*where, "hard_radius", 0, sample)].value)
                assert all(all(truth[k]) for k in range(radius + 1) if k in truth)
                certified += radius > 0
                assert keep < 1 or radius == 0
    assert flips > 20 and certified > 5, "a test without flips or certified radii proves nothing"


def kept_by(spare: str, keep: float, maps: Tensor, mask: Tensor) -> Tensor:
    """The λ of every feature, one by one."""
    shares = torch.full(maps.shape, keep, dtype=torch.float64)
    for i, values in enumerate(maps.tolist()):
        ordered = sorted(values)
        for j, value in enumerate(values):
            if spare == "selected" and mask[i, j]:
                shares[i, j] = 1.0
            if spare == "important":
                shares[i, j] = keep + (1 - keep) * ordered.index(value) / (len(ordered) - 1)
    return shares


@pytest.mark.parametrize("masks", ["quantised", "bernoulli"])
@pytest.mark.parametrize("spare", ["selected", "important"])
def test_smoothing_of_a_part_of_the_features_is_the_mean_over_its_own_masks(masks, spare):
    """Rates by enumeration, and hard radii that no superset violates, with a λ for every feature of every sample."""
    batch, keep = rows_of_numbers(20), 0.25
    table = (
        run(sweep(masks, keeps=(keep,), delta=0.01, spare=spare, chance_draws=0, search=40), batch)
        .set_index(["explainer", "measure", "level", "sample"])
        .sort_index()
    )
    network = Model(Wavering(), rows=4096)
    target = network.logits(batch.x).argmax(1)
    certified = 0
    for name, explainer in (("saliency", Saliency()), ("random", RandomMap())):
        maps = explainer(network, batch, target, 0)
        mask = explanation(explainer, batch)
        shares = kept_by(spare, keep, maps, mask)
        levels = Smoothed(network, keep, 16, Pixels(), masks).levels(FEATURES)
        for i, sample in enumerate(batch.ids):
            bank = levels < shares[i]

            class Averaged:
                """The model of this sample: the mean probabilities over its masks."""

                def logits(self, inputs: Tensor, bank: Tensor = bank) -> Tensor:
                    masked = inputs[:, None] * bank
                    return Wavering()(masked.float()).double().softmax(2).mean(1)

            truth = agreements(Averaged(), batch.x[i], mask[i])
            rate = sum(map(sum, (truth[k] for k in range(3)))) / sum(
                len(truth[k]) for k in range(3)
            )
            assert table.loc[(name, "rate", 2, sample)].value == pytest.approx(rate)
            radii = {
                rule: table.loc[(name, rule, 0, sample)].value
                for rule in ("hard_radius", "hard_radius_lipschitz", "hard_radius_high")
            }
            stays = [all(truth[k]) for k in range(len(truth))]
            true_radius = stays.index(False) - 1 if False in stays else len(truth) - 1
            assert radii["hard_radius_lipschitz"] <= radii["hard_radius"] <= true_radius
            assert true_radius <= radii["hard_radius_high"]
            certified += radii["hard_radius"] > 0
    # The features that may be added next to the important ones are kept by most masks.
    assert certified > 3 or spare == "important"
    rates = table.loc[("saliency", "rate")]
    assert rates.chance.isna().all(), "random sets have no map to smooth by"


def test_sparing_the_explanation_keeps_its_prediction_and_the_lead():
    """On the explanation alone no mask hides anything, so the smoothed model is the model itself."""
    batch = rows_of_numbers(20)
    options = {"keeps": (0.25,), "radii": (1,), "epsilon": 0.3, "chance_draws": 0}
    everything = run(sweep(**options), batch, ["saliency"])
    spared = run(sweep(spare="selected", **options), batch, ["saliency"])
    radius = [frame[frame.measure == "hard_radius"].value.mean() for frame in (everything, spared)]
    assert radius[1] > radius[0]


def test_without_an_explanation_there_is_no_model_to_be_correct():
    class Constant:
        name = "constant"

        def __call__(self, model, batch, target, seed):
            maps = torch.zeros_like(batch.x)
            maps[1:] = batch.x[1:]
            return maps

    options = {"keeps": (0.5,), "epsilon": 0.3, "chance_draws": 0}
    table = heatproof.evaluate(
        Model(Wavering()),
        rows_of_numbers(4),
        {"constant": Constant()},
        {"smoothing": sweep(spare="important", **options)},
    ).table()
    correct = table[table.measure == "correct"].set_index("sample")
    assert correct.status.tolist() == ["undefined", "ok", "ok", "ok"]
    assert "constant" in correct.reason["s0"]


def test_a_chance_level_is_refused_where_smoothing_follows_the_map():
    with pytest.raises(ValueError, match=r"spare 'selected'.*chance"):
        Smoothing(spare="selected", chance_draws=8)


def test_the_bernoulli_rule_is_there_where_it_is_valid():
    batch = rows_of_numbers()
    assert "hard_radius_bernoulli" not in set(run(sweep("quantised"), batch).measure)
    axis = sweep("bernoulli", keeps=(0.125,), samples=400, radii=(1,))
    table = run(axis, batch, ["saliency"]).set_index(["measure", "sample"]).value
    model = Smoothed(Model(Wavering(), rows=4096), 0.125, 400, Pixels())
    expected = model.radii(batch, explanation(Saliency(), batch), 0.1)
    assert table["hard_radius"].tolist() == expected["per_mask"].tolist()
    assert table["hard_radius_lipschitz"].tolist() == expected["lipschitz"].tolist()
    assert table["hard_radius_bernoulli"].tolist() == expected["bernoulli"].tolist()
    assert max(expected["bernoulli"].tolist()) > 0


def test_masks_vote_and_all_radii_are_listed():
    axis = sweep("bernoulli", keeps=(0.25, 1.0), votes=True, radii="all", epsilon=0.3)
    table = run(axis, explainers=["saliency"])
    assert set(table[table.measure == "rate"].level) == {1, 2, 3, 4, 5, 6}
    model = Smoothed(Model(Wavering(), rows=4096), 0.25, 16, Pixels(), votes=True)
    batch = rows_of_numbers()
    expected = model.radii(batch, explanation(Saliency(), batch), 0.1)
    found = (
        table[(table.level == 0) & (table.condition == "λ=0.25")]
        .set_index(["measure", "sample"])
        .value
    )
    for rule, measure in (
        ("per_mask", ""),
        ("lipschitz", "_lipschitz"),
        ("bernoulli", "_bernoulli"),
    ):
        assert found["hard_radius" + measure].tolist() == expected[rule].tolist()


def test_the_smoothed_prediction_on_the_whole_input_can_be_the_anchor():
    batch = rows_of_numbers(30)
    model = Smoothed(Model(Wavering(), rows=4096), 0.25, 16, Pixels(), "quantised")
    mask = explanation(RandomMap(), batch)
    whole, alone = (model.logits(x).argmax(1) for x in (batch.x, batch.x * mask))
    table = run(sweep(keeps=(0.25,), anchor="full", radii=(1,)), batch, ["random"]).set_index(
        ["measure", "sample"]
    )
    order = torch.tensor(sorted(range(30), key=lambda i: batch.ids[i]))
    same = (whole == alone)[order].tolist()
    assert (
        table.loc["sufficient"].sort_index().value.tolist() == [float(s) for s in same]
        and len(set(same)) == 2
    )
    radius = table.loc["hard_radius"].sort_index()
    assert radius.value.notna().tolist() == same and set(radius.reason) == {"", OTHERWISE}
    assert table.loc["rate"].sort_index().value[[not s for s in same]].max() < 1


def test_the_plan_says_what_no_number_of_samples_can_show():
    classes = [str(i) for i in range(1000)]
    subject = Model(nn.Linear(FEATURES, 1000), classes=classes)
    vacuous = Smoothing(keeps=(0.125, 0.5, 1.0), samples=16, masks="bernoulli", features=Pixels())
    notes = make_plan(
        subject, rows_of_numbers(labelled=False), ["random"], {"smoothing": vacuous}
    ).notes()
    expected = [("hard_radius_bernoulli", "0.125"), ("hard_radius", "0.5")]
    expected.append(("hard_radius_bernoulli", "0.5"))
    for note, (measure, keep) in zip(notes, expected, strict=True):
        assert note.startswith(f"{measure} ")
        assert f"λ = {keep}" in note
    assert "votes: true" in notes[0] and "1000" in notes[0]
    voting = Smoothing(keeps=(0.125,), samples=16, masks="bernoulli", votes=True, features=Pixels())
    assert (
        make_plan(
            subject, rows_of_numbers(labelled=False), ["random"], {"smoothing": voting}
        ).notes()
        == []
    )


def test_keeping_everything_is_the_model_itself():
    smoothing = run(sweep(keeps=(1.0,), radii=(1, 4), epsilon=0.2))
    plain = heatproof.Certificate(radii=(1, 4), features=Pixels(), epsilon=0.2, fill="zero")
    own = heatproof.evaluate(
        Model(Wavering()), rows_of_numbers(), ["saliency", "random"], plain
    ).table()
    keys = ["explainer", "measure", "level", "sample"]
    for measure in ("rate", "certified", "passes"):
        a, b = (
            frame[(frame.measure == measure) & (frame.level > 0)].sort_values(keys).value.tolist()
            for frame in (smoothing, own)
        )
        assert a == b


def test_correct_rows_are_the_accuracy_of_each_smoothed_model():
    batch = rows_of_numbers()
    table = run(sweep(), batch)
    rows = table[table.measure == "correct"]
    assert set(rows.level) == {0.0}
    lost = rows[rows["sample"] == "s5"]
    assert (
        set(lost.status) == {"undefined"}
        and set(lost.reason) == {UNLABELLED}
        and lost.value.isna().all()
    )
    known = [i for i in range(7) if i != 5]
    smooth = [
        Smoothed(Model(Wavering()), keep, 16 if keep < 1 else 1, Pixels(), "quantised", seed=0)
        for keep in KEEPS
    ]
    curve = [
        float((m.scores(batch[known]).argmax(1) == batch[known].label).double().mean())
        for m in smooth
    ]
    for explainer in ("saliency", "random"):
        mean = (
            rows[(rows.explainer == explainer) & (rows.status == "ok")]
            .groupby("condition")
            .value.mean()
        )
        assert [mean[f"λ={keep:g}"] for keep in KEEPS] == pytest.approx(curve)
    assert len(set(curve)) > 1
    assert set(
        run(sweep(keeps=(0.5,)), rows_of_numbers(labelled=False))
        .query("measure == 'correct'")
        .status
    ) == {"undefined"}


def test_passes_are_those_of_the_network_and_shared_work_is_done_once():
    batch = rows_of_numbers()
    spent, for_chance = {}, {}
    for names in (["saliency"], ["saliency", "random"]):
        subject = Model(Wavering())
        axis = sweep(keeps=(0.25, 1.0), radii=(1, 3), chance_draws=0)
        table = heatproof.evaluate(subject, batch, names, {"smoothing": axis}).table()
        counted = table[table.measure == "passes"].value.sum()
        whole, clean, references = 7, 7, 7
        explained = (
            7  # saliency of the samples, which are all references too; random maps cost nothing
        )
        assert subject.passes == counted + whole * (16 + 1) + clean + references + explained
        spent[len(names)] = counted
        axis = sweep(keeps=(0.25, 1.0), radii=(1, 3), chance_draws=5)
        before = subject.passes
        heatproof.evaluate(subject, batch, names, {"smoothing": axis})
        for_chance[len(names)] = subject.passes - 2 * before
    assert spent[2] > spent[1]
    assert for_chance[1] == for_chance[2] <= 7 * 5 * (1 + 2) * (16 + 1), "explainers share it"
    assert for_chance[1] >= 7 * 5 * (16 + 1)


def test_the_rate_of_each_smoothed_model_has_a_chance_of_its_own():
    table = run(sweep(keeps=(0.25, 1.0), epsilon=0.3, chance_draws=40))
    rates = table[table.measure == "rate"]
    assert rates.chance.between(0, 1).all()
    of_explainers = rates.pivot(
        index=["condition", "level", "sample"], columns="explainer", values="chance"
    )
    assert (of_explainers.saliency == of_explainers.random).all()
    of_keeps = rates.groupby("condition").chance.mean()
    assert of_keeps["λ=0.25"] != of_keeps["λ=1"]
    assert table[table.measure != "rate"].chance.isna().all()


@pytest.mark.parametrize(("mode", "measure"), [("decide", "stable"), ("hard", "unflipped")])
def test_other_modes_give_other_measures(mode, measure):
    table = run(sweep(mode=mode, keeps=(0.5,)))
    assert measure in set(table.measure) and "rate" not in set(table.measure)
    assert set(table[table.measure == measure].value.dropna()) == {0.0, 1.0}


@pytest.mark.parametrize(("batch_size", "shard_size"), [(1, 7), (3, 2), (64, 50)])
def test_the_table_does_not_depend_on_batches_or_shards(batch_size, shard_size):
    axis = sweep("bernoulli", keeps=(0.5, 1.0), epsilon=0.3)
    first = run(axis, batch_size=5, shard_size=4).set_index(KEY)
    second = (
        run(axis, batch_size=batch_size, shard_size=shard_size).set_index(KEY).reindex(first.index)
    )
    assert (first.status == second.status).all() and (first.reason == second.reason).all()
    assert (first.value - second.value).abs().max() == 0


def test_a_run_resumes_with_the_explainers_that_are_missing(tmp_path):
    axis = sweep(keeps=(0.5, 1.0), epsilon=0.3)
    subject = Model(Wavering())
    whole = run(axis, explainers=["saliency", "random"], shard_size=3)
    heatproof.evaluate(
        subject, rows_of_numbers(), ["saliency"], {"smoothing": axis}, tmp_path / "r", shard_size=3
    )
    part = next((tmp_path / "r" / "parts").glob("**/00001.*.parquet"))
    part.unlink()
    both = ["saliency", "random"]
    again = heatproof.evaluate(
        subject, rows_of_numbers(), both, {"smoothing": axis}, tmp_path / "r", shard_size=3
    )
    pd.testing.assert_frame_equal(again.table(), whole.assign(dataset=again.table().dataset))
    before = subject.passes
    heatproof.evaluate(
        subject, rows_of_numbers(), both, {"smoothing": axis}, tmp_path / "r", shard_size=3
    )
    assert subject.passes == before


def test_memory_that_runs_out_halves_the_batches():
    class Narrow(Wavering):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 6:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(x)

    axis = sweep(keeps=(0.5,), epsilon=0.3)
    narrow = heatproof.evaluate(
        Model(Narrow()), rows_of_numbers(), ["random"], {"smoothing": axis}, batch_size=64
    )
    wide = run(axis, explainers=["random"]).drop(columns="model")
    pd.testing.assert_frame_equal(narrow.table().drop(columns="model"), wide)


def test_pictures_and_texts():
    axis = Smoothing(
        keeps=(0.5, 1.0), samples=4, radii=(1,), features=Patches(8), mode="hard", epsilon=0.3
    )
    table = heatproof.evaluate(shapes(), pictures(2), ["saliency"], {"smoothing": axis}).table()
    assert set(table.status) == {"ok"}

    class Count(nn.Module):
        def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
            seen = ((ids == 7) * attention_mask).sum(1).float()
            return torch.stack([seen, torch.full_like(seen, 1.5)], 1)

    ids = torch.tensor([[1, 7, 7, 7, 5, 6], [1, 5, 6, 7, 5, 0]])
    texts = Batch(("a", "b"), ids, {"attention_mask": (ids > 0).long()}, torch.tensor([0, 1]))
    tokens = Smoothing(keeps=(0.5, 1.0), samples=4, radii=(1, 2), features=Tokens(special=(1,)))

    def first_words(model, batch, target, seed):
        return torch.arange(6, 0, -1).float().expand(len(batch), 6)

    table = heatproof.evaluate(Model(Count()), texts, [first_words], {"smoothing": tokens}).table()
    assert set(table.status) == {"ok"}
    right = table[(table.measure == "correct") & (table.condition == "λ=1")]
    assert right.value.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keeps": ()}, "keeps"),
        ({"keeps": (0.5, 0.5)}, r"keeps.*0\.5"),
        ({"keeps": (0.0,)}, "keeps"),
        ({"keeps": (0.3,), "samples": 64}, r"0\.3.*0\.296875"),
        ({"masks": "bernouli"}, "bernoulli"),
        ({"radii": (1, 1)}, "radii"),
        ({"mode": "hard", "method": "hoeffding"}, r"mode.*'hard'"),
        ({"threshold": 0.5}, r"threshold.*decide"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Smoothing(**options)


def test_features_that_differ_between_samples_are_refused_before_any_pass():
    subject = shapes()
    with pytest.raises(UserError, match="superpixels"):
        heatproof.evaluate(
            subject, pictures(2), "saliency", {"smoothing": Smoothing(features=Superpixels())}
        )
    with pytest.raises(UserError, match="32"):
        heatproof.evaluate(
            subject, pictures(2), InputXGradient(), {"smoothing": Smoothing(features=Patches(32))}
        )
    everything = Smoothing(features=Patches(16), fraction=0.9)
    with pytest.raises(UserError, match=r"0\.9.* 4 "):
        heatproof.evaluate(subject, pictures(2), InputXGradient(), {"smoothing": everything})
    assert subject.passes == 0
