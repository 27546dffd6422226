"""Removed pixels as the weighted mean of their neighbours: the linear system, and which solver it goes to.

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
"""Operations of banded Cholesky per pixel of the image below which it was measured to beat multigrid on a CPU."""

_SCATTERED = 0.3
"""Share of kept pixels beside removed ones from which on a CPU was measured to be faster without coarse levels."""

_FINEST_SINGLE = 5e-6
"""Smallest tolerance that single precision is used for."""

_VALUES_AT_ONCE = {True: 1 << 18, False: 256 * 3 * 224 * 224}
"""Pixels times channels solved together: on a CPU few enough for its cache; the arrays take some 70 bytes for each."""


def interpolated(x: Tensor, keep: Tensor, tolerance: float) -> Tensor:
    """x (B, C, H, W) with the pixels that `keep` (B, H, W) removes solved for, to a relative residual of `tolerance`.

    Images are solved together by multigrid conjugate gradients, on a CPU few at a time; there an image is solved by
    banded Cholesky in double precision where that is cheap (small images, few removed pixels, one side much the
    longer). x must be finite; its values at removed pixels do not matter. Every image must keep a pixel.

    >>> x, keep = torch.tensor([[[[0.0, 9.0, 9.0, 3.0]]]]), torch.tensor([[[True, False, False, True]]])
    >>> interpolated(x, keep, 1e-5).round(decimals=5).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    precision = (
        torch.float32 if tolerance >= _FINEST_SINGLE and x.dtype != torch.float64 else torch.float64
    )
    height, width = x.shape[-2:]
    on_cpu = x.device.type == "cpu"
    narrow = max(height, width) > COARSEST * min(
        height, width
    )  # halving both sides would end in one long row
    limit = float("inf") if narrow else _DIRECT_WORK * height * width if on_cpu else 0
    out, grouped = x.clone(), dict[bool, list[int]]()
    for i, operations in enumerate(_banded_work(keep)):
        if 0 < operations < limit:
            values = torch.from_numpy(banded(x[i].double().cpu().numpy(), keep[i].cpu().numpy()))
            out[i][:, ~keep[i]] = values.to(x.device, x.dtype)
        elif operations:
            grouped.setdefault(on_cpu and _contact(keep[i]) >= _SCATTERED, []).append(i)
    at_once = max(1, _VALUES_AT_ONCE[on_cpu] // max(x[:1].numel(), 1 if on_cpu else COARSEST**2))
    for scattered, found in grouped.items():
        for start in range(0, len(found), at_once):
            rows = found[start : start + at_once]
            out[rows] = fill(x[rows].to(precision), keep[rows], tolerance, scattered)[0].to(x.dtype)
    return out


def banded(x: NDArray[np.float64], keep: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The removed pixels of one image (C, H, W), given `keep` (H, W), as (C, n) in the order of `x[:, ~keep]`.

    The unknowns are numbered along the shorter side, so that the matrix has about that many diagonals.

    >>> banded(np.array([[[0.0, 9.0, 1.0]]]), np.array([[True, False, True]])).tolist()
    [[0.5]]
    """
    if x.shape[1] < x.shape[2]:
        turned = banded(x.transpose(0, 2, 1), keep.T)
        image = np.zeros((len(x), *keep.T.shape))
        image[:, ~keep.T] = turned
        return image.transpose(0, 2, 1)[:, ~keep]
    channels, _, width = x.shape
    ring, pitch = ((1, 1), (1, 1)), width + 2
    removed = np.pad(~keep, ring).ravel()
    known = np.pad(np.where(keep, x, 0), ((0, 0), *ring)).reshape(channels, -1).T
    inside = np.pad(np.ones(keep.shape), ring).ravel()
    number, pixels = np.cumsum(removed) - 1, np.flatnonzero(removed)
    diagonal, right, below = np.zeros(len(pixels)), np.zeros((len(pixels), channels)), []
    for row, column, weight in _NEIGHBOURS:
        step = row * pitch + column
        after, before = pixels + step, pixels - step
        diagonal += weight * (inside[after] + inside[before])
        right += weight * (known[after] + known[before])
        pairs = np.flatnonzero(removed[after])
        below.append((pairs, number[after[pairs]] - pairs, weight))
    bands = np.zeros((len(pixels), 1 + max((offset.max(initial=0) for _, offset, _ in below))))
    bands[:, 0] = diagonal
    for pairs, offset, weight in below:
        bands[pairs, offset] = -weight
    solved: NDArray[np.float64] = solveh_banded(
        bands.T, right, lower=True, overwrite_ab=True, overwrite_b=True, check_finite=False
    ).T
    return solved


def _banded_work(keep: Tensor) -> list[float]:
    """About n · (bandwidth)² for each mask: n unknowns, and as many diagonals as the fullest line has unknowns."""
    removed = ~keep if keep.shape[1] >= keep.shape[2] else ~keep.transpose(1, 2)
    per_line = removed.sum(2)
    work: list[float] = (per_line.sum(1).double() * (per_line.amax(1) + 2) ** 2).tolist()
    return work


def _contact(keep: Tensor) -> float:
    """The share of kept pixels among those above, below and beside the removed pixels of a mask (H, W)."""
    edges = (keep[1:] ^ keep[:-1]).count_nonzero() + (keep[:, 1:] ^ keep[:, :-1]).count_nonzero()
    return float(edges) / max(1, 4 * (keep.numel() - int(keep.count_nonzero())))
