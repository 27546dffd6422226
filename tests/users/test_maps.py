"""Explanations from elsewhere: Captum, SHAP, pytorch-grad-cam and Quantus, as objects and as maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import heatproof

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways
EVALUATIONS = [heatproof.Faithfulness(imputers="zero", fractions=(0.3, 0.6), metrics=("road",))]


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    convolutions = (
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
    )
    return nn.Sequential(
        *convolutions, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 4)
    ).eval()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def target(net: nn.Module, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return net(images).argmax(1)


def road(run: Any) -> Any:
    return run.table().query("measure == 'road'").groupby("explainer").value.mean()


# Captum


def test_attributions_of_captum_are_maps(net: Any, images: Any, target: Any) -> None:
    captum = pytest.importorskip("captum.attr")
    attributions = captum.IntegratedGradients(net).attribute(images, target=target, n_steps=20)
    explainers = {"captum": attributions, "ours": "integrated_gradients"}
    run = heatproof.evaluate(net, images, explainers, EVALUATIONS)
    scores = road(run)
    assert scores["captum"] == pytest.approx(scores["ours"], abs=0.05)


def test_an_object_of_captum_is_an_explainer(net: Any, images: Any, target: Any) -> None:
    captum = pytest.importorskip("captum.attr")
    run = heatproof.evaluate(
        net, images, {"captum": captum.Saliency(net), "ours": "saliency"}, ["stability"]
    )
    means = run.table().query("measure == 'fass'").groupby("explainer").value.mean()
    assert means["captum"] == pytest.approx(means["ours"], abs=1e-5)


def test_explain_has_the_habits_of_captum(net: Any, images: Any) -> None:
    captum = pytest.importorskip("captum.attr")
    baseline = torch.full_like(images[:1], 0.5)
    expected = captum.DeepLift(net).attribute(images, baseline, target=1).detach()
    maps = heatproof.explain(net, images, heatproof.DeepLift(baseline=baseline), target=1)
    assert np.allclose(maps, expected, atol=1e-5)


def test_a_plain_network_tensor_and_target_suffice(net: Any, images: Any) -> None:
    captum = pytest.importorskip("captum.attr")
    expected = captum.Saliency(net).attribute(images, target=1)
    assert torch.allclose(heatproof.Saliency()(net, images, 1).abs(), expected, atol=1e-6)


# SHAP


def test_an_explanation_of_shap_is_maps() -> None:
    shap = pytest.importorskip("shap")
    from sklearn.datasets import load_wine
    from sklearn.ensemble import RandomForestClassifier

    X, y = load_wine(return_X_y=True, as_frame=True)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    explanation = shap.TreeExplainer(forest)(X.head(15))
    run = heatproof.evaluate(
        forest, X.head(15), {"tree": explanation, "random": "random"}, ["faithfulness"]
    )
    scores = road(run)
    assert scores["tree"] > scores["random"]


def test_values_of_shap_by_the_index_of_a_frame() -> None:
    shap = pytest.importorskip("shap")
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import GradientBoostingRegressor

    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X.index = [f"patient {i}" for i in range(len(X))]
    model = GradientBoostingRegressor(random_state=0).fit(X, y)
    values = shap.TreeExplainer(model).shap_values(X)
    table = pd.DataFrame(values, X.index, X.columns)

    rows = X.sample(12, random_state=0)  # another order, and only some of them
    run = heatproof.evaluate(model, rows, {"tree": table, "random": "random"}, ["faithfulness"])
    scores = road(run)
    assert scores["tree"] > scores["random"]


def test_an_explainer_of_shap_is_an_explainer() -> None:
    shap = pytest.importorskip("shap")
    from sklearn.datasets import load_wine
    from sklearn.ensemble import RandomForestClassifier

    X, y = load_wine(return_X_y=True, as_frame=True)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    run = heatproof.evaluate(
        forest,
        X.sample(15, random_state=0),
        {"tree": shap.TreeExplainer(forest), "kernel": "kernel_shap", "random": "random"},
        ["stability", "faithfulness"],
    )
    scores = road(run)
    assert scores["tree"] > scores["random"]
    assert "tree" in set(run.table().query("measure == 'fass'").explainer)


# pytorch-grad-cam


def test_the_output_of_pytorch_grad_cam_is_maps(net: Any, images: Any) -> None:
    pytorch_grad_cam = pytest.importorskip("pytorch_grad_cam")
    with pytorch_grad_cam.GradCAM(net, [net[2]]) as cam:
        maps = cam(input_tensor=images, targets=None)  # (6, 32, 32), of the predicted classes
    run = heatproof.evaluate(
        net, images, {"theirs": maps, "ours": heatproof.GradCAM(layer="2")}, EVALUATIONS
    )
    scores = road(run)
    assert scores["theirs"] == pytest.approx(scores["ours"], abs=0.05)


def test_an_object_of_pytorch_grad_cam_is_an_explainer(net: Any, images: Any) -> None:
    pytorch_grad_cam = pytest.importorskip("pytorch_grad_cam")
    cam = pytorch_grad_cam.GradCAM(net, [net[2]])
    run = heatproof.evaluate(net, images, {"theirs": cam, "random": "random"}, ["stability"])
    assert run.table().query("explainer == 'theirs' and measure == 'fass'").value.notna().any()


# Quantus


def test_a_batch_of_quantus_is_maps(net: Any, images: Any, target: Any) -> None:
    quantus = pytest.importorskip("quantus")
    a_batch = quantus.explain(net, images.numpy(), target.numpy(), method="Saliency")
    run = heatproof.evaluate(net, images, {"theirs": a_batch, "ours": "saliency"}, EVALUATIONS)
    assert road(run).notna().all()


def test_a_metric_of_quantus_is_an_evaluation(net: Any, images: Any) -> None:
    quantus = pytest.importorskip("quantus")
    metric = quantus.MaxSensitivity(nr_samples=3, disable_warnings=True)
    run = heatproof.evaluate(net, images, ["saliency", "random"], {"robust": metric})
    assert run.table().groupby("explainer").value.count().to_dict() == {"random": 6, "saliency": 6}


def test_measures_of_arrays_like_those_of_quantus(net: Any, images: Any, target: Any) -> None:
    quantus = pytest.importorskip("quantus")
    a_batch = quantus.explain(net, images.numpy(), target.numpy(), method="Saliency")
    expected = quantus.Sparseness(disable_warnings=True)(
        model=net, x_batch=images.numpy(), y_batch=target.numpy(), a_batch=a_batch
    )
    assert np.allclose(heatproof.metrics.gini(a_batch), expected, atol=1e-3)


# Files


def test_maps_in_files_go_by_position_or_by_id(net: Any, images: Any, tmp_path: Any) -> None:
    maps = heatproof.explain(net, images, "saliency")
    np.save(tmp_path / "maps.npy", maps)
    by_id = {f"{i:04d}": values for i, values in enumerate(maps)}
    np.savez(tmp_path / "maps.npz", **dict(reversed(by_id.items())))
    explainers = {
        "by position": tmp_path / "maps.npy",
        "by id": tmp_path / "maps.npz",
        "live": "saliency",
    }
    scores = road(heatproof.evaluate(net, images, explainers, EVALUATIONS))
    assert scores["by position"] == scores["by id"] == pytest.approx(scores["live"], abs=1e-6)


def test_another_number_of_maps_than_samples_is_refused(net: Any, images: Any) -> None:
    with pytest.raises(heatproof.UserError, match=r"5 maps.*6 samples"):
        heatproof.evaluate(net, images, {"mine": np.ones((5, 32, 32))}, EVALUATIONS)
