"""Images in flat buffers, the steps of a multigrid cycle on them, and the way between a level and the next.

An image lies in an array whose rows are one zero longer than the picture, so that a filter is four long additions with
no special case at the border. Where its height or width is odd, one more row or column of zeros follows, so that it
falls into cells of 2×2 pixels. A step is a call prepared once, with its buffers, and run many times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

Step = Callable[[], object]

ALIGNED = 16
"""The first pixel of a buffer lies at a multiple of this: arithmetic on a CPU is up to twice as fast there."""


@dataclass(frozen=True)
class Plane:
    """One buffer (n, C, ·) for images of a size, and its views, which are made when they are first asked for."""

    flat: Tensor
    height: int
    width: int

    @property
    def pitch(self) -> int:
        """From a pixel to the one below."""
        return self.width + self.width % 2 + 1

    @cached_property
    def core(self) -> Tensor:
        """From the first pixel to the last, for arithmetic."""
        return self.flat.narrow(-1, self.pitch + 1, self.flat.shape[-1] - 2 * self.pitch - 2)

    @cached_property
    def ringed(self) -> Tensor:
        """The cells with zeros around, (n, C, rows + 2, columns + 2)."""
        images, channels, _ = self.flat.stride()
        # A row's closing zero is also the next one's opening zero.
        size = (*self.flat.shape[:2], self.height + self.height % 2 + 2, self.pitch + 1)
        return self.flat.as_strided(size, (images, channels, self.pitch, 1), self.flat.storage_offset())

    @cached_property
    def cells(self) -> Tensor:
        """`pixels` with the row and the column that make them even."""
        return self.ringed[..., 1:-1, 1:-1]

    @cached_property
    def pixels(self) -> Tensor:
        """(n, C, H, W)."""
        return self.cells[..., : self.height, : self.width]

    def channels(self, some: slice) -> Plane:
        """The same buffer, seen as if it had these channels only."""
        return Plane(self.flat[:, some], self.height, self.width)


@dataclass(frozen=True)
class Mask:
    """What a level knows of its mask, for all channels: m, m/D, m/τ, and q m/τ with q the row sums. 1/τ is fixed."""

    taps_inverse: Plane
    unknown: Plane
    inverse: Plane
    share: Plane
    contact: Plane


@dataclass(frozen=True)
class Room:
    """Buffers for what does not outlast a half of a cycle: `spare` is zero beside the pixels, `sums` anything."""

    spare: Plane
    sums: Plane

    def channels(self, some: slice) -> Room:
        """The same buffers, seen as if they had these channels only."""
        return Room(self.spare.channels(some), self.sums.channels(some))


def plane(n: int, channels: int, height: int, width: int, like: Tensor) -> Plane:
    """A plane of zeros, on the device and in the precision of `like`.

    >>> zeros = plane(1, 1, 2, 1, torch.zeros(()))
    >>> _ = zeros.pixels.fill_(7)
    >>> zeros.ringed[0, 0].tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 7.0, 0.0, 0.0], [0.0, 7.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    pitch = width + width % 2 + 1
    length, head = (height + height % 2 + 2) * pitch + 1, -(pitch + 1) % ALIGNED
    row = -(-(head + length) // ALIGNED) * ALIGNED
    return Plane(like.new_zeros(n, channels, row).narrow(-1, head, length), height, width)


def mask(n: int, height: int, width: int, like: Tensor) -> Mask:
    """Buffers for n masks of this size, of which 1/τ is set.

    >>> (1 / mask(1, 2, 3, torch.zeros(())).taps_inverse.pixels[0, 0]).tolist()
    [[9.0, 12.0, 12.0], [9.0, 12.0, 12.0]]
    """
    taps_inverse = plane(1, 1, height, width, like)
    taps_inverse.pixels.copy_(1 / (_taps(height, like)[:, None] * _taps(width, like)))
    return Mask(taps_inverse, *(plane(n, 1, height, width, like) for _ in range(4)))


def room(n: int, channels: int, height: int, width: int, like: Tensor) -> Room:
    """Buffers for n images of this size."""
    return Room(*(plane(n, channels, height, width, like) for _ in range(2)))


def line_filter(length: int, like: Tensor) -> Tensor:
    """S, the filter [1, 2, 1] with nothing beyond the border, as a dense matrix.

    >>> line_filter(3, torch.zeros(())).tolist()
    [[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]]
    """
    ones = like.new_ones(length)
    return 2 * ones.diag() + ones[1:].diag(1) + ones[1:].diag(-1)


def neighbour_sums(height: int, width: int, like: Tensor) -> Tensor:
    """D, the sum of the weights of each pixel's neighbours, (H, W).

    >>> neighbour_sums(3, 3, torch.zeros(())).tolist()
    [[5.0, 8.0, 5.0], [8.0, 12.0, 8.0], [5.0, 8.0, 5.0]]
    """
    down, across = like.new_full((height,), 4), like.new_full((width,), 4)
    for line in (down, across):
        line[0] -= 1
        line[-1] -= 1
    return down[:, None] * across - 4


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


def neighbours(source: Plane, spare: Plane, target: Plane) -> list[Step]:
    """Steps for target ← W source: the eight neighbours, weighted 2 at the sides and 1 at the corners.

    Source and spare, which may be one, must be zero beside the pixels; the spare stays so, the target does not.

    >>> ones, spare, sums = (plane(1, 1, 2, 3, torch.zeros(())) for _ in range(3))
    >>> _ = ones.pixels.fill_(1)
    >>> run(neighbours(ones, spare, sums))
    >>> sums.pixels[0, 0].tolist()
    [[5.0, 8.0, 5.0], [5.0, 8.0, 5.0]]
    """
    pitch, sums = source.pitch, target.core
    length = sums.shape[-1]
    above, middle, below = (source.flat.narrow(-1, i * pitch, length + 2) for i in range(3))
    vertical, weighted = (part.flat.narrow(-1, pitch, length + 2) for part in (target, spare))
    return [
        partial(torch.add, above, below, out=vertical),
        partial(torch.add, vertical, middle, alpha=2, out=weighted),
        partial(torch.add, weighted.narrow(-1, 0, length), sums, alpha=2, out=sums),
        partial(torch.add, sums, weighted.narrow(-1, 2, length), out=sums),
    ]


def gathered(source: Plane, scratch: Plane, coarse: Plane) -> list[Step]:
    """Steps for coarse ← taps [1, 3, 3, 1] in each direction at every other pixel of the source.

    >>> ones, scratch, cells = (plane(1, 1, *size, torch.zeros(())) for size in ((3, 2), (3, 2), (2, 1)))
    >>> _ = ones.pixels.fill_(1)
    >>> run(gathered(ones, scratch, cells))
    >>> cells.pixels.flatten().tolist()
    [42.0, 24.0]
    """
    rows, columns = coarse.pixels.shape[2:]
    lines = _carved(scratch, rows, 2 * columns + 2)
    return [
        *_four_taps([source.ringed[..., i : i + 2 * rows - 1 : 2, :] for i in range(4)], lines),
        *_four_taps([lines[..., i : i + 2 * columns - 1 : 2] for i in range(4)], coarse.pixels),
    ]


def spread(coarse: Plane, scratch: Plane, target: Plane) -> list[Step]:
    """Steps for target ← τ P coarse, the transpose of `gathered`."""
    rows, columns = coarse.pixels.shape[2:]
    wide = _carved(scratch, rows + 2, 2 * columns)
    left, middle, right = (coarse.ringed[..., : rows + 2, i : i + columns] for i in range(3))
    above, centre, below = (wide[..., i : i + rows, :] for i in range(3))
    return [
        partial(torch.add, left, middle, alpha=3, out=wide[..., 0::2]),
        partial(torch.add, right, middle, alpha=3, out=wide[..., 1::2]),
        partial(torch.add, above, centre, alpha=3, out=target.cells[..., 0::2, :]),
        partial(torch.add, below, centre, alpha=3, out=target.cells[..., 1::2, :]),
    ]


def _four_taps(parts: list[Tensor], out: Tensor) -> list[Step]:
    first, second, third, last = parts
    return [
        partial(torch.add, first, second, alpha=3, out=out),
        partial(torch.add, out, third, alpha=3, out=out),
        partial(torch.add, out, last, out=out),
    ]


def _carved(scratch: Plane, rows: int, columns: int) -> Tensor:
    """The buffer of a plane as (n, C, rows, columns)."""
    return scratch.flat[..., : rows * columns].view(*scratch.flat.shape[:2], rows, columns)


def cell_maxima(source: Plane) -> Tensor:
    """The largest of each 2×2 cell, (n, C, ⌈H/2⌉, ⌈W/2⌉), of a plane without negative values."""
    rows = torch.maximum(source.cells[..., 0::2, :], source.cells[..., 1::2, :])
    return torch.maximum(rows[..., 0::2], rows[..., 1::2])
