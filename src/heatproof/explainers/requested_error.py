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
    """Return the requested relative error of a map as a float, None for none; refuse one outside (0, 1)."""
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
    """Return the maps (B, …) of an explainer that are as precise as its field `error` requests.

    Each sample gets as many draws or steps as it needs for that.
    """
    maps, _ = _increase_counts(explainer, model, batch, target, seed)
    return maps


def counts_and_errors(
    explainer: Any, model: Model, batch: Batch, target: Tensor, seed: int
) -> Tensor:
    """Return how many draws or steps each sample needs for the requested error, and its error then, (B, 2) float64.

    >>> from heatproof.explainers import IntegratedGradients
    >>> model = Model(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softplus()))
    >>> explainer, batch = IntegratedGradients(error=0.01), Batch(("a",), torch.ones(1, 3))
    >>> int(counts_and_errors(explainer, model, batch, torch.tensor([0]), seed=0)[0, 0])
    16
    """
    _, reached = _increase_counts(explainer, model, batch, target, seed)
    return reached


def _increase_counts(
    explainer: Any, model: Model, batch: Batch, target: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    """Return a map of each sample that is as precise as requested, (B, …), and its count and error, (B, 2).

    The count is the number of draws or steps that the map is computed with. It is doubled along `LADDER`; samples whose
    error is at most `explainer.error` keep their map, and only the others are explained again.

    A method with `steps`, such as integrated gradients, has an error that follows from its map alone: the gap to the sum
    that the map should have. The error of a method with random draws is estimated from a second map with other draws, and
    from the second map at the previous count.
    """
    has_steps = hasattr(explainer, "steps")
    map_of_row: dict[int, Tensor] = {}
    reached = torch.zeros(len(batch), 2, dtype=torch.float64)
    active = torch.arange(len(batch))  # the samples that are not precise enough yet
    previous_second_maps: Tensor | None = None  # with half as many draws
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
            second_maps = counted(model, rows, classes, seed + _OTHER_DRAWS)
            error = _standard_error(maps, second_maps, previous_second_maps)
            # The first count has no previous one to compare with, so its error may be too low.
            may_stop = previous_second_maps is not None
            previous_second_maps = second_maps
        reached[active] = torch.stack([torch.full_like(error, count), error], 1)

        # An error of NaN is not precise enough either: it compares as false.
        is_precise = (error <= explainer.error) & may_stop
        active = active[~is_precise]
        if previous_second_maps is not None:
            is_active = ~is_precise.to(previous_second_maps.device)
            previous_second_maps = previous_second_maps[is_active]
        if not len(active):
            break
    maps_in_order = torch.stack([map_of_row[row] for row in range(len(batch))])
    return maps_in_order, reached


def _suffices(counted: Any, model: Model, batch: Batch) -> bool:
    """Return whether an explainer accepts its number of draws for samples of this shape.

    Some methods need more draws than there are features. If even the last count of `LADDER` is too small, the
    explainer's own error is raised.
    """
    is_last = counted.samples == LADDER[-1] if hasattr(counted, "samples") else True
    try:
        counted.check(model, batch.x.shape[1:])
    except UserError:
        if is_last:
            raise
        return False
    return True


def _completeness_error(maps: Tensor, promised: Tensor) -> Tensor:
    """Return how far the sum of each map is from the sum that it should have, relative to the latter, (B,).

    Completeness (Sundararajan et al. 2017, Proposition 1): a map of integrated gradients should sum to
    f_t(x) − f_t(baseline), which is `promised` (B,).
    """
    promised = promised.double()
    gap = (maps.flatten(1).double().sum(1) - promised).abs()
    return _relative(gap, promised.abs())


def _standard_error(maps: Tensor, second: Tensor, half_as_many: Tensor | None) -> Tensor:
    """Return an estimate of the standard error of each map, relative to the map's norm, (B,).

    `second` are maps m′ of as many independent draws as the `maps` m have, and `half_as_many` independent maps m″ of half
    as many. Each gives an estimate, and the larger one is returned.
    """
    flat = maps.flatten(1).double()
    # The maps are independent, and the variance is inversely proportional to the number of draws. So
    # Var(m − m′) = Var(m) + Var(m) = 2 Var(m), and Var(m − m″) = Var(m) + 2 Var(m) = 3 Var(m).
    deviation = (flat - second.flatten(1).double()).norm(dim=1) / 2**0.5
    if half_as_many is not None:
        from_half = (flat - half_as_many.flatten(1).double()).norm(dim=1) / 3**0.5
        deviation = deviation.maximum(from_half)
    return _relative(deviation, flat.norm(dim=1))


def _relative(error: Tensor, size: Tensor) -> Tensor:
    """Return error / size (B,) on the CPU, and 0 where the error is 0, even if the size is 0 too."""
    return torch.where(error > 0, error / size, 0.0).cpu()


def _with_count(explainer: Any, count: int) -> Any:
    """Return a copy of an explainer with `count` steps or draws, whichever it has, and no requested error."""
    parameter = "steps" if hasattr(explainer, "steps") else "samples"
    return replace(explainer, error=None, **{parameter: count})
