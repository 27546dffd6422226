"""A requested error in place of a number of draws or steps: more and more of them until the map is precise enough.

The counts are those of `LADDER`. For a method that draws, the error is the standard error of the map relative to its
norm: √(‖m − m′‖² / 2) / ‖m‖ for two independent maps m and m′ of as many draws. With the map m″ of half as many draws
it is √(‖m − m″‖² / 3) / ‖m‖, and the larger of the two counts, so that what more draws would still change is seen too.
For integrated gradients the error is the completeness gap, |Σm − (f_t(x) − f_t(b))| / |f_t(x) − f_t(b)|.

Each sample gets the first count from the second on whose error is at most the requested one, or the last count. It
depends on the seed, the id and the sample alone, and is found in the explainer's own call, for every input anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.types import Batch

LADDER = tuple(16 << k for k in range(10))
"""Draws or steps, from 16 to 8192."""
_OTHER_DRAWS = 1 << 40


def _check_error(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise UserError(
            f"error is a number between 0 and 1, such as 0.05 for a twentieth of the map, got {value!r}"
        )
    return float(value)


RequestedError = Annotated[float | None, BeforeValidator(_check_error)]
"""The type of the field `error` of an explainer."""


def explain_to_error(
    explainer: Any, model: Model, batch: Batch, target: Tensor, seed: int
) -> Tensor:
    """Return the maps (B, …) of an explainer with a requested error, each with the count that its sample needs."""
    maps, _ = _climb(explainer, model, batch, target, seed)
    return maps


def counts_and_errors(
    explainer: Any, model: Model, batch: Batch, target: Tensor, seed: int
) -> Tensor:
    """Return the count that each sample needs, and the error that its map then has, (B, 2) float64.

    >>> from heatproof.explainers import IntegratedGradients
    >>> model = Model(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softplus()))
    >>> explainer, batch = IntegratedGradients(error=0.01), Batch(("a",), torch.ones(1, 3))
    >>> int(counts_and_errors(explainer, model, batch, torch.tensor([0]), seed=0)[0, 0])
    16
    """
    _, reached = _climb(explainer, model, batch, target, seed)
    return reached


def _climb(
    explainer: Any, model: Model, batch: Batch, target: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    """Return the maps (B, …), and their counts and errors (B, 2); samples that are precise enough leave the ladder."""
    has_steps = hasattr(explainer, "steps")
    map_of_row: dict[int, Tensor] = {}
    reached = torch.zeros(len(batch), 2, dtype=torch.float64)
    active = torch.arange(len(batch))
    half_as_many: Tensor | None = None
    for count in LADDER:
        rung = _with_count(explainer, count)
        try:
            rung.check(model, batch.x.shape[1:])
        except UserError:
            if count == LADDER[-1]:
                raise
            continue  # too few for so many features

        part, part_target = batch[active], target[active.to(target.device)]
        maps = rung(model, part, part_target, seed)
        map_of_row.update(zip(active.tolist(), maps, strict=True))
        flat = maps.flatten(1).double()
        if has_steps:
            promised = rung.promised(model, part, part_target).double()
            off, size = (flat.sum(1) - promised).abs(), promised.abs()
            is_first = False
        else:
            other = rung(model, part, part_target, seed + _OTHER_DRAWS).flatten(1).double()
            off, size = (flat - other).norm(dim=1) / 2**0.5, flat.norm(dim=1)
            is_first = half_as_many is None
            if half_as_many is not None:
                off = off.maximum((flat - half_as_many).norm(dim=1) / 3**0.5)
            half_as_many = other
        # A map of zeros that should be zero has no error.
        error = torch.where(off > 0, off / size, 0.0).cpu()
        reached[active] = torch.stack([torch.full_like(error, count), error], 1)

        is_active = ~(error <= explainer.error) | is_first
        active = active[is_active]
        if half_as_many is not None:
            half_as_many = half_as_many[is_active.to(half_as_many.device)]
        if not len(active):
            break
    return torch.stack([map_of_row[row] for row in range(len(batch))]), reached


def _with_count(explainer: Any, count: int) -> Any:
    parameter = "steps" if hasattr(explainer, "steps") else "samples"
    return replace(explainer, error=None, **{parameter: count})
