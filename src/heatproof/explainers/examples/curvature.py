"""The curvature of a training loss by some weights: as a matrix, as products with vectors, and systems solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from heatproof.errors import UserError
from heatproof.explainers.examples.loss_gradients import (
    class_scores,
    is_linear,
    leaves_of,
    losses,
    on_vectors,
    probed,
    training_parts,
    weights_of,
)
from heatproof.explainers.examples.training_set import Examples
from heatproof.models import Model

Curvature = Literal["gauss_newton", "hessian"]

LARGEST_DENSE = 6144
"""The most weights whose curvature is held as a matrix (300 MB)."""
ROUNDED_RESIDUAL = 1e-3
"""The relative residual that products in single precision may leave behind."""


def dense_curvature(
    model: Model, train: Examples, layers: Sequence[str], curvature: Curvature
) -> Tensor | None:
    """The curvature (P, P) float64 of the mean training loss for one linear layer on vectors; None for anything else.

    A layer z = Wh + b is linear in its weights, so a sample contributes h̃h̃ᵀ ⊗ ∂²L/∂z², with h̃ = (h, 1).

    >>> from heatproof.types import Batch
    >>> model = Model(torch.nn.Linear(1, 2, bias=False))
    >>> _ = model.module.weight.zero_()
    >>> train = Examples(Batch(("a",), torch.tensor([[2.0]]), label=torch.tensor([0])))
    >>> dense_curvature(model, train, [""], "hessian").tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    size = sum(p.numel() for p in weights_of(model, layers).values())
    if len(layers) != 1 or not is_linear(model, layers[0]) or size > LARGEST_DENSE:
        return None
    bias = model.layer(layers[0]).bias is not None
    total: Tensor | None = None
    for part, classes in training_parts(model, train, "influence"):
        scores, probes = probed(model, part, layers, {})
        if len(probes) != 1 or not on_vectors(model, layers, probes, len(part)):
            return None
        with torch.enable_grad():
            loss = losses(scores, classes, model, train)
            by_output = _output_curvature(scores, loss, probes[0].added, curvature)
        taken = probes[0].taken.detach().double()
        taken = torch.cat([taken, torch.ones_like(taken[:, :1])], 1) if bias else taken
        rows = by_output.double().unbind(1)
        added = torch.stack(
            [torch.einsum("bi,bc,bj->icj", taken, row, taken) for row in rows]
        ) / len(train)
        total = added if total is None else total + added
    assert total is not None
    matrix = total.flatten(2).flatten(0, 1)
    outputs, inputs = total.shape[:2]
    # From one row (w, b) per output to all weights before all biases, as gradients have them.
    place = torch.arange(outputs * inputs, device=matrix.device).reshape(outputs, inputs)
    order = torch.cat([place[:, :-1].flatten(), place[:, -1]]) if bias else place.flatten()
    return matrix[order][:, order]


def _output_curvature(scores: Tensor, loss: Tensor, added: Tensor, curvature: Curvature) -> Tensor:
    """∂²L/∂z² (B, c, c) of every sample, or its Gauss–Newton part."""

    def rows(values: Tensor) -> Tensor:
        found = [
            torch.autograd.grad(
                column.sum(), added, retain_graph=True, allow_unused=True, materialize_grads=True
            )[0]
            for column in values.unbind(1)
        ]
        return torch.stack(found, 1)

    if curvature == "hessian":
        return rows(torch.autograd.grad(loss.sum(), added, create_graph=True)[0])
    jacobian = rows(scores).double()
    share = scores.detach().double().softmax(1)
    mean = (share[:, :, None] * jacobian).sum(1)
    return jacobian.mT @ (share[:, :, None] * jacobian) - mean[:, :, None] * mean[:, None]


def solve_dense(curvature: Tensor, gradients: Tensor, damping: float) -> Tensor:
    """(H + damping·I)⁻¹g for the rows g of `gradients` (K, P), float64; an error unless that is positive definite.

    >>> solve_dense(torch.eye(2).double(), torch.tensor([[8.0, 4.0]]), 3.0).tolist()
    [[2.0, 1.0]]
    """
    damped = curvature + damping * torch.eye(
        len(curvature), dtype=curvature.dtype, device=curvature.device
    )
    factor, failed = torch.linalg.cholesky_ex(damped)
    if int(failed):
        raise indefinite()
    return torch.cholesky_solve(gradients.double().T, factor).T


