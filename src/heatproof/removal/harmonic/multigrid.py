"""Harmonic filling of many masked images at once: conjugate gradients preconditioned by one multigrid V-cycle.

The system. The equations are those of `linear`, times 12. W sums the eight neighbours, weighted 2 at the sides and 1 at
the corners, zero beyond the border; D are the sums of those weights. The matrix is A = D − W, restricted to the removed
pixels.

Smoothing. One undamped Jacobi sweep divides every oscillating part of the error by three or more: away from the border
D⁻¹A has eigenvalues in (0, 4/3], those of oscillating parts in [2/3, 4/3].

Coarse levels. A coarse cell stands for 2×2 finer ones and is unknown as soon as one of them is. Corrections come back by
bilinear interpolation P, that is by the taps [1, 3, 3, 1] each way, times m / τ with m = 1 at unknowns and τ such that
constants stay constant; residuals go down by exactly Pᵀ, so that the preconditioner is symmetric. The coarse matrix has W
between unknown cells and a diagonal that makes its row sums q. These say how firmly kept pixels hold a cell; q goes down
by Pᵀ as residuals do, so that a lone kept pixel is felt at every level. The coarsest level is solved exactly.

Frames. Zeros lie around all images, and one more row or column of zeros where height or width is odd, so that they fall
into cells of 2×2 pixels. A filter is then four additions of long rows with no special case at the border. What it leaves
in the frame does not matter: whatever reads it multiplies by something that is zero there.
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
    """One level of the grid for n masks.

    `inverse` is m / D, framed (n, 1, ·, ·). A level above the coarsest has `share`, m / τ in the same shape; the
    coarsest has `solution`, its A⁻¹ (n, cells, cells).
    """

    inverse: Tensor
    share: Tensor | None = None
    solution: Tensor | None = None


def fill(
    x: Tensor, keep: Tensor, tolerance: float, scattered: bool = False
) -> tuple[Tensor, Tensor]:
    """Return images x (n, C, H, W) with removed pixels filled in, and how many iterations each image took, (n,).

    `keep` (n, H, W) is false for removed pixels, which become weighted means of their neighbours: the solution of a
    linear system A u = b, found by preconditioned conjugate gradients (Shewchuk 1994). A channel stops when ‖(b − Au) /
    D‖ is at most `tolerance` times what it is with the mean of the kept pixels at the removed ones, and does not change
    after that, whatever the others still need. Where removed pixels lie `scattered` among kept ones, sweeps at the
    finest level alone are enough of a preconditioner. What x holds at removed pixels is not read. Every image must keep
    a pixel.

    >>> x, keep = torch.rand(1, 1, 20, 20), torch.ones(1, 20, 20, dtype=torch.bool)
    >>> keep[0, 5, 5] = False
    >>> around = x[0, 0, 4:7, 4:7] * torch.tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]])
    >>> filled, _ = fill(x, keep, 1e-6)
    >>> bool((filled[0, 0, 5, 5] - around.sum() / 12).abs() < 1e-5)
    True
    """
    kept = keep[:, None].to(x.dtype)
    levels = _levels(1 - kept, scattered)
    diagonal, _ = _weights(*x.shape[2:], x.dtype, x.device)

    # A constant solves the system, so the mean is taken out first: less is lost to rounding.
    known = x * kept
    mean = known.sum((2, 3), keepdim=True) / kept.sum((2, 3), keepdim=True)
    field = framed(known.addcmul(kept, mean, value=-1))

    # Preconditioned conjugate gradients, with one step length per image and channel.
    residual = neighbours(field)
    scaled_residual = residual * levels[0].inverse
    direction = torch.zeros_like(scaled_residual)
    norm = _dot(scaled_residual, scaled_residual).sqrt()
    limit = tolerance * norm
    is_active = norm > 0
    slope = torch.ones_like(norm)
    iterations = torch.zeros_like(is_active, dtype=torch.int64)
    for _ in range(ITERATIONS):
        if not bool(is_active.any()):
            filled = torch.where(kept > 0, x, pixels(field, x) + mean)
            return filled, iterations.flatten(1).amax(1)
        preconditioned = _cycle(levels, residual, scaled_residual)
        previous_slope, slope = slope, _dot(residual, preconditioned)
        momentum = torch.where(is_active, slope / previous_slope, 0).to(x.dtype)
        direction = torch.addcmul(preconditioned, momentum, direction)
        minus_image = neighbours(direction).addcmul_(diagonal, direction, value=-1)  # −A p
        step = torch.where(is_active, -slope / _dot(direction, minus_image), 0).to(x.dtype)
        iterations += is_active
        field.addcmul_(step, direction)
        residual.addcmul_(step, minus_image)
        scaled_residual = residual * levels[0].inverse
        is_active = is_active & (_dot(scaled_residual, scaled_residual).sqrt() > limit)
    raise UserError(
        f"tolerance={tolerance:g} was not reached in {ITERATIONS} iterations; give a larger one"
    )


def framed(images: Tensor) -> Tensor:
    """Return images (n, C, H, W) with a frame of zeros, one pixel wide, that lets filters ignore the border.

    With the frame, every pixel has eight neighbours, and those outside the image add nothing to a sum. Where height or
    width is odd, one more row or column of zeros makes it even, because the next coarser grid takes 2×2 pixels as one.

    >>> framed(torch.ones(1, 1, 1, 2))[0, 0].tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    height, width = images.shape[2:]
    return pad(images, (1, 1 + width % 2, 1, 1 + height % 2))


