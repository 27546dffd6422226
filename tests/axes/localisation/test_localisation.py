"""Localisation: every measure against brute force and scikit-learn, chance, signs, mosaics, and where it is shown."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score
from torch import nn

import heatproof
from heatproof import Batch, Model, UserError, open_data
from heatproof.axes.localisation.evaluation import MEASURES, Localisation
from heatproof.axes.localisation.measures import box, graded_scores, region_scores, relevance
from heatproof.axes.localisation.mosaic import composed
from heatproof.axes.localisation.report import findings, lead
from heatproof.runs.results import arrays_of_run
from heatproof.testing.check import Limits, check
from support import synthetic


def drawn(kind: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values (6, 5, 7), few of them different where `kind` is tied, and regions."""
    g = torch.Generator().manual_seed(seed)
    values = (
        torch.randint(0, 4, (6, 5, 7), generator=g).double()
        if kind == "tied"
        else torch.rand(6, 5, 7, generator=g)
    )
    return values.double(), torch.rand(6, 5, 7, generator=g) < 0.3


@pytest.mark.parametrize("kind", ["tied", "all different"])
def test_measures_against_brute_force(kind):
    values, region = drawn(kind, 0)
    scores = region_scores(values, region, torch.ones_like(region))
    for i in range(6):
        found = {name: float(score.value[i]) for name, score in scores.items()}
        chance = {name: float(score.chance[i]) for name, score in scores.items()}
        v, r = values[i].numpy().ravel(), region[i].numpy().ravel()
        assert np.isclose(found["region_auc"], roc_auc_score(r, v))
        assert np.isclose(found["relevance_mass"], v[r].sum() / v.sum())
        assert np.isclose(found["pointing"], r[v == v.max()].mean())
        # Ties are broken in every way at once: the mean over many random orders.
        rng = np.random.default_rng(i)
        orders = [
            np.lexsort((rng.random(len(v)), -v))[: r.sum()]
            for _ in range(1 if kind != "tied" else 20000)
        ]
        assert np.isclose(
            found["relevance_rank"], np.mean([r[o].mean() for o in orders]), atol=0.01
        )
        rows, columns = np.nonzero(region[i].numpy())
        around = np.zeros((5, 7), dtype=bool)
        around[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] = True
        assert np.array_equal(box(region)[i].numpy(), around)
        assert np.isclose(found["energy"], values[i].numpy()[around].sum() / v.sum())
        for name in ("relevance_rank", "relevance_mass", "pointing"):
            assert np.isclose(chance[name], r.mean())
        assert np.isclose(chance["energy"], around.mean())
        assert chance["region_auc"] == 0.5


@pytest.mark.parametrize("kind", ["tied", "all different"])
@pytest.mark.parametrize("margin", [0, 1])
def test_chance_is_the_expected_score_of_a_shuffled_map(kind, margin):
    """Every order of a small map is tried, so chance is exact."""
    values = torch.tensor([3.0, 1.0, 1.0, 0.0, 2.0, 0.0] if kind == "tied" else range(6)).double()
    region = torch.tensor([[True, False, False], [False, True, False]])
    shuffled = torch.stack([values[list(order)] for order in itertools.permutations(range(6))])
    regions = region.expand(len(shuffled), 2, 3)
    there = torch.ones_like(regions)
    scores = region_scores(shuffled.view(-1, 2, 3), regions, there, margin=margin)
    of_grades = {"alignment", "graded_mass"}  # a region has no grades
    assert set(scores) == {measure.name for measure in MEASURES} - of_grades
    for name, score in scores.items():
        assert float(score.value.mean()) == pytest.approx(float(score.chance[0])), name