def curvature_products(
    model: Model, train: Examples, layers: Sequence[str], vectors: Tensor, curvature: Curvature
) -> Tensor:
    """The curvature of the mean training loss times each row of `vectors` (K, P), float64, by differentiating twice.

    >>> from heatproof.types import Batch
    >>> model = Model(torch.nn.Linear(1, 2, bias=False))
    >>> _ = model.module.weight.zero_()
    >>> train = Examples(Batch(("a",), torch.tensor([[2.0]]), label=torch.tensor([0])))
    >>> curvature_products(model, train, [""], torch.eye(2).double(), "gauss_newton").tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    leaves = leaves_of(weights_of(model, layers), {})
    weights = list(leaves.values())
    total = torch.zeros_like(vectors)
    # Fused attention cannot be differentiated twice.
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        for part, classes in training_parts(model, train, "influence"):
            scores = class_scores(model, part, leaves)
            if curvature == "hessian":
                loss = losses(scores, classes, model, train).sum() / len(train)
                gradient = torch.autograd.grad(
                    loss, weights, create_graph=True, allow_unused=True, materialize_grads=True
                )
                product: Callable[[list[Tensor]], Tensor] = partial(_pull, gradient, weights)
            else:
                product = _gauss_newton_product(scores, weights, len(train))
            for k, vector in enumerate(vectors):
                total[k] += product(_like(vector, weights))
    return total


def _gauss_newton_product(
    scores: Tensor, weights: list[Tensor], n: int
) -> Callable[[list[Tensor]], Tensor]:
    """v ↦ Jᵀ(diag p − ppᵀ)Jv / n; Jv is the derivative by u of uᵀJ times v, so backward passes suffice."""
    along = torch.zeros_like(scores, requires_grad=True)
    pulled = torch.autograd.grad(
        scores, weights, along, create_graph=True, allow_unused=True, materialize_grads=True
    )
    share = scores.detach().softmax(1)

    def product(vector: list[Tensor]) -> Tensor:
        pushed = _pull(pulled, [along], vector).reshape(scores.shape).to(share)
        bent = share * (pushed - (share * pushed).sum(1, keepdim=True)) / n
        return _pull([scores], weights, [bent])

    return product


def _pull(outputs: Sequence[Tensor], inputs: Sequence[Tensor], along: Sequence[Tensor]) -> Tensor:
    """The gradient by the inputs of Σ outputs·along, in one row; the graph is kept for the next vector."""
    used = [(output, a) for output, a in zip(outputs, along, strict=True) if output.requires_grad]
    found = torch.autograd.grad(
        [output for output, _ in used],
        list(inputs),
        [a for _, a in used],
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    return torch.cat([g.reshape(-1).double() for g in found])


def _like(row: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    pieces = torch.split(row, [tensor.numel() for tensor in tensors])
    return [piece.reshape(t.shape).to(t.dtype) for piece, t in zip(pieces, tensors, strict=True)]


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], right: Tensor, tolerance: float, iterations: int
) -> Tensor:
    """The solutions (K, P) of A x = b for the rows b of `right`, side by side, each stopped by itself.

    `product(v)` is A applied to every row of v (K', P). The steps must bring every relative residual to the tolerance;
    computed anew at the end, where the rounding of all products shows, it may be ten times that, or 0.001.

    >>> matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    >>> conjugate_gradients(lambda v: v @ matrix, matrix, 1e-9, 10).round(decimals=6).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    solution, residual, step = torch.zeros_like(right), right.clone(), right.clone()
    size = right.norm(dim=1)
    square = residual.square().sum(1)
    for _ in range(iterations):
        active = (square > (tolerance * size).square()).nonzero()[:, 0]
        if not len(active):
            break
        direction = step[active]
        image = product(direction)
        bend = (direction * image).sum(1)
        if bool((bend <= 0).any()):
            raise indefinite()
        length = (square[active] / bend)[:, None]
        solution[active] += length * direction
        residual[active] -= length * image
        before, square[active] = square[active], residual[active].square().sum(1)
        step[active] = residual[active] + (square[active] / before)[:, None] * direction
    left = (right - product(solution)).norm(dim=1) / size.clamp(min=torch.finfo(size.dtype).tiny)
    worst = float(left.max())
    arrived = bool((square <= (tolerance * size).square()).all())
    if not arrived or not worst <= max(10 * tolerance, ROUNDED_RESIDUAL):
        raise UserError(
            f"conjugate gradients left a relative residual of {worst:.1e} after at most {iterations} iterations, "
            f"tolerance {tolerance:g}; raise damping, iterations or tolerance"
        )
    return solution


def indefinite() -> UserError:
    """The error for a curvature that cannot be inverted."""
    return UserError(
        "the damped Hessian of the training loss is not positive definite; raise damping, or use "
        "curvature='gauss_newton'"
    )
