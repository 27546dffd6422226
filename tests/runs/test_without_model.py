"""Maps from elsewhere, scored without a model: what needs none is scored as with one, and what needs one says so first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

import heatproof
from heatproof import Model, UserError, evaluate, explain, metrics, open_data
from heatproof.cli import app
from heatproof.evaluation import Scores
from heatproof.runs.study.file import read_study

CLASSES = 4
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.rand(10, 3, 12, 12, generator=GENERATOR)
LABELS = torch.arange(10) % CLASSES
REGIONS = torch.zeros(10, 12, 12, dtype=torch.bool)
REGIONS[:, 3:7, 2:8] = True
MAPS = np.random.default_rng(0).random((10, 12, 12))


def data() -> heatproof.Data:
    return open_data((IMAGES, LABELS), regions=REGIONS)


def values(run: heatproof.Run, measure: str, explainer: str) -> np.ndarray[Any, Any]:
    rows = run.table().query("measure == @measure and explainer == @explainer")
    column: np.ndarray[Any, Any] = rows.sort_values("sample").value.to_numpy()
    return column


def test_localisation_without_a_model_is_the_measure_itself() -> None:
    run = evaluate(None, data(), {"mine": MAPS}, "localisation")
    masses = metrics.relevance_mass(MAPS, REGIONS)
    np.testing.assert_allclose(values(run, "relevance_mass", "mine"), masses, atol=1e-6)
    hits = metrics.pointing_game(MAPS, REGIONS)
    np.testing.assert_allclose(values(run, "pointing", "mine"), hits)


def test_agreement_without_a_model_is_scipys_rank_correlation() -> None:
    others = MAPS**2 + np.random.default_rng(1).random(MAPS.shape)
    run = evaluate(None, IMAGES, {"a": MAPS, "b": others}, "agreement")
    expected = []
    for first, second in zip(MAPS, others, strict=True):
        rho = stats.spearmanr(first.ravel(), second.ravel()).statistic
        expected.append((rho + 1) / 2)
    np.testing.assert_allclose(values(run, "spearman", "a"), expected, atol=1e-5)


def test_scores_are_those_of_the_same_maps_beside_a_model() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 12 * 12, CLASSES))
    of_any_class = {"localisation": {"any_class": True}}
    beside = evaluate(net, data(), {"mine": MAPS}, of_any_class)
    alone = evaluate(None, data(), {"mine": MAPS}, of_any_class)
    columns = ["explainer", "sample", "measure", "value", "chance", "status"]
    assert alone.table()[columns].equals(beside.table()[columns])


def test_nothing_is_predicted_and_every_view_can_say_so() -> None:
    run = evaluate(None, data(), {"mine": MAPS, "edges": "sobel"}, ["localisation", "agreement"])
    assert run.samples()[["predicted", "probability", "readout"]].isna().all(axis=None)
    assert run.samples().label.tolist() == LABELS.tolist()
    assert run.report().exists()
    assert "mine" in str(run)
    shown = CliRunner().invoke(app, ["show", str(run.path), "--sample", "0003"])
    assert shown.exit_code == 0
    assert "no model" in shown.output


def test_of_maps_of_every_class_the_one_of_the_label_is_taken() -> None:
    of_classes = np.random.default_rng(0).random((10, 12, 12, CLASSES))
    run = evaluate(None, data(), {"mine": of_classes}, "localisation", keep_maps=True)
    for row, kept in enumerate(run.maps("mine").values()):
        np.testing.assert_allclose(kept[0], of_classes[row, ..., LABELS[row]], rtol=1e-6)


def test_maps_of_every_class_without_labels_are_refused() -> None:
    of_classes = np.random.default_rng(0).random((10, 12, 12, CLASSES))
    with pytest.raises(UserError, match="label"):
        evaluate(None, open_data(IMAGES, regions=REGIONS), {"mine": of_classes}, "localisation")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("stability", {}),
        ("symmetry", {"group": "dihedral"}),
        ("faithfulness", {}),
        ("dependence", {}),
        ("certificate", {}),
    ],
)
def test_what_asks_a_model_says_so_and_what_does_not(name: str, parameters: Any) -> None:
    with pytest.raises(UserError, match=f"{name} needs a model") as caught:
        evaluate(None, data(), {"mine": MAPS}, [{name: parameters}])
    assert "agreement" in str(caught.value)
    assert "localisation" in str(caught.value)


def test_a_method_that_explains_a_model_needs_one() -> None:
    with pytest.raises(UserError, match="saliency"):
        evaluate(None, data(), ["saliency"], "localisation")


def test_mosaics_need_a_model() -> None:
    with pytest.raises(UserError, match="regions"):
        evaluate(None, IMAGES, {"mine": MAPS}, "localisation")


class Height:
    """The largest value of a map: an evaluation of one's own that asks no model."""

    reexplains = False
    needs_model = False

    def conditions(self) -> list[tuple[str, float]]:
        return [("clean", 0.0)]

    def __call__(self, subject: Any) -> Any:
        for name in subject.explainers:
            heights = subject.maps(name).flatten(1).amax(1)
            yield Scores.column(name, "height", ("clean", 0.0), heights, [""] * len(heights))