@pytest.mark.parametrize("shape", [(9,), (7, 8), (5, 6, 4)])
@pytest.mark.parametrize("margin", [0, 1, 2, 5])
def test_a_peak_within_the_margin_of_the_region_is_a_hit(shape, margin):
    """Against the definition: some place of the region is at most the margin away."""
    g = torch.Generator().manual_seed(margin)
    region = torch.rand(4, *shape, generator=g) < 0.05
    region[:3].flatten(1)[
        torch.arange(3), torch.randint(0, region[0].numel(), (3,), generator=g)
    ] = True
    region[3] = False
    places = torch.cartesian_prod(*(torch.arange(size) for size in shape)).view(-1, len(shape))
    kind = {1: "series", 2: "image", 3: "volume"}[len(shape)]
    for own in region:
        inside = places[own.flatten()]
        squares = (places[:, None] - inside[None]).square().sum(-1)
        hits = (squares <= margin**2).any(1)
        every_peak = torch.eye(len(places)).view(-1, *shape).double()
        regions = own.expand_as(every_peak)
        scores = region_scores(every_peak, regions, torch.ones_like(regions), kind, margin)
        assert scores["pointing"].value.tolist() == hits.double().tolist()
        assert float(scores["pointing"].chance[0]) == float(hits.double().mean())


def test_the_box_of_a_line_reaches_from_its_first_place_to_its_last():
    line = torch.tensor([[0, 1, 0, 1, 0]]).bool()
    assert box(line).int().tolist() == [[0, 1, 1, 1, 0]]


def test_channels_of_series_and_vectors_of_sets_are_summed():
    maps = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(3)).double() - 0.5
    sums = {"series": maps.sum(1), "set": maps.sum(2), "table": maps}
    for kind, values in sums.items():
        assert torch.allclose(relevance(maps, kind), values.clamp(min=0))
        assert torch.allclose(relevance(maps, kind, "absolute"), values.abs())
        assert torch.allclose(relevance(maps, kind, "negative"), (-values).clamp(min=0))


def test_without_regions_localisation_makes_mosaics():
    subject, batch = Model(nn.Flatten()), Batch(("a", "b"), torch.rand(2, 3, 12, 12))
    assert Localisation().configured_for(subject, batch).by == "mosaics"
    assert Localisation(by="mosaics").reexplains and not Localisation().reexplains


def test_padding_takes_no_part():
    values, region = drawn("tied", 1)
    there = torch.rand(6, 5, 7, generator=torch.Generator().manual_seed(2)) < 0.7
    there[:, 0, 0] = region[:, 0, 0] = True
    padded = region_scores(values, region, there, "set")
    for i in range(6):
        keep = there[i]
        alone = region_scores(
            values[i][keep][None], region[i][keep][None], torch.ones_like(keep[keep])[None], "set"
        )
        for name, score in alone.items():
            assert np.isclose(padded[name].value[i], score.value[0]), name
            assert np.isclose(padded[name].chance[i], score.chance[0]), name
    assert "energy" not in padded


def test_the_sign_is_a_choice():
    maps = torch.tensor([[[[1.0, -4.0]], [[2.0, 1.0]]]])  # channels sum to 3 and −3
    for sign, expected in (("positive", [3, 0]), ("negative", [0, 3]), ("absolute", [3, 3])):
        assert relevance(maps, "image", sign).tolist() == [[expected]]
    assert relevance(torch.tensor([[-1.0, 2.0]]), "table").tolist() == [[0, 2]]
    assert relevance(torch.ones(1, 4, 3), "set").shape == (1, 4)