def pixels(u: Tensor, like: Tensor) -> Tensor:
    """Return framed images without their frame of zeros, in the height and width of `like`.

    >>> pixels(framed(torch.ones(1, 1, 3, 2)), torch.zeros(3, 2)).sum().item()
    6.0
    """
    return u[..., 1 : 1 + like.shape[-2], 1 : 1 + like.shape[-1]]


def neighbours(u: Tensor) -> Tensor:
    """Return for each pixel of framed images the weighted sum of its eight neighbours: W u in the linear system.

    Neighbours at the sides have weight 2 and those at the corners 1, so the filter is [1, 2, 1] down times [1, 2, 1]
    across, without the centre. What comes out in the frame has no meaning.

    >>> pixels(neighbours(framed(torch.ones(1, 1, 2, 3))), torch.zeros(2, 3)).tolist()
    [[[[5.0, 8.0, 5.0], [5.0, 8.0, 5.0]]]]
    """
    # In rows laid end to end, neighbours are at fixed distances: 1 for left and right, one row length (`pitch`) for above
    # and below. So the sums are a few additions of long shifted vectors.
    pitch, flat = u.shape[3], u.flatten(2)
    above_and_below = flat[..., : -2 * pitch] + flat[..., 2 * pitch :]
    column_sums = torch.add(above_and_below, flat[..., pitch:-pitch], alpha=2)  # taps [1, 2, 1]
    sums = torch.zeros_like(flat)
    core = sums[..., pitch + 1 : -pitch - 1]
    torch.add(column_sums[..., :-2], column_sums[..., 2:], out=core)
    core.add_(above_and_below[..., 1:-1], alpha=2)
    return sums.view(u.shape)


def gathered(u: Tensor) -> Tensor:
    """Return a residual at half the resolution: what the coarser grid of the multigrid solver starts from.

    u and the result are framed images. A coarse pixel is the sum of 4×4 fine ones with weights [1, 3, 3, 1] in each
    direction, the transpose of the interpolation in `spread`.

    >>> pixels(gathered(framed(torch.ones(1, 1, 3, 2))), torch.zeros(2, 1)).flatten().tolist()
    [42.0, 24.0]
    """
    rows = torch.add(u[:, :, 0:-3:2], u[:, :, 1:-2:2], alpha=3)
    rows.add_(u[:, :, 2:-1:2], alpha=3).add_(u[:, :, 3::2])
    cells = torch.add(rows[..., 0:-3:2], rows[..., 1:-2:2], alpha=3)
    cells.add_(rows[..., 2:-1:2], alpha=3).add_(rows[..., 3::2])
    return framed(cells)


def spread(coarse: Tensor, shape: torch.Size) -> Tensor:
    """Return coarse framed images interpolated to twice the resolution; `shape` is that of the result with its frame.

    A fine pixel is 3 times its own coarse pixel plus 1 times the next one, in each direction: bilinear interpolation
    without the division by 16. In the module's formulas it is τ P, and `gathered` is its transpose.

    >>> spread(framed(torch.ones(1, 1, 1, 1)), torch.Size([4, 4]))[0, 0].tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 9.0, 9.0, 0.0], [0.0, 9.0, 9.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    # The coarse pixels under the image, without the frame, and the same one column (row) before and after. Even and
    # odd fine columns (rows) take their 1 part from different sides.
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


def _cycle(levels: list[Level], residual: Tensor, swept: Tensor | None = None) -> Tensor:
    """Return an approximate solution of A u = residual by one V-cycle of multigrid (Briggs et al. 2000, chapter 3).

    A V-cycle sweeps once on the finest level, corrects the result on the coarser ones (by calling itself), and sweeps
    again. `levels` are those from the current one to the coarsest, which is solved exactly. `swept` is the first Jacobi
    sweep D⁻¹r from zero, where the caller has it already; it leaves the residual r − A D⁻¹r = W D⁻¹r.
    """
    level, *coarser = levels
    if level.solution is not None:
        dense = residual[..., 1:-1, 1:-1]
        solved = (dense.flatten(2) @ level.solution).view(dense.shape)
        return pad(solved, (1, 1, 1, 1))
    if swept is None:
        swept = residual * level.inverse
    if level.share is None:
        return swept
    correction = _cycle(coarser, gathered(neighbours(swept).mul_(level.share)))
    corrected = torch.addcmul(swept, spread(correction, swept.shape), level.share)
    # The last sweep: D⁻¹(r + W u) = D⁻¹r + D⁻¹(W u) with the corrected u, where the first sweep was D⁻¹r.
    return torch.addcmul(swept, neighbours(corrected), level.inverse)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the scalar products of images a and b (n, C, H, W), (n, C, 1, 1) in float64.

    Sums of rows are added in double precision, so that the order of additions, which differs between devices, does not
    show.
    """
    row_sums = (a * b).sum(3, keepdim=True)
    return row_sums.sum(2, keepdim=True, dtype=torch.float64)


