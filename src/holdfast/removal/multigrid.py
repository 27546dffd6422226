"""Harmonic filling of many masked images at once: conjugate gradients preconditioned by one multigrid V-cycle.

The equations are those of `holdfast.removal.linear`, times 12. With S the one-dimensional filter [1, 2, 1], zero beyond
the border, and ρ the row sums of S⊗S, the weights of the eight neighbours are W = S⊗S − 4, the diagonal is D = ρ − 4
and the matrix is A = D − W = ρ − S⊗S, restricted to the removed pixels. One undamped Jacobi sweep divides every
oscillating part of the error by three or more: away from the border D⁻¹A has eigenvalues in (0, 4/3], those of
oscillating parts in [2/3, 4/3].

A coarse cell stands for 2×2 finer ones and is unknown as soon as one of them is. Corrections come back by bilinear
interpolation, P = (m / τ) · S⊗S · (each cell repeated 2×2) with m the unknowns and τ such that constants stay constant,
and residuals go down by exactly Pᵀ, so that the preconditioner is symmetric. The coarse matrix has W between unknown
cells and a diagonal that makes its row sums q, which say how firmly kept pixels hold a cell; q goes down by Pᵀ as
residuals do, so that a lone kept pixel is felt at every level. The coarsest level is solved exactly.

All buffers are made once, and with them the list of calls that is one V-cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from holdfast.errors import UserError
from holdfast.removal import grids
from holdfast.removal.grids import (
    Level,
    Plane,
    Step,
    cell_maxima,
    cell_sums,
    filter_sums,
    filtered,
    line_filter,
    plane,
    prolonged,
    restricted,
    run,
)

COARSEST = 256
"""Cells up to which a level is solved by a dense factorisation."""

ITERATIONS = 200
"""Far more than any mask needs; only a tolerance below what the arithmetic can reach gets there."""

SOFTER = 0.8
"""Factor to q from level to level: a wall of kept pixels holds a cell less firmly than its row sum says. Measured."""


@dataclass(frozen=True)
class Hierarchy:
    """What `fill` works in: ρ and 1/D of the finest level, S⊗S and the inverse of A of the last; prepared calls."""

    rho: Plane
    diagonal_inverse: Plane
    levels: tuple[Level, ...]
    stencil: Tensor
    inverse: Tensor
    field: Plane
    direction: Plane
    cycle: tuple[Step, ...]
    field_sums: tuple[Step, ...]
    direction_sums: tuple[Step, ...]


def hierarchy(n: int, channels: int, height: int, width: int, like: Tensor) -> Hierarchy:
    """Buffers for n images of this size, on the device and in the precision of `like`.

    >>> [tuple(level.z.pixels.shape) for level in hierarchy(1, 3, 33, 20, torch.zeros(())).levels]
    [(1, 3, 33, 20), (1, 3, 17, 10)]
    """
    rho, diagonal_inverse = (plane(1, 1, height, width, like) for _ in range(2))
    rho.pixels.copy_(line_filter(height, like).sum(1)[:, None] * line_filter(width, like).sum(1))
    diagonal_inverse.pixels.copy_(1 / (rho.pixels - 4))
    field, direction = (plane(n, channels, height, width, like) for _ in range(2))
    levels = [grids.level(n, channels, height, width, like)]
    while height * width > COARSEST:
        height, width = (height + 1) // 2, (width + 1) // 2
        levels.append(grids.level(n, channels, height, width, like))
    inverse = like.new_zeros(n, height * width, height * width)
    transfers = [(restricted(*pair), prolonged(*pair)) for pair in pairwise(levels)]
    return Hierarchy(
        rho,
        diagonal_inverse,
        tuple(levels),
        torch.kron(line_filter(height, like), line_filter(width, like)),
        inverse,
        field,
        direction,
        tuple(_cycle(levels, transfers, inverse)),
        tuple(filtered(field, levels[0])),
        tuple(filtered(direction, levels[0])),
    )


def fill(work: Hierarchy, x: Tensor, keep: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The images x (n, C, H, W) with the pixels that `keep` (n, H, W) removes filled in; with the iterations (n,).

    An image stops when ‖b − Au‖ ≤ tolerance · ‖b‖ in every channel and does not move after, whatever the others still
    need. What x holds at removed pixels is not read. Every image must keep a pixel.

    >>> x, keep = torch.rand(1, 1, 20, 20), torch.ones(1, 20, 20, dtype=torch.bool)
    >>> keep[0, 5, 5] = False
    >>> around = x[0, 0, 4:7, 4:7] * torch.tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]])
    >>> filled, _ = fill(hierarchy(1, 1, 20, 20, x), x, keep, 1e-6)
    >>> bool((filled[0, 0, 5, 5] - around.sum() / 12).abs() < 1e-5)
    True
    """
    fine = work.levels[0]
    residual, sums, z, unknown = fine.residual.core, fine.sums.core, fine.z.core, fine.unknown.core
    field, p = work.field.core, work.direction.core
    kept = keep[:, None].to(x.dtype)
    edges = _set_unknowns(work, kept)
    known = torch.mul(x, kept)
    mean = known.sum((2, 3), keepdim=True) / kept.sum((2, 3), keepdim=True)
    # A constant is a solution: without it, less is lost to rounding.
    torch.addcmul(known, kept, mean, value=-1, out=work.field.pixels)
    run(work.field_sums)
    torch.mul(sums, unknown, out=residual)
    limit = tolerance * _norm(torch.addcmul(residual, edges, mean[..., 0]))
    active = (_norm(residual) > limit).any(1, keepdim=True)
    iterations = torch.zeros_like(active, dtype=torch.int64)
    slope = torch.ones_like(limit[:, :1])
    p.zero_()
    for _ in range(ITERATIONS):
        if not bool(active.any()):
            work.field.pixels.add_(mean)
            return known.addcmul_(work.field.pixels, fine.unknown.pixels), iterations[:, 0, 0]
        iterations += active
        run(work.cycle)
        before, slope = slope, _dot(fine.residual, fine.z)
        torch.addcmul(z, torch.where(active, slope / before, 0).to(p.dtype), p, out=p)
        run(work.direction_sums)
        torch.addcmul(sums.mul_(unknown), work.rho.core, p, value=-1, out=sums)  # −A p
        step = torch.where(active, -slope / _dot(work.direction, fine.sums), 0).to(p.dtype)
        field.addcmul_(step, p)
        residual.addcmul_(step, sums)
        active = active & (_norm(residual) > limit).any(1, keepdim=True)
    raise UserError(f"tolerance={tolerance:g} was not reached in {ITERATIONS} iterations; give a larger one")


