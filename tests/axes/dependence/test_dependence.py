"""Dependence: both ends of its scale, closed forms, random networks, and where it is shown."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes.dependence.overview import overview
from heatproof.axes.dependence.report import findings, lead
from heatproof.axes.dependence.verdicts import marks
from heatproof.evaluation import ALONE
from heatproof.maps.complexity import entropy, gini
from heatproof.models.randomised import layers_in_order, random_weights, with_weights
from heatproof.results.axis_result import AxisResult
from heatproof.runs.results import arrays_of_run, axis_results
from support.small import model, pictures

CONTROLS = ["random", "sobel", "weight_noise"]


@pytest.fixture(scope="module")
def run() -> heatproof.Run:
    asked = [
        {"stability": {"perturbations": "jpeg", "k": 50}},
        {"dependence": {"draws": 2, "k": 50}},
    ]
    return heatproof.evaluate(
        model(), pictures(10), ["saliency", {"gradient_shap": {"samples": 2}}, *CONTROLS], asked
    )


def rows_of(
    table: pd.DataFrame, measure: str, explainer: str = "saliency", condition: str = ""
) -> pd.DataFrame:
    """The rows of a measure of dependence, in order of sample and repeat; under one condition where it is named."""
    rows = table[
        (table.measure == measure)
        & (table.explainer == explainer)
        & (table.evaluation == "dependence")
    ]
    if condition:
        rows = rows[rows.condition == condition]
    return rows.sort_values(["sample", "repeat"])


def values(
    table: pd.DataFrame, measure: str, explainer: str = "saliency", condition: str = ""
) -> np.ndarray:
    return rows_of(table, measure, explainer, condition).value.to_numpy(dtype=float)


def test_both_ends_of_the_scale(run):
    table = run.table()
    assert (values(table, "dependence", "sobel") == 0).all() and (
        values(table, "dependence", "random") == 0
    ).all()
    assert (values(table, "class_dependence", "weight_noise") == 0).all()
    ranked = run.ranking("dependence").set_index("explainer")
    noise = ranked.loc["weight_noise"]
    assert noise.low <= 1 <= noise.high and noise.high - noise.low < 0.05
    assert ranked["rank"].isna().all()


def test_the_headline_is_the_change_by_that_between_unrelated_samples(run):
    table = run.table()
    rows = rows_of(table, "similarity", condition="weights")
    similar, chance = rows.value.to_numpy(), rows.chance.to_numpy()
    assert np.allclose(values(table, "dependence"), (1 - similar) / (1 - chance), atol=1e-12)
    parts = [values(table, name, condition="weights") for name in ("ssim", "spearman", "jaccard")]
    assert np.allclose(similar, np.mean(parts, axis=0), atol=1e-12)
    assert len(similar) == 2 * 10


def test_a_score_has_its_name_to_itself(run):
    table = run.table()
    own = table[table.evaluation == "dependence"]
    assert set(own[own.measure == "dependence"].condition) == {"weights"}
    assert set(own[own.measure == "class_dependence"].condition) == {"class"}
    for measure in ("similarity", "ssim", "spearman", "jaccard"):
        scored = own[own.measure == measure]
        assert set(scored.condition) == {"weights", "class"} and scored.chance.notna().all()
    has_chance_inside = own.measure.isin(["dependence", "class_dependence"])
    assert own[has_chance_inside].chance.isna().all()


def test_the_noise_floor_is_the_change_between_two_draws(run):
    table = run.table()
    own = table[(table.evaluation == "dependence") & (table.condition == "redraw")]
    stochastic = {"gradient_shap(samples=2)", "random", "weight_noise"}
    assert set(own.explainer) == stochastic and own.measure.str.startswith("noise_floor").all()
    floor = rows_of(table, "noise_floor", "random").set_index("sample").value
    similar = rows_of(table, "noise_floor_similarity", "random").set_index("sample").value
    chance = rows_of(table, "similarity", "random", "weights").groupby("sample").chance.first()
    assert np.allclose(floor, (1 - similar) / (1 - chance), atol=1e-12)
    arrays = next(arrays for arrays in arrays_of_run(table) if arrays.evaluation == "dependence")
    of_random = arrays.noise_floor("dependence")[arrays.explainers.index("random")]
    assert np.allclose(of_random, floor[arrays.samples], atol=1e-12)


def test_every_random_network_has_rows_of_its_own():
    default = heatproof.Dependence(classes=0, k=50)
    table = heatproof.evaluate(model(), pictures(4), ["saliency", "sobel"], default).table()
    rows = table[table.measure == "dependence"]
    per_network = rows.groupby(["explainer", "repeat"]).size()
    assert (per_network == 4).all() and len(per_network) == 2 * default.draws
    means = rows[rows.explainer == "saliency"].groupby("repeat").value.mean()
    assert means.nunique() == default.draws >= 5, "each network is another one"


def test_a_random_network_costs_one_map_of_every_sample_and_method():
    methods = ["input_x_gradient", {"integrated_gradients": {"steps": 5}}]

    def passes(draws: int) -> int:
        net = model()
        test = heatproof.Dependence(draws=draws, classes=0, batch_norms="keep", k=50)
        heatproof.evaluate(net, pictures(6), methods, test)
        return net.passes

    assert passes(4) - passes(2) == 2 * 6 * (1 + 5)


def test_a_blind_explainer_is_marked_on_every_axis(run):
    ranked = run.ranking("stability").set_index("explainer")
    assert ranked.mark.to_dict() == {
        "saliency": "",
        "gradient_shap(samples=2)": "",
        "random": "blind",
        "sobel": "blind",
        "weight_noise": "",
    }
    page = run.report().read_text()
    assert "Edge filter (ignores model)" in page and "Random map (ignores model)" in page
    rows = [line for line in run.text().splitlines() if "(control)" in line]
    assert sum("no" in line.split() for line in rows) == 2, "the column of the check"
    arrays = next(
        arrays for arrays in arrays_of_run(run.table()) if arrays.evaluation == "dependence"
    )
    assert marks(arrays) == {"random": "blind", "sobel": "blind"}


def test_a_linear_models_gradient_in_closed_form():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    signed = {"saliency": {"absolute": False}, "as": "gradient"}
    axis = [{"dependence": {"draws": 2, "classes": 1, "k": 20}}]
    run = heatproof.evaluate(net, images, [signed], axis)
    table, samples = run.table(), run.samples().sort_values("sample")
    wrapped = Model(net)
    for draw in range(2):
        drawn = random_weights(wrapped, seed=0, draw=draw)["1.weight"].numpy()
        assert np.array_equal(
            np.sort(drawn.ravel()), np.sort(net[1].weight.detach().numpy().ravel())
        )
        expected = [
            stats.spearmanr(net[1].weight[c].detach(), drawn[c]).statistic
            for c in samples.predicted
        ]
        rows = table[
            (table.measure == "spearman")
            & (table.condition == "weights")
            & (table["repeat"] == draw)
        ]
        assert np.allclose(2 * rows.sort_values("sample").value - 1, expected, atol=1e-6)
    # An unrelated sample has the same gradient if it is of the same class, else that of its own.
    rows = table[
        (table.measure == "spearman") & (table.condition == "weights") & (table["repeat"] == 0)
    ]
    w = net[1].weight.detach().numpy()
    every = samples.predicted.tolist()
    means = [
        np.mean([stats.spearmanr(w[a], w[b]).statistic for j, b in enumerate(every) if j != i])
        for i, a in enumerate(every)
    ]
    assert np.allclose(2 * rows.sort_values("sample").chance - 1, means, atol=1e-6)


class ClassChannel(nn.Module):
    """Each class looks at one channel of the picture alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.eye(3) + torch.tensor([[0.0, 0, 0], [0, 0.1, 0], [0, 0, 0.2]])
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) @ self.weight.T


