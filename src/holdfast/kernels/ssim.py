"""Structural similarity of many pairs of maps: two readings of a pair, where plain operations take twenty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.kernels import AVAILABLE, OPTIONS

if TYPE_CHECKING:
    from holdfast.maps.ssim import SsimWindows

WINDOW = 11
_PLACES_AT_ONCE = 1024

if AVAILABLE:
    import triton
    import triton.language as tl

    # Pair p is map p of both sides; with EVERY, map p // columns of the first side and p % columns of the second.
    # Sums are taken in the order of `windows._window_sums`, so that a map and itself score exactly 1.

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _total(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10):  # type: ignore[no-untyped-def]
        return (x0 + (x1 + x2)) + (((x3 + x4) + (x5 + x6)) + ((x7 + x8) + (x9 + x10)))

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _products_kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations in a way of its own
        first, second, sums, start, columns, length, EVERY: tl.constexpr, BLOCK: tl.constexpr
    ):
        """Sums of 11 neighbouring products in each row of a pair's maps (length + 10 values each)."""
        pair = start + tl.program_id(1).to(tl.int64)
        here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = here < length
        a = first + (pair // columns if EVERY else pair) * (length + 10) + here
        b = second + (pair % columns if EVERY else pair) * (length + 10) + here
        x0 = tl.load(a, mask=inside) * tl.load(b, mask=inside)
        x1 = tl.load(a + 1, mask=inside) * tl.load(b + 1, mask=inside)
        x2 = tl.load(a + 2, mask=inside) * tl.load(b + 2, mask=inside)
        x3 = tl.load(a + 3, mask=inside) * tl.load(b + 3, mask=inside)
        x4 = tl.load(a + 4, mask=inside) * tl.load(b + 4, mask=inside)
        x5 = tl.load(a + 5, mask=inside) * tl.load(b + 5, mask=inside)
        x6 = tl.load(a + 6, mask=inside) * tl.load(b + 6, mask=inside)
        x7 = tl.load(a + 7, mask=inside) * tl.load(b + 7, mask=inside)
        x8 = tl.load(a + 8, mask=inside) * tl.load(b + 8, mask=inside)
        x9 = tl.load(a + 9, mask=inside) * tl.load(b + 9, mask=inside)
        x10 = tl.load(a + 10, mask=inside) * tl.load(b + 10, mask=inside)
        total = _total(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10)
        tl.store(sums + tl.program_id(1).to(tl.int64) * length + here, total, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _scores_kernel(  # type: ignore[no-untyped-def]
        sums, mean_a, mean_b, light_a, light_b, contrast_a, contrast_b, scores,
        start, columns, length, places, step, share, c1, c2, EVERY: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """The sum over a block of places of SSIM, from the sums of rows (length each), 11 of them a step apart."""
        row = tl.program_id(1).to(tl.int64)
        pair = start + row
        here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = here < places
        s = sums + row * length + here
        x0 = tl.load(s, mask=inside)
        x1 = tl.load(s + step, mask=inside)
        x2 = tl.load(s + 2 * step, mask=inside)
        x3 = tl.load(s + 3 * step, mask=inside)
        x4 = tl.load(s + 4 * step, mask=inside)
        x5 = tl.load(s + 5 * step, mask=inside)
        x6 = tl.load(s + 6 * step, mask=inside)
        x7 = tl.load(s + 7 * step, mask=inside)
        x8 = tl.load(s + 8 * step, mask=inside)
        x9 = tl.load(s + 9 * step, mask=inside)
        x10 = tl.load(s + 10 * step, mask=inside)
        covariance = _total(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10) * share
        a = (pair // columns if EVERY else pair) * places + here
        b = (pair % columns if EVERY else pair) * places + here
        product = tl.load(mean_a + a, mask=inside) * tl.load(mean_b + b, mask=inside)
        covariance = (covariance - product) + c2
        light = tl.load(light_a + a, mask=inside, other=1.0) + tl.load(light_b + b, mask=inside, other=1.0)
        contrast = tl.load(contrast_a + a, mask=inside, other=1.0) + tl.load(contrast_b + b, mask=inside, other=1.0)
        score = tl.div_rn(product + c1, light) * tl.div_rn(covariance, contrast)
        total = tl.sum(tl.where(inside, score, 0.0).to(tl.float64), 0)
        tl.store(scores + row * tl.num_programs(0) + tl.program_id(0), total)


def ssim_of_pairs(a: SsimWindows, b: SsimWindows, c1: float, c2: float, at_once: int, every: bool = False) -> Tensor:
    """(B,) of pairs, or with `every` (A, B) of all maps of a with all of b; windows are 11 × 11.

    `c1` and `c2` are half the constants of SSIM, `at_once` is how many pairs exist in memory at a time.
    """
    columns = len(b.count)
    pairs = len(a.count) * columns if every else columns
    places, (_, step) = a.mean.shape[1], a.steps
    length = places + (WINDOW - 1) * step
    blocks = -(-places // _PLACES_AT_ONCE)
    found = a.mean.new_empty(pairs, blocks, dtype=torch.float64)
    sums = a.mean.new_empty(min(at_once, pairs), length)
    sides = [value for name in ("mean", "luminance", "contrast") for value in (getattr(a, name), getattr(b, name))]
    units, sides = [a.unit.contiguous(), b.unit.contiguous()], [value.contiguous() for value in sides]
    for start in range(0, pairs, at_once):
        some = min(at_once, pairs - start)
        grid = (-(-length // _PLACES_AT_ONCE), some)
        _products_kernel[grid](*units, sums, start, columns, length, every, _PLACES_AT_ONCE, **OPTIONS)
        numbers = (start, columns, length, places, step, 1 / WINDOW**2, c1, c2)
        tensors = (sums, *sides, found[start:])
        _scores_kernel[blocks, some](*tensors, *numbers, every, _PLACES_AT_ONCE, **OPTIONS)
    total = found.sum(1)
    if every:
        return total.view(len(a.count), columns) / torch.maximum(a.count[:, None], b.count)
    return total / torch.maximum(a.count, b.count)
