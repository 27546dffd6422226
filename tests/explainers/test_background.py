"""Rows of data in the place of removed features: exact Shapley values, SHAP's own explainer, and what studies choose."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.explainers import (
    DeepLift,
    FeatureAblation,
    GradientShap,
    IntegratedGradients,
    KernelShap,
    Lime,
    Occlusion,
)
from heatproof.explainers.background import background
from heatproof.features import Pixels, Tokens, Windows
from heatproof.removal import DatasetMean, OwnBaseline
from heatproof.runs.study.file import read_study
from heatproof.types import label_of, parameters

COLUMNS = 5


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(COLUMNS, 8), nn.Tanh(), nn.Linear(8, 3))


def rows(n: int, seed: int) -> Tensor:
    scale = torch.tensor([1.0, 10.0, 0.1, 3.0, 1.0])
    return torch.randn(n, COLUMNS, generator=torch.Generator().manual_seed(seed)) * scale + 2


MODEL = Model(network(), mean=2.0, std=3.0)
X, BACKGROUND = rows(3, 1), rows(7, 2)
BATCH, TARGET = Batch(("a", "b", "c"), X), torch.tensor([0, 2, 1])


def score(x: Tensor, target: int) -> Tensor:
    with torch.no_grad():
        return MODEL.logits(MODEL.inputs(Batch(tuple(map(str, range(len(x)))), x)))[
            :, target
        ].double()


def shapley_values(x: Tensor, target: int, rows: Tensor, weights: Tensor) -> Tensor:
    """By the definition: the mean over all orders of the columns, of what a column adds to the mean prediction."""

    def value(present: tuple[int, ...]) -> float:
        mixed = rows.clone()
        mixed[:, list(present)] = x[list(present)]
        return float(score(mixed, target) @ weights)

    values = torch.zeros(COLUMNS, dtype=torch.float64)
    for column in range(COLUMNS):
        others = [other for other in range(COLUMNS) if other != column]
        for size in range(COLUMNS):
            weight = math.factorial(size) * math.factorial(COLUMNS - size - 1)
            for present in itertools.combinations(others, size):
                gain = value((*present, column)) - value(present)
                values[column] += weight / math.factorial(COLUMNS) * gain
    return values


def test_kernel_shap_gives_the_exact_shapley_values_of_the_mean_prediction() -> None:
    equal = torch.full((7,), 1 / 7, dtype=torch.float64)
    maps = KernelShap(features=Pixels(), background=BACKGROUND)(MODEL, BATCH, TARGET, 0)
    for row, target in enumerate(TARGET.tolist()):
        expected = shapley_values(X[row], target, BACKGROUND, equal)
        assert torch.allclose(maps[row].double(), expected, atol=1e-5)

    centres = background({"kmeans": 3, "rows": BACKGROUND})
    maps = KernelShap(features=Pixels(), background=centres)(MODEL, BATCH, TARGET, 0)
    expected = shapley_values(X[0], 0, centres.rows.batch.x, centres.weights)
    assert torch.allclose(maps[0].double(), expected, atol=1e-5)


def test_kernel_shap_and_centres_are_those_of_shap() -> None:
    shap = pytest.importorskip("shap")
    many = rows(60, 3).numpy().astype(np.float64)

    def predict(values: np.ndarray) -> np.ndarray:
        return score(torch.from_numpy(values).float(), 1).numpy()

    for theirs, ours in (
        (BACKGROUND.numpy().astype(np.float64), background(BACKGROUND)),
        (shap.kmeans(many, 4), background({"kmeans": 4, "rows": many})),
    ):
        explainer = shap.KernelExplainer(predict, theirs)
        expected = explainer.shap_values(X.numpy().astype(np.float64), nsamples=2000, silent=True)
        kernel = KernelShap(features=Pixels(), background=ours)
        maps = kernel(MODEL, BATCH, torch.tensor([1, 1, 1]), 0)
        assert np.allclose(maps.numpy(), expected, atol=1e-4)


METHODS: list[Any] = [
    KernelShap(samples=20, features=Pixels()),
    Lime(samples=40, features=Pixels(), readout="logit"),
    FeatureAblation(features=Windows(2)),
    Occlusion(window=2, stride=1),
    IntegratedGradients(steps=9),
    DeepLift(),
]


@pytest.mark.parametrize("method", METHODS, ids=label_of)
def test_a_map_is_the_mean_of_those_with_each_row_in_the_place_of_what_is_removed(
    method: Any,
) -> None:
    def with_background(value: Any) -> Tensor:
        return replace(method, background=value)(MODEL, BATCH, TARGET, 0)  # type: ignore[no-any-return]

    together = with_background(BACKGROUND)
    alone = torch.stack([with_background(row[None]) for row in BACKGROUND]).mean(0)
    assert torch.allclose(together, alone, atol=1e-4 * float(together.abs().max()))
    without_batch_axis = with_background(BACKGROUND[0])
    assert torch.allclose(without_batch_axis, with_background(BACKGROUND[:1]))
    constant = "fill" if hasattr(method, "fill") else "baseline"
    by_constant = replace(method, **{constant: BACKGROUND[0]})(MODEL, BATCH, TARGET, 0)
    assert torch.allclose(by_constant, without_batch_axis)


PATHS = [IntegratedGradients(background=BACKGROUND), DeepLift(background=BACKGROUND)]


@pytest.mark.parametrize("method", PATHS, ids=lambda method: method.name)
def test_paths_from_a_background_sum_to_the_difference_from_its_mean_score(method: Any) -> None:
    maps = method(MODEL, BATCH, TARGET, 0).double()
    expected = [
        float(score(X[[row]], target)[0] - score(BACKGROUND, target).mean())
        for row, target in enumerate(TARGET.tolist())
    ]
    assert maps.sum(1).tolist() == pytest.approx(expected, abs=1e-3)
    assert method.promised(MODEL, BATCH, TARGET).tolist() == pytest.approx(expected, abs=1e-5)
    assert not method.stochastic


def test_gradient_shap_draws_the_rows_by_their_weights() -> None:
    linear = Model(nn.Linear(COLUMNS, 2))
    weighted = background({"kmeans": 2, "rows": torch.cat([torch.zeros(3, 5), torch.ones(9, 5)])})
    assert sorted(weighted.weights.tolist()) == [0.25, 0.75]
    ids = tuple(map(str, range(400)))
    maps = GradientShap(samples=5, background=weighted)(
        linear, Batch(ids, torch.full((400, 5), 2.0)), torch.zeros(400, dtype=torch.long), 0
    )
    # Of a linear model a map is (x − b) · w, so that the mean tells the mean of the drawn baselines.
    mean = (maps.mean(0) / linear.module.weight[0]).detach()
    assert torch.allclose(mean, torch.full((5,), 2 - 0.75), atol=0.03)


def test_a_background_is_refused_where_it_cannot_be() -> None:
    for wrong, match in (
        (0, "from 1 on"),
        ({"kmeans": 9, "rows": BACKGROUND}, "9.*7"),
        ("x.csvv", "x.csvv"),
    ):
        with pytest.raises(ValueError, match=match):
            KernelShap(background=wrong)
    with pytest.raises(UserError, match=r"\(4,\).*\(5,\)"):
        KernelShap(features=Pixels(), background=BACKGROUND[:, :4])(MODEL, BATCH, TARGET, 0)
    with pytest.raises(UserError, match=r"50 rows.*background=X"):
        KernelShap(features=Pixels(), background=50)(MODEL, BATCH, TARGET, 0)
    texts = Batch(("a",), torch.tensor([[1, 2, 3]]), {"attention_mask": torch.ones(1, 3).long()})
    with pytest.raises(UserError, match="tokens"):
        FeatureAblation(features=Tokens(), background=texts)(
            Model(nn.Embedding(5, 2)), texts, torch.tensor([0]), 0
        )


def test_removal_in_evaluations_takes_the_same_values() -> None:
    mean = BACKGROUND.mean(0).tolist()
    explainer = KernelShap(features=Pixels(), background=BACKGROUND)
    assert OwnBaseline().of(explainer, [2.0], [3.0]).mean == pytest.approx(mean)
    assert DatasetMean(mean=BACKGROUND).mean == pytest.approx(mean)
    assert DatasetMean(mean=BACKGROUND.numpy()).mean == pytest.approx(mean)


def test_a_study_of_a_table_takes_its_references_and_says_so(tmp_path: Any) -> None:
    explainers = {
        "default": KernelShap(),
        "two": KernelShap(background=2),
        "centres": KernelShap(background={"kmeans": 3}),
        "zero": KernelShap(fill=0.0),
        "gradients": IntegratedGradients(),
        "averaged": heatproof.SmoothGrad(of=KernelShap(), samples=2),
    }
    data = {"patients": rows(12, 4)}
    run = heatproof.evaluate(
        MODEL, data, explainers, ["faithfulness"], keep_maps=True, out=tmp_path / "run"
    )
    settings = run.manifest.study.explainers
    assert "9 rows of patients" in settings["default"].background
    assert "9 rows of patients" in settings["gradients"].background
    assert "2 rows of patients" in settings["two"].background
    assert "3 k-means centres of 12 rows of patients" in settings["centres"].background
    assert settings["zero"].background is None
    assert "9 rows of patients" in settings["averaged"].of["background"]

    # The references of the run, and the map by definition.
    ids = run.manifest.references("patients")
    references = data["patients"][[int(name) for name in ids]]
    kernel = KernelShap(features=Pixels(), background=references)
    batch = Batch(("0000",), data["patients"][:1])
    target = MODEL.logits(MODEL.inputs(batch)).argmax(1)
    expected = shapley_values(
        batch.x[0], int(target), references, torch.full((len(ids),), 1 / len(ids)).double()
    )
    assert torch.allclose(kernel(MODEL, batch, target, 0)[0].double(), expected, atol=1e-4)
    assert parameters(kernel)["background"].startswith("a tensor of shape 9×5")


def test_the_background_of_a_study_is_that_of_explainers_and_imputers() -> None:
    x, train = rows(12, 4), rows(30, 5)
    explainers = {
        "shap": KernelShap(),
        "two": KernelShap(background=2),
        "paths": IntegratedGradients(),
    }
    run = heatproof.evaluate(MODEL, x, explainers, ["faithfulness"], background=train)
    settings = run.manifest.study.explainers
    assert "30×5" in settings["shap"].background and "30×5" in settings["paths"].background
    assert "2 rows" in settings["two"].background

    named = heatproof.Faithfulness(imputers={"dataset_mean": {"mean": train}})
    expected = heatproof.evaluate(MODEL, x, explainers, [named], background=train).table()
    road = run.table().query("measure == 'road'").value
    assert road.to_numpy() == pytest.approx(
        expected.query("measure == 'road'").value.to_numpy(), abs=1e-5
    )


def test_certificates_of_tables_fill_in_the_mean_of_the_background_of_a_study() -> None:
    x, train = rows(6, 4), rows(30, 5)
    mean = tuple(train.double().mean(0).tolist())

    def rates(evaluation: Any, **options: Any) -> Any:
        table = heatproof.evaluate(MODEL, x, ["saliency"], [evaluation], **options).table()
        return table.query("measure == 'rate'").value.to_numpy()

    by_study = rates(heatproof.Certificate(radii=(1,)), background=train)
    assert by_study == pytest.approx(rates(heatproof.Certificate(radii=(1,), fill=mean)))

    # Without a background of the study it is the mean of its references, here all samples; zero only where it is chosen.
    mean_of_data = tuple(x.double().mean(0).tolist())
    by_references = rates(heatproof.Certificate(radii=(1,)))
    assert by_references == pytest.approx(
        rates(heatproof.Certificate(radii=(1,), fill=mean_of_data))
    )
    zero = heatproof.Certificate(radii=(1,), fill="zero")
    assert rates(zero, background=train) == pytest.approx(rates(zero))


def test_an_explicit_zero_is_zero_on_a_table() -> None:
    linear = Model(nn.Linear(COLUMNS, 2))
    for explainer in (
        FeatureAblation(fill="zero"),
        Occlusion(window=1, stride=1, fill=0),
        IntegratedGradients(baseline=0),
    ):
        maps = heatproof.explain(linear, X, explainer, target=1, background=BACKGROUND)
        weights = linear.module.weight[1].detach()
        assert np.allclose(maps, X * weights, atol=1e-4)


def test_a_study_file_names_the_background_of_the_study(tmp_path: Any) -> None:
    np.savez(tmp_path / "train.npz", x=BACKGROUND.numpy())
    np.savez(tmp_path / "test.npz", x=rows(12, 4).numpy())
    (tmp_path / "nets.py").write_text(
        "import torch\n\n\ndef make():\n    torch.manual_seed(0)\n    return torch.nn.Linear(5, 3)\n"
    )
    study = "model: python:nets.py:make\ndata: test.npz\nexplainers: [kernel_shap]\nevaluations: [faithfulness]\n"
    for text, name in (
        ("{source: train.npz, limit: 4}", "4 rows of train"),
        ("3", "3 rows of test"),
        ("{kmeans: 2}", "2 k-means centres"),
    ):
        (tmp_path / "study.yaml").write_text(f"{study}background: {text}\n")
        plan = read_study(tmp_path / "study.yaml", allow_code=True).plan(allow_code=True)
        (configured,) = plan.configured.values()
        assert name in str(configured.explainers["kernel_shap"].background)
    (tmp_path / "study.yaml").write_text(f"{study}background: trian.npz\n")
    with pytest.raises(UserError, match=r"(?s)line 5.*trian.npz"):
        read_study(tmp_path / "study.yaml", allow_code=True)


def test_a_background_of_a_frame_has_the_columns_of_the_data() -> None:
    pd = pytest.importorskip("pandas")
    data = pd.DataFrame({"age": [31.0, 54, 47], "job": ["cook", "pilot", "cook"]})

    def says(frame: Any) -> np.ndarray:
        return np.asarray(frame.age / 10 + (frame.job == "clerk") * 2 + (frame.job == "pilot"))

    train = pd.DataFrame(
        {"job": ["clerk", "cook"], "age": [20.0, 40.0]}
    )  # a job that the data lack
    maps = heatproof.explain(
        heatproof.from_sklearn(says, task="regression"), data, "kernel_shap", background=train
    )
    expected = np.stack([data.age / 10 - 3, (data.job == "pilot") - 1.0], 1)
    assert np.allclose(maps, expected, atol=1e-5)
    with pytest.raises(UserError, match=r"lacks the column 'job'.*'jobs'"):
        heatproof.explain(
            heatproof.from_sklearn(says, task="regression"),
            data,
            "kernel_shap",
            background=train.rename(columns={"job": "jobs"}),
        )
    opened = heatproof.open_data(data)  # whose categories are those of its own rows
    with pytest.raises(UserError, match="job"):
        heatproof.explain(
            heatproof.from_sklearn(says, task="regression"), opened, "kernel_shap", background=train
        )