def test_an_evaluation_of_ones_own_without_a_model() -> None:
    run = evaluate(None, IMAGES, {"mine": MAPS}, {"height": Height()})
    np.testing.assert_allclose(values(run, "height", "mine"), MAPS.max((1, 2)), rtol=1e-6)


def test_a_study_file_without_a_model(tmp_path: Path) -> None:
    np.savez(tmp_path / "photos.npz", x=IMAGES.numpy(), y=LABELS.numpy(), where=REGIONS.numpy())
    np.save(tmp_path / "maps.npy", MAPS)
    study = tmp_path / "study.yaml"
    study.write_text(
        "data: {source: photos.npz, regions: where}\n"
        "explainers: [{precomputed: {path: maps.npy}, as: mine}, sobel]\n"
        "evaluations: [localisation, agreement]\n"
    )
    out = tmp_path / "run"
    result = CliRunner().invoke(app, ["run", str(study), "--out", str(out)])
    assert result.exit_code == 0, result.output
    masses = metrics.relevance_mass(MAPS, REGIONS)
    run = heatproof.read(out)
    np.testing.assert_allclose(values(run, "relevance_mass", "mine"), masses, atol=1e-6)


def test_a_study_file_that_forgot_its_model_is_told_before_anything_runs(tmp_path: Path) -> None:
    np.savez(tmp_path / "photos.npz", x=IMAGES.numpy())
    study = tmp_path / "study.yaml"
    study.write_text("data: photos.npz\nexplainers: [saliency]\n")
    with pytest.raises(UserError, match="saliency"):
        read_study(study).plan()


# ---- a function as a source of maps ------------------------------------------------------------


def brightness(batch: heatproof.Batch) -> np.ndarray[Any, Any]:
    """Maps (B, H, W) without a channel."""
    return batch.x.numpy().mean(1)


@pytest.mark.parametrize(
    "function",
    [
        brightness,
        lambda batch: batch.x.mean(1, keepdim=True),
        lambda batch: batch.x.mean(1, keepdim=True).expand_as(batch.x),
        lambda batch: np.moveaxis(batch.x.numpy(), 1, -1).mean(-1, keepdims=True).repeat(3, -1),
    ],
    ids=["no channel", "one channel", "all channels", "channels last"],
)
def test_a_function_of_a_batch_is_an_explainer(function: Any) -> None:
    maps = explain(None, IMAGES, function)
    expected = IMAGES.mean(1, keepdim=True).expand_as(IMAGES)
    np.testing.assert_allclose(maps, expected, rtol=1e-5)


def test_a_function_is_called_anew_for_changed_inputs() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 12 * 12, CLASSES))
    perturbed = heatproof.Stability(perturbations={"gaussian_noise": {"sigma": 0.05}}, k=5)
    run = evaluate(net, IMAGES, {"mine": brightness}, perturbed)
    scores = run.table().query("measure == 'fass' and status == 'ok'").value
    assert ((scores > 0.1) & (scores < 0.999)).all()  # alike, and not the same map again


@pytest.mark.parametrize(
    ("function", "facts"),
    [
        (lambda batch: batch.x[:1], r"\(1, 3, 12, 12\).*samples"),
        (lambda batch: batch.x[..., :5], r"\(3, 12, 5\)"),
        (lambda batch: ["a map"] * len(batch), "numbers"),
    ],
    ids=["too few", "another size", "no numbers"],
)
def test_what_a_function_returns_is_checked(function: Any, facts: str) -> None:
    with pytest.raises(UserError, match=facts):
        explain(None, IMAGES, function)


def test_a_function_of_two_arguments_is_neither() -> None:
    with pytest.raises(UserError, match="model, batch, target, seed"):
        evaluate(Model(torch.nn.Flatten()), IMAGES, {"mine": lambda x, y: x}, "localisation")
