"""A requested error in place of a number of draws or steps: the count is doubled until each map is precise enough.

`explainer(error=0.05)` tries the counts of `LADDER`, 16, 32, …, and gives each sample the map of the first count whose
error is at most 0.05, or of the last count. The error of a map m is

- integrated gradients: the completeness gap |Σm − (f_t(x) − f_t(b))| / |f_t(x) − f_t(b)|
- methods that draw: the standard error relative to the map's norm, from a second map m′ of as many independent draws,
  √(‖m − m′‖² / 2) / ‖m‖; and from the m″ of half as many draws, √(‖m − m″‖² / 3) / ‖m‖. The larger of the two counts,
  so that a change that more draws would still bring is seen too. There is no m″ at the first count, which therefore is
  never the last one.

The count of a sample depends on the seed, its id and its values alone.
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
"""Added to the seed for a second map of independent draws."""


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
    """Return the maps (B, …), and their counts and errors (B, 2); samples that are precise enough drop out.

    A method with `steps` has an error that one map shows: the gap to the sum that its map should have. The error of a
    method with random draws is estimated from a second map, and from the one of the count before.
    """
    has_steps = hasattr(explainer, "steps")
    map_of_row: dict[int, Tensor] = {}
    reached = torch.zeros(len(batch), 2, dtype=torch.float64)
    active = torch.arange(len(batch))
    half_as_many: Tensor | None = None
    for count in LADDER:
        counted = _with_count(explainer, count)
        if not _suffices(counted, model, batch):
            continue
        rows, classes = batch[active], target[active.to(target.device)]
        maps = counted(model, rows, classes, seed)
        map_of_row.update(zip(active.tolist(), maps, strict=True))
        if has_steps:
            error = _completeness_error(maps, counted.promised(model, rows, classes))
            may_stop = True
        else:
            second = counted(model, rows, classes, seed + _OTHER_DRAWS)
            error = _standard_error(maps, second, half_as_many)
            # At the first count there is no map of half as many draws, which the error is taken from as well.
            may_stop = half_as_many is not None
            half_as_many = second
        reached[active] = torch.stack([torch.full_like(error, count), error], 1)

        # Written as "not at most", so that an error of NaN goes on.
        is_active = ~(error <= explainer.error) | (not may_stop)
        active = active[is_active]
        if half_as_many is not None:
            half_as_many = half_as_many[is_active.to(half_as_many.device)]
        if not len(active):
            break
    return torch.stack([map_of_row[row] for row in range(len(batch))]), reached


def _suffices(counted: Any, model: Model, batch: Batch) -> bool:
    """Return whether the explainer accepts its count; too few draws cannot tell many features apart."""
    is_last = counted.samples == LADDER[-1] if hasattr(counted, "samples") else True
    try:
        counted.check(model, batch.x.shape[1:])
    except UserError:
        if is_last:
            raise
        return False
    return True


def _completeness_error(maps: Tensor, promised: Tensor) -> Tensor:
    """Return the relative gap (B,) between the sum of each map and what it should be."""
    promised = promised.double()
    gap = (maps.flatten(1).double().sum(1) - promised).abs()
    return _relative(gap, promised.abs())


def _standard_error(maps: Tensor, second: Tensor, half_as_many: Tensor | None) -> Tensor:
    """Return the relative standard error (B,) of each map, from a second one and from one of half as many draws."""
    flat = maps.flatten(1).double()
    # Var(m − m′) = 2 Var(m), and Var(m − m″) = 3 Var(m).
    deviation = (flat - second.flatten(1).double()).norm(dim=1) / 2**0.5
    if half_as_many is not None:
        from_half = (flat - half_as_many.flatten(1).double()).norm(dim=1) / 3**0.5
        deviation = deviation.maximum(from_half)
    return _relative(deviation, flat.norm(dim=1))


def _relative(error: Tensor, size: Tensor) -> Tensor:
    """Return error / size on the CPU; a map of zeros that should be zero has no error."""
    return torch.where(error > 0, error / size, 0.0).cpu()


def _with_count(explainer: Any, count: int) -> Any:
    parameter = "steps" if hasattr(explainer, "steps") else "samples"
    return replace(explainer, error=None, **{parameter: count})
