"""MFABA: attribution along the path of an adversarial attack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.explainers.gradient import normalised, per_row, rows_of, slices
from heatproof.explainers.undefined import NEEDS_VECTORS
from heatproof.models import Model
from heatproof.types import Batch, Explainer, parameter_class


@parameter_class
class Mfaba(Explainer):
    """−Σ_j (x_{j+1} − x_j) · ∂p_t/∂x (x_j) along a descent of the target's probability p_t; (B, …) like the input.

    The path begins at the input x_0 = x and takes one to `steps` steps, until another class is predicted. "sharp",
    which the soft-stability paper uses, moves by −100·step along the unit gradient; "smooth" by −step·sign of
    the gradient and at most `reach` from x. Steps and reach are in units of the normalised input. The map sums to the
    drop p_t(x) − p_t(end), up to the discretisation error of the steps.

    The authors' code clips the path to [0, 1] even if the network gets normalised values, so that the first step
    jumps to another picture. Here the path stays in the range of the input: for images (B, C, H, W) the normalised
    values of 0 and 1, otherwise the sample's least and largest value.

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> batch = Batch(("a",), torch.rand(1, 3, generator=torch.Generator().manual_seed(0)))
    >>> Mfaba(steps=3)(model, batch, model.logits(batch.x).argmax(1), seed=0).shape
    torch.Size([1, 3])
    """

    name: ClassVar[str] = "mfaba"
    requires = ("gradients", "class probabilities")
    undefined_on = NEEDS_VECTORS
    cost = "`steps` passes and their gradients"

    steps: Annotated[int, Field(ge=1)] = 50
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.001
    variant: Literal["sharp", "smooth"] = "sharp"
    reach: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.3

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return MFABA's maps (B, …) of the classes `target` (B,): gradients summed along adversarial paths; `seed` is unused."""
        inputs = normalised(model, batch)
        low, high = _input_range(model, batch, inputs)
        maps = []
        for rows in slices(len(inputs), model.rows):
            aux = rows_of(batch.aux, rows, inputs.device)
            maps.append(
                self._path_maps(model, inputs[rows], low[rows], high[rows], aux, target[rows])
            )
        return torch.cat(maps)

    def _path_maps(
        self,
        model: Model,
        start: Tensor,
        low: Tensor,
        high: Tensor,
        aux: Mapping[str, Tensor],
        target: Tensor,
    ) -> Tensor:
        """Return MFABA's maps (B, …) of a few samples.

        From each sample a path follows the gradient to a lower probability of its class, until another class is
        predicted or `self.steps` are done, within `low` and `high` (B, …). The map is the sum of −step · gradient: how
        much of the probability's fall each value accounts for.
        """
        target = target.to(start.device)
        current = start.clone()
        maps = torch.zeros_like(start)
        active = torch.arange(len(start), device=start.device)
        for number in range(self.steps):
            active_aux = {name: value[active] for name, value in aux.items()}
            gradient, predicted = _probability_gradient(
                model, current[active], active_aux, target[active]
            )
            # A sample stops when another class is predicted, but not before its first step.
            stopped = (predicted != target[active]) & (number > 0)
            active, gradient = active[~stopped], gradient[~stopped]
            if not len(active):
                break
            point = current[active]
            if self.variant == "sharp":
                length = per_row(gradient.flatten(1).norm(dim=1), gradient)
                tiny = torch.finfo(gradient.dtype).tiny
                following = point - 100 * self.step * gradient / length.clamp(min=tiny)
            else:
                change = point - self.step * gradient.sign() - start[active]
                following = start[active] + change.clamp(-self.reach, self.reach)
            following = following.maximum(low[active]).minimum(high[active])
            maps[active] -= (following - point) * gradient
            current[active] = following
        return maps


def _probability_gradient(
    model: Model, x: Tensor, aux: Mapping[str, Tensor], target: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradient of the target's probability by the input, (B, …), and the predicted classes (B,)."""
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        # The network gets a copy of the leaf, for its first step may work in place.
        logits = model.logits(leaf.clone(), aux)
        probability = model.task.probability(logits)
        if probability is None or not model.task.exclusive:
            raise UserError(f"mfaba reads class probabilities, and {model.task.name} has none")
        chosen = probability.gather(1, target[:, None]).sum()
        if not chosen.requires_grad:
            raise UserError(f"the output of {model.name} carries no gradient back to its input")
        (gradient,) = torch.autograd.grad(chosen, leaf, allow_unused=True, materialize_grads=True)
    return gradient, logits.detach().argmax(1)


def _input_range(model: Model, batch: Batch, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value that an adversarial path may reach at every position, (B, …) each.

    For images these are black and white, normalised; for other data the least and largest value of the sample. A range
    always includes the input itself.
    """
    if inputs.ndim == 4:
        low = model.inputs(batch.with_x(torch.full_like(batch.x, 0.0))).detach()
        high = model.inputs(batch.with_x(torch.full_like(batch.x, 1.0))).detach()
    else:
        flat = inputs.flatten(1)
        low = per_row(flat.amin(1), inputs).expand_as(inputs)
        high = per_row(flat.amax(1), inputs).expand_as(inputs)
    return low.minimum(inputs), high.maximum(inputs)