@lru_cache(maxsize=32)
def _weights(
    height: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return two framed images (1, 1, ·, ·) that depend only on the size of images: D and τ of the module's formulas.

    D is the sum of the weights of a pixel's neighbours inside the image, the diagonal of the matrix A. τ is the sum of
    the interpolation weights that reach a pixel. In the frame both are 1, because they are divided by.
    """
    ones = framed(torch.ones(1, 1, height, width, dtype=dtype, device=device))
    coarse = torch.ones(1, 1, (height + 1) // 2, (width + 1) // 2, dtype=dtype, device=device)
    diagonal = neighbours(ones).clamp(min=1)
    taps = spread(framed(coarse), ones.shape).clamp(min=1)
    return diagonal, taps


def _levels(unknown: Tensor, scattered: bool) -> list[Level]:
    """Return the levels of the multigrid solver, from the finest to the coarsest, each at half the resolution.

    `unknown` (n, 1, H, W) is 1 where a pixel is removed and has to be filled in. Where removed pixels are `scattered`
    among kept ones, the finest level alone is enough.
    """
    levels: list[Level] = []
    hold: Tensor | None = None  # q: the weight of the kept neighbours of an unknown
    while True:
        m = framed(unknown)
        diagonal, taps = _weights(*unknown.shape[2:], m.dtype, m.device)
        if hold is None:
            hold = (diagonal - neighbours(m)).mul_(m)
        else:
            hold = hold.mul_(m).mul_(SOFTER)
            # D = Wm + q at unknowns, and not zero elsewhere.
            diagonal = neighbours(m).add_(hold).sub_(m).add_(1)
        inverse = m / diagonal
        if scattered:
            return [Level(inverse)]
        is_coarsest = unknown[0].numel() <= COARSEST
        if is_coarsest:
            return [*levels, Level(inverse, None, _dense_inverse(m, diagonal))]
        share = m / taps
        levels.append(Level(inverse, share))
        hold = gathered(hold * share)
        unknown = max_pool2d(unknown, 2, ceil_mode=True)


def _dense_inverse(m: Tensor, diagonal: Tensor) -> Tensor:
    """Return the inverse A⁻¹ (n, cells, cells) of the coarsest level's matrix A = D − W, one dense matrix per mask.

    `m` is 1 at unknown pixels and `diagonal` is D, both framed (n or 1, 1, ·, ·). Rows and columns of known pixels are
    zero. The frame is left out, except for the row or column that makes a side even.
    """
    is_unknown = m[..., 1:-1, 1:-1].flatten(1)
    diagonal_of_cells = diagonal.expand_as(m)[..., 1:-1, 1:-1].flatten(1)
    both_unknown = is_unknown[:, :, None] * is_unknown[:, None, :]
    # W sums neighbours with weights [1, 2, 1] down times [1, 2, 1] across, except the centre with its weight of 4. So
    # W + 4·I is the Kronecker product of two tridiagonal matrices, one for each direction.
    tridiagonal = []
    for side in m.shape[2:]:
        ones = m.new_ones(side - 2)
        tridiagonal.append(2 * ones.diag() + ones[1:].diag(1) + ones[1:].diag(-1))
    weights_plus_4 = torch.kron(*tridiagonal)
    # Known pixels get a 1 on the diagonal, which makes the matrix invertible; their rows are set to 0 at the end.
    diagonal_plus_4 = torch.diag_embed(torch.where(is_unknown > 0, 4 + diagonal_of_cells, 1))
    matrix = diagonal_plus_4 - weights_plus_4 * both_unknown
    return torch.cholesky_inverse(torch.linalg.cholesky(matrix)).mul_(both_unknown)
