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

Images are framed: zeros lie around them, and one more row or column of zeros where height or width is odd, so that
they fall into cells of 2×2 pixels. A filter is then four additions of long rows with no special case at the border.
What it leaves in the frame does not matter, as whatever reads it multiplies by something that is zero there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from heatproof.errors import UserError

COARSEST = 256
"""Cells up to which a level is solved by a dense factorisation."""

ITERATIONS = 200
"""Far more than any mask needs; only a tolerance below what the arithmetic can reach gets there."""

SOFTER = 0.8
"""Factor to q from level to level: a wall of kept pixels holds a cell less firmly than its row sum says. Measured."""


@dataclass(frozen=True)
class Level:
    """What a level knows of its masks: m/D and m/τ framed, (n, 1, ·, ·), or A⁻¹ (n, cells, cells) at the coarsest."""

    inverse: Tensor
    share: Tensor | None = None
    solution: Tensor | None = None


def fill(
    x: Tensor, keep: Tensor, tolerance: float, scattered: bool = False
) -> tuple[Tensor, Tensor]:
    """The images x (n, C, H, W) with the pixels that `keep` (n, H, W) removes filled in; with the iterations (n,).

    A channel stops when ‖(b − Au) / D‖ is at most `tolerance` times what it is with the mean of the kept pixels at the
    removed ones, and does not move after, whatever the others still need. Where removed pixels lie `scattered` among
    kept ones, sweeps at the finest level alone are enough of a preconditioner.
    What x holds at removed pixels is not read. Every image must keep a pixel.

    >>> x, keep = torch.rand(1, 1, 20, 20), torch.ones(1, 20, 20, dtype=torch.bool)
    >>> keep[0, 5, 5] = False
    >>> around = x[0, 0, 4:7, 4:7] * torch.tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]])
    >>> filled, _ = fill(x, keep, 1e-6)
    >>> bool((filled[0, 0, 5, 5] - around.sum() / 12).abs() < 1e-5)
    True
    """
    kept = keep[:, None].to(x.dtype)
    levels, (diagonal, _) = _levels(1 - kept, scattered), _weights(*x.shape[2:], x.dtype, x.device)
    known = x * kept
    mean = known.sum((2, 3), keepdim=True) / kept.sum((2, 3), keepdim=True)
    field = framed(
        known.addcmul(kept, mean, value=-1)
    )  # a constant is a solution: less is lost to rounding without it
    residual = neighbours(field)
    z = residual * levels[0].inverse
    direction = torch.zeros_like(z)
    size = _dot(z, z).sqrt()
    limit, active, slope = tolerance * size, size > 0, torch.ones_like(size)
    iterations = torch.zeros_like(active, dtype=torch.int64)
    for _ in range(ITERATIONS):
        if not bool(active.any()):
            return torch.where(kept > 0, x, pixels(field, x) + mean), iterations.flatten(1).amax(1)
        z = _cycle(levels, residual, z)
        before, slope = slope, _dot(residual, z)
        direction = torch.addcmul(z, torch.where(active, slope / before, 0).to(x.dtype), direction)
        sums = neighbours(direction).addcmul_(diagonal, direction, value=-1)  # −A p
        step = torch.where(active, -slope / _dot(direction, sums), 0).to(x.dtype)
        iterations += active
        field.addcmul_(step, direction)
        residual.addcmul_(step, sums)
        z = residual * levels[0].inverse
        active = active & (_dot(z, z).sqrt() > limit)
    raise UserError(
        f"tolerance={tolerance:g} was not reached in {ITERATIONS} iterations; give a larger one"
    )


