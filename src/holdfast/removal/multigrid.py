"""Harmonic filling of many masked images at once: conjugate gradients preconditioned by one multigrid V-cycle.

The equations are those of `holdfast.removal.linear`, times 12. With W the eight neighbours, weighted 2 at the sides and
1 at the corners, zero beyond the border, and D the sums of those weights, the matrix is A = D − W, restricted to the
removed pixels. One undamped Jacobi sweep divides every oscillating part of the error by three or more: away from the
border D⁻¹A has eigenvalues in (0, 4/3], those of oscillating parts in [2/3, 4/3].

A coarse cell stands for 2×2 finer ones and is unknown as soon as one of them is. Corrections come back by bilinear
interpolation P, that is by the taps [1, 3, 3, 1] each way, times m / τ with m the unknowns and τ such that constants
stay constant; residuals go down by exactly Pᵀ, so that the preconditioner is symmetric. The coarse matrix has W between
unknown cells and a diagonal that makes its row sums q, which say how firmly kept pixels hold a cell; q goes down by Pᵀ
as residuals do, so that a lone kept pixel is felt at every level. The coarsest level is solved exactly.

All buffers are made once, and with them the lists of calls that are a V-cycle. On a CPU the finest level is worked on
one channel after the other, each of them in full before the next, because that much fits its cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from holdfast.errors import UserError
from holdfast.removal.grids import (
    Mask,
    Plane,
    Room,
    Step,
    cell_maxima,
    gathered,
    line_filter,
    mask,
    neighbour_sums,
    neighbours,
    plane,
    room,
    run,
    spread,
)

COARSEST = 256
"""Cells up to which a level is solved by a dense factorisation."""

ITERATIONS = 200
"""Far more than any mask needs; only a tolerance below what the arithmetic can reach gets there."""

SOFTER = 0.8
"""Factor to q from level to level: a wall of kept pixels holds a cell less firmly than its row sum says. Measured."""

_ONE = slice(0, 1)


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


@dataclass
class Progress:
    """Where the images of a lane stand: (n, channels, 1), or a number where that is one."""

    limit: Tensor
    slope: Tensor
    active: Tensor
    iterations: Tensor


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
        tuple(tuple(gathered(a.mask.contact, a.room.sums.channels(_ONE), b.mask.contact)) for a, b in pairwise(levels)),
    )


def fill(work: Hierarchy, x: Tensor, keep: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The images x (n, C, H, W) with the pixels that `keep` (n, H, W) removes filled in; with the iterations (n,).

    A channel stops when ‖(b − Au) / D‖ ≤ tolerance · ‖b / D‖ and does not move after, whatever the others still need.
    What x holds at removed pixels is not read. Every image must keep a pixel.

    >>> x, keep = torch.rand(1, 1, 20, 20), torch.ones(1, 20, 20, dtype=torch.bool)
    >>> keep[0, 5, 5] = False
    >>> around = x[0, 0, 4:7, 4:7] * torch.tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]])
    >>> filled, _ = fill(hierarchy(1, 1, 20, 20, x), x, keep, 1e-6)
    >>> bool((filled[0, 0, 5, 5] - around.sum() / 12).abs() < 1e-5)
    True
    """
    kept = keep[:, None].to(x.dtype)
    held = _set_mask(work, kept)
    known = torch.mul(x, kept)
    mean = known.sum((2, 3), keepdim=True) / kept.sum((2, 3), keepdim=True)
    # A constant is a solution: without it, less is lost to rounding.
    torch.addcmul(known, kept, mean, value=-1, out=work.field.pixels)
    states = [_begun(lane, held, mean[:, lane.channels, 0], tolerance) for lane in work.lanes]
    busy = list(zip(work.lanes, states, strict=True))
    for _ in range(ITERATIONS):
        busy = [(lane, state) for lane, state in busy if bool(state.active.any())]
        if not busy:
            work.field.pixels.add_(mean)
            filled = known.addcmul_(work.field.pixels, work.levels[0].mask.unknown.pixels)
            return filled, torch.cat([state.iterations.reshape(len(x), -1) for state in states], 1).amax(1)
        run(work.coarse)
        for lane, state in busy:
            _step(work, lane, state)
    raise UserError(f"tolerance={tolerance:g} was not reached in {ITERATIONS} iterations; give a larger one")


