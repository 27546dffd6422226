"""A small untrained classifier of pictures with the 1,000 classes of ImageNet, for `python:` names in tests."""

from __future__ import annotations

import torch
from torch import nn

from heatproof import Model


def thousand_classes() -> Model:
    """Return the network, the same in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 4, 7, stride=4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(64, 1000),
        )
    return Model(net.eval(), name="small")
