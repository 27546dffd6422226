"""Faithfulness: curves computed by brute force, and the exact contributions of a linear model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import heatproof
from border import nets
from border.kinds import model_and_data
from border.tables import rows, values

FRACTIONS = (0.25, 0.5, 0.75)
SHAPES = {"image": (1, 4, 4), "series": (1, 12), "table": (8,), "volume": (1, 2, 2, 2)}
every_shape = pytest.mark.parametrize("kind", SHAPES)


def linear_case(kind: str) -> tuple[heatproof.Model, heatproof.Batch]:
    shape = SHAPES[kind]
    drawn = nets.numbers if kind in ("series", "table") else nets.pixels
    model = heatproof.Model(nets.linear(*shape))
    return model, heatproof.Batch(nets.NAMES, drawn(nets.SAMPLES, *shape))


def zeroing(**options: object) -> heatproof.Faithfulness:
    return heatproof.Faithfulness(imputers="zero", fractions=FRACTIONS, readout="logit", **options)


@every_shape
@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_a_curve_is_what_the_model_says_once_the_features_are_gone(kind, order):
    model, data = linear_case(kind)
    test = zeroing(metrics=("road",), orders=("morf", "lerf"))
    run = heatproof.evaluate(model, data, {"falling": nets.falling}, test)
    network = nets.linear(*SHAPES[kind])
    flat = data.x.flatten(1)
    target = network(data.x).argmax(1)
    count = flat.shape[1]
    for fraction in FRACTIONS:
        gone = int(fraction * count + 0.5)
        kept = torch.ones(count, dtype=torch.bool)
        kept[:gone] = order != "morf"
        if order == "lerf":
            kept[count - gone :] = False
        left = (flat * kept).reshape(data.x.shape)
        expected = network(left).gather(1, target[:, None])[:, 0].detach()
        found = values(run, measure="logit", condition=f"zero {order}", level=fraction)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@every_shape
def test_chance_is_a_random_order_that_looks_at_no_map(kind):
    model, data = linear_case(kind)
    explainers = {"true": "input_x_gradient", "falling": nets.falling}
    run = heatproof.evaluate(model, data, explainers, zeroing(metrics=("road", "aopc")))
    curves = rows(run, measure="logit")
    by_place = curves.groupby(["sample", "level"])["chance"]
    assert (by_place.nunique() == 1).all(), "the same for every explainer and for both orders"
    assert set(curves["order"]) == {"morf", "lerf"}

    # AOPC of the random order, from the points of its curve.
    whole = nets.linear(*SHAPES[kind])(data.x).amax(1).detach().numpy()
    at_random = curves[curves["explainer"] == "true"].pivot_table("chance", "sample", "level")
    drops = whole[:, None] - at_random.to_numpy()
    found = rows(run, measure="aopc", explainer="true").sort_values("sample")["chance"]
    expected = drops.sum(1) / (len(FRACTIONS) + 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert (rows(run, measure="road")["chance"] == 0).all()


@every_shape
def test_road_is_half_the_distance_of_two_curves_and_the_papers_number_is_one_of_them(kind):
    model, data = linear_case(kind)
    test = zeroing(metrics=("road", "road_morf_accuracy"), orders=("morf", "lerf"))
    run = heatproof.evaluate(model, data, {"falling": nets.falling}, test)
    curves = rows(run, measure="logit").pivot_table("value", "sample", ["order", "level"])
    halves = (curves["lerf"] - curves["morf"]).mean(axis=1) / 2
    np.testing.assert_allclose(values(run, measure="road"), halves, rtol=0, atol=1e-6)

    network = nets.linear(*SHAPES[kind])
    flat = data.x.flatten(1)
    for fraction in FRACTIONS:
        left = flat.clone()
        left[:, : int(fraction * flat.shape[1] + 0.5)] = 0
        stays = network(left.reshape(data.x.shape)).argmax(1) == network(data.x).argmax(1)
        found = values(run, measure="road_morf_accuracy", level=fraction)
        assert found.mean() == pytest.approx(stays.double().mean().item())


@every_shape
def test_no_map_is_more_faithful_to_a_linear_model_than_its_contributions(kind):
    # To take the largest contributions first makes the logit fall fastest, whatever the weights are.
    model, data = linear_case(kind)
    explainers = {"true": "input_x_gradient", "random": "random", "falling": nets.falling}
    run = heatproof.evaluate(model, data, explainers, zeroing(metrics=("road",)))
    true = values(run, measure="road", explainer="true")
    for other in ("random", "falling"):
        assert (true >= values(run, measure="road", explainer=other) - 1e-6).all()
    assert true.mean() > values(run, measure="road", explainer="random").mean() + 0.01


@every_shape
def test_the_contributions_of_a_linear_model_forecast_every_drop(kind):
    model, data = linear_case(kind)
    metrics = ("faithfulness_correlation", "sensitivity_n", "infidelity")
    test = zeroing(metrics=metrics, masks=16, segments="pixels")
    run = heatproof.evaluate(model, data, {"true": "input_x_gradient"}, test)
    for measure in metrics[:2]:
        np.testing.assert_allclose(values(run, measure=measure), 1.0, rtol=0, atol=1e-4)
    np.testing.assert_allclose(values(run, measure="infidelity"), 0.0, rtol=0, atol=1e-6)


@every_shape
def test_a_map_and_its_negative_have_opposite_road_scores(kind):
    model, data = linear_case(kind)

    def negative(model, batch, target, seed):
        return -nets.falling(model, batch, target, seed)

    negative.stochastic = False
    explainers = {"falling": nets.falling, "negative": negative}
    run = heatproof.evaluate(model, data, explainers, zeroing(metrics=("road",)))
    one = values(run, measure="road", explainer="falling")
    other = values(run, measure="road", explainer="negative")
    np.testing.assert_allclose(one, -other, rtol=0, atol=1e-5)


@every_shape
def test_nothing_is_lost_where_the_model_does_not_look_at_its_input(kind):
    _, data = linear_case(kind)
    run = heatproof.evaluate(
        heatproof.Model(nets.Constant()), data, ["random"], zeroing(metrics=("road", "aopc"))
    )
    np.testing.assert_allclose(values(run, measure="road"), 0.0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(values(run, measure="aopc"), 0.0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(values(run, measure="logit"), 2.0, rtol=0, atol=1e-6)
    assert (values(run, measure="accuracy") == 1).all()


@pytest.mark.parametrize("kind", ["image", "volume", "series", "table"])
def test_a_constant_map_has_no_score(kind):
    model, data = model_and_data(kind)
    test = heatproof.Faithfulness(imputers="zero", fractions=(0.5,), metrics=("road",))
    run = heatproof.evaluate(model, data, {"flat": nets.constant_map}, test)
    found = rows(run, measure="road")
    assert set(found["status"]) == {"undefined"}
    assert (found["reason"] != "").all()


def test_accuracy_begins_with_the_labels_of_the_data():
    model, data = linear_case("table")
    target = nets.linear(8)(data.x).argmax(1)
    labels = torch.where(torch.arange(nets.SAMPLES) < 4, target, (target + 1) % 3)
    labelled = heatproof.Batch(nets.NAMES, data.x, label=labels)
    test = heatproof.Faithfulness(imputers="zero", fractions=(0.01, 0.5), metrics=("road",))
    run = heatproof.evaluate(model, labelled, ["random"], test)
    untouched = values(run, measure="accuracy", condition="zero morf", level=0.01)
    assert untouched.tolist() == [1.0] * 4 + [0.0] * 4
