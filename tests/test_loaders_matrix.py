"""Every loader × a real architecture with random weights × every explainer that is compatible with it.

Runs where torchvision, timm, transformers or onnxruntime are installed; what is missing is skipped by name.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast import Batch, Concept, Examples, Model, load_model
from holdfast.explainers import EXPLAINERS
from holdfast.explainers.cam import find_layer
from holdfast.explainers.gradient import Saliency
from holdfast.features import Patches
from holdfast.modalities import modality, why_not_explainable, why_undefined
from holdfast.tokens import Tokens

pytestmark = pytest.mark.filterwarnings("ignore")  # other libraries warn of their own futures


def needs(*names: str) -> None:
    for name in names:
        pytest.importorskip(name, reason=f"{name} cannot be imported here", exc_type=ImportError)


def random(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def settings(batch: Batch, train: Examples, layer: str, text: bool) -> dict[str, dict[str, Any]]:
    """The cheapest parameters of every explainer; one that is new and not listed here fails the test."""
    edge = batch.x.shape[-1] // 2
    features = Tokens(special=(0, 1, 2), mask_token=3) if text else Patches(size=edge)
    few = Examples(train.batch[:3])
    concept = [Concept("odd", train.batch[:10], train.batch[10:20])]
    return {
        **{name: {} for name in ("saliency", "input_x_gradient", "deep_lift", "guided_backprop", "grad_cam", "random")},
        "integrated_gradients": {"steps": 2},
        "gradient_shap": {"samples": 2},
        "lime": {"samples": 8, "features": features},
        "kernel_shap": {"samples": 16, "features": features},
        "occlusion": {"window": 1 if text else edge, "stride": 1 if text else edge},
        "rise": {"samples": 4},
        "feature_ablation": {"features": features},
        "feature_permutation": {"features": features, "pool": None if text else few},
        "mfaba": {"steps": 2},
        **{name: {"samples": 2} for name in ("smoothgrad", "smoothgrad_squared", "vargrad")},
        "sobel": {},
        "symmetrised": {"of": Saliency(), "group": "dihedral"},
        "influence": {"train": few, "damping": 1.0, "tolerance": 0.5},
        "tracin": {"train": few},
        "simplex": {"train": few, "layer": layer},
        "representation_similarity": {"train": few, "layer": layer},
        "cav": {"concepts": concept, "layer": layer},
        "car": {"concepts": concept, "layer": layer},
        "precomputed": {"path": {sample: batch.x[i].numpy() for i, sample in enumerate(batch.ids)}},
    }


NOT_FOR_TRANSFORMERS = {"guided_backprop"}  # a transformer has no ReLU to guide


def run_every_explainer(model: Model, x: Tensor, layer: str = "", skip: Set[str] = frozenset()) -> set[str]:
    """Explain two samples with all that the plan would let through; the names of those that ran."""
    text = not x.is_floating_point()
    aux = {"attention_mask": torch.ones_like(x)} if text else {}
    everything = Batch(tuple(map(str, range(len(x)))), x, aux, torch.arange(len(x)) % 2)
    batch, train = everything[:2], Examples(everything)
    model.rows = 8
    chosen = settings(batch, train, layer, text)
    assert set(chosen) == set(EXPLAINERS)
    ran = set()
    for name, parameters in chosen.items():
        explainer: Any = EXPLAINERS[name](**parameters)
        refused = why_undefined(name, modality(model, batch)) or why_not_explainable(explainer, model)
        if refused or name in skip:
            continue
        maps = explainer(model, batch, torch.tensor([0, 1]), 0)
        assert len(maps) == 2 and bool(torch.isfinite(maps).all()), name
        if explainer.kind == "feature":
            assert maps.shape[: x.ndim] == batch.x.shape, name
        ran.add(name)
    return ran


@pytest.mark.parametrize(
    ("name", "size", "layer", "skip"),
    [
        ("torchvision:resnet18@none", 64, "avgpool", set()),
        ("timm:test_vit@none", 160, "norm", NOT_FOR_TRANSFORMERS),
        ("timm:test_convnext@none", 64, "norm_pre", NOT_FOR_TRANSFORMERS),
        pytest.param("torchvision:resnet50@none", 64, "avgpool", set(), marks=pytest.mark.slow),
        pytest.param("torchvision:densenet121@none", 64, "features.norm5", set(), marks=pytest.mark.slow),
        pytest.param("torchvision:convnext_tiny@none", 64, "avgpool", NOT_FOR_TRANSFORMERS, marks=pytest.mark.slow),
        pytest.param("torchvision:vit_b_16@none", 224, "encoder.ln", NOT_FOR_TRANSFORMERS, marks=pytest.mark.slow),
    ],
)
def test_image_networks(name: str, size: int, layer: str, skip: Set[str]) -> None:
    needs(name.partition(":")[0])
    model = load_model(name)
    assert model.fingerprint == load_model(name).fingerprint, "random weights are the same in every process"
    assert min(find_layer(model, (3, size, size)).grid) > 1
    assert run_every_explainer(model, random(20, 3, size, size), layer, skip) == set(EXPLAINERS) - skip


def test_hf_images(tmp_path: Path) -> None:
    needs("transformers")
    import transformers

    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        id2label={0: "cat", 1: "dog", 2: "newt"}, label2id={"cat": 0, "dog": 1, "newt": 2},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).half().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        '{"image_processor_type": "ViTImageProcessor", "do_normalize": true, "image_mean": [0.5, 0.4, 0.3], '
        '"image_std": [0.2, 0.2, 0.2], "do_rescale": true, "rescale_factor": 0.00392156862745098, '
        '"size": {"height": 32, "width": 32}}'
    )
    model = load_model(f"hf:{tmp_path}")
    assert model.mean == pytest.approx([0.5, 0.4, 0.3]) and model.classes == ("cat", "dog", "newt")
    assert model.name == tmp_path.name and next(model.module.parameters()).dtype == torch.float32
    ran = run_every_explainer(model, random(20, 3, 32, 32), "vit.layernorm", NOT_FOR_TRANSFORMERS)
    assert ran == set(EXPLAINERS) - NOT_FOR_TRANSFORMERS
    assert load_model(f"hf:{tmp_path}@none").fingerprint != model.fingerprint


WORDS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "a", "good", "bad", "film", "very", "not")


def text_folder(folder: Path) -> Path:
    """A tiny RoBERTa with a tokeniser of eleven words, as a local copy of a hub's model."""
    needs("transformers", "tokenizers")
    import tokenizers
    import transformers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", None, [("[CLS]", 1), ("[SEP]", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
        unk_token="[UNK]", model_max_length=24,
    ).save_pretrained(folder)  # fmt: skip
    config = transformers.RobertaConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=2, hidden_act="relu",
    )  # fmt: skip
    transformers.RobertaForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_hf_text(tmp_path: Path) -> None:
    model = load_model(f"hf:{text_folder(tmp_path)}")
    assert model.embedding == "roberta.embeddings.word_embeddings"
    ids = torch.cat([torch.ones(20, 1), 5 + (random(20, 5) * 6).floor(), torch.full((20, 1), 2)], 1).long()
    with torch.no_grad():
        by_ids = model.logits(ids, {"attention_mask": torch.ones_like(ids)})
        by_vectors = model.logits(model.inputs(Batch(("a",) * 20, ids)), {"attention_mask": torch.ones_like(ids)})
    torch.testing.assert_close(by_ids, by_vectors)
    ran = run_every_explainer(model, ids, "classifier.dense", {"symmetrised", "precomputed"})
    assert {"saliency", "integrated_gradients", "lime", "kernel_shap", "feature_ablation", "influence", "car"} <= ran