def test_attention_to_the_class_channel_only():
    images = torch.rand(7, 3, 6, 6, generator=torch.Generator().manual_seed(2))
    table = heatproof.evaluate(
        ClassChannel(), images, "saliency", [{"dependence": {"draws": 0, "classes": 2, "k": 36}}]
    ).table()
    other = table[table.condition == "class"]
    assert set(other["repeat"]) == {0, 1} and (other[other.measure == "jaccard"].value == 0).all()
    one, two = torch.zeros(2, 3, 6, 6)
    one[0], two[1] = 1, 1
    rho = stats.spearmanr(one.flatten(), two.flatten()).statistic
    assert np.allclose(other[other.measure == "spearman"].value, (rho + 1) / 2)
    assert not (table.condition == "weights").any()


def test_descriptions_of_a_map():
    maps = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    sizes = maps.flatten(1).abs().double().numpy()
    assert np.allclose(entropy(maps), stats.entropy(sizes, axis=1) / np.log(75))
    pairs = np.abs(sizes[:, :, None] - sizes[:, None]).mean((1, 2)) / (
        2 * sizes.mean(1)
    )  # Gini's own definition
    assert np.allclose(gini(maps), pairs)
    assert bool(entropy(torch.zeros(1, 4)).isnan()) and bool(gini(torch.zeros(1, 4)).isnan())


