"""Removed voxels as the mean of the six that share a face with them, by conjugate gradients in double precision."""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS = 10_000
"""More iterations than a volume of a few hundred voxels a side needs; beyond them rounding has the last word."""


def interpolated_volumes(x: Tensor, keep: Tensor, tolerance: float) -> Tensor:
    """x (B, C, D, H, W) with the voxels that `keep` (B, D, H, W) removes solved for, each volume to `tolerance`.

    For a removed voxel i with the neighbours j inside the volume: Σⱼ (uᵢ − uⱼ) = 0, where u is x at kept voxels. What
    is left over is at most `tolerance` times what the mean of the kept voxels leaves. Every volume must keep a voxel.

    >>> x, keep = torch.tensor([[[[[0.0, 9.0, 9.0, 3.0]]]]]), torch.tensor([[[[True, False, False, True]]]])
    >>> interpolated_volumes(x, keep, 1e-9).round(decimals=5).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    removed, dims = (~keep)[:, None].double(), (2, 3, 4)
    known = x.double() * (1 - removed)
    u = known + removed * known.sum(dims, keepdim=True) / (1 - removed).sum(dims, keepdim=True)
    left = -removed * _differences(u)
    direction, power = left.clone(), left.square().sum(dims, keepdim=True)
    goal = tolerance**2 * power
    for _ in range(_STEPS):
        open_ = power > goal
        if not bool(open_.any()):
            break
        image = removed * _differences(direction)
        step = torch.where(open_, power / (direction * image).sum(dims, keepdim=True), 0)
        u, left = u + step * direction, left - step * image
        before, power = power, left.square().sum(dims, keepdim=True)
        direction = left + torch.where(open_, power / before, 0) * direction
    return torch.where(keep[:, None], x, u.to(x.dtype))


def _differences(u: Tensor) -> Tensor:
    """Σⱼ (uᵢ − uⱼ) over the neighbours inside."""
    out = torch.zeros_like(u)
    for dim in (2, 3, 4):
        step, inner = u.diff(dim=dim), u.shape[dim] - 1
        out.narrow(dim, 1, inner).add_(step)
        out.narrow(dim, 0, inner).sub_(step)
    return out
