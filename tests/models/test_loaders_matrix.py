"""Every kind of model name × networks small and real × every explainer that is compatible with it.

What is not installed is skipped by name; docs/models.md says how to run all of it.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heatproof import Batch, Concept, Examples, Model, UserError, load_model
from heatproof.axes.symmetry.groups import dihedral
from heatproof.explainers.cam_layer import find_layer
from heatproof.explainers.gradient import Saliency
from heatproof.features import Patches, Pixels
from heatproof.features.tokens import Tokens
from heatproof.models.loaders import LOADERS
from heatproof.runs.study.registry import EXPLAINERS
from support.laws import OF_ATTENTION
from support.model_cases import (
    CASES,
    REAL,
    WORDS,
    hf_pictures,
    needs,
    onnx_file,
    pictures,
    random,
    text_folder,
    texts,
)

CAMS = ("grad_cam_plus_plus", "layer_cam", "hires_cam")
VARIANTS = {
    "deconvolution": ("guided_backprop",),
    "attn_lrp": ("lrp",),
    "guided_grad_cam": ("grad_cam", "guided_backprop"),
}
pytestmark = pytest.mark.filterwarnings("ignore")  # other libraries warn of their own futures


def awake(model: Model) -> Model:
    """Some networks start with a last layer of zeros, through which nothing can be explained; it gets other numbers."""
    for parameter in model.module.parameters():
        if parameter.ndim == 2 and not bool(parameter.any()):
            parameter.data = 0.02 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(1)
            )
    return model


def settings(batch: Batch, train: Examples, layer: str) -> dict[str, dict[str, Any]]:
    """The cheapest parameters of every explainer; one that is new and not listed here fails the test."""
    text, table = not batch.x.is_floating_point(), batch.x.ndim == 2
    edge = 1 if table else batch.x.shape[-1] // 2
    features = (
        Tokens(special=(0, 1, 2), mask_token=3)
        if text
        else Pixels()
        if table
        else Patches(size=edge)
    )
    few = Examples(train.batch[-2:])
    concept = [Concept("odd", train.batch[:10], train.batch[10:20])]
    return {
        **{
            name: {}
            for name in (
                "saliency",
                "input_x_gradient",
                "deep_lift",
                "guided_backprop",
                "deconvolution",
                "lrp",
                "attn_lrp",
                "random",
                "sobel",
            )
        },
        "weight_noise": {},
        **{name: {"relu": False} for name in ("grad_cam", "guided_grad_cam", *CAMS)},
        **{name: {} for name in OF_ATTENTION},
        "integrated_gradients": {"steps": 2},
        "expected_gradients": {"samples": 2, "baseline": "random"},
        "gradient_shap": {"samples": 2},
        "lime": {"samples": 8, "features": features},
        "kernel_shap": {"samples": 16, "features": features},
        "occlusion": {"window": edge, "stride": edge},
        "rise": {"samples": 4, "grid": 2},
        "feature_ablation": {"features": features},
        "feature_permutation": {"features": features, "pool": None if text else few},
        "mfaba": {"steps": 2},
        **{name: {"samples": 2} for name in ("smoothgrad", "smoothgrad_squared", "vargrad")},
        "symmetrised": {"of": Saliency(), "group": dihedral(1)},
        "influence": {"train": few, "damping": 1.0, "tolerance": 0.5},
        "tracin": {"train": few},
        "simplex": {"train": few, "layer": layer},
        "representation_similarity": {"train": few, "layer": layer},
        "cav": {"concepts": concept, "layer": layer},
        "car": {"concepts": concept, "layer": layer},
        "precomputed": {
            "path": {sample: random(*batch.x.shape[1:]).numpy() for sample in batch.ids}
        },
    }


def why_refused(explainer: Any, model: Model, batch: Batch) -> str:
    """The reason that a plan would give before anything runs; empty where it lets the explainer through."""
    try:
        explainer.configured_for(model, batch[:1])
    except UserError as error:
        return str(error)
    return ""


def refusals(model: Model, x: Tensor, layer: str, samples: int) -> dict[str, str]:
    """Explain the first samples with everything; the explainers that did not run, with the reason that they gave."""
    aux = {} if x.is_floating_point() else {"attention_mask": torch.ones_like(x)}
    everything = Batch(tuple(map(str, range(len(x)))), x, aux, torch.arange(len(x)) % 2)
    batch, target = everything[:samples], torch.arange(samples) % 2
    model.rows = 8
    chosen = settings(batch, Examples(everything), layer)
    assert set(chosen) == set(EXPLAINERS)
    refused = {}
    for name, parameters in chosen.items():
        explainer: Any = EXPLAINERS[name](**parameters)
        why = why_refused(explainer, model, batch)
        if not why:
            try:
                maps = explainer(model, batch, target, 0)
            except UserError as error:
                why = str(error)
            else:
                assert len(maps) == samples and bool(torch.isfinite(maps).all()), name
                if explainer.kind == "feature":
                    assert maps.shape[: x.ndim] == batch.x.shape, name
                    assert float(maps.std()) > 0, f"{name} gives a constant map"
        if why:
            refused[name] = why
    return refused


def test_every_kind_of_name_is_in_the_matrix() -> None:
    assert {label.partition(":")[0] for label in CASES} == set(LOADERS) - {"decoder"}, (
        "see test_decoders"
    )


@pytest.mark.parametrize(
    "label", [pytest.param(x, marks=pytest.mark.slow if x in REAL else ()) for x in CASES]
)
def test_every_explainer_runs_or_says_why_not(label: str, tmp_path: Path) -> None:
    case = CASES[label]
    needs(*case.needs)
    model, x = awake(case.load(tmp_path)), case.x()
    if "grad_cam" not in case.refused:
        assert min(find_layer(model, tuple(x.shape[1:])).grid) > 1
    refused = refusals(model, x, case.layer, case.samples)
    assert {name in refused for name in CAMS} == {"grad_cam" in refused}
    attends = any("attention" in type(part).__name__.lower() for part in model.module.modules())
    unread = {name: refused.pop(name, "") for name in OF_ATTENTION}
    assert all(
        "attend" in why or "attention" in why or not attends for why in unread.values() if why
    ), unread
    assert not (attends and x.ndim == 2 and any(unread.values())), (
        "a text transformer attends among all tokens"
    )
    refused = {name: why for name, why in refused.items() if name not in CAMS}
    # Variants of a method are refused exactly where it is.
    for variant, methods in VARIANTS.items():
        is_refused = any(name in refused for name in methods)
        assert (refused.pop(variant, None) is not None) == is_refused, variant
    assert {name: why for name, why in refused.items() if name not in case.refused} == {}
    for name, words in case.refused.items():
        assert words in refused.get(name, "it ran"), name


@pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:test_vit"])
def test_random_weights_are_the_same_in_every_process(name: str) -> None:
    needs(name.partition(":")[0])
    assert load_model(f"{name}@none").fingerprint == load_model(f"{name}@none").fingerprint


def test_hf_pictures_come_with_the_normalisation_of_their_processor(tmp_path: Path) -> None:
    needs("transformers")
    model = hf_pictures(tmp_path)
    assert model.mean == pytest.approx([0.5, 0.4, 0.3]) and model.classes == ("cat", "dog", "newt")
    assert model.name == tmp_path.name and next(model.module.parameters()).dtype == torch.float32
    assert load_model(f"hf:{tmp_path}@none").fingerprint != model.fingerprint


def test_hf_text_reads_vectors_in_place_of_ids(tmp_path: Path) -> None:
    model, ids = load_model(f"hf:{text_folder(tmp_path)}"), texts()
    assert model.embedding == "roberta.embeddings.word_embeddings"
    assert len(model.layer(model.embedding).weight) == len(WORDS)
    attended = {"attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        by_vectors = model.logits(model.inputs(Batch(("a",) * 20, ids)), attended)
        torch.testing.assert_close(model.logits(ids, attended), by_vectors)


@pytest.mark.parametrize(
    ("output", "batch"), [("logits", "n"), ("probabilities", "n"), ("logits", 3)]
)
def test_onnx_gives_the_scores_of_the_same_network(
    tmp_path: Path, output: str, batch: int | str
) -> None:
    needs("onnx", "onnxruntime")
    path, weights = onnx_file(tmp_path, output, batch)
    model, x = load_model(f"onnx:{path}"), pictures(8)
    torch.testing.assert_close(model.logits(x).softmax(1), (x.flatten(1) @ weights.T).softmax(1))
    torch.testing.assert_close(model.logits(x[4:5]), model.logits(x)[4:5])
    if output != "logits":
        return  # logarithms of probabilities are class scores up to a number per sample
    other = nn.Sequential(nn.Flatten(), nn.Linear(192, 4, bias=False))
    other[1].weight.data = weights
    for maps in (
        EXPLAINERS["lime"](samples=8, features=Patches(size=4)),
        EXPLAINERS["occlusion"](window=4, stride=4),
    ):
        same = [
            maps(m, Batch(("a", "b"), x[:2]), torch.tensor([0, 1]), 0)
            for m in (model, Model(other))
        ]
        torch.testing.assert_close(same[0], same[1], atol=1e-4, rtol=1e-4)


def test_an_onnx_graph_refuses_gradients_and_survives_a_copy(tmp_path: Path) -> None:
    needs("onnx", "onnxruntime")
    path, _ = onnx_file(tmp_path)
    model = load_model(f"onnx:{path}")
    with pytest.raises(UserError, match="gradient"):
        Saliency()(model, Batch(("a",), random(1, 3, 8, 8)), torch.tensor([0]), 0)
    again = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(again.logits(random(2, 3, 8, 8)), model.logits(random(2, 3, 8, 8)))
    assert again.fingerprint == model.fingerprint
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    with pytest.raises(UserError, match="ONNX"):
        load_model(f"onnx:{tmp_path}/broken.onnx")
