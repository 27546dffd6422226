"""Explainers of other libraries by name in a study: no code, checked parameters, the library's own maps."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from torch import nn

import heatproof
from heatproof import Batch, Model, Stability, UserError
from heatproof.explainers.adapters import foreign
from heatproof.explainers.adapters.named import EXTRAS, LIBRARIES, METHODS
from heatproof.runs.plan import make_plan
from heatproof.runs.study.catalogue import catalogue
from heatproof.runs.study.file import read_study
from heatproof.runs.study.registry import build, explainers
from support.small import model, pictures

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways
STUDY = """
model: bundled:efficientnet-lite0
data: bundled:photographs
explainers:
  - captum: DeepLiftShap
  - captum: {{IntegratedGradients: {{n_steps: 20}}}}
    as: theirs
  - {line}
"""


def needed(library: str) -> None:
    try:
        importlib.import_module(library)
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(
            f"{library} is not installed, or its torchvision does not fit this torch: {error}"
        )


def maps(spec, net=None, samples=None) -> torch.Tensor:
    """The maps of one explainer as a study would make them."""
    data = pictures(3)[0] if samples is None else samples
    plan = make_plan(net or model(), data, [spec], "stability")
    (configured,), (source,), (network,) = (
        plan.configured.values(),
        plan.data.values(),
        plan.models.values(),
    )
    (explainer,) = configured.explainers.values()
    batch = source.load(range(3)).batch
    explainer.check(network, batch.x.shape[1:])
    return explainer(network, batch, network.logits(network.inputs(batch)).argmax(1), 0)


def test_a_study_names_them_without_code(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY.format(line="saliency"))
    found = read_study(tmp_path / "study.yaml").explainers
    assert list(found)[1:] == ["theirs", "saliency"]
    assert found["theirs"].arguments == {"n_steps": 20}


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("captum: DeepLiftSharp", r"line 8.*'DeepLiftSharp'.*'DeepLiftShap'"),
        ("captum: {IntegratedGradients: {n_steps: 0}}", r"line 8.*IntegratedGradients\.n_steps"),
        ("captum: {DeepLiftShap: {steps: 3}}", r"line 8.*DeepLiftShap.*'steps'"),
        ("captum: {LayerGradCam: {}}", r"line 8.*LayerGradCam\.layer"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, line, facts):
    (tmp_path / "study.yaml").write_text(STUDY.format(line=line))
    with pytest.raises(UserError, match=facts):
        read_study(tmp_path / "study.yaml")


@pytest.mark.parametrize("of", METHODS)
def test_a_library_that_is_not_there_is_named_with_its_command(of, monkeypatch):
    def absent(name: str):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(foreign, "import_module", absent)
    name = "LayerGradCam" if of == "captum" else next(iter(METHODS[of]))
    with pytest.raises(UserError, match=rf"{of}.*heatproof\[{EXTRAS.get(of, of)}\]"):
        build("explainer", {}, {of: {name: {"layer": "0"}} if of == "captum" else name})


def test_every_method_is_listed_with_the_package_that_it_needs():
    listed = dict(catalogue("explainers"))
    for of, methods in METHODS.items():
        for name in methods:
            assert f"heatproof[{EXTRAS.get(of, of)}]" in listed[f"{of}: {name}"]


@pytest.mark.parametrize("of", ["captum", "zennit", "pytorch_grad_cam"])
def test_every_listed_name_is_one_of_the_library_and_explains(of):
    needed(of)
    for name, kind in LIBRARIES[of].items():
        if name in ("AblationCAM", "ScoreCAM", "LRP"):
            continue  # slow, or without a rule for the network's layers
        spec = {
            of: {name: {"layer": "4"}} if kind.__dataclass_fields__.keys() == {"layer"} else name
        }
        found = maps(spec)
        assert (
            found.shape == (3, 3, 32, 32)
            and bool(found.isfinite().all())
            and float(found.std()) > 0
        ), name


def test_deep_lift_shap_takes_the_references_as_its_background():
    import captum.attr

    net, data = model(), pictures(3)[0]
    ours = maps({"captum": "DeepLiftShap"}, net, data)
    inputs = net.inputs(Batch(("a", "b", "c"), data))
    target = net.logits(inputs).argmax(1)
    theirs = captum.attr.DeepLiftShap(net.module).attribute(
        inputs, inputs, target=target
    )  # all three are references
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", [RandomForestClassifier, GradientBoostingClassifier])
def test_trees_have_exact_values_that_sum_to_their_own_output(kind):
    needed("shap")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 4))
    forest = kind(n_estimators=10, random_state=0).fit(
        rows, (rows[:, 0] * rows[:, 1] > 0).astype(int)
    )
    net, samples = heatproof.from_sklearn(forest), torch.tensor(rows[:3], dtype=torch.float32)
    found = maps({"shap": "tree"}, net, samples)
    shap = importlib.import_module("shap")
    explain = shap.TreeExplainer(forest)
    target = forest.predict(samples.numpy())
    sign = 2 * target - 1
    if kind is RandomForestClassifier:
        own = (
            forest.predict_proba(samples.numpy())[range(3), target] - explain.expected_value[target]
        )
    else:
        own = sign * (forest.decision_function(samples.numpy()) - explain.expected_value)
    np.testing.assert_allclose(found.sum(1).numpy(), own, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="scikit-learn"):
        maps({"shap": "tree"}, Model(nn.Linear(4, 2)), samples)


def test_the_table_does_not_depend_on_the_batch(tmp_path):
    named = explainers([{"captum": "GradientShap"}, {"captum": "DeepLift"}])
    tables = [
        heatproof.evaluate(
            model(), pictures(3), named, Stability(perturbations="jpeg"), batch_size=size
        ).table()
        for size in (1, 3)
    ]
    assert np.allclose(tables[0].value, tables[1].value, atol=1e-3, equal_nan=True)
