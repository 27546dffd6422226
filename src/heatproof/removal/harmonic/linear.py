"""Removed pixels as the weighted mean of their neighbours: the linear system of ROAD, and the choice of its solver.

For a removed pixel i, with neighbours j of weight w = 1/6 (sharing a side) or 1/12 (sharing a corner),

    dᵢ uᵢ − Σⱼ wᵢⱼ uⱼ = 0,  dᵢ = Σⱼ wᵢⱼ,

where u is x at kept pixels and neighbours beyond the border are left out of both sums. d does not depend on the mask
and w is symmetric, so the matrix is symmetric, and positive definite as soon as one pixel is kept. One matrix serves
all channels. The solution stays within the range of the kept values.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solveh_banded
from torch import Tensor

from heatproof.removal.harmonic.multigrid import COARSEST, fill

_NEIGHBOURS = ((0, 1, 2.0), (1, -1, 1.0), (1, 0, 2.0), (1, 1, 1.0))
"""Row, column and twelve times the weight of half of the neighbours; the other half lies opposite."""

_DIRECT_WORK = 2500
"""Operations of banded Cholesky per pixel of the image below which it is faster than multigrid on a CPU (measured)."""

_SCATTERED = 0.3
"""Share of kept pixels beside removed ones from which multigrid is faster without coarse levels on a CPU (measured)."""

_FINEST_SINGLE = 5e-6
"""Smallest tolerance that single precision is used for."""

_VALUES_AT_ONCE_CPU = 1 << 18
"""Pixels times channels solved together on a CPU: few enough for its cache; the arrays take some 70 bytes for each."""
_VALUES_AT_ONCE_GPU = 256 * 3 * 224 * 224


def interpolated(x: Tensor, keep: Tensor, tolerance: float) -> Tensor:
    """Return x (B, C, H, W) with removed pixels filled in: each becomes the weighted mean of its eight neighbours.

    `keep` (B, H, W) is false for removed pixels. They are the solution of a linear system (ROAD's noisy linear imputation
    without the noise), up to a relative residual of `tolerance`.

    Images are solved together by multigrid conjugate gradients, on a CPU few at a time; there an image is solved by
    banded Cholesky in double precision where that is cheap (small images, few removed pixels, one side much the
    longer). x must be finite; its values at removed pixels do not matter. Every image must keep a pixel.

    >>> x, keep = torch.tensor([[[[0.0, 9.0, 9.0, 3.0]]]]), torch.tensor([[[True, False, False, True]]])
    >>> interpolated(x, keep, 1e-5).round(decimals=5).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    single_suffices = tolerance >= _FINEST_SINGLE and x.dtype != torch.float64
    precision = torch.float32 if single_suffices else torch.float64
    on_cpu = x.device.type == "cpu"
    height, width = x.shape[-2:]
    direct_limit = _direct_limit(height, width, on_cpu)

    result = x.clone()
    # The images for multigrid, by whether their removed pixels are scattered among kept ones.
    iterative: dict[bool, list[int]] = {False: [], True: []}
    for i, operations in enumerate(_banded_work(keep)):
        if operations == 0:  # nothing is removed
            continue
        if operations < direct_limit:
            values = banded(x[i].double().cpu().numpy(), keep[i].cpu().numpy())
            result[i][:, ~keep[i]] = torch.from_numpy(values).to(x.device, x.dtype)
        else:
            is_scattered = on_cpu and _contact(keep[i]) >= _SCATTERED
            iterative[is_scattered].append(i)

    if on_cpu:
        images_at_once = _VALUES_AT_ONCE_CPU // max(x[:1].numel(), 1)
    else:
        # The dense matrix of the coarsest level may take more memory than a small image.
        images_at_once = _VALUES_AT_ONCE_GPU // max(x[:1].numel(), COARSEST**2)
    images_at_once = max(1, images_at_once)
    for is_scattered, images in iterative.items():
        for start in range(0, len(images), images_at_once):
            rows = images[start : start + images_at_once]
            solved, _ = fill(x[rows].to(precision), keep[rows], tolerance, is_scattered)
            result[rows] = solved.to(x.dtype)
    return result


