"""Influence functions: how much each training example lowers the loss of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.errors import UserError
from holdfast.explainers.examples.curvature import (
    LARGEST_DENSE,
    Curvature,
    conjugate_gradients,
    curvature_products,
    dense_curvature,
    solve_dense,
)
from holdfast.explainers.examples.loss_gradients import (
    Layers,
    check_differentiable,
    head,
    is_linear,
    sample_gradients,
    weights_of,
)
from holdfast.explainers.examples.training_set import ExamplesField
from holdfast.models import Model
from holdfast.types import STRICT, Batch

LARGEST_SOLUTION = 2**28
"""The most numbers, examples times weights, that the solved gradients of the training set may have (1 GiB)."""
_BLOCK = 2**25


@dataclass(frozen=True, config=STRICT)
class Influence:
    """∇L(x, t)ᵀ H⁻¹ ∇L(xₙ, yₙ) for every training example n and the target class t; (B, n) float32.

    H is the curvature of the mean training loss plus `damping`·I, with respect to the weights of `layers`: by default
    the last linear layer that runs. The sign is that of leaving n out: divided by the number of examples, the value is
    to first order L(x, t) after training without n minus L(x, t), so a positive one marks an example that helped. It is
    exact in that order when the weights minimise the mean loss + damping/2·‖θ‖².

    "gauss_newton" is the curvature without the network's own second derivatives. It equals the Hessian for the last
    layer and is positive definite for every other; a "hessian" may be indefinite, which is an error.

    solver "closed", for one linear layer on vectors of at most 6144 weights, is a Cholesky factorisation in double
    precision; "cg" runs conjugate gradients for any layers, until every relative residual is at most `tolerance`, and
    raises if `iterations` do not suffice; "auto" takes the first where it applies. H⁻¹∇L(xₙ, yₙ) is solved once for
    the training set, so a sample costs one gradient.

    >>> train = Batch(("a", "b"), torch.tensor([[1.0], [-1.0]]), label=torch.tensor([1, 0]))
    >>> values = Influence(train)(Model(torch.nn.Linear(1, 2)), train, torch.tensor([1, 0]), seed=0)
    >>> values.shape, bool((values.diag() > 0).all())
    (torch.Size([2, 2]), True)
    """

    name: ClassVar[str] = "influence"
    kind: ClassVar[Literal["example"]] = "example"
    stochastic: ClassVar[bool] = False
    control: ClassVar[bool] = False

    train: ExamplesField
    layers: Layers = ()
    damping: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    solver: Literal["auto", "closed", "cg"] = "auto"
    curvature: Curvature = "gauss_newton"
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    iterations: Annotated[int, Field(ge=1)] = 1000

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise unless layers, labels and shapes of the training examples fit; no pass is made."""
        check_differentiable(model, self.train, self.layers, shape, self.name)
        if self.solver == "closed" and self.layers and not (len(self.layers) == 1 and is_linear(model, self.layers[0])):
            raise UserError(
                f"influence in closed form is for one linear layer, got {', '.join(self.layers)}; use solver='cg'"
            )
        if self.layers:
            self._check_size(model, self.layers)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Influences (B, n) on the loss at the classes `target` (B,)."""
        self.check(model, batch.x.shape[1:])
        layers = self.layers or (head(model, self.train),)
        self._check_size(model, layers)
        key = ("influence", layers, self.damping, self.solver, self.curvature, self.tolerance, self.iterations)
        solved = self.train.remember(model, key, lambda: self._solve(model, layers))
        gradients = sample_gradients(model, self.train, batch, target, layers)
        return (gradients.to(solved) @ solved.T).float()

    def _check_size(self, model: Model, layers: Sequence[str]) -> None:
        size = sum(p.numel() for p in weights_of(model, layers).values())
        if size * len(self.train) > LARGEST_SOLUTION:
            raise UserError(
                f"influence over {size:,} weights and {len(self.train)} training examples needs more than 1 GiB; "
                f"take at most {max(1, LARGEST_SOLUTION // size)} examples, or fewer layers"
            )

    def _solve(self, model: Model, layers: Sequence[str]) -> Tensor:
        """H⁻¹∇L(xₙ, yₙ) for all training examples, (n, P)."""
        gradients = sample_gradients(model, self.train, self.train.batch, self.train.labels(self.name), layers)
        if self.solver != "cg":
            curvature = dense_curvature(model, self.train, layers, self.curvature)
            if curvature is not None:
                return solve_dense(curvature, gradients, self.damping).to(gradients)
            if self.solver == "closed":
                raise UserError(
                    f"influence in closed form needs a linear layer with one vector per sample and at most "
                    f"{LARGEST_DENSE} weights, unlike {', '.join(layers)}; use solver='cg'"
                )
        found = []
        for block in torch.split(gradients, max(1, _BLOCK // gradients.shape[1])):
            found.append(
                conjugate_gradients(
                    lambda v: curvature_products(model, self.train, layers, v, self.curvature) + self.damping * v,
                    block.double(),
                    self.tolerance,
                    self.iterations,
                ).to(gradients)
            )
        return torch.cat(found)
