"""MFABA: attribution along the path of an attack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof.errors import UserError
from heatproof.explainers.gradient import normalised, per_row, rows_of, slices
from heatproof.models import Model
from heatproof.models.modality import NO_CLASSES
from heatproof.types import STRICT, Batch, Method


@dataclass(frozen=True, config=STRICT)
class Mfaba(Method):
    """−Σ_j (x_{j+1} − x_j) · ∂p_t/∂x (x_j) along a descent of the target's probability p_t; (B, …) like the input.

    The path begins at the input x_0 = x and takes one to `steps` steps, until another class is predicted. "sharp",
    which the soft-stability paper uses, moves by −100·step along the gradient of length 1; "smooth" by −step·sign of
    the gradient and at most `reach` from x. Steps and reach are in units of the normalised input. The map sums to the
    loss p_t(x) − p_t(end) up to the steps' length.

    The authors' code keeps the path within [0, 1] even where the network sees normalised values, so the first step
    jumps to another picture. Here the path stays in the input's own range: the image of [0, 1] under the model's
    normalisation for images (B, C, H, W), from the sample's least to its largest value otherwise.

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> batch = Batch(("a",), torch.rand(1, 3, generator=torch.Generator().manual_seed(0)))
    >>> Mfaba(steps=3)(model, batch, model.logits(batch.x).argmax(1), seed=0).shape
    torch.Size([1, 3])
    """

    name: ClassVar[str] = "mfaba"

    steps: Annotated[int, Field(ge=1)] = 50
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.001
    variant: Literal["sharp", "smooth"] = "sharp"
    reach: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.3

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        inputs = normalised(model, batch)
        low, high = _own_range(model, batch, inputs)
        parts = [
            self._rows(
                model, inputs[r], low[r], high[r], rows_of(batch.aux, r, inputs.device), target[r]
            )
            for r in slices(len(inputs), model.rows)
        ]
        return torch.cat(parts)

    def _rows(
        self,
        model: Model,
        start: Tensor,
        low: Tensor,
        high: Tensor,
        aux: Mapping[str, Tensor],
        target: Tensor,
    ) -> Tensor:
        target = target.to(start.device)
        here, maps = start.clone(), torch.zeros_like(start)
        going = torch.arange(len(start), device=start.device)
        for number in range(self.steps):
            own = {name: value[going] for name, value in aux.items()}
            gradient, predicted = _probability_gradient(model, here[going], own, target[going])
            crossed = (predicted != target[going]) & (number > 0)
            going, gradient = going[~crossed], gradient[~crossed]
            if not len(going):
                break
            at = here[going]
            if self.variant == "sharp":
                length = per_row(gradient.flatten(1).norm(dim=1), gradient)
                tiny = torch.finfo(gradient.dtype).tiny
                ahead = at - 100 * self.step * gradient / length.clamp(min=tiny)
            else:
                moved = at - self.step * gradient.sign() - start[going]
                ahead = start[going] + moved.clamp(-self.reach, self.reach)
            ahead = ahead.maximum(low[going]).minimum(high[going])
            maps[going] -= (ahead - at) * gradient
            here[going] = ahead
        return maps


def _probability_gradient(
    model: Model, x: Tensor, aux: Mapping[str, Tensor], target: Tensor
) -> tuple[Tensor, Tensor]:
    """∂p_t/∂x (B, …) and the predicted classes (B,)."""
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        logits = model.logits(leaf.clone(), aux)
        chance = model.task.probability(logits)
        if chance is None or not model.task.exclusive:
            raise UserError(f"mfaba {NO_CLASSES.format(model.task.name)}")
        chosen = chance.gather(1, target[:, None]).sum()
        if not chosen.requires_grad:
            raise UserError(f"the output of {model.name} carries no gradient back to its input")
        (gradient,) = torch.autograd.grad(chosen, leaf, allow_unused=True, materialize_grads=True)
    return gradient, logits.detach().argmax(1)


def _own_range(model: Model, batch: Batch, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest value at every place, (B, …) each, never narrower than the input itself."""
    if inputs.ndim == 4:
        ends = (model.inputs(batch.with_x(torch.full_like(batch.x, value))) for value in (0.0, 1.0))
        low, high = (end.detach() for end in ends)
    else:
        flat = inputs.flatten(1)
        low, high = (per_row(v, inputs).expand_as(inputs) for v in (flat.amin(1), flat.amax(1)))
    return low.minimum(inputs), high.maximum(inputs)
