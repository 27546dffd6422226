"""Which training examples lower the loss of a sample: influence functions, and TracIn along the training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic.dataclasses import dataclass
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
from heatproof.types import STRICT, Batch

LARGEST_SOLUTION = 2**28
"""The most numbers, examples times weights, that the solved gradients of the training set may have (1 GiB)."""
_BLOCK = 2**25


@dataclass(frozen=True, config=STRICT)
class Influence(ByExamples):
    """∇L(x, t)ᵀ H⁻¹ ∇L(xₙ, yₙ) for every training example n and the target class t; (B, n) float32.

    H is the curvature of the mean training loss plus `damping`·I, with respect to the weights of `layers`: by default
    the last linear layer that runs. Divided by the number of examples, the value is to first order L(x, t) after
    training without n minus L(x, t), so a positive one marks an example that helped; exactly so when the weights
    minimise the mean loss + damping/2·‖θ‖².

    "gauss_newton" is the curvature without the network's own second derivatives: the Hessian for the last layer, and
    positive definite for every other; a "hessian" may be indefinite, which is an error. The solver "closed", for one
    linear layer on vectors of at most 6144 weights, is a Cholesky factorisation in double precision; "cg" runs
    conjugate gradients for any layers, until every relative residual is at most `tolerance`, and raises if `iterations`
    do not suffice; "auto" takes the first where it applies.

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
        """Raise unless layers, labels and shapes of the training examples fit; no pass is made."""
        check_differentiable(model, self.train, self.layers, shape, self.name)
        if (
            self.solver == "closed"
            and self.layers
            and not (len(self.layers) == 1 and is_linear(model, self.layers[0]))
        ):
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
        size = sum(p.numel() for p in weights_of(model, layers).values())
        if size * len(self.train) > LARGEST_SOLUTION:
            raise UserError(
                f"influence over {size:,} weights and {len(self.train)} training examples needs more than 1 GiB; "
                f"take at most {max(1, LARGEST_SOLUTION // size)} examples, or fewer layers"
            )

    def _solve(self, model: Model, layers: Sequence[str]) -> Tensor:
        """H⁻¹∇L(xₙ, yₙ) for all training examples, (n, P)."""
        gradients = sample_gradients(
            model, self.train, self.train.batch, self.train.labels(self.name), layers
        )
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
                    lambda v: (
                        curvature_products(model, self.train, layers, v, self.curvature)
                        + self.damping * v
                    ),
                    block.double(),
                    self.tolerance,
                    self.iterations,
                ).to(gradients)
            )
        return torch.cat(found)


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _one_each(rates: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
    expected = max(1, len(info.data.get("checkpoints", ())))
    if "checkpoints" in info.data and len(rates) not in (0, 1, expected):
        raise UserError(
            f"{len(rates)} values for {expected} checkpoints; give one for each, or one for all"
        )
    return rates


Rates = Annotated[
    tuple[Rate, ...],
    BeforeValidator(
        lambda v: (v,) if isinstance(v, int | float) and not isinstance(v, bool) else v
    ),
    AfterValidator(_one_each),
]


@dataclass(frozen=True, config=STRICT)
class TracIn(ByExamples):
    """Σ_t η_t ⟨∇L_t(x, c), ∇L_t(xₙ, yₙ)⟩ over checkpoints t, for every training example n; (B, n) float32.

    The gradients are those of the cross-entropy at the target class c, with the weights of checkpoint t, by the weights
    of `layers`: by default the last linear layer that runs. A positive value marks an example whose training steps
    lowered the sample's loss. `checkpoints` are state dicts or paths of `.pt` or `.safetensors` files, and the model's
    current weights when there are none; `learning_rates` η are one for each, one for all, or 1.

    The training set's gradients are kept between calls up to 1 GiB, and computed anew in every call beyond that.

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
        """Values (B, n) for the classes `target` (B,)."""
        check_differentiable(model, self.train, self.layers, batch.x.shape[1:], self.name)
        layers = self.layers or (head(model, self.train),)
        total = torch.zeros(len(batch), len(self.train), dtype=torch.float64, device=model.device)
        for rate, checkpoint in self._visits():
            state: State = {} if checkpoint is None else checkpoint.weights(model)
            own = sample_gradients(model, self.train, batch, target, layers, state)
            others = self._training_gradients(model, layers, checkpoint, state)
            total += rate * torch.cat([own @ rows.T for rows in others], 1)
        return total.float()

    def _visits(self) -> Iterable[tuple[float, Checkpoint | None]]:
        visits: Sequence[Checkpoint | None] = self.checkpoints or (None,)
        rates = self.learning_rates or (1.0,)
        return zip(rates * len(visits) if len(rates) == 1 else rates, visits, strict=True)

    def _training_gradients(
        self, model: Model, layers: Sequence[str], checkpoint: Checkpoint | None, state: State
    ) -> Iterable[Tensor]:
        """The gradients of the training examples (≤ rows, P), a few at a time."""
        labels = self.train.labels(self.name)

        def made() -> Iterator[Tensor]:
            for rows in slices(len(self.train), model.rows):
                yield sample_gradients(
                    model, self.train, self.train.batch[rows], labels[rows], layers, state
                )

        weights = weights_of(model, layers).values()
        if len(self.train) * sum(p.numel() * p.element_size() for p in weights) > KEPT_BYTES:
            return made()
        key = ("gradients", tuple(layers), checkpoint)
        return self.train.remember(model, key, lambda: tuple(made()))
