"""The levels that `holdfast.removal.harmonic.multigrid` works on, coarser and coarser, and a V-cycle through them.

All buffers are made once, and with them the lists of calls that are a V-cycle. On a CPU the finest level is worked on
one channel after the other, each of them in full before the next, because that much fits its cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from holdfast.removal.harmonic.grids import (
    Mask,
    Plane,
    Room,
    Step,
    gathered,
    line_filter,
    mask,
    neighbour_sums,
    neighbours,
    plane,
    room,
    spread,
)

COARSEST = 256
"""Cells up to which a level is solved by a dense factorisation."""

FIRST = slice(0, 1)
"""The channel in which what all channels share is computed."""


@dataclass(frozen=True)
class Level:
    """The buffers of one level: of all channels or, at the finest level, of some."""

    mask: Mask
    residual: Plane
    z: Plane
    room: Room


@dataclass(frozen=True)
class Lane:
    """Some channels of the finest level, the search direction and the field there, and prepared calls.

    `begin` gives the residual of the field, `down` ends with that of the next level, `up` begins with its solution.
    """

    channels: slice
    level: Level
    direction: Plane
    field: Plane
    begin: tuple[Step, ...]
    down: tuple[Step, ...]
    up: tuple[Step, ...]
    direction_sums: tuple[Step, ...]


@dataclass(frozen=True)
class Hierarchy:
    """What `fill` works in: D and 1/D of the finest level, W and the inverse of A of the last, and prepared calls."""

    diagonal: Plane
    diagonal_inverse: Plane
    levels: tuple[Level, ...]
    field: Plane
    stencil: Tensor
    inverse: Tensor
    lanes: tuple[Lane, ...]
    coarse: tuple[Step, ...]
    mask_sums: tuple[tuple[Step, ...], ...]
    contacts: tuple[tuple[Step, ...], ...]


def hierarchy(n: int, channels: int, height: int, width: int, like: Tensor) -> Hierarchy:
    """Buffers for n images of this size, on the device and in the precision of `like`.

    >>> [tuple(level.z.pixels.shape) for level in hierarchy(1, 3, 33, 20, torch.zeros(())).levels]
    [(1, 3, 33, 20), (1, 3, 17, 10)]
    """
    diagonal, diagonal_inverse = (plane(1, 1, height, width, like) for _ in range(2))
    diagonal.pixels.copy_(neighbour_sums(height, width, like))
    diagonal_inverse.pixels.copy_(1 / diagonal.pixels)
    field, direction = (plane(n, channels, height, width, like) for _ in range(2))
    at_once = channels if like.device.type != "cpu" else 1
    levels = [_level(n, channels, height, width, at_once, like)]
    while height * width > COARSEST:
        height, width = (height + 1) // 2, (width + 1) // 2
        levels.append(_level(n, channels, height, width, channels, like))
    inverse = like.new_zeros(n, height * width, height * width)
    return Hierarchy(
        diagonal,
        diagonal_inverse,
        tuple(levels),
        field,
        torch.kron(line_filter(height, like), line_filter(width, like)),
        inverse,
        tuple(_lane(levels, field, direction, slice(i, i + at_once)) for i in range(0, channels, at_once)),
        tuple(_cycle(levels[1:] or levels, inverse)),
        tuple(tuple(_mask_sums(level)) for level in levels),
        tuple(
            tuple(gathered(a.mask.contact, a.room.sums.channels(FIRST), b.mask.contact)) for a, b in pairwise(levels)
        ),
    )


def _level(n: int, channels: int, height: int, width: int, at_once: int, like: Tensor) -> Level:
    residual, z = (plane(n, channels, height, width, like) for _ in range(2))
    return Level(mask(n, height, width, like), residual, z, room(n, at_once, height, width, like))


def _lane(levels: list[Level], field: Plane, direction: Plane, some: slice) -> Lane:
    here = _part(levels[0], some)
    p, u = direction.channels(some), field.channels(some)
    coarse = _part(levels[1], some) if len(levels) > 1 else None
    return Lane(
        some,
        here,
        p,
        u,
        (*neighbours(u, here.room.spare, here.residual), _smooth(here)),
        tuple(_descent(here, coarse) if coarse else ()),
        tuple(_ascent(here, coarse) if coarse else ()),
        tuple(neighbours(p, here.room.spare, here.room.sums)),
    )


def _part(level: Level, some: slice) -> Level:
    """Some channels of a level; at the finest, all use the same room."""
    return Level(level.mask, level.residual.channels(some), level.z.channels(some), level.room)


def _mask_sums(level: Level) -> list[Step]:
    """Steps for the first channel of the sums ← Wm."""
    room = level.room.channels(FIRST)
    return neighbours(level.mask.unknown, room.spare, room.sums)


def _cycle(levels: list[Level], inverse: Tensor) -> list[Step]:
    """z ← V-cycle of the residual, at the first of the levels."""
    level, *coarser = levels
    if not coarser:
        residual, z = level.residual.pixels, level.z.pixels
        dense, solved = (torch.empty_like(z.flatten(2)) for _ in range(2))
        return [
            partial(dense.view(z.shape).copy_, residual),
            partial(torch.bmm, dense, inverse, out=solved),
            partial(z.copy_, solved.view(z.shape)),
        ]
    return [_smooth(level), *_descent(level, coarser[0]), *_cycle(coarser, inverse), *_ascent(level, coarser[0])]


def _smooth(level: Level) -> Step:
    """The first sweep, from zero: z = D⁻¹r. It leaves the residual Wz."""
    return partial(torch.mul, level.residual.core, level.mask.inverse.core, out=level.z.core)


def _descent(level: Level, coarse: Level) -> list[Step]:
    """The residual PᵀWz of the next level."""
    spare, sums = level.room.spare, level.room.sums
    return [
        *neighbours(level.z, spare, sums),
        partial(torch.mul, sums.core, level.mask.share.core, out=spare.core),
        *gathered(spare, sums, coarse.residual),
    ]


def _ascent(level: Level, coarse: Level) -> list[Step]:
    """The correction, z + P coarse z, and the last sweep, which gives D⁻¹(r + W(z + P coarse z))."""
    z, spare, sums = level.z.core, level.room.spare, level.room.sums
    return [
        *spread(coarse.z, sums, spare),
        partial(torch.addcmul, z, spare.core, level.mask.share.core, out=spare.core),
        *neighbours(spare, spare, sums),
        partial(torch.addcmul, z, sums.core, level.mask.inverse.core, out=z),
    ]