def _direct_limit(height: int, width: int, on_cpu: bool) -> float:
    """Return the number of operations up to which an image is solved directly, by banded Cholesky, and not by multigrid."""
    # Halving both sides of a strip again and again would end in one long row, too long for a dense coarsest level.
    is_strip = max(height, width) > COARSEST * min(height, width)
    if is_strip:
        return float("inf")
    return _DIRECT_WORK * height * width if on_cpu else 0


def banded(x: NDArray[np.float64], keep: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the filled-in values (C, n) of the n removed pixels of one image (C, H, W), solved for directly.

    `keep` (H, W) is false for removed pixels, and values are in the order of `x[:, ~keep]`. Each removed pixel is the
    weighted mean of its eight neighbours; the system of these equations has a banded matrix, solved by Cholesky.
    The unknowns are numbered along the shorter side, so that the matrix has about that many diagonals.

    >>> banded(np.array([[[0.0, 9.0, 1.0]]]), np.array([[True, False, True]])).tolist()
    [[0.5]]
    """
    if x.shape[1] < x.shape[2]:
        transposed = np.zeros((len(x), *keep.T.shape))
        transposed[:, ~keep.T] = banded(x.transpose(0, 2, 1), keep.T)
        return transposed.transpose(0, 2, 1)[:, ~keep]

    # A ring of pixels around the image lets every pixel have eight neighbours. Pixels are numbered row by row.
    channels, _, width = x.shape
    ring, pitch = ((1, 1), (1, 1)), width + 2
    is_removed = np.pad(~keep, ring).ravel()
    known = np.pad(np.where(keep, x, 0), ((0, 0), *ring)).reshape(channels, -1).T
    is_inside = np.pad(np.ones(keep.shape), ring).ravel()
    unknown_number = np.cumsum(is_removed) - 1
    pixels = np.flatnonzero(is_removed)

    # One row of the system per removed pixel: d·u − Σ w·u_neighbours = Σ w·x_neighbours, times 12.
    diagonal = np.zeros(len(pixels))
    right_side = np.zeros((len(pixels), channels))
    couplings = []
    for row, column, weight in _NEIGHBOURS:
        step = row * pitch + column
        after, before = pixels + step, pixels - step
        diagonal += weight * (is_inside[after] + is_inside[before])
        right_side += weight * (known[after] + known[before])
        coupled = np.flatnonzero(is_removed[after])
        offset = unknown_number[after[coupled]] - coupled
        couplings.append((coupled, offset, weight))

    bandwidth = max(offset.max(initial=0) for _, offset, _ in couplings)
    bands = np.zeros((len(pixels), 1 + bandwidth))
    bands[:, 0] = diagonal
    for coupled, offset, weight in couplings:
        bands[coupled, offset] = -weight
    solved: NDArray[np.float64] = solveh_banded(
        bands.T, right_side, lower=True, overwrite_ab=True, overwrite_b=True, check_finite=False
    ).T
    return solved


def _banded_work(keep: Tensor) -> list[float]:
    """Return about n · (bandwidth)² for each mask: n unknowns, and as many diagonals as the fullest line has unknowns."""
    removed = ~keep if keep.shape[1] >= keep.shape[2] else ~keep.transpose(1, 2)
    per_line = removed.sum(2)
    bandwidth = per_line.amax(1) + 2
    work: list[float] = (per_line.sum(1).double() * bandwidth**2).tolist()
    return work


def _contact(keep: Tensor) -> float:
    """Return the share of kept pixels among those above, below and beside the removed pixels of a mask (H, W)."""
    vertical_edges = (keep[1:] ^ keep[:-1]).count_nonzero()
    horizontal_edges = (keep[:, 1:] ^ keep[:, :-1]).count_nonzero()
    removed = keep.numel() - int(keep.count_nonzero())
    return float(vertical_edges + horizontal_edges) / max(1, 4 * removed)
