"""The classifiers of concepts, fitted by scikit-learn: logistic regression and support vectors."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.explainers.adapters.foreign import library

_NEWTON_STEPS = 1000
_ITERATIONS = 10_000_000
_TOLERANCE = 1e-8
_NEGLIGIBLE = 1e-12
_DOES_NOT_CONVERGE = "the classifier does not converge with penalty={:g}; choose a smaller one"


def principal_axes(x: Tensor, components: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the coordinates (n, r) of centred rows x (n, p) along their first r principal axes, and the axes (p, r).

    The axes are orthonormal, and r is at most `components` and the rank of x. They come from the eigenvectors of the
    n × n products of the rows, because p may be large.

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
    """Return the weights w (p,) and the intercept b () of a logistic regression on centred rows x (n, p).

    They minimise penalty · Σ_i log(1 + exp(−y_i (x_i·w + b))) + ½‖w‖². `present` (n,) is true where y = 1. The minimum
    lies in the space of the rows, so Newton's method works on the coordinates of their principal axes: n columns, where
    a layer may have p = 100,000.

    >>> x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]]).double()
    >>> w, b = logistic_regression(x, torch.tensor([False, False, True, True]), 1.0)
    >>> bool(w > 0), abs(float(b)) < 1e-9
    (True, True)
    """
    linear_model = library("sklearn.linear_model", "sklearn")
    coordinates, axes = principal_axes(x)
    solver = linear_model.LogisticRegression(
        C=penalty, solver="newton-cholesky", tol=_TOLERANCE, max_iter=_NEWTON_STEPS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where rounding ends the search, at the minimum
        solver.fit(coordinates.cpu().numpy(), present.cpu().numpy())
    if int(solver.n_iter_[0]) >= _NEWTON_STEPS:
        raise UserError(_DOES_NOT_CONVERGE.format(penalty))
    weight = axes @ torch.from_numpy(solver.coef_[0]).to(axes)
    return weight, torch.tensor(float(solver.intercept_[0])).to(axes)


def support_vectors(kernel: Tensor, present: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Return the weights a (n,) and the intercept b () of a support vector classifier, given its kernel matrix (n, n).

    The classifier is s(u) = Σ_i a_i k(u_i, u) + b. `present` (n,) is true where y = 1, and else y = −1. a_i = y_i α_i,
    where α maximises Σα − ½ Σ α_i α_j y_i y_j k_ij subject to 0 ≤ α_i ≤ penalty and Σ y_i α_i = 0. libsvm holds the
    kernel in float32, so decisions are exact to about 1e-6 · penalty.

    >>> u = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]]).double()
    >>> a, b = support_vectors(u @ u.T, torch.tensor([False, False, True, True]), 10.0)
    >>> a.abs().tolist(), abs(float(b))
    ([0.0, 0.5, 0.5, 0.0], 0.0)
    """
    svm = library("sklearn.svm", "sklearn")
    # Without a random_state the solver would draw from NumPy's global state.
    solver = svm.SVC(
        C=penalty, kernel="precomputed", tol=_TOLERANCE, max_iter=_ITERATIONS, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of no convergence, which is an error here
        solver.fit(kernel.double().cpu().numpy(), present.cpu().numpy())
    if solver.fit_status_ != 0:
        raise UserError(_DOES_NOT_CONVERGE.format(penalty))
    a = torch.zeros(len(present), dtype=torch.float64)
    a[torch.from_numpy(solver.support_).long()] = torch.from_numpy(solver.dual_coef_[0])
    return a.to(kernel), torch.tensor(float(solver.intercept_[0])).to(kernel)
