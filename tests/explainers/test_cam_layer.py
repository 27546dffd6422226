"""Where Grad-CAM reads real architectures; each is skipped where its library cannot be imported.

Every explainer runs on them in models/test_loaders_matrix.py.
"""

from __future__ import annotations

import pytest
import torch

from heatproof import Batch, GradCAM, Model, load_model
from heatproof.explainers.cam_layer import find_layer

TORCHVISION = {
    "resnet18": ("layer4", (7, 7)),
    "resnet50": ("layer4", (7, 7)),
    "densenet121": ("features", (7, 7)),
    "convnext_tiny": ("features", (7, 7)),
    "vit_b_16": ("encoder.layers.encoder_layer_11", (14, 14)),
    "mobilenet_v2": ("features", (7, 7)),
    "swin_t": ("permute", (7, 7)),
}
TIMM = {
    "vit_tiny_patch16_224": ("blocks.11", (14, 14)),
    "deit_tiny_distilled_patch16_224": ("blocks.11", (14, 14)),
    "resnet18": ("layer4", (7, 7)),
    "convnext_atto": ("norm_pre", (7, 7)),
}
NAMES = [(f"torchvision:{n}@none", *v) for n, v in TORCHVISION.items()] + [
    (f"timm:{n}@none", *v) for n, v in TIMM.items()
]


def library(name: str) -> None:
    pytest.importorskip(name, reason=f"{name} cannot be imported here", exc_type=ImportError)


@pytest.mark.parametrize(("name", "path", "grid"), NAMES)
@pytest.mark.filterwarnings("ignore")
def test_grad_cam_finds_its_layer(name, path, grid):
    library(name.split(":")[0])
    model = load_model(name)
    site = find_layer(model, (3, 224, 224))
    assert (site.path, site.grid) == (path, grid)
    batch = Batch(("a",), torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)))
    maps = GradCAM(relu=False)(model, batch, torch.tensor([1]), 0)
    assert maps.shape == (1, 3, 224, 224)
    assert bool(torch.isfinite(maps).all())


@pytest.mark.parametrize("kind", ["ViT", "DeiT", "Swin", "ResNet", "ConvNext"])
@pytest.mark.filterwarnings("ignore")
def test_grad_cam_reads_transformers_models(kind):
    library("transformers")
    import transformers

    small = {
        "num_hidden_layers": 3,
        "hidden_size": 48,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    config = getattr(transformers, f"{kind}Config")(
        num_labels=5, **(small if kind in ("ViT", "DeiT") else {})
    )
    model = Model(getattr(transformers, f"{kind}ForImageClassification")(config))
    batch = Batch(("a",), torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)))
    maps = GradCAM(relu=False)(model, batch, torch.tensor([1]), 0)
    assert find_layer(model, (3, 224, 224)).grid == (
        (14, 14) if kind in ("ViT", "DeiT") else (7, 7)
    )
    assert float(maps.std()) > 0
