"""What users of torchvision, timm and Lightning do first with images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import heatproof

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def images(n: int, side: int = 64) -> torch.Tensor:
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0))


def test_a_network_of_torchvision_with_its_transforms() -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    net = torchvision.models.resnet18(num_classes=5).eval()
    model = heatproof.Model(net, **IMAGENET)
    run = heatproof.evaluate(model, images(6), ["grad_cam", "saliency", "random"], ["faithfulness"])
    normalise = torchvision.transforms.Normalize(**IMAGENET)
    with torch.no_grad():
        expected = net(normalise(images(6))).argmax(1)
    assert run.samples().predicted.tolist() == expected.tolist()


def test_an_image_folder_of_torchvision(tmp_path: Any) -> None:
    torchvision = pytest.importorskip("torchvision")
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(3):
            pixels = np.random.default_rng(i).integers(0, 255, (40, 40, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.Resize(32), torchvision.transforms.ToTensor()]
    )
    folder = torchvision.datasets.ImageFolder(tmp_path, transform)
    net = torchvision.models.mobilenet_v3_small(num_classes=2).eval()

    run = heatproof.evaluate(
        heatproof.Model(net, **IMAGENET), folder, ["saliency", "random"], ["faithfulness"]
    )
    assert run.samples().label.tolist() == folder.targets


def test_a_data_loader_is_read() -> None:
    torchvision = pytest.importorskip("torchvision")
    data = torchvision.datasets.FakeData(6, (3, 32, 32), 4, torchvision.transforms.ToTensor())
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    net = torchvision.models.squeezenet1_1(num_classes=4).eval()

    run = heatproof.evaluate(
        heatproof.Model(net, **IMAGENET), loader, ["saliency", "random"], ["faithfulness"]
    )
    assert run.samples().label.tolist() == [data[i][1] for i in range(6)]


def test_images_that_are_normalised_already_are_recognised() -> None:
    torchvision = pytest.importorskip("torchvision")
    net = torchvision.models.squeezenet1_1(num_classes=4).eval()
    normalised = torchvision.transforms.Normalize(**IMAGENET)(images(6))
    with pytest.raises(heatproof.UserError, match=r"mean=.*std="):
        heatproof.evaluate(net, normalised, ["saliency", "random"])


def test_a_segmentation_network_of_torchvision() -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    net = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        num_classes=3, weights_backbone=None
    ).eval()
    model = heatproof.Model(net, task="segmentation", **IMAGENET)
    maps = heatproof.explain(model, images(2), "saliency")
    assert maps.shape == (2, 3, 64, 64)


def test_a_network_of_timm_with_its_data_configuration() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    net = timm.create_model("resnet18", num_classes=7).eval()
    config = timm.data.resolve_model_data_config(net)
    model = heatproof.Model(net, mean=config["mean"], std=config["std"])
    run = heatproof.evaluate(model, images(6), ["grad_cam", "random"], ["faithfulness"])
    assert run.ranking().explainer.nunique() == 2


def test_a_network_of_timm_without_its_normalisation_is_mentioned() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    net = timm.create_model("resnet18", num_classes=7).eval()
    run = heatproof.evaluate(net, images(6), ["saliency", "random"], ["faithfulness"])
    assert "missing-normalisation" in run.text()


def test_attention_of_a_vit_of_timm() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    net = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=7).eval()
    maps = heatproof.explain(net, images(2), "attention_rollout")
    assert maps.shape == (2, 3, 64, 64)
    assert np.isfinite(maps).all()


def test_a_lightning_module_is_a_network() -> None:
    lightning = pytest.importorskip("lightning")

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(3, 8, 3),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(8, 3),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            return nn.functional.cross_entropy(self(x), y)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    module = Classifier()
    data = torch.utils.data.TensorDataset(images(8, 16), torch.arange(8) % 3)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))

    run = heatproof.evaluate(module, data, ["grad_cam", "random"], ["faithfulness"])
    with torch.no_grad():
        assert run.samples().predicted.tolist() == module.eval()(images(8, 16)).argmax(1).tolist()


def test_a_lightning_data_module_names_its_loader() -> None:
    lightning = pytest.importorskip("lightning")

    class Pictures(lightning.LightningDataModule):
        def val_dataloader(self) -> Any:
            data = torch.utils.data.TensorDataset(images(6, 16), torch.arange(6) % 3)
            return torch.utils.data.DataLoader(data, batch_size=2)

    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    )
    run = heatproof.evaluate(
        net, Pictures().val_dataloader(), ["grad_cam", "random"], ["faithfulness"]
    )
    assert run.samples().label.tolist() == [0, 1, 2, 0, 1, 2]
