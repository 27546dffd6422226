"""The curvature of the training loss with respect to some weights: as a matrix, as products with vectors, inverted."""

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
    probed_scores,
    training_chunks,
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
    """Return the Hessian (P, P) of the mean training loss by the P weights of a linear layer, or its Gauss–Newton part.

    None unless `layers` is one linear layer that runs once on one vector per sample, with few enough weights. A layer
    z = Wh + b is linear in its weights, so the Hessian of a sample is the Kronecker product h̃h̃ᵀ ⊗ ∂²L/∂z², with the
    layer's input h̃ = (h, 1).

    >>> from heatproof.types import Batch
    >>> model = Model(torch.nn.Linear(1, 2, bias=False))
    >>> _ = model.module.weight.zero_()
    >>> train = Examples(Batch(("a",), torch.tensor([[2.0]]), label=torch.tensor([0])))
    >>> dense_curvature(model, train, [""], "hessian").tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    size = sum(weight.numel() for weight in weights_of(model, layers).values())
    if len(layers) != 1 or not is_linear(model, layers[0]) or size > LARGEST_DENSE:
        return None
    has_bias = model.layer(layers[0]).bias is not None
    total: Tensor | None = None
    for samples, classes in training_chunks(model, train, "influence"):
        scores, probes = probed_scores(model, samples, layers, {})
        if len(probes) != 1 or not on_vectors(model, layers, probes, len(samples)):
            return None
        probe = probes[0]
        with torch.enable_grad():
            loss = losses(scores, classes, model, train)
            by_output = _output_curvature(scores, loss, probe.output_probe, curvature)
        layer_input = probe.layer_input.detach().double()
        if has_bias:
            layer_input = torch.cat([layer_input, torch.ones_like(layer_input[:, :1])], 1)
        # (c, i, c, j), one output c at a time, which needs less memory than all at once.
        blocks = []
        for by_one_output in by_output.double().unbind(1):
            block = torch.einsum("bi,bc,bj->icj", layer_input, by_one_output, layer_input)
            blocks.append(block)
        contribution = torch.stack(blocks) / len(train)
        total = contribution if total is None else total + contribution
    assert total is not None
    matrix = total.flatten(2).flatten(0, 1)
    # Rows are (w, b) of one output after the other, but gradients have all weights before all biases.
    outputs, inputs = total.shape[:2]
    index = torch.arange(outputs * inputs, device=matrix.device).reshape(outputs, inputs)
    order = torch.cat([index[:, :-1].flatten(), index[:, -1]]) if has_bias else index.flatten()
    return matrix[order][:, order]


def _output_curvature(
    scores: Tensor, loss: Tensor, output_probe: Tensor, curvature: Curvature
) -> Tensor:
    """Return the second derivatives of each sample's loss by a layer's output z, (B, c, c), or their Gauss–Newton part.

    The loss is the cross-entropy of `scores` (B, K), with probabilities p. The Gauss–Newton part is Jᵀ(diag p − ppᵀ)J,
    where J is the Jacobian of the scores by z. `output_probe` (B, c) is a zero added to z, to differentiate by.
    """

    def jacobian_of(values: Tensor) -> Tensor:
        """Return the derivatives (B, k, c) of values (B, k) by the layer's output (B, c), one backward pass each."""
        rows = []
        for column in values.unbind(1):
            (gradient,) = torch.autograd.grad(
                column.sum(),
                output_probe,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            rows.append(gradient)
        return torch.stack(rows, 1)

    if curvature == "hessian":
        (gradient,) = torch.autograd.grad(loss.sum(), output_probe, create_graph=True)
        return jacobian_of(gradient)
    jacobian = jacobian_of(scores).double()
    probability = scores.detach().double().softmax(1)
    # Jᵀ diag(p) J − (Jᵀp)(Jᵀp)ᵀ
    weighted = probability[:, :, None] * jacobian
    mean = weighted.sum(1)
    return jacobian.mT @ weighted - mean[:, :, None] * mean[:, None]


def solve_dense(curvature: Tensor, gradients: Tensor, damping: float) -> Tensor:
    """Return (H + damping · I)⁻¹ g for each row g of `gradients` (K, P), float64, where H is the `curvature` (P, P).

    Solved by Cholesky; a matrix that is not positive definite is a `UserError`.

    >>> solve_dense(torch.eye(2).double(), torch.tensor([[8.0, 4.0]]), 3.0).tolist()
    [[2.0, 1.0]]
    """
    identity = torch.eye(len(curvature), dtype=curvature.dtype, device=curvature.device)
    factor, failed = torch.linalg.cholesky_ex(curvature + damping * identity)
    if int(failed):
        raise indefinite()
    return torch.cholesky_solve(gradients.double().T, factor).T


def curvature_products(
    model: Model, train: Examples, layers: Sequence[str], vectors: Tensor, curvature: Curvature
) -> Tensor:
    """Return H v for each row v of `vectors` (K, P), float64, with H the Hessian of the mean training loss.

    H is by the weights of `layers`, or with curvature="gauss_newton" its Gauss–Newton part. The products come from
    differentiating twice (Pearlmutter, 1994); the matrix is never formed.

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
        for samples, classes in training_chunks(model, train, "influence"):
            scores = class_scores(model, samples, leaves)
            if curvature == "hessian":
                loss = losses(scores, classes, model, train).sum() / len(train)
                gradient = torch.autograd.grad(
                    loss, weights, create_graph=True, allow_unused=True, materialize_grads=True
                )
                product: Callable[[list[Tensor]], Tensor] = partial(
                    _vector_jacobian_product, gradient, weights
                )
            else:
                product = _gauss_newton_product(scores, weights, len(train))
            for k, vector in enumerate(vectors):
                total[k] += product(_split_like(vector, weights))
    return total


def _gauss_newton_product(
    scores: Tensor, weights: list[Tensor], n: int
) -> Callable[[list[Tensor]], Tensor]:
    """Return a function that multiplies a vector v by the Gauss–Newton matrix: v ↦ Jᵀ(diag p − ppᵀ)Jv / n.

    J is the Jacobian of the class scores by the weights, p are the probabilities, and n is the number of training
    examples. v is given in pieces with the shapes of the weights. For Jv no forward-mode differentiation is needed: uᵀJ
    is a backward pass, and it is linear in u, so the derivative of (uᵀJ)·v by u is Jv: backward passes suffice.
    """
    u = torch.zeros_like(scores, requires_grad=True)
    u_jacobian = torch.autograd.grad(
        scores, weights, u, create_graph=True, allow_unused=True, materialize_grads=True
    )
    probability = scores.detach().softmax(1)

    def product(vector: list[Tensor]) -> Tensor:
        """Return the Gauss–Newton matrix times a vector, in one row (P,)."""
        jacobian_vector = _vector_jacobian_product(u_jacobian, [u], vector)
        jacobian_vector = jacobian_vector.reshape(scores.shape).to(probability)
        mean = (probability * jacobian_vector).sum(1, keepdim=True)
        by_scores = probability * (jacobian_vector - mean) / n
        return _vector_jacobian_product([scores], weights, [by_scores])

    return product


def _vector_jacobian_product(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor]
) -> Tensor:
    """Return the gradient of Σᵢ outputsᵢ · vectorsᵢ by all inputs, flattened into one float64 row.

    Outputs that depend on nothing are left out. The graph is kept, because it is differentiated again for other vectors.
    """
    used_outputs, used_vectors = [], []
    for output, vector in zip(outputs, vectors, strict=True):
        if output.requires_grad:
            used_outputs.append(output)
            used_vectors.append(vector)
    gradients = torch.autograd.grad(
        used_outputs,
        list(inputs),
        used_vectors,
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    return torch.cat([gradient.reshape(-1).double() for gradient in gradients])


def _split_like(row: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Cut a row into pieces with the shapes and types of the tensors."""
    pieces = torch.split(row, [tensor.numel() for tensor in tensors])
    shaped = []
    for piece, tensor in zip(pieces, tensors, strict=True):
        shaped.append(piece.reshape(tensor.shape).to(tensor.dtype))
    return shaped


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], right: Tensor, tolerance: float, iterations: int
) -> Tensor:
    """Return the solutions x (K, P) of A x = b for the rows b of `right` (K, P), by conjugate gradients.

    `product(v)` applies A to every row of v. Rows that have converged drop out. It is a `UserError` if a relative
    residual does not reach the `tolerance` within `iterations`. At the end residuals are computed once more from
    scratch, where the rounding errors of all products show; these may be ten times the tolerance, or 0.001.

    >>> matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    >>> conjugate_gradients(lambda v: v @ matrix, matrix, 1e-9, 10).round(decimals=6).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    solution = torch.zeros_like(right)
    residual, direction = right.clone(), right.clone()
    right_norm = right.norm(dim=1)
    residual_square = residual.square().sum(1)
    for _ in range(iterations):
        active = (residual_square > (tolerance * right_norm).square()).nonzero()[:, 0]
        if not len(active):
            break
        active_direction = direction[active]
        image = product(active_direction)
        curvature = (active_direction * image).sum(1)
        if bool((curvature <= 0).any()):
            raise indefinite()
        step = (residual_square[active] / curvature)[:, None]
        solution[active] += step * active_direction
        residual[active] -= step * image
        previous_square = residual_square[active]
        residual_square[active] = residual[active].square().sum(1)
        correction = (residual_square[active] / previous_square)[:, None] * active_direction
        direction[active] = residual[active] + correction
    tiny = torch.finfo(right_norm.dtype).tiny
    true_residual = (right - product(solution)).norm(dim=1) / right_norm.clamp(min=tiny)
    worst = float(true_residual.max())
    converged = bool((residual_square <= (tolerance * right_norm).square()).all())
    is_exact_enough = worst <= max(10 * tolerance, ROUNDED_RESIDUAL)  # false for NaN
    if not converged or not is_exact_enough:
        raise UserError(
            f"conjugate gradients left a relative residual of {worst:.1e} after at most {iterations} iterations, "
            f"tolerance {tolerance:g}; raise damping, iterations or tolerance"
        )
    return solution


def indefinite() -> UserError:
    """Return the error for a curvature that cannot be inverted."""
    return UserError(
        "the damped Hessian of the training loss is not positive definite; raise damping, or use "
        "curvature='gauss_newton'"
    )
