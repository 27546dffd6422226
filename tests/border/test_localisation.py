"""Localisation: maps whose mass in a region can be added up by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import heatproof
from border import nets
from border.tables import rows, values

SHAPE = (nets.SAMPLES, 3, 12, 12)
TOP, BOTTOM, LEFT, RIGHT = 2, 7, 3, 9
AREA = (BOTTOM - TOP) * (RIGHT - LEFT) / 144


def inside(model, batch, target, seed):
    return batch.aux["_region"][:, None].float().expand(batch.x.shape)


def outside(model, batch, target, seed):
    return 1 - inside(model, batch, target, seed)


for _explainer in (inside, outside):
    _explainer.stochastic = False


def case() -> tuple[heatproof.Model, heatproof.Batch]:
    region = torch.zeros(nets.SAMPLES, 12, 12, dtype=torch.bool)
    region[:, TOP:BOTTOM, LEFT:RIGHT] = True
    data = heatproof.Batch(nets.NAMES, nets.pixels(*SHAPE), {"_region": region})
    return heatproof.Model(nets.linear(*SHAPE[1:])), data


@pytest.mark.parametrize(("explainer", "score"), [(inside, 1.0), (outside, 0.0)])
def test_the_mask_of_the_object_scores_one_and_the_rest_scores_zero(explainer, score):
    model, data = case()
    run = heatproof.evaluate(model, data, {"map": explainer}, "localisation")
    for measure in ("relevance_mass", "pointing", "region_auc", "energy", "relevance_rank"):
        found = values(run, measure=measure)
        np.testing.assert_allclose(found, score, rtol=0, atol=1e-6, err_msg=measure)


def test_chance_is_the_share_of_the_area():
    model, data = case()
    run = heatproof.evaluate(model, data, ["random"], "localisation")
    for measure in ("relevance_mass", "relevance_rank", "pointing"):
        chance = rows(run, measure=measure)["chance"]
        np.testing.assert_allclose(chance, AREA, rtol=0, atol=1e-6, err_msg=measure)
    np.testing.assert_allclose(rows(run, measure="region_auc")["chance"], 0.5, rtol=0, atol=1e-6)


def test_mass_is_the_share_of_the_positive_evidence_in_the_region():
    model, data = case()
    kept = heatproof.explain(model, data, "input_x_gradient").sum(1)
    for sign, evidence in (("positive", kept.clip(0)), ("absolute", np.abs(kept))):
        test = heatproof.Localisation(sign=sign)
        run = heatproof.evaluate(model, data, ["input_x_gradient"], test)
        part = evidence[:, TOP:BOTTOM, LEFT:RIGHT].sum((1, 2)) / evidence.sum((1, 2))
        np.testing.assert_allclose(values(run, measure="relevance_mass"), part, atol=1e-5)


def test_the_pointing_game_is_won_where_the_largest_value_lies_in_the_region():
    model, data = case()
    evidence = heatproof.explain(model, data, "input_x_gradient").sum(1).clip(0)
    peaks = evidence.reshape(nets.SAMPLES, -1).argmax(1)
    won = [TOP <= peak // 12 < BOTTOM and LEFT <= peak % 12 < RIGHT for peak in peaks]
    run = heatproof.evaluate(model, data, ["input_x_gradient"], "localisation")
    assert values(run, measure="pointing").tolist() == [float(each) for each in won]


def test_a_constant_map_lies_nowhere():
    model, data = case()
    run = heatproof.evaluate(model, data, {"flat": nets.constant_map}, "localisation")
    found = rows(run, measure="relevance_mass")
    assert set(found["status"]) == {"undefined"}
    assert (found["reason"] != "").all()


def test_a_sample_without_a_region_has_a_reason_and_the_others_a_score():
    model, data = case()
    region = data.aux["_region"].clone()
    region[2] = False
    data = heatproof.Batch(data.ids, data.x, {"_region": region})
    run = heatproof.evaluate(model, data, ["saliency"], "localisation")
    found = rows(run, measure="relevance_mass").sort_values("sample")
    assert found["status"].tolist() == [
        "undefined" if i == 2 else "ok" for i in range(nets.SAMPLES)
    ]
    assert found["reason"].iloc[2] != ""


def test_in_a_mosaic_chance_is_a_quarter():
    # The brightest of three channels gives the class, so samples have other classes and a tile is evidence for its own.
    pictures = 0.2 * nets.pixels(nets.SAMPLES, 3, 12, 12)
    for i in range(nets.SAMPLES):
        pictures[i, i % 3] += 0.7
    net = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 3)
    )
    net[2].weight.data, net[2].bias.data = 5 * torch.eye(3), torch.zeros(3)
    data = heatproof.Batch(nets.NAMES, pictures)
    run = heatproof.evaluate(
        heatproof.Model(net), data, ["input_x_gradient"], heatproof.Localisation(by="mosaics")
    )
    scored = rows(run, measure="relevance_mass", status="ok")
    np.testing.assert_allclose(scored["chance"], 0.25, rtol=0, atol=1e-6)
    assert (scored["value"] > 0.25).all()
