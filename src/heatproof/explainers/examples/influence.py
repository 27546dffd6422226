"""Influence functions and TracIn, which tell the training examples that lower the loss of a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from torch import Tensor

from heatproof.errors import UserError
from heatproof.explainers.examples.curvature import (
    LARGEST_DENSE,
    Curvature,
    conjugate_gradients,
    curvature_products,
    dense_curvature,
    solve_dense,
)
from heatproof.explainers.examples.loss_gradients import (
    Layers,
    State,
    check_differentiable,
    head,
    is_linear,
    sample_gradients,
    weights_of,
)
from heatproof.explainers.examples.training_set import KEPT_BYTES, ByExamples, ExamplesField
from heatproof.explainers.gradient import slices
from heatproof.models import Model
from heatproof.models.checkpoints import Checkpoint, Checkpoints
from heatproof.types import Batch, parameter_class

LARGEST_SOLUTION = 2**28
"""The most numbers, examples times weights, that the solved gradients of the training set may have (1 GiB)."""
_BLOCK = 2**25
"""The most numbers, examples times weights, that conjugate gradients solve for together."""


@parameter_class
class Influence(ByExamples):
    """∇L(x, t)ᵀ H⁻¹ ∇L(xₙ, yₙ) for every training example n and the target class t; (B, n) float32.

    The method of Koh and Liang (ICML 2017). H is the curvature of the mean training loss plus `damping`·I, with respect
    to the weights of `layers`: by default the last linear layer that runs. Divided by the number of examples, the value
    approximates to first order how much L(x, t) rises if the model is trained without n, so a positive value marks an
    example that helped. The approximation assumes weights that minimise the mean loss + damping/2·‖θ‖².

    "gauss_newton" is the curvature without the network's own second derivatives. It equals the Hessian for the last
    layer, and is positive semidefinite for every layer; a "hessian" may be indefinite, which is an error. The solver
    "closed", for one linear layer on vectors with at most 6144 weights, is a Cholesky factorisation in double
    precision. "cg" runs conjugate gradients for any layers, until every relative residual is at most `tolerance`, and
    raises if `iterations` do not suffice. "auto" is "closed" where that is possible, else "cg".

    >>> train = Batch(("a", "b"), torch.tensor([[1.0], [-1.0]]), label=torch.tensor([1, 0]))
    >>> values = Influence(train)(Model(torch.nn.Linear(1, 2)), train, torch.tensor([1, 0]), seed=0)
    >>> values.shape, bool((values.diag() > 0).all())
    (torch.Size([2, 2]), True)
    """

    name: ClassVar[str] = "influence"
    requires = ("gradients", "class probabilities")

    train: ExamplesField
    layers: Layers = ()
    damping: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    solver: Literal["auto", "closed", "cg"] = "auto"
    curvature: Curvature = "gauss_newton"
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    iterations: Annotated[int, Field(ge=1)] = 1000

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` for layers, labels or training examples that do not fit the model and samples of `shape`."""
        check_differentiable(model, self.train, self.layers, shape, self.name)
        if not self.layers:
            return
        is_one_linear_layer = len(self.layers) == 1 and is_linear(model, self.layers[0])
        if self.solver == "closed" and not is_one_linear_layer:
            raise UserError(
                f"influence in closed form is for one linear layer, got {', '.join(self.layers)}; use solver='cg'"
            )
        self._check_size(model, self.layers)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the influence (B, n) of each of n training examples on the sample's loss at its class `target` (B,).

        That is ∇L(x, target)ᵀ (H + damping · I)⁻¹ ∇L(xₙ, yₙ) (Koh and Liang 2017). The solved gradients of the training
        examples are cached; `seed` is unused.
        """
        self.check(model, batch.x.shape[1:])
        layers = self.layers or (head(model, self.train),)
        self._check_size(model, layers)
        key = (
            "influence",
            layers,
            self.damping,
            self.solver,
            self.curvature,
            self.tolerance,
            self.iterations,
        )
        solved = self.train.remember(model, key, lambda: self._solve(model, layers))
        gradients = sample_gradients(model, self.train, batch, target, layers)
        return (gradients.to(solved) @ solved.T).float()

    def _check_size(self, model: Model, layers: Sequence[str]) -> None:
        """Raise if the solved gradients of the training set would be too large."""
        size = sum(weight.numel() for weight in weights_of(model, layers).values())
        if size * len(self.train) > LARGEST_SOLUTION:
            raise UserError(
                f"influence over {size:,} weights and {len(self.train)} training examples needs more than 1 GiB; "
                f"take at most {max(1, LARGEST_SOLUTION // size)} examples, or fewer layers"
            )

    def _solve(self, model: Model, layers: Sequence[str]) -> Tensor:
        """Return (H + damping · I)⁻¹ ∇L(xₙ, yₙ) for all n training examples, (n, P).

        H is the Hessian of the mean training loss by the P weights of the layers, or its Gauss–Newton part. For a single
        linear layer it is a matrix that is inverted; else conjugate gradients solve by products with it.
        """
        labels = self.train.labels(self.name)
        gradients = sample_gradients(model, self.train, self.train.batch, labels, layers)
        if self.solver != "cg":
            curvature = dense_curvature(model, self.train, layers, self.curvature)
            if curvature is not None:
                return solve_dense(curvature, gradients, self.damping).to(gradients)
            if self.solver == "closed":
                raise UserError(
                    f"influence in closed form needs a linear layer with one vector per sample and at most "
                    f"{LARGEST_DENSE} weights, unlike {', '.join(layers)}; use solver='cg'"
                )

        def damped_product(vectors: Tensor) -> Tensor:
            """Return (H + damping · I) v for each row v of `vectors` (K, P)."""
            product = curvature_products(model, self.train, layers, vectors, self.curvature)
            return product + self.damping * vectors

        solutions = []
        for block in torch.split(gradients, max(1, _BLOCK // gradients.shape[1])):
            solution = conjugate_gradients(
                damped_product, block.double(), self.tolerance, self.iterations
            )
            solutions.append(solution.to(gradients))
        return torch.cat(solutions)


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _as_rates(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (value,) if is_number else value


def _check_rates(rates: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
    """Raise unless there is one learning rate for all checkpoints or one for each."""
    if "checkpoints" not in info.data:
        return rates  # they are invalid themselves
    expected = max(1, len(info.data["checkpoints"]))
    if len(rates) not in (0, 1, expected):
        raise UserError(
            f"{len(rates)} values for {expected} checkpoints; give one for each, or one for all"
        )
    return rates


Rates = Annotated[tuple[Rate, ...], BeforeValidator(_as_rates), AfterValidator(_check_rates)]


@parameter_class
class TracIn(ByExamples):
    """Σ_t η_t ⟨∇L_t(x, c), ∇L_t(xₙ, yₙ)⟩ over checkpoints t, for every training example n; (B, n) float32.

    The method of Pruthi et al. (NeurIPS 2020). The gradients are those of the cross-entropy at the target class c, with
    the weights of checkpoint t, with respect to the weights of `layers`: by default the last linear layer that runs. A
    positive value marks an example whose training steps lowered the sample's loss. `checkpoints` are state dicts or
    paths of `.pt` or `.safetensors` files; without any, the model's current weights are used. `learning_rates` η are
    one per checkpoint, one for all, or 1.

    The gradients of the training set are cached between calls if they fit into 1 GiB.

    >>> train = Batch(("a", "b"), torch.tensor([[1.0], [-1.0]]), label=torch.tensor([1, 0]))
    >>> values = TracIn(train)(Model(torch.nn.Linear(1, 2)), train, torch.tensor([1, 0]), seed=0)
    >>> values.shape, bool((values.diag() > 0).all())
    (torch.Size([2, 2]), True)
    """

    name: ClassVar[str] = "tracin"
    requires = ("gradients", "class probabilities")

    train: ExamplesField
    checkpoints: Checkpoints = ()
    learning_rates: Rates = ()
    layers: Layers = ()

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise unless layers, checkpoints, labels and shapes of the training examples fit; no pass is made."""
        check_differentiable(model, self.train, self.layers, shape, self.name)
        for checkpoint in self.checkpoints:
            checkpoint.weights(model)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return TracIn's influences (B, n) of n training examples on the sample's loss at its class `target` (B,).

        Over the checkpoints of the training, products of the sample's and the example's gradients are summed, times the
        learning rate (Pruthi et al. 2020). `seed` is unused.
        """
        check_differentiable(model, self.train, self.layers, batch.x.shape[1:], self.name)
        layers = self.layers or (head(model, self.train),)
        total = torch.zeros(len(batch), len(self.train), dtype=torch.float64, device=model.device)
        for rate, checkpoint in self._rated_checkpoints():
            state: State = {} if checkpoint is None else checkpoint.weights(model)
            gradients = sample_gradients(model, self.train, batch, target, layers, state)
            training_gradients = self._training_gradients(model, layers, checkpoint, state)
            products = [gradients @ rows.T for rows in training_gradients]
            total += rate * torch.cat(products, 1)
        return total.float()

    def _rated_checkpoints(self) -> Iterable[tuple[float, Checkpoint | None]]:
        """Return the learning rate and the checkpoint of every term; None is the model's current weights."""
        checkpoints: Sequence[Checkpoint | None] = self.checkpoints or (None,)
        rates = self.learning_rates or (1.0,)
        if len(rates) == 1:
            rates = rates * len(checkpoints)
        return zip(rates, checkpoints, strict=True)

    def _training_gradients(
        self, model: Model, layers: Sequence[str], checkpoint: Checkpoint | None, state: State
    ) -> Iterable[Tensor]:
        """Return the loss gradients of all training examples with a checkpoint's weights, in pieces (≤ rows, P).

        `state` are the weights of the `checkpoint`. If all gradients fit into the cache, they are kept there; else they are
        computed anew, piece by piece, each time.
        """
        labels = self.train.labels(self.name)

        def compute() -> Iterator[Tensor]:
            """Yield the gradients of at most `model.rows` examples at a time."""
            for rows in slices(len(self.train), model.rows):
                part = self.train.batch[rows]
                yield sample_gradients(model, self.train, part, labels[rows], layers, state)

        weights = weights_of(model, layers).values()
        size = sum(weight.numel() * weight.element_size() for weight in weights)
        if len(self.train) * size > KEPT_BYTES:
            return compute()
        key = ("gradients", tuple(layers), checkpoint)
        return self.train.remember(model, key, lambda: tuple(compute()))
