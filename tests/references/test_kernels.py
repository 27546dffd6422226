"""The kernels for a GPU compute what their twins in plain torch compute, there and in the interpreter of Triton."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from heatproof import kernels
from heatproof.features import superpixels as segment
from heatproof.kernels import depthwise, quickshift, ssim
from heatproof.maps import ssim as windows
from heatproof.maps.similarity import compare, compare_all, profile

runs_kernels = pytest.mark.skipif(not kernels.AVAILABLE, reason="Triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
LAUNCHED = {
    quickshift: ("_density_kernel", "_links_kernel"),
    ssim: ("_products_kernel", "_scores_kernel"),
}
LAUNCHED[depthwise] = ("_depthwise_kernel",)
CALLED = {ssim: ("_total",), depthwise: ("_tap", "_weight")}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def fused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where kernels run; the interpreter takes tensors of the CPU, and what only a GPU's library has is NumPy's."""
    if request.param == "cuda":
        return "cuda"
    from triton.runtime.interpreter import InterpretedFunction, TensorHandle

    if tuple(map(int, version("triton").split(".")[:2])) < (3, 7):
        pytest.skip(
            "the interpreter of Triton before 3.7 takes no loop of a length that is given to it"
        )
    for module, names in LAUNCHED.items():
        for name in names:
            body = getattr(module, name).fn
            monkeypatch.setitem(
                InterpretedFunction.rewritten_fn, body, body
            )  # as it stands in its file
            monkeypatch.setattr(module, name, InterpretedFunction(body))
    for module, names in CALLED.items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name).fn)
    tl = ssim.tl

    def of_block(function: Any, like: Any, *axis: int) -> Any:
        found = np.atleast_1d(function(like.handle.data, *axis))
        kind = like.dtype.scalar
        return tl.tensor(TensorHandle(found, kind), kind if axis else like.type)

    monkeypatch.setattr(quickshift.libdevice, "exp2", lambda values: of_block(np.exp2, values))
    monkeypatch.setattr(tl, "sum", lambda values, axis: of_block(np.sum, values, axis))
    monkeypatch.setattr(
        tl, "zeros", lambda shape, kind=None, dtype=None: tl.full(shape, 0, dtype or kind)
    )
    for module in (segment, windows):
        monkeypatch.setattr(module, "fused", lambda values: True)
    return "cpu"


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
    colours = 0.2 * segment.lab(scenes(2, 9, 15).to(fused))
    found = segment._segments(
        colours, kernel_size, max_dist
    )  # in this thread: the interpreter knows one only
    dense = segment._density(colours, kernel_size, 3)
    plain(monkeypatch)
    wanted = segment._segments(colours, kernel_size, max_dist)
    assert torch.equal(found, wanted) and int(wanted.max()) > 0
    step = 1 / segment._DENSITY_STEPS  # that rounding may cross
    torch.testing.assert_close(
        dense, segment._density(colours, kernel_size, 3), rtol=0, atol=1.5 * step
    )


def maps(seed: int, device: str) -> torch.Tensor:
    return torch.randn(4, 2, 14, 17, generator=torch.Generator().manual_seed(seed)).to(device)


@runs_kernels
@pytest.mark.parametrize("masked", [False, True])
def test_ssim_of_pairs_and_of_all(fused, monkeypatch, masked):
    valid = torch.ones(1, 1, 14, 17, dtype=torch.bool, device=fused)
    valid[..., :4] = not masked
    profiles = [
        profile(values, 10, valid=valid)
        for values in (maps(0, fused), maps(0, fused) + maps(1, fused) / 4)
    ]
    monkeypatch.setattr(windows, "_at_once", lambda values: 3)  # which does not divide the pairs
    found = compare(*profiles)["ssim"], compare_all(profiles[0][:3], profiles[1])["ssim"]
    plain(monkeypatch)
    wanted = compare(*profiles)["ssim"], compare_all(profiles[0][:3], profiles[1])["ssim"]
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.shape == theirs.shape
        assert torch.allclose(mine, theirs, atol=1e-6, rtol=0)


@runs_kernels
@pytest.mark.parametrize("side", [13, 24])
def test_a_map_and_itself_score_exactly_one(fused, side):
    values = torch.randn(3, 3, side, 20, generator=torch.Generator().manual_seed(2)).to(fused)
    found = profile(values, 10)
    assert compare(found, found)["ssim"].tolist() == [1.0] * 3
    assert compare_all(found, found)["ssim"].diagonal().tolist() == [1.0] * 3


LAYERS = {
    "as wide as ConvNeXt's": ((2, 8, 5, 9), (2, 7), (1, 3), True),
    "MobileNet's": ((2, 8, 8, 10), (3, 3), (1, 1), False),
    "without padding": ((1, 5, 7, 9), (5, 5), (0, 0), True),
    "not square": ((1, 33, 6, 15), (3, 6), (0, 2), True),
    "a number for each channel": ((3, 4, 2, 3), (1, 1), (0, 0), True),
    "no images": ((0, 4, 5, 5), (3, 3), (1, 1), True),
    **{f"{n} columns": ((1, 3, 2, n), (1, 3), (0, 1), False) for n in range(1, 8)},
}


@runs_kernels
@pytest.mark.parametrize("name", LAYERS)
def test_filters_of_single_channels_and_their_gradients(fused, name):
    shape, filters, padding, biased = LAYERS[name]
    drawn = torch.Generator().manual_seed(3)
    kind = torch.float32 if fused == "cpu" else torch.float16
    x, weight = (torch.randn(size, generator=drawn) for size in (shape, (shape[1], 1, *filters)))
    bias = [torch.randn(shape[1], generator=drawn)] if biased else []
    given = [v.to(fused, kind).requires_grad_() for v in (x, weight, *bias)]
    exact = [v.detach().double().requires_grad_() for v in given]
    found = depthwise.depthwise(given[0], given[1], given[2] if biased else None, list(padding))
    wanted = F.conv2d(*exact, padding=padding, groups=shape[1])
    back = torch.randn(wanted.shape, generator=drawn).to(fused, kind)
    mine = (found, *torch.autograd.grad(found, given, back))
    theirs = (wanted, *torch.autograd.grad(wanted, exact, back.double()))
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == kind and one.shape == other.shape
        assert largest(one - other) <= (1e-5 if fused == "cpu" else 2e-3) * largest(other)


def largest(values: torch.Tensor) -> float:
    return float(values.detach().abs().max()) if values.numel() else 0.0


def test_the_shape_of_filtered_images_is_known_without_them():
    with torch._subclasses.FakeTensorMode():
        found = depthwise.depthwise(torch.empty(2, 4, 7, 9), torch.empty(4, 1, 3, 6), None, [0, 2])
    wanted = F.conv2d(torch.zeros(2, 4, 7, 9), torch.zeros(4, 1, 3, 6), padding=(0, 2), groups=4)
    assert found.shape == wanted.shape and found.is_contiguous(memory_format=torch.channels_last)
