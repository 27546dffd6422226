"""Structural similarity (SSIM) by sums over windows, of pairs of maps and of many maps with many.

With means μ, variances σ² and the covariance σ₁₂ over a window around each position, SSIM is the mean over positions of

    (2μ₁μ₂ + c₁)(2σ₁₂ + c₂) / ((μ₁² + μ₂² + c₁)(σ₁² + σ₂² + c₂)),  c₁ = 0.01², c₂ = 0.03²

for maps scaled to [0, 1] (Wang et al., 2004). Everything but the covariance belongs to one map alone and is computed
once, as `SsimWindows`. Numerator and denominator are halved throughout, which saves two multiplications.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from heatproof.kernels import fused

_C1, _C2 = 0.01**2, 0.03**2
WINDOW = 11
IN_CACHE, IN_MEMORY = 1 << 18, 1 << 25
"""How many values of pairs of maps are worked on at once: on a CPU few enough for its cache, and on a GPU."""


@dataclass(frozen=True)
class SsimWindows:
    """Statistics of the windows of B maps, each laid out as one row with zeros between the rows of its planes.

    So windows are sums over shifted rows, and a window that reaches over an edge finds zeros there.

    unit       (B, M + reach) the map scaled to [0, 1], zero where invalid
    mean       (B, M) the mean μ of each window
    luminance  (B, M) (μ² + c₁/2) / 2
    contrast   (B, M) (σ² + c₂/2) / 2; infinite, which scores 0, at positions that do not count
    count      (B,) how many positions count
    steps      from a position to its neighbour along each dimension of the window
    """

    unit: Tensor
    mean: Tensor
    luminance: Tensor
    contrast: Tensor
    count: Tensor
    steps: tuple[int, ...]

    def __getitem__(self, index: Any) -> SsimWindows:
        """Return the statistics of a selection of the B maps, such as `windows[:2]`; `index` selects along the batch."""
        return SsimWindows(
            unit=self.unit[index],
            mean=self.mean[index],
            luminance=self.luminance[index],
            contrast=self.contrast[index],
            count=self.count[index],
            steps=self.steps,
        )


def windows_of(
    maps: Tensor,
    low: Tensor,
    high: Tensor,
    valid: Tensor | None,
    window: int,
    padding: str = "zero",
    dims: int | None = None,
) -> SsimWindows:
    """Return what SSIM needs of each map: means and variances of the windows around all positions.

    `maps` (B, …) are finite; `low` and `high` (B,) are their least and greatest values where `valid`, a mask that
    broadcasts to them, is true. Windows reach over the last `dims` dimensions, by default over two, and over one
    of (B, T) maps. With the padding "zero" every position counts, with "valid" only those whose window lies inside.
    """
    dims = min(maps.ndim - 1, dims or 2)
    margin = window // 2
    unit = _scaled_to_unit(maps, low, high)
    if valid is not None:
        unit.masked_fill_(~valid, 0)

    # Each map becomes one long row. A margin of zeros before each line pads the end of the line before it too. Then a step
    # along a dimension is a fixed distance in the row.
    padded_sides = [side + margin for side in maps.shape[:-dims:-1]]
    steps = tuple(math.prod(padded_sides[:i]) for i in range(dims))
    laid_out = F.pad(unit, (margin, 0) * dims).flatten(1)
    laid_out = F.pad(laid_out, (0, (window - 1) * sum(steps)))
    chunks = [_statistics(chunk, window, steps) for chunk in torch.split(laid_out, _at_once(unit))]
    mean, luminance, contrast = (torch.cat(parts) for parts in zip(*chunks, strict=True))

    if valid is None:
        counts = torch.ones_like(maps[:1], dtype=torch.bool)
    else:
        counts = valid.expand_as(maps)
    if padding == "valid":
        is_inside = torch.zeros_like(maps[:1], dtype=torch.bool)
        inner = slice(margin, margin - window + 1 or None)
        is_inside[(..., *[inner] * dims)] = True
        counts = counts & is_inside
    is_outside = ~F.pad(counts, (0, margin) * dims).flatten(1)
    count = counts.flatten(1).sum(1).expand(len(maps))
    contrast = contrast.masked_fill_(is_outside, torch.inf)
    return SsimWindows(laid_out, mean, luminance, contrast, count, steps)


def _scaled_to_unit(maps: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return (maps − low) / (high − low), where constant maps become zero."""
    shape = (-1, *[1] * (maps.ndim - 1))
    span = (high - low).view(shape).clamp_min(torch.finfo(maps.dtype).tiny)
    return (maps - low.view(shape)).div_(span)


