"""Images in flat buffers, the steps of a multigrid cycle on them, and the way between a level and the next.

An image lies in an array whose rows are one zero longer than the picture, so that a filter is four long additions with
no special case at the border. Where its height or width is odd, one more row or column of zeros follows, so that it
falls into cells of 2×2 pixels. A step is a call prepared once, with its buffers, and run many times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

Step = Callable[[], object]

ALIGNED = 16
"""The first pixel of a buffer lies at a multiple of this: arithmetic on a CPU is up to twice as fast there."""


@dataclass(frozen=True)
class Plane:
    """One buffer (n, C, ·) and its views: `core` for arithmetic, `pixels` (n, C, H, W), `ringed` with zeros around.

    `cells` is `pixels` with the row and the column that make them even; `whole` (n, ·) takes all channels as one.
    """

    whole: Tensor
    flat: Tensor
    core: Tensor
    pixels: Tensor
    cells: Tensor
    ringed: Tensor


@dataclass(frozen=True)
class Level:
    """The buffers of one level. 1/τ is fixed; the next four (m, 1/D, m/τ, and q m/τ with q the row sums) follow a mask.

    `spare` is zero beside the pixels, `scratch` anything.
    """

    taps_inverse: Plane
    unknown: Plane
    inverse: Plane
    share: Plane
    contact: Plane
    residual: Plane
    z: Plane
    sums: Plane
    spare: Plane
    scratch: Tensor


def plane(n: int, channels: int, height: int, width: int, like: Tensor) -> Plane:
    """A plane of zeros, on the device and in the precision of `like`.

    >>> zeros = plane(1, 1, 2, 1, torch.zeros(()))
    >>> _ = zeros.pixels.fill_(7)
    >>> zeros.ringed[0, 0].tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 7.0, 0.0, 0.0], [0.0, 7.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    rows, columns = height + height % 2, width + width % 2
    pitch = columns + 1
    length, head = (rows + 2) * pitch + 1, -(pitch + 1) % ALIGNED
    row = -(-(head + length) // ALIGNED) * ALIGNED
    whole = like.new_zeros(n, channels, row)
    flat = whole[..., head : head + length]
    # A row's closing zero is also the next one's opening zero.
    ringed = flat.as_strided((n, channels, rows + 2, columns + 2), (channels * row, row, pitch, 1), head)
    cells = ringed[..., 1:-1, 1:-1]
    return Plane(whole.flatten(1), flat, flat[..., pitch + 1 : -pitch - 1], cells[..., :height, :width], cells, ringed)


def level(n: int, channels: int, height: int, width: int, like: Tensor) -> Level:
    """The buffers for n images of this size, without a mask as yet.

    >>> (1 / level(1, 3, 2, 3, torch.zeros(())).taps_inverse.pixels[0, 0]).tolist()
    [[9.0, 12.0, 12.0], [9.0, 12.0, 12.0]]
    """
    taps_inverse = plane(1, 1, height, width, like)
    taps_inverse.pixels.copy_(1 / (_taps(height, like)[:, None] * _taps(width, like)))
    unknown, inverse, share, contact = (plane(n, 1, height, width, like) for _ in range(4))
    residual, z, sums, spare, scratch = (plane(n, channels, height, width, like) for _ in range(5))
    return Level(taps_inverse, unknown, inverse, share, contact, residual, z, sums, spare, scratch.flat)


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


def run(steps: Sequence[Step]) -> None:
    """All steps in turn."""
    for step in steps:
        step()


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


def filter_sums(source: Plane) -> Tensor:
    """S⊗S source in the layout of `core`, in a new buffer: for what is done once for a mask.

    >>> ones = plane(1, 1, 2, 4, torch.zeros(()))
    >>> _ = ones.pixels.fill_(1)
    >>> filter_sums(ones)[0, 0, :4].tolist()
    [9.0, 12.0, 12.0, 9.0]
    """
    u, pitch = source.flat, source.ringed.stride(2)
    across = u[..., :-1] + u[..., 1:]
    rows = across[..., :-1] + across[..., 1:]
    down = rows[..., :-pitch] + rows[..., pitch:]
    return down[..., :-pitch] + down[..., pitch:]


def cell_sums(source: Plane) -> Tensor:
    """Taps [1, 3, 3, 1] in each direction at every other pixel, (n, C, ⌈H/2⌉, ⌈W/2⌉), in a new buffer.

    >>> ones = plane(1, 1, 3, 2, torch.zeros(()))
    >>> _ = ones.pixels.fill_(1)
    >>> cell_sums(ones).flatten().tolist()
    [42.0, 24.0]
    """
    tall = [source.ringed[..., i : source.ringed.shape[-2] - 3 + i : 2, :] for i in range(4)]
    rows = tall[0] + tall[3] + 3 * (tall[1] + tall[2])
    wide = [rows[..., i : rows.shape[-1] - 3 + i : 2] for i in range(4)]
    return wide[0] + wide[3] + 3 * (wide[1] + wide[2])


def cell_maxima(source: Plane) -> Tensor:
    """The largest of each 2×2 cell, (n, C, ⌈H/2⌉, ⌈W/2⌉), of a plane without negative values."""
    rows = torch.maximum(source.cells[..., 0::2, :], source.cells[..., 1::2, :])
    return torch.maximum(rows[..., 0::2], rows[..., 1::2])


def restricted(level: Level, coarse: Level) -> list[Step]:
    """Steps for coarse.residual ← Pᵀ level.sums: taps [1, 3, 3, 1] in each direction at every other pixel."""
    n, channels, rows, columns = coarse.z.pixels.shape
    new, ringed = level.z.flat.new_zeros, level.spare.ringed
    outer, inner = (new(n, channels, rows, 2 * columns + 2) for _ in range(2))
    ends, middle = (new(n, channels, rows, columns) for _ in range(2))
    tall = [ringed[..., i : i + 2 * rows - 1 : 2, :] for i in range(4)]
    wide = [inner[..., i : i + 2 * columns - 1 : 2] for i in range(4)]
    return [
        partial(torch.mul, level.sums.core, level.share.core, out=level.spare.core),
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
    n, channels, rows, columns = coarse.z.pixels.shape
    wide = level.z.flat.new_zeros(n, channels, rows + 2, 2 * columns)
    left, middle, right = (coarse.z.ringed[..., : rows + 2, i : i + columns] for i in range(3))
    above, centre, below = (wide[..., i : i + rows, :] for i in range(3))
    both = level.spare.cells
    return [
        partial(torch.add, left, middle, alpha=3, out=wide[..., 0::2]),
        partial(torch.add, right, middle, alpha=3, out=wide[..., 1::2]),
        partial(torch.add, above, centre, alpha=3, out=both[..., 0::2, :]),
        partial(torch.add, below, centre, alpha=3, out=both[..., 1::2, :]),
        partial(torch.addcmul, level.z.core, level.spare.core, level.share.core, out=level.z.core),
    ]