def _begun(lane: Lane, held: Tensor, mean: Tensor, tolerance: float) -> Progress:
    """The residual of the field as it is, z = D⁻¹r, and the residual of the next level."""
    run(lane.begin)
    z, zeros = lane.level.z.core, lane.level.room.sums.core
    lane.direction.core.zero_()
    torch.addcmul(z, held, mean, out=zeros)  # what z is with zeros at the removed pixels
    limit = tolerance * _dot(zeros, zeros).sqrt()
    active = _dot(z, z).sqrt() > limit
    run(lane.down)
    return Progress(limit, torch.ones_like(limit), active, torch.zeros_like(active, dtype=torch.int64))


def _step(work: Hierarchy, lane: Lane, state: Progress) -> None:
    """From the solution of the next level to its next residual.

    The residual is right at removed pixels only; whatever reads it multiplies by something that is zero elsewhere.
    """
    level, p = lane.level, lane.direction.core
    residual, z, sums = level.residual.core, level.z.core, level.room.sums.core
    run(lane.up)
    before, state.slope = state.slope, _dot(residual, z)
    torch.addcmul(z, _moving(state.slope / before, state, p), p, out=p)
    run(lane.direction_sums)
    torch.addcmul(sums, work.diagonal.core, p, value=-1, out=sums)  # −A p
    step = _moving(-state.slope / _dot(p, sums), state, p)
    state.iterations += state.active
    lane.field.core.addcmul_(step, p)
    residual.addcmul_(step, sums)
    torch.mul(residual, level.mask.inverse.core, out=z)
    state.active = state.active & (_dot(z, z).sqrt() > state.limit)
    run(lane.down)


def _moving(factor: Tensor, state: Progress, like: Tensor) -> Tensor:
    """The factor, with 0 for images that have arrived; a lane of one image is left alone as soon as it has."""
    return factor if factor.ndim == 0 else torch.where(state.active, factor, 0).to(like.dtype)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Scalar products over the last axis, (n, channels, 1); a number for one channel of one image on a CPU."""
    if a.device.type == "cpu" and a.shape[:2] == (1, 1):
        return torch.dot(a.view(-1), b.view(-1))
    # The order of summation depends on how many images there are; double precision hides it.
    return torch.mul(a, b).sum(-1, keepdim=True, dtype=torch.float64)


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
    room = level.room.channels(_ONE)
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
    return [
        _smooth(level),
        *_descent(level, coarser[0]),
        *_cycle(coarser, inverse),
        *_ascent(level, coarser[0]),
    ]


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


def _set_mask(work: Hierarchy, kept: Tensor) -> Tensor:
    """Load the kept pixels (n, 1, H, W), 1 or 0, and what follows from them; returns q/D in the layout of `core`."""
    fine, last = work.levels[0], work.levels[-1].mask
    unknown = fine.mask.unknown.core
    torch.sub(1, kept, out=fine.mask.unknown.pixels)
    torch.mul(unknown, work.diagonal_inverse.core, out=fine.mask.inverse.core)
    run(work.mask_sums[0])
    edges = (work.diagonal.core - fine.room.sums.core[:, _ONE]).mul_(unknown)
    _share(fine.mask, edges)
    for (finer, level), contacts, sums in zip(pairwise(work.levels), work.contacts, work.mask_sums[1:], strict=True):
        level.mask.unknown.pixels.copy_(cell_maxima(finer.mask.unknown))
        run(contacts)
        unknown, contact = level.mask.unknown.core, level.mask.contact.core
        contact.mul_(unknown).mul_(SOFTER)
        run(sums)
        # D = Wm + q where unknown; anything but zero elsewhere.
        diagonal = level.room.sums.core[:, _ONE].add_(contact).sub_(unknown).add_(1)
        torch.div(unknown, diagonal, out=level.mask.inverse.core)
        _share(level.mask, contact)
    loose, inverse = (part.pixels.flatten(1) for part in (last.unknown, last.inverse))
    both = loose[:, :, None] * loose[:, None, :]
    matrix = torch.diag_embed(torch.where(loose > 0, 4 + 1 / inverse, 1)) - work.stencil * both
    torch.mul(torch.cholesky_inverse(torch.linalg.cholesky(matrix)), both, out=work.inverse)
    return edges.mul_(fine.mask.inverse.core)


def _share(mask: Mask, contact: Tensor) -> None:
    torch.mul(mask.unknown.core, mask.taps_inverse.core, out=mask.share.core)
    torch.mul(contact, mask.share.core, out=mask.contact.core)