def test_weights_in_a_file_of_a_hubs_architecture(tmp_path: Path) -> None:
    needs("torchvision", "safetensors")
    from safetensors.torch import save_file

    source = load_model("torchvision:resnet18@none").module
    source.fc = nn.Linear(512, 7)
    save_file(source.state_dict(), tmp_path / "seven.safetensors")
    model = load_model(f"file:{tmp_path}/seven.safetensors", architecture="torchvision:resnet18")
    x = random(20, 3, 32, 32)
    assert model.mean is not None and model.name == "seven"
    with torch.no_grad():
        torch.testing.assert_close(model.logits(x[:2]), source.eval()(x[:2]))
    assert run_every_explainer(model, x, "avgpool") == set(EXPLAINERS)


def onnx_file(folder: Path, output: str, batch: int | str) -> tuple[Path, Tensor]:
    """Pictures (B, 3, 8, 8) -> their 4 class scores, or probabilities, as a graph; and the weights (4, 192)."""
    needs("onnx", "onnxruntime")
    from onnx import TensorProto, helper, numpy_helper, save

    weights = torch.randn(4, 192, generator=torch.Generator().manual_seed(1))
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("Gemm", ["flat", "w"], ["z"], transB=1)]
    last = "Softmax" if output != "logits" else "Identity"
    graph = helper.make_graph(
        [*nodes, helper.make_node(last, ["z"], [output])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [batch, 4])],
        [numpy_helper.from_array(weights.numpy(), "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "net.onnx")
    return folder / "net.onnx", weights


@pytest.mark.parametrize(("output", "batch"), [("logits", "n"), ("probabilities", "n"), ("logits", 3)])
def test_onnx(tmp_path: Path, output: str, batch: int | str) -> None:
    path, weights = onnx_file(tmp_path, output, batch)
    model = load_model(f"onnx:{path}")
    x = random(20, 3, 8, 8)
    expected = x.flatten(1) @ weights.T
    torch.testing.assert_close(model.logits(x).softmax(1), expected.softmax(1))
    torch.testing.assert_close(model.logits(x[4:5]), model.logits(x)[4:5])
    perturbing = {"lime", "kernel_shap", "occlusion", "rise", "feature_ablation", "feature_permutation"}
    assert run_every_explainer(model, x) == perturbing | {"random", "sobel", "precomputed"}
    if output != "logits":
        return  # logarithms of probabilities are class scores up to a number per sample
    other = nn.Sequential(nn.Flatten(), nn.Linear(192, 4, bias=False))
    other[1].weight.data = weights
    batches = Batch(("a", "b"), x[:2])
    for maps in (EXPLAINERS["lime"](samples=8, features=Patches(size=4)), EXPLAINERS["occlusion"](window=4, stride=4)):
        same = [maps(m, batches, torch.tensor([0, 1]), 0) for m in (model, Model(other))]
        torch.testing.assert_close(same[0], same[1], atol=1e-4, rtol=1e-4)


def test_an_onnx_graph_refuses_gradients_and_survives_a_copy(tmp_path: Path) -> None:
    import pickle

    from holdfast import UserError

    path, _ = onnx_file(tmp_path, "logits", "n")
    model = load_model(f"onnx:{path}")
    with pytest.raises(UserError, match="gives no gradient"):
        Saliency()(model, Batch(("a",), random(1, 3, 8, 8)), torch.tensor([0]), 0)
    again = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(again.logits(random(2, 3, 8, 8)), model.logits(random(2, 3, 8, 8)))
    assert again.fingerprint == model.fingerprint
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    with pytest.raises(UserError, match="as an ONNX graph"):
        load_model(f"onnx:{tmp_path}/broken.onnx")