class Corner(nn.Module):
    """Class 0 counts the red in the upper left quarter, class 1 that in the lower right."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.zeros(2, 3, 8, 8)
        weight[0, 0, :4, :4] = weight[1, 0, 4:, 4:] = 1
        self.weight = nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bchw,kchw->bk", x, self.weight)


def corner_run(methods: list[str], **options: object) -> heatproof.Run:
    x = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    predicted = Corner()(x).argmax(1)
    masks = torch.zeros(12, 8, 8, dtype=torch.bool)
    for i, c in enumerate(predicted.tolist()):
        masks[i, 4 * c : 4 * c + 4, 4 * c : 4 * c + 4] = True
    masks[10], masks[11] = False, True
    labels = predicted.clone()
    labels[9] = 1 - labels[9]
    data = open_data((x, labels), regions=masks)
    return heatproof.evaluate(Corner(), data, methods, [{"localisation": options}])


def test_a_right_map_scores_1_and_every_pair_is_a_row():
    run = corner_run(["input_x_gradient", "random"])
    table = run.table()
    assert set(table.condition) == {"regions"}
    right = table[table.explainer == "input_x_gradient"].set_index("sample")
    ok = right[right.status == "ok"]
    assert set(ok.index) == {f"{i:04}" for i in range(9)} and (ok.value == 1).all()
    assert set(ok.chance[ok.measure != "region_auc"]) == {0.25}
    assert set(right.loc["0009"].reason) == {
        "the region is that of the label, and another class is predicted"
    }
    assert right.loc["0010"].reason.str.contains("no region").all()
    assert right.loc["0011"].reason.str.contains("whole").all()
    ranked = run.ranking().set_index("explainer")
    assert ranked.score["input_x_gradient"] == 1
    everyone = corner_run(["input_x_gradient"], any_class=True).table()
    assert (everyone[everyone["sample"] == "0009"].status == "ok").all()


@pytest.mark.parametrize(("lift", "is_found"), [(0.0, True), (0.3, False)])
def test_methods_that_are_not_shown_to_be_above_chance_are_a_finding(lift, is_found):
    generator = np.random.default_rng(0)
    chance = np.full(20, 0.25)
    entries = [
        (
            name,
            "relevance_mass",
            "regions",
            0.0,
            chance + more + generator.normal(0, 0.03, 20),
            chance,
        )
        for name, more in (("clear", 0.4), ("saliency", lift))
    ]
    result = synthetic.judged_of(synthetic.rows_of(entries, "localisation"))
    found = [one.explainers for one in findings(result)]
    assert found == ([("saliency",)] if is_found else [])


def test_what_is_said_is_what_was_measured():
    run = corner_run(["input_x_gradient", "saliency", "random"])
    (result,) = run.results()
    names = [result.name_of(name) for name in ("input_x_gradient", "saliency")]
    assert all(name in lead(result)[0] for name in names)
    assert not any("not significantly above chance" in sentence for sentence in lead(result))
    assert list(findings(result)) == []
    html = run.report().read_text()
    assert "localisation" in html
    passed, failed = (
        check(
            run, [f"localisation.relevance_mass{{explainer={name}}} >= 0.5"], Limits(8, 0.1, 0.3)
        )[0]
        for name in ("saliency", "random")
    )
    assert passed.passed and not failed.passed
    turned = corner_run(["input_x_gradient"], sign="negative")
    assert turned.table().reason.str.contains("sign").any()


def test_the_margin_widens_the_pointing_game_and_nothing_else():
    exact, wide = (corner_run(["random"], margin=margin).table() for margin in (0, 2))
    pointing = exact.measure == "pointing"
    pd.testing.assert_frame_equal(exact[~pointing], wide[~pointing])
    ok = pointing & (exact.status == "ok")
    assert (wide.value[ok] >= exact.value[ok]).all()
    # Around a quarter of 4 × 4 in a corner of 8 × 8 lie 8 places at a distance of 1, 8 of 2 and the diagonal one of √2.
    assert ok.any()
    assert wide.chance[ok].eq((16 + 8 + 8 + 1) / 64).all()


def test_two_runs_are_compared_on_it(tmp_path):
    other = corner_run(["input_x_gradient", "random"])
    compared = heatproof.compare(corner_run(["input_x_gradient", "random"]), other)
    assert (
        set(compared.differences.evaluation) == {"localisation"}
        and "identical" in compared.verdict()[0]
    )


class Brightest(nn.Module):
    """Class c is the colour c that is brightest anywhere: it looks at one place of a mosaic."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 1.1, 0.9]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) * self.scale


def coloured(n: int) -> torch.Tensor:
    x = 0.1 * torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    x[torch.arange(n), torch.arange(n) % 3] += 0.8
    return x


def test_mosaics_put_the_class_in_one_tile():
    run = heatproof.evaluate(
        Brightest(),
        coloured(18),
        ["input_x_gradient", "sobel", "random"],
        ["localisation"],
        references=18,
    )
    table = run.table()
    assert set(table.condition) == {"mosaics"} and (table.status == "ok").all()
    by = table.pivot_table(index="explainer", columns="measure", values="value", observed=True)
    assert (
        by.loc["input_x_gradient", "pointing"] == 1
        and by.loc["input_x_gradient", "relevance_rank"] > 0.99
    )
    assert table[table.measure == "relevance_rank"].chance.eq(0.25).all()
    assert by.loc["random", "relevance_rank"] < 0.4
    assert "mosaic" in run.report().read_text()


