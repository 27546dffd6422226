"""Batch norms by one product: torch's values and gradients, and torch's own way wherever somebody looks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from heatproof.models import Model
from heatproof.models.norms import quick_norms

LAYERS = {
    "rows": (nn.BatchNorm1d, (4, 5)),
    "series": (nn.BatchNorm1d, (4, 5, 7)),
    "images": (nn.BatchNorm2d, (4, 5, 6, 7)),
    "volumes": (nn.BatchNorm3d, (2, 5, 3, 4, 5)),
}


def settled(layer: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """With statistics and weights as after a training, frozen."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, values in layer.state_dict().items():
            if values.is_floating_point():
                drawn = torch.rand(values.shape, generator=generator) + (
                    0.5 if "var" in name else -0.5
                )
                values.copy_(drawn)
    return layer.to(dtype).eval().requires_grad_(False)


def gradient(layer: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = x.detach().requires_grad_()
    out = layer(leaf)
    return out.detach(), torch.autograd.grad(
        (out * torch.arange(out.numel()).view_as(out)).sum(), leaf
    )[0]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_same_values_and_gradients(kind, affine):
    make, shape = LAYERS[kind]
    plain = settled(make(5, affine=affine))
    quick = copy.deepcopy(plain)
    quick_norms(quick)
    x = torch.rand(shape, dtype=torch.float64)
    (wanted, slope), (found, quick_slope) = gradient(plain, x), gradient(quick, x)
    assert torch.equal(found, wanted) and "_Product" in str(quick(x.requires_grad_()).grad_fn)
    torch.testing.assert_close(quick_slope, slope)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_sixteen_bits_the_gradient_is_that_of_the_layer_to_its_digits(dtype):
    plain = settled(nn.BatchNorm2d(5, eps=1e-3), dtype)
    quick = copy.deepcopy(plain)
    quick_norms(quick)
    leaves = [torch.ones(2, 5, 4, 4, dtype=dtype, requires_grad=True) for _ in range(2)]
    slopes = [
        torch.autograd.grad(layer(x).sum(), x)[0]
        for layer, x in zip((plain, quick), leaves, strict=True)
    ]
    torch.testing.assert_close(*slopes, rtol=2 * torch.finfo(dtype).eps, atol=0)
    assert slopes[1].dtype == dtype


class Own(nn.BatchNorm2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(5, track_running_stats=False), Own(5), nn.GroupNorm(1, 5)], ids=str
)
def test_other_norms_stay(layer):
    quick_norms(layer)
    assert "forward" not in vars(layer)


def test_weights_that_are_learned_have_their_gradients():
    layer = settled(nn.BatchNorm2d(5))
    quick_norms(layer)
    layer.weight.requires_grad_()
    x = torch.rand(2, 5, 3, 3, dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(layer(x).square().sum(), [layer.weight, x])
    again = torch.autograd.grad(nn.BatchNorm2d.forward(layer, x).square().sum(), [layer.weight, x])
    for one, other in zip(found, again, strict=True):
        torch.testing.assert_close(one, other)


def test_in_training_it_is_the_layer_itself():
    layer = settled(nn.BatchNorm2d(5)).train()
    other = copy.deepcopy(layer)
    quick_norms(layer)
    x = torch.rand(4, 5, 3, 3, dtype=torch.float64)
    for one, wanted in zip(gradient(layer, x), gradient(other, x), strict=True):
        torch.testing.assert_close(one, wanted)
    torch.testing.assert_close(layer.running_var, other.running_var)


class Met(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def test_who_watches_functions_meets_the_norm():
    model = Model(nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)))
    with Met() as met:
        model.module(torch.rand(1, 3, 6, 6, requires_grad=True))
    assert "batch_norm" in met.names


def test_a_copy_has_statistics_of_its_own():
    model = Model(settled(nn.Sequential(nn.BatchNorm1d(4)), torch.float32), task="regression")
    other = copy.deepcopy(model.module)
    other[0].running_var.mul_(4)
    x = torch.rand(2, 4)
    slopes = [gradient(net, x)[1] for net in (model.module, other)]
    torch.testing.assert_close(slopes[0], 2 * slopes[1], rtol=1e-3, atol=1e-6)


def test_the_gradient_can_be_differentiated():
    layer = settled(nn.BatchNorm2d(3))
    quick_norms(layer)
    x = torch.rand(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda given: layer(given).square(), (x,))
