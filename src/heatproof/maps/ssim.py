"""Structural similarity by sums over windows, of pairs of maps and of many maps with many."""

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
"""How many values of pairs of maps are worked on at once: on the CPU few enough for its cache."""


@dataclass(frozen=True)
class SsimWindows:
    """Statistics of the windows of B maps, each laid out as one row with zeros between the rows of its planes.

    So windows are sums over shifted rows, and a window that reaches over an edge finds zeros there.
    """

    unit: Tensor  # (B, M + reach) scaled to [0, 1], zero where invalid
    mean: Tensor  # (B, M) of each window
    luminance: Tensor  # (B, M) (mean² + c₁/2) / 2
    contrast: Tensor  # (B, M) (variance + c₂/2) / 2; infinite, which scores 0, at places that do not count
    count: Tensor  # (B,) places that count
    steps: tuple[int, ...]  # from a place to its neighbour along each dimension of the window

    def __getitem__(self, index: Any) -> SsimWindows:
        """The maps at some positions."""
        return SsimWindows(
            self.unit[index], self.mean[index], self.luminance[index], self.contrast[index], self.count[index],
            self.steps,
        )  # fmt: skip


def windows_of(
    maps: Tensor,
    low: Tensor,
    high: Tensor,
    valid: Tensor | None,
    window: int,
    padding: str = "zero",
    dims: int | None = None,
) -> SsimWindows:
    """The windows of finite maps (B, …) whose least and greatest valid values are `low` and `high` (B,).

    Windows reach over the last `dims` dimensions: unless told over two, and over one of (B, T) maps.
    """
    shape = (-1, *[1] * (maps.ndim - 1))
    dims = min(maps.ndim - 1, dims or 2)
    margin, area = window // 2, window**dims
    least, span = low.view(shape), (high - low).view(shape)
    unit = (maps - least).div_(span.clamp_min(torch.finfo(maps.dtype).tiny))
    if valid is not None:
        unit.masked_fill_(~valid, 0)
    sides = [side + margin for side in maps.shape[:-dims:-1]]
    steps = tuple(math.prod(sides[:i]) for i in range(dims))

    def statistics(part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # By the same operations as `_ssim`, so that equal maps score exactly 1.
        mean = _window_sums(part, window, steps) * (1 / area)
        square = mean * mean
        variance = (_window_sums(part * part, window, steps) * (1 / area)).sub_(square)
        return mean, square.add_(_C1 / 2).mul_(0.5), variance.add_(_C2 / 2).mul_(0.5)

    laid_out = F.pad(unit, (margin, 0) * dims).flatten(1)
    laid_out = F.pad(laid_out, (0, (window - 1) * sum(steps)))
    mean, luminance, contrast = (
        torch.cat(parts)
        for parts in zip(*map(statistics, torch.split(laid_out, _chunk(unit))), strict=True)
    )
    counted = (
        torch.ones_like(maps[:1], dtype=torch.bool) if valid is None else valid.expand_as(maps)
    )
    if padding == "valid":  # a window counts where it lies inside
        inside = torch.zeros_like(maps[:1], dtype=torch.bool)
        inside[(..., *[slice(margin, margin - window + 1 or None)] * len(steps))] = True
        counted = counted & inside
    outside = ~F.pad(counted, (0, margin) * dims).flatten(1)
    count = counted.flatten(1).sum(1).expand(len(maps))
    return SsimWindows(
        laid_out, mean, luminance, contrast.masked_fill_(outside, torch.inf), count, steps
    )


def _window_sums(rows: Tensor, window: int, steps: tuple[int, ...]) -> Tensor:
    """Sums (…, M) of `window` neighbours along each step, by doubling: about 2·log₂(window) additions each."""
    for step in steps:
        size = rows.shape[-1] - (window - 1) * step
        total, offset = None, 0
        power, width = rows, 1  # power[i] is the sum of `width` neighbours from i on
        while width <= window:
            if window & width:
                part = power.narrow(-1, offset, size)
                total, offset = part if total is None else total + part, offset + width * step
            if 2 * width <= window:
                length = power.shape[-1] - width * step
                power = power.narrow(-1, 0, length) + power.narrow(-1, width * step, length)
            width *= 2
        assert total is not None
        rows = total
    return rows


def _chunk(maps: Tensor) -> int:
    """How many maps are worked on at once; no score depends on it."""
    return max(
        1, (IN_CACHE if maps.device.type == "cpu" else IN_MEMORY) // max(maps[:1].numel(), 1)
    )


def mean_ssim(a: SsimWindows, b: SsimWindows, window: int) -> Tensor:
    """(B,) of pairs; one of the two may hold a single map."""
    if 1 in (len(a.count), len(b.count)):
        few, many = (a, b) if len(a.count) == 1 else (b, a)
        return ssim_of_all(few, many, window).flatten()
    if window == WINDOW and len(a.steps) == 2 and fused(a.unit):
        return _by_kernel(a, b)
    size = _chunk(a.mean)
    parts = [_ssim(a[i : i + size], b[i : i + size], window) for i in range(0, len(a.count), size)]
    return torch.cat(parts) if parts else a.count.double()


def ssim_of_all(a: SsimWindows, b: SsimWindows, window: int) -> Tensor:
    """(A, B) of every map of a with every map of b."""
    if window == WINDOW and len(a.steps) == 2 and fused(a.unit):
        return _by_kernel(a, b, every=True)
    score = a.count.new_empty(len(a.count), len(b.count), dtype=torch.float64)
    rows = min(_chunk(a.mean), max(len(a.count), 1))
    columns = max(1, _chunk(a.mean) // rows)
    for i, j in product(range(0, len(a.count), rows), range(0, len(b.count), columns)):
        part = slice(i, i + rows), slice(j, j + columns)
        score[part] = _ssim(a[part[0], None], b[part[1]], window)
    return score


def _by_kernel(a: SsimWindows, b: SsimWindows, every: bool = False) -> Tensor:
    from heatproof.kernels.ssim import ssim_of_pairs  # Triton takes its time to load

    return ssim_of_pairs(a, b, _C1 / 2, _C2 / 2, _chunk(a.mean), every)


def _ssim(a: SsimWindows, b: SsimWindows, window: int) -> Tensor:
    covariance = _window_sums(a.unit * b.unit, window, a.steps) * (1 / window ** len(a.steps))
    score = a.mean * b.mean
    covariance.sub_(score).add_(_C2 / 2)
    score.add_(_C1 / 2).div_(a.luminance + b.luminance)
    score.mul_(covariance.div_(a.contrast + b.contrast))
    by_row = (
        score.view(*score.shape[:-1], -1, a.steps[1]) if len(a.steps) > 1 else score[..., None, :]
    )
    return by_row.sum(-1).double().sum(-1) / torch.maximum(a.count, b.count)
