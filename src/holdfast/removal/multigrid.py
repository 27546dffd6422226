"""Harmonic filling of many masked images at once: conjugate gradients preconditioned by one multigrid V-cycle.

The equations are those of `holdfast.removal.linear`, times 12. With S the one-dimensional filter [1, 2, 1], zero beyond
the border, and ρ the row sums of S⊗S, the weights of the eight neighbours are W = S⊗S − 4, the diagonal is D = ρ − 4
and the matrix is A = D − W = ρ − S⊗S, restricted to the removed pixels. One undamped Jacobi sweep divides every
oscillating part of the error by three or more: away from the border D⁻¹A has eigenvalues in (0, 4/3], those of
oscillating parts in [2/3, 4/3].

A coarse cell stands for 2×2 finer ones and is unknown only when all of them are; the same A serves at every level.
Corrections come back by bilinear interpolation, P = (m / τ) · S⊗S · (each cell repeated 2×2) with m the unknowns and τ
such that constants stay constant, and residuals go down by exactly Pᵀ, so that the preconditioner is symmetric. The
coarsest level is solved exactly.

All buffers are made once, and with them the list of calls that is one V-cycle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    even,
    filtered,
    line_filter,
    plane,
    prolonged,
    quarters,
    restricted,
)

COARSEST = 256
"""Cells up to which a level is solved by a dense factorisation."""

ITERATIONS = 200
"""Far more than any mask needs; only a tolerance below what the arithmetic can reach gets there."""

SWEEPS = 2
"""Jacobi sweeps on the first field, which is smooth on the whole and wrong from pixel to pixel."""


@dataclass(frozen=True)
class Hierarchy:
    """What `fill` works in: the levels, finest first; S⊗S and the inverse of A at the coarsest; prepared calls."""

    levels: tuple[Level, ...]
    stencil: Tensor
    inverse: Tensor
    field: Plane
    direction: Plane
    cycles: tuple[tuple[Step, ...], ...]
    push: tuple[Step, ...]
    field_sums: tuple[Step, ...]
    direction_sums: tuple[Step, ...]


def hierarchy(n: int, channels: int, height: int, width: int, like: Tensor) -> Hierarchy:
    """Buffers for n images of this size, on the device and in the precision of `like`.

    >>> [tuple(level.z.pixels.shape) for level in hierarchy(1, 3, 33, 20, torch.zeros(())).levels]
    [(1, 3, 33, 20), (1, 3, 17, 10)]
    """
    field, direction = (plane(n, channels, height, width, like) for _ in range(2))
    levels = [grids.level(n, channels, height, width, like)]
    while height * width > COARSEST:
        height, width = (height + 1) // 2, (width + 1) // 2
        levels.append(grids.level(n, channels, height, width, like))
    inverse = like.new_zeros(n, height * width, height * width)
    transfers = [(restricted(*pair), prolonged(*pair)) for pair in pairwise(levels)]
    return Hierarchy(
        levels=tuple(levels),
        stencil=torch.kron(line_filter(height, like), line_filter(width, like)),
        inverse=inverse,
        field=field,
        direction=direction,
        cycles=tuple(tuple(_cycle(levels[: depth + 1], transfers, inverse)) for depth in range(len(levels))),
        push=tuple(step for _, up in reversed(transfers) for step in up),
        field_sums=tuple(filtered(field, levels[0])),
        direction_sums=tuple(filtered(direction, levels[0])),
    )


def fill(work: Hierarchy, x: Tensor, keep: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The images x (n, C, H, W) with the pixels that `keep` (n, H, W) removes filled in; with the iterations (n, C).

    An image's channels are systems of their own; each stops when ‖b − Au‖ ≤ tolerance · ‖b‖ and does not move after,
    whatever the others still need. What x holds at removed pixels is not read. Every image must keep a pixel.

    >>> x, keep = torch.rand(1, 1, 20, 20), torch.ones(1, 20, 20, dtype=torch.bool)
    >>> keep[0, 5, 5] = False
    >>> around = x[0, 0, 4:7, 4:7] * torch.tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]])
    >>> filled, _ = fill(hierarchy(1, 1, 20, 20, x), x, keep, 1e-6)
    >>> bool((filled[0, 0, 5, 5] - around.sum() / 12).abs() < 1e-5)
    True
    """
    fine = work.levels[0]
    residual, sums, unknown = fine.residual.core, fine.sums.core, fine.unknown.core
    field, p = work.field.core, work.direction.core
    kept = keep[:, None].to(x.dtype)
    known = x * kept
    depth = _set_unknowns(work, ~keep)
    work.field.pixels.copy_(known)
    _run(work.field_sums)
    limit = tolerance * _norm(sums.mul_(unknown))
    mean = known.sum((2, 3), keepdim=True) / kept.sum((2, 3), keepdim=True)
    known.addcmul_(kept, mean, value=-1)  # a constant is a solution: without it, less is lost to rounding
    work.field.pixels.copy_(_start(work, known, kept))
    for sweep in range(SWEEPS + 1):
        _run(work.field_sums)
        torch.addcmul(sums, fine.rho.core, field, value=-1, out=residual).mul_(unknown)
        if sweep < SWEEPS:
            field.addcmul_(residual, fine.inverse.core)
    active = _norm(residual) > limit
    iterations = torch.zeros_like(active, dtype=torch.int64)
    slope = torch.ones_like(limit)
    p.zero_()
    for _ in range(ITERATIONS):
        if not bool(active.any()):
            work.field.pixels.add_(mean)
            filled = torch.mul(x, kept, out=known).addcmul_(work.field.pixels, fine.unknown.pixels)
            return filled, iterations[..., 0]
        iterations += active
        _run(work.cycles[depth])  # leaves its result in sums
        before, slope = slope, _dot(fine.residual, fine.sums)
        torch.addcmul(sums, torch.where(active, slope / before, 0).to(p.dtype), p, out=p)
        _run(work.direction_sums)
        torch.addcmul(sums.mul_(unknown), fine.rho.core, p, value=-1, out=sums)  # −A p
        step = torch.where(active, -slope / _dot(work.direction, fine.sums), 0).to(p.dtype)
        field.addcmul_(step, p)
        residual.addcmul_(step, sums)
        active = active & (_norm(residual) > limit)
    raise UserError(f"tolerance={tolerance:g} was not reached in {ITERATIONS} iterations; give a larger one")


