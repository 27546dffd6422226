"""Certificates and smoothing: rates counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import heatproof
from border import nets
from border.tables import rows, values

CHOSEN = {"first": nets.falling}
"""Of four columns a quarter is the first."""


def table_of_ones() -> heatproof.Batch:
    return heatproof.Batch(nets.NAMES, torch.ones(nets.SAMPLES, 4))


def certified(weights: tuple[float, ...], **options: object) -> heatproof.Run:
    model = heatproof.Model(nets.Rule(*weights))
    test = heatproof.Certificate(fraction=0.25, **{"fill": "zero", **options})
    return heatproof.evaluate(model, table_of_ones(), CHOSEN, test)


def test_a_prediction_that_reads_only_the_explanation_survives_everything():
    run = certified((1.0, 0.0, 0.0, 0.0), radii=(1, 3))
    for measure in ("rate", "certified", "sufficient"):
        assert (values(run, measure=measure) == 1).all(), measure


def test_a_constant_model_keeps_every_prediction_of_a_random_map():
    data = nets.image_data()
    test = heatproof.Certificate(radii=(1, 3), features=heatproof.features.Patches(4))
    run = heatproof.evaluate(heatproof.Model(nets.Constant()), data, ["random"], test)
    assert (values(run, measure="rate") == 1).all()


# With weights (1, 0, 0, −2) the first column alone is class 1, and class 0 as soon as the last one joins it. Of the 4
# supersets with at most one more column 3 lack the last, of the 7 with at most two 4, of all 8 again 4.
@pytest.mark.parametrize(("radius", "rate"), [(1, 3 / 4), (2, 4 / 7), (3, 4 / 8)])
def test_the_rate_is_the_share_of_supersets_that_keep_the_prediction(radius, rate):
    run = certified((1.0, 0.0, 0.0, -2.0), radii=(radius,))
    for measure in ("rate", "certified"):
        np.testing.assert_allclose(values(run, measure=measure), rate, rtol=0, atol=1e-6)
    assert set(rows(run, measure="rate")["level"]) == {radius}


def test_chance_is_the_mean_rate_of_random_sets_and_0_draws_measure_none():
    # Of the sets of one column, the first three are class 1 and change only when the last joins, 1 of their 4 supersets;
    # the last alone is class 0 and stays so.
    weights = (1.0, 0.1, 0.1, -2.0)
    rates = rows(certified(weights, radii=(1,), chance_draws=2000), measure="rate")
    by_hand = (3 / 4 + 3 / 4 + 3 / 4 + 1) / 4
    error = (0.25 / (2000 * nets.SAMPLES)) ** 0.5
    assert abs(rates["chance"].mean() - by_hand) < 4.5 * error
    assert (
        rows(certified(weights, radii=(1,), chance_draws=0), measure="rate")["chance"].isna().all()
    )


def test_an_explanation_that_is_predicted_unlike_the_whole_is_not_sufficient():
    run = certified((1.0, 0.0, 0.0, -2.0), radii=(1,))
    assert (values(run, measure="sufficient") == 0).all()


def test_anchored_at_the_whole_input_the_rate_is_of_its_class():
    run = certified((1.0, 0.0, 0.0, -2.0), radii=(1,), anchor="full")
    np.testing.assert_allclose(values(run, measure="rate"), 1 / 4, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("threshold", "answer"), [(0.6, 1), (0.9, 0)])
def test_a_decision_compares_the_rate_with_the_threshold(threshold, answer):
    weights = (1.0, 0.0, 0.0, -2.0)
    run = certified(weights, radii=(1,), mode="decide", threshold=threshold)
    assert (values(run, measure="stable") == answer).all()


def test_a_superset_that_flips_is_found():
    run = certified((1.0, 0.0, 0.0, -2.0), radii=(1,), mode="hard")
    assert (values(run, measure="unflipped") == 0).all()
    run = certified((1.0, 0.0, 0.0, 0.0), radii=(1,), mode="hard")
    assert (values(run, measure="unflipped") == 1).all()


@pytest.mark.parametrize("test", ["certificate", "smoothing"])
def test_a_constant_map_chooses_nothing(test):
    model = heatproof.Model(nets.Rule(1.0, 0.0, 0.0, -2.0))
    run = heatproof.evaluate(
        model, table_of_ones(), {"flat": nets.constant_map}, {test: {test: {"radii": [1]}}}
    )
    rates = rows(run, measure="rate")
    assert set(rates["status"]) == {"undefined"}
    assert (rates["reason"] != "").all()


def smoothed(weights: tuple[float, ...], **options: object) -> heatproof.Run:
    model = heatproof.Model(nets.Rule(*weights))
    labels = torch.arange(nets.SAMPLES) % 2
    data = heatproof.Batch(nets.NAMES, torch.ones(nets.SAMPLES, 4), label=labels)
    test = heatproof.Smoothing(fraction=0.25, **options)
    return heatproof.evaluate(model, data, CHOSEN, test)


def test_smoothing_that_keeps_everything_is_the_model_itself():
    run = smoothed((1.0, 0.0, 0.0, -2.0), keeps=(1.0,), radii=(1, 2, 3))
    for radius, rate in ((1, 3 / 4), (2, 4 / 7), (3, 4 / 8)):
        found = values(run, measure="rate", level=radius)
        np.testing.assert_allclose(found, rate, rtol=0, atol=1e-6)


def test_a_smoothed_model_that_reads_only_the_explanation_survives_everything():
    run = smoothed((1.0, 0.0, 0.0, 0.0), keeps=(0.5, 1.0), radii=(1, 3), samples=8)
    assert (values(run, measure="rate") == 1).all()


def test_no_hard_radius_is_claimed_where_one_more_feature_flips():
    run = smoothed((1.0, 0.0, 0.0, -2.0), keeps=(1.0,), radii=(1,))
    assert (values(run, measure="hard_radius") == 0).all()


def test_a_smoothed_model_is_correct_where_it_predicts_the_label():
    # The whole input is class 1 − 2 − 0.5 < 0, so class 0, for every sample; labels alternate.
    run = smoothed((1.0, 0.0, 0.0, -2.0), keeps=(1.0,), radii=(1,))
    correct = rows(run, measure="correct").sort_values("sample")["value"].tolist()
    assert correct == [1.0 - i % 2 for i in range(nets.SAMPLES)]
