"""Small samples get defaults that fit: 8×8 images, and series of five steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import heatproof


@pytest.mark.parametrize(
    "evaluation", ["agreement", "certificate", "dependence", "faithfulness", "stability"]
)
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 5), (3, 9, 9)], ids=["digits", "series", "rgb"])
def test_every_evaluation_has_defaults_for_small_samples(
    evaluation: str, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    x = torch.rand(9, *shape)
    net = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 3))
    run = heatproof.evaluate(net, x, ["saliency", "input_x_gradient"], [evaluation])
    assert (run.table().status == "ok").any()