def _statistics(rows: Tensor, window: int, steps: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, luminance and contrast of all windows of maps laid out as `rows`, (B, M) each.

    With μ and σ² of a window, luminance is (μ² + c₁/2) / 2 and contrast (σ² + c₂/2) / 2: the terms of SSIM's formula that
    depend on one map alone, halved.
    """
    # By the same operations as `_ssim`, so that equal maps score exactly 1.
    share = 1 / window ** len(steps)
    mean = _window_sums(rows, window, steps) * share
    square = mean * mean
    variance = (_window_sums(rows * rows, window, steps) * share).sub_(square)
    luminance = square.add_(_C1 / 2).mul_(0.5)
    contrast = variance.add_(_C2 / 2).mul_(0.5)
    return mean, luminance, contrast


def _window_sums(rows: Tensor, window: int, steps: tuple[int, ...]) -> Tensor:
    """Return the sums over windows of maps that are laid out as rows: `window` neighbours along each dimension, (…, M).

    `steps` are the distances in a row between neighbours along each dimension. Sums are made by doubling: a sum of 2
    neighbours is two sums of 1, one of 4 is two of 2, and so on. A window of 11 is the sum of 8, of 2 and of 1, by its
    binary digits. That takes about 2·log₂(window) additions per dimension in place of window − 1.
    """
    for step in steps:
        size = rows.shape[-1] - (window - 1) * step
        total: Tensor | None = None
        offset = 0  # where the next summand begins
        sums, width = rows, 1  # sums[i] is the sum of `width` neighbours from i on
        while width <= window:
            if window & width:
                summand = sums.narrow(-1, offset, size)
                total = summand if total is None else total + summand
                offset += width * step
            if 2 * width <= window:
                length = sums.shape[-1] - width * step
                sums = sums.narrow(-1, 0, length) + sums.narrow(-1, width * step, length)
            width *= 2
        assert total is not None  # because a window is at least 1 wide
        rows = total
    return rows


def _at_once(maps: Tensor) -> int:
    """Return how many maps are worked on at once; no score depends on it."""
    values = IN_CACHE if maps.device.type == "cpu" else IN_MEMORY
    return max(1, values // max(maps[:1].numel(), 1))


def mean_ssim(a: SsimWindows, b: SsimWindows, window: int) -> Tensor:
    """Return the SSIM (B,) of map i of `a` with map i of `b`; if one of them holds a single map, of that with all others."""
    if 1 in (len(a.count), len(b.count)):
        single, many = (a, b) if len(a.count) == 1 else (b, a)
        return ssim_of_all(single, many, window).flatten()
    if _has_kernel(a, window):
        return _by_kernel(a, b)
    size = _at_once(a.mean)
    scores = [_ssim(a[i : i + size], b[i : i + size], window) for i in range(0, len(a.count), size)]
    return torch.cat(scores) if scores else a.count.double()


def ssim_of_all(a: SsimWindows, b: SsimWindows, window: int) -> Tensor:
    """Return the SSIM of every map of `a` with every map of `b`, (A, B) in float64, given their windows' statistics."""
    if _has_kernel(a, window):
        return _by_kernel(a, b, every=True)
    scores = a.count.new_empty(len(a.count), len(b.count), dtype=torch.float64)
    rows = min(_at_once(a.mean), max(len(a.count), 1))
    columns = max(1, _at_once(a.mean) // rows)
    for i, j in product(range(0, len(a.count), rows), range(0, len(b.count), columns)):
        block = slice(i, i + rows), slice(j, j + columns)
        scores[block] = _ssim(a[block[0], None], b[block[1]], window)
    return scores


def _has_kernel(windows: SsimWindows, window: int) -> bool:
    """Return whether there is a GPU kernel for these windows."""
    return window == WINDOW and len(windows.steps) == 2 and fused(windows.unit)


def _by_kernel(a: SsimWindows, b: SsimWindows, every: bool = False) -> Tensor:
    """Return the SSIM of pairs of maps (B,), or with `every` of all maps of a with all of b (A, B), on the GPU."""
    from heatproof.kernels.ssim import ssim_of_pairs  # loads Triton, which is slow

    return ssim_of_pairs(a, b, _C1 / 2, _C2 / 2, _at_once(a.mean), every)


def _ssim(a: SsimWindows, b: SsimWindows, window: int) -> Tensor:
    """Return the SSIM of maps, given the statistics of their windows, which broadcast to each other.

    (2μ₁μ₂ + c₁)(2σ₁₂ + c₂) / ((μ₁² + μ₂² + c₁)(σ₁² + σ₂² + c₂)), averaged over positions (Wang et al. 2004). Every factor
    is halved, and the denominators come from the statistics.
    """
    share = 1 / window ** len(a.steps)
    mean_product = a.mean * b.mean
    covariance = (_window_sums(a.unit * b.unit, window, a.steps) * share).sub_(mean_product)
    score = mean_product.add_(_C1 / 2).div_(a.luminance + b.luminance)
    score.mul_(covariance.add_(_C2 / 2).div_(a.contrast + b.contrast))
    # Rows are summed in float32, and the sums of rows in float64.
    row_length = a.steps[1] if len(a.steps) > 1 else score.shape[-1]
    by_row = score.view(*score.shape[:-1], -1, row_length)
    return by_row.sum(-1).double().sum(-1) / torch.maximum(a.count, b.count)
