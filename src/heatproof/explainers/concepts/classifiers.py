"""Two convex classifiers solved to their optimum, for the concepts: logistic regression and support vectors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from heatproof.errors import UserError

_NEWTON_STEPS = 200
_PAIRS = 1_000_000
_TOLERANCE = 1e-6
_NEGLIGIBLE = 1e-12


def principal_axes(x: Tensor, components: int | None = None) -> tuple[Tensor, Tensor]:
    """Coordinates (n, r) of centred rows x (n, p) along their first principal axes, and the axes (p, r), orthonormal.

    r is at most `components` and the rank of x. Found from the n × n products of the rows, for p may be large.

    >>> x = torch.tensor([[2.0, 1.0], [-2.0, -1.0]]).double()
    >>> coordinates, axes = principal_axes(x)
    >>> axes.shape, torch.allclose(coordinates @ axes.T, x)
    (torch.Size([2, 1]), True)
    """
    values, vectors = torch.linalg.eigh(x @ x.T)
    values, vectors = values.flip(0), vectors.flip(1)
    r = int((values > _NEGLIGIBLE * values[0]).sum())
    r = r if components is None else min(r, components)
    lengths = values[:r].sqrt()
    return vectors[:, :r] * lengths, x.T @ (vectors[:, :r] / lengths)


def logistic_regression(x: Tensor, present: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """w (p,) and b () that minimise penalty · Σ_i log(1 + exp(−y_i (x_i·w + b))) + ½‖w‖² over centred rows x (n, p).

    `present` (n,) is true where y = 1. Newton's method in the space of the rows, where the minimum lies; each step is
    halved until the objective falls.

    >>> x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]]).double()
    >>> w, b = logistic_regression(x, torch.tensor([False, False, True, True]), 1.0)
    >>> bool(w > 0), abs(float(b)) < 1e-9
    (True, True)
    """
    coordinates, axes = principal_axes(x)
    y = torch.where(present, 1.0, -1.0).to(x.dtype)
    design = torch.cat([coordinates, torch.ones_like(coordinates[:, :1])], 1)
    shrunk = torch.ones_like(design[0])
    shrunk[-1] = 0

    def objective(at: Tensor) -> Tensor:
        losses = torch.nn.functional.softplus(-y * (design @ at))
        return penalty * losses.sum() + 0.5 * (shrunk * at).square().sum()

    at = torch.zeros_like(design[0])
    value = objective(at)
    for _ in range(_NEWTON_STEPS):
        wrong = torch.sigmoid(-y * (design @ at))
        gradient = shrunk * at - penalty * (y * wrong) @ design
        curvature = penalty * (design.T * (wrong * (1 - wrong))) @ design + torch.diag(shrunk)
        step = torch.linalg.solve(curvature, gradient)
        size, fall = 1.0, float(gradient @ step)
        while objective(at - size * step) > value - 1e-4 * size * fall and size > 1e-8:
            size /= 2
        ahead = objective(at - size * step)
        if not bool(ahead < value):  # no better to the last bit
            break
        at, value = at - size * step, ahead
    return axes @ at[:-1], at[-1]


def support_vectors(kernel: Tensor, present: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """a (n,) and b () of the support vector classifier s = Σ_i a_i k(u_i, ·) + b for a kernel matrix (n, n).

    a_i = y_i α_i, where α maximises Σα − ½ Σ α_i α_j y_i y_j k_ij subject to 0 ≤ α_i ≤ penalty and Σ y_i α_i = 0.
    Sequential minimal optimisation: the pair of examples that promises the largest gain is solved exactly, until no
    pair breaks the optimality conditions by more than 1e-6.

    >>> u = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]]).double()
    >>> a, b = support_vectors(u @ u.T, torch.tensor([False, False, True, True]), 10.0)
    >>> a.abs().tolist(), float(b)
    ([0.0, 0.5, 0.5, 0.0], 0.0)
    """
    k = kernel.double().cpu().numpy()
    y = np.where(present.cpu().numpy(), 1.0, -1.0)
    own = np.diag(k)
    alpha, violation = (
        np.zeros(len(y)),
        y.copy(),
    )  # violation is y times the slope of the dual objective
    for _ in range(_PAIRS):
        may_grow = np.where(y > 0, alpha < penalty, alpha > 0)
        may_shrink = np.where(y > 0, alpha > 0, alpha < penalty)
        i = int(np.where(may_grow, violation, -np.inf).argmax())
        gap = np.where(may_shrink, violation[i] - violation, -np.inf)
        if gap.max() < _TOLERANCE:
            break
        bend = np.maximum(own[i] + own - 2 * k[i], _NEGLIGIBLE)
        j = int(np.where(gap > 0, gap * gap / bend, -np.inf).argmax())
        room_i = penalty - alpha[i] if y[i] > 0 else alpha[i]
        room_j = alpha[j] if y[j] > 0 else penalty - alpha[j]
        move = min(gap[j] / bend[j], room_i, room_j)
        # The one that meets its bound is put there exactly, or rounding would keep it in the game for ever.
        alpha[i] = (penalty if y[i] > 0 else 0.0) if move == room_i else alpha[i] + y[i] * move
        alpha[j] = (0.0 if y[j] > 0 else penalty) if move == room_j else alpha[j] - y[j] * move
        violation -= move * (k[i] - k[j])
    else:
        raise UserError(
            f"the classifier does not settle with penalty={penalty:g}; choose a smaller one"
        )
    free = (alpha > 0) & (alpha < penalty)
    if free.any():
        bias = float(violation[free].mean())
    else:
        highest = violation[np.where(y > 0, alpha < penalty, alpha > 0)].max()
        lowest = violation[np.where(y > 0, alpha > 0, alpha < penalty)].min()
        bias = float(highest + lowest) / 2
    return torch.from_numpy(y * alpha).to(kernel), torch.tensor(bias).to(kernel)
