"""`explainers: recommended` takes what suits the model and the data, says why, and runs."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from torch import nn

import heatproof
from heatproof import Model
from heatproof.explainers import EXPLAINERS
from heatproof.runs.plan import make_plan
from heatproof.runs.study.catalogue import catalogue
from heatproof.runs.study.file import read_study
from heatproof.runs.study.recommended import WHY
from support.small import model, pictures
from support.vit_shapes import seeded_vit

ROWS = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
FOREST = RandomForestClassifier(3, random_state=0).fit(ROWS, ROWS[:, 0] > 0)


def chosen(net, data) -> list[str]:
    plan = make_plan(net, data, "recommended")
    assert [note.split()[1] for note in plan.notes()[: len(plan.explainers)]] == list(
        plan.explainers
    )
    return list(plan.explainers)


def test_what_suits_the_model_and_the_data_is_taken():
    images = pictures(3)[0]
    assert chosen(model(), images) == [
        "grad_cam",
        "integrated_gradients",
        "kernel_shap",
        "random",
        "sobel",
    ]
    assert chosen(Model(seeded_vit()), images)[0] == "chefer"
    assert chosen(heatproof.from_sklearn(FOREST), torch.tensor(ROWS)) == [
        "kernel_shap", "lime", "feature_ablation", "random",
    ]  # fmt: skip
    series = Model(nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 28, 3)))
    assert "sobel" not in chosen(series, torch.rand(4, 2, 30))


def test_two_models_have_what_suits_both():
    table = {"net": Model(nn.Linear(6, 2)), "forest": heatproof.from_sklearn(FOREST)}
    assert "integrated_gradients" not in chosen(table, torch.tensor(ROWS))


def test_a_study_file_may_ask_for_it(tmp_path):
    (tmp_path / "study.yaml").write_text(
        "model: bundled:efficientnet-lite0\ndata: bundled:photographs\nexplainers: recommended\n"
    )
    assert list(read_study(tmp_path / "study.yaml").explainers) == ["recommended"]


def test_what_is_recommended_runs():
    run = heatproof.evaluate(heatproof.from_sklearn(FOREST), torch.tensor(ROWS[:4]), "recommended")
    assert set(run.table().explainer) == {"kernel_shap", "lime", "feature_ablation", "random"}


def test_every_explainer_is_listed_with_its_cost_and_where_it_is_defined():
    listed = dict(catalogue("explainers"))
    for name, kind in EXPLAINERS.items():
        terms = listed[name].split("; ")
        assert terms[-1] in (
            "any model",
            "models with gradients",
            "models with accessible layers",
        ), name
        if getattr(kind, "kind", "feature") == "feature" and name != "symmetrised":
            assert "pass" in terms[-3] or "maps" in terms[-3], name
    assert set(WHY) <= set(EXPLAINERS)