def histogram_entropy(values: np.ndarray) -> float:
    """The complexity of eMPRT: the entropy of a histogram of the values."""
    counts, _ = np.histogram(values, bins="fd")
    return float(stats.entropy(counts))


def test_entropy_is_of_the_shares_and_not_of_a_histogram_of_values_as_that_of_emprt():
    """docs/dependence.md: the two put an even and an uneven map in opposite orders."""
    even, uneven = torch.ones(1, 100), torch.linspace(0, 1, 100)[None]
    by_values = [histogram_entropy(maps[0].numpy()) for maps in (even, uneven)]
    by_shares = entropy(torch.cat([even, uneven])).tolist()
    assert by_values[0] == 0 < by_values[1]
    assert by_shares[0] == pytest.approx(1) and by_shares[1] < 1


def test_completeness_and_passes_stand_beside_it():
    methods = [
        "saliency",
        {"integrated_gradients": {"steps": 64}},
        {"gradient_shap": {"samples": 1}},
        "deep_lift",
    ]
    table = heatproof.evaluate(
        model(), pictures(4), methods, [{"dependence": {"draws": 0, "classes": 0, "k": 50}}]
    ).table()
    clean = (
        table[table.condition == "clean"].groupby(["explainer", "measure"]).value.mean().unstack()
    )
    assert clean.passes.to_dict() == {
        "saliency": 1,
        "integrated_gradients(steps=64)": 64,
        "gradient_shap(samples=1)": 1,
        "deep_lift": 2,
    }
    gap = clean.completeness_gap
    assert np.isnan(gap["saliency"]) and gap["deep_lift"] < 1e-4
    assert gap["integrated_gradients(steps=64)"] < 0.02 < gap["gradient_shap(samples=1)"] <= 1


def test_random_networks_keep_values_ties_and_the_original():
    embed = nn.Linear(4, 4)
    net = nn.Sequential(embed, nn.BatchNorm1d(4), embed, nn.Linear(4, 3))
    wrapped, samples = (
        Model(net),
        Batch(tuple("abcd"), torch.randn(4, 4, generator=torch.Generator().manual_seed(0))),
    )
    before = {name: value.clone() for name, value in wrapped.module.state_dict().items()}
    new = random_weights(wrapped, seed=3)
    twin = with_weights(wrapped, new, refit_on=samples)
    assert twin.module[0].weight is twin.module[2].weight and torch.equal(
        twin.module[0].weight, new["0.weight"]
    )
    hidden = twin.module[0](samples.x)
    assert torch.allclose(twin.module[1].running_mean, hidden.mean(0), atol=1e-6)
    assert torch.allclose(twin.module[1].running_var, hidden.var(0), atol=1e-6)
    assert not twin.module[1].training and twin.module[1].momentum == 0.1
    assert all(
        torch.equal(value, before[name]) for name, value in wrapped.module.state_dict().items()
    )
    kept = with_weights(wrapped, new)
    assert torch.equal(kept.module[1].running_mean, before["1.running_mean"])
    again = random_weights(wrapped, seed=3)
    assert all(torch.equal(value, again[name]) for name, value in new.items())
    assert twin.weights_fingerprint == kept.weights_fingerprint != wrapped.weights_fingerprint
    other = random_weights(wrapped, seed=3, draw=1, scheme="normal")["3.weight"]
    assert not torch.equal(other, random_weights(wrapped, seed=3, scheme="normal")["3.weight"])


