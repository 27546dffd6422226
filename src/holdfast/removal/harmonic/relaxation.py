"""Filling one image whose removed pixels lie close to kept ones, by successive over-relaxation.

The equations are those of `linear`, times 12. Pixels have one of four colours, by the parity of row
and column; no pixel is a neighbour of its own colour, so a sweep moves all pixels of a colour at once,

    u ← u + ω m (W u / D − u),

with m the removed pixels, W the eight neighbours with weights 1 and 2, and D the sum of those weights. Each colour has
a buffer of its own in which its pixels lie side by side, and a sweep is a fixed list of long additions. Where removed
pixels are scattered it divides the residual by about three; where they lie in blobs it does not get far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from holdfast.removal.harmonic.grids import Plane, Step, neighbour_sums, plane, run

COLOURS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Parity of row and column."""

_SWEEPS_PER_DIGIT = 1.8
"""Sweeps to a decimal digit of the tolerance before the residual is looked at for the first time."""

_PATIENCE = 4
"""Sweeps to a decimal digit after which the image is given up."""


@dataclass(frozen=True)
class Colours:
    """What `relaxed` works in. The first axis of the planes is the colour; `places` are its pixels in field and weight.

    `weight` is ω m, set by a mask; `pulls` are the calls that set `means` to W u / D for a colour.
    """

    field: Plane
    weight: Plane
    places: tuple[tuple[Tensor, Tensor], ...]
    means: Tensor
    pulls: tuple[tuple[Step, ...], ...]


def colours(channels: int, height: int, width: int, like: Tensor) -> Colours:
    """Buffers for an image of this size, on the device and in the precision of `like`.

    >>> tuple(colours(3, 5, 6, torch.zeros(())).field.pixels.shape)
    (4, 3, 3, 3)
    """
    rows, columns = (height + 1) // 2, (width + 1) // 2
    field, weight, inverse = (plane(4, c, rows, columns, like) for c in (channels, 1, 1))
    inverse_there = _coloured(1 / neighbour_sums(height, width, like))
    pitch, size = field.pitch, field.core.shape[-1]
    tall, across, means = (like.new_empty(channels, length) for length in (size + pitch, size, size))
    places: list[tuple[Tensor, Tensor]] = []
    pulls: list[tuple[Step, ...]] = []
    for k, (row, column) in enumerate(COLOURS):
        own = inverse_there[k]
        height_there, width_there = own.shape
        inverse.pixels[k, 0, :height_there, :width_there] = own
        values, weights = (part.pixels[k, :, :height_there, :width_there] for part in (field, weight))
        places.append((values, weights))
        beside, below, corner = (
            field.flat[COLOURS.index(of)] for of in ((row, 1 - column), (1 - row, column), (1 - row, 1 - column))
        )
        left, upper = pitch + column, row * pitch  # offsets to the neighbours on the left, and to the row above
        pulls.append(
            (
                partial(torch.add, *_pair(corner, upper + column, 1, size + pitch), out=tall),
                partial(torch.add, tall, _part(below, upper + 1, size + pitch), alpha=2, out=tall),
                partial(torch.add, *_pair(tall, 0, pitch, size), out=means),
                partial(torch.add, *_pair(beside, left, 1, size), out=across),
                partial(torch.add, means, across, alpha=2, out=means),
                partial(means.mul_, inverse.core[k]),
            )
        )
    return Colours(field, weight, tuple(places), means, tuple(pulls))


def relaxed(work: Colours, x: Tensor, keep: Tensor, tolerance: float, factor: float) -> Tensor | None:
    """x (C, H, W) with the removed pixels filled, or None if the residual does not fall as it does for scattered ones.

    Ends when the residual, divided by D, is at most `tolerance` times what it is with the mean of the kept pixels at
    the removed ones, in every channel. What x holds there is not read. At least one pixel must be kept; `factor` is ω.

    >>> x, keep = torch.rand(1, 20, 20), torch.ones(20, 20, dtype=torch.bool)
    >>> keep[5, 5] = False
    >>> around = x[0, 4:7, 4:7] * torch.tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]])
    >>> filled = relaxed(colours(1, 20, 20, x), x, keep, 1e-6, 1.0)
    >>> bool((filled[0, 5, 5] - around.sum() / 12).abs() < 1e-5)
    True
    """
    field, weight = work.field.core, work.weight.core
    kept = keep.to(x.dtype)
    # A constant is a solution: without it, less is lost to rounding, and no offset changes what the tolerance means.
    mean = ((x * kept).sum((1, 2)) / kept.sum())[:, None, None]
    for (values, weights), pixels, there in zip(work.places, _coloured(x - mean), _coloured(kept), strict=True):
        torch.mul(pixels, there, out=values)
        torch.sub(factor, there, alpha=factor, out=weights[0])
    limit = tolerance * _residual(work)
    moves = list(zip(work.pulls, field, weight, strict=True))
    digits = -math.log10(tolerance)
    done, ahead = 0, math.ceil(_SWEEPS_PER_DIGIT * digits)
    while done + ahead <= _PATIENCE * digits:
        for _ in range(ahead):
            for pull, moving, by in moves:
                run(pull)
                moving.addcmul_(work.means.sub_(moving), by)
        done += ahead
        excess = float((_residual(work) / limit.clamp(min=torch.finfo(x.dtype).tiny)).amax())
        if excess <= 1:
            filled = torch.empty_like(x)
            for (values, _), pixels in zip(work.places, _coloured(filled), strict=True):
                pixels.copy_(values)
            return torch.where(keep, x, filled + mean)
        ahead = math.ceil(math.log(excess, 3))
    return None


def _residual(work: Colours) -> Tensor:
    """The norm of ω m (W u / D − u) in each channel, (C,)."""
    norms = []
    for pull, field, weight in zip(work.pulls, work.field.core, work.weight.core, strict=True):
        run(pull)
        norms.append(torch.linalg.vector_norm(work.means.sub_(field).mul_(weight), dim=-1))
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return total


def _coloured(x: Tensor) -> list[Tensor]:
    """The pixels of each colour of x (…, H, W), as views."""
    return [x[..., row::2, column::2] for row, column in COLOURS]


def _part(flat: Tensor, start: int, length: int) -> Tensor:
    return flat[..., start : start + length]


def _pair(flat: Tensor, start: int, step: int, length: int) -> tuple[Tensor, Tensor]:
    return _part(flat, start, length), _part(flat, start + step, length)