def framed(images: Tensor) -> Tensor:
    """Images (n, C, H, W) with zeros around them, and one more row or column of zeros where a side is odd.

    >>> framed(torch.ones(1, 1, 1, 2))[0, 0].tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    height, width = images.shape[2:]
    return pad(images, (1, 1 + width % 2, 1, 1 + height % 2))


def pixels(u: Tensor, like: Tensor) -> Tensor:
    """What `framed` has put a frame around; the height and width are those of `like`.

    >>> pixels(framed(torch.ones(1, 1, 3, 2)), torch.zeros(3, 2)).sum().item()
    6.0
    """
    return u[..., 1 : 1 + like.shape[-2], 1 : 1 + like.shape[-1]]


def neighbours(u: Tensor) -> Tensor:
    """W u of framed images: the eight neighbours, weighted 2 at the sides and 1 at the corners.

    >>> pixels(neighbours(framed(torch.ones(1, 1, 2, 3))), torch.zeros(2, 3)).tolist()
    [[[[5.0, 8.0, 5.0], [5.0, 8.0, 5.0]]]]
    """
    pitch, flat = u.shape[3], u.flatten(2)
    vertical = flat[..., : -2 * pitch] + flat[..., 2 * pitch :]
    weighted = torch.add(vertical, flat[..., pitch:-pitch], alpha=2)
    sums = torch.zeros_like(flat)
    core = sums[..., pitch + 1 : -pitch - 1]
    torch.add(weighted[..., :-2], weighted[..., 2:], out=core)
    core.add_(vertical[..., 1:-1], alpha=2)
    return sums.view(u.shape)


def gathered(u: Tensor) -> Tensor:
    """The taps [1, 3, 3, 1] in each direction at every other pixel of framed images, framed.

    >>> pixels(gathered(framed(torch.ones(1, 1, 3, 2))), torch.zeros(2, 1)).flatten().tolist()
    [42.0, 24.0]
    """
    lines = torch.add(u[:, :, 0:-3:2], u[:, :, 1:-2:2], alpha=3)
    lines.add_(u[:, :, 2:-1:2], alpha=3).add_(u[:, :, 3::2])
    cells = torch.add(lines[..., 0:-3:2], lines[..., 1:-2:2], alpha=3)
    return framed(cells.add_(lines[..., 2:-1:2], alpha=3).add_(lines[..., 3::2]))


def spread(coarse: Tensor, shape: torch.Size) -> Tensor:
    """τ P coarse, the transpose of `gathered`: framed images of a `shape` that includes the frame.

    >>> spread(framed(torch.ones(1, 1, 1, 1)), torch.Size([4, 4]))[0, 0].tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 9.0, 9.0, 0.0], [0.0, 9.0, 9.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    rows, columns = (side // 2 - 1 for side in shape[-2:])
    left, middle, right = (coarse[..., : rows + 2, i : i + columns] for i in range(3))
    wide = coarse.new_empty(*coarse.shape[:2], rows + 2, 2 * columns)
    torch.add(left, middle, alpha=3, out=wide[..., 0::2])
    torch.add(right, middle, alpha=3, out=wide[..., 1::2])
    above, centre, below = (wide[..., i : i + rows, :] for i in range(3))
    fine = coarse.new_zeros(*coarse.shape[:2], *shape[-2:])
    torch.add(above, centre, alpha=3, out=fine[..., 1:-1:2, 1:-1])
    torch.add(below, centre, alpha=3, out=fine[..., 2:-1:2, 1:-1])
    return fine


def _cycle(levels: list[Level], residual: Tensor, z: Tensor | None = None) -> Tensor:
    """A V-cycle of the residual; z is D⁻¹r, the first sweep from zero, which leaves the residual Wz."""
    level, *coarser = levels
    if level.solution is not None:
        dense = residual[..., 1:-1, 1:-1]
        return pad((dense.flatten(2) @ level.solution).view(dense.shape), (1, 1, 1, 1))
    z = residual * level.inverse if z is None else z
    if level.share is None:
        return z
    coarse = _cycle(coarser, gathered(neighbours(z).mul_(level.share)))
    moved = torch.addcmul(z, spread(coarse, z.shape), level.share)
    return torch.addcmul(
        z, neighbours(moved), level.inverse
    )  # the last sweep, D⁻¹(r + W(z + P coarse))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Scalar products of images (n, C, 1, 1), in double precision over the rows: no order of summation shows."""
    return (a * b).sum(3, keepdim=True).sum(2, keepdim=True, dtype=torch.float64)


@lru_cache(maxsize=32)
def _weights(
    height: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """D and τ of images of a size, framed, 1 in place of 0 in the frame; they do not depend on the mask."""
    ones = framed(torch.ones(1, 1, height, width, dtype=dtype, device=device))
    coarse = torch.ones(1, 1, (height + 1) // 2, (width + 1) // 2, dtype=dtype, device=device)
    return neighbours(ones).clamp(min=1), spread(framed(coarse), ones.shape).clamp(min=1)


def _levels(unknown: Tensor, scattered: bool) -> list[Level]:
    """The levels of masks (n, 1, H, W), 1 where a pixel is removed, from the finest on; the finest if `scattered`."""
    levels: list[Level] = []
    contact = None
    while True:
        m = framed(unknown)
        diagonal, taps = _weights(*unknown.shape[2:], m.dtype, m.device)
        if contact is None:
            contact = (diagonal - neighbours(m)).mul_(m)
        else:
            contact = contact.mul_(m).mul_(SOFTER)
            diagonal = (
                neighbours(m).add_(contact).sub_(m).add_(1)
            )  # Wm + q where unknown, not zero elsewhere
        inverse = m / diagonal
        if scattered:
            return [Level(inverse)]
        if unknown[0].numel() <= COARSEST:
            return [*levels, Level(inverse, None, _solution(m, diagonal))]
        share = m / taps
        levels.append(Level(inverse, share))
        contact, unknown = gathered(contact * share), max_pool2d(unknown, 2, ceil_mode=True)


def _solution(m: Tensor, diagonal: Tensor) -> Tensor:
    """A⁻¹ of the unknowns m of the coarsest level, dense with zeros elsewhere; (n, cells, cells), the even ones."""
    loose, own = (part[..., 1:-1, 1:-1].flatten(1) for part in (m, diagonal.expand_as(m)))
    ones = [m.new_ones(side - 2) for side in m.shape[2:]]
    lines = [2 * one.diag() + one[1:].diag(1) + one[1:].diag(-1) for one in ones]
    both = loose[:, :, None] * loose[:, None, :]
    matrix = torch.diag_embed(torch.where(loose > 0, 4 + own, 1)) - torch.kron(*lines) * both
    return torch.cholesky_inverse(torch.linalg.cholesky(matrix)).mul_(both)
