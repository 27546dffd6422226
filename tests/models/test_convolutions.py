"""Convolutions in another form: the same numbers and the same gradients as the layer itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from heatproof.models import Model
from heatproof.models.convolutions import quickly_differentiated
from heatproof.models.network import frozen_copy


class Standardised(nn.Conv2d):
    """As in some networks of timm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)


LAYERS = {
    "patches": {"kernel_size": 4, "stride": 4},
    "patches of a padded picture": {"kernel_size": 4, "stride": 4, "padding": 2},
    "patches without a bias": {"kernel_size": 5, "stride": 5, "bias": False},
    "a filter for each channel": {"kernel_size": (7, 6), "padding": (3, 1), "groups": 3},
}


def in_another_form(layer: nn.Module) -> nn.Module:
    copied = frozen_copy(layer)
    quickly_differentiated(copied)
    return copied


def is_changed(layer: nn.Module) -> bool:
    return "forward" in vars(in_another_form(layer))


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (30, 21)])
@pytest.mark.parametrize("name", LAYERS)
def test_the_same_numbers_and_gradients(name, size):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 3, **LAYERS[name]).double()
    x = torch.rand(2, 3, *size, dtype=torch.float64, requires_grad=True)
    assert is_changed(layer)
    wanted, found = layer(x), in_another_form(layer)(x)
    torch.testing.assert_close(found, wanted)
    weight = torch.rand_like(wanted)
    gradients = [torch.autograd.grad((out * weight).sum(), x)[0] for out in (found, wanted)]
    torch.testing.assert_close(*gradients)


def test_the_first_layer_is_laid_out_for_what_comes_behind_it(monkeypatch):
    seen = []
    before = torch.nn.functional.conv2d
    monkeypatch.setattr(
        torch.nn.functional, "conv2d", lambda x, w, b: seen.extend((x, w)) or before(x, w, b)
    )
    layer = nn.Conv2d(3, 8, 2, stride=2)
    x = torch.rand(2, 3, 32, 32).to(memory_format=torch.channels_last)
    out = in_another_form(layer)(x)
    assert [tuple(tensor.shape) for tensor in seen] == [(2, 16, 16, 16), (8, 16, 1, 1)]
    assert all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in (*seen, out))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 8, 3),
        nn.Conv2d(3, 8, 7, stride=2, padding=3),
        nn.Conv2d(3, 8, 2, stride=3),
        nn.Conv2d(64, 64, 2, stride=2),
        nn.Conv2d(4, 8, 2, stride=2, groups=2),
        nn.Conv2d(3, 8, 2, stride=2, dilation=2),
        nn.Conv2d(3, 8, (2, 1), stride=(2, 1)),
        nn.Conv2d(3, 8, 2, stride=2, padding=1, padding_mode="reflect"),
        nn.Conv2d(3, 8, 3, padding="same"),
        nn.Conv2d(8, 8, 5, padding=2, groups=8),
        nn.Conv2d(8, 8, 7, padding="same", groups=8),
        nn.Conv2d(8, 8, 7, stride=2, groups=8),
        nn.Conv2d(8, 16, 7, groups=8),
        nn.Conv2d(8, 8, 9, groups=8),
        nn.Conv2d(8, 8, 7, padding=7, groups=8),
        Standardised(3, 8, 2, stride=2),
    ],
    ids=str,
)
def test_other_layers_stay(layer):
    assert not is_changed(layer)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
@pytest.mark.parametrize("how", ["plain", "compiled"])
def test_a_network_in_sixteen_bits_on_a_gpu_computes_in_these_forms(how):
    """In a process of its own: torch's compiler warns in ways that are errors here."""
    done = subprocess.run(
        [sys.executable, __file__, "cuda", how], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def compare_gradients(device: str, compiled: bool) -> None:
    torch.manual_seed(0)
    stem, alone = nn.Conv2d(3, 8, 2, stride=2), nn.Conv2d(8, 8, 7, padding=3, groups=8)
    # Smooth units: of others rounding turns one on or off now and then, and the gap is that unit (.001 or .05 by seed).
    net = nn.Sequential(stem, nn.GELU(), alone, nn.GELU(), nn.Flatten(), nn.Linear(8 * 16 * 16, 5))
    model, x = (
        Model(net, device=device, rows=2),
        torch.rand(2, 3, 32, 32, device=device, requires_grad=True),
    )
    exact = torch.autograd.grad(model.logits(x)[:, 1].sum(), x)[0]
    assert not any("forward" in vars(layer) for layer in model.module)
    model.use("float16", compiled)
    changed = [i for i, layer in enumerate(model.module) if "forward" in vars(layer)]
    assert changed == ([0, 2] if device == "cuda" else [])
    assert not any("forward" in vars(layer) for layer in net)
    rounded = torch.autograd.grad(model.logits(x)[:, 1].sum(), x)[0]
    gap = float((rounded - exact).norm() / exact.norm())
    assert gap < 0.01, gap


if __name__ == "__main__":
    compare_gradients(sys.argv[1], sys.argv[2] == "compiled")