def test_mosaics_without_enough_classes_or_sight_are_rows_with_a_reason():
    one = heatproof.evaluate(
        Brightest(), coloured(18)[::3], "saliency", [{"localisation": {"by": "mosaics"}}]
    ).table()
    assert set(one.status) == {"undefined"} and set(one.reason) == {
        "no reference sample of another class"
    }

    class Darkest(Brightest):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (
                x.mean((2, 3)) - 0.4
            ).abs() * self.scale  # a quarter of the picture lowers what all of it raises

    unseen = heatproof.evaluate(
        Darkest(), coloured(18), "input_x_gradient", ["localisation"], references=18
    ).table()
    flipped = unseen[unseen.status == "flipped"]
    assert len(flipped)
    assert flipped.reason.str.contains("tile").all()


def test_a_mosaic_keeps_every_tile_whole():
    tiles = torch.rand(2, 4, 3, 5, 7)
    whole = composed(tiles)
    assert whole.shape == (2, 3, 5, 7)
    flat = composed(torch.arange(4.0).view(1, 4, 1, 1, 1).expand(1, 4, 1, 5, 7))[0, 0]
    quarters = [
        flat[rows, columns]
        for rows in (slice(2), slice(2, 5))
        for columns in (slice(3), slice(3, 7))
    ]
    assert all(torch.allclose(part, torch.full_like(part, i)) for i, part in enumerate(quarters))


def test_mistakes_are_told_before_any_pass():
    rows = torch.rand(6, 5)
    net = nn.Linear(5, 2)
    with pytest.raises(UserError, match=r"localisation.*regions"):
        heatproof.evaluate(net, rows, "saliency", ["localisation"])
    with pytest.raises(UserError, match=r"regions.*by: mosaics"):
        heatproof.evaluate(
            Brightest(), coloured(4), "saliency", [{"localisation": {"by": "regions"}}]
        )
    with pytest.raises(UserError, match="mosaics need pictures"):
        heatproof.evaluate(net, rows, "saliency", [{"localisation": {"by": "mosaics"}}])
    small = heatproof.Batch(
        ("a", "b"), coloured(2), {"_region": torch.eye(4).expand(2, 4, 4).bool()}
    )
    with pytest.raises(UserError, match=r"4, 4\).*8, 8"):
        heatproof.evaluate(Brightest(), small, "saliency", [{"localisation": {"by": "regions"}}])
    with pytest.raises(UserError, match=r"localisation\.margin.*-1"):
        Localisation(margin=-1)
    columns = open_data(Batch(tuple("abcdef"), rows), regions=torch.eye(6, 5).bool())
    with pytest.raises(UserError, match=r"margin.*3.*table"):
        heatproof.evaluate(net, columns, "saliency", [{"localisation": {"margin": 3}}])
    masked = open_data(coloured(4), regions=torch.ones(4, 8, 8))
    assert (
        Localisation().configured_for(heatproof.Model(Brightest()), masked.load([0]).batch).by
        == "regions"
    )


def test_columns_of_a_table_have_regions_too():
    net = nn.Linear(5, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, 3, 0, 0, 0], [0, -3, 0, 0, 0]]))
    rows = torch.rand(8, 5, generator=torch.Generator().manual_seed(0)) + 0.1
    mask = torch.tensor([[False, True, False, False, False]]).expand(8, -1)
    data = open_data(Batch(tuple("abcdefgh"), rows), regions=mask)
    table = heatproof.evaluate(net, data, "input_x_gradient", ["localisation"]).table()
    assert (table[table.measure == "relevance_rank"].value.dropna() == 1).all()
    assert not arrays_of_run(table)[0].values.get("energy", np.zeros(0)).size


def test_regions_take_no_pass_and_mosaics_one_map_and_two_predictions():
    methods = [{"integrated_gradients": {"steps": 5}}]
    data = open_data(coloured(12), regions=torch.eye(8).expand(12, -1, -1))

    def passes(*axes: object) -> int:
        net = heatproof.Model(Brightest())
        heatproof.evaluate(net, data, methods, list(axes))
        return net.passes

    stability = {"stability": {"perturbations": "jpeg", "k": 20}}
    alone, regions = passes(stability), passes(stability, {"localisation": {"by": "regions"}})
    assert regions == alone, "the maps are those of the other axis"
    mosaics = passes(stability, {"localisation": {"by": "mosaics"}})
    assert mosaics == alone + 12 * (5 + 2)


