"""Stability: what must be true of it whatever the weights are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import heatproof
from border import nets
from border.kinds import model_and_data
from border.tables import assert_same, rows, values

GRIDS = ("image", "volume", "series", "table")
PERTURBATIONS = {
    "image": ["jpeg", {"rotation": {"degrees": [10]}}, "gaussian_blur"],
    "volume": "mild",
    "series": "mild",
    "table": "mild",
}


@pytest.mark.parametrize("kind", GRIDS)
def test_a_map_of_an_unchanged_input_scores_one(kind):
    model, data = model_and_data(kind)
    test = heatproof.Stability(perturbations="identity", noise_floor=False)
    run = heatproof.evaluate(model, data, ["saliency", "input_x_gradient", "random"], test)
    parts = {"fass", "spearman", "jaccard"} | ({"ssim"} if kind != "table" else set())
    checks = {"identity_check" if part == "fass" else f"identity_check_{part}" for part in parts}
    assert set(run.table()["measure"]) == checks, "an identity check is no score"
    for measure in checks:
        np.testing.assert_allclose(values(run, measure=measure), 1.0, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", GRIDS)
def test_the_gradient_of_a_linear_model_is_perfectly_stable(kind):
    _, data = model_and_data(kind)
    model = heatproof.Model(nets.linear(*data.x.shape[1:]))
    gradient = heatproof.Saliency(absolute=False)
    # Its gradient is the same everywhere and does not move with the input.
    test = heatproof.Stability(perturbations=PERTURBATIONS[kind], aligned=False)
    run = heatproof.evaluate(model, data, {"gradient": gradient}, test)
    scored = rows(run, measure="fass", status="ok")
    assert len(scored) > 0
    np.testing.assert_allclose(scored["value"], 1.0, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", GRIDS)
def test_a_constant_map_has_no_score(kind):
    model, data = model_and_data(kind)
    test = heatproof.Stability(perturbations=PERTURBATIONS[kind])
    run = heatproof.evaluate(model, data, {"flat": nets.constant_map}, test)
    assert set(run.table()["status"]) <= {"undefined", "flipped"}
    assert (run.table()["reason"] != "").all()
    assert "undefined" in set(run.table()["status"])
    assert run.ranking()["score"].isna().all()


def test_a_random_map_has_a_calibrated_stability_of_about_zero():
    # A rank correlation of 768 unrelated pairs has a standard deviation of 1 / √767 = 0.036, over 8 samples 0.013.
    model, data = model_and_data("image")
    test = heatproof.Stability(perturbations="jpeg")
    run = heatproof.evaluate(model, data, ["random"], test)
    for measure in ("fass", "spearman", "jaccard"):
        (score,) = run.ranking("stability", measure)["score"]
        assert abs(score) < 0.08, measure


def test_exactly_the_pairs_whose_class_changes_are_flipped():
    level, factor = 0.4, 0.5
    means = torch.linspace(0.1, 0.95, nets.SAMPLES)
    pictures = nets.pixels(nets.SAMPLES, 3, 16, 16)
    pictures = pictures / pictures.flatten(1).mean(1)[:, None, None, None] * 0.02 + 0.98
    pictures = pictures / pictures.flatten(1).mean(1)[:, None, None, None]
    pictures = (pictures * means[:, None, None, None]).clamp(0, 1)
    data = heatproof.Batch(nets.NAMES, pictures)
    test = heatproof.Stability(perturbations={"brightness": {"factor": factor}})
    run = heatproof.evaluate(heatproof.Model(nets.Brightness(level)), data, ["random"], test)
    mean = pictures.flatten(1).mean(1)
    changed = (mean > level) != (mean * factor > level)
    assert 0 < int(changed.sum()) < nets.SAMPLES
    expected = ["flipped" if flips else "ok" for flips in changed.tolist()]
    table = rows(run, measure="fass", condition="brightness").sort_values("sample")
    assert table["status"].tolist() == expected
    summary = run.summary().query("measure == 'fass' and condition == 'brightness'")
    assert summary["retention"].item() == pytest.approx(1 - float(changed.float().mean()))


def test_a_map_that_moves_with_the_picture_is_stable_once_it_is_aligned():
    model, data = model_and_data("image")
    test = heatproof.Stability(perturbations={"translation": {"pixels": 3}})
    run = heatproof.evaluate(model, data, {"input": nets.the_input}, test)
    aligned = rows(run, measure="spearman", status="ok")["value"]
    unaligned = rows(run, measure="spearman_unaligned", status="ok")["value"]
    np.testing.assert_allclose(aligned, 1.0, rtol=0, atol=1e-6)
    assert (unaligned < 0.9).all()


def test_without_alignment_fass_is_the_unaligned_comparison():
    model, data = model_and_data("image")
    perturbations = ["jpeg", {"translation": {"pixels": 3}}, {"elastic": {"amplitude": 2.0}}]

    def table_of(aligned: bool) -> pd.DataFrame:
        test = heatproof.Stability(perturbations=perturbations, aligned=aligned)
        return heatproof.evaluate(model, data, ["saliency"], test).table()

    both, paper = table_of(aligned=True), table_of(aligned=False)
    measures = {"fass", "ssim", "spearman", "jaccard"}
    assert set(paper["measure"]) == measures
    unaligned = both[both["measure"].str.endswith("_unaligned")]
    assert set(unaligned["condition"]) == {"translation", "elastic"}, "jpeg moves nothing"
    unaligned = unaligned.assign(measure=unaligned["measure"].str.removesuffix("_unaligned"))
    moved = paper[paper["condition"] != "jpeg"]
    assert_same(unaligned, moved)
    assert_same(
        both[both["measure"].isin(measures) & (both["condition"] == "jpeg")],
        paper[paper["condition"] == "jpeg"],
    )


def test_every_score_has_the_chance_level_of_its_own_comparison():
    model, data = model_and_data("image")
    test = heatproof.Stability(perturbations={"translation": {"pixels": 3}})
    run = heatproof.evaluate(model, data, {"input": nets.the_input}, test)
    table = run.table()
    scored = table[table["status"] == "ok"]
    assert scored["chance"].between(-1, 1).all()
    assert (table["chance"].notna() == (table["status"] == "ok")).all()
    by_measure = scored.set_index("sample").groupby("measure")["chance"]
    aligned, unaligned = by_measure.get_group("fass"), by_measure.get_group("fass_unaligned")
    assert (aligned - unaligned).abs().max() > 1e-3


def test_with_one_sample_there_is_a_score_and_a_reason_why_it_has_no_chance():
    model, data = model_and_data("image")
    run = heatproof.evaluate(model, data[:1], ["saliency"], heatproof.Stability("gaussian_blur"))
    (row,) = rows(run, measure="fass").itertuples()
    assert row.status == "ok" and np.isfinite(row.value)
    assert np.isnan(row.chance) and row.chance_reason


def test_a_flipped_row_has_what_the_model_predicts_instead():
    level, factor = 0.4, 0.5
    model = heatproof.Model(nets.Brightness(level), classes=["dark", "bright"])
    grey = torch.linspace(0.1, 0.95, nets.SAMPLES).view(-1, 1, 1, 1)
    noise = nets.pixels(nets.SAMPLES, 3, 16, 16) / 100
    data = heatproof.Batch(nets.NAMES, (grey + noise).clamp(0, 1))
    test = heatproof.Stability(perturbations={"brightness": {"factor": factor}})
    run = heatproof.evaluate(model, data, ["random"], test)
    predicted = run.samples().set_index("sample")["predicted_name"]
    table = rows(run, measure="fass")
    flipped = table[table["status"] == "flipped"]
    assert 0 < len(flipped) < nets.SAMPLES
    for row in flipped.itertuples():
        assert {predicted[row.sample], row.predicted_after} == {"dark", "bright"}
    assert table[table["status"] == "ok"]["predicted_after"].isna().all()


def test_the_noise_floor_is_of_stochastic_methods_alone():
    model, data = model_and_data("image")
    explainers = ["saliency", {"smoothgrad": {"samples": 2}}]
    run = heatproof.evaluate(model, data, explainers, heatproof.Stability(perturbations="jpeg"))
    floors = rows(run, condition="redraw")
    assert set(floors["measure"]) == {
        "noise_floor",
        "noise_floor_ssim",
        "noise_floor_spearman",
        "noise_floor_jaccard",
    }
    assert set(rows(run, measure="noise_floor")["condition"]) == {"redraw"}
    redrawn = set(floors["explainer"])
    assert len(redrawn) == 1 and "saliency" not in redrawn
    stochastic = floors[floors["measure"] == "noise_floor"]["value"].mean()
    summary = run.summary().query("measure == 'fass' and noise_floor.notna()")
    assert summary["noise_floor"].item() == pytest.approx(stochastic)


def test_fass_is_the_mean_of_its_parts():
    model, data = model_and_data("image")
    test = heatproof.Stability(perturbations="jpeg", noise_floor=False)
    run = heatproof.evaluate(model, data, ["saliency"], test)
    table = rows(run, status="ok", condition="jpeg")
    by_measure = table.pivot_table(index="sample", columns="measure", values="value")
    parts = by_measure[["ssim", "spearman", "jaccard"]].mean(axis=1)
    np.testing.assert_allclose(by_measure["fass"], parts, rtol=0, atol=1e-6)


def test_a_run_with_the_identity_alone_is_presented(tmp_path: Path) -> None:
    """There is nothing to rank then: the identity only checks the explainers."""
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 3))
    run = heatproof.evaluate(
        net,
        torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0)),
        ["saliency"],
        [heatproof.Stability(perturbations="identity", k=5)],
        tmp_path / "run",
        show_progress=False,
    )
    assert set(run.table().condition) == {"identity"}
    assert "No method has a score" in run.text()
    run.report()
