"""Harmonic filling of many masked images at once: conjugate gradients preconditioned by one multigrid V-cycle.

The equations are those of `linear`, times 12. With W the eight neighbours, weighted 2 at the sides and
1 at the corners, zero beyond the border, and D the sums of those weights, the matrix is A = D − W, restricted to the
removed pixels. One undamped Jacobi sweep divides every oscillating part of the error by three or more: away from the
border D⁻¹A has eigenvalues in (0, 4/3], those of oscillating parts in [2/3, 4/3].

A coarse cell stands for 2×2 finer ones and is unknown as soon as one of them is. Corrections come back by bilinear
interpolation P, that is by the taps [1, 3, 3, 1] each way, times m / τ with m the unknowns and τ such that constants
stay constant; residuals go down by exactly Pᵀ, so that the preconditioner is symmetric. The coarse matrix has W between
unknown cells and a diagonal that makes its row sums q, which say how firmly kept pixels hold a cell; q goes down by Pᵀ
as residuals do, so that a lone kept pixel is felt at every level. The coarsest level is solved exactly.
`holdfast.removal.harmonic.hierarchy` holds the levels and the cycle; here is the iteration around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from holdfast.errors import UserError
from holdfast.removal.harmonic.grids import Mask, cell_maxima, run
from holdfast.removal.harmonic.hierarchy import FIRST, Hierarchy, Lane

ITERATIONS = 200
"""Far more than any mask needs; only a tolerance below what the arithmetic can reach gets there."""

SOFTER = 0.8
"""Factor to q from level to level: a wall of kept pixels holds a cell less firmly than its row sum says. Measured."""


@dataclass
class Progress:
    """Where the images of a lane stand: (n, channels, 1), or a number where that is one."""

    limit: Tensor
    slope: Tensor
    active: Tensor
    iterations: Tensor


def fill(work: Hierarchy, x: Tensor, keep: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The images x (n, C, H, W) with the pixels that `keep` (n, H, W) removes filled in; with the iterations (n,).

    A channel stops when ‖(b − Au) / D‖ is at most `tolerance` times what it is with the mean of the kept pixels at the
    removed ones, and does not move after, whatever the others still need.
    What x holds at removed pixels is not read. Every image must keep a pixel.

    >>> from holdfast.removal.harmonic.hierarchy import hierarchy
    >>> x, keep = torch.rand(1, 1, 20, 20), torch.ones(1, 20, 20, dtype=torch.bool)
    >>> keep[0, 5, 5] = False
    >>> around = x[0, 0, 4:7, 4:7] * torch.tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]])
    >>> filled, _ = fill(hierarchy(1, 1, 20, 20, x), x, keep, 1e-6)
    >>> bool((filled[0, 0, 5, 5] - around.sum() / 12).abs() < 1e-5)
    True
    """
    kept = keep[:, None].to(x.dtype)
    _set_mask(work, kept)
    known = torch.mul(x, kept)
    mean = known.sum((2, 3), keepdim=True) / kept.sum((2, 3), keepdim=True)
    # A constant is a solution: without it, less is lost to rounding.
    torch.addcmul(known, kept, mean, value=-1, out=work.field.pixels)
    states = [_begun(lane, tolerance) for lane in work.lanes]
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


def _begun(lane: Lane, tolerance: float) -> Progress:
    """The residual of the field as it is, z = D⁻¹r, and the residual of the next level."""
    run(lane.begin)
    z = lane.level.z.core
    lane.direction.core.zero_()
    size = _dot(z, z).sqrt()
    limit, active = tolerance * size, size > 0
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


def _set_mask(work: Hierarchy, kept: Tensor) -> None:
    """Load the kept pixels (n, 1, H, W), 1 or 0, and what follows from them."""
    fine, last = work.levels[0], work.levels[-1].mask
    unknown = fine.mask.unknown.core
    torch.sub(1, kept, out=fine.mask.unknown.pixels)
    torch.mul(unknown, work.diagonal_inverse.core, out=fine.mask.inverse.core)
    run(work.mask_sums[0])
    edges = (work.diagonal.core - fine.room.sums.core[:, FIRST]).mul_(unknown)
    _share(fine.mask, edges)
    for (finer, level), contacts, sums in zip(pairwise(work.levels), work.contacts, work.mask_sums[1:], strict=True):
        level.mask.unknown.pixels.copy_(cell_maxima(finer.mask.unknown))
        run(contacts)
        unknown, contact = level.mask.unknown.core, level.mask.contact.core
        contact.mul_(unknown).mul_(SOFTER)
        run(sums)
        # D = Wm + q where unknown; anything but zero elsewhere.
        diagonal = level.room.sums.core[:, FIRST].add_(contact).sub_(unknown).add_(1)
        torch.div(unknown, diagonal, out=level.mask.inverse.core)
        _share(level.mask, contact)
    loose, inverse = (part.pixels.flatten(1) for part in (last.unknown, last.inverse))
    both = loose[:, :, None] * loose[:, None, :]
    matrix = torch.diag_embed(torch.where(loose > 0, 4 + 1 / inverse, 1)) - work.stencil * both
    torch.mul(torch.cholesky_inverse(torch.linalg.cholesky(matrix)), both, out=work.inverse)


def _share(mask: Mask, contact: Tensor) -> None:
    torch.mul(mask.unknown.core, mask.taps_inverse.core, out=mask.share.core)
    torch.mul(contact, mask.share.core, out=mask.contact.core)