def test_a_smoothed_model_is_randomised_inside():
    smoothed = heatproof.Smoothed(
        model(), keep=0.5, samples=4, features=heatproof.features.Patches(8)
    )
    twin = with_weights(smoothed, random_weights(smoothed, seed=0))
    batch = Batch(("a",), pictures(1)[0])
    assert not torch.allclose(
        twin.logits(twin.inputs(batch)), smoothed.logits(smoothed.inputs(batch)), atol=1e-3
    )
    assert (
        twin.weights_fingerprint != smoothed.weights_fingerprint
        and twin.fingerprint != smoothed.fingerprint
    )


def test_layers_are_ordered_as_they_are_called():
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.stem = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.stem(x))

    layers = layers_in_order(Model(Backwards()), Batch(("a",), torch.zeros(1, 2)))
    assert layers == [["stem.weight"], ["head.weight", "head.bias"]]


def test_a_cascade_ends_where_all_weights_are_random():
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 3))

    def layers_changed(wrapped, batch, target, seed):
        """A map that tells which layers are random: the first half of it knows one, the second the other."""
        known = [(wrapped.module[i].weight == net[i].weight).all() for i in (1, 3)]
        ramp = torch.arange(6.0)
        parts = [ramp if same else -ramp for same in known]
        return torch.cat(parts).reshape(1, 3, 2, 2).expand(batch.x.shape) + 1e-3 * batch.x

    layers_changed.stochastic = False
    axis = [
        {
            "dependence": {
                "draws": 1,
                "classes": 0,
                "cascades": ["top_down", "bottom_up"],
                "steps": 2,
                "k": 3,
            }
        }
    ]
    images = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    run = heatproof.evaluate(net, images, [layers_changed], axis)
    table = run.table()
    is_score = table.measure.isin(["dependence", "cascade_dependence"])
    means = table[is_score].groupby(["condition", "level"]).value.mean()
    cascades = table[table.condition.isin(["top_down", "bottom_up"])]
    assert set(cascades.measure) == {"cascade_dependence"}
    assert means["top_down", 1.0] == means["bottom_up", 1.0] == means["weights", 0.0]
    assert means["top_down", 0.5] > 0 and means["bottom_up", 0.5] > 0
    assert (
        means["top_down", 0.5] != means["bottom_up", 0.5]
        and means["top_down", 0.5] < means["weights", 0.0]
    )
    assert run.ranking().score.item() == pytest.approx(means["weights", 0.0]), (
        "cascades take no part in the score"
    )


def test_maps_of_random_networks_that_cannot_be_scored_are_rows_with_their_reason():
    wrapped = model()
    own = wrapped.weights_fingerprint

    def constant(network, batch, target, seed):
        maps = network.inputs(batch)
        return maps if network.weights_fingerprint == own else torch.ones_like(maps)

    def refuses(network, batch, target, seed):
        if network.weights_fingerprint != own:
            raise UserError("no layer sees the input")
        return network.inputs(batch)

    run = heatproof.evaluate(
        wrapped, pictures(3), [constant, refuses], [{"dependence": {"draws": 1, "k": 50}}]
    )
    rows = run.table()[lambda t: (t.measure == "dependence") & (t.condition == "weights")]
    assert set(rows.status) == {"undefined"} and len(rows) == 6
    assert rows[rows.explainer == "constant"].reason.str.contains("constant").all()
    assert rows[rows.explainer == "refuses"].reason.str.contains("no layer sees the input").all()


def test_a_model_without_weights_is_refused_before_any_pass():
    class Nothing(nn.Module):
        def forward(self, x):
            raise AssertionError("a pass")

    with pytest.raises(UserError, match=r"weights.*draws: 0"):
        heatproof.evaluate(
            Nothing(), torch.rand(2, 3, 4, 4), "saliency", [{"dependence": {"k": 5}}]
        )
    with pytest.raises(UserError, match=r"k .*48.*100"):
        heatproof.evaluate(
            model(), torch.rand(2, 3, 4, 4), "saliency", [{"dependence": {"k": 100}}]
        )