def _run(steps: Sequence[Step]) -> None:
    for step in steps:
        step()


def _dot(a: Plane, b: Plane) -> Tensor:
    """Scalar products per image and channel, (n, C, 1), of planes of which the first is zero beside the pixels."""
    if a.flat.device.type != "cpu":
        # There the order of summation depends on how many images there are; double precision hides it.
        return torch.mul(a.flat, b.flat).sum(-1, keepdim=True, dtype=torch.float64)
    pairs = zip(a.flat.flatten(0, 1), b.flat.flatten(0, 1), strict=True)
    return torch.stack([torch.dot(u, v) for u, v in pairs]).view(*a.flat.shape[:2], 1)


def _norm(core: Tensor) -> Tensor:
    wide = None if core.device.type == "cpu" else torch.float64
    norm: Tensor = torch.linalg.vector_norm(core, dim=-1, keepdim=True, dtype=wide)
    return norm


def _cycle(levels: list[Level], transfers: list[tuple[list[Step], list[Step]]], inverse: Tensor) -> list[Step]:
    """sums ← V-cycle of the residual, at the first of the levels; a last one that is large is only smoothed.

    From zero, the first sweep gives z = D⁻¹r and leaves the residual Wz; the last one gives D⁻¹(r + Wz).
    """
    level, *coarser = levels
    residual, z, sums = level.residual, level.z, level.sums
    if math.prod(z.pixels.shape[2:]) <= COARSEST:
        dense, solved = (torch.empty_like(z.pixels.flatten(2)) for _ in range(2))
        return [
            partial(dense.view(z.pixels.shape).copy_, residual.pixels),
            partial(torch.bmm, dense, inverse, out=solved),
            partial(z.pixels.copy_, solved.view(z.pixels.shape)),
            partial(sums.core.copy_, z.core),
        ]
    weighted: list[Step] = [*filtered(z, level), partial(torch.add, sums.core, z.core, alpha=-4, out=sums.core)]
    correction: list[Step] = []
    if coarser:
        below, (down, up) = coarser[0], transfers[0]
        correction += [*down, *_cycle(coarser, transfers[1:], inverse)]
        correction += [partial(below.z.core.copy_, below.sums.core), *up]
    return [
        partial(torch.mul, residual.core, level.inverse.core, out=z.core),
        *weighted,
        *correction,
        *weighted,
        partial(torch.add, sums.core, residual.core, out=sums.core),
        partial(sums.core.mul_, level.inverse.core),
    ]


def _set_unknowns(work: Hierarchy, unknown: Tensor) -> int:
    """Load the unknown pixels (n, H, W) and what follows from them; returns the last level with any unknown cell."""
    counts = []
    for k, level in enumerate(work.levels):
        if k:
            children = even(unknown, True)  # where a cell has fewer than four children, those there are decide
            rows = children[:, 0::2] & children[:, 1::2]
            unknown = rows[..., 0::2] & rows[..., 1::2]
        level.unknown.pixels.copy_(unknown[:, None])
        torch.mul(level.unknown.core, level.diagonal_inverse.core, out=level.inverse.core)
        torch.mul(level.unknown.core, level.taps_inverse.core, out=level.share.core)
        counts.append(level.unknown.core.sum())  # of floats: on a CPU much faster than any() of booleans
    present = torch.stack(counts).tolist()
    if present[-1]:
        last = work.levels[-1]
        loose = last.unknown.pixels.flatten(1)
        matrix = last.rho.pixels.flatten().diag() - work.stencil
        both = loose[:, :, None] * loose[:, None, :]
        factor = torch.linalg.cholesky(both * matrix + torch.diag_embed(1 - loose))
        work.inverse.copy_(torch.cholesky_inverse(factor))
    return max((k for k, count in enumerate(present) if count), default=0)


def _start(work: Hierarchy, known: Tensor, kept: Tensor) -> Tensor:
    """A first field (n, C, H, W): kept pixels averaged down to the coarsest level, filled there, interpolated back."""
    work.levels[0].z.pixels.copy_(known)
    for level in work.levels[1:]:
        count = quarters(kept)
        known = quarters(known) / count.clamp(min=1)
        kept = count.clamp(max=1)
        level.z.pixels.copy_(known)
    flat = known.flatten(2)
    pull = torch.matmul(flat, work.stencil) * (1 - kept).flatten(2)
    work.levels[-1].z.pixels.copy_((flat + torch.bmm(pull, work.inverse)).view(known.shape))
    _run(work.push)
    return work.levels[0].z.pixels
