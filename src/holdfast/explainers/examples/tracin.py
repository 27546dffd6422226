"""TracIn: how far a training example and a sample pull the weights the same way, along the training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.errors import UserError
from holdfast.explainers.examples.loss_gradients import (
    Layers,
    State,
    check_differentiable,
    head,
    sample_gradients,
    weights_of,
)
from holdfast.explainers.examples.training_set import KEPT_BYTES, ExamplesField
from holdfast.explainers.gradient import slices
from holdfast.models import Model
from holdfast.models.checkpoints import Checkpoint, Checkpoints
from holdfast.types import STRICT, Batch

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _one_each(rates: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
    expected = max(1, len(info.data.get("checkpoints", ())))
    if "checkpoints" in info.data and len(rates) not in (0, 1, expected):
        raise UserError(f"{len(rates)} values for {expected} checkpoints; give one for each, or one for all")
    return rates


Rates = Annotated[
    tuple[Rate, ...],
    BeforeValidator(lambda v: (v,) if isinstance(v, int | float) and not isinstance(v, bool) else v),
    AfterValidator(_one_each),
]


@dataclass(frozen=True, config=STRICT)
class TracIn:
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
    kind: ClassVar[Literal["example"]] = "example"
    stochastic: ClassVar[bool] = False
    control: ClassVar[bool] = False

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
                yield sample_gradients(model, self.train, self.train.batch[rows], labels[rows], layers, state)

        weights = weights_of(model, layers).values()
        if len(self.train) * sum(p.numel() * p.element_size() for p in weights) > KEPT_BYTES:
            return made()
        key = ("gradients", tuple(layers), checkpoint)
        return self.train.remember(model, key, lambda: tuple(made()))
