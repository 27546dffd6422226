"""The kernels for a GPU compute what their twins in plain torch compute.

On a GPU they run there; elsewhere, where Triton is installed, its interpreter runs them in a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from holdfast import kernels
from holdfast.features import superpixels as segment
from holdfast.kernels import depthwise, quickshift, ssim
from holdfast.maps import ssim as windows
from holdfast.maps.similarity import compare, compare_all, profile

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
runs_kernels = pytest.mark.skipif(
    not kernels.AVAILABLE or not (INTERPRETED or torch.cuda.is_available()),
    reason="torch sees no GPU here, and the interpreter is another test's",
)


@pytest.mark.skipif(not kernels.AVAILABLE, reason="Triton is not installed")
@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the kernels run as they are")
def test_the_interpreter_finds_the_same():
    # The interpreter changes Triton's language for the whole process, so kernels must not run in several threads.
    told = os.environ | {"TRITON_INTERPRET": "1", "HOLDFAST_TESTS_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, check=False, env=told, capture_output=True, text=True)
    assert done.returncode == 0 and "12 passed" in done.stdout, done.stdout + done.stderr


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted kernels take tensors of the CPU; what only a GPU's library has is NumPy's there."""
    if INTERPRETED:
        import numpy as np
        from triton.runtime.interpreter import TensorHandle

        tl = ssim.tl
        monkeypatch.setattr(
            quickshift.libdevice,
            "exp2",
            lambda t: tl.tensor(TensorHandle(np.exp2(t.handle.data), t.dtype.scalar), t.type),
        )
        for module in (segment, windows):
            monkeypatch.setattr(module, "fused", lambda values: True)


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (segment, windows):
        monkeypatch.setattr(module, "fused", lambda values: False)


def scenes(count: int, height: int, width: int) -> torch.Tensor:
    """Smooth random pictures with a flat stripe, where densities and distances tie."""
    coarse = torch.rand(count, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    pictures = F.interpolate(coarse, size=(height, width), mode="bilinear")
    pictures[:, :, 4:8] = 0.5
    return pictures


@runs_kernels
@pytest.mark.parametrize(("kernel_size", "max_dist"), [(0.6, 6.0), (1.0, 3.0)])
def test_superpixels(fused, monkeypatch, kernel_size, max_dist):
    pictures = scenes(2, 12, 13).to(DEVICE)
    found = segment.quickshift(pictures, kernel_size, max_dist)
    plain(monkeypatch)
    wanted = segment.quickshift(pictures, kernel_size, max_dist)
    assert torch.equal(found, wanted) and int(wanted.max()) > 0


def maps(seed: int) -> torch.Tensor:
    return torch.randn(4, 2, 14, 17, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@runs_kernels
@pytest.mark.parametrize("masked", [False, True])
def test_ssim_of_pairs_and_of_all(fused, monkeypatch, masked):
    valid = torch.ones(1, 1, 14, 17, dtype=torch.bool, device=DEVICE)
    valid[..., :4] = not masked
    profiles = [profile(values, 10, valid=valid) for values in (maps(0), maps(0) + maps(1) / 4)]
    monkeypatch.setattr(windows, "_chunk", lambda values: 3)  # which does not divide the pairs
    found = compare(*profiles)["ssim"], compare_all(profiles[0][:3], profiles[1])["ssim"]
    plain(monkeypatch)
    wanted = compare(*profiles)["ssim"], compare_all(profiles[0][:3], profiles[1])["ssim"]
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.shape == theirs.shape
        assert torch.allclose(mine, theirs, atol=1e-6, rtol=0)


@runs_kernels
@pytest.mark.parametrize("side", [13, 24])
def test_a_map_and_itself_score_exactly_one(fused, side):
    values = torch.randn(3, 3, side, 20, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    found = profile(values, 10)
    assert compare(found, found)["ssim"].tolist() == [1.0] * 3
    assert compare_all(found, found)["ssim"].diagonal().tolist() == [1.0] * 3


LAYERS = {
    "ConvNeXt's": ((2, 40, 9, 14), (7, 7), (3, 3), True),
    "MobileNet's": ((2, 8, 8, 10), (3, 3), (1, 1), False),
    "without padding": ((1, 5, 7, 9), (5, 5), (0, 0), True),
    "not square": ((1, 33, 6, 15), (3, 6), (0, 2), True),
    "a number for each channel": ((3, 4, 2, 3), (1, 1), (0, 0), True),
    "no images": ((0, 4, 5, 5), (3, 3), (1, 1), True),
}


@runs_kernels
@pytest.mark.parametrize("name", LAYERS)
def test_filters_of_single_channels_and_their_gradients(name):
    shape, filters, padding, biased = LAYERS[name]
    drawn = torch.Generator().manual_seed(3)
    kind = torch.float32 if INTERPRETED else torch.float16
    x, weight = (torch.randn(size, generator=drawn) for size in (shape, (shape[1], 1, *filters)))
    bias = [torch.randn(shape[1], generator=drawn)] if biased else []
    given = [v.to(DEVICE, kind).requires_grad_() for v in (x, weight, *bias)]
    exact = [v.detach().double().requires_grad_() for v in given]
    found = depthwise.depthwise(given[0], given[1], given[2] if biased else None, list(padding))
    wanted = F.conv2d(*exact, padding=padding, groups=shape[1])
    back = torch.randn(wanted.shape, generator=drawn).to(DEVICE, kind)
    mine = (found, *torch.autograd.grad(found, given, back))
    theirs = (wanted, *torch.autograd.grad(wanted, exact, back.double()))
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == kind and one.shape == other.shape
        assert largest(one - other) <= (1e-5 if INTERPRETED else 2e-3) * largest(other)


def largest(values: torch.Tensor) -> float:
    return float(values.detach().abs().max()) if values.numel() else 0.0