def _dot(a: Plane, b: Plane) -> Tensor:
    """Scalar products per image, (n, 1, 1), of planes of which the first is zero beside the pixels."""
    if a.whole.device.type != "cpu":
        # There the order of summation depends on how many images there are; double precision hides it.
        return torch.mul(a.whole, b.whole).sum(-1, dtype=torch.float64)[:, None, None]
    return torch.stack([torch.dot(u, v) for u, v in zip(a.whole, b.whole, strict=True)])[:, None, None]


def _norm(core: Tensor) -> Tensor:
    wide = None if core.device.type == "cpu" else torch.float64
    norm: Tensor = torch.linalg.vector_norm(core, dim=-1, keepdim=True, dtype=wide)
    return norm


def _cycle(levels: list[Level], transfers: list[tuple[list[Step], list[Step]]], inverse: Tensor) -> list[Step]:
    """z ← V-cycle of the residual, at the first of the levels.

    From zero, the first sweep gives z = D⁻¹r and leaves the residual Wz; the last one gives D⁻¹(r + Wz).
    """
    level, *coarser = levels
    residual, z, sums = level.residual, level.z, level.sums
    if not coarser:
        dense, solved = (torch.empty_like(z.pixels.flatten(2)) for _ in range(2))
        return [
            partial(dense.view(z.pixels.shape).copy_, residual.pixels),
            partial(torch.bmm, dense, inverse, out=solved),
            partial(z.pixels.copy_, solved.view(z.pixels.shape)),
        ]
    down, up = transfers[0]
    weighted: list[Step] = [*filtered(z, level), partial(torch.add, sums.core, z.core, alpha=-4, out=sums.core)]
    return [
        partial(torch.mul, residual.core, level.inverse.core, out=z.core),
        *weighted,
        *down,
        *_cycle(coarser, transfers[1:], inverse),
        *up,
        *weighted,
        partial(torch.add, sums.core, residual.core, out=sums.core),
        partial(torch.mul, sums.core, level.inverse.core, out=z.core),
    ]


def _set_unknowns(work: Hierarchy, kept: Tensor) -> Tensor:
    """Load the kept pixels (n, 1, H, W), 1 or 0, and what follows from them; returns q in the layout of `core`."""
    fine, last = work.levels[0], work.levels[-1]
    torch.sub(1, kept, out=fine.unknown.pixels)
    edges = (work.rho.core - filter_sums(fine.unknown)).mul_(fine.unknown.core)
    torch.mul(fine.unknown.core, work.diagonal_inverse.core, out=fine.inverse.core)
    _share(fine, edges)
    for finer, level in pairwise(work.levels):
        level.unknown.pixels.copy_(cell_maxima(finer.unknown))
        level.contact.pixels.copy_(cell_sums(finer.contact))
        unknown, contact = level.unknown.core, level.contact.core.mul_(level.unknown.core).mul_(SOFTER)
        # D = Wm + q where unknown; anything but zero elsewhere.
        diagonal = filter_sums(level.unknown).add_(contact).sub_(unknown, alpha=5).add_(1)
        torch.div(unknown, diagonal, out=level.inverse.core)
        _share(level, contact)
    loose, inverse = (part.pixels.flatten(1) for part in (last.unknown, last.inverse))
    off = -work.stencil * loose[:, :, None] * loose[:, None, :]
    factor = torch.linalg.cholesky(off + torch.diag_embed(torch.where(loose > 0, 4 + 1 / inverse, 1)))
    work.inverse.copy_(torch.cholesky_inverse(factor))
    return edges


def _share(level: Level, contact: Tensor) -> None:
    torch.mul(level.unknown.core, level.taps_inverse.core, out=level.share.core)
    torch.mul(contact, level.share.core, out=level.contact.core)
