"""Tables, series and text through the same study: a scikit-learn classifier, a 1-D network, a Hugging Face model."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import heatproof
from heatproof import Batch, UserError
from heatproof.features import Patches, with_default_features
from heatproof.kinds import IMAGE, kind_of
from heatproof.models.loaders import load_model
from heatproof.models.loaders.sklearn import from_sklearn
from heatproof.runs.evaluate import execute
from heatproof.runs.study.file import read_study
from support.model_cases import WORDS, text_folder

COLUMNS = ["age", "income", "debt", "noise"]
PERTURBING = (
    "[lime: {samples: 30, features: pixels}, kernel_shap: {samples: 30, features: pixels}, random]"
)
CERTIFICATE = "evaluations: [{certificate: {radii: [1, 2], fraction: 0.25, features: pixels}}]\n"


def table() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(60, 4))
    return x, np.where(x[:, 0] - x[:, 2] > 0, "pays", "fails")


def fitted(named: bool = False) -> object:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    import pandas as pd
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = table()
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(
        pd.DataFrame(x, columns=COLUMNS) if named else x, y
    )


def study(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("named", [False, True])
def test_probabilities_come_back(named: bool) -> None:
    estimator: object = fitted(named)
    model = from_sklearn(estimator)
    x, _ = table()
    x32 = torch.tensor(x, dtype=torch.float32)
    expected = estimator.steps[-1][1].predict_proba(
        estimator.steps[0][1].transform(_rows(x32, named))
    )  # type: ignore[attr-defined]
    torch.testing.assert_close(model.logits(x32).softmax(1), torch.tensor(expected).float())
    assert model.class_name(1) == "pays"
    assert (
        model.fingerprint
        == from_sklearn(fitted(named)).fingerprint
        == pickle.loads(pickle.dumps(model)).fingerprint
    )
    with pytest.raises(UserError, match="no gradient"):
        heatproof.Saliency()(model, Batch(("a",), x32[:1]), torch.tensor([0]), 0)
    columns = ": age, income, debt, noise" if named else ""
    with pytest.raises(UserError, match=rf"4 columns{columns}.*\(3,\)"):
        model.logits(x32[:, :3])


def _rows(x: torch.Tensor, named: bool) -> object:
    import pandas as pd

    return pd.DataFrame(x.double().numpy(), columns=COLUMNS) if named else x.double().numpy()


def test_what_is_no_classifier() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.cluster import KMeans
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.svm import LinearSVC

    x, y = table()
    with pytest.raises(UserError, match=r"LogisticRegression.*not fitted"):
        load_model(LogisticRegression())
    with pytest.raises(UserError, match=r"KMeans.*classifier.*regressor"):
        from_sklearn(KMeans(2, n_init=1).fit(x))
    with pytest.raises(UserError, match=r"LinearRegression.*not fitted"):
        from_sklearn(LinearRegression())
    with pytest.raises(UserError, match=r"\bstr\b"):
        from_sklearn("model.pkl")
    margins = from_sklearn(svm := LinearSVC().fit(x, y)).logits(
        torch.tensor(x, dtype=torch.float32)
    )
    np.testing.assert_allclose(margins[:, 1] - margins[:, 0], svm.decision_function(x), atol=1e-4)


def test_a_study_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "made.pkl").write_bytes(pickle.dumps(fitted()))
    (tmp_path / "nets.py").write_text(
        "import pickle\nfrom pathlib import Path\n"
        f"def make():\n    return pickle.loads(Path({str(tmp_path / 'made.pkl')!r}).read_bytes())\n"
    )
    np.savez(tmp_path / "rows.npz", x=table()[0][:6].astype(np.float32))
    base = "model: python:nets.py:make\ndata: {source: rows.npz, shape: [4]}\n"
    plan = read_study(study(tmp_path, f"{base}explainers: {PERTURBING}\n{CERTIFICATE}")).plan(
        allow_code=True
    )
    run = execute(plan, tmp_path / "run", "test", show_progress=False)
    rates = run.table().query("measure == 'rate' and explainer != 'random'")
    assert len(rates) and (rates.status == "ok").all()
    maps = plan.explainers["kernel_shap(samples=30, features=pixels)"]
    batch = plan.data["rows.npz"].load(range(6)).batch
    found = maps(plan.models["make"], batch, torch.ones(6, dtype=torch.int64), 0)
    assert (
        found.abs().mean(0).argsort(descending=True)[:2].sort().values == torch.tensor([0, 2])
    ).all()
    for explainers, evaluation, why in (
        (
            "[saliency]",
            CERTIFICATE,
            "saliency.*gradients.*lime",
        ),
        ("[smoothgrad: {samples: 2}]", CERTIFICATE, "smoothgrad.*gradients"),
        (
            "[cav: {layer: a, concepts: {c: {positive: rows.npz, negative: rows.npz}}}]",
            CERTIFICATE,
            "10",
        ),
        (
            "[random]",
            "evaluations: [stability: {perturbations: jpeg}]\n",
            "tables.*column_noise",
        ),
        ("[grad_cam]", CERTIFICATE, "grad_cam.*convolutional"),
    ):
        with pytest.raises(UserError, match=why):
            read_study(study(tmp_path, f"{base}explainers: {explainers}\n{evaluation}")).plan(
                allow_code=True
            )


@pytest.mark.parametrize(
    ("shape", "aux", "kind"),
    [
        ((6,), {}, "pixels"),
        ((2, 60), {}, "windows"),
        ((5, 3), {"mask": torch.ones(1, 5).bool()}, "elements"),
    ],
    ids=["table", "series", "set"],
)
def test_features_left_open_are_those_of_the_data(shape, aux, kind) -> None:
    open_ones = {
        "lime": heatproof.Lime(),
        "kernel_shap": heatproof.KernelShap(),
        "certificate": heatproof.Certificate(),
    }
    given = {
        "explicit": heatproof.Lime(features=Patches(size=8)),
        "ablation": heatproof.FeatureAblation(),
    }
    model, first = heatproof.Model(torch.nn.Flatten()), Batch(("a",), torch.zeros(1, *shape), aux)
    kind_of_data, size = kind_of(model, first), first.x.shape[1:]
    for item in open_ones.values():
        assert with_default_features(item, kind_of_data, size).features.name == kind
    for item in given.values():
        assert with_default_features(item, kind_of_data, size) == item
    for item in open_ones.values():
        assert with_default_features(item, IMAGE, (3, 32, 32)) == item


def test_a_study_of_series(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n    torch.manual_seed(0)\n    return nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(),"
        " nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2))\n"
    )
    values = np.random.default_rng(0).normal(size=(4, 12)).round(3)
    (tmp_path / "waves.tsv").write_text(
        "\n".join("\t".join(map(str, [i % 2, *row])) for i, row in enumerate(values))
    )
    text = (
        "model: python:nets.py:make\ndata: waves.tsv\n"
        "explainers: [saliency, {lime: {samples: 20, features: {windows: {size: 3}}}}]\n"
        "evaluations: [{certificate: {radii: [1], features: {windows: {size: 3}}}}, {symmetry: {group: cyclic}}]\n"
    )
    with torch.random.fork_rng():
        plan = read_study(study(tmp_path, text)).plan(allow_code=True)
    run = execute(plan, tmp_path / "run", "test", show_progress=False)
    assert {"rate", "equivariance"} <= set(run.table().measure)
    assert (run.table().query("measure == 'rate'").status == "ok").all()


@pytest.mark.filterwarnings("ignore")
def test_a_study_of_hf_text(tmp_path: Path) -> None:
    text_folder(tmp_path / "tiny")
    lines = ["a very good film", "a bad film", "not a good film", "very bad"]
    (tmp_path / "films.jsonl").write_text(
        "\n".join(json.dumps({"text": line, "label": 0}) for line in lines)
    )
    tokens = "{tokens: {special: [0, 1, 2], mask_token: 3}}"
    text = (
        "model: {source: 'hf:./tiny', name: tiny}\ndata: {source: films.jsonl, vocabulary: 'hf:tiny'}\n"
        "explainers: [saliency, {integrated_gradients: {steps: 2}}, "
        f"{{lime: {{samples: 20, features: {tokens}}}}}]\n"
        f"evaluations: [{{certificate: {{radii: [1], fraction: 0.3, features: {tokens}}}}}]\n"
    )
    plan = read_study(study(tmp_path, text)).plan()
    batch = plan.data["films.jsonl"].load([1]).batch
    assert [WORDS[i] for i in batch.x[0].tolist()] == [
        "[CLS]",
        "a",
        "bad",
        "film",
        "[SEP]",
        "[PAD]",
    ]
    run = execute(plan, tmp_path / "run", "test", show_progress=False)
    rates = run.table().query("measure == 'rate'")
    assert set(rates.status) == {"ok"} and len(rates) == 3 * 4
