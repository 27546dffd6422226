"""Common mistakes are one clear error before anything is explained."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heatproof
from heatproof import Model, UserError


class AlwaysDropped(nn.Module):
    """A network with dropout that eval mode does not turn off."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 16 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(F.dropout(x.flatten(1), 0.5, training=True))


def plain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 4))


def with_nan() -> nn.Module:
    net = plain()
    net[3].weight.data[0, 0] = float("nan")
    return net


IMAGES = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (with_nan(), IMAGES, r"'3\.weight'.*1 value.*NaN"),
        (Model(plain(), classes=["cat", "dog"]), IMAGES, r"4 outputs.*2 names.*'cat'"),
        (
            Model(plain(), mean=(123.7, 116.3, 103.5), std=(58.4, 57.1, 57.4)),
            IMAGES,
            r"123\.7.*\[0, 1\].*0\.4851",
        ),
        (AlwaysDropped(), IMAGES, r"second pass.*dropout"),
        (IMAGES, plain(), r"model is Tensor.*evaluate\(model, data"),
        (pd.DataFrame({"a": [1.0]}), plain(), r"model is DataFrame"),
        ("photos", plain(), r"model is str"),
        (plain(), IMAGES[0], r"single image \(3, 16, 16\).*x\[None\]"),
    ],
    ids=["nan", "classes", "bytes", "dropout", "swapped", "frame", "path", "single"],
)
def test_a_mistake_is_one_error_before_any_explanation(model: Any, data: Any, message: str) -> None:
    explained = 0

    def explainer(model: Any, batch: Any, target: Tensor, seed: int) -> Tensor:
        nonlocal explained
        explained += 1
        return batch.x

    with pytest.raises(UserError, match=message) as error:
        heatproof.evaluate(model, data, [explainer, "saliency"], ["agreement"])
    assert "\n" not in str(error.value)
    assert explained == 0