def test_the_section_says_what_its_headline_cannot_tell():
    html = corner_run(["input_x_gradient", "random"]).report().read_text()
    assert re.search(r"Relevance mass.*sign flipped", html)


def graded_data(n: int = 12) -> tuple[Model, heatproof.Data]:
    """A linear model of one channel, whose gradient is its weights, and grades that people gave to the positions."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=False))
    weights = torch.arange(16.0).reshape(4, 4)
    with torch.no_grad():
        net[1].weight.copy_(torch.stack([weights.flatten(), -weights.flatten()]))
    g = torch.Generator().manual_seed(0)
    grades = torch.rand(n, 4, 4, generator=g).numpy()
    return Model(net), open_data(torch.rand(n, 1, 4, 4, generator=g), regions=grades)


def test_graded_regions_are_compared_by_rank_with_the_relevance():
    model, data = graded_data()
    run = heatproof.evaluate(model, data, ["saliency", "random"], [Localisation()])
    table = run.table()
    grades = data.load(range(12)).batch.aux["_region"]
    weights = np.arange(16.0)
    rows = table[table.explainer == "saliency"].set_index(["measure", "sample"])
    for i, sample in enumerate(data.ids):
        grade = grades[i].numpy().ravel().astype(float)
        row = rows.loc[("alignment", sample)]
        assert row.value == pytest.approx(stats.spearmanr(weights, grade).statistic)
        assert row.chance == 0
        row = rows.loc[("graded_mass", sample)]
        assert row.value == pytest.approx((weights * grade).sum() / (weights.sum() * grade.max()))
        # The expected score of shuffled values.
        assert row.chance == pytest.approx(grade.mean() / grade.max())
    assert run.ranking("localisation").explainer.tolist()
    (result,) = run.results("localisation")
    assert [headline.name for headline in result.headlines] == ["alignment"]
    # Where all grades are above 0, the region is everything and says nothing.
    assert set(rows.loc["relevance_mass"].status) == {"undefined"}
    assert "people" in " ".join(lead(result))


def test_people_who_graded_like_the_map_agree_with_it():
    model, data = graded_data()
    like_the_map = np.broadcast_to(np.arange(16.0).reshape(4, 4), (12, 4, 4)).copy()
    images = data.load(range(12)).batch.x
    for grades, expected in ((like_the_map, 1.0), (like_the_map.max() - like_the_map, -1.0)):
        graded = open_data(images, regions=grades)
        table = heatproof.evaluate(model, graded, ["saliency"], [Localisation()]).table()
        values = table[table.measure == "alignment"].value
        assert values.tolist() == pytest.approx([expected] * 12)


def test_one_grade_everywhere_is_a_row_with_a_reason():
    model, data = graded_data()
    grades = np.linspace(0.1, 1, 12 * 16, dtype=np.float32).reshape(12, 4, 4)
    grades[3] = 0.5
    graded = open_data(data.load(range(12)).batch.x, regions=grades)
    table = heatproof.evaluate(model, graded, ["saliency"], [Localisation()]).table()
    row = table[
        table.measure.isin(["alignment", "graded_mass"]) & (table["sample"] == graded.ids[3])
    ]
    assert set(row.status) == {"undefined"} and row.reason.str.contains("grade").all()


def test_padding_has_no_grade():
    values, grades = torch.rand(2, 6), torch.rand(2, 6)
    present = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    whole = graded_scores(values, grades, present)
    alone = graded_scores(values[1:, :4], grades[1:, :4], present[1:, :4])
    for measure in whole:
        assert whole[measure].value[1] == alone[measure].value[0]
        assert whole[measure].chance[1] == alone[measure].chance[0]


def test_graded_chance_is_the_mean_over_shuffled_maps():
    g = torch.Generator().manual_seed(3)
    values, grades = torch.rand(1, 4, generator=g), torch.rand(1, 4, generator=g)
    present = torch.ones(1, 4, dtype=torch.bool)
    expected = graded_scores(values, grades, present)
    orders = list(itertools.permutations(range(4)))
    for measure, score in expected.items():
        shuffled = [
            float(graded_scores(values[:, order], grades, present)[measure].value)
            for order in orders
        ]
        assert np.mean(shuffled) == pytest.approx(float(score.chance), abs=1e-12)
