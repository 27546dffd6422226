"""Structural similarity of many pairs of maps: a pair is read twice, where plain operations read it twenty times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heatproof.kernels import AVAILABLE, OPTIONS

if TYPE_CHECKING:
    from heatproof.maps.ssim import SsimWindows

WINDOW = 11
_POSITIONS_AT_ONCE = 512

if AVAILABLE:
    import triton
    import triton.language as tl

    # A program compares a block of one map of the second side with `repeats` maps of the first. With EVERY these are all
    # of them, so that what it has read of its own map serves them all; otherwise it is the one of the same number. Sums
    # are taken in the order of `maps.ssim._window_sums`, so that a map and itself score exactly 1.

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _total(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10):  # type: ignore[no-untyped-def]
        return (x0 + (x1 + x2)) + (((x3 + x4) + (x5 + x6)) + ((x7 + x8) + (x9 + x10)))

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _products_kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations in a way of its own
        first, second, sums, start, repeats, length, EVERY: tl.constexpr, BLOCK: tl.constexpr
    ):
        """Store in `sums` the sums of 11 neighbouring products of two maps: the first step of SSIM's covariances.

        Maps are rows of length + 10 values. A sum goes over one direction of the 11 × 11 windows.
        """
        row = tl.program_id(1).to(tl.int64)
        own = start + row
        here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = here < length
        b = second + own * (length + 10) + here
        y0, y1 = tl.load(b, mask=inside), tl.load(b + 1, mask=inside)
        y2, y3 = tl.load(b + 2, mask=inside), tl.load(b + 3, mask=inside)
        y4, y5 = tl.load(b + 4, mask=inside), tl.load(b + 5, mask=inside)
        y6, y7 = tl.load(b + 6, mask=inside), tl.load(b + 7, mask=inside)
        y8, y9 = tl.load(b + 8, mask=inside), tl.load(b + 9, mask=inside)
        y10 = tl.load(b + 10, mask=inside)
        for other in range(repeats):
            a = first + (tl.cast(other, tl.int64) if EVERY else own) * (length + 10) + here
            x0, x1 = tl.load(a, mask=inside) * y0, tl.load(a + 1, mask=inside) * y1
            x2, x3 = tl.load(a + 2, mask=inside) * y2, tl.load(a + 3, mask=inside) * y3
            x4, x5 = tl.load(a + 4, mask=inside) * y4, tl.load(a + 5, mask=inside) * y5
            x6, x7 = tl.load(a + 6, mask=inside) * y6, tl.load(a + 7, mask=inside) * y7
            x8, x9 = tl.load(a + 8, mask=inside) * y8, tl.load(a + 9, mask=inside) * y9
            x10 = tl.load(a + 10, mask=inside) * y10
            total = _total(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10)
            tl.store(sums + (row * repeats + other) * length + here, total, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _scores_kernel(  # type: ignore[no-untyped-def]
        sums, mean_a, mean_b, light_a, light_b, contrast_a, contrast_b, scores,
        start, repeats, length, places, step, share, c1, c2, EVERY: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """Store in `scores` the sum of SSIM over a block of positions of each pair of maps.

        A window's covariance comes from 11 of the row sums that `_products_kernel` stored, `step` apart.
        """
        row = tl.program_id(1).to(tl.int64)
        own = start + row
        here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = here < places
        b = own * places + here
        mean = tl.load(mean_b + b, mask=inside)
        light_own = tl.load(light_b + b, mask=inside, other=1.0)
        contrast_own = tl.load(contrast_b + b, mask=inside, other=1.0)
        for other in range(repeats):
            s = sums + (row * repeats + other) * length + here
            x0, x1 = tl.load(s, mask=inside), tl.load(s + step, mask=inside)
            x2, x3 = tl.load(s + 2 * step, mask=inside), tl.load(s + 3 * step, mask=inside)
            x4, x5 = tl.load(s + 4 * step, mask=inside), tl.load(s + 5 * step, mask=inside)
            x6, x7 = tl.load(s + 6 * step, mask=inside), tl.load(s + 7 * step, mask=inside)
            x8, x9 = tl.load(s + 8 * step, mask=inside), tl.load(s + 9 * step, mask=inside)
            x10 = tl.load(s + 10 * step, mask=inside)
            covariance = _total(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10) * share
            a = (tl.cast(other, tl.int64) if EVERY else own) * places + here
            product = tl.load(mean_a + a, mask=inside) * mean
            covariance = (covariance - product) + c2
            light = tl.load(light_a + a, mask=inside, other=1.0) + light_own
            contrast = tl.load(contrast_a + a, mask=inside, other=1.0) + contrast_own
            score = tl.div_rn(product + c1, light) * tl.div_rn(covariance, contrast)
            total = tl.sum(tl.where(inside, score, 0.0).to(tl.float64), 0)
            tl.store(
                scores + (row * repeats + other) * tl.num_programs(0) + tl.program_id(0), total
            )


def ssim_of_pairs(
    a: SsimWindows, b: SsimWindows, c1: float, c2: float, at_once: int, every: bool = False
) -> Tensor:
    """Return the SSIM (B,) of pairs of maps, or with `every` of all maps of a with all maps of b, (A, B), on a GPU.

    Windows are 11 × 11.
    `c1` and `c2` are half the constants of SSIM; `at_once` is how many pairs are in memory at a time.
    """
    columns = len(b.count)
    repeats = len(a.count) if every else 1
    positions = a.mean.shape[1]
    _, step = a.steps
    length = positions + (WINDOW - 1) * step  # of a row of sums along the first direction
    blocks = math.ceil(positions / _POSITIONS_AT_ONCE)
    columns_at_once = max(1, min(columns, at_once // max(repeats, 1)))

    units = [a.unit.contiguous(), b.unit.contiguous()]
    statistics = []
    for name in ("mean", "luminance", "contrast"):
        statistics += [getattr(a, name).contiguous(), getattr(b, name).contiguous()]
    row_sums = a.mean.new_empty(columns_at_once * repeats, length)
    block_sums = a.mean.new_empty(columns, repeats, blocks, dtype=torch.float64)
    for start in range(0, columns, columns_at_once):
        count = min(columns_at_once, columns - start)
        grid = (math.ceil(length / _POSITIONS_AT_ONCE), count)
        _products_kernel[grid](
            *units, row_sums, start, repeats, length, every, _POSITIONS_AT_ONCE, **OPTIONS
        )
        numbers = (start, repeats, length, positions, step, 1 / WINDOW**2, c1, c2)
        _scores_kernel[blocks, count](
            row_sums,
            *statistics,
            block_sums[start:],
            *numbers,
            every,
            _POSITIONS_AT_ONCE,
            **OPTIONS,
        )
    totals = block_sums.sum(2)
    if every:
        return totals.T / torch.maximum(a.count[:, None], b.count)
    return totals[:, 0] / torch.maximum(a.count, b.count)
