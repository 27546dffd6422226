"""Inputs, weights and short forms of results that are the same with every version of every package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heatproof import Batch, Model, UserError


def fixed(*shape: int, seed: int = 0, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Uniform numbers between low and high, float32."""
    drawn = np.random.default_rng(seed).uniform(low, high, shape)
    return torch.from_numpy(drawn.astype(np.float32))


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, float32."""
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).float()


def batch_of(*shape: int, seed: int = 0, **aux: Tensor) -> Batch:
    """Samples named a, b, c, … of uniform numbers."""
    return Batch(tuple("abcdefghijkl"[: shape[0]]), fixed(*shape, seed=seed), aux)


def with_weights(net: Any, seed: int = 0) -> Any:
    """A network with weights drawn by NumPy, as large as the usual ones."""
    drawn = np.random.default_rng(seed)
    for weights in net.parameters():
        size = max(1, weights[0].numel()) ** 0.5
        weights.data = torch.from_numpy(
            drawn.normal(0, 1.5 / size, weights.shape).astype(np.float32)
        )
    return net.eval()


def of_two_minds(net: nn.Module, head: nn.Linear, x: Tensor, sharp: float = 6.0) -> nn.Module:
    """A network whose last layer is sharper, and centred so that no class is far ahead of the others on inputs x."""
    head.weight.data *= sharp
    with torch.no_grad():
        head.bias.data -= net(x).mean(0)
    return net


def picture_model(rows: int = 16, seed: int = 0) -> Model:
    """A small smooth convolutional classifier of pictures (3, 12, 12) into four classes."""
    layers = [
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 6, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
    ]
    net = with_weights(nn.Sequential(*layers, nn.Flatten(), head := nn.Linear(24, 4)), seed)
    net = of_two_minds(net, head, (fixed(64, 3, 12, 12, seed=9) - 0.4) / 0.3)
    return Model(net, mean=(0.4,) * 3, std=(0.3,) * 3, name="net", classes=tuple("wxyz"), rows=rows)


def row_model(inputs: int, classes: int = 3, rows: int = 16, seed: int = 0) -> Model:
    """A small smooth classifier of rows of a table."""
    layers = [nn.Flatten(), nn.Linear(inputs, 8), nn.Tanh()]
    net = with_weights(nn.Sequential(*layers, head := nn.Linear(8, classes)), seed)
    return Model(of_two_minds(net, head, fixed(64, inputs, seed=9)), name="net", rows=rows)


def digest(values: Any, whole: int = 16) -> Any:
    """A tensor as it is where it is small, else its type, shape, number of gaps and three random projections."""
    tensor = torch.as_tensor(values).detach().cpu()
    if tensor.numel() <= whole:
        return tensor.tolist()
    flat = tensor.double().flatten().numpy()
    drawn = np.random.default_rng(1).normal(size=(3, flat.size)) / flat.size**0.5
    told = [float(x) for x in drawn @ np.nan_to_num(flat, nan=0.5, posinf=7.0, neginf=-7.0)]
    return [
        f"{str(tensor.dtype)[6:]} {tuple(tensor.shape)}, {int((~np.isfinite(flat)).sum())} gaps",
        *told,
    ]


def tried(call: Callable[[], Any]) -> Any:
    """What a call gives, or how it is refused."""
    try:
        return call()
    except UserError as error:
        return f"refused: {error}"


def refusals(calls: Mapping[str, Callable[[], Any]]) -> dict[str, str]:
    """What each call is refused with, by its name."""
    said = {}
    for name, call in calls.items():
        with pytest.raises(UserError) as error:
            call()
        said[name] = str(error.value)
    return said
