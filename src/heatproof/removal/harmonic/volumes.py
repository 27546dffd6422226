"""Removed voxels as the mean of the six that share a face with them, by conjugate gradients in double precision."""

from __future__ import annotations

import torch
from torch import Tensor

_MAX_ITERATIONS = 10_000
"""More iterations than a volume of a few hundred voxels a side needs; beyond them rounding limits the precision."""
_AXES = (2, 3, 4)


def interpolated_volumes(x: Tensor, keep: Tensor, tolerance: float) -> Tensor:
    """Return x (B, C, D, H, W) with removed voxels filled in: each becomes the mean of its six neighbours.

    `keep` (B, D, H, W) is false for removed voxels. They are the solution of a linear system, found by conjugate
    gradients up to a relative residual of `tolerance` in each volume.

    For a removed voxel i with the neighbours j inside the volume: Σⱼ (uᵢ − uⱼ) = 0, where u is x at kept voxels. The
    residual is at most `tolerance` times that of the mean of the kept voxels. Every volume must keep a voxel.

    >>> x, keep = torch.tensor([[[[[0.0, 9.0, 9.0, 3.0]]]]]), torch.tensor([[[[True, False, False, True]]]])
    >>> interpolated_volumes(x, keep, 1e-9).round(decimals=5).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    removed = (~keep)[:, None].double()
    known = x.double() * (1 - removed)
    known_mean = known.sum(_AXES, keepdim=True) / (1 - removed).sum(_AXES, keepdim=True)
    u = known + removed * known_mean

    # The method of conjugate gradients, with one step length per volume and channel.
    residual = -removed * _neighbour_differences(u)
    direction = residual.clone()
    power = residual.square().sum(_AXES, keepdim=True)
    goal = tolerance**2 * power
    for _ in range(_MAX_ITERATIONS):
        is_active = power > goal
        if not bool(is_active.any()):
            break
        image = removed * _neighbour_differences(direction)
        curvature = (direction * image).sum(_AXES, keepdim=True)
        step = torch.where(is_active, power / curvature, 0)
        u = u + step * direction
        residual = residual - step * image
        previous_power, power = power, residual.square().sum(_AXES, keepdim=True)
        direction = residual + torch.where(is_active, power / previous_power, 0) * direction
    return torch.where(keep[:, None], x, u.to(x.dtype))


def _neighbour_differences(u: Tensor) -> Tensor:
    """Return Σⱼ (uᵢ − uⱼ) over the neighbours j of every voxel i inside the volume."""
    sums = torch.zeros_like(u)
    for axis in _AXES:
        difference = u.diff(dim=axis)
        pairs = u.shape[axis] - 1
        sums.narrow(axis, 1, pairs).add_(difference)
        sums.narrow(axis, 0, pairs).sub_(difference)
    return sums
