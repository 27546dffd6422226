"""Images in flat buffers, the steps of a multigrid cycle on them, and the way between a level and the next.

An image lies in an array whose rows are one zero longer than the picture, so that a filter is four long additions with
no special case at the border. A step is a call prepared once, with its buffers, and run many times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

Step = Callable[[], object]

ALIGNED = 16
"""The first pixel of a buffer lies at a multiple of this: arithmetic on a CPU is up to twice as fast there."""


@dataclass(frozen=True)
class Plane:
    """One buffer (n, C, ·) and its views: `core` for arithmetic, `pixels` (n, C, H, W), `ringed` with zeros around."""

    flat: Tensor
    core: Tensor
    pixels: Tensor
    ringed: Tensor


@dataclass(frozen=True)
class Level:
    """The buffers of one level. The first three (ρ, 1/D, 1/τ) are fixed, the next (m, m/D, m/τ) set by a mask."""

    rho: Plane
    diagonal_inverse: Plane
    taps_inverse: Plane
    unknown: Plane
    inverse: Plane
    share: Plane
    residual: Plane
    z: Plane
    sums: Plane
    scratch: Tensor


def plane(n: int, channels: int, height: int, width: int, like: Tensor) -> Plane:
    """A plane of zeros, on the device and in the precision of `like`.

    >>> zeros = plane(1, 1, 2, 3, torch.zeros(()))
    >>> _ = zeros.pixels.fill_(7)
    >>> zeros.ringed[0, 0].tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 7.0, 7.0, 7.0, 0.0], [0.0, 7.0, 7.0, 7.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    pitch = width + 1
    length, head = (height + 2) * pitch + 1, -(pitch + 1) % ALIGNED
    row = -(-(head + length) // ALIGNED) * ALIGNED
    flat = like.new_zeros(n, channels, row)[..., head : head + length]
    # A row's closing zero is also the next one's opening zero.
    ringed = flat.as_strided((n, channels, height + 2, width + 2), (channels * row, row, pitch, 1), head)
    return Plane(flat, flat[..., pitch + 1 : -pitch - 1], ringed[..., 1:-1, 1:-1], ringed)


def level(n: int, channels: int, height: int, width: int, like: Tensor) -> Level:
    """The buffers for n images of this size, without a mask as yet.

    >>> level(1, 3, 2, 3, torch.zeros(())).rho.pixels[0, 0].tolist()
    [[9.0, 12.0, 9.0], [9.0, 12.0, 9.0]]
    """
    fixed = [plane(1, 1, height, width, like) for _ in range(3)]
    rows, columns = (line_filter(length, like).sum(1) for length in (height, width))
    rho = rows[:, None] * columns
    taps = _taps(height, like)[:, None] * _taps(width, like)
    for buffer, values in zip(fixed, (rho, 1 / (rho - 4), 1 / taps), strict=True):
        buffer.pixels.copy_(values)
    unknown, inverse, share = (plane(n, 1, height, width, like) for _ in range(3))
    residual, z, sums, scratch = (plane(n, channels, height, width, like) for _ in range(4))
    return Level(fixed[0], fixed[1], fixed[2], unknown, inverse, share, residual, z, sums, scratch.flat)


def line_filter(length: int, like: Tensor) -> Tensor:
    """S, the filter [1, 2, 1] with nothing beyond the border, as a dense matrix.

    >>> line_filter(3, torch.zeros(())).tolist()
    [[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]]
    """
    ones = like.new_ones(length)
    return 2 * ones.diag() + ones[1:].diag(1) + ones[1:].diag(-1)


def _taps(length: int, like: Tensor) -> Tensor:
    """What reaches each pixel of a line from coarse cells that are all 1: 3 from its own, 1 from the next, if any."""
    taps = like.new_full((length,), 4)
    taps[0] = 3
    if length % 2 == 0:
        taps[-1] = 3
    return taps


def filtered(source: Plane, level: Level) -> list[Step]:
    """Steps for level.sums ← S⊗S source, by [1, 1] twice each way. What they leave beside the pixels is not zero."""
    u, pitch = source.flat, source.ringed.stride(2)
    across, rows = level.scratch[..., 1:], level.sums.flat[..., 1:-1]
    down = across[..., : rows.shape[-1] - pitch]
    return [
        partial(torch.add, u[..., :-1], u[..., 1:], out=across),
        partial(torch.add, across[..., :-1], across[..., 1:], out=rows),
        partial(torch.add, rows[..., :-pitch], rows[..., pitch:], out=down),
        partial(torch.add, down[..., :-pitch], down[..., pitch:], out=level.sums.core),
    ]


def restricted(level: Level, coarse: Level) -> list[Step]:
    """Steps for coarse.residual ← Pᵀ level.sums: taps [1, 3, 3, 1] in each direction at every other pixel."""
    height, width = level.z.pixels.shape[-2:]
    n, channels, rows, columns = coarse.z.pixels.shape
    new = level.z.flat.new_zeros
    ringed = new(n, channels, 2 * rows + 2, 2 * columns + 2)
    outer, inner = (new(n, channels, rows, 2 * columns + 2) for _ in range(2))
    ends, middle = (new(n, channels, rows, columns) for _ in range(2))
    tall = [ringed[..., i : i + 2 * rows - 1 : 2, :] for i in range(4)]
    wide = [inner[..., i : i + 2 * columns - 1 : 2] for i in range(4)]
    inside = ringed[..., 1 : height + 1, 1 : width + 1]
    return [
        partial(torch.mul, level.sums.pixels, level.share.pixels, out=inside),
        partial(torch.add, tall[0], tall[3], out=outer),
        partial(torch.add, tall[1], tall[2], out=inner),
        partial(torch.add, outer, inner, alpha=3, out=inner),
        partial(torch.add, wide[0], wide[3], out=ends),
        partial(torch.add, wide[1], wide[2], out=middle),
        partial(torch.add, ends, middle, alpha=3, out=middle),
        partial(torch.mul, middle, coarse.unknown.pixels, out=coarse.residual.pixels),
    ]


def prolonged(level: Level, coarse: Level) -> list[Step]:
    """Steps for level.z ← level.z + P coarse.z."""
    height, width = level.z.pixels.shape[-2:]
    n, channels, rows, columns = coarse.z.pixels.shape
    new = level.z.flat.new_zeros
    wide, both = new(n, channels, rows + 2, 2 * columns), new(n, channels, 2 * rows, 2 * columns)
    left, middle, right = (coarse.z.ringed[..., i : i + columns] for i in range(3))
    above, centre, below = (wide[..., i : i + rows, :] for i in range(3))
    cut = both[..., :height, :width]
    return [
        partial(torch.add, left, middle, alpha=3, out=wide[..., 0::2]),
        partial(torch.add, right, middle, alpha=3, out=wide[..., 1::2]),
        partial(torch.add, above, centre, alpha=3, out=both[..., 0::2, :]),
        partial(torch.add, below, centre, alpha=3, out=both[..., 1::2, :]),
        partial(torch.addcmul, level.z.pixels, cut, level.share.pixels, out=level.z.pixels),
    ]


def quarters(x: Tensor) -> Tensor:
    """Sums over 2×2 cells, (…, H, W) to (…, ⌈H/2⌉, ⌈W/2⌉).

    >>> quarters(torch.ones(3, 3)).tolist()
    [[4.0, 2.0], [2.0, 1.0]]
    """
    padded = even(x, 0)
    rows = padded[..., 0::2, :] + padded[..., 1::2, :]
    return rows[..., 0::2] + rows[..., 1::2]


def even(x: Tensor, value: float) -> Tensor:
    """x (…, H, W) with a last row and a last column of `value` where there is an odd number of them.

    >>> even(torch.zeros(1, 2), 1.0).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    height, width = x.shape[-2:]
    return pad(x, (0, width % 2, 0, height % 2), value=value) if height % 2 or width % 2 else x
