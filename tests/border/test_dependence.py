"""Dependence and agreement: both ends of each scale are exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import heatproof
from border import nets
from border.kinds import KINDS, model_and_data
from border.tables import rows, values

every_kind = pytest.mark.parametrize("kind", KINDS)


def all_classes_at_once(model, batch, target, seed):
    """The gradient of the sum of all squared logits, which knows the weights and not the class."""
    inputs = model.inputs(batch).requires_grad_()
    with torch.enable_grad():
        total = model.logits(inputs, batch.aux).square().sum()
    return torch.autograd.grad(total, inputs)[0]


all_classes_at_once.stochastic = False


def test_an_edge_filter_does_not_depend_on_the_weights():
    model, data = model_and_data("image")
    run = heatproof.evaluate(
        model, data, ["sobel"], heatproof.Dependence(draws=2, noise_floor=False)
    )
    assert (values(run, measure="dependence") == 0).all()
    assert (values(run, measure="class_dependence") == 0).all()
    assert set(run.ranking()["mark"]) == {"blind"}


@every_kind
def test_a_random_map_does_not_depend_on_the_weights(kind):
    model, data = model_and_data(kind)
    run = heatproof.evaluate(
        model, data, ["random"], heatproof.Dependence(draws=2, noise_floor=False)
    )
    assert (values(run, measure="dependence") == 0).all()


@every_kind
def test_a_map_that_is_drawn_from_the_weights_depends_on_nothing_else(kind):
    model, data = model_and_data(kind)
    run = heatproof.evaluate(
        model, data, ["weight_noise"], heatproof.Dependence(draws=2, noise_floor=False)
    )
    assert (values(run, measure="dependence") > 0).all()
    assert (values(run, measure="class_dependence") == 0).all()


def test_noise_that_knows_the_weights_changes_as_between_unrelated_samples():
    # 768 unrelated values and 8 samples: the mean of the score has a standard deviation below 0.02.
    model, data = model_and_data("image")
    run = heatproof.evaluate(model, data, ["weight_noise"], heatproof.Dependence(draws=3))
    (score,) = run.ranking("dependence", "dependence")["score"]
    assert abs(score - 1) < 0.1


def test_the_mean_of_the_rows_of_dependence_is_the_score():
    model, data = model_and_data("image")
    test = heatproof.Dependence(draws=2, cascades=("top_down",), steps=2)
    run = heatproof.evaluate(model, data, ["random", "weight_noise"], test)
    means = rows(run, measure="dependence").groupby("explainer")["value"].mean()
    scores = run.ranking("dependence", "dependence").set_index("explainer")["score"]
    np.testing.assert_allclose(means[scores.index], scores, rtol=0, atol=1e-9)
    # Two draws of noise are unrelated, which must not reach the score of a control that ignores the weights.
    assert means["random"] == 0
    assert values(run, measure="noise_floor", explainer="random").mean() > 0.8


def test_noise_that_knows_the_weights_is_as_similar_as_its_chance_level():
    model, data = model_and_data("image")
    run = heatproof.evaluate(model, data, ["weight_noise"], heatproof.Dependence(draws=3))
    for measure in ("similarity", "ssim", "spearman", "jaccard"):
        similar = rows(run, measure=measure, condition="weights")
        assert abs(similar["value"].mean() - similar["chance"].mean()) < 0.05


@every_kind
def test_a_gradient_depends_on_the_weights(kind):
    model, data = model_and_data(kind)
    run = heatproof.evaluate(
        model, data, ["saliency"], heatproof.Dependence(draws=2, noise_floor=False)
    )
    (score,) = run.ranking("dependence", "dependence")["score"]
    assert score > 0.1
    assert set(run.ranking()["mark"]) == {""}


def test_a_map_of_all_classes_at_once_depends_on_the_weights_and_not_on_the_class():
    model, data = model_and_data("image")
    run = heatproof.evaluate(
        model, data, {"all": all_classes_at_once}, heatproof.Dependence(draws=1)
    )
    np.testing.assert_allclose(values(run, measure="class_dependence"), 0.0, rtol=0, atol=1e-6)
    assert values(run, measure="dependence").mean() > 0.1


def test_a_constant_map_has_no_score():
    model, data = model_and_data("image")
    run = heatproof.evaluate(
        model, data, {"flat": nets.constant_map}, heatproof.Dependence(draws=1)
    )
    found = rows(run, measure="dependence")
    assert set(found["status"]) == {"undefined"}
    assert (found["reason"] != "").all()


def negated(model, batch, target, seed):
    return -heatproof.InputXGradient()(model, batch, target, seed)


negated.stochastic = False


@every_kind
def test_a_method_agrees_with_itself_and_disagrees_with_its_negative(kind):
    model, data = model_and_data(kind)
    same = heatproof.InputXGradient()
    explainers = {"one": same, "again": same, "negated": negated}
    run = heatproof.evaluate(model, data, explainers, "agreement")
    for measure in ("spearman", "jaccard", "sign_agreement"):
        found = values(run, measure=measure, explainer="one", condition="again")
        np.testing.assert_allclose(found, 1.0, rtol=0, atol=1e-6)
    for measure in ("spearman", "sign_agreement"):
        found = values(run, measure=measure, explainer="one", condition="negated")
        limit = 0.5 if measure == "spearman" else 1e-6
        assert (found < limit).all()


def test_agreement_is_symmetric():
    model, data = model_and_data("image")
    run = heatproof.evaluate(model, data, ["saliency", "input_x_gradient"], "agreement")
    for measure in ("spearman", "jaccard", "sign_agreement"):
        there = values(run, measure=measure, explainer="saliency", condition="input_x_gradient")
        back = values(run, measure=measure, explainer="input_x_gradient", condition="saliency")
        np.testing.assert_allclose(there, back, rtol=0, atol=1e-6)


def test_unrelated_maps_agree_as_much_as_chance():
    # A rank correlation of 768 unrelated pairs has a standard deviation of 0.036; (ρ + 1) / 2 has half of it.
    model, data = model_and_data("image")
    run = heatproof.evaluate(model, data, ["saliency", "random"], "agreement")
    found = values(run, measure="spearman", explainer="saliency", condition="random")
    assert abs(found.mean() - 0.5) < 0.03