def test_clean_maps_and_redraws_are_shared_with_other_axes():
    methods = [{"integrated_gradients": {"steps": 5}}, {"gradient_shap": {"samples": 5}}]
    stability, dependence = {"stability": {"perturbations": "jpeg"}}, {"dependence": {"draws": 1}}

    def passes(*axes: dict[str, object]) -> int:
        net = model()
        heatproof.evaluate(net, pictures(6), methods, list(axes))
        return net.passes

    alone, other, both = passes(stability), passes(dependence), passes(stability, dependence)
    # Of each method six clean maps, and of the stochastic one six more of the second draw; references and predictions.
    assert alone + other - both == 2 * 6 * 5 + 6 * 5 + 6 + 6


def test_passes_per_map_are_counted_once_for_all_shards():
    methods = [{"integrated_gradients": {"steps": 32}}]

    def passes(shard_size: int) -> int:
        net = model()
        axis = {"dependence": {"draws": 0, "classes": 0}}
        heatproof.evaluate(net, pictures(6), methods, [axis], shard_size=shard_size)
        return net.passes

    # What a map promises is asked of the baseline, one pass for each shard.
    assert passes(2) - passes(6) < 32


def result_of(run: heatproof.Run) -> AxisResult:
    results = axis_results(run.in_study_order(), run.samples(), (), run.manifest, run.references())
    return next(result for result in results if result.axis.name == "dependence")


def test_words_say_no_more_than_the_intervals(run):
    result = result_of(run)
    sentences = lead(result)
    table = overview(result).set_index("explainer")
    verdicts = table.verdict.to_dict()
    assert verdicts["sobel"] == "blind" and verdicts["weight_noise"] == "depends"
    assert table.loc["weight_noise", "class_verdict"] == "blind"
    assert table.loc["random", "floor"] == pytest.approx(1, abs=0.05), "two draws are unrelated"
    methods = table[~table.control]
    for name in methods.index:
        assert re.search(rf"{re.escape(result.name_of(name))} \(?\d", sentences[0]), (
            "each method with its score"
        )
    assert result.name_of("sobel") not in sentences[0], "a control is no method"
    least = methods.class_score.idxmin()
    assert methods.class_low.min() > 0.1 and any(result.name_of(least) in s for s in sentences)


def test_pages_of_controls_or_of_one_method_do_not_speak_of_methods_in_general():
    test = heatproof.Dependence(draws=2, k=50)
    controls = result_of(heatproof.evaluate(model(), pictures(10), CONTROLS, test))
    text = " ".join(lead(controls))
    assert "method" not in text and "controls" in text
    assert all(controls.name_of(name) in text for name in CONTROLS)
    assert {f.title for f in findings(controls)} == {"Few random networks"}

    one = result_of(heatproof.evaluate(model(), pictures(10), ["saliency", "random"], test))
    text = " ".join(lead(one))
    assert "all methods" not in text.lower() and text.startswith(
        "Saliency depends on the trained weights ("
    )


def test_fewer_than_five_networks_are_a_finding():
    def titles(draws: int) -> set[str]:
        test = heatproof.Dependence(draws=draws, classes=0, k=50)
        return {
            f.title for f in findings(result_of(heatproof.evaluate(net, data, "saliency", test)))
        }

    net, data = model(), pictures(3)
    assert "Few random networks" in titles(4)
    assert "Few random networks" not in titles(5)


def test_one_sample_has_no_chance_and_says_why():
    table = heatproof.evaluate(
        model(), pictures(1), "saliency", heatproof.Dependence(draws=1, k=50)
    ).table()
    similarity = table[table.measure == "similarity"]
    assert set(similarity.status) == {"ok"} and similarity.chance.isna().all()
    score = table[table.measure == "dependence"]
    assert set(score.status) == {"undefined"}
    assert set(similarity.chance_reason) == set(score.reason) == {ALONE}
